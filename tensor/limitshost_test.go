package tensor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestResultsBeyondMemory asks for results that are too large for any memory. The op must panic
// with the typed error, and the program must not crash.
func TestResultsBeyondMemory(t *testing.T) {
	gpu, _ := emulated(t, 1)
	for _, dev := range []device.Device{tensor.Zeros().Device(), gpu} {
		for _, c := range []struct {
			op   string
			want error
			does func(m tensor.Maker)
		}{
			{"qr", device.ErrOutOfMemory, func(m tensor.Maker) { m.Zeros(1<<20, 1).QR(true) }},
			{"svd", device.ErrOutOfMemory, func(m tensor.Maker) { m.Zeros(1, 1<<20).SVD(true) }},
			{"qr", tensor.ErrShape, func(m tensor.Maker) { m.Zeros(1<<32, 0).QR(true) }},
			{"bincount", tensor.ErrShape, func(m tensor.Maker) { m.Typed(dtype.I64).Ones(1).Bincount(nil, 1<<62) }},
			{"masked_select", tensor.ErrShape, func(m tensor.Maker) {
				// the result would have 2⁸⁰ elements, a number that wraps to 0 in an int
				m.Ones(1, 1).Expand(1<<40, 1).MaskedSelect(m.Typed(dtype.Bool).Ones(1, 1).Expand(1, 1<<40))
			}},
			{"repeat_interleave", tensor.ErrValue, func(m tensor.Maker) {
				// the sum of the counts wraps to 0 in int64
				m.Zeros(4).RepeatInterleaveBy(m.Typed(dtype.I64).Full(1<<62, 4), 0)
			}},
		} {
			var err error
			tensor.Do(func(s *tensor.Scope) { err = tensor.Try(func() { c.does(s.On(dev)) }) })
			var e *tensor.Error
			if !errors.As(err, &e) || !errors.Is(err, c.want) || e.Op != c.op {
				t.Errorf("%s on %s: the error is %v", c.op, dev.Name(), err)
			}
		}
	}
}

// TestNegativeIndexHint checks the hint about negative indices. The error must contain the hint
// only for indices that would be valid if they counted from the end.
func TestNegativeIndexHint(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, far := s.Ones(4), s.Typed(dtype.I64).Full(-5, 1)
		for _, f := range []func(){func() { x.IndexSelect(0, far) }, func() { x.Index(far) }, func() { x.Take(far) }} {
			if err := tensor.Try(f); !errors.Is(err, tensor.ErrIndex) || strings.Contains(err.Error(), "count from the end") {
				t.Errorf("the error is %v", err)
			}
		}
	})
}

// TestQuantileOfOneElement checks that Quantile accepts dimension 0 of a tensor of rank 0, as in
// PyTorch.
func TestQuantileOfOneElement(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, dims := range [][]int{nil, {0}, {-1}, {0, tensor.KeepDim}} {
			if y := s.Full(3).Quantile(0.3, tensor.Linear, dims...); y.Rank() != 0 || y.Item() != 3 {
				t.Errorf("dimensions %v: %v", dims, y)
			}
		}
		if y := s.Full(3).Quantiles([]float64{0, 1}, tensor.Linear, 0); y.Rank() != 1 || y.Dim(0) != 2 || y.Select(0, 1).Item() != 3 {
			t.Errorf("of several: %v", y)
		}
	})
}
