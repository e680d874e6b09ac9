package optest

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// goldenCases returns all cases of the golden files, by file.
func goldenCases(t *testing.T, folder string) map[string][]golden.Case {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.safetensors.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files in %s: %v, %v", folder, files, err)
	}
	cases := map[string][]golden.Case{}
	for _, path := range files {
		f, err := golden.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Cases {
			cases[c.Op] = append(cases[c.Op], c)
		}
	}
	return cases
}

// elementKinds lists the kinds of operands that the golden cases must contain for every elementwise
// function of floats.
var elementKinds = []string{"ordinary", "strided", "broadcast", "empty", "NaN", "infinity", "denormal"}

// TestGoldenIsComplete checks that the golden cases contain every op that PyTorch has, with every
// kind of operand.
func TestGoldenIsComplete(t *testing.T) {
	cases := goldenCases(t, "testdata")
	names := map[string][]string{}
	for _, e := range tensor.Declared() {
		if names[e.Name] = elementKinds; e.Result == tensor.Integral {
			names[e.Name] = golden.Kinds
		}
	}
	for _, r := range tensor.Reductions() {
		names[r.Name] = golden.Kinds
	}
	for _, r := range table() {
		op, _, _ := strings.Cut(r.op, " ") // a name such as "einsum ij->ji"
		if _, ok := goldenNames[r.op]; ok || r.op == "in place" {
			op = r.op
		}
		if names[op] == nil {
			names[op] = golden.Kinds
		}
	}
	used := map[string]bool{}
	for _, op := range slices.Sorted(maps.Keys(names)) {
		called, kinds := op, names[op]
		if as, ok := goldenNames[op]; ok {
			called, used[op] = as, true
		}
		if why, ok := notInTorch[op]; ok {
			used[op] = true
			if len(cases[called]) > 0 {
				t.Errorf("%s has golden cases: it is listed as none of PyTorch's (%s)", op, why)
			}
			continue
		}
		have := map[string]bool{}
		for _, c := range cases[called] {
			for _, k := range c.Kinds() {
				have[k] = true
			}
		}
		var missing []string
		for _, k := range kinds {
			if why := invalidKinds[op+" "+k]; why != "" {
				used[op+" "+k] = true
				if have[k] {
					t.Errorf("%s has golden cases of kind %s: it is listed as without (%s)", op, k, why)
				}
				continue
			}
			if !have[k] {
				missing = append(missing, k)
			}
		}
		if len(missing) == len(kinds) {
			t.Errorf("%s: no golden cases", op)
		} else if len(missing) > 0 {
			t.Errorf("%s: no golden case with operands of kind %s", op, strings.Join(missing, ", "))
		}
		if len(cases[called]) < 5 && len(missing) < len(kinds) {
			t.Errorf("%s: %d golden cases, want five", op, len(cases[called]))
		}
	}
	for _, m := range []map[string]string{goldenNames, notInTorch, invalidKinds} {
		for name := range m {
			if !used[name] {
				t.Errorf("%s is listed for the golden files, but no op needs it", name)
			}
		}
	}
}

// goldenNames maps an op to the name of its golden cases, if the two names differ. Some of these
// ops are a part of a PyTorch function, or one of several ops for one PyTorch function. Others
// stand for several PyTorch functions, such as conv, or are only spelled differently, such as
// HStack.
var goldenNames = map[string]string{
	"pow": "pow_tensor", "pow_scalar": "pow", "pow_rsqrt": "pow", "pow_cube": "pow", "pow_fraction": "pow", "clamp_min": "clamp", "clamp_plain": "clamp", "clamp_max": "clamp", "gelu_tanh": "gelu", "logit_eps": "logit",
	"floor_divide": "div_floor", "floor_divide_integer": "floor_divide", "trunc_divide": "div_trunc", "remainder_integer": "remainder", "fmod_integer": "fmod",
	"HStack": "hstack", "VStack": "vstack", "Meshgrid": "meshgrid", "MeshgridXY": "meshgrid", "Max": "max", "Max index": "max", "Min": "min", "Min index": "min",
	"pad_circular": "pad", "pad_reflect": "pad", "pad_replicate": "pad", "like": "zeros_like",
	"conv": "conv2d", "conv_transpose": "conv_transpose2d", "max_pool": "max_pool2d", "avg_pool": "avg_pool2d", "lp_pool": "lp_pool2d",
	"max_unpool": "max_unpool2d", "fractional_max_pool": "fractional_max_pool2d", "adaptive_avg_pool": "adaptive_avg_pool2d", "adaptive_max_pool": "adaptive_max_pool2d",
}

// notInTorch lists the ops without golden cases, each with the reason.
var notInTorch = map[string]string{
	"in":       "scopes are this library's",
	"in place": "held to the forms that return a new tensor, bit by bit",
	"cast":     "held to PyTorch's casts by their own table",
	"expr":     "made of ops that have them, and held to differences",

	"int_mm":      "PyTorch's _int_mm is private; sums of integers are exact, so the reference decides",
	"linear_int8": "PyTorch quantises with other scales; held to IntMM, bit by bit",

	"layer_norm_as": "held to LayerNorm and a cast, bit by bit", "rms_norm_as": "held to RMSNorm and a cast, bit by bit",

	"broadcast_to_devices": "PyTorch has it for GPUs alone", "scatter_to_devices": "PyTorch has it for GPUs alone",
	"gather_to_device": "PyTorch has it for GPUs alone", "reduce_add_to_device": "PyTorch has it for GPUs alone",
}

// invalidKinds lists the kinds of operands that an op cannot have, each with the reason.
var invalidKinds = map[string]string{
	"quantile empty": "PyTorch refuses what has no elements", "nanquantile empty": "PyTorch refuses what has no elements",
}
