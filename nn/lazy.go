package nn

import (
	"fmt"
	"reflect"

	"github.com/flambeau-go/flambeau/tensor"
)

// A lazy layer determines its number of inputs from its first input. Its Go type is that of the
// ordinary layer. Before the first call it has no parameters, and functions such as [Parameters]
// panic with an *[Error] that names the layer. The first call makes the parameters on the device of
// the input. [LoadStateDict] makes them too, with the shapes in the dict. Make the optimizer after
// the first call or after LoadStateDict. No other goroutine may call the layer during its first
// call.

// lazy describes the parameters that a lazy layer will get.
type lazy struct {
	o layerOptions
	// out is the number of output features or channels. It is 0 for a normalisation, which has as
	// many outputs as inputs.
	out int

	kernel []int
}

// A lazyLayer is a layer that may still lack its parameters.
type lazyLayer interface {
	// waiting returns the address of the field that describes the missing parameters. The field is
	// nil if the parameters exist.
	waiting() **lazy
	fill(inputs int, z *lazy) // makes the parameters for the given number of inputs
	empty()                   // removes the parameters again
	// inputsOf returns the names of the parameters whose shapes depend on the number of inputs. The
	// number of inputs is factor times the size of dimension dim of such a parameter.
	inputsOf(z *lazy) (names []string, dim, factor int)
}

// lazyAt returns v as a lazyLayer if it has no parameters yet, else nil.
func lazyAt(v reflect.Value) lazyLayer {
	if v.CanAddr() && v.Addr().CanInterface() {
		if l, ok := v.Addr().Interface().(lazyLayer); ok && *l.waiting() != nil {
			return l
		}
	}
	return nil
}

// isLazy reports whether a layer of m has no parameters yet.
func isLazy(m any) (found bool) {
	visit(m, &visitor{quick: true, lazy: func(string, lazyLayer) { found = true }})
	return found
}

// ignoreLazy is for a visitor that skips layers without parameters.
func ignoreLazy(string, lazyLayer) {}

// notYet returns the error for a caller that needs the parameters of the layer v before they
// exist. path is the layer's path in the model.
func notYet(path string, v reflect.Value) *Error {
	return wrong(path, fmt.Sprintf("this Lazy%s has no parameters yet, as their shapes are those of its first input; call the model once before, or load a state dict", typeName(v.Type())))
}

// ready makes the parameters of a lazy layer on x's device, for the given number of inputs. If the
// parameters exist, it does nothing.
func ready(l lazyLayer, x *tensor.Tensor, inputs int) {
	z := *l.waiting()
	if z == nil {
		return
	}
	here := *z
	here.o.dev = x.Device()
	l.fill(inputs, &here)
	*l.waiting() = nil
}

// readyAt calls ready with the number of channels of x. rank is the number of spatial dimensions of
// x. The batch dimension may be absent.
func readyAt(l lazyLayer, x *tensor.Tensor, rank int) {
	if *l.waiting() != nil {
		requireUsable("lazy layer", x)
		// The number of dimensions is valid, so the number of channels is known.
		if x.Rank() == rank+1 || x.Rank() == rank+2 {
			ready(l, x, x.Dim(-rank-1))
			return
		}
		misuse("lazy layer", tensor.ErrShape, fmt.Sprintf("needs an input of %d dimensions, or %d without a batch, it has shape %v", rank+2, rank+1, x.Shape()), x)
	}
}

// lazies is a list of functions that undo the method fit. Each function removes the parameters of
// one layer.
type lazies []func()

func (l lazies) undo() {
	for _, f := range l {
		f()
	}
}

// fit makes the parameters of each lazy layer of m if the tensors in sd show their shapes. For each
// other lazy layer, it returns the name of a tensor that sd lacks.
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

// lazyName returns the name of a layer's type, with the prefix Lazy if the layer has no parameters
// yet.
func lazyName(v reflect.Value) string {
	if lazyAt(v) != nil {
		return "Lazy" + typeName(v.Type())
	}
	return typeName(v.Type())
}
