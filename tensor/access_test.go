package tensor_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestInts reads the extremes of every integer type, and a view that is not contiguous.
func TestInts(t *testing.T) {
	for _, c := range []struct {
		x    *tensor.Tensor
		want []int
	}{
		{tensor.From([]bool{true, false}), []int{1, 0}},
		{tensor.From([]uint8{0, 128, math.MaxUint8}), []int{0, 128, math.MaxUint8}},
		{tensor.From([]int8{math.MinInt8, -1, math.MaxInt8}), []int{math.MinInt8, -1, math.MaxInt8}},
		{tensor.From([]int16{math.MinInt16, -1, math.MaxInt16}), []int{math.MinInt16, -1, math.MaxInt16}},
		{tensor.From([]int32{math.MinInt32, -1, math.MaxInt32}), []int{math.MinInt32, -1, math.MaxInt32}},
		{tensor.From([][]int64{{1, -2}, {3, math.MaxInt32}}).T(), []int{1, 3, -2, math.MaxInt32}},
		{tensor.From([]int64{}), []int{}},
	} {
		if got := c.x.Ints(); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.x.Type(), got, c.want)
		}
	}
	if math.MaxInt > math.MaxInt32 {
		wide := []int64{math.MinInt64, math.MaxInt64}
		for i, v := range tensor.From(wide).Ints() {
			if int64(v) != wide[i] {
				t.Errorf("%d, not %d", v, wide[i])
			}
		}
	}
	if err := tensor.Try(func() { tensor.From([]float32{1}).Cast(dtype.F16).Ints() }); !errors.Is(err, tensor.ErrType) {
		t.Errorf("of floats: %v", err)
	}
}
