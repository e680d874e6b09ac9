package nn_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// lenet is a small model with a block of layers, layers by value, a tied weight, and a layer that
// is called twice.
type lenet struct {
	nn.Base
	Features *nn.Sequential
	Pool     nn.AdaptiveAvgPool2d
	Fc       *nn.Linear
	Twice    *nn.Linear
	Tied     *nn.Linear
	Count    *tensor.Tensor `nn:"count,buffer"`
}

func newLenet(s *tensor.Scope) *lenet {
	m := &lenet{
		Features: nn.NewSequential(nn.NewConv2d(1, 4, 3, nn.In(s)), nn.NewBatchNorm2d(4, nn.In(s)), nn.ReLU{}, nn.NewDropout(0.5)),
		Pool:     nn.NewAdaptiveAvgPool2d(2), Fc: nn.NewLinear(16, 6, nn.In(s)), Twice: nn.NewLinear(6, 6, nn.NoBias(), nn.In(s)), Count: s.Zeros(),
	}
	m.Tied = &nn.Linear{Weight: m.Twice.Weight}
	return m
}

func (m *lenet) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	m.Count.In(x.Scope()).AddScalarInPlace(1)
	x = m.Fc.Forward(m.Pool.Forward(m.Features.Forward(x)).Flatten(1, -1))
	return m.Tied.Forward(m.Twice.Forward(m.Twice.Forward(x)))
}

func TestSummary(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newLenet(s)
		nn.Freeze(m.Fc)
		nn.Parameters(m) // gives the layers their names
		base := m.Twice.Base
		nn.Eval(m.Features)
		nn.Train(m.Features.Layers[3].(*nn.Dropout))
		calls := 0
		m.Fc.RegisterForwardHook(func(_, _ *tensor.Tensor) *tensor.Tensor { calls++; return nil })
		before := fmt.Sprint(m.Count, m.Features.Layers[1].(*nn.BatchNorm2d).RunningMean)
		gen := func() string { return fmt.Sprint(s.Generator().State()) }
		x := s.Rand(3, 1, 8, 8)
		drawn := gen()
		o := nn.Summary(m, x)
		want := `Layer       Type               Output        Parameters  Output size
────────────────────────────────────────────────────────────────────
model       lenet              [3, 6]                           72 B
  features  Sequential         [3, 4, 6, 6]                  1.7 KiB
    0       Conv2d             [3, 4, 6, 6]          40      1.7 KiB
    1       BatchNorm2d        [3, 4, 6, 6]           8      1.7 KiB
    2       ReLU               [3, 4, 6, 6]                  1.7 KiB
    3       Dropout            [3, 4, 6, 6]                  1.7 KiB
  pool      AdaptiveAvgPool2d  [3, 4, 2, 2]                    192 B
  fc        Linear             [3, 6]               102         72 B
  twice     Linear             [3, 6] ×2             36         72 B
  tied      Linear             [3, 6]            (tied)         72 B

Parameters  186 (186), trainable 84, frozen 102; buffers 10
Memory      744 B of parameters, 44 B of buffers, 768 B of inputs, 7.2 KiB of outputs`
		if got := o.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if lines := strings.Count(o.Table(1), "\n"); lines != 10 {
			t.Errorf("%d lines", lines)
		}
		// Summary has not changed the model.
		if _, byValue := m.Features.Layers[2].(nn.ReLU); !byValue {
			t.Errorf("the layer is a %T", m.Features.Layers[2])
		}
		if !m.Training() || m.Features.Training() || !m.Features.Layers[3].(*nn.Dropout).Training() || !m.Fc.Training() {
			t.Error("training flags")
		}
		if after := fmt.Sprint(m.Count, m.Features.Layers[1].(*nn.BatchNorm2d).RunningMean); after != before || gen() != drawn {
			t.Errorf("buffers %s, before %s; generator %s, before %s", after, before, gen(), drawn)
		}
		if !reflect.DeepEqual(m.Twice.Base, base) || calls != 1 {
			t.Errorf("hooks are left; %d calls", calls)
		}
		if m.Forward(x); calls != 2 {
			t.Error("a hook is gone")
		}
		if x.NeedsGrad() || m.Twice.Weight.Grad() != nil {
			t.Error("gradients")
		}
		// Summary does not change the model even if Forward panics, and passes the panic on.
		bad := s.Rand(3, 2, 8, 8)
		if err := tensor.Try(func() { nn.Summary(m, bad) }); !errors.Is(err, tensor.ErrShape) {
			t.Error(err)
		}
		if _, byValue := m.Features.Layers[2].(nn.ReLU); !byValue || !m.Training() || !reflect.DeepEqual(m.Twice.Base, base) {
			t.Error("an error leaves something behind")
		}
		// The scope of the model may be younger than that of the inputs. Summary may be called
		// without inputs, and the model may be a list.
		s.Do(func(c *tensor.Scope) {
			if o := nn.Summary(nn.NewLinear(2, 3, nn.In(c), nn.Typed(dtype.F64)), s.Typed(dtype.F64).Ones(1, 2)); o.ParameterBytes != 9*8 || o.Layers[0].Output[0].String() != "[1, 3]" {
				t.Error(o)
			}
		})
		if o := nn.Summary(m); o.Layers[0].Calls != 0 || o.Trainable != 84 || strings.Contains(o.String(), "outputs") {
			t.Error(o)
		}
		if o := nn.Summary([]*nn.Linear{m.Fc}); len(o.Layers) != 2 || o.Frozen != 102 || o.Layers[1].Depth != 1 {
			t.Error(o)
		}
		mustPanic(t, "has no method Forward", func() { nn.Summary(&[]*nn.Linear{m.Fc}, x) })
		mustPanic(t, "cannot be called with 1 tensors", func() { nn.Summary(nn.NewBilinear(1, 1, 1, nn.In(s)), x) })
		b := nn.Summary(nn.NewBilinear(2, 3, 4, nn.In(s)), s.Ones(1, 2), s.Ones(1, 3))
		if b.Layers[0].Calls != 1 || !slices.Equal(b.Layers[0].Output[0].Slice(), []int{1, 4}) || b.InputBytes != 20 {
			t.Error(b)
		}
	})
}

// Sizes and counts are printed with units.
func TestSummaryUnits(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := nn.NewLinear(1000, 1500, nn.In(s))
		for _, part := range []string{"1,501,500 (1.5 M)", "5.7 MiB of parameters"} {
			if o := nn.Summary(m).String(); !strings.Contains(o, part) {
				t.Errorf("%q is not in %s", part, o)
			}
		}
	})
}
