package tensor_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// gridSampled returns the result and both gradients as one list.
func gridSampled(s *tensor.Scope, x, grid []float64, t dtype.Type, o tensor.GridSampleOptions) (all []float64) {
	a := s.From(x).Cast(t).Reshape(1, 2, 3, -1).RequiresGrad()
	b := s.From(grid).Cast(t).Reshape(1, 1, -1, 2).RequiresGrad()
	y := a.GridSample(b, o)
	all = append(all, y.Floats()...)
	for _, g := range tensor.Gradients(y.Square().Sum(), []*tensor.Tensor{a, b}) {
		all = append(all, g.Floats()...)
	}
	return all
}

// TestGridSample compares the kernels of both devices with the composition. The bits must be equal,
// except where the gradients of an element are added in another order. Infinite and NaN coordinates
// must read the elements that the comment of device.GridSampling names, also next to infinite and
// NaN elements.
func TestGridSample(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	nan, inf := math.NaN(), math.Inf(1)
	x := make([]float64, 2*3*5)
	for i := range x {
		x[i] = math.Sin(float64(3*i)) + 2
	}
	var grid []float64
	for i := range 40 {
		grid = append(grid, 1.7*math.Sin(float64(i*i)))
	}
	odd := append(slices.Clone(grid), nan, 0.25, 0.25, nan, inf, 0.25, -inf, 0.25, 1e30, 0.25, 0.25, -1e30, nan, inf)
	edge := slices.Clone(x)
	edge[0], edge[4] = inf, nan
	for m := range tensor.GridBicubic + 1 {
		for p := range tensor.GridReflection + 1 {
			for _, corners := range []bool{false, true} {
				o := tensor.GridSampleOptions{Mode: m, Padding: p, AlignCorners: corners}
				for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
					var want []float64
					for _, dev := range []device.Device{cpu, gpu[0]} {
						for _, opts := range [][]tensor.Option{{}, {tensor.Composed()}} {
							tensor.Do(func(s *tensor.Scope) {
								got := gridSampled(s, x, odd, ty, o)
								if want == nil {
									want = got
								}
								for i, v := range got {
									tol := 0.0
									// these are the gradients of x, which are added in another
									// order
									if k := i - len(odd); k >= 0 && k < len(x) {
										tol = 8 * math.Abs(want[i]) * math.Ldexp(1, map[int]int{4: -23, 8: -52}[ty.Size()])
									}
									if math.IsNaN(v) != math.IsNaN(want[i]) || math.Abs(v-want[i]) > tol {
										t.Fatalf("%v on %s: number %d is %v, want %v", o, dev.Name(), i, v, want[i])
									}
								}
								if y := got[len(odd)/2-7 : len(odd)/2]; p == tensor.GridZeros {
									for i, v := range y {
										if v != 0 {
											t.Errorf("%v on %s: point %d outside is %v", o, dev.Name(), i, v)
										}
									}
								}
								for _, v := range gridSampled(s, edge, []float64{0.9, 0.9, -0.25, 0.5, nan, 0}, ty, o)[:2] {
									if m != tensor.GridBicubic && (math.IsNaN(v) || math.IsInf(v, 0)) {
										t.Errorf("%v on %s: an element far away makes %v", o, dev.Name(), v)
									}
								}
							}, append(opts, tensor.On(dev))...)
						}
					}
				}
			}
		}
	}
}

func TestGridSampleMistakes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, grid := s.Ones(2, 3, 4, 5), s.Zeros(2, 1, 1, 2)
		for want, f := range map[string]func(){
			"shapes are":      func() { x.GridSample(s.Zeros(1, 1, 1, 2), tensor.GridSampleOptions{}) },
			"[2 1 1 3]":       func() { x.GridSample(s.Zeros(2, 1, 1, 3), tensor.GridSampleOptions{}) },
			"have no element": func() { s.Ones(2, 3, 0, 5).GridSample(grid, tensor.GridSampleOptions{}) },
			"places are":      func() { x.GridSample(grid.Cast(dtype.F64), tensor.GridSampleOptions{}) },
			"no mode 7":       func() { x.GridSample(grid, tensor.GridSampleOptions{Mode: 7}) },
			"floating point":  func() { x.Long().GridSample(grid.Long(), tensor.GridSampleOptions{}) },
		} {
			var e *tensor.Error
			if err := tensor.Try(f); !errors.As(err, &e) || e.Op != "grid_sample" || !strings.Contains(strings.ReplaceAll(e.Error(), ", ", " "), want) {
				t.Errorf("want %q: %v", want, err)
			}
		}
	})
}
