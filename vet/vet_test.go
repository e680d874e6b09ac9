package vet

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// The analyzers' reports on testdata/misuse are exactly those that the comments there expect. A
// comment `want analyzer "pattern"` expects a report on its line.
func TestAnalyzers(t *testing.T) {
	const dir = "testdata/misuse"
	p := load(t, "./"+dir)
	wants := p.expected()
	seen := map[string]int{}
	for _, d := range p.reports(t) {
		pos := p.fset.Position(d.Pos)
		at := filepath.Base(pos.Filename) + ":" + strconv.Itoa(pos.Line)
		i := slices.IndexFunc(wants, func(w want) bool {
			return w.at == at && w.analyzer == d.analyzer && w.text.MatchString(d.Message)
		})
		if i < 0 {
			t.Errorf("%s: unexpected %s: %s", at, d.analyzer, d.Message)
			continue
		}
		wants = slices.Delete(wants, i, i+1)
		seen[d.analyzer]++
	}
	for _, w := range wants {
		t.Errorf("%s: no report of %s like %q", w.at, w.analyzer, w.text)
	}
	for _, a := range Analyzers {
		if seen[a.Name] == 0 {
			t.Errorf("%s is shown by nothing", a.Name)
		}
	}
}

// loaded is a package with type information.
type loaded struct {
	fset  *token.FileSet
	files []*ast.File
	pkg   *types.Package
	info  *types.Info
}

// load reads and type-checks a package. It takes imported packages from the go command's build
// cache.
func load(t *testing.T, pkg string) *loaded {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export", pkg).Output()
	if err != nil {
		exit, _ := err.(*exec.ExitError)
		t.Fatalf("%v %+v", err, exit)
	}
	p := &loaded{fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Instances: map[*ast.Ident]types.Instance{},
		Implicits: map[ast.Node]types.Object{}, Scopes: map[ast.Node]*types.Scope{},
	}}
	var last struct { // the package itself is last in the list
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		if err := dec.Decode(&last); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[last.ImportPath] = last.Export
	}
	for _, name := range last.GoFiles {
		f, err := parser.ParseFile(p.fset, filepath.Join(last.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, f)
	}
	compiled := importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	if p.pkg, err = (&types.Config{Importer: compiled}).Check(last.ImportPath, p.fset, p.files, p.info); err != nil {
		t.Fatal(err)
	}
	return p
}

type diagnostic struct {
	analysis.Diagnostic
	analyzer string
}

// reports returns the reports of all analyzers.
func (p *loaded) reports(t *testing.T) (list []diagnostic) {
	if err := analysis.Validate(Analyzers); err != nil {
		t.Fatal(err)
	}
	for _, a := range Analyzers {
		_, err := a.Run(&analysis.Pass{
			Analyzer: a, Fset: p.fset, Files: p.files, Pkg: p.pkg, TypesInfo: p.info,
			ResultOf: map[*analysis.Analyzer]any{inspect.Analyzer: inspector.New(p.files)},
			Report:   func(d analysis.Diagnostic) { list = append(list, diagnostic{d, a.Name}) },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// expected returns the reports that comments in the files expect.
func (p *loaded) expected() (list []want) {
	for _, f := range p.files {
		for _, group := range f.Comments {
			for _, c := range group.List {
				if m := wantComment.FindStringSubmatch(c.Text); m != nil {
					pos := p.fset.Position(c.Pos())
					at := filepath.Base(pos.Filename) + ":" + strconv.Itoa(pos.Line)
					list = append(list, want{at, m[1], regexp.MustCompile(m[2])})
				}
			}
		}
	}
	return list
}

type want struct {
	at, analyzer string
	text         *regexp.Regexp
}

var wantComment = regexp.MustCompile(`want (\w+)(?: "([^"]*)")?`)

func TestAsked(t *testing.T) {
	for line, want := range map[string]bool{
		"-V=full": true, "-flags": true, "/tmp/b001/vet.cfg": true, "-json -nesteddo=false vet.cfg": true,
		"": false, "train": false, "train --data x.cfg": false, "--help": false, "-V": false, "vet ./...": false, "-.cfg": false,
	} {
		if got := Asked(strings.Fields(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// The command `flambeau vet -help` lists the first line of each analyzer's documentation.
func TestDocs(t *testing.T) {
	for _, a := range Analyzers {
		first, rest, _ := strings.Cut(a.Doc, "\n\n")
		if strings.Contains(first, "\n") || len(rest) < 200 {
			t.Errorf("%s: its documentation is one line, an empty one, and an example", a.Name)
		}
	}
}
