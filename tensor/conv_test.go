package tensor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A windowMistake is a call that must panic. The error must have the given kind, and its text must
// contain the given words.
type windowMistake struct {
	name  string
	kind  error
	wrong func()
	says  []string
}

func holdWindowMistakes(t *testing.T, list []windowMistake) {
	t.Helper()
	for _, c := range list {
		err := tensor.Try(c.wrong)
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", c.name, err, c.kind)
			continue
		}
		for _, w := range c.says {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", c.name, err, w)
			}
		}
	}
}

func TestConvMistakes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, w := s.Ones(2, 4, 5, 5), s.Ones(6, 4, 3, 3)
		conv := func(x, w, b *tensor.Tensor, o tensor.ConvOptions) func() {
			return func() { x.Conv2d(w, b, o) }
		}
		back := func(x, w, b *tensor.Tensor, o tensor.ConvTransposeOptions) func() {
			return func() { x.ConvTranspose2d(w, b, o) }
		}
		var none tensor.ConvOptions
		holdWindowMistakes(t, []windowMistake{
			{"rank", tensor.ErrShape, conv(s.Ones(5, 5), w, nil, none), []string{"conv2d", "[5, 5]", "4 dimensions, or 3 without a batch"}},
			{"rank of weight", tensor.ErrShape, conv(x, s.Ones(6, 4, 3), nil, none), []string{"[6, 4, 3]"}},
			{"channels", tensor.ErrShape, conv(s.Ones(2, 3, 5, 5), w, nil, none), []string{"3 channels", "the weight is for 4"}},
			{"channels last", tensor.ErrShape, conv(s.Ones(2, 5, 5, 4), w, nil, none), []string{"Permute(0, 3, 1, 2)"}},
			{"channels last, unbatched", tensor.ErrShape, func() { s.Ones(9, 4).Conv1d(s.Ones(2, 4, 3), nil, none) }, []string{"Permute(1, 0)"}},
			{"groups of channels", tensor.ErrShape, conv(x, w, nil, tensor.ConvOptions{Groups: 2}), []string{"4 in each of 2 groups", "8"}},
			{"groups of outputs", tensor.ErrShape, conv(s.Ones(2, 16, 5, 5), w, nil, tensor.ConvOptions{Groups: 4}), []string{"6 outputs", "4 groups"}},
			{"negative groups", tensor.ErrValue, conv(x, w, nil, tensor.ConvOptions{Groups: -1}), []string{"-1 groups"}},
			{"bias", tensor.ErrShape, conv(x, w, s.Ones(4), none), []string{"bias", "[4]", "6 outputs"}},
			{"types", tensor.ErrType, conv(x, w.Half(), nil, none), []string{"float32 and float16", "Cast"}},
			{"bool", tensor.ErrType, conv(x.Cast(dtype.Bool), w.Cast(dtype.Bool), nil, none), []string{"bool"}},
			{"kernel too large", tensor.ErrShape, conv(x, s.Ones(1, 4, 3, 7), nil, tensor.ConvOptions{Dilation: []int{2}, Padding: []int{1}}), []string{"a window of 13", "kernel 7, dilation 2", "input of 5", "7"}},
			{"empty kernel", tensor.ErrShape, conv(x, s.Ones(1, 4, 0, 3), nil, none), []string{"empty"}},
			{"stride", tensor.ErrValue, conv(x, w, nil, tensor.ConvOptions{Stride: []int{0}}), []string{"stride [0]", "at least 1"}},
			{"padding", tensor.ErrValue, conv(x, w, nil, tensor.ConvOptions{Padding: []int{-1}}), []string{"padding [-1]"}},
			{"dilation", tensor.ErrValue, conv(x, w, nil, tensor.ConvOptions{Dilation: []int{1, 0}}), []string{"dilation [1 0]"}},
			{"number of sizes", tensor.ErrValue, conv(x, w, nil, tensor.ConvOptions{Stride: []int{1, 1, 1}}), []string{"3 sizes of stride for 2 dimensions"}},
			{"same with a stride", tensor.ErrValue, conv(x, w, nil, tensor.ConvOptions{Same: true, Stride: []int{2}}), []string{"stride of 1"}},
			{"same with padding", tensor.ErrValue, conv(x, w, nil, tensor.ConvOptions{Same: true, Padding: []int{0}}), []string{"both"}},
			{"nil", tensor.ErrValue, conv(x, nil, nil, none), []string{"nil"}},
			{"transposed channels", tensor.ErrShape, back(x, w, nil, tensor.ConvTransposeOptions{}), []string{"conv_transpose2d", "4 channels", "for 6"}},
			{"transposed bias", tensor.ErrShape, back(x, s.Ones(4, 3, 2, 2), s.Ones(4), tensor.ConvTransposeOptions{}), []string{"3 outputs"}},
			{"output padding", tensor.ErrValue, back(x, s.Ones(4, 3, 2, 2), nil, tensor.ConvTransposeOptions{OutputPadding: []int{1}}), []string{"output padding of 1", "stride, 1"}},
			{"nothing left", tensor.ErrShape, back(x, s.Ones(4, 3, 2, 2), nil, tensor.ConvTransposeOptions{Padding: []int{3}}), []string{"padding of 3", "would be 0"}},
			{"transposed groups", tensor.ErrShape, back(x, s.Ones(4, 3, 2, 2), nil, tensor.ConvTransposeOptions{Groups: 3}), []string{"4 channels", "3 groups"}},
		})
	})
}

