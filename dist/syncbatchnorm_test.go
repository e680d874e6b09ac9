package dist

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// normLayer is a BatchNorm1d, BatchNorm2d or BatchNorm3d.
type normLayer interface {
	nn.Module
	SyncOver(tensor.BatchRanks)
}

// normRun holds the results of a layer over a few steps.
type normRun struct {
	outs, grads []float64 // elements of all results and of all input gradients
	state       map[string][]float64
	params      map[string][]float64 // gradients of the parameters
}

// steps calls a layer on each batch in turn and runs Backward. It returns the results.
func steps(s *tensor.Scope, l nn.Module, typ dtype.Type, batches []*tensor.Tensor) (r normRun) {
	for k, x := range batches {
		s.Do(func(s *tensor.Scope) {
			x := x.In(s).Cast(typ).Detach().RequiresGrad()
			y := l.Forward(x)
			if y.Type() != typ || y.Shape() != x.Shape() {
				panic(fmt.Sprintf("%v %v of %v %v", y.Shape(), y.Type(), x.Shape(), x.Type()))
			}
			// The loss weights each element by its value and not by its position. It thus does not
			// depend on how the batch is divided.
			wide, at := y.Cast(dtype.F64), x.Detach().Cast(dtype.F64)
			wide.AddScalar(0.5 + float64(k)).Sin().Mul(at.Cos()).Sum().Backward()
			r.outs = append(r.outs, y.Floats()...)
			r.grads = append(r.grads, x.Grad().Floats()...)
		})
	}
	r.state, r.params = map[string][]float64{}, map[string][]float64{}
	for _, p := range nn.Named(l) {
		switch {
		case p.Buffer:
			r.state[p.Name] = p.Tensor.Floats()
		default:
			r.params[p.Name] = p.Tensor.Grad().Floats()
		}
	}
	return r
}

func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	for i, v := range got {
		if !(math.Abs(v-want[i]) <= tol*(1+math.Abs(want[i]))) {
			t.Errorf("%s: element %d is %v, want %v", what, i, v, want[i])
			return
		}
	}
}

// sumOver returns on each rank the sum of all ranks' vectors.
func sumOver(g *Group, v []float64) []float64 {
	sum := make([]float64, len(v))
	for _, other := range Exchange(g, v) {
		for i, o := range other {
			sum[i] += o
		}
	}
	return sum
}

// TestSyncBatchNorm gives each rank a part of the batch. Results, gradients and running statistics
// must equal those of one process with the whole batch.
func TestSyncBatchNorm(t *testing.T) {
	t.Parallel()
	layers := map[string]struct {
		inner []int
		make  func(channels int, opts ...nn.Option) normLayer
	}{
		"rank 2": {nil, func(c int, o ...nn.Option) normLayer { return nn.NewBatchNorm1d(c, o...) }},
		"rank 3": {[]int{3}, func(c int, o ...nn.Option) normLayer { return nn.NewBatchNorm1d(c, o...) }},
		"rank 4": {[]int{2, 3}, func(c int, o ...nn.Option) normLayer { return nn.NewBatchNorm2d(c, o...) }},
		"rank 5": {[]int{2, 1, 2}, func(c int, o ...nn.Option) normLayer { return nn.NewBatchNorm3d(c, o...) }},
	}
	sizes := map[int]map[string][]int{
		2: {"even": {4, 4}, "uneven": {3, 5}, "empty": {0, 4}},
		3: {"uneven": {1, 4, 2}, "empty": {3, 0, 0}},
		4: {"even": {2, 2, 2, 2}, "uneven": {0, 1, 5, 2}},
	}
	options := map[string][]nn.Option{
		"": nil, "plain ": {nn.NoAffine()}, "untracked ": {nn.NoStats()}, "unbiased ": {nn.NoBias()},
	}
	forEach(t, []int{2, 3, 4}, func(t *testing.T, l DeviceList) {
		for kind, layer := range layers {
			for name, parts := range sizes[len(l.devices)] {
				for option, opts := range options {
					for _, channels := range []int{2, 17} {
						for _, typ := range []dtype.Type{dtype.F64, dtype.F32, dtype.BF16} {
							if typ == dtype.BF16 && option != "" || option != "" && kind != "rank 4" || channels == 17 && kind != "rank 4" {
								continue
							}
							name := fmt.Sprintf("%s%s of %d %v %s", option, kind, channels, typ, name)
							t.Run(name, func(t *testing.T) {
								compareNorm(t, l, layer.make, opts, typ, channels, layer.inner, parts)
							})
						}
					}
				}
			}
		}
	})
}

