package autograd_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// stack is a list of layers. Each layer is a function that computes x·W, relu and dropout.
type stack struct {
	w   []*tt
	fns []func(x *tt) *tt
}

func newStack(s *tensor.Scope, layers, width int) *stack {
	m := &stack{}
	for range layers {
		w := s.Typed(dtype.F32).Normal(0, 0.2, width, width).RequiresGrad()
		m.w = append(m.w, w)
		m.fns = append(m.fns, func(x *tt) *tt {
			p := x.MatMul(w.In(x.Scope()))
			defer p.Free()
			r := p.Relu()
			defer r.Free()
			return r.Dropout(0.3)
		})
	}
	return m
}

func (m *stack) forward(x *tt) *tt {
	for _, f := range m.fns {
		x = f(x)
	}
	return x
}

// gradients returns the bytes of the weights' gradients, and clears the gradients.
func (m *stack) gradients(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for i, w := range m.w {
		if w.Grad() == nil {
			t.Fatalf("weight %d has no gradient", i)
		}
		all = append(all, w.Grad().Bytes()...)
		w.ZeroGrad()
	}
	return all
}

func failure(t *testing.T, f func()) error {
	t.Helper()
	err := tensor.Try(f)
	if err == nil {
		t.Fatal("there is no error")
	}
	return err
}

func wants(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v\nis not of the kind %v", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v\ndoes not say %q", err, w)
		}
	}
}

// TestCheckpointHasTheSameBits divides a chain of layers with dropout into segments in several
// ways. The gradients must have the same bits as without segments. The random generator must
// advance as far as without segments.
func TestCheckpointHasTheSameBits(t *testing.T) {
	const layers, width, batch = 7, 16, 8
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	one := func(f func(x *tt) *tt) func(x ...*tt) *tt { return func(x ...*tt) *tt { return f(x[0]) } }
	forms := map[string]func(m *stack, x *tt) *tt{
		"whole": func(m *stack, x *tt) *tt { return autograd.Checkpoint(one(m.forward), x) },
		"each": func(m *stack, x *tt) *tt {
			for _, f := range m.fns {
				x = autograd.Checkpoint(one(f), x)
			}
			return x
		},
		"every other": func(m *stack, x *tt) *tt {
			for i, f := range m.fns {
				if x = f(x); i%2 == 0 {
					x = autograd.Checkpoint(one(func(x *tt) *tt { return x.Dropout(0.1).Tanh() }), x)
				}
			}
			return x
		},
		"nested": func(m *stack, x *tt) *tt {
			return autograd.Checkpoint(func(x ...*tt) *tt {
				y := autograd.Checkpoint(one((&stack{fns: m.fns[:3]}).forward), x[0])
				y = m.fns[3](y)
				return autograd.Checkpoint(func(x ...*tt) *tt {
					return autograd.Checkpoint(one((&stack{fns: m.fns[5:]}).forward), m.fns[4](x[0]))
				}, y)
			}, x)
		},
	}
	for n := 1; n <= layers; n++ {
		forms[fmt.Sprintf("%d segments", n)] = func(m *stack, x *tt) *tt { return autograd.CheckpointSequential(m.fns, n, x) }
	}
	for _, on := range []tensor.Option{tensor.Seed(1), tensor.On(gpus[0])} {
		tensor.Do(func(s *tensor.Scope) {
			m := newStack(s, layers, width)
			data := s.Randn(batch, width)
			run := func(form func(m *stack, x *tt) *tt, inputs bool) (all []byte) {
				s.Do(func(s *tensor.Scope) {
					x := s.From(data.Clone())
					if inputs {
						x.RequiresGrad()
					}
					y := form(m, x)
					all = y.Bytes()
					_, before := s.Generator().State()
					y.Square().Sum().Backward()
					_, after := s.Generator().State()
					if before != after {
						t.Errorf("Backward moved the generator from %d to %d", before, after)
					}
					all = append(all, m.gradients(t)...)
					if inputs {
						all = append(all, x.Grad().Bytes()...)
					}
					all = append(all, s.Rand(3).Bytes()...)
				}, tensor.Seed(5))
				return all
			}
			for name, form := range forms {
				if s.Device().Name() != "cpu" && name != "nested" && name != "3 segments" {
					continue
				}
				plain := (*stack).forward
				if name == "every other" {
					plain = func(m *stack, x *tt) *tt {
						for i, f := range m.fns {
							if x = f(x); i%2 == 0 {
								x = x.Dropout(0.1).Tanh()
							}
						}
						return x
					}
				}
				for _, inputs := range []bool{true, false} {
					if !bytes.Equal(run(plain, inputs), run(form, inputs)) {
						t.Errorf("%s, on %s, a gradient of the input %v: not the same bits", name, s.Device().Name(), inputs)
					}
				}
			}
		}, on)
	}
}

