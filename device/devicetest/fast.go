package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// rowSizes returns the sizes [rows, classes] with which softmax, cross-entropy and similar ops are
// tested.
func (r *rig) rowSizes() []shape.Dims {
	s := []shape.Dims{shape.Of(3, 1), shape.Of(4, 10), shape.Of(2, 65), shape.Of(0, 5)}
	if r.large {
		s = append(s, shape.Of(50, 100), shape.Of(5, 1024), shape.Of(3, 2500), shape.Of(200, 3))
	}
	return s
}

// logSumExp returns m, the maximum of x, and log = ln Σ exp(x - m). It returns two numbers because
// their sum m + log would be less precise.
func logSumExp(x []float64) (m, log float64) {
	m = math.Inf(-1)
	for _, v := range x {
		m = max(m, v)
	}
	var s float64
	for _, v := range x {
		s += math.Exp(v - m)
	}
	return m, math.Log(s)
}

// logits returns an array of values so large that exp overflows unless the row's maximum is
// subtracted first.
func (r *rig) logits(t dtype.Type, s shape.Dims, f form) *array {
	return r.array(t, s, f, func(int) uint64 { return expr.Encode(t, r.rnd.NormFloat64()*3+100) })
}

func testSoftmax(r *rig) {
	if !r.supports("softmax", "softmax gradient") {
		return
	}
	n := 0
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		for _, s := range r.rowSizes() {
			for _, log := range []bool{false, true} {
				n++
				x := r.logits(t, s, inForms[n%5])
				out := r.empty(t, s, outForms[n/2%len(outForms)])
				what := fmt.Sprintf("softmax (log %v) of %v of %v, operand %s", log, t, s, x.form)
				r.run(what, &device.Softmax{Out: out.v, X: x.v, Log: log})
				fx := x.floats()
				want := make([]float64, len(fx))
				c := s.At(1)
				for i := range s.At(0) {
					m, ls := logSumExp(fx[i*c : (i+1)*c])
					for j := range c {
						want[i*c+j] = fx[i*c+j] - m - ls
						if !log {
							want[i*c+j] = math.Exp(want[i*c+j])
						}
					}
				}
				e := epsilon(t) + 20*epsilon(t.Compute())
				out.close(what, want, func(i int) float64 {
					return e*math.Abs(want[i])*(1+math.Abs(math.Log(math.Abs(want[i])+1e-300))/4) + 8*epsilon(t.Compute())
				})

				// Compute the gradient from the device's own result and not from the reference.
				y := out.floats()
				g := r.small(t, s, inForms[(n+1)%5])
				dx := r.empty(t, s, outForms[n%len(outForms)])
				what = fmt.Sprintf("softmax gradient (log %v) of %v of %v", log, t, s)
				r.run(what, &device.SoftmaxGrad{DX: dx.v, Y: out.v, G: g.v, Log: log})
				fg := g.floats()
				bound := make([]float64, len(fg))
				for i := range s.At(0) {
					var sum, mag float64
					for j := range c {
						k := i*c + j
						v := fg[k]
						if !log {
							v *= y[k]
						}
						sum += v
						mag += math.Abs(v)
					}
					for j := range c {
						k := i*c + j
						if log {
							want[k] = fg[k] - math.Exp(y[k])*sum
							bound[k] = math.Exp(y[k]) * mag
						} else {
							want[k] = (fg[k] - sum) * y[k]
							bound[k] = y[k] * (mag + math.Abs(fg[k]))
						}
						bound[k] = 40*epsilon(t.Compute())*(bound[k]+math.Abs(want[k])) + epsilon(t)*math.Abs(want[k])*1.01 + 1e-7*epsilon(t)/0x1p-24
					}
				}
				dx.close(what, want, func(i int) float64 { return bound[i] })
				r.end()
			}
		}
	}
	// Run the op in place, on rows that contain infinities and NaN.
	inf, nan := math.Inf(1), math.NaN()
	vals := []float64{1, 2, -inf, nan, 0, 1, -inf, -inf, -inf, inf, 0, 1}
	x := r.array(dtype.F32, shape.Of(4, 3), contiguous, func(i int) uint64 { return expr.Encode(dtype.F32, vals[i]) })
	r.run("softmax in place", &device.Softmax{Out: x.v, X: x.v})
	p := 1 / (1 + math.E)
	x.close("softmax in place with infinities", []float64{p, 1 - p, 0, nan, nan, nan, nan, nan, nan, nan, nan, nan}, func(int) float64 { return 1e-6 })
}

