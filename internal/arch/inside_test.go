package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// declarations holds all names that the project's packages declare, including unexported names and
// names in tests. The pages in docs/inside mention such names.
type declarations struct {
	byPackage map[string]map[string]bool // declared names by package name
	// all holds all declared names, and the words in string literals outside of tests, such as
	// names of driver functions
	all   map[string]bool
	files map[string]bool // paths of files and folders, and names of files without their folder
}

func allDeclarations(t *testing.T) *declarations {
	t.Helper()
	d := &declarations{map[string]map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, name := range projectFiles(t) {
		d.files[path.Base(name)] = true
		for at := name; at != "."; at = path.Dir(at) {
			d.files[at] = true
		}
		if path.Ext(name) != ".go" || underTestdata(name) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		d.file(f, strings.HasSuffix(name, "_test.go"))
	}
	return d
}

var oneWord = regexp.MustCompile(`^\w+$`)

func (d *declarations) file(f *ast.File, test bool) {
	in := strings.TrimSuffix(f.Name.Name, "_test")
	if d.byPackage[in] == nil {
		d.byPackage[in] = map[string]bool{}
	}
	name := func(list ...*ast.Ident) {
		for _, n := range list {
			d.byPackage[in][n.Name], d.all[n.Name] = true, true
		}
	}
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name(decl.Name)
		case *ast.GenDecl:
			for _, s := range decl.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					name(s.Names...)
				case *ast.TypeSpec:
					name(s.Name)
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, f := range n.Fields.List {
				name(f.Names...)
			}
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				name(f.Names...)
			}
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); !test && n.Kind == token.STRING && err == nil && oneWord.MatchString(s) {
				d.all[s] = true
			}
		}
		return true
	})
}

// codeToken matches a path, a name of a file, or a name such as "tensor.launch".
var (
	codeToken = regexp.MustCompile(`(?:\./)?[\w.*-]+(?:/[\w.*-]+)+|\w+\.(?:go|md|s|svg|json|txt|c|py)\b|\w+(?:\.\w+)*`)
	fileName  = regexp.MustCompile(`/|\.(?:go|md|s|svg|json|txt|c|py)$`)
	camel     = regexp.MustCompile(`^[a-z]+[A-Z]|^[A-Z]\w*[a-z]`)
	otherCode = map[string]bool{"runtime": true, "os": true, "errors": true, "atomic": true, "weak": true, "purego": true}
)

// missing returns the names in a piece of code that are not declared.
func (d *declarations) missing(code string) []string {
	var wrong []string
	for _, w := range codeToken.FindAllString(code, -1) {
		if fileName.MatchString(w) {
			at := strings.TrimSuffix(strings.TrimPrefix(w, "./"), "/...")
			if !d.files[at] && !strings.Contains(at, "github.com/") {
				wrong = append(wrong, w)
			}
			continue
		}
		on, parts := "", strings.Split(w, ".")
		for i, p := range parts {
			switch in := d.byPackage[on]; {
			case otherCode[parts[0]]:
			case i > 0 && in != nil && on == parts[0]:
				if !in[p] {
					wrong = append(wrong, w)
				}
			case camel.MatchString(p) && !strings.Contains(p, "_") && !d.all[p]:
				wrong = append(wrong, w)
			}
			on = p
		}
	}
	return wrong
}

var mono = regexp.MustCompile(`<text [^>]*monospace[^>]*>([^<]*)</text>`)

// TestInsideNamesExist checks that every file, package and Go name in the pages and pictures of
// docs/inside exists.
func TestInsideNamesExist(t *testing.T) {
	d := allDeclarations(t)
	n := 0
	check := func(pattern string, code *regexp.Regexp) {
		list, err := filepath.Glob(filepath.Join(root, "docs", pattern))
		if err != nil || len(list) == 0 {
			t.Fatalf("docs/%s: %d files, %v", pattern, len(list), err)
		}
		for _, page := range list {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			text = fence.ReplaceAll(text, nil)
			for _, m := range code.FindAllString(string(text), -1) {
				n++
				for _, w := range d.missing(code.ReplaceAllString(m, "$1")) {
					t.Errorf("%s: %s in %s does not exist", filepath.Base(page), w, m)
				}
			}
		}
	}
	check("inside/*.md", regexp.MustCompile("`([^`]+)`"))
	check("pictures/*.svg", mono)
	if n < 100 {
		t.Errorf("only %d pieces of code were found", n)
	}
}

// TestInsideCheck gives wrong names to the check. The check must find exactly these names.
func TestInsideCheck(t *testing.T) {
	d := allDeclarations(t)
	for code, want := range map[string][]string{
		"tensor.launch(op)":                   nil,
		"tensor.lunch(op)":                    {"tensor.lunch"},
		"Device.Run":                          nil,
		"device.Runs":                         {"device.Runs"},
		"matmulFunc.VJP":                      nil,
		"matmullFunc":                         {"matmullFunc"},
		"go test ./docs -run TestPictures":    nil,
		"go test ./docks -run TestPaintings":  {"./docks", "TestPaintings"},
		"cuda/run.go":                         nil,
		"cuda/ran.go":                         {"cuda/ran.go"},
		"gemmcost.go":                         nil,
		"gemcost.go":                          {"gemcost.go"},
		"FLAMBEAU_CUDA=emulate,mem=64MiB":     nil,
		"runtime.AddCleanup, bar.warp.sync":   nil,
		"cuLaunchKernel":                      nil,
		"cuLaunchKernels":                     {"cuLaunchKernels"},
		"cuda/internal/..., internal/nothing": {"internal/nothing"},
	} {
		if got := d.missing(code); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: %q, want %q", code, got, want)
		}
	}
}
