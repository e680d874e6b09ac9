package jit

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// An exact remainder of floats takes several steps: each replaces r by r - trunc(r/y)·y. A program
// has as many steps as the largest quotient needs. Once |r| is less than y, or r is NaN, further
// steps change nothing. So after each step except the last, the machine code leaves the chain if
// |r| < y or r is NaN in each lane. For quotients below 2⁵³ it leaves after the first step.

// chain is a sequence of steps of an exact remainder (fmod) that starts with the value r and
// divides by y.
type chain struct {
	r, y      int32
	ends      []int32 // the last instruction of each step, in reverse order
	quotients []int32 // all other instructions of the steps
	// second says that this is the second step of a division of integers (see findSeconds); then
	// float is the divisor as a float64
	second bool
	float  int32
}

// findChains finds the chains of at least two steps. All machine code of a chain is written at its
// last instruction. No other value of a chain may be used outside it.
func (c *compiler) findChains() {
	c.chains, c.inner = map[int32]chain{}, make([]bool, len(c.Code))
	uses, steps := make([]int, len(c.Code)), make([]bool, len(c.Code))
	for _, i := range c.Steps {
		in := c.Code[i]
		for k, o := range [3]int32{in.A, in.B, in.C} {
			if k < in.Op.Arity() {
				uses[o]++
			}
		}
		steps[i] = true
	}
	for _, s := range c.Stores {
		uses[s.Value]++
	}
	if c.Fold != nil {
		uses[c.Fold.Value]++
	}
	inner := func(i int32, op expr.Op) bool { return steps[i] && uses[i] == 1 && c.Code[i].Op == op }
	if !c.wide {
		c.findSeconds(inner)
	}
	found := map[int32]chain{}
	for _, i := range c.Steps {
		in := c.Code[i]
		if in.Op != expr.OpFMA {
			continue
		}
		negated, y := in.A, in.B
		if c.Code[negated].Op != expr.OpNeg {
			negated, y = y, negated
		}
		if !inner(negated, expr.OpNeg) || !inner(c.Code[negated].A, expr.OpTrunc) {
			continue
		}
		whole := c.Code[negated].A
		ratio := c.Code[whole].A
		if q := c.Code[ratio]; !inner(ratio, expr.OpDiv) || q.A != in.C || q.B != y {
			continue
		}
		step := chain{r: in.C, y: y, ends: []int32{i}, quotients: []int32{negated, whole, ratio}}
		if before, ok := found[in.C]; ok && before.y == y && uses[in.C] == 2 {
			step.r = before.r
			step.ends = append(step.ends, before.ends...)
			step.quotients = append(step.quotients, before.quotients...)
			delete(found, in.C)
		}
		found[i] = step
	}
	for i, s := range found {
		if len(s.ends) == 1 {
			continue
		}
		c.chains[i] = s
		for _, k := range append(s.quotients, s.ends[1:]...) {
			c.inner[k] = true
		}
	}
}

// divide writes the steps of a chain.
func (c *compiler) divide(i int32, s chain) {
	size := c.Code[i].Type.Size()
	length := c.length(size)
	x, y := c.vec(s.r), c.vec(s.y)
	r, q, k := c.result(i, false), c.temp(), uint8(0)
	if c.wide {
		k = c.tempMask()
	}
	c.vector(moveVector[0], c.full(), r, 0, register(x), options{})
	var ends []func()
	for n := range len(s.ends) {
		c.vector(divFloat.forSize(size), length, q, r, register(y), options{})
		c.vector(roundFloat.forSize(size), length, q, 0, register(q), imm(8|3))
		c.vector(xor.forSize(size), length, q, q, c.bits(1<<(8*size-1), size), options{})
		c.vector(fma231.forSize(size), length, r, q, register(y), options{})
		if n == len(s.ends)-1 {
			break
		}
		c.vector(and.forSize(size), length, q, r, c.bits(1<<(8*size-1)-1, size), options{})
		if c.wide {
			c.vector(compareFloat.forSize(size), length, k, q, register(y), imm(floatGreaterEqual))
			c.masks(maskTest, 0, k, 0, register(k))
		} else {
			c.vector(compareFloat.forSize(size), length, q, q, register(y), imm(floatGreaterEqual))
			c.vector(testAll, length, q, 0, register(q), options{})
		}
		ends = append(ends, c.jump(equal))
	}
	for _, end := range ends {
		end()
	}
}