func compareNorm(t *testing.T, l DeviceList, layer func(int, ...nn.Option) normLayer, opts []nn.Option, typ dtype.Type, channels int, inner, parts []int) {
	tol := map[dtype.Type]float64{dtype.F64: 1e-11, dtype.F32: 1e-4, dtype.BF16: 2e-2}[typ]
	opts = append([]nn.Option{nn.Typed(typ.Compute())}, opts...)
	whole := func(s *tensor.Scope, k int) *tensor.Tensor {
		n := 0
		for _, p := range parts {
			n += p
		}
		x := varied(s, k, append([]int{n, channels}, inner...)...)
		return x.AddScalar(3) // a mean far from 0
	}
	started := func(m normLayer) normLayer {
		for i, p := range nn.Parameters(m) {
			p.Detach().Copy(varied(p.Scope(), 3*i+1, channels).To(p.Device()))
		}
		return m
	}
	for _, momentum := range []float64{0.3, nn.CumulativeAverage} {
		made := func(s *tensor.Scope) normLayer {
			m := layer(channels, append(opts, nn.In(s))...)
			for _, l := range nn.Modules(m) {
				switch l := l.(type) {
				case *nn.BatchNorm1d:
					l.Momentum = momentum
				case *nn.BatchNorm2d:
					l.Momentum = momentum
				case *nn.BatchNorm3d:
					l.Momentum = momentum
				}
			}
			return started(m)
		}
		var one normRun
		tensor.Do(func(s *tensor.Scope) {
			one = steps(s, made(s), typ, []*tensor.Tensor{whole(s, 0), whole(s, 1)})
		})
		run(t, l, func(g *Group) {
			g.Do(func(s *tensor.Scope) {
				m := ConvertSyncBatchNorm(made(s), g)
				from := 0
				for _, p := range parts[:g.Rank()] {
					from += p
				}
				mine := parts[g.Rank()]
				got := steps(s, m, typ, []*tensor.Tensor{whole(s, 0).Narrow(0, from, mine), whole(s, 1).Narrow(0, from, mine)})
				per := len(one.outs) / 2
				each := per / whole(s, 0).Dim(0)
				part := func(all []float64) []float64 {
					return append(slices.Clone(all[from*each:(from+mine)*each]), all[per+from*each:per+(from+mine)*each]...)
				}
				who := fmt.Sprintf("%v: ", g)
				near(t, who+"result", got.outs, part(one.outs), tol)
				near(t, who+"gradient", got.grads, part(one.grads), tol)
				if len(got.state) != len(one.state) || len(got.params) != len(one.params) {
					t.Errorf("%s%d buffers and %d parameters", who, len(got.state), len(got.params))
				}
				for _, p := range nn.Named(m) {
					if p.Buffer {
						near(t, who+p.Name, got.state[p.Name], one.state[p.Name], min(tol, 2e-5))
						continue
					}
					near(t, who+"gradient of "+p.Name, sumOver(g, got.params[p.Name]), one.params[p.Name], 4*tol)
				}
				nn.Eval(m)
				// in evaluation mode a layer needs no other ranks
				if len(got.state) > 0 && g.Rank() == 0 {
					m.Forward(whole(s, 2).Cast(typ)).Floats()
				}
			})
		})
	}
}

// TestSyncBatchNormOfNothing tests batches without samples on all ranks. The running statistics
// must not change, and nothing may be NaN.
func TestSyncBatchNormOfNothing(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			g.Do(func(s *tensor.Scope) {
				m := ConvertSyncBatchNorm(nn.NewBatchNorm1d(3, nn.In(s)), g)
				m.Forward(s.Zeros(0, 3).RequiresGrad()).Sum().Backward()
				near(t, "mean", m.RunningMean.Floats(), []float64{0, 0, 0}, 0)
				near(t, "variance", m.RunningVar.Floats(), []float64{1, 1, 1}, 0)
				near(t, "gradient", m.Weight.Grad().Floats(), []float64{0, 0, 0}, 0)
				// One rank has one sample and the other has none: the variance is 0.
				m.Forward(s.Ones(1-g.Rank(), 3).RequiresGrad()).Sum().Backward()
				near(t, "mean", m.RunningMean.Floats(), []float64{0.1, 0.1, 0.1}, 1e-6)
				near(t, "variance", m.RunningVar.Floats(), []float64{0.9, 0.9, 0.9}, 1e-6)
			})
		})
	})
}

