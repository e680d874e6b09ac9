package devicetest

import (
	"bytes"
	"errors"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

func testInfo(r *rig) {
	i := r.dev.Info()
	if r.dev.Name() == "" || i.Kind == "" || i.Name == "" || i.Cores < 1 {
		r.Errorf("name %q, info %+v", r.dev.Name(), i)
	}
	if r.s == nil || r.s.Device() != r.dev {
		r.Error("the default stream is not of the device")
	}
}

func (r *rig) pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.rnd.Uint32())
	}
	return b
}

func testCopies(r *rig) {
	sizes := []int{0, 1, 3, 511, 4096, 100_001}
	if r.large {
		sizes = append(sizes, 3<<20+5)
	}
	for _, n := range sizes {
		src := r.pattern(n + 10)
		b := r.alloc(n + 10)
		if b.Size() != n+10 || b.Device() != r.dev {
			r.Fatalf("buffer of %d bytes has size %d", n+10, b.Size())
		}
		if h := b.Host(); h != nil && len(h) != n+10 {
			r.Errorf("Host of a buffer of %d bytes has %d", n+10, len(h))
		}
		r.must(r.dev.Upload(r.s, b, 0, src), "Upload %d", n)
		mine := r.pattern(n)
		r.must(r.dev.Upload(r.s, b, 7, mine), "Upload %d at 7", n)
		want := append(append(append([]byte(nil), src[:7]...), mine...), src[7+n:]...)
		clear(mine) // the caller may overwrite its slice as soon as Upload returns
		got := make([]byte, n+10)
		r.must(r.dev.Download(r.s, got, b, 0), "Download %d", n)
		if !bytes.Equal(got, want) {
			r.Errorf("upload of %d bytes at offset 7: wrong bytes", n)
		}
		part := make([]byte, n)
		r.must(r.dev.Download(r.s, part, b, 9), "Download %d at 9", n)
		if !bytes.Equal(part, want[9:9+n]) {
			r.Errorf("download of %d bytes from offset 9: wrong bytes", n)
		}
		c := r.alloc(n + 3)
		r.must(r.dev.Upload(r.s, c, 0, src[:n+3]), "Upload")
		r.must(r.dev.CopyFrom(r.s, c, 2, b, 4, n), "CopyFrom %d", n)
		got = make([]byte, n+3)
		r.must(r.dev.Download(r.s, got, c, 0), "Download")
		if !bytes.Equal(got[2:2+n], want[4:4+n]) || !bytes.Equal(got[:2], src[:2]) || got[n+2] != src[n+2] {
			r.Errorf("CopyFrom of %d bytes: wrong bytes", n)
		}
		for _, err := range []error{r.dev.Upload(r.s, b, 11, mine), r.dev.Download(r.s, part, b, -1), r.dev.CopyFrom(r.s, c, 4, b, 0, n)} {
			if err == nil && n > 0 {
				r.Errorf("copy of %d bytes outside the buffer: no error", n)
			}
		}
	}
}

func testStreams(r *rig) {
	a, err := r.dev.NewStream(0)
	r.must(err, "NewStream")
	b, err := r.dev.NewStream(1)
	r.must(err, "NewStream of high priority")
	if a.ID() == b.ID() || a.ID() == r.s.ID() || a.Device() != r.dev {
		r.Errorf("streams %d, %d and the default %d are not told apart", a.ID(), b.ID(), r.s.ID())
	}
	s := shape.Of(300)
	x, y := r.small(dtype.F32, s, contiguous), r.empty(dtype.F32, s, contiguous)
	r.must(r.s.Synchronize(), "Synchronize")
	p := lower(expr.X(0).Add(expr.C(1)), dtype.F32, dtype.F32)
	want := x.bits()
	const steps = 6
	for i := range steps { // copy back and forth on two streams, which only events synchronize
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		src, dst := x, y
		if i%2 == 1 {
			src, dst = y, x
		}
		src.v.Buf.Use(from)
		dst.v.Buf.Use(from)
		r.must(device.Run(r.dev, from, &device.Map{Program: p, Outs: []device.View{dst.v}, Ins: []device.View{src.v}}), "map on a stream")
		e, err := from.Record()
		r.must(err, "Record")
		r.must(to.Wait(e), "Wait")
		if i == steps-1 {
			r.must(e.Wait(), "Event.Wait")
			if !e.Done() {
				r.Error("an event that was waited for is not done")
			}
		}
		e.Release()
		for k := range want {
			want[k] = p.Eval(nil, want[k:k+1], nil, 0)[0]
		}
	}
	r.must(a.Synchronize(), "Synchronize")
	r.must(b.Synchronize(), "Synchronize")
	x.equal("map on two streams", want)
}

