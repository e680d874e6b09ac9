package optest

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// windowRef applies f to each window in the last rank dimensions of x, which are the spatial ones.
// The first argument of f holds the elements of a window. The second holds their positions in the
// flattened spatial dimensions. The third is the number of positions that are inside the padded
// input.
func windowRef(x array, rank int, o tensor.MaxPoolOptions, f func(v []float64, at []int, wide int) float64) array {
	kernel, dil, pad := sizes(rank, o.Kernel, 0), sizes(rank, o.Dilation, 1), sizes(rank, o.Padding, 0)
	stride := sizes(rank, o.Stride, 0)
	dims := slices.Clone(x.dims)
	lead := len(dims) - rank
	for i := range rank {
		if len(o.Stride) == 0 {
			stride[i] = kernel[i]
		}
		n := x.dims[lead+i]
		room := float64(n+2*pad[i]-dil[i]*(kernel[i]-1)-1) / float64(stride[i])
		dims[lead+i] = int(math.Floor(room)) + 1
		if o.CeilMode {
			if dims[lead+i] = int(math.Ceil(room)) + 1; (dims[lead+i]-1)*stride[i] >= n+pad[i] {
				dims[lead+i]--
			}
		}
	}
	return arrayOfFunc(dims, func(out []int) float64 {
		var v []float64
		var places []int
		wide := 0
		from := slices.Clone(out)
		each(kernel, func(_ int, tap []int) {
			inside, padded, place := true, true, 0
			for i, t := range tap {
				at, n := out[lead+i]*stride[i]+t*dil[i]-pad[i], x.dims[lead+i]
				padded = padded && at < n+pad[i]
				inside = inside && at >= 0 && at < n
				from[lead+i] = at
				place = place*n + at
			}
			if padded {
				wide++
			}
			if inside {
				v, places = append(v, x.at(from...)), append(places, place)
			}
		})
		return f(v, places, wide)
	})
}

func greatest(v []float64, at []int, _ int) float64 { return slices.Max(v) }

func greatestAt(v []float64, at []int, _ int) float64 {
	return float64(at[slices.Index(v, slices.Max(v))])
}

func maxRef(rank int, o tensor.MaxPoolOptions) func(x array) array {
	return func(x array) array { return windowRef(x, rank, o, greatest) }
}

func avgRef(rank int, o tensor.AvgPoolOptions) func(x array) array {
	return func(x array) array {
		return windowRef(x, rank, tensor.MaxPoolOptions{Kernel: o.Kernel, Stride: o.Stride, Padding: o.Padding, CeilMode: o.CeilMode}, func(v []float64, _ []int, wide int) float64 {
			sum, n := 0.0, wide
			for _, w := range v {
				sum += w
			}
			if o.ExcludePadding {
				n = len(v)
			}
			if o.Divisor != 0 {
				n = o.Divisor
			}
			return sum / float64(n)
		})
	}
}

// adaptiveRef applies f to the windows of an adaptive pool over the last dimensions.
func adaptiveRef(size []int, f func(v []float64, at []int, wide int) float64) func(x array) array {
	return func(x array) array {
		dims := slices.Clone(x.dims)
		lead := len(dims) - len(size)
		for i, n := range size {
			if n >= 0 {
				dims[lead+i] = n
			}
		}
		return arrayOfFunc(dims, func(out []int) float64 {
			var v []float64
			var places []int
			each(x.dims[lead:], func(place int, at []int) {
				for i, k := range at {
					n, m := x.dims[lead+i], dims[lead+i]
					if k < out[lead+i]*n/m || k >= ((out[lead+i]+1)*n+m-1)/m {
						return
					}
				}
				v, places = append(v, x.at(append(slices.Clone(out[:lead]), at...)...)), append(places, place)
			})
			return f(v, places, len(v))
		})
	}
}

func mean(v []float64, _ []int, _ int) float64 {
	sum := 0.0
	for _, w := range v {
		sum += w
	}
	return sum / float64(len(v))
}

// columnsRef computes the columns of F.unfold.
func columnsRef(o tensor.FoldOptions) func(x array) array {
	return func(x array) array {
		if len(x.dims) == 3 {
			y := columnsRef(o)(x.reshape(append([]int{1}, x.dims...)...))
			return y.reshape(y.dims[1:]...)
		}
		kernel, stride, dil, pad := sizes(2, o.Kernel, 0), sizes(2, o.Stride, 1), sizes(2, o.Dilation, 1), sizes(2, o.Padding, 0)
		var out [2]int
		for i := range out {
			out[i] = (x.dims[2+i]+2*pad[i]-dil[i]*(kernel[i]-1)-1)/stride[i] + 1
		}
		taps := kernel[0] * kernel[1]
		return arrayOfFunc([]int{x.dims[0], x.dims[1] * taps, out[0] * out[1]}, func(i []int) float64 {
			tap, place := i[1]%taps, i[2]
			h := place/out[1]*stride[0] + tap/kernel[1]*dil[0] - pad[0]
			w := place%out[1]*stride[1] + tap%kernel[1]*dil[1] - pad[1]
			if h < 0 || w < 0 || h >= x.dims[2] || w >= x.dims[3] {
				return 0
			}
			return x.at(i[0], i[1]/taps, h, w)
		})
	}
}

