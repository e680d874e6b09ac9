package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// testNormSums checks the gradient of a normalisation: the gradients of weight and bias, the field
// Add, and 16-bit results of float32 operands.
func testNormSums(r *rig) {
	if !r.supports("norm", "norm gradient") {
		return
	}
	sizes := [][2]int{{3, 1}, {70, 7}, {65, 63}, {9, 65}, {5, 129}, {2, 768}, {0, 5}, {2, 50257}}
	if r.large {
		sizes = append(sizes, [2]int{130, 768}, [2]int{5000, 65}, [2]int{70, 2048}, [2]int{50, 6144}, [2]int{130, 50257})
	}
	f32, f64, f16, bf16 := dtype.F32, dtype.F64, dtype.F16, dtype.BF16
	k := 0
	for _, t := range [][2]dtype.Type{{f32, f32}, {f32, bf16}, {f32, f16}, {bf16, bf16}, {f16, f16}, {f64, f64}} {
		for _, s := range sizes {
			for _, rms := range []bool{false, true} {
				if s[1] > 2048 && t[0] != f32 {
					continue
				}
				k++
				n := device.RowNorm{Eps: 1e-3, RMS: rms, Zero: !rms, Period: 1, Inner: 1}
				r.normSums(t[0], t[1], s[0], s[1], outForms[k%2], n, k)
				r.end()
			}
		}
	}
}

// normSums runs a normalisation with operands of type x and results of type y, and its gradients.
// The number k selects which operands and results are absent.
func (r *rig) normSums(x, y dtype.Type, rows, cols int, f form, n device.RowNorm, k int) {
	what := fmt.Sprintf("norm %+v of %v [%d, %d] to %v, case %d", n, x, rows, cols, y, k)
	dims, row, columns, acc := shape.Of(rows, cols), shape.Of(rows), shape.Of(cols), x.Compute()
	in, g, out, rstd := r.small(x, dims, f), r.small(y, dims, f), r.empty(y, dims, f), r.empty(acc, row, f)
	forward := device.Norm{Out: out.v, Rstd: rstd.v, X: in.v, RowNorm: n}
	back := device.NormGrad{G: g.v, X: in.v, Rstd: rstd.v, RowNorm: n}
	var means *array
	if !n.RMS {
		means = r.empty(acc, row, f)
		forward.Mean, back.Mean = means.v, means.v
	}
	w := make([]float64, cols)
	for i := range w {
		w[i] = 1
	}
	if k%3 > 0 {
		a := r.small(acc, columns, f)
		forward.Weight, back.Weight, w = a.v, a.v, a.floats()
	}
	r.run(what, &forward)
	if x != y { // the 16-bit result must equal the float32 result, rounded once
		wide := r.empty(x, dims, f)
		forward.Out = wide.v
		r.run(what+", in float32", &forward)
		var rounded []uint64
		for _, b := range wide.fetch(what) {
			rounded = append(rounded, expr.Encode(y, expr.Decode(x, b)))
		}
		out.equal(what, rounded)
	}

	var dx, dw, db, more *array
	if k%5 != 1 {
		dx = r.empty(x, dims, f)
		back.DX = dx.v
		if k%4 > 0 {
			more = r.small(x, dims, f)
			back.Add = more.v
		}
	} else {
		back.Weight = device.View{}
	}
	if k%7 != 2 {
		dw = r.empty(acc, columns, f)
		back.DWeight = dw.v
	}
	if !n.RMS && k%7 != 3 || dw == nil {
		db = r.empty(acc, columns, f)
		back.DBias = db.v
	}
	if !r.dev.Supports(&back) {
		r.Logf("%s does not support %s with sums of %d columns", r.dev.Name(), back.Name(), cols)
		back.DWeight, back.DBias, dw, db = device.View{}, device.View{}, nil, nil
		if dx == nil {
			return
		}
	}
	r.run(what+", gradient", &back)
	fx, fg, m := in.floats(), g.floats(), make([]float64, rows)
	if means != nil {
		means.fetch(what)
		m = means.floats()
	}
	rstd.fetch(what)
	rs := rstd.floats()
	e, full := epsilon(x), epsilon(acc)
	sums := [2][]float64{make([]float64, cols), make([]float64, cols)}
	size := make([]float64, cols) // for each column, the sum of the magnitudes of the added numbers
	want, bound := make([]float64, len(fx)), make([]float64, len(fx))
	for i := range rows {
		var h, hz, most float64
		for j := range cols {
			o := i*cols + j
			z := (fx[o] - m[i]) * rs[i]
			sums[0][j] += fg[o] * z
			sums[1][j] += fg[o]
			size[j] += math.Abs(fg[o]) * max(1, (math.Abs(fx[o])+math.Abs(m[i]))*rs[i])
			h += fg[o] * w[j] / float64(cols)
			hz += fg[o] * w[j] * z / float64(cols)
			most = max(most, math.Abs(fg[o]*w[j])*max(1, (math.Abs(fx[o])+math.Abs(m[i]))*rs[i]))
		}
		if n.RMS {
			h = 0
		}
		for j := range cols {
			o := i*cols + j
			z := (fx[o] - m[i]) * rs[i]
			want[o] = rs[i] * (fg[o]*w[j] - h - z*hz)
			bound[o] = 40 * full * rs[i] * most * max(1, math.Abs(z)+math.Abs(m[i])*rs[i])
		}
	}
	if more != nil {
		for o, v := range more.floats() {
			want[o] += v
			bound[o] += 2 * full * math.Abs(v)
		}
	}
	if dx != nil {
		dx.close(what+", gradient", want, func(i int) float64 { return bound[i] + e*math.Abs(want[i])*1.01 + 1e-7*e/0x1p-24 })
	}
	for i, a := range []*array{dw, db} {
		if a == nil {
			continue
		}
		a.close(fmt.Sprintf("%s, sum %d", what, i), sums[i], func(j int) float64 { return 40 * full * size[j] })
		before := a.bits()
		again := r.empty(acc, columns, f)
		*back.Operand(1 + i).View = again.v
		r.run(what+", again", &back)
		again.equal(what+", again", before)
	}
}
