package nn_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// First and second derivatives with respect to inputs, states and all weights equal central
// differences. This tests both the VJP through the steps and the differentiable composition.
func TestRecurrentDerivatives(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		opts := []nn.Option{nn.In(s), nn.Typed(dtype.F64)}
		double := s.Typed(dtype.F64)
		x := double.Uniform(-1, 1, 2, 2, 1)
		check := func(name string, l *nn.Recurrent, run func(x *tt, h, c *tt) []*tt, states ...*tt) {
			t.Helper()
			in := append([]*tt{x}, states...)
			var fields []**tt
			for _, w := range l.Weights {
				for _, p := range []**tt{&w.WeightIH, &w.WeightHH, &w.BiasIH, &w.BiasHH, &w.WeightHR} {
					if *p != nil {
						fields, in = append(fields, p), append(in, *p)
					}
				}
			}
			err := autograd.Check(func(x []*tt) *tt {
				for i, p := range fields {
					*p = x[1+len(states)+i]
				}
				given := append(slices.Clone(x[1:1+len(states)]), nil, nil)
				var parts []*tt
				for _, y := range run(x[0], given[0], given[1]) {
					parts = append(parts, y.Square().Sum())
				}
				return tensor.Stack(0, parts...)
			}, in, autograd.CheckOptions{SecondOrder: true})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		lengths := []int{1, 2}
		pack := func(x *tt) *nn.PackedSequence {
			return nn.PackPaddedSequence(x, lengths, nn.PackOptions{Unsorted: true})
		}
		lstm := nn.NewLSTM(1, 1, nn.RecurrentOptions{}, opts...)
		check("lstm", &lstm.Recurrent, func(x, h, c *tt) []*tt {
			y, h, c := lstm.Forward(x, h, c)
			return []*tt{y, h, c}
		}, double.Uniform(-1, 1, 1, 2, 1), double.Uniform(-1, 1, 1, 2, 1))
		projected := nn.NewLSTM(1, 2, nn.RecurrentOptions{ProjSize: 1}, append(opts, nn.NoBias())...)
		check("lstm, projected, packed", &projected.Recurrent, func(x, h, c *tt) []*tt {
			y, h, c := projected.ForwardPacked(pack(x), h, c)
			return []*tt{y.Data, h, c}
		}, double.Uniform(-1, 1, 1, 2, 1), double.Uniform(-1, 1, 1, 2, 2))
		gru := nn.NewGRU(1, 1, nn.RecurrentOptions{Bidirectional: true}, opts...)
		check("gru, packed", &gru.Recurrent, func(x, h, _ *tt) []*tt {
			y, h := gru.ForwardPacked(pack(x), h)
			return []*tt{y.Data, h}
		}, double.Uniform(-1, 1, 2, 2, 1))
		rnn := nn.NewRNN(1, 1, nn.RecurrentOptions{Layers: 2}, opts...)
		check("rnn", &rnn.Recurrent, func(x, h, _ *tt) []*tt {
			y, h := rnn.Forward(x, h)
			return []*tt{y, h}
		})
	}, tensor.Seed(7))
}

// The states of one call are passed to a second call. First and second derivatives count the use of
// the weights in both calls.
func TestRecurrentCarriesState(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewGRU(1, 2, nn.RecurrentOptions{}, nn.In(s), nn.Typed(dtype.F64))
		w := l.Weights[0].WeightHH
		x := s.Typed(dtype.F64).Uniform(-1, 1, 4, 1, 1)
		err := autograd.Check(func(in []*tt) *tt {
			l.Weights[0].WeightHH = in[1]
			_, h := l.Forward(in[0].Narrow(0, 0, 2), nil)
			y, _ := l.Forward(in[0].Narrow(0, 2, 2), h)
			return y.Square().Sum()
		}, []*tt{x, w}, autograd.CheckOptions{SecondOrder: true})
		if err != nil {
			t.Error(err)
		}
		l.Weights[0].WeightHH = w
		whole, _ := l.Forward(x, nil)
		_, h := l.Forward(x.Narrow(0, 0, 2), nil)
		half, _ := l.Forward(x.Narrow(0, 2, 2), h)
		if !half.AllClose(whole.Narrow(0, 2, 2), 1e-14, 1e-14) {
			t.Errorf("%v in one go, %v in two", whole, half)
		}
	}, tensor.Seed(7))
}

