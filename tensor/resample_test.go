package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestResampleMistakes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 4, 6, 6)
		to := func(x *tensor.Tensor, o tensor.InterpolateOptions) func() { return func() { x.Interpolate(o) } }
		holdWindowMistakes(t, []windowMistake{
			{"rank", tensor.ErrShape, to(s.Ones(2, 3), tensor.InterpolateOptions{Size: []int{3}}), []string{"interpolate", "[2, 3]"}},
			{"neither", tensor.ErrValue, to(x, tensor.InterpolateOptions{}), []string{"a size or a scale"}},
			{"both", tensor.ErrValue, to(x, tensor.InterpolateOptions{Size: []int{3}, Scale: []float64{2}}), []string{"a size or a scale"}},
			{"sizes", tensor.ErrValue, to(x, tensor.InterpolateOptions{Size: []int{3, 3, 3}}), []string{"3 sizes", "2 dimensions"}},
			{"scales", tensor.ErrValue, to(x, tensor.InterpolateOptions{Scale: []float64{3, 3, 3}}), []string{"3 scales", "2 dimensions"}},
			{"size", tensor.ErrValue, to(x, tensor.InterpolateOptions{Size: []int{0}}), []string{"at least 1"}},
			{"scale", tensor.ErrValue, to(x, tensor.InterpolateOptions{Scale: []float64{0.1}}), []string{"0.1", "size 6"}},
			{"negative scale", tensor.ErrValue, to(x, tensor.InterpolateOptions{Scale: []float64{-1}}), []string{"-1"}},
			{"mode", tensor.ErrValue, to(x, tensor.InterpolateOptions{Size: []int{3}, Mode: 99}), []string{"99"}},
			{"corners", tensor.ErrValue, to(x, tensor.InterpolateOptions{Size: []int{3}, AlignCorners: true}), []string{"nearest"}},
			{"cubic", tensor.ErrShape, to(s.Ones(1, 1, 4), tensor.InterpolateOptions{Size: []int{3}, Mode: tensor.InterpolateCubic}), []string{"two spatial dimensions"}},
			{"integers", tensor.ErrType, to(x.Long(), tensor.InterpolateOptions{Size: []int{3}, Mode: tensor.InterpolateLinear}), []string{"int64", "Float"}},
			{"empty", tensor.ErrShape, to(s.Ones(1, 1, 0), tensor.InterpolateOptions{Size: []int{3}}), []string{"no elements"}},
			{"shuffle", tensor.ErrShape, func() { x.PixelShuffle(3) }, []string{"4 channels", "9"}},
			{"shuffle by 0", tensor.ErrValue, func() { x.PixelShuffle(0) }, []string{"factor of 0"}},
			{"shuffle of a matrix", tensor.ErrShape, func() { s.Ones(2, 3).PixelShuffle(1) }, []string{"channels, height and width"}},
			{"unshuffle", tensor.ErrShape, func() { x.PixelUnshuffle(4) }, []string{"height 6 and width 6", "4"}},
			{"groups", tensor.ErrValue, func() { x.ChannelShuffle(3) }, []string{"4 channels", "3 groups"}},
			{"channels of a matrix", tensor.ErrShape, func() { s.Ones(2, 4).ChannelShuffle(2) }, []string{"[2, 4]"}},
		})
	})
}

// TestShufflesCopy checks that shuffles and similar ops return a copy even where no element moves.
func TestShufflesCopy(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(1, 4, 1, 2)
		for _, y := range []*tensor.Tensor{x.PixelShuffle(1), x.PixelUnshuffle(1), x.PixelUnshuffle(1), x.ChannelShuffle(1), x.ChannelShuffle(4), x.PixelShuffle(2),
			x.Interpolate(tensor.InterpolateOptions{Size: []int{1, 2}}), x.Unfold2d(tensor.FoldOptions{Kernel: []int{1}})} {
			y.Fill(5)
		}
		if x.Sum().Item() != 8 {
			t.Error("the operand was changed")
		}
	})
}

