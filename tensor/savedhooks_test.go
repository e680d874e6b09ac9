package tensor_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// The hooks round saved values to bfloat16, which needs half the memory.
func ExampleSavedTensorsHooks() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Full(3.0001, 1).RequiresGrad()
		x.In(s).Square().Backward()
		fmt.Println(x.Grad().Item())
		x.ZeroGrad()
		s.Do(func(s *tensor.Scope) { x.In(s).MulScalar(1).Square().Backward() }, tensor.SavedTensorsHooks(
			func(x *tensor.Tensor) any { return x.Cast(dtype.BF16) },
			func(_ *tensor.Scope, v any) *tensor.Tensor { return v.(*tensor.Tensor).Float() },
		))
		fmt.Println(x.Grad().Item())
	})
	// Output:
	// 6.000199794769287
	// 6
}

// freed is a value that a pack hook returns. Its method Free counts the values that were freed.
type freed struct {
	n    *int
	data []float32
}

func (f *freed) Free() { *f.n++ }

func TestSavedTensorsHooks(t *testing.T) {
	type tt = tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		w := s.Randn(4, 4).RequiresGrad()
		run := func(opts ...tensor.Option) []byte {
			defer w.ZeroGrad()
			s.Do(func(s *tensor.Scope) {
				x := s.Full(0.5, 3, 4)
				x.MatMul(w.In(s)).Exp().MatMul(w.In(s)).Tanh().Sum().Backward()
			}, opts...)
			return w.Grad().Bytes()
		}
		want := run()
		count, leaves := 0, 0
		for name, hooks := range map[string]tensor.Option{
			"a value": tensor.SavedTensorsHooks(func(x *tt) any {
				if x.IsLeaf() && x.NeedsGrad() {
					leaves++
				}
				count++
				return &freed{&count, tensor.Data[float32](x)}
			}, func(s *tensor.Scope, v any) *tt {
				f := v.(*freed)
				return s.From(f.data, map[int][]int{12: {3, 4}, 16: {4, 4}}[len(f.data)]...)
			}),
			"itself":   tensor.SavedTensorsHooks(func(x *tt) any { return x }, func(_ *tensor.Scope, v any) *tt { return v.(*tt) }),
			"a clone":  tensor.SavedTensorsHooks(func(x *tt) any { return x.Clone() }, func(_ *tensor.Scope, v any) *tt { return v.(*tt).Clone() }),
			"negative": tensor.SavedTensorsHooks(func(x *tt) any { return x.Neg() }, func(_ *tensor.Scope, v any) *tt { return v.(*tt).Neg() }),
		} {
			if !bytes.Equal(run(hooks), want) {
				t.Errorf("%s: not the same bits", name)
			}
		}
		if leaves != 1 || count != 10 { // each of the five values is packed once and freed once
			t.Errorf("%d leaves; packed and freed %d times", leaves, count)
		}
		for words, c := range map[string]struct {
			kind   error
			pack   func(x *tt) any
			unpack func(s *tensor.Scope, v any) *tt
		}{
			"shape [2]":       {tensor.ErrShape, func(x *tt) any { return x }, func(s *tensor.Scope, v any) *tt { return s.Ones(2) }},
			"type float64":    {tensor.ErrType, func(x *tt) any { return x }, func(s *tensor.Scope, v any) *tt { return v.(*tt).Double() }},
			"operand is nil":  {tensor.ErrValue, func(x *tt) any { return x }, func(s *tensor.Scope, v any) *tt { return nil }},
			"pack or unpack":  {tensor.ErrValue, nil, nil},
			"by an in-place ": {tensor.ErrInPlace, func(x *tt) any { return x }, func(s *tensor.Scope, v any) *tt { return v.(*tt) }},
		} {
			err := tensor.Try(func() {
				s.Do(func(s *tensor.Scope) {
					y := s.Ones(3).RequiresGrad().MulScalar(2).Exp()
					z := y.Sum()
					if c.kind == tensor.ErrInPlace {
						s.Do(func(s *tensor.Scope) { y.In(s).AddScalarInPlace(1) }, tensor.NoGrad())
					}
					z.Backward()
				}, tensor.SavedTensorsHooks(c.pack, c.unpack))
			})
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), words) {
				t.Errorf("%q: %v", words, err)
			}
		}
	})
}
