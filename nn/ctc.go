package nn

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// ctcStepOp is log(e^X(0) + e^X(1) + e^X(2)) + X(3). If the first three operands are all -Inf, the
// result is -Inf instead of NaN.
var ctcStepOp = func() *tensor.Elementwise {
	most, nothing := x0.Max(x1).Max(x2), expr.C(math.Inf(-1))
	e, y := expr.X(3), expr.Y()
	sum := x0.Sub(most).Exp().Add(x1.Sub(most).Exp()).Add(x2.Sub(most).Exp())
	part := func(x *expr.Expr) *expr.Expr {
		return y.Eq(nothing).Select(zero, expr.X(4).Mul(x.Add(e).Sub(y).Exp()))
	}
	return tensor.Declare(&tensor.Elementwise{Name: "ctc_step", Arity: 4, Result: tensor.FixedFloat, Domain: [][2]float64{{0, 2}, {0, 2}, {0, 2}, {0.5, 2}},
		Expr: most.Eq(nothing).Select(nothing, most.Add(sum.Log()).Add(e)),
		Ref:  func(x, _ []float64) float64 { return math.Log(math.Exp(x[0])+math.Exp(x[1])+math.Exp(x[2])) + x[3] },
		Grad: []*expr.Expr{part(x0), part(x1), part(x2), expr.X(4)}})
}()

// CTCLoss is the connectionist temporal classification loss (A. Graves et al., ICML 2006). An input
// is a sequence of probability distributions over the classes, one for each time step. A path is
// one class for each time step. Merging repeated classes and then removing blanks reduces the path
// to a shorter sequence. The loss is minus the logarithm of the probability that this sequence is
// the target. The zero value has torch's defaults.
type CTCLoss struct {
	Blank int // the class of the blank
	// ZeroInfinity sets the loss to 0 instead of infinity where a target is too long for its input.
	ZeroInfinity bool
	Reduction    Reduction // with Mean, each loss is first divided by the length of its target
}

// Forward returns the loss for logp, logarithms of probabilities, [time, n, classes] or [time,
// classes]. targets are [n, length] or [length], int64 or int32. The targets of all inputs may
// also be concatenated in a vector, [sum of the lengths]. Then Forward reads their lengths from
// the device. inputLengths has the number of valid time steps of each input. targetLengths has
// the number of valid classes of each target. Both are [n] or [], and have the type of targets.
//
// As in torch, logp must come from a log-softmax. The gradient returned for logp is the gradient of
// the log-softmax's input. For each time step and class, it is e^logp minus the probability of that
// class given the target.
//
// A target that is not a class is an index error. A GPU reports the error at the next wait. Lengths
// are not checked, since the check would have to wait for the device. A length beyond the dimension
// counts as the whole dimension.
//
// On a GPU, Forward launches a few small kernels for each time step.
func (l CTCLoss) Forward(logp, targets, inputLengths, targetLengths *tensor.Tensor) *tensor.Tensor {
	const op = "ctc_loss"
	requireUsable(op, logp, targets, inputLengths, targetLengths)
	for _, t := range []**tensor.Tensor{&targets, &inputLengths, &targetLengths} {
		if (*t).Type() == dtype.I32 {
			*t = (*t).Cast(dtype.I64)
		}
	}
	alone := logp.Rank() == 2
	if alone {
		logp, targets, inputLengths, targetLengths = logp.Unsqueeze(1), targets.Unsqueeze(0), inputLengths.Unsqueeze(0), targetLengths.Unsqueeze(0)
	}
	if logp.Rank() == 3 && targets.Rank() == 1 && targetLengths.Rank() == 1 && targetLengths.Dim(0) == logp.Dim(1) {
		targets = ctcApart(targets, targetLengths)
	}
	in := []*tensor.Tensor{logp, targets, inputLengths, targetLengths}
	if logp.Rank() != 3 || targets.Rank() != 2 || inputLengths.Rank() != 1 || targetLengths.Rank() != 1 || targets.Dim(0) != logp.Dim(1) || inputLengths.Dim(0) != logp.Dim(1) || targetLengths.Dim(0) != logp.Dim(1) {
		misuse(op, tensor.ErrShape, fmt.Sprintf("needs logarithms [time, n, classes], targets [n, length] and lengths [n]; shapes are %v, %v, %v and %v", logp.Shape(), targets.Shape(), inputLengths.Shape(), targetLengths.Shape()), in...)
	}
	if !logp.Type().IsFloat() {
		misuse(op, tensor.ErrType, fmt.Sprintf("needs logarithms of floating point, not %v", logp.Type()), in...)
	}
	for _, t := range in[1:] {
		if t.Type() != dtype.I64 {
			hinted(op, tensor.ErrType, fmt.Sprintf("targets and lengths must be int64 or int32, one is %v", t.Type()), "use Cast(dtype.I64)", in...)
		}
	}
	if logp.Dim(0) == 0 {
		misuse(op, tensor.ErrShape, "the inputs have no time", in...)
	}
	if l.Blank < 0 || l.Blank >= logp.Dim(2) {
		misuse(op, tensor.ErrValue, fmt.Sprintf("the blank is class %d of %d", l.Blank, logp.Dim(2)), in...)
	}
	loss := tensor.Apply(&ctcFunc{l.Blank, l.ZeroInfinity}, in...)
	if l.Reduction == Mean {
		loss = loss.Div(targetLengths.ClampMin(1).Cast(loss.Type()))
	} else if alone && l.Reduction == None {
		loss = loss.Squeeze(0)
	}
	return reduce(op, loss, []Reduction{l.Reduction})
}

