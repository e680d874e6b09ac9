package tensor_test

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// FuzzIndex makes a tensor and an index of any kind from bytes. Index, IndexPut and SetIndex must
// work or panic with the typed error. Their results must be readable.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{2, 3, 4, 0, 1, 1, 2, 5, 6})
	f.Add([]byte{3, 1, 2, 3, 8, 4, 4, 9, 9, 9})
	f.Add([]byte{2, 4, 4, 6, 2, 1, 3, 7, 2, 0, 1})
	f.Add([]byte{1, 5, 10, 11, 12, 13, 14, 15})
	wild := []int{0, 1, -1, 2, -2, 3, 7, -8, math.MaxInt, math.MinInt, math.MaxInt - 1, math.MinInt + 1, tensor.End, -tensor.End, 1 << 32, -1 << 33}
	f.Fuzz(func(t *testing.T, b []byte) {
		next := func(n int) int {
			if len(b) == 0 {
				return 0
			}
			v := int(b[0])
			b = b[1:]
			return v % n
		}
		tensor.Do(func(s *tensor.Scope) {
			dims := make([]int, next(5))
			for i := range dims {
				dims[i] = next(5)
			}
			x := s.Rand(dims...)
			if next(2) == 1 && len(dims) > 1 {
				x = x.Transpose(0, -1)
			}
			some := func() *tensor.Tensor {
				shape := make([]int, next(4))
				for i := range shape {
					shape[i] = next(4)
				}
				y := s.Typed(dtype.I64).Zeros(shape...)
				for i := range y.Size() {
					y = y.Reshape(-1).IndexFill(0, s.From([]int64{int64(i)}), float64(next(7)-3))
				}
				return y.Reshape(shape...)
			}
			var ix []any
			for range next(12) {
				switch next(14) {
				case 0:
					ix = append(ix, wild[next(len(wild))])
				case 1:
					ix = append(ix, tensor.Range(wild[next(len(wild))], wild[next(len(wild))], wild[next(len(wild))]))
				case 2:
					ix = append(ix, tensor.All)
				case 3:
					ix = append(ix, tensor.Ellipsis)
				case 4:
					ix = append(ix, tensor.NewAxis)
				case 5:
					ix = append(ix, some())
				case 6:
					ix = append(ix, some().GtScalar(0))
				case 7:
					ix = append(ix, some().Cast(dtype.I32))
				case 8:
					ix = append(ix, []int{next(5) - 2, next(5) - 2}[:next(3)])
				case 9:
					ix = append(ix, next(2) == 1)
				case 10:
					ix = append(ix, x.GtScalar(0.5))
				case 11:
					ix = append(ix, s.Typed(dtype.I64).Full(float64(wild[next(8)])), some())
				case 12:
					ix = append(ix, []any{nil, "a", 1.5, (*tensor.Tensor)(nil), tensor.IndexMark(9), tensor.Range(0, 1, 2, 3), x}[next(7)])
				case 13:
					gone := some()
					gone.Free()
					ix = append(ix, gone)
				}
			}
			try := func(f func() *tensor.Tensor) {
				err := tensor.Try(func() { _ = f().Floats() })
				var e *tensor.Error
				if err != nil && (!errors.As(err, &e) || e.Op == "" || e.Msg == "") {
					t.Errorf("%v: error %#v", ix, err)
				}
			}
			before := x.Floats()
			try(func() *tensor.Tensor { return x.Index(ix...) })
			value := []any{1, 2.5, true, x, some(), some().Float(), nil, "b", (*tensor.Tensor)(nil)}[next(9)]
			try(func() *tensor.Tensor { return x.IndexPut(value, next(2) == 1, ix...) })
			for i, v := range x.Floats() {
				if v != before[i] {
					t.Fatalf("%v changed the tensor", ix)
				}
			}
			try(func() *tensor.Tensor { return x.SetIndex(value, ix...) })
		})
	})
}
