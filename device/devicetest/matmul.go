package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

func testMatMul(r *rig) {
	sizes := [][3]int{{1, 1, 1}, {2, 3, 4}, {5, 7, 3}, {17, 16, 19}, {1, 20, 9}, {9, 20, 1}, {3, 0, 2}, {0, 3, 2}, {3, 2, 0}}
	if r.large {
		sizes = append(sizes, [][3]int{{64, 64, 64}, {33, 130, 65}, {1, 300, 257}, {257, 300, 1}, {130, 5, 129}, {15, 513, 33}}...)
	}
	forms := []form{contiguous, transposed, strided, offset}
	n := 0
	for _, t := range dtype.Types() {
		for _, mkn := range sizes {
			for batch := range 4 {
				n++
				s := [3]int{batch, 1, 2}
				m, k, c := mkn[0], mkn[1], mkn[2]
				if batch == 0 && m*k*c > 100 || batch == 3 && m*k*c > 20_000 {
					continue
				}
				if t != dtype.F32 && batch != 1 && m*k*c > 10_000 || batch == 2 && m*k*c > 200_000 {
					continue
				}
				as, bs := shape.Of(s[0], m, k), shape.Of(s[0], k, c)
				a, b := r.small(t, as, forms[n%4]), r.small(t, bs, forms[n/4%4])
				if batch == 3 { // broadcast one matrix over the batch
					b = r.small(t, shape.Of(1, k, c), forms[n/4%4])
					b.v.Layout, _ = b.v.Layout.Expand(bs)
					b.v.Strides = b.v.Strides.With(0, 0)
					b.at = offsets(b.v.Layout)
				}
				r.checkMatMul(a, b, nil, r.empty(t, shape.Of(s[0], m, c), forms[n/16%4]))
			}
			r.end()
		}
	}
	r.testMatMulBias()
	r.testMatMulAct()
	r.testMatMulSums()
	r.testMatMulTF32()
	r.testMatMulMixed()
	r.testMatMulInt8()
}

// testMatMulBias tests products with biases, and products of 16-bit factors with float32 results,
// if the device supports them. The cases include sizes other than powers of two, one matrix for a
// whole batch, and sums of no terms. Some sums are so long that a device may compute them in parts.
func (r *rig) testMatMulBias() {
	sizes := [][4]int{{1, 1, 1, 1}, {2, 7, 5, 63}, {1, 65, 7, 65}, {1, 63, 33, 8}, {1, 16, 40, 129}, {0, 3, 4, 5}, {2, 3, 0, 6}, {1, 5, 300, 9}, {1, 1, 90, 17}, {2, 19, 70, 1}, {1, 0, 3, 4}}
	if r.large {
		sizes = append(sizes, [][4]int{{1, 129, 127, 127}, {1, 127, 65, 129}, {3, 64, 64, 64}, {1, 256, 2000, 72}, {1, 300, 300, 300}}...)
	}
	forms := []form{contiguous, transposed, strided, offset}
	n := 0
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		for _, z := range sizes {
			for _, types := range [][2]dtype.Type{{t, t}, {t, dtype.F32}, {dtype.F32, t}, {dtype.F32, dtype.F32}, {dtype.F32, dtype.Invalid}} {
				out, bias := types[0], types[1]
				if n++; out != t && t.Size() != 2 || bias != t && t == dtype.F32 {
					continue
				}
				a, b := r.small(t, shape.Of(z[0], z[1], z[2]), forms[n%4]), r.small(t, shape.Of(z[0], z[2], z[3]), forms[n/2%4])
				var to *array
				if bias != dtype.Invalid {
					to = r.array(bias, shape.Of(z[3]), []form{contiguous, offset, strided, colCast}[n/3%4], func(int) uint64 {
						if n%3 == 0 && r.rnd.IntN(4) == 0 {
							return expr.Encode(bias, []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.rnd.IntN(3)])
						}
						return r.tame(bias)
					})
				}
				r.checkMatMul(a, b, to, r.empty(out, shape.Of(z[0], z[1], z[3]), forms[n/5%4]))
			}
			r.end()
		}
	}
}

