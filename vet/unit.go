package vet

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

const (
	module     = "github.com/flambeau-go/flambeau/"
	tensorPath = module + "tensor"
	dataPath   = module + "data"
)

// unit is a package that one analyzer is checking.
type unit struct {
	*analysis.Pass
	insp    *inspector.Inspector
	ignored []span

	opened   []*opening                 // all calls of Do, New and NewScope, in source order
	openings map[*ast.CallExpr]*opening // openings by their calls
	literals map[*ast.FuncLit]*opening  // openings that run a function literal, by the literal
	// uses has the uses of each variable of type Scope, Tensor, Batch or a slice of tensors.
	uses map[*types.Var][]use
}

// use is an identifier with the syntax nodes around it, the outermost first. The last node is the
// identifier itself.
type use struct {
	id    *ast.Ident
	stack []ast.Node
}

// An opening is a call that opens a scope.
type opening struct {
	call  *ast.CallExpr
	stack []ast.Node // nodes around the call; the call is the last node
	name  string     // name of the call: "tensor.Do", "Do", "tensor.NewScope" or "New"
	// lit is the function literal that the call runs. It is nil for New and NewScope, and if the
	// function is not a literal.
	lit   *ast.FuncLit
	scope *types.Var // parameter of the literal; nil if it has no name
	opts  []ast.Expr
}

func newUnit(pass *analysis.Pass) *unit {
	u := &unit{Pass: pass, insp: pass.ResultOf[inspect.Analyzer].(*inspector.Inspector),
		ignored: ignored(pass), openings: map[*ast.CallExpr]*opening{},
		literals: map[*ast.FuncLit]*opening{}, uses: map[*types.Var][]use{}}
	kinds := []ast.Node{(*ast.CallExpr)(nil), (*ast.Ident)(nil)}
	u.insp.WithStack(kinds, func(n ast.Node, push bool, stack []ast.Node) bool {
		if !push {
			return true
		}
		switch n := n.(type) {
		case *ast.CallExpr:
			if o := u.opening(n); o != nil {
				o.stack = slices.Clone(stack)
				u.opened, u.openings[n] = append(u.opened, o), o
				if o.lit != nil {
					u.literals[o.lit] = o
				}
			}
		case *ast.Ident:
			v, ok := pass.TypesInfo.ObjectOf(n).(*types.Var)
			if ok && (isTensor(v.Type()) || isTensors(v.Type()) || isScope(v.Type()) || isBatch(v.Type())) {
				u.uses[v] = append(u.uses[v], use{n, slices.Clone(stack)})
			}
		}
		return true
	})
	return u
}

// report reports a mistake at n, unless a comment suppresses the report.
func (u *unit) report(n ast.Node, fix []analysis.SuggestedFix, format string, args ...any) {
	here := func(s span) bool { return s.start <= n.Pos() && n.Pos() < s.end }
	if !slices.ContainsFunc(u.ignored, here) {
		u.Report(analysis.Diagnostic{Pos: n.Pos(), End: n.End(), SuggestedFixes: fix,
			Message: fmt.Sprintf(format, args...)})
	}
}

func (u *unit) opening(call *ast.CallExpr) *opening {
	f := u.callee(call)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != tensorPath {
		return nil
	}
	o := &opening{call: call}
	recv := receiver(f)
	switch {
	case recv == nil && (f.Name() == "Do" || f.Name() == "NewScope"):
		o.name = "tensor." + f.Name()
	case recv != nil && isScope(recv) && (f.Name() == "Do" || f.Name() == "New"):
		o.name = f.Name()
	default:
		return nil
	}
	o.opts = call.Args
	if f.Name() != "Do" {
		return o
	}
	if len(call.Args) == 0 {
		return nil
	}
	o.opts = call.Args[1:]
	lit, ok := ast.Unparen(call.Args[0]).(*ast.FuncLit)
	if !ok {
		return o
	}
	o.lit = lit
	for _, p := range lit.Type.Params.List {
		for _, name := range p.Names {
			if name.Name == "_" {
				continue
			}
			o.scope, _ = u.TypesInfo.Defs[name].(*types.Var)
		}
	}
	return o
}

// callee returns the function or method that a call names, or nil.
func (u *unit) callee(call *ast.CallExpr) *types.Func {
	f, _ := typeutil.Callee(u.TypesInfo, call).(*types.Func)
	return f
}

// variable returns the variable that an expression names, or nil.
func (u *unit) variable(e ast.Expr) *types.Var {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		v, _ := u.TypesInfo.ObjectOf(id).(*types.Var)
		return v
	}
	return nil
}

// method returns the receiver expression and the method of a method call.
func (u *unit) method(call *ast.CallExpr) (on ast.Expr, f *types.Func) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	f = u.callee(call)
	if !ok || f == nil || receiver(f) == nil {
		return nil, nil
	}
	return sel.X, f
}

// ofTensors reports whether a tensor is the receiver, an argument or a result of a call.
func (u *unit) ofTensors(call *ast.CallExpr) bool {
	if u.openings[call] != nil {
		return false
	}
	found := false
	check := func(t types.Type) {
		if tuple, ok := t.(*types.Tuple); ok {
			for v := range tuple.Variables() {
				found = found || isTensor(v.Type()) || isTensors(v.Type())
			}
			return
		}
		found = found || t != nil && (isTensor(t) || isTensors(t))
	}
	check(u.TypesInfo.TypeOf(call))
	for _, a := range call.Args {
		check(u.TypesInfo.TypeOf(a))
	}
	if on, _ := u.method(call); on != nil {
		check(u.TypesInfo.TypeOf(on))
	}
	return found
}

// receiver returns the receiver type of a method, or nil.
func receiver(f *types.Func) types.Type {
	if r := f.Signature().Recv(); r != nil {
		return r.Type()
	}
	return nil
}

func isNamed(t types.Type, path, name string) bool {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Name() != name || n.Obj().Pkg() == nil {
		return false
	}
	return n.Obj().Pkg().Path() == path
}

func isScope(t types.Type) bool { return isNamed(t, tensorPath, "Scope") }
func isBatch(t types.Type) bool { return isNamed(t, dataPath, "Batch") }

func isTensor(t types.Type) bool {
	_, pointer := types.Unalias(t).(*types.Pointer)
	return pointer && isNamed(t, tensorPath, "Tensor")
}

func isTensors(t types.Type) bool {
	s, ok := t.Underlying().(*types.Slice)
	return ok && isTensor(s.Elem())
}

// body returns the body of the innermost function around the last node of a stack. If that function
// is a literal, it also returns the literal.
func body(stack []ast.Node) (*ast.FuncLit, *ast.BlockStmt) {
	for i := len(stack) - 2; i >= 0; i-- {
		switch f := stack[i].(type) {
		case *ast.FuncLit:
			return f, f.Body
		case *ast.FuncDecl:
			return nil, f.Body
		}
	}
	return nil, nil
}

// contains reports whether the node inner is inside outer.
func contains(inner, outer ast.Node) bool {
	return outer.Pos() <= inner.Pos() && inner.End() <= outer.End()
}
