package docs_test

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

type kind uint8

const (
	value    kind = iota // constant or variable
	function             // function or method
	declared             // type
	opaque               // type whose declaration shows nothing exported
)

// A named is an exported function, method, type, constant or variable of a package.
type named struct {
	kind      kind
	name      string // name with its package, such as "nn.NewLinear" or "nn.Linear.Forward"
	signature string
	sentence  string // first sentence of its comment
	// named types among the results of a function or method; for a type, only the type itself
	gives []string
}

// A library holds the exported names of the module's packages.
type library struct {
	things map[string]*named
	fields map[string]bool     // set of fields, such as "tensor.ConvOptions.Stride"
	embeds map[string][]string // embedded types of each type; the type also has their methods
	order  map[string][]string // names of each package in the order of go doc
	paths  map[string]string   // folder of each package in the module, such as "optim/sched"
}

// readLibrary reads the packages that programs may import.
func readLibrary(t *testing.T) *library {
	l := &library{map[string]*named{}, map[string]bool{}, map[string][]string{}, map[string][]string{}, map[string]string{}}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == ".." {
			return err
		}
		switch name := d.Name(); {
		case strings.HasPrefix(name, "."), strings.HasPrefix(name, "_"),
			name == "internal", name == "testdata", name == "examples", name == "cmd", name == "build":
			return filepath.SkipDir
		}
		return l.read(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.order) < 20 || len(l.things) < 2000 {
		t.Fatalf("%d packages with %d names", len(l.order), len(l.things))
	}
	return l
}

func (l *library) read(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil
	}
	p, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		return err
	}
	l.paths[p.Name] = strings.TrimPrefix(filepath.ToSlash(dir), "../")
	l.values(p, "", p.Consts)
	l.values(p, "", p.Vars)
	l.functions(p, "", p.Funcs)
	for _, t := range p.Types {
		spec := t.Decl.Specs[0].(*ast.TypeSpec)
		full, how, under := p.Name+"."+t.Name, declared, underlying(spec.Type)
		if under == "struct" {
			how = opaque
		}
		if spec.Assign.IsValid() {
			under = "= " + under
			l.embeds[full] = []string{typeName(p.Name, spec.Type)}
		}
		l.add(p, &named{how, full, full + " " + under, t.Doc, []string{full}})
		l.members(p, t.Name, spec.Type)
		l.values(p, " "+t.Name, t.Consts)
		l.values(p, " "+t.Name, t.Vars)
		l.functions(p, "", t.Funcs)
		l.functions(p, t.Name, t.Methods)
	}
	return nil
}

func (l *library) add(p *doc.Package, n *named) {
	if l.things[n.name] == nil {
		l.order[p.Name] = append(l.order[p.Name], n.name)
	}
	n.sentence = p.Synopsis(n.sentence)
	l.things[n.name] = n
}

func (l *library) functions(p *doc.Package, owner string, list []*doc.Func) {
	for _, f := range list {
		l.function(p, owner, f.Name, f.Doc, f.Decl.Type)
	}
}

func (l *library) function(p *doc.Package, owner, name, comment string, f *ast.FuncType) {
	full, short := p.Name+"."+name, p.Name+"."+name
	if owner != "" {
		full, short = p.Name+"."+owner+"."+name, owner+"."+name
	}
	var gives []string
	if f.Results != nil {
		for _, r := range f.Results.List {
			if t := typeName(p.Name, r.Type); t != "" {
				gives = append(gives, t)
			}
		}
	}
	l.add(p, &named{function, full, short + strings.TrimPrefix(source(f), "func"), comment, gives})
}

// members records the methods of an interface, and the types that a type embeds.
func (l *library) members(p *doc.Package, owner string, t ast.Expr) {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.InterfaceType:
		list = t.Methods
	case *ast.StructType:
		list = t.Fields
	default:
		return
	}
	for _, f := range list.List {
		if len(f.Names) == 0 {
			full := p.Name + "." + owner
			l.embeds[full] = append(l.embeds[full], typeName(p.Name, f.Type))
		} else if _, ok := t.(*ast.InterfaceType); ok {
			l.function(p, owner, f.Names[0].Name, f.Doc.Text()+f.Comment.Text(), f.Type.(*ast.FuncType))
		}
		for _, n := range f.Names {
			l.fields[p.Name+"."+owner+"."+n.Name] = true
		}
	}
}

func (l *library) values(p *doc.Package, of string, list []*doc.Value) {
	for _, v := range list {
		for _, s := range v.Decl.Specs {
			s := s.(*ast.ValueSpec)
			comment := s.Doc.Text() + s.Comment.Text()
			if comment == "" {
				comment = v.Doc
			}
			for _, n := range s.Names {
				if n.IsExported() {
					full := p.Name + "." + n.Name
					l.add(p, &named{value, full, full + of, comment, nil})
				}
			}
		}
	}
}

// typeName returns the name of a type without pointer and slice, such as "tensor.Tensor".
func typeName(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(pkg, e.X)
	case *ast.ArrayType:
		return typeName(pkg, e.Elt)
	case *ast.IndexExpr:
		return typeName(pkg, e.X)
	case *ast.Ident:
		if e.IsExported() {
			return pkg + "." + e.Name
		}
	case *ast.SelectorExpr:
		return source(e)
	}
	return ""
}

var (
	opened = regexp.MustCompile(`([{(,])\n\s*`)
	broken = regexp.MustCompile(`\n\s+`)
)

// source formats a type as Go code on one line.
func source(e ast.Expr) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), e); err != nil {
		return err.Error()
	}
	text := strings.ReplaceAll(opened.ReplaceAllString(b.String(), "$1"), "\n}", "}")
	return broken.ReplaceAllString(text, "; ")
}

// underlying returns a type's declaration in a short form, with as many exported fields of a
// struct, or methods of an interface, as fit in a line. It returns "struct" if nothing is exported.
func underlying(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.InterfaceType:
		return "interface{" + fields(e.Methods) + "}"
	case *ast.StructType:
		list := fields(e.Fields)
		if list == "" && e.Incomplete {
			return "struct"
		}
		return "struct{" + list + "}"
	}
	return source(e)
}

func fields(list *ast.FieldList) string {
	const most = 120
	var b strings.Builder
	for _, f := range list.List {
		var names []string
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		field := strings.TrimSpace(strings.Join(names, ", ") + " " + source(f.Type))
		if m, ok := f.Type.(*ast.FuncType); ok && m.Func == token.NoPos {
			field = names[0] + strings.TrimPrefix(source(m), "func")
		}
		if b.Len()+len(field) > most {
			b.WriteString("; …")
			break
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(field)
	}
	return b.String()
}

// member returns a method or a field of a type or of the types that it embeds. If owner is a
// package, member returns what the package declares under the name. A field has no signature.
func (l *library) member(owner, name string) *named {
	if t := l.things[owner+"."+name]; t != nil {
		return t
	}
	if l.fields[owner+"."+name] {
		return &named{kind: value}
	}
	for _, e := range l.embeds[owner] {
		if t := l.member(e, name); t != nil {
			return t
		}
	}
	return nil
}

// soleMethod returns the method with the given name, if exactly one type in all packages has such a
// method.
func (l *library) soleMethod(name string) (one *named) {
	for _, list := range l.order {
		for _, full := range list {
			if strings.Count(full, ".") == 2 && strings.HasSuffix(full, "."+name) {
				if one != nil {
					return nil
				}
				one = l.things[full]
			}
		}
	}
	return one
}
