package arch

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNamesHaveExamples requires an Example with an output for each name of three groups: all names
// of the packages in shownPackages, all methods of the types in shownTypes, and all names in some
// sections of the page that compares with PyTorch. The variable sections lists these sections.
var (
	shownPackages = []string{"amp", "autograd", "cuda", "doctor", "memsnap", "profile"}
	shownTypes    = []string{"tensor.Graph", "train.Adapt", "train.Machine", "train.MemoryError", "train.Report"}
	sections      = []string{
		"Devices and memory", "Scopes", "torch.cuda", "torch.backends.cuda", "Memory history and snapshots", "torch.cuda.graphs",
		"Less memory", "Out of memory", "torch.amp", "Will it fit? Before there is a GPU", "torch.profiler",
	}
)

// notRunnable holds names that no Example can use, each with the reason.
var notRunnable = map[string]string{}

// uses holds the names that Examples with an output use.
type uses struct {
	names map[string]bool // names in the form package.Name
	sets  []usage         // the names that each Example uses
	bare  map[string]bool // names of methods, fields and keys without their package
}

// named reports whether an Example uses a name, from any package.
func (u *uses) named(name string) bool {
	for full := range u.names {
		if strings.HasSuffix(full, "."+name) {
			return true
		}
	}
	return false
}

// usage holds the names that one Example uses.
type usage struct{ names, bare map[string]bool }

// folder adds the Examples in the test files of a folder.
func (u *uses) folder(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	packages := map[string][]*ast.File{}
	any := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		any = any || bytes.Contains(text, []byte("\nfunc Example"))
		f, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		packages[f.Name.Name] = append(packages[f.Name.Name], f)
	}
	if !any {
		return
	}
	for _, p := range packages {
		u.add(p)
	}
}

// declared is a declaration in a test package, with the imports of the file that contains it.
type declared struct {
	node    ast.Node
	imports map[string]string
}

// add adds the names that the Examples of a test package use. If an Example uses functions or types
// of its test package, the names that these use count too.
func (u *uses) add(files []*ast.File) {
	top := map[string][]declared{} // declarations by name; a type's entry also has its methods
	for _, f := range files {
		imports := map[string]string{}
		for _, spec := range f.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			dir, ours := strings.CutPrefix(path, Module+"/")
			for pkg, at := range publicPackages {
				if ours && at == dir {
					imports[pkg] = pkg
					if spec.Name != nil {
						imports[spec.Name.Name] = pkg
					}
				}
			}
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = typeName(d.Recv.List[0].Type)
				}
				top[name] = append(top[name], declared{d, imports})
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						top[s.Name.Name] = append(top[s.Name.Name], declared{s, imports})
					case *ast.ValueSpec:
						for _, n := range s.Names {
							top[n.Name] = append(top[n.Name], declared{s, imports})
						}
					}
				}
			}
		}
	}
	for _, e := range doc.Examples(files...) {
		if e.Output == "" && !e.EmptyOutput {
			continue // go test does not run an Example without an output
		}
		one := usage{map[string]bool{}, map[string]bool{}}
		reached := map[string]bool{}
		todo := []string{"Example" + e.Name}
		for len(todo) > 0 {
			name := todo[0]
			todo = todo[1:]
			if reached[name] {
				continue
			}
			reached[name] = true
			for _, d := range top[name] {
				ast.Inspect(d.node, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.SelectorExpr:
						if id, ok := n.X.(*ast.Ident); ok && d.imports[id.Name] != "" {
							one.names[d.imports[id.Name]+"."+n.Sel.Name] = true
						} else {
							one.bare[n.Sel.Name] = true
						}
					case *ast.KeyValueExpr:
						if id, ok := n.Key.(*ast.Ident); ok {
							one.bare[id.Name] = true
						}
					case *ast.FuncDecl:
						if n.Recv != nil {
							// the Example implements a method of an interface, which counts as a
							// use
							one.bare[n.Name.Name] = true
						}
					case *ast.Ident:
						if top[n.Name] != nil {
							todo = append(todo, n.Name)
						}
					}
					return true
				})
			}
		}
		u.sets = append(u.sets, one)
		maps.Copy(u.names, one.names)
		maps.Copy(u.bare, one.bare)
	}
}

// typeName returns the name of the type of a receiver or a result, without package, pointer and
// slice.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.ArrayType:
		return typeName(e.Elt)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return ""
}

