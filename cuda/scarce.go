package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// sized makes all segments of a pool the same size: larger blocks take one of their own, rounded up
// to it. 0 changes nothing.
func sized(o *pool.Options, seg uint64) {
	if seg == 0 {
		return
	}
	o.SmallSegment, o.MediumSegment, o.LargeRound = seg, seg, seg
	o.SmallMax, o.MediumMax = seg/2, seg/2
}

// FailAlloc makes an emulated GPU run out of memory, for tests of programs that are to survive
// that. It refuses the n-th time from now on, counted from 1, that the GPU's pool asks the driver
// for memory. It refuses all else that the pool then tries, too, until the pool gives up. The
// allocation fails with an error that wraps [device.ErrOutOfMemory]; the next ones succeed again. 0
// takes back a refusal that has not begun.
//
// Only what the pool does not hold already is asked of the driver: [Device.Empty] before, and
// segments that are small (Emulate("emulate,segment=1KiB")), make more allocations get there. With
// expandable segments each page is asked for by itself. The error says that the device is not an
// emulated one.
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

// relent tells an emulated driver that the pool has given up.
func (d *Device) relent() {
	if s, ok := d.api.(cu.Scarce); ok {
		s.Relent(d.h)
	}
}
