package ptxvm

import (
	"math"
	"math/bits"
	"slices"
)

// handlers maps each base opcode to the function that decodes it.
var handlers = map[string]func(*decoder){
	"add": addSub, "sub": addSub, "addc": addSub, "subc": addSub, "mul": multiply, "mad": multiply, "madc": multiply, "fma": fusedMultiply,
	"div": divide, "rem": remainder, "abs": absNeg, "neg": absNeg, "min": minMax, "max": minMax, "sad": sad,
	"and": logic, "or": logic, "xor": logic, "not": logic, "cnot": cnot, "shl": shiftLeft, "shr": shiftRight, "shf": funnel,
	"lop3": logic3, "prmt": permute, "bfe": bitExtract, "bfi": bitInsert, "bfind": bitFind, "brev": bitUnary, "clz": bitUnary, "popc": bitUnary,
	"mov": move, "selp": selectPred, "slct": selectSign, "setp": setPredicate, "set": setValue, "copysign": copySign, "testp": testProperty,
	"sqrt": rootRcp, "rcp": rootRcp, "rsqrt": approximate, "ex2": approximate, "lg2": approximate, "sin": approximate, "cos": approximate, "tanh": approximate,
	"cvt": convert, "cvta": convertAddress,
	"mul24": mul24, "mad24": mul24, "dp4a": dotProduct4, "dp2a": dotProduct2,
	"bmsk": bitMask, "szext": signOrZeroExtend, "fns": findSet,

	"ld": load, "ldu": load, "st": store, "atom": atomicMemory, "red": atomicMemory, "prefetch": prefetch, "prefetchu": prefetch,
	"createpolicy": createPolicy, "discard": adviseCache, "applypriority": adviseCache,
	"cp": copyAsync, "ldmatrix": loadMatrix, "stmatrix": storeMatrix, "mma": matrixMultiply, "wmma": warpMatrix, "mbarrier": mbarrier,

	"bra": branch, "brx": jumpTable, "call": call, "ret": exitThread, "exit": exitThread, "trap": trap, "brkpt": trap, "nop": nop, "nanosleep": nanosleep, "pmevent": nop,
	"bar": barrier, "barrier": barrier, "isspacep": isSpace, "shfl": shuffle, "vote": vote, "activemask": activeMask, "redux": reduceSync, "match": matchSync, "elect": electSync,
	"membar": fence, "fence": fence, "griddepcontrol": gridDependency, "setmaxnreg": setRegisters,
}

var int16up = []Type{U16, S16, U32, S32, U64, S64}

// dab resolves the operands d, a and b of an instruction, all with type t.
func (d *decoder) dab(t Type) {
	a := d.args(3)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], t)
}

func (d *decoder) dabc(t Type) {
	a := d.args(4)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], t), d.src(a[3], t)
}

func (d *decoder) da(t Type) {
	a := d.args(2)
	d.in.d, d.in.a = d.dst(a[0], t), d.src(a[1], t)
}

func (d *decoder) noType(t Type) {
	d.fail("%s: type .%s is not supported by %s", d.stmt.op, t, d.base)
}

// direction removes an optional rounding modifier and returns it. Only f32 and f64 have modifiers
// other than .rn.
func (d *decoder) direction(t Type) rounding {
	i := d.oneOf("rn", "rz", "rm", "rp")
	if i > 0 && t != F32 && t != F64 {
		d.fail("%s: rounding other than .rn needs .f32 or .f64", d.stmt.op)
	}
	return rounding(max(i, 0))
}

// directed returns a float32 operation that rounds by .rz, .rm or .rp. The operation first computes
// the exact result, or a result rounded to odd at 53 bits, and then rounds it to float32.
func directed(name string, mode rounding) f32Op {
	return func(a, b, c float32) float32 {
		p, q := float64(a), float64(b)
		switch name {
		case "sub":
			q = -q
		case "mul":
			return f32(fmtF32.fromF64(p*q, mode))
		case "fma":
			p, q = p*q, float64(c)
		}
		x := addOdd(p, q)
		if x == 0 && mode == rm && math.Float64bits(p)|math.Float64bits(q) != 0 {
			// an exact zero is -0 when rounding down, unless both addends are +0
			return f32(1 << 31)
		}
		return f32(fmtF32.fromF64(x, mode))
	}
}

