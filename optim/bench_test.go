package optim_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// BenchmarkAdamWStep makes steps over many small parameters, where overhead dominates, and over a
// few large ones.
func BenchmarkAdamWStep(b *testing.B) {
	for _, c := range [][2]int{{400, 256}, {4, 1 << 20}} {
		b.Run(fmt.Sprintf("%dx%d", c[0], c[1]), func(b *testing.B) {
			var params []*tensor.Tensor
			for range c[0] {
				p := tensor.Ones(c[1]).RequiresGrad()
				p.SetGrad(tensor.Ones(c[1]))
				params = append(params, p)
			}
			opt := optim.NewAdamW(params, optim.AdamConfig{LR: 1e-3, WeightDecay: 0.1})
			opt.Step()
			b.SetBytes(int64(c[0] * c[1] * 4 * 7)) // a step reads four tensors and writes three
			b.ReportAllocs()
			for b.Loop() {
				opt.Step()
			}
		})
	}
}
