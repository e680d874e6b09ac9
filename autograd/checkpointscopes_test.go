package autograd_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// segmented is a Function that doubles its operand. f computes the gradient.
type segmented struct{ f func(x ...*tt) *tt }

func (segmented) Name() string                            { return "segmented" }
func (segmented) Forward(c *tensor.Context, in []*tt) *tt { c.Save(in[0]); return in[0].MulScalar(2) }
func (f segmented) VJP(c *tensor.Context, g *tt) []*tt    { return []*tt{f.f(g, c.Saved(0))} }
func (segmented) Autocast() tensor.AutocastClass          { return tensor.AutocastOff }

// TestCheckpointInScopesOfTheLibrary calls a segment in a scope that the library made for itself:
// in an op that is composed under autocast, or in a VJP that is differentiated. When Backward
// recomputes the segment, that scope has ended and has been reused. The gradients must have the
// same bits, also when Backward runs a second time.
func TestCheckpointInScopesOfTheLibrary(t *testing.T) {
	under := func(f func(x *tt) *tt, class tensor.AutocastClass) func(x *tt) *tt {
		return func(x *tt) *tt {
			return tensor.WithAutocast("block", class, func(in []*tt) *tt { return f(in[0]) }, x)
		}
	}
	type call func(f func(x ...*tt) *tt, x ...*tt) *tt
	for name, block := range map[string]func(body func(x ...*tt) *tt, call call) func(x *tt) *tt{
		"high": func(body func(x ...*tt) *tt, call call) func(x *tt) *tt {
			return under(func(x *tt) *tt { return call(body, x) }, tensor.AutocastHigh)
		},
		"off": func(body func(x ...*tt) *tt, call call) func(x *tt) *tt {
			return under(func(x *tt) *tt { return call(body, x) }, tensor.AutocastOff)
		},
		"nested": func(body func(x ...*tt) *tt, call call) func(x *tt) *tt {
			return under(func(x *tt) *tt { return call(func(x ...*tt) *tt { return call(body, x[0]) }, x) }, tensor.AutocastHigh)
		},
		"in a child": func(body func(x ...*tt) *tt, call call) func(x *tt) *tt {
			return under(func(x *tt) *tt {
				s := x.Scope().New()
				y := call(body, call(body, x.In(s).MulScalar(2)))
				s.Close(y)
				return y
			}, tensor.AutocastHigh)
		},
		"in a gradient": func(body func(x ...*tt) *tt, call call) func(x *tt) *tt {
			return func(x *tt) *tt {
				y := tensor.Apply(segmented{func(x ...*tt) *tt {
					return call(func(x ...*tt) *tt { return body(x[0]).Mul(x[1]) }, x...)
				}}, x)
				return tensor.Gradients(y.Sum(), []*tt{x}, tensor.CreateGraph())[0]
			}
		},
	} {
		run := func(call call) (all []byte) {
			tensor.Do(func(s *tensor.Scope) {
				w, v := s.Randn(6, 6).RequiresGrad(), s.Randn(6, 6)
				body := func(x ...*tt) *tt {
					return x[0].MatMul(w).Tanh().Mul(v).Add(tensor.Root().Ones(6, 6)).MatMul(w).Sigmoid()
				}
				s.Do(func(s *tensor.Scope) {
					x := s.Randn(6, 6).RequiresGrad()
					y := block(body, call)(x)
					runtime.GC() // drop the scopes that wait to be reused
					runtime.GC()
					y.Sum().Backward(tensor.RetainGraph())
					all = append(w.Grad().Bytes(), x.Grad().Bytes()...)
					w.ZeroGrad()
					x.ZeroGrad()
					y.Sum().Backward()
					if again := append(w.Grad().Bytes(), x.Grad().Bytes()...); !bytes.Equal(all, again) {
						t.Errorf("%s: the second Backward gave another gradient", name)
					}
				}, tensor.Autocast(dtype.BF16))
			}, tensor.Seed(3))
			return all
		}
		want := run(func(f func(x ...*tt) *tt, x ...*tt) *tt { return f(x...) })
		if got := run(autograd.Checkpoint); !bytes.Equal(got, want) {
			t.Errorf("%s: gradients differ from those without Checkpoint", name)
		}
	}
}
