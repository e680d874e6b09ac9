package nn

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// stateOf returns the tensors of a model's state dict. A tensor with several names is listed once
// for each name.
func stateOf(m any) []Param { return statesOf(m, nil) }

func statesOf(m any, lazy func(string, lazyLayer)) []Param {
	var out []Param
	visit(m, &visitor{all: true, lazy: lazy, param: func(p Param) {
		if !p.Transient {
			out = append(out, p)
		}
	}})
	return out
}

// StateDict returns the parameters and buffers of a model by name, as torch's state_dict. The
// tensors are detached and share the model's memory, so training changes them. To get a copy that
// keeps its values, call StateDict([Clone](m)). A tensor in several places appears under each of
// its names. Transient buffers are left out. [To] and [Cast] give the model new memory, while an
// earlier state dict keeps the old memory. StateDict panics with an *[Error] if [Parameters]
// does.
func StateDict(m any) map[string]*tensor.Tensor {
	sd := map[string]*tensor.Tensor{}
	handles := map[*tensor.Tensor]*tensor.Tensor{}
	for _, p := range stateOf(m) {
		if handles[p.Tensor] == nil {
			handles[p.Tensor] = p.Tensor.Detach()
		}
		sd[p.Name] = handles[p.Tensor]
	}
	return sd
}

// A Mismatch names a tensor whose shape in the model differs from its shape in the state dict.
type Mismatch struct {
	Name        string
	Model, Dict shape.Dims
}

// A StateError says why a state dict does not fit a model. Nothing was loaded. The lists are in the
// order of the model, except Unexpected, which is in alphabetical order.
type StateError struct {
	Missing    []string   // names in the model that the dict lacks
	Unexpected []string   // names in the dict that the model lacks
	Mismatched []Mismatch // tensors whose shapes differ
	Unusable   []string   // tensors of the dict that are nil or were freed

	// Differing lists pairs of names that belong to the same tensor of the model, but to different
	// values in the dict.
	Differing [][2]string
}

// Error lists up to ten names of each kind.
func (e *StateError) Error() string {
	var b strings.Builder
	b.WriteString("nn: the state dict does not fit the model, nothing was loaded")
	list := func(what string, names []string) {
		if n := len(names); n > 0 {
			more := ""
			if n > 10 {
				more = fmt.Sprintf(" and %d more", n-10)
			}
			fmt.Fprintf(&b, "; %d %s: %s%s", n, what, strings.Join(names[:min(n, 10)], ", "), more)
		}
	}
	list("missing", e.Missing)
	list("unexpected", e.Unexpected)
	var shapes []string
	for _, m := range e.Mismatched {
		shapes = append(shapes, fmt.Sprintf("%s is %v in the model, %v in the dict", m.Name, m.Model, m.Dict))
	}
	list("of another shape", shapes)
	list("nil or freed", e.Unusable)
	for i, d := range e.Differing {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(e.Differing)-i)
			break
		}
		fmt.Fprintf(&b, "; %s differs from %s, and the model has one tensor for both", d[1], d[0])
	}
	if prefix := surplus(e.Unexpected, e.Missing); prefix != "" {
		fmt.Fprintf(&b, "; every unexpected name begins with %q: take it off with strings.TrimPrefix", prefix)
	} else if prefix := surplus(e.Missing, e.Unexpected); prefix != "" {
		fmt.Fprintf(&b, "; the unexpected names lack %q in front: load into that part of the model, or put it there", prefix)
	}
	if len(e.Missing)+len(e.Unexpected) > 0 && !e.unusable() {
		b.WriteString("; nn.Loose() loads what has a name in both")
	}
	return b.String()
}

// unusable reports whether e has entries that are errors even with [Loose].
func (e *StateError) unusable() bool {
	return len(e.Mismatched)+len(e.Unusable)+len(e.Differing) > 0
}

