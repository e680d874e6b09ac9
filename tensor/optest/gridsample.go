package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/tensor"
)

// gridRef samples images by the definition of each mode and of each padding. It replaces each
// weight w by spread(w). The function spread is the identity, or math.Abs for the sums of absolute
// terms.
func gridRef(o tensor.GridSampleOptions, spread func(w float64) float64) func(x []array) array {
	place := func(x float64, n int) float64 {
		if o.AlignCorners {
			return (x + 1) / 2 * float64(n-1)
		}
		return (x+1)*float64(n)/2 - 0.5
	}
	clip := func(at float64, n int) float64 { return math.Max(0, math.Min(float64(n-1), at)) }
	pad := func(at float64, n int) float64 {
		switch o.Padding {
		case tensor.GridBorder:
			return clip(at, n)
		case tensor.GridReflection:
			low, high := -0.5, float64(n)-0.5
			if o.AlignCorners {
				low, high = 0, float64(n-1)
			}
			for low < high && (at < low || at > high) {
				if at < low {
					at = 2*low - at
				} else {
					at = 2*high - at
				}
			}
			return clip(at, n)
		}
		return at
	}
	kernel := func(d float64) float64 { // the weight at distance d from the position
		switch o.Mode {
		case tensor.GridNearest:
			return 1
		case tensor.GridBilinear:
			return math.Max(0, 1-math.Abs(d))
		}
		return keys(d)
	}
	// reads returns the positions of the elements that are read for a coordinate, and their
	// weights.
	reads := func(x float64, n int) (at []int, w []float64) {
		p := place(x, n)
		if o.Mode != tensor.GridBicubic {
			p = pad(p, n)
		}
		from, to := math.Floor(p)-1, math.Floor(p)+2
		if o.Mode == tensor.GridNearest {
			from, to = math.RoundToEven(p), math.RoundToEven(p)
		}
		for k := from; k <= to; k++ {
			e := k
			if o.Mode == tensor.GridBicubic {
				e = pad(k, n)
			}
			if e >= 0 && e < float64(n) {
				at, w = append(at, int(e)), append(w, kernel(p-k))
			}
		}
		return at, w
	}
	return func(x []array) array {
		in, grid := x[0], x[1]
		return arrayOfFunc([]int{in.dims[0], in.dims[1], grid.dims[1], grid.dims[2]}, func(i []int) (sum float64) {
			across, wx := reads(grid.at(i[0], i[2], i[3], 0), in.dims[3])
			down, wy := reads(grid.at(i[0], i[2], i[3], 1), in.dims[2])
			for a, y := range down {
				for b, x := range across {
					sum += spread(wy[a]*wx[b]) * in.at(i[0], i[1], y, x)
				}
			}
			return sum
		})
	}
}

func init() {
	rowTables = append(rowTables, func() (rows []row) {
		for _, c := range []struct {
			in, grid []int
			o        tensor.GridSampleOptions
		}{
			{[]int{2, 3, 4, 5}, []int{2, 3, 2, 2}, tensor.GridSampleOptions{}},
			{[]int{1, 2, 3, 7}, []int{1, 5, 3, 2}, tensor.GridSampleOptions{AlignCorners: true}},
			{[]int{2, 1, 5, 3}, []int{2, 1, 7, 2}, tensor.GridSampleOptions{Padding: tensor.GridBorder}},
			{[]int{1, 2, 7, 5}, []int{1, 3, 5, 2}, tensor.GridSampleOptions{Padding: tensor.GridReflection}},
			{[]int{1, 2, 1, 3}, []int{1, 3, 5, 2}, tensor.GridSampleOptions{Padding: tensor.GridReflection, AlignCorners: true}},
			{[]int{2, 2, 3, 4}, []int{2, 4, 3, 2}, tensor.GridSampleOptions{Mode: tensor.GridNearest}},
			{[]int{1, 2, 4, 3}, []int{1, 4, 3, 2}, tensor.GridSampleOptions{Mode: tensor.GridNearest, Padding: tensor.GridReflection, AlignCorners: true}},
			{[]int{2, 2, 5, 4}, []int{2, 2, 3, 2}, tensor.GridSampleOptions{Mode: tensor.GridBicubic}},
			{[]int{1, 1, 3, 6}, []int{1, 4, 3, 2}, tensor.GridSampleOptions{Mode: tensor.GridBicubic, Padding: tensor.GridBorder, AlignCorners: true}},
			{[]int{1, 1, 4, 5}, []int{1, 4, 3, 2}, tensor.GridSampleOptions{Mode: tensor.GridBicubic, Padding: tensor.GridReflection}},
			{[]int{0, 2, 3, 2}, []int{0, 2, 2, 2}, tensor.GridSampleOptions{}},
			{[]int{2, 0, 3, 2}, []int{2, 2, 2, 2}, tensor.GridSampleOptions{Mode: tensor.GridBicubic}},
			{[]int{2, 2, 3, 2}, []int{2, 0, 2, 2}, tensor.GridSampleOptions{Padding: tensor.GridBorder}},
		} {
			sum := gridRef(c.o, math.Abs)
			rows = append(rows, row{op: "grid_sample", methods: []string{"GridSample"}, in: [][]int{c.in, c.grid}, kernels: true,
				call: func(x []*tt) *tt { return x[0].GridSample(x[1], c.o) }, ref: gridRef(c.o, func(w float64) float64 { return w }),
				terms: func(x []array) array { // the rounding error of the position counts too
					top := 0.0
					for _, v := range x[0].v {
						top = math.Max(top, math.Abs(v))
					}
					return sum([]array{absolute(x[0]), x[1]}).apply(func(v float64) float64 { return v + 16*top })
				}})
		}
		return rows
	})
}
