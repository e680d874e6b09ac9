package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// sized sets the size of all segments of a pool to seg bytes. A larger block gets a segment of
// its own, rounded up to a multiple of seg. If seg is 0, sized changes nothing.
func sized(o *pool.Options, seg uint64) {
	if seg == 0 {
		return
	}
	o.SmallSegment, o.MediumSegment, o.LargeRound = seg, seg, seg
	o.SmallMax, o.MediumMax = seg/2, seg/2
}

// FailAlloc makes an emulated GPU run out of memory, for tests of programs that handle this. It
// counts the requests that the GPU's pool makes to the driver from now on, and the n-th of them
// fails. The pool's further attempts fail too, until the pool gives up. The allocation then fails
// with an error that wraps [device.ErrOutOfMemory]. Later allocations succeed again. FailAlloc(0)
// cancels a failure that has not happened yet.
//
// The pool requests from the driver only memory that it does not have already. To make more
// allocations reach the driver, call [Device.Empty] first, or use small segments
// (Emulate("emulate,segment=1KiB")). With expandable segments each page is a request of its own. If
// the device is not emulated, the error says so.
func (d *Device) FailAlloc(n int) error {
	s, ok := d.api.(cu.Scarce)
	if !ok {
		return &device.UnavailableError{Name: d.name, Reason: "only an emulated GPU can be made to run out of memory", Help: "see cuda.Emulate; Device.SetMemoryLimit limits a real one"}
	}
	if n < 0 {
		return d.refusal("fail alloc", "n", fmt.Sprintf("%d is negative", n))
	}
	s.RefuseMemory(d.h, uint64(n))
	return nil
}

// stopRefusing tells an emulated driver that the pool has given up, so that later requests succeed
// again.
func (d *Device) stopRefusing() {
	if s, ok := d.api.(cu.Scarce); ok {
		s.Relent(d.h)
	}
}
