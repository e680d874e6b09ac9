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

// stateOf lists what a state dict holds: each tensor under each of its names.
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

// StateDict returns the parameters and buffers of a model by name, as torch's state_dict. As there
// they are detached tensors on the model's memory, so that training changes them:
// StateDict([Clone](m)) is a copy that keeps its values. A tensor that stands in two places has
// both names. Transient buffers are left out. After [To] or [Cast] a state dict from before has the
// old memory. It panics with an *[Error] if the structure of the model is unsound.
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

// A Mismatch is a tensor of a state dict that does not have the shape of the model's.
type Mismatch struct {
	Name        string
	Model, Dict shape.Dims
}

// A StateError says why a state dict does not fit a model. Nothing of it was loaded. The names of
// the lists are in the order of the model, those of Unexpected in that of the alphabet.
type StateError struct {
	Missing    []string   // names of the model that the dict lacks
	Unexpected []string   // names of the dict that the model lacks
	Mismatched []Mismatch // other shapes than the model's
	Unusable   []string   // tensors of the dict that are nil or were freed

	// Differing are pairs of names that stand for one tensor of the model and have different values
	// in the dict.
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

// unusable reports what [Loose] does not allow either.
func (e *StateError) unusable() bool {
	return len(e.Mismatched)+len(e.Unusable)+len(e.Differing) > 0
}

// surplus returns what stands before each of the longer names, as "module." of DataParallel does,
// where without it they are the shorter names, or some of them, or these and others; "" if there is
// no such prefix.
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
// place. The model keeps the same *Tensors, so optimizers made before remain valid (their state
// keeps its type). Integers, such as counts of batches, stay what they are. It returns the model.
func Cast[M any](m M, t dtype.Type) M {
	if !t.IsFloat() {
		panic(wrong("", fmt.Sprintf("a model can be cast to floating point types only, not to %v", t)))
	}
	for _, p := range Named(m) {
		if p.Tensor.Type().IsFloat() {
			p.Tensor.CastInPlace(t)
		}
	}
	return m
}

// Freeze makes all parameters of a model collect no gradients, and returns it: torch's
// requires_grad_(False). Of part of a model: Freeze(m.Body).
func Freeze[M any](m M) M { return setGrad(m, false) }

// Unfreeze makes all parameters of a model collect gradients again, and returns it.
func Unfreeze[M any](m M) M { return setGrad(m, true) }

func setGrad[M any](m M, on bool) M {
	for _, p := range Parameters(m) {
		p.SetRequiresGrad(on)
	}
	return m
}

// Modules calls f with every layer of a model and its name, the model itself first, with the name
// "": torch's named_modules. A layer that stands in two places is given once. A layer is a pointer
// to its struct where it can be changed, else the struct.
func Modules(m any) iter.Seq2[string, any] {
	var names []string
	var layers []any
	visit(m, &visitor{before: func(path string, v reflect.Value, embedded bool) {
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

// layerOf returns a struct of a model as users see it.
func layerOf(v reflect.Value) any {
	switch {
	case v.CanAddr() && v.Addr().CanInterface():
		return v.Addr().Interface()
	case v.CanInterface():
		return v.Interface()
	}
	return nil
}

// Apply calls f with every layer of a model and at last the model itself, what a layer holds before
// the layer, as torch's apply, and returns the model. It is how layers are given first values by
// their types:
//
//	nn.Apply(m, func(l any) {
//		if l, ok := l.(*nn.Linear); ok {
//			initial.Normal(l.Weight, 0, 0.02)
//		}
//	})
func Apply[M any](m M, f func(layer any)) M {
	var layers []any
	visit(m, &visitor{after: func(_ string, v reflect.Value, embedded bool) {
		if l := layerOf(v); l != nil && !embedded {
			layers = append(layers, l)
		}
	}})
	for _, l := range layers {
		f(l)
	}
	return m
}
