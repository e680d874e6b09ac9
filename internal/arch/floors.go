package arch

import "strings"

// A floor is a row of the table of layers: a package, or all packages below a folder if the path
// ends in "/...", with the packages that it may import.
type floor struct {
	path string
	// on holds the packages that the row's package may import. The row's package may also import
	// whatever these packages may import, but no other package of the module.
	on []string
}

// floors is the table of layers that docs/inside/README.md draws. A test fails if a package is
// missing: whoever adds a package must decide on its layer.
var floors = []floor{
	{".", nil}, // the root package contains only a comment
	{"dtype", nil},
	{"shape", []string{"dtype"}},
	{"expr", []string{"dtype"}},
	{"device", []string{"shape", "expr"}},
	{"device/devicetest", []string{"device"}},
	{"internal/pool", []string{"device", "internal/callsite"}},
	{"internal/pool/hostmem", []string{"internal/pool"}},
	{"internal/worklist", []string{"device"}},

	{"cpu", []string{"internal/pool/hostmem", "internal/worklist", "cpu/internal/..."}},
	{"cpu/internal/...", []string{"shape", "expr", "internal/pool/hostmem"}},
	{"cpu/linalg", []string{"cpu/internal/..."}},

	{"ptx", []string{"expr"}},
	{"cuda", []string{"internal/pool", "internal/worklist", "internal/atomicfile", "internal/filelock", "ptx", "cuda/internal/cu", "cuda/internal/emu/...", "cuda/internal/kernels", "cuda/internal/lib/..."}},
	{"cuda/doctor", []string{"cuda"}},
	{"cuda/internal/cu", nil},
	{"cuda/internal/emu/...", []string{"cuda/internal/cu"}},
	{"cuda/internal/kernels", []string{"ptx", "device"}},
	{"cuda/internal/lib/...", []string{"cuda/internal/cu"}},

	{"tensor", []string{"device", "cpu", "cpu/linalg", "internal/callsite", "internal/didyoumean"}},
	{"tensor/optest", []string{"tensor", "internal/golden"}},
	{"autograd", []string{"tensor"}},
	{"profile", []string{"tensor", "internal/atomicfile"}},
	{"profile/memsnap", []string{"device", "internal/atomicfile"}},
	{"data", []string{"tensor", "internal/didyoumean"}},
	{"data/digits", []string{"data"}},
	{"data/text", []string{"data", "internal/atomicfile"}},
	{"safetensors", []string{"tensor", "internal/atomicfile", "internal/filemap", "internal/tensorbytes"}},
	{"torchfile", []string{"tensor", "internal/atomicfile", "internal/filemap", "internal/tensorbytes", "internal/zipfile"}},
	{"data/vision", []string{"data", "internal/atomicfile", "internal/fetch"}},
	{"data/table", []string{"data"}},
	{"data/detect", []string{"data/vision", "data/table"}},
	{"npy", []string{"internal/atomicfile", "internal/filemap", "internal/tensorbytes", "internal/zipfile"}},
	{"internal/tensorbytes", []string{"tensor"}},

	{"nn", []string{"autograd", "profile", "data", "safetensors", "torchfile", "npy", "nn/initial", "internal/callsite"}},
	{"nn/initial", []string{"tensor"}},
	{"optim", []string{"nn", "optim/internal/exact"}},
	{"optim/sched", []string{"optim", "optim/internal/exact"}},
	{"optim/internal/exact", nil},
	{"amp", []string{"nn"}},
	{"dist", []string{"optim", "optim/sched", "amp"}},
	{"checkpoint", []string{"dist", "internal/atomicfile", "internal/filelock"}},
	{"models", []string{"nn", "internal/fetch", "data/text"}},
	{"train", []string{"checkpoint", "models", "data/detect", "train/tensorboard", "profile/memsnap"}},
	{"train/tensorboard", nil},

	{"examples/...", []string{"train", "data/digits", "cuda"}},
	{"docs/start/hello", []string{"tensor", "cuda"}},
	{"cmd/...", []string{"train", "data/digits", "cuda", "cuda/doctor", "tensor/optest", "internal/glyphs", "vet"}},
	{"bench/...", []string{"train", "data/digits", "cuda"}},

	// vet does not import the library: it recognises the library's packages by their paths
	{"vet", nil},
	{"internal/atomicfile", []string{"internal/filelock"}},
	{"internal/callsite", nil},
	{"internal/didyoumean", nil},
	{"internal/filemap", nil},
	{"internal/fetch", []string{"internal/filelock"}},
	{"internal/filelock", nil},
	{"internal/fulldisk", nil},
	{"internal/glyphs", []string{"data/vision"}},
	{"internal/zipfile", nil},
	{"internal/golden", nil},
	{"internal/samples", []string{"optim", "internal/golden", "cuda"}},
	{"internal/arch", nil},
}

