package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

// enter makes the device's context current on the calling thread, to which the goroutine is locked
// until leave. On a device that has failed for good it returns the fault.
func (d *Device) enter() error {
	if f := d.dead.Load(); f != nil {
		return f
	}
	runtime.LockOSThread()
	if err := d.api.CtxSetCurrent(d.ctx); err != nil {
		runtime.UnlockOSThread()
		return d.fault("", err)
	}
	return nil
}

func (d *Device) leave() { runtime.UnlockOSThread() }

// fault makes the error of the device contract of a call's error, nil of nil. A sticky one ends the
// device: it is what every later call returns. kernel names what was launched, where that is known:
// of a sticky fault on hardware it is only where every launch is waited for.
func (d *Device) fault(kernel string, err error) error {
	if err == nil {
		return nil
	}
	if f := d.dead.Load(); f != nil {
		return f
	}
	f := &device.Fault{Device: d.name, Kernel: kernel, Err: err}
	var found *ptxvm.Fault
	if errors.As(err, &found) {
		f.Kernel = found.Kernel // the call may be a later one
	}
	var e *cu.Error
	if errors.As(err, &e) {
		f.Sticky = e.Result.Sticky()
		if e.Result == cu.ErrOutOfMemory {
			f.Err = fmt.Errorf("%w: %w", device.ErrOutOfMemory, err)
		}
	}
	if errors.Is(err, emu.ErrMeta) {
		f.Err = &noValues{err}
	}
	if f.Sticky && found == nil && !d.p.sync {
		// Hardware says that something failed, in whichever call notices, and not what.
		f.Kernel, f.Err = "", fmt.Errorf("%w; with FLAMBEAU_CUDA_SYNC=1 the operation that fails reports it", err)
	}
	if f.Sticky && !d.dead.CompareAndSwap(nil, f) {
		return d.dead.Load()
	}
	return f
}

// indexSlots is the number of fault records of a device, one for each stream until there are more
// streams.
const indexSlots = 64

// indexFaults is page-locked host memory that kernels write the first index outside its axis to. A
// stream has a record of its own, so that an error comes out of a wait for the work that made it,
// and not of somebody else's.
type indexFaults struct {
	mu   sync.Mutex
	host []byte
	addr cu.DevicePtr
}

// init is called with the device's context current.
func (x *indexFaults) init(api cu.API) error {
	const n = indexSlots * kernels.FaultBytes
	p, err := api.MemHostAlloc(n, cu.HostDeviceMap)
	if err != nil {
		return err
	}
	x.host = unsafe.Slice((*byte)(p), n)
	clear(x.host)
	x.addr, err = api.MemHostGetDevicePointer(p)
	return err
}

// record is the address of a slot's record on the device.
func (x *indexFaults) record(slot int) uint64 {
	return uint64(x.addr) + uint64(slot*kernels.FaultBytes)
}

// take returns the error in one of the slots of the mask, and arms its record again. The work of
// these slots' streams has been waited for.
func (x *indexFaults) take(mask uint64) *device.IndexError {
	for ; mask != 0; mask &= mask - 1 {
		r := x.host[bits.TrailingZeros64(mask)*kernels.FaultBytes:][:kernels.FaultBytes]
		if atomic.LoadUint32((*uint32)(unsafe.Pointer(&r[0]))) == 0 {
			continue
		}
		x.mu.Lock()
		e := kernels.ReadFault(r)
		clear(r)
		x.mu.Unlock()
		if e != nil {
			return e
		}
	}
	return nil
}

// await runs wait, which waits for the stream, and returns its fault or an index error of the work
// it waited for.
func (s *stream) await(wait func() error) error {
	if err := s.refuse("synchronize", hostWaits); err != nil {
		return err
	}
	mask := s.mask.Swap(s.own())
	if err := wait(); err != nil {
		s.mask.Or(mask)
		return s.dev.fault("", err)
	}
	if e := s.dev.index.take(mask); e != nil {
		s.mask.Or(mask) // there may be another
		return e
	}
	return nil
}
