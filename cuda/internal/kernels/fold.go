package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// foldSteps says how a kernel finds the windows that cover a position, and the elements of these
// windows at the position.
type foldSteps uint8

const (
	foldUnit foldSteps = iota // all strides of the windows are 1
	// all dilations are 1, so the index of the element in its window differs by the stride from
	// one window to the next
	foldStrided
	foldAny // all elements of a window are tried
)

func (s foldSteps) String() string { return [...]string{"unit", "strided", "any"}[s] }

// foldSpec describes a kernel that adds overlapping windows to an image. A thread computes an
// element of the result, and reads the elements of all windows that cover it.
type foldSpec struct {
	from, to            dtype.Type
	rank                int
	steps               foldSteps
	weighted, add, wide bool
}

func (s foldSpec) name() string {
	name := fmt.Sprintf("fold%dd_%v_%v_%v", s.rank, s.steps, s.from, s.to)
	if s.weighted {
		name += "_weighted"
	}
	if s.add {
		name += "_add"
	}
	if s.wide {
		name += "_w"
	}
	return name
}

// Fold plans the sums of overlapping windows, as [device.Fold] defines them. If add is true, the
// sums are added to the elements of y.
func Fold(y, x, w Operand, win device.Window, add bool) ([]Launch, error) {
	n, r := y.Shape.Size(), win.Rank
	if n == 0 {
		return nil, nil
	}
	s := foldSpec{from: x.Type, to: y.Type, rank: r, weighted: w.Type != dtype.Invalid, add: add}
	strided, dilated := false, false
	for i := range r {
		strided, dilated = strided || win.Stride[i] > 1, dilated || win.Dilation[i] > 1
		s.wide = s.wide || y.Shape.At(2+i)+win.Before[i] > narrowLimit || win.Stride[i]+win.Kernel[i]*win.Dilation[i] > narrowLimit
	}
	switch {
	case strided && dilated:
		s.steps = foldAny
	case strided:
		s.steps = foldStrided
	}
	s.wide = s.wide || n > narrowLimit
	for _, o := range []Operand{y, x, w} {
		s.wide = s.wide || extent(o) > narrowLimit
	}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 256)
	p.index(s.wide, n)
	p.packCoordinates(y.Shape.Slice(), s.wide)
	p.u64(y.start())
	p.packStrides(y.Strides.Slice(), s.wide)
	p.u64(x.start())
	p.packStrides(x.Strides.Slice(), s.wide)
	if s.weighted {
		p.u64(w.start())
		p.packStrides(w.Strides.Slice(), s.wide)
	}
	for i := range r {
		p.index(s.wide, win.Kernel[i])
		p.index(s.wide, x.Shape.At(2+r+i))
		p.index(s.wide, win.Before[i])
		if s.steps != foldUnit {
			p.packCoordinates([]int{0, win.Stride[i]}, s.wide)
		}
		if s.steps != foldStrided {
			p.index(s.wide, win.Dilation[i])
		}
	}
	l, err := p.launch(k, min(ceilDiv(n, mapThreads), maxBlocks))
	return []Launch{l}, err
}

// extent returns the largest distance of an element of o from its first element, in elements.
func extent(o Operand) (n int) {
	for d := range o.Shape.Rank() {
		n += max(o.Shape.At(d)-1, 0) * max(o.Strides.At(d), -o.Strides.At(d))
	}
	return n
}

// foldAxis holds the kernel parameters of one dimension of the windows.
type foldAxis struct {
	kernel, out, before, dilation ptx.Value
	stride                        coordinates
}