// exampleUses returns the names that all Examples of the module use.
func exampleUses(t *testing.T) *uses {
	t.Helper()
	u := &uses{names: map[string]bool{}, bare: map[string]bool{}}
	var dirs []string
	for _, file := range projectFiles(t) {
		if strings.HasSuffix(file, "_test.go") && !ignored(file) {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		u.folder(t, filepath.Join(root, dir))
	}
	return u
}

// required returns the names of a package that Examples must use: functions, variables and types,
// and the methods of types. It leaves out methods that package device requires of every driver,
// because package devicetest shows their use.
func (e *exports) required(pkg string) (names, methods []string) {
	for name := range e.names {
		if strings.HasPrefix(name, pkg+".") && !e.consts[name] {
			names = append(names, name)
		}
	}
	driver := map[string]bool{}
	for owner := range e.interfaces {
		if strings.HasPrefix(owner, "device.") {
			maps.Copy(driver, e.methods[owner])
		}
	}
	for owner, members := range e.methods {
		if !strings.HasPrefix(owner, pkg+".") || !ast.IsExported(owner[len(pkg)+1:]) {
			continue
		}
		for m := range members {
			if plumbing[m] || owner == "cuda.Device" && driver[m] {
				continue
			}
			methods = append(methods, owner+"."+m)
		}
	}
	slices.Sort(names)
	slices.Sort(methods)
	return names, methods
}

// plumbing holds names of methods that other packages call on behalf of a program, to print,
// compare or encode values.
var plumbing = map[string]bool{"Error": true, "Unwrap": true, "Is": true, "Raised": true, "String": true, "MarshalText": true, "MarshalJSON": true}

// makes reports whether an Example has a value of the type owner. It has one if it uses the type's
// name, or a function, method or field with values of the type.
func (e *exports) makes(o *usage, owner string) bool {
	if o.names[owner] {
		return true
	}
	return slices.ContainsFunc(e.makers[owner], func(m string) bool {
		if field, ok := strings.CutPrefix(m, "."); ok {
			return o.bare[field]
		}
		return o.names[m]
	})
}

// withoutExample returns the names of a package that no Example with an output uses.
func (e *exports) withoutExample(u *uses, pkg string) []string {
	names, methods := e.required(pkg)
	return e.unused(u, names, methods)
}

// unused returns the names and methods that no Example with an output uses.
func (e *exports) unused(u *uses, names, methods []string) []string {
	var missing []string
	for _, name := range names {
		if !slices.ContainsFunc(u.sets, func(o usage) bool { return o.names[name] || e.makes(&o, name) }) {
			missing = append(missing, name)
		}
	}
	for _, m := range methods {
		i := strings.LastIndex(m, ".")
		if !slices.ContainsFunc(u.sets, func(o usage) bool { return o.bare[m[i+1:]] && e.makes(&o, m[:i]) }) {
			missing = append(missing, m)
		}
	}
	return missing
}

// section returns the part of a page under the heading title, without the parts under its
// subheadings.
func section(page, title string) string {
	var b strings.Builder
	in := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			in = strings.TrimSpace(strings.TrimLeft(line, "#")) == title
		} else if in {
			b.WriteString(line)
		}
	}
	return b.String()
}

