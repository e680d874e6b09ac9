package worklist

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// reindexed returns views of a map's operands for the elements of the map's result that a view v
// reads. The map computes the view out from the views ins, and v reads elements of out. The
// returned views have the shape of v. Applied to the returned views, the map computes the elements
// of v in the order of v. reindexed returns false if no strides describe such views.
//
// The result out must have no gaps. Each position in memory then has exactly one list of
// coordinates in out. One step along a dimension of v must equal a whole number of steps along one
// dimension of out. All steps together must stay within the size of that dimension.
func reindexed(out, v *device.View, ins []device.View) ([]device.View, bool) {
	strides := []shape.Dims{out.Strides}
	for i := range ins {
		strides = append(strides, ins[i].Strides)
	}
	dims, strides := shape.CollapseTogether(out.Shape, strides)
	order := make([]int, dims.Rank()) // dimensions of out, by descending stride
	for k := range order {
		order[k] = k
	}
	radix := strides[0]
	slices.SortFunc(order, func(a, b int) int { return radix.At(b) - radix.At(a) })
	for i, next := len(order)-1, 1; i >= 0; i-- {
		if radix.At(order[i]) != next {
			return nil, false
		}
		next *= dims.At(order[i])
	}
	size := v.Type.Size()
	rest := int(start(v)) - int(start(out))
	if v.Type != out.Type || rest < 0 || rest%size != 0 || v.Size() == 0 {
		return nil, false
	}
	rest /= size
	list := make([]device.View, len(ins))
	for i := range ins {
		list[i] = device.View{Buf: ins[i].Buf, Type: ins[i].Type, Layout: shape.Layout{Offset: ins[i].Offset, Shape: v.Shape, Strides: v.Strides}}
	}
	var last [shape.MaxRank]int // the largest coordinate that v reaches in each dimension of out
	for _, k := range order {
		last[k] = rest / radix.At(k)
		rest %= radix.At(k)
		for i := range list {
			list[i].Offset += last[k] * strides[1+i].At(k)
		}
	}
	if rest > 0 {
		return nil, false
	}
	for d := range v.Shape.Rank() {
		n, s := v.Shape.At(d), v.Strides.At(d)
		along := slices.IndexFunc(order, func(k int) bool { return radix.At(k) <= s })
		if n == 1 || s == 0 {
			for i := range list {
				list[i].Strides = list[i].Strides.With(d, 0)
			}
			continue
		}
		if along < 0 || s%radix.At(order[along]) != 0 {
			return nil, false
		}
		k := order[along]
		step := s / radix.At(k)
		last[k] += (n - 1) * step
		for i := range list {
			list[i].Strides = list[i].Strides.With(d, step*strides[1+i].At(k))
		}
	}
	for k := range dims.Rank() {
		if last[k] >= dims.At(k) {
			return nil, false
		}
	}
	return list, true
}
