package nn_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Convolutions with the padding modes "reflect", "replicate" and "circular" have PyTorch's results
// and gradients.
func TestGoldenPaddingModes(t *testing.T) {
	goldenModels(t, "testdata/padded.safetensors.gz", 60, map[string]goldenModel{
		"conv": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
			if opts = append(opts, nn.PaddingMode(a.Text("mode"))); a.Has("same") {
				opts = append(opts, nn.SamePadding())
			} else {
				opts = append(opts, nn.Padding(a.Ints("padding")...))
			}
			if a.Has("stride") {
				opts = append(opts, nn.Stride(a.Ints("stride")...), nn.Dilation(a.Ints("dilation")...), nn.Groups(a.Int("groups")))
			}
			var m nn.Module
			switch kernel := a.Ints("kernel"); a.Int("rank") {
			case 1:
				m = nn.NewConv1d(2, 4, kernel, opts...)
			case 2:
				m = nn.NewConv2d(2, 4, kernel, opts...)
			default:
				m = nn.NewConv3d(2, 4, kernel, opts...)
			}
			return m, func(x, masks []*tt) []*tt { return []*tt{m.Forward(x[0])} }
		},
	})
}

// Wrong options of a convolution raise the same errors in every padding mode. A reflected padding
// that is wider than the input is an error.
func TestPaddingModeMistakes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for name, l := range map[string]*nn.Conv2d{
			"same with a stride": nn.NewConv2d(2, 2, 3, nn.SamePadding(), nn.Stride(2), nn.PaddingMode("circular")),
			"sizes":              nn.NewConv2d(2, 2, 3, nn.Padding(1, 2, 3), nn.PaddingMode("circular")),
			"a mode of its own":  {Weight: s.Ones(2, 2, 3, 3), PaddingMode: "mirror"},
			"too much":           nn.NewConv2d(2, 2, 3, nn.Padding(3), nn.PaddingMode("reflect")),
		} {
			if err := tensor.Try(func() { l.Forward(s.Ones(1, 2, 3, 3)) }); !errors.Is(err, tensor.ErrValue) && !errors.Is(err, tensor.ErrShape) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Padding by reflection keeps the brightness at the edges of an image. Padding with zeros would
// darken them.
func ExamplePaddingMode() {
	for _, mode := range []string{"zeros", "reflect"} {
		l := nn.NewConv1d(1, 1, 3, nn.Padding(1), nn.PaddingMode(mode), nn.NoBias())
		l.Weight.Detach().Fill(1)
		fmt.Println(l.Forward(tensor.Ones(1, 4)).Detach())
	}
	// Output:
	// tensor([[2., 3., 3., 2.]])
	// tensor([[3., 3., 3., 3.]])
}