func testMemory(r *rig) {
	const n = 1 << 20
	before := r.dev.Stats()
	b, err := r.dev.Alloc(n, r.s, device.Origin{Op: "devicetest", Shape: shape.Of(n), Type: dtype.U8})
	r.must(err, "Alloc")
	during := r.dev.Stats()
	if during.Allocated < before.Allocated+n || during.AllocatedPeak < during.Allocated || during.Reserved < during.Allocated || during.Allocations <= before.Allocations || during.AllocatedTotal < before.AllocatedTotal+n {
		r.Errorf("stats before a buffer of 1 MiB %+v, with it %+v", before, during)
	}
	b.Free()
	r.must(r.dev.Synchronize(), "Synchronize")
	after := r.dev.Stats()
	if after.Allocated != before.Allocated || after.Frees <= before.Frees || after.AllocatedPeak < during.Allocated {
		r.Errorf("stats before a buffer of 1 MiB %+v, after it %+v", before, after)
	}
	r.dev.ResetPeak()
	if s := r.dev.Stats(); s.AllocatedPeak != s.Allocated {
		r.Errorf("after ResetPeak: %+v", s)
	}
	q, err := r.dev.Alloc(n, r.s, device.Origin{})
	r.must(err, "Alloc")
	q.Queue()
	if s := r.dev.Stats(); s.Allocated != before.Allocated {
		r.Errorf("after Queue %d bytes are allocated, before the buffer %d", s.Allocated, before.Allocated)
	}
	held := r.dev.Stats().Reserved
	if given := r.dev.Empty(); given < 0 || r.dev.Stats().Reserved != held-given {
		r.Errorf("Empty gave %d bytes of %d, left %d", given, held, r.dev.Stats().Reserved)
	}
	empty, err := r.dev.Alloc(0, r.s, device.Origin{})
	r.must(err, "Alloc(0)")
	if empty.Size() != 0 {
		r.Errorf("a buffer of 0 bytes has %d", empty.Size())
	}
	empty.Free()

	// An allocation larger than the device's memory must fail with an error that wraps
	// ErrOutOfMemory. Afterwards the device must work as before.
	for _, huge := range []int{min(1<<50, math.MaxInt/2), math.MaxInt} {
		if b, err := r.dev.Alloc(huge, r.s, device.Origin{Op: "devicetest"}); err == nil {
			r.Errorf("Alloc of %d bytes gave a buffer of %d", huge, b.Size())
		} else if !errors.Is(err, device.ErrOutOfMemory) {
			r.Errorf("Alloc of %d bytes: %v, which is not ErrOutOfMemory", huge, err)
		}
	}
	if l, ok := r.dev.(interface{ SetMemoryLimit(bytes int) }); ok {
		r.dev.Empty()
		l.SetMemoryLimit(r.dev.Stats().Reserved + 8<<20)
		var got []device.Buffer
		for range 20 {
			b, err := r.dev.Alloc(n, r.s, device.Origin{Op: "devicetest"})
			if err != nil {
				if !errors.Is(err, device.ErrOutOfMemory) {
					r.Errorf("Alloc at the limit: %v", err)
				}
				break
			}
			got = append(got, b)
		}
		if len(got) < 1 || len(got) > 10 {
			r.Errorf("%d buffers of 1 MiB under a limit of 8 MiB", len(got))
		}
		for _, b := range got {
			b.Free()
		}
		b, err := r.dev.Alloc(n, r.s, device.Origin{})
		r.must(err, "Alloc after buffers were freed at the limit")
		b.Free()
		l.SetMemoryLimit(0)
	}
	s := shape.Of(9)
	r.checkMap("map after running out of memory", lower(expr.X(0).Neg(), dtype.F32, dtype.F32), []*array{r.empty(dtype.F32, s, contiguous)}, []*array{r.small(dtype.F32, s, contiguous)}, nil)
}
