package cpu

import (
	"fmt"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// MatMul computes out[b] = a[b]·b[b]; see [device.Device]. Bool is the product over "or" and "and".
func (d *Device) MatMul(_ device.Stream, out, a, b device.View) error {
	if err := d.checkMatMul(&out, &a, &b); err != nil {
		return err
	}
	if out.Size() == 0 {
		return nil
	}
	m := &product{out: out, a: a, b: b}
	rows := out.Shape.At(0) * out.Shape.At(1)
	grain := max(1, inlineWork/max(1, out.Shape.At(2)*a.Shape.At(2)))
	d.crew.parallel(rows, grain, m)
	return nil
}

func (d *Device) checkMatMul(out, a, b *device.View) error {
	if err := d.checkOut("matmul", "out", out); err != nil {
		return err
	}
	if err := d.checkIn("matmul", "a", a); err != nil {
		return err
	}
	if err := d.checkIn("matmul", "b", b); err != nil {
		return err
	}
	for _, v := range []struct {
		arg string
		*device.View
	}{{"out", out}, {"a", a}, {"b", b}} {
		if v.Shape.Rank() != 3 {
			return &ViewError{"matmul", v.arg, fmt.Sprintf("shape %v, want [batch, rows, columns]", v.Shape)}
		}
		if v.Type != out.Type {
			return &ViewError{"matmul", v.arg, fmt.Sprintf("%v, but out is %v", v.Type, out.Type)}
		}
	}
	s := out.Shape
	if a.Shape.At(0) != s.At(0) || a.Shape.At(1) != s.At(1) || b.Shape.At(0) != s.At(0) || b.Shape.At(2) != s.At(2) || a.Shape.At(2) != b.Shape.At(1) {
		return &ViewError{"matmul", "out", fmt.Sprintf("shapes %v·%v do not give %v", a.Shape, b.Shape, s)}
	}
	return nil
}

// product computes rows of a product, numbered through the batch, in the plain order of k.
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
		case dtype.F32:
			dotRow[float32](o, a, b, so, sa, sk, sn, n, k)
		case dtype.F64:
			dotRow[float64](o, a, b, so, sa, sk, sn, n, k)
		case dtype.I64:
			dotRow[int64](o, a, b, so, sa, sk, sn, n, k)
		case dtype.I32:
			dotRow[int32](o, a, b, so, sa, sk, sn, n, k)
		case dtype.I16:
			dotRow[int16](o, a, b, so, sa, sk, sn, n, k)
		case dtype.I8, dtype.U8:
			dotRow[uint8](o, a, b, so, sa, sk, sn, n, k)
		case dtype.Bool:
			for c := range n {
				var any uint8
				for t := range k {
					any |= *(*uint8)(unsafe.Add(a, t*sa)) & *(*uint8)(unsafe.Add(b, t*sk+c*sn))
				}
				*(*uint8)(unsafe.Add(o, c*so)) = any
			}
		default:
			half := m.out.Type
			var x, y [1]float32
			var q [1]uint16
			load := func(dst []float32, p unsafe.Pointer) {
				loads[half](unsafe.Pointer(&dst[0]), p, nil, nil, 1)
			}
			for c := range n {
				var sum float32
				for t := range k {
					load(x[:], unsafe.Add(a, 2*t*sa))
					load(y[:], unsafe.Add(b, 2*(t*sk+c*sn)))
					sum += float32(x[0] * y[0])
				}
				if x[0] = sum; half == dtype.F16 {
					asm.CvtF32ToF16(q[:], x[:])
				} else {
					asm.CvtF32ToBF16(q[:], x[:])
				}
				*(*uint16)(unsafe.Add(o, 2*c*so)) = q[0]
			}
		}
	}
}

// dotRow computes n elements of a row of the product.
func dotRow[T float32 | float64 | int64 | int32 | int16 | uint8](o, a, b unsafe.Pointer, so, sa, sk, sn, n, k int) {
	sz := int(unsafe.Sizeof(*new(T)))
	for c := range n {
		var sum T
		for t := range k {
			sum += T(*(*T)(unsafe.Add(a, t*sa*sz)) * *(*T)(unsafe.Add(b, (t*sk+c*sn)*sz)))
		}
		*(*T)(unsafe.Add(o, c*so*sz)) = sum
	}
}
