package optest

import (
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// sizes returns one number for each of rank dimensions. If one number is given, it applies to all
// dimensions. If no number is given, each dimension gets the fallback.
func sizes(rank int, given []int, fallback int) []int {
	v := make([]int, rank)
	for i := range v {
		switch {
		case len(given) == 0:
			v[i] = fallback
		case len(given) == 1:
			v[i] = given[0]
		default:
			v[i] = given[i]
		}
	}
	return v
}

// convRef computes the convolution of x[0] with x[1] by its definition, and adds the bias x[2] if
// there is one.
func convRef(o tensor.ConvOptions) func(x []array) array {
	return func(x []array) array {
		in, w := x[0], x[1]
		rank := len(w.dims) - 2
		stride, dil, pad := sizes(rank, o.Stride, 1), sizes(rank, o.Dilation, 1), sizes(rank, o.Padding, 0)
		behind := slices.Clone(pad)
		groups := max(1, o.Groups)
		whole := len(in.dims) == rank+2
		if !whole {
			in = in.reshape(append([]int{1}, in.dims...)...)
		}
		dims := []int{in.dims[0], w.dims[0]}
		for i := range rank {
			span := dil[i] * (w.dims[2+i] - 1)
			if o.Same {
				pad[i], behind[i] = span/2, span-span/2
			}
			dims = append(dims, (in.dims[2+i]+pad[i]+behind[i]-span-1)/stride[i]+1)
		}
		perOut, perIn := w.dims[0]/groups, w.dims[1]
		y := newArray(dims...)
		from := make([]int, rank+2)
		each(dims, func(i int, at []int) {
			sum := 0.0
			each(w.dims[1:], func(k int, tap []int) {
				from[0], from[1] = at[0], at[1]/perOut*perIn+tap[0]
				for d := range rank {
					from[2+d] = at[2+d]*stride[d] + tap[1+d]*dil[d] - pad[d]
					if from[2+d] < 0 || from[2+d] >= in.dims[2+d] {
						return
					}
				}
				sum += in.at(from...) * w.v[at[1]*size(w.dims[1:])+k]
			})
			if len(x) > 2 {
				sum += x[2].v[at[1]]
			}
			y.v[i] = sum
		})
		if !whole {
			return y.reshape(dims[1:]...)
		}
		return y
	}
}

// transposeRef computes a transposed convolution by its definition.
func transposeRef(o tensor.ConvTransposeOptions) func(x []array) array {
	return func(x []array) array {
		in, w := x[0], x[1]
		rank := len(w.dims) - 2
		stride, dil, pad := sizes(rank, o.Stride, 1), sizes(rank, o.Dilation, 1), sizes(rank, o.Padding, 0)
		more := sizes(rank, o.OutputPadding, 0)
		groups := max(1, o.Groups)
		whole := len(in.dims) == rank+2
		if !whole {
			in = in.reshape(append([]int{1}, in.dims...)...)
		}
		dims := []int{in.dims[0], w.dims[1] * groups}
		for i := range rank {
			dims = append(dims, (in.dims[2+i]-1)*stride[i]-2*pad[i]+dil[i]*(w.dims[2+i]-1)+more[i]+1)
		}
		perOut, perIn := w.dims[1], w.dims[0]/groups
		y := newArray(dims...)
		if len(x) > 2 {
			each(dims, func(i int, at []int) { y.v[i] = x[2].v[at[1]] })
		}
		to := make([]int, rank+2)
		each(in.dims, func(i int, at []int) {
			each(w.dims[1:], func(k int, tap []int) {
				to[0], to[1] = at[0], at[1]/perIn*perOut+tap[0]
				for d := range rank {
					to[2+d] = at[2+d]*stride[d] + tap[1+d]*dil[d] - pad[d]
					if to[2+d] < 0 || to[2+d] >= dims[2+d] {
						return
					}
				}
				y.v[y.offset(to)] += in.v[i] * w.v[at[1]*size(w.dims[1:])+k]
			})
		})
		if !whole {
			return y.reshape(dims[1:]...)
		}
		return y
	}
}

func biasOf(x []*tt) *tt {
	if len(x) > 2 {
		return x[2]
	}
	return nil
}

func init() {
	rowTables = append(rowTables, convRows)
}

func convRows() []row {
	var rows []row
	conv := func(o tensor.ConvOptions, in ...[]int) {
		rank := len(in[1]) - 2
		name := []string{"Conv1d", "Conv2d", "Conv3d"}[rank-1]
		rows = append(rows, row{op: "conv", methods: []string{name}, in: in, ref: convRef(o), terms: absAll(convRef(o)),
			call: func(x []*tt) *tt {
				return []func(*tt, *tt, *tt, tensor.ConvOptions) *tt{(*tt).Conv1d, (*tt).Conv2d, (*tt).Conv3d}[rank-1](x[0], x[1], biasOf(x), o)
			}})
	}
	conv(tensor.ConvOptions{}, []int{2, 2, 5}, []int{3, 2, 3}, []int{3})
	conv(tensor.ConvOptions{Stride: []int{2}, Padding: []int{2}, Dilation: []int{2}}, []int{2, 5}, []int{2, 2, 2})
	conv(tensor.ConvOptions{Same: true, Groups: 2}, []int{1, 2, 4}, []int{4, 1, 4}, []int{4})
	conv(tensor.ConvOptions{}, []int{2, 3, 4}, []int{2, 3, 1})
	conv(tensor.ConvOptions{Padding: []int{1}}, []int{2, 2, 3, 4}, []int{2, 2, 3, 3}, []int{2})
	conv(tensor.ConvOptions{Stride: []int{2, 1}, Padding: []int{1, 0}, Dilation: []int{1, 2}}, []int{1, 4, 5}, []int{2, 1, 2, 2}, []int{2})
	// this is a depthwise convolution
	conv(tensor.ConvOptions{Padding: []int{1}, Groups: 2}, []int{2, 2, 3, 3}, []int{2, 1, 3, 2})
	conv(tensor.ConvOptions{Groups: 2}, []int{1, 2, 4, 3}, []int{2, 1, 2, 2})
	conv(tensor.ConvOptions{Groups: 2}, []int{2, 4, 2, 2}, []int{2, 2, 1, 1})
	conv(tensor.ConvOptions{Padding: []int{0, 1}}, []int{0, 2, 3, 3}, []int{2, 2, 2, 2}, []int{2})
	conv(tensor.ConvOptions{Padding: []int{1, 0, 1}, Stride: []int{1, 2, 1}}, []int{1, 2, 2, 3, 2}, []int{2, 2, 2, 2, 1}, []int{2})
	conv(tensor.ConvOptions{Same: true, Groups: 2}, []int{2, 2, 2, 2}, []int{2, 1, 2, 1, 2})
	transpose := func(o tensor.ConvTransposeOptions, in ...[]int) {
		rank := len(in[1]) - 2
		name := []string{"ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"}[rank-1]
		rows = append(rows, row{op: "conv_transpose", methods: []string{name}, in: in, ref: transposeRef(o), terms: absAll(transposeRef(o)),
			call: func(x []*tt) *tt {
				return []func(*tt, *tt, *tt, tensor.ConvTransposeOptions) *tt{(*tt).ConvTranspose1d, (*tt).ConvTranspose2d, (*tt).ConvTranspose3d}[rank-1](x[0], x[1], biasOf(x), o)
			}})
	}
	transpose(tensor.ConvTransposeOptions{Stride: []int{2}, Padding: []int{1}, OutputPadding: []int{1}}, []int{2, 2, 3}, []int{2, 2, 3}, []int{2})
	transpose(tensor.ConvTransposeOptions{Dilation: []int{2}, Groups: 2}, []int{2, 3}, []int{2, 2, 2})
	transpose(tensor.ConvTransposeOptions{Stride: []int{2, 1}, OutputPadding: []int{1, 0}}, []int{1, 2, 2, 2}, []int{2, 2, 2, 2}, []int{2})
	transpose(tensor.ConvTransposeOptions{}, []int{2, 2, 2, 2}, []int{2, 3, 1, 1}, []int{3})
	transpose(tensor.ConvTransposeOptions{}, []int{0, 2, 2, 2}, []int{2, 2, 2, 2}, []int{2})
	transpose(tensor.ConvTransposeOptions{Padding: []int{0, 1, 0}, Groups: 2}, []int{2, 2, 2, 2}, []int{2, 1, 2, 2, 1})
	// With these images there are enough windows for one matrix product per sample.
	big := tensor.ConvOptions{Padding: []int{0}}
	rows = append(rows, row{op: "conv large", in: [][]int{{2, 2, 520}, {2, 2, 2}}, ref: convRef(big), terms: absAll(convRef(big)), noGrad: true,
		call: func(x []*tt) *tt { return x[0].Conv1d(x[1], nil, big) }})
	back := tensor.ConvTransposeOptions{Stride: []int{2}}
	rows = append(rows, row{op: "conv large", in: [][]int{{2, 2, 520}, {2, 2, 3}}, ref: transposeRef(back), terms: absAll(transposeRef(back)), noGrad: true,
		call: func(x []*tt) *tt { return x[0].ConvTranspose1d(x[1], nil, back) }})
	rows = append(rows, row{op: "conv large", in: [][]int{{2, 2, 520}, {2, 3, 1}}, ref: transposeRef(tensor.ConvTransposeOptions{}), terms: absAll(transposeRef(tensor.ConvTransposeOptions{})), noGrad: true,
		call: func(x []*tt) *tt { return x[0].ConvTranspose1d(x[1], nil, tensor.ConvTransposeOptions{}) }})
	return rows
}
