package ptxvm

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
)

// conform is a test of one instruction. The code uses the registers %a, %b, %c (inputs) and %d
// (output), and the predicates %p, %q and %s. Each row holds inputs and the expected output. The
// field regs lists the types of the registers that the code uses, in the order a, b, c, d. The last
// type is that of the output.
type conform struct {
	regs string
	code string
	rows [][]uint64
}

func s32(v int32) uint64            { return uint64(uint32(v)) }
func s64(v int64) uint64            { return uint64(v) }
func sf(v float64) uint64           { return u32(float32(v)) }
func df(v float64) uint64           { return u64(v) }
func hf(v float32) uint64           { return toF16(v) }
func bf(v float32) uint64           { return toBF16(v) }
func rows(v ...[]uint64) [][]uint64 { return v }
func row(v ...uint64) []uint64      { return v }

const (
	inf32, ninf32 = 0x7f800000, 0xff800000
	qnan32        = 0x7fffffff
	nz32          = 0x80000000
	inf64         = 0x7ff0000000000000
)

// entry returns the text of a kernel in which each thread loads its inputs, runs the code and
// stores %d.
func (c conform) entry(name string) string {
	types := strings.Fields(c.regs)
	nin := len(types) - 1
	var b strings.Builder
	b.WriteString(".visible .entry " + name + "(.param .u64 pin, .param .u64 pout)\n{\n.reg .pred %p, %q, %s;\n.reg .b64 %in, %out, %w<4>;\n.reg .b32 %tx, %t<8>;\n.reg .b16 %h<8>;\n.reg .f32 %f<8>;\n")
	names := []string{"%a", "%b", "%c"}[:nin]
	for i, n := range names {
		fmt.Fprintf(&b, ".reg .%s %s;\n", types[i], n)
	}
	fmt.Fprintf(&b, ".reg .%s %%d;\nld.param.u64 %%in, [pin];\nld.param.u64 %%out, [pout];\nmov.u32 %%tx, %%tid.x;\nmad.wide.u32 %%in, %%tx, %d, %%in;\nmad.wide.u32 %%out, %%tx, 8, %%out;\n", types[nin], 8*max(nin, 1))
	size := func(ty string) int { return typeByName[ty].bits() }
	for i, n := range names {
		fmt.Fprintf(&b, "ld.global.b%d %s, [%%in+%d];\n", size(types[i]), n, 8*i)
	}
	fmt.Fprintf(&b, "%s\nst.global.b%d [%%out], %%d;\nret;\n}\n", c.code, size(types[nin]))
	return b.String()
}

// run executes the code with one lane for each row, and returns %d of every row.
func (c conform) run(t *testing.T) []uint64 {
	t.Helper()
	nin := len(strings.Fields(c.regs)) - 1
	d := newDevice(t)
	var in []byte
	for _, r := range c.rows {
		if len(r) != nin+1 {
			t.Fatalf("%s: row %x has %d values, want %d", c.code, r, len(r), nin+1)
		}
		for _, v := range r[:nin] {
			in = binary.LittleEndian.AppendUint64(in, v)
		}
	}
	in = append(in, make([]byte, 8)...)
	pin, pout := d.alloc(len(in), "in"), d.alloc(8*len(c.rows), "out")
	d.put(pin, in)
	out, _ := d.mem.Bytes(pout, uint64(8*len(c.rows)))
	clear(out)
	if _, err := d.launch(header+c.entry("k"), 1, uint32(len(c.rows)), 0, pin, pout); err != nil {
		t.Errorf("%s: %v", c.code, err)
		return nil
	}
	res := make([]uint64, len(c.rows))
	for i := range res {
		res[i] = binary.LittleEndian.Uint64(out[8*i:])
	}
	return res
}

func TestConformance(t *testing.T) {
	for _, list := range [][]conform{integerCases, floatCases, convertCases, miscCases} {
		for _, c := range list {
			got := c.run(t)
			for i, g := range got {
				if want := c.rows[i][len(c.rows[i])-1]; g != want {
					t.Errorf("%s with %#x: got %#x, want %#x", c.code, c.rows[i][:len(c.rows[i])-1], g, want)
				}
			}
		}
	}
}