// After a call, the gates, the states and the result of each row stay in memory, because the
// gradient needs them. The memory per row does not grow with the number of steps. Without gradients
// only the results stay.
func TestRecurrentMemory(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	const steps, n, hidden = 64, 4, 32
	for name, c := range map[string]struct {
		keeps, peak float64 // limits of memory per row, in multiples of the hidden size
		run         func(s *tensor.Scope) func(x *tt) *tt
	}{
		// torch on a CPU keeps i, f, g, o, c, tanh(c) and h
		"lstm": {6.2, 8, func(s *tensor.Scope) func(x *tt) *tt {
			l := nn.NewLSTM(hidden, hidden, nn.RecurrentOptions{}, nn.In(s))
			return func(x *tt) *tt { y, _, _ := l.Forward(x, nil, nil); return y }
		}},
		"gru": {5.2, 8, func(s *tensor.Scope) func(x *tt) *tt {
			l := nn.NewGRU(hidden, hidden, nn.RecurrentOptions{}, nn.In(s))
			return func(x *tt) *tt { y, _ := l.Forward(x, nil); return y }
		}},
		"rnn": {1.2, 4, func(s *tensor.Scope) func(x *tt) *tt {
			l := nn.NewRNN(hidden, hidden, nn.RecurrentOptions{}, nn.In(s))
			return func(x *tt) *tt { y, _ := l.Forward(x, nil); return y }
		}},
	} {
		for _, grad := range []bool{true, false} {
			mode := []tensor.Option{tensor.On(dev)}
			keeps := c.keeps
			if !grad {
				mode, keeps = append(mode, tensor.NoGrad()), 1.2
			}
			tensor.Do(func(s *tensor.Scope) {
				run := c.run(s)
				x := s.Rand(steps, n, hidden)
				before := dev.Stats().Allocated
				dev.ResetPeak()
				y := run(x)
				row := func(v int) float64 { return float64(v) / (4 * steps * n * hidden) }
				if held := row(dev.Stats().Allocated - before); held > keeps {
					t.Errorf("%s, gradients %v: %.2f·hidden are held a row, %v are allowed", name, grad, held, keeps)
				}
				if peak := row(dev.Stats().AllocatedPeak - before); peak > c.peak {
					t.Errorf("%s, gradients %v: %.2f·hidden are used a row, %v are allowed", name, grad, peak, c.peak)
				}
				if grad {
					y.Sum().Backward()
				}
			}, mode...)
		}
	}
	if left := dev.Stats().Allocated; left != 0 {
		t.Errorf("%d bytes are left", left)
	}
}

// A recurrent layer works as a field of a model, even as a struct by value. Its parameters have
// torch's names, and can be saved and loaded.
func TestRecurrentInModel(t *testing.T) {
	type model struct {
		Encoder nn.LSTM
		Rest    []*nn.GRU
		Cell    *nn.RNNCell
		Head    *nn.Linear
	}
	build := func() *model {
		o := nn.RecurrentOptions{Layers: 2, Dropout: 0.5}
		return &model{*nn.NewLSTM(2, 3, o), []*nn.GRU{nn.NewGRU(2, 3, nn.RecurrentOptions{Bidirectional: true}, nn.NoBias())}, nn.NewRNNCell(2, 3), nn.NewLinear(3, 1)}
	}
	m, other := build(), build()
	var names []string
	for _, p := range nn.NamedParameters(m) {
		names = append(names, p.Name)
	}
	want := []string{
		"encoder.weight_ih_l0", "encoder.weight_hh_l0", "encoder.bias_ih_l0", "encoder.bias_hh_l0", "encoder.weight_ih_l1", "encoder.weight_hh_l1",
		"encoder.bias_ih_l1", "encoder.bias_hh_l1", "rest.0.weight_ih_l0", "rest.0.weight_hh_l0", "rest.0.weight_ih_l0_reverse", "rest.0.weight_hh_l0_reverse",
		"cell.weight_ih", "cell.weight_hh", "cell.bias_ih", "cell.bias_hh", "head.weight", "head.bias"}
	if !slices.Equal(names, want) {
		t.Fatalf("got  %v\nwant %v", names, want)
	}
	if err := nn.LoadStateDict(other, nn.StateDict(m)); err != nil {
		t.Fatal(err)
	}
	x := tensor.Ones(3, 1, 2)
	if nn.Eval(m); m.Encoder.Training() || m.Rest[0].Training() || m.Cell.Training() {
		t.Error("still in training")
	}
	nn.Eval(other)
	a, _, _ := m.Encoder.Forward(x, nil, nil)
	b, _, _ := other.Encoder.Forward(x, nil, nil)
	if !slices.Equal(a.Floats(), b.Floats()) {
		t.Errorf("%v, loaded %v", a, b)
	}
	calls := 0
	defer m.Encoder.RegisterForwardHook(func(_, y *tt) *tt { calls++; return y.MulScalar(2) })()
	if c, _, _ := m.Encoder.Forward(x, nil, nil); calls != 1 || !c.AllClose(a.MulScalar(2), 0, 0) {
		t.Errorf("a hook that was called %d times gave %v", calls, c)
	}
}

