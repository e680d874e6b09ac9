package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// UpdateFinite is [Update] that also sets found, one float32 on the device that is 0 or 1, to 1 if an element of the first operand of a group
// is infinite or NaN before the update; otherwise found stays as it is. Where the device can ([device.FiniteMapper]) it is the same launch.
// It is what a GradScaler unscales gradients with, and what an optimizer that leaves steps out is made of.
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
	update(op, p, outs, ins, params, bits, &finder{op, found})
}

// A finder looks for infinities and NaN; nil looks for none.
type finder struct {
	op    string
	found *Tensor
}

// fits reports whether d looks by itself.
func (f *finder) fits(d device.MultiMapper) bool {
	_, ok := d.(device.FiniteMapper)
	return ok
}

func (f *finder) run(d device.MultiMapper, stream device.Stream, p *expr.Program, outs, ins [][]device.View, params device.View) error {
	if f == nil || !f.fits(d) {
		return d.MultiMap(stream, p, outs, ins, params)
	}
	f.found.st.write(f.op, stream)
	return d.(device.FiniteMapper).MultiMapFinite(stream, p, outs, ins, params, f.found.deviceView())
}

// infiniteOp is 1 for what is infinite or NaN, whose difference to itself is NaN, and 0 else; foundOp takes the greater of two of it.
var (
	infiniteOp = &Reduction{Name: "infinite", Kind: device.Max, Map: x0.Sub(x0).Ne(x0.Sub(x0)).Select(expr.C(1), expr.C(0)), Same: true}
	foundOp    = &Elementwise{Name: "found", Arity: 2, Expr: x0.Max(x1), NoGrad: true}
)

// look does the same by a reduction.
func (f *finder) look(s *Scope, stream device.Stream, v device.View) {
	if v.Size() == 0 {
		return
	}
	dev := f.found.st.dev
	most := alloc(f.op, s, dev, v.Type, shape.Dims{})
	defer most.Free()
	out := most.deviceView()
	kept := padTo(shape.Dims{}, v.Shape.Rank())
	out.Layout = shape.Layout{Shape: kept, Strides: kept.Contiguous(), Offset: most.layout.Offset}
	p, _ := infiniteOp.program(most)
	check(f.op, dev.Reduce(stream, p, out, []device.View{v}, nil))
	f.found.st.write(f.op, stream)
	to := f.found.deviceView()
	to.Layout = most.layout
	to.Layout.Offset = f.found.layout.Offset
	in := []*Tensor{f.found, most}
	check(f.op, dev.Map(stream, foundOp.program(in, dtype.F32, dtype.F32), []device.View{to}, []device.View{to, most.deviceView()}, nil))
}
