package nn

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/tensor"
)

// Clone returns a copy of a model that shares nothing that is trained or changes with it: torch's
// copy.deepcopy. Parameters and buffers are copied on the device and in the scope of the originals,
// without gradients and without hooks of their own. They require gradients where the originals do
// (a result that a field keeps is copied without its graph). What stands in two places does so in
// the copy. The training flags and the hooks of layers are those of the model at the time.
// Functions are shared, and what they have captured with them, as are values behind pointers that
// are no layers. It panics with an *[Error] if a field that is not exported holds a layer or a
// parameter of the model, since the copy would go on using the original there.
//
// For an average of the weights there is optim.NewEMA, which needs no second model.
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
				return t // what the model has forgotten there
			}
			panic(err)
		}
		return y
	}
	return copied(c, m)
}

// Replace returns a model that computes with other tensors in the place of those of m that have the
// given names, which are [StateDict]'s. It shares all other tensors with m.
// torch.func.functional_call(m, with, x) is nn.Replace(m, with).Forward(x). m stays as it is.
// Gradients flow to where the tensors come from. So what is computed from parameters can stand in
// their place: steps of gradient descent that are themselves differentiated, or weights that
// another network makes. Shapes are not compared; the layers do.
//
// A name that m does not have, and two values for one tensor, panic with an *[Error]; otherwise see
// [Clone] for what is copied.
func Replace[M any](m M, with map[string]*tensor.Tensor) M {
	c := newCopier(m)
	names := map[string]bool{}
	given := map[*tensor.Tensor]string{}
	visit(m, &visitor{all: true, param: func(p Param) {
		t, ok := with[p.Name]
		if names[p.Name] = true; !ok {
			return
		}
		if t == nil {
			panic(wrong(p.Name, "the tensor to replace it is nil"))
		}
		if other, twice := given[p.Tensor]; twice && with[other] != t {
			panic(wrong(p.Name, fmt.Sprintf("it is one tensor with %s, and the two are replaced by different ones; give one of the names", other)))
		}
		given[p.Tensor], c.tensors[p.Tensor] = p.Name, t
	}})
	for _, name := range slices.Sorted(maps.Keys(with)) {
		if !names[name] {
			panic(wrong("", fmt.Sprintf("the model has no parameter or buffer %q to replace; it has %s", name, some(slices.Sorted(maps.Keys(names))))))
		}
	}
	return copied(c, m)
}

// some lists the first ten.
func some(names []string) string {
	if n := len(names); n > 10 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), n-10)
	}
	return strings.Join(names, ", ")
}

// A copier copies the structure of a model. It goes where the walk through a model goes, and into
// fields that the walk leaves out if what they hold is a layer, so that no copy uses the
// original's.
type copier struct {
	tensors map[*tensor.Tensor]*tensor.Tensor // what stands in the place of what
	// what stands in the place of the rest; nil: itself
	other func(t *tensor.Tensor) *tensor.Tensor
	made  map[place]reflect.Value // copies of structs, by pointer
	own   map[*tensor.Tensor]bool // tensors of the model
	bases map[*Base]bool          // of its layers
}

func newCopier(m any) *copier {
	c := &copier{tensors: map[*tensor.Tensor]*tensor.Tensor{}, made: map[place]reflect.Value{}, own: map[*tensor.Tensor]bool{}, bases: map[*Base]bool{}}
	visit(m, &visitor{
		lazy: func(string, lazyLayer) {},
		before: func(_ string, v reflect.Value, _ bool) {
			if b := promoted(v); b != nil {
				c.bases[b] = true
			}
		},
		param: func(p Param) { c.own[p.Tensor] = true },
	})
	return c
}

func copied[M any](c *copier, m M) M { return c.value("", reflect.ValueOf(m)).Interface().(M) }

// A copiedLayer puts right in its copy what its fields that are not exported refer to.
type copiedLayer interface{ afterCopy(c *copier) }

var baseType = reflect.TypeFor[Base]()

// follows reports whether a struct behind a pointer is part of a model, and copied with it.
func follows(t reflect.Type) bool {
	return t.Kind() != reflect.Interface && holdsModule(t)
}

// concerns reports whether values of type t may refer to a part of a model.
func concerns(t reflect.Type) bool { return concernsBut(t, map[reflect.Type]bool{}) }