func addSub(d *decoder) {
	name := d.base
	t := d.typ()
	switch {
	case d.base == "addc" || d.base == "subc" || d.modifier("cc"):
		carry(d, t)
		return
	case t.integer():
		if !slices.Contains(int16up, t) {
			d.noType(t)
		}
		d.dab(t)
		switch {
		case t == S32 && d.modifier("sat"):
			if name == "add" {
				d.alu(lift2(func(a, b uint64) uint64 { return satS32(int64(int32(a)) + int64(int32(b))) }))
			} else {
				d.alu(lift2(func(a, b uint64) uint64 { return satS32(int64(int32(a)) - int64(int32(b))) }))
			}
		case t.Size() == 4 && name == "add":
			d.alu(addU32)
		case t.Size() == 4:
			d.alu(subU32)
		case t.Size() == 8 && name == "add":
			d.alu(addU64)
		case t.Size() == 8:
			d.alu(subU64)
		case name == "add":
			d.alu(lift2(func(a, b uint64) uint64 { return (a + b) & 0xffff }))
		default:
			d.alu(lift2(func(a, b uint64) uint64 { return (a - b) & 0xffff }))
		}
		return
	}
	mode := d.direction(t)
	d.dab(t)
	floatOp(d, name, t, mode)
}

// floatOp selects the lane operation of add, sub, mul or fma for a float type. The operands are
// already resolved.
func floatOp(d *decoder, name string, t Type, mode rounding) {
	switch t {
	case F32:
		ftz, sat := d.modifier("ftz"), d.modifier("sat")
		if mode != rn {
			d.alu(liftF32(directed(name, mode), ftz, sat))
		} else if !ftz && !sat {
			d.alu(map[string]laneFn{"add": addF32, "sub": subF32, "mul": mulF32, "fma": fmaF32}[name])
		} else {
			d.alu(liftF32(f32Ops[name], ftz, sat))
		}
	case F64:
		if mode != rn {
			d.alu(liftF64(directed64(name, mode)))
			return
		}
		d.alu(map[string]laneFn{"add": addF64, "sub": subF64, "mul": mulF64, "fma": fmaF64}[name])
	case F16, F16x2, BF16, BF16x2:
		n := halfFloat
		ftz, sat := false, false
		if t == BF16 || t == BF16x2 {
			n = brainFloat
			if name == "fma" {
				d.require(80, 7, 0)
			} else {
				d.require(90, 7, 8)
			}
		} else {
			ftz, sat = d.modifier("ftz"), d.modifier("sat")
		}
		relu := name == "fma" && d.modifier("relu")
		f := n.op(name, ftz, sat, relu)
		if t == F16x2 || t == BF16x2 {
			f = pair(f)
		}
		d.alu(lift3(f))
	default:
		d.noType(t)
	}
}

// carry decodes add.cc, addc, sub.cc and subc. The carry flag is one bit for each lane.
func carry(d *decoder, t Type) {
	if !slices.Contains([]Type{U32, S32, U64, S64}, t) {
		d.noType(t)
	}
	in, out, sub := len(d.base) == 4, d.base == "add" || d.base == "sub" || d.modifier("cc"), d.base[:3] == "sub"
	d.dab(t)
	wide := t.Size() == 8
	d.run(func(w *warp, i *inst, m uint32) {
		w.requireWritten(i, m, i.a, i.b)
		r, a, b := w.dest(i.d, m), &w.r[i.a], &w.r[i.b]
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			var cin uint64
			if in {
				cin = uint64(w.cc >> l & 1)
			}
			x, y := a[l], b[l]
			var v, c uint64
			if sub {
				v, c = bits.Sub64(x, y, cin)
			} else {
				v, c = bits.Add64(x, y, cin)
			}
			if !wide {
				c, v = v>>32&1, uint64(uint32(v))
			}
			r[l] = v
			if out {
				w.cc = w.cc&^(1<<l) | uint32(c)<<l
			}
		}
	})
}

