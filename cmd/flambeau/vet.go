package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/alecthomas/kong"
)

type vetCmd struct {
	Args []string `arg:"" optional:"" help:"Flags of go vet, and packages. ./... stands for all packages of the module."`
}

// Run starts go vet with this program as its vet tool. The exit status is go vet's.
func (c *vetCmd) Run(e *env, k *kong.Context) error {
	if len(c.Args) == 1 && (c.Args[0] == "--help" || c.Args[0] == "-h") {
		return k.PrintUsage(false)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("vet: %w", err)
	}
	goCmd, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("vet: %w: vet needs the go command, which loads the program's packages; "+
			"put the directory of Go's bin into PATH", err)
	}
	cmd := exec.CommandContext(e.ctx, goCmd, append([]string{"vet", "-vettool=" + self}, c.Args...)...)
	cmd.Stdout, cmd.Stderr = e.out, e.err
	err = cmd.Run()
	if e.ctx.Err() != nil {
		return errInterrupted
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exitStatus(exit.ExitCode())
	}
	return err
}
