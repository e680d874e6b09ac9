package optim_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// The state of a matrix has the means of rows and columns, over the last two dimensions, in the
// parameter's type. A state that does not fit is an error. 16-bit parameters are updated on the CPU
// and on a GPU.
func TestAdafactorState(t *testing.T) {
	gpu := emulatedGPU(t, "mem=16MiB")
	for _, m := range []tensor.Maker{tensor.Root().Typed(dtype.F32), tensor.Root().Typed(dtype.BF16), tensor.Root().On(gpu).Typed(dtype.F16), tensor.Root().On(gpu).Typed(dtype.F32)} {
		params := []*tensor.Tensor{m.Ones(3, 4).RequiresGrad(), m.Ones(2, 3, 4, 5).RequiresGrad(), m.Ones(6).RequiresGrad(), m.Ones().RequiresGrad(), m.Ones(0, 3).RequiresGrad()}
		opt := optim.NewAdafactor(params, optim.AdafactorConfig{LR: 0.125})
		for range 2 {
			for i, p := range params {
				p.SetGrad(m.Full(0.5+float64(i), p.Shape().Slice()...))
			}
			opt.Step()
		}
		tree := opt.StateDict()
		for i, names := range [][]string{{"col_var", "row_var", "step"}, {"col_var", "row_var", "step"}, {"step", "variance"}, {"step", "variance"}} {
			state := tree["state"].(map[int64]any)[int64(i)].(map[string]any)
			var got []string
			for k, v := range state {
				got = append(got, k)
				if x := v.(*tensor.Tensor); k != "step" && x.Type() != params[i].Type() {
					t.Errorf("%s is %v", k, x.Type())
				}
			}
			if slices.Sort(got); !slices.Equal(got, names) {
				t.Errorf("parameter %d has %v, want %v", i, got, names)
			}
			// Each of the two steps changes the parameter by a factor of 1 - 0.125, whatever the
			// gradients are.
			if w := params[i].Detach().Floats()[0]; math.Abs(w-0.875*0.875) > 0.02 {
				t.Errorf("parameter %d of %v on %s becomes %v", i, params[i].Type(), params[i].Device().Name(), w)
			}
		}
		row := tree["state"].(map[int64]any)[1].(map[string]any)["row_var"].(*tensor.Tensor)
		if dims := row.Shape().Slice(); !slices.Equal(dims, []int{2, 3, 4, 1}) {
			t.Errorf("row_var is %v", dims)
		}
		other := optim.NewAdafactor(params, optim.AdafactorConfig{LR: 0.5})
		if err := other.LoadStateDict(tree); err != nil || other.LR() != 0.125 {
			t.Errorf("loading gives %v, %v", other.LR(), err)
		}
		for says, change := range map[string]func(s map[string]any){
			`has no "col_var"`:               func(s map[string]any) { delete(s, "col_var") },
			"has shape [2, 2]":               func(s map[string]any) { s["row_var"] = tensor.Ones(2, 2) },
			"remembers of a parameter of sh": func(s map[string]any) { s["variance"] = tensor.Ones(3, 4) },
		} {
			tree := opt.StateDict()
			change(tree["state"].(map[int64]any)[0].(map[string]any))
			var e *optim.StateError
			if err := opt.LoadStateDict(tree); !errors.As(err, &e) || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
		}
	}
}

func TestAdafactorOptions(t *testing.T) {
	w := []*tensor.Tensor{tensor.Ones(2, 2).RequiresGrad()}
	for says, c := range map[string]optim.AdafactorConfig{
		"beta2_decay must not be positive": {LR: 1, Beta2Decay: 0.5},
		"d must be at least 1":             {LR: 1, D: 0.5},
		"eps[0] cannot be -1":              {LR: 1, Eps1: new(-1.0)},
		"eps[1] cannot be -1":              {LR: 1, Eps2: -1},
	} {
		func() {
			defer func() {
				if e, ok := recover().(*optim.Error); !ok || !strings.Contains(e.Error(), says) {
					t.Errorf("got %v, want %q", e, says)
				}
			}()
			optim.NewAdafactor(w, c)
		}()
	}
	g := optim.NewAdafactor(w, optim.AdafactorConfig{LR: 1}).Groups()[0]
	if v, _ := g.Option("eps"); v.([]any)[0] != nil || v.([]any)[1] != 1e-3 {
		t.Errorf("eps is %v", v)
	}
	if err := g.SetOption("eps", []any{1e-6, 1e-2}); err != nil {
		t.Error(err)
	}
	if v, _ := g.Option("eps"); v.([]any)[0] != 1e-6 || v.([]any)[1] != 1e-2 {
		t.Errorf("eps is %v", v)
	}
	if err := g.SetOption("eps", []any{nil, "much"}); err == nil {
		t.Error("eps takes a word")
	}
}

// The peak memory of a step depends only on the largest parameter, because the temporary tensors of
// a parameter are freed before the next parameter is updated.
func TestAdafactorPeak(t *testing.T) {
	gpu := emulatedGPU(t, "mode=meta,mem=1GiB")
	var params []*tensor.Tensor
	for range 16 {
		p := tensor.Root().On(gpu).Zeros(512, 512).RequiresGrad()
		p.SetGrad(tensor.Root().On(gpu).Zeros(512, 512))
		params = append(params, p)
	}
	opt := optim.NewAdafactor(params, optim.AdafactorConfig{LR: 0.1})
	held := gpu.Stats().Allocated
	gpu.ResetPeak()
	opt.Step()
	if one := 512 * 512 * 4; gpu.Stats().AllocatedPeak-held > 7*one {
		t.Errorf("a step takes %d bytes, a parameter has %d", gpu.Stats().AllocatedPeak-held, one)
	}
}
