package tensor

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/shape"
)

// A site is a recorded stack, resolved to the first frame outside the library only when it is
// printed.
type site struct {
	n    int
	pc   [16]uintptr
	more []uintptr // what is below these in a stack that deepSite recorded
}

// callSite records the caller's stack.
func callSite() *site {
	s := new(site)
	s.n = runtime.Callers(2, s.pc[:])
	return s
}

// deepSite is callSite for errors: the caller is found below 16 frames of nested layers too.
func deepSite() *site {
	s := new(site)
	if s.n = runtime.Callers(2, s.pc[:]); s.n == len(s.pc) {
		var pc [240]uintptr
		s.more = slices.Clone(pc[:runtime.Callers(2+s.n, pc[:])])
	}
	return s
}

// String returns "dir/file.go:line" of the first frame outside the library's packages, "" if there
// is none among those recorded.
func (s *site) String() string {
	if s == nil {
		return ""
	}
	if at := callsite.First(s.pc[:s.n]); at != "" {
		return at
	}
	return callsite.First(s.more)
}

// method returns the name of the method of [Tensor] that the first frame outside the library
// called, "" if it called something else.
func (s *site) method() (name string) {
	frames := runtime.CallersFrames(append(slices.Clone(s.pc[:s.n]), s.more...))
	for {
		f, more := frames.Next()
		if callsite.Outside(f.Function, f.File) {
			return name
		}
		in, _ := callsite.Within(f.Function)
		name, _ = strings.CutPrefix(in, "tensor.(*Tensor).")
		if name == in {
			name = ""
		}
		if !more {
			return ""
		}
	}
}

// late remembers which op a kernel that can fail late belongs to: a ring indexed by the tag passed
// to the driver.
var late struct {
	sync.Mutex
	next uint32
	ring [1024]lateOp
}

// A lateOp is what an index error is told with.
type lateOp struct {
	tag   uint32
	op    string
	site  *site
	index shape.Layout // of the index tensor, which may be expanded

	operands [2]sketch // as the caller gave them: of the index too
}

// lateTag notes an op on x and an index, which may report an index error later. given is the index
// as the caller knows it. The CPU reports at once: its ops have no tag.
func lateTag(op string, x, index, given *Tensor) uint32 {
	if index.st.buf.Host() != nil {
		return 0
	}
	s := deepSite()
	late.Lock()
	defer late.Unlock()
	late.next++
	late.ring[late.next%uint32(len(late.ring))] = lateOp{late.next, op, s, index.layout, [2]sketch{x.sketch(), given.sketch()}}
	return late.next
}

// lateSite returns the op of a tag, false if the ring has gone past it.
func lateSite(tag uint32) (lateOp, bool) {
	late.Lock()
	defer late.Unlock()
	e := late.ring[tag%uint32(len(late.ring))]
	return e, e.tag == tag && tag != 0
}

// positionIn turns a position in an expanded index into one in the index as it was given.
func positionIn(index shape.Layout, at int64) int64 {
	s := index.Shape
	pos, unit := int64(0), int64(1)
	for i := s.Rank() - 1; i >= 0; i-- {
		n := int64(max(s.At(i), 1))
		if index.Strides.At(i) != 0 {
			pos += at % n * unit
			unit *= n
		}
		at /= n
	}
	return pos
}
