package vet

import (
	"go/ast"
	"go/types"
)

// UnclosedScope finds scopes that are never closed.
var UnclosedScope = analyzer("unclosedscope", `find scopes that are never closed

What a scope owns is freed when the scope closes; tensor.Do closes its own. A scope of
tensor.NewScope or of a scope's New has to be closed:

	s := tensor.NewScope()
	defer s.Close()

This finds scopes that are neither closed, nor returned, stored or passed on.`, unclosed)

func unclosed(u *unit) {
	for _, o := range u.opened {
		if o.name != "tensor.NewScope" && o.name != "New" {
			continue
		}
		if v, lost := u.holder(o); lost {
			u.report(o.call, nil, "this scope is never closed: keep it in a variable and close it, "+
				"or use Do, which closes it")
		} else if v != nil && !u.mayBeClosed(v) {
			u.report(o.call, nil, "the scope %s is never closed: write defer %s.Close() after this line, "+
				"or use Do, which closes it", v.Name(), v.Name())
		}
	}
}

// holder returns the local variable to which the scope is assigned when it is opened. It returns
// nil if the variable is assigned again. The result lost is true if the scope is not stored
// anywhere.
func (u *unit) holder(o *opening) (v *types.Var, lost bool) {
	at := len(o.stack) - 2
	for at >= 0 {
		if _, ok := o.stack[at].(*ast.ParenExpr); !ok {
			break
		}
		at--
	}
	if at < 0 {
		return nil, false
	}
	var id ast.Expr
	switch p := o.stack[at].(type) {
	case *ast.ExprStmt:
		return nil, true
	case *ast.SelectorExpr: // for example tensor.NewScope().Zeros(3)
		_, f := u.method(parentCall(o.stack[:at]))
		return nil, f != nil && f.Name() != "Close" && f.Name() != "Do"
	case *ast.AssignStmt:
		for i, r := range p.Rhs {
			if ast.Unparen(r) == o.call && len(p.Lhs) == len(p.Rhs) {
				id = p.Lhs[i]
			}
		}
	case *ast.ValueSpec:
		for i, r := range p.Values {
			if ast.Unparen(r) == o.call && len(p.Names) == len(p.Values) {
				id = p.Names[i]
			}
		}
	}
	if id == nil {
		return nil, false
	}
	if name, ok := id.(*ast.Ident); ok && name.Name == "_" {
		return nil, true
	}
	v = u.variable(id)
	if v == nil || v.IsField() || v.Parent() == nil || v.Parent() == u.Pkg.Scope() || len(u.uses[v]) == 0 {
		return nil, false
	}
	// The scope must initialise the variable. If the variable is a parameter or a named result, the
	// caller could use the scope too.
	if first := u.uses[v][0]; first.id != id || u.assigned(v) {
		return nil, false
	}
	return v, false
}

// parentCall returns the last node of the stack if it is a call, and otherwise an empty call.
func parentCall(stack []ast.Node) *ast.CallExpr {
	if call, ok := stack[len(stack)-1].(*ast.CallExpr); ok {
		return call
	}
	return &ast.CallExpr{Fun: &ast.BadExpr{}}
}

// assigned reports whether a variable is assigned after its declaration, or may be assigned through
// a pointer.
func (u *unit) assigned(v *types.Var) bool {
	for _, use := range u.uses[v][1:] {
		switch p := use.stack[len(use.stack)-2].(type) {
		case *ast.AssignStmt:
			for _, l := range p.Lhs {
				if l == use.id {
					return true
				}
			}
		case *ast.UnaryExpr: // the operator & makes a pointer
			return true
		case *ast.RangeStmt:
			if p.Key == use.id || p.Value == use.id {
				return true
			}
		}
	}
	return false
}

// mayBeClosed reports whether a scope is closed, or may be closed by other code, such as a function
// literal that uses the scope.
func (u *unit) mayBeClosed(v *types.Var) bool {
	home, _ := body(u.uses[v][0].stack)
	for _, use := range u.uses[v][1:] {
		if in, _ := body(use.stack); in != home && u.literals[in] == nil {
			return true
		}
		if call := u.calledOn(use); call != nil {
			if _, f := u.method(call); f != nil && f.Name() != "Close" {
				continue
			}
			return true
		}
		// A call that moves a tensor or a batch into the scope does not close it.
		if call, ok := use.stack[len(use.stack)-2].(*ast.CallExpr); ok && call.Fun != use.id {
			if on, f := u.method(call); on != nil && (f.Name() == "In" && isTensor(receiver(f)) ||
				f.Name() == "Into" && isBatch(receiver(f))) {
				continue
			}
		}
		return true
	}
	return false
}
