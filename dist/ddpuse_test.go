package dist

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// bent returns the loss of a nonlinear model with two layers.
func bent(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
	return m.L[1].Forward(m.L[0].Forward(inputs(s, step, lo, hi)).Tanh()).Mul(m.S).Square().Mean()
}

// TestDDPNoSync corresponds to torch's test_accumulate_gradients_no_sync, _grad_is_view and
// _allreduce_hook. The gradients of two parts of the batch add up, and only the second run of
// Backward reduces them.
func TestDDPNoSync(t *testing.T) {
	one := newLinears(12, 6, 3)
	(&course[*linears]{loss: bent}).train(one, func() []tensor.Option { return nil }, -1, 0, whole)
	mean := WithHook(func(_ *Group, b Bucket) func() { b.Average(b.Grads); return nil })
	for name, c := range map[string]struct {
		opts []DDPOption
		keep bool // whether the gradients stay views of their buckets after the step
	}{"plain": {}, "buckets": {opts: []DDPOption{BucketBytes(100, 300)}}, "hook": {opts: []DDPOption{mean}}, "views": {keep: true}} {
		t.Run(name, func(t *testing.T) {
			forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
				got := make([][]float64, 2)
				run(t, l, func(g *Group) {
					m := DDP(nn.To(newLinears(12, 6, 3), g.Device()), g, c.opts...)
					lo := g.Rank() * whole / 2
					first := func(s *tensor.Scope, step int) {
						g.NoSync(func() {
							bent(s, m, step, 0, lo, lo+3).DivScalar(2).Backward()
							all := Exchange(g, m.L[0].Weight.Grad().Floats())
							if slices.Equal(all[0], all[1]) {
								t.Error("gradients were averaged too early")
							}
						})
					}
					cc := &course[*linears]{
						loss: func(s *tensor.Scope, m *linears, step, rank, lo, hi int) *tensor.Tensor {
							first(s, step)
							return bent(s, m, step, 0, lo+3, lo+6).DivScalar(2)
						},
					}
					if c.keep {
						cc.zero = func(m *linears) {
							for _, p := range nn.Parameters(m) {
								p.Grad().Zero()
							}
						}
					}
					cc.train(m, g.Options, g.Rank(), lo, lo+whole/2)
					got[g.Rank()] = weights(m)
				})
				(&course[*linears]{}).compare(t, got, weights(one))
			})
		})
	}
}

// TestDDPBackwardTwice corresponds to torch's test_ddp_accumulate without no_sync. Backward runs
// twice before a step, and both runs average gradients.
func TestDDPBackwardTwice(t *testing.T) {
	c := &course[*linears]{
		model: func() *linears { return newLinears(12, 6, 3) },
		loss: func(s *tensor.Scope, m *linears, step, rank, lo, hi int) *tensor.Tensor {
			bent(s, m, step+10, rank, lo, hi).Backward()
			return bent(s, m, step, rank, lo, hi)
		},
	}
	c.check(t)
}

// TestDDPGradIsView corresponds to torch's gradient_as_bucket_view and test_grad_is_view. After the
// first Backward a gradient is a view of its bucket, so a Backward that adds to it copies nothing.
func TestDDPGradIsView(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.To(newLinears(12, 6, 3), g.Device())
			r := g.NewReducer(m)
			once := func() { g.Do(func(s *tensor.Scope) { bent(s, m, 0, 0, g.Rank()*6, g.Rank()*6+6).Backward() }) }
			once()
			once() // from here on, the order of the buckets stays the same
			views := map[*tensor.Tensor]bool{}
			for _, b := range r.buckets {
				for _, v := range b.views {
					views[v] = true
				}
			}
			for _, p := range nn.Named(m) {
				if !views[p.Tensor.Grad()] {
					t.Errorf("the gradient of %s is no view of a bucket", p.Name)
				}
			}
			g.Barrier()
			flattened := func(f func()) int {
				c := &copies{}
				if g.Rank() == 0 && !device.SetTracer(c) {
					t.Error("another tracer listens")
				}
				Exchange(g, 0)
				f()
				g.Barrier()
				if g.Rank() == 0 {
					device.SetTracer(nil)
				}
				Exchange(g, 0)
				return c.n
			}
			if n := flattened(once); g.Rank() == 0 && n > 0 {
				t.Errorf("a run that adds to gradients copies them in %d spans", n)
			}
			nn.ZeroGrad(m)
			// each copy has a span, and so does the launch inside it, so each copy counts twice
			if n := flattened(once); g.Rank() == 0 && n != 2*2*len(r.buckets) {
				t.Errorf("a run that makes gradients copies them in %d spans, with %d buckets and 2 ranks", n, len(r.buckets))
			}
		})
	})
}

