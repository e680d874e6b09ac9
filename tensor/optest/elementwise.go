package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// noBool lists the ops that PyTorch does not define for bool operands.
var noBool = []string{"sub", "rsub_scalar", "neg", "clamp", "clamp_plain", "clamp_min", "clamp_max", "abs", "square"}

// slack lists ops whose formula subtracts nearly equal numbers. Each op has a function, which maps
// the first operand x to an additional error that is allowed besides the rounding of the result.
// The unit of this error is 2⁻²⁴, or 2⁻⁵³ in float64.
var slack = map[string]func(x float64) float64{
	"gelu":      math.Abs,                                           // ½x·(1 + erf)
	"gelu_tanh": func(x float64) float64 { return 2 * math.Abs(x) }, // ½x·(1 + tanh)
	"clamp":     func(float64) float64 { return 0 }, "clamp_plain": func(float64) float64 { return 0 },
	"pow_cube": func(x float64) float64 { return math.Abs(x * x * x) }, // x³ is rounded twice
	// These ops round a term before they add it. The number is the largest such term in the domain
	// of the op.
	"lerp": constant(8), "lerp_scalar": constant(8), "addcmul": constant(48), "addcdiv": constant(24),
	"tanhshrink": constant(1), "logaddexp": constant(4),
}

func constant(v float64) func(float64) float64 { return func(float64) float64 { return v } }

// spec gives the dimensions and the layouts of the operands of a case. The operands are broadcast
// to a common shape.
type spec struct {
	name string
	dims [][]int // the dimensions of operand k are dims[k%len(dims)]
	lay  []layout
}

var specs = []spec{
	{"contiguous", [][]int{{4, 37}}, []layout{contiguous}},
	{"scalar", [][]int{{}}, []layout{contiguous}},
	{"empty", [][]int{{0, 3}}, []layout{contiguous}},
	{"transposed", [][]int{{5, 7}}, []layout{transposed}},
	{"broadcast", [][]int{{4, 1, 3}, {5, 1}, {1, 5, 3}}, []layout{contiguous}},
	{"strided", [][]int{{3, 5}}, []layout{strided, contiguous}},
	{"expanded", [][]int{{6, 5}}, []layout{expanded, transposed}},
	{"rank 5", [][]int{{2, 3, 2, 2, 3}, {3, 1, 2, 1}}, []layout{transposed, strided}},
	{"with a scalar", [][]int{{3, 4}, {}, {3, 1}}, []layout{contiguous}},
	{"long", [][]int{{1021}}, []layout{contiguous}},
}

// With Options.Small, elementwise ops are tested only with the first smallSpecs entries of specs.
const smallSpecs = 5

func (w *walk) elementwise(t reporter) {
	for _, e := range tensor.Declared() {
		if e.Ref == nil {
			t.Errorf("%s has no reference", e.Name)
			continue
		}
		if !w.selects(e.Name) {
			continue
		}
		types := elementTypes(e)
		list := specs
		if w.o.Small {
			small := []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I64, dtype.U8, dtype.Bool}
			types = slices.DeleteFunc(types, func(ty dtype.Type) bool { return !slices.Contains(small, ty) })
			list = specs[:smallSpecs]
		}
		for _, ty := range types {
			for i, sp := range list {
				if w.o.Small && ty != dtype.F32 && sp.name != "contiguous" {
					continue
				}
				if len(sp.dims) > 1 && e.Arity == 1 || w.skips(e, ty, i) {
					continue
				}
				w.values(t, e, ty, sp)
			}
		}
		if !differentiable(e) {
			continue
		}
		for i, sp := range list {
			if (e.Arity > 1 || len(sp.dims) == 1) && sp.name != "long" && (!w.o.Small || len(sp.dims) > 1 || sp.name == "contiguous") {
				w.gradients(t, e, sp, i)
			}
		}
		if !w.o.Small {
			w.second(t, e)
		}
	}
}

