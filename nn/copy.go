package nn

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/tensor"
)

// Clone returns an independent copy of a model: torch's copy.deepcopy. Parameters and buffers are
// copied on the devices and in the scopes of the originals. The copied tensors have no gradients
// and no tensor hooks, and require a gradient where the original does. A computed tensor that a
// field holds is copied without its graph. If the model holds a tensor or layer in two places, the
// copy holds a single copy of it in both places.
//
// The copied layers have the training flags and the hooks that the originals have now. The copy
// shares function values with the original. It also shares the targets of pointers, except layers.
// Clone panics with an *[Error] if an unexported field holds a layer or a parameter of the model,
// because Clone cannot replace such a field in the copy.
//
// To average weights, use optim.NewEMA. It needs no second model.
func Clone[M any](m M) M {
	c := newCopier(m)
	c.other = func(t *tensor.Tensor) *tensor.Tensor {
		var y *tensor.Tensor
		if err := tensor.Try(func() {
			y = t.Detach().Clone()
			if trained := t.IsLeaf() && t.NeedsGrad(); trained || t.IsFrozen() {
				y.SetRequiresGrad(trained)
			}
		}); err != nil {
			if gone(t) {
				return t // the model itself freed t
			}
			panic(err)
		}
		return y
	}
	return copied(c, m)
}

// Replace returns a copy of model m in which the tensors of params replace those with the same
// names in [StateDict]. The copy shares all other tensors with m. Replace does not change m.
// torch.func.functional_call(m, params, x) is nn.Replace(m, params).Forward(x).
//
// Gradients flow through the new tensors to the tensors that they were computed from. Examples are
// the results of a step of gradient descent that is itself differentiated, and weights that another
// network computes. Replace does not check shapes, since the layers do.
//
// Replace panics with an *[Error] if m lacks one of the names, or if one tensor of m has two names
// with different replacements. Replace copies fields that hold no tensors as [Clone] does.
func Replace[M any](m M, params map[string]*tensor.Tensor) M {
	c := newCopier(m)
	names := map[string]bool{}
	given := map[*tensor.Tensor]string{}
	visit(m, &visitor{all: true, param: func(p Param) {
		t, ok := params[p.Name]
		if names[p.Name] = true; !ok {
			return
		}
		if t == nil {
			panic(wrong(p.Name, "the tensor to replace it is nil"))
		}
		if other, twice := given[p.Tensor]; twice && params[other] != t {
			panic(wrong(p.Name, fmt.Sprintf("it is one tensor with %s, and the two are replaced by different ones; give one of the names", other)))
		}
		given[p.Tensor], c.tensors[p.Tensor] = p.Name, t
	}})
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !names[name] {
			panic(wrong("", fmt.Sprintf("the model has no parameter or buffer %q to replace; it has %s", name, firstNames(slices.Sorted(maps.Keys(names))))))
		}
	}
	return copied(c, m)
}

func firstNames(names []string) string {
	if n := len(names); n > 10 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), n-10)
	}
	return strings.Join(names, ", ")
}

// A copier copies the structure of a model. It visits the fields that Parameters visits. It also
// visits other fields that hold layers, so that no copy uses a layer of the original.
type copier struct {
	tensors map[*tensor.Tensor]*tensor.Tensor // maps a tensor of the model to the copy's tensor
	// other copies a tensor that the map tensors lacks. If other is nil, the copy of the model
	// shares that tensor.
	other    func(t *tensor.Tensor) *tensor.Tensor
	copies   map[place]reflect.Value // maps a pointer in the original to its copy
	original map[*tensor.Tensor]bool // the tensors of the model
	bases    map[*Base]bool          // the Base of each layer of the model
}

func newCopier(m any) *copier {
	c := &copier{tensors: map[*tensor.Tensor]*tensor.Tensor{}, copies: map[place]reflect.Value{}, original: map[*tensor.Tensor]bool{}, bases: map[*Base]bool{}}
	visit(m, &visitor{
		lazy: func(string, lazyLayer) {},
		pre: func(_ string, v reflect.Value, _ bool) {
			if b := promoted(v); b != nil {
				c.bases[b] = true
			}
		},
		param: func(p Param) { c.original[p.Tensor] = true },
	})
	return c
}

func copied[M any](c *copier, m M) M { return c.value("", reflect.ValueOf(m)).Interface().(M) }

// A copiedLayer has unexported fields that refer to layers or tensors of the model. After the copy,
// afterCopy makes them refer to the copied ones.
type copiedLayer interface{ afterCopy(c *copier) }

var baseType = reflect.TypeFor[Base]()

// follows reports whether a pointer to t points to a layer, or to a struct that holds one. Such a
// pointer's target is copied.
func follows(t reflect.Type) bool {
	return t.Kind() != reflect.Interface && holdsModule(t)
}

// mayRefer reports whether values of type t may refer to a layer or a tensor.
func mayRefer(t reflect.Type) bool { return mayReferBut(t, map[reflect.Type]bool{}) }

