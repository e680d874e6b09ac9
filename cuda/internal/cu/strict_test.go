//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestStrictTable compares the functions of the strict driver in testdata with those that this
// package binds. Both must have the same names. The command ".ci/run driver" checks the strict
// driver against NVIDIA's headers with a C compiler.
func TestStrictTable(t *testing.T) {
	b, err := os.ReadFile("testdata/strict/table.inc")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ROW\((\w+), \d+, (\w+)\),$`).FindAllSubmatch(b, -1) {
		rows[string(m[1])] = string(m[2])
	}
	all := slices.Clone(symbolTable)
	for _, s := range laterTable {
		all = append(all, s.symbol)
	}
	if len(rows) != len(all) {
		t.Errorf("%d rows in table.inc, %d functions are bound", len(rows), len(all))
	}
	for _, s := range all {
		if rows[s.base] != s.name() {
			t.Errorf("%s: table.inc exports %q for it, bound is %q", s.base, rows[s.base], s.name())
		}
	}
}
