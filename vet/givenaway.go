package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
)

// GivenAway finds tensors that are used after the method From gave them to another scope.
var GivenAway = analyzer("givenaway", `find tensors that are used after From gave them away

s.From(x) of a tensor of the root scope gives x away: it belongs to s from then on, and the old
handle x is freed. In lends it:

	y := s.From(x)     // x is gone
	z := x.Add(y)      // panics; keep the result of From, or lend with x.In(s)

This finds uses that surely come after, of tensors that surely belong to the root scope: those of
tensor.Zeros, Ones, Full and From, and of a loader's batches.`, givenAway)

func givenAway(u *unit) {
	for _, f := range u.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil {
					u.flow(n.Body)
				}
			case *ast.FuncLit:
				if u.literals[n] == nil { // other literals are analysed where they run
					u.flow(n.Body)
				}
			}
			return true
		})
	}
}

// tensorKey identifies a tensor: the value of the local variable v, or a field of it if v is a
// batch.
type tensorKey struct {
	v     *types.Var
	field string
}

// flow is the state of the analysis of a function. The analysis visits the statements in the order
// in which they run.
type flow struct {
	*unit
	gone map[tensorKey]*ast.CallExpr // tensors that were given away, each with the call of From
	told map[ast.Node]bool
}

func (u *unit) flow(b *ast.BlockStmt) {
	jumps := false
	ast.Inspect(b, func(n ast.Node) bool {
		br, ok := n.(*ast.BranchStmt)
		jumps = jumps || ok && br.Tok == token.GOTO
		return !jumps
	})
	if !jumps {
		(&flow{u, map[tensorKey]*ast.CallExpr{}, map[ast.Node]bool{}}).block(b.List)
	}
}

func (f *flow) block(list []ast.Stmt) {
	for _, s := range list {
		f.stmt(s)
	}
}

// walkConditional analyses code that may not run, or may run several times. Tensors that this code
// gives away do not count as given away afterwards. A variable to which the code assigns a value no
// longer counts as given away.
func (f *flow) walkConditional(n ast.Node, walk func()) {
	f.clearMarks(n)
	before := maps.Clone(f.gone)
	walk()
	f.gone = before
	f.clearMarks(n)
}

// clearMarks removes from gone the variables to which a statement in n assigns.
func (f *flow) clearMarks(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				f.set(l)
			}
		case *ast.RangeStmt:
			f.set(n.Key)
			f.set(n.Value)
		}
		return true
	})
}

// set handles an assignment to e.
func (f *flow) set(e ast.Expr) {
	if e == nil {
		return
	}
	if v := f.variable(e); v != nil {
		for k := range f.gone {
			if k.v == v {
				delete(f.gone, k)
			}
		}
	} else if k, ok := f.key(e); ok {
		delete(f.gone, k)
	}
}

func (f *flow) stmt(s ast.Stmt) {
	switch s := s.(type) {
	case nil:
	case *ast.BlockStmt:
		f.block(s.List)
	case *ast.LabeledStmt:
		f.walkConditional(s, func() { f.stmt(s.Stmt) })
	case *ast.IfStmt:
		f.stmt(s.Init)
		f.expr(s.Cond)
		f.walkConditional(s, func() { f.stmt(s.Body) })
		f.walkConditional(s, func() { f.stmt(s.Else) })
	case *ast.ForStmt:
		f.stmt(s.Init)
		f.walkConditional(s, func() { f.stmt(s.Body) })
	case *ast.RangeStmt:
		f.expr(s.X)
		f.walkConditional(s, func() { f.stmt(s.Body) })
	case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
		ast.Inspect(s, func(n ast.Node) bool {
			switch c := n.(type) {
			case *ast.CaseClause:
				f.walkConditional(c, func() { f.block(c.Body) })
				return false
			case *ast.CommClause:
				f.walkConditional(c, func() { f.block(c.Body) })
				return false
			case *ast.FuncLit:
				return false
			}
			return true
		})
		f.clearMarks(s)
	case *ast.AssignStmt:
		for _, e := range s.Rhs {
			f.expr(e)
		}
		for _, e := range s.Lhs {
			if _, ok := ast.Unparen(e).(*ast.Ident); !ok {
				if _, ok := f.key(e); !ok {
					f.expr(e)
				}
			}
			f.set(e)
		}
	case *ast.DeferStmt, *ast.GoStmt: // not visited here, because they run later
	default:
		ast.Inspect(s, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				f.expr(e)
				return false
			}
			return true
		})
	}
}

