package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// reduceMethods maps the names of reductions to methods.
var reduceMethods = map[string]struct {
	name string
	call func(x *tt, dims ...int) *tt
}{
	"sum": {"Sum", (*tt).Sum}, "mean": {"Mean", (*tt).Mean}, "amax": {"Amax", (*tt).Amax}, "amin": {"Amin", (*tt).Amin},
	"argmax": {"Argmax", (*tt).Argmax}, "argmin": {"Argmin", (*tt).Argmin}, "prod": {"Prod", (*tt).Prod},
	"any": {"Any", (*tt).Any}, "all": {"All", (*tt).All}, "count_nonzero": {"CountNonzero", (*tt).CountNonzero},
}

// reduceSpec describes the operand and the dimensions of a reduction.
type reduceSpec struct {
	dims []int
	over []int // the reduced dimensions; nil means all dimensions
	lay  layout
}

var reduceSpecs = []reduceSpec{
	{[]int{3, 4, 5}, nil, contiguous},
	{[]int{3, 4, 5}, []int{1}, contiguous},
	{[]int{3, 4, 5}, []int{-1}, transposed},
	{[]int{}, nil, contiguous},
	{[]int{3, 0}, []int{0}, contiguous},
	// in these three cases a result combines no elements, which only sums and products allow
	{[]int{0, 3}, []int{0}, contiguous},
	{[]int{3, 0}, nil, contiguous},
	{[]int{2, 0, 3}, []int{1}, contiguous},
	{[]int{3, 4, 5}, []int{0, 2}, contiguous},
	{[]int{3, 4, 5}, []int{0}, strided},
	{[]int{4, 5}, []int{0}, expanded},
	{[]int{4, 5}, nil, transposed},
	{[]int{2, 3, 2, 3, 2}, []int{1, 3}, transposed},
	{[]int{2, 3, 2, 3, 2}, []int{0, 2, 4}, strided},
	{[]int{1500}, nil, contiguous},
	{[]int{5, 700}, []int{1}, contiguous},
	{[]int{700, 5}, []int{0}, contiguous},
}

const smallReduce = 8

func reducible(r *tensor.Reduction) bool { return !arg(r) && !r.Count && !r.Truth }

func arg(r *tensor.Reduction) bool { return r.Kind == device.ArgMax || r.Kind == device.ArgMin }

func (w *walk) reductions(t reporter) {
	for _, r := range tensor.Reductions() {
		if r.Ref == nil {
			t.Errorf("%s has no reference", r.Name)
			continue
		}
		if !w.selects(r.Name) {
			continue
		}
		types, list := dtype.Types(), reduceSpecs
		if w.o.Small {
			types, list = []dtype.Type{dtype.F32, dtype.BF16, dtype.I64}, reduceSpecs[:smallReduce]
		}
		for _, sp := range list {
			if arg(r) && len(sp.over) > 1 {
				continue
			}
			if slices.Contains(sp.dims, 0) && (sp.over == nil || sp.over[0] == slices.Index(sp.dims, 0)) && r.Kind != device.Sum && r.Kind != device.Prod {
				continue
			}
			for _, ty := range types {
				w.reduced(t, r, ty, sp)
			}
			if reducible(r) && size(sp.dims) <= 120 {
				w.reducedGradient(t, r, sp)
			}
		}
		if reducible(r) && !w.o.Small {
			w.reducedSecond(t, r)
		}
	}
}

// reducedSecond checks the second derivatives of a reduction, in the same way as for a row of the
// table.
func (w *walk) reducedSecond(t reporter, r *tensor.Reduction) {
	for _, over := range [][]int{nil, {1}} {
		name := fmt.Sprintf("%s over %v", r.Name, over)
		w.heavySecond(t, name, &row{op: r.Name, methods: []string{reductionName(r)}, in: [][]int{{3, 4}}, call: func(x []*tt) *tt { return applyReduction(r, x[0], over...) }}, nil)
	}
}

func applyReduction(r *tensor.Reduction, x *tt, dims ...int) *tt {
	if m, ok := reduceMethods[r.Name]; ok {
		return m.call(x, dims...)
	}
	return r.Apply(x, dims...)
}

// groupsOf returns, for each element of a reduction's result, the elements that it combines, in
// order, and their positions.
func groupsOf(x array, over []int) (dims []int, groups [][]float64, places [][]int) {
	kept := slices.Clone(x.dims)
	for i := range kept {
		if over == nil || slices.Contains(over, i) || slices.Contains(over, i-len(kept)) {
			kept[i] = 1
		} else {
			dims = append(dims, kept[i])
		}
	}
	y := newArray(kept...)
	groups, places = make([][]float64, len(y.v)), make([][]int, len(y.v))
	each(x.dims, func(i int, idx []int) {
		at := y.offset(idx)
		groups[at] = append(groups[at], x.v[i])
		places[at] = append(places[at], i)
	})
	return dims, groups, places
}

