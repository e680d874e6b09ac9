package tensor_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// knownActivations are the methods that a linear layer can fuse into its launch.
var knownActivations = map[string]func(*tensor.Tensor) *tensor.Tensor{
	"Relu": (*tensor.Tensor).Relu, "Relu6": (*tensor.Tensor).Relu6, "Silu": (*tensor.Tensor).Silu, "Gelu": (*tensor.Tensor).Gelu,
	"GeluTanh": (*tensor.Tensor).GeluTanh, "Tanh": (*tensor.Tensor).Tanh, "Sigmoid": (*tensor.Tensor).Sigmoid, "Selu": (*tensor.Tensor).Selu,
	"Mish": (*tensor.Tensor).Mish, "Hardsigmoid": (*tensor.Tensor).Hardsigmoid, "Hardswish": (*tensor.Tensor).Hardswish,
}

// spans is a tracer. It lists the names of the spans of one kind, and counts primitives.
type spans struct {
	kind  device.SpanKind
	names []string
	ops   int
}

func (*spans) Wants() (w device.TraceWants) { return w }
func (*spans) End(device.SpanID)            {}
func (*spans) Recorded(uint64)              {}
func (*spans) Copy(device.CopyEvent)        {}
func (*spans) Sync(device.SyncEvent)        {}
func (*spans) Memory(device.MemoryEvent)    {}
func (l *spans) Kernel(device.KernelEvent)  { l.ops++ }

func (l *spans) Begin(s device.Span) device.SpanID {
	if s.Kind == l.kind {
		l.names = append(l.names, s.Name)
	}
	return device.NewSpanID()
}

// watching runs f under a tracer, and returns the spans of the given kind.
func watching(t *testing.T, kind device.SpanKind, f func()) *spans {
	t.Helper()
	l := &spans{kind: kind}
	if !device.SetTracer(l) {
		t.Fatal("there is another tracer")
	}
	defer device.SetTracer(nil)
	f()
	return l
}

// TestLinearAct computes a linear layer and its activation in one op, and by two separate ops.
// Results and gradients must have the same bits. The device must run one op in the forward pass. In
// the backward pass, the derivative of the activation must be fused into the product that computes
// the gradient of the activation's result.
func TestLinearAct(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	type tt = tensor.Tensor
	for name, act := range knownActivations {
		for k, on := range []tensor.Option{tensor.On(cpu.Get()), tensor.On(gpus[0])} {
			for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
				for _, byInputs := range []bool{false, true} {
					tensor.Do(func(s *tensor.Scope) {
						random := func(dims ...int) *tt { return s.Randn(dims...).Cast(typ).Detach().RequiresGrad() }
						x, w, v, b := random(2, 5, 8), random(16, 8), random(3, 16), random(16)
						if byInputs {
							w = random(8, 16)
						}
						leaves := []*tt{x, w, b, v}
						what := fmt.Sprintf("%s, %v, by inputs %v, device %d", name, typ, byInputs, k)
						run := func(fused bool) (y *tt, forward, backward *spans, grads []*tt) {
							forward = watching(t, device.SpanOp, func() {
								switch {
								case fused && byInputs:
									y = x.LinearTAct(w, b, act)
								case fused:
									y = x.LinearAct(w, b, act)
								case byInputs:
									y = act(x.LinearT(w, b))
								default:
									y = act(x.Linear(w, b))
								}
							})
							if !fused {
								y.RegisterHook(func(*tt) *tt { return nil })
							}
							z := y.Linear(v, nil).Square().Sum()
							backward = watching(t, device.SpanBackward, func() { grads = tensor.Gradients(z, leaves) })
							return y, forward, backward, grads
						}
						y, forward, backward, got := run(true)
						want, twice, apart, ref := run(false)
						if !bytes.Equal(y.Bytes(), want.Bytes()) {
							t.Errorf("%s: %v, want %v", what, y, want)
						}
						for i := range got {
							if !bytes.Equal(got[i].Bytes(), ref[i].Bytes()) {
								t.Errorf("%s: gradient %d is %v, want %v", what, i, got[i], ref[i])
							}
						}
						if n, m := forward.ops, twice.ops; n != m-1 {
							t.Errorf("%s: %d ops of the device, and %d of two", what, n, m)
						}
						if n, m := backward.ops, apart.ops; n != m-1 {
							t.Errorf("%s: %d ops of the device in %v, and %d in %v", what, n, backward.names, m, apart.names)
						}
					}, on, tensor.Seed(3))
				}
			}
		}
	}
}

