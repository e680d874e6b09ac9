package cpu

import (
	native "encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// floatsOn returns a view of n float32 numbers in new memory of stream s.
func floatsOn(t *testing.T, d *Device, s device.Stream, n int, values ...float32) device.View {
	t.Helper()
	b, err := d.Alloc(4*n, s, device.Origin{Op: "test"})
	must(t, err)
	v := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(n))}
	if len(values) > 0 {
		copy(at[float32](pointer(&v), n), values)
	}
	return v
}

// mapped runs a map of expression e.
func mapped(t *testing.T, d *Device, s device.Stream, e *expr.Expr, out device.View, ins ...device.View) {
	t.Helper()
	types := make([]dtype.Type, len(ins))
	for i := range types {
		types[i] = dtype.F32
	}
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, types, -1)
	must(t, device.Run(d, s, &device.Map{Program: p, Outs: []device.View{out}, Ins: ins}))
}

// TestRecording records work with a feed. The work must run only in replays, in the order of the
// list. Ops that are recorded before the feed may use the feed's memory for other values. The
// recording must reuse the memory that it has freed, and no other work may get that memory before
// Close.
func TestRecording(t *testing.T) {
	d := newDevice(2)
	x, out := floatsOn(t, d, nil, 4, 1, 2, 3, 4), floatsOn(t, d, nil, 4)
	clear(out.Buf.Host())
	stats := d.Stats()
	r, err := d.NewRecording()
	must(t, err)
	s := r.Stream()
	side, err := r.Fork(d)
	must(t, err)
	a := floatsOn(t, d, s, 4)
	mapped(t, d, s, expr.X(0).Add(expr.C(1)), a, x)
	b := floatsOn(t, d, side, 4)
	mapped(t, d, side, expr.X(0).Mul(expr.C(2)), b, a)
	a.Buf.Free()
	slots, err := r.Feed(d, 16, device.Origin{Op: "test"})
	must(t, err)
	if slots.Addr() != a.Buf.Addr() {
		t.Error("what was freed in the recording does not serve it again")
	}
	fed := device.View{Buf: slots, Type: dtype.F32, Layout: shape.Dense(shape.Of(4))}
	mapped(t, d, s, expr.X(0).Add(expr.X(1)), b, b, fed)
	must(t, d.CopyFrom(s, out.Buf, 0, b.Buf, 0, 16))
	b.Buf.Free()
	slots.Free()
	if v := out.Buf.Host(); slices.Max(v) != 0 {
		t.Errorf("the recording has run: %v", v)
	}
	g, err := r.Finish()
	must(t, err)
	// the three maps run as one; with the feed and the copy there are three operations
	if n, all := g.Operations(), g.(*replayer).Recorded(); n != 3 || all != 5 {
		t.Errorf("%d operations of %d", n, all)
	}
	other := floatsOn(t, d, nil, 1<<16) // large enough to come from the pool
	for k := range 3 {
		must(t, g.Replay(func(feed int, to []byte) {
			if feed != 0 || len(to) != 16 {
				t.Errorf("feed %d of %d bytes", feed, len(to))
			}
			for i := range 4 {
				native.NativeEndian.PutUint32(to[4*i:], math.Float32bits(float32(100*k)))
			}
		}))
		clear(other.Buf.Host())
		want := []float32{4, 6, 8, 10}
		for i := range want {
			want[i] += float32(100 * k)
		}
		if got := at[float32](pointer(&out), 4); !slices.Equal(got, want) {
			t.Errorf("replay %d: %v, want %v", k, got, want)
		}
	}
	other.Buf.Free()
	must(t, g.Close())
	must(t, g.Close())
	var re *device.RecordError
	if err := g.Replay(nil); !errors.As(err, &re) {
		t.Errorf("a replay after Close: %v", err)
	}
	d.Empty()
	if now := d.Stats(); now.Allocated != stats.Allocated || now.Reserved != stats.Reserved {
		t.Errorf("%d bytes are allocated and %d reserved; before %d and %d", now.Allocated, now.Reserved, stats.Allocated, stats.Reserved)
	}
}