var integerCases = []conform{
	{"b32 b32 b32", "add.u32 %d, %a, %b;", rows(row(1, 2, 3), row(0xffffffff, 2, 1))},
	{"b32 b32 b32", "add.s32 %d, %a, %b;", rows(row(s32(-5), 2, s32(-3)))},
	{"b32 b32 b32", "add.sat.s32 %d, %a, %b;", rows(row(0x7fffffff, 1, 0x7fffffff), row(0x80000000, s32(-1), 0x80000000), row(3, 4, 7))},
	{"b32 b32 b32", "sub.sat.s32 %d, %a, %b;", rows(row(0x80000000, 1, 0x80000000), row(0x7fffffff, s32(-1), 0x7fffffff))},
	{"b16 b16 b16", "add.u16 %d, %a, %b;", rows(row(0xffff, 3, 2))},
	{"b16 b16 b16", "sub.u16 %d, %a, %b;", rows(row(1, 3, 0xfffe))},
	{"b64 b64 b64", "add.u64 %d, %a, %b;", rows(row(0xffffffffffffffff, 3, 2), row(1<<40, 1<<33, 1<<40+1<<33))},
	{"b64 b64 b64", "sub.s64 %d, %a, %b;", rows(row(1, 3, s64(-2)))},
	{"b32 b32 b32", "sub.u32 %d, %a, %b;", rows(row(1, 3, 0xfffffffe))},
	{"b32 b32", "add.u32 %d, %a, -1;", rows(row(1, 0), row(0, 0xffffffff))},
	{"b32 b32 b32", "add.cc.u32 %t0, %a, %b; addc.u32 %d, 0, 0;", rows(row(0xffffffff, 1, 1), row(1, 1, 0))},
	{"b32 b32 b32", "sub.cc.u32 %t0, %a, %b; subc.u32 %d, 0, 0;", rows(row(0, 1, 0xffffffff), row(1, 1, 0))},
	{"b64 b64 b64", "add.cc.u64 %w0, %a, %b; addc.u64 %d, 5, 0;", rows(row(1<<63, 1<<63, 6), row(1, 1, 5))},
	{"b32 b32 b32", "mul.lo.u32 %d, %a, %b;", rows(row(7, 6, 42), row(0x10001, 0x10001, 0x20001))},
	{"b32 b32 b32", "mul.lo.s32 %d, %a, %b;", rows(row(s32(-7), 6, s32(-42)))},
	{"b32 b32 b32", "mul.hi.u32 %d, %a, %b;", rows(row(0xffffffff, 0xffffffff, 0xfffffffe), row(1<<31, 4, 2))},
	{"b32 b32 b32", "mul.hi.s32 %d, %a, %b;", rows(row(s32(-1), s32(-1), 0), row(s32(-2), 3, s32(-1)), row(1<<30, 8, 2))},
	{"b64 b64 b64", "mul.hi.u64 %d, %a, %b;", rows(row(1<<63, 6, 3), row(^uint64(0), ^uint64(0), ^uint64(0)-1))},
	{"b64 b64 b64", "mul.hi.s64 %d, %a, %b;", rows(row(s64(-1), s64(-1), 0), row(s64(-2), 3, s64(-1)), row(1<<62, 8, 2))},
	{"b64 b64 b64", "mul.lo.u64 %d, %a, %b;", rows(row(1<<33, 3, 3<<33))},
	{"b32 b32 b64", "mul.wide.u32 %d, %a, %b;", rows(row(0xffffffff, 2, 0x1fffffffe))},
	{"b32 b32 b64", "mul.wide.s32 %d, %a, %b;", rows(row(s32(-1), 2, s64(-2)))},
	{"b16 b16 b32", "mul.wide.u16 %d, %a, %b;", rows(row(0xffff, 0xffff, 0xfffe0001))},
	{"b16 b16 b32", "mul.wide.s16 %d, %a, %b;", rows(row(0xffff, 2, s32(-2)))},
	{"b16 b16 b16", "mul.lo.u16 %d, %a, %b;", rows(row(0x101, 0x101, 0x201))},
	{"b16 b16 b16", "mul.hi.u16 %d, %a, %b;", rows(row(0xffff, 0xffff, 0xfffe))},
	{"b32 b32 b32 b32", "mad.lo.u32 %d, %a, %b, %c;", rows(row(3, 4, 5, 17))},
	{"b32 b32 b32 b32", "mad.hi.u32 %d, %a, %b, %c;", rows(row(1<<31, 4, 5, 7))},
	{"b32 b32 b64 b64", "mad.wide.u32 %d, %a, %b, %c;", rows(row(0xffffffff, 0xffffffff, 1, 0xfffffffe00000002))},
	{"b32 b32 b64 b64", "mad.wide.s32 %d, %a, %b, %c;", rows(row(s32(-3), 5, 1, s64(-14)))},
	{"b64 b64 b64 b64", "mad.lo.u64 %d, %a, %b, %c;", rows(row(1<<32, 3, 7, 3<<32+7))},
	{"b32 b32 b32", "mul24.lo.u32 %d, %a, %b;", rows(row(0xff000003, 4, 12))},
	{"b32 b32 b32 b32", "mad24.lo.s32 %d, %a, %b, %c;", rows(row(0xffffff, 4, 10, 6))},
	{"b32 b32 b32", "div.u32 %d, %a, %b;", rows(row(43, 5, 8), row(0xfffffffe, 2, 0x7fffffff))},
	{"b32 b32 b32", "div.s32 %d, %a, %b;", rows(row(s32(-43), 5, s32(-8)), row(0x80000000, s32(-1), 0x80000000))},
	{"b32 b32 b32", "rem.s32 %d, %a, %b;", rows(row(s32(-43), 5, s32(-3)), row(43, s32(-5), 3))},
	{"b64 b64 b64", "rem.u64 %d, %a, %b;", rows(row(1<<40+5, 1<<40, 5))},
	{"b16 b16 b16", "div.s16 %d, %a, %b;", rows(row(0xfff8, 3, 0xfffe))},
	{"b32 b32", "abs.s32 %d, %a;", rows(row(s32(-5), 5), row(5, 5), row(0x80000000, 0x80000000))},
	{"b32 b32", "neg.s32 %d, %a;", rows(row(s32(-5), 5), row(5, s32(-5)))},
	{"b64 b64", "neg.s64 %d, %a;", rows(row(5, s64(-5)))},
	{"b16 b16", "neg.s16 %d, %a;", rows(row(5, 0xfffb))},
	{"b32 b32 b32", "min.s32 %d, %a, %b;", rows(row(s32(-5), 5, s32(-5)))},
	{"b32 b32 b32", "min.u32 %d, %a, %b;", rows(row(s32(-5), 5, 5))},
	{"b64 b64 b64", "max.s64 %d, %a, %b;", rows(row(s64(-5), 5, 5))},
	{"b16 b16 b16", "max.u16 %d, %a, %b;", rows(row(0xfff0, 5, 0xfff0))},
	{"b32 b32 b32 b32", "sad.s32 %d, %a, %b, %c;", rows(row(s32(-5), 5, 1, 11))},
	{"b32 b32 b32", "max.relu.s32 %d, %a, %b;", rows(row(s32(-5), s32(-7), 0), row(s32(-5), 7, 7))},
	{"b32 b32 b32", "min.relu.s32 %d, %a, %b;", rows(row(5, s32(-7), 0), row(5, 7, 5))},
	{"b32 b32 b32", "and.b32 %d, %a, %b;", rows(row(0xff00ff, 0xffff00, 0xff0000))},
	{"b64 b64 b64", "or.b64 %d, %a, %b;", rows(row(1<<63, 1, 1<<63|1))},
	{"b16 b16 b16", "xor.b16 %d, %a, %b;", rows(row(0xff, 0xf0f, 0xff0))},
	{"b32 b32", "not.b32 %d, %a;", rows(row(0xff, 0xffffff00))},
	{"b16 b16", "not.b16 %d, %a;", rows(row(0xff, 0xff00))},
	{"b32 b32", "cnot.b32 %d, %a;", rows(row(0, 1), row(7, 0))},
	{"b32 b32 b32", "shl.b32 %d, %a, %b;", rows(row(1, 31, 1<<31), row(1, 32, 0), row(3, 1, 6), row(1, 0xffffffff, 0))},
	{"b64 b32 b64", "shl.b64 %d, %a, %b;", rows(row(1, 40, 1<<40), row(1, 64, 0))},
	{"b32 b32 b32", "shr.u32 %d, %a, %b;", rows(row(1<<31, 31, 1), row(1<<31, 32, 0))},
	{"b32 b32 b32", "shr.s32 %d, %a, %b;", rows(row(1<<31, 31, 0xffffffff), row(1<<31, 77, 0xffffffff), row(64, 3, 8))},
	{"b64 b32 b64", "shr.s64 %d, %a, %b;", rows(row(s64(-16), 2, s64(-4)), row(s64(-16), 64, s64(-1)))},
	{"b16 b32 b16", "shr.s16 %d, %a, %b;", rows(row(0x8000, 3, 0xf000))},
	{"b32 b32 b32 b32", "shf.l.wrap.b32 %d, %a, %b, %c;", rows(row(0x80000000, 1, 1, 3), row(5, 7, 32, 7))},
	{"b32 b32 b32 b32", "shf.r.wrap.b32 %d, %a, %b, %c;", rows(row(2, 1, 1, 0x80000001), row(5, 7, 33, 0x80000002))},
	{"b32 b32 b32 b32", "shf.l.clamp.b32 %d, %a, %b, %c;", rows(row(5, 7, 40, 5))},
	{"b32 b32 b32 b32", "shf.r.clamp.b32 %d, %a, %b, %c;", rows(row(5, 7, 40, 7))},
	{"b32 b32 b32 b32", "lop3.b32 %d, %a, %b, %c, 0x96;", rows(row(0b1100, 0b1010, 0b0001, 0b0111))},
	{"b32 b32 b32 b32", "lop3.b32 %d, %a, %b, %c, 0xe8;", rows(row(0b1100, 0b1010, 0b0111, 0b1110))},
	{"b32 b32 b32 b32", "lop3.b32 %d, %a, %b, %c, 0xca;", rows(row(0xff00, 0x1234, 0x5678, 0x1278))},
	{"b32 b32 b32 b32", "prmt.b32 %d, %a, %b, %c;", rows(row(0x33221100, 0x77665544, 0x7531, 0x77553311), row(0x33221100, 0x77e65544, 0xe8fc, 0xff000000))},
	{"b32 b32 b32 b32", "prmt.b32.f4e %d, %a, %b, %c;", rows(row(0x33221100, 0x77665544, 1, 0x44332211))},
	{"b32 b32 b32 b32", "prmt.b32.b4e %d, %a, %b, %c;", rows(row(0x33221100, 0x77665544, 1, 0x66770011))},
	{"b32 b32 b32 b32", "prmt.b32.rc8 %d, %a, %b, %c;", rows(row(0x33221100, 0, 2, 0x22222222))},
	{"b32 b32 b32 b32", "prmt.b32.rc16 %d, %a, %b, %c;", rows(row(0x33221100, 0, 1, 0x33223322))},
	{"b32 b32 b32 b32", "prmt.b32.ecl %d, %a, %b, %c;", rows(row(0x33221100, 0, 2, 0x33222222))},
	{"b32 b32 b32 b32", "prmt.b32.ecr %d, %a, %b, %c;", rows(row(0x33221100, 0, 2, 0x22221100))},
	{"b32 b32 b32 b32", "bfe.u32 %d, %a, %b, %c;", rows(row(0xabcd1234, 8, 8, 0x12), row(0xf0000000, 28, 8, 0xf), row(5, 0, 0, 0), row(5, 40, 4, 0))},
	{"b32 b32 b32 b32", "bfe.s32 %d, %a, %b, %c;", rows(row(0x00000f00, 8, 4, 0xffffffff), row(0x00000700, 8, 4, 7), row(0x80000000, 40, 4, 0xffffffff))},
	{"b64 b32 b32 b64", "bfe.u64 %d, %a, %b, %c;", rows(row(0xab<<40, 40, 8, 0xab))},
	{"b32 b32 b32", "bfi.b32 %d, %a, %b, 8, 8;", rows(row(0x1ff, 0, 0xff00), row(0, 0xffffffff, 0xffff00ff))},
	{"b64 b64 b64", "bfi.b64 %d, %a, %b, 60, 8;", rows(row(0xff, 0, 0xf<<60))},
	{"b32 b32", "bfind.u32 %d, %a;", rows(row(0x10, 4), row(0, 0xffffffff))},
	{"b32 b32", "bfind.s32 %d, %a;", rows(row(s32(-17), 4), row(s32(-1), 0xffffffff))},
	{"b64 b32", "bfind.shiftamt.u64 %d, %a;", rows(row(1, 63))},
	{"b32 b32", "brev.b32 %d, %a;", rows(row(1, 1<<31), row(0xc0000000, 3))},
	{"b64 b64", "brev.b64 %d, %a;", rows(row(1, 1<<63))},
	{"b32 b32", "clz.b32 %d, %a;", rows(row(1, 31), row(0, 32))},
	{"b64 b32", "clz.b64 %d, %a;", rows(row(1, 63), row(0, 64))},
	{"b64 b32", "popc.b64 %d, %a;", rows(row(0xf00000000000000f, 8))},
	{"b32 b32 b32 b32", "dp4a.s32.s32 %d, %a, %b, %c;", rows(row(0xff020304, 0x01010101, 10, 18))},
	{"b32 b32 b32 b32", "dp4a.u32.u32 %d, %a, %b, %c;", rows(row(0xff020304, 0x01010101, 10, 274))},
}

