package cuda

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// TestMemorySummaryGolden compares the table with one that PyTorch printed. It may differ only in
// the name of the library.
func TestMemorySummaryGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/memory_summary.json")
	must(t, err)
	var g struct {
		Cases []struct {
			Device            int
			Stats             map[string]int64
			Full, Abbreviated string
		}
	}
	must(t, json.Unmarshal(text, &g))
	if len(g.Cases) < 9 {
		t.Fatalf("%d cases", len(g.Cases))
	}
	ours := func(s string) string {
		return strings.Replace(s, " PyTorch CUDA memory summary, ", "Flambeau CUDA memory summary, ", 1)
	}
	for i, c := range g.Cases {
		for abbreviated, want := range map[bool]string{false: c.Full, true: c.Abbreviated} {
			if got := memorySummary(c.Stats, c.Device, abbreviated); got != ours(want) {
				t.Errorf("case %d, abbreviated %v:\n%s\nwant\n%s", i, abbreviated, got, ours(want))
			}
		}
	}
}

// torchKeys returns the keys that torch.cuda.memory_stats documents.
func torchKeys() []string {
	keys := []string{"num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size"}
	list := []string{"oversize_allocations", "oversize_segments"}
	for _, q := range strings.Fields("allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes inactive_split_bytes requested_bytes") {
		list = append(list, q+".all", q+".large_pool", q+".small_pool")
	}
	for _, q := range list {
		keys = append(keys, q+".current", q+".peak", q+".allocated", q+".freed")
	}
	return keys
}

func TestMemoryStats(t *testing.T) {
	d := emulated(t, "emulate,mem=64MiB")
	m := MemoryStats(d)
	for _, k := range torchKeys() {
		if _, ok := m[k]; !ok {
			t.Errorf("there is no %s", k)
		}
		delete(m, k)
	}
	for k := range m {
		t.Errorf("%s is not one of torch's keys", k)
	}
	alloc := func(n int) device.Buffer {
		b, err := d.Alloc(n, nil, device.Origin{})
		must(t, err)
		return b
	}
	small, large := alloc(1000), alloc(8<<20)
	large.Free()
	m = MemoryStats(d)
	for k, want := range map[string]int64{
		"allocated_bytes.all.current": 1024, "allocated_bytes.all.peak": 1024 + 8<<20, "allocated_bytes.large_pool.current": 0, "allocated_bytes.large_pool.freed": 8 << 20,
		"requested_bytes.small_pool.current": 1000, "allocation.all.allocated": 2, "allocation.large_pool.current": 0, "segment.all.current": 2,
		"num_device_alloc": 2, "num_device_free": 0, "reserved_bytes.large_pool.current": 8 << 20,
	} {
		if m[k] != want {
			t.Errorf("%s is %d, want %d", k, m[k], want)
		}
	}
	if a, b, c, e := MemoryAllocated(d), MaxMemoryAllocated(d), MemoryReserved(d), MaxMemoryReserved(d); a != 1024 || b != 1024+8<<20 || c <= 8<<20 || e != c {
		t.Errorf("allocated %d of at most %d, reserved %d of at most %d", a, b, c, e)
	}
	ResetPeakMemoryStats(d)
	if MaxMemoryAllocated(d) != 1024 {
		t.Errorf("the peak after the reset is %d", MaxMemoryAllocated(d))
	}
	if n := EmptyCache(d); n != 8<<20 || MemoryReserved(d) >= 8<<20 || MemoryStats(d)["num_device_free"] != 1 {
		t.Errorf("%d bytes came back of 8 MiB", n)
	}
	ResetAccumulatedMemoryStats(d)
	if m = MemoryStats(d); m["allocated_bytes.all.allocated"] != 0 || m["num_device_alloc"] != 0 || m["allocated_bytes.all.current"] != 1024 {
		t.Errorf("after the reset %v", m)
	}
	small.Free()
	for _, f := range []func(){func() { MemoryStats(nil) }, func() { MemorySummary(nil, true) }, func() { EmptyCache(nil) }, func() { HostMemoryStats(nil) }} {
		func() {
			defer func() {
				var v *device.OperandError
				if err, _ := recover().(error); !errors.As(err, &v) {
					t.Errorf("%v, want a *device.OperandError", err)
				}
			}()
			f()
		}()
	}
}

