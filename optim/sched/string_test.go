package sched

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// String returns a schedule's settings and not its progress.
func TestString(t *testing.T) {
	opt := optim.NewSGD([]*tensor.Tensor{tensor.Zeros(2).RequiresGrad()}, optim.SGDConfig{LR: 0.5})
	step, cosine := NewStep(opt, 3, 0.1), NewCosineAnnealing(opt, 10, 0)
	plateau := NewPlateau(opt, PlateauConfig{})
	restarts := NewCosineWarmRestarts(opt, 2, 2, 0)
	for _, c := range []struct {
		s    any
		want string
	}{
		{step, "StepLR(step_size 3, gamma 0.1)"},
		{cosine, "CosineAnnealingLR(T_max 10, eta_min 0)"},
		{restarts, "CosineAnnealingWarmRestarts(T_0 2, T_mult 2, eta_min 0)"},
		{NewMultiStep(opt, []int{80, 30}, 0.1), "MultiStepLR(milestones [30 80], gamma 0.1)"},
		{NewLambda(opt, func(int) float64 { return 1 }), "LambdaLR()"},
		{plateau, "ReduceLROnPlateau(factor 0.1, min_lrs [0], patience 10, cooldown 0, eps 1e-08, mode min, threshold 0.0001, threshold_mode rel)"},
		{NewSequential(opt, []Scheduler{step, cosine}, []int{4}),
			"SequentialLR([StepLR(step_size 3, gamma 0.1) CosineAnnealingLR(T_max 10, eta_min 0)], milestones [4])"},
		{NewChained(step, cosine), "ChainedScheduler([StepLR(step_size 3, gamma 0.1) CosineAnnealingLR(T_max 10, eta_min 0)])"},
	} {
		for range 2 {
			if got := fmt.Sprint(c.s); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			restarts.Step()
			plateau.StepMetric(1)
		}
	}
}
