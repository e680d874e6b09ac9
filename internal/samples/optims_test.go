package samples

import (
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

const optimSteps = 12

func (a *args) betas(name string, first, second float64) (b1, b2 float64) {
	if v := a.arg(-1, name); v != nil {
		l := items(v)
		if !isNumber(l[0]) || !isNumber(l[1]) {
			panic(wrong("a tensor as a number"))
		}
		return number64(l[0]), number64(l[1])
	}
	return first, second
}

// rate returns the argument lr of a sample. If it is absent, the result is the number that the
// caller passes: PyTorch's default. Optimizers of this library have no default.
func (a *args) rate(or float64) float64 { return a.float(-1, "lr", or) }

func (a *args) on(name string) bool { return a.bool(-1, name, false) }

func (a *args) decay(or float64) float64 { return a.float(-1, "weight_decay", or) }

func adam(a *args, decay float64) optim.AdamConfig {
	b1, b2 := a.betas("betas", 0.9, 0.999)
	return optim.AdamConfig{LR: a.rate(1e-3), Beta1: b1, Beta2: b2, Eps: a.float(-1, "eps", 1e-8),
		WeightDecay: a.decay(decay), AMSGrad: a.on("amsgrad"), Maximize: a.on("maximize")}
}

// optimizers holds functions that make PyTorch's optimizers from their arguments. An absent
// argument has PyTorch's default.
var optimizers = map[string]func(p []T, a *args) optim.Optimizer{
	"SGD": func(p []T, a *args) optim.Optimizer {
		return optim.NewSGD(p, optim.SGDConfig{LR: a.rate(1e-3), Momentum: a.float(-1, "momentum",
			0),
			Dampening: a.float(-1, "dampening", 0), WeightDecay: a.decay(0),
			Nesterov: a.on("nesterov"),
			Maximize: a.on("maximize")})
	},
	"Adam":  func(p []T, a *args) optim.Optimizer { return optim.NewAdam(p, adam(a, 0)) },
	"AdamW": func(p []T, a *args) optim.Optimizer { return optim.NewAdamW(p, adam(a, 0.01)) },
	"Adamax": func(p []T, a *args) optim.Optimizer {
		b1, b2 := a.betas("betas", 0.9, 0.999)
		return optim.NewAdamax(p, optim.AdamaxConfig{LR: a.rate(2e-3), Beta1: b1, Beta2: b2,
			Eps: a.float(-1, "eps", 1e-8), WeightDecay: a.decay(0), Maximize: a.on("maximize")})
	},
	"Adadelta": func(p []T, a *args) optim.Optimizer {
		return optim.NewAdadelta(p, optim.AdadeltaConfig{LR: a.rate(1), Rho: a.float(-1, "rho",
			0.9),
			Eps: a.float(-1, "eps", 1e-6), WeightDecay: a.decay(0), Maximize: a.on("maximize")})
	},
	"Adagrad": func(p []T, a *args) optim.Optimizer {
		return optim.NewAdagrad(p, optim.AdagradConfig{LR: a.rate(1e-2), LRDecay: a.float(-1,
			"lr_decay", 0),
			Eps: a.float(-1, "eps", 1e-10), WeightDecay: a.decay(0),
			InitialAccumulator: a.float(-1, "initial_accumulator_value", 0),
			Maximize:           a.on("maximize")})
	},
	"ASGD": func(p []T, a *args) optim.Optimizer {
		return optim.NewASGD(p, optim.ASGDConfig{LR: a.rate(1e-2), Lambd: a.float(-1, "lambd",
			1e-4),
			Alpha: a.float(-1, "alpha", 0.75), T0: a.float(-1, "t0", 1e6), WeightDecay: a.decay(0),
			Maximize: a.on("maximize")})
	},
	"NAdam": func(p []T, a *args) optim.Optimizer {
		b1, b2 := a.betas("betas", 0.9, 0.999)
		return optim.NewNAdam(p, optim.NAdamConfig{LR: a.rate(2e-3), Beta1: b1, Beta2: b2,
			Eps: a.float(-1, "eps", 1e-8), WeightDecay: a.decay(0),
			MomentumDecay:        a.float(-1, "momentum_decay", 4e-3),
			DecoupledWeightDecay: a.on("decoupled_weight_decay"), Maximize: a.on("maximize")})
	},
	"RAdam": func(p []T, a *args) optim.Optimizer {
		b1, b2 := a.betas("betas", 0.9, 0.999)
		return optim.NewRAdam(p, optim.RAdamConfig{LR: a.rate(1e-3), Beta1: b1, Beta2: b2,
			Eps: a.float(-1, "eps", 1e-8), WeightDecay: a.decay(0),
			DecoupledWeightDecay: a.on("decoupled_weight_decay"), Maximize: a.on("maximize")})
	},
	"RMSprop": func(p []T, a *args) optim.Optimizer {
		return optim.NewRMSprop(p, optim.RMSpropConfig{LR: a.rate(1e-2), Alpha: a.float(-1,
			"alpha", 0.99),
			Eps: a.float(-1, "eps", 1e-8), WeightDecay: a.decay(0), Momentum: a.float(-1,
				"momentum", 0),
			Centered: a.on("centered"), Maximize: a.on("maximize")})
	},
	"Rprop": func(p []T, a *args) optim.Optimizer {
		minus, plus := a.betas("etas", 0.5, 1.2)
		least, most := a.betas("step_sizes", 1e-6, 50)
		return optim.NewRprop(p, optim.RpropConfig{LR: a.rate(1e-2), EtaMinus: minus, EtaPlus: plus,
			MinStep: least, MaxStep: most, Maximize: a.on("maximize")})
	},
	"Adafactor": func(p []T, a *args) optim.Optimizer {
		c := optim.AdafactorConfig{LR: a.rate(1e-2), Beta2Decay: a.float(-1, "beta2_decay", -0.8), Eps2: 1e-3,
			D: a.float(-1, "d", 1), WeightDecay: a.decay(0), Maximize: a.on("maximize")}
		if v := a.arg(-1, "eps"); v != nil {
			l := items(v)
			if l[0] != nil {
				c.Eps1 = new(number64(l[0]))
			}
			c.Eps2 = number64(l[1])
		}
		return optim.NewAdafactor(p, c)
	},
	"Muon": func(p []T, a *args) optim.Optimizer {
		c := optim.MuonConfig{LR: a.rate(1e-3), Momentum: a.float(-1, "momentum", 0.95),
			Plain: !a.bool(-1, "nesterov", true), WeightDecay: a.decay(0.1), Eps: a.float(-1,
				"eps", 1e-7),
			Iterations: a.int(-1, "ns_steps", 5), Adjust: a.text(-1, "adjust_lr_fn", "")}
		if v := a.arg(-1, "ns_coefficients"); v != nil {
			for i, x := range items(v) {
				c.Coefficients[i] = number64(x)
			}
		}
		return optim.NewMuon(p, c)
	},
}

// lbfgs returns a function that makes one step of LBFGS with the loss in _golden/optimdb.py.
func lbfgs(p []T, a *args) func() {
	o := optim.NewLBFGS(p, optim.LBFGSConfig{LR: a.rate(1), LineSearch: a.text(-1,
		"line_search_fn", ""),
		ToleranceGrad: a.float(-1, "tolerance_grad", 1e-7), Maximize: a.on("maximize")})
	return func() {
		o.Step(func() (loss float64) {
			o.ZeroGrad()
			a.scope.Do(func(s *tensor.Scope) {
				var total T
				for k, x := range p {
					c := seed(s, x.Type(), k, x.Shape().Slice()).Abs().AddScalar(0.5)
					y := x.In(s)
					l := y.SubScalar(1).Square().Mul(c).Add(y.PowScalar(4).DivScalar(10)).Sum()
					if total == nil {
						total = l
					} else {
						total = total.Add(l)
					}
				}
				total.Backward()
				loss = total.Item()
			})
			return loss
		})
	}
}

// steps returns a call for the named optimizer. The call returns the parameters after each step.
func steps(name string) call {
	if optimizers[name] == nil && name != "LBFGS" {
		return nil
	}
	return func(a *args) any {
		var p, after []T
		var grads [][]T
		for i := range 2 {
			p = append(p, a.T(i, "params").RequiresGrad())
			grads = append(grads, a.T(i+2, "grads").Unbind(0))
		}
		var step func()
		if name == "LBFGS" {
			step = lbfgs(p, a)
		} else {
			step = optimizers[name](p, a).Step
		}
		if u := a.unused(); u != "" {
			lacks("%s", u)
		}
		rows := make([][]T, 2)
		for i := range optimSteps {
			for k, x := range p {
				x.SetGrad(grads[k][i].Contiguous())
			}
			step()
			for k, x := range p {
				rows[k] = append(rows[k], x.Detach().Clone())
			}
		}
		for _, r := range rows {
			after = append(after, tensor.Stack(0, r...))
		}
		return after
	}
}

// TestOptimizers compares the optimizers with optim_db.
func TestOptimizers(t *testing.T) {
	w := walk{whole: true}
	w.compare(t, "optims*.safetensors.gz", "testdata/optims.tsv", ways[:2],
		func(r *row) call { return steps(r.Op) })
	w.summary(t, "optim_db", 14)
}
