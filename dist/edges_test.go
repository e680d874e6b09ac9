package dist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestMessagesInTurn lets a rank receive a tensor and send it on while the next message is already
// on its way. The rank must send the tensor that it has received.
func TestMessagesInTurn(t *testing.T) {
	forEach(t, []int{3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			x := tensor.Root().On(g.Device()).Full(float64(g.Rank()+10), 4)
			switch g.Rank() {
			case 0:
				time.Sleep(50 * time.Millisecond)
				g.Send(x, 1).Wait()
			case 1:
				g.Recv(x, 0)
				g.Send(x, 2).Wait()
			case 2:
				g.Recv(x, 1).Wait()
				if v := x.Floats()[0]; v != 10 {
					t.Errorf("rank 2 got %v, not what rank 0 sent", v)
				}
			}
		})
	})
}

// TestJoinedRankIsMissed calls, inside Join, a collective that needs a rank without data. The run
// must end, and the error must say why.
func TestJoinedRankIsMissed(t *testing.T) {
	for name, f := range map[string]func(g *Group, x *tensor.Tensor){
		"receive":   func(g *Group, x *tensor.Tensor) { g.Recv(x, 0).Wait() },
		"split":     func(g *Group, _ *tensor.Tensor) { g.Split(0, 0) },
		"broadcast": func(g *Group, x *tensor.Tensor) { g.Broadcast(x, 0).Wait() },
	} {
		for _, late := range []bool{false, true} {
			err := Run(context.Background(), Devices("cpu", "cpu"), func(_ context.Context, g *Group) error {
				x := tensor.Root().On(g.Device()).Ones(4)
				if g.Rank() == 0 && late {
					time.Sleep(20 * time.Millisecond)
				}
				g.Join(func() {
					if g.Rank() == 1 {
						if !late {
							time.Sleep(20 * time.Millisecond)
						}
						f(g, x)
					}
				})
				return nil
			}, Timeout(5*time.Second))
			if !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "no more data") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestCancelledAtTheEnd cancels the context while the ranks return: the process must not end.
func TestCancelledAtTheEnd(t *testing.T) {
	for range 300 {
		ctx, cancel := context.WithCancel(context.Background())
		_ = Run(ctx, Devices("cpu", "cpu"), func(context.Context, *Group) error {
			cancel()
			return nil
		})
	}
}

// TestPinnedMemory starts a collective while a copy from a GPU to host memory is pending. The
// collective must wait for the copy.
func TestPinnedMemory(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	run(t, Devices("cpu", "cpu"), func(g *Group) {
		for range 10 {
			g.Do(func(s *tensor.Scope) {
				x := s.On(gpus[0]).Full(float64(g.Rank()+1), 50000).To(g.Device(), tensor.NonBlocking())
				g.AllReduce(x, Sum)
				if v := x.Floats()[49999]; v != 3 {
					t.Errorf("the sum is %v", v)
				}
			})
		}
	})
}

// TestNoWeight sets all weights of a reduction to 0. This must be an error on every kind of device.
func TestNoWeight(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		err := Run(context.Background(), l, func(_ context.Context, g *Group) error {
			m := mlp(dtype.F32)
			r := g.NewReducer(nn.To(m, g.Device()))
			r.Weigh(0)
			g.Do(func(s *tensor.Scope) {
				x, _ := batch(s, dtype.F32, 0, 0, 2)
				m.Forward(x).Mean().Backward()
			})
			return nil
		}, InProcess())
		if err == nil || !strings.Contains(err.Error(), "all weights are 0") {
			t.Errorf("%v", err)
		}
	})
}

// TestNoMember calls every method on a nil Group, the group of a rank that is not a member. Each
// must panic with an error that says so.
func TestNoMember(t *testing.T) {
	var g *Group
	for name, f := range map[string]func(){
		"ddp":     func() { DDP(mlp(dtype.F32), g) },
		"no sync": func() { g.NoSync(func() {}) }, "join": func() { g.Join(func() {}) },
		"capture": func() { _, _ = g.Capture(func(*tensor.Scope) {}) },
		"err":     func() { _ = g.Err() }, "generator": func() { g.Generator() },
		"devices": func() { g.Devices() }, "backend": func() { g.Backend() },
	} {
		if err := tensor.Try(f); !errors.Is(err, ErrMember) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWorkersComeBack runs many ranks of the CPU, which share its workers, and then one rank alone.
// That rank must get all workers again.
func TestWorkersComeBack(t *testing.T) {
	for _, names := range [][]string{{"cpu", "cpu", "cpu", "cpu"}, {"cpu"}} {
		run(t, Devices(names...), func(*Group) {})
	}
	d, err := device.Open("cpu:0")
	if err != nil {
		t.Fatal(err)
	}
	if n := d.(device.WorkerSharer).Workers(); n != workers() {
		t.Errorf("%d workers of %d", n, workers())
	}
}

// TestStreamsAreUrgent checks the priority of a group's streams. It must be higher than that of a
// rank's own streams, because other ranks wait for the group's work.
func TestStreamsAreUrgent(t *testing.T) {
	_, l := emulated(t, "2,mem=64MiB")
	err := bounded(t, l, 0, func(_ context.Context, g *Group) error {
		s, own := g.core.streams[g.Rank()].(cuda.Stream), cuda.DefaultStream(g.Device().(*cuda.Device))
		if s.Priority() <= own.Priority() {
			return fmt.Errorf("rank %d's stream has priority %d, and its default stream %d", g.Rank(), s.Priority(), own.Priority())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
