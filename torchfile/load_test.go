package torchfile

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func load(t *testing.T, path string, opts ...Option) any {
	t.Helper()
	v, err := Load(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ints(v any) []int {
	var s []int
	for _, x := range v.([]any) {
		s = append(s, int(x.(int64)))
	}
	return s
}

// checkTold compares each tensor with its description, which the file contains too.
func checkTold(t *testing.T, m map[string]any) {
	t.Helper()
	checked := 0
	for name, v := range m {
		x, ok := v.(*tensor.Tensor)
		if !ok {
			continue
		}
		checked++
		if got, want := "torch."+x.Type().String(), m[name+".type"]; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if want := ints(m[name+".shape"]); !slices.Equal(x.Shape().Slice(), want) {
			t.Errorf("%s: shape %v, want %v", name, x.Shape(), want)
		}
		if want := ints(m[name+".stride"]); x.Size() > 0 && !slices.Equal(x.Strides().Slice(), want) {
			t.Errorf("%s: strides %v, want %v", name, x.Strides(), want)
		}
		var want []float64
		for _, f := range m[name+".values"].([]any) {
			want = append(want, f.(float64))
		}
		if got := x.Floats(); !slices.Equal(got, want) || len(got) > 1 && math.Signbit(got[1]) != math.Signbit(want[1]) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if checked == 0 {
		t.Error("there are no tensors")
	}
}

// Files that PyTorch wrote in both formats load correctly, both read and mapped into memory.
func TestLoadWhatTorchWrote(t *testing.T) {
	for _, name := range []string{"everything", "everything_legacy"} {
		for _, opts := range [][]Option{nil, {Mapped()}} {
			path := filepath.Join("testdata", name+".pt")
			m := load(t, path, opts...).(map[string]any)
			told := m["tensors"].(map[string]any)
			checkTold(t, told)
			base, row := told["base"].(*tensor.Tensor), told["row"].(*tensor.Tensor)
			if base.Storage() != row.Storage() {
				t.Error("views do not share their memory")
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			row.Fill(-1)
			if base.Select(0, 1).Select(0, 2).Floats()[0] != -1 {
				t.Error("the base does not see what is written to a view")
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Fatal("the file was written to")
			}
			delete(m, "tensors")
			for _, x := range []struct {
				key  string
				want any
			}{
				{"numbers", []any{int64(0), int64(1), int64(-1), int64(255), int64(256), int64(65536), int64(-1 << 31), int64(1 << 31), int64(math.MinInt64),
					int64(math.MaxInt64), new(big.Int).Lsh(big.NewInt(1), 64), new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 70)), 1.5, math.Inf(1), true, false, nil}},
				{"strings", []any{"", "a", "ä∂\U0001f525", strings.Repeat("x", 300)}},
				{"bytes", []byte("\x00\xffab")}, {"bytearray", []byte("xyz")},
				{"tuple", []any{int64(1), []any{int64(2), []any{}}, []any{int64(3)}}},
				{"set", []any{int64(5)}},
				{"order", map[string]any{"a": int64(2), "z": int64(1)}},
				{"size", []any{int64(2), int64(3)}}, {"dtype", "torch.bfloat16"}, {"device", "cuda:1"},
			} {
				if !reflect.DeepEqual(m[x.key], x.want) {
					t.Errorf("%s: %#v, want %#v", x.key, m[x.key], x.want)
				}
			}
			n := m["ints"].(map[int64]any)
			if n[0] != "zero" || n[-7].(map[string]any)["exp_avg"].(*tensor.Tensor).Item() != 1 {
				t.Errorf("ints: %v", n)
			}
			d := m["mixed"].(*Dict)
			if v, ok := d.Get(nil); !ok || v != 2.5 || d.Len() != 5 {
				t.Errorf("mixed: %v", d)
			}
			if v, ok := d.Get(Tuple{int64(1), "c"}); !ok || v != nil {
				t.Errorf("a tuple as key: %v, %v", v, ok)
			}
			shared := m["shared"].([]any)
			if &shared[0].([]any)[0] != &shared[1].([]any)[0] {
				t.Error("a list that is there twice was copied")
			}
		}
	}
	checkTold(t, load(t, "testdata/protocol5.pt").(map[string]any))
}

func TestExact(t *testing.T) {
	d := load(t, "testdata/everything.pt", Exact()).(*Dict)
	get := func(k string) any { v, _ := d.Get(k); return v }
	var keys []string
	for k := range get("order").(*Dict).All() {
		keys = append(keys, k.(string))
	}
	if !slices.Equal(keys, []string{"z", "a"}) {
		t.Errorf("keys %v", keys)
	}
	if got := get("tuple"); !reflect.DeepEqual(got, Tuple{int64(1), Tuple{int64(2), Tuple{}}, []any{int64(3)}}) {
		t.Errorf("%#v", got)
	}
	if got := get("set"); !reflect.DeepEqual(got, Set{int64(5)}) {
		t.Errorf("%#v", got)
	}
	if get("dtype") != dtype.BF16 || get("device") != Device("cuda:1") {
		t.Errorf("%v %v", get("dtype"), get("device"))
	}
	if get("ints").(*Dict).Len() != 2 {
		t.Error("ints")
	}
}

func TestStateDict(t *testing.T) {
	for _, name := range []string{"training", "training_legacy"} {
		tree := load(t, "testdata/"+name+".pt")
		sd, err := StateDict(tree)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for k, x := range sd {
			names = append(names, fmt.Sprint(k, x.Shape()))
		}
		slices.Sort(names)
		want := "0.bias[4] 0.weight[4, 3] 1.bias[4] 1.num_batches_tracked[] 1.running_mean[4] 1.running_var[4] 1.weight[4] 3.bias[2] 3.weight[2, 4]"
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		o := tree.(map[string]any)["optimizer"].(map[string]any)
		state := o["state"].(map[int64]any)[2].(map[string]any)
		group := o["param_groups"].([]any)[0].(map[string]any)
		if state["step"].(*tensor.Tensor).Item() != 3 || state["exp_avg_sq"].(*tensor.Tensor).Dim(0) != 4 || group["lr"] != 1e-3 || len(group["params"].([]any)) != 6 {
			t.Errorf("%v %v", state, group)
		}
	}
	x, y := tensor.Ones(1), tensor.Ones(2)
	type m = map[string]any
	for _, c := range []struct {
		tree any
		want string // names of the tensors, or the error
	}{
		{m{"a": x, "b": y}, "a b"},
		{m{"state_dict": m{"a": x}, "epoch": int64(1)}, "a"},
		{m{"checkpoint": int64(1), "state_dict": m{"model": m{"a": x, "b": nil}, "step": int64(1)}}, "a"},
		{m{"model": m{"weight": x}, "head": y}, "head model.weight"},
		{m{"model": "resnet", "state_dict": m{"a": x}}, "a"},
		{m{"g": m{"a": x}, "d": m{"a": y}}, "d.a g.a"},
		{m{"a.b": x, "a": m{"b": y}}, `torchfile: the name "a.b" appears twice when dicts are joined by dots`},
		{m{"epoch": int64(1)}, `torchfile: no state dict: there is no tensor in the dict with the keys "epoch"`},
		{[]any{x}, "torchfile: no state dict: a list instead of a dict with names"},
		{x, "torchfile: no state dict: a tensor instead of a dict with names"},
		{map[int64]any{0: x}, "torchfile: no state dict: a dict with other keys instead of a dict with names"},
	} {
		sd, err := StateDict(c.tree)
		got := ""
		if err != nil {
			if got = err.Error(); !errors.As(err, new(*Error)) {
				t.Errorf("%T", err)
			}
		} else {
			var keys []string
			for k := range sd {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			got = strings.Join(keys, " ")
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.tree, got, c.want)
		}
	}
}

// The error about a value of an unsupported kind names the kind.
func TestRefusedByName(t *testing.T) {
	for name, want := range map[string]string{
		"complex":       "torch.ComplexFloatStorage holds complex tensors, which are not supported",
		"complexnumber": "builtins.complex makes complex numbers, which are not supported",
		"sparse":        "torch._utils._rebuild_sparse_tensor makes sparse tensors, which are not supported: save x.to_dense()",
		"quantized":     "torch._utils._rebuild_qtensor makes quantized tensors, which are not supported: save x.dequantize()",
		"float8":        "torch.float8_e4m3fn is a type that is not supported",
		"uint16":        "torch.uint16 is a type that is not supported",
		"numpy":         "is of NumPy: save torch.from_numpy(a) and a.item()",
		"module":        "torch.nn.modules.activation.ReLU is a module: save model.state_dict() instead of the model",
		"storage":       "the file contains the storage \"0\" without a tensor; save the tensor",
		"script":        "this is a TorchScript archive, which holds a program: save model.state_dict() instead",
	} {
		path := filepath.Join("testdata", "refused", name+".pt")
		_, err := Load(path)
		var e *Error
		if e, _ = err.(*Error); e == nil || !strings.Contains(e.Msg, want) || !strings.HasPrefix(err.Error(), "torchfile: "+path+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// StateDict joins the names of nested dicts. With long names, their total length grows with the
// square of the depth. The error must come before memory runs out.
func TestLongNamesInLongNames(t *testing.T) {
	tree := any(map[string]any{"w": tensor.Ones(1)})
	for range 900 {
		tree = map[string]any{strings.Repeat("a", 1<<10): tree}
	}
	var e *Error
	if _, err := StateDict(tree); !errors.As(err, &e) || !strings.Contains(e.Msg, "more than 67108864 bytes") {
		t.Errorf("%v", err)
	}
}
