package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
)

// TestForkedRecording checks a recording with two streams that are ordered only by waits. The
// second stream, the fork, has its own memory. A replay of both streams must be one launch.
func TestForkedRecording(t *testing.T) {
	for seed := range 8 {
		onBoth(t, fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed), testForkedRecording)
	}
}

func testForkedRecording(t *testing.T, d *Device) {
	x, out := floats(t, d, nil, 1, 2, 3, 4), floats(t, d, nil, 0, 0, 0, 0)
	must(t, d.Synchronize())
	held := d.Stats().Allocated
	r, err := d.NewRecording()
	must(t, err)
	s := r.Stream().(Stream)
	fork, err := r.Fork(d)
	must(t, err)
	f := fork.(Stream)
	if !f.(*stream).Recording() || f.Device() != device.Device(d) || f.Priority() != s.Priority() || !strings.Contains(fmt.Sprint(f), "fork 1 of a recording") {
		t.Errorf("the fork is %v", f)
	}
	a := empty(t, d, s, 4)
	must(t, apply(d, s, next, views(a), views(x))) // a is x+1
	must(t, f.WaitStream(s))
	a.Buf.Use(f)
	b := empty(t, d, f, 4)
	must(t, apply(d, f, double, views(b), views(a))) // b is 2(x+1)
	a.Buf.Free()
	c := empty(t, d, s, 4)
	if c.Buf.Addr() == a.Buf.Addr() {
		t.Error("memory that the fork reads was given away")
	}
	must(t, apply(d, s, double, views(c), views(x))) // c is 2x
	b.Buf.Use(s)
	must(t, s.WaitStream(f))
	must(t, apply(d, s, plus, views(out), views(b, c)))
	e := empty(t, d, s, 4)
	if e.Buf.Addr() != a.Buf.Addr() {
		t.Error("memory that the fork has read is not used again")
	}
	must(t, apply(d, s, next, views(e), views(out)))
	must(t, apply(d, s, next, views(out), views(e)))
	for _, v := range []device.View{b, c, e} {
		v.Buf.Free()
	}
	g, err := r.Finish()
	must(t, err)
	for range 5 {
		before := d.Counters().Launches
		must(t, g.Replay(nil))
		if n := d.Counters().Launches - before; n != 1 {
			t.Errorf("%d launches", n)
		}
	}
	// out is 2(x+1) + 2x + 2. After Finish, f is the recording's stream.
	check(t, d, f, out, 8, 12, 16, 20)
	must(t, g.Close())
	must(t, d.Synchronize())
	if now := d.Stats().Allocated; now != held {
		t.Errorf("%d bytes are allocated, %d before", now, held)
	}
	if _, err := r.Fork(d); !errors.Is(err, device.ErrRecording) {
		t.Errorf("a fork of what is over: %v", err)
	}
}

// TestForkUnjoined checks a recording whose stream does not wait for the work of a fork. The error
// must name the fork, and no memory may stay allocated.
func TestForkUnjoined(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	x := floats(t, d, nil, 1, 2)
	must(t, d.Synchronize())
	record := func(rejoin bool) (device.Replayer, *stream, error) {
		r, err := d.NewRecording()
		must(t, err)
		first, err := r.Fork(d)
		must(t, err)
		second, err := r.Fork(d)
		must(t, err)
		must(t, apply(d, first, next, views(x), views(x)))
		must(t, second.(Stream).WaitStream(first))
		must(t, apply(d, second, double, views(x), views(x)))
		// The stream second runs after first, so the recording's stream now runs after both.
		must(t, r.Stream().(Stream).WaitStream(second))
		y := empty(t, d, second, 2)
		if !rejoin {
			must(t, apply(d, second, double, views(y), views(x)))
		}
		y.Buf.Free() // no wait is needed before a free
		g, err := r.Finish()
		return g, second.(*stream), err
	}
	stats := d.Stats()
	_, s, err := record(false)
	var re *device.RecordError
	if !errors.As(err, &re) || re.Stream != device.Stream(s) || !strings.Contains(err.Error(), "fork 2 of a recording") {
		t.Errorf("unjoined work: %v", err)
	}
	if now := d.Stats(); now.Allocated != stats.Allocated {
		t.Errorf("%d bytes are allocated, %d before", now.Allocated, stats.Allocated)
	}
	// after the recording, s is an ordinary stream again
	must(t, apply(d, s, next, views(x), views(x)))
	check(t, d, s, x, 2, 3)
	g, _, err := record(true)
	must(t, err)
	must(t, g.Replay(nil))
	check(t, d, g.(*replayer).r.s, x, 6, 8)
	must(t, g.Close())
}

