package tensor

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

const module = "github.com/flambeau-go/flambeau"

// A site is a recorded stack, resolved to the first frame outside the library only when it is printed.
type site struct {
	n  int
	pc [16]uintptr
}

// callSite records the caller's stack.
func callSite() *site {
	s := new(site)
	s.n = runtime.Callers(2, s.pc[:])
	return s
}

// String returns "dir/file.go:line" of the first frame outside the library's packages, "" if there is none among those
// recorded.
func (s *site) String() string {
	if s == nil {
		return ""
	}
	frames := runtime.CallersFrames(s.pc[:s.n])
	for {
		f, more := frames.Next()
		if f.Function != "" && outside(f.Function, f.File) {
			return filepath.Join(filepath.Base(filepath.Dir(f.File)), filepath.Base(f.File)) + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return ""
		}
	}
}

// outside reports whether a frame belongs to a user of the library. The library's own examples, commands and tests do.
func outside(function, file string) bool {
	if strings.HasPrefix(function, "runtime.") {
		return false
	}
	rest, in := strings.CutPrefix(function, module)
	if !in || rest != "" && rest[0] != '/' && rest[0] != '.' {
		return true
	}
	return strings.HasPrefix(rest, "/examples/") || strings.HasPrefix(rest, "/cmd/") || strings.HasSuffix(file, "_test.go")
}

// late remembers which op a kernel that can fail late belongs to: a ring indexed by the tag passed to the driver.
var late struct {
	sync.Mutex
	next uint32
	ring [1024]struct {
		tag  uint32
		op   string
		site *site
	}
}

// lateTag notes an op that may report an index error later.
func lateTag(op string) uint32 {
	s := callSite()
	late.Lock()
	defer late.Unlock()
	late.next++
	e := &late.ring[late.next%uint32(len(late.ring))]
	e.tag, e.op, e.site = late.next, op, s
	return late.next
}

func lateSite(tag uint32) (op, site string) {
	late.Lock()
	e := late.ring[tag%uint32(len(late.ring))]
	late.Unlock()
	if e.tag != tag || tag == 0 {
		return "", ""
	}
	return e.op, e.site.String()
}