// copies is a tracer that counts the spans for copies of gradients to their buckets.
type copies struct {
	mu sync.Mutex
	n  int
}

func (*copies) Wants() device.TraceWants  { return device.TraceWants{} }
func (*copies) End(device.SpanID)         {}
func (*copies) Recorded(uint64)           {}
func (*copies) Kernel(device.KernelEvent) {}
func (*copies) Copy(device.CopyEvent)     {}
func (*copies) Sync(device.SyncEvent)     {}
func (*copies) Memory(device.MemoryEvent) {}

func (c *copies) Begin(s device.Span) device.SpanID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.Name == "flatten" {
		c.n++
	}
	return device.NewSpanID()
}

// TestDDPHookParity corresponds to torch's test_ddp_hook_parity_allreduce, _post_localSGD and
// _powerSGD. Hooks compute the mean in other ways than DDP does.
func TestDDPHookParity(t *testing.T) {
	for name, h := range map[string]CommHook{
		"all reduce": func(g *Group, b Bucket) func() {
			g.AllReduce(b.Grads, Sum)
			return func() { b.Grads.DivScalarInPlace(float64(g.World())) }
		},
		// scale before the sum and after it, as a hook with compression does
		"scaled": func(g *Group, b Bucket) func() {
			b.Grads.MulScalarInPlace(0.125)
			g.AllReduce(b.Grads, Mean)
			return func() { b.Grads.MulScalarInPlace(8) }
		},
		"gathered": func(g *Group, b Bucket) func() {
			n := b.Grads.Size()
			all := tensor.Root().On(g.Device()).Typed(b.Grads.Type()).Empty(g.World(), n)
			g.AllGather(all, b.Grads)
			return func() {
				b.Grads.Copy(all.Mean(0))
				all.Free()
			}
		},
		"scattered": func(g *Group, b Bucket) func() {
			n := (b.Grads.Size() + g.World() - 1) / g.World()
			at := tensor.Root().On(g.Device()).Typed(b.Grads.Type())
			padded, part := at.Zeros(n*g.World()), at.Empty(n)
			padded.Narrow(0, 0, b.Grads.Size()).Copy(b.Grads)
			g.ReduceScatter(part, padded, Mean)
			g.AllGather(padded, part)
			return func() {
				b.Grads.Copy(padded.Narrow(0, 0, b.Grads.Size()))
				padded.Free()
				part.Free()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, bytes := range []int{100, 1 << 20} {
				c := &course[*linears]{
					model: func() *linears { return newLinears(12, 6, 3) },
					loss:  bent,
					opts:  []DDPOption{WithHook(h), BucketBytes(bytes, bytes)},
				}
				c.check(t)
			}
		})
	}
}

// TestDDPCommHookFinish corresponds to torch's test_ddp_comm_hook_future_passing_cpu. The gradients
// must be what finish stores in the bucket, and the bucket must have the names of its parameters.
func TestDDPCommHookFinish(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			var names []string
			var seen []int
			m := nn.To(newLinears(12, 6, 3), g.Device())
			DDP(m, g, BucketBytes(100, 300), WithHook(func(_ *Group, b Bucket) func() {
				names, seen = append(names, b.Names...), append(seen, b.Index)
				if b.Index >= b.Of || b.Grads.Rank() != 1 {
					t.Errorf("bucket %d of %d has shape %v", b.Index, b.Of, b.Grads.Shape())
				}
				return func() { b.Grads.Fill(42) }
			}))
			g.Do(func(s *tensor.Scope) { bent(s, m, 0, 0, 0, 4).Backward() })
			for _, p := range nn.Named(m) {
				if v := p.Tensor.Grad().Floats(); slices.Min(v) != 42 || slices.Max(v) != 42 || !slices.Contains(names, p.Name) {
					t.Errorf("the gradient of %s is %v; buckets hold %v", p.Name, v[0], names)
				}
			}
			if !slices.IsSorted(seen) || len(seen) < 3 {
				t.Errorf("buckets came as %v", seen)
			}
		})
	})
}

