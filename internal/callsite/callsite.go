// Package callsite tells the frames of a user's program from the library's own, by which errors, memory reports and profiles name the line
// that is at fault, and goroutines from each other.
package callsite

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Module is the path of the library's module.
const Module = "github.com/flambeau-go/flambeau"

// Outside reports whether a frame, of runtime.CallersFrames, belongs to a user of the library. The library's own examples, commands and
// tests do. Go's own packages do not: fmt prints a tensor for somebody, sync starts the library's goroutines.
func Outside(function, file string) bool {
	first := function
	if i := strings.IndexAny(function, "./"); i >= 0 {
		first = function[:i]
	}
	if strings.Contains(standard, " "+first+" ") {
		return false
	}
	rest, in := strings.CutPrefix(function, Module)
	if !in || rest != "" && rest[0] != '/' && rest[0] != '.' {
		return true
	}
	return strings.HasPrefix(rest, "/examples/") || strings.HasPrefix(rest, "/cmd/") || strings.HasSuffix(file, "_test.go")
}

// standard are the first elements of the paths of Go's packages that call functions which they are given, or start goroutines.
const standard = " archive bufio bytes compress container context database encoding errors expvar flag fmt html image io iter log maps mime net os reflect " +
	"regexp runtime slices sort strings sync testing text time unique "

// String is how a frame is written: "dir/file.go:line".
func String(file string, line int) string {
	return filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file)) + ":" + strconv.Itoa(line)
}

// First returns the first frame outside of the library of a stack that runtime.Callers made, "" if there is none.
func First(pc []uintptr) string {
	if len(pc) == 0 {
		return ""
	}
	frames := runtime.CallersFrames(pc)
	for {
		f, more := frames.Next()
		if f.Function != "" && Outside(f.Function, f.File) {
			return String(f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}
