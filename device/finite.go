package device

import "github.com/flambeau-go/flambeau/expr"

// FiniteMapper is satisfied by a [MultiMapper] that finds infinities and NaN on its way: how gradients are unscaled.
type FiniteMapper interface {
	MultiMapper
	// MultiMapFinite is MultiMap that also sets found, one F32, to 1 if an element of the first operand of a group, as it is before, is
	// infinite or NaN, and leaves it as it is otherwise: it is 0 or 1 before.
	MultiMapFinite(s Stream, p *expr.Program, outs, ins [][]View, params, found View) error
}