func TestCheckpointOfSeveralResults(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.Randn(4, 4).RequiresGrad()
		x, z := s.Randn(4, 4).RequiresGrad(), s.Randn(4, 4)
		index := s.From([]int64{3, 1, 1, 0})
		f := func(in ...*tt) []*tt {
			p := in[0].MatMul(w).Dropout(0.5)
			return []*tt{p.Mul(in[1]), p.IndexSelect(0, in[2]).Exp(), in[0], w}
		}
		var got [2][]byte
		for i, call := range []func() []*tt{func() []*tt { return f(x, z, index) }, func() []*tt { return autograd.CheckpointAll(f, x, z, index) }} {
			s.Generator().SetState(3, 0)
			y := call()
			y[0].Sum().Add(y[1].Square().Sum()).Add(y[2].Mul(y[3]).Sum()).Backward()
			for _, t := range append(y, x.Grad(), w.Grad()) {
				got[i] = append(got[i], t.Bytes()...)
			}
			x.ZeroGrad()
			w.ZeroGrad()
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Error("not the same bits")
		}
		y := autograd.CheckpointAll(f, x, z, index)
		// only one of the results is used
		g := autograd.Grad([]*tt{y[1]}, []*tt{w}, []*tt{y[1].OnesLike()})
		if g[0].Shape() != w.Shape() {
			t.Error(g[0].Shape())
		}
	})
}

// TestCheckpointTwice computes a second derivative, and calls Backward again on a kept graph. Both
// must recompute the segment.
func TestCheckpointTwice(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w, x := s.Randn(5, 5).RequiresGrad(), s.Randn(3, 5).RequiresGrad()
		calls := 0
		f := func(x ...*tt) *tt {
			calls++
			return x[0].MatMul(w).Tanh().Dropout(0.3).Exp()
		}
		var got [2][]byte
		for i, call := range []func(x ...*tt) *tt{f, func(x ...*tt) *tt { return autograd.Checkpoint(f, x...) }} {
			s.Generator().SetState(3, 0)
			calls = 0
			y := call(x).Sum()
			g := autograd.Grad([]*tt{y}, []*tt{x, w}, nil, tensor.CreateGraph())
			g[0].Square().Sum().Add(g[1].Square().Sum()).Backward(tensor.RetainGraph())
			y.Backward(tensor.RetainGraph())
			y.Backward()
			for _, t := range append(g, x.Grad(), w.Grad()) {
				got[i] = append(got[i], t.Bytes()...)
			}
			x.ZeroGrad()
			w.ZeroGrad()
			if want := []int{1, 5}[i]; calls != want {
				t.Errorf("the function was called %d times, not %d", calls, want)
			}
			wants(t, failure(t, func() { y.Backward() }), tensor.ErrGrad, "freed by an earlier Backward")
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Error("not the same bits")
		}
	})
}

// TestCheckpointWithAGradientInside checks a function that itself computes a gradient, for example
// for a gradient penalty. Computing this gradient recomputes the ops of the segment that come
// before it.
func TestCheckpointWithAGradientInside(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w, x := s.Randn(5, 5).RequiresGrad(), s.Randn(3, 5).RequiresGrad()
		f := func(x ...*tt) *tt {
			y := x[0].MatMul(w.In(x[0].Scope())).Tanh().Dropout(0.5)
			g := autograd.Grad([]*tt{y.Square().Sum()}, []*tt{x[0]}, nil, tensor.CreateGraph())
			return y.Add(g[0]).Dropout(0.5).Exp()
		}
		var got [2][]byte
		for i, call := range []func(x ...*tt) *tt{f, func(x ...*tt) *tt { return autograd.Checkpoint(f, x...) }} {
			s.Generator().SetState(3, 0)
			call(x).Sum().Backward()
			got[i] = append(x.Grad().Bytes(), w.Grad().Bytes()...)
			x.ZeroGrad()
			w.ZeroGrad()
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Error("not the same bits")
		}
	})
}

