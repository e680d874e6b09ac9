package emu

import (
	"fmt"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// BlockAllocated marks the memory of a pool's block as allocated, when the earlier work of stream s
// is done. It implements cu.Checker. It panics if the range is not mapped memory, which is a bug of
// the pool. In meta mode it does nothing.
func (d *Driver) BlockAllocated(s cu.Stream, ptr cu.DevicePtr, requested, rounded uint64, label string) {
	if requested > rounded {
		panic(fmt.Sprintf("emu: BlockAllocated(%#x): requested %d > rounded %d", uint64(ptr), requested, rounded))
	}
	d.mark("BlockAllocated", s, ptr, rounded, func(dev *device) { dev.mem.MarkAllocated(uint64(ptr), requested, rounded, label) })
}

// BlockFreed marks the memory of a pool's block as freed, when the earlier work of stream s is
// done. It implements cu.Checker. It panics if the range is not mapped memory, which is a bug of
// the pool.
func (d *Driver) BlockFreed(s cu.Stream, ptr cu.DevicePtr, rounded uint64) {
	d.mark("BlockFreed", s, ptr, rounded, func(dev *device) { dev.mem.MarkFreed(uint64(ptr), rounded) })
}

func (d *Driver) mark(what string, h cu.Stream, ptr cu.DevicePtr, rounded uint64, apply func(*device)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev := d.deviceAt(ptr)
	if dev == nil || dev.ctx == nil {
		panic(fmt.Sprintf("emu: %s(%#x): no such device memory", what, uint64(ptr)))
	}
	if dev.mem == nil || dev.ctx.dead != nil {
		return
	}
	if _, err := dev.mem.Bytes(uint64(ptr), rounded); err != nil {
		panic(fmt.Sprintf("emu: %s(%#x, %d): %v", what, uint64(ptr), rounded, err))
	}
	s := dev.ctx.defaultStream
	if h != 0 {
		s = d.byHandle[h]
		if s == nil { // the stream was destroyed, so its work is done
			apply(dev)
			return
		}
		if s.ctx != dev.ctx {
			panic(fmt.Sprintf("emu: %s(%#x): stream %#x is not a stream of device %d", what, uint64(ptr), uintptr(h), dev.ordinal))
		}
	}
	d.enqueue(s, &op{Op: Op{Kind: KindMark, Bytes: rounded}, run: func() (time.Duration, error) {
		// The pool may have freed the whole allocation before this mark runs.
		if _, err := dev.mem.Bytes(uint64(ptr), rounded); err == nil {
			apply(dev)
		}
		return 0, nil
	}})
}