// elementTypes lists the element types for which an op is defined. Tests run the op with all of
// them.
func elementTypes(e *tensor.Elementwise) []dtype.Type {
	return slices.DeleteFunc(slices.Clone(dtype.Types()), func(ty dtype.Type) bool {
		return ty == dtype.Bool && (e.NoBool || slices.Contains(noBool, e.Name)) || e.Result == tensor.FixedFloat && !ty.IsFloat() ||
			e.Result == tensor.Integral && ty.IsFloat()
	})
}

func differentiable(e *tensor.Elementwise) bool {
	return !e.NoGrad && e.Result != tensor.Truth && e.Result != tensor.Integral
}

// call applies an op as users do: it calls the op's method if the table names one. So the method is
// tested too.
func call(e *tensor.Elementwise, in []*tensor.Tensor) *tensor.Tensor {
	if m, ok := methods[e.Name]; ok {
		return m.call(in, e.Params)
	}
	return e.Apply(in, e.Params...)
}

// operands samples an op's operands for a spec. If margin is above 0, it moves the samples away
// from kinks.
func operands(e *tensor.Elementwise, ty dtype.Type, sp spec, margin float64) []array {
	r := random(e.Name, ty.String(), sp.name)
	in := make([]array, e.Arity)
	for k := range in {
		d := e.Domain[min(k, len(e.Domain)-1)]
		kt := ty
		if e.Fixed>>k&1 != 0 {
			kt = dtype.Bool
		}
		in[k] = sample(r, kt, d[0], d[1], sp.dims[k%len(sp.dims)]...)
		if !kt.IsFloat() && d[0] > 0 { // 0 is outside the domain
			for i, v := range in[k].v {
				in[k].v[i] = max(v, 1)
			}
		}
	}
	if margin > 0 {
		for k := range in {
			for i, v := range in[k].v {
				// Kinks are at 0, at the parameters, and at equal operands. Each operand uses its
				// own grid of numbers, which avoids these points.
				if e.Fixed>>k&1 == 0 {
					in[k].v[i] = round(ty, math.Round(v*16)/16+float64(k+1)/64)
				}
			}
		}
	}
	return in
}

func where(e string, ty dtype.Type, sp spec) string { return fmt.Sprintf("%s %v %s", e, ty, sp.name) }

// typeOf returns the type of operand k: bool for a condition, and ty for other operands.
func typeOf(e *tensor.Elementwise, k int, ty dtype.Type) dtype.Type {
	if e.Fixed>>k&1 != 0 {
		return dtype.Bool
	}
	return ty
}

func resultOf(e *tensor.Elementwise, ty dtype.Type) dtype.Type {
	switch {
	case e.Result == tensor.Truth:
		return dtype.Bool
	case e.Result == tensor.Floating && !ty.IsFloat():
		return dtype.F32
	case ty == dtype.Bool && len(e.Params) > 0 && (e.Result == tensor.Promoted || e.Result == tensor.Integral) && e.Fixed == 0:
		return resultOf(e, dtype.I64) // a number promotes bool to an integer type
	}
	if ty.IsInteger() && e.Result == tensor.Promoted && e.Fixed == 0 {
		for _, p := range e.Params {
			if p != math.Trunc(p) {
				return dtype.F32 // a number with a fraction promotes integers to float32
			}
		}
	}
	return ty
}

// reference computes an op in float64. It broadcasts the operands.
func reference(e *tensor.Elementwise, in []array) array {
	y := newArray(joint(in...)...)
	x := make([]float64, len(in))
	each(y.dims, func(i int, idx []int) {
		for k := range in {
			x[k] = in[k].v[in[k].offset(idx)]
		}
		y.v[i] = e.Ref(x, e.Params)
	})
	return y
}

