package tensor

import (
	"container/heap"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// The functions of this file assemble the gradient of a tensor from the gradients of its parts.
// They write the gradient of each part once, at its offset in the gradient of the whole. They fill
// with zeros only the elements that no part covers.

// A part of a tensor consists of n indices of one axis, from start on, and all indices of the other
// axes.
type part struct {
	axis, start, n int
	single         bool // true if n is 1 and the part lacks the axis, as after Select
	// joins is true if the part is one of a list, such as the results of Split. PyTorch
	// concatenates the gradients of such parts. It adds the gradients of other parts.
	joins bool
}

// layoutIn returns the layout of the part in a tensor of layout l.
func (p part) layoutIn(l shape.Layout) shape.Layout {
	if p.single {
		return l.Select(p.axis, p.start)
	}
	return l.Narrow(p.axis, p.start, p.n, 1)
}

// viewPart returns a view of a part of x. Backward passes the view's gradient to [engine.sendPart],
// unless the gradients must be differentiable.
func (x *Tensor) viewPart(op string, p part) *Tensor {
	y, grad := x.unrecordedView(op, p.layoutIn(x.layout))
	if grad {
		y.recordPart(x, p)
	}
	return y
}

// recordPart adds y, the view of the part p of x, to the graph.
func (y *Tensor) recordPart(x *Tensor, p part) { y.recordRegion(x, p.layoutIn, &p) }

// A partial is a gradient of a tensor that arrives in parts along one axis. It holds the pieces
// without a copy as long as possible. If all pieces lie in one memory, at their offsets in the
// whole gradient, that memory is the gradient.
type partial struct {
	part    // the first part whose gradient arrived
	operand operandInfo
	last    *node    // the node whose gradient arrived last
	runs    [][2]int // the ranges of indices that have arrived, sorted and without overlap
	held    []piece  // pieces that have arrived; they are moved to whole once it exists
	// whole is the gradient so far: the pieces that have arrived are at their offsets. All other
	// elements are undefined.
	whole *Tensor
	// If plus is true, 0 is added to the written elements, which turns -0 into 0. PyTorch has this
	// effect too, because it adds the zeros that pad the other parts' gradients.
	plus bool
}

// A piece is the gradient of one part of a tensor, with all dimensions of the tensor.
type piece struct {
	start, n int
	g        *Tensor
}

// sendPart adds g to the gradient of task t. g is the gradient of n's result, and n took the part p
// of t's tensor. sendPart returns false, and does nothing, if g must first be padded to the shape
// of t's tensor. s is the scope of the work.
func (e *engine) sendPart(t *task, n *node, p part, s *Scope, g *Tensor) bool {
	if e.o.create || !t.wanted() || t.partial != nil && (t.partial.axis != p.axis || t.partial.joins != p.joins) {
		return false
	}
	if e.checks != 0 {
		e.checkAnomaly(n, 0, g)
	}
	l := g.layout
	if p.single {
		l = l.Unsqueeze(p.axis)
	}
	g = g.handle(g.op, e.scope, l)
	e.makeOne(t)
	switch {
	case t.g == nil && t.partial == nil:
		t.partial = &partial{part: p, operand: n.operands[0]}
		heap.Push(&e.queue, t)
	case t.g != nil && exclusive(t.g):
		all := [][2]int{{0, n.operands[0].shape.At(p.axis)}}
		(&partial{part: p, last: n, whole: t.g, runs: all}).put(s, piece{p.start, p.n, g})
		return true
	case t.g != nil:
		g.Free()
		return false
	}
	q, x := t.partial, piece{p.start, p.n, g}
	q.last = n
	if q.whole == nil && (len(q.held) == 0 || q.inSameMemory(x)) {
		// copy g if its memory is larger than the whole gradient: a view would keep all of the
		// memory alive
		if len(q.held) == 0 && g.st.buf.Size() > q.operand.shape.Size()*q.operand.dtype.Size() {
			x.g = e.bring(g.In(s).Clone())
			g.Free()
		}
		q.held = append(q.held, x)
		q.cover(x)
		return true
	}
	if q.plus = !q.joins; q.whole == nil {
		e.write(q, s, false)
	}
	q.put(s, x)
	return true
}

// inSameMemory reports whether piece x lies in the same memory as the held pieces, at its offset in
// the whole gradient.
func (q *partial) inSameMemory(x piece) bool {
	from, ok := q.base(q.held[0])
	at, also := q.base(x)
	come, end := q.next(x.start, x.start+x.n)
	return q.joins && ok && also && x.g.st == q.held[0].g.st && at == from && !come && end == x.start+x.n
}

// base returns the offset at which the whole gradient would begin in x's memory. ok is false if the
// strides of x differ from those of the whole gradient, or if the memory is too small for it.
func (q *partial) base(x piece) (offset int, ok bool) {
	s := q.operand.shape.Contiguous()
	for i := range s.Rank() {
		if x.g.layout.Shape.At(i) > 1 && x.g.layout.Strides.At(i) != s.At(i) {
			return 0, false
		}
	}
	offset = x.g.layout.Offset - x.start*s.At(q.axis)
	return offset, offset >= 0 && (offset+q.operand.shape.Size())*q.operand.dtype.Size() <= x.g.st.buf.Size()
}

// next divides the indices [start, end) into ranges that have arrived and ranges that have not, and
// returns the first range: [start, stop). arrived says whether its indices have arrived.
func (q *partial) next(start, end int) (arrived bool, stop int) {
	for _, r := range q.runs {
		switch {
		case start < r[0]:
			return false, min(end, r[0])
		case start < r[1]:
			return true, min(end, r[1])
		}
	}
	return false, end
}

// cover adds the indices of x to the ranges that have arrived.
func (q *partial) cover(x piece) {
	if x.n == 0 {
		return
	}
	q.runs = append(q.runs, [2]int{x.start, x.start + x.n})
	slices.SortFunc(q.runs, func(a, b [2]int) int { return a[0] - b[0] })
	joined := q.runs[:1]
	for _, r := range q.runs[1:] {
		if last := &joined[len(joined)-1]; r[0] <= last[1] {
			last[1] = max(last[1], r[1])
		} else {
			joined = append(joined, r)
		}
	}
	q.runs = joined
}

// gaps returns the ranges of indices that have not arrived.
func (q *partial) gaps() (list [][2]int) {
	n := q.operand.shape.At(q.axis)
	for at := 0; at < n; {
		come, to := q.next(at, n)
		if !come {
			list = append(list, [2]int{at, to})
		}
		at = to
	}
	return list
}

// put writes x into q.whole at indices that have not arrived yet, and adds it at indices that have
// arrived.
func (q *partial) put(s *Scope, x piece) {
	op := q.last.op + ".grad"
	for at, end := x.start, x.start+x.n; at < end; {
		come, to := q.next(at, end)
		y := q.region(s, at, to)
		from := x.g.handle(op, s, x.g.layout.Narrow(q.axis, at-x.start, to-at, 1))
		switch {
		case come:
			run(op, s, addProgram(y.dtype, from.dtype), y, []*Tensor{y, from}, nil)
		case q.plus:
			in := []*Tensor{from}
			run(op, s, addScalarOp.program(in, y.dtype, y.dtype), y, in, []float64{0})
		default:
			run(op, s, castProgram(from.dtype, y.dtype), y, []*Tensor{from}, nil)
		}
		at = to
	}
	q.cover(x)
	x.g.Free()
}

// region returns a view of q.whole with the indices [from, to) of the axis.
func (q *partial) region(s *Scope, from, to int) *Tensor {
	return q.whole.handle(q.last.op+".grad", s, q.whole.layout.Narrow(q.axis, from, to-from, 1))
}

// write allocates q.whole and copies the held pieces into it. If zeros is true, it first fills
// q.whole with zeros.
func (e *engine) write(q *partial, s *Scope, zeros bool) {
	q.whole = alloc(q.last.op+".grad", s, q.operand.dev, q.operand.dtype, q.operand.shape)
	e.bring(q.whole)
	if zeros {
		q.region(s, 0, q.operand.shape.At(q.axis)).fill(0)
	}
	held := q.held
	q.held, q.runs = nil, nil
	for _, x := range held {
		q.put(s, x)
	}
	if zeros {
		q.runs = [][2]int{{0, q.operand.shape.At(q.axis)}}
	}
}

// joined returns the held pieces as one tensor, the whole gradient, without a copy. It returns nil
// if that is impossible.
func (e *engine) joined(q *partial) *Tensor {
	if len(q.held) == 0 || len(q.gaps()) > 0 {
		return nil
	}
	x := q.held[0]
	if len(q.held) == 1 {
		return x.g
	}
	from, _ := q.base(x)
	l := shape.Dense(q.operand.shape)
	l.Offset = from
	y := x.g.handle(q.last.op+".grad", e.scope, l)
	for _, x := range q.held {
		x.g.Free()
	}
	return y
}

// assembled returns the complete gradient of a task whose gradient arrived in parts.
func (e *engine) assembled(t *task) *Tensor {
	q := t.partial
	t.partial = nil
	if q.whole == nil {
		if y := e.joined(q); y != nil {
			return y
		}
	}
	gaps := q.gaps()
	if q.whole != nil && len(gaps) == 0 {
		return q.whole
	}
	if tr := device.Tracing(); tr != nil {
		defer tr.End(q.last.backSpan(tr, e.scope, q.operand.shape))
	}
	s := e.scope.child()
	defer s.recycle()
	s.modes.stream = q.last.stream
	if q.whole == nil {
		e.write(q, s, len(gaps) > 1)
	}
	for _, r := range q.gaps() {
		q.region(s, r[0], r[1]).fill(0)
	}
	return q.whole
}