// TestInterpolateComposed compares interpolation with the composition of other ops. The result,
// its gradient and the gradient of that gradient must have equal bits.
func TestInterpolateComposed(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
			for _, o := range []tensor.InterpolateOptions{
				{Scale: []float64{2}, Mode: tensor.InterpolateLinear}, {Scale: []float64{1.7}, Mode: tensor.InterpolateLinear, AlignCorners: true}, {Scale: []float64{0.3}, Mode: tensor.InterpolateLinear},
				{Scale: []float64{4.5}, Mode: tensor.InterpolateLinear}, {Scale: []float64{1}, Mode: tensor.InterpolateLinear},
				{Scale: []float64{2}}, {Scale: []float64{0.3}}, {Scale: []float64{5}}, {Scale: []float64{1.3}, Mode: tensor.InterpolateNearestExact},
			} {
				for _, shape := range [][]int{{2, 3, 37}, {3, 2, 9, 6}, {1, 2, 5, 4, 11}} {
					base := s.Randn(shape...).Cast(ty)
					for _, x := range []*tensor.Tensor{base, base.Transpose(0, -1).Contiguous().Transpose(0, -1)} {
						all := func(options ...tensor.Option) (out []float64) {
							s.Do(func(s *tensor.Scope) {
								x := x.In(s).Detach().RequiresGrad()
								y := x.Interpolate(o)
								g := y.Detach().Sin().Add(y.Detach()).RequiresGrad()
								d := tensor.Gradients(y, []*tensor.Tensor{x}, tensor.GradOutput(g), tensor.CreateGraph())[0]
								again := tensor.Gradients(d.Square().Sum(), []*tensor.Tensor{g})[0]
								for _, r := range []*tensor.Tensor{y, d, again} {
									out = append(out, r.Detach().Double().Floats()...)
								}
							}, options...)
							return out
						}
						got, want := all(), all(tensor.Composed())
						for i := range want {
							if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
								t.Fatalf("%v of %v, %v: element %d is %v, composed %v", shape, ty, o, i, got[i], want[i])
							}
						}
					}
				}
			}
		}
	})
}

// TestInterpolateLine checks that interpolation of a linear function is exact for every floating
// point type.
func TestInterpolateLine(t *testing.T) {
	for _, ty := range []dtype.Type{dtype.F64, dtype.F32, dtype.BF16, dtype.F16} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Typed(ty).Arange(5).Reshape(1, 1, 1, 5)
			for _, mode := range []tensor.InterpolateMode{tensor.InterpolateLinear, tensor.InterpolateCubic} {
				y := x.Interpolate(tensor.InterpolateOptions{Size: []int{1, 9}, Mode: mode, AlignCorners: true})
				if y.Type() != ty {
					t.Errorf("%v gives %v", ty, y.Type())
				}
				for i, v := range y.Floats() {
					// Near the ends, the cubic mode repeats elements. So the result is not linear
					// there.
					if mode == tensor.InterpolateCubic && (i < 2 || i > 6) {
						continue
					}
					if v != float64(i)/2 {
						t.Errorf("%v %v: %v at %d", ty, mode, v, i)
					}
				}
			}
		})
	}
}

func ExampleTensor_Interpolate() {
	x := tensor.From([]float32{1, 2, 3, 4}).Reshape(1, 1, 2, 2)
	fmt.Println(x.Interpolate(tensor.InterpolateOptions{Scale: []float64{1, 2}}))
	fmt.Println(x.Interpolate(tensor.InterpolateOptions{Size: []int{2, 3}, Mode: tensor.InterpolateLinear, AlignCorners: true}))
	// Output:
	// tensor([[[[1., 1., 2., 2.],
	//           [3., 3., 4., 4.]]]])
	// tensor([[[[1.0000, 1.5000, 2.0000],
	//           [3.0000, 3.5000, 4.0000]]]])
}

func ExampleTensor_PixelShuffle() {
	x := tensor.From([]float32{1, 2, 3, 4}).Reshape(1, 4, 1, 1)
	fmt.Println(x.PixelShuffle(2))
	// Output:
	// tensor([[[[1., 2.],
	//           [3., 4.]]]])
}
