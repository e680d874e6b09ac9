package ptx

// appendTo runs f and appends the nodes that f adds to region r.
func (b *Builder) appendTo(r *region, f func()) {
	saved := b.cur
	b.cur = r
	f()
	b.cur = saved
}

func (b *Builder) condition(op string, p Value) bool {
	if !b.check(op, p) {
		return false
	}
	if p.t != Pred {
		b.fail("%s: the condition is %v, not pred", op, p.t)
		return false
	}
	return true
}

// If runs body in the threads where p is true.
func (b *Builder) If(p Value, body func()) { b.branch("If", p, body, nil) }

// IfElse runs the function yes in the threads where p is true, and the function no in the threads
// where p is false.
func (b *Builder) IfElse(p Value, yes, no func()) { b.branch("IfElse", p, yes, no) }

func (b *Builder) branch(op string, p Value, yes, no func()) {
	n := &node{kind: branchIf, body: &region{parent: b.cur}, effect: effectful}
	n.body.owner = n
	ok := b.condition(op, p)
	b.appendTo(n.body, yes)
	if no != nil {
		n.els = &region{parent: b.cur, owner: n}
		b.appendTo(n.els, no)
	}
	if ok {
		n.cond = p.r
		b.add(n)
	}
}

// Loop represents a loop within the loop's body. Its methods leave the loop or start the next
// iteration.
type Loop struct {
	b *Builder
	n *node
}

// Break leaves the loop.
func (l Loop) Break() { l.jump("Break", jumpBreak, nil) }

// BreakIf leaves the loop in the threads where p is true.
func (l Loop) BreakIf(p Value) { l.jump("BreakIf", jumpBreak, &p) }

// Continue continues with the next iteration.
func (l Loop) Continue() { l.jump("Continue", jumpContinue, nil) }

// ContinueIf continues with the next iteration in the threads where p is true.
func (l Loop) ContinueIf(p Value) { l.jump("ContinueIf", jumpContinue, &p) }

func (l Loop) jump(op string, kind nodeKind, p *Value) {
	b := l.b
	if !l.n.body.encloses(b.cur) {
		b.fail("%s outside of its loop", op)
		return
	}
	n := &node{kind: kind, target: l.n, effect: effectful}
	if p != nil {
		if !b.condition(op, *p) {
			return
		}
		n.cond = p.r
	}
	b.add(n)
}

// Loop repeats body until body calls a Break method of l, or returns from the kernel.
func (b *Builder) Loop(body func(l Loop)) {
	n := b.newLoop()
	b.appendTo(n.body, func() { body(Loop{b, n}) })
	b.add(n)
}

func (b *Builder) newLoop() *node {
	n := &node{kind: loopForever, effect: effectful}
	n.body = &region{parent: b.cur, owner: n}
	n.latch = &region{parent: b.cur, owner: n}
	return n
}

// While evaluates cond before each iteration, and repeats body as long as cond is true. Values
// that cond defines may be used in body.
func (b *Builder) While(cond func() Value, body func(l Loop)) {
	b.Loop(func(l Loop) {
		if p := cond(); b.condition("While", p) {
			b.add(&node{kind: jumpBreak, target: l.n, cond: p.r, negate: true, effect: effectful})
		}
		body(l)
	})
}

// For runs body for i = start, start+step, … as long as i < end, where the comparison has the type
// of start. The step must be positive, and i + step must not wrap.
func (b *Builder) For(start Value, end, step Operand, body func(i Value, l Loop)) {
	e, s := end.as(b, start.t), step.as(b, start.t)
	if !b.sameType("For", start, e, s) {
		return
	}
	if !start.t.IsInt() || start.t.Bits() < 32 {
		b.fail("For: the counter is a 32- or 64-bit integer, not %v", start.t)
		return
	}
	if s.r.konst && (s.r.bits == 0 || start.t.IsSigned() && s.r.bits>>(start.t.Bits()-1) != 0) {
		b.fail("For: the step must be positive")
		return
	}
	b.If(start.Lt(e), func() {
		counter := b.Var(start)
		n := b.newLoop()
		b.appendTo(n.body, func() { body(counter.Get(), Loop{b, n}) })
		b.appendTo(n.latch, func() {
			next := counter.Get().Add(s)
			counter.Set(next)
			n.cond = counter.Get().Lt(e).r
		})
		b.add(n)
	})
}

// Return ends the thread.
func (b *Builder) Return() { b.add(&node{kind: jumpReturn, effect: effectful}) }

// ReturnIf ends the threads where p is true.
func (b *Builder) ReturnIf(p Value) {
	if b.condition("ReturnIf", p) {
		b.add(&node{kind: jumpReturn, cond: p.r, effect: effectful})
	}
}
