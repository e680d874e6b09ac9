package emu

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// AccessError says which memory a copy or fill must not access. It is the Cause of the operation's
// *cu.Error.
type AccessError struct {
	Kind Kind
	Addr uint64 // device address; 0 for host memory
	Size uint64 // size of the whole operation in bytes
	Why  string // the first byte that cannot be accessed, and the reason
}

// Error returns the operation, its address and size, and the reason for the failure.
func (e *AccessError) Error() string {
	return fmt.Sprintf("emu: %s of %d bytes at %#x: %s", e.Kind, e.Size, e.Addr, e.Why)
}

// reach returns an error unless [p, p+n) is mapped on dev. It is called when an operation is
// queued.
func (d *Driver) reach(call string, dev *device, p cu.DevicePtr, n uint64) error {
	at := d.deviceAt(p)
	switch {
	case at == nil:
		return fail(call, cu.ErrInvalidValue, "%#x is not an address of an emulated device", uint64(p))
	case at != dev:
		return fail(call, cu.ErrInvalidValue, "%#x is memory of device %d, the stream is of device %d", uint64(p), at.ordinal, dev.ordinal)
	}
	var err error
	if dev.mem != nil {
		_, err = dev.mem.Bytes(uint64(p), n)
	} else {
		err = dev.meta.check(uint64(p), n)
	}
	if err != nil {
		return &cu.Error{Call: call, Result: cu.ErrInvalidValue, Detail: fmt.Sprintf("%d bytes at %#x", n, uint64(p)), Cause: err}
	}
	return nil
}

// access returns the n bytes at p, for an operation that is about to run. If it returns an error,
// the context ends.
func access(kind Kind, call string, dev *device, p cu.DevicePtr, n uint64) ([]byte, error) {
	err := dev.mem.CheckAddressable(uint64(p), n)
	if err == nil {
		var b []byte
		if b, err = dev.mem.Bytes(uint64(p), n); err == nil {
			return b, nil
		}
	}
	return nil, &cu.Error{Call: call, Result: cu.ErrIllegalAddress, Cause: &AccessError{Kind: kind, Addr: uint64(p), Size: n, Why: err.Error()}}
}

// alive returns an error if the page-locked block h was freed while a copy was pending. For a copy
// whose source was read within the call, h is nil.
func (h *hostBlock) alive(kind Kind, call string, n uint64) error {
	if h == nil || !h.freed {
		return nil
	}
	return &cu.Error{Call: call, Result: cu.ErrIllegalAddress, Cause: &AccessError{Kind: kind, Size: n, Why: "the pinned host memory was freed before the copy ran"}}
}

// MemcpyHtoDAsync copies from the host. Page-locked memory is read when the stream reaches the
// copy. Other (pageable) memory is read within the call. With PageableLate, it is also read when
// the stream reaches the copy.
func (d *Driver) MemcpyHtoDAsync(dst cu.DevicePtr, src unsafe.Pointer, n uint64, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemcpyHtoDAsync"
	s, err := d.streamHere(call, st)
	if err != nil || n == 0 {
		return err
	}
	if src == nil {
		return fail(call, cu.ErrInvalidValue, "the source is nil")
	}
	dev := s.ctx.dev
	if err := d.reach(call, dev, dst, n); err != nil {
		return err
	}
	d.counters.HtoD.add(n)
	h := d.hostAt(src, n)
	if h == nil {
		d.counters.Pageable++
		d.counters.PageableHtoD++
	}
	run := func() (time.Duration, error) { return d.cfg.Cost.link(n), nil }
	if dev.mem != nil {
		from, intact := d.source(call, h, unsafe.Slice((*byte)(src), n))
		run = func() (time.Duration, error) {
			if err := intact(); err != nil {
				return 0, err
			}
			to, err := access(KindCopyHtoD, call, dev, dst, n)
			if err != nil {
				return 0, err
			}
			copy(to, from)
			dev.mem.MarkInitialised(uint64(dst), n)
			return d.cfg.Cost.link(n), nil
		}
	}
	d.enqueue(s, &op{Op: Op{Kind: KindCopyHtoD, Bytes: n}, run: run})
	return s.ctx.dead
}

