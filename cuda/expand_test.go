package cuda

import (
	"bytes"
	"errors"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// TestExpandable checks that one segment grows over several pages. Blocks that cross a page
// boundary must keep their data. Free pages must be given back and mapped again.
func TestExpandable(t *testing.T) {
	onBoth(t, "emulate,mem=8MiB,expandable=on", func(t *testing.T, d *Device) {
		must(t, d.SetExpandableSegments(true))
		defer func() { must(t, d.SetExpandableSegments(false)) }()
		if !d.ExpandableSegments() {
			t.Fatal("expandable segments are off")
		}
		d.Empty()
		page := int(d.page)
		if d.info.Memory >= manyPages {
			page = largePage
		}
		const blocks = 4
		size := 3*page/4 + 1234 // with this size, most blocks cross a page boundary
		var list [blocks]device.Buffer
		fill := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, size) }
		for i := range list {
			b, err := d.Alloc(size, nil, device.Origin{Op: "test"})
			must(t, err)
			list[i] = b
			must(t, d.Upload(nil, b, 0, fill(i)))
		}
		expanding := func() (n int, bytes uint64) {
			for _, g := range d.MemorySnapshot().Segments {
				if g.Expandable {
					n++
					bytes += g.Size
				}
			}
			return n, bytes
		}
		if n, b := expanding(); n != 1 || b < blocks*uint64(size) || b >= blocks*uint64(size)+uint64(page)+2048 {
			t.Errorf("%d segments of %d bytes for %d blocks of %d", n, b, blocks, size)
		}
		got := make([]byte, size)
		for i, b := range list {
			if must(t, d.Download(nil, got, b, 0)); !bytes.Equal(got, fill(i)) {
				t.Errorf("block %d has changed", i)
			}
		}
		list[1].Free()
		list[2].Free()
		before := d.Stats().Reserved
		gone := d.Empty()
		if gone < page || gone%page != 0 || d.Stats().Reserved != before-gone {
			t.Errorf("Empty gave %d bytes back, pages have %d", gone, page)
		}
		if n, _ := expanding(); n != 2 {
			t.Errorf("%d segments around the hole", n)
		}
		for _, i := range []int{1, 2} {
			b, err := d.Alloc(size, nil, device.Origin{Op: "test"})
			must(t, err)
			list[i] = b
			must(t, d.Upload(nil, b, 0, fill(i)))
		}
		if n, _ := expanding(); n != 1 || d.Stats().Reserved != before {
			t.Errorf("%d segments of %d bytes after the hole is filled, %d before", n, d.Stats().Reserved, before)
		}
		for i, b := range list {
			if must(t, d.Download(nil, got, b, 0)); !bytes.Equal(got, fill(i)) {
				t.Errorf("block %d has changed", i)
			}
			b.Free()
		}
		d.Empty()
		if n, _ := expanding(); n != 0 {
			t.Errorf("%d segments are left", n)
		}
	})
}

// TestExpandableAtTheLimit makes one stream use free pages of another stream at the memory limit.
// An allocation above the limit must return device.ErrOutOfMemory.
func TestExpandableAtTheLimit(t *testing.T) {
	for _, spec := range []string{"emulate,mem=4MiB,expandable=on", "emulate,mem=4MiB,expandable=on,mode=meta"} {
		t.Run(spec, func(t *testing.T) { expandableAtTheLimit(t, emulated(t, spec)) })
	}
}

func expandableAtTheLimit(t *testing.T, d *Device) {
	s, err := d.NewStream(0)
	must(t, err)
	a, err := d.Alloc(3<<20, nil, device.Origin{Op: "a"})
	must(t, err)
	if _, err = d.Alloc(2<<20, s, device.Origin{Op: "b"}); !errors.Is(err, device.ErrOutOfMemory) || !errors.Is(err, cu.ErrOutOfMemory) {
		t.Fatalf("got %v", err)
	}
	a.Free()
	b, err := d.Alloc(3<<20, s, device.Origin{Op: "b"})
	must(t, err)
	b.Free()
	d.Empty()
	free, total := backing{d}.Capacity()
	if free != total {
		t.Errorf("%d of %d bytes are free", free, total)
	}
}

// noPages is a driver without virtual memory.
type noPages struct{ cu.API }

func TestNoVirtualMemory(t *testing.T) {
	t.Setenv("FLAMBEAU_CUDA_EXPANDABLE", "")
	api, err := newEmulator("emulate,mem=8MiB")
	must(t, err)
	p, err := newPlatform(noPages{api})
	must(t, err)
	d, err := p.open(0)
	must(t, err)
	if err := d.SetExpandableSegments(true); !errors.Is(err, errNoVirtualMemory) || d.ExpandableSegments() {
		t.Errorf("got %v", err)
	}
	must(t, d.SetExpandableSegments(false))
	t.Setenv("FLAMBEAU_CUDA_EXPANDABLE", "1")
	if p, err = newPlatform(noPages{api}); err == nil {
		_, err = p.open(0)
	}
	if !errors.Is(err, errNoVirtualMemory) {
		t.Errorf("got %v", err)
	}
	if d := emulated(t, "emulate,mem=8MiB"); !d.ExpandableSegments() {
		t.Error("FLAMBEAU_CUDA_EXPANDABLE has no effect")
	}
}
