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
// tests do.
func Outside(function, file string) bool {
	for _, std := range []string{"runtime.", "reflect.", "sync.", "iter.", "slices.", "maps."} { // what calls the library back, and starts its goroutines
		if strings.HasPrefix(function, std) {
			return false
		}
	}
	rest, in := strings.CutPrefix(function, Module)
	if !in || rest != "" && rest[0] != '/' && rest[0] != '.' {
		return true
	}
	return strings.HasPrefix(rest, "/examples/") || strings.HasPrefix(rest, "/cmd/") || strings.HasSuffix(file, "_test.go")
}

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
