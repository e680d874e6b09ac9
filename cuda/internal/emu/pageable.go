package emu

import (
	"bytes"
	"os"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Pageable says when copies read and write pageable memory, which is host memory that the driver
// did not allocate. CUDA leaves it open: "API synchronization behavior" of NVIDIA's reference of
// the driver API.
type Pageable uint8

// When pageable memory is reached. The zero value is PageableNow, or what FLAMBEAU_PAGEABLE says.
const (
	// PageableNow is the usual behaviour of hardware: a source is read, and a destination written,
	// when the call returns.
	PageableNow Pageable = iota + 1
	// PageableLate is the latest that CUDA allows: a copy reaches the memory when its turn in the
	// stream comes. Until then a destination is full of poison. A source that has changed since the
	// call ends the context.
	PageableLate
)

// usualPageable is what a Config without a setting gets. The variable reaches emulated GPUs that a
// test makes by itself, so that whole suites run in the mode.
func usualPageable() Pageable {
	if os.Getenv("FLAMBEAU_PAGEABLE") == "late" {
		return PageableLate
	}
	return PageableNow
}

// poisonByte fills the destination of a late copy: floats of any width are NaN of it.
const poisonByte = 0xff

// source returns the bytes that a copy from the host reads when it runs, and what it asks before.
// h is nil for pageable memory. A late copy's bytes stay Go's: the slice keeps them alive, and as
// they came through an interface they are on no stack, which could move.
func (d *Driver) source(call string, h *hostBlock, src []byte) (from []byte, intact func() error) {
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

// deliver completes a copy to pageable memory within the call or, where that is late, leaves it in
// the queue. d.mu is held.
func (d *Driver) deliver(to []byte, o *op) {
	if d.cfg.Pageable != PageableLate {
		d.await(o)
		return
	}
	if !o.done {
		for i := range to {
			to[i] = poisonByte
		}
	}
}
