package jit

import (
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/expr"
)

// A program computes both alternatives of a choice. One of them may be long and rarely needed, such
// as the reduction of large arguments of a sine. A loop with a shortcut has a second, shorter body
// without that alternative. The shorter body handles a vector whose lanes are all below a large
// number. For other vectors it jumps to the whole body, which starts again with the same elements.
// The shorter body has stored nothing at that point.

// shortcut is the shorter body of a loop.
type shortcut struct {
	loop   *Loop // the shorter body; it begins with the instructions that compute the comparison
	values []value
	chains map[int32]chain
	within []bool
	when   int32 // value of the comparison; the shorter body is used if it is true in all lanes
}

const (
	// A shortcut leaves out at least this many instructions. With fewer, a jump to the whole body
	// would cost more than the shorter body saves.
	leastSaved = 24
	// Arguments of at least this size are assumed to be rare.
	leastLimit = 1 << 16
	// When the compiler chooses the values that stay in registers, one use in the shorter body
	// counts as this many uses.
	shortWeight = 8
)

// findShortcut chooses the comparison that allows the shorter body to leave out the most
// instructions. Loops over columns have no shortcut.
func (c *compiler) findShortcut() {
	if c.columns() || len(c.Steps) < leastSaved {
		return
	}
	choices := map[int32][]int32{}
	for _, i := range c.Steps {
		if in := c.Code[i]; in.Op == expr.OpSelect && c.likely(in.A) {
			choices[in.A] = append(choices[in.A], i)
		}
	}
	all := len(c.needed(c.Code, c.results()))
	for _, when := range slices.Sorted(maps.Keys(choices)) {
		l := *c.Loop
		l.Code = slices.Clone(c.Code)
		for _, i := range choices[when] {
			l.Code[i] = expr.Instr{Op: expr.OpBitcast, Type: l.Code[i].Type, A: l.Code[i].B}
		}
		l.Steps = l.needed(l.Code, []int32{when})
		for _, i := range c.needed(l.Code, c.results()) {
			if !slices.Contains(l.Steps, i) {
				l.Steps = append(l.Steps, i)
			}
		}
		if all-len(l.Steps) >= leastSaved && (c.short == nil || len(l.Steps) < len(c.short.loop.Steps)) {
			c.short = &shortcut{loop: &l, when: when}
		}
	}
	if c.short == nil {
		return
	}
	q := &compiler{Loop: c.short.loop, lanes: c.lanes, values: make([]value, len(c.Code)), registers: c.registers}
	q.wide = c.wide
	q.trace()
	c.short.values, c.short.chains, c.short.within = q.values, q.chains, q.inner
}

// likely reports whether instruction i of the loop tests whether a float is below a large number.
func (c *compiler) likely(i int32) bool {
	in := c.Code[i]
	if in.Op != expr.OpLt || !c.Code[in.A].Type.IsFloat() || !slices.Contains(c.Steps, i) {
		return false
	}
	limit, known := c.known(in.B)
	return known && limit >= leastLimit
}

// results returns the values that the loop stores or folds.
func (l *Loop) results() (list []int32) {
	for _, s := range l.Stores {
		list = append(list, s.Value)
	}
	if l.Fold != nil {
		list = append(list, l.Fold.Value)
	}
	return list
}

// needed returns the loop's instructions that compute the given values, in order.
func (l *Loop) needed(code []expr.Instr, values []int32) (steps []int32) {
	on := make([]bool, len(code))
	for _, i := range values {
		on[i] = true
	}
	outside := make([]bool, len(code))
	for i := range outside {
		outside[i] = true
	}
	for _, i := range l.Steps {
		outside[i] = false
	}
	for i := len(code) - 1; i >= 0; i-- {
		in := code[i]
		if !on[i] || outside[i] && !SameBits(in, code) {
			continue
		}
		for k, o := range [3]int32{in.A, in.B, in.C} {
			if k < in.Op.Arity() {
				on[o] = true
			}
		}
	}
	for _, i := range l.Steps {
		if on[i] {
			steps = append(steps, i)
		}
	}
	return steps
}

// swap exchanges the whole body and the shorter body as the one that the compiler writes next.
func (c *compiler) swap() {
	s := c.short
	c.Loop, s.loop = s.loop, c.Loop
	c.values, s.values = s.values, c.values
	c.chains, s.chains = s.chains, c.chains
	c.inner, s.within = s.within, c.inner
	c.shorter = !c.shorter
}

// bodies writes the shorter body, followed by the whole body.
func (c *compiler) bodies(tail bool) {
	for i := range c.values {
		if v := &c.values[i]; v.hoisted {
			s := &c.short.values[i]
			s.hoisted, s.reg, s.truth = true, v.reg, v.truth
		}
	}
	c.swap()
	c.body(tail)
	c.swap()
	done := c.jumpAlways()
	c.depart()
	c.body(tail)
	done()
}

// guess writes the jump from the shorter body to the whole body, after the code of the comparison.
// The comparison leaves its result in a mask register, or in a vector for AVX2. Testing it sets the
// carry flag if all lanes are set.
func (c *compiler) guess() {
	v := &c.values[c.short.when]
	k := uint8(v.reg)
	if !c.wide {
		c.vector(testAll, c.length(v.truth), k, 0, c.bits(1<<64-1, 8), options{})
		c.depart = c.jump(aboveEqual)
		return
	}
	test := maskTest
	if c.lanes == 8 {
		test = maskTestByte
	}
	c.masks(test, 0, k, 0, register(k))
	c.depart = c.jump(aboveEqual)
}
