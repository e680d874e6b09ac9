// Package arch holds the rules of this project that the compiler does not check, and the test that
// enforces them. Imports must follow the layers in docs/inside/README.md. Some imports, such as
// those of other modules, are allowed only in a few packages. Every package and exported identifier
// must have a comment. Files may not be too large. In comments and pages, lines and sentences may
// not be too long. File names must have a certain form.
//
// The checks read source text, so on any machine they see the files for every system and build tag.
// Nothing imports this package.
package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module whose packages are checked.
const Module = "github.com/flambeau-go/flambeau"

// A Violation is one place where a file breaks a rule.
type Violation struct {
	Where string // file, or file:line
	What  string // the rule, and how the file breaks the rule
}

func (v Violation) String() string { return v.Where + ": " + v.What }

// Check reads the named files (slash-separated, relative to the module root) from fsys and returns
// every violation, sorted by Where. It returns an error only when a file cannot be read. A Go file
// that does not parse is a violation.
func Check(fsys fs.FS, files []string) ([]Violation, error) {
	c := checker{fset: token.NewFileSet(), packages: map[string]*pkg{}}
	for _, name := range files {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("arch: reading %s: %w", name, err)
		}
		c.file(name, text)
	}
	for dir, p := range c.packages {
		c.pkg(dir, p)
		c.raises(dir, p)
	}
	slices.SortFunc(c.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What))
	})
	return c.found, nil
}

// pkg is what the checker knows about the Go files of a folder.
type pkg struct {
	name string
	// name of the package's first file; violations of the whole package are reported there
	firstFile  string
	documented bool

	// panics holds the error types with which functions of the package panic, such as "optim.Error"
	panics map[string]token.Pos
	// raised holds the names of the package's types that have the method Raised, such as "Error"
	raised map[string]bool
	// for each function that returns a pointer to an error type, the name of that type
	makes map[string]string
	calls map[string]token.Pos // functions f that are called in the form panic(f(…)), by name
}

type checker struct {
	fset     *token.FileSet
	packages map[string]*pkg // packages by folder, without their test files
	found    []Violation
}

func (c *checker) fail(where, format string, args ...any) {
	c.found = append(c.found, Violation{where, fmt.Sprintf(format, args...)})
}

func (c *checker) at(p token.Pos) string {
	pos := c.fset.Position(p)
	return pos.Filename + ":" + strconv.Itoa(pos.Line)
}

// file checks one file, and records what the later checks of its package need.
func (c *checker) file(name string, text []byte) {
	if _, listed := bigFiles[name]; len(text) > maxFileSize && !listed {
		c.fail(name, "%d bytes; a tracked file has at most %d", len(text), maxFileSize)
	}
	if underTestdata(name) {
		return
	}
	switch path.Ext(name) {
	case ".go", ".s", ".py", ".sh":
	case ".safetensors", ".pt", ".pth", ".npy", ".npz":
		c.fail(name, "a file of numbers outside of testdata: what a test or a command writes is not tracked")
		return
	default:
		return
	}
	if n := strings.Count(string(text), "\n"); n > maxLines && !generated(text) {
		c.fail(name, "%d lines; split by purpose below %d", n, maxLines)
	}
	if ext := path.Ext(name); (ext == ".go" || ext == ".s") && misnamed(name, text) {
		c.fail(name, "an underscore that is not _test, a system's, or of files that a build constraint chooses between")
	}
	if path.Ext(name) != ".go" || ignored(name) {
		return
	}
	f, err := parser.ParseFile(c.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		c.fail(name, "does not parse: %v", err)
		return
	}
	dir, test := path.Dir(name), strings.HasSuffix(name, "_test.go")
	c.imports(f, dir, test, text)
	if test {
		return
	}
	p := c.packages[dir]
	if p == nil {
		p = &pkg{name: f.Name.Name, firstFile: name}
		c.packages[dir] = p
	}
	p.documented = p.documented || f.Doc != nil
	p.panicsIn(f)
	c.asksGoroutine(name, f)
	if f.Name.Name != "main" && !generated(text) {
		c.docs(f)
	}
}

// pkg checks one package, after the method file has read all its files.
func (c *checker) pkg(dir string, p *pkg) {
	if floorOf(dir) == nil {
		c.fail(p.firstFile, "package %s is not in the table of internal/arch/floors.go: declare what it stands on", dir)
	}
	if !p.documented {
		c.fail(p.firstFile, "package %s has no package comment", dir)
	}
	for _, name := range []string{p.name, path.Base(dir)} {
		if slices.Contains(bannedNames, name) {
			c.fail(p.firstFile, "package %s: the name %q says nothing", dir, name)
			break
		}
	}
}

