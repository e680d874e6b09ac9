package cuda_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCapturedStepUnless captures StepUnless, which skips a step if a tensor of one element is not
// 0. Each replay must read the tensor again. The tensor may exist before the capture, or the
// captured work may compute it in any of its scopes. For unsupported tensors the error must say
// what to do.
func TestCapturedStepUnless(t *testing.T) {
	for name, make := range map[string]func(p []*tensor.Tensor) optim.Optimizer{
		"Adam": func(p []*tensor.Tensor) optim.Optimizer { return optim.NewAdam(p, optim.AdamConfig{LR: 0.1}) },
		"SGD":  func(p []*tensor.Tensor) optim.Optimizer { return optim.NewSGD(p, optim.SGDConfig{LR: 0.1}) },
		"Adafactor": func(p []*tensor.Tensor) optim.Optimizer {
			return optim.NewAdafactor(p, optim.AdafactorConfig{LR: 0.1})
		},
		"Muon": func(p []*tensor.Tensor) optim.Optimizer {
			return optim.NewMuon(p, optim.MuonConfig{LR: 0.1, Iterations: 2})
		},
	} {
		for _, inner := range []bool{false, true} {
			if testing.Short() && (name != "Adam" || !inner) {
				continue
			}
			run := func(captured bool) []float64 {
				a, _ := twoGPUs(t, true, "")
				root := tensor.Root().On(a)
				w := root.Full(0.5, 2, 3).RequiresGrad()
				x, found := root.Ones(2, 3), root.Zeros()
				opt := make([]*tensor.Tensor{w})
				unless := opt.(interface{ StepUnless(*tensor.Tensor) }).StepUnless
				step := func(s *tensor.Scope) {
					w.In(s).Mul(x).Square().Sum().Backward()
					if inner {
						s.Do(func(c *tensor.Scope) { unless(found.In(c).MulScalar(3).Reshape(1)) })
					} else {
						unless(found)
					}
					opt.ZeroGrad()
				}
				eager := func() error {
					return tensor.Try(func() {
						tensor.Do(func(s *tensor.Scope) {
							w.In(s).Mul(x).Square().Sum().Backward()
							if found.Item() == 0 {
								opt.Step()
							}
							opt.ZeroGrad()
						})
					})
				}
				do := eager
				if captured {
					g, err := tensor.Capture(a, step)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					defer g.Close()
					do = g.Replay
				}
				for k := range 9 {
					found.Fill(float64(k % 3 / 2))
					x.Fill(float64(k + 1))
					if err := do(); err != nil {
						t.Fatal(err)
					}
				}
				return append(w.Detach().Floats(), float64(opt.Steps()))
			}
			if want, got := run(false), run(true); !slices.Equal(got, want) || want[6] != 6 {
				t.Errorf("%s, inner %v: replays give %v, eager steps %v", name, inner, got, want)
			}
		}
	}
	a, _ := twoGPUs(t, true, "")
	w := tensor.Root().On(a).Full(0.5, 2, 3).RequiresGrad()
	bent := tensor.Root().On(a).Full(0.5, 3, 2).T().RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1})
	strided := optim.NewSGD([]*tensor.Tensor{bent}, optim.SGDConfig{LR: 0.1})
	for want, f := range map[string]func(s *tensor.Scope){
		"the gradients are not": func(s *tensor.Scope) { opt.StepUnless(s.Zeros()) },
		"is not contiguous":     func(s *tensor.Scope) { bent.In(s).Sum().Backward(); strided.Step() },
	} {
		_, err := tensor.Capture(a, f)
		var e *tensor.Error
		if !errors.As(err, &e) || !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), want) || e.Hint == "" {
			t.Errorf("%v, want %q and what to do", err, want)
		}
	}
}