// A division of integers of 64 bits divides in float64, which has an error if the quotient is
// large. So a second step divides the remainder r again. It computes the value more = trunc(r/y),
// adds it to the quotient, and replaces the remainder by r - more·y. If |r| is less than |y| in all
// lanes, as for quotients below 2⁵³, loops for AVX2 skip this step. Loops for AVX-512 do not,
// because AVX-512 has instructions for the operations that skipping would save.

// findSeconds finds the second steps of divisions. Their code is written at the instruction that
// computes the value more.
func (c *compiler) findSeconds(inner func(i int32, op expr.Op) bool) {
	product := func(i int32) (p expr.Instr, is bool) {
		in := c.Code[i]
		if in.Op != expr.OpSub || in.Type != dtype.I64 {
			return in, false
		}
		p = c.Code[in.B]
		return p, p.Op == expr.OpMul
	}
	for _, i := range c.Steps {
		p, ok := product(i)
		if !ok || !inner(c.Code[i].B, expr.OpMul) {
			continue
		}
		r := c.Code[i].A
		if _, ok := product(r); !ok {
			continue
		}
		more, y := p.A, p.B
		if c.Code[more].Op != expr.OpCvt || c.Code[c.Code[more].A].Op != expr.OpTrunc {
			more, y = y, more
		}
		whole := c.Code[more].A
		if c.Code[more].Op != expr.OpCvt || !slices.Contains(c.Steps, more) || !inner(whole, expr.OpTrunc) || !inner(c.Code[whole].A, expr.OpDiv) {
			continue
		}
		ratio := c.Code[whole].A
		q := c.Code[ratio]
		from, by := c.Code[q.A], c.Code[q.B]
		if q.Type != dtype.F64 || !inner(q.A, expr.OpCvt) || from.A != r || by.Op != expr.OpCvt || by.A != y {
			continue
		}
		c.chains[more] = chain{r: r, y: y, ends: []int32{i}, second: true, float: q.B}
		for _, k := range []int32{i, c.Code[i].B, whole, ratio, q.A} {
			c.inner[k] = true
		}
	}
}

// divideAgain writes the second step of a division, which computes value i and the new remainder.
func (c *compiler) divideAgain(i int32, s chain) {
	r, y, float := c.vec(s.r), c.vec(s.y), c.vec(s.float)
	more, rest := c.result(i, false), c.result(s.ends[0], false)
	t, a, b := c.temp(), c.temp(), c.temp()
	c.fromLong(t, r, a, true)
	c.vector(and[0], len256, a, t, c.bits(1<<63-1, 8), options{})
	c.vector(and[0], len256, b, float, c.bits(1<<63-1, 8), options{})
	c.vector(compareFloat[1], len256, a, a, register(b), imm(floatNotLess))
	c.vector(testAll, len256, a, 0, register(a), options{})
	needed := c.jump(notEqual)
	c.vector(xor[0], len256, more, more, register(more), options{})
	c.vector(moveVector[0], len256, rest, 0, register(r), options{})
	back := len(c.code)
	c.later = append(c.later, func() {
		needed()
		c.vector(divFloat[1], len256, t, t, register(float), options{})
		c.vector(roundFloat[1], len256, t, 0, register(t), imm(8|3))
		c.toLong(more, t, a, b, true)
		c.mulLong(rest, more, y, a, b, len256)
		c.vector(subInt[1], len256, rest, r, register(rest), options{})
		c.jumpTo(back)
	})
}