func concernsBut(t reflect.Type, seen map[reflect.Type]bool) bool {
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
		return concernsBut(t.Elem(), seen)
	case reflect.Struct:
		if t == baseType {
			return true
		}
		for i := range t.NumField() {
			if concernsBut(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// value returns what stands in the copy where v stands in the model.
func (c *copier) value(path string, v reflect.Value) reflect.Value {
	t := v.Type()
	if !concerns(t) {
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
		if n, ok := c.made[at]; ok {
			return n
		}
		n := reflect.New(t.Elem())
		c.made[at] = n.Convert(t)
		if k := t.Elem().Kind(); k == reflect.Struct || k == reflect.Array {
			n.Elem().Set(v.Elem())
			c.inside(path, n.Elem())
		} else {
			n.Elem().Set(c.value(path, v.Elem()))
		}
		return c.made[at]
	case reflect.Interface:
		if e := v.Elem(); e.IsValid() && concerns(e.Type()) && (e.Kind() != reflect.Struct || follows(e.Type())) {
			n := reflect.New(t).Elem()
			n.Set(c.value(path, e))
			return n
		}
	case reflect.Struct:
		n := reflect.New(t).Elem()
		n.Set(v)
		c.inside(path, n)
		return n
	case reflect.Array:
		n := reflect.New(t).Elem()
		n.Set(v)
		c.inside(path, n)
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

// tensor returns what stands in the place of t.
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

// inside gives what is in n, a copy of a struct or an array that can be set, copies of its own.
func (c *copier) inside(path string, n reflect.Value) {
	if n.Kind() == reflect.Array {
		for i := range n.Len() {
			n.Index(i).Set(c.value(path, n.Index(i)))
		}
		return
	}
	if n.Type() == baseType {
		b := n.Addr().Interface().(*Base)
		b.hooks = b.hooks.clone()
		if b.known != 0 { // errors call the copy what they call the layer
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
	if n.CanInterface() { // an embedded struct of a type that is not exported cannot
		l, mends = n.Addr().Interface().(copiedLayer)
	}
	for i := range n.NumField() {
		f, d := n.Field(i), n.Type().Field(i)
		switch at := join(path, d.Name); {
		case !concerns(d.Type):
		case d.IsExported() && d.Type.Kind() == reflect.Struct:
			c.inside(at, f)
		case d.IsExported():
			f.Set(c.value(at, f))
		case d.Anonymous && d.Type.Kind() == reflect.Struct:
			c.inside(at, f)
		case !mends && c.refers(f):
			panic(wrong(at, "the field is not exported and holds a layer or a parameter, so a copy of the model would go on using the original's; export it"))
		}
	}
	if mends {
		l.afterCopy(c)
	}
}

// refers reports whether v, which cannot be set, holds a layer, or a tensor of the model.
func (c *copier) refers(v reflect.Value) bool {
	switch t := v.Type(); v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return false
		}
		if t != tensorType {
			return follows(t.Elem())
		}
		for own := range c.own {
			if reflect.ValueOf(own).Pointer() == v.Pointer() {
				return true
			}
		}
	case reflect.Interface:
		e := v.Elem()
		return e.IsValid() && concerns(e.Type()) && (e.Kind() != reflect.Struct || follows(e.Type())) && c.refers(e)
	case reflect.Slice, reflect.Array:
		if concerns(t.Elem()) {
			for i := range v.Len() {
				if c.refers(v.Index(i)) {
					return true
				}
			}
		}
	case reflect.Map:
		if concerns(t.Elem()) {
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
			if concerns(v.Field(i).Type()) && c.refers(v.Field(i)) {
				return true
			}
		}
	}
	return false
}

// clone returns hooks to which further ones can be added without the others' knowledge. Lists are
// never changed in place.
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
	for i, g := range s.segments { // of the layers that there were
		s.segments[i].layers = c.value("", reflect.ValueOf(g.layers)).Interface().([]Module)
	}
}

func (d *ModuleMap[M]) afterCopy(c *copier) {
	d.names = slices.Clone(d.names)
	d.layers = slices.Clone(c.value("", reflect.ValueOf(d.layers)).Interface().([]M))
}