func (w *walk) values(t reporter, e *tensor.Elementwise, ty dtype.Type, sp spec) {
	in := operands(e, ty, sp, 0)
	result := resultOf(e, ty)
	if ty == dtype.Bool && result == dtype.I64 {
		result = resultOf(e, dtype.I64)
	}
	w.walked.add(elementName(e), ty, 0)
	guard(t, where(e.Name, ty, sp), func(s *tensor.Scope) {
		x := make([]*tensor.Tensor, len(in))
		for k := range in {
			x[k] = w.put(s, &in[k], typeOf(e, k, ty), sp.lay[k%len(sp.lay)])
		}
		want := reference(e, in)
		var first array
		if len(in) > 0 {
			first = in[0].expand(want.dims)
		}
		if !result.IsFloat() || result.IsHalf() {
			want = want.rounded(result)
		}
		tolerance := func(i int) float64 {
			if !result.IsFloat() {
				return 0
			}
			tol := 4 * ulp(result, want.v[i])
			if result.IsHalf() {
				tol = ulp(result, want.v[i])
			}
			if f := slack[e.Name]; f != nil {
				unit := 0x1p-24
				if result == dtype.F64 {
					unit = 0x1p-53
				}
				tol += unit * f(first.v[i])
			}
			return tol
		}
		if msg := differs(call(e, x), result, want, tolerance); msg != "" {
			t.Errorf("%s: %s", where(e.Name, ty, sp), msg)
		}
	})
}

// step is the step h of central differences in float64. The error of a difference is about h² +
// 2⁻⁵²/h.
const step = 0x1p-17

// gradients compares the gradients of Σ seed·op with central differences of the reference.
func (w *walk) gradients(t reporter, e *tensor.Elementwise, sp spec, number int) {
	in := operands(e, dtype.F64, sp, step)
	for k := range in { // round to numbers that all float types hold
		in[k] = in[k].rounded(dtype.BF16)
	}
	var exact [][]float64
	var size []array // sum of the absolute terms of each gradient
	types := []dtype.Type{dtype.F64, dtype.F32, dtype.F16, dtype.BF16}
	if w.o.Small {
		types = types[:2]
	}
	for _, ty := range types {
		// the other types are compared with float64
		if ty != dtype.F64 && w.skips(e, ty, number) {
			continue
		}
		w.walked.add(elementName(e), ty, 1)
		guard(t, where(e.Name+" gradient", ty, sp), func(s *tensor.Scope) {
			x := make([]*tensor.Tensor, len(in))
			var leaves []*tensor.Tensor
			var at []int
			for k := range in {
				x[k] = w.put(s, &in[k], typeOf(e, k, ty), sp.lay[k%len(sp.lay)])
				if e.Fixed>>k&1 == 0 {
					x[k].RequiresGrad()
					leaves, at = append(leaves, x[k]), append(at, k)
				}
			}
			y := call(e, x)
			seed := sample(random(e.Name, "seed"), dtype.BF16, -1, 1, y.Shape().Slice()...)
			g := tensor.Gradients(y, leaves, tensor.GradOutput(w.put(s, &seed, ty, contiguous)))
			for n, k := range at {
				name := fmt.Sprintf("%s operand %d", where(e.Name+" gradient", ty, sp), k)
				if ty == dtype.F64 {
					d := derivative(e, in, k)
					abs := d.clone()
					for i := range d.v {
						d.v[i] *= seed.v[i]
						abs.v[i] = math.Abs(d.v[i]) + math.Abs(seed.v[i])
					}
					sum, total := d.sumTo(in[k].dims), abs.sumTo(in[k].dims)
					if msg := differs(g[n], ty, sum, func(i int) float64 { return 1e-8*total.v[i] + 1e-13 }); msg != "" {
						t.Errorf("%s: %s", name, msg)
					}
					exact, size = append(exact, g[n].Floats()), append(size, total)
					continue
				}
				if n >= len(exact) {
					continue // the float64 run has failed, so there is nothing to compare with
				}
				unit := ulp(ty, 1)
				if msg := differs(g[n], ty, array{in[k].dims, exact[n]}, func(i int) float64 { return 8 * unit * size[n].v[i] }); msg != "" {
					t.Errorf("%s: %s", name, msg)
				}
			}
		})
	}
}

// derivative returns the partial derivative of the reference with respect to operand k, at each
// element of the result.
func derivative(e *tensor.Elementwise, in []array, k int) array {
	moved := func(h float64) array {
		m := slices.Clone(in)
		m[k] = in[k].apply(func(v float64) float64 { return v + h })
		return reference(e, m)
	}
	hi, lo := moved(step), moved(-step)
	hi2, lo2 := moved(2*step), moved(-2*step)
	for i := range hi.v {
		hi.v[i] = (8*(hi.v[i]-lo.v[i]) - (hi2.v[i] - lo2.v[i])) / (12 * step)
	}
	return hi
}

