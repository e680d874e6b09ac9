package optest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Op says what [Run] checks of one op, on every device.
type Op struct {
	// Name is the name of the method of *tensor.Tensor or of the function. An op that makes a
	// tensor may be a method of tensor.Scope.
	Name     string
	Of       []string     // names of its declared ops or of its rows of the table
	Types    []dtype.Type // types of the operands
	Gradient []dtype.Type // types whose gradients are checked; nil if there is no gradient
	Second   bool         // whether second derivatives are checked
}

// Devices are the kinds of devices on which all ops are tested.
var Devices = []string{"cpu", "cuda"}

// Matrix lists all ops, sorted by name. [Run] checks exactly what Matrix lists. A test compares the
// list with what Run checked.
func Matrix() []Op {
	ops := map[string]*Op{}
	op := func(name, of string) *Op {
		o := ops[name]
		if o == nil {
			o = &Op{Name: name}
			ops[name] = o
		}
		if of != name && !slices.Contains(o.Of, of) {
			o.Of = append(o.Of, of)
		}
		return o
	}
	for _, e := range tensor.Declared() {
		o := op(elementName(e), e.Name)
		if o.Types = append(o.Types, elementTypes(e)...); differentiable(e) {
			o.Gradient, o.Second = append(o.Gradient, floatTypes...), true
		}
	}
	for _, r := range tensor.Reductions() {
		o := op(reductionName(r), r.Name)
		if o.Types = append(o.Types, dtype.Types()...); reducible(r) {
			o.Gradient, o.Second = append(o.Gradient, floatTypes...), true
		}
	}
	for _, r := range table() {
		for _, name := range rowNames(&r) {
			o := op(name, r.op)
			if r.leaves() == 0 {
				o.Types = append(o.Types, dtype.I64)
			} else {
				o.Types = append(o.Types, r.floats()...)
			}
			if r.ints {
				o.Types = append(o.Types, r.integers()...)
			}
			if !r.noGrad && r.leaves() > 0 {
				o.Gradient = append(o.Gradient, r.floats()...)
			}
			o.Second = o.Second || r.secondOrder()
		}
	}
	for _, f := range inPlaceForms {
		o := op(f.name+"InPlace", "in place")
		if o.Types = append(o.Types, f.types()...); !f.integer {
			o.Gradient, o.Second = append(o.Gradient, f.types()...), true
		}
	}
	for _, s := range sources {
		o := op(s.name, s.kind())
		o.Types = append(o.Types, s.types...)
	}
	list := make([]Op, 0, len(ops))
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		o := ops[name]
		o.Types, o.Gradient = distinct(o.Types), distinct(o.Gradient)
		slices.Sort(o.Of)
		list = append(list, *o)
	}
	return list
}

// distinct removes duplicates from types, and sorts them in the order of dtype.Types.
func distinct(types []dtype.Type) []dtype.Type {
	types = slices.Clone(types)
	slices.SortFunc(types, func(a, b dtype.Type) int {
		return cmp.Compare(slices.Index(dtype.Types(), a), slices.Index(dtype.Types(), b))
	})
	return slices.Compact(types)
}

func elementName(e *tensor.Elementwise) string {
	if m, ok := methods[e.Name]; ok {
		return m.name
	}
	return e.Name
}

func reductionName(r *tensor.Reduction) string {
	if m, ok := reduceMethods[r.Name]; ok {
		return m.name
	}
	return r.Name
}

// rowNames lists the methods that a row tests. If the row names no method, rowNames lists the
// methods of another row of the same op.
func rowNames(r *row) []string {
	if len(r.methods) > 0 {
		return r.methods
	}
	for _, other := range table() {
		if other.op == r.op && len(other.methods) > 0 {
			return other.methods
		}
	}
	return []string{r.op}
}

// Walked records what [Run] checked: ops, the types of their operands, and the order of
// derivatives. Order 0 means values.
type Walked map[walkedCell]bool

type walkedCell struct {
	op    string
	t     dtype.Type
	order int
}

func (w Walked) add(op string, t dtype.Type, order int) {
	if w != nil {
		w[walkedCell{op, t, order}] = true
	}
}

func (w Walked) addRow(r *row, t dtype.Type, order int) {
	if w == nil {
		return
	}
	if r.leaves() == 0 { // the operands are indices alone
		t = dtype.I64
	}
	for _, name := range rowNames(r) {
		w.add(name, t, order)
	}
}

// Differences compares w with [Matrix]. It lists the entries of the matrix that were not checked,
// and the checks that the matrix does not contain. It considers the ops for which only(op) is true,
// or all ops if only is nil.
func (w Walked) Differences(only func(op Op) bool) []string {
	want := Walked{}
	named := map[string]bool{}
	for _, o := range Matrix() {
		if only != nil && !only(o) {
			continue
		}
		named[o.Name] = true
		for _, t := range o.Types {
			want.add(o.Name, t, 0)
		}
		for _, t := range o.Gradient {
			want.add(o.Name, t, 1)
		}
		if o.Second {
			want.add(o.Name, dtype.F64, 2)
		}
	}
	order := []string{"values", "gradients", "second derivatives"}
	var wrong []string
	for c := range want {
		if !w[c] {
			wrong = append(wrong, fmt.Sprintf("%s of %s in %v are in the matrix, and were not walked", order[c.order], c.op, c.t))
		}
	}
	for c := range w {
		if !want[c] && (only == nil || named[c.op]) {
			wrong = append(wrong, fmt.Sprintf("%s of %s in %v were walked, and are not in the matrix", order[c.order], c.op, c.t))
		}
	}
	slices.SortFunc(wrong, strings.Compare)
	return wrong
}
