package tensor

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// A tracer learns of ops by spans around them. A span is opened and closed on the goroutine that
// computes, so that what drivers tell in between belongs to it. Scopes travel between goroutines; a
// span names the innermost that has a name.

// tracedOp opens a span for op on in, in scope s or the youngest of in; t.End closes it.
func tracedOp(t device.Tracer, kind device.SpanKind, op string, scope *Scope, in []*Tensor) device.SpanID {
	s := device.Span{Kind: kind, Name: op}
	depth := -1
	if scope != nil {
		depth, s.Scope = scope.depth, scope.modes.span
	}
	for _, x := range in {
		if x != nil && x.scope != nil && x.scope.depth > depth {
			depth, s.Scope = x.scope.depth, x.scope.modes.span
		}
	}
	if t.Wants().Shapes {
		s.Shapes = make([]shape.Dims, 0, len(in))
		for _, x := range in {
			if x != nil {
				s.Shapes = append(s.Shapes, x.layout.Shape)
			}
		}
	}
	return t.Begin(s)
}

// backSpan opens a span for the gradient of a node.
func (n *node) backSpan(t device.Tracer, s *Scope, g shape.Dims) device.SpanID {
	b := device.Span{Kind: device.SpanBackward, Name: backwardName(n.op), Node: n.seq, Scope: s.modes.span}
	if t.Wants().Shapes {
		b.Shapes = []shape.Dims{g}
	}
	return t.Begin(b)
}

// backwardNames are the names that have been asked for, which only become more: a reader needs no
// lock.
var backwardNames struct {
	sync.Mutex
	known atomic.Pointer[map[string]string]
}

// backwardName is how profiles call the gradient of an op: that of log_softmax is
// LogSoftmaxBackward.
func backwardName(op string) string {
	if m := backwardNames.known.Load(); m != nil {
		if name, ok := (*m)[op]; ok {
			return name
		}
	}
	name := camel(op) + "Backward"
	backwardNames.Lock()
	defer backwardNames.Unlock()
	more := map[string]string{op: name}
	// names of a program's own may have numbers in them
	if m := backwardNames.known.Load(); m != nil && len(*m) < 1024 {
		maps.Copy(more, *m)
	}
	backwardNames.known.Store(&more)
	return name
}

// camel makes LogSoftmax of log_softmax.
func camel(op string) string {
	var b strings.Builder
	up := true
	for _, r := range op {
		switch {
		case r == '_' || r == '.' || r == ' ' || r == '-':
			up = true
			continue
		case up && 'a' <= r && r <= 'z':
			r -= 'a' - 'A'
		}
		up = false
		b.WriteRune(r)
	}
	return b.String()
}

// nameSpan opens the span of a scope that has a name.
func (s *Scope) nameSpan(loose bool) {
	if t := device.Tracing(); t != nil && s.modes.name != "" {
		s.span = t.Begin(device.Span{Kind: device.SpanScope, Name: s.modes.name, Scope: s.modes.span, Loose: loose})
		s.modes.span = s.span
	}
}

func (s *Scope) endSpan() {
	if s.span != 0 {
		if t := device.Tracing(); t != nil {
			t.End(s.span)
		}
	}
}

// Span is the span of the innermost scope around s, or s itself, that has a name and was opened
// while a tracer was set. It is for [device.Span], for those who open spans of their own. 0 is
// none.
func (s *Scope) Span() device.SpanID {
	s.asked()
	return s.modes.span
}
