package amp

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// This file has the programs with which the device unscales gradients and updates the scale.

// These programs are lowered once.
var (
	// unscalers has, for each type of gradients, a program that multiplies a gradient by Param(0).
	unscalers = map[dtype.Type]*expr.Program{}
	// inverses has programs that compute the bits of 1/scale for the launches that unscale
	// gradients. As in torch, the inverse is computed in float64 and rounded to float32.
	inverses = map[dtype.Type]*expr.Program{}
	// updater does what torch's _amp_update_scale_ does, but never lowers the scale below a lowest
	// scale. Its operands are the scale, the number of good steps, and whether an overflow was
	// found. Its Params are the growth factor, the backoff factor, the growth interval and the
	// lowest scale.
	updater *expr.Program
)

func init() {
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F64} {
		c := t.Compute()
		unscalers[t] = expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.Param(0, c))}, []dtype.Type{t}, []dtype.Type{t}, -1)
		inverse := expr.C(1).Div(expr.X(0).Cvt(dtype.F64)).Cvt(dtype.F32)
		slot := inverse.Bitcast(dtype.I32).Cvt(dtype.I64)
		if c == dtype.F64 {
			slot = inverse.Cvt(dtype.F64).Bitcast(dtype.I64)
		}
		inverses[t] = expr.MustLower([]*expr.Expr{slot}, []dtype.Type{dtype.I64}, []dtype.Type{dtype.F32}, -1)
	}
	scale, count, bad := expr.X(0), expr.X(1), expr.X(2).Ne(expr.C(0))
	times := func(i int) *expr.Expr { return scale.Cvt(dtype.F64).Mul(expr.Param(i, dtype.F64)).Cvt(dtype.F32) }
	more := count.Add(expr.C(1))
	due := more.Eq(expr.Param(2, dtype.I64))
	grown := times(0)
	finite := grown.Lt(expr.C(math.Inf(1)))
	least := expr.Param(3, dtype.F32)
	fallen := times(1)
	updater = expr.MustLower([]*expr.Expr{
		bad.Select(fallen.Lt(least).Select(least, fallen), due.And(finite).Select(grown, scale)),
		bad.Or(due).Select(expr.C(0), more),
	}, []dtype.Type{dtype.F32, dtype.I64}, []dtype.Type{dtype.F32, dtype.I64, dtype.F32}, -1)
}

// unscale divides the gradients of opt by the scale, in one launch for each device and type. It
// records in st.foundInf whether a gradient is infinite or NaN.
func (g *GradScaler) unscale(op string, opt Optimizer, st *optimizerState) {
	type place struct {
		dev device.Device
		t   dtype.Type
	}
	groups := map[place][][]*tensor.Tensor{}
	var order []place
	for i, p := range opt.Params() {
		d := p.Grad()
		if d == nil {
			continue
		}
		at := place{d.Device(), d.Type()}
		if unscalers[at.t] == nil {
			misuse(op, fmt.Sprintf("the gradient of parameter %d is %v: scaled gradients of that type overflow or vanish already", i, at.t),
				"keep parameters in float32 and open the scope with tensor.Autocast(dtype.F16)", p)
		}
		if !d.IsContiguous() {
			in := p.Scope()
			if st.graph != nil {
				in = st.graph.Scope()
			}
			p.SetGrad(in.On(at.dev).Typed(at.t).Empty(d.Shape().Slice()...).Copy(d.Detach()))
			d = p.Grad()
		}
		if groups[at] == nil {
			order = append(order, at)
		}
		groups[at] = append(groups[at], []*tensor.Tensor{d})
	}
	st.graph.Scope().Do(func(s *tensor.Scope) {
		slots := map[place]*tensor.Tensor{}
		for _, at := range order { // all memory is allocated before a gradient changes
			slots[at] = s.On(at.dev).Typed(dtype.I64).Empty(1)
			if st.foundInf[at.dev] == nil {
				st.foundInf[at.dev] = st.graph.Scope().On(at.dev).Typed(dtype.F32).Zeros()
			}
			tensor.Update(op, inverses[at.t], [][]*tensor.Tensor{{slots[at]}}, [][]*tensor.Tensor{{g.scaleOn(at.dev).Detach().Reshape(1)}}, slots[at], []uint64{0})
		}
		for _, at := range order {
			tensor.UpdateFinite(op, unscalers[at.t], groups[at], groups[at], slots[at], []uint64{0}, st.foundInf[at.dev])
		}
	}, tensor.NoGrad())
}

