package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// LBFGSConfig configures LBFGS. Zero values of MaxIter, MaxEval, ToleranceGrad, ToleranceChange and
// History mean torch's defaults, 20, 5/4 of MaxIter, 1e-7, 1e-9 and 100.
type LBFGSConfig struct {
	// LR is the length of a step, or of the first step of a line search. There is no default, so LR
	// must be set; torch's default is 1.
	LR            float64
	MaxIter       int     // largest number of iterations in a Step
	MaxEval       int     // largest number of evaluations of the function in a Step
	ToleranceGrad float64 // a Step ends when no element of the gradient is larger than this
	// ToleranceChange ends a Step when little changes. The Step ends if an iteration changes the
	// value by less than ToleranceChange, or every parameter by at most ToleranceChange. It also
	// ends if the derivative along the direction is above -ToleranceChange.
	ToleranceChange float64
	// History is the number of directions that are stored. Each takes twice the memory of the
	// parameters.
	History    int
	LineSearch string // kind of line search: "strong_wolfe", or "" for steps of fixed length
	Maximize   bool   // maximise the function instead of minimising it
}

func (c *LBFGSConfig) options() []option {
	return []option{{"max_iter", &c.MaxIter}, {"max_eval", &c.MaxEval}, {"tolerance_grad", &c.ToleranceGrad}, {"tolerance_change", &c.ToleranceChange},
		{"history_size", &c.History}, {"line_search_fn", &c.LineSearch}, {"maximize", &c.Maximize}}
}

func (c *LBFGSConfig) complete() {
	setDefault(&c.ToleranceGrad, 1e-7)
	setDefault(&c.ToleranceChange, 1e-9)
	if c.MaxIter == 0 {
		c.MaxIter = 20
	}
	if c.MaxEval == 0 {
		c.MaxEval = c.MaxIter * 5 / 4
	}
	if c.History == 0 {
		c.History = 100
	}
}

func (c *LBFGSConfig) check() string {
	if c.MaxIter < 1 || c.MaxEval < 1 || c.History < 1 || c.History > 1<<20 {
		return fmt.Sprintf("%d iterations, %d evaluations and %d directions; each has to be above 0", c.MaxIter, c.MaxEval, c.History)
	}
	if c.LineSearch != "" && c.LineSearch != "strong_wolfe" {
		return fmt.Sprintf("an unknown line search %q; there are \"strong_wolfe\" and \"\"", c.LineSearch)
	}
	return firstMessage(checkNotNegative("the tolerance of the gradient", c.ToleranceGrad), checkNotNegative("the tolerance of changes", c.ToleranceChange))
}

func (c *LBFGSConfig) clone() config { d := *c; return &d }

// LBFGS is the quasi-Newton method with limited memory, as torch.optim.LBFGS (J. Nocedal, S.
// Wright, "Numerical Optimization", chapter 7; strong Wolfe conditions: chapter 3). A Step
// evaluates the function several times, so it needs a closure. Step reads values on the host to
// decide how to continue. LBFGS is not an [Optimizer], because its Step has an argument. It has
// all other methods of an Optimizer. All parameters have one type, are on one device, and form
// one group.
type LBFGS struct {
	base
	m memory
}

// memory is the state of LBFGS. Each of its vectors has one element for every element of the
// parameters.
type memory struct {
	evals, iterations int
	d                 *tensor.Tensor // latest direction
	t                 float64        // length of the latest step along d
	dirs, steps       []*tensor.Tensor
	ro                []float64
	scale             float64 // diagonal of the initial inverse Hessian
	grad              *tensor.Tensor
	loss              float64
}

func (m *memory) free() { m.drop(&memory{}) }

// NewLBFGS returns LBFGS over params.
func NewLBFGS(params []*tensor.Tensor, c LBFGSConfig) *LBFGS {
	o := &LBFGS{base: newBase("LBFGS", schema{})}
	o.addGroup(params, c.LR, &c)
	for i, p := range params {
		if p.Device() != params[0].Device() || p.Type() != params[0].Type() {
			o.bad("parameter %d is %v on %s, parameter 0 %v on %s", i, p.Type(), p.Device().Name(), params[0].Type(), params[0].Device().Name())
		}
	}
	return o
}

// A search is one Step in progress. It works on a copy of the memory, which replaces the original
// after the Step has succeeded.
type search struct {
	o       *LBFGS
	m       memory
	c       *LBFGSConfig
	closure func() float64
	s       *tensor.Scope // scope of the step
	evals   int
}

