package nn_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// On the CPU and on a GPU, pool layers return the positions of the maxima, and unpool layers write
// the maxima to these positions. A size that no input of the pool can have is an error, and so is a
// position out of range.
func TestMaxUnpoolLayers(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		host := s.Randn(2, 3, 4, 6)
		for _, x := range []*tt{host, host.To(gpus[0])} {
			l := nn.NewMaxPool2d(2)
			y, at := l.ForwardIndices(x)
			if !slices.Equal(y.Floats(), l.Forward(x).Floats()) || at.Type() != dtype.I64 {
				t.Errorf("%s: values %v at %v", x.Device().Name(), y, at)
			}
			back := nn.NewMaxUnpool2d(2).Forward(y, at)
			want := make([]float64, x.Size())
			for i, p := range at.Floats() {
				want[i/6*24+int(p)] = y.Floats()[i]
			}
			if back.Shape() != x.Shape() || !slices.Equal(back.Floats(), want) {
				t.Errorf("%s: got %v, want %v", x.Device().Name(), back.Floats(), want)
			}
			line, where := nn.NewMaxPool1d(2).ForwardIndices(x.Select(0, 0).Flatten(1, 2))
			cube, there := nn.NewMaxPool3d(2).ForwardIndices(x)
			for _, y := range []*tt{nn.NewMaxUnpool1d(2).Forward(line, where, 25), nn.NewMaxUnpool3d(2).Forward(cube, there, 3, 4, 6)} {
				if !slices.Contains(y.Shape().Slice(), map[int]int{2: 25, 4: 3}[y.Rank()]) {
					t.Errorf("%s: the size that was given is not the result's, %v", x.Device().Name(), y.Shape())
				}
			}
		}
		y, at := nn.NewMaxPool2d(2).ForwardIndices(host)
		unpool := nn.NewMaxUnpool2d(2)
		for says, f := range map[string]func(){
			"2 windows come from 3 to 5 elements": func() { unpool.Forward(y, at, 6, 6) },
			"indices are int64":                   func() { unpool.Forward(y, at.Cast(dtype.I32)) },
			"values and indices have one shape":   func() { unpool.Forward(y, at.Narrow(3, 0, 2)) },
			"24":                                  func() { unpool.Forward(y, at.AddScalar(24)) },
		} {
			if err := tensor.Try(f); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
		}
	}, tensor.Seed(1))
}

// Without samples as an argument, the scope's generator determines the windows. A seed then gives
// the same result on every device.
func TestFractionalMaxPoolDraws(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		plane, cube := s.Randn(2, 3, 9, 9), s.Randn(2, 3, 6, 6, 6)
		pool := func(x *tt, seed uint64) (v []float64) {
			s.Do(func(c *tensor.Scope) {
				l := nn.NewFractionalMaxPool2d(2, nn.OutputRatio(0.6))
				y, at := l.ForwardIndices(x.In(c))
				picked := x.Flatten(2, -1).Gather(2, at.Flatten(2, -1))
				if v = y.Floats(); !slices.Equal(v, picked.Floats()) || y.Dim(2) != 5 {
					t.Errorf("the places are not those of the values %v", y)
				}
			}, tensor.Seed(seed))
			return v
		}
		first := pool(plane, 1)
		if !slices.Equal(first, pool(plane, 1)) || !slices.Equal(first, pool(plane.To(gpus[0]), 1)) {
			t.Error("one seed gives several results")
		}
		if slices.Equal(first, pool(plane, 2)) {
			t.Error("two seeds give one result")
		}
		x := cube.RequiresGrad()
		y := nn.NewFractionalMaxPool3d(2, nn.OutputRatio(0.6)).Forward(x)
		if g := tensor.Gradients(y.Sum(), []*tt{x})[0]; g.Sum().Item() != float64(y.Size()) {
			t.Errorf("a gradient of %v for %d windows", g.Sum(), y.Size())
		}
		for says, o := range map[string]tensor.FractionalPoolOptions{
			"not both":                 {Kernel: []int{2}, Size: []int{2}, Ratio: []float64{0.5}},
			"needs the size":           {Kernel: []int{2}},
			"between 0 and 1":          {Kernel: []int{2}, Ratio: []float64{1.5}},
			"9 windows of 2":           {Kernel: []int{2}, Size: []int{9}},
			"samples are float32 of s": {Kernel: []int{2}, Size: []int{2}, Samples: s.Rand(2, 3, 3)},
		} {
			if err := tensor.Try(func() { plane.FractionalMaxPool2d(o) }); !errors.Is(err, tensor.ErrValue) && !errors.Is(err, tensor.ErrShape) || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
		}
	}, tensor.Seed(1))
}

// After unpooling, all elements except the maxima are zero.
func ExampleMaxUnpool1d() {
	x := tensor.From([]float32{1, 5, 2, 3}).Reshape(1, 1, 4)
	y, at := nn.NewMaxPool1d(2).ForwardIndices(x)
	fmt.Println(nn.NewMaxUnpool1d(2).Forward(y, at))
	// Output: tensor([[[0., 5., 0., 3.]]])
}

// The samples in the options determine the positions of the windows, which are otherwise random.
func ExampleFractionalMaxPool2d() {
	x := tensor.From([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}).Reshape(1, 1, 3, 3)
	l := nn.NewFractionalMaxPool2d(1, nn.OutputSize(2))
	l.Options.Samples = tensor.From([]float32{0, 0.5}).Reshape(1, 1, 2)
	fmt.Println(l.Forward(x))
	// Output:
	// tensor([[[[1., 3.],
	//           [7., 9.]]]])
}
