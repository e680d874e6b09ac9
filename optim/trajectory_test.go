package optim_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// makers maps each class in the golden file to a function that makes an optimizer with the given
// learning rates and no other settings.
var makers = map[string]func(lists [][]*tensor.Tensor, lr []float64) optim.Optimizer{
	"SGD": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewSGDGroups(with(l, lr, func(v float64) optim.SGDConfig { return optim.SGDConfig{LR: v} })...)
	},
	"Adam": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewAdamGroups(with(l, lr, func(v float64) optim.AdamConfig { return optim.AdamConfig{LR: v} })...)
	},
	"AdamW": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewAdamWGroups(with(l, lr, func(v float64) optim.AdamConfig { return optim.AdamConfig{LR: v, WeightDecay: 0.01} })...)
	},
	"NAdam": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewNAdamGroups(with(l, lr, func(v float64) optim.NAdamConfig { return optim.NAdamConfig{LR: v} })...)
	},
	"RAdam": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewRAdamGroups(with(l, lr, func(v float64) optim.RAdamConfig { return optim.RAdamConfig{LR: v} })...)
	},
	"RMSprop": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewRMSpropGroups(with(l, lr, func(v float64) optim.RMSpropConfig { return optim.RMSpropConfig{LR: v} })...)
	},
	"Adagrad": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewAdagradGroups(with(l, lr, func(v float64) optim.AdagradConfig { return optim.AdagradConfig{LR: v} })...)
	},
	"Adadelta": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewAdadeltaGroups(with(l, lr, func(v float64) optim.AdadeltaConfig { return optim.AdadeltaConfig{LR: v} })...)
	},
	"Adamax": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewAdamaxGroups(with(l, lr, func(v float64) optim.AdamaxConfig { return optim.AdamaxConfig{LR: v} })...)
	},
	"ASGD": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewASGDGroups(with(l, lr, func(v float64) optim.ASGDConfig { return optim.ASGDConfig{LR: v} })...)
	},
	"Rprop": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewRpropGroups(with(l, lr, func(v float64) optim.RpropConfig { return optim.RpropConfig{LR: v} })...)
	},
	"Adafactor": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewAdafactorGroups(with(l, lr, func(v float64) optim.AdafactorConfig { return optim.AdafactorConfig{LR: v} })...)
	},
	"SparseAdam": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewSparseAdamGroups(with(l, lr, func(v float64) optim.SparseAdamConfig { return optim.SparseAdamConfig{LR: v} })...)
	},
	"Lion": func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewLionGroups(with(l, lr, func(v float64) optim.LionConfig { return optim.LionConfig{LR: v} })...)
	},
}

func with[C any](lists [][]*tensor.Tensor, lr []float64, config func(lr float64) C) (out []optim.With[C]) {
	for i, l := range lists {
		out = append(out, optim.With[C]{Params: l, Config: config(lr[i])})
	}
	return out
}

// A trajectory is a case of the golden file.
type trajectory struct {
	golden.Case
	groups []map[string]any
	tree   map[string]map[string]any // state after step 10, by the type "f32" or "f64"
	file   *golden.File
}

const (
	trajectorySteps = 20
	savedAfter      = 10
)

