package optim

import (
	"encoding/binary"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// capture records an update. A replay is the first one, which copies, or a later one, as their number says when it is queued.
func (a *Averaged) capture(g *tensor.Graph) {
	before := a.within // of the same capture
	if a.within++; before == 0 {
		g.Ended(func(bool) error {
			a.within = 0
			return nil
		})
	}
	g.Exclude(&a.turn)
	means := make([]*tensor.Tensor, len(a.list))
	for i, e := range a.list {
		means[i] = e.mean
		if e.mean.Device() != e.Tensor.Device() || e.mean.Type() != e.Tensor.Type() {
			misplaced := tensor.NewError(a.name, tensor.ErrCapture, "the average of "+e.Name+" is on another device or of another type than its parameter", e.Tensor, e.mean)
			misplaced.Hint = "call Update once before the capture: the averages follow then"
			panic(misplaced)
		}
	}
	g.Check(func() error {
		if a.swapped {
			return &Error{a.name, "a replay that updates the averages within With, where they are in the model; replay before or after"}
		}
		for i, e := range a.list {
			if e.mean != means[i] {
				return &Error{a.name, "the averages were replaced since the update was captured, such as by LoadStateDict; capture it again"}
			}
		}
		return nil
	})
	list := map[pairing]*launch{}
	var order []*launch
	program, mean, _ := a.formula(a.n)
	add := func(name string, rule func(flags) []*expr.Expr, e average) {
		k := pairing{e.Tensor.Device(), e.Tensor.Type()}
		l := list[k]
		if l == nil {
			l = &launch{dev: k.dev, t: k.t}
			l.program = lowered(name, flags{}, l.t, 2, rule)
			list[k], order = l, append(order, l)
		}
		l.outs, l.ins = append(l.outs, []*tensor.Tensor{e.mean}), append(l.ins, []*tensor.Tensor{e.mean, e.Tensor})
	}
	g.Scope().Do(func(s *tensor.Scope) {
		for _, e := range a.list {
			switch {
			case e.Buffer && !a.buffers, !e.Tensor.Type().IsFloat() && (a.plain || e.Tensor.Type() == dtype.Bool):
				e.mean.In(s).Copy(e.Tensor)
			case !e.Tensor.Type().IsFloat():
				if a.n == 0 {
					first := tensor.NewError(a.name, tensor.ErrCapture, "the first update copies "+e.Name+", and later ones average it in another way", e.Tensor)
					first.Hint = "call Update once before the capture"
					panic(first)
				}
				s.Do(func(c *tensor.Scope) { e.mean.In(c).Copy(a.whole(c, e)) })
			default:
				dense(a.name, []*tensor.Tensor{e.mean, e.Tensor})
				add(program+" or first", func(flags) []*expr.Expr {
					return []*expr.Expr{expr.Param(1, dtype.I64).Ne(expr.C(0)).Select(expr.X(1), mean)}
				}, e)
			}
		}
		for _, l := range order {
			l.slots = g.Feed(dtype.I64, 2, func(to []byte) {
				_, _, scalar := a.formula(a.n + before)
				l.encode([]float64{scalar}, to)
				first := uint64(0)
				if a.n+before == 0 {
					first = 1
				}
				binary.NativeEndian.PutUint64(to[8:], first)
			})
			l.run("average")
		}
	}, tensor.NoGrad())
	g.Then(func() { a.n++ })
}

// whole returns the exponential average of whole numbers, in c.
func (a *Averaged) whole(c *tensor.Scope, e average) *tensor.Tensor {
	return e.mean.In(c).Float().MulScalar(a.decay).Add(e.Tensor.In(c).Float().MulScalar(1 - a.decay)).Cast(e.mean.Type())
}