var floatCases = []conform{
	{"f32 f32 f32", "add.rn.f32 %d, %a, %b;", rows(row(sf(1), sf(2), sf(3)), row(inf32, ninf32, qnan32), row(1, 1, 2), row(nz32, 0, 0))},
	{"f32 f32 f32", "add.ftz.f32 %d, %a, %b;", rows(row(1, 1, 0), row(0x80000001, 0x80000000, nz32), row(sf(1), 1, sf(1)))},
	{"f32 f32 f32", "add.sat.f32 %d, %a, %b;", rows(row(sf(1), sf(2), sf(1)), row(sf(-1), sf(.5), 0), row(inf32, ninf32, 0), row(sf(.25), sf(.5), sf(.75)))},
	{"f32 f32 f32", "sub.f32 %d, %a, %b;", rows(row(sf(1), sf(3), sf(-2)))},
	{"f32 f32 f32", "mul.rn.f32 %d, %a, %b;", rows(row(sf(1.5), sf(-2), sf(-3)), row(0, inf32, qnan32), row(0x00800000, sf(.5), 0x00400000))},
	{"f32 f32 f32", "mul.ftz.f32 %d, %a, %b;", rows(row(0x00800000, sf(.5), 0))},
	{"f32 f32 f32 f32", "fma.rn.f32 %d, %a, %b, %c;", rows(row(sf(2), sf(3), sf(4), sf(10)),
		// (1+2^-12)(1+2^-12) = 1 + 2^-11 + 2^-24 lies exactly between two float32 values, so the
		// addend c decides the rounding. A sum in float64, rounded again to float32, would be
		// wrong.
		row(0x3f800800, 0x3f800800, sf(0x1p-60), 0x3f801001), row(0x3f800800, 0x3f800800, sf(-0x1p-60), 0x3f801000),
		// A similar case with subnormal values.
		row(sf(0x1p-75), sf(0x1p-75), 0, 0), row(sf(0x1p-75), sf(0x1p-75), 1, 2), row(inf32, 0, sf(1), qnan32))},
	{"f32 f32 f32", "add.rz.f32 %d, %a, %b;", rows(row(sf(1), sf(-0x1p-30), 0x3f7fffff), row(sf(1), sf(0x1p-24), sf(1)), row(sf(0x1p127), sf(0x1p127), 0x7f7fffff))},
	{"f32 f32 f32", "add.rp.f32 %d, %a, %b;", rows(row(sf(1), sf(0x1p-60), 0x3f800001), row(sf(1), sf(-1), 0), row(sf(-1), sf(-0x1p-60), sf(-1)))},
	{"f32 f32 f32", "sub.rm.f32 %d, %a, %b;", rows(row(sf(1), sf(1), nz32), row(0, nz32, 0), row(nz32, 0, nz32), row(0, 0, nz32), row(sf(1), sf(0x1p-60), 0x3f7fffff))},
	{"f32 f32 f32", "mul.rp.f32 %d, %a, %b;", rows(row(0x3f800001, 0x3f800001, 0x3f800003), row(1, 1, 1), row(1, 0x80000001, nz32))},
	{"f32 f32 f32 f32", "fma.rz.f32 %d, %a, %b, %c;", rows(row(0x3f800800, 0x3f800800, sf(0x1p-60), 0x3f801000), row(sf(2), sf(3), sf(-6), 0))},
	{"f32 f32 f32 f32", "mad.rn.f32 %d, %a, %b, %c;", rows(row(sf(2), sf(3), sf(4), sf(10)))},
	{"f32 f32 f32", "div.rn.f32 %d, %a, %b;", rows(row(sf(1), sf(3), 0x3eaaaaab), row(sf(1), 0, inf32), row(0, 0, qnan32))},
	{"f32 f32 f32", "div.rz.f32 %d, %a, %b;", rows(row(sf(1), sf(3), 0x3eaaaaaa), row(sf(-1), sf(3), 0xbeaaaaaa), row(sf(2), sf(3), 0x3f2aaaaa), row(sf(6), sf(3), sf(2)))},
	{"f32 f32 f32", "div.rp.f32 %d, %a, %b;", rows(row(sf(1), sf(3), 0x3eaaaaab), row(sf(-1), sf(3), 0xbeaaaaaa), row(sf(1), sf(-3), 0xbeaaaaaa), row(sf(-2), sf(-3), 0x3f2aaaab))},
	{"f32 f32 f32", "div.rm.f32 %d, %a, %b;", rows(row(sf(1), sf(3), 0x3eaaaaaa), row(sf(-1), sf(3), 0xbeaaaaab), row(sf(1), 0, inf32))},
	{"f32 f32", "sqrt.rn.f32 %d, %a;", rows(row(sf(2), 0x3fb504f3), row(sf(-1), qnan32), row(nz32, nz32), row(1, 0x1a3504f3))},
	{"f32 f32", "rcp.rn.f32 %d, %a;", rows(row(sf(3), 0x3eaaaaab), row(nz32, ninf32))},
	{"f32 f32", "abs.f32 %d, %a;", rows(row(sf(-3), sf(3)), row(nz32, 0))},
	{"f32 f32", "neg.f32 %d, %a;", rows(row(sf(-3), sf(3)), row(0, nz32))},
	{"f32 f32 f32", "min.f32 %d, %a, %b;", rows(row(sf(1), sf(2), sf(1)), row(qnan32, sf(2), sf(2)), row(sf(1), qnan32, sf(1)), row(0, nz32, nz32), row(nz32, 0, nz32), row(0x7fc00000, 0x7fc00000, qnan32))},
	{"f32 f32 f32", "max.f32 %d, %a, %b;", rows(row(sf(1), sf(2), sf(2)), row(qnan32, sf(2), sf(2)), row(0, nz32, 0), row(nz32, 0, 0))},
	{"f32 f32 f32", "max.NaN.f32 %d, %a, %b;", rows(row(sf(1), 0x7fc00000, qnan32), row(sf(1), sf(2), sf(2)))},
	{"f32 f32 f32", "min.NaN.f32 %d, %a, %b;", rows(row(0x7fc00000, sf(1), qnan32))},
	{"f64 f64 f64", "add.rn.f64 %d, %a, %b;", rows(row(df(1), df(0x1p-53), df(1)), row(df(1.5), df(2), df(3.5)))},
	{"f64 f64 f64", "mul.rn.f64 %d, %a, %b;", rows(row(df(1.5), df(2), df(3)))},
	{"f64 f64 f64 f64", "fma.rn.f64 %d, %a, %b, %c;", rows(row(df(1+0x1p-30), df(1+0x1p-30), df(-1-0x1p-29), df(0x1p-60)))},
	{"f64 f64 f64", "div.rn.f64 %d, %a, %b;", rows(row(df(1), df(4), df(.25)))},
	{"f64 f64", "sqrt.rn.f64 %d, %a;", rows(row(df(9), df(3)))},
	{"f64 f64", "neg.f64 %d, %a;", rows(row(df(9), df(-9)))},
	{"f64 f64 f64", "max.f64 %d, %a, %b;", rows(row(df(9), df(3), df(9)))},
	{"b16 b16 b16", "add.f16 %d, %a, %b;", rows(row(hf(1), hf(2), hf(3)), row(0x7bff, 0x7bff, 0x7c00), row(1, 1, 2))},
	{"b16 b16 b16", "mul.rn.f16 %d, %a, %b;", rows(row(hf(1.5), hf(-2), hf(-3)))},
	{"b32 b32 b32", "sub.f16x2 %d, %a, %b;", rows(row(hf(3)<<16|hf(1), hf(1)<<16|hf(4), hf(2)<<16|hf(-3)))},
	{"b32 b32 b32", "add.bf16x2 %d, %a, %b;", rows(row(bf(3)<<16|bf(1), bf(1)<<16|bf(4), bf(4)<<16|bf(5)))},
	{"b16 b16 b16 b16", "fma.rn.f16 %d, %a, %b, %c;", rows(row(hf(2), hf(3), hf(1), hf(7)), row(0x3c10, 0x3c10, 0x8001, 0x3c20))},
	{"b16 b16 b16 b16", "fma.rn.relu.f16 %d, %a, %b, %c;", rows(row(hf(2), hf(-3), hf(1), 0), row(hf(2), hf(3), hf(1), hf(7)))},
	{"b32 b32 b32 b32", "fma.rn.bf16x2 %d, %a, %b, %c;", rows(row(bf(2)<<16|bf(1), bf(3)<<16|bf(1), bf(1)<<16|bf(1), bf(7)<<16|bf(2)))},
	{"b32 b32 b32", "max.bf16x2 %d, %a, %b;", rows(row(bf(3)<<16|bf(1), bf(1)<<16|bf(4), bf(3)<<16|bf(4)))},
	{"b32 b32 b32", "max.NaN.bf16x2 %d, %a, %b;", rows(row(0x7fc0<<16|bf(1), bf(1)<<16|bf(4), 0x7fff<<16|bf(4)))},
	{"b16 b16", "neg.bf16 %d, %a;", rows(row(bf(3), bf(-3)))},
	{"b32 b32", "abs.f16x2 %d, %a;", rows(row(hf(-3)<<16|hf(2), hf(3)<<16|hf(2)))},
	{"f32 f32", "ex2.approx.f32 %d, %a;", rows(row(sf(3), sf(8)), row(sf(-149), 1), row(ninf32, 0), row(inf32, inf32), row(0, sf(1)))},
	{"f32 f32", "ex2.approx.ftz.f32 %d, %a;", rows(row(sf(-149), 0))},
	{"f32 f32", "lg2.approx.f32 %d, %a;", rows(row(sf(8), sf(3)), row(0, ninf32), row(sf(-1), qnan32), row(1, sf(-149)))},
	{"f32 f32", "rcp.approx.f32 %d, %a;", rows(row(sf(4), sf(.25)), row(0, inf32))},
	{"f32 f32", "rsqrt.approx.f32 %d, %a;", rows(row(sf(4), sf(.5)), row(0, inf32), row(inf32, 0))},
	{"f32 f32", "sqrt.approx.f32 %d, %a;", rows(row(sf(4), sf(2)))},
	{"f32 f32", "sin.approx.f32 %d, %a;", rows(row(0, 0), row(nz32, nz32), row(inf32, qnan32))},
	{"f32 f32", "cos.approx.f32 %d, %a;", rows(row(0, sf(1)))},
	{"f32 f32", "tanh.approx.f32 %d, %a;", rows(row(0, 0), row(sf(100), sf(1)), row(sf(-100), sf(-1)))},
	{"f32 f32 f32", "div.approx.f32 %d, %a, %b;", rows(row(sf(6), sf(2), sf(3)), row(sf(1), sf(0x1.8p126), 0))},
	{"f32 f32 f32", "div.full.f32 %d, %a, %b;", rows(row(sf(6), sf(2), sf(3)))},
	{"f32 f32 f32", "copysign.f32 %d, %a, %b;", rows(row(sf(-1), sf(3), sf(-3)))},
	{"f32 b32", "testp.subnormal.f32 %p, %a; selp.b32 %d, 1, 0, %p;", rows(row(1, 1), row(0, 0), row(sf(1), 0), row(qnan32, 0))},
	{"f32 b32", "testp.notanumber.f32 %p, %a; selp.b32 %d, 1, 0, %p;", rows(row(1, 0), row(qnan32, 1))},
	{"f32 b32", "testp.finite.f32 %p, %a; selp.b32 %d, 1, 0, %p;", rows(row(1, 1), row(qnan32, 0), row(inf32, 0))},
}