// Several goroutines may run one layer at the same time, forward and backward.
func TestRecurrentAtOnce(t *testing.T) {
	l := nn.NewLSTM(2, 3, nn.RecurrentOptions{Bidirectional: true})
	x := tensor.Root().Randn(6, 2, 2)
	const n = 4
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			tensor.Do(func(s *tensor.Scope) {
				y, _, _ := l.Forward(x.In(s), nil, nil)
				y.Sum().Backward()
			})
		})
	}
	wait.Wait()
	sum := l.Weights[1].WeightHH.Grad().Floats()
	nn.ZeroGrad(l)
	tensor.Do(func(s *tensor.Scope) {
		y, _, _ := l.Forward(x.In(s), nil, nil)
		y.Sum().Backward()
	})
	for i, g := range l.Weights[1].WeightHH.Grad().Floats() {
		if math.Abs(sum[i]-n*g) > 1e-5 {
			t.Errorf("gradient %d is %v of %d goroutines and %v of one", i, sum[i], n, g)
		}
	}
}

// PadPackedSequence undoes PackPaddedSequence, for sequences in any order. Gradients reach the
// original sequences.
func TestPacking(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		list := []*tt{s.Rand(2, 3).RequiresGrad(), s.Rand(4, 3).RequiresGrad(), s.Rand(1, 3).RequiresGrad()}
		lengths := []int{2, 4, 1}
		for _, first := range []bool{false, true} {
			for _, left := range []bool{false, true} {
				x := nn.PadSequence(list, nn.PadOptions{BatchFirst: first, Value: -1, Length: 5, Left: left})
				if first {
					x = x.Transpose(0, 1)
				}
				for b, seq := range list {
					at, pad := 0, seq.Dim(0)
					if left {
						at, pad = 5-seq.Dim(0), 0
					}
					one := x.Select(1, b)
					if !slices.Equal(one.Narrow(0, at, seq.Dim(0)).Floats(), seq.Floats()) {
						t.Errorf("sequence %d: %v of %v", b, one, seq)
					}
					for _, v := range one.Narrow(0, pad, 5-seq.Dim(0)).Floats() {
						if v != -1 {
							t.Errorf("sequence %d is padded with %v", b, v)
						}
					}
				}
			}
			x := nn.PadSequence(list, nn.PadOptions{BatchFirst: first})
			p := nn.PackPaddedSequence(x, lengths, nn.PackOptions{BatchFirst: first, Unsorted: true})
			q := nn.PackSequence(list, true)
			if !slices.Equal(p.Data.Floats(), q.Data.Floats()) || !slices.Equal(p.BatchSizes, []int{3, 2, 1, 1}) || !slices.Equal(p.Sorted, []int{1, 0, 2}) || !slices.Equal(p.Unsorted, q.Unsorted) {
				t.Errorf("packed: %v %v %v, of sequences %v", p.Data, p.BatchSizes, p.Sorted, q.Data)
			}
			y, n := nn.PadPackedSequence(p, nn.PadOptions{BatchFirst: first})
			if !slices.Equal(y.Floats(), x.Floats()) || !slices.Equal(n, lengths) || y.Shape() != x.Shape() {
				t.Errorf("padded again: %v %v, want %v", y, n, x)
			}
			for i, u := range nn.UnpadSequence(y, n, first) {
				if !slices.Equal(u.Floats(), list[i].Floats()) {
					t.Errorf("sequence %d: %v", i, u)
				}
			}
			for i, g := range tensor.Gradients(y.Square().Sum(), list) {
				if !slices.Equal(g.Floats(), list[i].MulScalar(2).Floats()) {
					t.Errorf("the gradient of sequence %d: %v", i, g)
				}
			}
		}
	}, tensor.Seed(5))
}

