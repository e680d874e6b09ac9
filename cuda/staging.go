package cuda

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// Sizes of the page-locked memory through which a device uploads ordinary memory. An upload of more
// than stagedSmall bytes fills chunks of its own, one after the other. Smaller uploads share a
// chunk.
const (
	stagedChunk  = 1 << 20
	stagedChunks = 4
	stagedSmall  = stagedChunk / 4
)

// staging is a device's ring of page-locked memory for uploads. CUDA may read ordinary memory after
// the call of a copy has returned ("API synchronization behavior" in NVIDIA's reference of the
// driver API). But the program may change its memory as soon as an upload has returned. So an
// upload is first copied to the ring, and the driver reads it from there.
//
// A small upload costs a copy within the host and one driver call. An event is recorded only when a
// chunk is full. Chunks are allocated when they are needed.
type staging struct {
	mu     sync.Mutex // guards the other fields, and the copying into the open chunk
	freed  sync.Cond  // signals that a chunk was added to the ring, or that chunks were freed
	sealed []*chunk   // full chunks whose copies may still run, the oldest first
	open   *chunk     // chunk that small uploads are filling; nil if there is none
	made   int        // number of allocated chunks, including those that goroutines are filling
}

type chunk struct {
	mem  []byte
	used int // number of bytes that uploads have used
	// on lists the streams that copy from the chunk and have no event after these copies yet.
	on    []cu.Stream
	marks []cu.Event // events after the copies from the chunk
}

// stage queues a copy of b to the device's address dst, and returns when b has been read. The
// device's context is current.
func (d *Device) stage(s *stream, dst uint64, b []byte) error {
	if d.p.meta { // the device has no memory, so the copy reads nothing
		return d.sendPageable(s, dst, b)
	}
	if len(b) <= stagedSmall {
		return d.stageSmall(s, dst, b)
	}
	for len(b) > 0 {
		n := min(len(b), stagedChunk)
		c, err := d.takeChunk()
		if err != nil {
			return err
		}
		if c == nil {
			return d.sendPageable(s, dst, b)
		}
		err = d.fillChunk(c, s, dst, b[:n])
		d.sealChunk(c)
		if err != nil {
			return err
		}
		dst, b = dst+uint64(n), b[n:]
	}
	return nil
}

// stageSmall is stage for an upload that shares a chunk with others.
func (d *Device) stageSmall(s *stream, to uint64, b []byte) error {
	r := &d.staging
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.open == nil || r.open.used+len(b) > stagedChunk {
		if full := r.open; full != nil {
			r.open = nil
			d.mark(full)
			r.sealed = append(r.sealed, full)
			r.freed.Broadcast()
		}
		c, err := d.nextChunk()
		if err != nil {
			return err
		}
		if c == nil {
			return d.sendPageable(s, to, b)
		}
		if r.open == nil {
			r.open = c
		} else { // another goroutine has opened a chunk in the meantime
			r.sealed = slices.Insert(r.sealed, 0, c)
			r.freed.Broadcast()
		}
	}
	return d.fillChunk(r.open, s, to, b)
}

// fillChunk copies b to the free part of a chunk, and from there to the device.
func (d *Device) fillChunk(c *chunk, s *stream, dst uint64, b []byte) error {
	at := c.mem[c.used : c.used+len(b)]
	copy(at, b)
	if err := d.api.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&at[0]), uint64(len(b)), s.handle); err != nil {
		return d.fault("", err)
	}
	c.used += aligned(len(b))
	if !slices.Contains(c.on, s.handle) {
		c.on = append(c.on, s.handle)
	}
	return nil
}

// sendPageable copies directly from ordinary memory and waits for the copy. It is used when there
// is no page-locked memory.
func (d *Device) sendPageable(s *stream, to uint64, b []byte) error {
	err := d.api.MemcpyHtoDAsync(cu.DevicePtr(to), unsafe.Pointer(&b[0]), uint64(len(b)), s.handle)
	if err == nil && !d.p.meta {
		err = d.api.StreamSynchronize(s.handle)
	}
	runtime.KeepAlive(b)
	return d.fault("", err)
}

// takeChunk is nextChunk for callers that do not hold the ring's mu.
func (d *Device) takeChunk() (*chunk, error) {
	d.staging.mu.Lock()
	defer d.staging.mu.Unlock()
	return d.nextChunk()
}

// sealChunk puts a full chunk into the ring. The chunk is reused when its copies have run.
func (d *Device) sealChunk(c *chunk) {
	r := &d.staging
	d.mark(c)
	r.mu.Lock()
	r.sealed = append(r.sealed, c)
	r.mu.Unlock()
	r.freed.Broadcast()
}

