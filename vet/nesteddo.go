package vet

import (
	"go/ast"

	"golang.org/x/tools/go/analysis"
)

// NestedDo finds calls of tensor.Do inside the function of another scope.
var NestedDo = analyzer("nesteddo", `find tensor.Do inside of another scope's function

tensor.Do opens a scope under the root, wherever it stands. Inside of the function of another scope
it has none of the modes around it, and takes no tensor of that scope:

	tensor.Do(func(s *tensor.Scope) {
		tensor.Do(func(c *tensor.Scope) { … }) // with a graph: NoGrad is the other scope's
	}, tensor.NoGrad())

s.Do opens the scope inside of s. Where one under the root is meant, tensor.Root().Do says so.`, nestedDo)

func nestedDo(u *unit) {
	for _, o := range u.opened {
		if o.name != "tensor.Do" {
			continue
		}
		outer := u.enclosing(o)
		if outer == nil {
			continue
		}
		if outer.scope == nil {
			u.report(o.call.Fun, nil, "tensor.Do opens a scope under the root, without the modes of the one "+
				"around it: name that one s and write s.Do, or tensor.Root().Do where the root is meant")
			continue
		}
		s := outer.scope.Name()
		fix := analysis.SuggestedFix{Message: "Write " + s + ".Do", TextEdits: []analysis.TextEdit{
			{Pos: o.call.Fun.Pos(), End: o.call.Fun.End(), NewText: []byte(s + ".Do")}}}
		u.report(o.call.Fun, []analysis.SuggestedFix{fix}, "tensor.Do opens a scope under the root, without the "+
			"modes of %s: write %s.Do, or tensor.Root().Do where the root is meant", s, s)
	}
}

// enclosing returns the innermost opening whose function literal contains o's call. It returns nil
// if another function lies between the literal and the call, because that function may run
// elsewhere, later or on another goroutine.
func (u *unit) enclosing(o *opening) *opening {
	for i := len(o.stack) - 2; i >= 0; i-- {
		switch f := o.stack[i].(type) {
		case *ast.FuncLit:
			return u.literals[f]
		case *ast.FuncDecl:
			return nil
		}
	}
	return nil
}
