package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// Upload copies src to the bytes of dst from offset off on. The copy runs after earlier work of s
// and before later work. The caller may reuse src when Upload returns. Ordinary memory is copied
// through page-locked memory of the library, in chunks of 1 MiB. An upload of more than 4 MiB
// waits until its first chunks have been copied. That includes waiting for earlier work on s.
func (d *Device) Upload(s device.Stream, dst device.Buffer, off int, src []byte) error {
	const op = "upload"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := st.refuse(op, "a replay would repeat the bytes of now"); err != nil {
		return err
	}
	addr, err := d.bytes(op, "dst", dst, off, len(src))
	if err != nil || len(src) == 0 {
		return err
	}
	if t := device.Tracing(); t != nil {
		return d.tracedCopy(t, st, device.CopyEvent{Kind: device.HostToDevice, Op: op, Bytes: len(src), Pinned: d.p.pinned.holds(src), Blocked: true},
			func() error { return d.upload(st, uint64(addr), src) })
	}
	return d.upload(st, uint64(addr), src)
}

// upload copies b to the device's address dst. It returns when b has been read.
func (d *Device) upload(s *stream, dst uint64, b []byte) error {
	if err := d.send(s, dst, b); err != nil || !d.p.pinned.holds(b) {
		return err
	}
	return s.synchronize() // the driver reads page-locked memory only after the call has returned
}

// send queues a copy of b to the device's address dst. If b is ordinary memory, send returns after
// b was read. If b is page-locked memory of the pool, the driver reads it only when the stream
// reaches the copy.
func (d *Device) send(s *stream, dst uint64, b []byte) error {
	if l := s.rec.Load(); l != nil {
		return l.send(dst, b)
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	d.count.up.Add(1)
	if !d.p.pinned.holds(b) {
		return d.stage(s, dst, b)
	}
	return d.fault("", d.api.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&b[0]), uint64(len(b)), s.handle))
}

// Download waits for the work on s, and then fills dst with the bytes of src from offset off on.
// If that work failed, it returns the fault or the index error.
func (d *Device) Download(s device.Stream, dst []byte, src device.Buffer, off int) error {
	const op = "download"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := st.refuse(op, hostWaits); err != nil {
		return err
	}
	addr, err := d.bytes(op, "src", src, off, len(dst))
	if err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		return d.tracedCopy(t, st, device.CopyEvent{Kind: device.DeviceToHost, Op: op, Bytes: len(dst), Pinned: d.p.pinned.holds(dst), Blocked: true},
			func() error { return d.download(st, dst, uint64(addr)) })
	}
	return d.download(st, dst, uint64(addr))
}

// download waits for the work on s and copies from an address of the device to dst.
func (d *Device) download(st *stream, dst []byte, addr uint64) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return st.await(func() error {
		if len(dst) == 0 {
			return d.api.StreamSynchronize(st.handle)
		}
		d.count.down.Add(1)
		d.count.downBytes.Add(uint64(len(dst)))
		// The driver may write ordinary memory after the call has returned, so the stream is
		// synchronized.
		err := d.api.MemcpyDtoHAsync(unsafe.Pointer(&dst[0]), cu.DevicePtr(addr), uint64(len(dst)), st.handle)
		if err == nil {
			err = d.api.StreamSynchronize(st.handle)
		}
		runtime.KeepAlive(dst)
		return err
	})
}

// CopyFrom queues a copy of size bytes on s, a stream of this device. src belongs to this GPU or to
// another GPU of the same driver. Ranges of one buffer may overlap. If a buffer belongs to another
// GPU, the caller must order all later uses of that buffer by events.
func (d *Device) CopyFrom(s device.Stream, dst device.Buffer, dstOff int, src device.Buffer, srcOff, size int) error {
	const op = "copy"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	to, err := d.bytes(op, "dst", dst, dstOff, size)
	if err != nil {
		return err
	}
	from := d
	if b, ok := src.(*buffer); ok && b != nil {
		from = b.dev
		if d.rehearses != nil && from.p == d.rehearses.p { // a rehearsal's memory holds no values
			_, err := from.bytes(op, "src", src, srcOff, size)
			return err
		}
		if from.p != d.p {
			return d.refusal(op, "src", fmt.Sprintf("a buffer of %s of another driver", from.name))
		}
		if l := st.rec.Load(); l != nil && l.r.on(from) == nil {
			if err := st.refuse(op, "the source is on "+from.name+", which takes no part"); err != nil {
				return err
			}
		}
	}
	at, err := from.bytes(op, "src", src, srcOff, size)
	if err != nil || size == 0 || to == at {
		return err
	}
	n := uint64(size)
	e := device.CopyEvent{Kind: device.DeviceToDevice, Op: op, Bytes: size}
	run := func() error { return d.copyRange(st, uint64(to), uint64(at), n) }
	if from != d {
		link, err := d.linked(from)
		if err != nil {
			return err
		}
		e.Kind, e.Peer, e.Staged = device.PeerToPeer, from, !link.goesDirect()
		run = func() error { return d.copyPeer(st, uint64(to), from, uint64(at), n, link) }
	}
	if t := device.Tracing(); t != nil {
		return d.tracedCopy(t, st, e, run)
	}
	return run()
}

// copyRange copies n bytes within this device.
func (d *Device) copyRange(st *stream, to, at, n uint64) error {
	if to < at+n && at < to+n {
		// The driver does not define copies between overlapping ranges, so the copy passes through
		// scratch memory.
		t := &scratch{d: d, s: st, op: "copy"}
		defer t.free()
		between, err := t.alloc(int(n))
		if err != nil {
			return err
		}
		if err := d.move(st, between, at, n); err != nil {
			return err
		}
		at = between
	}
	return d.move(st, to, at, n)
}

// move copies n bytes between ranges of this device that do not overlap.
func (d *Device) move(s *stream, to, from, n uint64) error {
	if l := s.rec.Load(); l != nil {
		return l.move(to, from, n)
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	d.count.within.Add(1)
	return d.fault("", d.api.MemcpyDtoDAsync(cu.DevicePtr(to), cu.DevicePtr(from), n, s.handle))
}