// TestLinearActOfAFunction passes a function that is not a known activation. LinearAct must call
// the function with the result of the layer. LinearAct must refuse nil.
func TestLinearActOfAFunction(t *testing.T) {
	type tt = tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		x, w := s.Randn(3, 4), s.Randn(5, 4).RequiresGrad()
		y := x.LinearAct(w, nil, func(y *tt) *tt { return y.Gelu().MulScalar(2) })
		if want := x.Linear(w, nil).Gelu().MulScalar(2); !bytes.Equal(y.Bytes(), want.Bytes()) {
			t.Errorf("%v, want %v", y, want)
		}
		var e *tensor.Error
		if err := tensor.Try(func() { x.LinearAct(w, nil, nil) }); !errors.As(err, &e) || !errors.Is(err, tensor.ErrValue) {
			t.Errorf("nil: %v", err)
		}
	}, tensor.Seed(1))
}

// TestLinearActKeeps checks that LinearAct keeps the product only if the activation's gradient
// needs it. The second derivative must equal that of the two separate ops.
func TestLinearActKeeps(t *testing.T) {
	type tt = tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		x, w := s.Randn(64, 4), s.Randn(512, 4).RequiresGrad()
		result := 4 * 64 * 512
		for _, c := range []struct {
			act  func(*tt) *tt
			opts []tensor.Option
			most int
		}{
			{(*tt).Relu, nil, 1}, {(*tt).Tanh, nil, 1}, {(*tt).Silu, nil, 2}, {(*tt).Silu, []tensor.Option{tensor.NoGrad()}, 1},
		} {
			s.Do(func(s *tensor.Scope) {
				before := int(s.Device().Stats().Allocated)
				y := x.In(s).LinearAct(w, nil, c.act)
				if n := int(s.Device().Stats().Allocated) - before; n != c.most*result {
					t.Errorf("%d bytes for a result of %d, want %d times that", n, result, c.most)
				}
				y.Free()
			}, c.opts...)
		}
		second := func(y *tt) *tt {
			g := tensor.Gradients(y.Square().Sum(), []*tt{w}, tensor.CreateGraph())
			return tensor.Gradients(g[0].Square().Sum(), []*tt{w})[0]
		}
		for _, act := range []func(*tt) *tt{(*tt).Silu, (*tt).Tanh} {
			if got, want := second(x.LinearAct(w, nil, act)), second(act(x.Linear(w, nil))); !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("second derivative %v, want %v", got, want)
			}
		}
	}, tensor.Seed(1))
}

