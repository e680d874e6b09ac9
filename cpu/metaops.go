package cpu

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
)

var _ device.Device = (*meta)(nil)

// Owns returns "" if b is a usable buffer of this device. Otherwise it returns the reason.
func (d *meta) Owns(b device.Buffer) (reason string) {
	own, ok := b.(*metaBuffer)
	if !ok || own == nil {
		return "not a buffer of the CPU without memory"
	}
	return usable(own.dev == d, own.freed.Load())
}

func (d *meta) checkBytes(op, arg string, b device.Buffer, off, n int) error {
	if reason := device.OutsideBytes(d, b, off, n); reason != "" {
		return operandError(d.Name(), op, arg, reason)
	}
	return nil
}

// Upload checks the buffer. It does not read src.
func (d *meta) Upload(s device.Stream, dst device.Buffer, off int, src []byte) error {
	if err := refused(s, "upload", uploadsOnce); err != nil {
		return err
	}
	return d.checkBytes("upload", "dst", dst, off, len(src))
}

// Download returns an error, because the device has no values.
func (d *meta) Download(s device.Stream, dst []byte, src device.Buffer, off int) error {
	if err := refused(s, "download", hostWaits); err != nil {
		return err
	}
	if err := d.checkBytes("download", "src", src, off, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	return fmt.Errorf("cpu: %w", device.ErrNoValues)
}

// CopyFrom checks the buffers and reports a copy to the tracer. It copies nothing.
func (d *meta) CopyFrom(s device.Stream, dst device.Buffer, dstOff int, src device.Buffer, srcOff, size int) error {
	if err := d.checkBytes("copy", "dst", dst, dstOff, size); err != nil {
		return err
	}
	owner := d
	if b, ok := src.(*metaBuffer); ok && b != nil {
		owner = b.dev // src may belong to another device without memory
	}
	if err := owner.checkBytes("copy", "src", src, srcOff, size); err != nil {
		return err
	}
	if r := recordingOf(s); r != nil {
		r.add(item{})
	}
	if t := device.Tracing(); t != nil {
		now := device.Now()
		t.Copy(device.CopyEvent{Device: d, Stream: s, Kind: device.HostToHost, Op: "copy", Bytes: size, Start: now, End: now})
	}
	return nil
}

// Supports reports whether the CPU has a kernel for op.
func (d *meta) Supports(op device.Op) bool { return supports(op) }

// Run allocates the temporary memory that the CPU would need for op, and frees it again. On a
// stream of a recording it only records op.
func (d *meta) Run(s device.Stream, op device.Op, told *device.KernelEvent) error {
	if !supports(op) {
		return unsupported(op)
	}
	if recordOp(s, op, told) {
		return nil
	}
	t, err := temporaries(d, op)
	release(t[:])
	return err
}
