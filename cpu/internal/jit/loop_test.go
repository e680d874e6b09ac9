//go:build linux && amd64 && !noasm

package jit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// canRun reports whether this machine can run loops for AVX2. It logs a message if loops for AVX2
// or for AVX-512 cannot run.
func canRun(t testing.TB) bool {
	x := &cpu.X86
	if err := Why(); err != nil || !x.HasAVX2 || !x.HasFMA {
		t.Logf("loops do not run here (%v), so they were NOT run", err)
		return false
	}
	if !canRunWide() {
		t.Log("loops for AVX-512 do not run here, so only those for AVX2 were run")
	}
	return true
}

// canRunWide reports whether this machine can run loops for AVX-512, as the machines of CI can.
func canRunWide() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512BW && x.HasAVX512VL && x.HasBMI2
}

// forEach calls f with the loop of a program for AVX2 and, if this machine can run it, for AVX-512.
func (q *program) forEach(f func()) {
	if q.loop.AVX2 = true; q.loop.CanFold() {
		f()
	}
	if q.loop.AVX2 = false; canRunWide() {
		f()
	}
}

// program is a program with its compiled loop, and with the memory on which the loop runs.
type program struct {
	*expr.Program
	loop   *Loop
	rows   int
	n      int
	in     [][]byte // operands in the form in which elements are stored
	out    [][]byte
	params []uint64
}

const guard = 64 // number of bytes before each operand and result; a loop must not write them

// beforeFault returns memory for guard bytes and for n bytes after them. A page without access
// follows. A loop that goes beyond the n bytes faults.
func beforeFault(t testing.TB, n int) []byte {
	page := unix.Getpagesize()
	size := (guard + n + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		err = unix.Mprotect(m[size:], unix.PROT_NONE)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m[size-n-guard : size]
}

// prepare makes the loop of a program for the given number of rows of n elements. If bit i of
// repeated is set, operand i has one element for each row.
func prepare(tb testing.TB, p *expr.Program, r *rand.Rand, rows, n int, repeated uint64) *program {
	l := &Loop{Name: p.Name(), Code: p.Code}
	q := &program{Program: p, loop: l, rows: rows, n: n}
	offset := 0
	for _, t := range p.Params {
		q.params = append(q.params, interesting(r, t))
	}
	for i, c := range p.Code {
		switch c.Op {
		case expr.OpX:
			l.Loads = append(l.Loads, Load{Value: int32(i), Type: p.In[c.Imm], Once: repeated>>c.Imm&1 == 1, Reg: int(c.Imm)})
		case expr.OpParam:
			l.Same = append(l.Same, Same{int32(i), offset})
			offset += 64
		case expr.OpConst:
		default:
			l.Steps = append(l.Steps, int32(i))
		}
	}
	for _, t := range p.In {
		m := beforeFault(tb, rows*n*t.Size())
		for k := range rows * n {
			put(m[guard:], t, k, stored(r, t))
		}
		q.in = append(q.in, m)
	}
	for k, o := range p.Outs {
		l.Stores = append(l.Stores, Store{Value: o, Type: p.Out[k], Reg: len(p.In) + k})
		q.out = append(q.out, beforeFault(tb, rows*n*p.Out[k].Size()))
	}
	l.Arena, l.Spill = len(p.In)+len(p.Outs), offset
	return q
}

// stored returns the bits of a random element of type t, as it is stored in memory.
func stored(r *rand.Rand, t dtype.Type) uint64 {
	switch t {
	case dtype.Bool:
		return r.Uint64() & 1
	case dtype.F16, dtype.BF16:
		return expr.Store(t, interesting(r, dtype.F32))
	}
	return expr.Store(t, interesting(r, t.Compute()))
}

// interesting returns the bits of a value, often an extreme one, of a type in which programs
// compute.
func interesting(r *rand.Rand, t dtype.Type) uint64 {
	f := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 1.5, 2.5, -2.5, math.Inf(1), math.Inf(-1), math.NaN(), 1 << 31, -1 << 31, 1 << 32, 1 << 63, -1 << 63, 1 << 64,
		1e-40, 1e-310, math.MaxFloat32, 65504, 65520, 3.4e38, 255, 256, 16777217}
	switch {
	case t.IsFloat() && r.IntN(2) == 0:
		return expr.Encode(t, f[r.IntN(len(f))])
	case t.IsFloat():
		return expr.Encode(t, r.NormFloat64()*math.Exp2(float64(r.IntN(40)-20)))
	case t == dtype.Bool:
		return r.Uint64() & 1
	}
	b := r.Uint64() >> r.IntN(64)
	if r.IntN(2) == 0 {
		b = -b
	}
	if t.Size() == 4 {
		b &= 0xffffffff
	}
	return b
}

func put(m []byte, t dtype.Type, k int, b uint64) {
	for j := range t.Size() {
		m[k*t.Size()+j] = byte(b >> (8 * j))
	}
}

func get(m []byte, t dtype.Type, k int) (b uint64) {
	for j := range t.Size() {
		b |= uint64(m[k*t.Size()+j]) << (8 * j)
	}
	return b
}

