package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// TestNoComputeInterface checks that no interface of package device has a method with views as
// parameters. Such a method would compute something, but each computation must be a primitive with
// a type of its own.
func TestNoComputeInterface(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "device", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	interfaces := 0
	for _, name := range files {
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			i, ok := spec.Type.(*ast.InterfaceType)
			if !ok {
				return false
			}
			interfaces++
			for _, m := range i.Methods.List {
				if f, ok := m.Type.(*ast.FuncType); ok && takesViews(f) {
					t.Errorf("%s: %s.%s takes views; make it a primitive", fset.Position(m.Pos()), spec.Name, m.Names[0])
				}
			}
			return false
		})
	}
	if interfaces < 10 {
		t.Errorf("only %d interfaces found in %d files", interfaces, len(files))
	}
}

// takesViews reports whether a parameter's type is View or contains View.
func takesViews(f *ast.FuncType) (found bool) {
	for _, p := range f.Params.List {
		ast.Inspect(p.Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == "View" {
				found = true
			}
			return true
		})
	}
	return found
}
