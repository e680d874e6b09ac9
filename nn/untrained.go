package nn

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/tensor"
)

// A stray is a tensor that a model holds, but that is not one of the model's parameters.
type stray struct {
	path, why string
	t         *tensor.Tensor
}

// strayTypes maps each struct type of a layer to the fields that are searched for strays: those
// that may lead to tensors and are neither parameters nor layers. carriers maps all other struct
// types to the fields that may lead to tensors.
var strayTypes, carriers sync.Map // both map a reflect.Type to an []int

func strayFields(t reflect.Type) []int {
	return fieldsOnce(&strayTypes, t, func(f reflect.StructField) bool {
		_, tagged := f.Tag.Lookup("nn")
		seen := f.IsExported() && (tagged || f.Type == tensorType || holdsModule(f.Type)) || f.Anonymous && f.Type.Kind() == reflect.Struct && holdsModule(f.Type)
		return !seen && carries(f.Type, map[reflect.Type]bool{})
	})
}

func carrierFields(t reflect.Type) []int {
	return fieldsOnce(&carriers, t, func(f reflect.StructField) bool { return carries(f.Type, map[reflect.Type]bool{}) })
}

// fieldsOnce returns the indices of the fields of t for which pred(f) is true, and caches them. It
// leaves out fields tagged nn:"-". If t has a mutex, it returns none, because another goroutine may
// be writing the fields.
func fieldsOnce(lists *sync.Map, t reflect.Type, pred func(f reflect.StructField) bool) []int {
	if list, ok := lists.Load(t); ok {
		return list.([]int)
	}
	var list []int
	for i := range t.NumField() {
		f := t.Field(i)
		if guards(f.Type) {
			list = nil
			break
		}
		if name, _, _ := strings.Cut(f.Tag.Get("nn"), ","); name != "-" && pred(f) {
			list = append(list, i)
		}
	}
	lists.Store(t, list)
	return list
}

// guards reports whether t is a mutex.
func guards(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t == reflect.TypeFor[sync.Mutex]() || t == reflect.TypeFor[sync.RWMutex]()
}

// carries reports whether values of type t lead to tensors through pointers, lists, maps and
// structs.
func carries(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == tensorType {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return carries(t.Elem(), seen)
	case reflect.Struct:
		if ofTheLibrary(t) {
			return false
		}
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("nn") != "-" && carries(f.Type, seen) {
				return true
			}
		}
	}
	return false
}

// ofTheLibrary reports whether a struct type belongs to a package of this library that holds no
// layers, such as package optim. The library itself takes care of the tensors in such structs.
func ofTheLibrary(t reflect.Type) bool {
	rest, in := strings.CutPrefix(t.PkgPath(), callsite.Module+"/")
	if !in || callsite.Outside(t.PkgPath()+".", "") || strings.HasSuffix(rest, "_test") {
		return false
	}
	return rest != "nn" && rest != "models"
}

// A step leads from a value to one of its fields, elements or map values.
type step struct {
	name  string        // name of the field, or empty
	index int           // index of the element
	key   reflect.Value // key of the map value; invalid for other steps
}

// fullPath returns the path of the value that is being searched: path, the layer's path, followed
// by the steps from the layer.
func (w *visitor) fullPath(path string) string {
	for _, s := range w.steps {
		switch {
		case s.key.IsValid():
			path = fmt.Sprintf("%s[%v]", path, s.key)
		case s.name != "":
			path = join(path, s.name)
		default:
			path = join(path, strconv.Itoa(s.index))
		}
	}
	return path
}

// descend searches v: a field, an element or a map value of the value searched so far. Step s leads
// from that value to v.
func (w *visitor) descend(path string, s step, v reflect.Value) {
	w.steps = append(w.steps, s)
	w.search(path, v)
	w.steps = w.steps[:len(w.steps)-1]
}

// search finds the strays in v. It formats a path only for a stray, because v may be large, such as
// the replay memory of an agent.
func (w *visitor) search(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.Type() == tensorType {
			// Unlike Interface, UnsafePointer works for unexported fields.
			t := (*tensor.Tensor)(v.UnsafePointer())
			if t.IsLeaf() && t.NeedsGrad() {
				w.strays = append(w.strays, stray{w.fullPath(path), "is not found here, so it would not be trained; a parameter is an exported field with a tag of its name " +
					"(Gain *tensor.Tensor `nn:\"gain\"`), or tag the field nn:\"-\"", t})
			}
			return
		}
		if w.enter(v) {
			w.search(path, v.Elem())
		}
	case reflect.Slice:
		if v.Len() == 0 {
			return
		}
		// The entry is deleted afterwards, because a longer slice may begin at the same address.
		if at := (place{v.Pointer(), v.Type()}); w.enter(v) {
			defer delete(w.searched, at)
			for i := range v.Len() {
				w.descend(path, step{index: i}, v.Index(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			w.descend(path, step{index: i}, v.Index(i))
		}
	case reflect.Map:
		if v.Len() > 0 && w.enter(v) {
			for each := v.MapRange(); each.Next(); {
				w.descend(path, step{key: each.Key()}, each.Value())
			}
		}
	case reflect.Struct:
		for _, i := range carrierFields(v.Type()) {
			w.descend(path, step{name: v.Type().Field(i).Name}, v.Field(i))
		}
	}
}

// enter reports whether the search reaches the target of v for the first time.
func (w *visitor) enter(v reflect.Value) bool {
	at := place{v.Pointer(), v.Type()}
	_, seen := w.searched[at]
	w.searched[at] = struct{}{}
	return !seen
}

// refuseStrays panics if a tensor of the model requires a gradient and is not one of the model's
// parameters. Such a tensor would not be trained. A freed tensor, or a tensor of a closed scope,
// is left over from a step and is no error.
func (w *visitor) refuseStrays() {
	if len(w.strays) == 0 || w.quick {
		return
	}
	known := map[*tensor.Tensor]bool{}
	for _, t := range w.names {
		known[t] = true
	}
	for _, s := range w.strays {
		if !known[s.t] && !gone(s.t) {
			panic(w.wrong(s.path, "a tensor that requires a gradient "+s.why))
		}
	}
}

// gone reports whether t was freed, or its scope was closed.
func gone(t *tensor.Tensor) bool {
	err := tensor.Try(func() { t.Detach().Free() })
	return errors.Is(err, tensor.ErrFreed) || errors.Is(err, tensor.ErrScope)
}