// cmpCase returns tests of a comparison for the operands (1,2), (2,2), (3,2) and (NaN,2), with the
// expected results.
func cmpCase(op, t string, lt, eq, gt, nan uint64) conform {
	one, two, three := sf(1), sf(2), sf(3)
	return conform{"f32 f32 b32", "setp." + op + "." + t + " %p, %a, %b; selp.b32 %d, 1, 0, %p;", rows(row(one, two, lt), row(two, two, eq), row(three, two, gt), row(qnan32, two, nan))}
}

var miscCases = []conform{
	cmpCase("eq", "f32", 0, 1, 0, 0), cmpCase("ne", "f32", 1, 0, 1, 0), cmpCase("lt", "f32", 1, 0, 0, 0), cmpCase("le", "f32", 1, 1, 0, 0),
	cmpCase("gt", "f32", 0, 0, 1, 0), cmpCase("ge", "f32", 0, 1, 1, 0), cmpCase("equ", "f32", 0, 1, 0, 1), cmpCase("neu", "f32", 1, 0, 1, 1),
	cmpCase("ltu", "f32", 1, 0, 0, 1), cmpCase("leu", "f32", 1, 1, 0, 1), cmpCase("gtu", "f32", 0, 0, 1, 1), cmpCase("geu", "f32", 0, 1, 1, 1),
	cmpCase("num", "f32", 1, 1, 1, 0), cmpCase("nan", "f32", 0, 0, 0, 1),
	{"b32 b32 b32", "setp.lt.s32 %p, %a, %b; selp.b32 %d, 1, 0, %p;", rows(row(s32(-1), 1, 1), row(1, s32(-1), 0))},
	{"b32 b32 b32", "setp.lo.u32 %p, %a, %b; selp.b32 %d, 1, 0, %p;", rows(row(s32(-1), 1, 0), row(1, s32(-1), 1))},
	{"b64 b64 b32", "setp.ge.s64 %p, %a, %b; selp.b32 %d, 1, 0, %p;", rows(row(s64(-1), 1, 0), row(1, 1, 1))},
	{"b16 b16 b32", "setp.gt.s16 %p, %a, %b; selp.b32 %d, 1, 0, %p;", rows(row(0xffff, 1, 0), row(2, 1, 1))},
	{"b32 b32 b32", "setp.eq.b32 %p|%q, %a, %b; selp.b32 %t0, 1, 0, %p; selp.b32 %t1, 2, 0, %q; or.b32 %d, %t0, %t1;", rows(row(5, 5, 1), row(5, 6, 2))},
	{"b32 b32 b32", "setp.ne.u32 %s, %b, 0; setp.lt.and.u32 %p|%q, %a, 10, !%s; selp.b32 %t0, 1, 0, %p; selp.b32 %t1, 2, 0, %q; or.b32 %d, %t0, %t1;", rows(row(5, 0, 1), row(5, 1, 0), row(15, 0, 2), row(15, 1, 0))},
	{"b32 b32 b32", "setp.ne.u32 %s, %b, 0; setp.lt.xor.u32 %p, %a, 10, %s; selp.b32 %d, 1, 0, %p;", rows(row(5, 0, 1), row(5, 1, 0), row(15, 1, 1))},
	{"f32 f32 b32", "set.lt.u32.f32 %d, %a, %b;", rows(row(sf(1), sf(2), 0xffffffff), row(sf(3), sf(2), 0))},
	{"b32 b32 f32", "set.eq.f32.s32 %d, %a, %b;", rows(row(3, 3, sf(1)), row(3, 2, 0))},
	{"b32 b32 b32", "setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0; and.pred %s, %p, %q; not.pred %s, %s; selp.b32 %d, 1, 0, %s;", rows(row(1, 1, 0), row(1, 0, 1))},
	{"b32 b32 b32", "setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0; and.pred %s, %p, !%q; selp.b32 %d, 0, 1, !%s;", rows(row(1, 1, 0), row(1, 0, 1), row(0, 0, 0))},
	{"b64 b32", ".shared .b32 sv; mov.u64 %w0, sv; cvta.shared.u64 %w0, %w0; isspacep.shared %p, %w0; isspacep.global %q, %in; and.pred %p, %p, %q; isspacep.shared %s, %in; and.pred %p, %p, !%s; selp.b32 %d, 1, 0, %p;", rows(row(0, 1))},
	{"b32 b32 b32 b32", "slct.b32.s32 %d, %a, %b, %c;", rows(row(1, 2, 0, 1), row(1, 2, s32(-1), 2))},
	{"b32 b32 f32 b32", "slct.u32.f32 %d, %a, %b, %c;", rows(row(1, 2, sf(1), 1), row(1, 2, qnan32, 2), row(1, 2, nz32, 1))},
	{"b16 b16 b32", "mov.b32 %d, {%a, %b};", rows(row(0x1234, 0x5678, 0x56781234))},
	{"b32 b32 b64", "mov.b64 %d, {%a, %b};", rows(row(1, 2, 2<<32|1))},
	{"b64 b32", "mov.b64 {_, %d}, %a;", rows(row(2<<32|1, 2))},
	{"b64 b16", "mov.b64 {%h0, %h1, %d, %h2}, %a;", rows(row(0x4444333322221111, 0x3333))},
	{"f32", "mov.f32 %d, 0f40490FDB;", rows(row(0x40490fdb))},
	{"f32", "mov.f32 %d, 1.5;", rows(row(sf(1.5)))},
	{"f32", "mov.f32 %d, -2.5e-1;", rows(row(sf(-.25)))},
	{"f64", "mov.f64 %d, 0d4000000000000000;", rows(row(df(2)))},
	{"b32", "mov.u32 %d, %laneid;", rows(row(0), row(1), row(2))},
	{"b32", "mov.u32 %d, %lanemask_lt;", rows(row(0), row(1), row(3))},
	{"b32", "mov.u32 %d, %lanemask_ge;", rows(row(0xffffffff), row(0xfffffffe))},
	{"b32", "mov.u32 %d, %lanemask_gt;", rows(row(0xfffffffe), row(0xfffffffc))},
	{"b32", "mov.u32 %d, %lanemask_le;", rows(row(1), row(3))},
	{"b32", "mov.u32 %d, %lanemask_eq;", rows(row(1), row(2))},
	{"b32", "activemask.b32 %d;", rows(row(3), row(3))},
	{"b32 b32", "{ .reg .b32 %a1; add.u32 %a1, %a, 1; mov.b32 %d, %a1; }", rows(row(1, 2))},
	{"b32 b32", "mov.u32 %d, 0; L: add.u32 %d, %d, %a; sub.u32 %a, %a, 1; setp.ne.u32 %p, %a, 0; @%p bra L;", rows(row(1, 1), row(4, 10), row(3, 6))},
	{"b32 b32", "setp.gt.u32 %p, %a, 5; @!%p bra E; mov.u32 %d, 1; bra X; E: mov.u32 %d, 2; X:", rows(row(1, 2), row(9, 1), row(5, 2))},
	{"b32 b32", "mov.u32 %d, 9; st.global.u32 [%out], 7; setp.gt.u32 %p, %a, 5; @%p ret;", rows(row(1, 9), row(9, 7), row(6, 7))},
	{"b32 b32", ".local .align 8 .b8 buf[16]; mov.u64 %w0, buf; st.local.u32 [%w0+4], %a; ld.local.u32 %d, [buf+4];", rows(row(1, 1), row(9, 9))},
	{"b32 b32", ".local .b32 buf[4]; mov.u64 %w0, buf; cvta.local.u64 %w0, %w0; st.u32 [%w0+8], %a; ld.u32 %d, [%w0+8];", rows(row(1, 1), row(9, 9))},
	{"b32 b32", ".shared .b32 buf[32]; mov.u32 %t0, buf; mad.lo.u32 %t0, %tx, 4, %t0; st.shared.u32 [%t0], %a; ld.shared.u32 %d, [%t0];", rows(row(1, 1), row(9, 9))},
	{"b32 b32", ".shared .b32 buf[32]; mov.u64 %w0, buf; cvta.shared.u64 %w0, %w0; mad.wide.u32 %w0, %tx, 4, %w0; st.u32 [%w0], %a; ld.u32 %d, [%w0];", rows(row(1, 1), row(9, 9))},
	{"b32 b32", "ld.global.s8 %d, [%in];", rows(row(0x80, 0xffffff80))},
	{"b32 b32", "ld.global.u8 %d, [%in+1];", rows(row(0x8000, 0x80))},
	{"b32 b64", "ld.global.s16 %d, [%in];", rows(row(0xfffe, s64(-2)))},
	{"b64 b32", "{ .reg .b32 %v<2>; ld.global.v2.b32 {%v0, %v1}, [%in]; sub.u32 %d, %v1, %v0; }", rows(row(9<<32|4, 5))},
	{"b64 b32", "{ .reg .b16 %v<4>; ld.global.v4.u8 {%v0, _, %v2, %v3}, [%in]; cvt.u32.u16 %d, %v2; }", rows(row(0x44332211, 0x33))},
	{"b32 b32", "st.global.b32 [%out], 0; st.global.u8 [%out+1], %a; ld.global.b32 %d, [%out];", rows(row(0x12ab, 0xab00))},
	{"b32 b32", "st.global.b32 [%out], 100; atom.global.add.u32 %t0, [%out], %a; ld.global.u32 %t1, [%out]; sub.u32 %d, %t1, %t0;", rows(row(7, 7), row(8, 8))},
	{"b32 b32", "st.global.b32 [%out], 100; atom.global.max.s32 %t0, [%out], %a; ld.global.u32 %d, [%out];", rows(row(7, 100), row(s32(-1), 100), row(101, 101))},
	{"b32 b32", "st.global.b32 [%out], 100; atom.global.min.u32 %t0, [%out], %a; ld.global.u32 %d, [%out];", rows(row(7, 7), row(s32(-1), 100))},
	{"b32 b32", "st.global.b32 [%out], 5; atom.global.inc.u32 %t0, [%out], %a; ld.global.u32 %d, [%out];", rows(row(7, 6), row(5, 0))},
	{"b32 b32", "st.global.b32 [%out], 5; atom.global.dec.u32 %t0, [%out], %a; ld.global.u32 %d, [%out];", rows(row(7, 4), row(3, 3))},
	{"b32 b32", "st.global.b32 [%out], 5; atom.global.cas.b32 %t0, [%out], %a, 9; ld.global.u32 %d, [%out];", rows(row(5, 9), row(3, 5))},
	{"b32 b32", "st.global.b32 [%out], 5; atom.global.exch.b32 %d, [%out], %a;", rows(row(5, 5), row(3, 5))},
	{"f32 f32", "st.global.f32 [%out], 0f3F800000; red.global.add.f32 [%out], %a; ld.global.f32 %d, [%out];", rows(row(sf(5), sf(6)))},
	{"f64 f64", "st.global.f64 [%out], 0d3FF0000000000000; red.relaxed.gpu.global.add.f64 [%out], %a; ld.global.f64 %d, [%out];", rows(row(df(5), df(6)))},
	{"f32 f32", "{ .reg .f32 %v<2>; .reg .b64 %v1x, %v2x; mul.wide.u32 %v2x, %tx, 8; sub.u64 %v1x, %out, %v2x; st.global.f32 [%v1x], 0f00000000; st.global.f32 [%v1x+4], 0f00000000; red.global.add.v2.f32 [%v1x], {%a, 0f3F800000}; ld.global.f32 %v0, [%v1x]; ld.global.f32 %v1, [%v1x+4]; st.global.b32 [%v1x+4], 0; add.f32 %d, %v0, %v1; }", rows(row(sf(5), sf(6)))},
	{"b32 b32", "st.global.b32 [%out], 0x3c003c00; red.global.add.noftz.f16x2 [%out], %a; ld.global.b32 %d, [%out];", rows(row(hf(2)<<16|hf(1), hf(3)<<16|hf(2)))},
	{"b32 b32", "st.global.b32 [%out], 0x3f803f80; atom.global.add.noftz.bf16x2 %t0, [%out], %a; ld.global.b32 %d, [%out];", rows(row(bf(2)<<16|bf(1), bf(3)<<16|bf(2)))},
	{"b16 b32", "st.global.b32 [%out], 0x00050006; mov.b16 %h0, 5; atom.global.cas.b16 %h1, [%out+2], %h0, %a; ld.global.b32 %d, [%out];", rows(row(9, 0x00090006))},
	{"b64 b64", "st.global.b64 [%out], 5; atom.add.u64 %w0, [%out], %a; ld.global.b64 %d, [%out];", rows(row(1<<40, 1<<40+5))},
	{"b32 b32", "st.global.b32 [%out], 0xf0; red.global.or.b32 [%out], %a; red.global.and.b32 [%out], 0x3f; red.global.xor.b32 [%out], 1; ld.global.b32 %d, [%out];", rows(row(0xf, 0x3e))},
}

