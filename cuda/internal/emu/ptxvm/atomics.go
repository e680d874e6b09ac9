package ptxvm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// atomicMemory decodes the instructions atom and red.
func atomicMemory(d *decoder) {
	red := d.base == "red"
	x := d.extra()
	i := d.oneOf("global", "shared", "shared::cta")
	x.space = []space{spGeneric, spGlobal, spShared, spShared}[i+1]
	if i := d.oneOf("relaxed", "acquire", "release", "acq_rel"); i >= 0 {
		d.require(70, 6, 0)
		x.release, x.acquire = i >= 2, i == 1 || i == 3
	}
	x.block = d.oneOf("cta", "cluster", "gpu", "sys") == 0
	d.cacheHint()
	op := d.oneOf("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
	if op < 0 {
		d.fail("%s lacks an operation", d.stmt.op)
	}
	name := []string{"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"}[op]
	noftz := d.modifier("noftz")
	t := d.typIn(B16, B32, B64, U32, U64, S32, S64, F16, F16x2, BF16, BF16x2, F32, F64)
	if red && (name == "exch" || name == "cas") {
		d.fail("%s: red has no .%s", d.stmt.op, name)
	}
	f := atomicOp(name, t)
	if f == nil {
		d.fail("%s: .%s of type .%s is not supported", d.stmt.op, name, t)
	}
	switch t {
	case F16, F16x2:
		d.require(70, 6, 3)
	case BF16, BF16x2:
		d.require(90, 7, 8)
	case B16:
		d.require(70, 6, 3)
	}
	if half := t == F16 || t == F16x2 || t == BF16 || t == BF16x2; half != noftz {
		d.fail("%s: .noftz belongs to 16-bit floats, and they need it", d.stmt.op)
	}
	if v := d.oneOf("v2", "v4"); v >= 0 {
		if name != "add" || t != F32 || x.space == spShared {
			d.fail("%s: vectors are only supported for .global.add.f32", d.stmt.op)
		}
		d.require(90, 8, 1)
		vectorAdd(d, 2<<v, f, red)
		return
	}
	n := 2
	if !red {
		n++
	}
	if name == "cas" {
		n++
	}
	a := d.args(n)
	in := d.in
	x.n = -1
	if !red {
		if a[0].kind != okWord || a[0].name != "_" {
			x.n = int(d.dst(a[0], t))
		}
		a = a[1:]
	}
	in.a, x.off, x.space = d.mem(a[0], x.space)
	if x.space == spParam || x.space == spConst || x.space == spLocal {
		d.fail("%s: atomics need global or shared memory", d.stmt.op)
	}
	d.e.writesGlobal = d.e.writesGlobal || x.space != spShared
	in.b = d.src(a[1], t)
	if name == "cas" {
		in.c = d.src(a[2], t)
	}
	x.typ, x.size, x.atom = t, t.Size(), f
	d.run(func(w *warp, in *inst, m uint32) {
		w.requireWritten(in, m, in.b, in.c)
		w.addresses(in, m)
		w.spread(in, m, func(sp space, m uint32) {
			switch sp {
			case spGlobal:
				w.atomicGlobal(in, m)
			case spShared:
				w.atomicShared(in, m)
			default:
				w.faultAt(OutOfBounds, in, bits.TrailingZeros32(m), w.addr[bits.TrailingZeros32(m)], "an atomic on .%s memory", sp)
			}
		})
	})
}

// vectorAdd decodes red and atom .global.add.v2|v4.f32. The instruction does one atomic operation
// for each element. The address must be aligned to the whole vector.
func vectorAdd(d *decoder, n int, f func(old, b, c uint64) uint64, red bool) {
	x := d.extra()
	args := 3
	if red {
		args = 2
	}
	a := d.args(args)
	if !red {
		x.vd = d.fragment(a[0], n, F32)
		a = a[1:]
	}
	d.in.a, x.off, x.space = d.mem(a[0], x.space)
	if x.space != spGlobal && x.space != spGeneric {
		d.fail("%s: vectors need global memory", d.stmt.op)
	}
	d.e.writesGlobal = true
	x.vec = d.fragment(a[1], n, F32)
	x.typ, x.size = F32, 4*n
	parts := make([]inst, n)
	for k := range parts {
		parts[k] = inst{line: d.in.line, b: x.vec[k], x: &extra{typ: F32, size: 4, n: -1, atom: f, counted: true}}
		if !red {
			parts[k].x.n = int(x.vd[k])
		}
	}
	d.run(func(w *warp, in *inst, m uint32) {
		w.requireWritten(in, m, in.x.vec...)
		w.addresses(in, m)
		w.cta.stats.GlobalStores++
		w.coalesce(m, in.x.size, true)
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			if w.addr[l]&uint64(in.x.size-1) != 0 {
				w.globalFault(in, l, Misaligned, w.addr[l], in.x.size)
			}
		}
		for k := range parts {
			w.atomicGlobal(&parts[k], m)
			for l := range w.addr {
				w.addr[l] += 4
			}
		}
	})
}