// adjoint returns the transpose of a linear function of arrays with dimensions dims.
func adjoint(f func(x array) array, dims ...int) func(y array) array {
	return func(y array) array {
		x, unit := newArray(dims...), newArray(dims...)
		for i := range unit.v {
			unit.v[i] = 1
			for k, v := range f(unit).v {
				x.v[i] += v * y.v[k]
			}
			unit.v[i] = 0
		}
		return x
	}
}

func init() { rowTables = append(rowTables, poolRows) }

func poolRows() []row {
	var rows []row
	add := func(op string, methods []string, in []int, exact bool, call func(x *tt) *tt, ref func(x array) array) {
		r := row{op: op, methods: methods, in: [][]int{in}, call: func(x []*tt) *tt { return call(x[0]) }, ref: func(x []array) array { return ref(x[0]) }}
		if !exact {
			r.terms = absAll(r.ref)
		}
		rows = append(rows, r)
	}
	values := func(v, _ *tt) *tt { return v }
	maxOf := func(rank int, in []int, o tensor.MaxPoolOptions) {
		plain := []func(*tt, tensor.MaxPoolOptions) *tt{(*tt).MaxPool1d, (*tt).MaxPool2d, (*tt).MaxPool3d}[rank-1]
		both := []func(*tt, tensor.MaxPoolOptions) (*tt, *tt){(*tt).MaxPool1dIndices, (*tt).MaxPool2dIndices, (*tt).MaxPool3dIndices}[rank-1]
		name := []string{"MaxPool1d", "MaxPool2d", "MaxPool3d"}[rank-1]
		add("max_pool", []string{name}, in, true, func(x *tt) *tt { return plain(x, o) }, maxRef(rank, o))
		add("max_pool indices", []string{name + "Indices"}, in, true, func(x *tt) *tt { return values(both(x, o)) }, maxRef(rank, o))
		rows = append(rows, row{op: "max_pool places", in: [][]int{in}, noGrad: true, result: dtype.I64,
			call: func(x []*tt) *tt { _, at := both(x[0], o); return at },
			ref:  func(x []array) array { return windowRef(x[0], rank, o, greatestAt) }})
	}
	maxOf(1, []int{2, 2, 7}, tensor.MaxPoolOptions{Kernel: []int{3}, Stride: []int{2}, Padding: []int{1}})
	maxOf(1, []int{2, 6}, tensor.MaxPoolOptions{Kernel: []int{2}, Dilation: []int{2}, Stride: []int{1}})
	maxOf(2, []int{2, 2, 5, 4}, tensor.MaxPoolOptions{Kernel: []int{2}})
	maxOf(2, []int{1, 5, 5}, tensor.MaxPoolOptions{Kernel: []int{3, 2}, Stride: []int{2, 3}, Padding: []int{1, 0}, CeilMode: true})
	// For a window as large as this one, the pool finds the maximum by a reduction.
	maxOf(2, []int{1, 1, 10, 8}, tensor.MaxPoolOptions{Kernel: []int{10, 8}})
	for i := range rows[len(rows)-3:] {
		// These rows do not check gradients, because central differences for so many elements would
		// be slow. The rows above check them.
		rows[len(rows)-3+i].noGrad = true
	}
	maxOf(2, []int{0, 2, 4, 4}, tensor.MaxPoolOptions{Kernel: []int{2}})
	maxOf(3, []int{1, 2, 3, 3, 4}, tensor.MaxPoolOptions{Kernel: []int{2}, Stride: []int{1, 1, 2}, Padding: []int{0, 1, 0}})

	avgOf := func(rank int, in []int, o tensor.AvgPoolOptions) {
		call := []func(*tt, tensor.AvgPoolOptions) *tt{(*tt).AvgPool1d, (*tt).AvgPool2d, (*tt).AvgPool3d}[rank-1]
		add("avg_pool", []string{[]string{"AvgPool1d", "AvgPool2d", "AvgPool3d"}[rank-1]}, in, false, func(x *tt) *tt { return call(x, o) }, avgRef(rank, o))
	}
	avgOf(1, []int{2, 2, 7}, tensor.AvgPoolOptions{Kernel: []int{3}, Stride: []int{2}, Padding: []int{1}})
	avgOf(1, []int{2, 6}, tensor.AvgPoolOptions{Kernel: []int{4}, Stride: []int{3}, CeilMode: true, Padding: []int{2}})
	avgOf(2, []int{2, 2, 5, 4}, tensor.AvgPoolOptions{Kernel: []int{2}})
	avgOf(2, []int{1, 5, 4}, tensor.AvgPoolOptions{Kernel: []int{3, 2}, Stride: []int{2, 1}, Padding: []int{1}, ExcludePadding: true})
	avgOf(2, []int{1, 5, 4}, tensor.AvgPoolOptions{Kernel: []int{2, 3}, Stride: []int{2, 1}, CeilMode: true, Divisor: 3})
	avgOf(2, []int{2, 4, 3}, tensor.AvgPoolOptions{Kernel: []int{2}, Stride: []int{1}})
	avgOf(2, []int{0, 2, 4, 4}, tensor.AvgPoolOptions{Kernel: []int{2}})
	avgOf(3, []int{1, 2, 2, 3, 3}, tensor.AvgPoolOptions{Kernel: []int{2, 2, 1}, Stride: []int{1}})

	for _, c := range []struct{ in, size []int }{{[]int{2, 7}, []int{3}}, {[]int{1, 2, 6}, []int{2}}, {[]int{1, 4, 5}, []int{3, 2}}, {[]int{2, 2, 4, 2}, []int{2, -1}}, {[]int{1, 2, 2, 3}, []int{3, 3}},
		{[]int{1, 3, 2, 2}, []int{2, 2, 1}}} {
		rank := len(c.size)
		name := []string{"1d", "2d", "3d"}[rank-1]
		avg := []func(x *tt) *tt{func(x *tt) *tt { return x.AdaptiveAvgPool1d(c.size[0]) }, func(x *tt) *tt { return x.AdaptiveAvgPool2d(c.size...) },
			func(x *tt) *tt { return x.AdaptiveAvgPool3d(c.size...) }}[rank-1]
		most := []func(x *tt) (*tt, *tt){func(x *tt) (*tt, *tt) { return x.AdaptiveMaxPool1d(c.size[0]) }, func(x *tt) (*tt, *tt) { return x.AdaptiveMaxPool2d(c.size...) },
			func(x *tt) (*tt, *tt) { return x.AdaptiveMaxPool3d(c.size...) }}[rank-1]
		add("adaptive_avg_pool", []string{"AdaptiveAvgPool" + name}, c.in, false, avg, adaptiveRef(c.size, mean))
		add("adaptive_max_pool", []string{"AdaptiveMaxPool" + name}, c.in, true, func(x *tt) *tt { return values(most(x)) }, adaptiveRef(c.size, greatest))
		rows = append(rows, row{op: "adaptive_max_pool places", in: [][]int{c.in}, noGrad: true, result: dtype.I64,
			call: func(x []*tt) *tt { _, at := most(x[0]); return at }, ref: func(x []array) array { return adaptiveRef(c.size, greatestAt)(x[0]) }})
	}

	square := tensor.AvgPoolOptions{Kernel: []int{2}}
	norm := func(v []float64, _ []int, _ int) float64 {
		sum := 0.0
		for _, w := range v {
			sum += w * w
		}
		return math.Sqrt(sum)
	}
	for rank, in := range [][]int{1: {2, 5}, 2: {1, 4, 2}, 3: {1, 2, 4, 2}} {
		if rank == 0 {
			continue
		}
		call := []func(*tt, float64, tensor.AvgPoolOptions) *tt{(*tt).LPPool1d, (*tt).LPPool2d, (*tt).LPPool3d}[rank-1]
		rows = append(rows, row{op: "lp_pool", methods: []string{[]string{"LPPool1d", "LPPool2d", "LPPool3d"}[rank-1]}, in: [][]int{in}, terms: ones, rounds: true,
			call: func(x []*tt) *tt { return call(x[0], 2, square) },
			ref:  func(x []array) array { return windowRef(x[0], rank, tensor.MaxPoolOptions{Kernel: []int{2}}, norm) }})
	}

	for _, c := range []struct {
		in []int
		o  tensor.FoldOptions
	}{{[]int{2, 2, 4, 3}, tensor.FoldOptions{Kernel: []int{2}}}, {[]int{2, 5, 4}, tensor.FoldOptions{Kernel: []int{3, 2}, Stride: []int{2, 1}, Padding: []int{1, 0}, Dilation: []int{1, 2}}},
		{[]int{0, 2, 3, 3}, tensor.FoldOptions{Kernel: []int{2}}}} {
		ref := columnsRef(c.o)
		r := one("unfold2d", "Unfold2d", c.in, func(x *tt) *tt { return x.Unfold2d(c.o) }, ref)
		rows = append(rows, r)
		n := len(c.in)
		add("fold", []string{"Fold"}, ref(newArray(c.in...)).dims, false, func(x *tt) *tt { return x.Fold(c.in[n-2], c.in[n-1], c.o) }, adjoint(ref, c.in...))
	}
	return rows
}
