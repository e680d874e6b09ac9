package optim

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdafactorConfig configures Adafactor. Zero values of Beta2Decay, Eps2 and D mean torch's
// defaults, -0.8, 1e-3 and 1.
type AdafactorConfig struct {
	// LR is the upper bound of the relative step, 1e-2 in torch. It is required, there is no
	// default.
	LR float64
	// Beta2Decay is the exponent in the weight of the newest squares, step^Beta2Decay. It must not
	// be positive.
	Beta2Decay float64
	// Eps1 is the lower bound of the square root of an estimated square. Nil means the machine
	// epsilon of the parameter's type.
	Eps1 *float64
	Eps2 float64 // lower bound of a parameter's root mean square
	// D is the greatest root mean square of an update, at least 1. A larger update is scaled down.
	D           float64
	WeightDecay float64 // λ of decoupled decay: p ← p·(1 - lr·λ)
	Maximize    bool    // maximise the function instead of minimising it
}

func (c *AdafactorConfig) options() []option {
	return []option{{"beta2_decay", &c.Beta2Decay}, {"eps", noneOr{&c.Eps1, &c.Eps2}}, {"d", &c.D}, {"weight_decay", &c.WeightDecay},
		{"foreach", fixed{nil}}, {"maximize", &c.Maximize}}
}

func (c *AdafactorConfig) complete() {
	setDefault(&c.Beta2Decay, -0.8)
	setDefault(&c.Eps2, 1e-3)
	setDefault(&c.D, 1)
}

