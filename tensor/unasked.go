package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/callsite"
)

// A modeWatch watches a scope that sets NoGrad or Autocast, until the scope is first used. An
// expression whose tensors are all older than the scope belongs to the tensors' scope, so the mode
// would silently have no effect on it. On the scope's goroutine, the watch remembers the first op
// outside of the scope that the mode would have changed. Closing the scope reports that op. If
// there is no such op, nothing is reported. For example, a function may return early, before it
// uses the scope.
type modeWatch struct {
	binding[*modeWatch] // binds the watch to the goroutine that opened the scope

	depth    int // depth of the scope
	opened   *scopeSite
	noGrad   bool       // true if the scope was opened with NoGrad
	cast     bool       // true if the scope was opened with Autocast or NoAutocast
	autocast dtype.Type // if cast is true: the type of autocast; Invalid means off

	// The fields below are used only within modeWatches.forEach, which holds a lock.
	ignoring int // not 0 while the library runs ops of its own
	// not 0 while the ops that run are parts of an op that has an autocast class as a whole
	composed int
	missed   *missed // the first op that the modes would have changed
}

// missed is an op that ran outside of a scope whose mode would have changed it.
type missed struct {
	op, how string
	at      *site
	in      *scopeSite // the scope of the op; nil means the root scope
}

// watchModes begins a watch of s if s switches gradients off or changes autocast. s was opened in
// p.
func (s *Scope) watchModes(p *Scope, loose bool) {
	noGrad, cast := s.modes.noGrad && !p.modes.noGrad, s.modes.autocast != p.modes.autocast
	if !noGrad && !cast {
		return
	}
	v := &modeWatch{depth: s.depth, opened: s.opened, noGrad: noGrad, cast: cast}
	if cast {
		v.autocast = s.modes.autocast
	}
	s.watch.Store(v)
	modeWatches.bind(&v.binding, v, loose)
	if loose {
		runtime.AddCleanup(s, (*modeWatch).end, v)
	}
}

// markUsed notes that s is used, so its modes have an effect.
func (s *Scope) markUsed() {
	if v := s.watch.Load(); v != nil {
		s.watch.Store(nil)
		v.end()
	}
}

// encloses reports whether s is the watched scope or inside of it.
func (v *modeWatch) encloses(s *Scope) bool {
	for s != nil && s.depth > v.depth {
		s = s.parent
	}
	return s != nil && s.watch.Load() == v
}

// noteMissed tells the watches of this goroutine about an op in s. A watch notes the op if its
// scope does not enclose s, and if the function changes reports that the watched modes would have
// changed the op.
func (s *Scope) noteMissed(op, how string, changes func(v *modeWatch) bool) {
	modeWatches.forEach(func(v *modeWatch) bool {
		if v.missed == nil && v.ignoring == 0 && changes(v) && !v.encloses(s) && v.onThisGoroutine() {
			v.missed = &missed{op: op, how: how, at: deepSite(), in: s.opened}
		}
		return true
	})
}

// ignoreOps makes this goroutine's watches ignore ops until the returned function is called. The
// library uses it for ops of its own, which have their own modes.
func ignoreOps() func() { return adjust(func(v *modeWatch) *int { return &v.ignoring }) }

// ignoreCasts does what ignoreOps does, but for autocast only. It is for the parts of a composed
// op. These parts have no autocast class of their own, but the graph that they record is the
// user's.
func ignoreCasts() func() { return adjust(func(v *modeWatch) *int { return &v.composed }) }

func adjust(count func(v *modeWatch) *int) func() {
	add := func(n int) {
		modeWatches.forEach(func(v *modeWatch) bool {
			k := count(v)
			*k = max(*k+n, 0)
			return true
		})
	}
	add(1)
	return func() { add(-1) }
}

// missRecord tells the watches that op recorded a graph in s.
func (s *Scope) missRecord(op string) {
	if !modeWatches.empty() && !s.modes.withGrad {
		s.noteMissed(op, "recorded a graph", func(v *modeWatch) bool { return v.noGrad })
	}
}

