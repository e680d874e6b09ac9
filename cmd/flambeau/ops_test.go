package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/tensor/optest"
)

// The command "ops" prints the ops of the test table, one in each line, and the header separately.
// With --json it prints the same data.
func TestOps(t *testing.T) {
	var out, header bytes.Buffer
	if status := run([]string{"ops"}, &out, &header); status != 0 {
		t.Fatalf("status %d: %s", status, header.String())
	}
	ops := optest.Matrix()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(ops) {
		t.Fatalf("%d lines for %d ops", len(lines), len(ops))
	}
	for i, o := range ops {
		if !strings.HasPrefix(lines[i], o.Name+" ") {
			t.Errorf("line %d is %q, want that of %s", i, lines[i], o.Name)
		}
	}
	if h := header.String(); !strings.HasPrefix(h, "op ") || strings.Count(h, "\n") != 1 {
		t.Errorf("header %q", h)
	}
	for _, want := range []string{"Add  all floats yes", "BitwiseAnd  bool and integers - -", "Gelu  all floats yes", "Argmax  all - -", "RandPerm  int64 - -"} {
		op, rest, _ := strings.Cut(want, "  ")
		found := ""
		for _, l := range lines {
			if f := strings.Fields(l); f[0] == op {
				found = strings.TrimPrefix(strings.Join(f[1:], " "), "cpu cuda ")
			}
		}
		if found != rest {
			t.Errorf("%s: %q, want %q", op, found, rest)
		}
	}
	out.Reset()
	if status := run([]string{"ops", "--json"}, &out, &header); status != 0 {
		t.Fatalf("status %d: %s", status, header.String())
	}
	var list []opLine
	if err := json.Unmarshal(out.Bytes(), &list); err != nil || len(list) != len(ops) {
		t.Fatalf("%d ops in JSON, %v", len(list), err)
	}
	for i, o := range ops {
		if l := list[i]; l.Op != o.Name || len(l.Types) != len(o.Types) || len(l.Gradient) != len(o.Gradient) || l.SecondOrder != o.Second || len(l.Devices) != 2 {
			t.Errorf("%+v is not %+v", l, o)
		}
	}
}
