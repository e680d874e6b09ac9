package nn_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// lazyLayers lists all lazy layers, each with an input and the ordinary layer that it becomes.
func lazyLayers() map[string]struct {
	lazy, made nn.Module
	in         []int
} {
	type entry = struct {
		lazy, made nn.Module
		in         []int
	}
	line, image, cube := []int{2, 4, 7}, []int{2, 4, 5, 6}, []int{2, 4, 3, 4, 5}
	return map[string]entry{
		"Linear":             {nn.NewLazyLinear(3), nn.NewLinear(4, 3), []int{2, 5, 4}},
		"Linear, no bias":    {nn.NewLazyLinear(3, nn.NoBias()), nn.NewLinear(4, 3, nn.NoBias()), []int{4}},
		"Conv1d":             {nn.NewLazyConv1d(6, 3, nn.Groups(2)), nn.NewConv1d(4, 6, 3, nn.Groups(2)), line},
		"Conv2d":             {nn.NewLazyConv2d(6, []int{2, 3}, nn.Stride(2), nn.Padding(1)), nn.NewConv2d(4, 6, []int{2, 3}, nn.Stride(2), nn.Padding(1)), image},
		"Conv2d, alone":      {nn.NewLazyConv2d(6, 2, nn.NoBias()), nn.NewConv2d(4, 6, 2, nn.NoBias()), image[1:]},
		"Conv3d":             {nn.NewLazyConv3d(6, 2), nn.NewConv3d(4, 6, 2), cube},
		"ConvTranspose1d":    {nn.NewLazyConvTranspose1d(6, 3, nn.Groups(2)), nn.NewConvTranspose1d(4, 6, 3, nn.Groups(2)), line},
		"ConvTranspose2d":    {nn.NewLazyConvTranspose2d(6, 2, nn.Stride(2)), nn.NewConvTranspose2d(4, 6, 2, nn.Stride(2)), image},
		"ConvTranspose3d":    {nn.NewLazyConvTranspose3d(6, 2), nn.NewConvTranspose3d(4, 6, 2), cube},
		"BatchNorm1d":        {nn.NewLazyBatchNorm1d(), nn.NewBatchNorm1d(4), line},
		"BatchNorm2d":        {nn.NewLazyBatchNorm2d(nn.NoAffine()), nn.NewBatchNorm2d(4, nn.NoAffine()), image},
		"BatchNorm3d":        {nn.NewLazyBatchNorm3d(nn.NoStats()), nn.NewBatchNorm3d(4, nn.NoStats()), cube},
		"InstanceNorm1d":     {nn.NewLazyInstanceNorm1d(nn.Affine()), nn.NewInstanceNorm1d(4, nn.Affine()), line[1:]},
		"InstanceNorm2d":     {nn.NewLazyInstanceNorm2d(nn.Stats()), nn.NewInstanceNorm2d(4, nn.Stats()), image},
		"InstanceNorm3d":     {nn.NewLazyInstanceNorm3d(nn.Affine()), nn.NewInstanceNorm3d(4, nn.Affine()), cube},
		"InstanceNorm, bare": {nn.NewLazyInstanceNorm2d(), nn.NewInstanceNorm2d(4), image},
	}
}

