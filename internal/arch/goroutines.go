package arch

import (
	"go/ast"
	"path"
	"strconv"
)

// goroutines holds the files that may ask which goroutine calls them, each with the reason. All
// other files pass state in scopes and arguments.
var goroutines = map[string]string{
	"tensor/goroutine.go":  "work on older tensors alone passes by the scope that was meant",
	"profile/collector.go": "docs/inside/tracing.md: nothing is passed down through the driver's interface",
}

// asksGoroutine reports a file that asks which goroutine calls it, unless the map goroutines lists
// the file.
func (c *checker) asksGoroutine(name string, f *ast.File) {
	if goroutines[name] != "" {
		return
	}
	as := ""
	for _, spec := range f.Imports {
		if target, err := strconv.Unquote(spec.Path.Value); err == nil && target == Module+"/internal/callsite" {
			if as = path.Base(target); spec.Name != nil {
				as = spec.Name.Name
			}
		}
	}
	if as == "" {
		return
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if t := typeText(s); t == as+".G" || t == as+".Goroutine" {
				c.fail(c.at(s.Pos()), "%s: only the files listed in internal/arch/goroutines.go ask which goroutine calls", t)
			}
		}
		return true
	})
}
