package ptxvm

import "testing"

// TestTraffic counts sectors. A sector must count once while it is in the block's cache, and once
// more if it is written. Each block has its own cache, so each block must count the sector again.
func TestTraffic(t *testing.T) {
	const read, far = "ld.global.u32 %r1, [%rd1];", "ld.global.u32 %r1, [%rd1+1024];"
	for _, c := range []struct {
		name, body string
		grid       uint32
		cached     int
		// Expected sectors: all, and those in the first and second 1024 bytes of the buffer.
		all, first, second int64
	}{
		{"a request", read, 1, 1024, 4, 4, 0},
		{"again", read + read, 1, 1024, 4, 4, 0},
		{"again, without a cache", read + read, 1, 0, 8, 8, 0},
		{"half a sector on", "ld.global.u32 %r1, [%rd1+16];" + read, 1, 1024, 5, 5, 0},
		{"elsewhere", read + far + read + far, 1, 8, 8, 4, 4},
		{"elsewhere, in a small cache", read + far + read + far, 1, 4, 16, 8, 8},
		{"read and written", read + "st.global.u32 [%rd1], %r1; st.global.u32 [%rd1], %r1;", 1, 1024, 8, 8, 0},
		{"two blocks", read, 2, 1024, 8, 8, 0},
	} {
		d := newDevice(t)
		p := d.alloc(4096, "buffer")
		d.put(p, make([]byte, 4096))
		m := mustParse(t, kernel(c.body))
		traffic := &Traffic{Cached: c.cached, Ranges: []RangeTraffic{{Addr: p, Bytes: 1024}, {Addr: p + 1024, Bytes: 1024}}}
		l := Launch{Entry: m.entries[0], Grid: [3]uint32{c.grid, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: packParams(p), Mem: d.mem, SM: 90, Traffic: traffic, Workers: 1}
		for run := int64(1); run <= 2; run++ { // the second run must add the same counts again
			if _, err := l.Run(); err != nil {
				t.Fatal(err)
			}
			got := [3]int64{traffic.Sectors, traffic.Ranges[0].Sectors, traffic.Ranges[1].Sectors}
			if want := [3]int64{run * c.all, run * c.first, run * c.second}; got != want {
				t.Errorf("%s, run %d: %v sectors, want %v", c.name, run, got, want)
			}
		}
	}
}
