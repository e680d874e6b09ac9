package cuda

import (
	"math"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// biasTaken reports whether cublasLt accepts the bias as it is. It must have the result's type and
// contiguous elements.
func biasTaken(o *device.MatMul) bool {
	return o.Bias.Type == o.Out.Type && (o.Bias.Strides.At(0) == 1 || o.Bias.Size() == 1)
}

// convertBias queues a copy of the bias in the form that cublasLt accepts, and returns the copy's
// address. A float32 bias is rounded before it is added. The package's own kernels round only the
// sum.
func (t *scratch) convertBias(o *device.MatMul, told *device.KernelEvent) (uint64, error) {
	to, err := t.temporary(o.Out.Type, o.Bias.Shape)
	if err != nil {
		return 0, err
	}
	list, err := kernels.Map(biasConversions[[2]dtype.Type{o.Bias.Type, o.Out.Type}], []kernels.Operand{to}, []kernels.Operand{operand(&o.Bias)}, nil)
	if err != nil {
		return 0, err
	}
	return to.Addr, t.d.launch(t.s, list, told)
}

// biasConversions holds the programs that convert a bias, by the types before and after.
var biasConversions = func() map[[2]dtype.Type]*expr.Program {
	m := map[[2]dtype.Type]*expr.Program{}
	for from := range libraryTypes {
		for to := range libraryTypes {
			m[[2]dtype.Type{from, to}] = expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{to}, []dtype.Type{from}, -1)
		}
	}
	return m
}()

// firstOf returns the address of a view's first element.
func firstOf(v *device.View) uint64 {
	return uint64(v.Buf.Addr()) + uint64(v.Offset*v.Type.Size())
}

// alignment returns the largest power of 2, at most 256, that divides addr.
func alignment(addr uint64) uint32 { return uint32(min(256, addr&-addr)) }

// libraryTypes maps the types that cublasLt supports with sums in float32 to its constants.
var libraryTypes = map[dtype.Type]cublaslt.DataType{dtype.F32: cublaslt.Float32, dtype.F16: cublaslt.Float16, dtype.BF16: cublaslt.BFloat16}

// libraryDoes reports whether cublasLt can compute all parts of a fused product. If it cannot,
// Supports returns false, even if the package's own kernels could. Package tensor then uses
// cublasLt for a plain product, and computes the other parts by separate ops.
func libraryDoes(o *device.MatMul) bool {
	return o.Act == nil && o.Sums.Absent() && o.ColumnSums.Absent() && o.A.Type == o.B.Type
}

// productOf describes a product to cublasLt, without the alignment of addresses. The result ok is
// false if cublasLt does not support its types, layouts or additional parts.
func productOf(o *device.MatMul) (p cublaslt.Product, ok bool) {
	if !libraryDoes(o) {
		return p, false
	}
	s := &o.Out.Shape
	p = cublaslt.Product{M: s.At(2), N: s.At(1), K: o.A.Shape.At(2), Batch: s.At(0), Bias: !o.Bias.Absent()}
	if least, most := min(p.M, p.N, p.K, p.Batch), max(p.M, p.N, p.K, p.Batch); least < 1 || most > math.MaxInt32 {
		return p, false
	}
	var turned, a, b, d bool
	p.A, p.TransA, a = columns(&o.B)
	p.B, p.TransB, b = columns(&o.A)
	p.D, turned, d = columns(&o.Out)
	return p, a && b && d && !turned && (p.Batch == 1 || p.D.Stride > 0)
}

// columns describes a view [batch, rows, columns] as column-major matrices, the layout of cublasLt.
// The result turned is true if the column-major matrices are the matrices of the view. It is false
// if they are the transposes of the view's matrices, which is usual.
func columns(v *device.View) (m cublaslt.Matrix, turned, ok bool) {
	typ, ok := libraryTypes[v.Type]
	if !ok {
		return m, false, false
	}
	m.Type = typ
	if v.Shape.At(0) > 1 {
		m.Stride = v.Strides.At(0)
	}
	inner, outer := 2, 1
	for _, turned := range [...]bool{false, true} {
		n := v.Shape.At(inner)
		m.Ld = n
		if v.Shape.At(outer) > 1 {
			m.Ld = v.Strides.At(outer)
		}
		if (n == 1 || v.Strides.At(inner) == 1) && m.Ld >= n && m.Stride >= 0 {
			return m, turned, true
		}
		inner, outer = outer, inner
	}
	return m, false, false
}
