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

// An empty target matches only blanks. A length greater than the dimension counts as the whole
// dimension. A batch without inputs has no losses.
func TestCTCEdges(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.F64).Randn(3, 2, 4).LogSoftmax(-1)
		blanks := x.Select(2, 0).Sum(0).Neg().Floats()
		lengths := s.From([]int64{3, 3})
		long := s.Typed(dtype.I64)
		for name, y := range map[string]*tt{
			"no targets":   nn.CTCLoss{Reduction: nn.None}.Forward(x, long.Zeros(2, 0), lengths, long.Zeros(2)),
			"none counts":  nn.CTCLoss{Reduction: nn.None}.Forward(x, long.Ones(2, 3), lengths, long.Zeros(2)),
			"longer input": nn.CTCLoss{Reduction: nn.None}.Forward(x, long.Ones(2, 3), lengths.MulScalar(5), long.Zeros(2)),
		} {
			for i, v := range y.Floats() {
				if math.Abs(v-blanks[i]) > 1e-12 {
					t.Errorf("%s: %v, want %v", name, y.Floats(), blanks)
				}
			}
		}
		all := nn.CTCLoss{Reduction: nn.None}
		a, b := all.Forward(x, long.Ones(2, 1), lengths, s.From([]int64{7, 1})).Floats(), all.Forward(x, long.Ones(2, 1), lengths, s.From([]int64{1, 1})).Floats()
		if a[0] != b[0] || a[1] != b[1] {
			t.Errorf("a target length beyond the targets: %v, want %v", a, b)
		}
		none := all.Forward(x, long.Ones(2, 1), long.Zeros(2), s.From([]int64{0, 1})).Floats()
		if none[0] != 0 || !math.IsInf(none[1], 1) {
			t.Errorf("inputs of no time: %v", none)
		}
		if y := all.Forward(x.Narrow(1, 0, 0), long.Ones(0, 1), long.Zeros(0), long.Zeros(0)); y.Size() != 0 {
			t.Errorf("no inputs: %v", y)
		}
	}, tensor.Seed(1))
}

// PyTorch's documentation forbids targets that contain the blank. The formula of the loss still
// has a value for such targets, and the test expects this value.
func TestCTCBlankTargets(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.F64).From([]float64{0, 1, 1, 0, 0.5, 0, 0, 0.25}).Reshape(4, 2).LogSoftmax(-1)
		for _, c := range []struct {
			target []int64
			want   float64 // computed by PyTorch
		}{{[]int64{1, 0}, -0.15763920965841804}, {[]int64{1, 0, 1}, 0.15437976566766426}, {[]int64{0, 1}, 0.3819767229890839}} {
			n := s.From([]int64{int64(len(c.target))}).Squeeze()
			if y := (nn.CTCLoss{Reduction: nn.Sum}).Forward(x, s.From(c.target), s.From([]int64{4}).Squeeze(), n); math.Abs(y.Item()-c.want) > 1e-12 {
				t.Errorf("target %v: %v, want %v", c.target, y.Item(), c.want)
			}
		}
	})
}

// Targets concatenated in a vector have the same loss as targets in a matrix. The call panics if
// the lengths do not add up to the size of the vector.
func TestCTCConcatenatedTargets(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.F64).Randn(6, 3, 4).LogSoftmax(-1)
		times, lengths := s.From([]int64{6, 6, 5}), s.From([]int64{2, 0, 3})
		all := nn.CTCLoss{Reduction: nn.None}
		got := all.Forward(x, s.From([]int64{1, 2, 3, 3, 1}), times, lengths).Floats()
		want := all.Forward(x, s.From([][]int64{{1, 2, 0}, {0, 0, 0}, {3, 3, 1}}), times, lengths).Floats()
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		none := s.Typed(dtype.I64).Zeros(3)
		if got := all.Forward(x, s.Typed(dtype.I64).Zeros(0), times, none).Floats(); !slices.Equal(got, all.Forward(x, s.Typed(dtype.I64).Zeros(3, 2), times, none).Floats()) {
			t.Errorf("no targets: %v", got)
		}
		for says, f := range map[string]func(){
			"add up to 5, and the vector of targets has 4": func() { all.Forward(x, s.From([]int64{1, 2, 3, 3}), times, lengths) },
			"the length -1": func() { all.Forward(x, s.From([]int64{1, 2}), times, s.From([]int64{-1, 0, 3})) },
		} {
			if err := tensor.Try(f); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
		}
	}, tensor.Seed(1))
}

// Targets and lengths may be int32, as in torch.
func TestCTCShortIntegers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.F64).Randn(6, 2, 4).LogSoftmax(-1)
		targets, times, lengths := s.From([][]int64{{1, 2, 3}, {3, 3, 1}}), s.From([]int64{6, 5}), s.From([]int64{2, 3})
		in32 := func(x *tensor.Tensor) *tensor.Tensor { return x.Cast(dtype.I32) }
		for _, r := range []nn.Reduction{nn.None, nn.Mean} {
			l := nn.CTCLoss{Reduction: r}
			want := l.Forward(x, targets, times, lengths).Floats()
			if got := l.Forward(x, in32(targets), in32(times), in32(lengths)).Floats(); !slices.Equal(got, want) {
				t.Errorf("reduction %v: got %v, want %v", r, got, want)
			}
			apart := s.From([]int32{1, 2, 3, 3, 1})
			if got := l.Forward(x, apart, times, in32(lengths)).Floats(); !slices.Equal(got, want) {
				t.Errorf("reduction %v, one behind the other: got %v, want %v", r, got, want)
			}
		}
	})
}

// The example computes the loss of a text whose position in the input is not known.
func ExampleCTCLoss() {
	// logits of a blank and two letters, at four time steps
	logits := tensor.From([][]float32{{0, 3, 0}, {3, 0, 0}, {0, 0, 3}, {0, 0, 3}})
	text, times, letters := tensor.From([]int64{1, 2}), tensor.From([]int64{4}).Squeeze(), tensor.From([]int64{2}).Squeeze()
	loss := nn.CTCLoss{Reduction: nn.Sum}.Forward(logits.LogSoftmax(-1), text, times, letters)
	fmt.Printf("%.3f\n", loss.Item())
	// Output: 0.185
}
