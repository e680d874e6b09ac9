package pool

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// fakeDevice is a Backing whose streams work only when the test calls finish. The work of a stream
// is counted in units. An event is done when its number of units is finished.
type fakeDevice struct {
	mu       sync.Mutex
	total    uint64
	used     uint64
	next     uintptr
	segments map[uintptr]uint64
	// ranges of addresses that were freed, sorted; the device reuses them, so that an access after
	// a free is detected
	holes      []hole
	queued     map[StreamID]uint64
	finished   map[StreamID]uint64
	open       int // number of events that the pool still holds
	recordErr  error
	allocErr   error
	log        []string
	logging    bool
	segmentOps int
	// function that is called for memory that the pool gives back
	gone func(addr uintptr, size uint64)

	reserved map[uintptr]uint64 // reserved address ranges
	pages    map[uintptr]bool   // mapped pages of fakePage bytes each
}

type hole struct {
	addr uintptr
	size uint64
}

func newFake(total uint64) *fakeDevice {
	return &fakeDevice{total: total, next: 0x10000, segments: map[uintptr]uint64{}, reserved: map[uintptr]uint64{}, pages: map[uintptr]bool{}, queued: map[StreamID]uint64{}, finished: map[StreamID]uint64{}}
}

type fakeEvent struct {
	d        *fakeDevice
	stream   StreamID
	at       uint64
	released bool
}

func (e *fakeEvent) Release() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if e.released {
		panic("event released twice")
	}
	e.released = true
	e.d.open--
}

func (d *fakeDevice) note(format string, args ...any) {
	if d.logging {
		d.log = append(d.log, fmt.Sprintf(format, args...))
	}
}

func (d *fakeDevice) Alloc(size uint64) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("alloc %d", size)
	if d.allocErr != nil {
		return 0, d.allocErr
	}
	if d.total > 0 && d.used+size > d.total {
		return 0, fmt.Errorf("fake: %w", ErrNoMemory)
	}
	d.segmentOps++
	d.used += size
	for i := range d.holes {
		if h := &d.holes[i]; h.size >= size {
			a := h.addr
			h.addr += uintptr(size)
			h.size -= size
			if h.size == 0 {
				d.holes = slices.Delete(d.holes, i, i+1)
			}
			d.segments[a] = size
			return a, nil
		}
	}
	a := d.next
	d.next += uintptr(size)
	d.segments[a] = size
	return a, nil
}

func (d *fakeDevice) Free(addr uintptr, size uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("free %d", size)
	if d.gone != nil {
		d.gone(addr, size)
	}
	if d.segments[addr] != size {
		panic(fmt.Sprintf("free of %#x+%d, which is not a segment", addr, size))
	}
	delete(d.segments, addr)
	d.segmentOps++
	d.used -= size
	i, _ := slices.BinarySearchFunc(d.holes, addr, func(h hole, a uintptr) int { return cmp.Compare(h.addr, a) })
	d.holes = slices.Insert(d.holes, i, hole{addr, size})
	for i = max(i-1, 0); i+1 < len(d.holes); { // merge range i with adjacent ranges
		if h, n := &d.holes[i], d.holes[i+1]; h.addr+uintptr(h.size) == n.addr {
			h.size += n.size
			d.holes = slices.Delete(d.holes, i+1, i+2)
		} else if i++; n.addr > addr {
			break
		}
	}
}

func (d *fakeDevice) Capacity() (free, total uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total - d.used, d.total
}

func (d *fakeDevice) Record(s StreamID) (Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recordErr != nil {
		return nil, d.recordErr
	}
	d.note("record %d", s)
	d.open++
	return &fakeEvent{d: d, stream: s, at: d.queued[s]}, nil
}

func (d *fakeDevice) Done(e Event) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := e.(*fakeEvent)
	if f.released {
		panic("released event asked")
	}
	return d.finished[f.stream] >= f.at
}

func (d *fakeDevice) Wait(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := e.(*fakeEvent)
	if f.released {
		panic("released event waited for")
	}
	d.note("wait %d", f.stream)
	d.finished[f.stream] = max(d.finished[f.stream], f.at)
}

func (d *fakeDevice) work(s StreamID) {
	d.mu.Lock()
	d.queued[s]++
	d.mu.Unlock()
}

// finish completes n more units of work on the stream.
func (d *fakeDevice) finish(s StreamID, n uint64) {
	d.mu.Lock()
	d.finished[s] = min(d.queued[s], d.finished[s]+n)
	d.mu.Unlock()
}

// tiny returns options with small sizes. Small allocations then reach all code of the pool.
func tiny() Options {
	return Options{Name: "fake:0", Round: 8, SmallMax: 128, SmallSegment: 256, MediumMax: 640, MediumSegment: 1280, LargeRound: 256, SplitMin: 96}
}