// TestCheckpointDrawsOfOlderTensors runs an op on tensors that are older than the segment. The op
// must draw from the generator of their scope. Recomputing must draw the same numbers again.
func TestCheckpointDrawsOfOlderTensors(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.Randn(6, 6).RequiresGrad()
		s.Do(func(s *tensor.Scope) {
			x := s.Randn(3, 6).RequiresGrad()
			f := func(x ...*tt) *tt { return x[0].Dropout(0.5).MatMul(w.Dropout(0.5)).Dropout(0.5).Exp() }
			var got [2][]byte
			for i, call := range []func(x ...*tt) *tt{f, func(x ...*tt) *tt { return autograd.Checkpoint(f, x...) }} {
				s.Generator().SetState(3, 0)
				call(x).Sum().Backward()
				_, at := s.Generator().State()
				got[i] = append(append(x.Grad().Bytes(), w.Grad().Bytes()...), byte(at))
				x.ZeroGrad()
				w.ZeroGrad()
			}
			if !bytes.Equal(got[0], got[1]) {
				t.Error("not the same bits")
			}
		})
	}, tensor.Seed(1))
}

// TestCheckpointModes sets modes in the scope of a segment. The segment must see the same modes
// when it is computed again.
func TestCheckpointModes(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		var y, w *tt
		var seen []string
		s.Do(func(c *tensor.Scope) {
			w = s.On(gpus[0]).Ones(2)
			x := c.Ones(2).RequiresGrad()
			y = autograd.Checkpoint(func(x ...*tt) *tt {
				k := x[0].Scope()
				seen = append(seen, fmt.Sprint(k.Ones(1).Device().Name(), k.GradEnabled(), k.Recomputing()))
				return x[0].Exp().Mul(w)
			}, x)
			c.Close(y) // the operands are freed with the graph
		}, tensor.On(gpus[0]))
		y.Sum().Backward()
		if want := "[cuda:0true false cuda:0true true]"; fmt.Sprint(seen) != want {
			t.Errorf("%v, not %s", seen, want)
		}
		s.Do(func(c *tensor.Scope) {
			n := 0
			y := autograd.Checkpoint(func(x ...*tt) *tt { n++; return x[0].Exp() }, c.Ones(2).RequiresGrad())
			if y.NeedsGrad() || n != 1 {
				t.Error("without gradients there is nothing to compute again")
			}
		}, tensor.NoGrad())
	})
}

