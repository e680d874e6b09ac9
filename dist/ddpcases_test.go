package dist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// The comments of the tests in this file, ddpuse_test.go and ddpuneven_test.go name PyTorch's tests
// in torch/testing/_internal/distributed/distributed_test.py and
// test/distributed/test_c10d_common.py. Each test compares the weights of several ranks with those
// of one process that has the whole batch.

// course is a training that the test runs twice: with several ranks, and in one process.
type course[M any] struct {
	model func() M
	// loss returns the mean loss over the samples with numbers lo to hi-1 of a step. In the single
	// process, rank is -1.
	loss  func(s *tensor.Scope, m M, step, rank, lo, hi int) *tensor.Tensor
	opts  []DDPOption
	steps int // number of steps; 0 means 4
	tol   float64
	zero  func(m M) // clears the gradients; nil means ZeroGrad
}

func (c *course[M]) train(m M, dev func() []tensor.Option, rank, lo, hi int) {
	opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	steps := c.steps
	if steps == 0 {
		steps = 4
	}
	for step := range steps {
		tensor.Do(func(s *tensor.Scope) {
			c.loss(s, m, step, rank, lo, hi).Backward()
			opt.Step()
			if c.zero != nil {
				c.zero(m)
			} else {
				opt.ZeroGrad()
			}
		}, dev()...)
	}
}

// check trains with two ranks, and compares the weights with those of one process.
func (c *course[M]) check(t *testing.T) {
	t.Helper()
	one := c.model()
	c.train(one, func() []tensor.Option { return nil }, -1, 0, whole)
	want := weights(one)
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		got := make([][]float64, len(l.devices))
		run(t, l, func(g *Group) {
			n := whole / g.World()
			m := DDP(nn.To(c.model(), g.Device()), g, c.opts...)
			c.train(m, g.Options, g.Rank(), g.Rank()*n, (g.Rank()+1)*n)
			got[g.Rank()] = weights(m)
		})
		c.compare(t, got, want)
	})
}

func (c *course[M]) compare(t *testing.T, got [][]float64, want []float64) {
	t.Helper()
	tol := c.tol
	if tol == 0 {
		tol = 1e-9
	}
	for r := range got {
		if d := distance(got[r], want); !(d <= tol) {
			t.Errorf("rank %d is %v from one process", r, d)
		}
		if !slices.Equal(got[r], got[0]) {
			t.Errorf("ranks 0 and %d differ", r)
		}
	}
}

// linears is a list of linear layers. The loss function of each test decides how it uses them.
type linears struct {
	nn.Base
	L []*nn.Linear
	S *tensor.Tensor `nn:"scale"`
}

func newLinears(dims ...int) *linears {
	m := &linears{S: tensor.Root().Typed(dtype.F64).Ones(3).SetRequiresGrad(true)}
	for i := range len(dims) - 1 {
		m.L = append(m.L, nn.NewLinear(dims[i], dims[i+1], nn.Typed(dtype.F64)))
	}
	return fixed(m)
}

func inputs(s *tensor.Scope, step, lo, hi int) *tensor.Tensor {
	x, _ := batch(s, dtype.F64, step, lo, hi)
	return x
}

// TestDDPNestedModules trains models with nested layers. It corresponds to torch's
// test_nested_modules, with the models of test_ddp_multiple_nested_unused_params_error and
// NestedModel of test_c10d.
func TestDDPNestedModules(t *testing.T) {
	c := &course[*nn.Sequential]{
		model: func() *nn.Sequential {
			inner := nn.NewSequential(nn.NewLinear(12, 7, nn.Typed(dtype.F64)), nn.Tanh{})
			outer := nn.NewSequential(inner, nn.NewSequential(nn.NewSequential(nn.NewLinear(7, 5, nn.Typed(dtype.F64)))))
			return fixed(outer)
		},
		loss: func(s *tensor.Scope, m *nn.Sequential, step, _, lo, hi int) *tensor.Tensor {
			x, y := batch(s, dtype.F64, step, lo, hi)
			return nn.CrossEntropy(m.Forward(x), y)
		},
	}
	c.check(t)
}

// TestDDPMultipleOutputs corresponds to torch's test_multiple_outputs_multiple_backward.
func TestDDPMultipleOutputs(t *testing.T) {
	c := &course[*linears]{
		model: func() *linears { return newLinears(12, 6, 3) },
		loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
			a := m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()
			return a.Square().Mean().Add(m.L[1].Forward(a).Mul(m.S).Exp().Mean())
		},
		opts: []DDPOption{BucketBytes(100, 300)},
	}
	c.check(t)
}

