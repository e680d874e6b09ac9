package dist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestDDPGradDivUnevenInputs corresponds to torch's test_ddp_grad_div_uneven_inputs, with Weigh.
// Ranks have batches of different sizes, even empty batches. The gradients must be those of the
// whole batch.
func TestDDPGradDivUnevenInputs(t *testing.T) {
	// for each step, the number of samples of each rank
	parts := [][]int{{5, 7}, {12, 0}, {0, 12}, {1, 11}}
	one := newLinears(12, 6, 3)
	c := &course[*linears]{loss: bent}
	c.train(one, func() []tensor.Option { return nil }, -1, 0, whole)
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		for _, opts := range [][]DDPOption{nil, {BucketBytes(100, 300)}} {
			got := make([][]float64, 2)
			run(t, l, func(g *Group) {
				m := nn.To(newLinears(12, 6, 3), g.Device())
				r := g.NewReducer(m, opts...)
				cc := &course[*linears]{loss: func(s *tensor.Scope, m *linears, step, rank, _, _ int) *tensor.Tensor {
					n := parts[step]
					r.Weigh(float64(n[rank]))
					if n[rank] == 0 {
						// the loss of a rank without samples is 0, but it still depends on the
						// parameters
						var none *tensor.Tensor
						for _, p := range nn.Parameters(m) {
							if x := p.In(s).Sum().MulScalar(0); none == nil {
								none = x
							} else {
								none = none.Add(x)
							}
						}
						return none
					}
					return bent(s, m, step, rank, rank*n[0], rank*n[0]+n[rank])
				}}
				cc.train(m, g.Options, g.Rank(), 0, 0)
				got[g.Rank()] = weights(m)
			})
			c.compare(t, got, weights(one))
		}
	})
}

// TestDDPWithoutSamples lets a rank without samples call Void(nil) in place of Backward. The other
// ranks' training must continue.
func TestDDPWithoutSamples(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.To(newLinears(12, 6, 3), g.Device())
			r := g.NewReducer(m)
			for step := range 3 {
				idle := step % g.World()
				if g.Rank() == idle {
					r.Weigh(0)
					r.Void(nil)
				} else {
					r.Weigh(1)
					g.Do(func(s *tensor.Scope) { bent(s, m, step, 0, g.Rank()*4, g.Rank()*4+4).Backward() })
				}
				alone := newLinears(12, 6, 3)
				n := 0
				for rank := range g.World() {
					if rank != idle {
						tensor.Do(func(s *tensor.Scope) { bent(s, alone, step, 0, rank*4, rank*4+4).Backward() })
						n++
					}
				}
				want := alone.L[0].Weight.Grad().DivScalar(float64(n)).Floats()
				if d := distance(m.L[0].Weight.Grad().Floats(), want); !(d < 1e-12) {
					t.Errorf("step %d, rank %d: the gradient is %v from that of the ranks with samples", step, g.Rank(), d)
				}
				nn.ZeroGrad(m)
			}
		})
	})
}

// TestDDPUnevenInputs corresponds to torch's test_ddp_uneven_inputs, also with no_sync. Ranks have
// different numbers of batches. The gradient of a step must be the mean over the ranks that still
// have a batch.
func TestDDPUnevenInputs(t *testing.T) {
	for _, world := range []int{2, 3} {
		counts := []int{5, 2, 3}[:world]
		for _, nosync := range []bool{false, true} {
			one := newLinears(12, 6, 3)
			sgd := func(m any) *optim.SGD {
				return optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
			}
			opt := sgd(one)
			grads := func(s *tensor.Scope, m *linears, step, rank int, scale float64, quiet func(func())) {
				lo := rank * 4
				if nosync {
					quiet(func() { bent(s, m, step+50, 0, lo, lo+4).MulScalar(scale).Backward() })
				}
				bent(s, m, step, 0, lo, lo+4).MulScalar(scale).Backward()
			}
			for step := range slices.Max(counts) {
				n := 0
				for _, k := range counts {
					if step < k {
						n++
					}
				}
				for rank, k := range counts {
					if step < k {
						tensor.Do(func(s *tensor.Scope) { grads(s, one, step, rank, 1/float64(n), func(f func()) { f() }) })
					}
				}
				opt.Step()
				opt.ZeroGrad()
			}
			want := weights(one)
			t.Run(fmt.Sprintf("no sync %v", nosync), func(t *testing.T) {
				forEach(t, []int{world}, func(t *testing.T, l DeviceList) {
					got := make([][]float64, world)
					run(t, l, func(g *Group) {
						m := DDP(nn.To(newLinears(12, 6, 3), g.Device()), g, BucketBytes(100, 300))
						opt := sgd(m)
						g.Join(func() {
							for step := range counts[g.Rank()] {
								g.Do(func(s *tensor.Scope) { grads(s, m, step, g.Rank(), 1, g.NoSync) })
								opt.Step()
								opt.ZeroGrad()
							}
						})
						got[g.Rank()] = weights(m)
						// After Join all ranks take part in collectives again.
						x := ones(g, 3)
						g.AllReduce(x, Sum)
						if x.Floats()[0] != float64(world) {
							t.Errorf("behind Join a sum is %v", x.Floats()[0])
						}
						g.Do(func(s *tensor.Scope) { bent(s, m, 0, 0, g.Rank()*4, g.Rank()*4+4).Backward() })
						if all := Exchange(g, m.L[0].Weight.Grad().Floats()); !slices.Equal(all[0], all[g.Rank()]) {
							t.Error("behind Join gradients differ")
						}
					})
					(&course[*linears]{}).compare(t, got, want)
				})
			})
		}
	}
}