func oneGPU(t *testing.T) device.Device {
	d, _ := emulated(t, 1)
	return d
}

func TestConvTwoDevices(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, w := s.Ones(1, 1, 4), s.On(oneGPU(t)).Ones(1, 1, 2)
		if err := tensor.Try(func() { x.Conv1d(w, nil, tensor.ConvOptions{}) }); !errors.Is(err, tensor.ErrDevice) {
			t.Error(err)
		}
	})
}

// TestConvIntegers checks that convolutions of integers of every width wrap around on overflow.
func TestConvIntegers(t *testing.T) {
	gpu := oneGPU(t)
	for _, ty := range []dtype.Type{dtype.I64, dtype.I32, dtype.I16, dtype.I8, dtype.U8} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From([]int64{100, 3, -7, 50}).Cast(ty).Reshape(1, 2, 2)
			w := s.From([]int64{2, 1, 5, -1}).Cast(ty).Reshape(1, 2, 2)
			b := s.From([]int64{4}).Cast(ty)
			want := s.From([]int64{200 + 3 - 35 - 50 + 4}).Cast(ty).Floats()
			// the transposed convolution of the first channel, without the bias
			up := s.From([]int64{200, 6 + 100, 3}).Cast(ty).Floats()
			for _, on := range []func(*tensor.Tensor) *tensor.Tensor{func(x *tensor.Tensor) *tensor.Tensor { return x }, func(x *tensor.Tensor) *tensor.Tensor { return x.To(gpu) }} {
				y := on(x).Conv1d(on(w), on(b), tensor.ConvOptions{})
				if y.Type() != ty || !slices.Equal(y.Floats(), want) {
					t.Errorf("%v: %v, want %v", ty, y, want)
				}
				y = on(x).Narrow(1, 0, 1).ConvTranspose1d(on(w).Narrow(1, 0, 1), nil, tensor.ConvTransposeOptions{})
				if y.Type() != ty || !slices.Equal(y.Floats(), up) {
					t.Errorf("%v transposed: %v, want %v", ty, y, up)
				}
			}
		})
	}
}

