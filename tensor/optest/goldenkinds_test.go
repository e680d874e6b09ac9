package optest

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// goldenCases returns all cases of the golden files, with the files they are from.
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

// kinds are what the golden cases of an op must cover, by what is in them or by how their names begin. Elementwise functions of
// floats meet each extreme, as does any operand that an extreme case names so.
var (
	kinds        = []string{"ordinary", "strided", "broadcast", "empty", "extreme"}
	elementKinds = []string{"ordinary", "strided", "broadcast", "empty", "NaN", "infinity", "denormal"}
)

// kindsOf says which kinds a case is of.
func kindsOf(c golden.Case) (has []string) {
	name := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) })
	}
	strided, wide, empty, extreme := name("transposed", "strided", "narrowed"), name("broadcast", "expanded"), name("empty"), name("extreme")
	var first []int
	for i, o := range c.In {
		a := viewed(o)
		for _, v := range o.Views {
			strided = strided || v.Name != "expand"
			wide = wide || v.Name == "expand"
		}
		if i == 0 {
			first = a.dims
		} else if !slices.Equal(first, a.dims) {
			wide = true
		}
		empty = empty || len(a.v) == 0
		for _, v := range a.v {
			switch {
			case v != v:
				has, extreme = append(has, "NaN"), true
			case math.IsInf(v, 0):
				has, extreme = append(has, "infinity"), true
			case v != 0 && math.Abs(v) < 0x1p-126:
				has, extreme = append(has, "denormal"), true
			case o.Base.DType == "I64" && math.Abs(v) >= 1<<62:
				extreme = true
			}
		}
	}
	for kind, is := range map[string]bool{"strided": strided, "broadcast": wide, "empty": empty, "ordinary": !strided && !empty && !extreme, "extreme": extreme} {
		if is {
			has = append(has, kind)
		}
	}
	return has
}

// Every op that PyTorch has is compared with it on every kind of operand.
func TestGoldenIsComplete(t *testing.T) {
	cases := goldenCases(t, "testdata")
	names := map[string][]string{}
	for _, e := range tensor.Declared() {
		if names[e.Name] = elementKinds; e.Result == tensor.Integral {
			names[e.Name] = kinds
		}
	}
	for _, r := range tensor.Reductions() {
		names[r.Name] = kinds
	}
	for _, r := range table() {
		op, _, _ := strings.Cut(r.op, " ") // "einsum ij->ji"
		if _, ok := goldenNames[r.op]; ok || r.op == "in place" {
			op = r.op
		}
		if names[op] == nil {
			names[op] = kinds
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
			for _, k := range kindsOf(c) {
				have[k] = true
			}
		}
		var missing []string
		for _, k := range kinds {
			if why := senseless[op+" "+k]; why != "" {
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
	for _, m := range []map[string]string{goldenNames, notInTorch, senseless} {
		for name := range m {
			if !used[name] {
				t.Errorf("%s is listed for the golden files, but no op needs it", name)
			}
		}
	}
}

// goldenNames are the golden cases of ops that have another name there: a part of a PyTorch function, or several of ours that are one.
var goldenNames = map[string]string{
	"pow": "pow_tensor", "pow_scalar": "pow", "pow_rsqrt": "pow", "clamp_min": "clamp", "clamp_max": "clamp", "gelu_tanh": "gelu", "logit_eps": "logit",
	"floor_divide": "div_floor", "floor_divide_integer": "floor_divide", "trunc_divide": "div_trunc", "remainder_integer": "remainder", "fmod_integer": "fmod",
	"HStack": "hstack", "VStack": "vstack", "Meshgrid": "meshgrid", "MeshgridXY": "meshgrid", "Max": "max", "Max index": "max", "Min": "min", "Min index": "min",
	"pad_circular": "pad", "pad_reflect": "pad", "pad_replicate": "pad", "like": "zeros_like",
}

// notInTorch are the ops without golden cases.
var notInTorch = map[string]string{
	"in":       "scopes are this library's",
	"in place": "held to the forms that return a new tensor, bit by bit",
	"cast":     "held to PyTorch's casts by their own table",
}

// senseless are the kinds of operands that an op cannot have.
var senseless = map[string]string{}