// Dropout acts between layers, and only in training.
func TestRecurrentDropout(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewGRU(3, 4, nn.RecurrentOptions{Layers: 2, Dropout: 1}, nn.In(s))
		x := s.Rand(3, 2, 3)
		a, _ := l.Forward(x, nil)
		b, _ := l.Forward(x.MulScalar(2), nil)
		if !slices.Equal(a.Floats(), b.Floats()) {
			t.Error("what is dropped between layers arrives")
		}
		nn.Eval(l)
		if c, _ := l.Forward(x, nil); slices.Equal(a.Floats(), c.Floats()) {
			t.Error("dropout in evaluation")
		}
	}, tensor.Seed(5))
}

// Results in half precision equal those in float32 except for rounding.
func TestRecurrentHalf(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, ty := range []dtype.Type{dtype.F16, dtype.BF16} {
			l, wide := nn.NewLSTM(3, 4, nn.RecurrentOptions{}, nn.In(s), nn.Typed(ty)), nn.NewLSTM(3, 4, nn.RecurrentOptions{}, nn.In(s))
			s.Do(func(c *tensor.Scope) {
				for i, p := range nn.Parameters(wide) {
					p.In(c).Copy(nn.Parameters(l)[i])
				}
			}, tensor.NoGrad())
			x := s.Typed(ty).Rand(5, 2, 3).RequiresGrad()
			y, _, _ := l.Forward(x, nil, nil)
			z, _, _ := wide.Forward(x.Float(), nil, nil)
			if y.Type() != ty || !y.Float().AllClose(z, 0.03, 0.01) {
				t.Errorf("%v: %v, want %v", ty, y, z)
			}
			g := tensor.Gradients(y.Float().Sum(), []*tt{x})[0]
			if h := tensor.Gradients(z.Sum(), []*tt{x})[0]; g.Type() != ty || !g.Float().AllClose(h.Float(), 0.05, 0.02) {
				t.Errorf("%v: gradient %v, want %v", ty, g, h)
			}
		}
	}, tensor.Seed(5))
}