// A first call or a state dict turns a lazy layer into an ordinary one, with the same names, shapes
// and results.
func TestLazyLayers(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range lazyLayers() {
		bare := strings.Contains(name, "bare")
		var e *nn.Error
		func() {
			defer func() { e, _ = recover().(*nn.Error) }()
			nn.Parameters(nn.NewSequential(nn.ReLU{}, c.lazy))
		}()
		kind := strings.Split(name, ",")[0]
		if !bare && (e == nil || e.Path != "1" || !strings.Contains(e.Msg, "this Lazy"+kind+" has no parameters yet") || !strings.Contains(e.Msg, "call the model once")) {
			t.Errorf("%s: parameters before the first call give %v", name, e)
		}
		byDict, byCall := nn.Clone(c.lazy), nn.Clone(c.lazy)
		if d := nn.Describe(byCall); !bare && !strings.HasPrefix(d, "Lazy"+kind+"(") {
			t.Errorf("%s: %s", name, d)
		}
		nn.Train(nn.Eval(byCall)) // changing the mode needs no parameters
		if err := nn.LoadStateDict(byDict, nn.StateDict(c.made)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(c.in...)
			if got, want := byDict.Forward(x), c.made.Forward(x); !slices.Equal(got.Floats(), want.Floats()) {
				t.Errorf("%s: what is loaded computes otherwise", name)
			}
			y := byCall.Forward(x.To(gpus[0]))
			if err := nn.LoadStateDict(byCall, nn.StateDict(byDict)); err != nil || y.Size() == 0 {
				t.Errorf("%s after a call: %v", name, err)
			}
			var got, want []string
			for _, p := range nn.Named(byCall) {
				got = append(got, fmt.Sprint(p.Name, p.Tensor.Shape(), p.Tensor.NeedsGrad()))
				if p.Tensor.Device() != device.Device(gpus[0]) {
					t.Errorf("%s: %s is on %s", name, p.Name, p.Tensor.Device().Name())
				}
			}
			for _, p := range nn.Named(c.made) {
				want = append(want, fmt.Sprint(p.Name, p.Tensor.Shape(), p.Tensor.NeedsGrad()))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", name, got, want)
			}
		}, tensor.Seed(1))
	}
}

// A call through Summary or Infer also makes the parameters of lazy layers.
func TestLazyLayersAreMadeByAnyCall(t *testing.T) {
	make := func() *nn.Sequential {
		return nn.NewSequential(nn.NewLazyConv2d(4, 3), nn.NewLazyBatchNorm2d(), nn.Flatten{}, nn.NewLazyLinear(2))
	}
	m := make()
	if o := nn.Summary(m, tensor.Ones(2, 1, 5, 5)); o.Trainable != 4*9+4+8+4*9*2+2 || !m.Training() || m.Layers[1].(*nn.BatchNorm2d).NumBatchesTracked.Item() != 0 {
		t.Errorf("%v", o)
	}
	m = make()
	if y := nn.Infer(m, tensor.Ones(2, 1, 5, 5)); y.Size() != 4 || nn.Count(m) != 4*9+4+8+4*9*2+2 {
		t.Errorf("%v", y)
	}
}

// A struct that embeds one lazy layer counts as one lazy layer. If it embeds two, both are listed.
func TestEmbeddedLazyLayers(t *testing.T) {
	type one struct{ *nn.Linear }
	type two struct {
		nn.Linear
		nn.Conv1d
	}
	var missing *nn.StateError
	if err := nn.LoadStateDict(&one{nn.NewLazyLinear(2)}, nil); !errors.As(err, &missing) || !slices.Equal(missing.Missing, []string{"weight"}) {
		t.Error(err)
	}
	var e *nn.Error
	func() {
		defer func() { e, _ = recover().(*nn.Error) }()
		nn.Parameters(&two{*nn.NewLazyLinear(2), *nn.NewLazyConv1d(2, 3)})
	}()
	if e == nil || !strings.Contains(e.Msg, "this LazyLinear") {
		t.Errorf("two layers in one: %v", e)
	}
}

// A scalar as the first input is an error that mentions the scalar. The layer stays without
// parameters.
func TestLazyLinearOfScalar(t *testing.T) {
	l := nn.NewLazyLinear(2)
	if err := tensor.Try(func() { l.Forward(tensor.Ones()) }); !errors.Is(err, tensor.ErrShape) || !strings.Contains(err.Error(), "the input is a scalar") {
		t.Error(err)
	}
	if y := l.Forward(tensor.Ones(1, 3)); y.Size() != 2 {
		t.Error(y)
	}
}

