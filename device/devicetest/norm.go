package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// normSizes returns the sizes to test: rows, columns, and the Period and Inner of [device.RowNorm].
func (r *rig) normSizes() []normSize {
	s := []normSize{{3, 1, 1, 1}, {4, 10, 1, 1}, {2, 65, 1, 1}, {0, 5, 1, 1}, {4, 12, 2, 3}, {6, 8, 3, 8}, {4, 16, 2, 4}, {2, 64, 1, 1}}
	if r.large {
		s = append(s, normSize{50, 96, 1, 1}, normSize{5, 1024, 1, 1}, normSize{3, 2500, 1, 1}, normSize{200, 3, 1, 1}, normSize{4, 4096, 2, 1024}, normSize{6, 300, 3, 100}, normSize{2, 140, 2, 70})
	}
	return s
}

type normSize struct{ rows, cols, period, inner int }

func testNorm(r *rig) {
	if !r.supports("norm", "norm gradient") {
		return
	}
	k := 0
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		for _, s := range r.normSizes() {
			for _, rms := range []bool{false, true} {
				k++
				// affine selects the operands: 0 neither weight nor bias, 1 only the weight, 2 both
				affine := k % 3
				at := t
				if k%2 == 0 {
					at = t.Compute()
				}
				r.norm(t, at, s, outForms[k/3%2], device.RowNorm{Eps: 1e-3, RMS: rms, Zero: !rms, Period: s.period, Inner: s.inner}, affine)
			}
		}
	}
	// If the bias is absent, the op adds 0 to the result only if Zero is set.
	for _, zero := range []bool{false, true} {
		n := device.RowNorm{Eps: 1, RMS: true, Zero: zero, Period: 1, Inner: 1}
		x := r.array(dtype.F32, shape.Of(1, 3), contiguous, func(int) uint64 { return expr.Encode(dtype.F32, math.Copysign(0, -1)) })
		rstd := r.empty(dtype.F32, shape.Of(1), contiguous)
		r.run("norm in place", &device.Norm{Out: x.v, Rstd: rstd.v, X: x.v, RowNorm: n})
		if signed := math.Signbit(expr.Decode(dtype.F32, x.fetch("norm in place")[0])); signed == zero {
			r.Errorf("the norm of -0 with Zero %v has sign %v", zero, signed)
		}
		r.end()
	}
}

// norm runs one normalisation and its gradient, and checks them.
func (r *rig) norm(t, at dtype.Type, s normSize, f form, n device.RowNorm, affine int) {
	what := fmt.Sprintf("norm %+v of %v %v, %d weights of %v", n, t, s, affine, at)
	dims, column := shape.Of(s.rows, s.cols), shape.Of(s.rows)
	acc := t.Compute()
	x, g := r.small(t, dims, f), r.small(t, dims, f)
	y, dx := r.empty(t, dims, f), r.empty(t, dims, f)
	rstd := r.empty(acc, column, f)
	var mean, weight, bias device.View
	var means *array
	if !n.RMS {
		means = r.empty(acc, column, f)
		mean = means.v
	}
	count := n.Affine(s.cols)
	w, b := make([]float64, count), make([]float64, count)
	for i := range w {
		w[i] = 1
	}
	if affine > 0 {
		a := r.small(at, shape.Of(count), f)
		weight, w = a.v, a.floats()
	}
	if affine > 1 {
		a := r.small(at, shape.Of(count), f)
		bias, b = a.v, a.floats()
	}
	r.run(what, &device.Norm{Out: y.v, Mean: mean, Rstd: rstd.v, X: x.v, Weight: weight, Bias: bias, RowNorm: n})
	r.run(what+", gradient", &device.NormGrad{DX: dx.v, G: g.v, X: x.v, Mean: mean, Rstd: rstd.v, Weight: weight, RowNorm: n})
	fx, fg := x.floats(), g.floats()
	e, full := epsilon(t), epsilon(acc)
	want, bound := make([]float64, len(fx)), make([]float64, len(fx))
	grad, gbound := make([]float64, len(fx)), make([]float64, len(fx))
	m, rs := make([]float64, s.rows), make([]float64, s.rows)
	for i := range s.rows {
		var sum, square, h, hz, size float64
		row := fx[i*s.cols : (i+1)*s.cols]
		index := func(j int) int { return (i%n.Period*s.cols + j) / n.Inner }
		for _, v := range row {
			sum += v
			size += math.Abs(v) / float64(s.cols)
		}
		if !n.RMS {
			m[i] = sum / float64(s.cols)
		}
		for _, v := range row {
			square += (v - m[i]) * (v - m[i]) / float64(s.cols)
		}
		rs[i] = 1 / math.Sqrt(square+n.Eps)
		var mag, magz float64
		for j, v := range row {
			z, gw := (v-m[i])*rs[i], fg[i*s.cols+j]*w[index(j)]
			h += gw / float64(s.cols)
			hz += gw * z / float64(s.cols)
			mag += math.Abs(gw) / float64(s.cols)
			magz += math.Abs(gw) * (math.Abs(v) + size) * rs[i] / float64(s.cols)
		}
		if n.RMS {
			h = 0
		}
		for j, v := range row {
			o := i*s.cols + j
			z := (v - m[i]) * rs[i]
			want[o] = z*w[index(j)] + b[index(j)]
			bound[o] = e*math.Abs(want[o])*1.01 + 24*full*((math.Abs(v)+size)*rs[i]*math.Abs(w[index(j)])+math.Abs(b[index(j)])) + 1e-7*e/0x1p-24
			gw := fg[o] * w[index(j)]
			grad[o] = rs[i] * (gw - h - z*hz)
			gbound[o] = e*math.Abs(grad[o])*1.01 + 40*full*rs[i]*(math.Abs(gw)+mag+(math.Abs(v)+size)*rs[i]*magz) + 1e-7*e/0x1p-24
		}
	}
	y.close(what, want, func(i int) float64 { return bound[i] })
	dx.close(what+", gradient", grad, func(i int) float64 { return gbound[i] })
	rstd.close(what+", rstd", rs, func(i int) float64 { return 24 * full * rs[i] })
	if means != nil {
		means.close(what+", mean", m, func(int) float64 { return 24 * full * 8 })
	}
	r.end()
}
