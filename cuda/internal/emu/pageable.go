package emu

import (
	"bytes"
	"os"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Pageable says when copies access pageable memory, which is host memory that the driver did not
// allocate. CUDA does not specify this time, see "API synchronization behavior" in NVIDIA's
// reference of the driver API.
type Pageable uint8

// Times at which pageable memory is accessed. The zero value means PageableNow, or what
// FLAMBEAU_PAGEABLE says.
const (
	// PageableNow is the usual behaviour of hardware: when the call returns, a source has been
	// read, or a destination written.
	PageableNow Pageable = iota + 1
	// PageableLate is the latest time that CUDA allows: a copy accesses the memory when its turn in
	// the stream comes. Until then a destination is full of poison. A source that has changed since
	// the call ends the context.
	PageableLate
)

// usualPageable returns the setting for a Config that does not choose. FLAMBEAU_PAGEABLE also
// affects the emulated GPUs that tests create, so that whole test suites can run with it.
func usualPageable() Pageable {
	if os.Getenv("FLAMBEAU_PAGEABLE") == "late" {
		return PageableLate
	}
	return PageableNow
}

// poisonByte fills the destination of a late copy. A float of any width that consists of these
// bytes is NaN.
const poisonByte = 0xff

// source returns the bytes that a copy from the host reads when it runs, and a check that must run
// before the copy. The argument h is nil for pageable memory. A late copy reads Go memory, which
// the slice keeps alive. That memory cannot move: it was passed through an interface, so it does
// not lie on a stack.
func (d *Driver) source(call string, h *hostBlock, src []byte) (data []byte, intact func() error) {
	if h != nil {
		return src, func() error { return h.alive(KindCopyHtoD, call, uint64(len(src))) }
	}
	was := bytes.Clone(src)
	if d.cfg.Pageable != PageableLate {
		return was, func() error { return nil }
	}
	return src, func() error {
		if bytes.Equal(src, was) {
			return nil
		}
		return &cu.Error{Call: call, Result: cu.ErrIllegalAddress, Cause: &AccessError{Kind: KindCopyHtoD, Size: uint64(len(src)),
			Why: "the pageable source has changed since the call: the copy reads it when its turn comes"}}
	}
}

// deliver completes the copy o to pageable memory within the call. With PageableLate it leaves the
// copy in the queue. d.mu is held.
func (d *Driver) deliver(dst []byte, o *op) {
	if d.cfg.Pageable != PageableLate {
		d.await(o)
		return
	}
	if !o.done {
		for i := range dst {
			dst[i] = poisonByte
		}
	}
}