func trajectories(t *testing.T) (out []trajectory) {
	t.Helper()
	f, err := golden.Open("testdata/trajectories.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	trees := map[string]map[string]map[string]any{}
	if err := json.Unmarshal([]byte(f.Meta["trees"]), &trees); err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Cases {
		r := trajectory{Case: c, file: f, tree: trees[c.Op+"/"+c.Name]}
		if err := json.Unmarshal(c.Args["groups"], &r.groups); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// params makes the case's parameters on a device: a scalar, a vector of five elements, and a
// transposed matrix.
func (r *trajectory) params(dev device.Device, ty dtype.Type) (out []*tensor.Tensor) {
	for _, o := range r.In[:3] {
		p := tensor.Root().On(dev).From(o.Base.Float32s()).Reshape(o.Base.Shape...).Cast(ty)
		for _, v := range o.Views {
			p = p.Transpose(v.Args[0], v.Args[1])
		}
		out = append(out, p.RequiresGrad())
	}
	return out
}

// make returns the optimizer with the options of the case. Options that the case does not list must
// have torch's defaults.
func (r *trajectory) make(t *testing.T, params []*tensor.Tensor) optim.Optimizer {
	t.Helper()
	lists, rates := [][]*tensor.Tensor{params}, []float64{}
	if len(r.groups) == 2 {
		lists = [][]*tensor.Tensor{params[:2], params[2:]}
	}
	for _, g := range r.groups {
		rates = append(rates, g["lr"].(float64))
	}
	opt := makers[r.Op](lists, rates)
	// Only the constructor can set this option.
	if v, ok := r.groups[0]["initial_accumulator_value"]; ok {
		opt = optim.NewAdagrad(params, optim.AdagradConfig{LR: rates[0], InitialAccumulator: v.(float64)})
	}
	for i, g := range r.groups {
		// In sorted order, "momentum" is set before "nesterov", which requires it.
		for _, k := range slices.Sorted(maps.Keys(g)) {
			if k == "lr" {
				continue
			}
			if err := opt.Groups()[i].SetOption(k, g[k]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return opt
}

// gradients sets the gradients of a step. The second parameter has no gradient in steps 3, 10 and
// 17.
func (r *trajectory) gradients(params []*tensor.Tensor, step int) {
	for i, p := range params {
		if i == 1 && step%7 == 3 {
			p.ZeroGrad()
			continue
		}
		g := r.In[3+i].Base
		n := p.Size()
		p.SetGrad(tensor.Root().On(p.Device()).From(g.Float32s()[step*n : (step+1)*n]).Reshape(p.Shape().Slice()...).Cast(p.Type()))
	}
}

// check compares the parameters after a step with PyTorch's parameters.
func (r *trajectory) check(t *testing.T, params []*tensor.Tensor, step int, what string) {
	t.Helper()
	for i, p := range params {
		want, tol := r.want(i, p.Type())
		n := p.Size()
		for k, got := range p.Detach().Floats() {
			if w := want[step*n+k]; !near(got, w, tol) {
				t.Fatalf("%s %q %v on %s, %s: step %d parameter %d element %d: %v want %v", r.Op, r.Name, p.Type(), p.Device().Name(), what, step, i, k, got, w)
			}
		}
	}
}

// checkResumed compares the parameters with those of a torch optimizer that has loaded the same
// state.
func (r *trajectory) checkResumed(t *testing.T, params []*tensor.Tensor, step int) {
	t.Helper()
	label := map[dtype.Type]string{dtype.F32: "f32", dtype.F64: "f64"}[params[0].Type()]
	for i, p := range params {
		g, err := r.file.Tensor(fmt.Sprintf("%s/%s/resumed%d_%s", r.Op, r.Name, i, label))
		if err != nil { // torch's resumed optimizer gave exactly the numbers of the original
			r.check(t, params, step, "resumed")
			return
		}
		_, tol := r.want(i, p.Type())
		n := p.Size()
		for k, got := range p.Detach().Floats() {
			if w := g.Float64s()[(step-savedAfter)*n+k]; !near(got, w, tol) {
				t.Fatalf("%s %q resumed on %s: step %d parameter %d element %d: %v want %v", r.Op, r.Name, p.Device().Name(), step, i, k, got, w)
			}
		}
	}
}

func near(got, want, tol float64) bool {
	return math.Abs(got-want) <= tol*(1+math.Abs(want)) || math.IsNaN(got) && math.IsNaN(want)
}

func (r *trajectory) want(i int, ty dtype.Type) ([]float64, float64) {
	if ty == dtype.F64 {
		return r.Out[i].F64.Float64s(), 1e-14
	}
	return widen(r.Out[i].F32.Float32s()), 4e-7
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// plainTree converts the recorded JSON to the tree that a reader of torch's files returns.
func (r *trajectory) plainTree(t *testing.T, ty dtype.Type) map[string]any {
	t.Helper()
	var turn func(v any) any
	turn = func(v any) any {
		switch v := v.(type) {
		case []any:
			out := make([]any, len(v))
			for i := range v {
				out[i] = turn(v[i])
			}
			return out
		case map[string]any:
			if name, ok := v["tensor"].(string); ok && len(v) == 1 {
				g, err := r.file.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				if g.DType == "F64" {
					return tensor.FromBytes(dtype.F64, g.Data, g.Shape...)
				}
				return tensor.FromBytes(dtype.F32, g.Data, g.Shape...)
			}
			out := map[string]any{}
			for k := range v {
				out[k] = turn(v[k])
			}
			return out
		}
		return v
	}
	label := "f32"
	if ty == dtype.F64 {
		label = "f64"
	}
	tree := turn(r.tree[label]).(map[string]any)
	states := map[int64]any{}
	for k, v := range tree["state"].(map[string]any) {
		var id int64
		if _, err := fmt.Sscan(k, &id); err != nil {
			t.Fatal(err)
		}
		states[id] = v
	}
	tree["state"] = states
	for _, g := range tree["param_groups"].([]any) {
		ids := g.(map[string]any)["params"].([]any)
		for i := range ids {
			ids[i] = int64(ids[i].(float64))
		}
	}
	return tree
}

// compareTrees reports where the structures of two trees differ, and where numbers differ by more
// than tol.
func compareTrees(t *testing.T, path string, got, want any, tol float64) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			t.Fatalf("%s is a %T, want a map", path, got)
		}
		for k := range w {
			if _, ok := g[k]; !ok {
				t.Fatalf("%s has no %q", path, k)
			}
			compareTrees(t, path+"."+k, g[k], w[k], tol)
		}
		if len(g) != len(w) {
			t.Fatalf("%s has %d entries %v, want %d", path, len(g), g, len(w))
		}
	case map[int64]any:
		g := got.(map[int64]any)
		if len(g) != len(w) {
			t.Fatalf("%s has %d entries, want %d", path, len(g), len(w))
		}
		for k := range w {
			compareTrees(t, fmt.Sprintf("%s.%d", path, k), g[k], w[k], tol)
		}
	case []any:
		g := got.([]any)
		if len(g) != len(w) {
			t.Fatalf("%s has %d entries, want %d", path, len(g), len(w))
		}
		for k := range w {
			compareTrees(t, fmt.Sprintf("%s.%d", path, k), g[k], w[k], tol)
		}
	case *tensor.Tensor:
		g := got.(*tensor.Tensor)
		if g.Shape() != w.Shape() || g.Type() != w.Type() {
			t.Fatalf("%s is %v %v, want %v %v", path, g.Shape(), g.Type(), w.Shape(), w.Type())
		}
		a, b := g.Floats(), w.Floats()
		for i := range b {
			if !near(a[i], b[i], tol) {
				t.Fatalf("%s element %d: %v want %v", path, i, a[i], b[i])
			}
		}
	case float64:
		switch g := got.(type) {
		case float64:
			if g != w && !near(g, w, tol) {
				t.Fatalf("%s is %v, want %v", path, g, w)
			}
		case int64:
			if float64(g) != w {
				t.Fatalf("%s is %v, want %v", path, g, w)
			}
		default:
			t.Fatalf("%s is a %T, want %v", path, got, w)
		}
	default:
		if got != want {
			t.Fatalf("%s is %v, want %v", path, got, want)
		}
	}
}

func emulatedGPU(t *testing.T, spec string) *cuda.Device {
	t.Helper()
	d, err := cuda.Emulate("emulate," + spec)
	if err != nil {
		t.Fatal(err)
	}
	return d[0]
}

// Every optimizer follows PyTorch's trajectories in float32 and float64, on the CPU and on an
// emulated GPU. After ten steps its state equals PyTorch's tree. Another optimizer that loads
// PyTorch's tree continues as PyTorch did.
func TestTrajectoriesAndStatesEqualTorch(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpu := emulatedGPU(t, "mem=64MiB")
	count := map[string]int{}
	for _, r := range trajectories(t) {
		if makers[r.Op] == nil {
			continue
		}
		count[r.Op]++
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
			for _, dev := range []device.Device{cpu, gpu} {
				params := r.params(dev, ty)
				if params[2].IsContiguous() {
					t.Fatal("the third parameter is meant to be strided")
				}
				opt := r.make(t, params)
				var resumed optim.Optimizer
				var others []*tensor.Tensor
				for step := range trajectorySteps {
					r.gradients(params, step)
					opt.Step()
					r.check(t, params, step, "from the start")
					if resumed != nil {
						r.gradients(others, step)
						resumed.Step()
						r.checkResumed(t, others, step)
					}
					if step+1 == savedAfter {
						tree := r.plainTree(t, ty)
						_, tol := r.want(0, ty)
						compareTrees(t, r.Op+" "+r.Name, opt.StateDict(), tree, 10*tol)
						others, resumed = r.resumed(t, dev, ty, tree, step)
					}
				}
			}
		}
	}
	for op := range makers {
		if count[op] < 2 {
			t.Errorf("only %d trajectories of %s", count[op], op)
		}
	}
}

// resumed makes a new optimizer whose options differ much from those of the case, and then loads
// torch's tree into it.
func (r *trajectory) resumed(t *testing.T, dev device.Device, ty dtype.Type, tree map[string]any, step int) ([]*tensor.Tensor, optim.Optimizer) {
	t.Helper()
	params := r.params(dev, ty)
	tensor.Do(func(s *tensor.Scope) {
		for i, p := range params {
			want, _ := r.want(i, ty)
			n := p.Size()
			p.In(s).Copy(s.From(want[step*n : (step+1)*n]).Reshape(p.Shape().Slice()...))
		}
	}, tensor.NoGrad())
	lists, rates := [][]*tensor.Tensor{params}, []float64{0.5, 0.25}
	if len(r.groups) == 2 {
		lists = [][]*tensor.Tensor{params[:2], params[2:]}
	}
	opt := makers[r.Op](lists, rates)
	if err := opt.LoadStateDict(tree); err != nil {
		t.Fatalf("%s %q: %v", r.Op, r.Name, err)
	}
	compareTrees(t, r.Op+" "+r.Name+" loaded", reloaded(opt.StateDict(), ty), tree, 0)
	for _, g := range opt.Groups() {
		for _, p := range g.Params {
			if p.Device() != dev {
				t.Fatalf("a parameter moved to %v", p.Device())
			}
		}
	}
	return params, opt
}

// reloaded returns the tree with scalars in the parameter's type. torch converts scalars to this
// type when loading.
func reloaded(tree map[string]any, ty dtype.Type) map[string]any {
	for _, v := range tree["state"].(map[int64]any) {
		m := v.(map[string]any)
		for k, e := range m {
			if x := e.(*tensor.Tensor); x.Rank() == 0 && ty == dtype.F64 && strings.Contains(" mu_product mu eta ", " "+k+" ") {
				m[k] = x.Cast(dtype.F32)
			}
		}
	}
	return tree
}
