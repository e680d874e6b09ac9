package profile_test

import (
	"sort"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// What a span costs when no profile runs: what each op asks, too.
func BenchmarkOff(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		profile.Span("x")()
	}
}

// What a span costs while a profile runs.
func BenchmarkOn(b *testing.B) {
	p, err := profile.Start(profile.Options{MaxEvents: 1 << 22})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		profile.Span("x")()
	}
	if err := p.Stop(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStep takes steps of a small convolutional network on the CPU in turn without and with a profile; ratio is the median of the
// quotients of neighbours, less 1 the overhead.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		o    profile.Options
	}{{"times", profile.Options{}}, {"all", profile.Options{Memory: true, Shapes: true, Stacks: true}}} {
		b.Run(c.name, func(b *testing.B) {
			m := nn.NewSequential(nn.NewConv2d(1, 16, []int{3}, tensor.ConvOptions{}), &nn.ReLU{}, nn.NewConv2d(16, 16, []int{3}, tensor.ConvOptions{}), &nn.ReLU{},
				&nn.Flatten{}, nn.NewLinear(16*24*24, 10))
			opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.01})
			x, y := tensor.Root().Randn(16, 1, 28, 28), tensor.From([]int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5})
			step := func() time.Duration {
				start := time.Now()
				tensor.Do(func(s *tensor.Scope) {
					nn.CrossEntropy(m.Forward(x.In(s)), y.In(s)).Backward()
					opt.Step()
					opt.ZeroGrad()
				})
				return time.Since(start)
			}
			step()
			var ratios []float64
			for b.Loop() {
				off := step()
				p, err := profile.Start(c.o)
				if err != nil {
					b.Fatal(err)
				}
				on := step()
				if err := p.Stop(); err != nil {
					b.Fatal(err)
				}
				ratios = append(ratios, float64(on)/float64(off))
			}
			sort.Float64s(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
		})
	}
}
