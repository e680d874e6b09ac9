package dist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func ownError(g *Group) error {
	return tensor.NewError("planted", tensor.ErrValue, fmt.Sprintf("rank %d fails", g.Rank()))
}

// TestVoid makes ranks fail in a step while the other ranks are at various points of it. All ranks
// must get an error and repeat the step. The gradients must then be those of one process.
func TestVoid(t *testing.T) {
	hooked := func(g *Group, m *linears, who int) {
		if g.Rank() == who {
			remove := m.L[0].Weight.RegisterHook(func(*tensor.Tensor) *tensor.Tensor { panic(ownError(g)) })
			defer remove()
		}
		backward(g, m)
	}
	for _, c := range []struct {
		name string
		f    func(g *Group, m *linears, x *tensor.Tensor)
		// ranks that fail with their own error, unless another rank's error reaches them first
		own []int
	}{
		{"in forward, while others are in Backward", func(g *Group, m *linears, _ *tensor.Tensor) {
			if g.Rank() == 1 {
				panic(ownError(g))
			}
			backward(g, m)
		}, []int{1}},
		{"in Backward", func(g *Group, m *linears, _ *tensor.Tensor) { hooked(g, m, 2) }, []int{2}},
		{"in two ranks", func(g *Group, m *linears, _ *tensor.Tensor) {
			if g.Rank() == 0 {
				panic(ownError(g))
			}
			hooked(g, m, 1)
		}, []int{0, 1}},
		{"in all ranks", func(g *Group, _ *linears, _ *tensor.Tensor) { panic(ownError(g)) }, []int{0, 1, 2}},
		{"while others are in collectives of the program", func(g *Group, m *linears, x *tensor.Tensor) {
			switch g.Rank() {
			case 0:
				panic(ownError(g))
			case 1:
				g.AllReduce(x, Sum)
				g.Barrier()
			case 2:
				g.AllReduce(x, Sum).Wait()
				g.Barrier()
			}
			backward(g, m)
		}, []int{0}},
		{"while a message waits", func(g *Group, m *linears, x *tensor.Tensor) {
			switch g.Rank() {
			case 0:
				g.Send(x, 1)
			case 1:
				panic(ownError(g))
			case 2:
				g.Recv(x, 0).Wait()
			}
			backward(g, m)
		}, []int{1}},
		{"within NoSync", func(g *Group, m *linears, _ *tensor.Tensor) {
			g.NoSync(func() { hooked(g, m, 0) })
			backward(g, m)
		}, []int{0}},
		{"while an op waits", func(g *Group, m *linears, x *tensor.Tensor) {
			if g.Rank() == 2 {
				panic(ownError(g))
			}
			g.AllReduce(x, Sum)
			x.AddScalar(1).Floats()
			backward(g, m)
		}, []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEach(t, []int{3}, func(t *testing.T, l DeviceList) {
				err := bounded(t, l, 0, func(_ context.Context, g *Group) error {
					m := DDP(nn.To(newLinears(12, 6, 3), g.Device()), g, BucketBytes(100, 300))
					for try := range 3 { // make several steps void in succession
						x := ones(g, 5)
						err := tensor.Try(func() { c.f(g, m, x) })
						var step *StepError
						switch told := errors.As(err, &step); {
						case err == nil:
							t.Errorf("rank %d is told of nothing", g.Rank())
						case !told && !slices.Contains(c.own, g.Rank()) || told && len(c.own) == 1 && c.own[0] == g.Rank():
							t.Errorf("rank %d is told %v", g.Rank(), err)
						case told && (!slices.Contains(c.own, step.Rank) || step.Device != l.devices[step.Rank].Name() || !errors.Is(err, tensor.ErrValue)):
							t.Errorf("rank %d is told of rank %d: %v", g.Rank(), step.Rank, err)
						}
						g.Void(err)
						nn.ZeroGrad(m)
						if try == 0 {
							continue
						}
						backward(g, m)
						one := newLinears(12, 6, 3)
						tensor.Do(func(s *tensor.Scope) { bent(s, one, 0, 0, 0, whole).Backward() })
						for i, p := range nn.Parameters(m) {
							if d := distance(p.Grad().Floats(), nn.Parameters(one)[i].Grad().Floats()); !(d < 1e-12) {
								t.Errorf("rank %d: gradient %d is %v from one process", g.Rank(), i, d)
							}
						}
						nn.ZeroGrad(m)
						y := ones(g, 5)
						if g.AllReduce(y, Sum); y.Floats()[4] != 3 {
							t.Errorf("a sum is then %v", y.Floats())
						}
						if g.Rank() == 0 {
							g.Send(y, 2)
						} else if g.Rank() == 2 {
							z := ones(g, 5)
							if g.Recv(z, 0); z.Floats()[0] != 3 {
								t.Errorf("a message is then %v", z.Floats())
							}
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// backward runs a step on the whole batch, divided among three ranks.
func backward(g *Group, m *linears) {
	g.Do(func(s *tensor.Scope) { bent(s, m, 0, 0, g.Rank()*4, g.Rank()*4+4).Backward() })
}

// TestVoidEnds lets a rank fail without catching its error, or makes a step void without one rank
// learning of it. The run must always end.
func TestVoidEnds(t *testing.T) {
	for _, c := range []mistake{
		{name: "the program ends by the failure", kind: tensor.ErrValue, rank: 1, words: []string{"rank 1 fails"},
			f: func(_ *marks, _ context.Context, g *Group) error {
				m := DDP(nn.To(newLinears(12, 6, 3), g.Device()), g)
				if g.Rank() == 1 {
					m.L[0].Weight.RegisterHook(func(*tensor.Tensor) *tensor.Tensor { panic(ownError(g)) })
				}
				backward(g, m)
				return nil
			}},
		{name: "a rank returns", kind: ErrLeft, rank: 1, words: []string{"rank 0", "void", "rank 1 fails"},
			f: func(_ *marks, _ context.Context, g *Group) error {
				if g.Rank() == 1 {
					g.Void(ownError(g))
					g.Barrier()
				}
				return nil
			}},
		{name: "a rank sleeps", kind: ErrTimeout, rank: 1, wait: 300 * time.Millisecond, words: []string{"rank 0", "void", "rank 1 fails", "sleepsTooLong"},
			f: func(m *marks, ctx context.Context, g *Group) error {
				if g.Rank() == 0 {
					sleepsTooLong(ctx)
					return nil
				}
				g.Void(ownError(g))
				m.markLine(func() { g.Barrier() })
				return nil
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
				m := &marks{}
				err := bounded(t, l, c.wait, func(ctx context.Context, g *Group) error { return c.f(m, ctx, g) })
				c.check(t, l, m, err)
			})
		})
	}
}

// TestVoidCollective runs a sum over ranks while rank 1 cannot allocate any memory. The failure
// must make the step void. If the program does not catch the error, the run must end.
func TestVoidCollective(t *testing.T) {
	gpus, err := cuda.Emulate("emulate:2,mem=1MiB,segment=1KiB")
	if err != nil {
		t.Fatal(err)
	}
	l := On(gpus[0], gpus[1])
	for _, cares := range []bool{true, false} {
		err = bounded(t, l, 0, func(_ context.Context, g *Group) error {
			x := ones(g, 1000)
			var room []device.Buffer
			if g.Rank() == 1 {
				for _, n := range []int{64 << 10, 1 << 10, 512} {
					for {
						b, err := g.Device().Alloc(n, nil, device.Origin{Op: "ballast"})
						if err != nil {
							break
						}
						room = append(room, b)
					}
				}
			}
			g.Barrier()
			err := tensor.Try(func() { g.AllReduce(x, Sum).Wait() })
			for _, b := range room {
				b.Free()
			}
			var step *StepError
			if !errors.Is(err, device.ErrOutOfMemory) || errors.As(err, &step) != (g.Rank() == 0) {
				t.Errorf("rank %d is told %v", g.Rank(), err)
			}
			if !cares {
				return err
			}
			g.Void(err)
			x = ones(g, 1000)
			if g.AllReduce(x, Sum); x.Floats()[999] != 2 {
				t.Errorf("the sum is then %v", x.Floats()[999])
			}
			return nil
		})
		var blamed *RankError
		switch {
		case cares && err != nil:
			t.Error(err)
		case !cares && (!errors.As(err, &blamed) || blamed.Rank != 1 || !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "all reduce")):
			t.Errorf("Run returns %v", err)
		}
	}
}

// TestSmallerParts runs a sum over ranks when memory is short. The ranks must exchange smaller
// parts, and the result must have the same bits.
func TestSmallerParts(t *testing.T) {
	gpus, err := cuda.Emulate("emulate:3,mem=1MiB,segment=1KiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, gather := range []bool{false, true} {
		run(t, On(gpus[0], gpus[1], gpus[2]), func(g *Group) {
			x, y := ones(g, 3000).MulScalar(float64(g.Rank()+1)), ones(g, 1000)
			g.Barrier()
			if d := g.Device().(*cuda.Device); g.Rank() == 1 {
				d.Empty()
				if err := d.FailAlloc(1); err != nil {
					panic(err)
				}
			}
			before := g.Device().Stats().OOMs
			if gather {
				g.ReduceScatter(y, x, Sum)
			} else {
				g.AllReduce(x, Sum)
				y = x
			}
			for i, v := range y.Floats() {
				if v != 6 {
					t.Fatalf("element %d is %v", i, v)
				}
			}
			g.Barrier()
			if n := g.Device().Stats().OOMs - before; g.Rank() == 1 && n != 1 {
				t.Errorf("memory was short %d times", n)
			}
		})
	}
}
