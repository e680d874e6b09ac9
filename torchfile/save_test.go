package torchfile

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// outlineTo formats a tree as text, with the kinds of its values and with marks for shared memory.
func outlineTo(v any, depth int) string {
	var b strings.Builder
	list := func(kind string, items []any) {
		b.WriteString(kind + "[")
		for _, x := range items {
			if b.Len() < 5000 {
				b.WriteString(outlineTo(x, depth+1) + " ")
			}
		}
		b.WriteString("]")
	}
	switch v := v.(type) {
	case *Dict:
		b.WriteString("dict{")
		for k, x := range v.All() {
			if b.Len() < 5000 {
				fmt.Fprintf(&b, "%#v: %s, ", k, outlineTo(x, depth+1))
			}
		}
		b.WriteString("}")
	case []any:
		list("list", v)
	case Tuple:
		list("tuple", v)
	case Set:
		list("set", v)
	case *tensor.Tensor:
		if v.Size() > 1000 {
			return fmt.Sprintf("tensor %v %v", v.Type(), v.Shape())
		}
		return fmt.Sprintf("tensor %v %v %v %v", v.Type(), v.Shape(), v.Strides(), v.Floats())
	case *big.Int:
		return v.String()
	default:
		fmt.Fprintf(&b, "%T %v", v, v)
	}
	return b.String()
}

// exchanged returns a tree with every kind of value that can be saved, and with descriptions of the
// values. A program in _golden reads the saved file with PyTorch.
func exchanged() *Dict {
	told := &Dict{}
	tell := func(name string, x *tensor.Tensor) {
		var shape Tuple
		for _, n := range x.Shape().Slice() {
			shape = append(shape, int64(n))
		}
		var values []any
		for _, v := range x.Floats() {
			values = append(values, v)
		}
		for _, e := range []struct {
			k string
			v any
		}{{"", x}, {".type", x.Type()}, {".shape", shape}, {".values", values}} {
			if err := told.Set(name+e.k, e.v); err != nil {
				panic(err)
			}
		}
	}
	for _, t := range dtype.Types() {
		tell(t.String(), tensor.From([]float64{0, 1, 2, 3, 4, 5}, 2, 3).Cast(t))
	}
	base := tensor.Root().Arange(60).Float().Reshape(3, 4, 5)
	tell("base", base)
	tell("transposed", base.Transpose(0, 2))
	tell("row", base.Select(0, 1).Select(0, 2))
	tell("expanded", tensor.From([]float32{3, 4}, 2, 1).Expand(2, 3))
	tell("part", tensor.Root().Arange(1000).Narrow(0, 500, 10).Reshape(2, 5).T())
	tell("scalar", tensor.From(2.5))
	tell("empty", tensor.Zeros(0, 4))
	d := &Dict{}
	huge := new(big.Int).Lsh(big.NewInt(1), 90)
	for _, e := range []struct{ k, v any }{
		{"tensors", told},
		{"state_dict", map[string]*tensor.Tensor{"b": tensor.Ones(2), "a": tensor.Zeros(1)}},
		{"optimizer", map[string]any{
			"state":        map[int64]any{0: map[string]any{"step": tensor.From(float32(3)), "exp_avg": tensor.Ones(2)}},
			"param_groups": []any{map[string]any{"lr": 0.1, "betas": Tuple{0.9, 0.999}, "params": []any{int64(0)}, "foreach": nil, "amsgrad": false}},
		}},
		{"numbers", []any{int64(0), int64(255), int64(256), int64(65535), int64(65536), int64(-1), int64(-1 << 31), int64(1 << 31), int64(-1 << 63), huge, new(big.Int).Neg(huge), 0.1}},
		{"text", "ä∂\U0001f525"}, {"bytes", []byte("\x00\xff")}, {"set", Set{int64(5)}}, {"dtype", dtype.F16}, {"device", Device("cuda:1")},
		{int64(7), "seven"}, {nil, true}, {Tuple{"a", int64(1)}, Tuple{}},
	} {
		if err := d.Set(e.k, e.v); err != nil {
			panic(err)
		}
	}
	return d
}

