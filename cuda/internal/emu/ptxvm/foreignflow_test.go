package ptxvm

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

func flowRow(row []uint64) (out []uint64) {
	x := int32(row[0])
	var sum uint32
	for k := int32(0); k < x&31; k++ {
		if k%3 == 1 {
			continue
		}
		sum += uint32(k * x)
		for m := k; m > 0; m >>= 1 {
			sum ^= uint32(m) << (k & 7)
			if sum&0x100 != 0 {
				break
			}
		}
		if sum&0xff == 0x55 {
			break
		}
	}
	y, steps := uint32(x&0xffff), uint32(0)
	for ; y > 1 && steps < 100; steps++ {
		if y&1 != 0 {
			y = 3*y + 1
		} else {
			y /= 2
		}
	}
	u, v := uint32(x), uint32(1)
	switch x & 15 {
	case 0:
		v = u + 7
	case 1:
		v = u*3 ^ 0x1234
	case 2:
		v ^= 0x1234
	case 3:
		v = ^u
	case 4:
		v = uint32(x >> 3)
	case 5:
		v = uint32(x % 17)
	case 6:
		v = u | 0xf0
	case 7:
		v = 1101
	case 8:
		v = 1001
	case 9:
		v = u / 9
	case 10:
		v = u * u
	case 12:
		v = u - 12
	case 13:
		for k := range uint32(13) {
			v = v*3 + k
		}
	default:
		v = 77
	}
	out = []uint64{uint64(sum), uint64(steps), uint64(v)}
	if x < 0 {
		return append(out, uint64(u), 1)
	}
	return append(out, uint64(bit(x&3 == 3 && x&12 == 12 || x > 1000000)), 2)
}

func callsRow(row []uint64) (out []uint64) {
	x := int32(row[0])
	u := uint32(x)
	fib := [8]uint64{0, 1, 1, 2, 3, 5, 8, 13}
	d := float32(x & 0xff)
	total := float64(uint8(x)) + float64(x)*0.5*float64(int16(x>>4)) + float64(d) + float64(d+1) - float64(d*2)
	var hanoi func(n, from, to, via int32, h *uint32)
	hanoi = func(n, from, to, via int32, h *uint32) {
		if n > 0 {
			hanoi(n-1, from, via, to, h)
			*h = *h*31 + uint32(n*7+from*3+to)
			hanoi(n-1, via, to, from, h)
		}
	}
	h := uint32(1)
	hanoi(x&3, 0, 1, 2, &h)
	early := func(x uint32) (where, v uint32) {
		switch {
		case x&1 != 0:
			v = 5
		case x%8 > 4:
			v = 4 + x
		default:
			v = x * 2
		}
		return x + 1, v
	}
	var where, e uint32
	if x&2 != 0 {
		where, e = early(u)
	} else if x&4 != 0 {
		where, e = early(u + 1)
		e++
	}
	var tree func(depth int, seed uint32) uint32
	tree = func(depth int, seed uint32) (s uint32) {
		var local [6]uint32
		for k := range local {
			local[k] = seed * uint32(k+1)
		}
		if depth > 0 {
			for k := range uint32(2) {
				local[(seed+k)%6] += tree(depth-1, seed+k+1)
			}
		}
		for _, v := range local {
			s = s*5 + v
		}
		return s
	}
	depth := 1
	if x&1 != 0 {
		depth = 3
	}
	return append(out, fib[x&7], uint64(1-x&1), math.Float64bits(total), uint64(h), uint64(where), uint64(e), uint64(tree(depth, u&63)))
}

func pointersRow(row []uint64) []uint64 {
	x := uint32(row[0])
	a, b := x, x>>5
	mix := a + b*3
	if a&1 != 0 {
		mix = a ^ b
	}
	area := 3*(x&7)*(x&7) - x
	if x&8 != 0 {
		area = (x&15)*(x&15) + x
	}
	return []uint64{uint64([]uint32{a + b, a * b, mix}[x%3]), uint64(area)}
}

func localsRow(row []uint64) []uint64 {
	x := uint32(row[0])
	var a [17]uint32
	var b [40]byte
	for k := range a {
		a[k] = x * uint32(k+1)
	}
	for k := range b {
		b[k] = byte(x>>(k&7)) + byte(k)
	}
	for k := range a {
		m := (x >> (k & 15)) % 17
		a[k], a[m] = a[m], a[k]
	}
	s := uint32(0)
	for _, v := range a {
		s = s*31 + v
	}
	half := func(i uint32) uint32 { return a[i/2] >> (16 * (i & 1)) & 0xffff }
	where := a[x%17]
	if x&1 == 0 {
		where = binary.LittleEndian.Uint32(b[4*(x%10):])
	}
	return []uint64{uint64(s), uint64(uint32(b[x%40]) | uint32(b[(x>>3)%40])<<8), uint64(a[x&3+1] ^ half(x%34)), uint64(where), math.Float64bits(float64(x) + float64(x%5)*0.25)}
}

