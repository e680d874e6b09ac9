// Package callsite tells the frames of a user's program from the library's own. So errors, memory
// reports and profiles name the line that is at fault. It also tells goroutines from each other.
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

// Module is the path of the library's module.
const Module = "github.com/flambeau-go/flambeau"

// Outside reports whether a frame, of runtime.CallersFrames, belongs to a user of the library. The
// library's own examples, commands and tests do. Go's own packages do not: fmt prints a tensor for
// somebody, sync starts the library's goroutines.
func Outside(function, file string) bool { return running().outside(function, file) }

// A program is what tells its own packages from Go's.
type program struct {
	// where the files of Go's packages are, "/usr/local/go/src/"; "" in a program built with
	// -trimpath
	root    string
	modules []string // that it is built of, as far as that is known
	library string   // where the files of this module are, ending in a slash
}

// running is the program that runs.
var running = sync.OnceValue(func() program {
	var p program
	_, file, _, _ := runtime.Caller(0)
	p.library, _, _ = strings.Cut(file, "internal/callsite/")
	f := runtime.FuncForPC(reflect.ValueOf(strings.Contains).Pointer())
	file, _ = f.FileLine(f.Entry())
	p.root, _ = strings.CutSuffix(file, "strings/strings.go")
	if p.root == file { // it is elsewhere
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
	// A closure that is inlined into its caller is named after that, and lies where it lay.
	if own, in := strings.CutPrefix(file, p.library); in && p.library != "" {
		return strings.HasPrefix(own, "examples/") || strings.HasPrefix(own, "cmd/") || strings.HasSuffix(file, "_test.go")
	}
	rest, in := strings.CutPrefix(function, Module)
	if !in || rest != "" && rest[0] != '/' && rest[0] != '.' {
		return true
	}
	return strings.HasPrefix(rest, "/examples/") || strings.HasPrefix(rest, "/cmd/") || strings.HasSuffix(file, "_test.go")
}

// standard reports whether a function is of one of Go's packages. Where the file does not say,
// their names do: a module of the program may be called as the first element of one is ("text",
// "image"), but its packages cannot be called as the whole.
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

// families are the first elements of the paths of Go's packages that call functions which they are
// given, or start goroutines; packages are such packages.
const (
	families = " archive bufio bytes compress container context database encoding errors expvar flag fmt html image internal io iter log maps mime net os path reflect " +
		"regexp runtime slices sort strings sync testing text time unique weak "
	packages = " archive/tar archive/zip bufio bytes compress/bzip2 compress/flate compress/gzip compress/lzw compress/zlib container/heap context database/sql " +
		"encoding/base64 encoding/binary encoding/csv encoding/gob encoding/hex encoding/json encoding/xml errors expvar flag fmt html/template image image/draw " +
		"image/gif image/jpeg image/png io io/fs iter log log/slog maps mime/multipart net net/http net/rpc os os/exec path/filepath reflect regexp runtime runtime/debug " +
		"runtime/pprof runtime/trace slices sort strings sync sync/atomic testing testing/quick testing/synctest text/tabwriter text/template time unique weak "
)

// String is how a frame is written: "dir/file.go:line".
func String(file string, line int) string {
	return filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file)) + ":" + strconv.Itoa(line)
}

// First returns the first frame outside of the library of a stack that runtime.Callers made, "" if
// there is none.
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

// Goroutine returns the number of this goroutine, which heads its stack: "goroutine 18 [running]:".
// It takes a microsecond.
func Goroutine() (n uint64) {
	var b [64]byte
	number, _, _ := bytes.Cut(b[len("goroutine "):runtime.Stack(b[:], false)], []byte(" "))
	n, _ = strconv.ParseUint(string(number), 10, 64)
	return n
}

// Within returns the part of a function's name after the library's module path,
// "tensor.(*Tensor).Backward"; false for other functions.
func Within(function string) (string, bool) {
	rest, in := strings.CutPrefix(function, Module)
	if !in || rest == "" || rest[0] != '/' && rest[0] != '.' {
		return "", false
	}
	return rest[1:], true
}
