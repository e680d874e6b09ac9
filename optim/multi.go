package optim

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// flags are the options that select the program of a group.
type flags [6]bool

// A rule describes an optimizer that works element by element. It maps the parameter, gradient and
// state tensors to the new parameter and state tensors.
type rule[C any] struct {
	name   string // name of the program
	schema schema
	eager  bool // the constructor allocates the state, as in torch; otherwise the first step does
	// uses returns the indices, in the schema, of the state tensors that the options require. flags
	// returns the options that select the program.
	uses  func(c *C) []int
	flags func(c *C) flags
	// start returns the initial value of state tensor i. A nil start means zeros.
	start func(c *C, lr float64, i int) float64
	// begin returns the initial value of scalar i. A nil begin means that there are no scalars.
	begin func(c *C, lr float64, i int) float64
	// program returns the expressions of the results: the new parameter, then the new state
	// tensors. X(0) is the parameter, X(1) the gradient, and X(2) and up are the state tensors. The
	// Params are those that the function scalars returns.
	program func(f flags) []*expr.Expr
	// scalars returns the Params of step t, counted from 1, and the scalars of the state after the
	// step. st is the state before the step. fresh says whether the state's tensors are new.
	scalars func(c *C, lr, t float64, st *state, fresh bool) (params []float64, next []scalar)
}

// options constrains P to *C, a pointer to a configuration that implements config.
type options[C any] interface {
	*C
	config
}

// multi is an optimizer that works element by element and can update many parameters in one launch.
type multi[C any, P options[C]] struct {
	base
	rule *rule[C]
}

func newMulti[C any, P options[C]](name string, r *rule[C], lr func(*C) float64, groups []With[C]) multi[C, P] {
	m := multi[C, P]{base: newBase(name, r.schema), rule: r}
	m.splits = true
	if !r.schema.lenient {
		m.needs = func(c config) []int { return r.uses((*C)(c.(P))) }
	}
	if len(groups) == 0 {
		m.bad("there are no parameters")
	}
	for _, g := range groups {
		m.add(g, lr)
	}
	return m
}

func newBase(name string, s schema) base {
	return base{name: name, schema: s, state: map[*tensor.Tensor]*state{}, turn: new(tensor.Exclusive)}
}

func (m *multi[C, P]) add(g With[C], lr func(*C) float64) {
	c := g.Config
	m.addGroup(g.Params, lr(&c), P(&c))
	if !m.rule.eager {
		return
	}
	for _, p := range g.Params {
		ch := change{p: p, x: p, st: m.stateOf(p, &c, lr(&c))}
		m.prepare(&ch, &c, lr(&c), m.rule.uses(&c))
		m.state[p] = ch.st
	}
}

// A launch updates parameters that have the same device, type, program and scalars.
type launch struct {
	dev       device.Device
	t         dtype.Type
	flags     flags
	scalars   []float64
	outs, ins [][]*tensor.Tensor
	program   *expr.Program
	slots     *tensor.Tensor // scalars on the device
	bits      []uint64
	reserve   *tensor.Tensor // memory reserved for what the launch itself allocates
}

// A change is one parameter in a step, with its state.
type change struct {
	p     *tensor.Tensor
	x     *tensor.Tensor // tensor that the step writes: p, or the shard's part of p
	st    *state
	fresh []*tensor.Tensor // state tensors that the current step has allocated
	next  []scalar
}

// Step updates every parameter that has a gradient.
func (m *multi[C, P]) Step() {
	if g := m.capturing(); g != nil {
		m.settle()
		m.capture(g, nil)
		return
	}
	m.step(nil)
}

func (m *multi[C, P]) step(unless *tensor.Tensor) {
	defer profile.Span("Optimizer.step")()
	m.settle()
	var late *tensor.LateItem
	var changes []change
	var list []*launch
	done := false
	defer func() {
		m.shard.end()
		if done {
			return
		}
		late.Drop()
		for _, c := range changes {
			for i, t := range c.fresh {
				if t != nil {
					t.Free()
					c.st.tensors[i] = nil
				}
			}
		}
	}()
	tensor.Do(func(s *tensor.Scope) {
		for _, g := range m.groups {
			cfg := (*C)(g.config.(P))
			uses, fl := m.rule.uses(cfg), m.rule.flags(cfg)
			for _, p := range g.Params {
				x, grad := m.part(p)
				if grad == nil {
					continue
				}
				changes = append(changes, change{p: p, x: x, st: m.stateOf(p, cfg, g.LR)})
				c := &changes[len(changes)-1]
				m.prepare(c, cfg, g.LR, uses)
				m.restart(cfg, g.LR, c.st)
				outs, ins := make([]*tensor.Tensor, 1, 1+len(uses)), make([]*tensor.Tensor, 2, 2+len(uses))
				outs[0], ins[0], ins[1] = x, x, grad
				for _, i := range uses {
					outs, ins = append(outs, c.st.tensors[i]), append(ins, c.st.tensors[i])
				}
				var scalars []float64
				scalars, c.next = m.rule.scalars(cfg, g.LR, c.st.step+1, c.st, c.fresh != nil || c.st.unused)
				list = join(list, p, fl, placeFor(unless, scalars), outs, ins)
			}
		}
		if unless != nil {
			late = unless.ItemLater()
		}
		for _, l := range list {
			l.program = lowered(unlessName(unless, m.rule.name), l.flags, l.t, len(l.ins[0]), guarded(unless, m.rule.program, len(l.scalars)-1))
			l.pack(s)
			l.guard(s, unless)
		}
		for _, l := range list {
			l.run(m.rule.name)
		}
	}, tensor.NoGrad())
	if unless != nil {
		m.decideLater(late, changes)
		done = true
		return
	}
	for _, c := range changes {
		c.st.step++
		c.st.unused = false
		if c.next != nil {
			c.st.scalars = c.next
		}
		m.state[c.p] = c.st
	}
	m.steps++
	done = true
}