// Saving and loading does not change a tree. If FLAMBEAU_EXCHANGE names a folder, the test writes
// the file there for PyTorch to read.
func TestSave(t *testing.T) {
	dir := os.Getenv("FLAMBEAU_EXCHANGE")
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, "ours.pt")
	in := exchanged()
	if err := Save(path, in); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 40_000 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	for _, opts := range [][]Option{{Exact()}, {Exact(), Mapped()}} {
		out := load(t, path, opts...).(*Dict)
		// The values of "state_dict" and "optimizer" are left out: they are Go maps, and Load
		// returns a *Dict for each.
		for _, k := range []string{"tensors", "numbers", "text", "bytes", "set", "dtype", "device"} {
			v, _ := in.Get(k)
			w, _ := out.Get(k)
			if a, b := outlineTo(v, 0), outlineTo(w, 0); a != b {
				t.Errorf("%s:\n%s\nbecame\n%s", k, a, b)
			}
		}
		told, _ := out.Get("tensors")
		x, _ := told.(*Dict).Get("base")
		y, _ := told.(*Dict).Get("transposed")
		if x.(*tensor.Tensor).Storage() != y.(*tensor.Tensor).Storage() {
			t.Error("views do not share their memory")
		}
		p, _ := told.(*Dict).Get("part")
		if n := p.(*tensor.Tensor).Storage().Bytes(); n != 80 {
			t.Errorf("%d bytes of a view's storage were saved", n)
		}
		sd, _ := out.Get("state_dict")
		if d := sd.(*Dict); !d.ordered || d.keys[0] != "a" {
			t.Errorf("%+v", d)
		}
	}
	plain := load(t, path).(*Dict) // its keys have several types
	o, _ := plain.Get("optimizer")
	if v := o.(map[string]any)["state"].(map[int64]any)[0].(map[string]any)["step"].(*tensor.Tensor).Item(); v != 3 {
		t.Error(v)
	}
}

// plainGo returns a tree of plain Go types. A program in _golden reads the saved file with PyTorch.
func plainGo() map[string]any {
	type celsius float32
	type names []string
	return map[string]any{
		"ints": []int{1, -2, 1 << 40}, "widths": []any{int8(-8), int16(16), int32(-32), uint8(8), uint16(16), uint32(1 << 31), uint64(1 << 63), uint(7)},
		"floats": []float64{0.1, math.Inf(-1)}, "float32": []float32{0.5, 0.25}, "bools": []bool{true, false},
		"strings": []string{"ä", ""}, "nested": [][]float64{{1}, {}, {2, 3}}, "array": [3]int{1, 2, 3}, "bytes": []byte{0, 255}, "raw": [2]byte{1, 2},
		"history": map[string][]float64{"loss": {0.5, 0.25}, "accuracy": {0.75}}, "ids": map[string]int{"b": 2, "a": 1},
		"labels": map[int]string{7: "seven", -1: "none", 10: "ten"}, "scores": map[float32]bool{0.5: true}, "flags": map[bool]int{true: 1, false: 0},
		"mixed": map[any]any{1: "one", "two": 2, 3.5: nil}, "maps": []map[string]any{{"lr": 0.1}, {}}, "tensors": []*tensor.Tensor{tensor.Ones(2), tensor.Zeros(1)},
		"layers": map[string]map[string]*tensor.Tensor{"fc": {"weight": tensor.Ones(1, 2)}}, "time": time.Second, "celsius": celsius(36.5), "names": names{"x"},
		"nothing": []int(nil), "empty": map[string]float64(nil), "types": []dtype.Type{dtype.F16, dtype.I64}, "scalar": float32(1.5), "flag": true,
	}
}

