package models_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
)

// A character GPT trains for 200 steps with AdamW, a cosine schedule and clipping. From the same
// initial weights, every loss and every norm of the gradients equals PyTorch's.
func TestCharGPTCurveEqualsTorch(t *testing.T) {
	const steps, batch, block = 200, 8, 16
	f := open(t)
	ids := stored(t, f, "train/tokens").Int64s()
	starts := stored(t, f, "train/starts").Int64s()
	vocab := 0
	for _, id := range ids {
		vocab = max(vocab, int(id)+1)
	}
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		tol, kind := 1e-8, "f64"
		if ty == dtype.F32 {
			tol, kind = 1e-3, "f32"
		}
		losses, norms := stored(t, f, "train/loss/"+kind).Float64s(), stored(t, f, "train/norm/"+kind).Float64s()
		worst, worstNorm := 0.0, 0.0
		tensor.Do(func(s *tensor.Scope) {
			m := models.NewGPT(smallGPT(vocab), nn.In(s), nn.Typed(ty))
			fill(m, "transformer.", 0.03125)
			params := nn.Parameters(m)
			opt := optim.NewAdamW(params, optim.AdamConfig{LR: 3e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1})
			schedule := sched.NewCosineAnnealing(opt, steps, 1e-4)
			for k := range steps {
				var x, y []int64
				for _, at := range starts[k*batch : (k+1)*batch] {
					x, y = append(x, ids[at:at+block]...), append(y, ids[at+1:at+block+1]...)
				}
				s.Do(func(c *tensor.Scope) {
					loss := m.Loss(c.From(x, batch, block), c.From(y, batch, block))
					loss.Backward()
					norm := optim.ClipGradNorm(params, 1)
					opt.Step()
					opt.ZeroGrad()
					schedule.Step()
					worst = max(worst, math.Abs(loss.Item()-losses[k])/max(1, losses[k]))
					worstNorm = max(worstNorm, math.Abs(norm.Item()-norms[k])/max(1, norms[k]))
				})
				if !(worst <= tol) || !(worstNorm <= 30*tol) {
					t.Fatalf("%v, step %d: the loss is off by %.3g, the norm of the gradients by %.3g", ty, k, worst, worstNorm)
				}
			}
		})
		t.Logf("%v: losses are off by at most %.3g, norms by %.3g; the loss falls from %.3f to %.3f", ty, worst, worstNorm, losses[0], losses[steps-1])
	}
}
