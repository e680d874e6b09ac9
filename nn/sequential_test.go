package nn_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// holder is a layer of a user that keeps what it sees.
type holder struct {
	nn.Base
	seen []*tt
}

func (h *holder) Forward(x *tt) *tt {
	y := x.MulScalar(2)
	h.seen = append(h.seen, x, y)
	return y
}

// What a user's layer, or a hook, sees is not freed by a chain around it, also where it comes in or goes out through layers that return their
// input itself.
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
