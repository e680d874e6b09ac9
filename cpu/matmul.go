package cpu

import (
	"fmt"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// MatMul computes out[b] = a[b]·b[b]; see [device.Device]. 16-bit floats are converted to float32, multiplied there and
// rounded once. Bool is the product over "or" and "and".
func (d *Device) MatMul(s device.Stream, out, a, b device.View) error {
	if err := d.checkMatMul(&out, &a, &b); err != nil {
		return err
	}
	if out.Size() == 0 {
		return nil
	}
	if t := device.Tracing(); t != nil && s != nil {
		defer d.traced(t, s, "matmul", device.MatMulWork(out, a, b), out.Type, t.Wants().ShapesOf([]device.View{out, a, b})).done()
	}
	if a.Shape.At(2) == 0 {
		return d.Map(nil, zeroProgram(out.Type), []device.View{out}, nil, nil)
	}
	switch {
	case out.Type == dtype.F32 || out.Type == dtype.F64:
		d.floatProduct(&out, &a, &b)
	case out.Type.IsHalf():
		return d.halfProduct(&out, &a, &b)
	default:
		m := &product{out: out, a: a, b: b}
		rows := out.Shape.At(0) * out.Shape.At(1)
		d.crew.parallel(rows, max(1, inlineWork/max(1, out.Shape.At(2)*a.Shape.At(2))), m)
	}
	return nil
}

func (d *Device) checkMatMul(out, a, b *device.View) error {
	if err := d.checkOut("matmul", "out", out); err != nil {
		return err
	}
	for i, v := range [...]*device.View{a, b, out} {
		name := [...]string{"a", "b", "out"}[i]
		if err := d.checkIn("matmul", name, v); err != nil {
			return err
		}
		if v.Shape.Rank() != 3 {
			return &ViewError{"matmul", name, fmt.Sprintf("shape %v, want [batch, rows, columns]", v.Shape)}
		}
		if v.Type != out.Type {
			return &ViewError{"matmul", name, fmt.Sprintf("%v, but out is %v", v.Type, out.Type)}
		}
		for k := range 3 {
			if v.Strides.At(k) < 0 {
				return &ViewError{"matmul", name, fmt.Sprintf("negative strides %v", v.Strides)}
			}
		}
	}
	s := out.Shape
	if a.Shape.At(0) != s.At(0) || a.Shape.At(1) != s.At(1) || b.Shape.At(0) != s.At(0) || b.Shape.At(2) != s.At(2) || a.Shape.At(2) != b.Shape.At(1) {
		return &ViewError{"matmul", "out", fmt.Sprintf("shapes %v·%v do not give %v", a.Shape, b.Shape, s)}
	}
	return nil
}

// smallProduct is the number of multiplications of one matrix below which the workers share out whole matrices of a batch.
const smallProduct = 1 << 20

// floatProduct multiplies float32 or float64 matrices.
func (d *Device) floatProduct(out, a, b *device.View) {
	foldBatch(out, a, b)
	batch := out.Shape.At(0)
	work := out.Shape.At(1) * out.Shape.At(2) * a.Shape.At(2)
	if batch == 1 || d.crew.size == 1 || work > smallProduct && batch < 4*d.crew.size {
		for i := range batch {
			multiply(d.par, out, a, b, i)
		}
		return
	}
	d.crew.parallel(batch, max(1, inlineWork/max(1, work)), &products{*out, *a, *b})
}

// foldBatch makes rows of a batch whose second operand is one matrix, where a and out allow it.
func foldBatch(out, a, b *device.View) {
	n := out.Shape.At(0)
	rows := out.Shape.At(1)
	if n == 1 || b.Strides.At(0) != 0 || a.Strides.At(0) != rows*a.Strides.At(1) || out.Strides.At(0) != rows*out.Strides.At(1) {
		return
	}
	merge := func(v *device.View, rows int) {
		v.Shape = v.Shape.With(0, 1).With(1, rows)
	}
	merge(out, n*rows)
	merge(a, n*rows)
	b.Shape = b.Shape.With(0, 1)
}

// products is a batch of float products, of which each is one worker's.
type products struct{ out, a, b device.View }

func (f *products) run(lo, hi int) {
	for i := lo; i < hi; i++ {
		multiply(gemm.Serial, &f.out, &f.a, &f.b, i)
	}
}

// multiply computes product i of a batch.
func multiply(par gemm.Parallel, out, a, b *device.View, i int) {
	m, n, k := out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	if out.Type == dtype.F64 {
		gemm.F64(par, m, n, k, matrix[float64](a, i), a.Strides.At(1), a.Strides.At(2),
			matrix[float64](b, i), b.Strides.At(1), b.Strides.At(2),
			matrix[float64](out, i), out.Strides.At(1), out.Strides.At(2), false)
		return
	}
	gemm.F32(par, m, n, k, matrix[float32](a, i), a.Strides.At(1), a.Strides.At(2),
		matrix[float32](b, i), b.Strides.At(1), b.Strides.At(2),
		matrix[float32](out, i), out.Strides.At(1), out.Strides.At(2), false)
}

// matrix returns the elements that matrix i of a batch spans.
func matrix[T float32 | float64](v *device.View, i int) []T {
	rows, cols := v.Shape.At(1), v.Shape.At(2)
	if rows == 0 || cols == 0 {
		return nil
	}
	span := (rows-1)*v.Strides.At(1) + (cols-1)*v.Strides.At(2) + 1
	return at[T](unsafe.Add(pointer(v), i*v.Strides.At(0)*v.Type.Size()), span)
}

// halfProduct multiplies 16-bit floats through float32.
func (d *Device) halfProduct(out, a, b *device.View) error {
	o32, err := d.temporary(dtype.F32, out.Shape)
	if err != nil {
		return err
	}
	defer o32.Buf.Free()
	a32, err := d.widened(a)
	if err != nil {
		return err
	}
	defer a32.Buf.Free()
	b32, err := d.widened(b)
	if err != nil {
		return err
	}
	defer b32.Buf.Free()
	wide := o32
	d.floatProduct(&wide, &a32, &b32)
	return d.Map(nil, castProgram(out.Type, dtype.F32), []device.View{*out}, []device.View{o32}, nil)
}

// temporary allocates a contiguous view.
func (d *Device) temporary(t dtype.Type, s shape.Dims) (device.View, error) {
	buf, err := d.Alloc(s.Size()*t.Size(), nil, device.Origin{Op: "cpu temporary", Shape: s, Type: t})
	return device.View{Buf: buf, Type: t, Layout: shape.Dense(s)}, err
}

// widened returns a float32 copy of a batch of matrices in which the inner distance that is 1 stays 1; a batch that repeats
// one matrix still does.
func (d *Device) widened(v *device.View) (device.View, error) {
	src := *v
	if v.Strides.At(0) == 0 {
		src.Shape = src.Shape.With(0, 1)
	}
	flip := src.Strides.At(1) == 1 && src.Strides.At(2) != 1
	if flip {
		src.Layout = src.Transpose(1, 2)
	}
	w, err := d.temporary(dtype.F32, src.Shape)
	if err != nil {
		return w, err
	}
	if err := d.Map(nil, castProgram(dtype.F32, v.Type), []device.View{w}, []device.View{src}, nil); err != nil {
		w.Buf.Free()
		return w, err
	}
	if flip {
		w.Layout = w.Transpose(1, 2)
	}
	if v.Strides.At(0) == 0 {
		w.Shape, w.Strides = w.Shape.With(0, v.Shape.At(0)), w.Strides.With(0, 0)
	}
	return w, nil
}

// product computes rows of an integer product, numbered through the batch.
type product struct{ out, a, b device.View }

func (m *product) run(lo, hi int) {
	rows, n, k := m.out.Shape.At(1), m.out.Shape.At(2), m.a.Shape.At(2)
	sz := m.out.Type.Size()
	for r := lo; r < hi; r++ {
		i, j := r/rows, r%rows
		step := func(v *device.View, x, y int) unsafe.Pointer {
			return unsafe.Add(pointer(v), (x*v.Strides.At(0)+y*v.Strides.At(1))*sz)
		}
		o, a, b := step(&m.out, i, j), step(&m.a, i, j), step(&m.b, i, 0)
		so, sa, sk, sn := m.out.Strides.At(2), m.a.Strides.At(2), m.b.Strides.At(1), m.b.Strides.At(2)
		switch m.out.Type {
		case dtype.I64:
			productRow[int64](o, a, b, so, sa, sk, sn, n, k)
		case dtype.I32:
			productRow[int32](o, a, b, so, sa, sk, sn, n, k)
		case dtype.I16:
			productRow[int16](o, a, b, so, sa, sk, sn, n, k)
		case dtype.I8, dtype.U8:
			productRow[uint8](o, a, b, so, sa, sk, sn, n, k)
		case dtype.Bool:
			for c := range n {
				var some uint8
				for t := range k {
					some |= *(*uint8)(unsafe.Add(a, t*sa)) & *(*uint8)(unsafe.Add(b, t*sk+c*sn))
				}
				*(*uint8)(unsafe.Add(o, c*so)) = some
			}
		}
	}
}

// productRow computes n elements of a row of the product; integers wrap, so the order does not matter.
func productRow[T int64 | int32 | int16 | uint8](o, a, b unsafe.Pointer, so, sa, sk, sn, n, k int) {
	sz := int(unsafe.Sizeof(*new(T)))
	if so == 1 && sn == 1 && n > 1 {
		row := at[T](o, n)
		clear(row)
		for t := range k {
			x := *(*T)(unsafe.Add(a, t*sa*sz))
			for c, y := range at[T](unsafe.Add(b, t*sk*sz), n) {
				row[c] += x * y
			}
		}
		return
	}
	for c := range n {
		var sum T
		for t := range k {
			sum += *(*T)(unsafe.Add(a, t*sa*sz)) * *(*T)(unsafe.Add(b, (t*sk+c*sn)*sz))
		}
		*(*T)(unsafe.Add(o, c*so*sz)) = sum
	}
}