// expr analyses an expression. It follows the order of evaluation only for calls of From. All other
// uses are checked as if they came before the first From.
func (f *flow) expr(e ast.Expr) {
	if e == nil {
		return
	}
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		if o := f.openings[call]; o != nil && o.lit != nil {
			for _, a := range call.Args[1:] {
				f.expr(a)
			}
			f.literal(o.lit)
			return
		}
	}
	var given []*ast.CallExpr
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				return false
			}
		case *ast.CallExpr:
			if f.gives(n) {
				given = append(given, n)
			}
			f.checkOperands(n)
		}
		return true
	})
	for _, call := range given {
		k, _ := f.key(call.Args[0])
		// checkOperands does not report a tensor that an earlier call in the same expression has
		// given away, so report it here.
		if f.gone[k] != nil {
			f.reportUse(call.Args[0], k)
		}
		if f.root(k) {
			f.gone[k] = call
		}
	}
	// A function literal may assign its variables at any time.
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok {
			f.clearMarks(lit)
		}
		return true
	})
}

// literal analyses the function literal of a Do, which runs exactly once, at this point.
func (f *flow) literal(lit *ast.FuncLit) {
	returns := false
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			returns = true
		}
		return true
	})
	if returns {
		f.walkConditional(lit, func() { f.block(lit.Body.List) })
	} else {
		f.block(lit.Body.List)
	}
}

// gives reports whether a call is s.From(x), with a tensor x and a scope s that is not the root
// scope.
func (f *flow) gives(call *ast.CallExpr) bool {
	on, m := f.method(call)
	if on == nil || m.Name() != "From" || !isScope(receiver(m)) || len(call.Args) != 1 {
		return false
	}
	if _, ok := f.key(call.Args[0]); !ok || !isTensor(f.TypesInfo.TypeOf(call.Args[0])) {
		return false
	}
	s := f.variable(on)
	return s != nil && f.neverRoot(s)
}

// neverRoot reports whether a variable always holds a scope that is not the root scope.
func (u *unit) neverRoot(s *types.Var) bool {
	for _, o := range u.opened {
		if o.scope == s {
			return !u.assigned(s)
		}
		if o.lit == nil {
			if v, _ := u.holder(o); v == s {
				return true
			}
		}
	}
	return false
}

// key returns the key of the tensor that an expression names. ok is false if it names none.
func (u *unit) key(e ast.Expr) (tensorKey, bool) {
	if v := u.variable(e); v != nil && isTensor(v.Type()) {
		return tensorKey{v, ""}, true
	}
	if sel, ok := ast.Unparen(e).(*ast.SelectorExpr); ok {
		if v := u.variable(sel.X); v != nil && isBatch(v.Type()) && (sel.Sel.Name == "X" || sel.Sel.Name == "Y") {
			return tensorKey{v, sel.Sel.Name}, true
		}
	}
	return tensorKey{}, false
}

// checkOperands reports the operands of a call that were given away.
func (f *flow) checkOperands(call *ast.CallExpr) {
	for _, e := range f.live(call) {
		if k, ok := f.key(e); ok && f.gone[k] != nil {
			f.reportUse(e, k)
		}
	}
}

func (f *flow) reportUse(e ast.Expr, k tensorKey) {
	if f.told[e] {
		return
	}
	f.told[e] = true
	from := f.gone[k]
	name, s := types.ExprString(e), types.ExprString(from.Fun.(*ast.SelectorExpr).X)
	f.report(e, nil, "%s was given away by %s.From on line %d: use what From returned, or lend it there with %s.In(%s)",
		name, s, f.Fset.Position(from.Pos()).Line, name, s)
}