// testMatMulAct tests products with an activation of one operand or of two operands, if the device
// supports them. The bits must be the same as if the activation were applied to the product in a
// second op. Pre must get the product before the activation.
func (r *rig) testMatMulAct() {
	sizes := [][4]int{{1, 1, 1, 1}, {2, 7, 5, 63}, {1, 65, 7, 65}, {1, 16, 40, 72}, {0, 3, 4, 5}, {2, 3, 0, 6}, {1, 5, 300, 9}, {1, 1, 90, 17}}
	if r.large {
		sizes = append(sizes, [][4]int{{1, 129, 127, 127}, {3, 64, 64, 64}, {1, 300, 300, 304}, {2, 24, 900, 40}}...)
	}
	x := expr.X(0)
	acts := []func(t dtype.Type) *expr.Expr{
		func(dtype.Type) *expr.Expr { return x.Max(expr.C(0)) },
		func(dtype.Type) *expr.Expr { return expr.Call("gelu", x) },
		func(dtype.Type) *expr.Expr { return expr.Call("gelu_tanh", x) },
		func(dtype.Type) *expr.Expr { return x.Mul(expr.Call("sigmoid", x)) },
	}
	// the first four programs have one operand; the later programs also read the operand With
	const alone = 4
	acts = append(acts,
		func(t dtype.Type) *expr.Expr { return expr.X(1).Cvt(t).Gt(expr.C(0)).Select(x, expr.C(0)) },
		func(t dtype.Type) *expr.Expr { return x.Mul(expr.Call("sigmoid", expr.X(1).Cvt(t))) },
		func(t dtype.Type) *expr.Expr { return x.Sub(expr.X(1).Cvt(t)) })
	floats := []dtype.Type{dtype.F32, dtype.BF16, dtype.F64, dtype.F16}
	forms := []form{contiguous, contiguous, transposed, strided, offset}
	n := 0
	for _, t := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32, dtype.F64} {
		for _, z := range sizes {
			for number, e := range acts {
				if n++; (n+n/len(acts))%4 != 0 && z[1] > 5 {
					continue
				}
				out := t
				if t.Size() == 2 && n%5 == 0 {
					out = dtype.F32
				}
				s := shape.Of(z[0], z[1], z[3])
				a, b := r.small(t, shape.Of(z[0], z[1], z[2]), forms[n%5]), r.small(t, shape.Of(z[0], z[2], z[3]), forms[n/2%5])
				f := forms[n/3%5]
				plain, y, pre := r.empty(out, s, f), r.empty(out, s, f), r.empty(out, s, forms[n/3*(n%3)%5])
				o := &device.MatMul{Out: plain.v, A: a.v, B: b.v}
				if n%3 == 0 {
					o.Bias = r.small(t, shape.Of(z[3]), contiguous).v
				}
				act := *o
				in, operands := []dtype.Type{out}, []*array{plain}
				what := fmt.Sprintf("matmul of %v to %s %v, %v by %v, activated by number %d, before it %s", t, f, out, a.v.Shape, b.v.Shape, number, pre.form)
				if number >= alone {
					typ, wf := out, f
					if n%3 == 0 {
						typ, wf = floats[n/3%4], forms[n%5]
					}
					with := r.random(typ, s, wf)
					act.With, in, operands = with.v, append(in, typ), append(operands, with)
					what += fmt.Sprintf(", with %s %v", wf, typ)
				}
				act.Out, act.Act = y.v, expr.MustLower([]*expr.Expr{e(out.Compute())}, []dtype.Type{out}, in, -1)
				if n%4 != 0 {
					act.Pre = pre.v
				}
				if !r.dev.Supports(&act) {
					continue
				}
				r.run(what, o)
				r.run(what, &act)
				sums := plain.fetch(what)
				y.equal(what, eval(act.Act, operands, nil, len(sums))[0])
				if !act.Pre.Absent() {
					pre.equal(what+": before", sums)
				}
			}
			r.end()
		}
	}
}