// TestConvMemory checks that a convolution frees its temporaries when it returns. Only the result
// may be left, and its graph may keep only the operands.
func TestConvMemory(t *testing.T) {
	d := oneGPU(t)
	tensor.Do(func(s *tensor.Scope) {
		x, w, b := s.On(d).Randn(2, 3, 9, 9).RequiresGrad(), s.On(d).Randn(4, 3, 3, 3).RequiresGrad(), s.On(d).Randn(4).RequiresGrad()
		before := d.Stats()
		y := x.Conv2d(w, b, tensor.ConvOptions{Padding: []int{1}})
		if grown := d.Stats().Allocated - before.Allocated; grown > 4*y.Size()+512 {
			t.Errorf("%d bytes are left in use, the result has %d", grown, 4*y.Size())
		}
		y.Free()
		before = d.Stats()
		s.Do(func(c *tensor.Scope) {
			tensor.Gradients(x.In(c).Conv2d(w, b, tensor.ConvOptions{Padding: []int{1}}).Sum(), []*tensor.Tensor{x, w, b})
		})
		// only the gradients remain, which are small
		if grown := d.Stats().Allocated - before.Allocated; grown > 4096 {
			t.Errorf("%d bytes are left in use after the gradients", grown)
		}
	})
	if left := d.Stats().Allocated; left != 0 {
		t.Errorf("%d bytes are left in use", left)
	}
}

// TestConvParts checks convolutions whose columns are so large that the batch is processed in
// parts. Up to rounding, the result and the gradients must equal those of one sample at a time.
func TestConvParts(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		o := tensor.ConvOptions{Padding: []int{1}}
		for _, c := range []struct{ n, channels, size, groups int }{{3, 48, 120, 1}, {40, 512, 5, 1}, {40, 128, 20, 2}} {
			o.Groups = c.groups
			x := s.Typed(dtype.F64).Randn(c.n, c.channels, c.size, c.size).RequiresGrad()
			w := s.Typed(dtype.F64).Randn(4, c.channels/c.groups, 3, 3).RequiresGrad()
			whole := x.Conv2d(w, nil, o)
			g := whole.RandnLike()
			grads := tensor.Gradients(whole, []*tensor.Tensor{x, w}, tensor.GradOutput(g))
			dw := w.ZerosLike()
			for i := range c.n {
				xi := x.Detach().Narrow(0, i, 1).Clone().RequiresGrad()
				y := xi.Conv2d(w, nil, o)
				gi := tensor.Gradients(y, []*tensor.Tensor{xi, w}, tensor.GradOutput(g.Narrow(0, i, 1)))
				dw.AddInPlace(gi[1])
				for what, p := range map[string][2]*tensor.Tensor{"result": {y, whole.Narrow(0, i, 1)}, "gradient": {gi[0], grads[0].Narrow(0, i, 1)}} {
					if d := p[0].Sub(p[1]).Abs().Amax().Item(); d > 1e-10 {
						t.Errorf("%+v: %s of sample %d is off by %v", c, what, i, d)
					}
				}
			}
			if d := dw.Sub(grads[1]).Abs().Amax().Item(); d > 1e-9 {
				t.Errorf("%+v: gradient of the weight is off by %v", c, d)
			}
		}
	})
}

func ExampleTensor_Conv2d() {
	x := tensor.From([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}).Reshape(1, 1, 3, 3)
	edges := tensor.From([]float32{-1, 1}).Reshape(1, 1, 1, 2)
	fmt.Println(x.Conv2d(edges, nil, tensor.ConvOptions{}))
	fmt.Println(x.Conv2d(edges, nil, tensor.ConvOptions{Stride: []int{2}, Padding: []int{0, 1}}).Shape())
	// Output:
	// tensor([[[[1., 1.],
	//           [1., 1.],
	//           [1., 1.]]]])
	// [1, 1, 2, 2]
}

// A transposed convolution restores the shape of the input of a convolution with the same options.
func ExampleTensor_ConvTranspose2d() {
	small := tensor.Ones(1, 8, 7, 7)
	w := tensor.Ones(8, 3, 3, 3)
	large := small.ConvTranspose2d(w, nil, tensor.ConvTransposeOptions{Stride: []int{2}, Padding: []int{1}, OutputPadding: []int{1}})
	fmt.Println(large.Shape())
	fmt.Println(large.Conv2d(w, nil, tensor.ConvOptions{Stride: []int{2}, Padding: []int{1}}).Shape())
	// Output:
	// [1, 3, 14, 14]
	// [1, 8, 7, 7]
}
