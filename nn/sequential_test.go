package nn_test

import (
	"bytes"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// holder is a user's layer that keeps a reference to each tensor that it receives or returns.
type holder struct {
	nn.Base
	seen []*tt
}

func (h *holder) Forward(x *tt) *tt {
	y := x.MulScalar(2)
	h.seen = append(h.seen, x, y)
	return y
}

// A chain frees no tensor that a user's layer or a hook has seen, not even after layers that return
// their own input.
func TestSequentialFreesNothingSeen(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		in := nn.In(s)
		x := s.Randn(3, 4)
		linear := func() nn.Module { return nn.NewLinear(4, 4, in) }
		evaluated := nn.Eval(nn.NewDropout(0.5))
		for name, make := range map[string]func(h nn.Module) *nn.Sequential{
			"plain": func(h nn.Module) *nn.Sequential { return nn.NewSequential(linear(), h, &nn.ReLU{}) },
			"behind layers that pass on": func(h nn.Module) *nn.Sequential {
				return nn.NewSequential(linear(), nn.Identity{}, evaluated, h, nn.Identity{}, evaluated, linear(), &nn.ReLU{})
			},
			"in a chain that passes on its input": func(h nn.Module) *nn.Sequential {
				return nn.NewSequential(linear(), nn.NewSequential(nn.Identity{}, h, &nn.ReLU{}), linear())
			},
			"in a chain that passes on its result": func(h nn.Module) *nn.Sequential {
				return nn.NewSequential(linear(), nn.NewSequential(&nn.ReLU{}, h, evaluated), linear(), &nn.ReLU{})
			},
			"deep inside": func(h nn.Module) *nn.Sequential {
				return nn.NewSequential(linear(), nn.NewSequential(nn.NewSequential(nn.Identity{}, h, nn.Identity{}), nn.Identity{}), linear(), &nn.ReLU{})
			},
		} {
			for _, hook := range []bool{false, true} {
				user, hooked := &holder{}, &nn.Tanh{}
				hooked.RegisterForwardHook(func(x, y *tt) *tt { user.seen = append(user.seen, x, y); return nil })
				m := make(user)
				if hook {
					m = make(hooked)
				}
				err := tensor.Try(func() {
					y := m.Forward(x)
					for _, v := range user.seen {
						v.AddScalar(1)
					}
					y.Sum().Backward()
				})
				if err != nil || len(user.seen) != 2 {
					t.Errorf("%s, with a hook %v: %d tensors were seen; %v", name, hook, len(user.seen), err)
				}
			}
		}
	})
}

// kernelCount counts the kernels that the devices run.
type kernelCount struct{ n int }

func (*kernelCount) Wants() (w device.TraceWants)    { return w }
func (*kernelCount) Begin(device.Span) device.SpanID { return device.NewSpanID() }
func (*kernelCount) End(device.SpanID)               {}
func (*kernelCount) Recorded(uint64)                 {}
func (c *kernelCount) Kernel(device.KernelEvent)     { c.n++ }
func (*kernelCount) Copy(device.CopyEvent)           {}
func (*kernelCount) Sync(device.SyncEvent)           {}
func (*kernelCount) Memory(device.MemoryEvent)       {}

// An activation after a linear layer runs in the same launch, unless a hook or a user's layer sees
// the tensor between them. A relu before a dropout runs in the dropout's launch instead.
func TestSequentialActivations(t *testing.T) {
	hook := func(_, y *tensor.Tensor) *tensor.Tensor { return nil }
	hooked := func(l *nn.Linear) *nn.Linear { l.RegisterForwardHook(hook); return l }
	relu := &nn.ReLU{}
	relu.RegisterForwardHook(hook)
	evaluating := nn.Eval(nn.NewDropout(0.5))
	type own struct{ nn.ReLU }
	const in, out = 6, 5
	linear := func() *nn.Linear { return nn.NewLinear(in, out) }
	for name, c := range map[string]struct {
		layers  []nn.Module
		kernels int
	}{
		"relu":           {[]nn.Module{linear(), nn.ReLU{}}, 1},
		"pointer":        {[]nn.Module{linear(), &nn.ReLU{}}, 1},
		"gelu":           {[]nn.Module{linear(), nn.GELU{Tanh: true}, nn.NewDropout(0)}, 1},
		"evaluating":     {[]nn.Module{linear(), nn.SiLU{}, evaluating}, 1},
		"dropout":        {[]nn.Module{linear(), nn.Tanh{}, nn.NewDropout(0.5)}, 2},
		"relu, dropout":  {[]nn.Module{linear(), nn.ReLU{}, nn.NewDropout(0.5)}, 2},
		"seen":           {[]nn.Module{hooked(linear()), nn.ReLU{}}, 2},
		"seen behind":    {[]nn.Module{linear(), relu}, 2},
		"a copy of that": {[]nn.Module{linear(), *relu}, 2},
		"of one's own":   {[]nn.Module{linear(), own{}}, 2},
		"with a number":  {[]nn.Module{linear(), nn.NewLeakyReLU(0.1)}, 2},
	} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(4, in)
			seed, offset := s.Generator().State()
			l := &kernelCount{}
			if !device.SetTracer(l) {
				t.Fatal("there is a tracer")
			}
			y := nn.NewSequential(c.layers...).Forward(x)
			device.SetTracer(nil)
			if l.n != c.kernels {
				t.Errorf("%s: %d kernels, want %d", name, l.n, c.kernels)
			}
			s.Generator().SetState(seed, offset)
			want := x
			for _, m := range c.layers {
				want = m.Forward(want)
			}
			if !bytes.Equal(y.Bytes(), want.Bytes()) {
				t.Errorf("%s: %v, want %v", name, y, want)
			}
		}, tensor.Seed(1))
	}
}
