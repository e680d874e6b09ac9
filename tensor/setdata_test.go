package tensor_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestSetData checks that SetData makes a leaf use the memory of another tensor. The leaf keeps its
// handle and its gradient, and the other tensor may be freed.
func TestSetData(t *testing.T) {
	w := tensor.From([]float32{1, 2}).RequiresGrad()
	view := w.Detach()
	w.MulScalar(3).Sum().Backward()
	y := tensor.From([]float32{5, 6, 7, 8}).Narrow(0, 2, 2)
	w.SetData(y)
	if !slices.Equal(w.Floats(), []float64{7, 8}) || w.Storage() != y.Storage() || !w.NeedsGrad() || w.Grad().Floats()[0] != 3 {
		t.Errorf("%v", w)
	}
	y.Fill(9)
	y.Free()
	if !slices.Equal(w.Floats(), []float64{9, 9}) || !slices.Equal(view.Floats(), []float64{1, 2}) {
		t.Errorf("%v, the view %v", w, view)
	}
	w.SetData(w)
	w.MulScalar(2).Sum().Backward()
	if w.Grad().Floats()[0] != 5 {
		t.Errorf("the gradient is %v", w.Grad())
	}
	for _, r := range []struct {
		kind error
		f    func()
	}{
		{tensor.ErrShape, func() { w.SetData(tensor.Ones(3)) }},
		{tensor.ErrType, func() { w.SetData(tensor.Root().Typed(dtype.F64).Ones(2)) }},
		{tensor.ErrValue, func() { w.SetData(tensor.Ones(2, 2).Select(1, 0)) }},
		{tensor.ErrGrad, func() { w.SetData(w.MulScalar(2)) }},
		{tensor.ErrGrad, func() { w.MulScalar(2).SetData(tensor.Ones(2)) }},
		{tensor.ErrScope, func() { tensor.Do(func(s *tensor.Scope) { w.SetData(s.Ones(2)) }) }},
		{tensor.ErrScope, func() { tensor.Do(func(s *tensor.Scope) { w.In(s).SetData(tensor.Ones(2)) }) }},
	} {
		if err := tensor.Try(r.f); !errors.Is(err, r.kind) {
			t.Errorf("got %v, want %v", err, r.kind)
		}
	}
	// Here a leaf of a child scope uses memory that the root scope owns.
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2)
		x.SetData(w.Detach())
		if !slices.Equal(x.Floats(), []float64{9, 9}) {
			t.Error(x)
		}
	})
	if !slices.Equal(w.Floats(), []float64{9, 9}) {
		t.Error("closing the child freed the data")
	}
}
