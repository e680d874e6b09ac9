package nn_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// BenchmarkLSTM measures one step of training and one of inference. The program bench/sequences
// compares such steps with PyTorch's.
func BenchmarkLSTM(b *testing.B) {
	for name, c := range map[string]struct{ steps, n, in, hidden int }{"large": {100, 32, 128, 256}, "small": {50, 16, 32, 64}, "long": {400, 8, 64, 128}} {
		l := nn.NewLSTM(c.in, c.hidden, nn.RecurrentOptions{})
		x := tensor.Root().Randn(c.steps, c.n, c.in)
		b.Run(name+"/infer", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tensor.Do(func(s *tensor.Scope) { l.Forward(x.In(s), nil, nil) }, tensor.NoGrad())
			}
		})
		b.Run(name+"/train", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tensor.Do(func(s *tensor.Scope) {
					y, _, _ := l.Forward(x.In(s), nil, nil)
					y.Sum().Backward()
				})
				nn.ZeroGrad(l)
			}
		})
	}
}