func multiply(d *decoder) {
	if slices.Contains(d.mods, "cc") || d.base == "madc" {
		multiplyCarry(d)
		return
	}
	t := d.typ()
	mad := d.base == "mad"
	if t.float() {
		if mad {
			if t != F32 && t != F64 {
				d.noType(t)
			}
			fma(d, t)
			return
		}
		mode := d.direction(t)
		d.dab(t)
		floatOp(d, "mul", t, mode)
		return
	}
	if !slices.Contains(int16up, t) {
		d.noType(t)
	}
	mode := d.oneOf("lo", "hi", "wide")
	if mode < 0 {
		d.fail("%s needs .lo, .hi or .wide", d.stmt.op)
	}
	out := t
	if mode == 2 {
		if t.Size() == 8 {
			d.fail("%s: .wide needs 16- or 32-bit operands", d.stmt.op)
		}
		out = map[Type]Type{U16: U32, S16: S32, U32: U64, S32: S64}[t]
	}
	n := 3
	if mad {
		n = 4
	}
	a := d.args(n)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], out), d.src(a[1], t), d.src(a[2], t)
	if mad {
		d.in.c = d.src(a[3], out)
	}
	var f laneFn
	switch {
	case mode == 0 && t.Size() == 4:
		f = pick(mad, madU32, mulU32)
	case mode == 0 && t.Size() == 8:
		f = pick(mad, madU64, mulU64)
	case mode == 2 && t == U32:
		f = pick(mad, madWideU32, mulWideU32)
	case mode == 2 && t == S32:
		f = pick(mad, madWideS32, mulWideS32)
	case mode == 1 && t == U32 && !mad:
		f = mulHiU32
	case mode == 0:
		f = lift3(func(a, b, c uint64) uint64 { return (a*b + c) & 0xffff })
	case mode == 1:
		f = lift3(func(a, b, c uint64) uint64 { return (mulHi(a, b, t) + c) & t.mask() })
		if mad && t == S32 && d.modifier("sat") {
			f = lift3(func(a, b, c uint64) uint64 { return satS32(int64(int32(mulHi(a, b, t))) + int64(int32(c))) })
		}
	default:
		f = lift3(func(a, b, c uint64) uint64 { return (mulWide(a, b, t) + c) & out.mask() })
	}
	d.alu(f)
}

func hasAny(list []string, names ...string) bool {
	for _, n := range names {
		if slices.Contains(list, n) {
			return true
		}
	}
	return false
}

func pick(cond bool, a, b laneFn) laneFn {
	if cond {
		return a
	}
	return b
}

func fusedMultiply(d *decoder) { fma(d, d.typ()) }

func fma(d *decoder, t Type) {
	if !hasAny(d.mods, "rn", "rz", "rm", "rp") {
		d.fail("%s needs .rn (or, for .f32 and .f64, .rz, .rm, .rp)", d.stmt.op)
	}
	mode := d.direction(t)
	d.dabc(t)
	d.in.fma = true
	floatOp(d, "fma", t, mode)
}

func mul24(d *decoder) {
	t := d.typIn(U32, S32)
	mode := d.oneOf("lo", "hi")
	if mode < 0 {
		d.fail("%s needs .lo or .hi", d.stmt.op)
	}
	if d.base == "mad24" {
		d.dabc(t)
	} else {
		d.dab(t)
	}
	if d.base == "mad24" && mode == 1 && t == S32 && d.modifier("sat") {
		d.alu(lift3(func(a, b, c uint64) uint64 { return satS32(signExtend(a, 24)*signExtend(b, 24)>>16 + int64(int32(c))) }))
		return
	}
	d.alu(lift3(func(a, b, c uint64) uint64 {
		var p uint64
		if t == S32 {
			p = uint64(signExtend(a, 24) * signExtend(b, 24))
		} else {
			p = a & 0xffffff * (b & 0xffffff)
		}
		if mode == 1 {
			p >>= 16
		}
		return uint64(uint32(p + c))
	}))
}

func dotProduct4(d *decoder) {
	bt, at := d.typIn(U32, S32), d.typIn(U32, S32)
	ot := U32
	if at == S32 || bt == S32 {
		ot = S32
	}
	a := d.args(4)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], ot), d.src(a[1], at), d.src(a[2], bt), d.src(a[3], ot)
	ext := func(v uint64, t Type) int64 {
		if t == S32 {
			return int64(int8(v))
		}
		return int64(uint8(v))
	}
	d.alu(lift3(func(a, b, c uint64) uint64 {
		s := int64(c)
		for i := 0; i < 32; i += 8 {
			s += ext(a>>i, at) * ext(b>>i, bt)
		}
		return uint64(uint32(s))
	}))
}

