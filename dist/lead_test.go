package dist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestOnce makes some ranks fail, or compute nothing, while other ranks compute gradients. No rank
// may wait forever, and a rank without samples must get the average of the other ranks' gradients.
func TestOnce(t *testing.T) {
	forEach(t, []int{1, 3}, func(t *testing.T, l DeviceList) {
		broken := tensor.NewError("test", device.ErrOutOfMemory, "no memory")
		run(t, l, func(g *Group) {
			last := g.World() - 1
			m := fixed(nn.To(mlp(dtype.F64), g.Device()))
			r := g.NewReducer(m, FixedBuckets(), KeepBuffers(), BucketBytes(600, 3000))
			r.Reserve()
			step := func(n int, before, after error) ([]float64, error) {
				nn.ZeroGrad(m)
				r.Weigh(float64(n))
				err := tensor.Try(func() {
					r.Once(func() {
						if before != nil {
							panic(before)
						}
						if n == 0 {
							return
						}
						g.Do(func(s *tensor.Scope) {
							x, y := batch(s, dtype.F64, 0, 0, n)
							nn.CrossEntropy(m.Forward(x), y).Backward()
						})
						if after != nil {
							panic(after)
						}
					})
				})
				var all []float64
				for _, p := range nn.Parameters(m) {
					if d := p.Grad(); d != nil {
						all = append(all, d.Floats()...)
					}
				}
				return all, err
			}
			n := 4
			if g.Rank() == last && last > 0 {
				n = 0
			}
			want, err := step(n, nil, nil)
			if err != nil || len(want) == 0 {
				t.Errorf("%v: %d elements, %v", g, len(want), err)
			}
			var fail error
			if g.Rank() == last {
				fail = broken
			}
			_, err = step(4, fail, nil)
			var void *StepError
			switch {
			case fail != nil && err != fail:
				t.Errorf("%v fails with %v", g, err)
			case fail == nil && (!errors.As(err, &void) || void.Rank != last || !errors.Is(err, device.ErrOutOfMemory)):
				t.Errorf("%v is told of %v", g, err)
			}
			// this rank fails after the other ranks have finished the step
			if _, err = step(4, nil, fail); err != fail {
				t.Errorf("%v: %v", g, err)
			}
			got, err := step(n, nil, nil)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%v: other gradients after a failure, %v", g, err)
			}
		})
	})
}

func TestSpread(t *testing.T) {
	forEach(t, []int{1, 3}, func(t *testing.T, l DeviceList) {
		for _, what := range [][2]bool{{true, false}, {false, true}, {true, true}} {
			run(t, l, func(g *Group) {
				m := nn.NewSequential(nn.NewLinear(5, 4), nn.NewBatchNorm1d(4), nn.NewLinear(4, 3))
				nn.To(Make(g, func() *nn.Sequential { return m }), g.Device())
				r := g.NewReducer(m, FixedBuckets(), KeepBuffers())
				root := g.World() - 1
				for _, p := range nn.Named(m) {
					p.Tensor.Detach().Fill(float64(1 + g.Rank()))
				}
				r.Spread(root, what[0], what[1])
				for _, p := range nn.Named(m) {
					want := 1 + g.Rank()
					if p.Buffer && what[1] || !p.Buffer && what[0] {
						want = 1 + root
					}
					if v := p.Tensor.Detach().Floats(); v[0] != float64(want) || v[len(v)-1] != float64(want) {
						t.Errorf("%v, %v: %s is %v, want %d", g, what, p.Name, v, want)
					}
				}
			})
		}
	})
}

// TestReserved runs a step whose memory was reserved, and makes each allocation fail in turn. No
// rank may wait forever. If all allocations of a rank's Reserve succeed, the rank must have enough
// memory for the step.
func TestReserved(t *testing.T) {
	gpus, err := cuda.Emulate("emulate:2,mem=16MiB,segment=1KiB")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = Run(context.Background(), On(gpus[0], gpus[1]), func(_ context.Context, g *Group) error {
		dev := gpus[g.Rank()]
		m := fixed(nn.To(mlp(dtype.F32), g.Device()))
		r := g.NewReducer(m, FixedBuckets(), KeepBuffers(), BucketBytes(600, 3000))
		r.Reserve()
		failures := 0
		for i := range 40 {
			dev.Empty()
			if g.Rank() == i%2 {
				if err := dev.FailAlloc(1 + i/2); err != nil {
					return err
				}
			}
			err := tensor.Try(func() {
				r.Spread(0, true, true)
			})
			if err != nil {
				return fmt.Errorf("%v: a failure that passes is to be got over: %w", g, err)
			}
			err = tensor.Try(func() {
				r.Once(func() {
					g.Do(func(s *tensor.Scope) {
						x, y := batch(s, dtype.F32, 0, 0, 4)
						nn.CrossEntropy(m.Forward(x), y).Backward()
					})
				})
			})
			var void *StepError
			if err != nil && !errors.Is(err, device.ErrOutOfMemory) {
				return err
			}
			if err != nil && !errors.As(err, &void) {
				failures++
			}
			nn.ZeroGrad(m)
			if err := dev.FailAlloc(0); err != nil {
				return err
			}
			g.Barrier()
		}
		if failures < 5 {
			return fmt.Errorf("%v: %d failures", g, failures)
		}
		return nil
	}, InProcess())
	if err != nil || time.Since(began) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
