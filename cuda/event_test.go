package cuda

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
)

func TestStreamAPI(t *testing.T) { onBoth(t, "emulate,mem=16MiB,seed=2", testStreamAPI) }

func testStreamAPI(t *testing.T, d *Device) {
	least, greatest := PriorityRange(d)
	if least != 0 || greatest < 1 {
		t.Errorf("priorities from %d to %d", least, greatest)
	}
	for _, c := range [][2]int{{0, 0}, {1, 1}, {greatest, greatest}, {100, greatest}, {-7, 0}} {
		s, err := NewStream(d, c[0])
		must(t, err)
		if s.Priority() != c[1] || s.Device() != device.Device(d) || !strings.Contains(s.(*stream).String(), "cuda:0 stream 0x") {
			t.Errorf("priority %d, asked for %d: %v", s.Priority(), c[0], s)
		}
	}
	a, err := NewStream(d, 0)
	must(t, err)
	b, err := NewStream(d, 1)
	must(t, err)
	if DefaultStream(d) != d.DefaultStream() || DefaultStream(d).Priority() != 0 {
		t.Error("the default stream is another")
	}
	x := floats(t, d, a, fill(1, 100)...)
	y := empty(t, d, b, 100)
	for range 5 {
		must(t, apply(d, a, next, views(x), views(x)))
	}
	must(t, b.WaitStream(a))
	must(t, b.WaitStream(b))
	must(t, apply(d, b, double, views(y), views(x)))
	for done := false; !done; { // each query lets the emulated device execute a little more work
		done, err = b.Query()
		must(t, err)
	}
	check(t, d, b, y, fill(12, 100)...)
	if done, err := a.Query(); !done || err != nil {
		t.Errorf("a is behind b, which waited for it: %v, %v", done, err)
	}
	var v *device.OperandError
	if err := a.WaitStream(nil); !errors.As(err, &v) {
		t.Errorf("waiting for nothing: %v", err)
	}
	host, err := device.Open("cpu")
	must(t, err)
	must(t, a.WaitStream(host.DefaultStream()))
	if _, err := NewStream(host, 0); !errors.As(err, &v) {
		t.Errorf("a stream of the CPU: %v", err)
	}
}

func TestEvent(t *testing.T) { onBoth(t, "emulate,mem=16MiB,seed=2", testEvent) }