func (s foldSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	it, r := indexType(s.wide), s.rank
	n := b.Param("n", it)
	coords := declareCoordinates(b, "d", 2+r, s.wide)
	y := b.Pointer("y", storage(s.to))
	yStrides := declareStrides(b, "ys", 2+r, s.wide)
	x := b.Pointer("x", storage(s.from))
	xStrides := declareStrides(b, "xs", 2+2*r, s.wide)
	var w ptx.Ptr
	var wStrides []ptx.Value
	if s.weighted {
		w = b.Pointer("w", storage(s.from))
		wStrides = declareStrides(b, "ws", 1+r, s.wide)
	}
	axes := make([]foldAxis, r)
	for i := range axes {
		a := &axes[i]
		suffix := fmt.Sprint(i)
		a.kernel, a.out, a.before = b.Param("kernel"+suffix, it), b.Param("out"+suffix, it), b.Param("before"+suffix, it)
		if s.steps != foldUnit {
			a.stride = declareCoordinates(b, "stride"+suffix, 2, s.wide)
		}
		if s.steps != foldStrided {
			a.dilation = b.Param("dilation"+suffix, it)
		}
	}
	id, step := globalIndex(b, s.wide)
	b.For(id, n, step, func(i ptx.Value, _ ptx.Loop) {
		at := coords.split(i)
		to := y.At(dot(b, at, yStrides, s.wide))
		sum := b.Var(b.Bits(computing(s.to.Compute()), 0))
		if s.add {
			sum.Set(loadVector(b, to, s.to, 1)[0])
		}
		// add reads one element of a window and adds it. The arguments are the coordinates ks of
		// the element in the window, and the coordinates places of the window.
		add := func(ks, places []ptx.Value) {
			from := append(append(append([]ptx.Value{}, at[:2]...), ks...), places...)
			v := loadVector(b, x.At(dot(b, from, xStrides, s.wide)), s.from, 1)[0]
			if !s.weighted {
				sum.Set(sum.Get().Add(v))
				return
			}
			f := loadVector(b, w.At(dot(b, append([]ptx.Value{at[1]}, ks...), wStrides, s.wide)), s.from, 1)[0]
			if s.from.IsFloat() {
				sum.Set(v.FMA(f, sum.Get()))
			} else {
				sum.Set(sum.Get().Add(v.Mul(f)))
			}
		}
		covering := make([]func(f func(k, place ptx.Value)), r)
		for d := range axes {
			covering[d] = s.covering(b, &axes[d], at[2+d].Add(axes[d].before))
		}
		var each func(ks, places []ptx.Value)
		each = func(ks, places []ptx.Value) {
			d := len(ks)
			if d == r {
				add(ks, places)
				return
			}
			covering[d](func(k, place ptx.Value) { each(append(ks, k), append(places, place)) })
		}
		each(make([]ptx.Value, 0, r), make([]ptx.Value, 0, r))
		storeVector(b, to, s.to, []ptx.Value{sum.Get()})
	})
	return [3]int{mapThreads, 1, 1}
}

// covering returns a function that visits the windows that cover position p of the padded image,
// along one dimension. For each such window it calls f with k, the index of the window's element at
// p, and with place, the index of the window. Windows have indices from 0 to a.out-1. A window
// before the first one would have a negative index, which is a large number because place is
// unsigned.
func (s foldSpec) covering(b *ptx.Builder, a *foldAxis, p ptx.Value) func(f func(k, place ptx.Value)) {
	zero := b.Const(p.Type(), num(0))
	switch s.steps {
	case foldUnit:
		return func(f func(k, place ptx.Value)) {
			b.For(zero, a.kernel, num(1), func(k ptx.Value, _ ptx.Loop) {
				place := p.Sub(k.Mul(a.dilation))
				b.If(place.Lt(a.out), func() { f(k, place) })
			})
		}
	case foldStrided:
		// first holds two indices: of the last window that begins at or before p, and of that
		// window's element at p.
		first := a.stride.split(p)
		return func(f func(k, place ptx.Value)) {
			place := b.Var(first[0])
			b.For(first[1], a.kernel, a.stride.size[0], func(k ptx.Value, _ ptx.Loop) {
				b.If(place.Get().Lt(a.out), func() { f(k, place.Get()) })
				place.Set(place.Get().Sub(num(1)))
			})
		}
	}
	return func(f func(k, place ptx.Value)) {
		b.For(zero, a.kernel, num(1), func(k ptx.Value, _ ptx.Loop) {
			begin := k.Mul(a.dilation)
			b.If(begin.Le(p), func() {
				at := a.stride.split(p.Sub(begin))
				b.If(at[1].Eq(num(0)).And(at[0].Lt(a.out)), func() { f(k, at[0]) })
			})
		})
	}
}