// TestDDPSharedParameters corresponds to torch's test_ddp_shared_grad_acc_unused_params, with
// weights that two layers share.
func TestDDPSharedParameters(t *testing.T) {
	c := &course[*linears]{
		model: func() *linears {
			m := newLinears(12, 12, 12)
			m.L[1].Weight = m.L[0].Weight
			return m
		},
		loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
			return m.L[1].Forward(m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()).Square().Mean()
		},
	}
	c.check(t)
}

// TestDDPRequiresGradMix corresponds to torch's _test_DistributedDataParallel with parameters that
// require no gradient.
func TestDDPRequiresGradMix(t *testing.T) {
	frozen := newLinears(12, 6, 6).L[0].Weight.Floats()
	c := &course[*linears]{
		model: func() *linears {
			m := newLinears(12, 6, 6)
			m.L[0].Weight.SetRequiresGrad(false)
			return m
		},
		loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
			if !slices.Equal(m.L[0].Weight.Floats(), frozen) || m.L[0].Weight.Grad() != nil {
				t.Error("a frozen weight has changed")
			}
			return m.L[1].Forward(m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()).Square().Mean()
		},
	}
	c.check(t)
}

// TestDDPIgnoreParams corresponds to torch's test_ddp_ignore_params_arg. If a parameter requires no
// gradient when DDP begins, DDP leaves it out, even if it requires a gradient later.
func TestDDPIgnoreParams(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.To(newLinears(12, 6, 6), g.Device())
			m.L[0].Weight.SetRequiresGrad(false)
			DDP(m, g)
			m.L[0].Weight.SetRequiresGrad(true)
			g.Do(func(s *tensor.Scope) {
				x := s.Typed(dtype.F64).Full(float64(g.Rank()+1), 4, 12)
				m.L[1].Forward(m.L[0].Forward(x)).Sum().Backward()
			})
			all := Exchange(g, [2][]float64{m.L[0].Weight.Grad().Floats(), m.L[1].Weight.Grad().Floats()})
			if d := distance(all[1][0], all[0][0]); d < 0.5 {
				t.Errorf("the gradient that is left alone is %v from the other rank's", d)
			}
			if !slices.Equal(all[0][1], all[1][1]) {
				t.Error("the gradient that is averaged differs")
			}
		})
	})
}

// TestDDPControlFlowSame corresponds to torch's test_ddp_control_flow_same_across_ranks.
func TestDDPControlFlowSame(t *testing.T) {
	c := &course[*linears]{
		model: func() *linears { return newLinears(12, 6, 6, 6) },
		loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
			return m.L[1+step%2].Forward(m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()).Square().Mean()
		},
		opts:  []DDPOption{BucketBytes(100, 300)},
		steps: 6,
	}
	c.check(t)
}

// TestDDPControlFlowDifferent corresponds to torch's test_ddp_control_flow_different_across_ranks.
func TestDDPControlFlowDifferent(t *testing.T) {
	c := &course[*linears]{
		model: func() *linears { return newLinears(12, 6, 6, 6) },
		loss: func(s *tensor.Scope, m *linears, step, rank, lo, hi int) *tensor.Tensor {
			way := func(rank, lo, hi int) *tensor.Tensor {
				return m.L[1+(step+rank)%2].Forward(m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()).Square().Mean()
			}
			if rank >= 0 {
				return way(rank, lo, hi)
			}
			mid := (lo + hi) / 2
			return way(0, lo, mid).Add(way(1, mid, hi)).DivScalar(2)
		},
		opts:  []DDPOption{BucketBytes(100, 300)},
		steps: 6,
	}
	c.check(t)
}

// TestDDPUnusedParamsRebuildBuckets corresponds to torch's
// test_ddp_unused_params_rebuild_buckets_exception. Rank 0 does not use some parameters in the
// first step, after which DDP rearranges the buckets. There must be no error, and the gradients
// must be right.
func TestDDPUnusedParamsRebuildBuckets(t *testing.T) {
	c := &course[*linears]{
		model: func() *linears { return newLinears(12, 6, 6, 6) },
		loss: func(s *tensor.Scope, m *linears, step, rank, lo, hi int) *tensor.Tensor {
			way := func(rank, lo, hi int) *tensor.Tensor {
				x := m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()
				if step == 0 && rank == 0 {
					return x.Square().Mean()
				}
				return m.L[2].Forward(m.L[1].Forward(x).Tanh()).Square().Mean()
			}
			if rank >= 0 {
				return way(rank, lo, hi)
			}
			mid := (lo + hi) / 2
			return way(0, lo, mid).Add(way(1, mid, hi)).DivScalar(2)
		},
		opts: []DDPOption{BucketBytes(100, 300)},
	}
	c.check(t)
}

