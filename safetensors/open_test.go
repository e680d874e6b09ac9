package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// everyType returns tensors of each type and of unusual shapes.
func everyType() map[string]*tensor.Tensor {
	in := map[string]*tensor.Tensor{}
	for _, t := range dtype.Types() {
		in[t.String()] = tensor.From([]float64{0, 1, 2, 3, 4, 5}, 2, 3).Cast(t)
	}
	in["scalar"] = tensor.From(float32(7))
	in["empty"] = tensor.Zeros(0, 4)
	in["strided"] = tensor.From([][]int64{{1, 2}, {3, 4}}).T()
	in["large"] = tensor.Root().Arange(100_000).Float()
	in["ä∂\U0001f525"] = tensor.From([]int16{-1})
	return in
}

func same(t *testing.T, f *File, want map[string]*tensor.Tensor) {
	t.Helper()
	if got := f.Names(); len(got) != len(want) {
		t.Errorf("%d tensors, want %d", len(got), len(want))
	}
	for k, x := range want {
		y, err := f.Tensor(k)
		if err != nil {
			t.Error(err)
			continue
		}
		if y.Type() != x.Type() || y.Shape() != x.Shape() || !bytes.Equal(y.Bytes(), x.Bytes()) {
			t.Errorf("%s: %v became %v", k, x, y)
		}
	}
}

// Tensors of every type can be saved and opened. If FLAMBEAU_EXCHANGE names a folder, the test
// writes the files there for the Python library to read.
func TestSaveAndOpen(t *testing.T) {
	dir := os.Getenv("FLAMBEAU_EXCHANGE")
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, "ours.safetensors")
	in := everyType()
	if err := Save(path, in, map[string]string{"format": "pt", "a\"<": "ä"}); err != nil {
		t.Fatal(err)
	}
	for _, mapped := range []bool{true, false} {
		f, err := open(path, mapped)
		if err != nil {
			t.Fatal(err)
		}
		if m := f.Metadata(); len(m) != 2 || m["a\"<"] != "ä" || f.Mapped() != mapped {
			t.Errorf("%v, mapped %v", m, f.Mapped())
		}
		same(t, f, in)
		x, err := f.Tensor("large")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil || f.Close() != nil {
			t.Error(err)
		}
		if _, err := f.Tensor("large"); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		runtime.GC()
		if x.Narrow(0, 99_999, 1).Item() != 99_999 {
			t.Error("a tensor went with its file")
		}
	}
}

// A write to a mapped tensor changes the memory of all tensors of the same name, but not the file.
func TestMappedTensorsAreCopiedOnWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := Save(path, everyType(), nil); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	get := func() *tensor.Tensor {
		x, err := f.Tensor("large")
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, y := get(), get()
	x.AddScalarInPlace(1)
	if y.Narrow(0, 50_000, 1).Item() != 50_001 {
		t.Error("tensors of one name do not share their memory")
	}
	if y.Free(); x.Narrow(0, 50_000, 1).Item() != 50_001 {
		t.Error("freeing one handle took back what another wrote")
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was written to")
	}
	// The file is replaced while it is mapped. The tensors keep their values.
	if err := Save(path, map[string]*tensor.Tensor{"large": tensor.Zeros(1)}, nil); err != nil {
		t.Fatal(err)
	}
	if x.Narrow(0, 99_999, 1).Item() != 100_000 {
		t.Error("replacing the file changed a tensor")
	}
}

// Tensors that are not aligned in the file are copied, and bools become 0 or 1.
func TestUnaligned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	text := `{"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F64","shape":[1],"data_offsets":[3,11]}}`
	data := file(text, 11)
	data[len(data)-11] = 7
	copy(data[len(data)-8:], []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f})
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Tensors()
	if err != nil || all["b"].Item() != 1 || !slices.Equal(all["a"].Bytes(), []byte{1, 0, 0}) {
		t.Errorf("%v, %v", all, err)
	}
}

func TestConcurrentUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := Save(path, everyType(), nil); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				x, err := f.Tensor("large")
				if errors.Is(err, fs.ErrClosed) && i > 0 {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if x.Sum().Item() < 1e9 {
					t.Error("wrong sum")
				}
				x.Free()
			}
			if i == 0 {
				f.Close()
			}
		})
	}
	wg.Wait()
	f.Close()
}

func TestSaveOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	x := tensor.Root().Arange(3 << 20).Float()
	in := map[string]*tensor.Tensor{"x": x, "again": x, "part": x.Narrow(0, 3, 2), "n": tensor.From([]int32{7})}
	if err := Save(path, in, nil, Cast(dtype.BF16), Consume()); err != nil {
		t.Fatal(err)
	}
	for k, x := range in {
		if err := tensor.Try(func() { x.Item() }); !errors.Is(err, tensor.ErrFreed) {
			t.Errorf("%s was not consumed: %v", k, err)
		}
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := tensor.Root().Arange(3 << 20).BFloat16()
	same(t, f, map[string]*tensor.Tensor{"x": want, "again": want, "part": want.Narrow(0, 3, 2), "n": tensor.From([]int32{7})})
	if err := Save(path, nil, nil, Cast(dtype.I8)); err == nil {
		t.Error("Cast to an integer type")
	}
	if err := Save(path, nil, map[string]string{"\xff": ""}); err == nil {
		t.Error("metadata that is not UTF-8")
	}
	if err := Save(path, nil, nil, MaxShard(-1)); err == nil {
		t.Error("shards of a negative size")
	}
}