// ctcApart splits targets that are concatenated in a vector into rows, [n, length]. The entries
// after the end of a target are arbitrary, because the loss does not use them.
func ctcApart(targets, lengths *tensor.Tensor) *tensor.Tensor {
	total, most := 0, 0
	for _, v := range lengths.Floats() {
		if v < 0 {
			misuse("ctc_loss", tensor.ErrValue, fmt.Sprintf("a target has the length %v", v), targets, lengths)
		}
		total, most = total+int(v), max(most, int(v))
	}
	if targets.Dim(0) != total {
		misuse("ctc_loss", tensor.ErrShape, fmt.Sprintf("the lengths of targets add up to %d, and the vector of targets has %d", total, targets.Dim(0)), targets, lengths)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		lengths := lengths.In(c)
		if most == 0 {
			return targets.In(c).Expand(lengths.Dim(0), 0).Contiguous()
		}
		start := lengths.CumSum(0).Sub(lengths).Unsqueeze(1)
		at := start.Add(c.On(targets.Device()).Typed(dtype.I64).Arange(int(most))).ClampMax(float64(total - 1))
		return targets.In(c).Take(at)
	}, targets, lengths)
}

// ctcFunc computes the loss of each input of a batch.
type ctcFunc struct {
	blank   int
	zeroInf bool
}

func (*ctcFunc) Name() string { return "ctc_loss" }

// ctcPaths describes the paths through the targets. A target has l = 2·length + 1 states: its
// classes, with blanks before, between and after them. At each time step a path is in one of these
// states.
type ctcPaths struct {
	classes *tensor.Tensor // the class of each state, [n, l]
	// emission is the logarithm of the probability of each state's class at each time step, [time,
	// n, l].
	emission *tensor.Tensor
	skip     *tensor.Tensor // [n, l]: 0 where a path may come from two states before, else -Inf
	ends     *tensor.Tensor // bool [n, l]: true for a state in which a path may end
	lastStep *tensor.Tensor // index of the input's last time step, [n, 1]
	times, l int
}

func (f *ctcFunc) paths(logp, targets, inputs, lengths *tensor.Tensor) *ctcPaths {
	m := logp.Scope().On(logp.Device()).Typed(dtype.I64)
	n, s := targets.Dim(0), targets.Dim(1)
	p := &ctcPaths{times: logp.Dim(0), l: 2*s + 1}
	lengths = lengths.Unsqueeze(1).ClampMax(float64(s))
	beyond := m.Arange(s).Ge(lengths)
	known := targets.MaskedFill(beyond, float64(f.blank))
	blanks := m.Full(float64(f.blank), n, s)
	p.classes = tensor.Cat(1, tensor.Stack(2, blanks, known).Flatten(1, 2), m.Full(float64(f.blank), n, 1))
	p.emission = logp.Gather(2, p.classes.Unsqueeze(0).Expand(p.times, n, p.l))
	at := m.Arange(p.l)
	before := p.classes.Pad(float64(f.blank), 2, -2)
	p.skip = p.classes.Ne(before).Cast(logp.Type()).Log()
	end := lengths.MulScalar(2)
	p.ends = at.Eq(end).LogicalOr(at.Eq(end.SubScalar(1)))
	p.lastStep = inputs.Unsqueeze(1).ClampMax(float64(p.times)).SubScalar(1)
	return p
}

