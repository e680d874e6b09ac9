package optest

import (
	"math"
)

func init() { rowTables = append(rowTables, normRows) }

// standard normalises each group of elements to mean 0 and variance 1. key returns the group of an
// element.
func standard(x array, eps float64, rms bool, key func(idx []int) int) array {
	sum, square, count := map[int]float64{}, map[int]float64{}, map[int]float64{}
	each(x.dims, func(i int, idx []int) { sum[key(idx)] += x.v[i]; count[key(idx)]++ })
	mean := func(k int) float64 {
		if rms {
			return 0
		}
		return sum[k] / count[k]
	}
	each(x.dims, func(i int, idx []int) {
		k := key(idx)
		square[k] += (x.v[i] - mean(k)) * (x.v[i] - mean(k))
	})
	y := newArray(x.dims...)
	each(x.dims, func(i int, idx []int) {
		k := key(idx)
		y.v[i] = (x.v[i] - mean(k)) / math.Sqrt(square[k]/count[k]+eps)
	})
	return y
}

// scaled multiplies by the weight, if any, and adds the bias, if any. key returns the index of the
// weight and the bias that apply to an element.
func scaled(y array, in []array, key func(idx []int) int) array {
	each(y.dims, func(i int, idx []int) {
		if len(in) > 0 {
			y.v[i] *= in[0].v[key(idx)]
		}
		if len(in) > 1 {
			y.v[i] += in[1].v[key(idx)]
		}
	})
	return y
}

func channelOf(idx []int) int { return idx[1] }