// restricted holds the imports that only some packages may have.
var restricted = []struct {
	// path is an import path. For packages of the module it is relative to the module. "/..." at
	// the end includes all packages below the path
	path    string
	only    []string // packages that may import path
	tests   bool     // whether tests of any package may import path too
	tag     string   // build tag that must exclude the importing file from a build; "" if none
	because string
}{
	{
		path: "github.com/ebitengine/purego", only: []string{"cuda/internal/cu", "cuda/internal/lib/..."}, tag: "nogpu",
		because: "native libraries are called from one place per family, and -tags nogpu builds a static program",
	},
	{
		path: "gonum.org/v1/gonum/...", only: []string{"tensor", "bench/peers"},
		because: "linear algebra on the host is the one thing that it is for",
	},
	{
		path: "golang.org/x/tools/...", only: []string{"vet"},
		because: "what reads programs stands in one place",
	},
	{
		path: "cuda", only: []string{"cuda", "cuda/doctor", "examples/...", "docs/start/hello", "cmd/...", "bench/..."}, tests: true,
		because: "cuda registers itself; a library that imported it would force it on every program",
	},
	{
		path: "internal/golden", only: []string{"internal/golden", "tensor/optest"}, tests: true,
		because: "golden data belongs to tests",
	},
	{
		path: "testing", only: []string{"device/devicetest", "internal/arch", "internal/golden", "autograd"}, tests: true,
		because: "product code does not carry the test framework",
	},
	{
		path: "unsafe", only: []string{
			"device", "device/devicetest", "internal/pool", "internal/pool/hostmem", "cpu", "cpu/internal/...", "cuda", "cuda/internal/...",
			"tensor", "safetensors", "torchfile", "internal/filemap",
		}, tests: true,
		because: "memory is reinterpreted in drivers and where tensors meet Go slices, nowhere else",
	},
}

// bannedNames holds package names that say nothing about the contents of a package.
var bannedNames = []string{"utils", "util", "common", "core", "pkg", "helpers", "misc"}

// bigFiles holds the tracked files that may be larger than maxFileSize, each with the reason.
var bigFiles = map[string]string{}

const (
	maxFileSize = 1 << 20 // limit of the size of a tracked file in bytes
	maxLines    = 600     // limit of the number of lines of a hand-written source file
)

// matches reports whether pattern matches the package path. pattern is a path, or a folder followed
// by "/...".
func matches(pattern, path string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == dir || strings.HasPrefix(path, dir+"/")
	}
	return path == pattern
}

func matchesAny(patterns []string, path string) bool {
	for _, p := range patterns {
		if matches(p, path) {
			return true
		}
	}
	return false
}

func floorOf(path string) *floor {
	for i := range floors {
		if matches(floors[i].path, path) {
			return &floors[i]
		}
	}
	return nil
}

// mayReach reports whether package path may import target. Its row of the table must list target,
// or a package that may itself import target.
func mayReach(path, target string) bool {
	seen := map[string]bool{}
	var walk func(string) bool
	walk = func(p string) bool {
		if seen[p] {
			return false
		}
		seen[p] = true
		f := floorOf(strings.TrimSuffix(p, "/..."))
		if f == nil {
			return false
		}
		for _, on := range f.on {
			if matches(on, target) || walk(on) {
				return true
			}
		}
		return false
	}
	return walk(path)
}

// related reports whether both packages belong to the same row of the table, and the row stands for
// a folder, such as "examples/...". Such packages may import each other.
func related(a, b string) bool {
	f := floorOf(a)
	return f != nil && strings.HasSuffix(f.path, "/...") && matches(f.path, b)
}
