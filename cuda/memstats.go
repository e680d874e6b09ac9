package cuda

import (
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// MemoryAllocated returns how many bytes of a device's memory this process uses for tensors and
// other buffers, with the pool's rounding. On the CPU it counts buffers of 8 KiB and more. Smaller
// buffers are ordinary Go memory, which the garbage collector frees and runtime.MemStats counts.
//
// MemoryAllocated, [MaxMemoryAllocated], [MemoryReserved], [MaxMemoryReserved],
// [ResetPeakMemoryStats] and [EmptyCache] accept any device. So a program that reports its memory
// also runs without a GPU. These functions call the device's methods Stats, ResetPeak and Empty.
// The functions about a GPU's memory that are not in this list panic with a
// *[device.OperandError] if dev is not a GPU.
func MemoryAllocated(dev device.Device) int { return pooled("memory allocated", dev).Stats().Allocated }

// pooled returns dev. It panics if dev is nil.
func pooled(op string, dev device.Device) device.Device {
	if d, ok := dev.(*Device); dev == nil || ok && d == nil {
		return mustGPU(op, dev)
	}
	return dev
}

// MaxMemoryAllocated returns the maximum of [MemoryAllocated] since the start or the last
// [ResetPeakMemoryStats].
func MaxMemoryAllocated(dev device.Device) int {
	return pooled("max memory allocated", dev).Stats().AllocatedPeak
}

// MemoryReserved returns how many bytes the pool has taken from the driver, whether buffers use
// them or not.
func MemoryReserved(dev device.Device) int {
	return pooled("memory reserved", dev).Stats().Reserved
}

// MaxMemoryReserved returns the maximum of [MemoryReserved] since the start or the last
// [ResetPeakMemoryStats].
func MaxMemoryReserved(dev device.Device) int {
	return pooled("max memory reserved", dev).Stats().ReservedPeak
}

// ResetPeakMemoryStats sets all peaks to the current values.
func ResetPeakMemoryStats(dev device.Device) { pooled("reset peak memory stats", dev).ResetPeak() }

// ResetAccumulatedMemoryStats sets these statistics to zero: the totals of allocated and freed
// memory, and the numbers of retries and failures. Current values and peaks do not change.
func ResetAccumulatedMemoryStats(dev device.Device) {
	mustGPU("reset accumulated memory stats", dev).pool.ResetAccumulated()
}

// EmptyCache gives the memory that the pool keeps for reuse back to the driver, and returns the
// number of bytes. Other processes can then allocate it. This process gains no memory, because its
// pool empties the cache by itself before an allocation fails.
func EmptyCache(dev device.Device) int { return pooled("empty cache", dev).Empty() }

// SetMemoryFraction limits the pool to a fraction of the GPU's memory, as
// [Device.SetMemoryFraction] does: torch.cuda.set_per_process_memory_fraction. Above the limit an
// allocation fails with [device.ErrOutOfMemory], and the error names the limit. An f of 0 removes
// the limit. The error is a *[device.OperandError] if f is not between 0 and 1, or dev is not a
// GPU.
func SetMemoryFraction(dev device.Device, f float64) error {
	d, err := gpu("set memory fraction", dev)
	if err != nil {
		return err
	}
	return d.SetMemoryFraction(f)
}

// MemoryFraction returns the fraction of the GPU's memory that the pool may take.
// [SetMemoryFraction] or [Device.SetMemoryLimit] sets it; without them it is 1.
func MemoryFraction(dev device.Device) float64 {
	d := mustGPU("memory fraction", dev)
	limit := d.pool.Stats().Limit
	if limit == 0 || d.info.Memory == 0 {
		return 1
	}
	return min(float64(limit)/float64(d.info.Memory), 1)
}

// MemoryStats returns the statistics of a GPU's pool under torch's keys. Most are of the form
//
//	quantity.{all,large_pool,small_pool}.{current,peak,allocated,freed}
//
// with these quantities: allocation (buffers), segment (blocks of memory from the driver), active
// (buffers, and freed buffers that other streams still read) and inactive_split (free parts of
// segments that are in use). Their bytes are allocated_bytes, reserved_bytes, active_bytes and
// inactive_split_bytes; requested_bytes are allocated_bytes before rounding. The small pool serves
// sizes up to 1 MiB, and smaller sizes on emulated GPUs with little memory. "allocated" is the
// total ever allocated, "freed" the total ever freed.
//
// The counts are num_alloc_retries (allocations that found no memory at first),
// num_ooms, num_device_alloc and num_device_free (segments taken from the driver and given back),
// num_sync_all_streams (waits for freed buffers that other streams read). Any block may be split.
// So max_split_size is -1, and oversize_allocations and oversize_segments are zero.
func MemoryStats(dev device.Device) map[string]int64 {
	return memoryStats(mustGPU("memory stats", dev).pool.Stats())
}

func memoryStats(s pool.Stats) map[string]int64 {
	m := map[string]int64{
		"num_alloc_retries": int64(s.Retries), "num_ooms": int64(s.OOMs), "num_sync_all_streams": int64(s.Syncs),
		"num_device_alloc": int64(s.Segments.Allocated), "num_device_free": int64(s.Segments.Freed), "max_split_size": -1,
	}
	put := func(name string, q pool.Stat) {
		m[name+".current"], m[name+".peak"] = int64(q.Current), int64(q.Peak)
		m[name+".allocated"], m[name+".freed"] = int64(q.Allocated), int64(q.Freed)
	}
	put("oversize_allocations", pool.Stat{})
	put("oversize_segments", pool.Stat{})
	for name, c := range map[string]pool.Class{
		"all": {AllocatedBytes: s.AllocatedBytes, RequestedBytes: s.RequestedBytes, ActiveBytes: s.ActiveBytes, InactiveSplitBytes: s.InactiveSplitBytes,
			ReservedBytes: s.ReservedBytes, Allocated: s.Allocated, Active: s.Active, InactiveSplit: s.InactiveSplit, Segments: s.Segments},
		"large_pool": s.Large,
		"small_pool": s.Small,
	} {
		put("allocation."+name, c.Allocated)
		put("segment."+name, c.Segments)
		put("active."+name, c.Active)
		put("inactive_split."+name, c.InactiveSplit)
		put("allocated_bytes."+name, c.AllocatedBytes)
		put("reserved_bytes."+name, c.ReservedBytes)
		put("active_bytes."+name, c.ActiveBytes)
		put("inactive_split_bytes."+name, c.InactiveSplitBytes)
		put("requested_bytes."+name, c.RequestedBytes)
	}
	return m
}

// MemorySummary returns [MemoryStats] as the table that torch.cuda.memory_summary prints. If
// abbreviated is true, it omits the rows of the large and the small pool.
func MemorySummary(dev device.Device, abbreviated bool) string {
	d := mustGPU("memory summary", dev)
	return memorySummary(memoryStats(d.pool.Stats()), d.Index(), abbreviated)
}

// summaryRows lists the rows of the table: the key in MemoryStats, the title, and whether the
// values are bytes.
var summaryRows = []struct {
	key, title string
	bytes      bool
}{
	{"allocated_bytes", "Allocated memory", true},
	{"active_bytes", "Active memory", true},
	{"requested_bytes", "Requested memory", true},
	{"reserved_bytes", "GPU reserved memory", true},
	{"inactive_split_bytes", "Non-releasable memory", true},
	{"allocation", "Allocations", false},
	{"active", "Active allocs", false},
	{"segment", "GPU reserved segments", false},
	{"inactive_split", "Non-releasable allocs", false},
}

// memorySummary formats the table as torch's memory_summary does (torch/cuda/memory.py), with the
// same columns and units.
func memorySummary(m map[string]int64, index int, abbreviated bool) string {
	const width = 75
	var b strings.Builder
	line := func(s string) { fmt.Fprintf(&b, "|%-*s|\n", width, s) }
	rule := func(c string) { line(strings.Repeat(c, width)) }
	row := func(title, name, unit string, bytes bool) {
		s := fmt.Sprintf(" %-21s ", title)
		for _, k := range []string{".current", ".peak", ".allocated", ".freed"} {
			s += "| " + scaled(m[name+k], m[unit+k], bytes) + " "
		}
		line(s)
	}
	rule("=")
	line(fmt.Sprintf("%17sFlambeau CUDA memory summary, device ID %-17d ", "", index))
	rule("-")
	line(fmt.Sprintf("%12sCUDA OOMs: %-12d | %6s cudaMalloc retries: %-8d  ", "", m["num_ooms"], "", m["num_alloc_retries"]))
	rule("=")
	line("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ")
	for _, r := range summaryRows {
		rule("-")
		all := r.key + ".all"
		row(r.title, all, all, r.bytes)
		if !abbreviated {
			row("      from large pool", r.key+".large_pool", all, r.bytes)
			row("      from small pool", r.key+".small_pool", all, r.bytes)
		}
	}
	for _, r := range []struct{ key, title string }{{"oversize_allocations", "Oversize allocations"}, {"oversize_segments", "Oversize GPU segments"}} {
		rule("-")
		row(r.title, r.key, r.key, false)
	}
	rule("=")
	return b.String()
}

// scaled prints v in ten columns, in a unit that suits the argument like. A quantity has a row for
// all pools together, and rows for single pools. In all of them, like is the value of all pools
// together, so that these rows have the same unit.
func scaled(v, like int64, bytes bool) string {
	units, step, from := []string{" ", "K", "M"}, int64(1000), 750e3
	if bytes {
		units, step, from = []string{"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"}, 1024, 768*1024
	}
	unit, f := 0, float64(like)
	for unit < len(units)-1 && f >= from {
		unit++
		v /= step
		f /= float64(step)
	}
	if bytes {
		return fmt.Sprintf("%6d %s", v, units[unit])
	}
	return fmt.Sprintf("%7d %s ", v, units[unit])
}
