package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// timesParam is a program that multiplies its operand by a scalar parameter.
var timesParam = expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.Param(0))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)

// TestRecording checks that recorded work runs only in replays, in its order and in one launch.
// Temporaries share memory, and each replay gets new data. The driver may run work in any order
// that the waits allow.
func TestRecording(t *testing.T) {
	for seed := range 8 {
		onBoth(t, fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed), testRecording)
	}
}

func testRecording(t *testing.T, d *Device) {
	other, err := d.NewStream(0)
	must(t, err)
	x, out := floats(t, d, nil, 1, 2, 3, 4), floats(t, d, nil, 0, 0, 0, 0)
	must(t, d.Synchronize())
	r, err := d.NewRecording()
	must(t, err)
	s := r.Stream()
	before, stats := d.Counters(), d.Stats()
	slots, err := r.Feed(d, 8, device.Origin{Op: "test"})
	must(t, err)
	params := device.View{Buf: slots, Type: dtype.I64, Layout: shape.Dense(shape.Of(1))}
	a := empty(t, d, s, 4)
	must(t, apply(d, s, next, views(a), views(x))) // a is x+1
	b := empty(t, d, s, 4)
	must(t, apply(d, s, double, views(b), views(a))) // b is 2(x+1)
	a.Buf.Free()
	c := empty(t, d, s, 4) // c uses the memory of a
	if c.Buf.Addr() != a.Buf.Addr() {
		t.Errorf("what was freed in the recording does not serve it again")
	}
	must(t, device.Run(d, s, &device.MultiMap{Program: timesParam, Outs: [][]device.View{{c}, {b}},
		Ins: [][]device.View{{x}, {b}}, Params: params})) // c is k·x, and b is k·2(x+1)
	must(t, apply(d, s, plus, views(b), views(b, c)))
	must(t, d.CopyFrom(s, out.Buf, 0, b.Buf, 0, 16))
	b.Buf.Free()
	// Other work runs during the recording, and does not get the recording's memory.
	z := floats(t, d, other, 7, 7, 7, 7)
	must(t, apply(d, other, double, views(z), views(z)))
	check(t, d, other, z, 14, 14, 14, 14)
	if n := d.Counters().Launches - before.Launches; n != 1 {
		t.Errorf("%d launches while recording, want that of the other stream", n)
	}
	check(t, d, nil, out, 0, 0, 0, 0)
	g, err := r.Finish()
	must(t, err)
	// six operations: a copy of new data, a copy of a table, two maps, a multi-map and the last
	// copy
	if n := g.Operations(); n != 6 {
		t.Errorf("%d operations", n)
	}
	for k := 1; k <= 10; k++ {
		before := d.Counters()
		must(t, g.Replay(func(feed int, to []byte) {
			if feed != 0 || len(to) != 8 {
				t.Errorf("feed %d of %d bytes", feed, len(to))
			}
			binary.LittleEndian.PutUint64(to, uint64(math.Float32bits(float32(k))))
		}))
		if n := d.Counters().Launches - before.Launches; n != 1 {
			t.Errorf("%d launches, want 1", n)
		}
		if k%3 != 0 { // every third replay is not followed by a wait
			continue
		}
		f := float32(k)
		check(t, d, s, out, 5*f, 8*f, 11*f, 14*f)
	}
	// Memory that is allocated on the stream after the recording does not belong to the graph.
	e := empty(t, d, s, 4)
	if e.Buf.Addr() == b.Buf.Addr() || e.Buf.Addr() == c.Buf.Addr() {
		t.Error("the graph's memory was given away")
	}
	d.Empty()
	must(t, g.Replay(func(_ int, to []byte) { binary.LittleEndian.PutUint64(to, uint64(math.Float32bits(1))) }))
	check(t, d, s, out, 5, 8, 11, 14)
	for _, v := range []device.View{c, params, e, z} {
		v.Buf.Free()
	}
	must(t, g.Close())
	must(t, g.Close())
	var re *device.RecordError
	if err := g.Replay(nil); !errors.As(err, &re) || !errors.Is(err, device.ErrRecording) {
		t.Errorf("a replay after Close: %v", err)
	}
	d.Empty()
	if now := d.Stats(); now.Allocated != stats.Allocated {
		t.Errorf("%d bytes are allocated, %d were before", now.Allocated, stats.Allocated)
	}
	if n := d.PinnedStats().Allocated; n != 0 {
		t.Errorf("%d bytes of page-locked memory are left", n)
	}
}

// TestRecordingAsksNothing checks that a recording makes no driver call that affects the device
// before Finish. Its memory must come from the pool.
func TestRecordingAsksNothing(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	x := floats(t, d, nil, 1, 2, 3, 4)
	r, err := d.NewRecording()
	must(t, err)
	s := r.Stream()
	empty(t, d, s, 1).Buf.Free() // the stream's arena now has a segment
	before, _ := emu.Stats(d.api)
	for range 20 {
		y := empty(t, d, s, 4)
		must(t, apply(d, s, double, views(y), views(x)))
		must(t, apply(d, s, double, views(x), views(y)))
		y.Buf.Free()
	}
	after, _ := emu.Stats(d.api)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the driver was asked for something:\n%+v\n%+v", before, after)
	}
	r.Abort()
	r.Abort()
	check(t, d, nil, x, 1, 2, 3, 4)
	must(t, apply(d, s, double, views(x), views(x))) // after the recording, s is an ordinary stream
	check(t, d, s, x, 2, 4, 6, 8)
	if _, err := r.Finish(); !errors.Is(err, device.ErrRecording) {
		t.Errorf("Finish after Abort: %v", err)
	}
	d.Empty()
	if n := d.Stats().Segments; n != 1 {
		t.Errorf("%d segments are left, want that of x", n)
	}
}