// TestDDPUnusedEverywhere corresponds to torch's
// test_find_unused_parameters_when_unused_parameters_empty. If no rank uses a parameter, its
// gradient must not change.
func TestDDPUnusedEverywhere(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.To(newLinears(12, 6, 6), g.Device())
			// with these weights even the mean of equal numbers has rounding errors, so a gradient
			// that is averaged twice changes
			g.NewReducer(m).Weigh(float64(g.Rank()) + 0.7)
			use := func(all bool) {
				g.Do(func(s *tensor.Scope) {
					x := m.L[0].Forward(inputs(s, 0, g.Rank()*4, g.Rank()*4+4))
					if all {
						x = m.L[1].Forward(x)
					}
					x.Square().Mean().Backward()
				})
			}
			use(false)
			if m.L[1].Weight.Grad() != nil || m.S.Grad() != nil {
				t.Error("a parameter that no rank uses has a gradient")
			}
			use(true)
			before := m.L[1].Weight.Grad().Floats()
			for range 3 {
				use(false)
			}
			if !slices.Equal(before, m.L[1].Weight.Grad().Floats()) {
				t.Error("a gradient that no rank adds to has changed")
			}
			all := Exchange(g, m.L[0].Weight.Grad().Floats())
			if !slices.Equal(all[0], all[g.Rank()]) {
				t.Error("gradients differ")
			}
		})
	})
}

// TestDDPSyncModuleStates corresponds to torch's test_ddp_sync_module_states. All ranks begin with
// the parameters and buffers of rank 0.
func TestDDPSyncModuleStates(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.To(nn.NewSequential(nn.NewLinear(12, 6), nn.NewBatchNorm1d(6)), g.Device())
			for _, p := range nn.Named(m) {
				p.Tensor.Detach().Fill(float64(g.Rank() + 3))
			}
			DDP(m, g)
			for _, p := range nn.Named(m) {
				for _, v := range p.Tensor.Floats() {
					if v != 3 {
						t.Fatalf("%s of rank %d is %v", p.Name, g.Rank(), v)
					}
				}
			}
		})
	})
}

// TestDDPCheckpointing corresponds to torch's test_ddp_checkpointing_once, _twice and
// _unused_params.
func TestDDPCheckpointing(t *testing.T) {
	for name, times := range map[string]int{"once": 1, "twice": 2} {
		for _, unused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unused %v", name, unused), func(t *testing.T) {
				c := &course[*linears]{
					model: func() *linears { return newLinears(12, 12, 12, 12) },
					loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
						x := m.L[0].Forward(inputs(s, step, lo, hi))
						for range times {
							x = autograd.Checkpoint(func(x *tensor.Tensor) *tensor.Tensor { return m.L[1].Forward(x).Tanh() }, x)
						}
						if !unused {
							x = m.L[2].Forward(x)
						}
						return x.Square().Mean()
					},
					opts: []DDPOption{BucketBytes(1000, 1300)},
				}
				c.check(t)
			})
		}
	}
}

// TestDDPZeroGrad corresponds to torch's test_ddp_zero_grad, with both values of set_to_none, and
// to test_grad_layout_1devicemodule.
func TestDDPZeroGrad(t *testing.T) {
	for _, none := range []bool{true, false} {
		c := &course[*linears]{
			model: func() *linears { return newLinears(12, 6, 3) },
			loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
				return m.L[1].Forward(m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()).Mul(m.S).Square().Mean()
			},
			zero: func(m *linears) {
				for _, p := range nn.Parameters(m) {
					if none {
						p.ZeroGrad()
					} else {
						p.Grad().Zero()
					}
				}
			},
		}
		c.check(t)
	}
}

// TestDDPCreateGraph corresponds to torch's test_ddp_create_graph. It runs a Backward that records
// a graph. Such a Backward must average gradients too.
func TestDDPCreateGraph(t *testing.T) {
	c := &course[*linears]{
		model: func() *linears { return newLinears(12, 6, 3) },
		loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
			x := inputs(s, step, lo, hi).SetRequiresGrad(true)
			y := m.L[1].Forward(m.L[0].Forward(x).Tanh()).Square().Mean()
			dx := tensor.Gradients(y, []*tensor.Tensor{x}, tensor.CreateGraph())[0]
			// add a penalty on gradients to the loss
			return y.Add(dx.MulScalar(float64(hi - lo)).Square().Mean())
		},
	}
	c.check(t)
}