// surplus returns a common prefix of all names in longer, such as DataParallel's "module.". Without
// the prefix, one of the two lists contains all names of the other. If there is no such prefix,
// surplus returns "".
func surplus(longer, shorter []string) string {
	if len(longer) == 0 || len(shorter) == 0 {
		return ""
	}
	for _, name := range shorter {
		prefix, ok := strings.CutSuffix(longer[0], name)
		if !ok || !strings.HasSuffix(prefix, ".") {
			continue
		}
		found := 0
		for _, l := range longer {
			rest, in := strings.CutPrefix(l, prefix)
			if ok = ok && in; slices.Contains(shorter, rest) {
				found++
			}
		}
		if ok && found >= min(len(longer), len(shorter)) {
			return prefix
		}
	}
	return ""
}

// Cast converts the floating point parameters, buffers and gradients of a model to type t, in
// place, and returns the model. The *Tensor values remain the same, so existing optimizers remain
// valid. The state of optimizers keeps its type. Cast converts neither integers, such
// as NumBatchesTracked, nor the scales of layers that [QuantizeDynamic] has changed.
func Cast[M any](m M, t dtype.Type) M {
	if !t.IsFloat() {
		panic(wrong("", fmt.Sprintf("a model can be cast to floating point types only, not to %v", t)))
	}
	scales := map[*tensor.Tensor]bool{}
	for _, l := range Modules(m) {
		if l, ok := l.(*Linear); ok {
			scales[l.WeightScale] = true
		}
	}
	for _, p := range Named(m) {
		if p.Tensor.Type().IsFloat() && !scales[p.Tensor] {
			p.Tensor.CastInPlace(t)
		}
	}
	return m
}

// Freeze makes all parameters of a model require no gradient, and returns the model: torch's
// requires_grad_(False). Freeze(m.Body) freezes only a part of m.
func Freeze[M any](m M) M { return setGrad(m, false) }

// Unfreeze makes all parameters of a model require gradients again, and returns the model. If a
// parameter is not floating point, Unfreeze panics with a *[tensor.Error] of the kind
// tensor.ErrType, and no parameter has changed. [QuantizeDynamic] makes such parameters.
func Unfreeze[M any](m M) M { return setGrad(m, true) }

func setGrad[M any](m M, on bool) M {
	for _, p := range Parameters(m) {
		if on && !p.Type().IsFloat() {
			p.SetRequiresGrad(true) // panics before any parameter has changed
		}
	}
	for _, p := range Parameters(m) {
		p.SetRequiresGrad(on)
	}
	return m
}

// Modules iterates over all layers of a model with their names: torch's named_modules. The first is
// the model itself, with the name "". A layer in several places appears once. A layer is passed as
// a pointer to its struct if it is addressable, else as the struct.
func Modules(m any) iter.Seq2[string, any] {
	var names []string
	var layers []any
	visit(m, &visitor{pre: func(path string, v reflect.Value, embedded bool) {
		if l := layerOf(v); l != nil && !embedded {
			names, layers = append(names, path), append(layers, l)
		}
	}})
	return func(yield func(string, any) bool) {
		for i, l := range layers {
			if !yield(names[i], l) {
				return
			}
		}
	}
}

// layerOf returns the layer v in the form in which Modules yields it.
func layerOf(v reflect.Value) any {
	switch {
	case v.CanAddr() && v.Addr().CanInterface():
		return v.Addr().Interface()
	case v.CanInterface():
		return v.Interface()
	}
	return nil
}

// Apply calls f with every layer of a model and returns the model, as torch's apply. Apply visits
// the layers inside a layer before the layer itself, and the model last. Use it to initialise
// layers by their types:
//
//	nn.Apply(m, func(l any) {
//		if l, ok := l.(*nn.Linear); ok {
//			initial.Normal(l.Weight, 0, 0.02)
//		}
//	})
func Apply[M any](m M, f func(layer any)) M {
	var layers []any
	visit(m, &visitor{post: func(_ string, v reflect.Value, embedded bool) {
		if l := layerOf(v); l != nil && !embedded {
			layers = append(layers, l)
		}
	}})
	for _, l := range layers {
		f(l)
	}
	return m
}
