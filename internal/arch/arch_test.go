package arch

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// root is the module root, relative to this folder.
const root = "../.."

// TestHouse applies the rules to all files of this project.
func TestHouse(t *testing.T) {
	found, err := Check(os.DirFS(root), projectFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

// projectFiles lists the files that git tracks. In a source archive without a repository it lists
// all files.
func projectFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		// The go command reuses a test's result if no file that the test has opened has changed.
		// Git opens its files in another process, so open git's index here.
		_, _ = os.Stat(filepath.Join(root, ".git", "index"))
		out, err := exec.Command("git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z").Output()
		if err != nil {
			t.Fatalf("git ls-files: %v", err)
		}
		for name := range bytes.SplitSeq(bytes.TrimRight(out, "\x00"), []byte{0}) {
			if _, err := os.Lstat(filepath.Join(root, string(name))); err == nil {
				files = append(files, string(name))
			}
		}
	} else {
		err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(files, "go.mod") {
		t.Fatalf("go.mod is not among the %d files found under %s", len(files), root)
	}
	return files
}

// TestRules checks an invented tree that breaks each rule once. Check must return exactly these
// violations.
func TestRules(t *testing.T) {
	const mod = `"` + Module + `/`
	doc := func(pkg, rest string) string { return "// Package " + pkg + " is.\npackage " + pkg + "\n\n" + rest }
	cases := []struct {
		name string
		tree map[string]string
		want []string // a part of each violation's text, in order
	}{
		{"descends", map[string]string{
			"shape/s.go":  doc("shape", "import _ "+mod+"dtype\"\n"),
			"tensor/t.go": doc("tensor", "import _ "+mod+"shape\"\nimport _ "+mod+"cpu\"\n"),
		}, nil},
		{"ascends", map[string]string{
			"dtype/d.go": doc("dtype", "import _ "+mod+"shape\"\n"),
		}, []string{"dtype/d.go:4: dtype imports shape, which is not below it"}},
		{"sideways", map[string]string{
			"shape/s.go": doc("shape", "import _ "+mod+"expr\"\n"),
		}, []string{"shape imports expr"}},
		{"a test may look up", map[string]string{
			"dtype/d.go":      doc("dtype", ""),
			"dtype/d_test.go": "package dtype\n\nimport _ " + mod + "shape\"\n",
		}, nil},
		{"driver imports tensor", map[string]string{
			"cpu/c.go":      doc("cpu", "import _ "+mod+"tensor\"\n"),
			"cpu/c_test.go": "package cpu\n\nimport _ " + mod + "tensor\"\n",
		}, []string{"c.go:4: cpu imports tensor, which is not below"}},
		{"library imports cuda", map[string]string{
			"nn/n.go":             doc("nn", "import _ "+mod+"cuda\"\n"),
			"nn/n_test.go":        "package nn\n\nimport _ " + mod + "cuda\"\n",
			"cmd/flambeau/m.go":   doc("main", "import _ "+mod+"cuda\"\n"),
			"examples/a/b/c/m.go": doc("main", "import _ "+mod+"cuda\"\n"),
		}, []string{"n.go:4: nn imports cuda, which is not below it", "nn imports cuda: cuda registers itself"}},
		{"purego in its place", map[string]string{
			"cuda/internal/cu/a.go": "//go:build linux && !nogpu\n\n" + doc("cu", "import _ \"github.com/ebitengine/purego\"\n"),
		}, nil},
		{"purego elsewhere, and without the tag", map[string]string{
			"cuda/internal/lib/a.go": "//go:build linux || windows\n\n" + doc("lib", "import _ \"github.com/ebitengine/purego\"\n"),
			"cuda/a.go":              "//go:build !nogpu\n\n" + doc("cuda", "import _ \"github.com/ebitengine/purego\"\n"),
		}, []string{"cuda/a.go:6: cuda imports github.com/ebitengine/purego: native", "lib/a.go:6: imports github.com/ebitengine/purego without a constraint"}},
		{"gonum elsewhere", map[string]string{
			"tensor/t.go": doc("tensor", "import _ \"gonum.org/v1/gonum/blas\"\n"),
			"nn/n.go":     doc("nn", "import _ \"gonum.org/v1/gonum/lapack/lapack64\"\n"),
		}, []string{"nn/n.go:4: nn imports gonum.org/v1/gonum/lapack/lapack64: linear algebra"}},
		{"weights that a test left", map[string]string{
			"cmd/flambeau/w.safetensors": "", "nn/testdata/w.safetensors": "",
		}, []string{"cmd/flambeau/w.safetensors: a file of numbers outside of testdata"}},
		{"cgo", map[string]string{"dtype/d.go": doc("dtype", "import \"C\"\n")}, []string{`import "C"`}},
		{"unknown package", map[string]string{"sparse/s.go": doc("sparse", "")}, []string{"package sparse is not in the table"}},
		{"banned name", map[string]string{
			"cpu/internal/utils/u.go": doc("utils", ""),
		}, []string{`the name "utils" says nothing`}},
		{"no package comment", map[string]string{
			"dtype/a.go": "package dtype\n", "shape/a.go": "package shape\n", "shape/b.go": doc("shape", ""),
		}, []string{"package dtype has no package comment"}},
		{"undocumented", map[string]string{
			"dtype/d.go": doc("dtype", `type T struct{}

func (T) String() string { return "" }
func (*T) Bits() int     { return 0 }
func F[X any]()          {}
func f()                 {}

type t[X any] struct{}

func (t[X]) M() {}

// A group's comment serves its constants.
const (
	A = 1
	B = 2
)

var V int
var W int // W is documented here

type (
	U int
	u int
)
`),
			"cmd/x/m.go": "// Command x is.\npackage main\n\nfunc Undocumented() {}\n",
		}, []string{
			"d.go:21: exported var V", "d.go:25: exported type U", "d.go:4: exported type T",
			"d.go:7: exported Bits", "d.go:8: exported F",
		}},
		{"long file", map[string]string{
			"dtype/a.go":          doc("dtype", strings.Repeat("\n", maxLines)),
			"dtype/gen.go":        "// Code generated by gen. DO NOT EDIT.\n\npackage dtype\n" + strings.Repeat("\n", maxLines),
			"dtype/testdata/a.go": strings.Repeat("\n", 2*maxLines),
			"dtype/_gen/a.s":      strings.Repeat("\n", maxLines),
		}, []string{"dtype/a.go: 603 lines"}},
		{"big file", map[string]string{
			"docs/a.bin": strings.Repeat("x", maxFileSize), "docs/b.bin": strings.Repeat("x", maxFileSize+1),
		}, []string{"docs/b.bin: 1048577 bytes"}},
		{"underscores", map[string]string{
			"dtype/a.go": doc("dtype", ""), "dtype/a_b.go": "package dtype\n", "dtype/a_b_test.go": "package dtype\n",
			"dtype/a_linux_amd64.go": "package dtype\n", "dtype/a_other.go": "//go:build !linux\n\npackage dtype\n",
			"dtype/a_none.go": "package dtype\n", "dtype/a_gen_amd64.s": "", "dtype/a_linux_test.go": "package dtype\n",
			"dtype/example_a_test.go": "package dtype\n", "dtype/example_a.go": "package dtype\n",
		}, []string{"a_b.go: an underscore", "a_b_test.go: an", "a_gen_amd64.s: an", "a_none.go: an", "example_a.go: an"}},
		{"broken file", map[string]string{
			"dtype/a.go": doc("dtype", "func {"), "dtype/_gen/a.go": "package {",
		}, []string{"does not parse"}},
		{"panics that Try lets go on", map[string]string{
			"optim/o.go": doc("optim", `// An Error is one.
type Error struct{}

// Raised is there.
func (*Error) Raised() {}

// A BadError lacks the method Raised, as does a SizeError.
type BadError struct{}

// A SizeError is a number.
type SizeError int

func bad() *BadError { return nil }

func f() {
	panic(&Error{})
	panic("a bug")
	panic(bad())
	panic(SizeError(1))
}
`),
			"optim/sched/s.go": doc("sched", `import "github.com/flambeau-go/flambeau/optim"

func f() {
	panic(&optim.Error{})
	panic(&optim.BadError{})
}
`),
			"torchfile/t.go": doc("torchfile", "func f() { panic(&oddError{}) }\n"),
		}, []string{
			"o.go:21: a panic with a BadError, which lacks the method Raised", "o.go:22: a panic with a SizeError", "s.go:8: a panic with a BadError",
		}},
		{"goroutines asked for elsewhere", map[string]string{
			"tensor/goroutine.go": doc("tensor", "import "+mod+"internal/callsite\"\n\nvar g = callsite.G()\n"),
			"tensor/t.go":         "package tensor\n\nimport at " + mod + "internal/callsite\"\n\nvar g, n, s = at.G(), at.Goroutine, at.First(nil)\n",
			"tensor/t_test.go":    "package tensor\n\nimport " + mod + "internal/callsite\"\n\nvar g = callsite.G()\n",
		}, []string{"t.go:5: at.G: only the files", "t.go:5: at.Goroutine: only"}},
		{"framework in the product", map[string]string{
			"tensor/t.go":      doc("tensor", "import _ \"testing\"\n"),
			"tensor/t_test.go": "package tensor\n\nimport _ \"testing\"\n",
			"data/d.go":        doc("data", "import _ \"unsafe\"\n"),
		}, []string{"data imports unsafe", "tensor imports testing"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			fsys, names := fstest.MapFS{}, []string{}
			for name, text := range tc.tree {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
				names = append(names, name)
			}
			found, err := Check(fsys, names)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != len(tc.want) {
				t.Fatalf("%d violations, want %d: %v", len(found), len(tc.want), found)
			}
			for i, v := range found {
				if !strings.Contains(v.String(), tc.want[i]) {
					t.Errorf("violation %d is %q, want it to contain %q", i, v, tc.want[i])
				}
			}
		})
	}
}

// TestTable checks the table of layers. No row may occur twice, every package in a list must have a
// row, and there must be no cycle.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range floors {
		if seen[f.path] {
			t.Errorf("%s is declared twice", f.path)
		}
		seen[f.path] = true
		if mayReach(f.path, f.path) {
			t.Errorf("%s stands on itself", f.path)
		}
		for _, on := range f.on {
			if !slices.ContainsFunc(floors, func(g floor) bool { return g.path == on }) {
				t.Errorf("%s stands on %s, which the table does not declare", f.path, on)
			}
		}
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := Check(fstest.MapFS{}, []string{"dtype/d.go"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want one that is fs.ErrNotExist", err)
	}
}