// TestSyncBatchNormSecondDerivative checks second derivatives, which must include the statistics of
// all ranks.
func TestSyncBatchNormSecondDerivative(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			g.Do(func(s *tensor.Scope) {
				m := ConvertSyncBatchNorm(nn.NewBatchNorm1d(2, nn.Typed(dtype.F64), nn.In(s), nn.NoStats()), g)
				m.Weight.Detach().Copy(varied(s, 4, 2))
				x := varied(s, g.Rank(), 3, 2)
				first := func(x *tensor.Tensor) *tensor.Tensor { return weighted(m.Forward(x), g.Rank()) }
				checkOver(t, g, x, first)
				leaf := x.Clone().RequiresGrad()
				of := []*tensor.Tensor{leaf, m.Weight, m.Bias}
				fast, composed := tensor.Gradients(first(leaf), of), tensor.Gradients(first(leaf), of, tensor.CreateGraph())
				for i := range of {
					near(t, fmt.Sprintf("%v: gradient %d with a graph", g, i), composed[i].Floats(), fast[i].Floats(), 1e-11)
				}
				checkOver(t, g, x, func(x *tensor.Tensor) *tensor.Tensor {
					all := tensor.Gradients(first(x), []*tensor.Tensor{x, m.Weight, m.Bias}, tensor.CreateGraph())
					return weighted(all[0], g.Rank()+5).Add(weighted(all[1], 3)).Add(all[2].Square().Sum())
				})
			})
		})
	})
}

// convNet is a typical network. Its layers are in fields of their own types, in lists, and embedded
// by value.
type convNet struct {
	nn.Base
	Conv1 *nn.Conv2d
	Norm1 *nn.BatchNorm2d
	Rest  []nn.Module
	Head  nn.BatchNorm1d
	Last  *nn.Linear
}

func newConvNet(s *tensor.Scope) *convNet {
	in := []nn.Option{nn.In(s), nn.Typed(dtype.F64)}
	m := &convNet{
		Conv1: nn.NewConv2d(2, 4, 3, append(in, nn.Padding(1))...),
		Norm1: nn.NewBatchNorm2d(4, in...),
		Rest:  []nn.Module{&nn.ReLU{}, nn.NewConv2d(4, 3, 3, in...), nn.NewBatchNorm2d(3, in...)},
		Head:  *nn.NewBatchNorm1d(12, in...),
		Last:  nn.NewLinear(12, 2, in...),
	}
	for i, p := range nn.Parameters(m) {
		p.Detach().Copy(varied(p.Scope(), i, p.Shape().Slice()...).MulScalar(0.4))
	}
	return m
}

func (m *convNet) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	x = m.Norm1.Forward(m.Conv1.Forward(x))
	for _, l := range m.Rest {
		x = l.Forward(x)
	}
	return m.Last.Forward(m.Head.Forward(x.Flatten(1, -1)))
}

// TestSyncBatchNormTrains trains a network with three batch norms on unevenly divided batches. It
// compares the parameters with those of one process. A second run must give the same bits.
func TestSyncBatchNormTrains(t *testing.T) {
	parts := map[int][]int{2: {3, 5}, 3: {2, 5, 1}}
	batch := func(s *tensor.Scope, k int) *tensor.Tensor { return varied(s, k, 8, 2, 4, 4) }
	step := func(m *convNet, x *tensor.Tensor, sum func(*tensor.Tensor)) {
		nn.ZeroGrad(m)
		y := m.Forward(x)
		y.Sigmoid().Square().Sum().Backward()
		for _, p := range nn.Parameters(m) {
			sum(p.Grad())
			p.Detach().SubInPlace(p.Grad().MulScalar(0.05))
		}
	}
	values := func(m *convNet) (all []float64) {
		for _, p := range nn.Named(m) {
			all = append(all, p.Tensor.Floats()...)
		}
		return all
	}
	var one []float64
	tensor.Do(func(s *tensor.Scope) {
		m := newConvNet(s)
		for k := range 3 {
			step(m, batch(s, k), func(*tensor.Tensor) {})
		}
		one = values(m)
	})
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		p := parts[len(l.devices)]
		results := make([][][]float64, 2)
		for i := range results {
			results[i] = make([][]float64, len(p))
			run(t, l, func(g *Group) {
				g.Do(func(s *tensor.Scope) {
					m := newConvNet(s)
					before := nn.Named(m)
					if ConvertSyncBatchNorm(m, g) != m || !slices.Equal(before, nn.Named(m)) {
						t.Error("the conversion changes the model's tensors")
					}
					from := 0
					for _, n := range p[:g.Rank()] {
						from += n
					}
					for k := range 3 {
						step(m, batch(s, k).Narrow(0, from, p[g.Rank()]), func(d *tensor.Tensor) { g.AllReduce(d, Sum) })
					}
					results[i][g.Rank()] = values(m)
				})
			})
		}
		for r := range p {
			near(t, fmt.Sprintf("rank %d", r), results[0][r], one, 1e-9)
			if !slices.Equal(results[0][r], results[1][r]) {
				t.Errorf("rank %d: two runs differ", r)
			}
			if !slices.Equal(results[0][r], results[0][0]) {
				t.Errorf("rank %d and rank 0 differ", r)
			}
		}
	})
}

