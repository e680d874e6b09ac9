package ptxvm

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

type device struct {
	t   testing.TB
	mem *Memory
}

func newDevice(t testing.TB) *device { return &device{t, NewMemory(0x7f0000000000, 1<<30)} }

func (d *device) alloc(n int, label string) uint64 {
	d.t.Helper()
	size := max(roundUp(uint64(n), smallAlign), smallAlign)
	a, err := d.mem.Alloc(size)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mem.MarkAllocated(a, uint64(n), size, label)
	return a
}

func (d *device) put(addr uint64, b []byte) {
	d.t.Helper()
	p, err := d.mem.Bytes(addr, uint64(len(b)))
	if err != nil {
		d.t.Fatal(err)
	}
	copy(p, b)
	d.mem.MarkInitialised(addr, uint64(len(b)))
}

func (d *device) floats(v []float32, label string) uint64 {
	d.t.Helper()
	a := d.alloc(4*len(v), label)
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	d.put(a, b)
	return a
}

func (d *device) readFloats(addr uint64, n int) []float32 {
	d.t.Helper()
	b, err := d.mem.Bytes(addr, uint64(4*n))
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.mem.CheckInitialised(addr, uint64(4*n)); err != nil {
		d.t.Fatal(err)
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// packParams packs parameters as the driver does: each at its natural alignment.
func packParams(params ...any) []byte {
	var b []byte
	for _, p := range params {
		var v []byte
		switch p := p.(type) {
		case uint64:
			v = binary.LittleEndian.AppendUint64(nil, p)
		case uint32:
			v = binary.LittleEndian.AppendUint32(nil, p)
		case int:
			v = binary.LittleEndian.AppendUint32(nil, uint32(p))
		case float32:
			v = binary.LittleEndian.AppendUint32(nil, math.Float32bits(p))
		default:
			panic("parameter type")
		}
		for len(b)%len(v) != 0 {
			b = append(b, 0)
		}
		b = append(b, v...)
	}
	return b
}

func mustParse(t testing.TB, src string) *Module {
	t.Helper()
	m, err := Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (d *device) launch(src string, grid, block, dyn uint32, params ...any) (Stats, error) {
	d.t.Helper()
	m := mustParse(d.t, src)
	l := Launch{Entry: m.entries[0], Grid: [3]uint32{grid, 1, 1}, Block: [3]uint32{block, 1, 1}, DynShared: dyn, Params: packParams(params...), Mem: d.mem, SM: max(m.Target(), 80), MaxSteps: 1 << 18}
	return l.Run()
}

func (d *device) mustLaunch(src string, grid, block, dyn uint32, params ...any) Stats {
	d.t.Helper()
	st, err := d.launch(src, grid, block, dyn, params...)
	if err != nil {
		d.t.Fatal(err)
	}
	return st
}

// wantFault checks the kind, the marked line ("// HERE" in the text), the block and the thread of a
// fault.
func wantFault(t *testing.T, err error, src string, k FaultKind, thread uint32, words ...string) *Fault {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("want a fault of kind %v, got %v", k, err)
	}
	line := 0
	for i, s := range strings.Split(src, "\n") {
		if strings.Contains(s, "// HERE") {
			line = i + 1
		}
	}
	if f.Kind != k || f.Line != line || f.Thread[0] != thread || f.Kernel == "" {
		t.Fatalf("want %v at line %d thread %d, got: %v", k, line, thread, f)
	}
	for _, w := range words {
		if !strings.Contains(f.Error(), w) {
			t.Errorf("message lacks %q: %v", w, f)
		}
	}
	return f
}

const header = ".version 8.1\n.target sm_90\n.address_size 64\n"