// atomicOp returns a function that computes an element's new value from its old value and the
// operands b and c. If the operation does not exist for the type, it returns nil.
func atomicOp(name string, t Type) func(old, b, c uint64) uint64 {
	mask := t.mask()
	switch name {
	case "exch":
		if t == B32 || t == B64 {
			return func(_, b, _ uint64) uint64 { return b }
		}
	case "cas":
		if t.untyped() {
			return func(old, b, c uint64) uint64 {
				if old == b&mask {
					return c
				}
				return old
			}
		}
	case "and", "or", "xor":
		if t != B32 && t != B64 {
			return nil
		}
		switch name {
		case "and":
			return func(old, b, _ uint64) uint64 { return old & b }
		case "or":
			return func(old, b, _ uint64) uint64 { return old | b }
		}
		return func(old, b, _ uint64) uint64 { return old ^ b }
	case "inc", "dec":
		if t != U32 {
			return nil
		}
		if name == "inc" {
			return func(old, b, _ uint64) uint64 {
				if old >= b {
					return 0
				}
				return old + 1
			}
		}
		return func(old, b, _ uint64) uint64 {
			if old == 0 || old > b {
				return b
			}
			return old - 1
		}
	case "add":
		switch t {
		case U32, S32, U64:
			return func(old, b, _ uint64) uint64 { return (old + b) & mask }
		case F32:
			return func(old, b, _ uint64) uint64 { return u32(canon(f32(old) + f32(b))) }
		case F64:
			return func(old, b, _ uint64) uint64 { return u64(f64(old) + f64(b)) }
		case F16:
			return halfFloat.op("add", false, false, false)
		case F16x2:
			return pair(halfFloat.op("add", false, false, false))
		case BF16:
			return brainFloat.op("add", false, false, false)
		case BF16x2:
			return pair(brainFloat.op("add", false, false, false))
		}
	case "min", "max":
		low := name == "min"
		switch t {
		case U32, U64:
			return func(old, b, _ uint64) uint64 {
				if (b < old) == low {
					return b
				}
				return old
			}
		case S32, S64:
			n := t.bits()
			return func(old, b, _ uint64) uint64 {
				if (signExtend(b, n) < signExtend(old, n)) == low {
					return b
				}
				return old
			}
		}
	}
	return nil
}

//go:norace
func (w *warp) atomicGlobal(in *inst, m uint32) {
	x := in.x
	if !x.counted {
		w.cta.stats.GlobalStores++
		w.coalesce(m, x.size, true)
	}
	if w.cta.blocks != nil {
		w.trackGlobal(in, m, x.size, true, true)
	}
	if w.cta.watch {
		w.touch(m, x.size, strong, true, 0)
	}
	var out lanes
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		r, off := w.globalSpan(in, l, x.size, shReady)
		p := unsafe.Pointer(&r.data[off])
		b, c := w.r[in.b][l], w.r[in.c][l]
		if uintptr(p)&uintptr(max(x.size, 4)-1) != 0 && x.size != 2 {
			w.faultAt(Misaligned, in, l, w.addr[l], "atomic on host memory that is not aligned to %d bytes", x.size)
		}
		switch x.size {
		case 8:
			q := (*uint64)(p)
			for {
				old := atomic.LoadUint64(q)
				if v := x.atom(old, b, c); v == old || atomic.CompareAndSwapUint64(q, old, v) {
					out[l] = old
					break
				}
			}
		case 4:
			q := (*uint32)(p)
			for {
				old := atomic.LoadUint32(q)
				if v := uint32(x.atom(uint64(old), b, c)); v == old || atomic.CompareAndSwapUint32(q, old, v) {
					out[l] = uint64(old)
					break
				}
			}
		default: // for a 2-byte element, compare-and-swap of the word that contains it
			shift := 8 * (uintptr(p) & 2)
			q := (*uint32)(unsafe.Pointer(uintptr(p) &^ 2))
			for {
				word := atomic.LoadUint32(q)
				old := uint64(word >> shift & 0xffff)
				v := word&^(0xffff<<shift) | uint32(x.atom(old, b, c)&0xffff)<<shift
				if v == word || atomic.CompareAndSwapUint32(q, word, v) {
					out[l] = old
					break
				}
			}
		}
	}
	if x.n >= 0 {
		w.write(int32(x.n), &out, m)
	}
}

// atomicShared executes atom and red on shared memory. It does not use Go's atomic operations,
// because a block runs on one goroutine.
func (w *warp) atomicShared(in *inst, m uint32) {
	x, s := in.x, &w.cta.shared
	w.conflicts(m, x.size)
	var out lanes
	pc := w.pc + 1
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		off := w.sharedSpan(in, l, x.size)
		w.sharedReady(in, l, off, x.size)
		w.trackWrite(in, l, off, x.size, pc, strong, false)
		old := loadLE(s.data[off:], x.size)
		put(s.data[off:], x.size, x.atom(old, w.r[in.b][l], w.r[in.c][l]))
		out[l] = old
	}
	if x.n >= 0 {
		w.write(int32(x.n), &out, m)
	}
}