// forward returns, for each time step and state, the logarithm of the total probability of the
// paths that have reached the state. From an input's last time step on, the values do not change.
func (p *ctcPaths) forward() []*tensor.Tensor {
	nothing := math.Inf(-1)
	at := p.classes.Scope().On(p.classes.Device()).Typed(dtype.I64).Arange(p.l)
	way := []*tensor.Tensor{p.emission.Select(0, 0).MaskedFill(at.GtScalar(1), nothing)}
	for t := 1; t < p.times; t++ {
		a := way[t-1]
		next := ctcStepOp.Apply([]*tensor.Tensor{a, a.Pad(nothing, 1, -1), a.Pad(nothing, 2, -2).Add(p.skip), p.emission.Select(0, t)})
		way = append(way, tensor.Where(p.lastStep.LtScalar(float64(t)), a, next))
	}
	return way
}

// backward returns, for each time step and state, the logarithm of the total probability of the
// paths from the state to an end.
func (p *ctcPaths) backward() []*tensor.Tensor {
	nothing := math.Inf(-1)
	way := make([]*tensor.Tensor, p.times)
	none := p.emission.Select(0, 0).FullLike(nothing)
	// The padded skip is 0 where a path may jump over the next state, and -Inf elsewhere.
	skip := p.skip.Pad(nothing, -2, 2)
	for t := p.times - 1; t >= 0; t-- {
		e := p.emission.Select(0, t)
		next := none
		if t+1 < p.times {
			b := way[t+1]
			next = ctcStepOp.Apply([]*tensor.Tensor{b, b.Pad(nothing, -1, 1), b.Pad(nothing, -2, 2).Add(skip), e})
		}
		start := tensor.Where(p.ends, e, none)
		way[t] = tensor.Where(p.lastStep.EqScalar(float64(t)), start, tensor.Where(p.lastStep.GtScalar(float64(t)), next, none))
	}
	return way
}

func (f *ctcFunc) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	t := in[0].Type()
	loss := f.loss(in)
	if c.Needs(0) {
		c.Save(append(in, loss)...)
	}
	if f.zeroInf {
		loss = loss.MaskedFill(loss.EqScalar(math.Inf(1)), 0)
	}
	return loss.Cast(t)
}

// loss returns the losses in the compute type of the logarithms.
func (f *ctcFunc) loss(in []*tensor.Tensor) *tensor.Tensor {
	p := f.paths(in[0].Cast(in[0].Type().Compute()), in[1], in[2], in[3])
	a := p.forward()[p.times-1]
	nothing := a.FullLike(math.Inf(-1))
	loss := tensor.Where(p.ends, a, nothing).LogSumExp(1).Neg()
	// An input of length 0 matches only an empty target.
	empty := in[3].EqScalar(0).Cast(loss.Type()).Log().Neg()
	return tensor.Where(in[2].LeScalar(0), empty, loss)
}

func (f *ctcFunc) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	in := []*tensor.Tensor{c.Saved(0), c.Saved(1), c.Saved(2), c.Saved(3)}
	logp := in[0].Cast(in[0].Type().Compute())
	var loss *tensor.Tensor
	if c.Scope().GradEnabled() {
		loss = f.loss(in) // recorded ops, because the gradient of the gradient is needed
	} else {
		loss = c.Saved(4)
	}
	p := f.paths(logp, in[1], in[2], in[3])
	both := tensor.Stack(0, p.forward()...).Add(tensor.Stack(0, p.backward()...)).Sub(p.emission).Add(loss.Unsqueeze(1)).Exp()
	zeros := logp.ZerosLike()
	index := p.classes.Unsqueeze(0).Expand(p.times, p.classes.Dim(0), p.l)
	times := c.Scope().On(logp.Device()).Typed(dtype.I64).Arange(p.times).Unsqueeze(1).Unsqueeze(2)
	d := logp.Exp().Sub(zeros.ScatterAdd(2, index, both)).Mul(g.Cast(logp.Type()).Unsqueeze(1))
	// For an infinite loss, torch gives every class the gradient NaN, or 0 if zeroInf is true. This
	// holds even for classes that are not in the target.
	nowhere := math.NaN()
	if f.zeroInf {
		nowhere = 0
	}
	d = d.MaskedFill(loss.EqScalar(math.Inf(1)).Unsqueeze(1), nowhere).MaskedFill(times.Gt(p.lastStep), 0)
	return []*tensor.Tensor{d.Cast(in[0].Type()), nil, nil, nil}
}