func (c *AdafactorConfig) check() string {
	if !(c.Beta2Decay <= 0) {
		return fmt.Sprintf("beta2_decay must not be positive, it is %v", c.Beta2Decay)
	}
	if !(c.D >= 1) || math.IsInf(c.D, 1) {
		return fmt.Sprintf("d must be at least 1, it is %v", c.D)
	}
	if c.Eps1 != nil && checkNotNegative("", *c.Eps1) != "" {
		return checkNotNegative("eps[0]", *c.Eps1)
	}
	return firstMessage(checkNotNegative("eps[1]", c.Eps2), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *AdafactorConfig) clone() config { d := *c; return &d }

// Adafactor scales gradients by estimates of their squares, as torch.optim.Adafactor (N. Shazeer,
// M. Stern, arXiv:1804.04235). For a matrix, the state has only the mean of the squared gradients
// in each row and in each column. Let w = t^Beta2Decay. With the row means and column means of g²,
// the rule for step t is
//
//	r ← r + w·(row means - r); c ← c + w·(column means - c); v = r·c / max(mean of r, ε₁)
//	u = g / √max(v, ε₁²); α = max(ε₂, rms(p))·min(lr, 1/√t)
//	p ← p·(1 - lr·λ) - α·u / max(1, rms(u)/d)
//
// A parameter with more than two dimensions is treated as a batch of matrices, which are its last
// two dimensions. A parameter with fewer than two dimensions has an estimate v for each element.
// For 16-bit parameters the computation is in float32.
type Adafactor struct{ base }

// NewAdafactor returns Adafactor over params.
func NewAdafactor(params []*tensor.Tensor, c AdafactorConfig) *Adafactor {
	return NewAdafactorGroups(With[AdafactorConfig]{params, c})
}

// NewAdafactorGroups returns Adafactor over groups of parameters.
func NewAdafactorGroups(groups ...With[AdafactorConfig]) *Adafactor {
	o := &Adafactor{newBase("Adafactor", schema{tensors: []string{"row_var", "col_var", "variance"}, shape: factors})}
	if len(groups) == 0 {
		o.bad("there are no parameters")
	}
	for _, g := range groups {
		o.AddGroup(g.Params, g.Config)
	}
	return o
}

// AddGroup adds parameters with a configuration of their own.
func (o *Adafactor) AddGroup(params []*tensor.Tensor, c AdafactorConfig) {
	o.addGroup(params, c.LR, &c)
}

// factors returns the shape of state tensor i for a parameter of shape p. ok is false if the
// parameter does not have this tensor. Matrices have the means of rows (tensor 0) and of columns
// (tensor 1). Other parameters have an estimate for each element (tensor 2).
func factors(p shape.Dims, i int) (s shape.Dims, ok bool) {
	matrix := p.Rank() > 1
	if i == 2 {
		return p, !matrix
	}
	if !matrix {
		return p, false
	}
	return p.With(p.Rank()-1-i, 1), true
}

func epsilon(t dtype.Type) float64 {
	switch t {
	case dtype.F64:
		return 0x1p-52
	case dtype.F16:
		return 0x1p-10
	case dtype.BF16:
		return 0x1p-7
	}
	return 0x1p-23
}

// A step's scalars are on the device, in the tensor factoring.k. These are their indices.
const (
	factorWeight = iota // weight of the newest squares
	factorRate          // relative step, negative with Maximize
	factorKeep          // factor of the old parameter, for weight decay
	factorEps1
	factorEps2
	factorClip
	factorNumbers
)

// numbers returns the scalars of step t for a parameter of type typ.
func (c *AdafactorConfig) numbers(lr, t float64, typ dtype.Type) []float64 {
	v := make([]float64, factorNumbers)
	v[factorWeight] = math.Pow(t, c.Beta2Decay)
	if v[factorRate] = min(lr, 1/math.Sqrt(t)); c.Maximize {
		v[factorRate] = -v[factorRate]
	}
	v[factorKeep], v[factorEps1], v[factorEps2], v[factorClip] = 1-lr*c.WeightDecay, epsilon(typ), c.Eps2, c.D
	if c.Eps1 != nil {
		v[factorEps1] = *c.Eps1
	}
	return v
}

// A factoring is the work on one parameter in a step of Adafactor.
type factoring struct {
	change
	group  *Group
	k      *tensor.Tensor   // scalars of the step, in the type in which the step computes
	now    []*tensor.Tensor // state tensors after the step
	mean   *tensor.Tensor   // mean of the row means, at least ε₁
	factor *tensor.Tensor   // factor of the update, α / max(1, rms(u)/d)
}

// Step updates every parameter that has a gradient.
func (o *Adafactor) Step() {
	o.settle()
	if g := o.capturing(); g != nil {
		o.capture(g, nil)
		return
	}
	defer profile.Span("Optimizer.step")()
	list, with := o.factorings()
	if len(list) == 0 {
		o.steps++
		return
	}
	done := false
	defer func() {
		for _, f := range list {
			for i, t := range f.fresh {
				if t != nil && !done {
					t.Free()
					f.st.tensors[i] = nil
				}
			}
		}
	}()
	tensor.Youngest(with...).Do(func(s *tensor.Scope) {
		var launches []*launch
		for _, f := range list {
			o.begin(f)
			c := f.group.config.(*AdafactorConfig)
			t := f.p.Type().Compute()
			f.k = s.On(f.p.Device()).Typed(t).From(c.numbers(f.group.LR, f.st.step+1, f.p.Type()))
			f.compute(s)
			for _, l := range f.launches(nil) {
				l.pack(s)
				launches = append(launches, l)
			}
		}
		for _, l := range launches {
			l.run("adafactor")
		}
	}, tensor.NoGrad(), tensor.NoAutocast())
	for _, f := range list {
		f.st.step++
		f.st.unused = false
		o.state[f.p] = f.st
	}
	o.steps++
	done = true
}

// StepUnless does the same as [Adafactor.Step] if foundInf is 0, and otherwise nothing. The host
// waits for the value of foundInf, because a step has many kernels, which would otherwise all be
// launched to do nothing. In a capture the device decides, and the next replay waits for the
// decision.
func (o *Adafactor) StepUnless(foundInf *tensor.Tensor) {
	if foundInf == nil || foundInf.Size() != 1 {
		o.bad("StepUnless needs a tensor of one number")
	}
	if g := o.capturing(); g != nil {
		o.settle()
		o.capture(g, foundInf)
		return
	}
	if foundInf.Item() == 0 {
		o.Step()
	}
}

// factorings returns the parameters that have a gradient and that this shard updates.
func (o *Adafactor) factorings() (list []*factoring, with []*tensor.Tensor) {
	for _, g := range o.groups {
		for _, p := range g.Params {
			if p.Grad() != nil && o.updates(p) {
				list, with = append(list, &factoring{change: change{p: p, st: o.state[p]}, group: g}), append(with, p)
			}
		}
	}
	return list, with
}

// begin allocates missing state tensors, and moves existing ones to the parameter's device and
// type.
func (o *Adafactor) begin(f *factoring) {
	if f.st == nil {
		f.st = &state{tensors: make([]*tensor.Tensor, len(o.schema.tensors))}
	}
	follow(f.p, f.st.tensors...)
	for i, t := range f.st.tensors {
		if dims, used := factors(f.p.Shape(), i); used && t == nil {
			if f.fresh == nil {
				f.fresh = make([]*tensor.Tensor, len(f.st.tensors))
			}
			t = f.p.Scope().On(f.p.Device()).Typed(f.p.Type()).Zeros(dims.Slice()...)
			f.fresh[i], f.st.tensors[i] = t, t
		}
	}
}

// number returns element i of f.k as a scalar tensor.
func (f *factoring) number(s *tensor.Scope, i int) *tensor.Tensor { return f.k.In(s).Select(0, i) }

// compute computes the state after the step, and the factor of the update. It changes neither the
// parameter nor its state.
func (f *factoring) compute(s *tensor.Scope) {
	f.now = make([]*tensor.Tensor, len(f.st.tensors))
	s.Do(func(c *tensor.Scope) {
		t := f.p.Type().Compute()
		p, g := f.p.In(c).Detach().Cast(t), f.p.Grad().In(c).Cast(t)
		root := math.Sqrt(float64(max(1, f.p.Size())))
		weight, eps := f.number(c, factorWeight), f.number(c, factorEps1)
		squares := g.Square()
		old := func(i int) *tensor.Tensor { return f.st.tensors[i].In(c).Cast(t) }
		var v *tensor.Tensor
		if p.Rank() > 1 {
			f.now[0] = old(0).Lerp(squares.Mean(-1, tensor.KeepDim), weight)
			f.now[1] = old(1).Lerp(squares.Mean(-2, tensor.KeepDim), weight)
			f.mean = f.now[0].Mean(-2, tensor.KeepDim).Maximum(eps)
			v = f.now[0].Mul(f.now[1]).Div(f.mean)
		} else {
			f.now[2] = old(2).Lerp(squares, weight)
			f.mean, v = f.now[2], f.now[2]
		}
		update := v.Maximum(eps.Square()).Rsqrt().Mul(g)
		clip := update.Norm(2).Div(f.number(c, factorClip).MulScalar(root)).ClampMin(1)
		rate := p.Norm(2).DivScalar(root).Maximum(f.number(c, factorEps2)).Mul(f.number(c, factorRate))
		f.factor = rate.Div(clip)
		keep := []*tensor.Tensor{f.factor, f.mean}
		for _, t := range f.now {
			if t != nil && t != f.mean {
				keep = append(keep, t)
			}
		}
		c.Close(keep...)
	})
}

// launches returns the launches that write the parameter and its state. If unless is not nil, they
// write only if its value is 0.
func (f *factoring) launches(unless *tensor.Tensor) []*launch {
	t, ct, matrix := f.p.Type(), f.p.Type().Compute(), f.p.Rank() > 1
	s, dims := f.k.Scope(), f.p.Shape().Slice()
	decides := func(over []int) *tensor.Tensor { return unless.Detach().Reshape().Expand(over...) }
	wide := func(x *tensor.Tensor, over []int) *tensor.Tensor {
		if x.Size() == 1 {
			x = x.In(s).Reshape()
		}
		return x.In(s).Expand(over...)
	}
	in := []*tensor.Tensor{f.p, f.p.Grad(), wide(f.factor, dims), wide(f.number(s, factorKeep), dims), wide(f.number(s, factorEps1), dims)}
	types := []dtype.Type{t, t, ct, ct, ct}
	if matrix {
		in, types = append(in, wide(f.now[0], dims), wide(f.now[1], dims), wide(f.mean, dims)), append(types, ct, ct, ct)
	} else {
		in, types = append(in, f.now[2]), append(types, ct)
	}
	if unless != nil {
		in, types = append(in, decides(dims)), append(types, unless.Type())
	}
	x := expr.X
	program := loweredAs(programKey{rule: "adafactor", flags: flags{matrix, unless != nil}, t: t, operands: typesKey(types)}, []dtype.Type{t}, types, func(flags) []*expr.Expr {
		v := x(5)
		if matrix {
			v = x(5).Mul(x(6)).Div(x(7))
		}
		update := expr.C(1).Div(v.Max(x(4).Mul(x(4))).Sqrt()).Mul(x(1).Cvt(ct))
		y := x(0).Cvt(ct).Mul(x(3)).Sub(update.Mul(x(2)))
		if unless != nil {
			y = x(len(types)-1).Ne(expr.C(0)).Select(x(0).Cvt(ct), y)
		}
		return []*expr.Expr{y}
	})
	list := []*launch{{dev: f.p.Device(), t: t, program: program, outs: [][]*tensor.Tensor{{f.p}}, ins: [][]*tensor.Tensor{in}}}
	for i, now := range f.now {
		if now == nil {
			continue
		}
		old := f.st.tensors[i]
		in, types := []*tensor.Tensor{now, old}, []dtype.Type{ct, t}
		if unless != nil {
			in, types = append(in, decides(old.Shape().Slice())), append(types, unless.Type())
		}
		program := loweredAs(programKey{rule: "adafactor state", flags: flags{unless != nil}, t: t, operands: typesKey(types)}, []dtype.Type{t}, types, func(flags) []*expr.Expr {
			if unless != nil {
				return []*expr.Expr{x(2).Ne(expr.C(0)).Select(x(1).Cvt(ct), x(0))}
			}
			return []*expr.Expr{x(0)}
		})
		list = append(list, &launch{dev: f.p.Device(), t: t, program: program, outs: [][]*tensor.Tensor{{old}}, ins: [][]*tensor.Tensor{in}})
	}
	return list
}

// typesKey encodes a list of types as a number, for the key of a program.
func typesKey(types []dtype.Type) (key int) {
	for _, t := range types {
		key = key*32 + int(t)
	}
	return key
}

// capture records a step. A replay uses the learning rate, the options and the step count that are
// set when the host queues it. The host first waits until it knows which earlier replays were
// skipped.
func (o *Adafactor) capture(g *tensor.Graph, unless *tensor.Tensor) {
	list, _ := o.factorings()
	before := o.record(g)
	if before.steps++; before.steps > 1 && (unless != nil || before.unless) {
		e := tensor.NewError(o.name, tensor.ErrCapture, "of the steps in the capture some may be left out, so that nobody knows the numbers of the others")
		e.Hint = "capture one step, and replay it for each"
		panic(e)
	}
	before.unless = unless != nil
	g.Exclude(o.turn)
	g.Check(func() error { return tensor.Try(o.settle) })
	g.Scope().Do(func(s *tensor.Scope) {
		for _, f := range list {
			o.begin(f)
			f.st.unused = f.st.unused || f.fresh != nil
			g.Adopt(f.st.tensors...)
			o.state[f.p] = f.st
			earlier := float64(before.places[f.p].earlier)
			before.places[f.p] = place{earlier: int(earlier) + 1}
			t := f.p.Type().Compute()
			f.k = g.FeedOn(f.p.Device(), t, factorNumbers, func(to []byte) {
				c := f.group.config.(*AdafactorConfig)
				for i, v := range c.numbers(f.group.LR, f.st.step+1+earlier, f.p.Type()) {
					if t == dtype.F64 {
						binary.NativeEndian.PutUint64(to[8*i:], math.Float64bits(v))
					} else {
						binary.NativeEndian.PutUint32(to[4*i:], math.Float32bits(float32(v)))
					}
				}
			}).In(s)
			f.compute(s)
			held := slices.Clone(f.st.tensors)
			g.Check(func() error {
				if o.state[f.p] != f.st || !slices.Equal(f.st.tensors, held) {
					return o.replaced(f.p)
				}
				return nil
			})
		}
		for _, f := range list {
			for _, l := range f.launches(unless) {
				tensor.Update("adafactor", l.program, l.outs, l.ins, f.k, nil)
			}
		}
	}, tensor.NoGrad(), tensor.NoAutocast())
	count := func() {
		for _, f := range list {
			f.st.step++
			f.st.unused = false
		}
		o.steps++
	}
	if unless == nil {
		g.Then(count)
		return
	}
	o.learn(g, unless, nil, func() func() { return count })
}
