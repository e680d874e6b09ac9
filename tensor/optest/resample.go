package optest

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// keys computes the weight of bicubic interpolation at distance t, by the kernel of R. Keys.
func keys(t float64) float64 {
	switch t = math.Abs(t); {
	case t <= 1:
		return 1.25*t*t*t - 2.25*t*t + 1
	case t < 2:
		return -0.75*t*t*t + 3.75*t*t - 6*t + 3
	}
	return 0
}

// resampleRef resizes the spatial dimensions of x. newSizes holds the new sizes. The weights follow
// the definition of each mode. cubic is the kernel of the cubic mode, usually the function keys. A
// caller that needs the sum of the absolute values of terms passes the absolute value of keys.
func resampleRef(mode tensor.InterpolateMode, newSizes []int, scale []float64, align bool, cubic func(t float64) float64) func(x array) array {
	return func(x array) array {
		y := x
		for d := 2; d < len(x.dims); d++ {
			n, m := x.dims[d], newSizes[d-2]
			dims := slices.Clone(y.dims)
			dims[d] = m
			before := y
			y = arrayOfFunc(dims, func(i []int) float64 {
				s := float64(n) / float64(m)
				if len(scale) > 0 {
					s = 1 / scale[min(d-2, len(scale)-1)]
				}
				k := float64(i[d])
				at := s*(k+0.5) - 0.5
				if align {
					at = k * float64(n-1) / math.Max(1, float64(m-1))
				}
				from := slices.Clone(i)
				entry := func(k int) float64 {
					from[d] = min(max(k, 0), n-1)
					return before.at(from...)
				}
				switch mode {
				case tensor.InterpolateNearest:
					return entry(int(math.Floor(s * k)))
				case tensor.InterpolateNearestExact:
					return entry(int(math.Floor(s * (k + 0.5))))
				case tensor.InterpolateArea:
					sum, lo, hi := 0.0, i[d]*n/m, ((i[d]+1)*n+m-1)/m
					for j := lo; j < hi; j++ {
						sum += entry(j)
					}
					return sum / float64(hi-lo)
				case tensor.InterpolateCubic:
					first, sum := int(math.Floor(at)), 0.0
					for j := first - 1; j <= first+2; j++ {
						sum += cubic(at-float64(j)) * entry(j)
					}
					return sum
				}
				at = math.Max(0, at)
				first := int(math.Floor(at))
				t := at - float64(first)
				return (1-t)*entry(first) + t*entry(first+1)
			})
		}
		return y
	}
}

// smoothRef resizes like resampleRef, with antialiasing. It divides the weighted sum of the
// elements by the sum of the weights. It applies the function factor only to the weights in the
// weighted sum.
func smoothRef(o tensor.InterpolateOptions, newSizes []int, factor func(w float64) float64) func(x array) array {
	filter := func(t float64) float64 { return math.Max(0, 1-math.Abs(t)) }
	if o.Mode == tensor.InterpolateCubic { // Keys' kernel with a = -½
		filter = func(t float64) float64 {
			switch t = math.Abs(t); {
			case t <= 1:
				return 1.5*t*t*t - 2.5*t*t + 1
			case t < 2:
				return -0.5*t*t*t + 2.5*t*t - 4*t + 2
			}
			return 0
		}
	}
	return func(x array) array {
		y := x
		for d := 2; d < len(x.dims); d++ {
			n, m := x.dims[d], newSizes[d-2]
			step := float64(n) / float64(m)
			switch {
			case o.AlignCorners:
				step = float64(n-1) / math.Max(1, float64(m-1))
				if m == 1 {
					step = 0
				}
			case len(o.Scale) > 0:
				step = 1 / o.Scale[min(d-2, len(o.Scale)-1)]
			}
			dims := slices.Clone(y.dims)
			dims[d] = m
			before := y
			y = arrayOfFunc(dims, func(i []int) float64 {
				centre, from := step*(float64(i[d])+0.5), slices.Clone(i)
				sum, total := 0.0, 0.0
				for j := range n {
					w := filter((float64(j) + 0.5 - centre) / math.Max(1, step))
					from[d] = j
					total += w
					if w != 0 {
						sum += factor(w) * before.at(from...)
					}
				}
				return sum / total
			})
		}
		return y
	}
}

func init() { rowTables = append(rowTables, resampleRows) }

