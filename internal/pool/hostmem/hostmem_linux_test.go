package hostmem

import (
	"bufio"
	"strings"
	"testing"
)

func TestCapacity(t *testing.T) {
	free, total := capacity()
	if total < 64<<20 || free == 0 || free > total {
		t.Errorf("free %d of %d", free, total)
	}
}

func TestCapacityParts(t *testing.T) {
	free, total := meminfo(bufio.NewScanner(strings.NewReader("MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\nOdd\n")))
	if free != 600<<10 || total != 1000<<10 {
		t.Fatalf("meminfo: %d, %d", free, total)
	}
	for _, c := range []struct {
		name        string
		self        string
		files       map[string]uint64
		free, total uint64
	}{
		{"no limit", "0::/a/b\n", nil, 600, 1000},
		{"v2 leaf", "0::/a/b\n", map[string]uint64{"/a/b/memory.max": 500, "/a/b/memory.current": 100}, 400, 500},
		{"v2 parent", "0::/a/b\n", map[string]uint64{"/a/memory.max": 300, "/a/memory.current": 290, "/a/b/memory.max": 500, "/a/b/memory.current": 5}, 10, 300},
		{"v2 namespace root", "0::/\n", map[string]uint64{"/memory.max": 700}, 600, 700},
		{"usage above the limit", "0::/\n", map[string]uint64{"/memory.max": 700, "/memory.current": 900}, 0, 700},
		{"v1", "5:cpu,cpuacct:/x\n4:memory:/y\n", map[string]uint64{"/memory/y/memory.limit_in_bytes": 200, "/memory/y/memory.usage_in_bytes": 50}, 150, 200},
		{"v1 unlimited", "4:memory:/y\n", map[string]uint64{"/memory/y/memory.limit_in_bytes": 1 << 62, "/memory/y/memory.usage_in_bytes": 50}, 600, 1000},
	} {
		read := func(name string) (uint64, bool) { n, ok := c.files[name]; return n, ok }
		if f, n := groups(600, 1000, c.self, read); f != c.free || n != c.total {
			t.Errorf("%s: free %d of %d, want %d of %d", c.name, f, n, c.free, c.total)
		}
	}
}

// BenchmarkFirstTouch measures the first access to each page of a 64 MiB segment, and of Go memory
// of equal size.
func BenchmarkFirstTouch(b *testing.B) {
	const size = 64 << 20
	b.Run("segment", func(b *testing.B) {
		var m Memory
		b.SetBytes(size)
		for b.Loop() {
			a, err := m.Alloc(size)
			if err != nil {
				b.Fatal(err)
			}
			x := segmentBytes(a, size)
			for i := 0; i < len(x); i += 4096 {
				x[i] = 1
			}
			m.Free(a, size)
		}
	})
	// a segment whose pages were accessed before, as when the pool reuses it
	b.Run("touched segment", func(b *testing.B) {
		var m Memory
		a, err := m.Alloc(size)
		if err != nil {
			b.Fatal(err)
		}
		defer m.Free(a, size)
		x := segmentBytes(a, size)
		b.SetBytes(size)
		for b.Loop() {
			for i := 0; i < len(x); i += 4096 {
				x[i] = 1
			}
		}
	})
	b.Run("go memory", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			x := make([]byte, size)
			for i := 0; i < len(x); i += 4096 {
				x[i] = 1
			}
		}
	})
}
