package optest

import (
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// pick selects the entries idx of a dimension. For the entry -1 it inserts the value v.
func (a array) pick(dim int, v float64, idx ...int) array {
	dims := slices.Clone(a.dims)
	dims[dim] = len(idx)
	y := newArray(dims...)
	each(dims, func(i int, at []int) {
		from := slices.Clone(at)
		if from[dim] = idx[at[dim]]; from[dim] < 0 {
			y.v[i] = v
			return
		}
		y.v[i] = a.at(from...)
	})
	return y
}

func arrayOfFunc(dims []int, f func(idx []int) float64) array {
	y := newArray(dims...)
	each(dims, func(i int, idx []int) { y.v[i] = f(idx) })
	return y
}

// joined flattens results and concatenates them into one tensor, so that one row of the table can
// test several results.
func joined(x []*tt) *tt {
	flat := make([]*tt, len(x))
	for i, t := range x {
		flat[i] = t.Reshape(-1)
	}
	return tensor.Cat(0, flat...)
}

func joinedArrays(x ...array) array {
	y := newArray(0)
	for _, a := range x {
		y.v = append(y.v, a.v...)
	}
	y.dims = []int{len(y.v)}
	return y
}

// one makes a row of the table for an op of one operand.
func one(op, method string, in []int, call func(x *tt) *tt, ref func(x array) array) row {
	return row{op: op, methods: []string{method}, in: [][]int{in}, ints: true, call: func(x []*tt) *tt { return call(x[0]) }, ref: func(x []array) array { return ref(x[0]) }}
}

// shapeRows returns the rows of the ops that rearrange elements.
func shapeRows() []row {
	rows := []row{
		one("slice", "Slice", []int{3, 7}, func(x *tt) *tt { return x.Slice(1, 1, 6, 2) }, func(x array) array { return x.pick(1, 0, 1, 3, 5) }),
		one("slice", "Slice", []int{5, 2}, func(x *tt) *tt { return x.Slice(0, -2, tensor.End, 1) }, func(x array) array { return x.pick(0, 0, 3, 4) }),
		one("slice", "Slice", []int{5, 2}, func(x *tt) *tt { return x.Slice(0, 4, 2, 1) }, func(x array) array { return x.pick(0, 0) }),
		one("slice", "Slice", []int{2, 6}, func(x *tt) *tt { return x.Slice(-1, tensor.End, -tensor.End, -2) }, func(x array) array { return x.pick(1, 0, 5, 3, 1) }),
		one("slice", "Slice", []int{6}, func(x *tt) *tt { return x.Slice(0, -2, 0, -1) }, func(x array) array { return x.pick(0, 0, 4, 3, 2, 1) }),
		one("diagonal", "Diagonal", []int{3, 4}, func(x *tt) *tt { return x.Diagonal(1, 0, 1) }, func(x array) array {
			return arrayOfFunc([]int{3}, func(i []int) float64 { return x.at(i[0], i[0]+1) })
		}),
		one("diagonal", "Diagonal", []int{3, 2, 4}, func(x *tt) *tt { return x.Diagonal(-1, -1, 0) }, func(x array) array {
			return arrayOfFunc([]int{2, 3}, func(i []int) float64 { return x.at(i[1], i[0], i[1]+1) })
		}),
		one("diagonal", "Diagonal", []int{2, 3}, func(x *tt) *tt { return x.Diagonal(3, 0, 1) }, func(array) array { return newArray(0) }),
		one("diag_embed", "DiagEmbed", []int{2, 3}, func(x *tt) *tt { return x.DiagEmbed(-1, 0, -1) }, func(x array) array {
			return arrayOfFunc([]int{4, 2, 4}, func(i []int) float64 {
				if i[2] != i[0]-1 {
					return 0
				}
				return x.at(i[1], i[2])
			})
		}),
		one("diag", "Diag", []int{3}, func(x *tt) *tt { return x.Diag(0) }, func(x array) array {
			return arrayOfFunc([]int{3, 3}, func(i []int) float64 {
				if i[0] != i[1] {
					return 0
				}
				return x.v[i[0]]
			})
		}),
		one("diag", "Diag", []int{3, 3}, func(x *tt) *tt { return x.Diag(-1) }, func(x array) array {
			return arrayOfFunc([]int{2}, func(i []int) float64 { return x.at(i[0]+1, i[0]) })
		}),
		one("unfold", "Unfold", []int{2, 7}, func(x *tt) *tt { return x.Unfold(1, 3, 2) }, unfoldRef(1, 3, 2)),
		one("unfold", "Unfold", []int{5, 2, 2}, func(x *tt) *tt { return x.Unfold(0, 2, 1) }, unfoldRef(0, 2, 1)),
		one("unfold", "Unfold", []int{2, 5}, func(x *tt) *tt { return x.Unfold(-1, 2, 3) }, unfoldRef(1, 2, 3)),
		one("as_strided", "AsStrided", []int{3, 4}, func(x *tt) *tt { return x.Contiguous().AsStrided([]int{2, 3, 2}, []int{4, 1, 2}, 1) }, func(x array) array {
			return arrayOfFunc([]int{2, 3, 2}, func(i []int) float64 { return x.v[1+4*i[0]+i[1]+2*i[2]] })
		}),
		one("as_strided", "AsStrided", []int{3, 4}, func(x *tt) *tt { return x.Contiguous().T().Narrow(0, 1, 2).AsStrided([]int{2, 3}, []int{0, 4}) }, func(x array) array {
			return arrayOfFunc([]int{2, 3}, func(i []int) float64 { return x.at(i[1], 1) })
		}),
		one("unflatten", "Unflatten", []int{2, 6}, func(x *tt) *tt { return x.Unflatten(1, 3, -1) }, func(x array) array { return x.reshape(2, 3, 2) }),
		one("moveaxis", "MoveAxis", []int{2, 3, 4}, func(x *tt) *tt { return x.MoveAxis(0, -1) }, func(x array) array { return x.permute([]int{1, 2, 0}) }),
		one("moveaxis", "MoveAxis", []int{2, 3, 2, 2}, func(x *tt) *tt { return x.MoveAxis(-2, 0) }, func(x array) array { return x.permute([]int{2, 0, 1, 3}) }),
		one("moveaxis", "MoveAxes", []int{2, 3, 2, 4}, func(x *tt) *tt { return x.MoveAxes([]int{0, -1}, []int{-1, 1}) }, func(x array) array { return x.permute([]int{1, 3, 2, 0}) }),
		one("broadcast_to", "BroadcastTo", []int{3, 1}, func(x *tt) *tt { return x.BroadcastTo(2, 3, 4) }, func(x array) array { return x.expand([]int{2, 3, 4}) }),
		one("repeat", "Repeat", []int{2, 3}, func(x *tt) *tt { return x.Repeat(2, 3, 2) }, func(x array) array {
			return arrayOfFunc([]int{2, 6, 6}, func(i []int) float64 { return x.at(i[1]%2, i[2]%3) })
		}),
		one("repeat", "Repeat", []int{2, 3}, func(x *tt) *tt { return x.Repeat(1, 1) }, array.clone),
		one("repeat", "Repeat", []int{2, 3}, func(x *tt) *tt { return x.Repeat(0, 2) }, func(array) array { return newArray(0, 6) }),
		one("tile", "Tile", []int{2, 3}, func(x *tt) *tt { return x.Tile(2) }, func(x array) array { return x.pick(1, 0, 0, 1, 2, 0, 1, 2) }),
		one("repeat_interleave", "RepeatInterleave", []int{2, 3}, func(x *tt) *tt { return x.RepeatInterleave(2, 0) }, func(x array) array { return x.pick(0, 0, 0, 0, 1, 1) }),
		one("repeat_interleave", "RepeatInterleave", []int{2, 2, 2}, func(x *tt) *tt { return x.RepeatInterleave(3, 1) }, func(x array) array { return x.pick(1, 0, 0, 0, 0, 1, 1, 1) }),
		one("flip", "Flip", []int{2, 3, 2}, func(x *tt) *tt { return x.Flip(1, -1) }, func(x array) array { return x.pick(1, 0, 2, 1, 0).pick(2, 0, 1, 0) }),
		one("flip", "Flip", []int{2, 3}, func(x *tt) *tt { return x.Flip() }, array.clone),
		one("roll", "Roll", []int{5, 3}, func(x *tt) *tt { return x.Roll([]int{2, -1}, []int{0, 1}) }, func(x array) array { return x.pick(0, 0, 3, 4, 0, 1, 2).pick(1, 0, 1, 2, 0) }),
		one("roll", "Roll", []int{2, 3}, func(x *tt) *tt { return x.Roll([]int{7}, nil) }, func(x array) array { return x.reshape(6).pick(0, 0, 5, 0, 1, 2, 3, 4).reshape(2, 3) }),
		one("pad", "Pad", []int{2, 4}, func(x *tt) *tt { return x.Pad(3, 1, -2, 2, 0) }, func(x array) array { return x.pick(1, 3, -1, 0, 1).pick(0, 3, -1, -1, 0, 1) }),
		one("pad", "Pad", []int{2, 2}, func(x *tt) *tt { return x.Pad(1, -2, 3) }, func(x array) array { return x.pick(1, 1, -1, -1, -1) }),
		one("pad_reflect", "PadReflect", []int{3, 4}, func(x *tt) *tt { return x.PadReflect(3, 2, 1, 0) }, func(x array) array {
			return x.pick(1, 0, 3, 2, 1, 0, 1, 2, 3, 2, 1).pick(0, 0, 1, 0, 1, 2)
		}),
		one("pad_replicate", "PadReplicate", []int{3, 2}, func(x *tt) *tt { return x.PadReplicate(0, 3, 1, 2) }, func(x array) array {
			return x.pick(1, 0, 0, 1, 1, 1, 1).pick(0, 0, 0, 0, 1, 2, 2, 2)
		}),
		one("pad_circular", "PadCircular", []int{2, 3}, func(x *tt) *tt { return x.PadCircular(3, 2) }, func(x array) array { return x.pick(1, 0, 0, 1, 2, 0, 1, 2, 0, 1) }),
		one("tril", "Tril", []int{3, 4}, func(x *tt) *tt { return x.Tril(1) }, func(x array) array { return triangleRef(x, func(row, col int) bool { return col-row <= 1 }) }),
		one("triu", "Triu", []int{2, 3, 3}, func(x *tt) *tt { return x.Triu(-1) }, func(x array) array { return triangleRef(x, func(row, col int) bool { return col-row >= -1 }) }),
		one("split", "Split", []int{2, 5}, func(x *tt) *tt { return joined(x.Split(2, 1)) }, func(x array) array { return joinedArrays(x.narrow(1, 0, 2), x.narrow(1, 2, 2), x.narrow(1, 4, 1)) }),
		one("split", "SplitSizes", []int{5, 2}, func(x *tt) *tt { return joined(x.SplitSizes([]int{1, 0, 4}, 0)) }, func(x array) array { return x.reshape(10) }),
		one("chunk", "Chunk", []int{2, 5}, func(x *tt) *tt { return joined(x.Chunk(3, -1)[1:]) }, func(x array) array { return joinedArrays(x.narrow(1, 2, 2), x.narrow(1, 4, 1)) }),
		one("unbind", "Unbind", []int{2, 3}, func(x *tt) *tt { return joined(x.Unbind(1)) }, func(x array) array { return x.permute([]int{1, 0}).reshape(6) }),
	}
	pair := func(op string, in [][]int, call func(x []*tt) *tt, ref func(x []array) array) {
		rows = append(rows, row{op: op, methods: []string{op}, in: in, ints: true, call: call, ref: ref})
	}
	pair("HStack", [][]int{{2, 3}, {2, 1}}, func(x []*tt) *tt { return tensor.HStack(x...) }, catRef(1))
	pair("HStack", [][]int{{3}, {2}}, func(x []*tt) *tt { return tensor.HStack(x...) }, catRef(0))
	pair("VStack", [][]int{{3}, {2, 3}}, func(x []*tt) *tt { return tensor.VStack(x...) }, func(x []array) array { return catRef(0)([]array{x[0].reshape(1, 3), x[1]}) })
	pair("Meshgrid", [][]int{{3}, {2}}, func(x []*tt) *tt { return joined(tensor.Meshgrid(x...)) }, func(x []array) array {
		return joinedArrays(x[0].reshape(3, 1).expand([]int{3, 2}), x[1].expand([]int{3, 2}))
	})
	pair("MeshgridXY", [][]int{{3}, {2}, {2}}, func(x []*tt) *tt { return joined(tensor.MeshgridXY(x...)) }, func(x []array) array {
		full := []int{2, 3, 2}
		return joinedArrays(x[0].reshape(1, 3, 1).expand(full), x[1].reshape(2, 1, 1).expand(full), x[2].expand(full))
	})
	return rows
}

func unfoldRef(dim, size, step int) func(x array) array {
	return func(x array) array {
		dims := append(slices.Clone(x.dims), size)
		dims[dim] = (dims[dim]-size)/step + 1
		return arrayOfFunc(dims, func(i []int) float64 {
			from := slices.Clone(i[:len(i)-1])
			from[dim] = from[dim]*step + i[len(i)-1]
			return x.at(from...)
		})
	}
}

func triangleRef(x array, in func(row, col int) bool) array {
	n := len(x.dims)
	return arrayOfFunc(x.dims, func(i []int) float64 {
		if !in(i[n-2], i[n-1]) {
			return 0
		}
		return x.at(i...)
	})
}