// TestActivationsGradientAlone checks when the gradient of an activation is fused into the gradient
// of the layer after it. In some cases a separate op must compute it, for example if something else
// uses the gradient of the activation's result. All gradients must equal those with CreateGraph,
// which fuses nothing.
func TestActivationsGradientAlone(t *testing.T) {
	type tt = tensor.Tensor
	type layers struct{ x, w, b, v *tt }
	layer := func(l layers) *tt { return l.x.LinearAct(l.w, l.b, (*tt).Silu) }
	behind := func(y *tt, l layers) *tt { return y.Linear(l.v, nil).Square().Sum() }
	plain := func(l layers) *tt { return behind(layer(l), l) }
	for name, c := range map[string]struct {
		// whether the gradient of the activation is fused into the gradient of the layer after it
		joins bool
		loss  func(l layers) *tt
		opts  []tensor.GradOption
	}{
		"plain":    {true, plain, nil},
		"retained": {true, plain, []tensor.GradOption{tensor.RetainGraph()}},
		"composed": {true, func(l layers) *tt { return behind(l.x.Linear(l.w, l.b).Silu(), l) }, nil},
		"no layer": {true, func(l layers) *tt { return behind(l.x.MatMul(l.w.T()).Add(l.b).Silu(), l) }, nil},
		"a leaf":   {true, func(l layers) *tt { return behind(l.x.Reshape(-1).Silu().Reshape(2, 5, 6), l) }, nil},
		"in place": {false, func(l layers) *tt { return behind(l.x.Linear(l.w, l.b).SiluInPlace(), l) }, nil},
		"reshaped": {true, func(l layers) *tt { return behind(layer(l).Reshape(5, 2, 6).Flatten(0, 1), l) }, nil},
		"recomputed": {true, func(l layers) *tt {
			return tensor.Recompute(func(x []*tt) []*tt {
				l.x = x[0]
				return []*tt{plain(l)}
			}, l.x)[0]
		}, nil},
		"anomaly":     {false, plain, []tensor.GradOption{nil}},
		"graph":       {false, plain, []tensor.GradOption{tensor.CreateGraph()}},
		"twice":       {false, func(l layers) *tt { y := layer(l); return behind(y, l).Add(y.Sum()) }, nil},
		"both":        {false, func(l layers) *tt { y := layer(l); return behind(y, l).Add(behind(y, l)) }, nil},
		"transposed":  {false, func(l layers) *tt { return behind(layer(l).Reshape(6, 10).T(), l) }, nil},
		"part":        {false, func(l layers) *tt { return behind(layer(l).Narrow(0, 1, 1), l) }, nil},
		"pre used":    {false, func(l layers) *tt { y := l.x.Linear(l.w, l.b); return behind(y.Silu(), l).Add(y.Sum()) }, nil},
		"hook":        {false, func(l layers) *tt { y := layer(l); y.RegisterHook(func(*tt) *tt { return nil }); return behind(y, l) }, nil},
		"kept":        {false, func(l layers) *tt { y := layer(l); y.RetainGrad(); return behind(y, l) }, nil},
		"with number": {false, func(l layers) *tt { return behind(l.x.Linear(l.w, l.b).LeakyRelu(0.1), l) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			modes := []tensor.Option{tensor.Seed(5)}
			if len(c.opts) == 1 && c.opts[0] == nil {
				modes, c.opts = append(modes, tensor.DetectAnomaly()), nil
			}
			tensor.Do(func(s *tensor.Scope) {
				l := layers{s.Randn(2, 5, 6), s.Randn(6, 6), s.Randn(6), s.Randn(3, 6)}
				leaves := []*tt{l.x.RequiresGrad(), l.w.RequiresGrad(), l.b.RequiresGrad(), l.v.RequiresGrad()}
				z := c.loss(l)
				want := tensor.Gradients(z, leaves, tensor.CreateGraph(), tensor.AllowUnused())
				var got []*tt
				seen := watching(t, device.SpanBackward, func() { got = tensor.Gradients(z, leaves, append(c.opts, tensor.AllowUnused())...) })
				for i, w := range want {
					if (w == nil) != (got[i] == nil) || w != nil && !got[i].Detach().AllClose(w.Detach(), 1e-6, 1e-6) {
						t.Errorf("gradient %d is %v, want %v", i, got[i], w)
					}
				}
				if joins := !slices.ContainsFunc(seen.names, func(n string) bool { return n == "SiluBackward" || n == "LeakyReluBackward" }); joins != c.joins {
					t.Errorf("joins: %v, in %v", joins, seen.names)
				}
			}, modes...)
		})
	}
}

// TestActivationsGradientAsked checks that Gradients can return the gradient of an activation's
// result or of its operand.
func TestActivationsGradientAsked(t *testing.T) {
	type tt = tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		x, w, v := s.Randn(5, 4), s.Randn(6, 4).RequiresGrad(), s.Randn(3, 6)
		pre := x.Linear(w, nil)
		y := pre.Silu()
		z := y.Linear(v, nil).Square().Sum()
		want := tensor.Gradients(z, []*tt{y, pre, w}, tensor.CreateGraph())
		for i, in := range []*tt{y, pre, w} {
			g := tensor.Gradients(z, []*tt{in}, tensor.RetainGraph())[0]
			if !g.AllClose(want[i].Detach(), 1e-6, 1e-6) {
				t.Errorf("gradient %d is %v, want %v", i, g, want[i])
			}
		}
		z.Backward()
		var e *tensor.Error
		if err := tensor.Try(func() { z.Backward() }); !errors.As(err, &e) || !errors.Is(err, tensor.ErrGrad) {
			t.Errorf("a second run: %v", err)
		}
		if err := tensor.Try(func() { tensor.Gradients(y, []*tt{w}, tensor.GradOutput(y.Detach())) }); !errors.Is(err, tensor.ErrGrad) {
			t.Errorf("a run from the activation that was gone past: %v", err)
		}
	}, tensor.Seed(6))
}
