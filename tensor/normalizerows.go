package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// rowViews are the views of a normalisation of rows, contiguous.
func (f *normalizeFunc) rowViews(x *Tensor) (device.Norm, func(t *Tensor, rows bool) device.View) {
	s := x.layout.Shape
	n := device.Norm{Eps: f.eps, RMS: f.rms, Zero: f.zero, Period: s.At(1), Inner: s.At(3)}
	rows, columns := shape.Of(s.At(0)*s.At(1)), s.At(2)*s.At(3)
	return n, func(t *Tensor, matrix bool) device.View {
		if t == nil {
			return device.View{}
		}
		to := shape.Of(t.Size())
		if matrix {
			to = rows.Append(columns)
		}
		v := t.deviceView()
		v.Layout = shape.Layout{Shape: to, Strides: to.Contiguous(), Offset: t.layout.Offset}
		return v
	}
}

// The kernels for rows give a row to one worker. Fewer rows than fewRows, longer than longRow, are better shared by reductions; the
// bounds are the same everywhere, so that the order of a sum depends on its shape alone.
const (
	fewRows = 64
	longRow = 1 << 14
)

// rowKernels returns the device's kernels for rows, if it has some and x suits them.
func (f *normalizeFunc) rowKernels(s *Scope, x *Tensor) (device.Normer, bool) {
	d, ok := fast[device.Normer](s, x.st.dev)
	l := x.layout.Shape
	if !ok || f.kind != normRows || x.Size() == 0 {
		return nil, false
	}
	return d, l.At(2)*l.At(3) <= longRow || l.At(0)*l.At(1) >= fewRows
}

// fastForward runs the device's kernel for rows, if it has one.
func (f *normalizeFunc) fastForward(s *Scope, o *normOperands) (mean, rstd, y *Tensor) {
	x := o.x
	d, ok := f.rowKernels(s, x)
	if !ok || f.bias && !f.weight {
		return nil, nil, nil
	}
	x = x.Contiguous()
	n, view := f.rowViews(x)
	acc, kept := x.dtype.Compute(), shape.Of(x.layout.Shape.At(0), x.layout.Shape.At(1), 1, 1)
	if !f.rms {
		mean = alloc(f.op, s, x.st.dev, acc, kept)
	}
	rstd, y = alloc(f.op, s, x.st.dev, acc, kept), alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape)
	w, b := o.w, o.b
	if w != nil {
		w = w.Contiguous()
	}
	if b != nil {
		b = b.Contiguous()
	}
	stream := s.streamOf(x.st.dev)
	for _, t := range present(x, w, b) {
		t.st.read(f.op, stream)
	}
	for _, t := range present(y, mean, rstd) {
		t.st.write(f.op, stream)
	}
	check(f.op, d.Norm(stream, view(y, true), view(mean, false), view(rstd, false), view(x, true), view(w, false), view(b, false), n), present(x, w, b)...)
	return mean, rstd, y
}

// fastGradient runs the device's kernel for the gradient of rows, if it has one.
func (f *normalizeFunc) fastGradient(s *Scope, g, x, w, mean, rstd *Tensor) *Tensor {
	d, ok := f.rowKernels(s, x)
	if !ok {
		return nil
	}
	x, g = x.Contiguous(), g.Contiguous()
	n, view := f.rowViews(x)
	dx := alloc(f.op+".grad", s, x.st.dev, x.dtype, x.layout.Shape)
	if w != nil {
		w = w.Contiguous()
	}
	stream := s.streamOf(x.st.dev)
	for _, t := range present(g, x, mean, rstd, w) {
		t.st.read(f.op, stream)
	}
	dx.st.write(f.op, stream)
	check(f.op, d.NormGrad(stream, view(dx, true), view(g, true), view(x, true), view(mean, false), view(rstd, false), view(w, false), n), present(g, x, w)...)
	return dx
}