// TestDDPCompress corresponds to torch's test_ddp_hook_parity with bf16_compress_hook. The losses
// are within 2 % of those of one process.
func TestDDPCompress(t *testing.T) {
	losses := func(m *linears, rank int, dev func() []tensor.Option, lo, hi int, mean func(float64) float64) (all []float64) {
		c := &course[*linears]{steps: 12, loss: func(s *tensor.Scope, m *linears, step, _, lo, hi int) *tensor.Tensor {
			loss := bent(s, m, 0, 0, lo, hi)
			all = append(all, mean(loss.Item()))
			return loss
		}}
		c.train(m, dev, rank, lo, hi)
		return all
	}
	one := losses(newLinears(12, 6, 3), -1, func() []tensor.Option { return nil }, 0, whole, func(v float64) float64 { return v })
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := DDP(nn.To(newLinears(12, 6, 3), g.Device()), g, Compress())
			got := losses(m, g.Rank(), g.Options, g.Rank()*6, g.Rank()*6+6, func(v float64) float64 {
				all := Exchange(g, v)
				return (all[0] + all[1]) / 2
			})
			same := true
			for i := range one {
				if math.Abs(got[i]-one[i]) > 0.02*one[i] {
					t.Errorf("loss %d is %v, of one process %v", i, got[i], one[i])
				}
				same = same && got[i] == one[i]
			}
			if same {
				t.Error("nothing was rounded")
			}
			if v := Exchange(g, weights(m)); !slices.Equal(v[0], v[1]) {
				t.Error("weights differ")
			}
		})
	})
}

// TestDDPBuffers corresponds to torch's test_ddp_broadcast_buffer and test_ddp_buffer_hook…. After
// a Backward, each rank must have the buffers of rank 0. With KeepBuffers, each rank keeps its own
// buffers.
func TestDDPBuffers(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		for _, keep := range []bool{false, true} {
			run(t, l, func(g *Group) {
				norm := nn.NewBatchNorm1d(12, nn.Typed(dtype.F64))
				m := nn.To(nn.NewSequential(norm, nn.NewLinear(12, 3, nn.Typed(dtype.F64))), g.Device())
				var opts []DDPOption
				if keep {
					opts = append(opts, KeepBuffers())
				}
				DDP(m, g, opts...)
				var own []float64
				for range 2 {
					g.Do(func(s *tensor.Scope) {
						y := m.Forward(inputs(s, g.Rank(), 0, 4)).Square().Mean()
						own = norm.RunningMean.Floats()
						y.Backward()
					})
				}
				all, before := Exchange(g, norm.RunningMean.Floats()), Exchange(g, own)
				for r := range all {
					want := before[0]
					if keep {
						want = before[r]
					}
					if !slices.Equal(all[r], want) {
						t.Errorf("keep %v: rank %d has running means %v, want %v", keep, r, all[r][:2], want[:2])
					}
				}
				if slices.Equal(before[0], before[1]) {
					t.Error("ranks saw the same batch")
				}
			})
		}
	})
}

// TestDDPNonDefaultStream corresponds to torch's test_DistributedDataParallel_non_default_stream.
// The forward and the backward pass run on a stream that is not the default stream.
func TestDDPNonDefaultStream(t *testing.T) {
	one := newLinears(12, 6, 3)
	c := &course[*linears]{loss: bent, opts: []DDPOption{BucketBytes(100, 300)}}
	c.train(one, func() []tensor.Option { return nil }, -1, 0, whole)
	got := make([][]float64, 2)
	l := lists(t, 2)["cuda×2"]
	run(t, l, func(g *Group) {
		st, err := g.Device().NewStream(0)
		if err != nil {
			panic(err)
		}
		m := DDP(nn.To(newLinears(12, 6, 3), g.Device()), g, c.opts...)
		c.train(m, func() []tensor.Option { return append(g.Options(), tensor.Stream(st)) }, g.Rank(), g.Rank()*6, g.Rank()*6+6)
		got[g.Rank()] = weights(m)
	})
	c.compare(t, got, weights(one))
}

