package cpu

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/device/devicetest"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// rank opens a rank of the CPU by its name.
func rank(t *testing.T, name string) *Device {
	t.Helper()
	d, err := device.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Device)
}

func TestConformanceOfRank(t *testing.T) { devicetest.Run(t, rank(t, "cpu:200")) }

// TestRanksAreDevices checks that each rank is a device of its own. Open must always return the
// same device for a rank, and lists of devices must not contain ranks.
func TestRanksAreDevices(t *testing.T) {
	a, b := rank(t, "cpu:0"), rank(t, "cpu:1")
	if a == Get() || a == b || a != rank(t, "cpu:0") || b != rank(t, "cpu:1") {
		t.Errorf("cpu is %p, cpu:0 is %p, cpu:1 is %p", Get(), a, b)
	}
	for _, d := range []*Device{Get(), a, b} {
		if o, err := device.Open(d.Name()); err != nil || o != device.Device(d) || d.String() != d.Name() {
			t.Errorf("%s is not opened by its name: %v, %v", d, o, err)
		}
		if i := d.Info(); i.Kind != "cpu" || !i.Host || i != Get().Info() {
			t.Errorf("%s: %+v", d, i)
		}
	}
	if a.Name() != "cpu:0" || b.Name() != "cpu:1" || Get().Name() != "cpu" {
		t.Errorf("names %s, %s and %s", a, b, Get())
	}
	if n, err := device.Count("cpu"); n != 1 || err != nil {
		t.Errorf("%d devices, %v", n, err)
	}
	rank(t, "cpu:255")
	var u *device.UnavailableError
	if _, err := device.Open("cpu:256"); !errors.As(err, &u) || u.Name != "cpu:256" || !strings.Contains(u.Reason, "256 ranks") {
		t.Errorf("cpu:256: %v", err)
	}
	for _, name := range []string{"cpu:-1", "cpu:", "cpu:x"} {
		if _, err := device.Open(name); !errors.As(err, &u) || u.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRankIsOpenedOnce opens the same rank in several goroutines at once. All must get the same
// device.
func TestRankIsOpenedOnce(t *testing.T) {
	var got [8]device.Device
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], _ = device.Open("cpu:77") })
	}
	wg.Wait()
	for _, d := range got {
		if d == nil || d != got[0] {
			t.Fatalf("%v", got)
		}
	}
}

// TestMemoryOfRanks allocates memory on several ranks. The memory must count on the rank that
// allocated it, and other ranks must refuse to use it. But copying and borrowing between ranks must
// work.
func TestMemoryOfRanks(t *testing.T) {
	a, b, host := rank(t, "cpu:2"), rank(t, "cpu:3"), Get()
	const n = 3 << 20
	before := b.Stats().Allocated
	buf := func(d *Device) device.Buffer {
		m, err := d.Alloc(n, d.DefaultStream(), device.Origin{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Free)
		return m
	}
	x := buf(a)
	if a.Stats().Allocated < n || b.Stats().Allocated != before {
		t.Errorf("%d bytes of %s in use, %d of %s", a.Stats().Allocated, a, b.Stats().Allocated, b)
	}
	if x.Device() != device.Device(a) || a.Owns(x) != "" || !strings.Contains(b.Owns(x), "another device") || host.Owns(x) == "" {
		t.Errorf("owners: %q, %q, %q", a.Owns(x), b.Owns(x), host.Owns(x))
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range x.Host() {
		x.Host()[i] = byte(rnd.Uint32())
	}
	for _, d := range []*Device{a, b, host} {
		y := buf(d)
		if err := d.CopyFrom(d.DefaultStream(), y, 5, x, 7, n-9); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(y.Host()[5:n-4], x.Host()[7:n-2]) {
			t.Errorf("the copy on %s differs", d)
		}
		var flawed *device.OperandError
		if err := d.CopyFrom(d.DefaultStream(), y, 0, x, 10, n); !errors.As(err, &flawed) || flawed.Arg != "src" {
			t.Errorf("too much copied to %s: %v", d, err)
		}
	}
	var flawed *device.OperandError
	if err := b.Upload(b.DefaultStream(), x, 0, []byte{1}); !errors.As(err, &flawed) || flawed.Device != "cpu:3" {
		t.Errorf("upload to memory of another: %v", err)
	}
	if err := b.CopyFrom(b.DefaultStream(), x, 0, x, 0, 1); !errors.As(err, &flawed) || flawed.Arg != "dst" {
		t.Errorf("copy to memory of another: %v", err)
	}
	released := 0
	lent := b.Borrow(x.Host(), func() { released++ })
	if b.Owns(lent) != "" || a.Owns(lent) == "" || lent.Addr() != x.Addr() {
		t.Errorf("lent memory is %q to its user, %q to its owner", b.Owns(lent), a.Owns(lent))
	}
	in := newView(t, b, dtype.U8, 1)
	in.Buf = lent
	out := newView(t, b, dtype.U8, 1)
	do(t, b, mapOf(expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{dtype.U8}, []dtype.Type{dtype.U8}, -1), out, in))
	if out.Buf.Host()[0] != x.Host()[0] {
		t.Error("lent memory reads differently")
	}
	lent.Free()
	lent.Free()
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}

// TestLimitOfRank exceeds the memory limit of a rank. The error must name the rank.
func TestLimitOfRank(t *testing.T) {
	d := rank(t, "cpu:4")
	d.SetMemoryLimit(8 << 20)
	defer d.SetMemoryLimit(0)
	_, err := d.Alloc(64<<20, d.DefaultStream(), device.Origin{Op: "test"})
	if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "cpu:4") {
		t.Errorf("%v", err)
	}
}