// imports checks the imports of one file.
func (c *checker) imports(f *ast.File, dir string, test bool, text []byte) {
	for _, spec := range f.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			c.fail(c.at(spec.Pos()), "import %s: %v", spec.Path.Value, err)
			continue
		}
		where := c.at(spec.Pos())
		if target == "C" {
			c.fail(where, `import "C": the library builds without cgo`)
			continue
		}
		ours, local := strings.CutPrefix(target, Module+"/")
		if local && !test && floorOf(dir) != nil && !mayReach(dir, ours) && !related(dir, ours) {
			c.fail(where, "%s imports %s, which is not below it: imports only descend", dir, ours)
		}
		for _, r := range restricted {
			if !matches(r.path, target) && !(local && matches(r.path, ours)) {
				continue
			}
			if !matchesAny(r.only, dir) && !(test && r.tests) {
				c.fail(where, "%s imports %s: %s", dir, strings.TrimPrefix(target, Module+"/"), r.because)
			}
			if r.tag != "" && buildsWith(text, r.tag) {
				c.fail(where, "imports %s without a constraint that -tags %s turns off", r.path, r.tag)
			}
		}
	}
}

// docs checks that every exported declaration of a file has a comment.
func (c *checker) docs(f *ast.File) {
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && !(d.Recv != nil && (!exportedReceiver(d) || fixedByStd[d.Name.Name])) {
				c.fail(c.at(d.Pos()), "exported %s has no doc comment", d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				c.spec(d, spec)
			}
		}
	}
}

// spec checks that each exported name in one entry of a type, const or var declaration has a
// comment. The comment of a group counts for every entry, as in rendered documentation.
func (c *checker) spec(d *ast.GenDecl, spec ast.Spec) {
	var names []*ast.Ident
	var own, line *ast.CommentGroup
	switch s := spec.(type) {
	case *ast.TypeSpec:
		names, own, line = []*ast.Ident{s.Name}, s.Doc, s.Comment
	case *ast.ValueSpec:
		names, own, line = s.Names, s.Doc, s.Comment
	}
	for _, name := range names {
		if name.IsExported() && d.Doc == nil && own == nil && line == nil {
			c.fail(c.at(name.Pos()), "exported %s %s has no doc comment", d.Tok, name.Name)
		}
	}
}

// fixedByStd holds names of methods that interfaces of the standard library require. These methods
// need no comment.
var fixedByStd = map[string]bool{"String": true, "Error": true, "Unwrap": true, "Len": true, "Less": true, "Swap": true}

func exportedReceiver(d *ast.FuncDecl) bool {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// buildsWith reports whether a file may be part of a build that has the given tag and arbitrary
// other tags. For the tag nogpu, the result is true for a file with the constraint "linux". It is
// false for a file with "linux && !nogpu".
func buildsWith(text []byte, tag string) bool {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "package ") {
			break
		}
		if !constraint.IsGoBuild(line) {
			continue
		}
		e, err := constraint.Parse(line)
		return err != nil || satisfiable(e, tag)
	}
	return true
}

// satisfiable reports whether e can be true if the given tag is set. It tries all combinations of
// the other tags.
func satisfiable(e constraint.Expr, tag string) bool {
	names := slices.DeleteFunc(tags(e), func(n string) bool { return n == tag })
	for bits := range 1 << len(names) {
		if e.Eval(func(t string) bool {
			i := slices.Index(names, t)
			return t == tag || i >= 0 && bits>>i&1 == 1
		}) {
			return true
		}
	}
	return false
}

// tags returns the tags in e, each once.
func tags(e constraint.Expr) []string {
	var names []string
	switch e := e.(type) {
	case *constraint.TagExpr:
		names = []string{e.Tag}
	case *constraint.NotExpr:
		names = tags(e.X)
	case *constraint.AndExpr:
		names = append(tags(e.X), tags(e.Y)...)
	case *constraint.OrExpr:
		names = append(tags(e.X), tags(e.Y)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func underTestdata(name string) bool {
	return slices.Contains(strings.Split(path.Dir(name), "/"), "testdata")
}

// ignored reports whether the go command ignores a file with this name.
func ignored(name string) bool {
	for _, part := range strings.Split(name, "/") {
		if strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".") {
			return true
		}
	}
	return false
}

// generated reports whether a file has the line with which Go marks generated files.
func generated(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "// Code generated ") && strings.HasSuffix(line, " DO NOT EDIT.") {
			return true
		}
		if strings.HasPrefix(line, "package ") {
			return false
		}
	}
	return false
}