// TestDDPMixedTypes corresponds to torch's test_ddp_model_with_mixed_types. Each bucket holds
// gradients of one type.
func TestDDPMixedTypes(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.NewSequential(nn.NewLinear(12, 6, nn.Typed(dtype.F64)), nn.NewLinear(6, 6), nn.NewLinear(6, 4, nn.Typed(dtype.BF16)))
			r := g.NewReducer(nn.To(fixed(m), g.Device()))
			if len(r.buckets) != 3 {
				t.Errorf("there are %d buckets, want one a type", len(r.buckets))
			}
			g.Do(func(s *tensor.Scope) {
				x := m.Layers[0].Forward(inputs(s, 0, g.Rank()*4, g.Rank()*4+4)).Float()
				m.Layers[2].Forward(m.Layers[1].Forward(x).BFloat16()).Float().Square().Mean().Backward()
			})
			for _, p := range nn.Named(m) {
				v := p.Tensor.Grad().Floats()
				if all := Exchange(g, v); !slices.Equal(all[0], all[1]) || p.Tensor.Grad().Type() != p.Tensor.Type() {
					t.Errorf("gradients of %s differ, or are not of its type", p.Name)
				}
			}
		})
	})
}

// TestDDPRebuildBuckets corresponds to torch's test_ddp_logging_data, rebuilt_bucket_sizes. From
// the second Backward on, the buckets are in the order in which gradients became ready in the
// first. The bits of the weights must not depend on this order.
func TestDDPRebuildBuckets(t *testing.T) {
	backwards := func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
		x := inputs(s, step, lo, hi)
		// use the layers from the last to the first: gradients then become ready in the order
		// opposite to the usual one
		for i := len(m.L) - 1; i >= 0; i-- {
			x = m.L[i].Forward(x).Tanh()
		}
		return x.Square().Mean()
	}
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		bits := map[string]bool{}
		for _, opts := range [][]DDPOption{{BucketBytes(1, 1)}, {BucketBytes(1000, 1500)}, nil} {
			run(t, l, func(g *Group) {
				m := nn.To(newLinears(12, 12, 12, 12), g.Device())
				r := g.NewReducer(m, opts...)
				order := func() (names []string) {
					for _, b := range r.buckets {
						for _, i := range b.leaves {
							names = append(names, r.params[i].Name)
						}
					}
					return names
				}
				first := order()
				c := &course[*linears]{loss: backwards, steps: 1}
				n := whole / 2
				c.train(m, g.Options, g.Rank(), g.Rank()*n, g.Rank()*n+n)
				c.train(m, g.Options, g.Rank(), g.Rank()*n, g.Rank()*n+n)
				second := order()
				if slices.Equal(first, second) || !strings.HasPrefix(second[0], "L.0.") && !strings.HasPrefix(second[0], "l.0.") {
					t.Errorf("buckets are of %v, and then of %v", first, second)
				}
				if k := len(r.buckets); opts != nil && k < 3 {
					t.Errorf("there are %d buckets", k)
				}
				c.train(m, g.Options, g.Rank(), g.Rank()*n, g.Rank()*n+n)
				if !slices.Equal(order(), second) {
					t.Error("buckets are made anew once more")
				}
				if g.Rank() == 0 {
					bits[fmt.Sprint(weights(m))] = true
				}
			})
		}
		if len(bits) != 1 {
			t.Errorf("there are %d different results, by the size of buckets", len(bits))
		}
	})
}

// TestDDPNoGradThroughModel corresponds to torch's test_ddp_returns_tensor_with_no_grad. The loss
// of a step does not depend on the model.
func TestDDPNoGradThroughModel(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := DDP(nn.To(newLinears(12, 6), g.Device()), g)
			g.Do(func(s *tensor.Scope) {
				x := inputs(s, 0, 0, 4).SetRequiresGrad(true)
				m.L[0].Forward(x).Detach().Mul(x.Narrow(1, 0, 6)).Sum().Backward()
				if x.Grad() == nil || m.L[0].Weight.Grad() != nil {
					t.Error("a gradient is missing, or too many")
				}
			})
			g.Do(func(s *tensor.Scope) { m.L[0].Forward(inputs(s, 0, g.Rank(), g.Rank()+1)).Sum().Backward() })
			if all := Exchange(g, m.L[0].Weight.Grad().Floats()); !slices.Equal(all[0], all[1]) {
				t.Error("gradients differ behind a Backward that reaches no parameter")
			}
		})
	})
}