// TestDevicesShareTheBound allocates memory on several devices. Before a device gets a limit of its
// own, the memory of all devices together counts towards the initial limit.
func TestDevicesShareTheBound(t *testing.T) {
	if initialLimit() == 0 {
		t.Skip("the system does not tell how much memory there is")
	}
	a, b := &memory{}, &memory{}
	a.shared.Store(true)
	b.shared.Store(true)
	held := reserved.Load()
	reserved.Add(initialLimit() - held - 6<<20)
	defer func() { reserved.Add(-(initialLimit() - held - 6<<20)) }()
	addr, err := a.Alloc(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.Alloc(4 << 20); !errors.Is(err, pool.ErrNoMemory) {
		t.Errorf("beyond the bound: %v", err)
	}
	if _, err = b.Alloc(1 << 60); !errors.Is(err, pool.ErrNoMemory) {
		t.Errorf("far beyond the bound: %v", err)
	}
	b.shared.Store(false) // b now counts only its own memory
	own, err := b.Alloc(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b.Free(own, 4<<20)
	a.Free(addr, 4<<20)
	b.shared.Store(true)
	if addr, err = b.Alloc(4 << 20); err != nil {
		t.Fatalf("the memory has come back: %v", err)
	}
	b.Free(addr, 4<<20)
}

// TestSetWorkers changes the number of workers while ops run. The results must not depend on the
// number.
func TestSetWorkers(t *testing.T) {
	d := rank(t, "cpu:5")
	defer d.SetWorkers(0)
	if d.Workers() != runtime.GOMAXPROCS(0) {
		t.Errorf("a rank begins with %d workers", d.Workers())
	}
	in := newView(t, d, dtype.F32, 700, 900)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range in.Size() {
		at[float32](pointer(&in), in.Size())[i] = rnd.Float32() - 0.3
	}
	b := in
	in.Layout, b.Layout = in.Unsqueeze(0), in.Transpose(0, 1).Unsqueeze(0)
	compute := func() []byte {
		c, sum := newView(t, d, dtype.F32, 1, 700, 700), newView(t, d, dtype.F32, 1, 700, 1)
		do(t, d, &device.MatMul{Out: c, A: in, B: b})
		do(t, d, reduceOf(device.Sum, sum, c))
		return append(bytes.Clone(c.Buf.Host()), sum.Buf.Host()...)
	}
	var want []byte
	for _, n := range []int{1, 4, 2, 1, 3} {
		d.SetWorkers(n)
		if d.Workers() != n {
			t.Errorf("%d workers, want %d", d.Workers(), n)
		}
		got := compute()
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d workers give other bits", n)
		}
		awaitRunning(t, d.workers, n-1)
	}
	d.SetWorkers(-3)
	if d.Workers() != runtime.GOMAXPROCS(0) {
		t.Errorf("%d workers, want what the rank began with", d.Workers())
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 5 {
				if !bytes.Equal(compute(), want) {
					t.Error("other bits while the number changes")
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for n := 1; ; n = n%5 + 1 {
		d.SetWorkers(n)
		select {
		case <-done:
			d.SetWorkers(1)
			awaitRunning(t, d.workers, 0)
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// awaitRunning waits until a pool has the wanted number of workers.
func awaitRunning(t *testing.T, c *workerPool, want int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); c.running.Load() != int64(want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d workers run, want %d", c.running.Load(), want)
		}
	}
}

// TestCrewChangesUnderLoad changes the number of workers while they work. All work must be done,
// and the number must be right at the end.
func TestCrewChangesUnderLoad(t *testing.T) {
	c := newWorkerPool(3)
	defer c.dismiss()
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 400 {
				var sum int
				var mu sync.Mutex
				c.parallel(40, 1, each(func(i int) { mu.Lock(); sum += i; mu.Unlock() }))
				if sum != 780 {
					t.Errorf("call %d: sum %d", n, sum)
				}
				if g == 0 {
					c.resize(1 + n%7)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range []int{6, 2, 1} {
		c.resize(n)
		c.parallel(100, 1, each(func(int) {}))
		awaitRunning(t, c, n-1)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestRankTakesWhatOthersKeep allocates memory while another device caches most of it. The
// allocation must not fail.
func TestRankTakesWhatOthersKeep(t *testing.T) {
	if initialLimit() == 0 {
		t.Skip("the system does not tell how much memory there is")
	}
	a, b := rank(t, "cpu:6"), rank(t, "cpu:7")
	x, err := a.Alloc(64<<20, a.DefaultStream(), device.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	x.Free()
	gap := initialLimit() - reserved.Load() - 32<<20
	reserved.Add(gap)
	defer func() { reserved.Add(-gap) }()
	if kept := a.Stats().Reserved; kept < 64<<20 {
		t.Fatalf("%s keeps %d bytes", a, kept)
	}
	y, err := b.Alloc(64<<20, b.DefaultStream(), device.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Free()
	if kept := a.Stats().Reserved; kept != 0 {
		t.Errorf("%s keeps %d bytes", a, kept)
	}
}
