package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// publicPackages are the packages whose names the documentation uses, by the name that code gives them.
var publicPackages = map[string]string{
	"amp":         "amp",
	"autograd":    "autograd",
	"checkpoint":  "checkpoint",
	"cuda":        "cuda",
	"data":        "data",
	"detect":      "data/detect",
	"device":      "device",
	"dist":        "dist",
	"digits":      "data/digits",
	"doctor":      "cuda/doctor",
	"dtype":       "dtype",
	"expr":        "expr",
	"initial":     "nn/initial",
	"memsnap":     "profile/memsnap",
	"models":      "models",
	"nn":          "nn",
	"npy":         "npy",
	"optim":       "optim",
	"profile":     "profile",
	"safetensors": "safetensors",
	"sched":       "optim/sched",
	"shape":       "shape",
	"table":       "data/table",
	"tensor":      "tensor",
	"tensorboard": "train/tensorboard",
	"text":        "data/text",
	"torchfile":   "torchfile",
	"train":       "train",
	"vet":         "vet",
	"vision":      "data/vision",
}

// receivers say of which type the variables are that the documentation uses, as package.Type.
var receivers = map[string]string{
	"x": "tensor.Tensor", "y": "tensor.Tensor", "w": "tensor.Tensor", "a": "tensor.Tensor", "loss": "tensor.Tensor",
	"group": "dist.Group", "reducer": "dist.Reducer", "work": "dist.Work",
	"s": "tensor.Scope", "g": "tensor.Generator", "dev": "device.Device", "gpu": "cuda.Device", "opt": "optim.Optimizer",
	"loader": "data.Loader", "scaler": "amp.GradScaler", "batch": "data.Batch",
}

// exports is what the public packages export.
type exports struct {
	names   map[string]bool            // package.Name
	funcs   map[string]bool            // those of them that are functions
	members map[string]map[string]bool // methods and fields by package.Type
	all     map[string]bool            // every name, method and field by itself

	consts     map[string]bool
	interfaces map[string]bool
	methods    map[string]map[string]bool // those of members that are methods
	makers     map[string][]string        // by package.Type: package.Function, .Method and .Field whose result or type it is, also by pointer or in a slice
}

func newExports() *exports {
	return &exports{
		map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}, map[string]bool{},
		map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}, map[string][]string{},
	}
}

func (e *exports) method(owner, name string) {
	e.member(owner, name)
	if !ast.IsExported(name) {
		return
	}
	if e.methods[owner] == nil {
		e.methods[owner] = map[string]bool{}
	}
	e.methods[owner][name] = true
}

// made notes that what is named gives values of a type.
func (e *exports) made(pkg string, t ast.Expr, by string) {
	switch x := t.(type) {
	case *ast.StarExpr:
		e.made(pkg, x.X, by)
	case *ast.ArrayType:
		e.made(pkg, x.Elt, by)
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok {
			e.makers[id.Name+"."+x.Sel.Name] = append(e.makers[id.Name+"."+x.Sel.Name], by)
		}
	case *ast.Ident:
		e.makers[pkg+"."+x.Name] = append(e.makers[pkg+"."+x.Name], by)
	}
}

// results notes what a function gives.
func (e *exports) results(pkg string, f *ast.FuncType, by string) {
	if f.Results != nil {
		for _, r := range f.Results.List {
			e.made(pkg, r.Type, by)
		}
	}
}

func (e *exports) member(owner, name string) {
	if !ast.IsExported(name) {
		return
	}
	if e.members[owner] == nil {
		e.members[owner] = map[string]bool{}
	}
	e.members[owner][name] = true
	e.all[name] = true
}

func (e *exports) fields(pkg, owner string, list *ast.FieldList) {
	for _, f := range list.List {
		for _, n := range f.Names {
			if m, ok := f.Type.(*ast.FuncType); ok && e.interfaces[owner] {
				e.method(owner, n.Name)
				e.results(pkg, m, "."+n.Name)
				continue
			}
			e.member(owner, n.Name)
			e.made(pkg, f.Type, "."+n.Name)
		}
	}
}

