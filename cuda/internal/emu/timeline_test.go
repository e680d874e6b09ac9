package emu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

type timelineOp struct {
	Op
	start, end time.Duration
}

func (m timelineOp) String() string {
	return fmt.Sprintf("%v %s of %d bytes, %d to %d, from %v to %v",
		m.Kind, m.Name, m.Bytes, m.From, m.To, m.start, m.end)
}

// rank uses one device of a driver, on its own goroutine and thread.
type rank struct {
	*Driver
	device int
	ctxs   []cu.Context // contexts of all devices
	a, b   cu.Stream
	kernel cu.Function
	src    cu.DevicePtr
	dst    []cu.DevicePtr // for each device, the address to which the other devices copy
	// events has a channel for each device. The device uses its channel to send the events of its
	// copies to the other devices.
	events  []chan cu.Event
	failure error
}

// record stores the first error.
func (k *rank) record(err error) {
	if k.failure == nil {
		k.failure = err
	}
}

// compute queues a kernel that takes almost no time, except for a latency that the test adds.
func (k *rank) compute(s cu.Stream) {
	one := cu.Dim3{X: 1, Y: 1, Z: 1}
	k.record(k.LaunchKernel(k.kernel, one, one, 0, s, nil))
}

// send queues a copy of n bytes to the device peer.
func (k *rank) send(peer int, n uint64) {
	k.record(k.MemcpyPeerAsync(k.dst[peer], k.ctxs[peer], k.src, k.ctxs[k.device], n, k.b))
}

// follow makes the stream named later wait for the work that is now queued on the stream named
// earlier. It returns the event for which the stream waits.
func (k *rank) follow(later, earlier cu.Stream) cu.Event {
	e, err := k.EventCreate(cu.EventDefault)
	k.record(err)
	k.record(k.EventRecord(e, earlier))
	k.record(k.StreamWaitEvent(later, e))
	return e
}

// ranks runs a program for each device, on goroutines that the test interleaves at random. It
// returns the operations of each device and stream (0 for a, 1 for b) with their times.
func ranks(t *testing.T, cfg Config, program func(k *rank)) (list [][2][]timelineOp, d *Driver) {
	t.Helper()
	const size = 1 << 20
	cfg.Devices, cfg.Memory = max(2, cfg.Devices), 8<<20
	var all []timelineOp
	cfg.Timeline = func(o Op, start, end time.Duration) { all = append(all, timelineOp{o, start, end}) }
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	group := make([]*rank, cfg.Devices)
	ctxs, dst := make([]cu.Context, cfg.Devices), make([]cu.DevicePtr, cfg.Devices)
	events := make([]chan cu.Event, cfg.Devices)
	for i := range group {
		k := &rank{Driver: d, device: i, ctxs: ctxs, dst: dst, events: events}
		group[i] = k
		ctxs[i] = must(d.PrimaryCtxRetain(cu.Device(i)))(t)
		events[i] = make(chan cu.Event, 1000)
		k.record(d.CtxSetCurrent(ctxs[i]))
		mod := must(d.ModuleLoadData([]byte(kernels), cu.JITOptions{}))(t)
		k.kernel = must(d.ModuleGetFunction(mod, "narrow"))(t)
		k.a = must(d.StreamCreate(cu.StreamNonBlocking, 0))(t)
		k.b = must(d.StreamCreate(cu.StreamNonBlocking, 0))(t)
		k.src, dst[i] = must(d.MemAlloc(size))(t), must(d.MemAlloc(size))(t)
	}
	for i, k := range group {
		k.record(d.CtxSetCurrent(ctxs[i]))
		for j := range group {
			if j != i && !cfg.NoPeer {
				k.record(d.CtxEnablePeerAccess(ctxs[j]))
			}
		}
	}
	k0 := group[0]
	k0.record(d.CtxSetCurrent(0))
	var wg sync.WaitGroup
	for i, k := range group {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			k.record(d.CtxSetCurrent(ctxs[i]))
			program(k)
			k.record(d.CtxSynchronize())
		})
	}
	wg.Wait()
	list = make([][2][]timelineOp, cfg.Devices)
	for i, k := range group {
		if k.failure != nil {
			t.Fatalf("device %d: %v", i, k.failure)
		}
	}
	for _, m := range all {
		k := group[m.Device]
		if m.Stream == k.a || m.Stream == k.b {
			of := &list[m.Device][0]
			if m.Stream == k.b {
				of = &list[m.Device][1]
			}
			// The handle of a stream depends on which goroutine creates streams first.
			m.Stream = 0
			*of = append(*of, m)
		}
	}
	return list, d
}