func divide(d *decoder) {
	t := d.typ()
	d.dab(t)
	switch t {
	case F32:
		mode := d.oneOf("rn", "approx", "full", "rz", "rm", "rp")
		ftz := d.modifier("ftz")
		switch {
		case mode == 0 && !ftz, mode == 2 && !ftz:
			d.alu(divF32)
		case mode == 0, mode == 2:
			d.alu(liftF32(f32Ops["div"], ftz, false))
		case mode == 1:
			d.alu(liftF32(func(a, b, _ float32) float32 { return divApprox(a, b) }, ftz, false))
		case mode > 2:
			to := rounding(mode - 2)
			d.alu(liftF32(func(a, b, _ float32) float32 { return f32(fmtF32.fromF64(divOdd(float64(a), float64(b)), to)) }, ftz, false))
		default:
			d.fail("%s needs .rn, .approx or .full", d.stmt.op)
		}
	case F64:
		switch mode := d.oneOf("rn", "rz", "rm", "rp"); {
		case mode < 0:
			d.fail("%s needs a rounding", d.stmt.op)
		case mode == 0:
			d.alu(liftF64(f64Ops["div"]))
		default:
			d.alu(liftF64(divide64(rounding(mode))))
		}
	default:
		f := byType(t, divInt[uint16], divInt[int16], divInt[uint32], divInt[int32], divInt[uint64], divInt[int64])
		if f == nil {
			d.noType(t)
		}
		d.alu(f)
	}
}

func remainder(d *decoder) {
	t := d.typ()
	d.dab(t)
	f := byType(t, remInt[uint16], remInt[int16], remInt[uint32], remInt[int32], remInt[uint64], remInt[int64])
	if f == nil {
		d.noType(t)
	}
	d.alu(f)
}

func absNeg(d *decoder) {
	t := d.typ()
	d.da(t)
	switch {
	case t == F32:
		d.alu(signF32(d.base, d.modifier("ftz")))
	case t == F64 && d.base == "abs":
		d.alu(lift1(func(a uint64) uint64 { return a &^ (1 << 63) }))
	case t == F64:
		d.alu(lift1(func(a uint64) uint64 { return a ^ 1<<63 }))
	case t == F16 || t == F16x2 || t == BF16 || t == BF16x2:
		n := halfFloat
		if t == BF16 || t == BF16x2 {
			d.require(80, 7, 0)
			n = brainFloat
		}
		f := n.op(d.base, (t == F16 || t == F16x2) && d.modifier("ftz"), false, false)
		if t.Size() == 4 {
			f = pair(f)
		}
		d.alu(lift3(f))
	case t.signed() && t != S8 && d.base == "abs":
		d.alu(byType(t, nil, absInt[int16], nil, absInt[int32], nil, absInt[int64]))
	case t.signed() && t != S8:
		m := t.mask()
		d.alu(lift1(func(a uint64) uint64 { return -a & m }))
	default:
		d.noType(t)
	}
}

func minMax(d *decoder) {
	t := d.typ()
	d.dab(t)
	isMax := d.base == "max"
	switch t {
	case F32:
		ftz, nan := d.modifier("ftz"), d.modifier("NaN")
		name := d.base
		if nan {
			d.require(80, 7, 0)
			name += "NaN"
		}
		switch {
		case ftz || nan:
			d.alu(liftF32(f32Ops[name], ftz, false))
		case isMax:
			d.alu(maxF32)
		default:
			d.alu(minF32)
		}
	case F64:
		d.alu(liftF64(f64Ops[d.base]))
	case F16, F16x2, BF16, BF16x2:
		d.require(80, 7, 0)
		n, ftz := halfFloat, false
		if t == BF16 || t == BF16x2 {
			n = brainFloat
		} else {
			ftz = d.modifier("ftz")
		}
		name := d.base
		if d.modifier("NaN") {
			name += "NaN"
		}
		f := n.op(name, ftz, false, false)
		if t.Size() == 4 {
			f = pair(f)
		}
		d.alu(lift3(f))
	default:
		f := byType(t, minInt[uint16], minInt[int16], minInt[uint32], minInt[int32], minInt[uint64], minInt[int64])
		if isMax {
			f = byType(t, maxInt[uint16], maxInt[int16], maxInt[uint32], maxInt[int32], maxInt[uint64], maxInt[int64])
		}
		if f == nil {
			d.noType(t)
		}
		if t == S32 && d.modifier("relu") {
			d.require(90, 8, 0)
			g := f
			f = func(d, a, b, c *lanes) {
				g(d, a, b, c)
				maxInt[int32](d, d, &lanes{}, c)
			}
		}
		d.alu(f)
	}
}

func sad(d *decoder) {
	t := d.typ()
	d.dabc(t)
	f := byType(t, sadInt[uint16], sadInt[int16], sadInt[uint32], sadInt[int32], sadInt[uint64], sadInt[int64])
	if f == nil {
		d.noType(t)
	}
	d.alu(f)
}
