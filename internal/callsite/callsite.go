// Package callsite distinguishes the frames of a user's program from those of the library. Errors,
// memory reports and profiles can then name the responsible line of the program. It also identifies
// goroutines.
package callsite

import (
	"bytes"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Module is the path of this library's module.
const Module = "github.com/flambeau-go/flambeau"

// Outside reports whether a frame belongs to a user of the library. The arguments are fields of a
// runtime.Frame. Frames of the library's own examples, commands and tests belong to a user. Frames
// of Go's own packages do not belong to a user.
func Outside(function, file string) bool { return running().outside(function, file) }

// A program describes the running program. The method outside uses it to decide which functions
// belong to Go's own packages.
type program struct {
	// root is the directory of Go's packages, such as "/usr/local/go/src/"; "" if the program was
	// built with -trimpath
	root    string
	modules []string // paths of the modules in the program; empty if unknown
	library string   // directory of this module, ending in a slash
}

// running returns the description of the running program.
var running = sync.OnceValue(func() program {
	var p program
	_, file, _, _ := runtime.Caller(0)
	p.library, _, _ = strings.Cut(file, "internal/callsite/")
	f := runtime.FuncForPC(reflect.ValueOf(strings.Contains).Pointer())
	file, _ = f.FileLine(f.Entry())
	p.root, _ = strings.CutSuffix(file, "strings/strings.go")
	if p.root == file { // with -trimpath, file is not an absolute path
		p.root = ""
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.modules = append(p.modules, info.Main.Path)
		for _, d := range info.Deps {
			p.modules = append(p.modules, d.Path)
		}
	}
	return p
})

func (p program) outside(function, file string) bool {
	if p.standard(function, file) {
		return false
	}
	// If the compiler inlines a closure into its caller, the frame has the function name of the
	// caller, but the file of the closure.
	if own, in := strings.CutPrefix(file, p.library); in && p.library != "" {
		return strings.HasPrefix(own, "examples/") || strings.HasPrefix(own, "cmd/") || strings.HasSuffix(file, "_test.go")
	}
	rest, in := strings.CutPrefix(function, Module)
	if !in || rest != "" && rest[0] != '/' && rest[0] != '.' {
		return true
	}
	return strings.HasPrefix(rest, "/examples/") || strings.HasPrefix(rest, "/cmd/") || strings.HasSuffix(file, "_test.go")
}

// standard reports whether a function belongs to one of Go's packages. If the file does not show
// it, the package path of the function decides. A module of the program may be named like a Go
// package ("text", "image"). For its packages the full path decides, because it is never that of a
// Go package.
func (p program) standard(function, file string) bool {
	if p.root != "" && filepath.IsAbs(filepath.FromSlash(file)) {
		return strings.HasPrefix(file, p.root)
	}
	path := function[:strings.LastIndexByte(function, '/')+1]
	name, _, _ := strings.Cut(function[len(path):], ".")
	path += name
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(families, " "+first+" ") {
		return false
	}
	for _, m := range p.modules {
		if m != "" && (path == m || strings.HasPrefix(path, m+"/")) {
			return strings.Contains(packages, " "+path+" ")
		}
	}
	return true
}

// families holds first elements of package paths, and packages holds full paths. Together they name
// those Go packages that start goroutines or call functions passed to them.
const (
	families = " archive bufio bytes compress container context database encoding errors expvar flag fmt html image internal io iter log maps mime net os path reflect " +
		"regexp runtime slices sort strings sync testing text time unique weak "
	packages = " archive/tar archive/zip bufio bytes compress/bzip2 compress/flate compress/gzip compress/lzw compress/zlib container/heap context database/sql " +
		"encoding/base64 encoding/binary encoding/csv encoding/gob encoding/hex encoding/json encoding/xml errors expvar flag fmt html/template image image/draw " +
		"image/gif image/jpeg image/png io io/fs iter log log/slog maps mime/multipart net net/http net/rpc os os/exec path/filepath reflect regexp runtime runtime/debug " +
		"runtime/pprof runtime/trace slices sort strings sync sync/atomic testing testing/quick testing/synctest text/tabwriter text/template time unique weak "
)

// String formats a position in a file as "dir/file.go:line".
func String(file string, line int) string {
	return filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file)) + ":" + strconv.Itoa(line)
}

// First returns the first frame outside the library, as "dir/file.go:line". The stack pc is a
// result of runtime.Callers. First returns "" if there is no such frame.
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

// Goroutine returns the number of the calling goroutine, which it reads from the first line of its
// stack trace: "goroutine 18 [running]:". This takes about a microsecond.
func Goroutine() (n uint64) {
	var b [64]byte
	number, _, _ := bytes.Cut(b[len("goroutine "):runtime.Stack(b[:], false)], []byte(" "))
	n, _ = strconv.ParseUint(string(number), 10, 64)
	return n
}

// Within returns the part of a function's name after the library's module path, such as
// "tensor.(*Tensor).Backward". It returns false for functions of other modules.
func Within(function string) (string, bool) {
	rest, in := strings.CutPrefix(function, Module)
	if !in || rest == "" || rest[0] != '/' && rest[0] != '.' {
		return "", false
	}
	return rest[1:], true
}