func testCrossEntropy(r *rig) {
	if !r.supports("cross-entropy", "cross-entropy gradient") {
		return
	}
	n := 0
	const ignore = -100
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		ct := t.Compute()
		for _, s := range r.rowSizes() {
			n++
			rows, c := s.At(0), s.At(1)
			x := r.logits(t, s, inForms[n%5])
			target := r.array(dtype.I64, shape.Of(rows), inForms[n%3], func(i int) uint64 {
				if i%4 == 3 {
					v := int64(ignore)
					return uint64(v)
				}
				return uint64(r.rnd.IntN(c))
			})
			loss, top, rest := r.empty(ct, shape.Of(rows), contiguous), r.empty(ct, shape.Of(rows), contiguous), r.empty(ct, shape.Of(rows), offset)
			mean, count := r.empty(ct, shape.Of(1), offset), r.empty(dtype.I64, shape.Of(1), contiguous)
			what := fmt.Sprintf("cross-entropy of %v of %v, operand %s", t, s, x.form)
			r.run(what, &device.CrossEntropy{Loss: loss.v, Top: top.v, Rest: rest.v, X: x.v, Target: target.v, Mean: mean.v, Count: count.v, Ignore: ignore})
			// Mean must have the same bits as a Reduce of the losses, divided by Count. The losses
			// must have the same bits with and without Mean.
			sum, alone := r.empty(ct, shape.Of(1), contiguous), r.empty(ct, shape.Of(rows), contiguous)
			list := []dtype.Type{ct}
			r.run(what, &device.Reduce{Reduction: &device.Reduction{Map: expr.MustLower([]*expr.Expr{expr.X(0)}, list, list, -1)}, Out: sum.v, Ins: []device.View{loss.v}})
			r.run(what, &device.CrossEntropy{Loss: alone.v, Top: top.v, Rest: rest.v, X: x.v, Target: target.v, Ignore: ignore})
			counted := 0
			for _, b := range target.bits() {
				if int64(b) != ignore {
					counted++
				}
			}
			count.equal(what+", targets", []uint64{uint64(counted)})
			alone.equal(what+", losses without a mean", loss.fetch(what))
			fx := x.floats()
			wantLoss, wantTop, wantRest := make([]float64, rows), make([]float64, rows), make([]float64, rows)
			for i, b := range target.bits() {
				m, ls := logSumExp(fx[i*c : (i+1)*c])
				wantTop[i], wantRest[i] = m, ls
				if int64(b) != ignore {
					wantLoss[i] = ls - (fx[i*c+int(b)] - m)
				}
			}
			// the sum of exponentials is at least 1, so e bounds the error of its logarithm
			e := 8 * epsilon(ct)
			loss.close(what+", loss", wantLoss, func(i int) float64 { return e * (1 + math.Abs(wantLoss[i]) + math.Abs(wantRest[i])) })
			top.close(what+", greatest", wantTop, func(int) float64 { return 0 })
			rest.close(what+", rest", wantRest, func(i int) float64 { return e * (1 + math.Abs(wantRest[i])) })

			divided := func(v float64) uint64 {
				if ct == dtype.F32 {
					return expr.Encode(ct, float64(float32(v)/float32(counted)))
				}
				return expr.Encode(ct, v/float64(counted))
			}
			mean.equal(what+", mean", []uint64{divided(expr.Decode(ct, sum.fetch(what)[0]))})
			for _, f := range []form{contiguous, allCast} {
				g := r.small(ct, shape.Of(rows), f)
				dx := r.empty(t, s, outForms[n%len(outForms)])
				o := device.CrossEntropyGrad{DX: dx.v, X: x.v, Top: top.v, Rest: rest.v, Target: target.v, G: g.v, Ignore: ignore}
				r.run(what, &o)
				// With Count, the gradient must have the same bits as with the quotients G/Count in
				// place of G. The elements of an absent G count as 1.
				for _, given := range []bool{true, false} {
					by, has := g.floats(), o
					part := r.array(ct, shape.Of(rows), contiguous, func(i int) uint64 {
						if i < len(by) && given {
							return divided(by[i])
						}
						return divided(1)
					})
					a, b := r.empty(t, s, contiguous), r.empty(t, s, contiguous)
					if has.DX, has.Count = a.v, count.v; !given {
						has.G = device.View{}
					}
					r.run(what+", by a number", &has)
					has.DX, has.G, has.Count = b.v, part.v, device.View{}
					r.run(what+", of quotients", &has)
					a.equal(what+", gradient by a number", b.fetch(what))
				}
				fg, ft, fr := g.floats(), top.floats(), rest.floats()
				want := make([]float64, rows*c)
				for i, b := range target.bits() {
					if int64(b) == ignore {
						continue
					}
					for j := range c {
						v := math.Exp(fx[i*c+j] - ft[i] - fr[i])
						if j == int(b) {
							v--
						}
						want[i*c+j] = v * fg[i]
					}
				}
				dx.close(what+", gradient", want, func(i int) float64 {
					return epsilon(t)*math.Abs(want[i])*1.01 + 300*epsilon(ct)*math.Abs(fg[i/c]) + 1e-7*epsilon(t)/0x1p-24
				})
			}
			r.end()
		}
	}
	for _, bad := range []int64{-1, 4} {
		x := r.logits(dtype.F32, shape.Of(9, 4), contiguous)
		target := r.array(dtype.I64, shape.Of(9), contiguous, func(i int) uint64 {
			if i >= 7 {
				return uint64(bad)
			}
			return uint64(i % 4)
		})
		loss, top, rest := r.empty(dtype.F32, shape.Of(9), contiguous), r.empty(dtype.F32, shape.Of(9), contiguous), r.empty(dtype.F32, shape.Of(9), contiguous)
		r.checkIndexError(fmt.Sprintf("cross-entropy with target %d", bad),
			&device.CrossEntropy{Loss: loss.v, Top: top.v, Rest: rest.v, X: x.v, Target: target.v, Ignore: ignore, Tag: 77}, bad, 7, 8)
	}
}