func testEvent(t *testing.T, d *Device) {
	a, b := stream2(t, d)
	e, err := NewEvent(d)
	must(t, err)
	if done, err := e.Query(); !done || err != nil || e.Wait() != nil || a.Wait(e) != nil || !e.Done() {
		t.Error("an event that was never recorded holds something up")
	}
	x := floats(t, d, a, fill(1, 100)...)
	y := empty(t, d, b, 100)
	for i := range 4 { // every iteration records the same event again
		must(t, apply(d, a, next, views(x), views(x)))
		must(t, e.Record(a))
		must(t, b.Wait(e))
		must(t, apply(d, b, double, views(y), views(x)))
		check(t, d, b, y, fill(float32(2*(i+2)), 100)...)
		must(t, a.(*stream).WaitStream(b))
	}
	must(t, e.Wait())
	if done, err := e.Query(); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	var v *device.OperandError
	if err := e.Record(emulated(t, "emulate,mem=4MiB").DefaultStream()); !errors.As(err, &v) {
		t.Errorf("recorded on a stream of another GPU: %v", err)
	}
	if _, err := e.Elapsed(e); !errors.As(err, &v) || !strings.Contains(err.Error(), "EnableTiming") {
		t.Errorf("the time of an event that takes none: %v", err)
	}
	h := e.handle.h
	e.Release()
	e.Release()
	if err := e.Record(a); err == nil {
		t.Error("a released event was recorded")
	}
	if _, err := e.Query(); err == nil || e.Wait() == nil || a.Wait(e) == nil || !e.Done() {
		t.Error("a released event is used")
	}
	if e, err = NewEvent(d); err != nil || e.handle.h != h {
		t.Errorf("a released event is not used again: %v", err)
	}
	// The garbage collector must give unused events back to the driver.
	for range 10 {
		d.timers.mu.Lock()
		free := len(d.timers.free)
		d.timers.mu.Unlock()
		if free > 0 {
			return
		}
		lost, err := NewEvent(d, EnableTiming())
		must(t, err)
		must(t, lost.Record(a))
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("events that nobody can reach are not given back")
}

// TestElapsed gives the emulated device known latencies. The time between two events must be their
// sum.
func TestElapsed(t *testing.T) {
	const step = 5 * time.Millisecond
	api, err := emu.New(emu.Config{Memory: 16 << 20, Latency: func(op emu.Op) time.Duration {
		if op.Kind == emu.KindKernel {
			return step
		}
		return 0
	}})
	must(t, err)
	p, err := newPlatform(api)
	must(t, err)
	d, err := p.open(0)
	must(t, err)
	x := floats(t, d, nil, 1, 2, 3)
	start, err := NewEvent(d, EnableTiming())
	must(t, err)
	end, err := NewEvent(d, EnableTiming())
	must(t, err)
	refused := func(from, to *Event, why string) {
		t.Helper()
		var v *device.OperandError
		if _, err := from.Elapsed(to); !errors.As(err, &v) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
	refused(start, end, "start: it was never recorded")
	refused(start, nil, "not an event of cuda:0")
	must(t, start.Record(nil))
	for range 3 {
		must(t, apply(d, nil, next, views(x), views(x)))
	}
	must(t, end.Record(nil))
	refused(start, end, "has not got there yet")
	must(t, end.Wait())
	took, err := start.Elapsed(end)
	if err != nil || took < 3*step || took > 3*step+step/2 {
		t.Errorf("%v for three kernels of %v, %v", took, step, err)
	}
	plain, err := NewEvent(d)
	must(t, err)
	must(t, plain.Record(nil))
	must(t, plain.Wait())
	refused(start, plain, "end: it takes no time")
	if s := start.String(); s != "event of cuda:0, with timing" || plain.String() != "event of cuda:0" {
		t.Error(s, plain)
	}
}

// TestEventTellsIndexErrors checks that an index error is returned once, by the first wait for the
// work that caused it. The test waits for an event, or for a stream that has waited for the event.
func TestEventTellsIndexErrors(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	src, index, out := floats(t, d, nil, 1, 2, 3), longs(t, d, nil, 7), empty(t, d, nil, 1)
	must(t, device.Run(d, nil, &device.Gather{Out: out, Src: src, Index: index, Tag: 5}))
	e, err := NewEvent(d)
	must(t, err)
	must(t, e.Record(nil))
	s, err := NewStream(d, 0)
	must(t, err)
	must(t, s.Wait(e))
	var x *device.IndexError
	if err := s.Synchronize(); !errors.As(err, &x) || x.Tag != 5 {
		t.Errorf("%v, want the index error", err)
	}
	must(t, e.Wait())
	must(t, device.Run(d, nil, &device.Gather{Out: out, Src: src, Index: index, Tag: 6}))
	must(t, e.Record(nil))
	if err := e.Wait(); !errors.As(err, &x) || x.Tag != 6 {
		t.Errorf("%v, want the index error", err)
	}
	must(t, d.Synchronize())
}

func TestEventFromGoroutines(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB,seed=5")
	e, err := NewEvent(d, EnableTiming())
	must(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := NewStream(d, 0)
			if err != nil {
				t.Error(err)
				return
			}
			for range 20 {
				if err := errors.Join(e.Record(s), s.Wait(e), e.Wait()); err != nil {
					t.Error(err)
				}
				e.Done()
			}
		})
	}
	wg.Wait()
	e.Release()
}

// TestEventsWhileRecording checks waits for events while work is recorded. Waits and queries
// between recorded streams and other streams must return an error. Waits among recorded streams,
// and among other streams, must succeed.
func TestEventsWhileRecording(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	r, err := d.NewRecording()
	must(t, err)
	defer r.Abort()
	s := r.Stream().(Stream)
	fork, err := r.Fork(d)
	must(t, err)
	e, err := NewEvent(d, EnableTiming())
	must(t, err)
	unset, err := NewEvent(d)
	must(t, err)
	other, err := NewStream(d, 0)
	must(t, err)
	must(t, s.Wait(unset))
	must(t, e.Record(other))
	once, err := other.Record()
	must(t, err)
	must(t, s.Wait(once)) // all replays must wait for this event
	refused := func(what string, err error) {
		t.Helper()
		var re *device.RecordError
		if !errors.As(err, &re) || re.Why == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = s.Query()
	refused("a question about a recording", err)
	refused("a wait for a recording", other.WaitStream(s))
	refused("a wait for what is not recorded", s.Wait(e))
	refused("a wait of a fork for what is not recorded", fork.Wait(e))
	refused("a wait for a stream that is not recorded", s.WaitStream(other))
	refused("a wait of a fork for a stream that is not recorded", fork.(Stream).WaitStream(other))

	must(t, e.Record(fork))
	must(t, s.Wait(e))
	must(t, fork.Wait(e))
	must(t, s.WaitStream(fork))
	must(t, fork.(Stream).WaitStream(s))
	_, err = e.Query()
	refused("a question about a recorded mark", err)
	refused("a wait of the host for a recorded mark", e.Wait())
	refused("a wait of another stream for a recorded mark", other.Wait(e))
	_, err = e.Elapsed(e)
	refused("the time of a recorded mark", err)
	again, err := d.NewRecording()
	must(t, err)
	refused("a wait of another recording", again.Stream().Wait(e))
	refused("a wait of another recording for a stream", again.Stream().(Stream).WaitStream(fork))
	again.Abort()
	// this stream belongs to no recording, so e is an ordinary event again
	must(t, e.Record(other))
	must(t, e.Wait())
	must(t, other.Synchronize())
}
