package kernels

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// philox emits the function [expr.Philox]. It returns the four words for a seed and a counter of 64
// bits each.
func philox(b *ptx.Builder, seed, counter ptx.Value) [4]ptx.Value {
	halves := func(v ptx.Value) (lo, hi ptx.Value) {
		v = v.Bitcast(ptx.U64)
		return v.Cvt(ptx.U32), v.Shr(num(32)).Cvt(ptx.U32)
	}
	key0, key1 := halves(seed)
	var c [4]ptx.Value
	c[0], c[1] = halves(counter)
	c[2], c[3] = b.U32(0), b.U32(0)
	for round := range uint32(expr.PhiloxRounds) {
		k0 := key0.Add(b.U32(round * expr.PhiloxW0))
		k1 := key1.Add(b.U32(round * expr.PhiloxW1))
		m0, m1 := b.U32(expr.PhiloxM0), b.U32(expr.PhiloxM1)
		c = [4]ptx.Value{
			c[2].MulHi(m1).Xor(c[1]).Xor(k0), c[2].Mul(m1),
			c[0].MulHi(m0).Xor(c[3]).Xor(k1), c[0].Mul(m0),
		}
	}
	return c
}

// A place is the index of an element in the form base + add, where base is a multiple of vector.
// The fields add and vector are known when the kernel is built, so that neighbouring elements can
// share one block of random numbers.
type place struct {
	base ptx.Value
	// vector is a power of two that is greater than add.
	add, vector int
}

// drawn emits the operation OpPhilox for the element at the given place.
func drawn(b *ptx.Builder, d expr.Draw, t ptx.Type, seed, offset ptx.Value, p place) ptx.Value {
	per := 4 >> d.Shift // number of elements that share a block of random numbers
	var block ptx.Value
	if p.base.Type().Bits() == 64 {
		// the shift also drops the upper bits that Draw.Word drops
		block = p.base.Bitcast(ptx.U64).Shl(num(int(d.Shift))).Shr(num(2))
	} else {
		block = p.base.Shr(num(2 - int(d.Shift))).Cvt(ptx.U64)
	}
	counter := offset.Bitcast(ptx.U64).Add(block).Add(num(p.add / per))
	words := philox(b, seed, counter)
	known := int(d.Word(int64(p.add % per)))
	take := func(word int) ptx.Value {
		if t == ptx.U64 {
			return b.Join(ptx.B64, words[word], words[word|1]).Bitcast(t)
		}
		return words[word]
	}
	// The lowest bits of the element's index choose its random word in the block. The list unknown
	// has those of these bits that affect the choice and are not known when the kernel is built.
	var unknown []int
	for bit := 1; bit < per; bit *= 2 {
		if word := bit << d.Shift; bit >= p.vector && word&int(d.Clear) == 0 {
			unknown = append(unknown, bit)
		}
	}
	var choose func(unknown []int, word int) ptx.Value
	choose = func(unknown []int, word int) ptx.Value {
		if len(unknown) == 0 {
			return take(word)
		}
		bit := unknown[0]
		set := p.base.And(num(bit)).Ne(num(0))
		return set.Select(choose(unknown[1:], word|bit<<d.Shift), choose(unknown[1:], word))
	}
	return choose(unknown, known)
}

// indexOf reports whether value i of a program is the element's index, in any type.
func indexOf(p *expr.Program, i int32) bool {
	for p.Code[i].Op == expr.OpCvt {
		i = p.Code[i].A
	}
	return p.Code[i].Op == expr.OpIndex
}

// lowBits evaluates an OpAnd of the element's index and a constant, if the constant is less than
// the length of a vector. The lower bits of the index are then known when the kernel is built.
func lowBits(p *expr.Program, c expr.Instr, at *place) (v uint64, ok bool) {
	for _, o := range [2][2]int32{{c.A, c.B}, {c.B, c.A}} {
		if k := p.Code[o[1]]; k.Op == expr.OpConst && k.Imm < uint64(at.vector) && indexOf(p, o[0]) {
			return uint64(at.add) & k.Imm, true
		}
	}
	return 0, false
}
