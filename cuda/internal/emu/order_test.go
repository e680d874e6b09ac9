package emu

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

const seeds = 40

// outcomes runs a program with seed 0 and with many other seeds. It returns how often each result
// occurs.
func outcomes(t *testing.T, program func(r *rig) string) map[string]int {
	t.Helper()
	got := map[string]int{}
	for seed := range uint64(seeds) {
		got[program(newRig(t, Config{Seed: seed, Workers: 1}))]++
	}
	return got
}

// twoStreams returns a program in which stream a adds 1 and stream b multiplies by 3. If ordered is
// true, stream b waits for an event of stream a.
func twoStreams(ordered bool) func(r *rig) string {
	return func(r *rig) string {
		const n = 64
		x, a, b, e := r.alloc(4*n), r.stream(), r.stream(), r.event()
		r.ok(r.MemsetD32Async(x, 5, n, a))
		r.ok(r.StreamSynchronize(a))
		r.ok(r.affine(a, x, n, 1, 1))
		r.ok(r.EventRecord(e, a))
		if ordered {
			r.ok(r.StreamWaitEvent(b, e))
		}
		r.ok(r.affine(b, x, n, 3, 0))
		r.ok(r.CtxSynchronize())
		return fmt.Sprint(r.read(a, x, n)[0])
	}
}

func TestEventsOrderStreams(t *testing.T) {
	if got := outcomes(t, twoStreams(true)); len(got) != 1 || got["18"] != seeds {
		t.Errorf("with the event: %v, want only 18", got)
	}
	got := outcomes(t, twoStreams(false))
	if len(got) != 2 || got["18"] < seeds/10 || got["16"] < seeds/10 {
		t.Errorf("without the event: %v, want both orders", got)
	}
	d := newRig(t, Config{})
	if twoStreams(false)(d) != "18" {
		t.Error("seed 0 is not the order of the calls")
	}
}

// TestReadBeforeCopy launches a kernel that does not wait for an upload into new memory. Under some
// seed it must read uninitialised bytes.
func TestReadBeforeCopy(t *testing.T) {
	got := outcomes(t, func(r *rig) string {
		x, a, b := r.alloc(256), r.stream(), r.stream()
		host := r.pinned(64)
		r.ok(r.MemcpyHtoDAsync(x, ptr(host), 256, a))
		err := r.affine(b, x, 64, 1, 1)
		if err == nil {
			err = r.CtxSynchronize()
		}
		var f *ptxvm.Fault
		switch {
		case err == nil:
			return "fine"
		case errors.As(err, &f):
			return f.Kind.String()
		default:
			return err.Error()
		}
	})
	if len(got) != 2 || got["fine"] == 0 || got[ptxvm.UninitialisedMemory.String()] == 0 {
		t.Errorf("got %v", got)
	}
}

// TestReuseWithoutWait overwrites a page-locked buffer before its copy has run. The copy must have
// wrong contents under some seeds, and always with seed 0, because queued work runs as late as
// possible.
func TestReuseWithoutWait(t *testing.T) {
	program := func(wait bool) func(r *rig) string {
		return func(r *rig) string {
			x, s := r.alloc(256), r.stream()
			host := r.pinned(64)
			fill(host, 1)
			r.ok(r.MemcpyHtoDAsync(x, ptr(host), 256, s))
			if wait {
				r.ok(r.StreamSynchronize(s))
			}
			fill(host, 2)
			return fmt.Sprint(r.read(s, x, 64)[0])
		}
	}
	if got := outcomes(t, program(true)); len(got) != 1 || got["1"] != seeds {
		t.Errorf("with the wait: %v", got)
	}
	if got := outcomes(t, program(false)); got["2"] == 0 {
		t.Errorf("without the wait: %v", got)
	}
	if got := program(false)(newRig(t, Config{})); got != "2" {
		t.Errorf("plain order: %v, want the late contents", got)
	}
}

