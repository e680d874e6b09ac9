package table

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// An Error is a table that cannot be read.
type Error struct {
	Path   string // "" for a stream
	Line   int    // counted from 1; 0 where it is the file as a whole
	Column int    // the byte in the line, counted from 1; 0 where it is the whole line
	Name   string // of the table's column, or ""
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

// ErrMissing is in the chain of an [Error] about a value that is missing.
var ErrMissing = errors.New("missing")
