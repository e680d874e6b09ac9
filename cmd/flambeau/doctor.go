package main

import (
	"encoding/json"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/doctor"
)

// exitStatus is an error that only sets the exit status, after the command has printed everything.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

type doctorCmd struct {
	JSON bool `help:"Print one JSON object." name:"json"`
}

// examine is doctor.Examine, except in tests.
var examine = doctor.Examine

// Run prints the doctor's findings. The exit status is that of [doctor.Report.ExitCode].
func (c *doctorCmd) Run(e *env) error {
	r := examine()
	var err error
	if c.JSON {
		enc := json.NewEncoder(e.out)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		err = r.WriteText(e.out)
	}
	if err == nil && r.ExitCode() != 0 {
		err = exitStatus(r.ExitCode())
	}
	return err
}
