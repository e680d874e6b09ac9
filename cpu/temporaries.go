package cpu

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// temporaries allocates the memory that a primitive needs besides its operands. A primitive on
// 16-bit floats needs float32 copies, because sums and products are rounded only once. A matrix
// product in bfloat16 needs a float32 copy of the bias, and a bfloat16 copy of each float32 factor.
// The gradient of attention needs partial sums. The caller must release the temporaries, even after
// an error.
func temporaries(d device.Device, op device.Op) (t [3]device.View, err error) {
	var s [3]shape.Dims
	n, types := 0, [3]dtype.Type{dtype.F32, dtype.F32, dtype.F32}
	switch o := op.(type) {
	case *device.MatMul:
		if o.Factor().IsHalf() && o.Out.Size() > 0 && o.A.Shape.At(2) > 0 {
			s, n = [...]shape.Dims{distinctBatch(&o.A), distinctBatch(&o.B), o.Out.Shape}, 2
			if o.Out.Type.IsHalf() {
				n = 3
			}
			if bf16Factors(o) {
				for i, v := range []*device.View{&o.A, &o.B} {
					if types[i] = dtype.BF16; v.Type == dtype.BF16 {
						s[i] = shape.Of(0)
					}
				}
				if s[2] = o.Bias.Shape; o.Bias.Absent() {
					n = 2
				}
			}
		}
	case *device.Scatter:
		if o.Dst.Type.IsHalf() && o.Kind != device.ScatterSet && o.Index.Size() > 0 {
			s, n = [...]shape.Dims{o.Dst.Shape, o.Src.Shape, {}}, 2
		}
	case *device.AttentionGrad:
		if g := newAttentionGradTask(o); g.parts > 1 {
			for i, d := range []*device.View{&o.DK, &o.DV} {
				if s[i] = shape.Of(0); !d.Absent() {
					s[i] = shape.Of(g.parts * d.Size())
				}
			}
			n = 2
		}
	}
	for i, s := range s[:n] {
		if s.Size() == 0 {
			continue
		}
		b, err := d.Alloc(s.Size()*types[i].Size(), nil, device.Origin{Op: "cpu temporary", Shape: s, Type: types[i]})
		if err != nil {
			return t, err
		}
		t[i] = device.View{Buf: b, Type: types[i], Layout: shape.Dense(s)}
	}
	return t, nil
}

// distinctBatch returns the shape of v, a batch of matrices. If all matrices of the batch occupy
// the same memory, the batch in the result has only one matrix.
func distinctBatch(v *device.View) shape.Dims {
	if v.Strides.At(0) == 0 {
		return v.Shape.With(0, 1)
	}
	return v.Shape
}

func release(t []device.View) {
	for i := range t {
		if t[i].Buf != nil {
			t[i].Buf.Free()
		}
	}
}