func (e *exports) file(pkg string, f *ast.File) {
	name := func(n string) {
		if ast.IsExported(n) {
			e.names[pkg+"."+n] = true
			e.all[n] = true
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				name(d.Name.Name)
				e.funcs[pkg+"."+d.Name.Name] = true
				e.results(pkg, d.Type, pkg+"."+d.Name.Name)
				continue
			}
			e.results(pkg, d.Type, "."+d.Name.Name)
			t := d.Recv.List[0].Type
			if p, ok := t.(*ast.StarExpr); ok {
				t = p.X
			}
			if id, ok := t.(*ast.Ident); ok {
				e.method(pkg+"."+id.Name, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						name(n.Name)
						e.consts[pkg+"."+n.Name] = d.Tok == token.CONST
					}
				case *ast.TypeSpec:
					name(s.Name.Name)
					switch t := s.Type.(type) {
					case *ast.StructType:
						e.fields(pkg, pkg+"."+s.Name.Name, t.Fields)
					case *ast.InterfaceType:
						e.interfaces[pkg+"."+s.Name.Name] = true
						e.fields(pkg, pkg+"."+s.Name.Name, t.Methods)
					}
				}
			}
		}
	}
}

// publicNames reads the source of the public packages, for every system and tag.
func publicNames(t *testing.T) *exports {
	t.Helper()
	e := newExports()
	for pkg, dir := range publicPackages {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no Go files in %s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			e.file(pkg, f)
		}
	}
	return e
}

var (
	span     = regexp.MustCompile("`[^`]+`")
	literal  = regexp.MustCompile(`"[^"]*"|//[^\n]*`)
	selector = regexp.MustCompile(`([A-Za-z_]\w*|\)|\])?\.([A-Za-z]\w*)`)
	word     = regexp.MustCompile(`\b[A-Za-z_]\w*`)
)

// ours returns the pieces of Go in a page: the last column of tables (those before are PyTorch's), code blocks, and what
// stands in backquotes elsewhere.
func ours(page string) []string {
	var code []string
	fenced, goCode := false, false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			goCode = fenced && strings.TrimSpace(line) == "```go"
		case fenced:
			if goCode {
				code = append(code, line)
			}
		case strings.HasPrefix(line, "|"):
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			code = append(code, span.FindAllString(cells[len(cells)-1], -1)...)
		default:
			code = append(code, span.FindAllString(line, -1)...)
		}
	}
	return code
}

// unknown returns what a page mentions of the public packages that they do not export.
func (e *exports) unknown(page string) []string {
	var wrong []string
	for _, code := range ours(page) {
		text := literal.ReplaceAllString(strings.Trim(code, "`"), `""`)
		for _, m := range selector.FindAllStringSubmatch(text, -1) {
			on, name := m[1], m[2]
			ok := true
			switch {
			case !ast.IsExported(name):
			case publicPackages[on] != "":
				ok = e.names[on+"."+name]
			case receivers[on] != "":
				ok = e.members[receivers[on]][name]
			case on == "fmt" || on == "errors" || on == "log":
			default:
				ok = e.all[name]
			}
			if !ok {
				wrong = append(wrong, fmt.Sprintf("%s.%s in %s", on, name, strings.TrimSpace(code)))
			}
		}
		// Names that stand alone are functions, methods or fields; those in capitals with underscores are the environment's.
		for _, at := range word.FindAllStringIndex(text, -1) {
			w := text[at[0]:at[1]]
			if ast.IsExported(w) && !strings.Contains(w, "_") && (at[0] == 0 || text[at[0]-1] != '.') && !e.all[w] {
				wrong = append(wrong, fmt.Sprintf("%s in %s", w, strings.TrimSpace(code)))
			}
		}
	}
	return wrong
}

var fence = regexp.MustCompile("(?ms)^```.*?^```$")