// Step minimises for up to MaxIter iterations and returns the value of the function at the start.
// The closure computes the gradients for the current parameters and returns the value. It usually
// calls ZeroGrad, Forward, Backward and Item. If Step or the closure fails, parameters and state do
// not change. To undo a failed step, Step keeps a copy of the parameters, and the previous
// direction and gradient.
func (o *LBFGS) Step(closure func() float64) float64 {
	if closure == nil {
		o.bad("Step needs a closure that computes the gradients and returns the value")
	}
	c := *o.groups[0].config.(*LBFGSConfig)
	var first float64
	follow(o.Params()[0], append(append([]*tensor.Tensor{o.m.d, o.m.grad}, o.m.dirs...), o.m.steps...)...)
	q := &search{o: o, c: &c, closure: closure, m: o.m.clone()}
	tensor.Youngest(o.Params()...).Do(func(s *tensor.Scope) {
		q.s = s
		back := q.setting(q.gather(s, o.Params()), false, 0)
		done := false
		defer func() {
			if !done {
				back.run("lbfgs")
				q.m.drop(&o.m)
			}
		}()
		first = q.run()
		done = true
	}, tensor.NoGrad())
	o.m.drop(&q.m)
	o.m = q.m
	o.steps++
	return first
}

// Shard panics with an *[Error], because each iteration needs dot products over all parameters.
func (o *LBFGS) Shard(map[*tensor.Tensor]Part) {
	o.bad("it cannot be sharded: each iteration takes products of vectors of all parameters")
}

// clone returns a copy of m that shares the vectors.
func (m *memory) clone() memory {
	c := *m
	c.dirs, c.steps, c.ro = slices.Clone(m.dirs), slices.Clone(m.steps), slices.Clone(m.ro)
	return c
}

