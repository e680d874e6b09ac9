package tensor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFilesAreListed checks that the list in doc.go has every file of the package. Each file must
// contain the names that the list gives for it. A file that is named after its only op needs no
// row.
func TestFilesAreListed(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, files, _ := strings.Cut(string(text), "\npackage tensor\n")
	row := regexp.MustCompile(`(?m)^//\t(\w+\.go)? +(.*)$`)
	name := regexp.MustCompile(`\b[A-Z]\w*`)
	listed, file, held := map[string]bool{"doc.go": true}, "", []byte(nil)
	for _, r := range row.FindAllStringSubmatch(files, -1) {
		if r[1] != "" {
			if file = r[1]; listed[file] {
				t.Errorf("%s is listed twice", file)
			}
			listed[file] = true
			if held, err = os.ReadFile(file); err != nil {
				t.Error(err)
			}
		}
		for _, n := range name.FindAllString(r[2], -1) {
			if !regexp.MustCompile(`(?m)^(func |func \(.*?\) |type |\t)` + n + `\b`).Match(held) {
				t.Errorf("%s does not hold %s", file, n)
			}
		}
	}
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if strings.HasSuffix(file, "_test.go") || listed[file] {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		op := `(?mi)^func (\(x \*Tensor\) )?` + strings.TrimSuffix(file, ".go") + `\(`
		if !regexp.MustCompile(op).Match(text) {
			t.Errorf("%s is not in the map of doc.go, and holds no op of its name", file)
		}
	}
}

// TestMethodsAreGrouped checks that the sections of the package's comment list every function of
// the package and every method of Tensor once, and no other names. They do not list forms: they
// list Add, but not AddScalar.
func TestMethodsAreGrouped(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	exported, listed := map[string]bool{"Maker": true}, map[string]int{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if path == "doc.go" {
			_, sections, _ := strings.Cut(f.Doc.Text(), "\n# ")
			for _, m := range regexp.MustCompile(`\[([\w.]+)\]`).FindAllStringSubmatch(sections, -1) {
				listed[m[1]]++
			}
		}
		for _, d := range f.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || !f.Name.IsExported():
			case f.Recv == nil:
				exported[f.Name.Name] = true
			default:
				if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
					if id, ok := star.X.(*ast.Ident); ok && id.Name == "Tensor" {
						exported["Tensor."+f.Name.Name] = true
					}
				}
			}
		}
	}
	if len(listed) < 300 {
		t.Fatalf("the sections list %d names only", len(listed))
	}
	form, right := regexp.MustCompile(`(Scalar)?(InPlace)?$`), regexp.MustCompile(`(^|\.)R`)
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		of := form.ReplaceAllString(name, "")
		if listed[name] == 0 && listed[of] == 0 && listed[right.ReplaceAllString(of, "$1")] == 0 {
			t.Errorf("%s is in no section of the package's comment in doc.go", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !exported[name] || listed[name] > 1 {
			t.Errorf("doc.go lists %s %d times; exported: %t", name, listed[name], exported[name])
		}
	}
}
