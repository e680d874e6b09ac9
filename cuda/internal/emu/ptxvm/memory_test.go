package ptxvm

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestMemory(t *testing.T) {
	m := NewMemory(0x10000000, 8<<20)
	a, err := m.Alloc(1000)
	if err != nil || a%512 != 0 || a < 0x10000000 {
		t.Fatal(a, err)
	}
	b, err := m.Alloc(3 << 20)
	if err != nil || b%(2<<20) != 0 {
		t.Fatal(b, err)
	}
	if got := m.Mapped(); got != 1024+3<<20 {
		t.Errorf("mapped %d", got)
	}
	if _, err := m.Alloc(6 << 20); !errors.Is(err, ErrNoMemory) {
		t.Errorf("got %v", err)
	}
	if _, err := m.Alloc(^uint64(0)); !errors.Is(err, ErrNoMemory) {
		t.Errorf("got %v", err)
	}
	if p, err := m.Bytes(a, 1024); err != nil || p[0] != poison || p[1023] != poison {
		t.Error("fresh memory is not poisoned", err)
	}
	for _, r := range [][2]uint64{{a, 1025}, {a - 1, 1}, {a + 1024, 1}, {0, 1}, {b, 3<<20 + 1}, {^uint64(0), 2}} {
		if _, err := m.Bytes(r[0], r[1]); err == nil || !strings.Contains(err.Error(), "not mapped") {
			t.Errorf("Bytes(%#x, %d): %v", r[0], r[1], err)
		}
	}
	m.MarkAllocated(b, 100, 512, "weights")
	if err := m.CheckAddressable(b, 100); err != nil {
		t.Error(err)
	}
	if err := m.CheckAddressable(b, 101); err == nil || !strings.Contains(err.Error(), "weights") {
		t.Error(err)
	}
	if err := m.CheckInitialised(b, 1); err == nil {
		t.Error("uninitialised memory passes")
	}
	m.MarkInitialised(b, 200) // more bytes than the block has
	if err := m.CheckInitialised(b, 100); err != nil {
		t.Error(err)
	}
	if err := m.CheckAddressable(b+100, 1); err == nil {
		t.Error("MarkInitialised made padding addressable")
	}
	m.MarkAllocated(b+1024, 100, 512, "copy")
	m.CopyInitialised(b+1024, m, b+50, 50)
	if err := m.CheckInitialised(b+1024, 50); err != nil {
		t.Error(err)
	}
	if err := m.CheckInitialised(b+1024, 51); err == nil {
		t.Error("CopyInitialised marked too much")
	}
	m.MarkFreed(b, 512)
	if err := m.CheckAddressable(b, 1); err == nil || !strings.Contains(err.Error(), "freed") {
		t.Error(err)
	}
	if err := m.Free(b + 512); err == nil {
		t.Error("Free of an inner address")
	}
	if err := m.Free(b); err != nil {
		t.Error(err)
	}
	if err := m.Free(b); err == nil {
		t.Error("double Free")
	}
	c, _ := m.Alloc(3 << 20)
	if c == b {
		t.Error("an address came back")
	}
	host := make([]byte, 64)
	h := m.MapHost(host)
	if err := m.Free(h); err == nil {
		t.Error("Free of host memory")
	}
	p, err := m.Bytes(h, 64)
	if err != nil || &p[0] != &host[0] {
		t.Error("host memory is copied", err)
	}
	if err := m.CheckInitialised(h, 64); err != nil {
		t.Error(err)
	}
	if err := m.UnmapHost(h); err != nil {
		t.Error(err)
	}
}

// TestMappedHostMemory lets a kernel change a counter in mapped host memory. The host must see the
// changes.
func TestMappedHostMemory(t *testing.T) {
	d := newDevice(t)
	b := make([]byte, 32)
	addr := d.mem.MapHost(b)
	d.mustLaunch(kernel("atom.global.add.u32 %r1, [%rd0], 1;\n red.global.add.u64 [%rd0+8], 2;\n setp.eq.u32 %p1, %t, 0;\n@%p1 st.global.u32 [%rd0+16], 77;"), 10, 64, 0, addr)
	if got := []uint32{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[16:])}; !slices.Equal(got, []uint32{640, 1280, 77}) {
		t.Errorf("got %v", got)
	}
}

// TestConcurrentLaunches allocates, launches and frees on one memory from many goroutines. The
// blocks of one kernel share counters, whose values must be right. With -race it also finds data
// races.
func TestConcurrentLaunches(t *testing.T) {
	d := newDevice(t)
	m := mustParse(t, vaddSrc)
	count := mustParse(t, kernel("atom.global.add.u32 %r1, [%rd0], 1;\n red.global.max.u32 [%rd0+4], %r1;\n st.global.u32 [%rd0+8], 5;\n membar.gl;"))
	shared := d.alloc(256, "counters")
	d.put(shared, make([]byte, 256))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			const n = 1500
			for range 3 {
				a, b := randoms(n, uint64(g)), randoms(n, uint64(g+100))
				pa, pb, pc := d.floats(a, "a"), d.floats(b, "b"), d.alloc(4*n, "c")
				l := Launch{Entry: m.Entry("vadd"), Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{128, 1, 1}, Params: packParams(pa, pb, pc, n), Mem: d.mem, SM: 80, Workers: 4}
				if _, err := l.Run(); err != nil {
					t.Error(err)
					return
				}
				c := d.readFloats(pc, n)
				for i := range c {
					if c[i] != a[i]+b[i] {
						t.Errorf("c[%d] = %v", i, c[i])
						return
					}
				}
				for _, p := range []uint64{pa, pb, pc} {
					if err := d.mem.Free(p); err != nil {
						t.Error(err)
					}
				}
				k := Launch{Entry: count.Entry("buggy"), Grid: [3]uint32{16, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: packParams(shared), Mem: d.mem, SM: 90, Workers: 4}
				if _, err := k.Run(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	b, _ := d.mem.Bytes(shared, 8)
	if n := binary.LittleEndian.Uint32(b); n != 4*3*16*32 || binary.LittleEndian.Uint32(b[4:]) != n-1 {
		t.Errorf("counters %d, %d", n, binary.LittleEndian.Uint32(b[4:]))
	}
}

// TestWorkersAgree runs a kernel with several numbers of workers. Results and counters must be
// equal.
func TestWorkersAgree(t *testing.T) {
	var first Stats
	var out []float32
	for i, workers := range []int{1, 3, 8} {
		d := newDevice(t)
		x := randoms(40*50, 9)
		px, py := d.floats(x, "x"), d.alloc(4*len(x), "y")
		m := mustParse(t, softmaxSrc)
		l := Launch{Entry: m.Entry("softmax"), Grid: [3]uint32{10, 1, 1}, Block: [3]uint32{128, 1, 1}, Params: packParams(px, py, 40, 50), Mem: d.mem, SM: 80, Workers: workers}
		st, err := l.Run()
		if err != nil {
			t.Fatal(err)
		}
		y := d.readFloats(py, len(x))
		if i == 0 {
			first, out = st, y
		} else if st != first || !slices.Equal(y, out) {
			t.Errorf("%d workers differ", workers)
		}
	}
}
