package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/cuda/doctor"
)

// The exit status of "flambeau doctor" reflects the findings, with text and with JSON output.
// Nothing is written to standard error.
func TestDoctorStatus(t *testing.T) {
	defer func() { examine = doctor.Examine }()
	for _, level := range []doctor.Level{doctor.Note, doctor.Slow, doctor.Unused} {
		examine = func() *doctor.Report {
			return &doctor.Report{Verdict: level, Findings: []doctor.Finding{{ID: "planted", Level: level, Seen: "something", Do: "nothing"}}}
		}
		for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
			var out, errOut bytes.Buffer
			if status := run(args, &out, &errOut); status != int(level) || errOut.Len() > 0 {
				t.Errorf("%v of %v: status %d, %q", args, level, status, errOut.String())
			}
			if !strings.Contains(out.String(), "something") || len(args) == 1 && !strings.Contains(out.String(), strings.ToUpper(level.String())+" ") {
				t.Errorf("%v of %v: %s", args, level, out.String())
			}
			if len(args) == 1 {
				continue
			}
			var r struct {
				Verdict  string
				Findings []struct{ ID, Level, Seen, Do string }
			}
			if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Verdict != level.String() || len(r.Findings) != 1 || r.Findings[0].ID != "planted" || r.Findings[0].Do != "nothing" {
				t.Errorf("%s, %v", out.String(), err)
			}
		}
	}
}

// The doctor finds a usable GPU exactly if this machine has one.
func TestDoctorHere(t *testing.T) {
	var out, errOut bytes.Buffer
	status := run([]string{"doctor"}, &out, &errOut)
	if !cuda.IsAvailable() && (status != 2 || !strings.HasPrefix(out.String(), "No GPU is used:\n\nUNUSED  ") || !strings.Contains(out.String(), "\n        do: ")) {
		t.Errorf("status %d: %s%s", status, out.String(), errOut.String())
	}
	if status < 0 || status > 2 {
		t.Errorf("status %d", status)
	}
}