// TestRecordingTakesOver runs work eagerly and then records it. The recording must reuse the
// memory that the eager run has left in the pool, and wait for pending work on it. The recording
// must request no memory from the driver.
func TestRecordingTakesOver(t *testing.T) {
	for seed := range 8 {
		d := emulated(t, fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed))
		x, out := floats(t, d, nil, fill(1, 1000)...), floats(t, d, nil, fill(0, 1000)...)
		run := func(s device.Stream) {
			var held []device.View
			for range 3 {
				y := empty(t, d, s, 100_000)
				must(t, apply(d, s, expr.MustLower([]*expr.Expr{expr.C(3)}, []dtype.Type{dtype.F32}, nil, -1), views(y), nil))
				held = append(held, y)
			}
			part := held[2]
			part.Layout = shape.Dense(shape.Of(1000))
			must(t, apply(d, s, plus, views(out), views(x, part)))
			for _, y := range held {
				y.Buf.Free()
			}
		}
		run(nil) // the host does not wait for this run
		before, _ := emu.Stats(d.api)
		r, err := d.NewRecording()
		must(t, err)
		run(r.Stream())
		if after, _ := emu.Stats(d.api); after.Allocs != before.Allocs || after.Launches != before.Launches {
			t.Errorf("the driver was asked for %d pieces of memory", after.Allocs-before.Allocs)
		}
		g, err := r.Finish()
		must(t, err)
		for range 3 {
			must(t, g.Replay(nil))
		}
		check(t, d, r.Stream(), out, fill(4, 1)...)
		must(t, g.Close())
		must(t, d.Synchronize())
		d.Empty()
		if n := d.Stats().Segments; n != 1 {
			t.Errorf("%d segments are left, want that of x", n)
		}
	}
}

// TestNotRecordable records operations that would wait for the GPU, or whose data would stay
// constant. Each operation must return a RecordError with the device and a reason, and the
// recording must continue.
func TestNotRecordable(t *testing.T) {
	list, err := Emulate("emulate:2,mem=16MiB")
	must(t, err)
	d, second := list[0], list[1]
	x, far := floats(t, d, nil, 1, 2), floats(t, second, nil, 1, 2)
	r, err := d.NewRecording()
	must(t, err)
	s := r.Stream()
	pinned, err := d.AllocPinned(8, device.Origin{})
	must(t, err)
	mark, err := s.Record()
	must(t, err)
	if err := s.Wait(mark); err != nil {
		t.Errorf("a wait for the recording itself: %v", err)
	}
	outside, err := d.DefaultStream().Record()
	must(t, err)
	if err := s.Wait(outside); err != nil {
		t.Errorf("a wait for others: %v", err)
	}
	for op, err := range map[string]error{
		"download":          d.Download(s, make([]byte, 8), x.Buf, 0),
		"upload":            d.Upload(s, x.Buf, 0, make([]byte, 8)),
		"synchronize":       s.Synchronize(),
		"copy":              d.CopyFrom(s, x.Buf, 0, far.Buf, 0, 8),
		"wait for an event": d.DefaultStream().Wait(mark),
	} {
		var re *device.RecordError
		if !errors.As(err, &re) || !errors.Is(err, device.ErrRecording) || re.Device != "cuda:0" || re.Why == "" {
			t.Errorf("%s: %v", op, err)
		}
	}
	// Each replay reads and writes page-locked memory, which must not be reused before Close.
	back, err := d.AllocPinned(8, device.Origin{})
	must(t, err)
	must(t, d.UploadPinned(s, x.Buf, 0, pinned, 0, 8))
	must(t, apply(d, s, double, views(x), views(x)))
	must(t, d.DownloadPinned(s, back, 0, x.Buf, 0, 8))
	seen := back.Host()
	back.Free()
	g, err := r.Finish()
	must(t, err)
	for k := range 3 {
		copy(pinned.Host(), bytesOf([]float32{float32(k), float32(10 * k)}))
		must(t, g.Replay(nil))
		check(t, d, s, x, float32(2*k), float32(20*k))
		if want := bytesOf([]float32{float32(2 * k), float32(20 * k)}); !bytes.Equal(seen, want) {
			t.Errorf("%v came to the host, want %v", seen, want)
		}
		other, err := d.AllocPinned(8, device.Origin{})
		must(t, err)
		if &other.Host()[0] == &seen[0] {
			t.Error("page-locked memory that replays write was given to others")
		}
		other.Free()
	}
	must(t, g.Close())
	pinned.Free()
	if n := d.PinnedStats().Allocated; n != 0 {
		t.Errorf("%d bytes of page-locked memory are left", n)
	}
	d.EmptyPinned()
	if n := d.PinnedStats().Reserved; n != 0 {
		t.Errorf("%d bytes of page-locked memory are reserved after Close", n)
	}
}