// Update updates the scale. Call it once after the steps of all optimizers. If the step of any
// optimizer was skipped, Update multiplies the scale by the backoff factor. After GrowthInterval
// consecutive updates without skipped steps, it multiplies the scale by the growth factor, unless
// the result is infinite.
func (g *GradScaler) Update() {
	const op = "grad_scaler.update"
	if g.off {
		return
	}
	g.requireScaled(op)
	var all *tensor.Tensor
	graph := g.recording()
	graph.Scope().Do(func(s *tensor.Scope) {
		for _, st := range g.optimizers {
			if len(st.foundInf) == 0 {
				continue
			}
			found := st.combined
			if found == nil { // the gradients were unscaled, but Step was not called
				found = g.combined(st)
			}
			if all == nil {
				all = found.In(s)
			} else {
				all = all.Maximum(found)
			}
		}
		if all == nil {
			misuse(op, "no gradients were looked at since the last update", "call Step before Update")
		}
		slots := g.settingsOn(graph, g.home)
		one := func(t *tensor.Tensor) *tensor.Tensor { return t.In(s).Reshape(1) }
		scale, tracker := one(g.scale), one(g.tracker)
		tensor.Update(op, updater, [][]*tensor.Tensor{{scale, tracker}}, [][]*tensor.Tensor{{scale, tracker, one(all)}}, slots, nil)
		g.learn(graph, all)
	}, tensor.NoGrad())
	g.renew()
}

// UpdateTo sets the scale, as torch's update with new_scale. In a capture it is an error, because a
// replay would not set the scale.
func (g *GradScaler) UpdateTo(scale float64) {
	const op = "grad_scaler.update"
	if g.off {
		return
	}
	g.requireScaled(op)
	if s := g.settings; true {
		s.begin = scale
		if msg := s.check(); msg != "" {
			misuse(op, msg, "")
		}
	}
	if g.recording() != nil {
		e := tensor.NewError(op, tensor.ErrCapture, "the scale is set by the host, which is not in a replay")
		e.Hint = "call Update in the capture, and UpdateTo between replays"
		panic(e)
	}
	g.watch.waitAll(&g.settings)
	g.scale.Fill(scale)
	g.watch.scale = float32(scale)
	g.renew()
}

// Restart discards all work since the last Update, and does not change the scale. If an iteration
// is abandoned, for example after running out of memory, call Restart before the iteration begins
// again with new gradients. In a capture Restart is an error, because replays would make steps
// without an update of the scale.
func (g *GradScaler) Restart() {
	if g.recording() != nil {
		e := tensor.NewError("grad_scaler.restart", tensor.ErrCapture, "the steps since the last Update are being captured, and replays repeat them")
		e.Hint = "give the capture up by a panic: what was done in it is forgotten"
		panic(e)
	}
	g.renew()
}

// renew begins a new iteration.
func (g *GradScaler) renew() {
	for _, st := range g.optimizers {
		st.combined.Free()
		for _, f := range st.foundInf {
			f.Free()
		}
	}
	clear(g.optimizers)
	for _, c := range g.copies {
		c.Free()
	}
	clear(g.copies)
}

// bits returns v, converted to type t, in the form in which the device reads it.
func bits(t dtype.Type, v float64) int64 { return int64(expr.Encode(t, v)) }

// SetGrowthFactor changes the factor that [GrowthFactor] sets, from the next Update on.
func (g *GradScaler) SetGrowthFactor(v float64) { g.set(func(s *settings) { s.growth = v }) }

// SetBackoffFactor changes the factor that [BackoffFactor] sets, from the next Update on.
func (g *GradScaler) SetBackoffFactor(v float64) { g.set(func(s *settings) { s.backoff = v }) }

// SetGrowthInterval changes the interval that [GrowthInterval] sets, from the next Update on.
func (g *GradScaler) SetGrowthInterval(n int) { g.set(func(s *settings) { s.interval = n }) }

func (g *GradScaler) set(change func(*settings)) {
	g.watch.waitAll(&g.settings) // earlier updates use the old settings
	s := g.settings
	s.tracked = 0
	change(&s)
	if msg := s.check(); msg != "" {
		misuse("grad_scaler", msg, "")
	}
	s.tracked = g.tracked
	g.settings = s
	g.slots.Free()
	g.slots = nil
}