// Every Go name in the README and in the pages of docs exists.
func TestFromPyTorchNamesExist(t *testing.T) {
	e := publicNames(t)
	pages := []string{"README.md", "docs/from-pytorch.md"}
	for _, folder := range []string{"start", "guide"} {
		list, err := filepath.Glob(filepath.Join(root, "docs", folder, "*.md"))
		if err != nil || len(list) == 0 {
			t.Fatalf("docs/%s: %d pages, %v", folder, len(list), err)
		}
		for _, page := range list {
			pages = append(pages, "docs/"+folder+"/"+filepath.Base(page))
		}
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		if page == "docs/from-pytorch.md" && bytes.Count(text, []byte("`")) < 20 {
			t.Errorf("%s has next to no code", page)
		}
		text = fence.ReplaceAll(text, nil) // what stands in fences is compiled
		for _, w := range e.unknown(string(text)) {
			t.Errorf("%s: %s does not exist", page, w)
		}
	}
}

// The check itself finds what is wrong, and only that.
func TestFromPyTorchCheck(t *testing.T) {
	e := publicNames(t)
	for _, c := range []struct {
		page string
		want []string // beginnings, in order
	}{
		{"| `torch.Foo` | `tensor.From(v)`, `x.MatMul(w)`, `Zeros`, `optim.SGDConfig{LR: 0.1}` |", nil},
		{"| `nn.Linear(1, 2)` | `nn.Linnear(1, 2)` |", []string{"nn.Linnear"}},
		{"| `a` | `x.Matmul(w)`, `s.MatMul(x)`, `dev.Stats().Alocated` |", []string{"x.Matmul", "s.MatMul", ").Alocated"}},
		{"| `a` | `Zeroes`, `FLAMBEAU_CUDA`, `\"Quoted.Word\"` |", []string{"Zeroes"}},
		{"| `a` | `optim.SGDConfig{Rate: 1}` |", []string{"Rate"}},
		{"```go\nx := tensor.Form(1) // of Nothing\n```\n```\nNot Go\n```\n", []string{"tensor.Form"}},
		{"In prose `tensor.Scop` and `x.Free()`.", []string{"tensor.Scop"}},
	} {
		got := e.unknown(c.page)
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%q: %q, want %q", c.page, got, c.want)
		}
	}
}

// goOnly are operations without a counterpart in PyTorch that a reader of the page looks for: the plumbing.
var goOnly = []string{
	"tensor.Composed", "tensor.Declared", "tensor.RecordSites", "tensor.Youngest", "tensor.Reductions", "tensor.PrepareUpdate",
	"tensor.Tensor.String",
}

// What is not listed is not there, says the page: so every operation, layer, loss and optimizer is listed.
func TestFromPyTorchIsComplete(t *testing.T) {
	e := publicNames(t)
	text, err := os.ReadFile(filepath.Join(root, "docs/from-pytorch.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, code := range ours(string(text)) {
		for _, w := range word.FindAllString(code, -1) {
			listed[w] = true
		}
	}
	want := map[string]bool{}
	for name := range e.members["tensor.Tensor"] {
		want["tensor.Tensor."+name] = true
	}
	for name := range e.funcs {
		switch pkg, base, _ := strings.Cut(name, "."); pkg {
		case "amp", "autograd", "tensor", "nn", "initial", "optim", "data", "safetensors", "torchfile", "npy":
			want[name] = ast.IsExported(base)
		}
	}
	for owner, members := range e.members {
		if strings.HasPrefix(owner, "nn.") && members["Forward"] && owner != "nn.Module" && !e.funcs["nn.New"+owner[len("nn."):]] {
			want[owner] = ast.IsExported(owner[len("nn."):]) // a layer that is made without a function
		}
	}
	for name, exported := range want {
		last := name[strings.LastIndex(name, ".")+1:]
		if exported && !listed[last] && !slices.Contains(goOnly, name) {
			t.Errorf("%s is not in docs/from-pytorch.md: add it to a table there, beside what PyTorch calls it", name)
		}
	}
	for _, name := range goOnly {
		if last := name[strings.LastIndex(name, ".")+1:]; !want[name] || listed[last] {
			t.Errorf("%s does not exist or is listed: take it out of goOnly", name)
		}
	}
}
