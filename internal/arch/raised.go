package arch

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
)

// recovered holds packages that panic with an error and recover it themselves, each with the
// reason. No caller sees these panics.
var recovered = map[string]string{
	"torchfile":               "Load and Open return the error",
	"cuda/internal/emu/ptxvm": "Parse returns the error",
}

// panicsIn records the error types with which the functions of a file panic. It recognises
// panic(&T{…}), panic(T(…)) with an error type T, and panic(f(…)) where f is a function of the
// package that returns *T. It also records the types with a method Raised.
func (p *pkg) panicsIn(f *ast.File) {
	if p.panics == nil {
		p.panics, p.raised = map[string]token.Pos{}, map[string]bool{}
		p.makes, p.calls = map[string]string{}, map[string]token.Pos{}
	}
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		switch r := d.Type.Results; {
		case d.Recv != nil && d.Name.Name == "Raised":
			p.raised[typeText(d.Recv.List[0].Type)] = true
		case r != nil && len(r.List) == 1 && len(r.List[0].Names) < 2:
			if star, ok := r.List[0].Type.(*ast.StarExpr); ok && strings.HasSuffix(typeText(star), "Error") {
				p.makes[d.Name.Name] = typeText(star)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 || typeText(call.Fun) != "panic" {
			return true
		}
		switch x := call.Args[0].(type) {
		case *ast.UnaryExpr:
			if lit, ok := x.X.(*ast.CompositeLit); ok {
				p.panics[typeText(lit.Type)] = call.Pos()
			}
		case *ast.CompositeLit:
			p.panics[typeText(x.Type)] = call.Pos()
		case *ast.CallExpr:
			if name := typeText(x.Fun); strings.HasSuffix(name, "Error") && !strings.HasPrefix(name, "New") && ast.IsExported(name) {
				// the argument of panic is a conversion to an error type
				p.panics[name] = call.Pos()
			} else {
				p.calls[name] = call.Pos()
			}
		}
		return true
	})
}

// raises checks that each error type with which a package panics has a method Raised. tensor.Try
// then returns the error.
func (c *checker) raises(dir string, p *pkg) {
	if recovered[dir] != "" {
		return
	}
	for f, at := range p.calls {
		if t, ok := p.makes[f]; ok {
			p.panics[t] = at
		}
	}
	for name, at := range p.panics {
		of := p
		// the type belongs to another package, whose folder has the package's name
		if base, t, ok := strings.Cut(name, "."); ok {
			name = t
			for other, q := range c.packages {
				if path.Base(other) == base {
					of = q
				}
			}
		}
		if !of.raised[name] {
			c.fail(c.at(at), "a panic with a %s, which lacks the method Raised: tensor.Try would let it go on", name)
		}
	}
}

// typeText returns the name of a type or a function, such as "Error" or "optim.Error", without the
// star of a pointer. It returns "" for an expression without a name.
func typeText(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return typeText(x.X)
	case *ast.SelectorExpr:
		if base := typeText(x.X); base != "" {
			return base + "." + x.Sel.Name
		}
	}
	return ""
}
