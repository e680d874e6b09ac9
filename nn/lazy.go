package nn

import (
	"fmt"
	"reflect"

	"github.com/flambeau-go/flambeau/tensor"
)

// Lazy layers are those of the same name whose number of inputs is that of their first input. Until
// then they have no parameters: what lists a model's parameters panics with an *[Error] that names
// the layer. A first call makes them on the device of its input, and [LoadStateDict] makes them of
// the shapes in the dict. So an optimizer is made behind one of the two. The first call of a layer
// must not be one of several at once.

// lazy is what a layer is to be made of when its number of inputs is known.
type lazy struct {
	o   layerOptions
	out int // features or channels; 0 for normalisations, which have as many as their input

	kernel []int
}

// A lazyLayer may not be made yet.
type lazyLayer interface {
	// what it is to be made of; nil there if it is made
	waiting() **lazy
	fill(in int, z *lazy) // makes its parameters, for so many inputs
	empty()               // takes them away
	// parameters whose dimension dim, times by, is the number of inputs
	inputsOf(z *lazy) (names []string, dim, by int)
}

// lazyAt returns the layer at v if it is not made yet.
func lazyAt(v reflect.Value) lazyLayer {
	if v.CanAddr() && v.Addr().CanInterface() {
		if l, ok := v.Addr().Interface().(lazyLayer); ok && *l.waiting() != nil {
			return l
		}
	}
	return nil
}

// isLazy reports whether a layer of m is not made yet.
func isLazy(m any) (found bool) {
	visit(m, &visitor{quick: true, lazy: func(string, lazyLayer) { found = true }})
	return found
}

// ignoreLazy goes past layers that are not made yet.
func ignoreLazy(string, lazyLayer) {}

// notYet is the error of a list of parameters that a layer does not have yet.
func notYet(path string, v reflect.Value) *Error {
	return wrong(path, fmt.Sprintf("this Lazy%s has no parameters yet, as their shapes are those of its first input; call the model once before, or load a state dict", typeName(v.Type())))
}

// ready makes a layer with so many inputs, if it is not made, where x is.
func ready(l lazyLayer, x *tensor.Tensor, in int) {
	z := *l.waiting()
	if z == nil {
		return
	}
	here := *z
	here.o.dev = x.Device()
	l.fill(in, &here)
	*l.waiting() = nil
}

// readyAt is ready of a layer whose inputs are the channels of x, which is with or without a batch
// before rank spatial dimensions.
func readyAt(l lazyLayer, x *tensor.Tensor, rank int) {
	if *l.waiting() != nil {
		given("lazy layer", x)
		if x.Rank() == rank+1 || x.Rank() == rank+2 { // others are the layer's to refuse
			ready(l, x, x.Dim(-rank-1))
			return
		}
		misuse("lazy layer", tensor.ErrShape, fmt.Sprintf("needs an input of %d dimensions, or %d without a batch, it has shape %v", rank+2, rank+1, x.Shape()), x)
	}
}

// lazies are layers that a state dict has made, with how to undo that.
type lazies []func()

func (l lazies) undo() {
	for _, f := range l {
		f()
	}
}

// fit makes the lazy layers of m whose shapes sd has, and returns the names that the others wait
// for.
func (l *lazies) fit(m any, sd map[string]*tensor.Tensor) (missing []string) {
	visit(m, &visitor{lazy: func(path string, layer lazyLayer) {
		z := *layer.waiting()
		names, dim, by := layer.inputsOf(z)
		for _, name := range names {
			if t := sd[join(path, name)]; t != nil && !gone(t) && t.Rank() > dim {
				layer.fill(t.Dim(dim)*by, z)
				*layer.waiting() = nil
				*l = append(*l, func() {
					layer.empty()
					*layer.waiting() = z
				})
				return
			}
		}
		missing = append(missing, join(path, names[0]))
	}})
	return missing
}

// lazyName is the name of a layer's type, with Lazy before it where it is not made.
func lazyName(v reflect.Value) string {
	if lazyAt(v) != nil {
		return "Lazy" + typeName(v.Type())
	}
	return typeName(v.Type())
}