var convertCases = []conform{
	{"b32 b64", "cvt.u64.u32 %d, %a;", rows(row(0xffffffff, 0xffffffff))},
	{"b32 b64", "cvt.s64.s32 %d, %a;", rows(row(0xffffffff, s64(-1)))},
	{"b64 b32", "cvt.u32.u64 %d, %a;", rows(row(1<<40|5, 5))},
	{"b32 b32", "cvt.s32.s8 %d, %a;", rows(row(0x1ff, s32(-1)))},
	{"b32 b32", "cvt.u32.u16 %d, %a;", rows(row(0xffff1234, 0x1234))},
	{"b32 b16", "cvt.sat.u16.s32 %d, %a;", rows(row(s32(-5), 0), row(70000, 0xffff), row(5, 5))},
	{"b32 b16", "cvt.sat.s8.s32 %d, %a;", rows(row(s32(-500), 0xff80), row(500, 0x7f))},
	{"b32 f32", "cvt.rn.f32.s32 %d, %a;", rows(row(s32(-3), sf(-3)), row(0x1000001, sf(0x1000000)), row(0x1000003, sf(0x1000004)))},
	{"b32 f32", "cvt.rn.f32.u32 %d, %a;", rows(row(0xffffffff, sf(0x1p32)))},
	{"b32 f32", "cvt.rz.f32.u32 %d, %a;", rows(row(0xffffffff, 0x4f7fffff))},
	{"b32 f32", "cvt.rp.f32.s32 %d, %a;", rows(row(0x1000001, sf(0x1000002)), row(s32(-0x1000001), sf(-0x1000000)))},
	{"b32 f32", "cvt.rm.f32.s32 %d, %a;", rows(row(0x1000001, sf(0x1000000)), row(s32(-0x1000001), sf(-0x1000002)))},
	{"b64 f32", "cvt.rn.f32.u64 %d, %a;", rows(row(0xffffffffffffffff, sf(0x1p64)), row(1<<40+1<<16, sf(1<<40)), row(1<<40+1<<16+1, 0x53800001))},
	{"b64 f64", "cvt.rn.f64.s64 %d, %a;", rows(row(s64(-5), df(-5)), row(1<<53+1, df(1<<53)))},
	{"b32 f64", "cvt.rn.f64.u32 %d, %a;", rows(row(0xffffffff, df(0xffffffff)))},
	{"b16 b16", "cvt.rn.f16.u16 %d, %a;", rows(row(5, hf(5)), row(65535, 0x7c00))},
	{"f32 b32", "cvt.rni.s32.f32 %d, %a;", rows(row(sf(2.5), 2), row(sf(-3.5), s32(-4)), row(qnan32, 0), row(inf32, 0x7fffffff), row(sf(-1e20), 0x80000000))},
	{"f32 b32", "cvt.rzi.s32.f32 %d, %a;", rows(row(sf(2.9), 2), row(sf(-3.9), s32(-3)))},
	{"f32 b32", "cvt.rmi.s32.f32 %d, %a;", rows(row(sf(2.9), 2), row(sf(-3.1), s32(-4)))},
	{"f32 b32", "cvt.rpi.s32.f32 %d, %a;", rows(row(sf(2.1), 3), row(sf(-3.9), s32(-3)))},
	{"f32 b32", "cvt.rzi.u32.f32 %d, %a;", rows(row(sf(-2), 0), row(sf(5e9), 0xffffffff), row(sf(4e9), 4000000000))},
	{"f32 b64", "cvt.rzi.u64.f32 %d, %a;", rows(row(sf(0x1p63), 1<<63), row(sf(0x1p65), ^uint64(0)))},
	{"f64 b64", "cvt.rzi.s64.f64 %d, %a;", rows(row(df(-0x1p70), 1<<63), row(df(0x1p70), 1<<63-1), row(df(-5.5), s64(-5)))},
	{"f64 b32", "cvt.rzi.s32.f64 %d, %a;", rows(row(0x7ff8000000000000, 0x80000000), row(df(-7.9), s32(-7)))},
	{"f32 b64", "cvt.rzi.s64.f32 %d, %a;", rows(row(qnan32, 1<<63), row(sf(-7.9), s64(-7)))},
	{"f32 f32", "cvt.rni.f32.f32 %d, %a;", rows(row(sf(2.5), sf(2)), row(sf(-0.3), nz32))},
	{"f32 f32", "cvt.sat.f32.f32 %d, %a;", rows(row(sf(2.5), sf(1)), row(sf(-0.3), 0), row(qnan32, 0), row(sf(.5), sf(.5)))},
	{"f32 f32", "cvt.ftz.f32.f32 %d, %a;", rows(row(1, 0), row(0x80000001, nz32))},
	{"f32 f64", "cvt.f64.f32 %d, %a;", rows(row(sf(1.5), df(1.5)), row(1, df(0x1p-149)))},
	{"f64 f32", "cvt.rn.f32.f64 %d, %a;", rows(row(df(1.5), sf(1.5)), row(df(1+0x1p-24), sf(1)), row(df(1e300), inf32))},
	{"f64 f32", "cvt.rz.f32.f64 %d, %a;", rows(row(df(1e300), 0x7f7fffff), row(df(1+0x1p-23-0x1p-30), sf(1)))},
	{"f64 f32", "cvt.rp.f32.f64 %d, %a;", rows(row(df(1+0x1p-30), 0x3f800001), row(df(0x1p-160), 1))},
	{"f64 f32", "cvt.rm.f32.f64 %d, %a;", rows(row(df(-1-0x1p-30), 0xbf800001), row(df(1+0x1p-30), sf(1)))},
	{"b16 f32", "cvt.f32.f16 %d, %a;", rows(row(0x3c00, sf(1)), row(1, sf(0x1p-24)), row(0x7c00, inf32), row(0xfc00, ninf32), row(0x7e00, qnan32), row(0x83ff, sf(-0x3ff*0x1p-24)))},
	{"f32 b16", "cvt.rn.f16.f32 %d, %a;", rows(row(sf(1), 0x3c00), row(sf(65519), 0x7bff), row(sf(65520), 0x7c00), row(sf(0x1p-24), 1), row(sf(0x1p-25), 0), row(sf(0x1.8p-25), 1), row(sf(1+0x1p-11), 0x3c00), row(sf(1+0x3p-11), 0x3c02), row(qnan32, 0x7fff))},
	{"f32 b16", "cvt.rz.f16.f32 %d, %a;", rows(row(sf(1+0x1.cp-11), 0x3c00), row(sf(1e9), 0x7bff))},
	{"b16 f32", "cvt.f32.bf16 %d, %a;", rows(row(0x3f80, sf(1)), row(0xff80, ninf32))},
	{"f32 b16", "cvt.rn.bf16.f32 %d, %a;", rows(row(sf(1), 0x3f80), row(0x3f808000, 0x3f80), row(0x3f818000, 0x3f82), row(0x3f808001, 0x3f81), row(0x7f7fffff, 0x7f80), row(0x7f800001, 0x7fff))},
	{"f32 b16", "cvt.rn.relu.bf16.f32 %d, %a;", rows(row(sf(-1), 0), row(sf(1), 0x3f80))},
	{"f32 b32", "cvt.rna.tf32.f32 %d, %a;", rows(row(0x3f801000, 0x3f802000), row(0x3f800fff, 0x3f800000), row(sf(-1), sf(-1)), row(0x3f803000, 0x3f804000))},
	{"f32 b32", "cvt.rn.tf32.f32 %d, %a;", rows(row(0x3f801000, 0x3f800000), row(0x3f803000, 0x3f804000))},
	{"f32 f32 b32", "cvt.rn.bf16x2.f32 %d, %a, %b;", rows(row(sf(1), sf(2), bf(1)<<16|bf(2)))},
	{"f32 f32 b32", "cvt.rn.f16x2.f32 %d, %a, %b;", rows(row(sf(1), sf(2), hf(1)<<16|hf(2)))},
	{"f32 f32 b32", "cvt.rz.bf16x2.f32 %d, %a, %b;", rows(row(0x3f80ffff, 0xbf80ffff, 0x3f80bf80))},
	{"b16 b32", "cvt.rzi.s32.f16 %d, %a;", rows(row(hf(-3.5), s32(-3)))},
	{"b16 f64", "cvt.f64.f16 %d, %a;", rows(row(hf(-3.5), df(-3.5)))},
}