func (m *memory) vectors() (out []*tensor.Tensor) {
	for _, t := range slices.Concat([]*tensor.Tensor{m.d, m.grad}, m.dirs, m.steps) {
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

// drop frees the vectors of m that are not in other.
func (m *memory) drop(other *memory) {
	kept := other.vectors()
	for _, t := range m.vectors() {
		if !slices.Contains(kept, t) {
			t.Free()
		}
	}
}

// value calls the closure. loss is what the closure returns, and objective is the value to
// minimise.
func (q *search) value() (objective, loss float64) {
	loss = q.closure()
	q.evals++
	if q.c.Maximize {
		return -loss, loss
	}
	return loss, loss
}

func (q *search) run() float64 {
	m := &q.m
	loss, first := q.value()
	m.evals++
	g := q.gradient(q.s)
	if largest(g) <= q.c.ToleranceGrad {
		return first
	}
	for n := 1; ; n++ {
		m.iterations++
		q.direct(g)
		q.replace(&m.grad, q.o.m.grad, g)
		m.loss = loss
		before := loss
		lr := q.o.groups[0].LR
		m.t = lr
		if m.iterations == 1 {
			m.t = min(1, 1/g.Norm(1).Item()) * lr
		}
		slope := dot(g, m.d)
		if slope > -q.c.ToleranceChange {
			return first
		}
		evals := 0
		small := false
		if q.c.LineSearch != "" {
			q.s.Do(func(s *tensor.Scope) {
				w := &wolfe{q: q, s: s, x: q.gather(s, q.o.Params()), d: m.d, f: loss, g: g, slope: slope, most: q.c.MaxEval - q.evals}
				var next *tensor.Tensor
				loss, next, m.t = w.search(m.t)
				g, evals = next, w.evals
				s.Close(g)
			})
			q.move(m.t, m.d)
			small = largest(g) <= q.c.ToleranceGrad
		} else {
			q.move(m.t, m.d)
			if n != q.c.MaxIter {
				loss, _ = q.value()
				g = q.gradient(q.s)
				small, evals = largest(g) <= q.c.ToleranceGrad, 1
			}
		}
		m.evals += evals
		switch {
		case n == q.c.MaxIter, q.evals >= q.c.MaxEval, small:
			return first
		case largest(m.d)*math.Abs(m.t) <= q.c.ToleranceChange, math.Abs(loss-before) < q.c.ToleranceChange:
			return first
		}
	}
}

// direct computes the direction of descent from the gradient g and the stored directions.
func (q *search) direct(g *tensor.Tensor) {
	m := &q.m
	if m.iterations == 1 || m.grad == nil {
		q.replace(&m.d, q.o.m.d, g.Neg())
		m.scale = 1
		return
	}
	q.s.Do(func(s *tensor.Scope) {
		g := g.In(s)
		y, step := g.Sub(m.grad), m.d.In(s).MulScalar(m.t)
		if ys := dot(y, step); ys > 1e-10 {
			if len(m.dirs) == q.c.History {
				q.forget(m.dirs[0], q.o.m.dirs)
				q.forget(m.steps[0], q.o.m.steps)
				m.dirs, m.steps, m.ro = m.dirs[1:], m.steps[1:], m.ro[1:]
			}
			m.dirs = append(m.dirs, q.clone(y))
			m.steps = append(m.steps, q.clone(step))
			m.ro = append(m.ro, 1/ys)
			m.scale = ys / dot(y, y)
		}
		r := g.Neg()
		al := make([]float64, len(m.dirs))
		for i := len(m.dirs) - 1; i >= 0; i-- {
			al[i] = dot(m.steps[i], r) * m.ro[i]
			r.SubInPlace(m.dirs[i].In(s).MulScalar(al[i]))
		}
		r.MulScalarInPlace(m.scale)
		for i := range m.dirs {
			r.AddInPlace(m.steps[i].In(s).MulScalar(al[i] - dot(m.dirs[i], r)*m.ro[i]))
		}
		q.replace(&m.d, q.o.m.d, r)
	})
}

// clone returns a copy of v that is not freed with the step.
func (q *search) clone(v *tensor.Tensor) *tensor.Tensor {
	p := q.o.groups[0].Params[0]
	return p.Scope().On(p.Device()).Typed(p.Type()).Empty(v.Size()).Copy(v)
}

// replace sets *dst to a copy of v. It reuses the memory of *dst, unless *dst is initial. The
// vector initial is from the start of the Step and must not change.
func (q *search) replace(dst **tensor.Tensor, initial, v *tensor.Tensor) {
	if *dst == nil || *dst == initial {
		*dst = q.clone(v)
		return
	}
	(*dst).Copy(v)
}

// forget frees the vector t, unless it existed at the start of the Step.
func (q *search) forget(t *tensor.Tensor, before []*tensor.Tensor) {
	if !slices.Contains(before, t) {
		t.Free()
	}
}

func dot(a, b *tensor.Tensor) float64 { return a.Dot(b).Item() }

func largest(a *tensor.Tensor) float64 { return a.Norm(math.Inf(1)).Item() }

// gather returns the elements of all tensors as one vector, in the scope s.
func (q *search) gather(s *tensor.Scope, list []*tensor.Tensor) *tensor.Tensor {
	n := 0
	pieces := make([]*tensor.Tensor, len(list))
	for i, t := range list {
		pieces[i] = t.In(s).Detach().Contiguous().Reshape(-1)
		n += t.Size()
	}
	p := q.o.groups[0].Params[0]
	return gather(s, p.Device(), p.Type(), pieces, n)
}

// gradient returns the gradient of all parameters as one vector. If the value is to be maximised,
// the gradient is negated.
func (q *search) gradient(s *tensor.Scope) *tensor.Tensor {
	list := append([]*tensor.Tensor(nil), q.o.Params()...)
	for i, p := range list {
		if g := p.Grad(); g != nil {
			list[i] = g
		} else {
			list[i] = s.On(p.Device()).Typed(p.Type()).Zeros(p.Shape().Slice()...)
		}
	}
	g := q.gather(s, list)
	if q.c.Maximize {
		return g.Neg()
	}
	return g
}

// setting returns a launch that sets the parameters to the elements of vector v or, if add is true,
// adds t·v to them. The launch belongs to v's scope.
func (q *search) setting(v *tensor.Tensor, add bool, t float64) *launch {
	p := q.o.groups[0].Params[0]
	l := &launch{dev: p.Device(), t: p.Type(), scalars: []float64{t}}
	l.program = lowered("spread", flags{add}, l.t, 2, func(f flags) []*expr.Expr {
		if f[0] {
			return []*expr.Expr{expr.X(0).Add(expr.X(1).Mul(expr.Param(0)))}
		}
		return []*expr.Expr{expr.X(1)}
	})
	at := 0
	for _, p := range q.o.Params() {
		piece := v.Narrow(0, at, p.Size()).Reshape(p.Shape().Slice()...)
		l.outs, l.ins = append(l.outs, []*tensor.Tensor{p}), append(l.ins, []*tensor.Tensor{p, piece})
		at += p.Size()
	}
	l.pack(v.Scope())
	return l
}

// spread runs the launch that setting returns.
func (q *search) spread(v *tensor.Tensor, add bool, t float64) {
	v.Scope().Do(func(s *tensor.Scope) { q.setting(v.In(s), add, t).run("lbfgs") }, tensor.NoGrad())
}

func (q *search) move(t float64, d *tensor.Tensor) { q.spread(d, true, t) }
