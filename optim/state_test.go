package optim_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

func ones(n int) *tensor.Tensor { return tensor.Ones(n).RequiresGrad() }

// snapshot returns the bits of the parameters and of the optimizer's state.
func snapshot(opt optim.Optimizer) []byte {
	var b bytes.Buffer
	for _, p := range opt.Params() {
		b.Write(p.Detach().Bytes())
	}
	tree := opt.StateDict()["state"].(map[int64]any)
	for id := range int64(len(opt.Params())) {
		if tree[id] == nil {
			b.WriteString("none")
			continue
		}
		m := tree[id].(map[string]any)
		for _, k := range []string{"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"} {
			if m[k] != nil {
				b.WriteString(k)
				b.Write(m[k].(*tensor.Tensor).Bytes())
			}
		}
	}
	return b.Bytes()
}

// If memory runs out at any point of Step, parameters and state do not change. The same Step
// succeeds once there is enough memory.
func TestStepIsWholeOrNothing(t *testing.T) {
	gpu := emulatedGPU(t, "mem=2MiB")
	s := tensor.NewScope(tensor.On(gpu))
	var params []*tensor.Tensor
	for range 4 {
		p := s.Ones(10).RequiresGrad()
		p.SetGrad(s.Full(0.5, 10))
		params = append(params, p)
	}
	opt := optim.NewAdamGroups(optim.With[optim.AdamConfig]{Params: params[:2], Config: optim.AdamConfig{LR: 0.1}},
		optim.With[optim.AdamConfig]{Params: params[2:], Config: optim.AdamConfig{LR: 0.2}})
	var ballast []*tensor.Tensor
	for _, n := range []int{64 << 10, 512} {
		ballast = nil
		for x := (*tensor.Tensor)(nil); tensor.Try(func() { x = s.Typed(dtype.U8).Empty(n) }) == nil; {
			ballast = append(ballast, x)
		}
	}
	if len(ballast) < 20 {
		t.Fatalf("only %d blocks to give back", len(ballast))
	}
	before := snapshot(opt)
	failures := 0
	for {
		err := tensor.Try(opt.Step)
		if err == nil {
			break
		}
		if !errors.Is(err, device.ErrOutOfMemory) {
			t.Fatal(err)
		}
		failures++
		if !bytes.Equal(before, snapshot(opt)) || opt.Steps() != 0 {
			t.Fatalf("after %d failures parameters or state have changed", failures)
		}
		ballast[0].Free()
		ballast = ballast[1:]
	}
	if failures < 10 {
		t.Errorf("only %d failures: the step is meant to fail at every allocation", failures)
	}
	if bytes.Equal(before, snapshot(opt)) || opt.Steps() != 1 {
		t.Error("the step that succeeded changed nothing")
	}
	for i, p := range params {
		want := 0.9
		if i >= 2 {
			want = 0.8
		}
		for _, v := range p.Detach().Floats() {
			if !near(v, want, 1e-6) {
				t.Fatalf("parameter %d is %v, want %v", i, v, want)
			}
		}
	}
	s.Close()
}

// One launch updates all parameters of a group. Another group needs another launch.
func TestOneLaunchAGroup(t *testing.T) {
	gpu := emulatedGPU(t, "mem=16MiB")
	tensor.Do(func(s *tensor.Scope) {
		var params []*tensor.Tensor
		for i := range 6 {
			p := s.Ones(3 + i).RequiresGrad()
			p.SetGrad(s.Ones(3 + i))
			params = append(params, p)
		}
		for op, mk := range makers {
			if op == "Adafactor" { // does not work element by element
				continue
			}
			for groups, lists := range map[uint64][][]*tensor.Tensor{1: {params}, 2: {params[:2], params[2:]}} {
				opt := mk(lists, []float64{0.1, 0.2})
				opt.Step() // allocates the state
				before := gpu.Counters().Launches
				opt.Step()
				want := groups
				if op == "Rprop" {
					// The learning rate affects only the initial state, so one launch can update
					// both groups.
					want = 1
				}
				if n := gpu.Counters().Launches - before; n != want {
					t.Errorf("%s: %d launches for %d groups", op, n, groups)
				}
			}
		}
	}, tensor.On(gpu))
}

// If a parameter moves to another device, so does its state.
func TestStateFollows(t *testing.T) {
	gpu := emulatedGPU(t, "mem=16MiB")
	for op, mk := range makers {
		p, q := ones(5), ones(5)
		a, b := mk([][]*tensor.Tensor{{p}}, []float64{0.1}), mk([][]*tensor.Tensor{{q}}, []float64{0.1})
		for step := range 4 {
			if step == 2 {
				p.MoveTo(gpu)
			}
			for _, x := range []*tensor.Tensor{p, q} {
				x.SetGrad(tensor.Root().On(x.Device()).Full(0.3*float64(step)-0.5, 5))
			}
			a.Step()
			b.Step()
		}
		if !bytes.Equal(p.Detach().Bytes(), q.Detach().Bytes()) {
			t.Errorf("%s: %v on the GPU, %v on the CPU", op, p.Detach(), q.Detach())
		}
	}
}

