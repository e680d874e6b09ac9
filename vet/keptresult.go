package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
)

// KeptResult finds tensors that are used after their scope was closed.
var KeptResult = analyzer("keptresult", `find tensors that are used after the scope that owned them closed

What a step makes is freed at its end. A variable from outside keeps the name, not the tensor:

	var last *tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		last = model.Forward(s.From(batch.X))
	})
	fmt.Println(last.Item()) // panics: the scope is closed

Keep it with s.Close(last), take the number with Item or Floats inside, or copy into an older tensor.
A variable or slice is reported if it gets no other tensors, and is used after the scope closed.`, keptResults)

// keptResults reports variables that are used after their tensor was freed. Suppose that every
// assignment of a variable is inside a Do and assigns a tensor of that Do's scope. Then the
// variable holds a freed tensor after the Do.
func keptResults(u *unit) {
	byPos := func(a, b *types.Var) int { return int(a.Pos() - b.Pos()) }
	for _, v := range slices.SortedFunc(maps.Keys(u.uses), byPos) {
		uses := u.uses[v]
		if len(uses) > 1 && !v.IsField() && v.Parent() != nil && v.Parent() != u.Pkg.Scope() &&
			(isTensor(v.Type()) || isTensors(v.Type())) && declaredEmpty(uses[0]) {
			u.kept(v, uses[1:])
		}
	}
}

// declaredEmpty reports whether a variable is declared without a tensor: as "var y", "var list" or
// "list := []*tensor.Tensor{}".
func declaredEmpty(decl use) bool {
	empty := func(e ast.Expr) bool {
		switch e := ast.Unparen(e).(type) {
		case *ast.Ident:
			return e.Name == "nil"
		case *ast.CompositeLit:
			return len(e.Elts) == 0
		}
		return false
	}
	switch p := decl.stack[len(decl.stack)-2].(type) {
	case *ast.ValueSpec:
		return len(p.Values) == 0 || len(p.Values) == 1 && empty(p.Values[0])
	case *ast.AssignStmt:
		return p.Tok == token.DEFINE && len(p.Lhs) == 1 && len(p.Rhs) == 1 && empty(p.Rhs[0])
	}
	return false
}

func (u *unit) kept(v *types.Var, uses []use) {
	var steps []*opening // openings whose function literals assign v
	for _, use := range uses {
		switch p := use.stack[len(use.stack)-2].(type) {
		case *ast.UnaryExpr:
			return
		case *ast.RangeStmt:
			if p.Key == use.id || p.Value == use.id {
				return
			}
		case *ast.AssignStmt:
			for i, l := range p.Lhs {
				if l != use.id {
					continue
				}
				o := u.step(use, v)
				if o == nil || p.Tok != token.ASSIGN || len(p.Lhs) != len(p.Rhs) || !u.gets(o, v, p.Rhs[i]) {
					return
				}
				steps = append(steps, o)
			}
		case *ast.IndexExpr: // the statement is list[i] = x
			if a, ok := use.stack[len(use.stack)-3].(*ast.AssignStmt); ok && p.X == use.id {
				for _, l := range a.Lhs {
					if l == p {
						return
					}
				}
			}
		}
	}
	if len(steps) == 0 {
		return
	}
	for _, use := range uses {
		if e := u.liveUse(use); e != nil && u.outside(use, v, steps) {
			s := steps[0].scope.Name()
			u.report(e, nil, "%s belongs to the scope %s of line %d, which has closed here: keep it with %s.Close(%s), or "+
				"take its values inside with Item or Floats", v.Name(), s, u.Fset.Position(steps[0].call.Pos()).Line, s, v.Name())
			return
		}
	}
}

// step looks at the innermost function around a use. If it is the function literal of an [opening],
// step returns the opening. It returns nil if v is declared inside the literal. It also returns nil
// if the literal itself closes the scope, because Close may keep tensors.
func (u *unit) step(use use, v *types.Var) *opening {
	lit, _ := body(use.stack)
	o := u.literals[lit]
	if lit == nil || o == nil || o.scope == nil || contains(declOf(u, v), lit) {
		return nil
	}
	for _, s := range u.uses[o.scope] {
		if call := u.calledOn(s); call != nil {
			if _, m := u.method(call); m != nil && m.Name() == "Close" {
				return nil
			}
		}
	}
	return o
}

func declOf(u *unit, v *types.Var) ast.Node { return u.uses[v][0].id }

// gets reports whether the assignment of e to v assigns only tensors of o's scope.
func (u *unit) gets(o *opening, v *types.Var, e ast.Expr) bool {
	if isTensor(v.Type()) {
		return u.owned(o, e, nil)
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr) // the form is append(v, x, …)
	if !ok || len(call.Args) < 2 || call.Ellipsis.IsValid() || u.variable(call.Args[0]) != v {
		return false
	}
	if b, ok := u.TypesInfo.Uses[identOf(call.Fun)].(*types.Builtin); !ok || b.Name() != "append" {
		return false
	}
	for _, a := range call.Args[1:] {
		if !u.owned(o, a, nil) {
			return false
		}
	}
	return true
}