// With the same state of the generator, a lazy layer gets the same initial values as the ordinary
// layer.
func TestLazyFirstValues(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		draw := func(f func(in nn.Option) nn.Module) (v []float64) {
			s.Do(func(s *tensor.Scope) {
				m := f(nn.In(s))
				m.Forward(s.Ones(2, 3, 5, 5))
				for _, p := range nn.Parameters(m) {
					v = append(v, p.Floats()...)
				}
			}, tensor.Seed(7))
			return v
		}
		if !slices.Equal(draw(func(in nn.Option) nn.Module { return nn.NewLazyConv2d(4, 3, in) }), draw(func(in nn.Option) nn.Module { return nn.NewConv2d(3, 4, 3, in) })) {
			t.Error("the first values differ")
		}
	})
}

// If a state dict does not fit, lazy layers stay without parameters. The error lists what the dict
// lacks.
func TestLazyLayersAndWrongDicts(t *testing.T) {
	make := func() *nn.Sequential { return nn.NewSequential(nn.NewLazyLinear(3), nn.NewLazyBatchNorm1d()) }
	m := make()
	full := nn.StateDict(nn.NewSequential(nn.NewLinear(2, 3), nn.NewBatchNorm1d(3)))
	var e *nn.StateError
	lacks := map[string]*tensor.Tensor{"0.weight": full["0.weight"], "0.bias": full["0.bias"]}
	if err := nn.LoadStateDict(m, lacks); !errors.As(err, &e) || !slices.Equal(e.Missing, []string{"1.weight"}) {
		t.Errorf("got %v", err)
	}
	if d := nn.Describe(m); !strings.Contains(d, "LazyLinear") || !strings.Contains(d, "LazyBatchNorm1d") {
		t.Errorf("after an error: %s", d)
	}
	wrong := map[string]*tensor.Tensor{}
	maps.Copy(wrong, full)
	wrong["0.weight"] = tensor.Ones(4, 2)
	if err := nn.LoadStateDict(m, wrong); !errors.As(err, &e) || len(e.Mismatched) != 1 || !strings.Contains(nn.Describe(m), "LazyLinear") {
		t.Errorf("got %v", err)
	}
	if err := nn.LoadStateDict(m, full); err != nil || nn.Count(m) != 3*2+3+6 {
		t.Errorf("loading gives %v", err)
	}
	bare := nn.NewSequential(nn.NewLazyLinear(3, nn.SkipInit()), nn.NewLazyBatchNorm1d(nn.SkipInit()))
	if err := nn.LoadStateDict(bare, full); err != nil || bare.Layers[0].(*nn.Linear).Weight.Floats()[1] != full["0.weight"].Floats()[1] {
		t.Errorf("without first values: %v", err)
	}
	if y := nn.NewLazyLinear(3, nn.SkipInit()).Forward(tensor.Ones(2, 4)); y.Floats()[0] == 0 {
		t.Errorf("a first call of a layer that was to be loaded: %v", y)
	}
	if err := tensor.Try(func() { nn.NewLazyConv2d(1, 1).Forward(tensor.Ones(2, 2)) }); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("a convolution of a matrix: %v", err)
	}
	if err := tensor.Try(func() { nn.NewLazyLinear(1).Forward(tensor.From(1.0)) }); !errors.Is(err, tensor.ErrShape) && !errors.Is(err, tensor.ErrValue) {
		t.Errorf("a linear layer of a scalar: %v", err)
	}
}

// The size of the first input determines the number of input features.
func ExampleNewLazyLinear() {
	m := nn.NewSequential(nn.NewLazyConv2d(8, 3), nn.ReLU{}, nn.Flatten{}, nn.NewLazyLinear(10))
	fmt.Println(m)
	m.Forward(tensor.Ones(1, 3, 6, 6))
	fmt.Println(m)
	// Output:
	// Sequential(
	//   (0): LazyConv2d(Out: 8)
	//   (1): ReLU()
	//   (2): Flatten()
	//   (3): LazyLinear(Out: 10)
	// )
	// Sequential(
	//   (0): Conv2d(weight [8, 3, 3, 3], bias [8])
	//   (1): ReLU()
	//   (2): Flatten()
	//   (3): Linear(weight [10, 128], bias [10])
	// )
}
