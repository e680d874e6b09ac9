package nn_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Parameters and buffers have torch's names, and exist for the same options as in torch.
func TestChannelNormNames(t *testing.T) {
	for _, c := range []struct {
		layer any
		want  string
	}{
		{nn.NewBatchNorm2d(3), "[weight bias running_mean+ running_var+ num_batches_tracked+]"},
		{nn.NewBatchNorm1d(3, nn.NoStats()), "[weight bias]"},
		{nn.NewBatchNorm3d(3, nn.NoAffine()), "[running_mean+ running_var+ num_batches_tracked+]"},
		{nn.NewInstanceNorm1d(3), "[]"},
		{nn.NewInstanceNorm2d(3, nn.Affine()), "[weight bias]"},
		{nn.NewInstanceNorm3d(3, nn.Stats()), "[running_mean+ running_var+ num_batches_tracked+]"},
		{nn.NewGroupNorm(2, 4), "[weight bias]"},
		{nn.NewGroupNorm(2, 4, nn.NoBias()), "[weight]"},
	} {
		var names []string
		for _, p := range nn.Named(c.layer) {
			name := p.Name
			if p.Buffer {
				name += "+"
			}
			names = append(names, name)
		}
		if got := fmt.Sprint(names); got != c.want {
			t.Errorf("%T: %s, want %s", c.layer, got, c.want)
		}
	}
}

func close3(t *testing.T, what string, x *tensor.Tensor, want ...float64) {
	t.Helper()
	for i, v := range x.Floats() {
		if math.Abs(v-want[i]) > 1e-3 {
			t.Errorf("%s is %v, want %v", what, x.Floats(), want)
			return
		}
	}
}

// In training a layer uses the statistics of the batch, and updates the running statistics. In
// evaluation it uses the running statistics. The expected values are PyTorch's.
func TestBatchNormRuns(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		rows := s.From([][]float32{{1, 10}, {2, 30}, {6, 20}})
		plain, average := nn.NewBatchNorm1d(2), nn.NewBatchNorm1d(2)
		average.Momentum = nn.CumulativeAverage
		for k := range 3 {
			x := rows.MulScalar(float64(k + 1)).RequiresGrad()
			for _, l := range []*nn.BatchNorm1d{plain, average} {
				y := l.Forward(x)
				close3(t, "mean", y.Mean(0), 0, 0)
				y.Square().Sum().Backward()
			}
		}
		close3(t, "running mean", average.RunningMean, 6, 40)
		close3(t, "running variance", average.RunningVar, 32.6667, 466.6667)
		close3(t, "count", average.NumBatchesTracked, 3)
		if plain.Weight.Grad() == nil || plain.Bias.Grad() == nil {
			t.Error("no gradient")
		}
		nn.Eval(average)
		y := average.Forward(rows)
		close3(t, "in evaluation", y.Select(0, 0), (1-6)/math.Sqrt(32.6667), (10-40)/math.Sqrt(466.6667))
		close3(t, "count", average.NumBatchesTracked, 3)
		free := nn.Eval(nn.NewBatchNorm1d(2, nn.NoStats()))
		close3(t, "mean without statistics", free.Forward(rows).Mean(0), 0, 0)

		i := nn.NewInstanceNorm1d(2, nn.Stats())
		x := s.Arange(12).Cast(dtype.F32).Reshape(2, 2, 3)
		i.Forward(x)
		close3(t, "running mean of instances", i.RunningMean, 0.4, 0.7)
		close3(t, "count of instances", i.NumBatchesTracked, 0)
		if one := nn.NewInstanceNorm1d(2).Forward(x.Select(0, 1)); one.Rank() != 2 {
			t.Errorf("one instance gives shape %v", one.Shape())
		}
		if y := nn.NewBatchNorm2d(2, nn.Typed(dtype.BF16)).Forward(s.Typed(dtype.BF16).Rand(2, 2, 3, 3)); y.Type() != dtype.BF16 {
			t.Errorf("bfloat16 gives %v", y.Type())
		}
		close3(t, "group", nn.NewGroupNorm(1, 2).Forward(x).Flatten(1, -1).Mean(1), 0, 0)
		if y := nn.NewLocalResponseNorm(2).Forward(x); y.Shape() != x.Shape() {
			t.Errorf("shape %v", y.Shape())
		}
		for _, f := range []func(){
			func() { nn.NewBatchNorm1d(2).Forward(s.Ones(2, 2, 3, 3)) }, func() { nn.NewBatchNorm2d(2).Forward(s.Ones(2, 2)) },
			func() { nn.NewBatchNorm3d(2).Forward(s.Ones(2, 2, 3, 3)) }, func() { nn.NewInstanceNorm2d(2).Forward(s.Ones(2, 2)) },
			func() { nn.NewInstanceNorm3d(2).Forward(s.Ones(2, 2, 3)) },
		} {
			if err := tensor.Try(f); !errors.Is(err, tensor.ErrShape) {
				t.Errorf("an input of the wrong rank: %v", err)
			}
		}
	})
}

func TestGroupsOfOneSize(t *testing.T) {
	defer func() {
		if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), "6 channels cannot be 4 groups") {
			t.Errorf("got %v", e)
		}
	}()
	nn.NewGroupNorm(4, 6)
}