func identOf(e ast.Expr) *ast.Ident {
	id, _ := ast.Unparen(e).(*ast.Ident)
	return id
}

// owned reports whether the tensor of an expression always belongs to o's scope or to a scope
// inside it.
func (u *unit) owned(o *opening, e ast.Expr, seen []*types.Var) bool {
	if v := u.variable(e); v != nil {
		return u.ownedVariable(o, v, seen)
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || !isTensor(u.TypesInfo.TypeOf(call)) {
		return false
	}
	on, f := u.method(call)
	switch {
	case on != nil && isScope(receiver(f)):
		return u.variable(on) == o.scope
	case on != nil && isNamed(receiver(f), tensorPath, "Maker"):
		return u.makes(o, on)
	case on != nil && isTensor(receiver(f)):
		return f.Name() == "In" && len(call.Args) == 1 && u.variable(call.Args[0]) == o.scope || u.owned(o, on, seen)
	case on != nil && f.Name() != "Forward":
		return false
	case on == nil:
		if f = u.callee(call); f == nil || f.Pkg() == nil || f.Pkg().Path() != tensorPath && f.Pkg().Path() != module+"nn" {
			return false
		}
	}
	for _, a := range call.Args {
		if u.owned(o, a, seen) {
			return true
		}
	}
	return false
}

// makes reports whether an expression creates tensors in o's scope, such as s.On(dev) or
// s.Typed(t).On(dev).
func (u *unit) makes(o *opening, e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	on, _ := u.method(call)
	return on != nil && (u.variable(on) == o.scope || u.makes(o, on))
}

// ownedVariable reports whether v, a variable of o's literal, always has a tensor of o's scope.
func (u *unit) ownedVariable(o *opening, v *types.Var, seen []*types.Var) bool {
	uses := u.uses[v]
	if len(uses) == 0 || !isTensor(v.Type()) || !contains(uses[0].id, o.lit.Body) || len(seen) > 20 {
		return false
	}
	if slices.Contains(seen, v) {
		return true // this assignment reads v itself, so the other assignments decide
	}
	seen = append(seen, v)
	values := 0
	for _, use := range uses {
		switch p := use.stack[len(use.stack)-2].(type) {
		case *ast.UnaryExpr, *ast.ValueSpec, *ast.RangeStmt, *ast.Field:
			return false
		case *ast.AssignStmt:
			for i, l := range p.Lhs {
				if l != use.id {
					continue
				}
				if len(p.Lhs) != len(p.Rhs) || !u.owned(o, p.Rhs[i], seen) {
					return false
				}
				values++
			}
		}
	}
	return values > 0
}

// liveUse returns the expression in which a use reads the variable's tensor, or a tensor of its
// slice. It returns nil if the use may read no tensor.
func (u *unit) liveUse(use use) ast.Expr {
	n := len(use.stack)
	if isTensors(u.TypesInfo.ObjectOf(use.id).Type()) {
		if p, ok := use.stack[n-2].(*ast.IndexExpr); ok && p.X == use.id {
			return u.liveIn(p, use.stack[:n-2])
		}
		if p, ok := use.stack[n-2].(*ast.CallExpr); ok && p.Ellipsis.IsValid() {
			return u.operand(p, use.id)
		}
		return nil
	}
	return u.liveIn(use.id, use.stack[:n-1])
}

// liveIn returns e if the code around it reads the values of e, else nil. The nodes around e are in
// enclosing.
func (u *unit) liveIn(e ast.Expr, enclosing []ast.Node) ast.Expr {
	switch p := enclosing[len(enclosing)-1].(type) {
	case *ast.SelectorExpr:
		if call, ok := enclosing[len(enclosing)-2].(*ast.CallExpr); ok && call.Fun == p {
			return u.operand(call, e)
		}
	case *ast.CallExpr:
		return u.operand(p, e)
	}
	return nil
}

// operand returns e if it is an operand of the call that must not be freed before the call, else
// nil.
func (u *unit) operand(call *ast.CallExpr, e ast.Expr) ast.Expr {
	if slices.Contains(u.live(call), e) {
		return e
	}
	return nil
}

// outside reports whether a use always runs outside of all steps: in the function that declares v,
// or in literals of other scopes.
func (u *unit) outside(use use, v *types.Var, steps []*opening) bool {
	for _, o := range steps {
		if contains(use.id, o.lit) {
			return false
		}
	}
	decl, _ := body(u.uses[v][0].stack)
	for i := len(use.stack) - 1; i >= 0; i-- {
		switch n := use.stack[i].(type) {
		case *ast.DeferStmt, *ast.GoStmt:
			return false
		case *ast.FuncLit:
			if n == decl {
				return true
			}
			if u.literals[n] == nil {
				return false
			}
		}
	}
	return true
}
