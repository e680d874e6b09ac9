package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// MissedMode finds calls of a model that compute without the mode of the scope around them.
var MissedMode = analyzer("missedmode", `find calls of a model that the mode around them does not reach

A mode holds for what is made in its scope, and for results of operands that belong to the scope. A
call over older tensors goes without, though other work in the same function has the mode:

	tensor.Do(func(s *tensor.Scope) {
		a := model.Forward(x.In(s)) // without a graph
		b := model.Forward(z)       // with one: z is older than s
	}, tensor.NoGrad())

This finds calls of Forward whose tensors are all variables of the function around. What is meant is
z.In(s).`, missedModes)

func missedModes(u *unit) {
	for _, o := range u.opened {
		// The analyzer UnusedMode reports scopes that are not used.
		if o.lit == nil || o.scope == nil || len(u.uses[o.scope]) < 2 {
			continue
		}
		modes := u.modesOf(o)
		if modes == "" || u.modeAround(o) {
			continue
		}
		ast.Inspect(o.lit.Body, func(n ast.Node) bool {
			if _, in := n.(*ast.FuncLit); in { // code in a function literal may run elsewhere
				return false
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if v := u.olderOperand(o, call); v != nil {
				s := o.scope.Name()
				u.report(call, nil, "%s not reach this call: its tensors are older than the scope %s; "+
					"write %s.In(%s)", modes, s, v.Name(), s)
			}
			return true
		})
	}
}

// modeAround reports whether a tensor that is older than o's scope may have a mode of its own. The
// mode may come from a scope around the opening, or from another scope that is open in the same
// function.
func (u *unit) modeAround(o *opening) bool {
	for outer := u.enclosing(o); outer != nil; outer = u.enclosing(outer) {
		if u.modesOf(outer) != "" {
			return true
		}
	}
	_, in := body(o.stack)
	return slices.ContainsFunc(u.opened, func(other *opening) bool {
		return other.lit == nil && (in == nil || contains(other.call, in)) && u.modesOf(other) != ""
	})
}

// olderOperand returns a tensor of a call of Forward if all tensors of the call are older than o's
// scope. Otherwise it returns nil.
func (u *unit) olderOperand(o *opening, call *ast.CallExpr) (first *types.Var) {
	on, f := u.method(call)
	if f == nil || f.Name() != "Forward" || !u.setOutside(o, u.root(on)) {
		return nil
	}
	for _, a := range call.Args {
		if t := u.TypesInfo.TypeOf(a); t == nil || !isTensor(t) {
			return nil
		}
		v := u.variable(a)
		if !u.setOutside(o, v) {
			return nil
		}
		if first == nil {
			first = v
		}
	}
	return first
}

// setOutside reports whether a variable gets its value outside the function literal of an opening.
// The variable must be declared outside the literal. Inside the literal, no code may assign to the
// variable or to a field of it, or take its address. No call that gets the scope as an argument
// may have the variable as its receiver or as another argument.
func (u *unit) setOutside(o *opening, v *types.Var) bool {
	if v == nil || o.lit.Pos() <= v.Pos() && v.Pos() < o.lit.End() {
		return false
	}
	older := true
	is := func(e ast.Expr) { older = older && (e == nil || u.root(e) != v) }
	ast.Inspect(o.lit.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				is(l)
			}
		case *ast.RangeStmt:
			is(n.Key)
			is(n.Value)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				is(n.X)
			}
		case *ast.CallExpr: // a call with v and the scope may move v's tensors to the scope
			if slices.ContainsFunc(n.Args, func(a ast.Expr) bool { return u.variable(a) == o.scope }) {
				for _, a := range n.Args {
					is(a)
				}
				if on, f := u.method(n); f != nil {
					is(on)
				}
			}
		}
		return older
	})
	return older
}

// root returns the variable at the beginning of a chain of fields and indices. For other
// expressions it returns nil.
func (u *unit) root(e ast.Expr) *types.Var {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		default:
			return u.variable(e)
		}
	}
}
