package cuda_test

import (
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestLargeOnHardware uses tensors with more than 2³² elements, so that sizes and offsets exceed 32
// bits. Only a real GPU has the memory for them; the emulated GPU runs the test at a small size.
func TestLargeOnHardware(t *testing.T) {
	large(t, emulated(t, "64MiB"), 5, 64)
	if os.Getenv("FLAMBEAU_TEST_GPU") != "1" {
		return
	}
	dev, err := cuda.Open(0)
	if err != nil || dev.Info().Emulated {
		t.Fatalf("FLAMBEAU_TEST_GPU=1, but there is no GPU: %v", err)
	}
	if free, _, err := cuda.MemGetInfo(dev); err != nil || free < 48<<30 {
		t.Logf("%d bytes are free, %v: too few for tensors of more than 4 Gi elements", free, err)
		return
	}
	large(t, dev, 65537, 65536)
	cuda.EmptyCache(dev)
}

// large runs ops on a matrix of bytes with the given rows and columns.
func large(t *testing.T, dev device.Device, rows, columns int) {
	n := rows * columns
	is := func(what string, got, want float64) {
		t.Helper()
		if got != want {
			t.Errorf("%d×%d, %s: %v, want %v", rows, columns, what, got, want)
		}
	}
	at := func(x *tensor.Tensor, i int) float64 { return x.Reshape(-1).Slice(0, i, i+1, 1).Cast(dtype.I64).Item() }
	each := func(name string, f func(s *tensor.Scope, x *tensor.Tensor)) {
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				x := s.Typed(dtype.U8).Ones(rows, columns)
				x.Slice(0, rows-1, rows, 1).Fill(7) // the last row begins beyond 4 GiB
				f(s, x)
			}, tensor.On(dev), tensor.NoGrad())
		})
		if err != nil {
			t.Errorf("%d×%d, %s: %v", rows, columns, name, err)
		}
	}
	each("elementwise", func(s *tensor.Scope, x *tensor.Tensor) {
		y := x.AddScalar(1)
		is("the first", at(y, 0), 2)
		is("before the last row", at(y, n-columns-1), 2)
		is("the last row", at(y, n-columns), 8)
		is("the last", at(y, n-1), 8)
		z := y.Slice(1, 1, columns, 1).AddScalar(1) // the operand of AddScalar is strided
		is("the last of a view", at(z, rows*(columns-1)-1), 9)
	})
	each("sum", func(s *tensor.Scope, x *tensor.Tensor) {
		is("sum", x.Sum().Item(), float64(n-columns+7*columns))
		is("sum of the last row", at(x.Sum(1), rows-1), float64(7*columns))
		is("sum of the last column", at(x.Sum(0), columns-1), float64(rows-1+7))
		is("index of the largest", x.Reshape(-1).Argmax(0).Item(), float64(n-columns))
	})
	each("transpose", func(s *tensor.Scope, x *tensor.Tensor) {
		y := x.Transpose(0, 1).Contiguous()
		is("the end of the first column", at(y, rows-1), 7)
		is("before it", at(y, rows-2), 1)
		is("the last", at(y, n-1), 7)
	})
	each("rows by index", func(s *tensor.Scope, x *tensor.Tensor) {
		y := x.IndexSelect(0, s.From([]int64{0, int64(rows - 1)}))
		is("the first row", at(y, 0), 1)
		is("the last row", at(y, 2*columns-1), 7)
	})
	each("copy", func(s *tensor.Scope, x *tensor.Tensor) {
		y := x.Clone()
		is("the last", at(y, n-1), 7)
		y.Zero()
		is("the last of zeros", at(y, n-1), 0)
	})
	each("product", func(s *tensor.Scope, x *tensor.Tensor) {
		a, b := s.Typed(dtype.BF16).Ones(rows, 16), s.Typed(dtype.BF16).Ones(16, columns)
		b.Slice(1, columns-1, columns, 1).Fill(2)
		y := a.MatMul(b)
		is("the first", at(y, 0), 16)
		is("the last", at(y, n-1), 32)
		is("before the last", at(y, n-2), 16)
	})
	each("softmax", func(s *tensor.Scope, x *tensor.Tensor) {
		y := x.Cast(dtype.BF16).Softmax(1).MulScalar(float64(columns))
		is("the first", at(y, 0), 1)
		is("the last", at(y, n-1), 1)
	})
}
