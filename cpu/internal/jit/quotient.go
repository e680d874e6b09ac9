package jit

import "github.com/flambeau-go/flambeau/expr"

// An exact remainder of floats takes several steps: each replaces r by r - trunc(r/y)·y. A program
// has as many steps as the largest quotient needs. Once |r| is less than y, or r is NaN, further
// steps change nothing. The loop leaves the chain of steps when this holds in all lanes. For
// quotients below 2⁵³ that is after the first step.

// chain is a sequence of steps of an exact remainder (fmod) that starts with the value r and
// divides by y.
type chain struct {
	r, y      int32
	ends      []int32 // the last instruction of each step, in reverse order
	quotients []int32 // all other instructions of the steps
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
