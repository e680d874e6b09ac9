package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// equalTrees reports whether two trees are equal. It compares tensors by type, shape and bits.
func equalTrees(a, b any) bool {
	switch x := a.(type) {
	case *tensor.Tensor:
		y, ok := b.(*tensor.Tensor)
		return ok && x.Type() == y.Type() && x.Shape() == y.Shape() && string(x.Bytes()) == string(y.Bytes())
	case float64:
		y, ok := b.(float64)
		return ok && (math.Float64bits(x) == math.Float64bits(y) || x != x && y != y)
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalTrees(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if v, ok := y[k]; !ok || !equalTrees(x[k], v) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b) || reflect.TypeOf(a) == reflect.TypeFor[map[int64]any]() && sameInts(a, b)
}

func sameInts(a, b any) bool {
	x, _ := a.(map[int64]any)
	y, ok := b.(map[int64]any)
	if !ok || len(x) != len(y) {
		return false
	}
	for k := range x {
		if v, ok := y[k]; !ok || !equalTrees(x[k], v) {
			return false
		}
	}
	return true
}

func gpu(t *testing.T) device.Device {
	t.Helper()
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return gpus[0]
}

// fullTree returns a tree with every kind of value that a tree may contain.
func fullTree(t *testing.T) map[string]any {
	shared := tensor.From([][]float32{{1, 2}, {3, 4}})
	types := map[string]any{}
	for _, ty := range dtype.Types() {
		types[ty.String()] = tensor.From([]float64{0, 1, 2}, 3).Cast(ty)
	}
	return map[string]any{
		"types": types,
		"numbers": []any{int64(math.MaxInt64), int64(math.MinInt64), 0.1, math.NaN(), math.Inf(-1), math.Copysign(0, -1), 5e-324,
			true, false, nil, "a \"text\"\n\x00 é", ""},
		"ints":      map[int64]any{-1: map[string]any{"exp_avg": shared}, 1 << 60: []any{}},
		"a/b~c.d":   map[string]any{"e/f": tensor.From(float64(7)), "": int64(1)},
		"again":     shared,
		"strided":   tensor.From([][]int64{{1, 2}, {3, 4}}).T(),
		"empty":     tensor.Zeros(0, 3),
		"empty map": map[string]any{},
		"gpu":       tensor.Root().On(gpu(t)).Ones(3, 2),
	}
}

func TestEveryKindOfValueComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	want := fullTree(t)
	info := Info{Step: 12, Epoch: 3, Metric: 0.5}
	if err := Write(path, want, info); err != nil {
		t.Fatal(err)
	}
	got, gotInfo, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !equalTrees(want, got) || gotInfo != info {
		t.Fatalf("%v %v", got, gotInfo)
	}
	if got["again"] != got["ints"].(map[int64]any)[-1].(map[string]any)["exp_avg"] {
		t.Error("a tensor in two places is one tensor again")
	}
	// The file is also an ordinary safetensors file.
	plain, _, err := safetensors.Load(path)
	if err != nil || plain["a~1b~0c.d/e~1f"] == nil || plain["types/bfloat16"] == nil {
		t.Fatalf("%v %v", plain, err)
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	deep := map[string]any{}
	for range 100 {
		deep = map[string]any{"x": deep}
	}
	freed := tensor.Ones(2)
	freed.Free()
	for want, tree := range map[string]map[string]any{
		"a/1: a int has no place": {"a": []any{int64(1), 2}},
		"nested deeper":           deep,
		"a key of the tree":       {"": int64(1)},
		"b: ":                     {"b": freed},
	} {
		dir := t.TempDir()
		err := Write(filepath.Join(dir, "x"), tree, Info{})
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
		if files, _ := os.ReadDir(dir); len(files) != 0 {
			t.Errorf("%s: %d files are left", want, len(files))
		}
	}
}

func TestModelsGeneratorsAndWrongModels(t *testing.T) {
	make2 := func() (*nn.Sequential, *tensor.Generator) {
		return nn.NewSequential(nn.NewLinear(3, 4), nn.ReLU{}, nn.NewLinear(4, 2)), tensor.NewGenerator(1)
	}
	m, g := make2()
	g.Draw(1000)
	tree, err := Capture(Parts{"model": m, "rng": g})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := Write(path, tree, Info{Metric: math.NaN()}); err != nil {
		t.Fatal(err)
	}
	tree, _, err = Read(path)
	if err != nil {
		t.Fatal(err)
	}
	m2, g2 := make2()
	nn.To(m2, gpu(t))
	if err := Restore(Parts{"model": m2, "rng": g2}, tree); err != nil {
		t.Fatal(err)
	}
	for name, x := range nn.StateDict(m) {
		if y := nn.StateDict(m2)[name]; string(x.Bytes()) != string(y.Bytes()) || y.Device().Info().Kind != "cuda" {
			t.Errorf("%s differs", name)
		}
	}
	if seed, offset := g2.State(); seed != 1 || offset != 1000 {
		t.Error(seed, offset)
	}
	var wrong *nn.StateError
	err = Restore(Parts{"model": nn.NewSequential(nn.NewLinear(3, 4), nn.NewLinear(4, 5))}, tree)
	if !errors.As(err, &wrong) || len(wrong.Missing) != 2 || len(wrong.Unexpected) != 2 || !strings.Contains(err.Error(), "1.weight") ||
		!strings.HasPrefix(err.Error(), "checkpoint: model: ") {
		t.Fatalf("%v", err)
	}
	if err := Restore(Parts{"optimizer": g}, tree); err == nil || !strings.Contains(err.Error(), `it has ["model" "rng"]`) {
		t.Fatal(err)
	}
	if _, err := Capture(Parts{"model": 3}); err == nil || !strings.Contains(err.Error(), "model: ") {
		t.Fatal(err)
	}
	if err := Restore(Parts{"model": g}, tree); err == nil {
		t.Fatal("weights are no generator")
	}
	Free(tree)
	if err := tensor.Try(func() { tree["model"].(map[string]any)["0.weight"].(*tensor.Tensor).Sum() }); err == nil {
		t.Fatal("freed")
	}
}

func steps(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if f.Name() == lockName {
			continue
		}
		out = append(out, strings.TrimSuffix(strings.TrimLeft(strings.TrimPrefix(f.Name(), "step-"), "0"), ".safetensors"))
	}
	return strings.Join(out, " ")
}

