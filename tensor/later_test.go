package tensor_test

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

func hostAndGPU(t *testing.T) []device.Device {
	t.Helper()
	host, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB,seed=7")
	if err != nil {
		t.Fatal(err)
	}
	return []device.Device{host, gpus[0]}
}

// TestItemLater changes a tensor after ItemLater. The number must be the tensor's value at the time
// of the call.
func TestItemLater(t *testing.T) {
	for _, dev := range hostAndGPU(t) {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From([]float32{1, 2.5, 3}).Narrow(0, 1, 1)
			l := x.ItemLater()
			x.Fill(7)
			x.Free()
			if v := l.Item(); v != 2.5 || !l.Done() || l.Item() != 2.5 {
				t.Errorf("%s: %v, then %v", dev.Name(), v, l.Item())
			}
			s.Full(1).ItemLater().Drop()
			if err := tensor.Try(func() { s.Ones(2).ItemLater() }); !errors.Is(err, tensor.ErrShape) {
				t.Errorf("%s: of two elements: %v", dev.Name(), err)
			}
		}, tensor.On(dev))
	}
}

// TestUpdateFinite checks that UpdateFinite finds an infinity or NaN in the first operand of any
// group, even of a strided group. If there is neither, the result found stays 0.
func TestUpdateFinite(t *testing.T) {
	for _, dev := range hostAndGPU(t) {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.F64} {
			half := expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.Param(0, typ.Compute()))}, []dtype.Type{typ}, []dtype.Type{typ}, -1)
			bits := []uint64{expr.Encode(typ.Compute(), 0.5)}
			for _, bad := range []struct {
				group int
				v     float64
			}{{-1, 0}, {0, math.Inf(1)}, {1, math.NaN()}, {2, math.Inf(-1)}} {
				tensor.Do(func(s *tensor.Scope) {
					m := s.Typed(typ)
					list := []*tensor.Tensor{m.Ones(300), m.Ones(4, 5).T(), m.Ones()}
					if bad.group >= 0 {
						x := list[bad.group]
						for x.Rank() > 0 {
							x = x.Select(0, -1)
						}
						x.Fill(bad.v)
					}
					var groups [][]*tensor.Tensor
					for _, x := range list {
						groups = append(groups, []*tensor.Tensor{x})
					}
					found := s.Typed(dtype.F32).Zeros()
					for range 2 { // found is still 1 in the second round
						tensor.UpdateFinite("halve", half, groups, groups, s.From([]int64{int64(bits[0])}), bits, found)
					}
					if v := found.Item(); v != map[bool]float64{true: 1}[bad.group >= 0] {
						t.Errorf("%s, %v: found %v with %v in group %d", dev.Name(), typ, v, bad.v, bad.group)
					}
					for k, x := range list {
						if v := x.Floats()[0]; v != 0.25 && k != bad.group {
							t.Errorf("%s, %v: group %d is %v", dev.Name(), typ, k, v)
						}
					}
				}, tensor.On(dev))
			}
		}
	}
	err := tensor.Try(func() {
		x := tensor.Ones(2)
		p := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		tensor.UpdateFinite("bad", p, nil, nil, tensor.From([]int64{0}), nil, x)
	})
	if !errors.Is(err, tensor.ErrType) {
		t.Errorf("two numbers to find in: %v", err)
	}
}