// unshownOf returns the names in a page that no Example with an output uses.
func (e *exports) unshownOf(u *uses, page string) []string {
	missing := map[string]bool{}
	for _, code := range goSnippets(page) {
		text := literal.ReplaceAllString(strings.Trim(code, "`"), `""`)
		for _, m := range selector.FindAllStringSubmatch(text, -1) {
			on, name := m[1], m[2]
			switch {
			case !ast.IsExported(name) || on == "fmt" || on == "errors" || on == "log":
			case publicPackages[on] != "":
				if full := on + "." + name; !u.names[full] && !slices.ContainsFunc(u.sets, func(o usage) bool { return e.makes(&o, full) }) {
					missing[full] = true
				}
			case !u.bare[name]:
				missing[name] = true
			}
		}
		for _, at := range word.FindAllStringIndex(text, -1) {
			w := text[at[0]:at[1]]
			if ast.IsExported(w) && !strings.Contains(w, "_") && (at[0] == 0 || text[at[0]-1] != '.') && !u.bare[w] && !u.named(w) {
				missing[w] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// TestNamesHaveExamples checks the packages for GPUs, mixed precision and profiling, and the
// sections about them in the page on PyTorch. Every name in these packages and sections must occur
// in an Example with an output, which go test runs. Examples for a GPU run on an emulated GPU.
func TestNamesHaveExamples(t *testing.T) {
	e, u := publicNames(t), exampleUses(t)
	if len(u.sets) < 200 {
		t.Fatalf("only %d Examples with an output were found", len(u.sets))
	}
	excused := map[string]bool{}
	complain := func(where, name string) {
		if notRunnable[name] != "" {
			excused[name] = true
			return
		}
		t.Errorf("%s: no Example with an output uses %s", where, name)
	}
	for _, pkg := range shownPackages {
		for _, name := range e.withoutExample(u, pkg) {
			complain("package "+pkg, name)
		}
	}
	for _, owner := range shownTypes {
		methods := []string{owner}
		for m := range e.methods[owner] {
			if !plumbing[m] {
				methods = append(methods, owner+"."+m)
			}
		}
		if !e.names[owner] {
			t.Errorf("%s does not exist", owner)
		}
		for _, name := range e.unused(u, methods[:1], methods[1:]) {
			complain("type "+owner, name)
		}
	}
	text := comparison(t)
	for _, title := range sections {
		part := section(text, title)
		if strings.Count(part, "`") < 20 {
			t.Errorf("%s: there is not much under %q", comparisons, title)
		}
		for _, name := range e.unshownOf(u, part) {
			complain(title, name)
		}
	}
	for name := range notRunnable {
		if !excused[name] {
			t.Errorf("%s is shown or does not exist: take it out of notRunnable", name)
		}
	}
}

// TestPackagesHaveExamples checks that each public package has an Example for the whole package.
func TestPackagesHaveExamples(t *testing.T) {
	for pkg, dir := range publicPackages {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return bytes.Contains(text, []byte("\nfunc Example() {"))
		}) {
			t.Errorf("package %s has no Example of the package: func Example()", pkg)
		}
	}
}

// TestExamplesCheck checks how uses are counted. Only Examples that run may count, a method must
// count only for its own type, and names that an Example uses indirectly must count too.
func TestExamplesCheck(t *testing.T) {
	e := newExports()
	parse := func(text string) *ast.File {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	e.file("cuda", parse(`package cuda
const Limit = 1
var ErrGone error
type Device struct{ Hidden *Part }
type Part struct{}
type Event struct{}
type Option func(*Event)
type internal struct{}
func Open() (*Device, error) { return nil, nil }
func NewEvent() *Event { return nil }
func Timing() Option { return nil }
func (d *Device) Map() {}
func (d *Device) Extra() {}
func (e *Event) Wait() error { return nil }
func (e *Event) String() string { return "" }
func (i internal) Wait() {}
`))
	e.file("device", parse("package device\ntype Device interface { Map() }\n"))
	const head = "package cuda_test\nimport \"" + Module + "/cuda\"\n"
	for _, c := range []struct{ code, want string }{
		{"func ExampleOpen() { cuda.Open() }", "cuda.Device cuda.ErrGone cuda.Event cuda.NewEvent cuda.Open cuda.Option cuda.Part cuda.Timing cuda.Device.Extra cuda.Event.Wait"},
		{"func ExampleOpen() {\n d, _ := cuda.Open()\n d.Extra()\n // Output:\n}", "cuda.ErrGone cuda.Event cuda.NewEvent cuda.Option cuda.Part cuda.Timing cuda.Event.Wait"},
		{"func Example() {\n var d interface{ Wait() }\n d.Wait()\n cuda.Open()\n cuda.Timing()\n // Output: x\n}", "cuda.ErrGone cuda.Event cuda.NewEvent cuda.Part cuda.Device.Extra cuda.Event.Wait"},
		{"func wait() { cuda.NewEvent().Wait() }\nfunc Example() {\n wait()\n d, _ := cuda.Open()\n d.Hidden, _ = nil, cuda.ErrGone\n // Output: x\n}", "cuda.Option cuda.Timing cuda.Device.Extra"},
	} {
		u := &uses{names: map[string]bool{}, bare: map[string]bool{}}
		u.add([]*ast.File{parse(head + c.code)})
		if got := strings.Join(e.withoutExample(u, "cuda"), " "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.code, got, c.want)
		}
	}
	u := &uses{names: map[string]bool{"cuda.Open": true}, bare: map[string]bool{"Extra": true}}
	if got := e.unshownOf(u, "| `a.Foo()` | `gpu, err := cuda.Open(0)`, `gpu.Extra()`, `gpu.Map()`, `Timing`, `cuda.NewEvent(gpu)` |"); strings.Join(got, " ") != "Map Timing cuda.NewEvent" {
		t.Errorf("of a page: %q", got)
	}
}
