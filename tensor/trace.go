package tensor

import (
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// A tracer learns of ops by spans around them. A span is opened and closed on the goroutine that computes, so that what drivers tell in
// between belongs to it; of the scopes, which travel between goroutines, a span names the innermost that has a name.

// tracedOp opens a span for op on in, in scope s or the youngest of in; the function that it returns closes it.
func tracedOp(t device.Tracer, kind device.SpanKind, op string, scope *Scope, in []*Tensor) func() {
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
	id := t.Begin(s)
	return func() { t.End(id) }
}

// backSpan opens a span for the gradient of a node.
func (n *node) backSpan(t device.Tracer, s *Scope, g *Tensor) func() {
	b := device.Span{Kind: device.SpanBackward, Name: backwardName(n.op), Node: n.seq, Scope: s.modes.span}
	if t.Wants().Shapes {
		b.Shapes = []shape.Dims{g.layout.Shape}
	}
	id := t.Begin(b)
	return func() { t.End(id) }
}

// backwardName is how profiles call the gradient of an op: that of log_softmax is LogSoftmaxBackward.
func backwardName(op string) string {
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
	return b.String() + "Backward"
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

// Span is the span of the innermost scope around s, or s itself, that has a name and was opened while a tracer was set: for
// [device.Span], by those who open spans of their own. 0 is none.
func (s *Scope) Span() device.SpanID { return s.modes.span }
