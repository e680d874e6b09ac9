package kernels

import (
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// runGolden runs one of the golden kernels of package ptx, whose own tests can only assemble them.
func (m *machine) runGolden(name string, grid, block, shared uint32, p packer) {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "ptx", "testdata", name+".ptx"))
	if err != nil {
		m.t.Fatal(err)
	}
	mod, err := ptxvm.Parse(string(text))
	if err != nil {
		m.t.Fatalf("%s: %v", name, err)
	}
	l := ptxvm.Launch{Entry: mod.Entry(name), Grid: [3]uint32{grid, 1, 1}, Block: [3]uint32{block, 1, 1}, DynShared: shared, Params: p, Mem: m.mem, SM: 80}
	if _, err := l.Run(); err != nil {
		m.t.Fatalf("%s: %v", name, err)
	}
}

func TestPTXVectorAdd(t *testing.T) {
	m := newMachine(t)
	const n = 1030
	x, y, z := m.random(m.tensor(dtype.F32, dense(n), 0)), m.random(m.tensor(dtype.F32, dense(n), 0)), m.tensor(dtype.F32, dense(n), 0)
	var p packer
	for _, o := range []Operand{x, y, z} {
		p.u64(o.Addr)
	}
	p.u32(n)
	m.runGolden("vector_add", 2, 256, 0, p)
	a, b := m.read(x), m.read(y)
	m.compare("vector_add", z, func(i int) uint64 {
		return uint64(math.Float32bits(math.Float32frombits(uint32(a[i])) + math.Float32frombits(uint32(b[i]))))
	})
}

func TestPTXSoftmax(t *testing.T) {
	m := newMachine(t)
	x, y := m.random(m.tensor(dtype.F32, dense(6, 70), 0)), m.tensor(dtype.F32, dense(6, 70), 0)
	var p packer
	p.u64(x.Addr)
	p.u64(y.Addr)
	p.u32(6)
	p.u32(70)
	m.runGolden("warp_softmax", 2, 128, 0, p)
	want, _, _ := slowSoftmax(m.decode(x), 70)
	m.checkNear("warp_softmax", y, want, 1e-5)
}

func TestPTXFlow(t *testing.T) {
	m := newMachine(t)
	const n = 50
	x := m.fill(m.tensor(dtype.I32, dense(n), 0), func(i int) uint64 { return uint64(i * 37 % 101) })
	y := m.fill(m.tensor(dtype.I32, dense(n+1), 0), func(int) uint64 { return 0 })
	var p packer
	p.u64(x.Addr)
	p.u64(y.Addr)
	p.u32(n)
	m.runGolden("flow", 1, 32, 0, p)
	start := m.read(x)
	m.compare("flow", y, func(i int) uint64 {
		if i == n {
			return n
		}
		v, steps := start[i], uint64(0)
		if v == 0 {
			return 0
		}
		for v > 1 && steps <= 500 {
			if v%2 == 0 {
				v /= 2
			} else {
				v = 3*v + 1
			}
			steps++
		}
		for d := 2; d*d <= i; d++ {
			if i%d == 0 {
				return 0
			}
		}
		return steps
	})
}

// TestPTXIntegers checks the results of the integer instructions against the builder's
// documentation.
func TestPTXIntegers(t *testing.T) {
	m := newMachine(t)
	values := make([]uint32, 128)
	for i := range values {
		values[i] = m.rng.Uint32() >> (i % 29)
		if i%3 == 0 {
			values[i] = -values[i]
		}
		values[i] |= 1 // makes the values odd, because they are divisors that must not be zero
	}
	in := m.fill(m.tensor(dtype.I32, dense(128), 0), func(i int) uint64 { return uint64(values[i]) })
	out, wide := m.tensor(dtype.I32, dense(64), 0), m.tensor(dtype.I64, dense(64), 0)
	var p packer
	for _, o := range []Operand{in, out, wide} {
		p.u64(o.Addr)
	}
	m.runGolden("integers", 1, 64, 0, p)
	reference := func(i int) int32 {
		u, w := values[i], values[i+64]
		x, y := int32(u), int32(w)
		r := x
		bytes := uint64(u)
		var permuted uint32
		for k, nibble := range [4]int{3, 2, 1, 0} {
			permuted |= uint32(bytes>>(8*nibble)&0xff) << (8 * k)
		}
		less := int32(-5)
		if x < y {
			less = x
		}
		shifted := u >> (u & 31)
		abs := x
		if x < 0 {
			abs = -x
		}
		for _, v := range []int32{x + y, x - y, x * y, int32(int64(x) * int64(y) >> 32), int32(uint64(u) * 0x2c1b3c6d >> 32),
			x / y, x % 7, int32(u / 8), int32(u % 8), int32(u * 16), x*y + x,
			min(x, y), max(x, y), int32(min(u, 9)), -x, int32(-u), abs, int32(u & 255), int32(u | 1),
			int32(^u), int32(u << 3), x >> 3, int32(shifted), int32(bits.OnesCount32(u)), int32(bits.LeadingZeros32(u)), int32(bits.Len32(u) - 1),
			int32(bits.Reverse32(u)), int32(u >> 4 & 255), int32(int8(u >> 4)),
			int32(permuted), less, int32(u & 255), int32(int8(u)),
			int32(uint16(u)), int32(int64(x) >> 7)} {
			r ^= v
		}
		return r
	}
	m.compare("integers", out, func(i int) uint64 { return uint64(uint32(reference(i))) })
	m.compare("integers, wide", wide, func(i int) uint64 {
		r := int64(reference(i))
		return bits.RotateLeft64(uint64(values[i])*3, 32) + uint64(r*int64(int32(values[i+64]))+r)
	})
}

// TestPTXFloats checks that float64 arithmetic rounds once for each operation.
func TestPTXFloats(t *testing.T) {
	m := newMachine(t)
	const n = 64
	f := m.fill(m.tensor(dtype.F32, dense(n+1), 0), func(i int) uint64 { return expr.Encode(dtype.F32, float64(i+1)/16) })
	d := m.random(m.tensor(dtype.F64, dense(n), 0))
	h := m.fill(m.tensor(dtype.F16, dense(n), 0), func(i int) uint64 { return expr.Encode(dtype.F16, float64(i)) })
	bf := m.fill(m.tensor(dtype.BF16, dense(n), 0), func(i int) uint64 { return expr.Encode(dtype.BF16, float64(i)) })
	before := m.decode(d)
	var p packer
	for _, o := range []Operand{f, d, h, bf} {
		p.u64(o.Addr)
	}
	m.runGolden("floats", 1, n, 0, p)
	for i, v := range m.decode(d) {
		x, e := float64(i+1)/16, before[i]
		if want := math.FMA(math.Sqrt(max(e, x)), 0.5, e) / math.Ceil(e); v != want && !(math.IsInf(want, 0) || want != want) {
			t.Errorf("d[%d] = %v, want %v", i, v, want)
		}
	}
}