func mayReferBut(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer:
		return t == tensorType || follows(t.Elem())
	case reflect.Interface:
		return true
	case reflect.Slice, reflect.Array, reflect.Map:
		return mayReferBut(t.Elem(), seen)
	case reflect.Struct:
		if t == baseType {
			return true
		}
		for i := range t.NumField() {
			if mayReferBut(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// value returns what replaces v in the copy. path is the name of v in the model, for errors.
func (c *copier) value(path string, v reflect.Value) reflect.Value {
	t := v.Type()
	if !mayRefer(t) {
		return v
	}
	switch t.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		if t == tensorType {
			return reflect.ValueOf(c.tensor(v.Interface().(*tensor.Tensor)))
		}
		at := place{v.Pointer(), t}
		if n, ok := c.copies[at]; ok {
			return n
		}
		n := reflect.New(t.Elem())
		c.copies[at] = n.Convert(t)
		if k := t.Elem().Kind(); k == reflect.Struct || k == reflect.Array {
			n.Elem().Set(v.Elem())
			c.copyContents(path, n.Elem())
		} else {
			n.Elem().Set(c.value(path, v.Elem()))
		}
		return c.copies[at]
	case reflect.Interface:
		if e := v.Elem(); e.IsValid() && mayRefer(e.Type()) && (e.Kind() != reflect.Struct || follows(e.Type())) {
			n := reflect.New(t).Elem()
			n.Set(c.value(path, e))
			return n
		}
	case reflect.Struct:
		n := reflect.New(t).Elem()
		n.Set(v)
		c.copyContents(path, n)
		return n
	case reflect.Array:
		n := reflect.New(t).Elem()
		n.Set(v)
		c.copyContents(path, n)
		return n
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		n := reflect.MakeSlice(t, v.Len(), v.Len())
		for i := range v.Len() {
			n.Index(i).Set(c.value(path, v.Index(i)))
		}
		return n
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		n := reflect.MakeMapWithSize(t, v.Len())
		for each := v.MapRange(); each.Next(); {
			n.SetMapIndex(each.Key(), c.value(path, each.Value()))
		}
		return n
	}
	return v
}

// tensor returns the tensor that replaces t in the copy. It is t itself if the copy shares t.
func (c *copier) tensor(t *tensor.Tensor) *tensor.Tensor {
	n, ok := c.tensors[t]
	if !ok {
		if n = t; c.other != nil {
			n = c.other(t)
		}
		c.tensors[t] = n
	}
	return n
}

// copyContents replaces what n holds by copies. n is a shallow copy of a struct or an array, and is
// settable.
func (c *copier) copyContents(path string, n reflect.Value) {
	if n.Kind() == reflect.Array {
		for i := range n.Len() {
			n.Index(i).Set(c.value(path, n.Index(i)))
		}
		return
	}
	if n.Type() == baseType {
		b := n.Addr().Interface().(*Base)
		b.hooks = b.hooks.clone()
		if b.known != 0 { // the copy gets the original layer's name for its errors
			if old := b.mark; c.bases[old.base] {
				b.mark = newMark(b, old.name.Load())
			} else {
				b.known, b.mark = 0, nil
			}
		}
		return
	}
	var l copiedLayer
	mends := false
	if n.CanInterface() { // false for an embedded struct of an unexported type
		l, mends = n.Addr().Interface().(copiedLayer)
	}
	for i := range n.NumField() {
		f, d := n.Field(i), n.Type().Field(i)
		switch at := join(path, d.Name); {
		case !mayRefer(d.Type):
		case d.IsExported() && d.Type.Kind() == reflect.Struct:
			c.copyContents(at, f)
		case d.IsExported():
			f.Set(c.value(at, f))
		case d.Anonymous && d.Type.Kind() == reflect.Struct:
			c.copyContents(at, f)
		case !mends && c.refers(f):
			panic(wrong(at, "the field is not exported and holds a layer or a parameter, so a copy of the model would go on using the original's; export it"))
		}
	}
	if mends {
		l.afterCopy(c)
	}
}

// refers reports whether the unexported field v holds a layer or a tensor of the model.
func (c *copier) refers(v reflect.Value) bool {
	switch t := v.Type(); v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return false
		}
		if t != tensorType {
			return follows(t.Elem())
		}
		for own := range c.original {
			if reflect.ValueOf(own).Pointer() == v.Pointer() {
				return true
			}
		}
	case reflect.Interface:
		e := v.Elem()
		return e.IsValid() && mayRefer(e.Type()) && (e.Kind() != reflect.Struct || follows(e.Type())) && c.refers(e)
	case reflect.Slice, reflect.Array:
		if mayRefer(t.Elem()) {
			for i := range v.Len() {
				if c.refers(v.Index(i)) {
					return true
				}
			}
		}
	case reflect.Map:
		if mayRefer(t.Elem()) {
			for each := v.MapRange(); each.Next(); {
				if c.refers(each.Value()) {
					return true
				}
			}
		}
	case reflect.Struct:
		if t == baseType {
			return false
		}
		for i := range v.NumField() {
			if mayRefer(v.Field(i).Type()) && c.refers(v.Field(i)) {
				return true
			}
		}
	}
	return false
}

// clone returns a copy of k. Adding a hook to k or to the copy does not change the other. Both may
// share the lists of hooks, because a list is never changed in place.
func (k *moduleHooks) clone() *moduleHooks {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return &moduleHooks{pre: k.pre, forward: k.forward, backPre: k.backPre, backward: k.backward}
}

func (s *Sequential) afterCopy(c *copier) {
	s.segments = slices.Clone(s.segments)
	for i, g := range s.segments { // the segments still hold the original's layers
		s.segments[i].layers = c.value("", reflect.ValueOf(g.layers)).Interface().([]Module)
	}
}

func (d *ModuleMap[M]) afterCopy(c *copier) {
	d.names = slices.Clone(d.names)
	d.layers = slices.Clone(c.value("", reflect.ValueOf(d.layers)).Interface().([]M))
}