func at0(step int) map[string]any {
	return map[string]any{"step": int64(step), "w": tensor.Full(float64(step), 100)}
}

func TestStoreKeepsTheNewestAndTheBest(t *testing.T) {
	for _, c := range []struct {
		keep int
		best Best
		want string
	}{{2, NoBest, "9 10"}, {0, NoBest, "8 9 10"}, {2, Least, "3 9 10"}, {1, Most, "5 10"}} {
		dir := filepath.Join(t.TempDir(), "new", "dir")
		// Two stores use the directory one after another, as after a restart.
		for _, part := range [][]int{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10}} {
			s, err := Open(Config{Dir: dir, Keep: c.keep, Best: c.best})
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range part {
				// Steps 5 and 6 have the same metric, and the first one counts.
				metric := map[int]float64{3: -1, 5: 9, 6: 9, 7: -1}[step]
				if step == 10 {
					metric = math.NaN()
				}
				if err := s.Save(at0(step), Info{Step: step, Metric: metric}); err != nil {
					t.Fatal(err)
				}
			}
			if e, ok := s.Best(); ok != (c.best != NoBest) || ok && len(part) == 4 && !strings.Contains(c.want, fmt.Sprint(e.Info.Step)) {
				t.Error(e, ok)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Save(at0(99), Info{}); err == nil {
				t.Error("a closed store saves nothing")
			}
		}
		if got := steps(t, dir); got != c.want {
			t.Errorf("%+v: %s are left", c, got)
		}
		if path, err := Latest(dir); err != nil || path != PathOf(dir, 10) {
			t.Error(path, err)
		}
	}
}

