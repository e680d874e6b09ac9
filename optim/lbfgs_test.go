package optim_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// valley is the function for which the golden file records PyTorch's steps. It has two parameters:
// a vector and a strided matrix.
type valley struct {
	x, c *tensor.Tensor
	sign float64
}

func newValley(dev device.Device, sign float64) *valley {
	on := tensor.Root().On(dev)
	return &valley{on.From([]float64{-1.2, 1}).RequiresGrad(), on.From([][]float64{{0.5, 3}, {1, 2.5}}).T().RequiresGrad(), sign}
}

func (v *valley) params() []*tensor.Tensor { return []*tensor.Tensor{v.x, v.c} }

func (v *valley) value() (f float64) {
	for _, p := range v.params() {
		p.ZeroGrad()
	}
	tensor.Do(func(s *tensor.Scope) {
		x, c := v.x.In(s), v.c.In(s)
		a, b := x.Select(0, 0), x.Select(0, 1)
		square := func(t *tensor.Tensor) *tensor.Tensor { return t.PowScalar(2) }
		loss := square(a.RSubScalar(1)).Add(square(b.Sub(square(a))).MulScalar(100)).Add(c.SubScalar(2).PowScalar(4).Sum()).
			Add(c.Select(0, 0).Select(0, 0).Mul(c.Select(0, 1).Select(0, 0))).MulScalar(v.sign)
		loss.Backward()
		f = loss.Item()
	})
	return f
}

func (v *valley) flat() []float64 { return append(v.x.Detach().Floats(), v.c.Detach().Floats()...) }