// testMatMulSums tests products with the results Sums and ColumnSums, if the device supports them.
// The product must be the same as without these results.
func (r *rig) testMatMulSums() {
	sizes := [][3]int{{1, 1, 1}, {7, 5, 63}, {65, 40, 66}, {72, 300, 9}, {130, 33, 24}, {3, 0, 6}, {5, 4, 0}, {0, 4, 3}, {1, 90, 17}, {90, 33, 1}, {40, 900, 24}, {33, 700, 71}}
	forms := []form{transposed, contiguous, transposed, strided, offset}
	n := 0
	for i, t := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32, dtype.BF16, dtype.F16, dtype.F32, dtype.BF16, dtype.F32} {
		for _, z := range sizes {
			n++
			m, k, c := z[0], z[1], z[2]
			out := []dtype.Type{t, dtype.F32}[(n+i)%2]
			a, b := r.small(t, shape.Of(1, m, k), forms[n%5]), r.small(t, shape.Of(1, k, c), forms[1+n%3])
			plain, y := r.empty(out, shape.Of(1, m, c), contiguous), r.empty(out, shape.Of(1, m, c), contiguous)
			sums := [2]*array{r.empty(dtype.F32, shape.Of(m), []form{contiguous, strided, offset}[n%3]), r.empty(dtype.F32, shape.Of(c), []form{strided, offset, contiguous}[n%3])}
			o := &device.MatMul{Out: plain.v, A: a.v, B: b.v}
			with := *o
			with.Out = y.v
			which := i/3 + 1 // bits of which: 1 requests Sums, 2 requests ColumnSums
			if which&1 != 0 {
				with.Sums = sums[0].v
			}
			if which&2 != 0 {
				with.ColumnSums = sums[1].v
			}
			if !r.dev.Supports(&with) {
				continue
			}
			what := fmt.Sprintf("matmul of %v, %s %v by %s %v, and sums of %d", t, a.form, a.v.Shape, b.form, b.v.Shape, which)
			r.run(what, o)
			r.run(what, &with)
			y.equal(what, plain.fetch(what))
			for d, of := range [2]*array{a, b} {
				if which>>d&1 == 0 {
					continue
				}
				want, size := make([]float64, []int{m, c}[d]), make([]float64, []int{m, c}[d])
				for i, v := range of.floats() {
					at := i / k
					if d == 1 {
						at = i % c
					}
					want[at] += v
					size[at] += math.Abs(v)
				}
				sums[d].close(what, want, func(i int) float64 { return (float64(k)/4 + 4) * epsilon(dtype.F32) * size[i] })
			}
		}
		r.end()
	}
}

// checkMatMul compares out, the product of a and b, with their product in float64. bias may be nil.
func (r *rig) checkMatMul(a, b, bias, out *array) {
	r.Helper()
	t := a.v.Type
	what := fmt.Sprintf("matmul of %v, %s %v by %s %v", t, a.form, a.v.Shape, b.form, b.v.Shape)
	o := &device.MatMul{Out: out.v, A: a.v, B: b.v}
	added := make([]float64, b.v.Shape.At(2))
	if bias != nil {
		o.Bias, added = bias.v, bias.floats()
		what += fmt.Sprintf(" with a %s bias of %v", bias.form, bias.v.Type)
	}
	if !o.Plain() && !r.dev.Supports(o) {
		return
	}
	if err := device.Run(r.dev, r.s, o); err != nil {
		r.Errorf("%s: %v", what, err)
		return
	}
	fa, fb := a.floats(), b.floats()
	batch, m, k, n := a.v.Shape.At(0), a.v.Shape.At(1), a.v.Shape.At(2), b.v.Shape.At(2)
	want, bound := make([]float64, batch*m*n), make([]float64, batch*m*n)
	for i := range batch {
		for j := range m {
			for c := range n {
				sum, mag := added[c], 0.0
				for e := range k {
					p := fa[(i*m+j)*k+e] * fb[(i*k+e)*n+c]
					sum += p
					mag += math.Abs(p)
				}
				o := (i*m+j)*n + c
				switch {
				case t == dtype.Bool:
					sum = math.Min(sum, 1)
				case t.IsInteger():
					sum = wrap(out.v.Type, sum)
				default:
					// Tensor cores add eight or more products at once and truncate the sum. In a
					// long sum, these errors partly cancel.
					e := epsilon(t.Compute())
					bound[o] = (float64(k)/4+4)*e*mag + 4*e*math.Abs(added[c]) + epsilon(out.v.Type)*math.Abs(sum)
				}
				want[o] = sum
			}
		}
	}
	out.close(what, want, func(i int) float64 { return bound[i] })
}
