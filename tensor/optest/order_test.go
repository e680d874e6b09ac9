package optest

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// wrongUse runs what must panic with the given kind of error, in words that it must have.
type wrongUse struct {
	name  string
	kind  error
	wrong func()
	says  []string
}

func (c wrongUse) check(t *testing.T) {
	t.Helper()
	err := tensor.Try(c.wrong)
	if err == nil {
		t.Errorf("%s: no error", c.name)
		return
	}
	if !errors.Is(err, c.kind) {
		t.Errorf("%s: %v, want %v", c.name, err, c.kind)
	}
	for _, w := range c.says {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", c.name, err, w)
		}
	}
}

// What is wrong in a scan is said on every device.
func TestScanMistakes(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.On(dev).Ones(2, 3)
			scalar, ints := s.On(dev).Ones(), s.On(dev).Typed(dtype.I32).Ones(3)
			freed := s.On(dev).Ones(2)
			freed.Free()
			for _, c := range []wrongUse{
				{"dimension", tensor.ErrShape, func() { x.CumSum(2) }, []string{"cumsum", "dimension 2", "[2, 3]"}},
				{"negative dimension", tensor.ErrShape, func() { x.CumProd(-3) }, []string{"cumprod", "dimension -3"}},
				{"dimension of a scalar", tensor.ErrShape, func() { scalar.LogCumSumExp(1) }, []string{"logcumsumexp", "rank 0"}},
				{"dimension of an extreme", tensor.ErrShape, func() { x.CumMax(5) }, []string{"cummax", "dimension 5"}},
				{"integers", tensor.ErrType, func() { ints.LogCumSumExp(0) }, []string{"logcumsumexp", "int32", "Float"}},
				{"freed", tensor.ErrFreed, func() { freed.CumSum(0) }, []string{"cumsum"}},
				{"freed extreme", tensor.ErrFreed, func() { freed.CumMin(0) }, []string{"cummin"}},
			} {
				c.check(t)
			}
		})
	}
}

// Sums of many 16-bit and float32 numbers keep the rounding of the result alone.
func TestLongSums(t *testing.T) {
	const n = 5000
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		for _, ty := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
			for _, mode := range [][]tensor.Option{nil, {tensor.Composed()}} {
				tensor.Do(func(s *tensor.Scope) {
					a := sample(random("long sums"), ty, 0, 1, n)
					y := s.On(hostDevice()).From(a.v).Cast(ty).To(dev).CumSum(0).Floats()
					sum := 0.0
					for i, v := range a.v {
						sum += v
						if off := y[i] - sum; off > ulp(ty, sum)+1e-5*sum || off < -ulp(ty, sum)-1e-5*sum {
							t.Fatalf("%s %v: element %d is %v, want %v", dev.Name(), ty, i, y[i], sum)
						}
					}
				}, mode...)
			}
		}
	}
}
