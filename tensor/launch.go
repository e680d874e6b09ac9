package tensor

import (
	"errors"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// launch queues the primitive o for the op with this name. tensors are the operands of o in o's
// order, nil for absent ones. launch sets their buffers in o. It orders the work with the work of
// other streams on the same memory. A capture that cannot record the work refuses it. launch panics
// with an error of the device.
//
// Every primitive is queued by launch. Only copies, [Raw] and replays of graphs queue their work
// themselves.
func launch(op string, s *Scope, o device.Op, tensors ...*Tensor) {
	var dev device.Device
	for i := 0; dev == nil; i++ {
		if tensors[i] != nil {
			dev = tensors[i].st.dev
		}
	}
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanDirect, op, s, readBy(o, tensors)))
	}
	to := s.route(op, dev)
	// Results come first in the list. Go in reverse order, so that the reads are noted before the
	// writes.
	for i := len(tensors) - 1; i >= 0; i-- {
		t := tensors[i]
		if t == nil {
			continue
		}
		x := o.Operand(i)
		if x.Written {
			t.st.write(op, to)
		} else {
			t.st.read(op, to)
		}
		x.View.Buf = t.st.buf
	}
	if err := device.Run(dev, to.stream, o); err != nil {
		in := readBy(o, tensors)
		if sc, ok := o.(*device.Scatter); ok && errors.As(err, new(*device.IndexError)) && sc.Tag == 0 {
			// The index of a scatter selects elements of the target. So the error names the target
			// and the index, like an error that a GPU reports later.
			in = []*Tensor{tensors[0], tensors[2]}
		}
		panic(deviceError(op, unexpandedError(o, err), in))
	}
}

// unexpandedError maps the position of an index error to the position in the index before its
// expansion. It is for errors that the CPU reports immediately. The index is the second operand
// that o reads.
func unexpandedError(o device.Op, err error) error {
	var ix *device.IndexError
	if !errors.As(err, &ix) || ix.Tag != 0 {
		return err
	}
	told, read := *ix, 0
	for i := 0; read < 2; i++ {
		x := o.Operand(i)
		if x.View == nil {
			return err
		}
		if x.Written || x.View.Type == dtype.Invalid {
			continue
		}
		if read++; read == 2 {
			told.Position = positionIn(x.View.Layout, ix.Position)
		}
	}
	return &told
}

func readBy(o device.Op, tensors []*Tensor) (in []*Tensor) {
	for i, t := range tensors {
		if t != nil && !o.Operand(i).Written {
			in = append(in, t)
		}
	}
	return in
}

// operand returns x as an operand of a primitive, without a buffer.
func (x *Tensor) operand() device.View { return device.View{Type: x.dtype, Layout: x.layout} }

// expandInto sets v to x expanded to s, as an operand without a buffer.
func (x *Tensor) expandInto(v *device.View, s *shape.Dims) {
	if v.Type = x.dtype; x.layout.Shape == *s {
		v.Layout = x.layout
	} else {
		v.Layout, _ = x.layout.Expand(*s)
	}
}

// operandAs returns the contiguous x as an operand of shape s, which has x's number of elements.
// For a nil x it returns an absent operand.
func (x *Tensor) operandAs(s shape.Dims) device.View {
	if x == nil {
		return device.View{}
	}
	return device.View{Type: x.dtype, Layout: shape.Layout{Shape: s, Strides: s.Contiguous(), Offset: x.layout.Offset}}
}

// resultOf returns the view of a contiguous result that is not allocated yet.
func resultOf(t dtype.Type, s shape.Dims) device.View {
	return device.View{Type: t, Layout: shape.Dense(s)}
}

// run runs p on the given operands, expanded to y's shape, and writes y.
func run(op string, s *Scope, p *expr.Program, y *Tensor, in []*Tensor, params []float64) {
	runMap(op, s, p, []*Tensor{y}, in, encode(p, params))
}

// runMap runs p on the given operands and writes several results of the same shape. bits holds p's
// scalars, encoded as bits.
func runMap(op string, s *Scope, p *expr.Program, outs, ins []*Tensor, bits []uint64) {
	m := mapOps.get()
	m.Program, m.Params = p, bits
	m.Outs, m.Ins = room(m.Outs, len(outs)), room(m.Ins, len(ins))
	for i, y := range outs {
		m.Outs[i].Type, m.Outs[i].Layout = y.dtype, y.layout
	}
	for i, x := range ins {
		x.expandInto(&m.Ins[i], &outs[0].layout.Shape)
	}
	if !m.Outs[0].Contiguous() && !p.UsesIndex() {
		sortDims(m)
	}
	var some [8]*Tensor
	launch(op, s, m, append(append(some[:0], outs...), ins...)...)
	putMap(m)
}

// sortDims puts the dimensions of all views of m in the order in which the first result has them in
// memory, the innermost last. If a map's views are contiguous in this order, devices need no loops
// over dimensions.
func sortDims(m *device.Map) {
	var space [shape.MaxRank]int
	strides, order := m.Outs[0].Strides, space[:m.Outs[0].Shape.Rank()]
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strides.At(b) - strides.At(a) })
	for _, list := range [][]device.View{m.Outs, m.Ins} {
		for i := range list {
			list[i].Layout = list[i].Permute(order)
		}
	}
}