// Any damage to a file is detected, and Load uses the previous file.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{10, 20} {
		if err := s.Save(at0(step), Info{Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	path := PathOf(dir, 20)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damage := [][]byte{nil, whole[:4], whole[:len(whole)-1], whole[:len(whole)/2]}
	for at := 0; at < len(whole); at += 1 + len(whole)/97 {
		b := append([]byte(nil), whole...)
		b[at] ^= 1 << (at % 8)
		damage = append(damage, b)
	}
	missed := 0
	for i, b := range damage {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case len(l.Damaged) == 0 && l.Info.Step == 20 && equalTrees(l.Tree, at0(20)):
			// The changed bit does not matter: it is in the padding, or determines the case of a
			// hexadecimal digit.
			missed++
		case l.Info.Step != 10 || !equalTrees(l.Tree, at0(10)) || len(l.Damaged) != 1 || !strings.Contains(l.Damaged[0].Error(), path):
			t.Errorf("damage %d: step %d, %v", i, l.Info.Step, l.Damaged)
		}
	}
	if missed > 2 {
		t.Errorf("%d of %d damages were not seen", missed, len(damage))
	}
	// A damaged file does not count among the files to keep. It is removed after Load has skipped
	// it.
	if err := os.WriteFile(path, whole[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Load(); err != nil || l.Info.Step != 10 {
		t.Fatal(l, err)
	}
	for i, want := range []string{"10 15 20", "15 17 20", "17 25"} {
		step := []int{15, 17, 25}[i]
		if err := s.Save(at0(step), Info{Step: step}); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := steps(t, dir); got != want {
			t.Fatalf("after step %d: %s", step, got)
		}
	}
	for _, step := range []int{17, 25} {
		if err := os.Truncate(PathOf(dir, step), 50); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Load(); err == nil || !strings.Contains(err.Error(), "none of the checkpoints can be used") || errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestOtherFilesAreNoCheckpoints(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Latest(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Load(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	path := filepath.Join(dir, "x")
	if _, _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := safetensors.Save(path, map[string]*tensor.Tensor{"w": tensor.Ones(2)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), "no checkpoint") {
		t.Error(err)
	}
	if err := safetensors.Save(path, nil, map[string]string{keyVersion: "99"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), "it is of version 99, this program knows up to 1") {
		t.Error(err)
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("no directory")
	}
	if _, err := Open(Config{Dir: path}); err == nil {
		t.Error("a file is no directory")
	}
	if _, err := Open(Config{Dir: dir, Keep: -1}); err == nil {
		t.Error("Keep -1")
	}
}

// A save that fails reports its error, and does not affect older files or the training.
func TestFailingSaves(t *testing.T) {
	dir := t.TempDir()
	told := make(chan Saved, 10)
	s, err := Open(Config{Dir: dir, Done: func(d Saved) { told <- d }})
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	real := s.write
	for step := 1; step <= 3; step++ {
		s.write = real
		if step == 2 {
			s.write = func(*snapshot, string) error { return full }
		}
		if err := s.Save(at0(step), Info{Step: step}); err != nil {
			t.Fatal(err)
		}
		d := <-told
		if failed := step == 2; (d.Err != nil) != failed || d.Info.Step != step || failed && !errors.Is(d.Err, full) {
			t.Errorf("%+v", d)
		}
	}
	if err := s.Wait(); !errors.Is(err, full) || !strings.Contains(err.Error(), PathOf(dir, 2)) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error("the error was told once: ", err)
	}
	if got := steps(t, dir); got != "1 3" {
		t.Error(got)
	}
}

// Save returns when it has copied the tensors. The file does not contain later changes of the
// tensors. A slow disk delays only the next save.
func TestSaveDoesNotWaitForTheDisk(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	real, disk := s.write, make(chan struct{})
	s.write = func(n *snapshot, path string) error { <-disk; return real(n, path) }
	w := tensor.Full(1, 1000)
	if err := s.Save(map[string]any{"w": w}, Info{Step: 1}); err != nil {
		t.Fatal(err)
	}
	w.Fill(2) // the change comes before the disk begins to write
	second := make(chan error)
	go func() { second <- s.Save(map[string]any{"w": w}, Info{Step: 2}) }()
	select {
	case <-second:
		t.Fatal("two saves at a time")
	case <-time.After(20 * time.Millisecond):
	}
	close(disk)
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for step := 1; step <= 2; step++ {
		tree, _, err := Read(PathOf(s.c.Dir, step))
		if err != nil || tree["w"].(*tensor.Tensor).Mean().Item() != float64(step) {
			t.Fatal(step, err)
		}
	}
}