// missCast tells the watches that op in s computed in the types of its operands, without autocast.
func (s *Scope) missCast(op string, class AutocastClass, in []*Tensor, fixed uint) {
	// In an internal scope the op is part of another op, which has an autocast class itself.
	if modeWatches.empty() || s.internal {
		return
	}
	// Copy the list. Without the copy, the parameter in would escape, and callers would have to
	// allocate it on the heap even without a watch.
	list := slices.Clone(in)
	s.noteMissed(op, "computed without autocast", func(v *modeWatch) bool {
		if v.composed > 0 {
			return false
		}
		to := target(class, v.autocast, list, fixed)
		for i, t := range list {
			if to != dtype.Invalid && castable(t, to) && fixed>>i&1 == 0 {
				return true
			}
		}
		return false
	})
}

// missNoCast tells the watches that autocast converted operands of an op in s.
func (s *Scope) missNoCast() {
	if !modeWatches.empty() {
		s.noteMissed("an op", "computed in "+s.modes.autocast.String(), func(v *modeWatch) bool { return v.cast && v.autocast == dtype.Invalid && v.composed == 0 })
	}
}

// unusedModeError returns an error if the closed scope s was never used, although its modes would
// have changed an op. Otherwise it returns nil. It only considers scopes that the program itself
// opened. It returns nil during a panic.
func (s *Scope) unusedModeError() *Error {
	v := s.watch.Load()
	if v == nil {
		return nil
	}
	s.markUsed()
	if v.missed == nil || !v.opened.at.outside() || unwinding() {
		return nil
	}
	m := v.missed
	w := m.op
	if at := m.at.String(); at != "" {
		w += " at " + at
	}
	in := "in the root scope"
	if m.in != nil {
		in = m.in.String()
	}
	e := newError("scope.close", ErrScope, nil, fmt.Sprintf("%s did nothing: %v that was opened with it at %s was not used, and %s ran %s and %s",
		v.modes(), s.shortText(), v.opened.at, w, in, m.how))
	e.Site = v.opened.at.String()
	e.hint("an expression belongs to the scope of its operands: begin it with x.In(s), which lends x to the scope s, or with s.From(x), which gives x away; " +
		"nn.Infer(model, x) runs a whole model without a graph")
	return e
}

// modes returns the options that the scope was opened with, for messages.
func (v *modeWatch) modes() string {
	var set []string
	if v.noGrad {
		set = append(set, "NoGrad")
	}
	switch {
	case v.cast && v.autocast == dtype.Invalid:
		set = append(set, "NoAutocast")
	case v.cast:
		set = append(set, fmt.Sprintf("Autocast(%v)", v.autocast))
	}
	return strings.Join(set, " and ")
}

// shortText describes the scope as String does, but without the lines where it was opened and
// closed.
func (s *Scope) shortText() string {
	w := "the scope"
	if s.opened.name != "" {
		w += fmt.Sprintf(" %q", s.opened.name)
	}
	return w
}

// outside reports whether the recorded call of a function of this package came from outside of the
// library.
func (s *site) outside() bool {
	frames := runtime.CallersFrames(s.pc[:s.n])
	for {
		f, more := frames.Next()
		if in, ok := callsite.Within(f.Function); !ok || !strings.HasPrefix(in, "tensor.") || strings.HasSuffix(f.File, "_test.go") {
			return callsite.Outside(f.Function, f.File)
		}
		if !more {
			return false
		}
	}
}

// unwinding reports whether it is called by a deferred function during a panic or runtime.Goexit.
func unwinding() bool {
	var pc [256]uintptr
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc[:])])
	for {
		f, more := frames.Next()
		if f.Function == "runtime.gopanic" || f.Function == "runtime.Goexit" {
			return true
		}
		if !more {
			return false
		}
	}
}