// run compares the loops with the interpreter.
func (q *program) run(t testing.TB) { q.forEach(func() { q.compare(t) }) }

// compare compiles and runs the loop, and compares every element with the interpreter.
func (q *program) compare(t testing.TB) {
	for _, m := range q.out {
		for i := range m {
			m[i] = 0xa5
		}
	}
	c, err := Compile(q.loop)
	if err != nil {
		t.Fatal(err)
	}
	arena := make([]byte, 64+q.loop.Spill+c.Spill())
	for _, s := range q.loop.Same {
		typ := q.Code[s.Value].Type
		if typ == dtype.Bool {
			typ = dtype.U32
		}
		for k := range Copies {
			put(arena[s.Offset:], typ, k, q.params[q.Code[s.Value].Imm])
		}
	}
	var reg []unsafe.Pointer
	for _, m := range append(q.in[:len(q.in):len(q.in)], q.out...) {
		reg = append(reg, unsafe.Pointer(&m[guard]))
	}
	reg = append(reg, unsafe.Pointer(&arena[0]))
	var strides []int
	for _, l := range q.loop.Loads {
		strides = append(strides, q.n*l.Type.Size()*max(1, l.Step))
		if l.Step < 0 { // the first element of a row is the last one in memory
			reg[l.Reg] = unsafe.Add(reg[l.Reg], (q.n-1)*l.Type.Size())
		}
	}
	for _, s := range q.loop.Stores {
		strides = append(strides, q.n*s.Type.Size())
	}
	c.Run(reg, strides, q.n, q.rows)
	for row := range q.rows {
		for i := range q.n {
			x := make([]uint64, len(q.In))
			for _, l := range q.loop.Loads {
				k := (row*q.n + i) * max(1, l.Step)
				switch {
				case l.Once:
					k = row * q.n
				case l.Step < 0:
					k = row*q.n + q.n - 1 - i
				}
				x[q.Code[l.Value].Imm] = get(q.in[q.Code[l.Value].Imm][guard:], l.Type, k)
			}
			for o, want := range q.Eval(nil, x, q.params, 0) {
				typ := q.Out[o]
				got := get(q.out[o][guard:], typ, row*q.n+i)
				if got != want && !bothNaN(typ, got, want) {
					t.Fatalf("AVX2 %v: result %d of row %d, element %d of %d: %#x (%v), want %#x (%v); operands %x, params %x\n%s",
						q.loop.AVX2, o, row, i, q.n, got, expr.Decode(typ.Compute(), expr.Load(typ, got)), want, expr.Decode(typ.Compute(), expr.Load(typ, want)), x, q.params, q)
				}
			}
		}
	}
	for _, m := range q.out {
		for i := range guard {
			if m[i] != 0xa5 {
				t.Fatalf("a loop over %d rows of %d wrote before its results\n%s", q.rows, q.n, q)
			}
		}
	}
}

func bothNaN(t dtype.Type, a, b uint64) bool {
	if !t.IsFloat() && !t.IsHalf() {
		return false
	}
	x, y := expr.Decode(t.Compute(), expr.Load(t, a)), expr.Decode(t.Compute(), expr.Load(t, b))
	return x != x && y != y
}