// planted returns a Config.Latency that adds latencies[i] to each kernel of device i.
func planted(latencies ...time.Duration) func(Op) time.Duration {
	return func(o Op) time.Duration {
		if o.Kind == KindKernel {
			return latencies[o.Device]
		}
		return 0
	}
}

// TestPipeline runs kernels on one stream. A second stream copies their results, after it has
// waited for events. Two devices do this at once. The kernels and the copies of a device overlap.
// So the device takes the time of all its kernels or of all its copies, whichever is longer, plus
// the time of one copy or one kernel. The test fails if a copy occupies the engine for kernels, or
// waits for the copies or the host of the second device.
func TestPipeline(t *testing.T) {
	const pieces, bytes = 50, 1 << 20
	for _, c := range []struct {
		link    float64
		kernel  []time.Duration
		bounded string
	}{
		{10e9, []time.Duration{200 * time.Microsecond, 200 * time.Microsecond}, "compute"},
		{2e9, []time.Duration{200 * time.Microsecond, 200 * time.Microsecond}, "copies"},
		{10e9, []time.Duration{200 * time.Microsecond, 700 * time.Microsecond}, "compute"},
	} {
		cfg := Config{Cost: Cost{PeerBytes: c.link}, Latency: planted(c.kernel...)}
		list, _ := ranks(t, cfg, func(k *rank) {
			for i := range pieces {
				k.compute(k.a)
				k.follow(k.b, k.a)
				k.send(1-k.device, bytes)
				if i%20 == 19 { // the host waits, which must not delay any operation
					runtime.Gosched()
				}
			}
		})
		for i, streams := range list {
			var compute, copies, total, copied time.Duration
			for _, m := range slices.Concat(streams[0], streams[1]) {
				total = max(total, m.end)
				switch m.Kind {
				case KindKernel:
					compute += m.end - m.start
				case KindCopyPeer:
					copies += m.end - m.start
					copied = m.end - m.start
					if m.From != i || m.To != 1-i || m.Bytes != bytes || m.Staged {
						t.Errorf("a copy of device %d: %v", i, m)
					}
				}
			}
			kernel := compute / pieces
			if kernel < c.kernel[i] || kernel > c.kernel[i]+3*time.Microsecond {
				t.Errorf("device %d: a kernel takes %v, want %v", i, kernel, c.kernel[i])
			}
			us := time.Microsecond
			if want := time.Duration(bytes/c.link*1e9) + us; copied < want || copied > want+us {
				t.Errorf("device %d: a copy takes %v, want %v", i, copied, want)
			}
			want, other := compute+copied, kernel+copies
			if c.bounded == "copies" {
				want, other = other, want
			}
			t.Logf("device %d: kernels %v, copies %v, both %v", i, compute, copies, total)
			if other >= want || total < want-want/100 || total > want+want/100 {
				t.Errorf("device %d: %v, want %v, bounded by %s", i, total, want, c.bounded)
			}
		}
	}
}

