package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// MuonConfig configures Muon. Zero values of Momentum, Eps, Iterations and Coefficients mean
// torch's defaults, 0.95, 1e-7, 5 and (3.4445, -4.775, 2.0315).
type MuonConfig struct {
	LR           float64 // learning rate; required, there is no default
	Momentum     float64
	Plain        bool    // uses momentum without Nesterov's correction
	WeightDecay  float64 // λ of decoupled decay, p ← p·(1 - lr·λ); 0.1 by default in torch
	Eps          float64 // norms below Eps are replaced by Eps in divisions
	Iterations   int     // number of Newton-Schulz iterations, below 100
	Coefficients [3]float64
	// Adjust names the factor by which the learning rate of a matrix [a, b] is multiplied: √max(1,
	// a/b) for "original" or "", 0.2·√max(a, b) for "match_rms_adamw", and √(a/b) for
	// "spectral_unclamped".
	Adjust string
}

func (c *MuonConfig) options() []option {
	k := &c.Coefficients
	return []option{{"weight_decay", &c.WeightDecay}, {"momentum", &c.Momentum}, {"nesterov", negated{&c.Plain}},
		{"ns_coefficients", []*float64{&k[0], &k[1], &k[2]}}, {"eps", &c.Eps}, {"ns_steps", &c.Iterations}, {"adjust_lr_fn", &c.Adjust}}
}

func (c *MuonConfig) complete() {
	setDefault(&c.Momentum, 0.95)
	setDefault(&c.Eps, 1e-7)
	if c.Iterations == 0 {
		c.Iterations = 5
	}
	if c.Coefficients == [3]float64{} {
		c.Coefficients = [3]float64{3.4445, -4.775, 2.0315}
	}
}

func (c *MuonConfig) check() string {
	switch c.Adjust {
	case "", "original", "match_rms_adamw", "spectral_unclamped":
	default:
		return fmt.Sprintf("an unknown way %q to adjust the learning rate", c.Adjust)
	}
	if c.Iterations < 0 || c.Iterations >= 100 {
		return fmt.Sprintf("%d iterations; there can be 0 to 99", c.Iterations)
	}
	return firstMessage(checkNotNegative("momentum", c.Momentum), checkNotNegative("weight decay", c.WeightDecay), checkNotNegative("eps", c.Eps))
}

func (c *MuonConfig) clone() config { d := *c; return &d }

// adjusted returns the factor that Adjust names, for a matrix of shape [a, b].
func (c *MuonConfig) adjusted(a, b int) float64 {
	x, y := float64(a), float64(b)
	switch c.Adjust {
	case "match_rms_adamw":
		return 0.2 * math.Sqrt(max(x, y))
	case "spectral_unclamped":
		return math.Sqrt(x / y)
	}
	return math.Sqrt(max(1, x/y))
}

// Muon updates matrices by their orthogonalised momentum, as torch.optim.Muon (K. Jordan,
// kellerjordan.github.io/posts/muon). The rule is
//
//	b ← b + (g-b)·(1-μ)
//	u = g + (b-g)·μ, or u = b with Plain
//	p ← p·(1-lr·λ) - lr·f·NS(u)
//
// NS brings the singular values near 1 by a fixed number of iterations X ← a·X + (b·XXᵀ +
// c·(XXᵀ)²)·X in bfloat16, where a, b and c are the [MuonConfig].Coefficients. f is the factor that
// [MuonConfig].Adjust names. These factors are from J. Liu et al., arXiv:2502.16982, and J.
// Bernstein, "Deriving Muon".
//
// Use Muon for the matrices of hidden layers, and AdamW for biases, norms, embeddings and the last
// layer.
type Muon struct{ base }

// NewMuon returns Muon over params, which must be matrices.
func NewMuon(params []*tensor.Tensor, c MuonConfig) *Muon {
	return NewMuonGroups(With[MuonConfig]{params, c})
}

// NewMuonGroups returns Muon over groups of matrices.
func NewMuonGroups(groups ...With[MuonConfig]) *Muon {
	o := &Muon{newBase("Muon", schema{tensors: []string{"momentum_buffer"}, stepless: true, lenient: true})}
	if len(groups) == 0 {
		o.bad("there are no parameters")
	}
	for _, g := range groups {
		o.AddGroup(g.Params, g.Config)
	}
	return o
}

// AddGroup adds matrices with a configuration of their own.
func (o *Muon) AddGroup(params []*tensor.Tensor, c MuonConfig) {
	for i, p := range params {
		if p != nil && p.Rank() != 2 {
			o.bad("parameter %d has shape %v; only matrices can be made orthogonal", i, p.Shape())
		}
	}
	o.addGroup(params, c.LR, &c)
}

// A matrixStep is the update of one matrix in a step.
type matrixStep struct {
	change
	c        *MuonConfig
	lr       float64
	next     *tensor.Tensor // momentum after the step
	momentum *tensor.Tensor // u, the matrix to orthogonalise, in bfloat16
}