// testPickedLosses tests the cross-entropy of logarithms of probabilities, and its gradient. These
// ops only select elements; they compute no exponentials.
func testPickedLosses(r *rig) {
	if !r.supports("cross-entropy", "cross-entropy gradient") {
		return
	}
	const ignore = -100
	n := 0
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		ct := t.Compute()
		for _, s := range r.rowSizes() {
			n++
			rows, c := s.At(0), s.At(1)
			x := r.logits(t, s, inForms[n%5])
			target := r.array(dtype.I64, shape.Of(rows), inForms[n%3], func(i int) uint64 {
				v := int64(ignore)
				if i%4 < 3 {
					v = int64(r.rnd.IntN(c))
				}
				return uint64(v)
			})
			loss, mean, count := r.empty(ct, shape.Of(rows), offset), r.empty(ct, shape.Of(1), offset), r.empty(dtype.I64, shape.Of(1), contiguous)
			what := fmt.Sprintf("losses of logarithms of probabilities, %v of %v, operand %s", t, s, x.form)
			r.run(what, &device.CrossEntropy{Loss: loss.v, X: x.v, Target: target.v, Mean: mean.v, Count: count.v, Ignore: ignore})
			g := r.small(ct, shape.Of(rows), []form{contiguous, allCast}[n%2])
			whole, part, one := r.empty(t, s, outForms[n%len(outForms)]), r.empty(t, s, contiguous), r.empty(t, s, contiguous)
			o := device.CrossEntropyGrad{DX: whole.v, Target: target.v, G: g.v, Ignore: ignore}
			r.run(what, &o)
			o.DX, o.Count = part.v, count.v
			r.run(what, &o)
			o.DX, o.G = one.v, device.View{}
			r.run(what, &o)
			fx, fg, fc := x.floats(), g.floats(), 0.0
			for _, b := range target.bits() {
				if int64(b) != ignore {
					fc++
				}
			}
			wants := [4][]float64{make([]float64, rows), make([]float64, rows*c), make([]float64, rows*c), make([]float64, rows*c)}
			for i, b := range target.bits() {
				if int64(b) == ignore {
					continue
				}
				k := i*c + int(b)
				wants[0][i] = 0 - fx[k]
				for d, v := range []float64{fg[i], expr.Decode(ct, expr.Encode(ct, fg[i]/fc)), expr.Decode(ct, expr.Encode(ct, 1/fc))} {
					wants[1+d][k] = expr.Decode(t, expr.Encode(t, 0-v))
				}
			}
			exact := func(int) float64 { return 0 }
			loss.close(what, wants[0], exact)
			whole.close(what+", gradient", wants[1], exact)
			part.close(what+", gradient of a mean", wants[2], exact)
			one.close(what+", gradient of a mean, of 1", wants[3], exact)
			r.end()
		}
	}
	x, loss := r.logits(dtype.F32, shape.Of(9, 4), contiguous), r.empty(dtype.F32, shape.Of(9), contiguous)
	target := r.array(dtype.I64, shape.Of(9), contiguous, func(i int) uint64 { return uint64(i-7) & 4 })
	r.checkIndexError("losses of logarithms of probabilities, with target 4",
		&device.CrossEntropy{Loss: loss.v, X: x.v, Target: target.v, Ignore: ignore, Tag: 77}, 4, 3, 4, 5, 6)
}

