package cuda

import (
	"runtime"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// abandoned creates an emulated GPU, queues work on streams, starts copies from page-locked memory,
// and then drops every reference.
func abandoned(t *testing.T, gone chan struct{}) {
	d := emulated(t, "emulate,mem=4MiB")
	s, err := NewStream(d, 0)
	must(t, err)
	b, err := d.AllocPinned(4096, device.Origin{})
	must(t, err)
	x := empty(t, d, s, 1024)
	must(t, d.UploadPinned(s, x.Buf, 0, b, 0, 4096))
	b.Free()
	e, err := NewEvent(d, EnableTiming())
	must(t, err)
	must(t, e.Record(s))
	runtime.AddCleanup(d, func(c chan struct{}) { close(c) }, gone)
}

// TestEmulatedDevicesAreCollected checks that the garbage collector frees unused emulated GPUs with
// all of their memory, even if copies were pending on their streams.
func TestEmulatedDevicesAreCollected(t *testing.T) {
	gone := make(chan struct{})
	abandoned(t, gone)
	for range 200 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("an emulated GPU that was dropped is still there")
}