// runPart runs p on x and writes the part of y that has the given layout. It needs no Tensor for
// the part.
func runPart(op string, s *Scope, p *expr.Program, y *Tensor, part shape.Layout, x *Tensor) {
	m := mapOps.get()
	m.Program = p
	m.Outs, m.Ins = room(m.Outs, 1), room(m.Ins, 1)
	m.Outs[0].Type, m.Outs[0].Layout = y.dtype, part
	x.expandInto(&m.Ins[0], &part.Shape)
	launch(op, s, m, y, x)
	putMap(m)
}

// putMap returns m to the pool, without its buffers. m keeps its lists for the next use.
func putMap(m *device.Map) {
	drop(m.Outs)
	drop(m.Ins)
	*m = device.Map{Outs: m.Outs, Ins: m.Ins}
	mapOps.free.Put(m)
}

// runReduce runs p on the given operands, expanded to the shape full, and writes y. keptShape is a
// shape with y's number of elements.
func runReduce(op string, s *Scope, p *device.Reduction, y *Tensor, keptShape shape.Dims, in []*Tensor, full shape.Dims, params []uint64) {
	r := reduceOps.get()
	r.Reduction, r.Params = p, params
	r.Out, r.Ins = y.operandAs(keptShape), room(r.Ins, len(in))
	for i, x := range in {
		x.expandInto(&r.Ins[i], &full)
	}
	var some [8]*Tensor
	launch(op, s, r, append(append(some[:0], y), in...)...)
	drop(r.Ins)
	*r = device.Reduce{Ins: r.Ins}
	reduceOps.free.Put(r)
}

// mapInto runs p on the given operands and writes the result to the existing tensor y. The library
// uses it for updates in place.
func mapInto(op string, p *expr.Program, y *Tensor, in []*Tensor, params []float64) {
	s := y.scope
	for _, t := range in {
		if t.scope.depth > s.depth {
			s = t.scope
		}
	}
	run(op, s, p, y, in, params)
}

func encode(p *expr.Program, params []float64) []uint64 {
	if len(params) == 0 {
		return nil
	}
	b := make([]uint64, len(params))
	for i, v := range params {
		if i < len(p.Params) && p.Params[i] != dtype.Invalid {
			b[i] = expr.Encode(p.Params[i], v)
		}
	}
	return b
}

// An opPool keeps primitives of one type for reuse. A primitive is large and escapes to the heap
// through an interface. Without the pool, each call in a step would allocate one.
type opPool[T any, P interface {
	*T
	device.Op
}] struct{ free sync.Pool }

func (p *opPool[T, P]) get() *T {
	if o, ok := p.free.Get().(*T); ok {
		return o
	}
	return new(T)
}

// reuse takes a primitive from the pool, or allocates one, and sets it to v.
func (p *opPool[T, P]) reuse(v T) *T {
	o := p.get()
	*o = v
	return o
}

// supported returns a reused primitive with the value v. It returns nil if dev does not support the
// primitive or s forbids it. It uses only the types and layouts of v's views, so results need not
// be allocated yet.
func (p *opPool[T, P]) supported(s *Scope, dev device.Device, v T) *T {
	if s.modes.composed {
		return nil
	}
	o := p.reuse(v)
	if !dev.Supports(P(o)) {
		p.put(o)
		return nil
	}
	return o
}

// put returns o to the pool, without its buffers.
func (p *opPool[T, P]) put(o *T) {
	var none T
	*o = none
	p.free.Put(o)
}

// room returns a list of n views without buffers. It reuses the given list if it is long enough.
func room(list []device.View, n int) []device.View { return slices.Grow(list[:0], n)[:n] }

// drop sets the buffers of all views in the list to nil.
func drop(list []device.View) {
	for i := range list {
		list[i].Buf = nil
	}
}

var (
	mapOps              opPool[device.Map, *device.Map]
	reduceOps           opPool[device.Reduce, *device.Reduce]
	matmulOps           opPool[device.MatMul, *device.MatMul]
	softmaxOps          opPool[device.Softmax, *device.Softmax]
	softmaxGradOps      opPool[device.SoftmaxGrad, *device.SoftmaxGrad]
	gatherOps           opPool[device.Gather, *device.Gather]
	scatterOps          opPool[device.Scatter, *device.Scatter]
	crossEntropyOps     opPool[device.CrossEntropy, *device.CrossEntropy]
	crossEntropyGradOps opPool[device.CrossEntropyGrad, *device.CrossEntropyGrad]
	normOps             opPool[device.Norm, *device.Norm]
	normGradOps         opPool[device.NormGrad, *device.NormGrad]
	channelNormOps      opPool[device.ChannelNorm, *device.ChannelNorm]
	channelNormGradOps  opPool[device.ChannelNormGrad, *device.ChannelNormGrad]
	convolutionOps      opPool[device.Convolution, *device.Convolution]
	attentionOps        opPool[device.Attention, *device.Attention]
	attentionGradOps    opPool[device.AttentionGrad, *device.AttentionGrad]
	scanOps             opPool[device.Scan, *device.Scan]
	argsortOps          opPool[device.Argsort, *device.Argsort]
	searchOps           opPool[device.Search, *device.Search]
	sumWindowsOps       opPool[device.SumWindows, *device.SumWindows]
	foldOps             opPool[device.Fold, *device.Fold]
	unfoldOps           opPool[device.Unfold, *device.Unfold]
	maxPoolGradOps      opPool[device.MaxPoolGrad, *device.MaxPoolGrad]
)
