package tensor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCaptureShorter captures a chain of elementwise ops on the CPU. The graph must have one op for
// the whole chain, and the result must have the bits of the eager chain.
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

// TestCaptureSumsInOrder captures Cdist, which converts its 16-bit operand to float32 and then
// reduces. In the graph the reduction also computes the conversion. A replay must still add the
// elements in the order of eager work.
func TestCaptureSumsInOrder(t *testing.T) {
	root := tensor.Root().On(cpu.Get()).Typed(dtype.F32)
	x, y := root.Randn(6, 300).Cast(dtype.BF16), root.Randn(20, 300)
	replayed, eager := root.Zeros(6, 20), root.Zeros(6, 20)
	step := func(s *tensor.Scope, out *tensor.Tensor) {
		s.Do(func(s *tensor.Scope) { out.In(s).Copy(x.In(s).Cdist(y, 1)) })
	}
	g, err := tensor.Capture(cpu.Get(), func(s *tensor.Scope) { step(s, replayed) })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	step(tensor.Root(), eager)
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(replayed.Floats(), eager.Floats()) {
		t.Error("a replay has other bits than eager work")
	}
}

// TestCaptureComputesOnce captures Exp, and then an op that reads overlapping windows of the
// result of Exp. That op reads most values several times. So Exp must not be fused into it, but
// must stay a separate op in the graph.
func TestCaptureComputesOnce(t *testing.T) {
	root := tensor.Root().On(cpu.Get()).Typed(dtype.F32)
	x, out := root.Randn(2, 40), root.Zeros(2, 9, 32)
	step := func(s *tensor.Scope) {
		s.Do(func(s *tensor.Scope) { out.In(s).Copy(x.In(s).Exp().Unfold(1, 32, 1).MulScalar(2)) })
	}
	g, err := tensor.Capture(cpu.Get(), step)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Operations() != 2 {
		t.Errorf("%v, want a map and its windows", g)
	}
}