// live returns the operands of a call that must not be freed before the call, because the call
// reads them. It knows the methods of Tensor that compute, Scope.From, and functions of package
// tensor. For other calls it returns nil.
func (u *unit) live(call *ast.CallExpr) []ast.Expr {
	on, m := u.method(call)
	if on != nil && isTensor(receiver(m)) && m.Pkg().Path() == tensorPath {
		if !computing(m) {
			return nil
		}
		return append([]ast.Expr{on}, call.Args...)
	}
	f := u.callee(call)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != tensorPath {
		return nil
	}
	if on != nil && f.Name() == "From" && isScope(receiver(f)) || on == nil && (f.Name() == "Data" ||
		f.Signature().Results().Len() == 1 && isTensor(f.Signature().Results().At(0).Type())) {
		return call.Args
	}
	return nil
}

// computing reports whether a method of Tensor reads the tensor's values, because it returns
// tensors or numbers computed from them.
func computing(m *types.Func) bool {
	switch m.Name() {
	case "Item", "Floats", "Bytes", "Backward", "AllClose":
		return true
	case "Grad":
		return false
	}
	for v := range m.Signature().Results().Variables() {
		if isTensor(v.Type()) || isTensors(v.Type()) {
			return true
		}
	}
	return false
}

// root reports whether a tensor always belongs to the root scope and requires no gradient.
func (f *flow) root(k tensorKey) bool {
	uses := f.uses[k.v]
	if len(uses) < 2 || f.assignedTwice(k.v) {
		return false
	}
	if k.field != "" {
		for _, use := range uses[1:] {
			if call := f.calledOn(use); call != nil { // a method of the batch, such as Into
				return false
			}
		}
		return f.ofLoader(uses[0])
	}
	for _, use := range uses[1:] {
		if call := f.calledOn(use); call != nil {
			if _, m := f.method(call); m == nil || m.Name() == "RequireGrad" || m.Name() == "RequiresGrad" {
				return false
			}
		}
	}
	stack := uses[0].stack
	made, ok := stack[len(stack)-2].(*ast.AssignStmt)
	if !ok || made.Tok != token.DEFINE || len(made.Lhs) != len(made.Rhs) {
		return false
	}
	for i, l := range made.Lhs {
		if l != uses[0].id {
			continue
		}
		call, ok := ast.Unparen(made.Rhs[i]).(*ast.CallExpr)
		if !ok {
			return false
		}
		m := f.callee(call)
		if m == nil || m.Pkg() == nil || m.Pkg().Path() != tensorPath || receiver(m) != nil {
			return false
		}
		switch m.Name() {
		case "Zeros", "Ones", "Full", "From":
			return true
		}
	}
	return false
}

// ofLoader reports whether decl declares the variable of a range loop over a loader's batches.
func (f *flow) ofLoader(decl use) bool {
	r, ok := decl.stack[len(decl.stack)-2].(*ast.RangeStmt)
	if !ok || r.Key != decl.id || r.Tok != token.DEFINE {
		return false
	}
	call, ok := ast.Unparen(r.X).(*ast.CallExpr)
	if !ok {
		return false
	}
	on, m := f.method(call)
	return on != nil && isNamed(receiver(m), dataPath, "Loader")
}

// assignedTwice reports whether a variable is assigned after its declaration, or its address is
// taken. The assignment x = s.From(x) does not count.
func (f *flow) assignedTwice(v *types.Var) bool {
	for _, use := range f.uses[v][1:] {
		switch p := use.stack[len(use.stack)-2].(type) {
		case *ast.UnaryExpr:
			return true
		case *ast.AssignStmt:
			for i, l := range p.Lhs {
				if l != use.id {
					continue
				}
				if len(p.Lhs) != len(p.Rhs) {
					return true
				}
				call, ok := ast.Unparen(p.Rhs[i]).(*ast.CallExpr)
				if !ok || !f.gives(call) {
					return true
				}
			}
		}
	}
	return false
}