// exchange returns a program in which devices send their results to each other and add them up,
// while other kernels compute. Streams wait for events of their peers, and hosts wait for events of
// their own device.
func exchange(pieces int, pause func()) func(k *rank) {
	return func(k *rank) {
		n := len(k.ctxs)
		to, from := (k.device+1)%n, (k.device+n-1)%n
		for i := range pieces {
			k.compute(k.a)
			pause()
			k.follow(k.b, k.a)
			k.send(to, 1<<16)
			e, err := k.EventCreate(cu.EventDefault)
			k.record(err)
			k.record(k.EventRecord(e, k.b))
			k.events[k.device] <- e
			pause()
			k.compute(k.a)
			k.record(k.StreamWaitEvent(k.b, <-k.events[from])) // an event of another device
			k.compute(k.b)
			pause()
			if i%7 == 6 { // the host waits, like a program that reads the loss
				k.record(k.EventSynchronize(k.follow(k.a, k.b)))
			}
		}
	}
}

// TestTimesAreOfNoInterleaving runs goroutines, each with its own device, in several
// interleavings. The virtual times must always be the same.
func TestTimesAreOfNoInterleaving(t *testing.T) {
	const devices, pieces = 3, 30
	us := time.Microsecond
	cfg := Config{Devices: devices, Cost: Cost{PeerBytes: 1e9}, Latency: planted(40*us, 100*us, 70*us)}
	var first string
	for round := range uint64(12) {
		rng := rand.New(rand.NewPCG(round, 3))
		var mu sync.Mutex
		list, d := ranks(t, cfg, exchange(pieces, func() {
			mu.Lock()
			n := rng.IntN(8)
			mu.Unlock()
			switch {
			case n == 0:
				time.Sleep(50 * us)
			case n < 4:
				runtime.Gosched()
			}
		}))
		got := ""
		for i := range list {
			got += fmt.Sprintf("host of %d: %v\n", i, d.NowOf(i))
			for s, ms := range list[i] {
				for _, m := range ms {
					got += fmt.Sprintf("device %d, stream %d: %v\n", i, s, m)
				}
			}
		}
		if round == 0 {
			first = got
			checkExclusive(t, list, cfg.Latency)
		}
		if got != first {
			t.Fatalf("round %d:\n%s\nthe first was\n%s", round, got, first)
		}
	}
}

// checkExclusive fails the test if operations of one stream overlap, or if a device takes less than
// the sum of the times of its kernels.
func checkExclusive(t *testing.T, list [][2][]timelineOp, latency func(Op) time.Duration) {
	t.Helper()
	for i, streams := range list {
		var busy, last time.Duration
		for s, ms := range streams {
			var end time.Duration
			for _, m := range ms {
				if m.start < end || m.end < m.start {
					t.Errorf("device %d, stream %d: %v begins before %v", i, s, m, end)
				}
				end = m.end
				if m.Kind == KindKernel {
					busy += latency(m.Op)
					last = max(last, end)
				}
			}
		}
		if busy == 0 || last < busy {
			t.Errorf("device %d: %v of kernels in %v", i, busy, last)
		}
	}
}