// second compares second derivatives in float64 with central differences of the first derivatives.
// With Options.FirstOrder it compares them with the CPU's instead.
func (w *walk) second(t reporter, e *tensor.Elementwise) {
	sp := spec{"second order", [][]int{{9}}, []layout{contiguous}}
	in := operands(e, dtype.F64, sp, step)
	w.walked.add(elementName(e), dtype.F64, 2)
	guard(t, e.Name+" second order", func(s *tensor.Scope) {
		r := random(e.Name, "seeds")
		seed := sample(r, dtype.F32, 0.5, 1, 9)
		weights := make([]array, e.Arity)
		for k := range weights {
			weights[k] = sample(r, dtype.F32, 0.5, 1, 9)
		}
		// inner returns Σ weight·gradient element by element. It also returns the leaves, and for
		// each leaf the index of its operand.
		inner := func(w *walk, in []array, opts ...tensor.GradOption) (sum *tensor.Tensor, leaves []*tensor.Tensor, at []int) {
			x := make([]*tensor.Tensor, len(in))
			for k := range in {
				a := in[k].clone()
				x[k] = w.put(s, &a, typeOf(e, k, dtype.F64), contiguous)
				if e.Fixed>>k&1 == 0 {
					leaves, at = append(leaves, x[k].RequiresGrad()), append(at, k)
				}
			}
			g := tensor.Gradients(call(e, x).Square(), leaves, append(opts, tensor.GradOutput(w.put(s, &seed, dtype.F64, contiguous)))...)
			for n, k := range at {
				term := g[n].Mul(w.put(s, &weights[k], dtype.F64, contiguous))
				if sum == nil {
					sum = term
				} else {
					sum = sum.Add(term)
				}
			}
			return
		}
		twice := func(w *walk) ([]*tensor.Tensor, []int) {
			sum, leaves, at := inner(w, in, tensor.CreateGraph())
			got := make([]*tensor.Tensor, len(leaves))
			if sum.NeedsGrad() {
				got = tensor.Gradients(sum.Sum(), leaves, tensor.AllowUnused())
			}
			return got, at
		}
		got, at := twice(w)
		if w.o.FirstOrder {
			want, _ := twice(&walk{dev: hostDevice()})
			sameSecond(t, e.Name, got, want, at)
			return
		}
		for n, k := range at {
			moved := func(h float64) []float64 {
				m := slices.Clone(in)
				m[k] = in[k].apply(func(v float64) float64 { return v + h })
				y, _, _ := inner(w, m)
				return y.Floats()
			}
			hi, lo := moved(step), moved(-step)
			want := newArray(9)
			scale := 0.0
			for i := range want.v {
				want.v[i] = (hi[i] - lo[i]) / (2 * step)
				scale = max(scale, math.Abs(want.v[i]), math.Abs(hi[i]))
			}
			have := newArray(9).v
			if got[n] != nil {
				have = got[n].Floats()
			}
			if msg := differ(have, want, func(int) float64 { return 1e-7 * (scale + 1) }); msg != "" {
				t.Errorf("%s second order, operand %d: %s", e.Name, k, msg)
			}
		}
	})
}

// sameSecond compares the second derivatives of a device with the CPU's.
func sameSecond(t reporter, name string, got, want []*tensor.Tensor, at []int) {
	t.Helper()
	for n, k := range at {
		if (got[n] == nil) != (want[n] == nil) {
			t.Errorf("%s second order, operand %d: %v, on the CPU %v", name, k, got[n], want[n])
		} else if got[n] != nil {
			a := array{want[n].Shape().Slice(), want[n].Floats()}
			if msg := differs(got[n], dtype.F64, a, func(i int) float64 { return 1e-11 * (1 + math.Abs(a.v[i])) }); msg != "" {
				t.Errorf("%s second order, operand %d, against the CPU: %s", name, k, msg)
			}
		}
	}
}
