package tensor_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestNewOfATensor checks that x.New and the other New methods make tensors in x's scope and on x's
// device, whatever the scope's default device is.
func TestNewOfATensor(t *testing.T) {
	gpus, err := cuda.Emulate("emulate")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		for _, dev := range []device.Device{s.Device(), gpus[0]} {
			s.Do(func(c *tensor.Scope) {
				x := c.On(dev).Typed(dtype.BF16).Ones(2, 3)
				for name, v := range map[string]struct {
					y    *tensor.Tensor
					t    dtype.Type
					want string
				}{
					"New, Arange":     {x.New().Arange(x.Dim(1)), dtype.I64, "[0 1 2]"},
					"New, ArangeStep": {x.New().ArangeStep(0, 1, 0.5), dtype.F32, "[0 0.5]"},
					"New, Zeros":      {x.New().Zeros(2), dtype.F32, "[0 0]"},
					"New, Typed":      {x.New().Typed(dtype.I32).Arange(2), dtype.I32, "[0 1]"},
					"NewZeros":        {x.NewZeros(1, 2), dtype.BF16, "[0 0]"},
					"NewOnes":         {x.NewOnes(2), dtype.BF16, "[1 1]"},
					"NewFull":         {x.NewFull(7, 2), dtype.BF16, "[7 7]"},
					"NewEmpty":        {x.NewEmpty(2).Fill(5), dtype.BF16, "[5 5]"},
					"NewTensor":       {x.NewTensor([]int{1, 2}), dtype.BF16, "[1 2]"},
					"NewTensor, dims": {x.NewTensor([]float64{1, 2}, 2, 1), dtype.BF16, "[1 2]"},
				} {
					if v.y.Scope() != c || v.y.Device() != dev || v.y.Type() != v.t || fmt.Sprint(v.y.Floats()) != v.want {
						t.Errorf("%s on %s: %v", name, dev.Name(), v.y)
					}
				}
			}, tensor.NoGrad())
		}
		freed := s.Ones(1)
		freed.Free()
		for says, f := range map[string]func(x *tensor.Tensor){
			"new":        func(*tensor.Tensor) { freed.New() },
			"new_zeros":  func(*tensor.Tensor) { freed.NewZeros(2) },
			"new_tensor": func(x *tensor.Tensor) { x.NewTensor(tensor.Ones(2)) },
			"full":       func(x *tensor.Tensor) { x.Cast(dtype.I8).NewFull(1000, 2) },
			"arange":     func(x *tensor.Tensor) { x.New().Arange(-1) },
		} {
			err := tensor.Try(func() { f(s.Ones(1)) })
			if e, ok := err.(*tensor.Error); !ok || e.Op != says {
				t.Errorf("%s: %v", says, err)
			}
		}
	})
}

func ExampleTensor_New() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 3).Half()
		position := x.New().Arange(x.Dim(1)) // torch.arange(3, device=x.device)
		mask := x.NewZeros(3, 3)             // x.new_zeros(3, 3)
		fmt.Println(position.Floats(), position.Type(), mask.Type())
	})
	// Output: [0 1 2] int64 float16
}

// TestMadeWithoutMaker compares the functions of the package and the methods of a scope with a
// maker that has default settings. Numbers, type and scope of the results must be the same.
func TestMadeWithoutMaker(t *testing.T) {
	s := tensor.NewScope()
	defer s.Close()
	m := func() tensor.Maker { return s.Typed(dtype.Invalid) }
	r := func() tensor.Maker { return tensor.Typed(dtype.Invalid) }
	for name, c := range map[string]struct {
		in   *tensor.Scope
		made func() *tensor.Tensor
		want func() *tensor.Tensor
	}{
		"s.Eye":       {s, func() *tensor.Tensor { return s.Eye(2, 3) }, func() *tensor.Tensor { return m().Eye(2, 3) }},
		"s.RandPerm":  {s, func() *tensor.Tensor { return s.RandPerm(9) }, func() *tensor.Tensor { return m().RandPerm(9) }},
		"s.Uniform":   {s, func() *tensor.Tensor { return s.Uniform(2, 3, 4) }, func() *tensor.Tensor { return m().Uniform(2, 3, 4) }},
		"s.Normal":    {s, func() *tensor.Tensor { return s.Normal(5, 2, 4) }, func() *tensor.Tensor { return m().Normal(5, 2, 4) }},
		"s.Bernoulli": {s, func() *tensor.Tensor { return s.Bernoulli(0.5, 20) }, func() *tensor.Tensor { return m().Bernoulli(0.5, 20) }},
		"Eye":         {tensor.Root(), func() *tensor.Tensor { return tensor.Eye(3) }, func() *tensor.Tensor { return r().Eye(3) }},
		"Arange":      {tensor.Root(), func() *tensor.Tensor { return tensor.Arange(3) }, func() *tensor.Tensor { return r().Arange(3) }},
		"Linspace":    {tensor.Root(), func() *tensor.Tensor { return tensor.Linspace(1, 2, 5) }, func() *tensor.Tensor { return r().Linspace(1, 2, 5) }},
		"Rand":        {tensor.Root(), func() *tensor.Tensor { return tensor.Rand(2, 3) }, func() *tensor.Tensor { return r().Rand(2, 3) }},
		"Randn":       {tensor.Root(), func() *tensor.Tensor { return tensor.Randn(2, 3) }, func() *tensor.Tensor { return r().Randn(2, 3) }},
		"RandInt":     {tensor.Root(), func() *tensor.Tensor { return tensor.RandInt(3, 90, 5) }, func() *tensor.Tensor { return r().RandInt(3, 90, 5) }},
		"RandPerm":    {tensor.Root(), func() *tensor.Tensor { return tensor.RandPerm(9) }, func() *tensor.Tensor { return r().RandPerm(9) }},
	} {
		c.in.Generator().SetState(3, 0)
		want := c.want()
		c.in.Generator().SetState(3, 0)
		got := c.made()
		if got.Scope() != c.in || got.Type() != want.Type() || got.Shape() != want.Shape() || fmt.Sprint(got.Floats()) != fmt.Sprint(want.Floats()) {
			t.Errorf("%s: %v in %v, want %v", name, got, got.Scope(), want)
		}
	}
}