// TestSyncBatchNormCheckpoint tests a layer in a checkpoint, which Backward recomputes. The
// collectives must run again, but running statistics must count the batch only once.
func TestSyncBatchNormCheckpoint(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			g.Do(func(s *tensor.Scope) {
				x := varied(s, g.Rank(), 3, 2, 4, 4)
				train := func(forward func(m *convNet, x *tensor.Tensor) *tensor.Tensor) (all []float64) {
					m := ConvertSyncBatchNorm(newConvNet(s), g)
					forward(m, x.Clone().RequiresGrad()).Square().Sum().Backward()
					for _, p := range nn.Named(m) {
						all = append(all, p.Tensor.Floats()...)
						if !p.Buffer {
							all = append(all, p.Tensor.Grad().Floats()...)
						}
					}
					return all
				}
				plain := train((*convNet).Forward)
				again := train(func(m *convNet, x *tensor.Tensor) *tensor.Tensor {
					return autograd.Checkpoint(m.Forward, x)
				})
				if !slices.Equal(plain, again) {
					t.Errorf("%v: with a checkpoint there are other numbers", g)
				}
			})
		})
	})
}

// TestSyncBatchNormGroups converts a layer twice, with different groups. The layer must use only
// the last group, even if that has one rank. A copy of the layer must keep the group.
func TestSyncBatchNormGroups(t *testing.T) {
	run(t, Devices("cpu", "cpu"), func(g *Group) {
		alone := g.Split(g.Rank(), 0)
		g.Do(func(s *tensor.Scope) {
			x := varied(s, g.Rank(), 4, 3)
			mean := func(m *nn.BatchNorm1d) []float64 {
				m.Forward(x)
				return m.RunningMean.Floats()
			}
			made := func() *nn.BatchNorm1d { return nn.NewBatchNorm1d(3, nn.Typed(dtype.F64), nn.In(s)) }
			own, both := mean(made()), mean(ConvertSyncBatchNorm(made(), g))
			if slices.Equal(own, both) {
				t.Error("the statistics are this rank's")
			}
			if got := mean(ConvertSyncBatchNorm(ConvertSyncBatchNorm(made(), g), alone)); !slices.Equal(got, own) {
				t.Errorf("alone: %v, want %v", got, own)
			}
			if got := mean(nn.Clone(ConvertSyncBatchNorm(made(), g))); !slices.Equal(got, both) {
				t.Errorf("a copy: %v, want %v", got, both)
			}
			if nn.Describe(ConvertSyncBatchNorm(made(), g)) != nn.Describe(made()) {
				t.Error("the layer is described differently")
			}
		})
	})
}

// TestSyncBatchNormMismatch makes one rank differ: its layer is in evaluation mode, or its input
// requires no gradient. The other ranks must get an error and must not wait forever.
func TestSyncBatchNormMismatch(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(g *Group, s *tensor.Scope, m *convNet)
		kind error
		text string
	}{
		{"one evaluates", func(g *Group, s *tensor.Scope, m *convNet) {
			if g.Rank() == 1 {
				nn.Eval(m)
			}
			m.Forward(varied(s, 0, 2, 2, 4, 4)).Floats()
		}, ErrLeft, "batch norm all gather (statistics of norm1): rank 0 of 2"},
		{"one evaluates, and others gather", func(g *Group, s *tensor.Scope, m *convNet) {
			if g.Rank() == 1 {
				nn.Eval(m)
			}
			y := m.Forward(varied(s, 0, 2, 2, 4, 4)).Detach()
			g.AllReduce(y, Sum).Wait()
		}, ErrMismatch, "batch norm all gather of 9 float64"},
		{"another layer", func(g *Group, s *tensor.Scope, m *convNet) {
			x := varied(s, 0, 2, 4, 4, 4)
			if g.Rank() == 1 {
				m.Rest[2].Forward(x.Narrow(1, 0, 3)).Floats()
				return
			}
			m.Norm1.Forward(x).Floats()
		}, ErrMismatch, "batch norm all gather"},
		{"one has no gradient", func(g *Group, s *tensor.Scope, m *convNet) {
			x := varied(s, 0, 2, 4, 4, 4)
			if g.Rank() == 0 {
				x = x.RequiresGrad()
			}
			m.Norm1.Forward(x).Sum().Backward()
			if g.Rank() == 0 {
				x.Grad().Floats()
			}
		}, ErrLeft, "batch norm all reduce (gradients of norm1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Run(context.Background(), Devices("cpu", "cpu"), func(_ context.Context, g *Group) error {
				g.Do(func(s *tensor.Scope) { c.f(g, s, ConvertSyncBatchNorm(newConvNet(s), g)) })
				return nil
			})
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %q", err, c.text)
			}
		})
	}
}