// Models can be saved in several files. If FLAMBEAU_EXCHANGE names a folder, the test writes the
// files there for the Python library to read.
func TestSaveShards(t *testing.T) {
	dir := os.Getenv("FLAMBEAU_EXCHANGE")
	if dir == "" {
		dir = t.TempDir()
	}
	dir = filepath.Join(dir, "sharded")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	in := map[string]*tensor.Tensor{}
	for i := range 10 {
		in[fmt.Sprintf("layer.%d", i)] = tensor.Full(float64(i), 100)
	}
	in["wide"] = tensor.Ones(600)
	files := func() string {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, e := range list {
			s = append(s, strings.TrimPrefix(e.Name(), "model"))
		}
		return strings.Join(s, " ")
	}
	save := func(max int64) {
		t.Helper()
		if err := Save(path, in, map[string]string{"format": "pt"}, MaxShard(max)); err != nil {
			t.Fatal(err)
		}
	}
	if save(1 << 20); files() != ".safetensors" {
		t.Errorf("one file: %s", files())
	}
	if save(500); !strings.HasPrefix(files(), "-00001-of-00011.safetensors") || strings.Count(files(), " ") != 11 {
		t.Errorf("eleven: %s", files())
	}
	if save(1 << 20); files() != ".safetensors" {
		t.Errorf("one file again: %s", files())
	}
	want := "-00001-of-00004.safetensors -00002-of-00004.safetensors -00003-of-00004.safetensors -00004-of-00004.safetensors .safetensors.index.json"
	if save(1700); files() != want {
		t.Errorf("four: %s", files())
	}
	f, err := Open(path + indexSuffix)
	if err != nil {
		t.Fatal(err)
	}
	same(t, f, in)
	if f.Metadata()["format"] != "pt" {
		t.Errorf("%v", f.Metadata())
	}
	f.Close()
	if all, _, err := Load(path + indexSuffix); err != nil || len(all) != 11 {
		t.Errorf("%d, %v", len(all), err)
	}
	if os.Getenv("FLAMBEAU_EXCHANGE") != "" {
		return
	}
	// Each of the following indexes is invalid.
	text, err := os.ReadFile(path + indexSuffix)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(w map[string]string){
		"does not hold it":                     func(w map[string]string) { w["x"] = "model-00001-of-00004.safetensors" },
		"is not in the index":                  func(w map[string]string) { delete(w, "layer.3") },
		"which is not beside it":               func(w map[string]string) { w["wide"] = "../model-00001-of-00004.safetensors" },
		"which is not beside it ":              func(w map[string]string) { w["wide"] = `..\x` },
		"and it is in model-00001-of-00004.sa": func(w map[string]string) { w["layer.0"] = "model-00004-of-00004.safetensors" },
		"no such file":                         func(w map[string]string) { w["wide"] = "gone" },
	} {
		var index struct {
			Weights map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(text, &index); err != nil {
			t.Fatal(err)
		}
		change(index.Weights)
		changed, err := json.Marshal(index)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+indexSuffix, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = Open(path + indexSuffix)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), strings.TrimSpace(want)) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, text := range map[string]string{"no weight_map": "{}", "not valid": "[", "not valid: ": `{"weight_map": {"a": 1}}`} {
		if err := os.WriteFile(path+indexSuffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path + indexSuffix); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestWideNumbersAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	x := tensor.From([]int64{math.MaxInt64, math.MinInt64, 1<<53 + 1})
	if err := Save(path, map[string]*tensor.Tensor{"x": x}, nil); err != nil {
		t.Fatal(err)
	}
	all, _, err := Load(path)
	if err != nil || !slices.Equal(tensor.Data[int64](all["x"]), tensor.Data[int64](x)) {
		t.Errorf("%v, %v", all["x"], err)
	}
}

// Files that the Python library wrote can be read. The metadata of the files describes the values.
func TestOpenWhatPythonWrote(t *testing.T) {
	f, err := Open("testdata/python.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Names()) != 20 {
		t.Errorf("%d tensors", len(f.Names()))
	}
	for name, text := range f.Metadata() {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		var want []float64
		for _, s := range strings.Fields(text) {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, v)
		}
		if !slices.Equal(x.Floats(), want) {
			t.Errorf("%s: %v, want %v", name, x, want)
		}
	}
}

// A model in several files is replaced as a whole. An error before all files are written leaves the
// old model unchanged.
func TestShardsAreReplacedTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	model := func(v float64) map[string]*tensor.Tensor {
		return map[string]*tensor.Tensor{"a": tensor.Full(v, 4), "b": tensor.Full(v, 4), "c": tensor.Full(v, 4)}
	}
	if err := Save(path, model(1), nil, MaxShard(16)); err != nil {
		t.Fatal(err)
	}
	last := filepath.Join(filepath.Dir(path), "m-00003-of-00003.safetensors")
	if err := os.Rename(last, last+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(last, 0o700); err != nil { // a directory that blocks the last file
		t.Fatal(err)
	}
	var e *Error
	if err := Save(path, model(2), nil, MaxShard(16)); !errors.As(err, &e) || e.Path != last {
		t.Fatalf("%v", err)
	}
	if err := os.Remove(last); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(last+".kept", last); err != nil {
		t.Fatal(err)
	}
	for _, want := range []float64{1, 2} {
		all, _, err := Load(path + ".index.json")
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range all {
			if got := tensor.Data[float32](x); float64(got[0]) != want || len(got) != 4 {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		if err := Save(path, model(2), nil, MaxShard(16)); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 4 {
		t.Errorf("left: %v", files)
	}
}
