package optim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

func build(t *testing.T, c golden.Case, params []*tensor.Tensor) optim.Optimizer {
	t.Helper()
	number := func(name string) float64 {
		if c.Args.Has(name) {
			return c.Args.Float(name)
		}
		return 0
	}
	flag := func(name string) bool { return c.Args.Has(name) && c.Args.Bool(name) }
	switch c.Op {
	case "SGD":
		return optim.NewSGD(params, optim.SGDConfig{LR: number("lr"), Momentum: number("momentum"), Dampening: number("dampening"),
			WeightDecay: number("weight_decay"), Nesterov: flag("nesterov"), Maximize: flag("maximize")})
	case "Adam", "AdamW":
		a := optim.AdamConfig{LR: number("lr"), Eps: number("eps"), WeightDecay: number("weight_decay"), AMSGrad: flag("amsgrad"), Maximize: flag("maximize")}
		if c.Args.Has("betas") {
			b := c.Args.Floats("betas")
			a.Beta1, a.Beta2 = b[0], b[1]
		}
		if c.Op == "Adam" {
			return optim.NewAdam(params, a)
		}
		return optim.NewAdamW(params, a)
	case "RMSprop":
		return optim.NewRMSprop(params, optim.RMSpropConfig{LR: number("lr"), Alpha: number("alpha"), Eps: number("eps"),
			WeightDecay: number("weight_decay"), Momentum: number("momentum"), Centered: flag("centered"), Maximize: flag("maximize")})
	case "Adagrad":
		return optim.NewAdagrad(params, optim.AdagradConfig{LR: number("lr"), LRDecay: number("lr_decay"), Eps: number("eps"),
			WeightDecay: number("weight_decay"), InitialAccumulator: number("initial_accumulator_value"), Maximize: flag("maximize")})
	}
	t.Fatalf("a trajectory of %s", c.Op)
	return nil
}

// Each optimizer follows every trajectory that PyTorch recorded, in float32 and in float64.
func TestTrajectoriesEqualTorch(t *testing.T) {
	f, err := golden.Optimizers()
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]int{}
	for _, c := range f.Cases {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
			var params, grads []*tensor.Tensor
			for i := range 2 {
				p := c.In[i].Base
				params = append(params, tensor.From(p.Float32s(), p.Shape...).Cast(ty).RequiresGrad())
				g := c.In[2+i].Base
				grads = append(grads, tensor.From(g.Float32s(), g.Shape...).Cast(ty))
			}
			opt := build(t, c, params)
			run[c.Op]++
			steps := grads[0].Dim(0)
			for s := range steps {
				for i, p := range params {
					p.SetGrad(grads[i].Select(0, s).Clone())
				}
				opt.Step()
				for i, p := range params {
					want, tol := c.Out[i].F64.Float64s(), 1e-14
					if ty == dtype.F32 {
						tol = 2e-7
						for k, v := range c.Out[i].F32.Float32s() {
							want[k] = float64(v)
						}
					}
					n := p.Size()
					for k, got := range p.Floats() {
						if w := want[s*n+k]; math.Abs(got-w) > tol*(1+math.Abs(w)) {
							t.Fatalf("%s %q %v step %d parameter %d element %d: %v want %v", c.Op, c.Name, ty, s, i, k, got, w)
						}
					}
				}
			}
			if opt.Steps() != steps {
				t.Fatalf("%d steps counted", opt.Steps())
			}
		}
	}
	for _, op := range []string{"SGD", "Adam", "AdamW", "RMSprop", "Adagrad"} {
		if run[op] < 2 {
			t.Fatalf("only %d trajectories of %s", run[op], op)
		}
	}
}

// The perceptron's losses over 50 steps equal PyTorch's within 1e-4·max(1, loss) in float32, and
// 1e-9 in float64.
func TestMLPCurveEqualsTorch(t *testing.T) {
	rec, err := golden.OpenMLP()
	if err != nil {
		t.Fatal(err)
	}
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		t.Run(fmt.Sprint(ty), func(t *testing.T) {
			m := nn.NewSequential(nn.NewLinear(784, 512, nn.Typed(ty)), nn.ReLU{}, nn.NewLinear(512, 512, nn.Typed(ty)), nn.ReLU{}, nn.NewLinear(512, 10, nn.Typed(ty)))
			params := nn.Parameters(m)
			tensor.Do(func(s *tensor.Scope) {
				for i, p := range params {
					p.In(s).Copy(s.From(rec.Params[i].Init, rec.Params[i].Shape...))
				}
			}, tensor.NoGrad())
			opt := optim.NewAdamW(params, optim.AdamConfig{LR: rec.LearningRate, Beta1: rec.Beta1, Beta2: rec.Beta2, Eps: rec.Eps, WeightDecay: rec.WeightDecay})
			worst := 0.0
			for step := range rec.Steps {
				x, y := rec.Input(step)
				var got float64
				tensor.Do(func(s *tensor.Scope) {
					loss := nn.CrossEntropy(m.Forward(s.From(x, rec.Batch, 784).Cast(ty)), s.From(y))
					loss.Backward()
					opt.Step()
					opt.ZeroGrad()
					got = loss.Item()
				})
				want, tol := float64(rec.LossF32[step]), 1e-4*math.Max(1, float64(rec.LossF32[step]))
				if ty == dtype.F64 {
					want, tol = rec.LossF64[step], 1e-9
				}
				worst = math.Max(worst, math.Abs(got-want))
				if math.Abs(got-want) > tol {
					t.Fatalf("step %d: loss %v want %v", step, got, want)
				}
			}
			t.Logf("largest difference %.3g, last loss %.4f", worst, rec.LossF64[rec.Steps-1])
		})
	}
}