func TestFMA32AgainstIntegers(t *testing.T) {
	// The expected values come from exact integer arithmetic on 24-bit significands, independently
	// of the emulator.
	x := uint32(2463534242)
	next := func() uint32 { x ^= x << 13; x ^= x >> 17; x ^= x << 5; return x }
	for range 300000 {
		// integers of 12 and 13 bits, whose product is exact in 25 bits
		a, b := next()&0x7ff|0x800, next()&0xfff|0x1000
		shift := int(next()%60) - 50
		c := float32(math.Ldexp(float64(int32(next()%4096)-2048), shift))
		fa, fb := float32(a), float32(b)
		got := fma32(fa, fb, c)
		p := float64(a) * float64(b)
		// The expected value is p+c, computed in integers and rounded to nearest even. If shift is
		// negative, p and c are first scaled by 2^30.
		hi := uint64(p)
		mant, exp := hi, 0
		sticky, neg := false, false
		switch {
		case c == 0:
		case shift >= 0:
			v := int64(hi) + int64(float64(c))
			neg = v < 0
			mant = uint64(max(v, -v))
		default:
			// the sum is p·2^30 + c·2^30, in which bits of c below 2^-30 become sticky
			frac := math.Ldexp(float64(c), 30)
			fl := math.Floor(frac)
			mant, exp, sticky = uint64(int64(hi)<<30+int64(fl)), -30, frac != fl
		}
		want := math.Float32frombits(uint32(fmtF32.round(neg, mant, exp, sticky, rn)))
		if got != want {
			t.Fatalf("fma(%v, %v, %v) = %v, want %v", fa, fb, c, got, want)
		}
	}
}