func TestRecurrentMisuse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewLSTM(3, 4, nn.RecurrentOptions{Layers: 2}, nn.In(s))
		cell := nn.NewGRUCell(3, 4, nn.In(s))
		x := s.Rand(5, 2, 3)
		lstm := func(x, h, c *tt) func() { return func() { l.Forward(x, h, c) } }
		pack := func(lengths ...int) func() {
			return func() { nn.PackPaddedSequence(x, lengths, nn.PackOptions{}) }
		}
		packed := func(p nn.PackedSequence) func() { return func() { l.ForwardPacked(&p, nil, nil) } }
		for name, c := range map[string]struct {
			kind error
			f    func()
			says string
		}{
			"nil":              {tensor.ErrValue, lstm(nil, nil, nil), "nil"},
			"rank":             {tensor.ErrShape, lstm(s.Rand(3), nil, nil), "[3]"},
			"features":         {tensor.ErrShape, lstm(s.Rand(5, 2, 4), nil, nil), "4 features, the layer needs 3"},
			"no step":          {tensor.ErrShape, lstm(s.Zeros(0, 2, 3), nil, nil), "no step"},
			"type":             {tensor.ErrType, lstm(x.Double(), nil, nil), "float64"},
			"type of a state":  {tensor.ErrType, lstm(x, s.Typed(dtype.F64).Zeros(2, 2, 4), nil), "float64"},
			"h0":               {tensor.ErrShape, lstm(x, s.Zeros(1, 2, 4), nil), "h0 has shape [1, 2, 4], it must be [2, 2, 4]"},
			"c0":               {tensor.ErrShape, lstm(x, nil, s.Zeros(2, 2, 3)), "c0"},
			"h0 with n":        {tensor.ErrShape, lstm(s.Rand(5, 3), s.Zeros(2, 1, 4), nil), "must be [2, 4]: layers and directions, features"},
			"nil packed":       {tensor.ErrValue, func() { l.ForwardPacked(nil, nil, nil) }, "nil"},
			"packed nothing":   {tensor.ErrValue, packed(nn.PackedSequence{}), "nil"},
			"packed steps":     {tensor.ErrValue, packed(nn.PackedSequence{Data: s.Rand(3, 3)}), "no step"},
			"packed rows":      {tensor.ErrShape, packed(nn.PackedSequence{Data: s.Rand(3, 3), BatchSizes: []int{2, 2}}), "need 4 rows"},
			"packed growing":   {tensor.ErrValue, packed(nn.PackedSequence{Data: s.Rand(3, 3), BatchSizes: []int{1, 2}}), "do not grow"},
			"packed order":     {tensor.ErrValue, packed(nn.PackedSequence{Data: s.Rand(3, 3), BatchSizes: []int{2, 1}, Sorted: []int{0, 2}, Unsorted: []int{0, 1}}), "undo each other"},
			"packed rank":      {tensor.ErrShape, packed(nn.PackedSequence{Data: s.Rand(3), BatchSizes: []int{2, 1}}), "[rows, features]"},
			"packed width":     {tensor.ErrShape, packed(nn.PackedSequence{Data: s.Rand(3, 2), BatchSizes: []int{2, 1}}), "2 features"},
			"lengths":          {tensor.ErrValue, pack(5), "1 lengths for 2 sequences"},
			"a length of 0":    {tensor.ErrValue, pack(5, 0), "sequence 1 has length 0"},
			"long":             {tensor.ErrValue, pack(6, 5), "between 1 and the 5 steps"},
			"unsorted":         {tensor.ErrValue, pack(2, 5), "Unsorted: true"},
			"pack a vector":    {tensor.ErrShape, func() { nn.PackPaddedSequence(s.Rand(3), []int{3}, nn.PackOptions{}) }, "[3]"},
			"pad to less":      {tensor.ErrValue, func() { nn.PadSequence([]*tt{x}, nn.PadOptions{Length: 4}) }, "5 steps, Length is 4"},
			"pad nothing":      {tensor.ErrValue, func() { nn.PadSequence(nil, nn.PadOptions{}) }, "no sequences"},
			"pad other shapes": {tensor.ErrShape, func() { nn.PadSequence([]*tt{x, s.Rand(5, 3, 3)}, nn.PadOptions{}) }, "number 1"},
			"pad left": {tensor.ErrValue, func() {
				nn.PadPackedSequence(nn.PackPaddedSequence(x, []int{5, 5}, nn.PackOptions{}), nn.PadOptions{Left: true})
			}, "padded behind"},
			"unpad lengths":  {tensor.ErrValue, func() { nn.UnpadSequence(x, []int{5}, false) }, "1 lengths"},
			"unpad more":     {tensor.ErrValue, func() { nn.UnpadSequence(x, []int{5, 6}, false) }, "length 6"},
			"cell rank":      {tensor.ErrShape, func() { cell.Forward(x, nil) }, "[5, 2, 3]"},
			"cell features":  {tensor.ErrShape, func() { cell.Forward(s.Rand(2, 4), nil) }, "[n, 3]"},
			"cell state":     {tensor.ErrShape, func() { cell.Forward(s.Rand(2, 3), s.Rand(4)) }, "[2 4], not [4]"},
			"cell type":      {tensor.ErrType, func() { cell.Forward(s.Rand(2, 3).Double(), nil) }, "float64"},
			"nil for a cell": {tensor.ErrValue, func() { cell.Forward(nil, nil) }, "nil"},
		} {
			err := tensor.Try(c.f)
			if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for i, f := range []func(){
			func() { nn.NewRNN(0, 1, nn.RecurrentOptions{}) },
			func() { nn.NewGRU(1, 1, nn.RecurrentOptions{Layers: -1}) },
			func() { nn.NewGRU(1, 4, nn.RecurrentOptions{ProjSize: 2}) },
			func() { nn.NewLSTM(1, 4, nn.RecurrentOptions{ProjSize: 4}) },
			func() { nn.NewLSTM(1, 4, nn.RecurrentOptions{Relu: true}) },
			func() { nn.NewRNN(1, 4, nn.RecurrentOptions{Dropout: math.NaN()}) },
			func() { nn.NewLSTMCell(1, 0) },
		} {
			func() {
				defer func() {
					if _, ok := recover().(*nn.Error); !ok {
						t.Errorf("layer %d, which cannot be, was made", i)
					}
				}()
				f()
			}()
		}
	})
}
