package optim_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// sharded returns a matrix and a vector as parameters, with the same values in every call.
func sharded() []*tensor.Tensor {
	m := tensor.Root().Typed(dtype.F32)
	return []*tensor.Tensor{m.Linspace(-1, 1, 30).Reshape(5, 6).Detach().RequiresGrad(), m.Linspace(0, 3, 7).Detach().RequiresGrad()}
}

func givenGrads(params []*tensor.Tensor, step int) {
	for _, p := range params {
		v := make([]float32, p.Size())
		for i := range v {
			v[i] = float32(math.Sin(float64(i*i + step)))
		}
		p.SetGrad(tensor.From(v).Reshape(p.Shape().Slice()...))
	}
}

// Two shards of every optimizer together change the parameters as one whole optimizer does.
func TestShards(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(makers)) {
		make := func(params []*tensor.Tensor) optim.Sharder {
			return makers[name]([][]*tensor.Tensor{params}, []float64{0.1}).(optim.Sharder)
		}
		want, got := sharded(), sharded()
		alone, a, b := make(want), make(got), make(got)
		first, rest := map[*tensor.Tensor]optim.Part{got[0]: {To: 30}}, map[*tensor.Tensor]optim.Part{got[1]: {To: 7}}
		if a.Splits() {
			first[got[0]] = optim.Part{To: 11}
			rest[got[0]] = optim.Part{From: 11, To: 30}
		} else if name != "Adafactor" {
			t.Errorf("%s does not split", name)
		}
		step := func(n int) {
			givenGrads(want, n)
			givenGrads(got, n)
			alone.Step()
			a.Step()
			if b != nil {
				b.Step()
			}
		}
		a.Shard(first)
		b.Shard(rest)
		for n := range 3 {
			step(n)
		}
		for i := range want {
			if !slices.Equal(tensor.Data[float32](got[i].Detach()), tensor.Data[float32](want[i].Detach())) {
				t.Errorf("%s: parameter %d is %v, want %v", name, i, got[i], want[i])
			}
		}
		// A sharded optimizer loads its parts from the state of whole parameters.
		c := make(sharded())
		parts := map[*tensor.Tensor]optim.Part{}
		for i, p := range c.Params() {
			if part, ok := first[got[i]]; ok {
				parts[p] = part
			}
		}
		c.Shard(parts)
		if err := c.LoadStateDict(alone.StateDict()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		states, own := c.StateDict()["state"].(map[int64]any), a.StateDict()["state"].(map[int64]any)
		if len(states) != len(own) || states[1] != nil {
			t.Errorf("%s: a shard has the state of %d parameters, want %d", name, len(states), len(own))
		}
		for k, st := range own {
			for what, v := range st.(map[string]any) {
				x, y := v.(*tensor.Tensor), states[k].(map[string]any)[what].(*tensor.Tensor)
				if x.Shape() != y.Shape() || !slices.Equal(x.Floats(), y.Floats()) {
					t.Errorf("%s: %q of parameter %d is %v, want %v", name, what, k, y, x)
				}
				if a.Splits() && x.Rank() > 0 && x.Size() != 11 {
					t.Errorf("%s: %q of a part of 11 elements has shape %v", name, what, x.Shape())
				}
			}
		}
	}
}

func TestShardErrors(t *testing.T) {
	p := sharded()
	transposed := tensor.Root().Ones(4, 5).T().Detach().RequiresGrad()
	adam := func() optim.Sharder {
		return optim.NewAdam(append(p, transposed), optim.AdamConfig{LR: 0.1})
	}
	for _, c := range []struct {
		make  func() optim.Sharder
		parts map[*tensor.Tensor]optim.Part
		want  string
	}{
		{adam, map[*tensor.Tensor]optim.Part{p[0]: {From: 3, To: 31}}, "the part 3 to 31 of parameter 0, of shape [5, 6], does not lie in it"},
		{adam, map[*tensor.Tensor]optim.Part{p[1]: {From: 3, To: 2}}, "does not lie in it"},
		{adam, map[*tensor.Tensor]optim.Part{p[1]: {From: -1, To: 2}}, "does not lie in it"},
		{adam, map[*tensor.Tensor]optim.Part{tensor.Zeros(3): {To: 3}}, "1 of the parts are of tensors that are not its parameters"},
		{adam, map[*tensor.Tensor]optim.Part{transposed: {To: 3}}, "is not all of it, and it is not contiguous"},
		{func() optim.Sharder { return optim.NewAdafactor(p, optim.AdafactorConfig{LR: 0.1}) }, map[*tensor.Tensor]optim.Part{p[0]: {To: 3}}, "is not all of it, and the rule needs that"},
	} {
		o := c.make()
		err := tensor.Try(func() { o.Shard(c.parts) })
		var e *optim.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	var e *optim.Error
	l := optim.NewLBFGS(p[:1], optim.LBFGSConfig{LR: 1})
	if err := tensor.Try(func() { l.Shard(nil) }); !errors.As(err, &e) || !strings.Contains(err.Error(), "LBFGS: it cannot be sharded") {
		t.Errorf("LBFGS: %v", err)
	}
}
