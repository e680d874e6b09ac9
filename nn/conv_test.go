package nn_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Parameters have torch's names, shapes and ranges of initial values.
func TestConvParameters(t *testing.T) {
	half := nn.Typed(dtype.F16)
	for _, c := range []struct {
		layer nn.Module
		shape []int
		out   int
		fan   int
	}{
		{nn.NewConv1d(4, 64, 3, nn.Groups(2)), []int{64, 2, 3}, 64, 6},
		{nn.NewConv2d(3, 64, 7, nn.Stride(2), nn.Padding(3), half), []int{64, 3, 7, 7}, 64, 147},
		{nn.NewConv2d(3, 64, []int{3, 1}, nn.NoBias()), []int{64, 3, 3, 1}, 0, 9},
		{nn.NewConv3d(2, 64, 3), []int{64, 2, 3, 3, 3}, 64, 54},
		{nn.NewConvTranspose1d(64, 8, 4, nn.Groups(4)), []int{64, 2, 4}, 8, 8},
		{nn.NewConvTranspose2d(64, 8, 2), []int{64, 8, 2, 2}, 8, 32},
		{nn.NewConvTranspose3d(64, 8, []int{1, 2, 3}), []int{64, 8, 1, 2, 3}, 8, 48},
	} {
		p := nn.Named(c.layer)
		if !slices.Equal(p[0].Tensor.Shape().Slice(), c.shape) || p[0].Name != "weight" || !p[0].Tensor.NeedsGrad() {
			t.Errorf("%T: %s of shape %v", c.layer, p[0].Name, p[0].Tensor.Shape())
		}
		if c.out == 0 && len(p) != 1 || c.out > 0 && (len(p) != 2 || p[1].Name != "bias" || p[1].Tensor.Size() != c.out || !p[1].Tensor.NeedsGrad()) {
			t.Errorf("%T: parameters %v", c.layer, p)
		}
		bound := 1 / math.Sqrt(float64(c.fan))
		for _, q := range p {
			if most := q.Tensor.Abs().Amax().Item(); most > bound*(1+1e-3) || most < 0.8*bound && q.Tensor.Size() > 60 {
				t.Errorf("%T: %s goes to %v, the bound is %v", c.layer, q.Name, most, bound)
			}
		}
	}
	if w := nn.NewConv2d(1, 1, 1, half).Weight; w.Type() != dtype.F16 {
		t.Error(w.Type())
	}
}

func TestConvLayerMistakes(t *testing.T) {
	for says, f := range map[string]func(){
		"2 groups do not divide the channels of input and output, 4 and 3": func() { nn.NewConv2d(3, 4, 3, nn.Groups(2)) },
		"one for each": func() { nn.NewConv2d(3, 4, []int{3, 3, 3}) },
		"not positive": func() { nn.NewConv1d(3, 4, 0) },
		"are positive": func() { nn.NewConv3d(0, 4, 1) },
	} {
		func() {
			defer func() {
				if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), says) {
					t.Errorf("%s: got %v", says, e)
				}
			}()
			f()
		}()
	}
}

// Each convolution layer computes the same as the tensor method of the same name.
func TestConvLayers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		two := []int{2}
		line, image, volume := s.Randn(2, 4, 6), s.Randn(2, 4, 6, 6), s.Randn(1, 4, 4, 4, 4)
		x := map[int]*tensor.Tensor{3: line, 4: image, 5: volume}
		most, avg := tensor.MaxPoolOptions{Kernel: two}, tensor.AvgPoolOptions{Kernel: two}
		up := tensor.InterpolateOptions{Scale: []float64{2}, Mode: tensor.InterpolateLinear}
		c1, c2, c3 := nn.NewConv1d(4, 3, 2), nn.NewConv2d(4, 3, two, nn.SamePadding()), nn.NewConv3d(4, 2, 2, nn.NoBias())
		stride := tensor.ConvTransposeOptions{Stride: two}
		t1, t2, t3 := nn.NewConvTranspose1d(4, 3, 2, nn.Stride(2)), nn.NewConvTranspose2d(4, 3, two, nn.Stride(2)), nn.NewConvTranspose3d(4, 2, 2, nn.Stride(2), nn.NoBias())
		first := func(v, _ *tensor.Tensor) *tensor.Tensor { return v }
		for _, c := range []struct {
			layer nn.Module
			rank  int
			want  *tensor.Tensor
		}{
			{c1, 3, line.Conv1d(c1.Weight, c1.Bias, tensor.ConvOptions{})}, {c2, 4, image.Conv2d(c2.Weight, c2.Bias, tensor.ConvOptions{Same: true})},
			{c3, 5, volume.Conv3d(c3.Weight, nil, tensor.ConvOptions{})},
			{t1, 3, line.ConvTranspose1d(t1.Weight, t1.Bias, stride)}, {t2, 4, image.ConvTranspose2d(t2.Weight, t2.Bias, stride)}, {t3, 5, volume.ConvTranspose3d(t3.Weight, nil, stride)},
			{nn.NewMaxPool1d(2), 3, line.MaxPool1d(most)}, {nn.NewMaxPool2d(2), 4, image.MaxPool2d(most)}, {nn.NewMaxPool3d(2), 5, volume.MaxPool3d(most)},
			{nn.NewAvgPool1d(2), 3, line.AvgPool1d(avg)}, {nn.NewAvgPool2d(2), 4, image.AvgPool2d(avg)}, {nn.NewAvgPool3d(2), 5, volume.AvgPool3d(avg)},
			{nn.NewAdaptiveAvgPool1d(4), 3, line.AdaptiveAvgPool1d(4)}, {nn.NewAdaptiveAvgPool2d(4, 1), 4, image.AdaptiveAvgPool2d(4, 1)}, {nn.NewAdaptiveAvgPool3d(3), 5, volume.AdaptiveAvgPool3d(3)},
			{nn.NewAdaptiveMaxPool1d(4), 3, first(line.AdaptiveMaxPool1d(4))}, {nn.NewAdaptiveMaxPool2d(4, 1), 4, first(image.AdaptiveMaxPool2d(4, 1))},
			{nn.NewAdaptiveMaxPool3d(3), 5, first(volume.AdaptiveMaxPool3d(3))},
			{nn.NewUpsample(up), 4, image.Interpolate(up)}, {nn.NewPixelShuffle(2), 4, image.PixelShuffle(2)}, {nn.NewPixelUnshuffle(3), 4, image.PixelUnshuffle(3)},
		} {
			got := nn.NewSequential(c.layer).Forward(x[c.rank])
			if got.Shape() != c.want.Shape() || !slices.Equal(got.Floats(), c.want.Floats()) {
				t.Errorf("%T gives %v, want %v", c.layer, got.Shape(), c.want.Shape())
			}
			if n := nn.Named(nn.NewSequential(c.layer)); strings.Contains(fmt.Sprintf("%T", c.layer), "Pool") && len(n) != 0 {
				t.Errorf("%T has parameters %v", c.layer, n)
			}
		}
	})
}

// The example is a network that classifies images of 28 by 28 pixels into ten classes.
func ExampleNewConv2d() {
	m := nn.NewSequential(
		nn.NewConv2d(1, 8, 3, nn.Padding(1)), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.NewConv2d(8, 16, 3, nn.Padding(1)), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.Flatten{}, nn.NewLinear(16*7*7, 10))
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(m.Forward(s.Zeros(32, 1, 28, 28)).Shape(), nn.Count(m))
	})
	// Output: [32, 10] 9098
}
