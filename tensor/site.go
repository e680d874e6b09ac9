package tensor

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/shape"
)

// A site is a recorded stack. The first frame outside of the library is looked up only when the
// site is printed.
type site struct {
	n       int
	pc      [16]uintptr
	more    []uintptr   // deeper frames of a stack that deepSite recorded
	returns [16]uintptr // return addresses that callsite.Returns gave, for a site in knownSites
}

// knownSites caches the sites that callSite has returned, by a hash of the return addresses. The
// runtime takes a microsecond to unwind a stack, but only some nanoseconds to read the return
// addresses. A program makes tensors at the same lines again and again.
var knownSites [1024]atomic.Pointer[site]

// callSite returns the caller's stack.
//
//go:noinline
func callSite() *site {
	var at [16]uintptr
	hash := uint64(0)
	for _, pc := range at[:callsite.Returns(at[:])] {
		hash = (hash ^ uint64(pc)) * 0x9e3779b97f4a7c15
		hash ^= hash >> 32
	}
	known := &knownSites[hash%uint64(len(knownSites))]
	if s := known.Load(); s != nil && s.returns == at {
		return s
	}
	s := &site{returns: at}
	s.n = runtime.Callers(2, s.pc[:])
	known.Store(s)
	return s
}

// deepSite does what callSite does, but records deeper stacks, so that the caller is found below
// nested layers. It is for errors.
func deepSite() *site {
	s := new(site)
	if s.n = runtime.Callers(2, s.pc[:]); s.n == len(s.pc) {
		var pc [240]uintptr
		s.more = slices.Clone(pc[:runtime.Callers(2+s.n, pc[:])])
	}
	return s
}

// String returns "dir/file.go:line" of the first recorded frame outside of the library's packages,
// or "" if there is none.
func (s *site) String() string {
	if s == nil {
		return ""
	}
	if at := callsite.First(s.pc[:s.n]); at != "" {
		return at
	}
	return callsite.First(s.more)
}

// method returns the name of the method of [Tensor] that the first frame outside of the library
// called. It is "" if that frame called something else.
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

// late is a ring buffer of the last ops whose kernels may report an error later. The driver gets
// the number of an op as its tag.
var late struct {
	sync.Mutex
	next uint32
	ring [1024]lateOp
}

// A lateOp holds the data that a report of an index error needs.
type lateOp struct {
	tag   uint32
	op    string
	site  *site
	index shape.Layout // layout of the index tensor, which may be an expanded one

	operands [2]sketch // the caller's operands, before an expansion
}

// lateTag notes an op on x and index, and returns a tag for it. If a GPU reports an index error of
// the op later, [lateSite] finds the op by this tag. callerIndex is the index that the caller
// passed. The CPU reports index errors immediately, so its ops have tag 0.
func lateTag(op string, x, index, callerIndex *Tensor) uint32 {
	if index.st.buf.Host() != nil {
		return 0
	}
	s := deepSite()
	late.Lock()
	defer late.Unlock()
	late.next++
	late.ring[late.next%uint32(len(late.ring))] = lateOp{late.next, op, s, index.layout, [2]sketch{x.sketch(), callerIndex.sketch()}}
	return late.next
}

// lateSite returns the op with this tag. It reports false if a later op has taken its place in the
// ring buffer.
func lateSite(tag uint32) (lateOp, bool) {
	late.Lock()
	defer late.Unlock()
	e := late.ring[tag%uint32(len(late.ring))]
	return e, e.tag == tag && tag != 0
}

// positionIn maps a position in an expanded index to the position before the expansion.
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
