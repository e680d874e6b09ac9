package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// maxPoolGradSpec describes a kernel for the gradient of max pooling. A thread computes one element
// of the result. It goes through the windows that cover the element, in their order, and adds the
// gradient of each window whose maximum is this element.
type maxPoolGradSpec struct {
	typ, near dtype.Type
	rank      int
	wide      bool
}

func (s maxPoolGradSpec) name() string {
	name := fmt.Sprintf("max_pool%dd_grad_%v_%v", s.rank, s.typ, s.near)
	if s.wide {
		name += "_w"
	}
	return name
}

// MaxPoolGrad plans the gradient of max pooling, as [device.MaxPoolGrad] defines it. The operands
// are contiguous.
func MaxPoolGrad(dx, g, near Operand, win device.Window) ([]Launch, error) {
	n, r := dx.Shape.Size(), win.Rank
	if n == 0 {
		return nil, nil
	}
	s := maxPoolGradSpec{typ: dx.Type, near: near.Type, rank: r, wide: max(n, g.Shape.Size()) > narrowLimit}
	for i := range r {
		s.wide = s.wide || dx.Shape.At(1+i)+win.Before[i] > narrowLimit || win.Kernel[i]*win.Dilation[i] > narrowLimit
	}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 192)
	p.index(s.wide, n)
	p.packCoordinates(dx.Shape.Slice(), s.wide)
	for _, o := range []Operand{dx, g, near} {
		p.u64(o.start())
	}
	for i := range r {
		p.index(s.wide, win.Kernel[i])
		p.index(s.wide, g.Shape.At(1+i))
		p.index(s.wide, win.Before[i])
		p.packCoordinates([]int{0, win.Stride[i]}, s.wide)
		p.index(s.wide, win.Dilation[i])
		p.index(s.wide, dx.Shape.Tail(2+i).Size())
	}
	l, err := p.launch(k, min(ceilDiv(n, mapThreads), maxBlocks))
	return []Launch{l}, err
}

func (s maxPoolGradSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	if s.wide {
		b.MinBlocks(2) // divisions with 64-bit indices need many registers
	} else {
		roomForRegisters(b)
	}
	it, r := indexType(s.wide), s.rank
	n := b.Param("n", it)
	coords := declareCoordinates(b, "d", 1+r, s.wide)
	dx, g, near := b.Pointer("dx", storage(s.typ)), b.Pointer("g", storage(s.typ)), b.Pointer("near", storage(s.near))
	axes := make([]foldAxis, r)
	along := make([]ptx.Value, r) // stride of each dimension in an image
	for i := range axes {
		a := &axes[i]
		suffix := fmt.Sprint(i)
		a.kernel, a.out, a.before = b.Param("kernel"+suffix, it), b.Param("out"+suffix, it), b.Param("before"+suffix, it)
		a.stride = declareCoordinates(b, "stride"+suffix, 2, s.wide)
		a.dilation, along[i] = b.Param("dilation"+suffix, it), b.Param("along"+suffix, it)
	}
	id, step := globalIndex(b, s.wide)
	b.For(id, n, step, func(i ptx.Value, _ ptx.Loop) {
		at := coords.split(i)
		sum := b.Var(b.Bits(computing(s.typ.Compute()), 0))
		// The function each loops over the windows that cover the element along dimension d. The
		// windows' coordinates in the dimensions before d are already chosen. The argument window
		// is their combined index, and distance is the combined distance of the element from the
		// window's beginning.
		var each func(d int, window, distance ptx.Value)
		each = func(d int, window, distance ptx.Value) {
			if d == r {
				from := loadVector(b, near.At(window), s.near, 1)[0]
				b.If(from.Bitcast(ptx.U32).Eq(distance.Cvt(ptx.U32)), func() {
					sum.Set(sum.Get().Add(loadVector(b, g.At(window), s.typ, 1)[0]))
				})
				return
			}
			a := &axes[d]
			p := at[1+d].Add(a.before)
			b.For(b.Const(it, num(0)), a.kernel, num(1), func(back ptx.Value, _ ptx.Loop) {
				// The windows are visited in their order. The earlier a window begins, the
				// later the element lies in it. So the loop goes backwards through the elements
				// of a window.
				begin := a.kernel.Sub(num(1)).Sub(back).Mul(a.dilation)
				b.If(begin.Le(p), func() {
					place := a.stride.split(p.Sub(begin))
					b.If(place[1].Eq(num(0)).And(place[0].Lt(a.out)), func() {
						each(d+1, window.Mul(a.out).Add(place[0]), distance.Add(begin.Mul(along[d])))
					})
				})
			})
		}
		each(0, at[0], b.Const(it, num(0)))
		storeVector(b, dx.At(i), s.typ, []ptx.Value{sum.Get()})
	})
	return [3]int{mapThreads, 1, 1}
}
