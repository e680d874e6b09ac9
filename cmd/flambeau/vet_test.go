package main

import (
	"strings"
	"testing"
)

// The command "flambeau vet" runs go vet with this program as the tool. Flags, reports and exit
// status are those of go vet. The test uses a package with few dependencies, because go vet runs
// the tool on each dependency.
func TestVet(t *testing.T) {
	for _, c := range []struct {
		args, path, want string
		status           int
	}{
		{"vet -nesteddo -json ../../dtype", "", "{}", 0}, // a flag of an analyzer
		{"vet -nosuchcheck ../../dtype", "", "-nosuchcheck", 2},
		{"vet ./nowhere", "", "nowhere", 1},
		{"help vet", "", "Flags of go vet, and packages", 0},
		{"vet ./...", "PATH=", "vet needs the go command", 1},
	} {
		p := process(t, "off", strings.Fields(c.args)...)
		if c.path != "" {
			p.Env = append(p.Env, c.path)
		}
		out, _ := p.CombinedOutput()
		if p.ProcessState.ExitCode() != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: status %d, not %d\n%s", c.args, p.ProcessState.ExitCode(), c.status, out)
		}
	}
}