func normRows() []row {
	var rows []row
	add := func(op, method string, in [][]int, call func(x []*tt) *tt, ref func(x []array) array) {
		rows = append(rows, row{op: op, methods: []string{method}, in: in, kernels: true, call: call, ref: ref,
			terms: func(x []array) array { return absolute(ref(x)).apply(func(v float64) float64 { return 8 + 4*v }) }})
	}
	opt := func(x []*tt, k int) *tt {
		if k < len(x) {
			return x[k]
		}
		return nil
	}
	with := func(x, affine []int, n int) [][]int {
		in := [][]int{x}
		for range n {
			in = append(in, affine)
		}
		return in
	}
	const eps = 1e-2
	for _, c := range []struct {
		x, over []int
		affine  int
	}{{[]int{3, 7}, []int{7}, 2}, {[]int{4, 8}, []int{8}, 2}, {[]int{2, 3, 4}, []int{3, 4}, 1}, {[]int{2, 3, 4}, []int{4}, 0}, {[]int{5}, []int{5}, 2}, {[]int{0, 3}, []int{3}, 2}} {
		from := len(c.x) - len(c.over)
		part := func(idx []int) (row, column int) {
			for d, i := range idx {
				if d < from {
					row = row*c.x[d] + i
				} else {
					column = column*c.x[d] + i
				}
			}
			return row, column
		}
		row := func(idx []int) int { r, _ := part(idx); return r }
		column := func(idx []int) int { _, c := part(idx); return c }
		add("layer_norm", "LayerNorm", with(c.x, c.over, c.affine), func(x []*tt) *tt { return x[0].LayerNorm(c.over, opt(x, 1), opt(x, 2), eps) },
			func(x []array) array { return scaled(standard(x[0], eps, false, row), x[1:], column) })
		add("layer_norm_as", "LayerNormAs", with(c.x, c.over, c.affine), func(x []*tt) *tt { return x[0].LayerNormAs(x[0].Type(), c.over, opt(x, 1), opt(x, 2), eps) },
			func(x []array) array { return scaled(standard(x[0], eps, false, row), x[1:], column) })
		n := min(c.affine, 1)
		add("rms_norm_as", "RMSNormAs", with(c.x, c.over, n), func(x []*tt) *tt { return x[0].RMSNormAs(x[0].Type(), c.over, opt(x, 1), eps) },
			func(x []array) array { return scaled(standard(x[0], eps, true, row), x[1:], column) })
		add("rms_norm", "RMSNorm", with(c.x, c.over, n), func(x []*tt) *tt { return x[0].RMSNorm(c.over, opt(x, 1), eps) },
			func(x []array) array { return scaled(standard(x[0], eps, true, row), x[1:], column) })
	}
	for _, c := range []struct {
		x              []int
		groups, affine int
	}{{[]int{2, 4, 3}, 2, 2}, {[]int{2, 4, 2, 2}, 4, 1}, {[]int{3, 4}, 1, 2}, {[]int{2, 6, 4}, 3, 0}, {[]int{0, 4, 2}, 2, 2}} {
		add("group_norm", "GroupNorm", with(c.x, c.x[1:2], c.affine), func(x []*tt) *tt { return x[0].GroupNorm(c.groups, opt(x, 1), opt(x, 2), eps) },
			func(x []array) array {
				return scaled(standard(x[0], eps, false, func(idx []int) int { return idx[0]*c.groups + idx[1]/(c.x[1]/c.groups) }), x[1:], channelOf)
			})
	}
	for _, c := range []struct {
		x      []int
		affine int
	}{{[]int{4, 3}, 2}, {[]int{3, 2, 4}, 2}, {[]int{2, 3, 2, 2}, 1}, {[]int{2, 2, 1, 2, 2}, 0}, {[]int{0, 3}, 2}} {
		add("batch_norm", "BatchNorm", with(c.x, c.x[1:2], c.affine), func(x []*tt) *tt { return x[0].BatchNorm(nil, nil, opt(x, 1), opt(x, 2), true, 0.1, eps) },
			func(x []array) array { return scaled(standard(x[0], eps, false, channelOf), x[1:], channelOf) })
		if len(c.x) > 2 {
			add("instance_norm", "InstanceNorm", with(c.x, c.x[1:2], c.affine), func(x []*tt) *tt { return x[0].InstanceNorm(nil, nil, opt(x, 1), opt(x, 2), true, 0.1, eps) },
				func(x []array) array {
					return scaled(standard(x[0], eps, false, func(idx []int) int { return idx[0]*c.x[1] + idx[1] }), x[1:], channelOf)
				})
		}
		fixed := func(x []array) array {
			y := x[0].clone()
			each(y.dims, func(i int, idx []int) {
				k := float64(idx[1])
				y.v[i] = (y.v[i] - k/4) / math.Sqrt((k+1)/2+eps)
			})
			return scaled(y, x[1:], channelOf)
		}
		given := func(x *tt) (mean, variance *tt) {
			k := x.Scope().On(x.Device()).Typed(x.Type().Compute()).Arange(x.Dim(1))
			return k.MulScalar(0.25), k.AddScalar(1).MulScalar(0.5)
		}
		add("batch_norm", "BatchNorm", with(c.x, c.x[1:2], c.affine), func(x []*tt) *tt {
			mean, variance := given(x[0])
			return x[0].BatchNorm(mean, variance, opt(x, 1), opt(x, 2), false, 0.1, eps)
		}, fixed)
		if c.affine == 1 {
			add("instance_norm", "InstanceNorm", with(c.x, c.x[1:2], c.affine), func(x []*tt) *tt {
				mean, variance := given(x[0])
				return x[0].InstanceNorm(mean, variance, opt(x, 1), opt(x, 2), false, 0.1, eps)
			}, fixed)
		}
	}
	for _, p := range []float64{2, 1, 3, math.Inf(1)} {
		add("normalize", "Normalize", [][]int{{3, 4}}, func(x []*tt) *tt { return x[0].Normalize(p, -1, 1e-12) },
			func(x []array) array {
				n := along(x[0], []int{1}, normRef(p))
				y := x[0].clone()
				each(y.dims, func(i int, idx []int) { y.v[i] /= n.v[idx[0]] })
				return y
			})
	}
	add("normalize", "Normalize", [][]int{{0, 4}}, func(x []*tt) *tt { return x[0].Normalize(2, 0, 1e-12) }, first)
	for _, size := range []int{1, 2, 3, 6} {
		add("local_response_norm", "LocalResponseNorm", [][]int{{2, 4, 3}}, func(x []*tt) *tt { return x[0].LocalResponseNorm(size, 0.5, 0.75, 2) },
			func(x []array) array {
				y := x[0].clone()
				each(y.dims, func(i int, idx []int) {
					s := 0.0
					for c := idx[1] - size/2; c <= idx[1]+(size-1)/2; c++ {
						if c >= 0 && c < 4 {
							s += x[0].at(idx[0], c, idx[2]) * x[0].at(idx[0], c, idx[2])
						}
					}
					y.v[i] /= math.Pow(2+0.5*s/float64(size), 0.75)
				})
				return y
			})
	}
	return rows
}