func TestForeignFlow(t *testing.T) {
	rows := rowsOf(corners(32), 32, 1)[200:]
	r := rand.New(rand.NewPCG(3, 3))
	for i := range uint64(64) {
		rows = append(rows, []uint64{i}, []uint64{uint64(r.Uint32())})
	}
	for _, sm := range nvidiaTargets {
		table(t, "flow."+sm, "flow", 4, rows, equal, flowRow)
		table(t, "flow."+sm, "calls", 4, rows, equal, callsRow)
		table(t, "flow."+sm, "pointers", 4, rows, equal, pointersRow)
		table(t, "flow."+sm, "locals", 4, rows, equal, localsRow)
	}
}

func random32(n int, seed uint64) []uint64 {
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]uint64, n)
	for i := range v {
		v[i] = uint64(r.Uint32())
	}
	return v
}

// expect compares the results of n rows with those that want(i, j) returns for result j of row i.
// Result j of row i is element j*n+i of the memory at address out.
func (d *device) expect(what string, out uint64, n int, want func(i, j int) (uint64, bool)) {
	d.t.Helper()
	for j := 0; ; j++ {
		if _, ok := want(0, j); !ok {
			return
		}
		got := d.read(out+uint64(8*n*j), n, 8)
		for i, g := range got {
			if w, _ := want(i, j); g != w {
				d.t.Errorf("%s: result %d of row %d is %#x, want %#x", what, j, i, g, w)
				break
			}
		}
	}
}

// results allocates memory for the results of n rows. The memory counts as written.
func (d *device) results(n, outs int) uint64 { return d.words(make([]uint64, n*outs), 8, "results") }

func rowsWant(rows [][]uint64) func(i, j int) (uint64, bool) {
	return func(i, j int) (uint64, bool) {
		if j >= len(rows[i]) {
			return 0, false
		}
		return rows[i][j], true
	}
}

