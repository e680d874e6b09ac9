package tensor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCaptureShorter: on the CPU, a chain of elementwise ops is one op of the graph, and the bits
// are those of the eager chain.
func TestCaptureShorter(t *testing.T) {
	dev := cpu.Get()
	x := tensor.Root().On(dev).Randn(5, 33)
	out := x.ZerosLike()
	step := func(s *tensor.Scope, out *tensor.Tensor) {
		s.Do(func(s *tensor.Scope) { out.In(s).Copy(x.In(s).Mul(x).AddScalar(1.5).Relu().Sub(x).Tanh()) })
	}
	g, err := tensor.Capture(dev, func(s *tensor.Scope) { step(s, out) })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if s := g.String(); g.Operations() != 1 || !strings.HasSuffix(s, ", of 6 recorded)") {
		t.Error(s)
	}
	for range 2 {
		x.Copy(x.RandnLike())
		want := x.ZerosLike()
		step(tensor.Root(), want)
		if err := g.Replay(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out.Floats(), want.Floats()) {
			t.Errorf("%v, want %v", out, want)
		}
	}
}