// TestDDPJoinModelEquivalence corresponds to torch's test_ddp_join_model_equivalence. Ranks have
// different numbers of batches, one of them none. All ranks must end with the same model.
func TestDDPJoinModelEquivalence(t *testing.T) {
	forEach(t, []int{3}, func(t *testing.T, l DeviceList) {
		for _, counts := range [][]int{{0, 0, 2}, {2, 0, 0}, {1, 1, 1}, {0, 0, 0}} {
			run(t, l, func(g *Group) {
				m := nn.To(nn.NewSequential(nn.NewBatchNorm1d(12), nn.NewLinear(12, 3)), g.Device())
				DDP(fixed(m), g)
				before := weights(m)
				opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1})
				g.Join(func() {
					for step := range counts[g.Rank()] {
						g.Do(func(s *tensor.Scope) {
							x, y := batch(s, dtype.F32, step, g.Rank()*4, g.Rank()*4+4)
							nn.CrossEntropy(m.Forward(x), y.RemainderScalar(3)).Backward()
						})
						opt.Step()
						opt.ZeroGrad()
					}
				})
				all := Exchange(g, weights(m))
				if !slices.Equal(all[0], all[1]) || !slices.Equal(all[0], all[2]) {
					t.Errorf("%v batches: models differ", counts)
				}
				if moved := !slices.Equal(before, all[0]); moved != (slices.Max(counts) > 0) {
					t.Errorf("%v batches: the model has moved: %v", counts, moved)
				}
			})
		}
	})
}

// TestDDPUnevenInputsExceptions corresponds to torch's test_ddp_uneven_input_join_disable and
// _exception. Without Join, uneven inputs are an error. Within Join, a collective that needs a rank
// without data is an error.
func TestDDPUnevenInputsExceptions(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		err := bounded(t, l, 0, func(_ context.Context, g *Group) error {
			m := averaged(g)
			for range 1 + g.Rank() {
				stepped(g, m)
			}
			return nil
		})
		if !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "gradients of ") {
			t.Errorf("uneven inputs without Join: %v", err)
		}
		m := &marks{}
		err = bounded(t, l, 0, func(_ context.Context, g *Group) error {
			g.Join(func() {
				if g.Rank() == 1 {
					m.markLine(func() { g.Broadcast(ones(g, 3), 0).Wait() })
				}
			})
			return nil
		})
		if !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "rank 0") || !strings.Contains(err.Error(), m.lines[0]) {
			t.Errorf("a broadcast from a rank without data: %v", err)
		}
		err = bounded(t, l, 0, func(_ context.Context, g *Group) error {
			g.Join(func() {
				for k := range 4 - g.Rank() {
					if k == 2 && g.Rank() == 0 {
						panic(errOwn)
					}
					g.AllReduce(ones(g, 3), Sum)
				}
			})
			return nil
		})
		if !errors.Is(err, errOwn) {
			t.Errorf("a failure while others have no data: %v", err)
		}
	})
}

// TestDDPStopIteration corresponds to torch's test_ddp_uneven_inputs_stop_iteration_sync_bn. A
// layer such as a synchronised batch norm needs all ranks. The training must therefore end on all
// ranks when one rank has no more data.
func TestDDPStopIteration(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.To(nn.NewSequential(nn.NewBatchNorm1d(12), nn.NewLinear(12, 3)), g.Device())
			DDP(ConvertSyncBatchNorm(fixed(m), g), g)
			steps := 0
			for have := 5 - 2*g.Rank(); ; have-- {
				if left := Exchange(g, have); slices.Min(left) == 0 {
					break
				}
				g.Do(func(s *tensor.Scope) {
					x, y := batch(s, dtype.F32, steps, g.Rank()*4, g.Rank()*4+4)
					nn.CrossEntropy(m.Forward(x), y.RemainderScalar(3)).Backward()
				})
				steps++
			}
			if steps != 3 {
				t.Errorf("rank %d made %d steps", g.Rank(), steps)
			}
			if all := Exchange(g, weights(m)); !slices.Equal(all[0], all[1]) {
				t.Error("models differ")
			}
		})
	})
}

// TestJoinLastRank checks which rank gives its model to all ranks at the end of Join. It must be
// the rank whose f returned last, even if that rank leaves the group before another rank does.
func TestJoinLastRank(t *testing.T) {
	run(t, Devices("cpu", "cpu"), func(g *Group) {
		clone := g.Clone().core
		if g.Rank() != 0 {
			return
		}
		g.core.leaving(1)
		clone.retire(1, nil)
		g.core.leaving(0) // note that f has returned on rank 0 before it returns on rank 1
		clone.retire(0, nil)
		cores := []*core{g.core, clone}
		g.core.retire(0, cores)
		if at := g.core.retire(1, cores); at.last != 0 {
			t.Errorf("rank %d is the last one", at.last)
		}
	})
}