func (w *walk) reduced(t reporter, r *tensor.Reduction, ty dtype.Type, sp reduceSpec) {
	name := fmt.Sprintf("%s %v of %v over %v, %s", r.Name, ty, sp.dims, sp.over, sp.lay)
	result := ty
	switch {
	case r.Truth && ty != dtype.U8:
		result = dtype.Bool
	case r.Truth:
	case arg(r) || r.Count:
		result = dtype.I64
	case ty.IsFloat() || r.Same:
	case r.Floating:
		result = dtype.F32
	default:
		result = dtype.I64
	}
	in := sample(random(name), ty, r.Domain[0], r.Domain[1], sp.dims...)
	w.walked.add(reductionName(r), ty, 0)
	guard(t, name, func(s *tensor.Scope) {
		x := w.put(s, &in, ty, sp.lay)
		dims, groups, _ := groupsOf(in, sp.over)
		want, terms := newArray(dims...), newArray(dims...)
		for i, g := range groups {
			want.v[i] = round(result, r.Ref(g))
			for _, v := range g {
				terms.v[i] += math.Abs(v)
			}
			if r.Floating {
				terms.v[i] /= float64(len(g))
			}
		}
		tolerance := func(i int) float64 {
			acc := 0x1p-24
			if ty == dtype.F64 {
				acc = 0x1p-53
			}
			switch {
			case r.Kind == device.Prod && result.IsFloat(): // the product rounds after each factor
				return ulp(result, want.v[i]) + acc*float64(len(groups[i]))*math.Abs(want.v[i])
			case r.Kind != device.Sum:
				return 0
			}
			return ulp(result, want.v[i]) + 4*acc*terms.v[i]
		}
		if msg := differs(applyReduction(r, x, sp.over...), result, want, tolerance); msg != "" {
			t.Errorf("%s: %s", name, msg)
		}
		kept := applyReduction(r, x, append(slices.Clone(sp.over), tensor.KeepDim)...)
		if got := kept.Shape().Slice(); len(got) != len(sp.dims) || kept.Size() != len(want.v) {
			t.Errorf("%s, keeping dimensions: shape %v", name, got)
		}
	})
}

func (w *walk) reducedGradient(t reporter, r *tensor.Reduction, sp reduceSpec) {
	name := fmt.Sprintf("%s gradient of %v over %v, %s", r.Name, sp.dims, sp.over, sp.lay)
	in := sample(random(name), dtype.BF16, r.Domain[0], r.Domain[1], sp.dims...)
	var want, terms array
	for _, ty := range floatTypes {
		if w.o.Small && ty.IsHalf() {
			continue
		}
		w.walked.add(reductionName(r), ty, 1)
		guard(t, name, func(s *tensor.Scope) {
			x := w.put(s, &in, ty, sp.lay).RequiresGrad()
			y := applyReduction(r, x, sp.over...)
			seed := sample(random(r.Name, "seed"), dtype.BF16, -1, 1, y.Shape().Slice()...)
			g := tensor.Gradients(y, []*tt{x}, tensor.GradOutput(w.put(s, &seed, ty, contiguous)))[0]
			if want.v == nil {
				want, terms = newArray(sp.dims...), newArray(sp.dims...)
				_, groups, places := groupsOf(in, sp.over)
				for i, group := range groups {
					for k, at := range places[i] {
						v := group[k]
						move := func(h float64) float64 { group[k] = v + h; return r.Ref(group) }
						want.v[at] = seed.v[i] * (move(step) - move(-step)) / (2 * step)
						group[k] = v
						terms.v[at] = math.Abs(seed.v[i])
						if r.Kind == device.Prod {
							terms.v[at] += float64(len(group)) * math.Abs(want.v[at])
						}
					}
				}
			}
			tolerance := func(i int) float64 { return 4*ulp(ty, 1)*terms.v[i] + 1e-8 }
			if sp.lay == expanded && r.Kind != device.Prod || r.Name == "amax" || r.Name == "amin" {
				// If several elements are the greatest, they share the gradient. Central
				// differences do not show this, so the test compares the sum over each group.
				_, groups, places := groupsOf(in, sp.over)
				have := g.Floats()
				for i := range groups {
					sum := 0.0
					for _, at := range places[i] {
						sum += have[at]
						if r.Kind != device.Sum && groups[i][0] == groups[i][0] && in.v[at] != r.Ref(groups[i]) && have[at] != 0 {
							t.Errorf("%s %v: element %d is no extreme and gets %v", name, ty, at, have[at])
						}
					}
					total := seed.v[i]
					if r.Name == "sum" {
						total *= float64(len(groups[i]))
					}
					if math.Abs(sum-total) > 8*ulp(ty, 1)*float64(len(groups[i])) {
						t.Errorf("%s %v: the gradients of group %d add up to %v, want %v", name, ty, i, sum, total)
					}
				}
				return
			}
			if msg := differs(g, ty, want, tolerance); msg != "" {
				t.Errorf("%s %v: %s", name, ty, msg)
			}
		})
	}
}
