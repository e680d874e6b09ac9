package vet

import (
	"go/ast"
	"slices"
	"strings"
)

// UnusedMode finds scopes with a mode, such as NoGrad, that has no effect.
var UnusedMode = analyzer("unusedmode", `find scopes with a mode that nothing uses

A mode holds for what is made in its scope, and for results of operands that belong to the scope.
Where nothing is, the mode does nothing:

	tensor.Do(func(*tensor.Scope) { y = model.Forward(x) }, tensor.NoGrad())

x is older than the scope, so that its results are as well, and the graph is recorded. This is
meant:

	tensor.Do(func(s *tensor.Scope) { y := model.Forward(x.In(s)); … }, tensor.NoGrad())`, unusedModes)

func unusedModes(u *unit) {
	for _, o := range u.opened {
		modes := u.modesOf(o)
		if modes == "" {
			continue
		}
		switch {
		case o.lit != nil:
			if o.scope != nil && len(u.uses[o.scope]) > 1 { // the first use is the parameter itself
				continue
			}
			if !u.computes(o.lit.Body, 0) {
				continue
			}
			name := "s"
			if o.scope != nil {
				name = o.scope.Name()
			}
			u.report(o.call, nil, "%s nothing here: no tensor in this function belongs to its "+
				"scope; name the scope %s and compute with x.In(%s)", modes, name, name)
		case strings.HasSuffix(o.name, "New") || strings.HasSuffix(o.name, "NewScope"):
			u.unusedNew(o, modes)
		}
	}
}

// unusedNew reports a scope from New or NewScope whose variable is used only to close it.
func (u *unit) unusedNew(o *opening, modes string) {
	v, _ := u.holder(o)
	if v == nil {
		return
	}
	closed := false
	for _, use := range u.uses[v][1:] {
		call := u.calledOn(use)
		if call == nil || len(call.Args) > 0 {
			return
		}
		if _, f := u.method(call); f == nil || f.Name() != "Close" {
			return
		}
		closed = true
	}
	if _, in := body(o.stack); closed && in != nil && u.computes(in, int(o.call.End())) {
		u.report(o.call, nil, "%s nothing here: no tensor belongs to the scope %s; "+
			"compute with x.In(%s)", modes, v.Name(), v.Name())
	}
}

// modesOf lists the modes of an opening that change how ops compute, followed by a verb, such as
// "NoGrad does". If there are none, it returns "".
func (u *unit) modesOf(o *opening) string {
	var names []string
	for _, e := range o.opts {
		call, ok := ast.Unparen(e).(*ast.CallExpr)
		if !ok {
			continue
		}
		f := u.callee(call)
		if f == nil || f.Pkg() == nil || f.Pkg().Path() != tensorPath || receiver(f) != nil {
			continue
		}
		switch f.Name() {
		case "NoGrad", "WithGrad", "Autocast", "NoAutocast":
			names = append(names, f.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	if len(names) == 1 {
		return names[0] + " does"
	}
	return strings.Join(names, " and ") + " do"
}

// computes reports whether block b contains a call with tensors after position from.
func (u *unit) computes(b *ast.BlockStmt, from int) bool {
	found := false
	ast.Inspect(b, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && int(call.Pos()) > from && u.ofTensors(call)
		return !found
	})
	return found
}

// calledOn returns the method call whose receiver is the used variable, or nil.
func (u *unit) calledOn(use use) *ast.CallExpr {
	n := len(use.stack)
	if n < 3 {
		return nil
	}
	sel, ok := use.stack[n-2].(*ast.SelectorExpr)
	if !ok || sel.X != use.id {
		return nil
	}
	call, ok := use.stack[n-3].(*ast.CallExpr)
	if !ok || call.Fun != sel {
		return nil
	}
	return call
}