// TestForksRunBeside checks that the graph has exactly one edge for each necessary wait. On one
// stream, each launch depends only on the launch before it.
func TestForksRunBeside(t *testing.T) {
	edges := func(f func(d *Device, r *recording, s, f Stream, x, y device.View)) (list []string) {
		d := emulated(t, "emulate,mem=16MiB")
		x, y := floats(t, d, nil, 1, 2), floats(t, d, nil, 3, 4)
		rec, err := d.NewRecording()
		must(t, err)
		r := rec.(*recording)
		fork, err := r.Fork(d)
		must(t, err)
		f(d, r, r.s, fork.(Stream), x, y)
		must(t, r.s.WaitStream(fork))
		for _, w := range r.nodes {
			if w.kind == recordedLaunch {
				list = append(list, fmt.Sprint(w.deps))
			}
		}
		r.Abort()
		return list
	}
	step := func(d *Device, s Stream, x device.View) { must(t, apply(d, s, next, views(x), views(x))) }
	for name, c := range map[string]struct {
		f    func(d *Device, r *recording, s, f Stream, x, y device.View)
		want []string
	}{
		"one stream": {func(d *Device, r *recording, s, f Stream, x, y device.View) {
			step(d, s, x)
			step(d, s, x)
			step(d, s, y)
		},
			[]string{"[]", "[0]", "[1]"}},
		"beside": {func(d *Device, r *recording, s, f Stream, x, y device.View) {
			step(d, s, x)
			step(d, f, y)
			step(d, s, x)
			step(d, f, y)
		},
			[]string{"[]", "[]", "[0]", "[1]"}},
		"fork and join": {func(d *Device, r *recording, s, f Stream, x, y device.View) {
			step(d, s, x)
			must(t, f.WaitStream(s))
			must(t, f.WaitStream(s)) // the repeated wait adds no edge
			step(d, f, y)
			step(d, s, x)
			must(t, s.WaitStream(f))
			must(t, s.WaitStream(f))
			step(d, s, x)
			must(t, s.WaitStream(f))
			step(d, s, x)
		}, []string{"[]", "[0]", "[0]", "[1 2]", "[3]"}},
		"there and back": {func(d *Device, r *recording, s, f Stream, x, y device.View) {
			step(d, s, x)
			must(t, f.WaitStream(s))
			step(d, f, y)
			must(t, s.WaitStream(f)) // one edge, because f runs after all earlier work of s
			step(d, s, x)
		}, []string{"[]", "[0]", "[1]"}},
		"old mark": {func(d *Device, r *recording, s, f Stream, x, y device.View) {
			step(d, f, x)
			old, err := f.Record()
			must(t, err)
			step(d, f, x)
			must(t, s.WaitStream(f))
			must(t, s.Wait(old)) // adds no edge, because s already runs after the event old
			step(d, s, y)
		}, []string{"[]", "[0]", "[1]"}},
	} {
		if got := edges(c.f); !slices.Equal(got, c.want) {
			t.Errorf("%s: the launches come after %v, want %v", name, got, c.want)
		}
	}
}

// TestForkedIndexErrors checks that a wait for a replay returns index errors of forked streams.
func TestForkedIndexErrors(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	src, index, out := floats(t, d, nil, 1, 2, 3), longs(t, d, nil, 7), empty(t, d, nil, 1)
	must(t, d.Synchronize())
	r, err := d.NewRecording()
	must(t, err)
	f, err := r.Fork(d)
	must(t, err)
	must(t, device.Run(d, f, &device.Gather{Out: out, Src: src, Index: index, Tag: 5}))
	must(t, r.Stream().(Stream).WaitStream(f))
	g, err := r.Finish()
	must(t, err)
	for range 2 {
		must(t, g.Replay(nil))
		var x *device.IndexError
		if err := r.Stream().Synchronize(); !errors.As(err, &x) || x.Tag != 5 {
			t.Errorf("%v, want the index error", err)
		}
	}
	must(t, g.Close())
}

// TestForksAskNothing checks that forked streams make no driver call while they are recorded.
func TestForksAskNothing(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	x := floats(t, d, nil, 1, 2, 3, 4)
	r, err := d.NewRecording()
	must(t, err)
	fork, err := r.Fork(d)
	must(t, err)
	list := []device.Stream{r.Stream(), fork}
	for _, s := range list {
		empty(t, d, s, 1).Buf.Free()
	}
	before, _ := emu.Stats(d.api)
	for i := range 20 {
		s, other := list[i%2], list[1-i%2]
		y := empty(t, d, s, 4)
		must(t, apply(d, s, double, views(y), views(x)))
		must(t, other.(Stream).WaitStream(s))
		y.Buf.Use(other)
		must(t, apply(d, other, double, views(x), views(y)))
		y.Buf.Free()
		must(t, s.(Stream).WaitStream(other))
	}
	after, _ := emu.Stats(d.api)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the driver was asked for something:\n%+v\n%+v", before, after)
	}
	r.Abort()
	check(t, d, nil, x, 1, 2, 3, 4)
	d.Empty()
	if n := d.Stats().Segments; n != 1 {
		t.Errorf("%d segments are left, want that of x", n)
	}
}