// mark records an event on each stream that copies from the chunk. If that fails for a stream, the
// next user of the chunk waits for the whole stream.
func (d *Device) mark(c *chunk) {
	left := c.on[:0]
	for _, s := range c.on {
		if e, err := d.record(s); err == nil {
			c.marks = append(c.marks, e)
		} else {
			left = append(left, s)
		}
	}
	c.on = left
}

// nextChunk returns a chunk from which no copy reads any more. It returns the oldest chunk if the
// copies from that chunk have run. Otherwise it allocates a chunk, or waits for the oldest one if
// it cannot allocate any. It returns nil if there is no page-locked memory. The caller holds the
// ring's mu, which nextChunk releases while it waits.
func (d *Device) nextChunk() (*chunk, error) {
	r := &d.staging
	for {
		if len(r.sealed) > 0 && d.settled(r.sealed[0]) {
			return r.oldest(), nil
		}
		if r.made < stagedChunks {
			c, err := d.newChunk()
			if c != nil || err != nil {
				return c, err
			}
			if len(r.sealed) == 0 {
				return nil, nil
			}
		}
		if len(r.sealed) > 0 {
			c := r.oldest()
			r.mu.Unlock()
			err := d.waitFor(c)
			r.mu.Lock()
			if err != nil {
				r.sealed = slices.Insert(r.sealed, 0, c)
				r.freed.Broadcast()
				return nil, err
			}
			return c, nil
		}
		r.freed.Wait() // other goroutines are filling all chunks
	}
}

// oldest removes and returns the chunk that was put into the ring first. The caller holds the
// ring's mu.
func (r *staging) oldest() *chunk {
	c := r.sealed[0]
	r.sealed = slices.Delete(r.sealed, 0, 1)
	return c
}

// settled reports whether the copies from a chunk have run. If so, it empties the chunk.
func (d *Device) settled(c *chunk) bool {
	for _, e := range c.marks {
		if ok, err := d.api.EventQuery(e); err != nil || !ok {
			return false
		}
	}
	for _, s := range c.on {
		if ok, err := d.api.StreamQuery(s); err != nil || !ok {
			return false
		}
	}
	d.emptied(c)
	return true
}

// waitFor waits for the copies from a chunk and empties the chunk.
func (d *Device) waitFor(c *chunk) error {
	for _, e := range c.marks {
		if err := d.api.EventSynchronize(e); err != nil {
			return d.fault("", err)
		}
	}
	for _, s := range c.on {
		if err := d.api.StreamSynchronize(s); err != nil {
			return d.fault("", err)
		}
	}
	d.emptied(c)
	return nil
}

func (d *Device) emptied(c *chunk) {
	for _, e := range c.marks {
		d.recycle(e)
	}
	c.used, c.on, c.marks = 0, c.on[:0], c.marks[:0]
}

// newChunk allocates a chunk. It returns nil if there is no page-locked memory. The caller holds
// the ring's mu.
func (d *Device) newChunk() (*chunk, error) {
	p := &d.p.pinned
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	at, err := d.reserve(stagedChunk)
	if errors.Is(err, device.ErrOutOfMemory) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.host.staging.add(stagedChunk)
	d.staging.made++
	return &chunk{mem: unsafe.Slice((*byte)(at), stagedChunk)}, nil
}

// emptyStaging frees the chunks that no copy is reading, and returns the number of freed bytes.
func (d *Device) emptyStaging() int {
	if d.enter() != nil {
		return 0
	}
	defer d.leave()
	r, p := &d.staging, &d.p.pinned
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes := 0
	gone := func(c *chunk) bool {
		if c == nil || !d.settled(c) {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if !d.giveBack(unsafe.Pointer(&c.mem[0]), stagedChunk) {
			return false
		}
		p.host.staging.sub(stagedChunk)
		r.made--
		bytes += stagedChunk
		return true
	}
	if gone(r.open) {
		r.open = nil
	}
	r.sealed = slices.DeleteFunc(r.sealed, gone)
	r.freed.Broadcast() // a waiting goroutine may allocate a new chunk
	return bytes
}

// emptyStaging frees the unused chunks of all devices, and returns the number of freed bytes.
func (p *platform) emptyStaging() (bytes int) {
	p.mu.Lock()
	var list []*Device
	for _, d := range p.devices {
		list = append(list, d)
	}
	p.mu.Unlock()
	for _, d := range list {
		bytes += d.emptyStaging()
	}
	return bytes
}