// TestNotRecordable calls operations in which the host reads or writes data while a stream is
// recorded. The error must name the operation, and the recording must continue. After an abort, the
// stream must be an ordinary stream.
func TestNotRecordable(t *testing.T) {
	d, second := newDevice(1), newDevice(1)
	x, far := floatsOn(t, d, nil, 2, 1, 2), floatsOn(t, second, nil, 2, 3, 4)
	r, err := d.NewRecording()
	must(t, err)
	s := r.Stream()
	mark, err := s.Record()
	must(t, err)
	if err := s.Wait(mark); err != nil {
		t.Errorf("a wait for the recording itself: %v", err)
	}
	for op, err := range map[string]error{
		"download":          d.Download(s, make([]byte, 8), x.Buf, 0),
		"upload":            d.Upload(s, x.Buf, 0, make([]byte, 8)),
		"synchronize":       s.Synchronize(),
		"wait for an event": d.DefaultStream().Wait(mark),
	} {
		var re *device.RecordError
		if !errors.As(err, &re) || re.Op != op || re.Device != "cpu" || re.Why == "" {
			t.Errorf("%s: %v", op, err)
		}
	}
	var oe *device.OperandError
	for name, err := range map[string]error{
		"the same device": second.refusedWith(second),
		"no device":       second.refusedWith(nil),
		"a device twice":  second.refusedWith(d, d),
	} {
		if !errors.As(err, &oe) {
			t.Errorf("a recording with %s: %v", name, err)
		}
	}
	if _, err := r.Fork(second); !errors.As(err, &oe) {
		t.Errorf("a stream of another device: %v", err)
	}
	must(t, d.CopyFrom(s, x.Buf, 0, far.Buf, 0, 8)) // allowed, because all memory is host memory
	r.Abort()
	r.Abort()
	must(t, d.Upload(s, x.Buf, 0, []byte{0, 0, 0, 0}))
	if got := at[float32](pointer(&x), 2); !slices.Equal(got, []float32{0, 2}) {
		t.Errorf("%v after the recording", got)
	}
	if _, err := r.Finish(); !errors.Is(err, device.ErrRecording) {
		t.Errorf("Finish after Abort: %v", err)
	}
}

func (d *Device) refusedWith(others ...device.Device) error {
	r, err := d.NewRecording(others...)
	if err == nil {
		r.Abort()
	}
	return err
}

// TestReplayStops replays a list with an op that fails. The replay must end at that op. Its error
// must hold the stack of the call that recorded the op.
func TestReplayStops(t *testing.T) {
	d := newDevice(1)
	table, out, after := floatsOn(t, d, nil, 4, 1, 2, 3, 4), floatsOn(t, d, nil, 2), floatsOn(t, d, nil, 2, 7, 7)
	b, err := d.Alloc(16, nil, device.Origin{})
	must(t, err)
	index := device.View{Buf: b, Type: dtype.I64, Layout: shape.Dense(shape.Of(2))}
	clear(b.Host())
	r, err := d.NewRecording()
	must(t, err)
	op := &device.Gather{Out: out, Src: table, Index: index, Axis: 0}
	must(t, device.Run(d, r.Stream(), op))
	mapped(t, d, r.Stream(), expr.X(0), after, out)
	g, err := r.Finish()
	must(t, err)
	must(t, g.Replay(nil))
	at[int64](pointer(&index), 2)[1] = 9
	copy(at[float32](pointer(&after), 2), []float32{5, 5})
	var re *device.ReplayError
	var ix *device.IndexError
	if err := g.Replay(nil); !errors.As(err, &re) || !errors.As(err, &ix) || len(re.Callers) == 0 {
		t.Errorf("a replay with a bad index: %v", err)
	}
	if got := at[float32](pointer(&after), 2); !slices.Equal(got, []float32{5, 5}) {
		t.Errorf("the op after the error has run: %v", got)
	}
	at[int64](pointer(&index), 2)[1] = 3
	must(t, g.Replay(nil))
	must(t, g.Close())
}
