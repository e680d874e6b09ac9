package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// unfoldSpec describes a kernel that copies the windows of images to the columns of a matrix. A
// thread copies the elements of a window along the last dimension. The kernel does not interpret
// the bits of elements, so all types of one size share it.
type unfoldSpec struct {
	size int // size of an element in bytes
	rank int
	wide bool
}

func (s unfoldSpec) name() string {
	name := fmt.Sprintf("unfold%dd_b%d", s.rank, 8*s.size)
	if s.wide {
		name += "_w"
	}
	return name
}

// Unfold plans the copies of the windows of x to the columns y, as [device.Unfold] defines them.
func Unfold(y, x Operand, win device.Window) ([]Launch, error) {
	n, r := y.Shape.Size(), win.Rank
	if n == 0 {
		return nil, nil
	}
	s := unfoldSpec{size: y.Type.Size(), rank: r, wide: n > narrowLimit}
	for i := range r {
		last := (y.Shape.At(2+r+i)-1)*win.Stride[i] + (win.Kernel[i]-1)*win.Dilation[i]
		s.wide = s.wide || last > narrowLimit || win.Before[i] > narrowLimit
	}
	for _, o := range []Operand{y, x} {
		s.wide = s.wide || extent(o) > narrowLimit
	}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	line := 1 + r // dimension of y along which a thread copies
	n /= win.Kernel[r-1]
	p := make(packer, 0, 256)
	p.index(s.wide, n)
	p.packCoordinates(y.Shape.Remove(line).Slice(), s.wide)
	p.u64(y.start())
	p.packStrides(y.Strides.Remove(line).Slice(), s.wide)
	p.index(s.wide, y.Strides.At(line))
	p.u64(x.start())
	p.packStrides(x.Strides.Slice(), s.wide)
	p.index(s.wide, win.Kernel[r-1])
	for i := range r {
		p.index(s.wide, x.Shape.At(2+i))
		p.index(s.wide, win.Stride[i])
		p.index(s.wide, win.Dilation[i])
		p.index(s.wide, win.Before[i])
	}
	l, err := p.launch(k, min(ceilDiv(n, mapThreads), maxBlocks))
	return []Launch{l}, err
}

func (s unfoldSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	it, t, r := indexType(s.wide), bitsOf(s.size), s.rank
	n := b.Param("n", it)
	coords := declareCoordinates(b, "d", 1+2*r, s.wide)
	y := b.Pointer("y", t)
	yStrides := declareStrides(b, "ys", 1+2*r, s.wide)
	yLine := b.Param("yline", it)
	x := b.Pointer("x", t)
	xStrides := declareStrides(b, "xs", 2+r, s.wide)
	kernel := b.Param("kernel", it)
	axes := make([]struct{ in, stride, dilation, before ptx.Value }, r)
	for i := range axes {
		a, suffix := &axes[i], fmt.Sprint(i)
		a.in, a.stride = b.Param("in"+suffix, it), b.Param("stride"+suffix, it)
		a.dilation, a.before = b.Param("dilation"+suffix, it), b.Param("before"+suffix, it)
	}
	id, step := globalIndex(b, s.wide)
	b.For(id, n, step, func(i ptx.Value, _ ptx.Loop) {
		at := coords.split(i)
		to := y.At(dot(b, at, yStrides, s.wide))
		ks, places := at[2:1+r], at[1+r:]
		// first holds the index at which the window begins. It wraps around if it lies before the
		// image.
		first := make([]ptx.Value, r)
		for d := range axes {
			first[d] = places[d].Mul(axes[d].stride).Sub(axes[d].before)
		}
		row := append([]ptx.Value{}, at[:2]...)
		inside := b.Const(it, num(0)).Eq(num(0))
		for d, k := range ks { // an index that wrapped around is too large
			p := k.Mad(axes[d].dilation, first[d])
			row, inside = append(row, p), inside.And(p.Lt(axes[d].in))
		}
		from, a := x.At(dot(b, row, xStrides, s.wide)), &axes[r-1]
		b.For(b.Const(it, num(0)), kernel, num(1), func(k ptx.Value, _ ptx.Loop) {
			p := k.Mad(a.dilation, first[r-1])
			v := b.Var(b.Const(bitsOf(max(s.size, 2)), num(0)).Cvt(t))
			b.If(inside.And(p.Lt(a.in)), func() {
				v.Set(from.At(dot(b, []ptx.Value{p}, xStrides[1+r:], s.wide)).Load())
			})
			to.At(dot(b, []ptx.Value{k}, []ptx.Value{yLine}, s.wide)).Store(v.Get())
		})
	})
	return [3]int{mapThreads, 1, 1}
}