// Slices and maps of plain Go types are saved as lists and dicts.
func TestSavePlainGoTypes(t *testing.T) {
	dir := os.Getenv("FLAMBEAU_EXCHANGE")
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, "plain.pt")
	if err := Save(path, plainGo()); err != nil {
		t.Fatal(err)
	}
	tree := load(t, path).(map[string]any)
	for k, want := range map[string]string{
		"ints": "list[int64 1 int64 -2 int64 1099511627776 ]", "widths": "list[int64 -8 int64 16 int64 -32 int64 8 int64 16 int64 2147483648 9223372036854775808 int64 7 ]",
		"floats": "list[float64 0.1 float64 -Inf ]", "float32": "list[float64 0.5 float64 0.25 ]", "bools": "list[bool true bool false ]",
		"strings": "list[string ä string  ]", "nested": "list[list[float64 1 ] list[] list[float64 2 float64 3 ] ]", "array": "list[int64 1 int64 2 int64 3 ]",
		"bytes": "[]uint8 [0 255]", "raw": "[]uint8 [1 2]", "history": "map[string]interface {} map[accuracy:[0.75] loss:[0.5 0.25]]",
		"ids": "map[string]interface {} map[a:1 b:2]", "labels": "map[int64]interface {} map[-1:none 7:seven 10:ten]",
		"scores": "dict{0.5: bool true, }", "flags": "dict{false: int64 0, true: int64 1, }", "mixed": `dict{3.5: <nil> <nil>, 1: string one, "two": int64 2, }`,
		"maps": "list[map[string]interface {} map[lr:0.1] map[string]interface {} map[] ]", "time": "int64 1000000000", "celsius": "float64 36.5", "names": "list[string x ]",
		"nothing": "list[]", "empty": "map[string]interface {} map[]", "scalar": "float64 1.5", "flag": "bool true",
		"tensors": "list[tensor float32 [2] [1] [1 1] tensor float32 [1] [1] [0] ]", "types": "list[string torch.float16 string torch.int64 ]",
	} {
		if got := outlineTo(tree[k], 0); got != want {
			t.Errorf("%s: %s, want %s", k, got, want)
		}
	}
	fc := tree["layers"].(map[string]any)["fc"].(map[string]any)
	if w := fc["weight"].(*tensor.Tensor); w.Dim(1) != 2 {
		t.Error(w)
	}
	for want, tree := range map[string]any{
		`tree["a"]: a value of Go type chan int cannot be saved`:                         map[string]chan int{"a": nil},
		"tree[0]: a value of Go type struct { X int } cannot be saved":                   []struct{ X int }{{1}},
		"tree[0][0]: a value of Go type *int cannot be saved; numbers, bools":            [][]*int{{nil}},
		`tree[0]: the string "\xff" is not UTF-8`:                                        []string{"\xff"},
		`the key "\xff" is not UTF-8`:                                                    map[string]int{"\xff": 1},
		"a value of Go type map[[1]int]int cannot be saved":                              map[[1]int]int{{1}: 1},
		"a value of Go type map[interface {}]int cannot be saved":                        map[any]int{1: 1, int64(1): 2},
		"tree[0]: a value of Go type dtype.Type cannot be saved":                         []dtype.Type{dtype.U64},
		"tree[0]: a value of Go type complex64 cannot be saved; numbers, bools, strings": []complex64{1},
	} {
		err := Save(filepath.Join(t.TempDir(), "m.pt"), tree)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The same tree gives the same bytes.
func TestSaveIsReproducible(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i := range 2 {
		path := filepath.Join(dir, fmt.Sprint(i), "m.pt")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Save(path, exchanged()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, string(b))
	}
	if files[0] != files[1] {
		t.Error("they differ")
	}
}

func TestSaveOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.pt")
	big := tensor.Root().Arange(3 << 20).Float()
	x := []any{big, big.Narrow(0, 5, 2), tensor.From([]int64{7}), tensor.From(1.5).Expand(2, 2)}
	if err := Save(path, x, Cast(dtype.BF16), Consume()); err != nil {
		t.Fatal(err)
	}
	for i, v := range x {
		if err := tensor.Try(func() { v.(*tensor.Tensor).Item() }); !errors.Is(err, tensor.ErrFreed) {
			t.Errorf("%d was not consumed: %v", i, err)
		}
	}
	y := load(t, path).([]any)
	if got := outlineTo(y[1:], 0); got != "list[tensor bfloat16 [2] [1] [5 6] tensor int64 [1] [1] [7] tensor bfloat16 [2, 2] [0, 0] [1.5 1.5 1.5 1.5] ]" {
		t.Error(got)
	}
	if b := y[0].(*tensor.Tensor); b.Dim(0) != 3<<20 || b.Select(0, 1<<21).Item() != 1<<21 || b.Storage() != y[1].(*tensor.Tensor).Storage() {
		t.Error("the large tensor differs")
	}
}

func TestWhatCannotBeSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.pt")
	if err := Save(path, "old"); err != nil {
		t.Fatal(err)
	}
	loop := []any{nil}
	loop[0] = loop
	freed := tensor.Ones(2)
	freed.Free()
	for want, tree := range map[string]any{
		`tree["a"][1]: a value of Go type struct {} cannot be saved`: map[string]any{"a": []any{nil, struct{}{}}},
		"does one contain itself?":                                   loop,
		"the tensor was freed":                                       freed,
		`tree["a"]: the tensor is nil`:                               map[string]*tensor.Tensor{"a": nil},
		`tree[0]: the string "\xff" is not UTF-8`:                    []any{"\xff"},
		"tree: a value of Go type dtype.Type cannot be saved":        dtype.U64,
	} {
		err := Save(path, tree)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := Save(path, "new", Cast(dtype.I8)); err == nil {
		t.Error("Cast to an integer type")
	}
	if err := Save(filepath.Join(path, "x"), "new"); err == nil {
		t.Error("a file is no folder")
	}
	if v := load(t, path); v != "old" {
		t.Errorf("%v", v)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("left: %v", files)
	}
	if err := (&Dict{}).Set([]any{}, 1); err == nil {
		t.Error("a list as key")
	}
}

// A Dict accepts unusual keys. A NaN, which does not equal itself, keeps its value, and an int is
// found as an int64.
func TestKeysOfDicts(t *testing.T) {
	var d Dict
	for _, k := range []any{math.NaN(), 3, Tuple{"a", int64(1)}} {
		if err := d.Set(k, "kept"); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []any{3, int64(3), Tuple{"a", int64(1)}} {
		if v, ok := d.Get(k); !ok || v != "kept" {
			t.Errorf("Get(%v): %v, %v", k, v, ok)
		}
	}
	path := filepath.Join(t.TempDir(), "x.pt")
	if err := Save(path, &d); err != nil {
		t.Fatal(err)
	}
	v, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, x := range v.(*Dict).All() {
		if n++; x != "kept" {
			t.Errorf("value %d became %v", n, x)
		}
	}
	if n != 3 {
		t.Errorf("%d keys", n)
	}
}
