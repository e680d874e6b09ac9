package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Update runs one program over groups of tensors of one device. It stores the results for ins[k] in
// outs[k], in place. It is for optimizers. params and bits both hold the program's scalars as bits
// (expr.Encode): params is a tensor on that device with 8-byte slots, and bits is on the host. If
// the device can, all groups of contiguous tensors run in a single launch, which reads params. Each
// remaining group is a separate launch, which gets the scalars from bits.
func Update(op string, p *expr.Program, outs, ins [][]*Tensor, params *Tensor, bits []uint64) {
	update(op, p, outs, ins, params, bits, nil)
}

// UpdateFinite does what [Update] does, and also sets the tensor found, one float32 on the device
// that is 0 or 1. found becomes 1 if an element of the first operand of a group is infinite or NaN
// before the update. Otherwise found does not change. If the device can, this happens in the same
// launch. A GradScaler calls UpdateFinite to unscale gradients. If found is 1, the optimizer
// then skips its step.
func UpdateFinite(op string, p *expr.Program, outs, ins [][]*Tensor, params *Tensor, bits []uint64, found *Tensor) {
	params.use(op)
	found.use(op)
	sameDevice(op, []*Tensor{params, found})
	if found.dtype != dtype.F32 || found.Size() != 1 {
		fail(op, ErrType, []*Tensor{found}, "what is found is told in one float32, not in %v of shape %v", found.dtype, found.Shape())
	}
	if len(p.In) == 0 {
		fail(op, ErrValue, []*Tensor{found}, "the program has no operand to look at")
	}
	found.st.version.Add(1)
	update(op, p, outs, ins, params, bits, found)
}

// PrepareUpdate loads the code of a program onto a device. Without it, the first [Update] with the
// program on the device loads the code, and allocates memory for it. Call PrepareUpdate for all
// updates that belong together, before the first of them.
func PrepareUpdate(op string, p *expr.Program, dev device.Device) {
	if d, ok := dev.(device.Preparer); ok {
		check(op, d.Prepare(&device.MultiMap{Program: p}))
	}
}

// update does the work of UpdateFinite, or of Update if found is nil.
func update(op string, p *expr.Program, outs, ins [][]*Tensor, params *Tensor, bits []uint64, found *Tensor) {
	if len(outs) == 0 {
		return
	}
	params.use(op)
	if len(outs) != len(ins) {
		fail(op, ErrValue, []*Tensor{params}, "%d groups of results, but %d of operands", len(outs), len(ins))
	}
	s, dev := params.scope, params.st.dev
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanDirect, op, s, nil))
	}
	m := &device.MultiMap{Program: p}
	if len(p.Params) > 0 {
		m.Params = params.operand()
	}
	multi, finds := false, false
	if !s.modes.composed {
		if found != nil {
			m.Found = found.operand()
			finds = dev.Supports(m)
		}
		if multi = finds; !finds {
			m.Found = device.View{}
			multi = dev.Supports(m)
		}
	}
	var results, operands []*Tensor // the tensors of the launch that all contiguous groups share
	for k := range outs {
		checkGroup(op, p, dev, params, outs[k], ins[k])
		together := multi && dense(ins[k]) && dense(outs[k])
		if found != nil && !(together && finds) {
			findInfinite(op, s, found, ins[k][0])
		}
		if !together {
			runMap(op, s, p, outs[k], ins[k], bits)
			continue
		}
		m.Outs, m.Ins = append(m.Outs, viewsOf(outs[k])), append(m.Ins, viewsOf(ins[k]))
		results, operands = append(results, outs[k]...), append(operands, ins[k]...)
	}
	if len(results) > 0 {
		if !finds {
			found = nil
		}
		launch(op, s, m, append(append(append(results, found), operands...), params)...)
	}
}

// checkGroup checks a group of an update, and raises the versions of the result tensors.
func checkGroup(op string, p *expr.Program, dev device.Device, params *Tensor, outs, ins []*Tensor) {
	if len(outs) != len(p.Out) || len(ins) != len(p.In) {
		fail(op, ErrValue, []*Tensor{params}, "%d results and %d operands, but the program has %d and %d", len(outs), len(ins), len(p.Out), len(p.In))
	}
	for i, list := range [2][]*Tensor{outs, ins} {
		for _, t := range list {
			t.use(op)
			if t.st.dev != dev {
				sameDevice(op, []*Tensor{params, t})
			}
			if len(outs) > 0 && t.layout.Shape != outs[0].layout.Shape {
				fail(op, ErrShape, []*Tensor{outs[0], t}, "tensors of one group have one shape")
			}
			if i > 0 {
				continue
			}
			if t.layout.Overlaps() {
				panic(newError(op, ErrShape, []*Tensor{t}, "the tensor is expanded: several elements share one place").hint("use Clone first"))
			}
			t.st.version.Add(1)
		}
	}
}

func viewsOf(list []*Tensor) []device.View {
	v := make([]device.View, len(list))
	for i, t := range list {
		v[i] = t.operand()
	}
	return v
}

func dense(list []*Tensor) bool {
	for _, t := range list {
		if !t.layout.Contiguous() {
			return false
		}
	}
	return true
}

// infiniteOp returns 1 if an element is infinite or NaN, and otherwise 0. It tests whether the
// element minus itself is NaN. foundOp returns the greater of two results of infiniteOp.
var (
	infiniteOp = &Reduction{Name: "infinite", Kind: device.Max, Map: x0.Sub(x0).Ne(x0.Sub(x0)).Select(expr.C(1), expr.C(0)), Same: true}
	foundOp    = &Elementwise{Name: "found", Arity: 2, Expr: x0.Max(x1), NoGrad: true}
)

// findInfinite sets the tensor found to 1 if an element of x is infinite or NaN. It runs a
// reduction.
func findInfinite(op string, s *Scope, found, x *Tensor) {
	if x.Size() == 0 {
		return
	}
	most := alloc(op, s, x.st.dev, x.dtype, shape.Dims{})
	defer most.Free()
	p, _ := infiniteOp.program(x)
	runReduce(op, s, p, most, padTo(shape.Dims{}, x.Rank()), []*Tensor{x}, x.layout.Shape, nil)
	in := []*Tensor{found, most}
	run(op, s, foundOp.program(in, dtype.F32, dtype.F32), found, in, nil)
}
