package kernels

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// machine runs launches on the PTX emulator, which checks every access of memory.
type machine struct {
	t   *testing.T
	mem *ptxvm.Memory
	rng *rand.Rand
	// lines collects the counts for each line of a kernel's text. If it is nil, they are not
	// collected.
	lines map[*Kernel]map[int]*ptxvm.LineStats
	// conflicts is true if bank conflicts are allowed.
	conflicts bool
	// traffic counts the bytes that pass between the caches of blocks and memory. If it is nil,
	// they are not counted.
	traffic *ptxvm.Traffic
	// blocks is true if the emulator looks for races between blocks.
	blocks bool
	counts uint64 // address of the counters for products with divided sums
}

func newMachine(t *testing.T) *machine {
	return &machine{t: t, mem: ptxvm.NewMemory(0, 1<<30), rng: rand.New(rand.NewPCG(1, 2))}
}

// scratch allocates memory of the machine. It is a Scratch.
func (m *machine) scratch(bytes int) (uint64, error) { return m.mem.Alloc(uint64(bytes)) }

// counters returns the machine's counters. It is a Counters function. After each launch the method
// run checks that they are zero.
func (m *machine) counters() (uint64, error) {
	if m.counts == 0 {
		o := m.tensor(dtype.I32, dense(CounterWords), 0)
		m.fill(o, func(int) uint64 { return 0 })
		m.counts = o.Addr
	}
	return m.counts, nil
}

func fakeCounters() (uint64, error) { return 1 << 30, nil }

// tensor allocates exactly the memory that the layout spans, with undefined contents. It starts
// skip elements after an aligned address.
func (m *machine) tensor(t dtype.Type, l shape.Layout, skip int) Operand {
	m.t.Helper()
	lo, hi, ok := l.Span()
	if !ok {
		return Operand{Addr: 0, Type: t, Layout: l}
	}
	l.Offset += skip - lo
	addr, err := m.mem.Alloc(uint64((hi - lo + 1 + skip) * t.Size()))
	if err != nil {
		m.t.Fatal(err)
	}
	return Operand{Addr: addr, Type: t, Layout: l}
}

// forEach calls f for the address of every element in row-major order.
func forEach(o Operand, f func(i int, addr uint64)) {
	n := o.Shape.Size()
	for i := range n {
		at, rest := o.Offset, i
		for d := o.Shape.Rank() - 1; d >= 0; d-- {
			at += rest % o.Shape.At(d) * o.Strides.At(d)
			rest /= o.Shape.At(d)
		}
		f(i, o.Addr+uint64(at*o.Type.Size()))
	}
}

// fill writes the elements in row-major order. The function f returns the stored bits of element i.
func (m *machine) fill(o Operand, f func(i int) uint64) Operand {
	forEach(o, func(i int, addr uint64) {
		p, err := m.mem.Bytes(addr, uint64(o.Type.Size()))
		if err != nil {
			m.t.Fatal(err)
		}
		for k := range p {
			p[k] = byte(f(i) >> (8 * k))
		}
		m.mem.MarkInitialised(addr, uint64(len(p)))
	})
	return o
}

// random fills o with values between -4 and 4; for integer types, they are integers.
func (m *machine) random(o Operand) Operand {
	values := map[int]uint64{}
	return m.fill(o, func(i int) uint64 {
		if _, ok := values[i]; !ok {
			values[i] = expr.Encode(o.Type, m.rng.Float64()*8-4)
			if o.Type == dtype.Bool {
				values[i] = m.rng.Uint64() & 1
			}
		}
		return values[i]
	})
}

// read returns the stored bits in row-major order. If no kernel has written an element, the test
// fails.
func (m *machine) read(o Operand) []uint64 {
	m.t.Helper()
	list := make([]uint64, o.Shape.Size())
	forEach(o, func(i int, addr uint64) {
		p, err := m.mem.Bytes(addr, uint64(o.Type.Size()))
		if err == nil {
			err = m.mem.CheckInitialised(addr, uint64(len(p)))
		}
		if err != nil {
			m.t.Fatalf("element %d: %v", i, err)
		}
		for k := range p {
			list[i] |= uint64(p[k]) << (8 * k)
		}
	})
	return list
}

var modules = map[*Kernel]*ptxvm.Entry{}

// mmaFLOPs is the number of operations of a 16×8×16 mma instruction, the shape for 16-bit factors.
const mmaFLOPs = 2 * 16 * 8 * 16