// If a parameter is converted to another type, so is its state. A model can therefore be cast
// between steps.
func TestStateIsConverted(t *testing.T) {
	for op, mk := range makers {
		p := ones(5)
		opt := mk([][]*tensor.Tensor{{p}}, []float64{0.1})
		for _, ty := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F64} {
			p.CastInPlace(ty)
			p.SetGrad(tensor.Typed(ty).Full(0.5, 5))
			opt.Step()
			if v := p.Detach().Floats()[0]; p.Type() != ty || v == 1 && ty == dtype.F64 || v != v {
				t.Errorf("%s: %v of %v", op, v, p.Type())
			}
			for _, m := range opt.StateDict()["state"].(map[int64]any) {
				for name, x := range m.(map[string]any) {
					if x := x.(*tensor.Tensor); x.Rank() == 1 && x.Type() != ty {
						t.Errorf("%s: %s is %v, the parameter %v", op, name, x.Type(), ty)
					}
				}
			}
		}
	}
}

// If a tree does not fit, the error says which part is wrong, and nothing changes.
func TestWrongTrees(t *testing.T) {
	params := []*tensor.Tensor{ones(3), ones(2)}
	fresh := func() *optim.Adam {
		o := optim.NewAdam(params, optim.AdamConfig{LR: 0.1})
		for _, p := range params {
			p.SetGrad(tensor.Ones(p.Dim(0)))
		}
		o.Step()
		return o
	}
	group := func(tree map[string]any) map[string]any { return tree["param_groups"].([]any)[0].(map[string]any) }
	state := func(tree map[string]any) map[string]any { return tree["state"].(map[int64]any)[1].(map[string]any) }
	cases := []struct {
		name, want string
		spoil      func(tree map[string]any)
	}{
		{"no groups", `["param_groups"] is nil`, func(m map[string]any) { delete(m, "param_groups") }},
		{"two groups", `has 2 groups, the optimizer 1`, func(m map[string]any) {
			m["param_groups"] = append(m["param_groups"].([]any), m["param_groups"].([]any)...)
		}},
		{"a group that is a number", `param_groups[0] is 3, want a map`, func(m map[string]any) { m["param_groups"] = []any{int64(3)} }},
		{"fewer parameters", `param_groups[0]["params"] has 1 parameters`, func(m map[string]any) { group(m)["params"] = []any{int64(0)} }},
		{"a number twice", `param_groups[0]["params"][1] is 0`, func(m map[string]any) { group(m)["params"] = []any{int64(0), int64(0)} }},
		{"a number that is a string", `param_groups[0]["params"][1] is "a"`, func(m map[string]any) { group(m)["params"] = []any{int64(0), "a"} }},
		{"no rate", `param_groups[0]["lr"] is nil`, func(m map[string]any) { delete(group(m), "lr") }},
		{"a negative rate", `param_groups[0] the learning rate cannot be -1`, func(m map[string]any) { group(m)["lr"] = -1.0 }},
		{"no eps", `param_groups[0] has no "eps"`, func(m map[string]any) { delete(group(m), "eps") }},
		{"three betas", `param_groups[0]["betas"] is a list of 3`, func(m map[string]any) { group(m)["betas"] = []any{0.1, 0.2, 0.3} }},
		{"betas of one", `betas must be in [0, 1)`, func(m map[string]any) { group(m)["betas"] = []any{1.0, 1.0} }},
		{"a flag that is a number", `param_groups[0]["amsgrad"] is 1`, func(m map[string]any) { group(m)["amsgrad"] = 1.0 }},
		{"a channel", `param_groups[0]["x"] holds a chan int`, func(m map[string]any) { group(m)["x"] = []any{make(chan int)} }},
		{"names as keys", `["state"] has names as keys`, func(m map[string]any) { m["state"] = map[string]any{"a": nil} }},
		{"no state", `["state"] is nil`, func(m map[string]any) { delete(m, "state") }},
		{"an unknown parameter", `state[7] belongs to no parameter`, func(m map[string]any) { m["state"].(map[int64]any)[7] = map[string]any{} }},
		{"another shape", `state[1]["exp_avg"] has shape [9], its parameter [2]`, func(m map[string]any) { state(m)["exp_avg"] = tensor.Ones(9) }},
		{"a number for a tensor", `state[1]["exp_avg"] is 2, want a tensor`, func(m map[string]any) { state(m)["exp_avg"] = 2.0 }},
		{"half a state", `state[1] has no "exp_avg_sq"`, func(m map[string]any) { delete(state(m), "exp_avg_sq") }},
		{"no step", `state[1] is not complete`, func(m map[string]any) { delete(state(m), "step") }},
		{"a step of three", `state[1]["step"] is a tensor [3]`, func(m map[string]any) { state(m)["step"] = tensor.Ones(3) }},
		{"a negative step", `state[1]["step"] is -1`, func(m map[string]any) { state(m)["step"] = -1.0 }},
		{"a stranger", `state[1]["momentum_buffer"] is nothing that Adam remembers`, func(m map[string]any) { state(m)["momentum_buffer"] = tensor.Ones(2) }},
		{"the flag that asks for more", `state[0] has no "max_exp_avg_sq"`, func(m map[string]any) { group(m)["amsgrad"] = true }},
		{"a freed tensor", `state[1]["exp_avg"] cannot be copied`, func(m map[string]any) {
			x := tensor.Ones(2)
			state(m)["exp_avg"] = x
			x.Free()
		}},
	}
	for _, c := range cases {
		o := fresh()
		o.Groups()[0].Extra = map[string]any{"kept": int64(1)}
		before, options := snapshot(o), maps.Clone(o.StateDict()["param_groups"].([]any)[0].(map[string]any))
		tree := o.StateDict()
		c.spoil(tree)
		err := o.LoadStateDict(tree)
		var typed *optim.StateError
		if !errors.As(err, &typed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if !bytes.Equal(before, snapshot(o)) {
			t.Errorf("%s: the state has changed", c.name)
		}
		compareTrees(t, c.name, o.StateDict()["param_groups"].([]any)[0], options, 0)
	}
}

// A tree may lack flags that an older PyTorch does not have, and may have additional entries. Its
// options may be integers or tensors instead of floats.
func TestLenientTrees(t *testing.T) {
	p := ones(2)
	o := optim.NewSGD([]*tensor.Tensor{p}, optim.SGDConfig{LR: 1, Momentum: 0.5})
	err := o.LoadStateDict(map[string]any{
		"state": map[int64]any{9: map[string]any{"momentum_buffer": nil}},
		"param_groups": []any{map[string]any{"lr": tensor.From(0.25), "momentum": int64(0), "dampening": int64(0), "weight_decay": 0.5,
			"nesterov": false, "params": []any{int64(9)}, "initial_lr": 0.5, "max_lr": 3.0}},
	})
	g := o.Groups()[0]
	if err != nil || g.LR != 0.25 || g.InitialLR != 0.5 || g.Extra["max_lr"] != 3.0 {
		t.Fatalf("%v, %+v", err, g)
	}
	if v, ok := g.Option("weight_decay"); !ok || v != 0.5 {
		t.Errorf("the weight decay is %v", v)
	}
	if v, ok := g.Option("rho"); ok {
		t.Errorf("an option of others is %v", v)
	}
	for name, v := range map[string]any{"rho": 0.5, "foreach": true, "nesterov": true, "weight_decay": -1.0, "momentum": "much"} {
		var typed *optim.Error
		if err := g.SetOption(name, v); !errors.As(err, &typed) {
			t.Errorf("%s = %v: %v", name, v, err)
		}
	}
	if err := o.LoadStateDict(map[string]any{"state": map[string]any{}, "param_groups": o.StateDict()["param_groups"]}); err != nil {
		t.Errorf("an empty state: %v", err)
	}
}

// A group that is added later is updated with its own options. A parameter may be in one group
// only.
func TestAddGroup(t *testing.T) {
	p, q := ones(1), ones(1)
	o := optim.NewSGD([]*tensor.Tensor{p}, optim.SGDConfig{LR: 1})
	o.AddGroup([]*tensor.Tensor{q}, optim.SGDConfig{LR: 0.25})
	p.SetGrad(tensor.Ones(1))
	q.SetGrad(tensor.Ones(1))
	o.Step()
	if p.Detach().Item() != 0 || q.Detach().Item() != 0.75 || len(o.Params()) != 2 {
		t.Errorf("%v, %v", p.Detach(), q.Detach())
	}
	for _, list := range [][]*tensor.Tensor{nil, {p}, {nil}, {ones(1).MulScalar(2)}, {tensor.From([]int64{1})}} {
		func() {
			defer func() {
				if _, ok := recover().(*optim.Error); !ok {
					t.Errorf("%v was taken", list)
				}
			}()
			o.AddGroup(list, optim.SGDConfig{LR: 1})
		}()
	}
	if len(o.Groups()) != 2 {
		t.Errorf("%d groups", len(o.Groups()))
	}
}

// Adam and AdamW load each other's states as in torch.
func TestAdamWStaysAdamW(t *testing.T) {
	p := []*tensor.Tensor{tensor.Ones(2).RequiresGrad()}
	c := optim.AdamConfig{LR: 0.1, WeightDecay: 0.5}
	for _, k := range []struct {
		from, to *optim.Adam
		want     bool
	}{
		{optim.NewAdam(p, c), optim.NewAdamW(p, c), true},
		{optim.NewAdamW(p, c), optim.NewAdam(p, c), true},
		{optim.NewAdam(p, c), optim.NewAdam(p, c), false},
	} {
		if err := k.to.LoadStateDict(k.from.StateDict()); err != nil {
			t.Fatal(err)
		}
		if v, _ := k.to.Groups()[0].Option("decoupled_weight_decay"); v != k.want {
			t.Errorf("%v with the state of %v: decoupled %v, torch has %v", k.to, k.from, v, k.want)
		}
	}
}
