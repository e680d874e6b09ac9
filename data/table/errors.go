package table

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// An Error says why a table cannot be read.
type Error struct {
	Path string // path of the file; "" if the table is read from a stream
	Line int    // line number, from 1; 0 if the error is about the whole file
	// Column is a byte offset in the line, from 1. It is 0 if the error is about the whole line.
	Column int
	Name   string // name of the table's column, or ""
	Err    error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("table: " + cmp.Or(e.Path, "input"))
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ":%d", e.Column)
		}
	}
	if e.Name != "" {
		fmt.Fprintf(&b, ": column %q", e.Name)
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrMissing is the cause in an [Error] about a missing value.
var ErrMissing = errors.New("missing")
