package cpu

import (
	"fmt"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// matMul runs a product. If the factors are 16-bit floats, sums are computed in float32 and rounded
// once. If there is a bias, each sum starts with it.
func (d *Device) matMul(o *device.MatMul) error {
	for i := 0; o.Operand(i).View != nil; i++ {
		v := o.Operand(i).View
		for k := range v.Strides.Rank() {
			if v.Strides.At(k) < 0 {
				return device.Refuse(d, o, i, fmt.Sprintf("negative strides %v", v.Strides))
			}
		}
	}
	if !o.Sums.Absent() {
		if err := d.sumRows(&o.Sums, &o.A); err != nil {
			return err
		}
	}
	if !o.ColumnSums.Absent() {
		columns := o.B
		columns.Layout = o.B.Transpose(1, 2)
		if err := d.sumRows(&o.ColumnSums, &columns); err != nil {
			return err
		}
	}
	if o.Act != nil {
		return d.activatedProduct(o)
	}
	out, k := &o.Out, o.A.Shape.At(2)
	switch {
	case out.Size() == 0:
	case k == 0 && o.Bias.Absent():
		d.elementwise(zeroProgram(out.Type), []device.View{*out}, nil, nil)
	case k == 0:
		d.repeatBias(out, o)
	case o.Factor().IsHalf():
		return d.halfProduct(o)
	case out.Type.IsFloat() || o.Factor() == dtype.I8 && out.Type == dtype.I32:
		d.repeatBias(out, o)
		d.packedProduct(o)
	default:
		rows := out.Shape.At(0) * out.Shape.At(1)
		d.workers.parallel(rows, max(1, inlineWork/max(1, out.Shape.At(2)*k)), (*product)(o))
	}
	return nil
}

// activatedProduct computes the product and then applies the activation.
func (d *Device) activatedProduct(o *device.MatMul) error {
	sums := *o
	sums.Act, sums.Pre, sums.Sums, sums.ColumnSums, sums.With = nil, device.View{}, device.View{}, device.View{}, device.View{}
	if !o.Pre.Absent() {
		sums.Out = o.Pre
	}
	if err := d.matMul(&sums); err != nil {
		return err
	}
	in := []device.View{sums.Out}
	if !o.With.Absent() {
		in = append(in, o.With)
	}
	d.elementwise(o.Act, []device.View{o.Out}, in, nil)
	return nil
}

// sumRows stores the sum of each row of a, a batch of one matrix, in sums.
func (d *Device) sumRows(sums, a *device.View) error {
	out := *sums
	out.Shape, out.Strides = shape.Of(1, sums.Shape.At(0), 1), shape.Of(0, sums.Strides.At(0), 0)
	return d.reduce(&device.Reduce{Reduction: &device.Reduction{Map: castProgram(dtype.F32, a.Type)}, Out: out, Ins: []device.View{*a}})
}

// repeatBias writes the bias of o, if there is one, to each row of the view out.
func (d *Device) repeatBias(out *device.View, o *device.MatMul) {
	if o.Bias.Absent() {
		return
	}
	rows := o.Bias
	rows.Shape, rows.Strides = out.Shape, shape.Of(0, 0, rows.Strides.At(0))
	d.cast(out, &rows)
}

// smallProduct is a number of multiplications. If a product in a batch needs at most this
// number, one worker computes the whole product. Larger products are divided among the workers
// if the batch has fewer than four products for each worker.
const smallProduct = 1 << 20

// packedProduct multiplies matrices of float32, float64, bfloat16, or int8 with results of int32.
// If there is a bias, the caller has stored it in a result of float32 or float64, and
// packedProduct adds the product to the bias.
func (d *Device) packedProduct(o *device.MatMul) {
	batch, rows := o.Out.Shape.At(0), o.Out.Shape.At(1)
	if batch > 1 && o.B.Strides.At(0) == 0 && o.A.Strides.At(0) == rows*o.A.Strides.At(1) && o.Out.Strides.At(0) == rows*o.Out.Strides.At(1) {
		// if the batch repeats one matrix B, compute one product with the rows of all matrices A
		m := *o
		m.Out.Shape, m.A.Shape = m.Out.Shape.With(1, batch*rows), m.A.Shape.With(1, batch*rows)
		multiply(d.par, &m, 0)
		return
	}
	work := rows * o.Out.Shape.At(2) * o.A.Shape.At(2)
	if batch == 1 || work > smallProduct && batch < 4*d.workers.size() {
		for i := range batch {
			multiply(d.par, o, i)
		}
		return
	}
	p := products(*o)
	d.workers.parallel(batch, max(1, inlineWork/max(1, work), batch/(8*d.workers.size())), &p)
}

// products is a batch of products. Each worker computes some of the products.
type products device.MatMul

func (f *products) run(lo, hi int) {
	o := (*device.MatMul)(f)
	out, a, b := &o.Out, &o.A, &o.B
	m, n, k := out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	apart := [3]int{a.Strides.At(0), b.Strides.At(0), out.Strides.At(0)}
	switch {
	case a.Type == dtype.F32 && out.Type == dtype.F32:
		gemm.F32Batch(hi-lo, apart, m, n, k, matrices[float32](a, lo, hi), a.Strides.At(1), a.Strides.At(2),
			matrices[float32](b, lo, hi), b.Strides.At(1), b.Strides.At(2),
			matrices[float32](out, lo, hi), out.Strides.At(1), out.Strides.At(2), !o.Bias.Absent())
	case out.Type == dtype.F64:
		gemm.F64Batch(hi-lo, apart, m, n, k, matrices[float64](a, lo, hi), a.Strides.At(1), a.Strides.At(2),
			matrices[float64](b, lo, hi), b.Strides.At(1), b.Strides.At(2),
			matrices[float64](out, lo, hi), out.Strides.At(1), out.Strides.At(2), !o.Bias.Absent())
	default:
		for i := lo; i < hi; i++ {
			multiply(gemm.Serial, o, i)
		}
	}
}

// multiply computes product i of a batch.
func multiply(par gemm.Parallel, o *device.MatMul, i int) {
	out, a, b := &o.Out, &o.A, &o.B
	m, n, k := out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	accumulate := !o.Bias.Absent()
	switch {
	case out.Type == dtype.F64:
		gemm.F64(par, m, n, k, matrix[float64](a, i), a.Strides.At(1), a.Strides.At(2),
			matrix[float64](b, i), b.Strides.At(1), b.Strides.At(2),
			matrix[float64](out, i), out.Strides.At(1), out.Strides.At(2), accumulate)
	case out.Type == dtype.BF16:
		var bias []float32
		if accumulate {
			bias = at[float32](pointer(&o.Bias), n)
		}
		gemm.BF16Rounded(par, m, n, k, matrix[uint16](a, i), a.Strides.At(1), a.Strides.At(2),
			matrix[uint16](b, i), b.Strides.At(1), b.Strides.At(2), bias,
			matrix[uint16](out, i), out.Strides.At(1), out.Strides.At(2))
	case a.Type == dtype.I8:
		gemm.Int8(par, m, n, k, matrix[int8](a, i), a.Strides.At(1), a.Strides.At(2),
			matrix[int8](b, i), b.Strides.At(1), b.Strides.At(2),
			matrix[int32](out, i), out.Strides.At(1), out.Strides.At(2))
	case a.Type == dtype.BF16:
		gemm.BF16(par, m, n, k, matrix[uint16](a, i), a.Strides.At(1), a.Strides.At(2),
			matrix[uint16](b, i), b.Strides.At(1), b.Strides.At(2),
			matrix[float32](out, i), out.Strides.At(1), out.Strides.At(2), accumulate)
	default:
		gemm.F32(par, m, n, k, matrix[float32](a, i), a.Strides.At(1), a.Strides.At(2),
			matrix[float32](b, i), b.Strides.At(1), b.Strides.At(2),
			matrix[float32](out, i), out.Strides.At(1), out.Strides.At(2), accumulate)
	}
}

// matrix returns the elements of matrix i of a batch.
func matrix[T float32 | float64 | uint16 | int8 | int32](v *device.View, i int) []T {
	return matrices[T](v, i, i+1)
}

// matrices returns the elements of the matrices lo to hi-1 of a batch.
func matrices[T float32 | float64 | uint16 | int8 | int32](v *device.View, lo, hi int) []T {
	rows, cols := v.Shape.At(1), v.Shape.At(2)
	if rows == 0 || cols == 0 {
		return nil
	}
	span := (hi-lo-1)*v.Strides.At(0) + (rows-1)*v.Strides.At(1) + (cols-1)*v.Strides.At(2) + 1
	return at[T](unsafe.Add(pointer(v), lo*v.Strides.At(0)*v.Type.Size()), span)
}

// bf16Factors reports whether the product reads its factors as bfloat16. Other products of 16-bit
// floats convert their factors to float32.
func bf16Factors(o *device.MatMul) bool { return o.Factor() == dtype.BF16 && gemm.HasBF16() }

// halfProduct multiplies 16-bit floats and sums the products in float32.
func (d *Device) halfProduct(o *device.MatMul) error {
	t, err := temporaries(d, o)
	defer release(t[:])
	if err != nil {
		return err
	}
	low := bf16Factors(o)
	p := &device.MatMul{Out: o.Out, A: o.A, B: o.B, Bias: o.Bias}
	for i, v := range [...]*device.View{&p.A, &p.B} {
		if !low || v.Type == dtype.F32 {
			*v = d.converted(t[i], v, o.Factor())
		}
	}
	switch {
	case !o.Out.Type.IsHalf():
		d.repeatBias(&o.Out, o)
	case !low:
		p.Out = t[2]
		d.repeatBias(&p.Out, o)
	case !o.Bias.Absent():
		p.Bias = t[2]
		d.cast(&p.Bias, &o.Bias)
	}
	d.packedProduct(p)
	if p.Out.Type != o.Out.Type {
		d.cast(&o.Out, &p.Out)
	}
	return nil
}

// converted copies a batch of matrices to the temporary memory w, rounded to the 16-bit type t. If
// the rows or the columns are contiguous, they stay contiguous. If the batch repeats one matrix,
// the copy repeats it too.
func (d *Device) converted(w device.View, v *device.View, t dtype.Type) device.View {
	src := *v
	src.Shape = w.Shape
	if src.Strides.At(1) == 1 && src.Strides.At(2) != 1 {
		w.Layout = shape.Dense(src.Transpose(1, 2).Shape).Transpose(1, 2)
	}
	d.cast(&w, &src)
	// Round the float32 values of w in place. A rounded value occupies the first half of its old
	// element.
	if v.Type != t && w.Type != t {
		low := w
		low.Type = t
		for i := range low.Strides.Rank() {
			low.Strides = low.Strides.With(i, 2*low.Strides.At(i))
		}
		d.cast(&low, &w)
		d.cast(&w, &low)
	}
	if v.Strides.At(0) == 0 {
		w.Shape, w.Strides = v.Shape, w.Strides.With(0, 0)
	}
	return w
}

// product computes rows of an integer product. The rows of all matrices of a batch are numbered
// consecutively.
type product device.MatMul

func (m *product) run(lo, hi int) {
	rows, n, k := m.Out.Shape.At(1), m.Out.Shape.At(2), m.A.Shape.At(2)
	sz := m.Out.Type.Size()
	for r := lo; r < hi; r++ {
		i, j := r/rows, r%rows
		step := func(v *device.View, x, y int) unsafe.Pointer {
			return unsafe.Add(pointer(v), (x*v.Strides.At(0)+y*v.Strides.At(1))*sz)
		}
		o, a, b := step(&m.Out, i, j), step(&m.A, i, j), step(&m.B, i, 0)
		so, sa, sk, sn := m.Out.Strides.At(2), m.A.Strides.At(2), m.B.Strides.At(1), m.B.Strides.At(2)
		switch m.Out.Type {
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

// productRow computes n elements of a row of the product. Integers wrap, so the order of additions
// does not matter.
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