// run executes the launches. The test fails if a kernel faults. It also fails if there is a bank
// conflict, except for stores of 2-byte results to shared memory.
func (m *machine) run(list []Launch, err error) ptxvm.Stats {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
	var sum ptxvm.Stats
	for _, l := range list {
		k := l.Kernel
		entry := modules[k]
		if entry == nil {
			mod, err := ptxvm.Parse(k.PTX)
			if err != nil {
				m.t.Fatalf("%s: %v\n%s", k.Name, err, k.PTX)
			}
			entry = mod.Entry(k.Entry)
			modules[k] = entry
		}
		v := ptxvm.Launch{Entry: entry, Grid: l.Grid, Block: k.Block, DynShared: uint32(k.DynShared), Params: l.Params, Mem: m.mem, SM: 80, Traffic: m.traffic, CheckBlocks: m.blocks}
		v.Lines = map[int]*ptxvm.LineStats{}
		if m.lines != nil {
			if m.lines[k] == nil {
				m.lines[k] = map[int]*ptxvm.LineStats{}
			}
			v.Lines = m.lines[k]
		}
		s, err := v.Run()
		did := int(s.MMA) * mmaFLOPs
		if strings.Contains(k.Name, "_tf32_") { // the mma instruction for tf32 is 16×8×8, half as large
			did /= 2
		}
		if err == nil && did != l.Tensor && !(did < l.Tensor && strings.Contains(k.Name, "_lengths")) {
			m.t.Errorf("%s: the tensor cores do %d operations, and the plan says %d", k.Name, did, l.Tensor)
		}
		if err != nil {
			m.t.Fatalf("%s: %v", k.Name, err)
		}
		if m.counts != 0 {
			words, err := m.mem.Bytes(m.counts, 4*CounterWords)
			if err != nil || slices.ContainsFunc(words, func(b byte) bool { return b != 0 }) {
				m.t.Errorf("%s: the counters are not left zero, %v", k.Name, err)
			}
		}
		if s.BankConflicts != 0 && !m.conflicts {
			text := strings.Split(k.PTX, "\n")
			for line, n := range v.Lines {
				// If the rows of the results are misaligned, storing them may have one bank
				// conflict for each product.
				if n.BankConflicts > 0 && !strings.Contains(text[line-1], ".shared.b16") {
					m.t.Errorf("%s: %d bank conflicts: %s", k.Name, n.BankConflicts, strings.TrimSpace(text[line-1]))
				}
			}
		}
		sum.Sectors += s.Sectors
		sum.IdealSectors += s.IdealSectors
		sum.GlobalLoads += s.GlobalLoads
		sum.GlobalStores += s.GlobalStores
		sum.SharedLoads += s.SharedLoads
		sum.FMA += s.FMA
		sum.MMA += s.MMA
		sum.BankConflicts += s.BankConflicts
		sum.Instructions += s.Instructions
	}
	return sum
}

// sameBits compares stored bits. All NaNs count as equal.
func sameBits(t dtype.Type, a, b uint64) bool {
	return a == b || t.IsFloat() && math.IsNaN(expr.Decode(t, a)) && math.IsNaN(expr.Decode(t, b))
}

func (m *machine) compare(what string, o Operand, want func(i int) uint64) {
	m.t.Helper()
	bad := 0
	for i, got := range m.read(o) {
		if w := want(i); !sameBits(o.Type, got, w) {
			if bad++; bad < 4 {
				m.t.Errorf("%s: element %d is %v (%#x), want %v (%#x)", what, i, expr.Decode(o.Type, got), got, expr.Decode(o.Type, w), w)
			}
		}
	}
	if bad > 0 {
		m.t.Errorf("%s: %d of %d elements are wrong", what, bad, o.Shape.Size())
	}
}

// golden compares the text of the launched kernels with a file in testdata.
func golden(t *testing.T, name string, list []Launch, err error) {
	t.Helper()
	if err != nil || len(list) == 0 {
		t.Fatalf("%s: %d launches, %v", name, len(list), err)
	}
	for i, l := range list {
		path := filepath.Join("testdata", name+".ptx")
		if i > 0 {
			path = filepath.Join("testdata", name+"_"+string(rune('1'+i))+".ptx")
		}
		if *update {
			if err := os.WriteFile(path, []byte(l.Kernel.PTX), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != l.Kernel.PTX {
			t.Errorf("%s differs from what is generated (run with -update to accept)", path)
		}
	}
}

// fake returns an operand without memory, for planning only.
func fake(t dtype.Type, dims ...int) Operand {
	return Operand{Addr: 1 << 20, Type: t, Layout: shape.Dense(shape.Of(dims...))}
}

// a100 is the device for which a test plans kernels, unless the test needs another device.
var a100 = GPUOf(80, "", 0)