// Step updates every parameter that has a gradient.
func (o *Muon) Step() {
	if g := o.capturing(); g != nil {
		o.capture(g, nil)
		return
	}
	defer profile.Span("Optimizer.step")()
	var turns []*matrixStep
	var with []*tensor.Tensor
	for _, g := range o.groups {
		for _, p := range g.Params {
			if p.Grad() != nil && o.updates(p) {
				turns = append(turns, &matrixStep{change: change{p: p, st: o.state[p]}, c: g.config.(*MuonConfig), lr: g.LR})
				with = append(with, p)
			}
		}
	}
	if len(turns) == 0 {
		o.steps++
		return
	}
	done := false
	defer func() {
		for _, t := range turns {
			if !done && t.fresh != nil {
				t.fresh[0].Free()
			}
		}
	}()
	tensor.Youngest(with...).Do(func(s *tensor.Scope) {
		for _, l := range o.gather(s, turns, func(l *launch, _ *matrixStep) { l.pack(s) }) {
			l.run("muon")
		}
		var last []*launch
		for _, t := range turns {
			u := t.orthogonal(s)
			last = join(last, t.p, flags{}, t.rates(t.lr), []*tensor.Tensor{t.p, t.st.tensors[0]}, []*tensor.Tensor{t.p, u, t.next})
		}
		for _, l := range last {
			l.program = muonProgram(l.t, false)
			l.pack(s)
		}
		for _, l := range last {
			l.run("muon")
		}
	}, tensor.NoGrad())
	for _, t := range turns {
		o.state[t.p] = t.st
	}
	o.steps++
	done = true
}

// rates returns the scalars of the last launch of a step: the factor of the old matrix, and the
// factor of the orthogonalised momentum.
func (t *matrixStep) rates(lr float64) []float64 {
	return []float64{1 - lr*t.c.WeightDecay, lr * t.c.adjusted(t.p.Dim(0), t.p.Dim(1))}
}

// momenta returns the scalars of the first launch of a step, which computes the momentum.
func (t *matrixStep) momenta() []float64 { return []float64{1 - t.c.Momentum, t.c.Momentum} }

// muonProgram returns the program of the last launch of a step. Its operands are the matrix, the
// direction and the new momentum. With the argument unless, the program can skip the step, and the
// old momentum is a fourth operand.
func muonProgram(t dtype.Type, unless bool) *expr.Program {
	in := []dtype.Type{t, dtype.BF16, t}
	if unless {
		in = append(in, t)
	}
	return loweredAs(programKey{rule: "muon", t: t, operands: len(in)}, []dtype.Type{t, t}, in, func(flags) []*expr.Expr {
		outs := []*expr.Expr{expr.X(0).Mul(expr.Param(0)).Sub(expr.X(1).Cvt(t.Compute()).Mul(expr.Param(1))), expr.X(2)}
		if unless {
			stays := expr.Param(2, dtype.I64).Ne(expr.C(0))
			outs[0], outs[1] = stays.Select(expr.X(0), outs[0]), stays.Select(expr.X(3), outs[1])
		}
		return outs
	})
}

// gather allocates the tensors of the steps, and returns the launches that compute their momenta.
// For each launch it calls pack, which provides the scalars, with the first of the launch's steps.
func (o *Muon) gather(s *tensor.Scope, steps []*matrixStep, pack func(*launch, *matrixStep)) (list []*launch) {
	first := map[*launch]*matrixStep{}
	for _, t := range steps {
		p := t.p
		m := p.Scope().On(p.Device()).Typed(p.Type())
		if t.st == nil || t.st.tensors[0] == nil {
			t.fresh = []*tensor.Tensor{m.Zeros(p.Shape().Slice()...)}
			t.st = &state{tensors: []*tensor.Tensor{t.fresh[0]}}
		}
		follow(p, t.st.tensors[0])
		t.next = s.On(p.Device()).Typed(p.Type()).Empty(p.Shape().Slice()...)
		t.momentum = s.On(p.Device()).Typed(dtype.BF16).Empty(p.Shape().Slice()...)
		list = join(list, p, flags{t.c.Plain}, t.momenta(), []*tensor.Tensor{t.next, t.momentum}, []*tensor.Tensor{p.Grad(), t.st.tensors[0]})
		if l := list[len(list)-1]; len(l.outs) == 1 && first[l] == nil {
			first[l] = t
		}
	}
	for _, l := range list {
		l.program = loweredAs(programKey{rule: "muon momentum", flags: l.flags, t: l.t}, []dtype.Type{l.t, dtype.BF16}, []dtype.Type{l.t, l.t}, func(f flags) []*expr.Expr {
			g, b := expr.X(0), expr.X(1)
			b = b.Add(g.Sub(b).Mul(expr.Param(0)))
			u := b
			// For μ ≥ 0.5 torch computes g + (b-g)·μ as b minus a product, and so does this
			// expression.
			if !f[0] {
				u = b.Sub(b.Sub(g).Mul(expr.Param(0)))
			}
			return []*expr.Expr{b, u}
		})
		pack(l, first[l])
	}
	return list
}

// orthogonal returns the matrix t.momentum with its singular values brought near 1. The result is
// contiguous and in scope s.
func (t *matrixStep) orthogonal(s *tensor.Scope) (u *tensor.Tensor) {
	s.Do(func(c *tensor.Scope) {
		u = t.iterated(c)
		c.Close(u)
	})
	return u
}

