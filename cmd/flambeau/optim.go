package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
)

// optims has the functions that make an optimizer, by name.
var optims = map[string]func(p []*tensor.Tensor, r recipe) optim.Optimizer{
	"adamw": func(p []*tensor.Tensor, r recipe) optim.Optimizer {
		return optim.NewAdamW(p, optim.AdamConfig{LR: r.lr, Beta2: r.beta2, WeightDecay: r.decay})
	},
	"adam": func(p []*tensor.Tensor, r recipe) optim.Optimizer {
		return optim.NewAdam(p, optim.AdamConfig{LR: r.lr, Beta2: r.beta2, WeightDecay: r.decay})
	},
	"sgd": func(p []*tensor.Tensor, r recipe) optim.Optimizer {
		return optim.NewSGD(p, optim.SGDConfig{LR: r.lr, Momentum: 0.9, Nesterov: true, WeightDecay: r.decay})
	},
	"rmsprop": func(p []*tensor.Tensor, r recipe) optim.Optimizer {
		return optim.NewRMSprop(p, optim.RMSpropConfig{LR: r.lr, WeightDecay: r.decay})
	},
	"adafactor": func(p []*tensor.Tensor, r recipe) optim.Optimizer {
		return optim.NewAdafactor(p, optim.AdafactorConfig{LR: r.lr, WeightDecay: r.decay})
	},
	"lion": func(p []*tensor.Tensor, r recipe) optim.Optimizer {
		return optim.NewLion(p, optim.LionConfig{LR: r.lr, WeightDecay: r.decay})
	},
}

// scheds has the functions that make a learning rate schedule, by name. steps is the number of
// steps of the training.
var scheds = map[string]func(o optim.Optimizer, steps int, r recipe) sched.Schedule{
	"cosine": func(o optim.Optimizer, steps int, r recipe) sched.Schedule {
		return sched.NewCosineAnnealing(o, max(steps, 1), min(r.least, r.lr))
	},
	"constant": func(o optim.Optimizer, steps int, r recipe) sched.Schedule { return nil },
	"linear": func(o optim.Optimizer, steps int, r recipe) sched.Schedule {
		return sched.NewLinear(o, 1, 0, max(steps, 1))
	},
	"step": func(o optim.Optimizer, steps int, r recipe) sched.Schedule {
		return sched.NewStep(o, max(steps/3, 1), 0.1)
	},
	"onecycle": func(o optim.Optimizer, steps int, r recipe) sched.Schedule {
		return sched.NewOneCycle(o, sched.OneCycleConfig{MaxLR: []float64{o.LR()}, Steps: max(steps, 1)})
	},
	"plateau": func(o optim.Optimizer, steps int, r recipe) sched.Schedule {
		return sched.NewPlateau(o, sched.PlateauConfig{})
	},
}

func namesOf[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

func knownOptim(name string) error {
	if optims[name] == nil {
		return fmt.Errorf("--optim %s: known are %s", name, namesOf(optims))
	}
	return nil
}

func knownSched(name string) error {
	if scheds[name] == nil {
		return fmt.Errorf("--sched %s: known are %s", name, namesOf(scheds))
	}
	return nil
}

func newOptimizer(name string, p []*tensor.Tensor, r recipe) optim.Optimizer {
	return optims[name](p, r)
}

// newSchedule makes the schedule of the given name, or returns nil for a constant learning rate.
func newSchedule(name string, o optim.Optimizer, steps int, r recipe) checkpoint.Stateful {
	s := scheds[name](o, steps-r.warmup, r)
	if then, ok := s.(sched.Scheduler); r.warmup > 0 && (ok || s == nil) {
		return sched.NewWarmUp(o, sched.WarmUpConfig{Steps: r.warmup}, then)
	}
	if s == nil {
		return nil
	}
	return s
}
