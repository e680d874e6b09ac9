package optest

import (
	"errors"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// An in-place op with a gradient gives its result a new place in the graph. PyTorch gives all views of the memory theirs; here
// a handle that does not know of it says so instead of carrying a wrong gradient.
func TestStaleHandles(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float32{1, 2, 3, 4}).RequiresGrad()
		for name, wrong := range map[string]func(){
			"a view, after its base was changed":              func() { x := w.MulScalar(2); v := x.Narrow(0, 0, 2); x.MulScalarInPlace(3); v.Sum() },
			"a view of a constant that is none any more":      func() { x := s.Zeros(4); v := x.Narrow(0, 0, 2); x.AddInPlace(w); v.Exp() },
			"a constant that was changed through a view":      func() { x := s.Zeros(4, 4); x.Select(0, 1).AddInPlace(w); x.MatMul(x) },
			"a view of a constant that was changed so":        func() { x := s.Zeros(4, 4); x.Select(0, 1).AddInPlace(w); x.T() },
			"another handle of the changed tensor":            func() { x := s.Zeros(4); y := x.In(s.New()); defer y.Scope().Close(); x.AddInPlace(w); y.Softmax(0) },
			"a constant changed in place twice, by two views": func() { x := s.Zeros(4); x.Narrow(0, 0, 4).AddInPlace(w); x.AddInPlace(w) },
		} {
			if err := tensor.Try(wrong); !errors.Is(err, tensor.ErrInPlace) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// What is right stays so: the changed tensor, new views of it, values read, detached handles, results of before.
		x := s.Zeros(4)
		v, d := x.Narrow(0, 0, 2), x.Detach()
		before := v.Add(w.Narrow(0, 1, 2))
		x.AddInPlace(w).MulInPlace(w)
		if got := v.Floats(); !slices.Equal(got, []float64{1, 4}) {
			t.Errorf("the view reads %v", got)
		}
		if got := d.MulScalar(2).Floats(); !slices.Equal(got, []float64{2, 8, 18, 32}) {
			t.Errorf("the detached handle reads %v", got)
		}
		g := tensor.Gradients(x.Narrow(0, 0, 2).Sum().Add(before.Sum()), []*tt{w})[0].Floats()
		if want := []float64{2, 5, 1, 0}; !slices.Equal(g, want) { // of w₀² + w₁² + w₁ + w₂
			t.Errorf("gradient %v, want %v", g, want)
		}
		if err := tensor.Try(func() { s.Do(func(c *tensor.Scope) { v.In(c).Exp() }, tensor.NoGrad()) }); err != nil {
			t.Errorf("without gradients a stale view is as good as any: %v", err)
		}
	})
}

// In-place products keep the factor that their gradient needs; x may be its own operand.
func TestInPlaceOfItself(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float64{1, 2, 3}).RequiresGrad()
		x := w.MulScalar(2)
		x.MulInPlace(x) // 4w²
		x.DivInPlace(w) // 4w
		x.MulInPlace(w) // 4w²
		if g := tensor.Gradients(x.Sum(), []*tt{w})[0].Floats(); !slices.Equal(g, []float64{8, 16, 24}) {
			t.Errorf("gradient %v, want 8w", g)
		}
		y := s.From([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
		y.Narrow(1, 0, 2).AddInPlace(y.Narrow(1, 1, 2)) // overlapping views of one memory: as if the operand were a copy
		if got := y.Floats(); !slices.Equal(got, []float64{3, 5, 3, 9, 11, 6}) {
			t.Errorf("overlapping views give %v", got)
		}
		for _, shift := range []int{1, -1} { // enough elements that any order of writing shows
			z, want := s.Typed(dtype.F32).Arange(0, 4000, 1), make([]float64, 4000)
			from, to := max(0, -shift), max(0, shift)
			z.Narrow(0, to, 3999).Copy(z.Narrow(0, from, 3999))
			for i := range want {
				want[i] = float64(i)
			}
			copy(want[to:to+3999], slices.Clone(want[from:from+3999]))
			if !slices.Equal(z.Floats(), want) {
				t.Errorf("a copy within one memory by %d is not as of a copy", shift)
			}
		}
		sq := s.From([]float32{1, 2, 3, 4}, 2, 2)
		sq.Copy(sq.T())
		if got := sq.Floats(); !slices.Equal(got, []float64{1, 3, 2, 4}) {
			t.Errorf("a matrix set to its transpose is %v", got)
		}
	})
}

// From makes a tensor of a graph no constant.
func TestFromKeepsGraph(t *testing.T) {
	w := tensor.From([]float32{1, 2}).RequiresGrad()
	defer w.Free()
	gpu := emulated(t)
	for _, opts := range [][]tensor.Option{nil, {tensor.On(gpu)}} {
		tensor.Do(func(s *tensor.Scope) {
			if g := tensor.Gradients(s.From(w).Square().Sum(), []*tt{w})[0].Floats(); !slices.Equal(g, []float64{2, 4}) {
				t.Errorf("gradient %v", g)
			}
		}, opts...)
	}
}

// One input asked for twice has its gradient twice.
func TestInputTwice(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float32{1, 2}).RequiresGrad()
		y := w.MulScalar(3)
		g := tensor.Gradients(y.Square().Sum(), []*tt{w, y, w, y})
		for i, want := range [][]float64{{18, 36}, {6, 12}, {18, 36}, {6, 12}} {
			if !slices.Equal(g[i].Floats(), want) {
				t.Errorf("gradient %d is %v, want %v", i, g[i].Floats(), want)
			}
		}
		g[0].Free()
		if !slices.Equal(g[2].Floats(), []float64{18, 36}) {
			t.Error("the second handle died with the first")
		}
	})
}