// stateOf returns the state of p, or a new state if p has none.
func (m *multi[C, P]) stateOf(p *tensor.Tensor, c *C, lr float64) *state {
	if st := m.state[p]; st != nil {
		return st
	}
	st := &state{tensors: make([]*tensor.Tensor, len(m.schema.tensors)), scalars: make([]scalar, len(m.schema.scalars))}
	for i := range st.scalars {
		st.scalars[i] = st.scalars[i].round(m.rule.begin(c, lr, i))
	}
	return st
}

// prepare allocates missing state tensors, and moves existing ones to the parameter's device and
// type.
func (m *multi[C, P]) prepare(c *change, cfg *C, lr float64, uses []int) {
	for _, i := range uses {
		t := c.st.tensors[i]
		if t != nil {
			follow(c.p, t)
			continue
		}
		v := 0.0
		if m.rule.start != nil {
			v = m.rule.start(cfg, lr, i)
		}
		t = c.p.Scope().On(c.p.Device()).Typed(c.p.Type()).Full(v, c.x.Shape().Slice()...)
		if c.fresh == nil {
			c.fresh = make([]*tensor.Tensor, len(c.st.tensors))
		}
		c.fresh[i], c.st.tensors[i] = t, t
	}
}

// follow moves tensors of state to p's device and type if these have changed.
func follow(p *tensor.Tensor, list ...*tensor.Tensor) {
	for _, t := range list {
		if t == nil {
			continue
		}
		if t.Device() != p.Device() {
			t.MoveTo(p.Device())
		}
		if t.Type() != p.Type() {
			t.CastInPlace(p.Type())
		}
	}
}

// join adds a parameter to a launch of the list that can update it, or else appends a new launch.
func join(list []*launch, p *tensor.Tensor, f flags, scalars []float64, outs, ins []*tensor.Tensor) []*launch {
	for _, l := range list {
		if l.dev == p.Device() && l.t == p.Type() && l.flags == f && len(l.ins[0]) == len(ins) && equal(l.scalars, scalars) {
			l.outs, l.ins = append(l.outs, outs), append(l.ins, ins)
			return list
		}
	}
	return append(list, &launch{dev: p.Device(), t: p.Type(), flags: f, scalars: scalars, outs: [][]*tensor.Tensor{outs}, ins: [][]*tensor.Tensor{ins}})
}

func equal(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

var programs sync.Map // maps a programKey to the rule's lowered *expr.Program

type programKey struct {
	rule     string
	flags    flags
	t        dtype.Type
	operands int
}

// lowered returns the lowered program of a rule for parameters and state of type t.
func lowered(name string, f flags, t dtype.Type, operands int, rule func(flags) []*expr.Expr) *expr.Program {
	key := programKey{name, f, t, operands}
	if p, ok := programs.Load(key); ok {
		return p.(*expr.Program)
	}
	out, in := make([]dtype.Type, len(rule(f))), make([]dtype.Type, operands)
	for i := range out {
		out[i] = t
	}
	for i := range in {
		in[i] = t
	}
	return loweredAs(key, out, in, rule)
}

// loweredAs does the same as lowered for results and operands of any types. The key must differ for
// different types.
func loweredAs(key programKey, out, in []dtype.Type, rule func(flags) []*expr.Expr) *expr.Program {
	if p, ok := programs.Load(key); ok {
		return p.(*expr.Program)
	}
	results := rule(key.flags)
	for i, e := range results {
		results[i] = e.Named(key.rule)
	}
	p := expr.MustLower(results, out, in, -1)
	programs.Store(key, p)
	return p
}

// pack copies the scalars to the device and loads the program there. It also reserves memory for
// the table of addresses that the launch will allocate.
func (l *launch) pack(s *tensor.Scope) {
	tensor.PrepareUpdate("optimizer", l.program, l.dev)
	l.bits = make([]uint64, max(1, len(l.scalars)))
	slots := make([]int64, len(l.bits))
	for i, v := range l.scalars {
		if i < len(l.program.Params) && l.program.Params[i] != dtype.Invalid {
			l.bits[i] = expr.Encode(l.program.Params[i], v)
		}
		slots[i] = int64(l.bits[i])
	}
	l.slots = constants(s, l.dev, slots)
	if l.dev.Info().Host {
		return
	}
	words := 0
	for k := range l.outs {
		words += 2 + len(l.outs[k]) + len(l.ins[k]) + 2*(1+l.outs[k][0].Size()/4096)
	}
	l.reserve = s.On(l.dev).Typed(dtype.I64).Empty(words)
}

// decayed returns p and g after weight decay. If maximize is true, g is negated first. Coupled
// decay adds decay·p to g. Decoupled decay multiplies p by factor.
func decayed(maximize, coupled, decoupled bool, decay, factor *expr.Expr) (p, g *expr.Expr) {
	p, g = expr.X(0), expr.X(1)
	if maximize {
		g = g.Neg()
	}
	if decoupled {
		p = p.Mul(factor)
	}
	if coupled {
		g = g.Add(p.Mul(decay))
	}
	return p, g
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// String returns the optimizer's name, the numbers of its parameters and groups, and its learning
// rate.
func (b *base) String() string {
	n := 0
	for _, g := range b.groups {
		n += len(g.Params)
	}
	return fmt.Sprintf("%s(%d parameters in %d groups, lr %v)", b.name, n, len(b.groups), b.groups[0].LR)
}
