package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// inPlaceForm holds an in-place function and the form that returns a new tensor. The operands are
// integers, or numbers from [0.3, 0.9], for which every function is defined.
type inPlaceForm struct {
	name    string // name of the method; the name of the in-place method ends in InPlace
	arity   int
	integer bool // true if the function is for integers and has no gradient
	plain   func(x []*tt) *tt
	inPlace func(x []*tt) *tt
}

func plainForm(name string, plain, inPlace func(*tt) *tt) inPlaceForm {
	return inPlaceForm{name, 1, false, func(x []*tt) *tt { return plain(x[0]) }, func(x []*tt) *tt { return inPlace(x[0]) }}
}

func scalarForm(name string, plain, inPlace func(*tt, float64) *tt, v float64) inPlaceForm {
	return inPlaceForm{name, 1, false, func(x []*tt) *tt { return plain(x[0], v) }, func(x []*tt) *tt { return inPlace(x[0], v) }}
}

func rangeForm(name string, plain, inPlace func(*tt, float64, float64) *tt) inPlaceForm {
	return inPlaceForm{name, 1, false, func(x []*tt) *tt { return plain(x[0], 0.4, 0.7) }, func(x []*tt) *tt { return inPlace(x[0], 0.4, 0.7) }}
}

func pairForm(name string, integer bool, plain, inPlace func(x, y *tt) *tt) inPlaceForm {
	return inPlaceForm{name, 2, integer, func(x []*tt) *tt { return plain(x[0], x[1]) }, func(x []*tt) *tt { return inPlace(x[0], x[1]) }}
}

var inPlaceForms = append(unaryInPlace, []inPlaceForm{
	plainForm("Erfinv", (*tt).Erfinv, (*tt).ErfinvInPlace),
	plainForm("NanToNum", func(x *tt) *tt { return x.NanToNum() }, func(x *tt) *tt { return x.NanToNumInPlace() }),
	scalarForm("SubScalar", (*tt).SubScalar, (*tt).SubScalarInPlace, 0.3), scalarForm("DivScalar", (*tt).DivScalar, (*tt).DivScalarInPlace, 3),
	scalarForm("ClampMin", (*tt).ClampMin, (*tt).ClampMinInPlace, 0.5), scalarForm("ClampMax", (*tt).ClampMax, (*tt).ClampMaxInPlace, 0.5),
	scalarForm("LeakyRelu", (*tt).LeakyRelu, (*tt).LeakyReluInPlace, 0.1), scalarForm("Elu", (*tt).Elu, (*tt).EluInPlace, 2),
	scalarForm("PowScalar", (*tt).PowScalar, (*tt).PowScalarInPlace, 2.5), scalarForm("PowScalar", (*tt).PowScalar, (*tt).PowScalarInPlace, 2),
	scalarForm("PowScalar", (*tt).PowScalar, (*tt).PowScalarInPlace, 0.5), scalarForm("PowScalar", (*tt).PowScalar, (*tt).PowScalarInPlace, -0.5),
	scalarForm("PowScalar", (*tt).PowScalar, (*tt).PowScalarInPlace, -1), scalarForm("RemainderScalar", (*tt).RemainderScalar, (*tt).RemainderScalarInPlace, -0.37),
	rangeForm("Clamp", (*tt).Clamp, (*tt).ClampInPlace), rangeForm("Hardtanh", (*tt).Hardtanh, (*tt).HardtanhInPlace),
	pairForm("Pow", false, (*tt).Pow, (*tt).PowInPlace),
	pairForm("MaskedFill", false, func(x, y *tt) *tt { return x.MaskedFill(y.GtScalar(0.6), 2) }, func(x, y *tt) *tt { return x.MaskedFillInPlace(y.GtScalar(0.6), 2) }),
	pairForm("LerpScalar", false, func(x, y *tt) *tt { return x.LerpScalar(y, 0.3) }, func(x, y *tt) *tt { return x.LerpScalarInPlace(y, 0.3) }),
	{"Lerp", 3, false, func(x []*tt) *tt { return x[0].Lerp(x[1], x[2]) }, func(x []*tt) *tt { return x[0].LerpInPlace(x[1], x[2]) }},
	{"Addcmul", 3, false, func(x []*tt) *tt { return x[0].Addcmul(x[1], x[2], -2) }, func(x []*tt) *tt { return x[0].AddcmulInPlace(x[1], x[2], -2) }},
	{"Addcdiv", 3, false, func(x []*tt) *tt { return x[0].Addcdiv(x[1], x[2], -2) }, func(x []*tt) *tt { return x[0].AddcdivInPlace(x[1], x[2], -2) }},
	pairForm("BitwiseAnd", true, (*tt).BitwiseAnd, (*tt).BitwiseAndInPlace), pairForm("BitwiseOr", true, (*tt).BitwiseOr, (*tt).BitwiseOrInPlace),
	pairForm("BitwiseXor", true, (*tt).BitwiseXor, (*tt).BitwiseXorInPlace),
}...)