// iterated computes the result of orthogonal. Its temporary tensors belong to scope c.
func (t *matrixStep) iterated(c *tensor.Scope) *tensor.Tensor {
	x := t.momentum.In(c)
	tall := x.Dim(0) > x.Dim(1)
	if tall {
		x = x.T()
	}
	k := t.c.Coefficients
	x = x.Div(x.Norm(2).ClampMin(t.c.Eps))
	for range t.c.Iterations {
		gram := product(x, x.T()).BFloat16()
		update := mixed(gram, k[1], product(gram, gram), k[2])
		x = mixed(x, k[0], product(update, x), 1)
	}
	if tall {
		x = x.T()
	}
	return x.Contiguous()
}

// product returns x·y for bfloat16 matrices. For small matrices the result is float32, so that a
// sum of products is rounded only once, as in PyTorch. For large matrices the result is bfloat16,
// for which devices have faster units.
func product(x, y *tensor.Tensor) *tensor.Tensor {
	if min(x.Dim(0), x.Dim(1), y.Dim(1)) >= 256 {
		return x.MatMul(y)
	}
	return x.Float().MatMul(y.Float())
}

// mixed returns a·x + b·y, rounded to bfloat16 once.
func mixed(x *tensor.Tensor, a float64, y *tensor.Tensor, b float64) *tensor.Tensor {
	return x.Float().MulScalar(a).Add(y.Float().MulScalar(b)).BFloat16()
}

// feed makes each replay of g copy the scalars of launch l to the device.
func (l *launch) feed(g *tensor.Graph, n int, scalars func() []float64) {
	l.slots = g.FeedOn(l.dev, dtype.I64, max(1, n), func(to []byte) {
		clear(to)
		l.encode(scalars(), to)
	})
}

// capture records a step. A replay uses the learning rate, momentum and weight decay that are set
// when the host queues it. If an option that selects kernels has changed, the replay returns an
// error.
func (o *Muon) capture(g *tensor.Graph, unless *tensor.Tensor) {
	g.Exclude(o.turn)
	g.Check(func() error {
		return tensor.Try(func() {
			for len(o.late) > 0 && (len(o.late) > mostAhead || o.late[0].found.Done()) {
				o.settleOne()
			}
		})
	})
	for _, group := range o.groups {
		o.captureGroup(g, group, unless)
	}
	if unless == nil {
		g.Then(func() { o.steps++ })
		return
	}
	o.learn(g, unless, nil, func() func() { return func() { o.steps++ } })
}

func (o *Muon) captureGroup(g *tensor.Graph, group *Group, unless *tensor.Tensor) {
	c := group.config.(*MuonConfig)
	var turns []*matrixStep
	for _, p := range group.Params {
		if d := p.Grad(); d != nil {
			dense(o.name, []*tensor.Tensor{p, d})
			turns = append(turns, &matrixStep{change: change{p: p, st: o.state[p]}, c: c, lr: group.LR})
		}
	}
	if len(turns) == 0 {
		return
	}
	g.Scope().Do(func(s *tensor.Scope) {
		momenta := o.gather(s, turns, func(l *launch, t *matrixStep) { l.feed(g, 2, t.momenta) })
		for _, t := range turns {
			g.Adopt(t.st.tensors...)
			o.state[t.p] = t.st
		}
		for _, l := range momenta {
			l.run("muon")
		}
		var last []*launch
		for _, t := range turns {
			u := t.orthogonal(s)
			ins := []*tensor.Tensor{t.p, u, t.next}
			if unless != nil {
				ins = append(ins, t.st.tensors[0])
			}
			n := len(last)
			if last = join(last, t.p, flags{}, t.rates(t.lr), []*tensor.Tensor{t.p, t.st.tensors[0]}, ins); len(last) == n {
				continue
			}
			l := last[n]
			l.program = muonProgram(l.t, unless != nil)
			l.feed(g, 3, func() []float64 { return t.rates(group.LR) })
			if unless != nil {
				tensor.Update("unless", differs(unless.Type()), [][]*tensor.Tensor{{l.slots.Narrow(0, 2, 1)}}, [][]*tensor.Tensor{{unless.Detach().Reshape(1)}}, l.slots, nil)
			}
		}
		for _, l := range last {
			l.run("muon")
		}
	}, tensor.NoGrad())
	was := *c
	held := make([]*tensor.Tensor, len(turns))
	for i, t := range turns {
		held[i] = t.st.tensors[0]
	}
	g.Check(func() error {
		c := group.config.(*MuonConfig)
		now := *c
		now.Momentum, now.WeightDecay, now.LR = was.Momentum, was.WeightDecay, was.LR
		if now != was {
			return &Error{o.name, "an option that chooses how a step is computed was changed since the step was captured; capture it again"}
		}
		for i, t := range turns {
			if o.state[t.p] != t.st || !slices.Equal(t.st.tensors, held[i:i+1]) {
				return o.replaced(t.p)
			}
			t.c = c
		}
		return nil
	})
}