// LBFGS takes the same steps as PyTorch: with a fixed length, with a line search, and when it
// maximises with a line search. Its state equals PyTorch's, and both states can be loaded. An
// optimizer that loads LBFGS's own state then takes the same steps too.
func TestLBFGSEqualsTorch(t *testing.T) {
	f, err := golden.Open("testdata/lbfgs.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	var trees map[string]map[string]any
	if err := json.Unmarshal([]byte(f.Meta["trees"]), &trees); err != nil {
		t.Fatal(err)
	}
	for _, dev := range []device.Device{cpu, emulatedGPU(t, "mem=64MiB")} {
		for name, c := range map[string]optim.LBFGSConfig{
			"fixed":     {LR: 0.001, MaxIter: 5},
			"wolfe":     {LR: 1, MaxIter: 4, History: 3, LineSearch: "strong_wolfe"},
			"wolfe max": {LR: 0.5, MaxIter: 6, MaxEval: 9, ToleranceGrad: 1e-5, ToleranceChange: 1e-7, LineSearch: "strong_wolfe", Maximize: true},
		} {
			if dev != cpu && name != "wolfe" {
				continue
			}
			sign := 1.0
			if c.Maximize {
				sign = -1
			}
			path, losses := recorded(t, f, name+"/path"), recorded(t, f, name+"/losses").Floats()
			v := newValley(dev, sign)
			opt := optim.NewLBFGS(v.params(), c)
			check := func(what string, v *valley, step int, first float64) {
				t.Helper()
				if !near(first, losses[step], 1e-9) {
					t.Fatalf("%s on %s, %s: step %d begins at %v, want %v", name, dev.Name(), what, step, first, losses[step])
				}
				for i, w := range path.Select(0, step).Floats() {
					if got := v.flat()[i]; !near(got, w, 1e-8) {
						t.Fatalf("%s on %s, %s: step %d element %d is %v, want %v", name, dev.Name(), what, step, i, got, w)
					}
				}
			}
			var again *valley
			var resumed *optim.LBFGS
			for step := range 8 {
				check("from the start", v, step, opt.Step(v.value))
				if resumed != nil {
					check("resumed", again, step, resumed.Step(again.value))
				}
				if step != 2 {
					continue
				}
				r := trajectory{file: f, tree: map[string]map[string]any{"f64": trees[name]}}
				tree := r.plainTree(t, v.x.Type())
				compareTrees(t, name, opt.StateDict(), tree, 1e-7)
				again = newValley(dev, sign)
				tensor.Do(func(s *tensor.Scope) {
					again.x.In(s).Copy(v.x)
					again.c.In(s).Copy(v.c)
				}, tensor.NoGrad())
				resumed = optim.NewLBFGS(again.params(), optim.LBFGSConfig{LR: 3})
				if err := resumed.LoadStateDict(opt.StateDict()); err != nil {
					t.Fatal(err)
				}
				if err := optim.NewLBFGS(again.params(), optim.LBFGSConfig{LR: 3}).LoadStateDict(tree); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A tree that does not fit causes an error and changes nothing.
func TestLBFGSWrongTrees(t *testing.T) {
	v := newValley(tensor.Zeros(1).Device(), 1)
	opt := optim.NewLBFGS(v.params(), optim.LBFGSConfig{LR: 1, LineSearch: "strong_wolfe"})
	if err := opt.LoadStateDict(opt.StateDict()); err != nil {
		t.Fatalf("before the first step: %v", err)
	}
	opt.Step(v.value)
	want := opt.StateDict()
	for text, spoil := range map[string]func(state map[string]any){
		"state[0][d] is":             func(m map[string]any) { m["d"] = tensor.Ones(2) },
		"[prev_flat_grad] is nil":    func(m map[string]any) { delete(m, "prev_flat_grad") },
		"[n_iter] is":                func(m map[string]any) { m["n_iter"] = "many" },
		"[old_dirs] is":              func(m map[string]any) { m["old_dirs"] = 3.0 },
		"[old_dirs][0] is":           func(m map[string]any) { m["old_dirs"] = []any{3.0} },
		"has 0 old_dirs":             func(m map[string]any) { m["old_dirs"] = []any{} },
		"state[0] has negative":      func(m map[string]any) { m["func_evals"] = int64(-1) },
		"[ro][0] is nil":             func(m map[string]any) { m["ro"] = []any{nil} },
		"state[0][d] is nil, want a": func(m map[string]any) { delete(m, "d") },
	} {
		tree := opt.StateDict()
		m := maps.Clone(tree["state"].(map[int64]any)[0].(map[string]any))
		spoil(m)
		tree["state"] = map[int64]any{0: m}
		var typed *optim.StateError
		if err := opt.LoadStateDict(tree); !errors.As(err, &typed) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
		compareTrees(t, text, opt.StateDict(), want, 0)
	}
	for name, tree := range map[string]map[string]any{
		"no state":     {"param_groups": want["param_groups"]},
		"another one":  {"param_groups": want["param_groups"], "state": map[int64]any{1: map[string]any{}}},
		"not a map":    {"param_groups": want["param_groups"], "state": map[int64]any{0: 3.0}},
		"no groups":    {"state": want["state"]},
		"other groups": {"state": want["state"], "param_groups": []any{}},
	} {
		if err := opt.LoadStateDict(tree); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	for _, c := range []optim.LBFGSConfig{{}, {LR: 1, LineSearch: "backtracking"}, {LR: 1, MaxIter: -1}, {LR: math.NaN()}} {
		func() {
			defer func() {
				if _, ok := recover().(*optim.Error); !ok {
					t.Errorf("%+v was taken", c)
				}
			}()
			optim.NewLBFGS(v.params(), c)
		}()
	}
}

func TestLBFGSWithoutClosure(t *testing.T) {
	opt := optim.NewLBFGS([]*tensor.Tensor{tensor.Ones(2).RequiresGrad()}, optim.LBFGSConfig{LR: 1})
	defer func() {
		if e, ok := recover().(*optim.Error); !ok || !strings.Contains(e.Msg, "closure") {
			t.Errorf("the panic is %v", e)
		}
	}()
	opt.Step(nil)
}
