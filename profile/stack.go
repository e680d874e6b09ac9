package profile

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/internal/callsite"
)

// stack is a call stack. All events with the same stack share it.
type stack struct {
	pcs  []uintptr
	once sync.Once
	// functions of the program on the stack, innermost first; set after a recording
	frame []frame
	asked string // function of the library that the program called, such as "optim.ClipGradNorm"
}

// stackKey is a 128-bit hash of the return addresses of a stack. Different stacks are assumed to
// have different keys.
type stackKey [2]uint64

// stacks caches the stacks of a goroutine. To unwind a stack, the runtime needs microseconds, and a
// training loop has the same stacks in each step. Reading the return addresses takes only some
// nanoseconds, and they suffice to find the stack in the cache.
type stacks struct {
	known map[stackKey]*stack
	buf   [64]uintptr
}

// seenStacks holds the stacks that any goroutine or profile has seen.
var seenStacks struct {
	sync.Mutex
	known map[stackKey]*stack
}

const mostStacks = 1 << 15 // at this number of stacks, seenStacks is emptied

// mostFrames is the largest number of frames that are kept of a stack. A key covers 64 return
// addresses, and the first of these belong to the tracer. The limit is below 64, so that a key
// covers all frames that are kept. Stacks that differ in a kept frame then have different keys.
const mostFrames = 60

// callerStack returns the stack of the caller of the calling function.
func (s *stacks) callerStack() *stack {
	k := hash(s.buf[:callsite.Returns(s.buf[:])])
	if v := s.known[k]; v != nil {
		return v
	}
	return s.insert(k, nil)
}

// lookup returns the stack for a result of runtime.Callers.
func (s *stacks) lookup(pcs []uintptr) *stack {
	k := hash(pcs)
	// The keys of callerStack are hashes of lists of return addresses. Such a list may equal pcs,
	// but belong to another stack. So change the key here.
	k[0]++
	if v := s.known[k]; v != nil {
		return v
	}
	return s.insert(k, pcs)
}

func hash(list []uintptr) (k stackKey) {
	for _, pc := range list {
		k[0] = (k[0] ^ uint64(pc)) * 0x9e3779b97f4a7c15
		k[0] ^= k[0] >> 32
		k[1] = (k[1] + uint64(pc)) * 0xd6e8feb86659fd93
		k[1] ^= k[1] >> 29
	}
	return k
}

// insert returns the stack for a key that this goroutine has not seen. If pcs is nil, it unwinds
// the stack of the caller of callerStack.
func (s *stacks) insert(k stackKey, pcs []uintptr) *stack {
	if s.known == nil {
		s.known = map[stackKey]*stack{}
	}
	seenStacks.Lock()
	defer seenStacks.Unlock()
	v := seenStacks.known[k]
	if v == nil {
		if seenStacks.known == nil || len(seenStacks.known) >= mostStacks {
			seenStacks.known = map[stackKey]*stack{}
		}
		if pcs == nil {
			var pc [mostFrames]uintptr
			pcs = pc[:runtime.Callers(4, pc[:])]
		}
		v = &stack{pcs: slices.Clone(pcs)}
		seenStacks.known[k] = v
	}
	s.known[k] = v
	return v
}

// resolve finds the functions on the stack that belong to the program.
func (s *stack) resolve() {
	s.once.Do(func() {
		if len(s.pcs) == 0 {
			return
		}
		frames := runtime.CallersFrames(s.pcs)
		for {
			f, more := frames.Next()
			if f.Function != "" && callsite.Outside(f.Function, f.File) {
				s.frame = append(s.frame, frame{f.Function, f.File, f.Line})
			} else if in, ok := callsite.Within(f.Function); ok && len(s.frame) == 0 {
				s.asked = in
			}
			if !more {
				return
			}
		}
	})
}

// frames returns the program's own functions on the stack, innermost first. It returns nil for an
// unknown stack.
func (s *stack) frames() []frame {
	if s == nil {
		return nil
	}
	return s.frame
}

// entry returns the function of the library that the program called, such as
// "cuda.Device.Synchronize".
func (s *stack) entry() string {
	if s == nil {
		return ""
	}
	name, _, _ := strings.Cut(short(s.asked), ".func")
	return strings.NewReplacer("(*", "", ")", "").Replace(name)
}

// site returns the line of the program that called the library, or "" if there is none.
func (s *stack) site() string {
	if f := s.frames(); len(f) > 0 {
		return callsite.String(f[0].file, f[0].line)
	}
	return ""
}
