package tensor

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// A tracer gets a span for each op. A span is opened and closed on the goroutine that computes.
// Events that drivers report on this goroutine in the meantime belong to the span. A scope may
// be opened on one goroutine and used on another. So each span itself says which named scope is the
// innermost around it.

// tracedOp opens a span for op on the given operands. The span's scope is the youngest of the given
// scope and the operands' scopes. t.End closes the span.
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

func (n *node) backSpan(t device.Tracer, s *Scope, g shape.Dims) device.SpanID {
	b := device.Span{Kind: device.SpanBackward, Name: backwardName(n.op), Node: n.seq, Scope: s.modes.span}
	if t.Wants().Shapes {
		b.Shapes = []shape.Dims{g}
	}
	return t.Begin(b)
}

// backwardNames caches the results of backwardName. A map in it is never changed, only replaced by
// a larger one, so a reader needs no lock.
var backwardNames struct {
	sync.Mutex
	known atomic.Pointer[map[string]string]
}

// backwardName returns the name of an op's gradient in profiles: for log_softmax it is
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
	// The size is limited, because a program's own names may contain numbers.
	if m := backwardNames.known.Load(); m != nil && len(*m) < 1024 {
		maps.Copy(more, *m)
	}
	backwardNames.known.Store(&more)
	return name
}

// camel converts log_softmax to LogSoftmax.
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

// nameSpan opens the span of a scope, if it has a name.
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

// Span returns the span of s, or of the innermost scope around s that has a span. A scope has a
// span if it has a name and was opened while a tracer was set. If there is none, the result is 0.
// Programs that open spans of their own pass the result in [device.Span].
func (s *Scope) Span() device.SpanID {
	s.markUsed()
	return s.modes.span
}