func resampleRows() []row {
	var rows []row
	for _, c := range []struct {
		in    []int
		o     tensor.InterpolateOptions
		to    []int
		exact bool
	}{
		{[]int{2, 2, 5}, tensor.InterpolateOptions{Size: []int{3}}, []int{3}, true},
		{[]int{1, 2, 3, 2}, tensor.InterpolateOptions{Scale: []float64{2, 1.5}}, []int{6, 3}, true},
		{[]int{1, 1, 2, 2, 3}, tensor.InterpolateOptions{Size: []int{3, 1, 4}}, []int{3, 1, 4}, true},
		{[]int{2, 1, 3, 4}, tensor.InterpolateOptions{Size: []int{5, 3}, Mode: tensor.InterpolateNearestExact}, []int{5, 3}, true},
		{[]int{2, 2, 4}, tensor.InterpolateOptions{Size: []int{7}, Mode: tensor.InterpolateLinear}, []int{7}, false},
		{[]int{2, 2, 4}, tensor.InterpolateOptions{Size: []int{3}, Mode: tensor.InterpolateLinear, AlignCorners: true}, []int{3}, false},
		{[]int{1, 2, 3, 4}, tensor.InterpolateOptions{Size: []int{5, 2}, Mode: tensor.InterpolateLinear}, []int{5, 2}, false},
		{[]int{1, 2, 3, 2}, tensor.InterpolateOptions{Size: []int{1, 4}, Mode: tensor.InterpolateLinear, AlignCorners: true}, []int{1, 4}, false},
		{[]int{0, 2, 3, 2}, tensor.InterpolateOptions{Size: []int{4}, Mode: tensor.InterpolateLinear}, []int{4, 4}, false},
		{[]int{1, 1, 2, 3, 2}, tensor.InterpolateOptions{Size: []int{3, 2, 3}, Mode: tensor.InterpolateLinear}, []int{3, 2, 3}, false},
		{[]int{1, 1, 4, 3}, tensor.InterpolateOptions{Size: []int{7, 2}, Mode: tensor.InterpolateCubic}, []int{7, 2}, false},
		{[]int{1, 1, 3, 5}, tensor.InterpolateOptions{Size: []int{4}, Mode: tensor.InterpolateCubic, AlignCorners: true}, []int{4, 4}, false},
		{[]int{1, 2, 5, 3}, tensor.InterpolateOptions{Size: []int{3, 2}, Mode: tensor.InterpolateArea}, []int{3, 2}, false},
		{[]int{2, 1, 5, 4}, tensor.InterpolateOptions{Size: []int{2, 6}, Mode: tensor.InterpolateLinear, Antialias: true}, []int{2, 6}, false},
		{[]int{1, 1, 5, 3}, tensor.InterpolateOptions{Scale: []float64{0.4, 1.5}, Mode: tensor.InterpolateCubic, Antialias: true}, []int{2, 4}, false},
		{[]int{1, 2, 4, 5}, tensor.InterpolateOptions{Size: []int{1, 2}, Mode: tensor.InterpolateCubic, AlignCorners: true, Antialias: true}, []int{1, 2}, false},
	} {
		ref := resampleRef(c.o.Mode, c.to, c.o.Scale, c.o.AlignCorners, keys)
		if c.o.Antialias {
			ref = smoothRef(c.o, c.to, func(w float64) float64 { return w })
		}
		r := row{op: "interpolate", methods: []string{"Interpolate"}, in: [][]int{c.in}, call: func(x []*tt) *tt { return x[0].Interpolate(c.o) },
			ref: func(x []array) array { return ref(x[0]) }, ints: c.exact}
		if !c.exact {
			r.terms = func(x []array) array {
				return r.ref([]array{absolute(x[0])}).apply(func(v float64) float64 { return 8 + 8*math.Abs(v) })
			}
		}
		rows = append(rows, r)
	}
	shuffled := func(c, r, h, w int) func(x array) array {
		return func(x array) array {
			n := size(x.dims) / (c * r * r * h * w)
			y := x.reshape(n, c, r, r, h, w).permute([]int{0, 1, 4, 2, 5, 3})
			return y.reshape(append(slices.Clone(x.dims[:len(x.dims)-3]), c, h*r, w*r)...)
		}
	}
	rows = append(rows,
		one("pixel_shuffle", "PixelShuffle", []int{2, 8, 1, 3}, func(x *tt) *tt { return x.PixelShuffle(2) }, shuffled(2, 2, 1, 3)),
		one("pixel_shuffle", "PixelShuffle", []int{9, 2, 1}, func(x *tt) *tt { return x.PixelShuffle(3) }, shuffled(1, 3, 2, 1)),
		one("pixel_shuffle", "PixelShuffle", []int{2, 2, 2}, func(x *tt) *tt { return x.PixelShuffle(1) }, array.clone),
		one("pixel_unshuffle", "PixelUnshuffle", []int{2, 1, 2, 6}, func(x *tt) *tt { return x.PixelUnshuffle(2) }, func(x array) array {
			return x.reshape(2, 1, 1, 2, 3, 2).permute([]int{0, 1, 3, 5, 2, 4}).reshape(2, 4, 1, 3)
		}),
		one("channel_shuffle", "ChannelShuffle", []int{2, 6, 2}, func(x *tt) *tt { return x.ChannelShuffle(3) }, func(x array) array { return x.pick(1, 0, 0, 2, 4, 1, 3, 5) }),
		one("channel_shuffle", "ChannelShuffle", []int{1, 4, 1, 2}, func(x *tt) *tt { return x.ChannelShuffle(1) }, array.clone),
	)
	return rows
}
