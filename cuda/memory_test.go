package cuda

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/pool"
	"github.com/flambeau-go/flambeau/shape"
)

type place string

func (p place) String() string { return "at " + string(p) }

func TestOutOfMemory(t *testing.T) {
	d := emulated(t, "emulate,mem=64MiB")
	var held []device.Buffer
	for {
		b, err := d.Alloc(10<<20, nil, device.Origin{Where: place("train.go:31"), Op: "matmul", Shape: shape.Of(1280, 2048), Type: dtype.F32})
		if err == nil {
			held = append(held, b)
			continue
		}
		var oom *pool.OOMError
		if !errors.Is(err, device.ErrOutOfMemory) || !errors.As(err, &oom) || oom.Total != 64<<20 {
			t.Fatal(err)
		}
		for _, want := range []string{"out of memory on cuda:0", "asked for 10.00 MiB", "capacity 64.00 MiB", "60.00 MiB in 6 blocks: [1280, 2048] float32, result of matmul at train.go:31"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
		break
	}
	if len(held) != 6 {
		t.Errorf("%d buffers of 10 MiB in 64 MiB, want 6", len(held))
	}
	held[0].Free()
	b, err := d.Alloc(10<<20, nil, device.Origin{})
	must(t, err)
	x := floats(t, d, nil, 1)
	must(t, apply(d, nil, double, views(x), views(x)))
	check(t, d, nil, x, 2)
	b.Free()
}

// TestOutOfMemoryNamesTheStream makes allocations fail on the default stream, a stream of the
// program and a stream of the library. The error must name the stream.
func TestOutOfMemoryNamesTheStream(t *testing.T) {
	d := emulated(t, "emulate,mem=1MiB")
	mine, err := d.NewStream(0)
	must(t, err)
	_, _, line, _ := runtime.Caller(0)
	own := make(chan device.Stream)
	go func(f func(int) (device.Stream, error)) {
		s, err := f(0)
		if err != nil {
			t.Error(err)
		}
		own <- s
	}(d.NewStream)
	theirs := <-own
	for want, s := range map[string]device.Stream{
		"largest free block on the default stream 0 B":                                                            nil,
		fmt.Sprintf("largest free block on stream %#x, made at cuda/memory_test.go:%d, 0 B", mine.ID(), line-2):   mine,
		fmt.Sprintf("largest free block on stream %#x, made at cuda/memory_test.go:%d, 0 B", theirs.ID(), line+3): theirs,
	} {
		if _, err := d.Alloc(2<<20, s, device.Origin{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	s, err := d.newStream(0)
	must(t, err)
	var library madeAt
	library[0] = reflect.ValueOf(newestPTX).Pointer() + 1
	d.streams.note(s.handle, library)
	if _, err := d.Alloc(2<<20, s, device.Origin{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("on stream %#x, one of the library's own, 0 B", s.ID())) {
		t.Error(err)
	}
}

// TestSmallDevicesDoNotFragment allocates blocks of 1 to 10 MiB until the device is full. PyTorch
// takes such blocks from segments of 20 MiB. Here such blocks must fill even a small device almost
// completely.
func TestSmallDevicesDoNotFragment(t *testing.T) {
	for _, c := range []struct {
		spec        string
		size, least int
	}{
		{"emulate,mem=64MiB", 3 << 20, 15}, {"emulate,mem=64MiB", 1<<20 + 1, 31}, {"emulate,mem=64MiB", 500 << 10, 100}, {"emulate,mem=1MiB", 40 << 10, 15},
		{"emulate,mem=64MiB", 30 << 20, 2}, {"emulate,mem=512MiB,mode=meta", 9 << 20, 50}, {"emulate,mem=16GiB,mode=meta", 9 << 20, 1600},
	} {
		d := emulated(t, c.spec)
		n := 0
		var held []device.Buffer
		for ; ; n++ {
			b, err := d.Alloc(c.size, nil, device.Origin{})
			if err != nil {
				break
			}
			held = append(held, b)
		}
		if n < c.least {
			t.Errorf("%s: %d buffers of %d bytes, want at least %d", c.spec, n, c.size, c.least)
		}
		for _, b := range held {
			b.Free()
		}
		if s := d.Stats(); s.Allocated != 0 || s.Reserved == 0 || d.Empty() != s.Reserved || d.Stats().Reserved != 0 {
			t.Errorf("%s: after Free %+v, after Empty %+v", c.spec, s, d.Stats())
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	d := emulated(t, "emulate,mem=64MiB")
	must(t, d.SetMemoryFraction(0.25))
	if _, err := d.Alloc(17<<20, nil, device.Origin{}); !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "limit 16.00 MiB") {
		t.Errorf("17 MiB of a quarter of 64 MiB: %v", err)
	}
	b, err := d.Alloc(15<<20, nil, device.Origin{})
	must(t, err)
	b.Free()
	must(t, d.SetMemoryFraction(0))
	b, err = d.Alloc(40<<20, nil, device.Origin{})
	must(t, err)
	b.Free()
	for _, f := range []float64{-1, 1.5} {
		var e *device.OperandError
		if err := d.SetMemoryFraction(f); !errors.As(err, &e) {
			t.Errorf("fraction %v: %v", f, err)
		}
	}
}

// TestCollected allocates more buffers than the device's memory can hold, and drops all references
// to them. The garbage collector must free such buffers when memory runs short.
func TestCollected(t *testing.T) {
	d := emulated(t, "emulate,mem=64MiB")
	lose := func() {
		b, err := d.Alloc(20<<20, nil, device.Origin{Op: "lost", Collected: true})
		must(t, err)
		owner := &struct{ b device.Buffer }{b}
		runtime.AddCleanup(owner, func(b device.Buffer) { b.Queue() }, b)
	}
	for range 12 {
		lose()
	}
	if s := d.Stats(); s.Frees < 9 {
		t.Errorf("12 lost buffers of 20 MiB in 64 MiB: %+v", s)
	}
}

func TestBufferMisuse(t *testing.T) {
	list, err := Emulate("emulate:2,mem=16MiB")
	must(t, err)
	d, other := list[0], list[1]
	stranger := emulated(t, "emulate,mem=16MiB")
	x, y := floats(t, d, nil, 1, 2, 3), empty(t, d, nil, 3)
	far, foreign := empty(t, other, nil, 3), empty(t, stranger, nil, 3)
	gone := empty(t, d, nil, 3)
	gone.Buf.Free()
	gone.Buf.Free() // a second Free has no effect
	gone.Buf.Queue()
	if s := d.Stats(); s.Frees != 1 {
		t.Errorf("one buffer freed three times: %d frees", s.Frees)
	}
	out := x
	out.Layout.Shape = shape.Of(4)
	out.Layout.Strides = shape.Of(1)
	folded := x
	folded.Strides = shape.Of(0)
	for _, c := range []struct {
		err  error
		want string
	}{
		{apply(d, nil, double, views(y), views(gone)), "cuda:0: map: in: the buffer has been freed"},
		{apply(d, nil, double, views(far), views(x)), "cuda:0: map: out: the buffer belongs to cuda:1, not to cuda:0"},
		{apply(d, nil, double, views(out), views(out)), "cuda:0: map: out: elements 0 to 3 of float32 do not lie in a buffer of 12 bytes"},
		{apply(d, nil, double, views(folded), views(x)), "cuda:0: map: out: strides [0] of shape [3] let elements share memory"},
		{apply(d, nil, plus, views(y), views(x)), "cuda:0: map: in: 1 views for 2 operands"},
		{apply(d, other.main, double, views(y), views(x)), "cuda:0: map: stream: it belongs to cuda:1, not to cuda:0"},
		{d.Upload(nil, x.Buf, 1, make([]byte, 12)), "cuda:0: upload: dst: 12 bytes at offset 1 do not lie in a buffer of 12 bytes"},
		{d.Download(nil, make([]byte, 1), gone.Buf, 0), "cuda:0: download: src: the buffer has been freed"},
		{d.CopyFrom(nil, x.Buf, 0, foreign.Buf, 0, 4), "cuda:0: copy: src: a buffer of cuda:0 of another driver"},
		{d.CopyFrom(nil, x.Buf, 0, nil, 0, 4), "cuda:0: copy: src: not a buffer of a CUDA device"},
		{device.Run(d, nil, &device.MatMul{Out: x, A: x, B: x}), "cuda:0: matmul: out: shape [3], want [batch, rows, columns]"},
		{device.Run(d, nil, &device.Gather{Out: y, Src: x, Index: x}), "cuda:0: gather: index: of float32, want int64 or int32"},
		{device.Run(d, nil, &device.Softmax{Out: y, X: x}), "cuda:0: softmax: out: shape [3], want [rows, columns] as all"},
		{device.Run(d, nil, &device.CrossEntropy{Loss: x, Top: x, Rest: x, X: x, Target: x}), "cuda:0: cross-entropy: x: [3] of float32, want [rows, classes] of a float type"},
		{device.Run(d, nil, &device.MultiMap{Program: double, Outs: [][]device.View{views(y)}, Params: x}), "cuda:0: multi-map: outs: 1 groups, but 0 groups of operands"},
	} {
		var e *device.OperandError
		if !errors.As(c.err, &e) || c.err.Error() != c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	if _, err := d.Alloc(-1, nil, device.Origin{}); err == nil {
		t.Error("a buffer of -1 bytes")
	}
	func() {
		defer func() {
			if e, ok := recover().(*device.OperandError); !ok || e.Op != "use" {
				t.Errorf("Use of a freed buffer: %v", e)
			}
		}()
		gone.Buf.Use(d.DefaultStream())
	}()
	if c := d.Counters(); c.Launches != 0 {
		t.Errorf("%d launches of operations that were refused", c.Launches)
	}
}

// TestStreamsAreReused creates streams in a loop without releasing them. When the Go value of a
// stream is garbage, its driver stream must be reused.
func TestStreamsAreReused(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	seen := map[uint64]bool{}
	for i := range 200 {
		s, err := d.NewStream(0)
		must(t, err)
		seen[s.ID()] = true
		x := floats(t, d, s, 1)
		must(t, apply(d, s, double, views(x), views(x)))
		x.Buf.Free()
		if i%50 == 49 {
			for range 20 { // cleanups run a little after the garbage collection
				runtime.GC()
				d.streams.mu.Lock()
				n := len(d.streams.idle)
				d.streams.mu.Unlock()
				if n > 30 {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	if len(seen) > 160 {
		t.Errorf("200 streams one after the other are %d of the driver's", len(seen))
	}
	must(t, d.Synchronize())
}

// TestLeastMemoryFraction checks that a fraction that amounts to less than a byte still limits the
// memory.
func TestLeastMemoryFraction(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	must(t, d.SetMemoryFraction(1e-12))
	if _, err := d.Alloc(1, nil, device.Origin{}); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("an allocation beyond a bound of next to nothing gives %v", err)
	}
	must(t, d.SetMemoryFraction(0))
	b, err := d.Alloc(1, nil, device.Origin{})
	must(t, err)
	b.Free()
}
