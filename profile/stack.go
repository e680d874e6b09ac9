package profile

import (
	"runtime"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/internal/callsite"
)

// stack is a stack of calls, kept once for all events that have it.
type stack struct {
	pcs   []uintptr
	once  sync.Once
	frame []frame // the program's own functions, innermost first; known when a recording is over
}

// stackKey is 128 bits of hash of what [returns] says, which no two stacks share.
type stackKey [2]uint64

// stacks finds a goroutine's stacks again. To unwind one takes the runtime microseconds, and a training loop has the same ones in each step:
// the addresses that calls return to, which cost some nanoseconds, tell whether a stack has been seen.
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

// here returns the stack that the calling function was called from.
func (s *stacks) here() *stack {
	var k stackKey
	for _, pc := range s.buf[:returns(&s.buf)] {
		k[0] = (k[0] ^ uint64(pc)) * 0x9e3779b97f4a7c15
		k[0] ^= k[0] >> 32
		k[1] = (k[1] + uint64(pc)) * 0xd6e8feb86659fd93
		k[1] ^= k[1] >> 29
	}
	if v := s.known[k]; v != nil {
		return v
	}
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
		var pc [64]uintptr
		v = &stack{pcs: slices.Clone(pc[:runtime.Callers(3, pc[:])])}
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
			}
			if !more {
				return
			}
		}
	})
}

// frames returns the program's own functions on the stack, innermost first; none of one that is not known.
func (s *stack) frames() []frame {
	if s == nil {
		return nil
	}
	return s.frame
}

// site is the line of the program that called the library, "" for none.
func (s *stack) site() string {
	if f := s.frames(); len(f) > 0 {
		return callsite.String(f[0].file, f[0].line)
	}
	return ""
}
