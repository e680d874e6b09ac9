package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
)

// refusal is the error for what a call cannot take.
func (d *Device) refusal(op, arg, why string) error {
	return &device.OperandError{Device: d.name, Op: op, Arg: arg, Reason: why}
}

// buffer returns the driver's own form of a buffer of this device that may be used.
func (d *Device) buffer(b device.Buffer) (own *buffer, why string) {
	own, ok := b.(*buffer)
	switch {
	case !ok || own == nil:
		return nil, "not a buffer of a CUDA device"
	case own.dev != d:
		return nil, fmt.Sprintf("the buffer belongs to %s, not to %s", own.dev.name, d.name)
	case own.freed.Load():
		return nil, "the buffer has been freed"
	}
	return own, ""
}

// Owns says why b is no memory of this device that may be used.
func (d *Device) Owns(b device.Buffer) (reason string) {
	_, why := d.buffer(b)
	return why
}

// bytes returns the address of n bytes of a buffer.
func (d *Device) bytes(op, arg string, buf device.Buffer, off, n int) (uintptr, error) {
	if why := device.OutsideBytes(d, buf, off, n); why != "" {
		return 0, d.refusal(op, arg, why)
	}
	return buf.Addr() + uintptr(off), nil
}