// MemcpyDtoHAsync copies to the host. Page-locked memory is written when the stream reaches the
// copy. For other (pageable) memory, the call completes the stream's work before it returns. With
// PageableLate, it does not: a later synchronisation completes the work.
//
// In meta mode a copy to pageable memory returns ErrMeta. A copy to page-locked memory is counted
// and dropped. The host must wait for such a copy before it reads the memory. This wait returns
// ErrMeta.
func (d *Driver) MemcpyDtoHAsync(dst unsafe.Pointer, src cu.DevicePtr, n uint64, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemcpyDtoHAsync"
	s, err := d.streamHere(call, st)
	if err != nil || n == 0 {
		return err
	}
	if dst == nil {
		return fail(call, cu.ErrInvalidValue, "the destination is nil")
	}
	dev := s.ctx.dev
	if err := d.reach(call, dev, src, n); err != nil {
		return err
	}
	h := d.hostAt(dst, n)
	if dev.mem == nil {
		if h == nil {
			return metaError(call, fmt.Sprintf("%d bytes at %#x", n, uint64(src)))
		}
		d.counters.DtoH.add(n)
		s.afterMetaCopy = true
		d.enqueue(s, &op{Op: Op{Kind: KindCopyDtoH, Bytes: n}, run: func() (time.Duration, error) { return d.cfg.Cost.link(n), nil }})
		return s.ctx.dead
	}
	d.counters.DtoH.add(n)
	to := unsafe.Slice((*byte)(dst), n)
	o := d.enqueue(s, &op{Op: Op{Kind: KindCopyDtoH, Bytes: n}, run: func() (time.Duration, error) {
		if err := h.alive(KindCopyDtoH, call, n); err != nil {
			return 0, err
		}
		from, err := access(KindCopyDtoH, call, dev, src, n)
		if err != nil {
			return 0, err
		}
		copy(to, from)
		return d.cfg.Cost.link(n), nil
	}})
	if h == nil {
		d.counters.Pageable++
		d.deliver(to, o)
	}
	return s.ctx.dead
}

// MemcpyDtoDAsync copies within the stream's device. It refuses ranges that overlap.
func (d *Driver) MemcpyDtoDAsync(dst, src cu.DevicePtr, n uint64, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemcpyDtoDAsync"
	s, err := d.streamHere(call, st)
	if err != nil || n == 0 {
		return err
	}
	dev := s.ctx.dev
	if err := d.reach(call, dev, dst, n); err != nil {
		return err
	}
	if err := d.reach(call, dev, src, n); err != nil {
		return err
	}
	if uint64(dst) < uint64(src)+n && uint64(src) < uint64(dst)+n {
		return fail(call, cu.ErrInvalidValue, "%d bytes at %#x and %#x overlap", n, uint64(src), uint64(dst))
	}
	d.counters.DtoD.add(n)
	run := func() (time.Duration, error) { return d.cfg.Cost.local(2 * n), nil }
	if dev.mem != nil {
		run = func() (time.Duration, error) {
			if err := transfer(KindCopyDtoD, call, dev, dst, dev, src, n); err != nil {
				return 0, err
			}
			return d.cfg.Cost.local(2 * n), nil
		}
	}
	d.enqueue(s, &op{Op: Op{Kind: KindCopyDtoD, Bytes: n}, run: run})
	return s.ctx.dead
}

// transfer copies device memory. It also copies the record of which bytes are initialised.
func transfer(kind Kind, call string, to *device, dst cu.DevicePtr, from *device, src cu.DevicePtr, n uint64) error {
	w, err := access(kind, call, to, dst, n)
	if err != nil {
		return err
	}
	r, err := access(kind, call, from, src, n)
	if err != nil {
		return err
	}
	copy(w, r)
	to.mem.CopyInitialised(uint64(dst), from.mem, uint64(src), n)
	return nil
}

// MemsetD8Async fills n bytes.
func (d *Driver) MemsetD8Async(dst cu.DevicePtr, v uint8, n uint64, st cu.Stream) error {
	return d.memset("cuMemsetD8Async", dst, []byte{v}, n, st)
}

// MemsetD16Async fills n elements of 2 bytes.
func (d *Driver) MemsetD16Async(dst cu.DevicePtr, v uint16, n uint64, st cu.Stream) error {
	return d.memset("cuMemsetD16Async", dst, binary.LittleEndian.AppendUint16(nil, v), n, st)
}

// MemsetD32Async fills n elements of 4 bytes.
func (d *Driver) MemsetD32Async(dst cu.DevicePtr, v uint32, n uint64, st cu.Stream) error {
	return d.memset("cuMemsetD32Async", dst, binary.LittleEndian.AppendUint32(nil, v), n, st)
}

func (d *Driver) memset(call string, dst cu.DevicePtr, pattern []byte, n uint64, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streamHere(call, st)
	if err != nil || n == 0 {
		return err
	}
	width := uint64(len(pattern))
	if uint64(dst)%width != 0 {
		return fail(call, cu.ErrInvalidValue, "%#x is not a multiple of %d", uint64(dst), width)
	}
	if n > MaxMemory/width {
		return fail(call, cu.ErrInvalidValue, "%d elements of %d bytes", n, width)
	}
	size := n * width
	dev := s.ctx.dev
	if err := d.reach(call, dev, dst, size); err != nil {
		return err
	}
	d.counters.Memsets.add(size)
	run := func() (time.Duration, error) { return d.cfg.Cost.local(size), nil }
	if dev.mem != nil {
		run = func() (time.Duration, error) {
			b, err := access(KindMemset, call, dev, dst, size)
			if err != nil {
				return 0, err
			}
			copy(b, pattern)
			for done := len(pattern); done < len(b); done *= 2 {
				copy(b[done:], b[:done])
			}
			dev.mem.MarkInitialised(uint64(dst), size)
			return d.cfg.Cost.local(size), nil
		}
	}
	d.enqueue(s, &op{Op: Op{Kind: KindMemset, Bytes: size}, run: run})
	return s.ctx.dead
}