// TestLegacyDefaultStream checks that stream 0 is ordered with blocking streams in both directions.
// It must not be ordered with non-blocking streams.
func TestLegacyDefaultStream(t *testing.T) {
	program := func(flags cu.StreamFlags) func(r *rig) string {
		return func(r *rig) string {
			x := r.alloc(256)
			a, b := must(r.StreamCreate(flags, 0))(r), must(r.StreamCreate(flags, 0))(r)
			r.ok(r.MemsetD32Async(x, 5, 64, a))
			r.ok(r.StreamSynchronize(a))
			r.ok(r.affine(a, x, 64, 1, 1)) // x becomes 6
			r.ok(r.affine(0, x, 64, 3, 0)) // x becomes 18
			r.ok(r.affine(b, x, 64, 1, 2)) // x becomes 20
			r.ok(r.CtxSynchronize())
			return fmt.Sprint(r.read(a, x, 64)[0])
		}
	}
	if got := outcomes(t, program(cu.StreamDefault)); len(got) != 1 || got["20"] != seeds {
		t.Errorf("blocking streams: %v, want only 20", got)
	}
	if got := outcomes(t, program(cu.StreamNonBlocking)); len(got) < 2 {
		t.Errorf("non-blocking streams: %v, want several orders", got)
	}
}

// TestEventCaptures checks that a wait uses the event's last record before the wait. An event that
// was never recorded must not delay work.
func TestEventCaptures(t *testing.T) {
	r := newRig(t, Config{})
	a, b, e := r.stream(), r.stream(), r.event()
	x := r.alloc(256)
	if done, err := r.EventQuery(e); !done || err != nil {
		t.Errorf("a fresh event: %v, %v", done, err)
	}
	r.ok(r.EventSynchronize(e))
	r.ok(r.StreamWaitEvent(b, e))
	r.ok(r.MemsetD32Async(x, 1, 64, a))
	r.ok(r.EventRecord(e, a))
	r.ok(r.StreamWaitEvent(b, e))
	r.ok(r.EventDestroy(e)) // the wait must stay valid
	r.ok(r.affine(b, x, 64, 1, 1))
	if v := r.read(b, x, 64); !all(v, 2) {
		t.Errorf("got %v", v)
	}
	if err := r.EventRecord(e, a); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("a destroyed event: %v", err)
	}
}

// TestPollingEnds checks that each query runs one operation, so that a loop of queries ends.
func TestPollingEnds(t *testing.T) {
	r := newRig(t, Config{Seed: 3})
	s, e := r.stream(), r.event()
	x := r.alloc(256)
	for i := range uint32(10) {
		r.ok(r.MemsetD32Async(x, i, 64, s))
	}
	r.ok(r.EventRecord(e, s))
	rounds := 0
	for {
		done, err := r.EventQuery(e)
		r.ok(err)
		if done {
			break
		}
		if rounds++; rounds > 100 {
			t.Fatal("polling does not end")
		}
	}
	if done, err := r.StreamQuery(s); !done || err != nil {
		t.Errorf("stream after its last event: %v, %v", done, err)
	}
}

// TestQueueIsLazyAndBounded checks that work runs only when its result is needed, or if more than
// QueueDepth operations are pending.
func TestQueueIsLazyAndBounded(t *testing.T) {
	r := newRig(t, Config{QueueDepth: 8})
	s := r.stream()
	x := r.alloc(256)
	r.ok(r.MemsetD32Async(x, 0, 64, s))
	for range 7 {
		r.ok(r.affine(s, x, 64, 1, 1))
	}
	if n := r.Stats().Kernels["affine"].Instructions; n != 0 {
		t.Errorf("%d instructions ran before anything needed them", n)
	}
	for range 13 {
		r.ok(r.affine(s, x, 64, 1, 1))
	}
	if r.pending > 8 {
		t.Errorf("%d operations are pending", r.pending)
	}
	if v := r.read(s, x, 64); !all(v, 20) {
		t.Errorf("got %v", v)
	}
}

// TestDestroyedStreamFinishes destroys a stream with pending work. The work and its events must
// still complete.
func TestDestroyedStreamFinishes(t *testing.T) {
	r := newRig(t, Config{Seed: 5})
	s, other, e := r.stream(), r.stream(), r.event()
	x := r.alloc(256)
	r.ok(r.MemsetD32Async(x, 7, 64, s))
	r.ok(r.EventRecord(e, s))
	r.ok(r.StreamDestroy(s))
	if err := r.affine(s, x, 64, 1, 1); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("a launch into a destroyed stream: %v", err)
	}
	r.ok(r.StreamWaitEvent(other, e))
	if v := r.read(other, x, 64); !all(v, 7) {
		t.Errorf("got %v", v)
	}
	r.ok(r.CtxSynchronize())
	if n := len(r.streams); n != 2 { // the default stream, and the stream other
		t.Errorf("%d streams are left", n)
	}
}