// TestHostsAreTheirOwn checks that a wait advances only the host clock of the device whose context
// is current. Without a current context, it must advance the clock of the device that does the
// work.
func TestHostsAreTheirOwn(t *testing.T) {
	us := time.Microsecond
	var last timelineOp
	r, other := newPair(t, Config{Memory: 4 << 20, Latency: func(Op) time.Duration { return 1000 * us },
		Timeline: func(o Op, start, end time.Duration) { last = timelineOp{o, start, end} }})
	clocks := func(what string, want0, want1 time.Duration) {
		t.Helper()
		if a, b := r.NowOf(0), r.NowOf(1); a != want0 || b != want1 || r.Now() != max(a, b) {
			t.Errorf("%s: the clocks are at %v and %v, want %v and %v", what, a, b, want0, want1)
		}
	}
	r.ok(r.MemsetD32Async(r.alloc(256), 1, 64, 0))
	clocks("a fill is queued", 0, 0)
	r.ok(r.CtxSynchronize())
	filled := last.end
	clocks("waited for a fill of device 0", filled, 0)
	e := r.event()
	r.ok(r.EventRecord(e, 0))
	r.withContext(other, func() {
		r.ok(r.MemsetD32Async(r.alloc(256), 1, 64, 0))
		r.ok(r.CtxSynchronize())
		if last.Device != 1 || last.Kind != KindMemset || last.start != 0 || last.end != filled {
			t.Errorf("the other device began late: %v", last)
		}
		clocks("waited for a fill of device 1", filled, filled)
		r.ok(r.EventSynchronize(e))
		clocks("device 1 waited for device 0", filled, filled+1000*us)
		r.ok(r.MemsetD32Async(r.alloc(256), 1, 64, 0))
	})
	r.ok(r.EventRecord(e, 0)) // only the earlier record precedes this one in the stream
	r.ok(r.CtxSetCurrent(0))
	r.ok(r.EventSynchronize(e))
	clocks("nobody waited for device 0", filled+2000*us, filled+1000*us)
	if r.NowOf(-1) != 0 || r.NowOf(2) != 0 {
		t.Error("there is no such device")
	}
}

// TestEngines checks the engines of a device. Operations of one engine must run one after the
// other. Operations of different engines must run at the same time. A kernel that waits for a
// copy must not delay a kernel that is ready.
func TestEngines(t *testing.T) {
	const us, n = time.Microsecond, 1000
	// a direct copy takes 2 µs, and a copy through the host 4 µs
	cost := Cost{Copy: us, CopyBytes: 1e9, PeerBytes: 1e9}
	for _, staged := range []bool{false, true} {
		list, _ := ranks(t, Config{Cost: cost, NoPeer: staged, Latency: planted(50*us, 50*us)}, func(k *rank) {
			if k.device == 1 {
				return
			}
			host, err := k.MemHostAlloc(n, cu.HostPortable)
			k.record(err)
			k.send(1, n)
			// These copies use the links to the host. They overlap with a copy between devices that
			// avoids the host.
			k.record(k.MemcpyDtoHAsync(host, k.dst[0], n, k.a))
			k.record(k.MemcpyHtoDAsync(k.dst[0], host, n, k.b))
			k.follow(k.a, k.b)
			k.compute(k.a)
			k.compute(k.b)
			k.follow(k.a, k.b)
		})
		a, b := list[0][0], list[0][1]
		sent := 2 * us
		if staged {
			sent *= 2
		}
		down := time.Duration(0)
		if staged {
			down = sent
		}
		if m := b[0]; m.Kind != KindCopyPeer || m.start != 0 || m.end != sent || m.Staged != staged {
			t.Errorf("staged %v: %v, want it to take %v", staged, m, sent)
		}
		if m := a[0]; m.Kind != KindCopyDtoH || m.start != down || m.end != down+2*us {
			t.Errorf("staged %v: %v, want it at %v", staged, m, down)
		}
		if m := b[1]; m.Kind != KindCopyHtoD || m.start != sent || m.end != sent+2*us {
			t.Errorf("staged %v: %v, want it at %v", staged, m, sent)
		}
	}
	// A kernel that waits must not delay another kernel.
	list, _ := ranks(t, Config{Cost: cost, Latency: planted(50*us, 50*us)}, func(k *rank) {
		if k.device == 1 {
			return
		}
		for range 100 {
			k.send(1, n)
		}
		k.compute(k.b) // this kernel is ready after 200 µs
		k.compute(k.a)
		k.compute(k.a)
	})
	var starts []time.Duration
	for _, m := range list[0][0] {
		starts = append(starts, m.start)
	}
	if m := list[0][1][100]; len(starts) != 2 || starts[0] != 0 || starts[1] > 60*us || m.start != 200*us {
		t.Errorf("kernels that are ready begin at %v, behind %v", starts, m)
	}
}