// TestEveryInstruction runs every instruction in every type. The results must be equal to the
// interpreter's.
func TestEveryInstruction(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(1, 2))
	computing := []dtype.Type{dtype.F32, dtype.F64, dtype.I32, dtype.U32, dtype.I64, dtype.U64, dtype.Bool}
	seen := map[string]bool{}
	check := func(e *expr.Expr, out dtype.Type, in ...dtype.Type) {
		p, err := expr.Lower([]*expr.Expr{e}, []dtype.Type{out}, in, -1)
		if err != nil {
			return // the instruction is not defined for the type
		}
		for _, c := range p.Code {
			from := dtype.Invalid
			if c.Op.Arity() > 0 {
				from = p.Code[c.A].Type
			}
			seen[fmt.Sprint(c.Op, c.Type, from)] = true
		}
		for _, n := range []int{1, 8, 15, 16, 17, 100} {
			prepare(t, p, r, 1, n, 0).run(t)
		}
		prepare(t, p, r, 3, 21, 1).run(t)
	}
	x, y, z := expr.X(0), expr.X(1), expr.X(2)
	minusZero := expr.C(math.Copysign(0, -1))
	for _, in := range computing {
		for _, e := range []*expr.Expr{x.Add(y), x.Sub(y), x.Mul(y), x.Div(y), x.FMA(y, z), x.Neg(), x.Abs(), x.Min(y), x.Max(y), x.Sqrt(), x.Floor(),
			x.Trunc(), x.RoundEven(), x.And(y), x.Or(y), x.Xor(y), x.Not(), x.Shl(y), x.Shr(y), x.Shl(expr.C(3)), x.Shr(expr.C(31)), x.Shr(expr.C(3)), x.MulHi(y),
			x.Add(x), x.Min(expr.C(1)), x.Max(expr.C(1)), expr.C(2).Max(x), x.Min(expr.C(0)), x.Max(expr.C(0)), x.Min(minusZero), minusZero.Max(x), expr.C(1).Sub(x), x.Add(expr.Param(0, in)), expr.Param(0, in).Sub(x),
			x.Eq(y).Select(y, z), x.Ne(y).Select(x, z)} {
			check(e, in, in, in, in)
		}
		for _, e := range []*expr.Expr{x.Eq(y), x.Ne(y), x.Lt(y), x.Le(y), x.Gt(y), x.Ge(y), x.Lt(expr.C(1)), expr.C(1).Le(x)} {
			check(e, dtype.Bool, in, in)
			check(e.Select(y, x), in, in, in)
		}
		for _, to := range computing {
			check(x.Cvt(to), to, in)
			if in.Size() == to.Size() {
				check(x.Bitcast(to), to, in)
			}
		}
	}
	for _, s := range []dtype.Type{dtype.F16, dtype.BF16, dtype.Bool, dtype.U8, dtype.I8, dtype.I16, dtype.F32, dtype.F64, dtype.I64} {
		check(x, s, s)
		check(x.Add(y), s, s, s)
		check(x.Cvt(dtype.F32), dtype.F32, s)
		for _, to := range []dtype.Type{dtype.F16, dtype.BF16, dtype.U8, dtype.I8, dtype.I16, dtype.Bool} {
			check(x.Cvt(to.Compute()), to, s)
		}
	}
	b := x.Lt(y)
	for _, e := range []*expr.Expr{b.And(x.Eq(z)), b.Or(x.Eq(z)), b.Xor(x.Eq(z)), b.Not(), b.Select(x.Eq(z), y.Lt(z))} {
		check(e, dtype.Bool, dtype.F32, dtype.F32, dtype.F32)
		check(e.Cvt(dtype.F64), dtype.F64, dtype.F32, dtype.F32, dtype.F64)
	}
	for name, f := range expr.Funcs() {
		args := []*expr.Expr{x, y, z}[:f.Arity]
		check(expr.Call(name, args...), dtype.F32, dtype.F32, dtype.F32, dtype.F32)
		check(expr.Call(name, args...), dtype.F64, dtype.F64, dtype.F64, dtype.F64)
		check(expr.Call(name, args...), dtype.BF16, dtype.BF16, dtype.BF16, dtype.BF16)
	}
	if len(seen) < 190 {
		t.Errorf("only %d kinds of instructions ran", len(seen))
	}
	t.Logf("%d kinds of instructions", len(seen))
}

// TestFewRegisters compiles a program with more pointers, masks and values than there are
// registers.
func TestFewRegisters(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(3, 4))
	var in []dtype.Type
	var masks, sums []*expr.Expr
	for i := range 12 {
		in = append(in, []dtype.Type{dtype.F32, dtype.BF16, dtype.F64, dtype.U8}[i%4])
		masks = append(masks, expr.X(i).Lt(expr.X((i+1)%12)))
	}
	for i := range 40 {
		sums = append(sums, expr.X(i%12).Cvt(dtype.F32).Mul(expr.C(float64(i)+0.5)).Add(expr.Param(i, dtype.F32)))
	}
	total, all := expr.C(0), expr.C(0)
	for i := range 40 { // all sums and masks stay in use until the end
		total = total.Add(sums[39-i].Mul(sums[i]))
	}
	for i := range 12 {
		all = all.Add(masks[11-i].And(masks[i]).Cvt(dtype.F32)).Add(masks[i].Xor(masks[(i+5)%12]).Cvt(dtype.F32))
	}
	outs := []*expr.Expr{total, all, total.Add(all).Cvt(dtype.F64), all.Lt(total)}
	p := expr.MustLower(outs, []dtype.Type{dtype.F32, dtype.F16, dtype.F64, dtype.Bool}, in, -1)
	for _, n := range []int{1, 8, 50} {
		q := prepare(t, p, r, 1, n, 0)
		if _, spill := translate(q.loop); spill == 0 {
			t.Error("nothing was spilled")
		}
		q.run(t)
	}
}

// TestFault runs a loop on memory that does not exist. Run must panic with the name of the program,
// and the goroutine must be able to continue.
func TestFault(t *testing.T) {
	if !canRun(t) {
		return
	}
	p := expr.MustLower([]*expr.Expr{expr.Call("tanh", expr.X(0))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	q := prepare(t, p, rand.New(rand.NewPCG(5, 6)), 1, 100, 0)
	q.loop.AVX2 = !canRunWide()
	c, err := Compile(q.loop)
	if err != nil {
		t.Fatal(err)
	}
	arena := make([]byte, 64+c.Spill())
	for range 3 {
		func() {
			defer func() {
				if e, ok := recover().(string); !ok || !strings.Contains(e, "machine code of tanh") {
					t.Errorf("a fault gives %v", e)
				}
			}()
			c.Run([]unsafe.Pointer{unsafe.Pointer(&q.in[0][guard]), unsafe.Pointer(&q.out[0][guard]), unsafe.Pointer(&arena[0])}, nil, 101, 1)
		}()
	}
	q.run(t)
}