func (f *inPlaceForm) types() []dtype.Type {
	if f.integer {
		return []dtype.Type{dtype.I64, dtype.U8, dtype.Bool}
	}
	return []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.F16}
}

// inPlaces compares each in-place function with the form that returns a new tensor. Both forms have
// the same bits and the same gradients, and the in-place form changes x itself.
func (w *walk) inPlaces(t reporter) {
	for _, f := range inPlaceForms {
		if !w.selects("in place") {
			continue
		}
		layouts := []layout{contiguous, transposed, strided}
		if w.o.FirstOrder || w.o.Small { // another device runs the same code as the CPU
			layouts = layouts[:2]
		}
		for i, ty := range f.types() {
			w.walked.add(f.name+"InPlace", ty, 0)
			if !f.integer {
				w.walked.add(f.name+"InPlace", ty, 1)
			}
			for _, lay := range layouts[:max(1, len(layouts)-i)] {
				name := fmt.Sprintf("%sInPlace %v %s", f.name, ty, lay)
				guard(t, name, func(s *tensor.Scope) { w.inPlace(t, s, name, &f, ty, lay) })
			}
		}
	}
}

func (w *walk) inPlace(t reporter, s *tensor.Scope, name string, f *inPlaceForm, ty dtype.Type, lay layout) {
	var leaves, plain, placed []*tt
	r := random(f.name)
	for k := range f.arity {
		lo, hi := 0.3, 0.9
		if f.integer {
			lo, hi = 0, 100
		}
		a := sample(r, ty, lo, hi, [][]int{{4, 6}, {6}, {4, 1}}[k]...)
		x := w.put(s, &a, ty, []layout{lay, contiguous, contiguous}[k])
		if !f.integer {
			x.RequiresGrad()
		}
		leaves, plain, placed = append(leaves, x), append(plain, x), append(placed, x)
	}
	// x is a leaf and must not change, so the op in place changes 0 + x. The gradient of that sum
	// is the gradient of x.
	zero := newArray(4, 6)
	changed := w.put(s, &zero, ty, lay)
	if f.integer {
		changed.Copy(leaves[0])
	} else {
		changed.AddInPlace(leaves[0])
	}
	placed[0] = changed
	want := f.plain(plain)
	version := changed.Version()
	got := f.inPlace(placed)
	if got != changed || changed.Version() == version {
		t.Errorf("%s: the result is another tensor, or its version stayed %d", name, version)
	}
	if !slices.Equal(got.Floats(), want.Floats()) || got.Type() != ty || want.Type() != ty {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
	if f.integer {
		return
	}
	if !got.NeedsGrad() {
		t.Errorf("%s: no gradient", name)
		return
	}
	seed := sample(r, ty, -1, 1, 4, 6)
	g := w.put(s, &seed, ty, contiguous)
	once := []tensor.GradOption{tensor.GradOutput(g), tensor.AllowUnused(), tensor.RetainGraph()}
	w.sameGradients(t, name, ty, leaves, tensor.Gradients(got, leaves, once...), tensor.Gradients(want, leaves, once...))
	if ty != dtype.F64 {
		return
	}
	w.walked.add(f.name+"InPlace", ty, 2)
	again := func(y *tt) []*tt {
		var sum *tt
		for _, d := range tensor.Gradients(y.Square(), leaves, tensor.GradOutput(g), tensor.AllowUnused(), tensor.CreateGraph()) {
			if d == nil || !d.NeedsGrad() {
				continue
			}
			if part := d.Square().Sum(); sum == nil {
				sum = part
			} else {
				sum = sum.Add(part)
			}
		}
		if sum == nil {
			return make([]*tt, len(leaves))
		}
		return tensor.Gradients(sum, leaves, tensor.AllowUnused())
	}
	w.sameGradients(t, name+" second order", ty, leaves, again(got), again(want))
}

func (w *walk) sameGradients(t reporter, name string, ty dtype.Type, leaves, have, should []*tt) {
	t.Helper()
	for k := range have {
		// The in-place form may return zeros where the plain form returns nil.
		if should[k] == nil && have[k] != nil {
			if i := slices.IndexFunc(have[k].Floats(), func(v float64) bool { return v != 0 }); i >= 0 {
				t.Errorf("%s: gradient %d is %v, want none", name, k, have[k])
			}
		} else if have[k] == nil && should[k] != nil {
			t.Errorf("%s: gradient %d is missing, want %v", name, k, should[k])
		} else if have[k] != nil { // the layout may change the order of a sum
			want := array{leaves[k].Shape().Slice(), should[k].Floats()}
			if msg := differs(have[k], ty, want, func(i int) float64 { return 8 * ulp(ty, 1) * (1 + math.Abs(want.v[i])) }); msg != "" {
				t.Errorf("%s: gradient %d: %s", name, k, msg)
			}
		}
	}
}
