package cuda

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// dividedProduct creates a matrix product of few elements with a long k. The kernel divides its
// sums over k among blocks. Each element of column c of the result is (start + c)·k.
func dividedProduct(t *testing.T, d *Device, s device.Stream, start float32) (op *device.MatMul, want []float32) {
	t.Helper()
	const m, n, k = 3, 4, 1024
	of := func(v device.View, shape shape.Layout) device.View { v.Layout = shape; return v }
	b := make([]float32, k*n)
	for i := range b {
		b[i] = start + float32(i%n)
	}
	for i := range m * n {
		want = append(want, k*b[i%n])
	}
	op = &device.MatMul{A: of(floats(t, d, s, fill(1, m*k)...), shape.Dense(shape.Of(1, m, k))),
		B: of(floats(t, d, s, b...), shape.Dense(shape.Of(1, k, n))), Out: of(empty(t, d, s, m*n), shape.Dense(shape.Of(1, m, n)))}
	return op, want
}

// TestDividedProductsBeside runs products that are divided along k on several streams and in graphs
// at once. The driver may choose any order of the work.
func TestDividedProductsBeside(t *testing.T) {
	for seed := range 6 {
		d := emulated(t, fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed))
		var all []func()
		run := func(s device.Stream, start float32) {
			op, want := dividedProduct(t, d, s, start)
			must(t, d.Run(s, op, nil))
			all = append(all, func() {
				out := op.Out
				out.Layout = shape.Dense(shape.Of(len(want)))
				check(t, d, s, out, want...)
			})
		}
		var streams []device.Stream
		for range 3 {
			s, err := d.NewStream(0)
			must(t, err)
			streams = append(streams, s)
		}
		rec, err := d.NewRecording()
		must(t, err)
		main := rec.Stream().(Stream)
		fork, err := rec.Fork(d)
		must(t, err)
		eager, want := dividedProduct(t, d, streams[0], 20)
		other, also := dividedProduct(t, d, streams[0], 30)
		must(t, streams[0].Synchronize())
		must(t, d.Run(main, eager, nil))
		must(t, d.Run(fork, other, nil))
		must(t, d.Run(main, eager, nil))
		must(t, main.WaitStream(fork))
		g, err := rec.Finish()
		must(t, err)
		for i := range 3 {
			for k, s := range streams {
				run(s, float32(1+3*i+k))
			}
			must(t, g.Replay(nil))
			// The recording has ended, so main is an ordinary stream again.
			run(main, float32(40+i))
		}
		for _, f := range all {
			f()
		}
		for i, op := range []*device.MatMul{eager, other} {
			op.Out.Layout = shape.Dense(shape.Of(len(want)))
			check(t, d, main, op.Out, [][]float32{want, also}[i]...)
		}
		d.counters.mu.Lock()
		// four streams and two lanes of recordings have counters
		if n := len(d.counters.counters); n != 6 {
			t.Errorf("%d orders of work have counters, want 6", n)
		}
		d.counters.mu.Unlock()
		must(t, g.Close())
		if len(d.counters.counters) != 4 || len(d.counters.idle) != 2 {
			t.Errorf("the graph is closed: %d orders of work have counters and %d are idle, want 4 and 2", len(d.counters.counters), len(d.counters.idle))
		}
	}
}

// TestDividedProductCounters checks that a divided product is one launch. If there is no memory for
// its counters, the error is device.ErrOutOfMemory, and a later call may succeed.
func TestDividedProductCounters(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	op, want := dividedProduct(t, d, nil, 1)
	if op.Out.Type != dtype.F32 {
		t.Fatalf("a product of %v", op.Out.Type)
	}
	must(t, d.Run(nil, op, nil)) // leaves memory for partial sums in the pool
	d.counters.end(d.main.arena())
	d.counters.idle = nil
	must(t, d.FailAlloc(1))
	if err := d.Run(nil, op, nil); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("without memory for the counters: %v", err)
	}
	before := d.Counters().Launches
	must(t, d.Run(nil, op, nil))
	if n := d.Counters().Launches - before; n != 1 {
		t.Errorf("%d launches", n)
	}
	op.Out.Layout = shape.Dense(shape.Of(len(want)))
	check(t, d, nil, op.Out, want...)
}
