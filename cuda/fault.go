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

// enter locks the goroutine to its thread and makes the device's context current in that thread.
// The method leave undoes both. If the device has a sticky fault, enter returns it.
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

// fault converts an error of a driver call to a *[device.Fault], and nil to nil. A sticky fault
// ends the device: every later call returns it. The argument kernel is the name of the launched
// kernel, if known. On hardware, the fault keeps the name only if the program waits for every
// launch. Otherwise a later call may report the fault.
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
		f.Kernel = found.Kernel // the failed kernel may be an earlier one than the argument kernel
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
		// Hardware reports a failure at some later call, and does not say which kernel failed.
		f.Kernel, f.Err = "", fmt.Errorf("%w; with FLAMBEAU_CUDA_SYNC=1 the operation that fails reports it", err)
	}
	if f.Sticky && !d.dead.CompareAndSwap(nil, f) {
		return d.dead.Load()
	}
	return f
}

// indexSlots is the number of records for index errors on a device. Each stream has its own record,
// unless there are more streams than records. In this case several streams share a record.
const indexSlots = 64

// indexFaults is page-locked host memory to which kernels write the first index that is out of
// bounds. Each stream has its own record, so that a wait reports only errors of the work for which
// it waited.
type indexFaults struct {
	mu   sync.Mutex
	host []byte
	addr cu.DevicePtr
}

// init allocates the records, with the device's context current.
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

// record returns the device address of record number slot.
func (x *indexFaults) record(slot int) uint64 {
	return uint64(x.addr) + uint64(slot*kernels.FaultBytes)
}

// takeFault returns an error from one of the records in mask, and clears that record for the next
// error. The caller has waited for the work of the streams that use these records.
func (x *indexFaults) takeFault(mask uint64) *device.IndexError {
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

// await calls the function wait, which waits for the stream, and returns its error. If there is
// none, it returns an index error of this stream's work, or of streams for which this stream has
// waited.
func (s *stream) await(wait func() error) error {
	if err := s.refuse("synchronize", hostWaits); err != nil {
		return err
	}
	mask := s.mask.Swap(s.own())
	if err := wait(); err != nil {
		s.mask.Or(mask)
		return s.dev.fault("", err)
	}
	if e := s.dev.index.takeFault(mask); e != nil {
		s.mask.Or(mask) // another record may hold an error too
		return e
	}
	return nil
}
