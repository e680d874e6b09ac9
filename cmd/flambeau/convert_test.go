package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

const checkpointFile = "../../torchfile/testdata/training.pt"

// A conversion through all formats, one after another, changes nothing.
func TestConvertThroughAllFormats(t *testing.T) {
	dir := t.TempDir()
	must := func(args ...string) string {
		t.Helper()
		status, _, errOut := command(t, append([]string{"convert"}, args...)...)
		if status != 0 {
			t.Fatalf("%q: status %d\n%s", args, status, errOut)
		}
		return errOut
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if out := must(checkpointFile, at("a.safetensors"), "--weights"); !strings.Contains(out, "values beside the weights are left out") || !strings.Contains(out, "9 tensors, 176 B, written to") {
		t.Error(out)
	}
	must(at("a.safetensors"), at("b.npz"))
	must(at("b.npz"), at("c.pth"))
	must(at("c.pth"), at("d.safetensors.index.json"), "--max-shard", "100")
	must(at("d.safetensors.index.json"), at("e.safetensors"))
	want, err := torchfile.Load(checkpointFile)
	if err != nil {
		t.Fatal(err)
	}
	state, err := torchfile.StateDict(want)
	if err != nil {
		t.Fatal(err)
	}
	got, metadata, err := safetensors.Load(at("e.safetensors"))
	if err != nil || len(got) != len(state) || metadata["format"] != "pt" {
		t.Fatalf("%d tensors, %v, %v", len(got), metadata, err)
	}
	for name, x := range state {
		if y := got[name]; y == nil || y.Type() != x.Type() || y.Shape() != x.Shape() || !bytes.Equal(y.Bytes(), x.Bytes()) {
			t.Errorf("%s: %v became %v", name, x, y)
		}
	}
	// A checkpoint is converted to half its size.
	must(checkpointFile, at("half.pt"), "--dtype", "bf16")
	half, err := torchfile.Load(at("half.pt"))
	if err != nil {
		t.Fatal(err)
	}
	m := half.(map[string]any)
	if x := m["model_state_dict"].(map[string]any)["0.weight"].(*tensor.Tensor); x.Type().String() != "bfloat16" || m["epoch"] != int64(3) {
		t.Errorf("%v", m)
	}
	must(at("half.pt"), at("half.npz"), "--weights", "--dtype", "float32")
	// A file with one array is converted.
	if err := safetensors.Save(at("one.safetensors"), map[string]*tensor.Tensor{"x": tensor.Ones(2, 3)}, map[string]string{"epoch": "7"}); err != nil {
		t.Fatal(err)
	}
	if out := must(at("one.safetensors"), at("one.npy")); !strings.Contains(out, "the metadata (epoch) are left out") {
		t.Error(out)
	}
	must(at("one.npy"), at("one.safetensors"), "--overwrite")
	if all, _, err := safetensors.Load(at("one.safetensors")); err != nil || all["one"].Dim(1) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if strings.HasPrefix(f.Name(), ".") {
			t.Errorf("%s is left", f.Name())
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := safetensors.Save(at("a.safetensors"), map[string]*tensor.Tensor{"a": tensor.Ones(2).BFloat16(), "b": tensor.Ones(3)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := torchfile.Save(at("twice.pt"), map[string]any{"a.b": tensor.Ones(1), "a": map[string]any{"b": tensor.Ones(1)}}); err != nil {
		t.Fatal(err)
	}
	files := func() []string {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, f := range list {
			s = append(s, f.Name())
		}
		return s
	}
	before := files()
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{checkpointFile, at("x.safetensors")}, 1, "epoch, optimizer.param_groups.0.lr, optimizer.param_groups.0.betas, "},
		{[]string{checkpointFile, at("x.safetensors")}, 1, "are no tensors, which a file of safetensors cannot hold; --weights takes the model's weights alone"},
		{[]string{at("a.safetensors"), at("x.npz")}, 1, "a is of type bfloat16, which NumPy has not; add --dtype float32"},
		{[]string{at("a.safetensors"), at("x.npz"), "--dtype", "bf16"}, 1, "NumPy has no such type"},
		{[]string{at("a.safetensors"), at("x.npy"), "--dtype", "fp32"}, 1, "holds 2 tensors, a .npy file holds one"},
		{[]string{at("a.safetensors"), at("x.onnx")}, 1, "the name does not tell a format; it ends in one of .safetensors"},
		{[]string{at("a.txt"), at("x.npz")}, 1, "the name does not tell a format"},
		{[]string{at("no.pt"), at("x.npz")}, 1, "no such file"},
		{[]string{at("a.safetensors"), at("twice.pt")}, 1, "twice.pt exists; --overwrite replaces it"},
		{[]string{at("a.safetensors"), at("a.safetensors.index.json")}, 1, "a.safetensors exists; --overwrite replaces it"},
		{[]string{at("a.safetensors"), at("x.safetensors.index.json")}, 1, "all tensors fit into one file of 5GB, which has no index"},
		{[]string{at("a.safetensors"), at("x.pt"), "--weights"}, 1, "the file is no checkpoint of PyTorch"},
		{[]string{at("a.safetensors"), at("x.pt"), "--max-shard", "1GB"}, 1, "only safetensors are written in several files"},
		{[]string{at("a.safetensors"), at("x.safetensors"), "--max-shard", "big"}, 2, `"big" is no number of bytes`},
		{[]string{at("a.safetensors"), at("x.safetensors"), "--dtype", "int8"}, 2, "--dtype int8: the types are bf16 bfloat16 double"},
		{[]string{at("twice.pt"), at("x.safetensors")}, 1, `the name "a.b" appears twice`},
	} {
		status, _, errOut := command(t, append([]string{"convert"}, c.args...)...)
		if status != c.status || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: status %d, %s\nwant %s", c.args, status, errOut, c.want)
		}
	}
	if after := files(); !slices.Equal(before, after) {
		t.Errorf("%v became %v", before, after)
	}
}

func TestInspect(t *testing.T) {
	status, out, errOut := command(t, "inspect", checkpointFile)
	lines := strings.Split(out, "\n")
	if status != 0 || len(lines) != 28 || strings.Join(strings.Fields(lines[0]), " ") != "model_state_dict.0.weight float32 [4, 3] 48" {
		t.Errorf("status %d\n%s", status, out)
	}
	for _, want := range []string{"name ", "torch: 27 tensors, 117 elements, 472 B: float32 464 B, int64 8 B\n", "value epoch: 3\n", "betas: [0.9 0.999]\n", "foreach: None\n"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%q is not in\n%s", want, errOut)
		}
	}
	object := func(path string) (r inspected) {
		t.Helper()
		status, out, errOut := command(t, "inspect", "--json", path)
		if status != 0 || strings.Count(out, "\n") != 1 {
			t.Fatalf("status %d, %s%s", status, out, errOut)
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := object(checkpointFile)
	if len(r.Tensors) != 27 || r.Bytes != 472 || r.Elements != 117 || r.ByDType["int64"] != 8 || r.Format != "torch" || len(r.Values) == 0 {
		t.Errorf("%+v", r)
	}
	r = object("../../safetensors/testdata/python.safetensors")
	if len(r.Tensors) != 20 || r.Metadata["scalar"] != "2.5" || r.Tensors[0].Name != "int64" {
		t.Errorf("%+v", r)
	}
	if r = object("../../npy/testdata/arrays.npz"); len(r.Tensors) != 13 {
		t.Errorf("%+v", r)
	}
	if r = object("../../npy/testdata/version1.npy"); len(r.Tensors) != 1 || r.Tensors[0].Name != "version1" || !slices.Equal(r.Tensors[0].Shape, []int{2, 3, 4}) {
		t.Errorf("%+v", r)
	}
	// JSON cannot represent some values, and flambeau cannot read some types. The command inspect
	// shows their names, or refuses the file with an error that names them.
	object("../../torchfile/testdata/everything.pt")
	path := filepath.Join(t.TempDir(), "m.safetensors")
	text := `{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}`
	if err := os.WriteFile(path, append([]byte{byte(len(text)), 0, 0, 0, 0, 0, 0, 0}, text+"ab"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r = object(path); r.Tensors[0].DType != "F8_E4M3" || r.Bytes != 2 {
		t.Errorf("%+v", r)
	}
	if status, _, errOut := command(t, "inspect", "../../torchfile/testdata/refused/module.pt"); status != 1 || !strings.Contains(errOut, "is a module: save model.state_dict()") {
		t.Errorf("status %d, %s", status, errOut)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"4096": 4096, "5GB": 5e9, "1.5 KiB": 1536, "2m": 0, "500MB": 5e8, "7b": 7, "-1": 0, "": 0, "1e3": 1000, "NaN": 0, "1x": 0} {
		n, err := parseSize(text)
		if n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 30: "3.0 GiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// Names in a file cannot control the terminal. Names that would grow without limit are an error.
func TestNamesOfHostileFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	if err := safetensors.Save(path, map[string]*tensor.Tensor{"a\x1b[2J\nb": tensor.Ones(1)}, map[string]string{"k\x1b]0;": "v\a"}); err != nil {
		t.Fatal(err)
	}
	status, out, errOut := command(t, "inspect", path)
	if status != 0 || !strings.HasPrefix(out, `a\x1b[2J\nb  float32`) || !strings.Contains(errOut, `metadata k\x1b]0;: v\a`) {
		t.Errorf("%d %q %q", status, out, errOut)
	}
	tree := any("end")
	for range 900 {
		tree = map[string]any{strings.Repeat("a", 1<<10): tree}
	}
	path = filepath.Join(dir, "x.pt")
	if err := torchfile.Save(path, tree); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := command(t, "inspect", path); status == 0 || !strings.Contains(errOut, path+": the names of what it holds, joined by dots, have more than") {
		t.Errorf("%d %.300s", status, errOut)
	}
}
