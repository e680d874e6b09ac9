package dist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// TestCancelled cancels runs whose ranks wait or compute. Run must return the cause of the
// cancellation. The test repeats runs: in some, a rank reports the cause before Run notices the
// cancellation.
func TestCancelled(t *testing.T) {
	forEach(t, []int{2}, func(t *testing.T, l DeviceList) {
		for i := range 50 {
			wait := i%2 == 0
			ctx, cancel := context.WithCancelCause(context.Background())
			err := Run(ctx, l, func(ctx context.Context, g *Group) error {
				if g.Rank() == 1 {
					cancel(errOwn)
					<-ctx.Done()
					return ctx.Err()
				}
				if wait {
					g.Barrier()
				}
				for ctx.Err() == nil {
					ones(g, 10).AddScalar(1)
				}
				return context.Cause(ctx)
			}, InProcess(), Timeout(time.Minute), Grace(10*time.Second))
			var blamed *RankError
			if !errors.Is(err, errOwn) || errors.As(err, &blamed) {
				t.Errorf("a cancelled run gives %v", err)
			}
		}
	})
}

// TestLeftBehind runs a rank that never calls a collective. Run must return without it, with an
// error that contains its stack.
func TestLeftBehind(t *testing.T) {
	l := Devices("cpu", "cpu")
	release, gone := make(chan struct{}), make(chan struct{})
	err := Run(context.Background(), l, func(_ context.Context, g *Group) error {
		if g.Rank() == 0 {
			return errOwn
		}
		defer close(gone)
		hearsNothing(release)
		return nil
	}, Grace(50*time.Millisecond))
	close(release)
	<-gone
	if !errors.Is(err, errOwn) {
		t.Errorf("the failure is lost: %v", err)
	}
	for _, w := range []string{"rank 0 of 2", "rank 1 did not return within 50ms", "hearsNothing", "endings_test.go"} {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func hearsNothing(release chan struct{}) { <-release }

// TestRunsWithinRuns starts a run inside a rank of another run, and two runs at the same time. They
// must not affect each other.
func TestRunsWithinRuns(t *testing.T) {
	sum := func(g *Group) float64 {
		x := ones(g, 3).MulScalar(float64(g.Rank() + 1))
		g.AllReduce(x, Sum)
		return x.Sum().Item()
	}
	outer, inner := lists(t, 2), lists(t, 3)
	for _, kind := range []string{"cpu", "cuda"} {
		t.Run(kind, func(t *testing.T) {
			run(t, outer[kind+"×2"], func(g *Group) {
				if got := sum(g); got != 9 {
					t.Errorf("the outer run sums to %v", got)
				}
				if g.Rank() == 1 { // rank 1 ends last, so rank 0 waits for it
					run(t, inner[kind+"×3"], func(g *Group) {
						if got := sum(g); got != 18 {
							t.Errorf("the inner run sums to %v", got)
						}
					})
					err := Run(context.Background(), inner[kind+"×3"], func(_ context.Context, g *Group) error {
						if g.Rank() == 2 {
							return errOwn
						}
						g.Barrier()
						return nil
					}, InProcess())
					if !errors.Is(err, errOwn) || g.Err() != nil {
						t.Errorf("a failed inner run gives %v, the outer %v", err, g.Err())
					}
				}
				if got := sum(g); got != 9 {
					t.Errorf("the outer run then sums to %v", got)
				}
			})
			var wg sync.WaitGroup
			for _, n := range []int{2, 3} {
				l := map[int]map[string]DeviceList{2: outer, 3: inner}[n][fmt.Sprintf("%s×%d", kind, n)]
				wg.Go(func() {
					run(t, l, func(g *Group) {
						for range 20 {
							if got, want := sum(g), float64(3*n*(n+1)/2); got != want {
								t.Errorf("a run beside another sums to %v, want %v", got, want)
							}
						}
					})
				})
			}
			wg.Wait()
		})
	}
}

// TestRefusedRuns checks that Run returns an error for invalid arguments before any rank starts.
func TestRefusedRuns(t *testing.T) {
	cpu0, err := device.Open("cpu:0")
	if err != nil {
		t.Fatal(err)
	}
	gpu := lists(t, 2)["cuda×2"].devices[0]
	f := func(context.Context, *Group) error { t.Error("there is a rank"); return nil }
	for name, c := range map[string]struct {
		l     DeviceList
		f     func(context.Context, *Group) error
		opts  []Option
		words string
	}{
		"no device":      {Devices(), f, nil, "no device"},
		"unknown":        {Devices("abacus:0", "abacus:1"), f, nil, "abacus"},
		"twice":          {On(cpu0, cpu0), f, nil, "ranks 0 and 1 are both on cpu:0"},
		"kinds":          {On(cpu0, gpu), f, nil, "of one kind"},
		"a nil device":   {On(cpu0, nil), f, nil, "device 1 is nil"},
		"no function":    {On(cpu0), nil, nil, "no function"},
		"a nil option":   {On(cpu0), f, []Option{Seed(1), nil}, "option 1 is nil"},
		"the zero value": {DeviceList{}, f, nil, "no device"},
	} {
		err := Run(context.Background(), c.l, c.f, c.opts...)
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: Run returns %v", name, err)
		}
	}
}
