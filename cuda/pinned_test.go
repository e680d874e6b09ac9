package cuda

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// pin returns page-locked memory with the given values.
func pin(t testing.TB, d *Device, values ...float32) device.Buffer {
	t.Helper()
	b, err := d.AllocPinned(4*len(values), device.Origin{Op: "test"})
	must(t, err)
	copy(b.Host(), bytesOf(values))
	return b
}

// TestPinnedReuse frees page-locked memory while copies from or to it run. The memory must be
// reused only when they are done.
func TestPinnedReuse(t *testing.T) {
	for _, seed := range seeds {
		testPinnedReuse(t, emulated(t, fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed)))
	}
	if d := hardware(t); d != nil {
		testPinnedReuse(t, d)
	}
}

func testPinnedReuse(t *testing.T, d *Device) {
	const n = 400
	a, b := stream2(t, d)
	d.EmptyPinned()
	before := d.PinnedStats()
	var all []device.View
	for i := range 12 {
		s := a
		if i%3 == 1 {
			s = b
		}
		h := pin(t, d, fill(float32(i), n)...)
		v := empty(t, d, s, n)
		must(t, d.UploadPinned(s, v.Buf, 0, h, 0, 4*n))
		h.Free() // the next iteration may reuse this memory only after the copy is done
		all = append(all, v)
	}
	for i, v := range all {
		s := a
		if i%3 == 1 {
			s = b
		}
		must(t, apply(d, s, double, views(v), views(v)))
		h := pin(t, d, fill(-1, n)...)
		must(t, d.DownloadPinned(s, h, 4, v.Buf, 0, 4*(n-1)))
		must(t, s.Synchronize())
		want := bytesOf(append([]float32{-1}, fill(2*float32(i), n-1)...))
		if string(h.Host()) != string(want) {
			t.Fatalf("round %d: %v", i, h.Host()[:16])
		}
		h.Free()
	}
	must(t, d.Synchronize())
	st := d.PinnedStats()
	if st.Allocated != 0 || st.Reserved == 0 || st.Segments > 12 || st.Allocations != before.Allocations+24 || st.Frees != before.Frees+24 {
		t.Errorf("%+v, before %+v", st, before)
	}
	// Upload and Download also accept page-locked memory.
	h := pin(t, d, fill(5, n)...)
	v := empty(t, d, a, n)
	must(t, d.Upload(a, v.Buf, 0, h.Host()))
	copy(h.Host(), bytesOf(fill(6, n)))
	must(t, apply(d, a, next, views(v), views(v)))
	must(t, d.Download(a, h.Host(), v.Buf, 0))
	if string(h.Host()) != string(bytesOf(fill(6, n))) {
		t.Errorf("Upload or Download left page-locked memory to a later time: %v", h.Host()[:16])
	}
	if e := d.EmptyPinned(); e == 0 || d.PinnedStats().Reserved != pinnedSize(4*n) {
		t.Errorf("%d bytes given back, %+v", e, d.PinnedStats())
	}
	h.Free()
	h.Free() // a second Free has no effect
	if d.EmptyPinned(); d.PinnedStats().Reserved != 0 {
		t.Errorf("%+v", d.PinnedStats())
	}
}

func TestPinnedErrors(t *testing.T) {
	list, err := Emulate("emulate:2,mem=16MiB")
	must(t, err)
	d, e := list[0], list[1]
	other := emulated(t, "emulate")
	h, v := pin(t, d, 1, 2, 3), empty(t, d, nil, 3)
	freed := pin(t, d, 1)
	freed.Free()
	var view *device.OperandError
	for i, err := range []error{
		d.UploadPinned(nil, v.Buf, 0, h, 4, 12), d.UploadPinned(nil, v.Buf, 4, h, 0, 12), d.UploadPinned(nil, h, 0, v.Buf, 0, 12), d.UploadPinned(nil, v.Buf, 0, freed, 0, 4),
		d.UploadPinned(nil, v.Buf, 0, nil, 0, 4), d.UploadPinned(e.main, v.Buf, 0, h, 0, 4), d.UploadPinned(nil, v.Buf, 0, h, -1, 4), e.UploadPinned(nil, v.Buf, 0, h, 0, 4),
		other.UploadPinned(nil, empty(t, other, nil, 3).Buf, 0, h, 0, 4), d.DownloadPinned(nil, h, 8, v.Buf, 0, 8), d.DownloadPinned(nil, h, 0, v.Buf, 8, 8),
		d.DownloadPinned(e.main, h, 0, v.Buf, 0, 8), second(d.AllocPinned(-1, device.Origin{})),
	} {
		if !errors.As(err, &view) {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if _, err := d.AllocPinned(1<<50, device.Origin{}); !errors.Is(err, device.ErrOutOfMemory) {
		t.Error(err)
	}
	// Page-locked memory that device d has allocated must be usable for copies of device e.
	w := empty(t, e, nil, 3)
	must(t, e.UploadPinned(nil, w.Buf, 0, h, 0, 12))
	check(t, e, nil, w, 1, 2, 3)
	must(t, d.UploadPinned(nil, v.Buf, 0, h, 0, 0))
	none, err := d.AllocPinned(0, device.Origin{})
	if must(t, err); len(none.Host()) != 0 || none.Host() == nil || none.Device() != device.Device(d) {
		t.Error("no bytes")
	}
	for n, want := range map[int]int{0: 4096, 1: 4096, 4096: 4096, 4097: 8192, 1 << 20: 1 << 20, 1<<20 + 1: 1<<20 + 1<<17, 15 << 17: 15 << 17} {
		if got := pinnedSize(n); got != want {
			t.Errorf("%d bytes take %d, want %d", n, got, want)
		}
	}
}

func second(_ device.Buffer, err error) error { return err }

func TestPinnedConcurrently(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB,seed=3")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			s, err := d.NewStream(0)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 20 {
				h := pin(t, d, fill(float32(g), 100+i)...)
				v := empty(t, d, s, 100+i)
				if err := d.UploadPinned(s, v.Buf, 0, h, 0, 400+4*i); err != nil {
					t.Error(err)
				}
				h.Queue()
				check(t, d, s, v, fill(float32(g), 100+i)...)
				v.Buf.Free()
				d.PinnedStats()
			}
		})
	}
	wg.Wait()
	if st := d.PinnedStats(); st.Allocated != 0 || st.Segments > 8 {
		t.Errorf("%+v", st)
	}
}
