package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// LBFGSConfig sets LBFGS. Zero values of MaxIter, MaxEval, ToleranceGrad, ToleranceChange and History take torch's defaults 20, 5/4 of MaxIter,
// 1e-7, 1e-9 and 100.
type LBFGSConfig struct {
	LR              float64 // the length of a step, or of the first one of a line search; torch's default is 1; it has to be set
	MaxIter         int     // iterations in a Step
	MaxEval         int     // evaluations of the function in a Step
	ToleranceGrad   float64 // the largest element of a gradient that ends a Step
	ToleranceChange float64 // the change of value or parameters that ends a Step
	History         int     // so many directions are remembered, each as large as the parameters, twice
	LineSearch      string  // "strong_wolfe", or "" for steps of fixed length
	Maximize        bool    // go up
}

func (c *LBFGSConfig) options() []option {
	return []option{{"max_iter", &c.MaxIter}, {"max_eval", &c.MaxEval}, {"tolerance_grad", &c.ToleranceGrad}, {"tolerance_change", &c.ToleranceChange},
		{"history_size", &c.History}, {"line_search_fn", &c.LineSearch}, {"maximize", &c.Maximize}}
}

func (c *LBFGSConfig) complete() {
	either(&c.ToleranceGrad, 1e-7)
	either(&c.ToleranceChange, 1e-9)
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
		return fmt.Sprintf("an unknown line search %q", c.LineSearch)
	}
	return first(checkNotNegative("the tolerance of the gradient", c.ToleranceGrad), checkNotNegative("the tolerance of changes", c.ToleranceChange))
}

func (c *LBFGSConfig) clone() config { d := *c; return &d }

// LBFGS is the quasi-Newton method with limited memory, as torch.optim.LBFGS (J. Nocedal, S. Wright, "Numerical Optimization", chapter 7;
// strong Wolfe conditions: chapter 3). It evaluates the function several times in a Step, which therefore takes a closure, and it reads
// values on the host to decide; so it is no [Optimizer], though it has all of its other methods. All parameters are of one type on one device, in one group.
type LBFGS struct {
	base
	m memory
}

// memory is what LBFGS remembers: vectors of all parameters behind one another.
type memory struct {
	evals, iterations int
	d                 *tensor.Tensor // the last direction
	t                 float64        // the last step along it
	dirs, steps       []*tensor.Tensor
	ro                []float64
	scale             float64 // of the first approximation of the inverse Hessian
	grad              *tensor.Tensor
	loss              float64
}

func (m *memory) free() {
	for _, t := range append(append([]*tensor.Tensor{m.d, m.grad}, m.dirs...), m.steps...) {
		if t != nil {
			t.Free()
		}
	}
}

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

// search is one Step.
type search struct {
	o       *LBFGS
	c       *LBFGSConfig
	closure func() float64
	s       *tensor.Scope // of the step
	evals   int
}

// Step minimises for up to MaxIter iterations and returns the value of the function at the beginning. The closure computes the gradients of the
// parameters, as they are when it is called, and returns the value: ZeroGrad, Forward, Backward, Item.
func (o *LBFGS) Step(closure func() float64) float64 {
	if closure == nil {
		o.bad("Step needs a closure that computes the gradients and returns the value")
	}
	c := *o.groups[0].config.(*LBFGSConfig)
	q := &search{o: o, c: &c, closure: closure}
	var first float64
	follow(o.Params()[0], append(append([]*tensor.Tensor{o.m.d, o.m.grad}, o.m.dirs...), o.m.steps...)...)
	tensor.Youngest(o.Params()...).Do(func(s *tensor.Scope) {
		q.s = s
		first = q.run()
	}, tensor.NoGrad())
	o.steps++
	return first
}

// value calls the closure and returns the value to be minimised, and as the user sees it.
func (q *search) value() (down, seen float64) {
	seen = q.closure()
	q.evals++
	if q.c.Maximize {
		return -seen, seen
	}
	return seen, seen
}

func (q *search) run() float64 {
	m := &q.o.m
	loss, first := q.value()
	m.evals++
	g := q.gradient(q.s)
	if largest(g) <= q.c.ToleranceGrad {
		return first
	}
	for n := 1; ; n++ {
		m.iterations++
		q.direct(g)
		m.grad = q.keep(m.grad, g)
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

// direct computes the direction of descent from the gradient g and what is remembered.
func (q *search) direct(g *tensor.Tensor) {
	m := &q.o.m
	if m.iterations == 1 || m.grad == nil {
		m.d = q.keep(m.d, g.Neg())
		m.scale = 1
		return
	}
	q.s.Do(func(s *tensor.Scope) {
		g := g.In(s)
		y, step := g.Sub(m.grad), m.d.In(s).MulScalar(m.t)
		if ys := dot(y, step); ys > 1e-10 {
			if len(m.dirs) == q.c.History {
				m.dirs[0].Free()
				m.steps[0].Free()
				m.dirs, m.steps, m.ro = m.dirs[1:], m.steps[1:], m.ro[1:]
			}
			m.dirs, m.steps, m.ro = append(m.dirs, q.keep(nil, y)), append(m.steps, q.keep(nil, step)), append(m.ro, 1/ys)
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
		m.d = q.keep(m.d, r)
	})
}

// keep copies v to a vector that outlives the step, old if there is one.
func (q *search) keep(old, v *tensor.Tensor) *tensor.Tensor {
	p := q.o.groups[0].Params[0]
	if old == nil {
		old = p.Scope().On(p.Device()).Typed(p.Type()).Empty(v.Size())
	}
	old.Copy(v)
	return old
}

func dot(a, b *tensor.Tensor) float64 { return a.Dot(b).Item() }

func largest(a *tensor.Tensor) float64 { return a.Norm(math.Inf(1)).Item() }

// gather returns tensors behind one another, in the scope s.
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

// gradient returns that of all parameters, in the direction in which the value grows.
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

// spread writes to the parameters in one launch: the values of the vector v (add = false), or their own plus t·v.
func (q *search) spread(v *tensor.Tensor, add bool, t float64) {
	v.Scope().Do(func(s *tensor.Scope) {
		p := q.o.groups[0].Params[0]
		l := &launch{dev: p.Device(), t: p.Type(), scalars: []float64{t}}
		l.program = lowered("spread", flags{add}, l.t, 2, func(f flags) []*expr.Expr {
			if f[0] {
				return []*expr.Expr{expr.X(0).Add(expr.X(1).Mul(expr.Param(0)))}
			}
			return []*expr.Expr{expr.X(1)}
		})
		v, at := v.In(s), 0
		for _, p := range q.o.Params() {
			piece := v.Narrow(0, at, p.Size()).Reshape(p.Shape().Slice()...)
			l.outs, l.ins = append(l.outs, []*tensor.Tensor{p}), append(l.ins, []*tensor.Tensor{p, piece})
			at += p.Size()
		}
		l.pack(s)
		l.run("lbfgs")
	}, tensor.NoGrad())
}

// move adds t·d to the parameters.
func (q *search) move(t float64, d *tensor.Tensor) { q.spread(d, true, t) }
