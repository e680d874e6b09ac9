package emu

import (
	"bytes"
	"os"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Pageable says when copies access pageable memory, which is host memory that the driver did not
// allocate. CUDA does not specify this time ("API synchronization behavior" in NVIDIA's reference
// of the driver API).
type Pageable uint8

// Times at which pageable memory is accessed. The zero value means the value of FLAMBEAU_PAGEABLE,
// or else PageableNow.
const (
	// PageableNow is the usual behaviour of hardware: when the call returns, a source has been
	// read, or a destination written.
	PageableNow Pageable = iota + 1
	// PageableLate is the latest time that CUDA allows: a copy accesses the memory when the stream
	// reaches the copy. Until then a destination is filled with NaN. A source that has changed
	// since the call ends the context.
	PageableLate
)

// usualPageable returns the setting for a Config that has none. FLAMBEAU_PAGEABLE also affects the
// emulated GPUs that tests create, so that whole test suites can run with this setting.
func usualPageable() Pageable {
	if os.Getenv("FLAMBEAU_PAGEABLE") == "late" {
		return PageableLate
	}
	return PageableNow
}

// poisonByte fills the destination of a late copy. Floats of any width that consist of these bytes
// are NaN.
const poisonByte = 0xff

// source returns the bytes that a copy from the host reads when it runs, and a check that must run
// before the copy. The argument h is nil for pageable memory. A late copy reads Go memory, which
// the slice data keeps alive. This memory does not move: it was passed through an interface, so it
// does not lie on a stack.
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

// deliver completes the copy o to pageable memory within the call, unless Config has PageableLate.
// The caller holds d.mu.
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