func TestCheckpointErrors(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.Randn(4, 4).RequiresGrad()
		s.Do(func(s *tensor.Scope) {
			call := 0
			second := func(f func(x *tt) *tt) func() {
				call = 0
				x := s.Randn(3, 4).RequiresGrad()
				y := autograd.Checkpoint(func(x ...*tt) *tt { call++; return f(x[0]) }, x).Sum()
				return func() { y.Backward() }
			}
			wants(t, failure(t, second(func(x *tt) *tt { return x.Narrow(0, 0, 4-call).Exp().Sum(0) })), tensor.ErrGrad,
				"value 0", "exp", "[2, 4] float32", "[3, 4] float32", "autograd/checkpoint_test.go:")
			wants(t, failure(t, second(func(x *tt) *tt {
				if call == 2 {
					return x.Tanh()
				}
				return x.Exp()
			})), tensor.ErrGrad, "of tanh", "of exp")
			wants(t, failure(t, second(func(x *tt) *tt {
				if call == 2 {
					return x.Exp().Exp()
				}
				return x.Exp()
			})), tensor.ErrGrad, "exp saves a value where the segment had saved all 1 in forward")
			wants(t, failure(t, second(func(x *tt) *tt {
				if call == 1 {
					return x.Exp().Exp()
				}
				return x.Exp()
			})), tensor.ErrGrad, "save 1 values where they saved 2")
			wants(t, failure(t, second(func(x *tt) *tt { return x.Narrow(0, 0, call).Dropout(0.5).Sum().Mul(x).Exp() })), tensor.ErrGrad, "draws 8 random numbers where it drew 4")
			wants(t, failure(t, second(func(x *tt) *tt {
				if call == 2 {
					x = x.Dropout(0.5)
				}
				return x.Exp()
			})), tensor.ErrGrad, "draws 12 random numbers where it drew no more")
			wants(t, failure(t, second(func(x *tt) *tt {
				if call == 2 {
					x.MatMul(x)
				}
				return x.Exp()
			})), tensor.ErrShape, "matmul", "checkpointed at autograd/checkpoint_test.go:")
			wants(t, failure(t, second(func(x *tt) *tt {
				y := x.Exp()
				y.AddScalarInPlace(1)
				return y
			})), tensor.ErrInPlace, "exp")
			func() {
				defer func() {
					if r := recover(); r != "mine" {
						t.Errorf("recovered %v", r)
					}
				}()
				second(func(x *tt) *tt {
					if call == 2 {
						panic("mine")
					}
					return x.Exp()
				})()
			}()

			x := s.Randn(3, 4)
			y := autograd.Checkpoint(func(x ...*tt) *tt { return x[0].MatMul(w.In(x[0].Scope())).Exp() }, x).Sum()
			x.AddScalarInPlace(1)
			wants(t, failure(t, func() { y.Backward() }), tensor.ErrInPlace, "checkpoint")
			y = autograd.Checkpoint(func(x ...*tt) *tt {
				return x[0].MulScalar(2).Mul(w.In(x[0].Scope()).Narrow(0, 0, 3)).Mul(w.In(x[0].Scope()).Narrow(0, 1, 3))
			}, x.Clone().RequiresGrad()).Sum()
			s.Do(func(s *tensor.Scope) { w.In(s).AddScalarInPlace(1) }, tensor.NoGrad())
			// A view of w is recomputed from w's current contents, as in torch: w is not a saved
			// value, so its change is not detected.
			y.Backward()
			y = autograd.Checkpoint(func(x ...*tt) *tt { return x[0].MulScalar(2).MatMul(w.In(x[0].Scope())) }, x.Clone().RequiresGrad()).Sum()
			s.Do(func(s *tensor.Scope) { w.In(s).AddScalarInPlace(1) }, tensor.NoGrad())
			wants(t, failure(t, func() { y.Backward() }), tensor.ErrInPlace, "matmul")

			id := func(x *tt) *tt { return x }
			for name, f := range map[string]func(){
				"the function is nil":             func() { autograd.Checkpoint((func(x *tt) *tt)(nil), x) },
				"takes 1 operands and is given 2": func() { autograd.Checkpoint((*tt).Exp, x, x) },
				"takes 2 operands and is given 1": func() { autograd.Checkpoint(func(x, y *tt) *tt { return x.Mul(y) }, x) },
				"there are no operands":           func() { autograd.Checkpoint(func(x ...*tt) *tt { return x[0] }) },
				"nil for result 0":                func() { autograd.Checkpoint(func(x ...*tt) *tt { return nil }, x) },
				"an operand is nil":               func() { autograd.Checkpoint(func(x ...*tt) *tt { return nil }, nil) },
				"0 segments of 1 functions":       func() { autograd.CheckpointSequential([]func(x *tt) *tt{id}, 0, x) },
				"2 segments of 1 functions":       func() { autograd.CheckpointSequential([]func(x *tt) *tt{id}, 2, x) },
				"function 1 is nil":               func() { autograd.CheckpointSequential([]func(x *tt) *tt{id, nil}, 1, x) },
				"function 0 returns nil":          func() { autograd.CheckpointSequential([]func(x *tt) *tt{func(x *tt) *tt { return nil }}, 1, x) },
				"the operand is nil":              func() { autograd.CheckpointSequential([]func(x *tt) *tt{id}, 1, nil) },
				//flambeau:ignore unclosedscope the call panics
				"not to the scope of the operands": func() { autograd.Checkpoint(func(x ...*tt) *tt { return x[0].Scope().New().Ones(1) }, x) },
			} {
				err := tensor.Try(f)
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%q: %v", name, err)
				}
			}
		})
	})
}

