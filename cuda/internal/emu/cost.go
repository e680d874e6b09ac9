package emu

import (
	"fmt"
	"math"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Cost is the cost model of the virtual clock. Zero fields stand for their defaults.
type Cost struct {
	Launch time.Duration // delay before the first instruction of a kernel; the default is 2 µs
	// WarpInstructions is the number of warp instructions that the whole device executes in a
	// second. The default is 1e12.
	WarpInstructions float64
	// MemoryBytes is the number of bytes of global memory that are moved in a second. The default
	// is 3.35e12.
	MemoryBytes float64
	Copy        time.Duration // time to start a copy; the default is 1 µs
	// CopyBytes is the number of bytes that are copied between host and device in a second. The
	// default is 25e9.
	CopyBytes float64
	// number of bytes that are copied between two devices with peer access in a second; the default
	// is 450e9
	PeerBytes float64
}

const defaultPeerBytes = 450e9

func (c Cost) withDefaults() Cost {
	if c.Launch == 0 {
		c.Launch = 2 * time.Microsecond
	}
	if c.WarpInstructions == 0 {
		c.WarpInstructions = 1e12
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = 3.35e12
	}
	if c.Copy == 0 {
		c.Copy = time.Microsecond
	}
	if c.CopyBytes == 0 {
		c.CopyBytes = 25e9
	}
	if c.PeerBytes == 0 {
		c.PeerBytes = defaultPeerBytes
	}
	return c
}

func (c Cost) check() error {
	if c.Launch < 0 || c.Copy < 0 {
		return &SpecError{Part: fmt.Sprintf("Cost.Launch = %v, Cost.Copy = %v", c.Launch, c.Copy), Want: "no negative time"}
	}
	for name, v := range map[string]float64{"WarpInstructions": c.WarpInstructions, "MemoryBytes": c.MemoryBytes, "CopyBytes": c.CopyBytes, "PeerBytes": c.PeerBytes} {
		if !(v > 0) || math.IsInf(v, 0) {
			return &SpecError{Part: fmt.Sprintf("Cost.%s = %v", name, v), Want: "a positive number a second"}
		}
	}
	return nil
}

func perSecond(n uint64, rate float64) time.Duration {
	return time.Duration(math.Ceil(float64(n) / rate * 1e9))
}

// kernel returns the virtual time of a kernel. It is the time of the launch, plus the time of the
// instructions or of the memory traffic, whichever is longer.
func (c Cost) kernel(warpInstructions, memoryBytes uint64) time.Duration {
	return c.Launch + max(perSecond(warpInstructions, c.WarpInstructions), perSecond(memoryBytes, c.MemoryBytes))
}

// peer returns the virtual time of a copy between devices. If direct is false, it is the time of a
// copy to the host and a copy from the host.
func (c Cost) peer(bytes uint64, direct bool) time.Duration {
	if direct {
		return c.Copy + perSecond(bytes, c.PeerBytes)
	}
	return 2 * c.link(bytes)
}

// link returns the virtual time of a copy between host and device.
func (c Cost) link(bytes uint64) time.Duration { return c.Copy + perSecond(bytes, c.CopyBytes) }

// local returns the virtual time of a copy or a fill within a device. The argument is the number of
// bytes read plus the number of bytes written.
func (c Cost) local(bytes uint64) time.Duration { return c.Copy + perSecond(bytes, c.MemoryBytes) }

var _ cu.Rated = (*Driver)(nil)

// Rates returns the cost model's rates: warp instructions and bytes of memory in a second.
func (d *Driver) Rates() (warpInstructions, memoryBytes float64) {
	return d.cfg.Cost.WarpInstructions, d.cfg.Cost.MemoryBytes
}