func testMultiMap(r *rig) {
	if !r.supports("multi-map") {
		return
	}
	// Run an optimizer's step (SGD with momentum) over tensors of many sizes, in place.
	p, m, g := expr.X(0), expr.X(1), expr.X(2)
	next := m.Mul(expr.Param(1)).Add(g)
	step := expr.MustLower([]*expr.Expr{p.Sub(next.Mul(expr.Param(0))), next}, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32, dtype.F32, dtype.BF16}, -1)
	sizes := []int{5, 1, 0, 70, 33}
	if r.large {
		sizes = append(sizes, 3000, 1, 100_000)
	}
	values := []uint64{expr.Encode(dtype.F32, 0.1), expr.Encode(dtype.F32, 0.9)}
	params := r.array(dtype.I64, shape.Of(len(values)), contiguous, func(i int) uint64 { return values[i] })
	var outs, ins [][]device.View
	var arrays [][2]*array
	var want [][][]uint64
	for _, n := range sizes {
		s := shape.Of(n)
		a, b, c := r.small(dtype.F32, s, contiguous), r.small(dtype.F32, s, offset), r.small(dtype.BF16, s, contiguous)
		want = append(want, eval(step, []*array{a, b, c}, values, n))
		arrays = append(arrays, [2]*array{a, b})
		outs, ins = append(outs, []device.View{a.v, b.v}), append(ins, []device.View{a.v, b.v, c.v})
	}
	r.run("multi-map", &device.MultiMap{Program: step, Outs: outs, Ins: ins, Params: params.v})
	for k, a := range arrays {
		a[0].equal(fmt.Sprintf("multi-map, group %d, result 0", k), want[k][0])
		a[1].equal(fmt.Sprintf("multi-map, group %d, result 1", k), want[k][1])
	}
	// A program without parameters, such as a conversion, needs no scalars.
	cast := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{dtype.BF16}, []dtype.Type{dtype.F32}, -1)
	outs, ins, arrays, want = nil, nil, nil, nil
	for _, n := range sizes {
		s := shape.Of(n)
		a, b := r.small(dtype.F32, s, inForms[n%2]), r.empty(dtype.BF16, s, contiguous)
		want = append(want, eval(cast, []*array{a}, nil, n))
		arrays = append(arrays, [2]*array{b})
		outs, ins = append(outs, []device.View{b.v}), append(ins, []device.View{a.v})
	}
	r.run("multi-map of casts", &device.MultiMap{Program: cast, Outs: outs, Ins: ins})
	for k, a := range arrays {
		a[0].equal(fmt.Sprintf("multi-map of casts, group %d", k), want[k][0])
	}
}
