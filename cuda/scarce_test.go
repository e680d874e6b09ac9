package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// TestFailAlloc checks that FailAlloc makes the n-th request fail. The pool's further attempts
// for the same allocation must fail too, and the next request must succeed. Allocations from
// cached memory do not count as requests.
func TestFailAlloc(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB,segment=64KiB")
	alloc := func(n int) (device.Buffer, error) { return d.Alloc(n, nil, device.Origin{Op: "test"}) }
	must(t, d.FailAlloc(2))
	a, err := alloc(1000)
	must(t, err)
	b, err := alloc(1000) // allocated from the segment of the first block
	must(t, err)
	ooms, retries := d.Stats().OOMs, d.Stats().Retries
	if _, err := alloc(1 << 20); !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "a test has asked for that") {
		t.Fatalf("the second request gives %v", err)
	}
	if s := d.Stats(); s.OOMs != ooms+1 || s.Retries != retries+1 {
		t.Errorf("%d failures after %d climbs of the ladder, want one of each", s.OOMs-ooms, s.Retries-retries)
	}
	c, err := alloc(1 << 20)
	must(t, err)
	for _, x := range []device.Buffer{a, b, c} {
		x.Free()
	}
	d.Empty()
	must(t, d.FailAlloc(1))
	must(t, d.FailAlloc(0))
	if a, err = alloc(1000); err != nil {
		t.Errorf("a refusal that was taken back: %v", err)
	}
	a.Free()
	if s := d.Stats(); s.Allocated != 0 {
		t.Errorf("%d bytes are left", s.Allocated)
	}
	var v *device.OperandError
	if err := d.FailAlloc(-1); !errors.As(err, &v) {
		t.Errorf("FailAlloc(-1) gives %v", err)
	}
}

// TestFailAllocOfPages checks that FailAlloc also makes requests for pages fail, even in the middle
// of an allocation. The allocation must then give back the pages that it already had.
func TestFailAllocOfPages(t *testing.T) {
	for _, spec := range []string{"emulate,mem=16MiB,expandable=on", "emulate,mem=16MiB,expandable=on,mode=meta"} {
		d := emulated(t, spec)
		alloc := func(n int) (device.Buffer, error) { return d.Alloc(n, nil, device.Origin{Op: "test"}) }
		must(t, d.FailAlloc(3))
		if _, err := alloc(8 << 20); !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "a test has asked for that") {
			t.Fatalf("%s: the third page gives %v", spec, err)
		}
		if free, total := (backing{d}).Capacity(); free != total || d.Stats().Reserved != 0 {
			t.Errorf("%s: %d of %d bytes are free, %d reserved, after a refusal", spec, free, total, d.Stats().Reserved)
		}
		b, err := alloc(8 << 20)
		must(t, err)
		b.Free()
	}
}

// TestSegmentOption checks that the option segment= sets how many bytes the pool takes from the
// driver at a time.
func TestSegmentOption(t *testing.T) {
	for spec, want := range map[string]int{"emulate,mem=16MiB,segment=8KiB": 8 << 10, "emulate,mem=4GiB,mode=meta,segment=1MiB": 1 << 20, "emulate,mem=6MiB": 128 << 10} {
		d := emulated(t, spec)
		b, err := d.Alloc(100, nil, device.Origin{Op: "test"})
		must(t, err)
		if s := d.Stats(); s.Reserved != want {
			t.Errorf("%s: a block of 100 bytes takes %d of the driver, want %d", spec, s.Reserved, want)
		}
		b.Free()
		b, err = d.Alloc(3*want/2, nil, device.Origin{Op: "test"})
		must(t, err)
		if s := d.Stats(); s.Reserved != 3*want {
			t.Errorf("%s: then one of one and a half segments makes it %d, want %d", spec, s.Reserved, 3*want)
		}
		b.Free()
	}
}

// fullDriver is a driver that refuses to load code while more than limit bytes are allocated.
type fullDriver struct {
	cu.API
	limit, held uint64
	sizes       map[cu.DevicePtr]uint64
	refused     int
}

func (c *fullDriver) MemAlloc(n uint64) (cu.DevicePtr, error) {
	p, err := c.API.MemAlloc(n)
	if err == nil {
		c.sizes[p] = n
		c.held += n
	}
	return p, err
}

func (c *fullDriver) MemFree(p cu.DevicePtr) error {
	c.held -= c.sizes[p]
	return c.API.MemFree(p)
}

func (c *fullDriver) ModuleLoadData(image []byte, o cu.JITOptions) (cu.Module, error) {
	if c.held > c.limit {
		c.refused++
		return 0, &cu.Error{Call: "cuModuleLoadDataEx", Result: cu.ErrOutOfMemory}
	}
	return c.API.ModuleLoadData(image, o)
}

// TestCodeNeedsMemory loads a kernel when there is no memory for its code. If the pool has cached
// memory, it must give that memory back and load the kernel. If all memory is in use, the error
// must be device.ErrOutOfMemory, and a later load must succeed.
func TestCodeNeedsMemory(t *testing.T) {
	api, err := newEmulator("emulate,mem=16MiB,segment=64KiB")
	must(t, err)
	c := &fullDriver{API: api, limit: 1 << 20, sizes: map[cu.DevicePtr]uint64{}}
	p, err := newPlatform(c)
	must(t, err)
	p.cubins = nil // with the cache on disk, the device would load the code twice
	d, err := p.open(0)
	must(t, err)
	x := floats(t, d, nil, 1, 2)
	big, err := d.Alloc(2<<20, nil, device.Origin{Op: "test"})
	must(t, err)
	if err := d.Prepare(&device.MultiMap{Program: plus}); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("without memory: %v", err)
	}
	big.Free()
	must(t, d.Prepare(&device.MultiMap{Program: plus}))
	must(t, apply(d, nil, double, views(x), views(x)))
	check(t, d, nil, x, 2, 4)
	if c.refused != 2 {
		t.Errorf("%d refusals, want one while memory was in use, and one that emptying the pool helped against", c.refused)
	}
	if err := d.FailAlloc(1); err == nil || !strings.Contains(err.Error(), "only an emulated GPU") {
		t.Errorf("a driver that is not the emulated one: %v", err)
	}
}
