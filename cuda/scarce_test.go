package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// The request that a test names fails, through all that the pool tries, and the next one succeeds; requests that the cache serves are
// not counted.
func TestFailAlloc(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB,segment=64KiB")
	alloc := func(n int) (device.Buffer, error) { return d.Alloc(n, nil, device.Origin{Op: "test"}) }
	must(t, d.FailAlloc(2))
	a, err := alloc(1000)
	must(t, err)
	b, err := alloc(1000) // from the segment of the first
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
	var v *ViewError
	if err := d.FailAlloc(-1); !errors.As(err, &v) {
		t.Errorf("FailAlloc(-1) gives %v", err)
	}
}

// segment= sets what the pool takes from the driver at a time.
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
