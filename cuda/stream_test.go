package cuda

import (
	"fmt"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

var seeds = []int{0, 1, 2, 3, 4, 5}

// TestStreamsUnderAdversarialOrder uses two streams, which an emulated GPU runs in the order of the
// calls and in adversarial orders. A real GPU is tested too, if there is one. Results must depend
// only on events. Buffers are freed while another stream still reads them, and the stream that owns
// them allocates memory again.
func TestStreamsUnderAdversarialOrder(t *testing.T) {
	for _, seed := range seeds {
		testStreams(t, emulated(t, fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed)), seed)
	}
	if d := hardware(t); d != nil {
		testStreams(t, d, -1)
	}
}

func testStreams(t *testing.T, d *Device, seed int) {
	before := d.Stats()
	a, b := stream2(t, d)
	const n = 300
	total := floats(t, d, b, fill(0, n)...)
	for i := range 12 {
		x := floats(t, d, a, fill(float32(i), n)...)
		y := empty(t, d, a, n)
		must(t, apply(d, a, double, views(y), views(x)))
		x.Buf.Free() // the next iteration reuses this memory on stream a, after the work queued here
		e, err := a.Record()
		must(t, err)
		must(t, b.Wait(e))
		e.Release()
		y.Buf.Use(b)
		must(t, apply(d, b, plus, views(total), views(total, y)))
		y.Buf.Free() // stream b may not have begun to read y yet
	}
	check(t, d, b, total, fill(2*66, n)...)
	must(t, d.Synchronize())
	total.Buf.Free()
	if s := d.Stats(); s.Allocated != before.Allocated {
		t.Errorf("seed %d: before %+v, after %+v", seed, before, s)
	}
}

func stream2(t *testing.T, d *Device) (a, b device.Stream) {
	t.Helper()
	a, err := d.NewStream(0)
	must(t, err)
	b, err = d.NewStream(1)
	must(t, err)
	if a.ID() == b.ID() || a.ID() == d.DefaultStream().ID() {
		t.Fatal("streams are not told apart")
	}
	return a, b
}

// TestBetweenDevices tests two GPUs that copy a vector back and forth. Each copy waits for an event
// of the GPU from which it copies.
func TestBetweenDevices(t *testing.T) {
	for _, seed := range seeds {
		list, err := Emulate(fmt.Sprintf("emulate:2,mem=16MiB,seed=%d", seed))
		must(t, err)
		const n = 100
		v := floats(t, list[0], nil, fill(0, n)...)
		for i := range 10 {
			from, to := list[i%2], list[(i+1)%2]
			must(t, apply(from, nil, next, views(v), views(v)))
			e, err := from.DefaultStream().Record()
			must(t, err)
			s := to.DefaultStream()
			must(t, s.Wait(e))
			e.Release()
			w := empty(t, to, nil, n)
			v.Buf.Use(s)
			must(t, to.CopyFrom(s, w.Buf, 0, v.Buf, 0, 4*n))
			// s is a stream of the second device. The pool must wait for it before it reuses the
			// memory of v.
			v.Buf.Free()
			v = w
		}
		check(t, list[0], nil, v, fill(10, n)...)
		for _, d := range list {
			must(t, d.Synchronize())
		}
		if c := list[0].Counters(); c != (Counters{Launches: 5, Kernels: 1, Compiled: c.Compiled, Uploads: 1, Downloads: 1, Copies: 5, DownloadedBytes: 4 * n}) {
			t.Errorf("%+v", c)
		}
	}
}

func TestEvents(t *testing.T) { onBoth(t, "emulate,mem=16MiB,seed=3", testEvents) }

func testEvents(t *testing.T, d *Device) {
	a, _ := stream2(t, d)
	x := floats(t, d, a, fill(1, 50)...)
	must(t, apply(d, a, double, views(x), views(x)))
	e, err := a.Record()
	must(t, err)
	for !e.Done() { // each query lets the emulated device execute a little more work
	}
	must(t, e.Wait())
	e.Release()
	e.Release() // a second Release has no effect
	if err := e.Wait(); err == nil {
		t.Error("a released event was waited for")
	}
	if err := a.Wait(e); err == nil {
		t.Error("a stream waits for a released event")
	}
	must(t, a.Wait(hostEvent{}))
	again, err := a.Record()
	must(t, err)
	if again.(*event).handle != e.(*event).handle {
		t.Error("a released event is not used again")
	}
	again.Release()
	must(t, a.Synchronize())
}

// hostEvent is an event of another driver, which the host must wait for.
type hostEvent struct{}

func (hostEvent) Done() bool  { return true }
func (hostEvent) Wait() error { return nil }
func (hostEvent) Release()    {}

func TestOverlappingCopy(t *testing.T) { onBoth(t, "emulate,mem=16MiB", testOverlappingCopy) }

func testOverlappingCopy(t *testing.T, d *Device) {
	before := d.Stats()
	for _, c := range [][2]int{{0, 1}, {1, 0}, {0, 0}, {0, 3}, {3, 0}} {
		x := floats(t, d, nil, 1, 2, 3, 4, 5, 6)
		want := []float32{1, 2, 3, 4, 5, 6}
		copy(want[c[0]:c[0]+3], append([]float32(nil), want[c[1]:c[1]+3]...))
		must(t, d.CopyFrom(nil, x.Buf, 4*c[0], x.Buf, 4*c[1], 12))
		check(t, d, nil, x, want...)
		x.Buf.Free()
	}
	if s := d.Stats(); s.Allocated != before.Allocated {
		t.Errorf("before %+v, after %+v", before, s)
	}
}

// TestConcurrentUse starts four goroutines that use a new device at the same time. They load the
// same kernels, and use streams, events and memory.
func TestConcurrentUse(t *testing.T) {
	list, err := Emulate("emulate:2,mem=32MiB,seed=7")
	must(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := concurrentWork(t, list[g%2], g); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	for _, d := range list {
		must(t, d.Synchronize())
		loaded := 0
		d.kernels.Range(func(any, any) bool { loaded++; return true })
		if loaded != 1 {
			t.Errorf("%s: %d kernels loaded, want 1", d.Name(), loaded)
		}
	}
}

func concurrentWork(t *testing.T, d *Device, g int) error {
	s, err := d.NewStream(g % 2)
	if err != nil {
		return err
	}
	const n = 64
	p := lower(expr.X(0).Add(expr.Param(0)), 1)
	for i := range 8 {
		x := floats(t, d, s, fill(float32(g), n)...)
		y := empty(t, d, s, n)
		if err := device.Run(d, s, &device.Map{Program: p, Outs: views(y), Ins: views(x), Params: []uint64{expr.Encode(p.Params[0], float64(i))}}); err != nil {
			return err
		}
		e, err := s.Record()
		if err != nil {
			return err
		}
		if err := d.DefaultStream().Wait(e); err != nil {
			return err
		}
		e.Release()
		x.Buf.Free()
		check(t, d, s, y, fill(float32(g+i), n)...)
		y.Buf.Free()
		d.Stats()
	}
	return s.Synchronize()
}