// TestMemoryFraction makes an allocation exceed the memory fraction. The error must give the limit
// as the reason, not the GPU's size.
func TestMemoryFraction(t *testing.T) {
	d := emulated(t, "emulate,mem=64MiB")
	if f := MemoryFraction(d); f != 1 {
		t.Errorf("%v at first", f)
	}
	var v *device.OperandError
	if err := SetMemoryFraction(nil, 0.5); !errors.As(err, &v) || SetMemoryFraction(d, 1.5) == nil {
		t.Errorf("%v", err)
	}
	must(t, SetMemoryFraction(d, 0.25))
	if f := MemoryFraction(d); f != 0.25 {
		t.Errorf("%v, want 0.25", f)
	}
	b, err := d.Alloc(15<<20, nil, device.Origin{})
	must(t, err)
	_, err = d.Alloc(2<<20, nil, device.Origin{})
	if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "limit 16.00 MiB") || !strings.Contains(err.Error(), "the pool's limit of 16.00 MiB") {
		t.Errorf("%v", err)
	}
	if m := MemoryStats(d); m["num_ooms"] != 1 || m["num_alloc_retries"] != 1 {
		t.Errorf("%d failures, %d retries", m["num_ooms"], m["num_alloc_retries"])
	}
	must(t, d.SetMemoryFraction(0))
	c, err := d.Alloc(2<<20, nil, device.Origin{})
	must(t, err)
	b.Free()
	c.Free()
}

func TestHostMemoryStats(t *testing.T) {
	d := emulated(t, "emulate,mem=64MiB")
	expect := func(want map[string]int64) {
		t.Helper()
		m := HostMemoryStats(d)
		for k, v := range want {
			if got, ok := m[k]; !ok || got != v {
				t.Errorf("%s is %d, want %d", k, got, v)
			}
		}
	}
	expect(map[string]int64{"allocations.current": 0, "active_requests.peak": 0, "num_host_alloc": 0, "host_alloc_time.count": 0, "host_free_time.avg": 0})
	a, err := d.AllocPinned(5000, device.Origin{})
	must(t, err)
	expect(map[string]int64{"allocations.current": 1, "allocated_bytes.current": 8192, "active_requests.current": 1, "active_bytes.current": 8192, "num_host_alloc": 1, "host_alloc_time.count": 1})
	x := empty(t, d, nil, 1250)
	must(t, d.UploadPinned(nil, x.Buf, 0, a, 0, 5000))
	a.Free() // a copy from a is still pending
	must(t, d.Synchronize())
	expect(map[string]int64{"allocations.current": 1, "active_requests.current": 0, "active_bytes.freed": 8192, "active_requests.peak": 1})
	// this allocation must reuse the block that was given back
	b, err := d.AllocPinned(6000, device.Origin{})
	must(t, err)
	expect(map[string]int64{"active_requests.allocated": 2, "num_host_alloc": 1})
	b.Free()
	ResetPeakHostMemoryStats(d)
	ResetAccumulatedHostMemoryStats(d)
	expect(map[string]int64{"active_requests.allocated": 0, "active_bytes.peak": 0, "allocated_bytes.peak": 8192, "num_host_alloc": 0, "host_alloc_time.total": 0})
	if n := d.EmptyPinned(); n != 8192 {
		t.Errorf("%d bytes came back", n)
	}
	expect(map[string]int64{"allocations.current": 0, "allocated_bytes.freed": 8192, "num_host_free": 1, "host_free_time.count": 1})
}

// TestMemoryOfTheCPU checks that the functions for memory statistics also work for the CPU.
func TestMemoryOfTheCPU(t *testing.T) {
	host, err := device.Open("cpu")
	must(t, err)
	x, err := host.Alloc(8<<20, nil, device.Origin{})
	must(t, err)
	if n := MemoryAllocated(host); n < 8<<20 || n != host.Stats().Allocated {
		t.Errorf("%d bytes are allocated, the device says %d", n, host.Stats().Allocated)
	}
	x.Free()
	ResetPeakMemoryStats(host)
	if a, b, c, e := MemoryAllocated(host), MaxMemoryAllocated(host), MemoryReserved(host), MaxMemoryReserved(host); a != b || c < a || e < c {
		t.Errorf("allocated %d, peak %d, reserved %d, peak %d", a, b, c, e)
	}
	EmptyCache(host)
	for _, dev := range []device.Device{nil, (*Device)(nil)} {
		func() {
			defer func() {
				var e *device.OperandError
				if err, ok := recover().(error); !ok || !errors.As(err, &e) {
					t.Errorf("%v", err)
				}
			}()
			MemoryAllocated(dev)
		}()
	}
}
