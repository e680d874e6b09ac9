package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor/optest"
)

// opsCmd prints the ops that the table test of package optest covers.
type opsCmd struct {
	JSON bool `name:"json" help:"Print a JSON list instead of lines."`
}

// opLine is one op in the output of --json.
type opLine struct {
	Op string `json:"op"`
	// Of lists the names of declared ops, or rows of the test table, that belong to this op.
	Of      []string `json:"of,omitempty"`
	Devices []string `json:"devices"`
	Types   []string `json:"types"`
	// Gradient lists the types for which the gradient of the op is checked. It is empty if the op
	// has no gradient.
	Gradient    []string `json:"gradient"`
	SecondOrder bool     `json:"second_order"`
}

func (c *opsCmd) Run(e *env) error {
	var lines []opLine
	for _, o := range optest.Matrix() {
		lines = append(lines, opLine{o.Name, o.Of, optest.Devices, names(o.Types), names(o.Gradient), o.Second})
	}
	if c.JSON {
		j := json.NewEncoder(e.out)
		j.SetIndent("", " ")
		return j.Encode(lines)
	}
	rows := [][]string{{"op", "devices", "types of operands", "gradient", "second order"}}
	for _, l := range lines {
		gradient, second := typeSet(l.Gradient), "-"
		if l.SecondOrder {
			second = "yes"
		}
		rows = append(rows, []string{l.Op, strings.Join(l.Devices, " "), typeSet(l.Types), gradient, second})
	}
	return columns(e.err, e.out, rows)
}

func names(types []dtype.Type) []string {
	s := make([]string, len(types))
	for i, t := range types {
		s[i] = t.String()
	}
	return s
}

// typeSet joins the names of types. It replaces known groups of types by the group's name.
func typeSet(types []string) string {
	if len(types) == 0 {
		return "-"
	}
	all := names(dtype.Types())
	for _, group := range []struct {
		name  string
		types []string
	}{{"all", all}, {"numbers", all[1:]}, {"bool and integers", all[:6]}, {"integers", all[1:6]}, {"floats", all[6:]}} {
		if slices.Equal(types, group.types) {
			return group.name
		}
	}
	return strings.Join(types, " ")
}

// columns prints rows in aligned columns: the first row to header, the later rows to out.
func columns(header, out io.Writer, rows [][]string) error {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = min(max(width[i], len(cell)), 200)
		}
	}
	for n, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			if i > 0 {
				b.WriteString("  ")
			}
			if b.WriteString(cell); i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", max(width[i]-len(cell), 0)))
			}
		}
		to := out
		if n == 0 {
			to = header
		}
		if _, err := fmt.Fprintln(to, b.String()); err != nil {
			return err
		}
	}
	return nil
}