func TestForeignMemory(t *testing.T) {
	primes := []uint32{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53}
	factorials := []uint32{1, 1, 2, 6, 24, 120, 720, 5040}
	const n = 200
	for _, sm := range nvidiaTargets {
		m := "memory." + sm
		d := newDevice(t)
		p := random32(n, 9)
		in, out := d.words(p, 4, "in"), d.results(n, 12)
		d.start(m, "spaces", line(2, 128), in, out, n)
		rows := make([][]uint64, n)
		for i := range rows {
			x := uint32(p[i])
			mine := [4]uint32{x, x + 1, x + 2, x + 3}
			mine[x&3] = 9
			from := []uint32{uint32(p[x%n]), x * 5, mine[(x>>2)%4], primes[x%16], factorials[x%8]}
			k := x % 5
			rows[i] = []uint64{uint64(from[k]), uint64(primes[x&15] + uint32("ptx!?\x00"[x%6])), math.Float64bits([]float64{0.5, -1.25, 3, 1e300}[x&3]), uint64(factorials[3+x%4]),
				0, uint64(bit(k == 0 || k == 4)), uint64(bit(k == 1)), uint64(bit(k == 2)), uint64(x), p[(x+1)%n], uint64(3 * x)}
			if k == 3 {
				// GPUs differ in whether constant memory has generic addresses
				rows[i][5] = anyConst
			}
		}
		got := d.read(out+5*8*n, n, 8)
		for i := range rows {
			if rows[i][5] == anyConst {
				rows[i][5] = got[i]
			}
		}
		rows = wrapSum(rows)
		d.expect(m+" spaces", out, n, rowsWant(rows))

		// the layout is struct { u8 a; u16 b; u32 c; u64 d; s8 e[3]; float f; }
		object := func(seed uint64) []byte {
			v := random32(9, seed)
			b := make([]byte, 24)
			b[0] = byte(v[0])
			binary.LittleEndian.PutUint16(b[2:], uint16(v[1]))
			binary.LittleEndian.PutUint32(b[4:], uint32(v[2]))
			binary.LittleEndian.PutUint64(b[8:], v[3]<<20)
			b[16], b[17], b[18] = byte(v[4]), byte(v[5]), byte(v[6])
			binary.LittleEndian.PutUint32(b[20:], math.Float32bits(float32(v[7])))
			return b
		}
		sum := func(b []byte) uint64 {
			s := uint64(b[0]) + uint64(binary.LittleEndian.Uint16(b[2:])) + uint64(binary.LittleEndian.Uint32(b[4:])) + binary.LittleEndian.Uint64(b[8:])
			for _, e := range b[16:19] {
				s += uint64(int64(int8(e)))
			}
			return s
		}
		by := object(1)
		var all []byte
		for i := range n {
			all = append(all, object(uint64(i)+5)...)
		}
		objects, copies, out2 := d.alloc(len(all), "objects"), d.alloc(len(all), "copies"), d.results(n, 4)
		d.put(objects, all)
		d.start(m, "structs", line(4, 64), by, objects, copies, out2, n)
		d.expect(m+" structs", out2, n, func(i, j int) (uint64, bool) {
			o := all[24*i:]
			switch j {
			case 0:
				return sum(by), true
			case 1:
				return uint64(binary.LittleEndian.Uint32(by[20:])), true
			case 2:
				return sum(o), true
			case 3:
				return uint64(by[16+o[0]%3]), true
			}
			return 0, false
		})
		b, _ := d.mem.Bytes(copies, uint64(len(all)))
		for i := range n {
			o, c := all[24*i:24*i+24], b[24*i:24*i+24]
			o[16+o[0]%3] = 77
			f := math.Float32frombits(binary.LittleEndian.Uint32(o[20:]))
			binary.LittleEndian.PutUint32(o[20:], math.Float32bits(2*f))
			o[1], o[19], c[1], c[19] = 0, 0, 0, 0 // padding, which is not compared
			if string(o) != string(c) {
				t.Fatalf("%s structs: object %d is %x, want %x", m, i, c, o)
			}
		}

		raw := random32(32*n, 77)
		vec := func(size int) uint64 { return d.words(raw[:size*n/4], 4, "vector") }
		a, i2, c4, s4, d2, out3, w := vec(16), vec(8), vec(4), vec(8), vec(16), d.results(n, 14), d.alloc(16*n, "reversed")
		d.start(m, "vectors", line(4, 64), a, i2, c4, s4, d2, out3, w, n)
		d.expect(m+" vectors", out3, n, func(i, j int) (uint64, bool) {
			switch {
			case j < 4:
				return raw[4*i+j], true
			case j < 6:
				return raw[2*i+j-4], true
			case j < 10:
				return raw[i] >> (8 * (j - 6)) & 255, true
			case j < 11:
				return raw[2*i] & 0xffff, true
			case j < 12:
				return raw[2*i+1] >> 16, true
			case j < 14:
				return raw[4*i+2*(j-12)] | raw[4*i+2*(j-12)+1]<<32, true
			}
			return 0, false
		})
		for i, v := range d.read(w, 4*n, 4) {
			if v != raw[i^3] {
				t.Fatalf("%s vectors: word %d is %#x, want %#x", m, i, v, raw[i^3])
			}
		}

		out4 := d.results(n, 4)
		s := line(3, 96)
		s.dyn = 96*4 + 96
		d.start(m, "shared", s, in, out4, n)
		d.expect(m+" shared", out4, n, func(i, j int) (uint64, bool) {
			block, th := i/96, i%96
			rev := uint64(0)
			if k := block*96 + 95 - th; k < n {
				rev = p[k]
			}
			v := []uint64{rev, p[i], math.Float64bits(float64(th%3) + float64(block)*0.5), p[i] & 255}
			if j < len(v) {
				return v[j], true
			}
			return 0, false
		})

		g := shape{grid: [3]uint32{2, 3, 2}, block: [3]uint32{5, 3, 4}, dyn: 48}
		total := 12 * 60
		out5 := d.results(total, 13)
		d.start(m, "grid", g, out5)
		d.expect(m+" grid", out5, total, func(i, j int) (uint64, bool) {
			b, th := i/60, i%60
			l := th % 32
			v := []uint64{uint64(th%5 | th/5%3<<8 | th/15<<16), uint64(b%2 | b/2%3<<8 | b/6<<16), uint64(l), 1 << l, 1<<l - 1, 2<<l - 1,
				0xffffffff &^ (2<<l - 1), 0xffffffff &^ (1<<l - 1), 2, 48, 1, uint64(th / 32)}
			if j < len(v) {
				return v[j], true
			}
			return 0, false
		})
	}
}

const anyConst = 0x1234_5678_9abc_def0

// wrapSum returns the lower 32 bits of each row's sum, as unsigned addition in C does.
func wrapSum(rows [][]uint64) [][]uint64 {
	for _, r := range rows {
		for _, j := range []int{1, 10} {
			r[j] &= 0xffffffff
		}
	}
	return rows
}