// TestDDPTwoModels corresponds to torch's test_ddp_two_models. Two models, like a generator and a
// discriminator, are in one group. A run of Backward reaches one model or both.
func TestDDPTwoModels(t *testing.T) {
	type pair struct {
		nn.Base
		A, B *linears
	}
	loss := func(s *tensor.Scope, m *pair, step, rank, lo, hi int) *tensor.Tensor {
		y := m.A.L[0].Forward(inputs(s, step, lo, hi)).Tanh()
		if step%2 == 0 {
			y = m.B.L[0].Forward(y)
		}
		return y.Square().Mean()
	}
	model := func() *pair { return &pair{A: newLinears(12, 6), B: newLinears(6, 6)} }
	c := &course[*pair]{loss: loss}
	one := model()
	c.train(one, func() []tensor.Option { return nil }, -1, 0, whole)
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		got := make([][]float64, 2)
		run(t, l, func(g *Group) {
			m := nn.To(model(), g.Device())
			DDP(m.A, g)
			DDP(m.B, g)
			c.train(m, g.Options, g.Rank(), g.Rank()*6, g.Rank()*6+6)
			got[g.Rank()] = weights(m)
		})
		c.compare(t, got, weights(one))
	})
}

// TestDDPAfterARun corresponds to torch's test_ddp_python_error_logged. When a run has failed, DDP
// no longer averages gradients, and the model can train in one process.
func TestDDPAfterARun(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		models := make([]*linears, 2)
		err := bounded(t, l, 0, func(_ context.Context, g *Group) error {
			models[g.Rank()] = DDP(nn.To(newLinears(12, 6, 3), g.Device()), g)
			return errOwn
		})
		if !errors.Is(err, errOwn) {
			t.Fatal(err)
		}
		for _, m := range models {
			if m != nil {
				tensor.Do(func(s *tensor.Scope) { bent(s, m, 0, 0, 0, 4).Backward() }, tensor.On(m.S.Device()))
				if m.L[0].Weight.Grad() == nil {
					t.Error("there is no gradient")
				}
			}
		}
	})
}

// TestDDPClose checks that Reducer.Close ends the averaging and does not change gradients.
func TestDDPClose(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := nn.To(newLinears(12, 6, 3), g.Device())
			r := g.NewReducer(m)
			once := func() { g.Do(func(s *tensor.Scope) { bent(s, m, 0, 0, g.Rank()*6, g.Rank()*6+6).Backward() }) }
			once()
			kept := m.L[0].Weight.Grad().Floats()
			r.Close()
			if !slices.Equal(kept, m.L[0].Weight.Grad().Floats()) {
				t.Error("the gradient has changed")
			}
			nn.ZeroGrad(m)
			once()
			if all := Exchange(g, m.L[0].Weight.Grad().Floats()); slices.Equal(all[0], all[1]) {
				t.Error("gradients are averaged behind Close")
			}
		})
	})
}

// TestDDPNoSyncUnused corresponds to torch's test_ddp_shared_grad_acc_unused_params. A parameter is
// reached only by runs of Backward within NoSync. The first Backward after NoSync must still
// average its gradient.
func TestDDPNoSyncUnused(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			m := DDP(nn.To(newLinears(12, 6, 3), g.Device()), g, BucketBytes(100, 300))
			lo := g.Rank() * 4
			for range 2 {
				nn.ZeroGrad(m)
				g.NoSync(func() {
					g.Do(func(s *tensor.Scope) { bent(s, m, 0, 0, lo, lo+4).Backward() })
				})
				own := m.L[1].Weight.Grad().Floats()
				g.Do(func(s *tensor.Scope) { m.L[0].Forward(inputs(s, 1, lo, lo+4)).Square().Mean().Backward() })
				want := make([]float64, len(own))
				for _, v := range Exchange(g, own) {
					for i := range v {
						want[i] += v[i] / float64(g.World())
					}
				}
				if d := distance(m.L[1].Weight.Grad().Floats(), want); !(d < 1e-12) {
					t.Errorf("the gradient is %v from the mean", d)
				}
			}
		})
	})
}
