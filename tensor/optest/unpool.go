package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func init() { rowTables = append(rowTables, unpoolRows) }

// unpooledRef writes the greatest element of each window of x back to its position.
func unpooledRef(rank int, o tensor.MaxPoolOptions) func(x array) array {
	return func(x array) array {
		places := windowRef(x, rank, o, greatestAt)
		y := newArray(x.dims...)
		plane, windows := 1, 1
		for i := len(x.dims) - rank; i < len(x.dims); i++ {
			plane, windows = plane*x.dims[i], windows*places.dims[i]
		}
		for k, at := range places.v {
			i := k/windows*plane + int(at)
			y.v[i] = x.v[i]
		}
		return y
	}
}

// fractionalRef applies f to the windows that samples select. samples has the shape [n, channels,
// rank]. The first dimensions of x are n and channels.
func fractionalRef(kernel, size []int, samples []float64, f func(v []float64, at []int, _ int) float64) func(x array) array {
	return func(x array) array {
		rank := len(kernel)
		return arrayOfFunc(append([]int{x.dims[0], x.dims[1]}, size...), func(out []int) float64 {
			var v []float64
			var places []int
			each(kernel, func(_ int, tap []int) {
				from, place := []int{out[0], out[1]}, 0
				for i, t := range tap {
					n, m := x.dims[2+i], size[i]
					start := n - kernel[i]
					if k := out[2+i]; k < m-1 {
						alpha, u := float64(start)/float64(m-1), samples[(out[0]*x.dims[1]+out[1])*rank+i]
						start = int(math.Floor((float64(k)+u)*alpha)) - int(math.Floor(u*alpha))
					}
					from = append(from, start+t)
					place = place*n + start + t
				}
				v, places = append(v, x.at(from...)), append(places, place)
			})
			return f(v, places, len(v))
		})
	}
}

func unpoolRows() []row {
	var rows []row
	for _, c := range []struct {
		in []int
		o  tensor.MaxPoolOptions
	}{{[]int{2, 6}, tensor.MaxPoolOptions{Kernel: []int{2}}}, {[]int{1, 2, 4, 3}, tensor.MaxPoolOptions{Kernel: []int{2, 3}}}, {[]int{0, 2, 4, 3}, tensor.MaxPoolOptions{Kernel: []int{2, 3}}},
		{[]int{2, 5, 5}, tensor.MaxPoolOptions{Kernel: []int{2}, Stride: []int{3}}}, {[]int{1, 2, 4, 2}, tensor.MaxPoolOptions{Kernel: []int{2}}}} {
		rank := 2
		pool, unpool, name := (*tt).MaxPool2dIndices, (*tt).MaxUnpool2d, "MaxUnpool2d"
		switch {
		case len(c.in) == 2:
			rank, pool, unpool, name = 1, (*tt).MaxPool1dIndices, (*tt).MaxUnpool1d, "MaxUnpool1d"
		case c.in[len(c.in)-1] == 2:
			rank, pool, unpool, name = 3, (*tt).MaxPool3dIndices, (*tt).MaxUnpool3d, "MaxUnpool3d"
		}
		rows = append(rows, row{op: "max_unpool", methods: []string{name}, in: [][]int{c.in},
			call: func(x []*tt) *tt {
				y, at := pool(x[0], c.o)
				return unpool(y, at, c.o, c.in[len(c.in)-rank:]...)
			},
			ref: func(x []array) array { return unpooledRef(rank, c.o)(x[0]) }})
	}
	for _, c := range []struct {
		in, kernel, size []int
		samples          []float64 // one number for each sample, channel and spatial dimension
	}{{[]int{1, 2, 5, 6}, []int{2, 3}, []int{3, 2}, []float64{0.5, 0.25, 0.75, 0}}, {[]int{2, 1, 4, 4}, []int{2}, []int{1, 3}, []float64{0.25, 0.5, 0, 0.75}},
		{[]int{0, 2, 4, 4}, []int{2}, []int{1, 3}, nil}, {[]int{1, 1, 3, 4, 2}, []int{2, 2, 1}, []int{2, 3, 2}, []float64{0.5, 0.25, 0.75}}} {
		rank := len(c.in) - 2
		pool, name := (*tt).FractionalMaxPool2d, "FractionalMaxPool2d"
		if rank == 3 {
			pool, name = (*tt).FractionalMaxPool3d, "FractionalMaxPool3d"
		}
		kernel := sizes(rank, c.kernel, 0)
		both := func(x *tt) (*tt, *tt) {
			u := x.Scope().On(x.Device()).Typed(x.Type()).From(append([]float64{}, c.samples...)).Reshape(c.in[0], c.in[1], rank)
			if rank == 2 {
				u = u.Flip(2) // torch expects the width first
			}
			return pool(x, tensor.FractionalPoolOptions{Kernel: c.kernel, Size: c.size, Samples: u})
		}
		rows = append(rows,
			row{op: "fractional_max_pool", methods: []string{name}, in: [][]int{c.in}, uploads: 1, call: func(x []*tt) *tt { y, _ := both(x[0]); return y },
				ref: func(x []array) array { return fractionalRef(kernel, c.size, c.samples, greatest)(x[0]) }},
			row{op: "fractional_max_pool places", in: [][]int{c.in}, noGrad: true, uploads: 1, result: dtype.I64, call: func(x []*tt) *tt { _, at := both(x[0]); return at },
				ref: func(x []array) array { return fractionalRef(kernel, c.size, c.samples, greatestAt)(x[0]) }})
	}
	return rows
}
