package ptxvm

import (
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// The kernels of testdata/foreign were written for these tests, but other compilers made their PTX.
// The tests compare their results with those of Go code. This would reveal a wrong understanding of
// the PTX ISA that this package and the library's kernels share.

var foreignModules sync.Map

func foreign(t testing.TB, name string) *Module {
	t.Helper()
	if m, ok := foreignModules.Load(name); ok {
		return m.(*Module)
	}
	f, err := os.Open(filepath.Join("testdata", "foreign", name+".ptx.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(string(b))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	foreignModules.Store(name, m)
	return m
}

// shape is the grid of a launch, its block, and its dynamic shared memory.
type shape struct {
	grid, block [3]uint32
	dyn         uint32
	workers     int
}

func line(blocks, threads uint32) shape {
	return shape{grid: [3]uint32{blocks, 1, 1}, block: [3]uint32{threads, 1, 1}}
}

// start launches an entry of a module in testdata/foreign.
func (d *device) start(module, entry string, s shape, params ...any) {
	d.t.Helper()
	m := foreign(d.t, module)
	e := m.Entry(entry)
	if e == nil {
		d.t.Fatalf("%s has no entry %s", module, entry)
	}
	var raw []byte
	for i, p := range params {
		b, ok := p.([]byte)
		if !ok {
			b = packParams(p)
		}
		for len(raw) < e.Params[i].Offset {
			raw = append(raw, 0)
		}
		raw = append(raw, b...)
	}
	l := Launch{Entry: e, Grid: s.grid, Block: s.block, DynShared: s.dyn, Params: raw, Mem: d.mem, SM: max(m.Target(), 80), MaxSteps: 1 << 20, Workers: s.workers}
	if s.workers > 0 {
		// Blocks wait for each other, which may take long on a busy machine.
		l.MaxSteps = 1 << 28
	}
	if _, err := l.Run(); err != nil {
		d.t.Fatalf("%s, %s: %v", module, entry, err)
	}
}

// words stores values of size bytes each in new memory, and returns its address.
func (d *device) words(v []uint64, size int, label string) uint64 {
	d.t.Helper()
	a := d.alloc(size*len(v), label)
	b := make([]byte, 0, size*len(v))
	for _, x := range v {
		b = append(b, binary.LittleEndian.AppendUint64(nil, x)[:size]...)
	}
	d.put(a, b)
	return a
}

// read returns n values of size bytes each.
func (d *device) read(addr uint64, n, size int) []uint64 {
	d.t.Helper()
	b, err := d.mem.Bytes(addr, uint64(n*size))
	if err != nil {
		d.t.Fatal(err)
	}
	v := make([]uint64, n)
	for i := range v {
		v[i] = loadLE(b[i*size:], size)
	}
	return v
}

// table runs a kernel whose thread i reads row i of the inputs. It compares the results of each row
// with those of the function want.
func table(t *testing.T, module, entry string, size int, inputs [][]uint64, same func(j int, got, want uint64) bool, want func(row []uint64) []uint64) {
	t.Helper()
	d := newDevice(t)
	n := len(inputs)
	params := []any{}
	for k := range inputs[0] {
		col := make([]uint64, n)
		for i := range inputs {
			col[i] = inputs[i][k]
		}
		params = append(params, d.words(col, size, fmt.Sprint("input ", k)))
	}
	outs := len(want(inputs[0]))
	out := d.alloc(8*n*outs, "results")
	d.start(module, entry, line(uint32(n+63)/64, 64), append(params, out, n)...)
	got := d.read(out, n*outs, 8)
	bad := 0
	for i, row := range inputs {
		for j, w := range want(row) {
			if g := got[j*n+i]; !same(j, g, w) && bad < 12 {
				bad++
				t.Errorf("%s, %s: result %d of %x is %#x, want %#x", module, entry, j, row, g, w)
			}
		}
	}
}

func equal(_ int, got, want uint64) bool { return got == want }

// corners returns values of n bits at which mistakes in integer arithmetic are likely.
func corners(n int) []uint64 {
	m := ^uint64(0) >> (64 - n)
	return []uint64{0, 1, 2, 3, 7, 31, 32, 33, 63, m, m - 1, m >> 1, m>>1 + 1, m>>1 + 2, 0x5555555555555555 & m, 0x8040201008040201 & m}
}

// rowsOf returns rows of k values of n bits: a row for each pair of the given values, and 64 random
// rows.
func rowsOf(values []uint64, n, k int) (rows [][]uint64) {
	r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
	m := ^uint64(0) >> (64 - n)
	for i, a := range values {
		for _, b := range values {
			row := []uint64{a, b, values[(i*7+len(rows))%len(values)]}
			rows = append(rows, row[:k])
		}
	}
	for range 64 {
		row := make([]uint64, k)
		for c := range row {
			row[c] = r.Uint64() & m >> r.IntN(n)
		}
		rows = append(rows, row)
	}
	return rows
}

var nvidiaTargets = []string{"sm_70", "sm_80", "sm_90"}

// integerRow returns the expected results of ints.cu for one row.
func integerRow[T integers](row []uint64) (out []uint64) {
	a, b, c := T(row[0]), T(row[1]), T(row[2])
	add := func(v ...T) {
		for _, v := range v {
			out = append(out, narrow(v))
		}
	}
	var zero T
	width := 8 * binary.Size(zero)
	mask := T(width - 1)
	q, r := zero, zero
	if b != 0 {
		q, r = a/b, a%b
	}
	negative := func() T {
		if a < 0 {
			return -a
		}
		return a
	}
	add(a+b, a-b, a*b, a*b+c, q, r, a/7, a%10, a/16, a&b, a|b, a^b, ^a, -a, a&b|^a&c, a<<(b&mask), a>>(b&mask), a>>3, min(a, b), max(a, b), negative())
	for _, p := range []bool{a < b, a <= b, a == b, a != b && b >= c} {
		out = append(out, uint64(bit(p)))
	}
	return append(out, narrow(int8(a)), narrow(uint8(a)), narrow(int16(a)), narrow(uint16(a)), narrow(int32(a)), narrow(uint32(a)), narrow(int64(a)), narrow(uint64(a)))
}

func TestForeignIntegers(t *testing.T) {
	for _, sm := range nvidiaTargets {
		m := "ints." + sm
		table(t, m, "ints_u8", 1, rowsOf(corners(8), 8, 3), equal, integerRow[uint8])
		table(t, m, "ints_s8", 1, rowsOf(corners(8), 8, 3), equal, integerRow[int8])
		table(t, m, "ints_u16", 2, rowsOf(corners(16), 16, 3), equal, integerRow[uint16])
		table(t, m, "ints_s16", 2, rowsOf(corners(16), 16, 3), equal, integerRow[int16])
		table(t, m, "ints_u32", 4, rowsOf(corners(32), 32, 3), equal, integerRow[uint32])
		table(t, m, "ints_s32", 4, rowsOf(corners(32), 32, 3), equal, integerRow[int32])
		table(t, m, "ints_u64", 8, rowsOf(corners(64), 64, 3), equal, integerRow[uint64])
		table(t, m, "ints_s64", 8, rowsOf(corners(64), 64, 3), equal, integerRow[int64])
	}
}
