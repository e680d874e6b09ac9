package cuda

import (
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// quantity holds the current value, peak and totals of one statistic, like pool.Stat.
type quantity struct{ current, peak, allocated, freed int64 }

func (q *quantity) add(n int) {
	q.current += int64(n)
	q.allocated += int64(n)
	q.peak = max(q.peak, q.current)
}

func (q *quantity) sub(n int) {
	q.current -= int64(n)
	q.freed += int64(n)
}

// duration holds the number of calls of a driver function and their times.
type duration struct {
	count            int64
	total, most, low time.Duration
}

func (d *duration) since(t time.Time) {
	took := time.Since(t)
	if d.count == 0 || took < d.low {
		d.low = took
	}
	d.count++
	d.total += took
	d.most = max(d.most, took)
}

// hostStats holds the statistics of page-locked memory under torch's names. The pool's mu guards
// it.
type hostStats struct {
	blocks, bytes quantity // number and bytes of the blocks taken from the driver
	// number and bytes of the blocks that are in use, or freed with pending copies
	requests, active quantity
	staging          quantity // bytes of the library's own memory for uploads of ordinary memory
	alloc, free      duration
}

// HostMemoryStats returns the statistics of the page-locked host memory under torch's keys. All
// GPUs of a driver share this memory.
//
//	allocations, allocated_bytes     .{current,peak,allocated,freed}: blocks of the driver, in use
//	                                 or kept for reuse
//	active_requests, active_bytes    .{current,peak,allocated,freed}: blocks in use, and returned
//	                                 blocks that a copy is still reading or writing
//	staging_bytes                    .{current,peak,allocated,freed}: the library's own part of
//	                                 allocated_bytes, for uploads of pageable memory (not torch's)
//	num_host_alloc, num_host_free    calls of the driver
//	host_alloc_time, host_free_time  .{total,max,min,count,avg}: the time of these calls in
//	                                 microseconds, by the host's clock even if emulated
//
// Sizes are the sizes of blocks, which are up to an eighth larger than the requests (in torch up to
// twice). HostMemoryStats panics with a *[device.OperandError] if dev is not a GPU.
// [Device.EmptyPinned] gives the idle blocks back (torch._C._host_emptyCache).
func HostMemoryStats(dev device.Device) map[string]int64 {
	p := &mustGPU("host memory stats", dev).p.pinned
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	h := &p.host
	m := map[string]int64{"num_host_alloc": h.blocks.allocated, "num_host_free": h.blocks.freed}
	for name, q := range map[string]quantity{"allocations": h.blocks, "allocated_bytes": h.bytes, "active_requests": h.requests, "active_bytes": h.active,
		"staging_bytes": h.staging} {
		m[name+".current"], m[name+".peak"], m[name+".allocated"], m[name+".freed"] = q.current, q.peak, q.allocated, q.freed
	}
	for name, d := range map[string]duration{"host_alloc_time": h.alloc, "host_free_time": h.free} {
		m[name+".total"], m[name+".max"], m[name+".min"], m[name+".count"] = d.total.Microseconds(), d.most.Microseconds(), d.low.Microseconds(), d.count
		m[name+".avg"] = d.total.Microseconds() / max(d.count, 1)
	}
	return m
}

// ResetPeakHostMemoryStats sets the peaks of [HostMemoryStats] to the current values. It panics
// with a *[device.OperandError] if dev is not a GPU.
func ResetPeakHostMemoryStats(dev device.Device) {
	p := &mustGPU("reset peak host memory stats", dev).p.pinned
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	for _, q := range p.host.quantities() {
		q.peak = q.current
	}
	p.stats.AllocatedPeak, p.stats.ReservedPeak = p.stats.Allocated, p.stats.Reserved
}

// ResetAccumulatedHostMemoryStats sets the totals of allocated and freed memory, and the times, to
// zero. It panics with a *[device.OperandError] if dev is not a GPU.
func ResetAccumulatedHostMemoryStats(dev device.Device) {
	p := &mustGPU("reset accumulated host memory stats", dev).p.pinned
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	for _, q := range p.host.quantities() {
		q.allocated, q.freed = 0, 0
	}
	p.host.alloc, p.host.free = duration{}, duration{}
}

func (h *hostStats) quantities() []*quantity {
	return []*quantity{&h.blocks, &h.bytes, &h.requests, &h.active, &h.staging}
}
