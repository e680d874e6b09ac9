package arch

import (
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

// publicPackages maps the names under which documentation mentions public packages to the folders
// of the packages.
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

// receivers gives the type of each variable that the documentation uses, in the form package.Type.
var receivers = map[string]string{
	"x": "tensor.Tensor", "y": "tensor.Tensor", "w": "tensor.Tensor", "a": "tensor.Tensor", "loss": "tensor.Tensor",
	"group": "dist.Group", "reducer": "dist.Reducer", "work": "dist.Work",
	"s": "tensor.Scope", "g": "tensor.Generator", "dev": "device.Device", "gpu": "cuda.Device", "opt": "optim.Optimizer",
	"loader": "data.Loader", "scaler": "amp.GradScaler", "batch": "data.Batch",
}

// exports holds the exported names of the public packages.
type exports struct {
	names   map[string]bool            // all names, in the form package.Name
	funcs   map[string]bool            // functions only, in the form package.Name
	members map[string]map[string]bool // methods and fields by package.Type
	// all holds the names of functions, methods and fields, without package and type
	all map[string]bool

	consts     map[string]bool
	interfaces map[string]bool
	methods    map[string]map[string]bool // methods by package.Type
	// makers holds, for each package.Type, the functions, methods and fields whose values have this
	// type, also as a pointer or in a slice
	makers map[string][]string
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

// recordMaker records that the function or field of the given name has values of type t.
func (e *exports) recordMaker(pkg string, t ast.Expr, name string) {
	switch x := t.(type) {
	case *ast.StarExpr:
		e.recordMaker(pkg, x.X, name)
	case *ast.ArrayType:
		e.recordMaker(pkg, x.Elt, name)
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok {
			e.makers[id.Name+"."+x.Sel.Name] = append(e.makers[id.Name+"."+x.Sel.Name], name)
		}
	case *ast.Ident:
		e.makers[pkg+"."+x.Name] = append(e.makers[pkg+"."+x.Name], name)
	}
}

// results records the result types of the function of the given name.
func (e *exports) results(pkg string, f *ast.FuncType, name string) {
	if f.Results != nil {
		for _, r := range f.Results.List {
			e.recordMaker(pkg, r.Type, name)
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
			e.recordMaker(pkg, f.Type, "."+n.Name)
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

// goSnippets returns the pieces of Go code in a page: code blocks, and text in backquotes. Of a
// table it takes only the last column, because the other columns have PyTorch's names.
func goSnippets(page string) []string {
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

// unknown returns those names in a page that look like names of a public package but are not
// declared there.
func (e *exports) unknown(page string) []string {
	var wrong []string
	for _, code := range goSnippets(page) {
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
		// A name without a package is a function, method or field. A name of capitals and
		// underscores is an environment variable.
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

// comparison returns the handwritten parts of the pages that compare with PyTorch. It leaves out
// the column of signatures, and tables under a line "rest" or "absent".
func comparison(t *testing.T) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(root, comparisons, "*.md"))
	if err != nil || len(list) < 10 {
		t.Fatalf("%s: %d pages, %v", comparisons, len(list), err)
	}
	var b strings.Builder
	for _, page := range list {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(byHand(string(text)))
	}
	return b.String()
}

const comparisons = "docs/from-pytorch"

var generatedTable = regexp.MustCompile(`(?s)<!-- (rest \w+|absent) -->\n.*?<!-- end of (rest|absent) -->\n`)

// byHand returns a page that compares with PyTorch, without its generated parts.
func byHand(page string) string {
	var b strings.Builder
	signed := false // whether the line is in a table whose last column has signatures
	for line := range strings.Lines(generatedTable.ReplaceAllString(page, "")) {
		signed = strings.HasPrefix(line, "|") && (signed || strings.HasSuffix(line, " Signatures |\n"))
		if signed {
			line = strings.Join(strings.Split(line, " | ")[:2], " | ") + " |\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// TestFromPyTorchNamesExist checks that every Go name in the README and in the pages of docs
// exists.
func TestFromPyTorchNamesExist(t *testing.T) {
	e := publicNames(t)
	pages := []string{"README.md"}
	for _, folder := range []string{"start", "guide", "from-pytorch"} {
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
		// Skip code in fences: other tests compile it.
		for _, w := range e.unknown(byHand(fence.ReplaceAllString(string(text), ""))) {
			t.Errorf("%s: %s does not exist", page, w)
		}
	}
}

// TestFromPyTorchCheck gives a page with wrong names to the check. The check must find exactly
// these names.
func TestFromPyTorchCheck(t *testing.T) {
	e := publicNames(t)
	for _, c := range []struct {
		page string
		want []string // the beginnings of the expected messages, in order
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

// goOnly holds operations that PyTorch does not have but that a reader of the pages may look for.
var goOnly = []string{
	"tensor.Composed", "tensor.Declared", "tensor.RecordSites", "tensor.Youngest", "tensor.Reductions", "tensor.PrepareUpdate",
	"tensor.Tensor.String",
}

// TestFromPyTorchIsComplete checks that the pages that compare with PyTorch list every operation,
// layer, loss and optimizer. The pages claim that no others exist.
func TestFromPyTorchIsComplete(t *testing.T) {
	e := publicNames(t)
	listed := map[string]bool{}
	for _, code := range goSnippets(comparison(t)) {
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
			// the layer has no constructor, so the pages must list its type
			want[owner] = ast.IsExported(owner[len("nn."):])
		}
	}
	for name, exported := range want {
		last := name[strings.LastIndex(name, ".")+1:]
		if exported && !listed[last] && !slices.Contains(goOnly, name) {
			t.Errorf("%s is in no page of %s: add it to a table there, beside what PyTorch calls it", name, comparisons)
		}
	}
	for _, name := range goOnly {
		if last := name[strings.LastIndex(name, ".")+1:]; !want[name] || listed[last] {
			t.Errorf("%s does not exist or is listed: take it out of goOnly", name)
		}
	}
}
