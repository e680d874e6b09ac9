package profile

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/internal/callsite"
)

// stack is a stack of calls, kept once for all events that have it.
type stack struct {
	pcs   []uintptr
	once  sync.Once
	frame []frame // the program's own functions, innermost first; known when a recording is over
	asked string  // the library's function that they called, "optim.ClipGradNorm"
}

// stackKey is 128 bits of hash of what [returns] says: no two stacks are expected to share one.
type stackKey [2]uint64

// stacks finds a goroutine's stacks again. To unwind one takes the runtime microseconds, and a
// training loop has the same ones in each step. The addresses that calls return to, which cost some
// nanoseconds, tell whether a stack has been seen.
type stacks struct {
	known map[stackKey]*stack
	buf   [64]uintptr
}

// seenStacks are those of all goroutines and profiles.
var seenStacks struct {
	sync.Mutex
	known map[stackKey]*stack
}

const mostStacks = 1 << 15 // that are kept when the profiles that refer to them are gone

// mostFrames of a stack are kept: fewer than returns lists, whose first are of the tracer itself,
// so that what is kept is within what is told apart.
const mostFrames = 60

// here returns the stack that the calling function was called from.
func (s *stacks) here() *stack {
	k := hash(s.buf[:returns(&s.buf)])
	if v := s.known[k]; v != nil {
		return v
	}
	return s.keep(k, nil)
}

// of returns the stack of what runtime.Callers says.
func (s *stacks) of(pcs []uintptr) *stack {
	k := hash(pcs)
	k[0]++ // what returns says may be the same, and mean another stack
	if v := s.known[k]; v != nil {
		return v
	}
	return s.keep(k, pcs)
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

// keep returns the stack of a key that the goroutine has not had yet; without pcs it is that of
// here's caller.
func (s *stacks) keep(k stackKey, pcs []uintptr) *stack {
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

// resolve finds the program's own functions.
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

// frames returns the program's own functions on the stack, innermost first; none of one that is not
// known.
func (s *stack) frames() []frame {
	if s == nil {
		return nil
	}
	return s.frame
}

// entry is the library's function that the program called, "cuda.Device.Synchronize".
func (s *stack) entry() string {
	if s == nil {
		return ""
	}
	name, _, _ := strings.Cut(short(s.asked), ".func")
	return strings.NewReplacer("(*", "", ")", "").Replace(name)
}

// site is the line of the program that called the library, "" for none.
func (s *stack) site() string {
	if f := s.frames(); len(f) > 0 {
		return callsite.String(f[0].file, f[0].line)
	}
	return ""
}