// TestCheckpointConcurrently runs Backward on one graph from several goroutines. Each run must
// recompute the segments itself.
func TestCheckpointConcurrently(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newStack(s, 4, 8)
		y := autograd.CheckpointSequential(m.fns, 2, s.Randn(4, 8)).Square().Sum()
		want := tensor.Gradients(y, m.w, tensor.RetainGraph())
		var wg sync.WaitGroup
		var errs [4]error
		for i := range errs {
			wg.Go(func() {
				errs[i] = tensor.Try(func() {
					for k, g := range tensor.Gradients(y, m.w, tensor.RetainGraph()) {
						if !bytes.Equal(g.Bytes(), want[k].Bytes()) {
							t.Errorf("weight %d: not the same bits", k)
						}
					}
				})
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCheckpointPeak measures the peak memory of a chain of n layers without parameters. The peak
// must grow like n without segments, and like √n with √n segments. The gradients must have the same
// bits.
func TestCheckpointPeak(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	const width, batch = 16, 64
	const one = width * batch * 4 // size of one value in bytes
	peak := map[string]int{}
	tensor.Do(func(s *tensor.Scope) {
		for _, layers := range []int{6, 24} {
			m := newStack(s, layers, width)
			data := s.Randn(batch, width)
			var bits [2][]byte
			for i, segments := range []int{1, map[int]int{6: 3, 24: 5}[layers]} {
				step := func() {
					s.Generator().SetState(3, 0)
					s.Do(func(s *tensor.Scope) {
						x := data.In(s)
						if segments == 1 {
							for _, f := range m.fns {
								y := f(x)
								x.Free()
								x = y
							}
						} else {
							x = autograd.CheckpointSequential(m.fns, segments, x)
						}
						x.Square().Mean().Backward()
					})
					bits[i] = m.gradients(t)
				}
				step() // the first step loads programs, so its memory is not measured
				before := dev.Stats().Allocated
				dev.ResetPeak()
				step()
				st := dev.Stats()
				if st.Allocated != before {
					t.Errorf("%d layers in %d segments: %d bytes stay", layers, segments, st.Allocated-before)
				}
				peak[fmt.Sprint(layers, segments == 1)] = (st.AllocatedPeak - before) / one
			}
			if !bytes.Equal(bits[0], bits[1]) {
				t.Errorf("%d layers: not the same bits", layers)
			}
		}
	}, tensor.On(dev))
	t.Log(peak)
	if p := peak; p["24 true"] < 3*p["6 true"] || 2*p["24 false"] > 5*p["6 false"] || 2*p["24 false"] > p["24 true"] {
		t.Errorf("values at the peak, by layers and whether they are one segment: %v", p)
	}
}

// TestCheckpointDrawsConcurrently calls Checkpoint on several goroutines, which draw from one
// generator. They also draw after the scope of the generator has ended. The generator only
// advances, so no goroutine draws a number that another has drawn. Backward must use the numbers
// that the forward pass drew.
func TestCheckpointDrawsConcurrently(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		const n, rounds, each = 4, 8, 3 * 64
		w, other := s.Ones(8, 8).RequiresGrad(), s.Ones(8, 8)
		var wg sync.WaitGroup
		var errs [n]error
		for i := range errs {
			wg.Go(func() {
				errs[i] = tensor.Try(func() {
					for range rounds {
						s.Do(func(c *tensor.Scope) {
							x := c.Ones(8, 8).RequiresGrad()
							y := autograd.Checkpoint(func(x ...*tt) *tt {
								return autograd.Checkpoint(func(x ...*tt) *tt { return x[0].Dropout(0.5).Mul(other.Dropout(0.5)).Exp() }, x[0]).Mul(w).Dropout(0.5)
							}, x)
							value := y.Detach().Clone()
							g := tensor.Gradients(y.Sum(), []*tt{x, w})
							// w is 1, so the gradient and the value are the same product
							if !bytes.Equal(g[1].Bytes(), value.Bytes()) {
								t.Error("the gradient is not that of the numbers that forward drew")
							}
						})
					}
				})
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		if _, at := s.Generator().State(); at != n*rounds*each {
			t.Errorf("the generator is at %d, want %d: it was put back", at, n*rounds*each)
		}
	}, tensor.Seed(1))
}

// TestCheckpointOfOneTensor checks that functions of one, two and three tensors can be checkpointed
// without a slice. The gradients have the same bits as with the variadic form.
func TestCheckpointOfOneTensor(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		values := func() (x, y, z *tt) {
			return s.From([]float64{1, 2}).RequiresGrad(), s.From([]float64{3, 5}).RequiresGrad(), s.From([]float64{0.5, 0.25})
		}
		var want []float64
		for name, f := range map[string]func(x, y, z *tt) *tt{
			"": func(x, y, z *tt) *tt { return x.Exp().Mul(y).Mul(z) },
			"one": func(x, y, z *tt) *tt {
				return autograd.Checkpoint(func(x *tt) *tt { return x.Exp().Mul(y).Mul(z) }, x)
			},
			"method": func(x, y, z *tt) *tt { return autograd.Checkpoint((*tt).Exp, x).Mul(y).Mul(z) },
			"two": func(x, y, z *tt) *tt {
				return autograd.Checkpoint(func(x, y *tt) *tt { return x.Exp().Mul(y) }, x, y).Mul(z)
			},
			"three": func(x, y, z *tt) *tt {
				return autograd.Checkpoint(func(x, y, z *tt) *tt { return x.Exp().Mul(y).Mul(z) }, x, y, z)
			},
			"variadic": func(x, y, z *tt) *tt {
				return autograd.Checkpoint(func(v ...*tt) *tt { return v[0].Exp().Mul(v[1]).Mul(v[2]) }, x, y, z)
			},
		} {
			x, y, z := values()
			f(x, y, z).Sum().Backward()
			got := append(x.Grad().Floats(), y.Grad().Floats()...)
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q: %v, want %v", name, got, want)
			}
		}
	})
}
