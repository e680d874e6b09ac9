package nn

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/tensor"
)

// A stray is a tensor in a model's struct that no walk takes for a parameter.
type stray struct {
	path string
	t    *tensor.Tensor
}

// strayTypes keeps which fields of a struct type are searched for strays: those that are neither parameters nor layers and may hold tensors.
var strayTypes sync.Map // reflect.Type → []int

func strayFields(t reflect.Type) []int {
	if list, ok := strayTypes.Load(t); ok {
		return list.([]int)
	}
	var list []int
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("nn")
		if name, _, _ := strings.Cut(tag, ","); name == "-" && tagged {
			continue
		}
		seen := f.IsExported() && (tagged || f.Type == tensorType || holdsModule(f.Type)) || f.Anonymous && f.Type.Kind() == reflect.Struct && holdsModule(f.Type)
		if !seen && carries(f.Type, map[reflect.Type]bool{}) {
			list = append(list, i)
		}
	}
	strayTypes.Store(t, list)
	return list
}

// carries reports whether values of type t lead to tensors, by pointers, lists, maps and structs.
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

// ofTheLibrary reports whether a struct is one whose tensors are the library's affair, such as an optimizer, and no layer.
func ofTheLibrary(t reflect.Type) bool {
	rest, in := strings.CutPrefix(t.PkgPath(), callsite.Module+"/")
	if !in || callsite.Outside(t.PkgPath()+".", "") || strings.HasSuffix(rest, "_test") {
		return false
	}
	return rest != "nn" && rest != "models"
}

// search finds the strays in v.
func (w *visitor) search(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.Type() == tensorType {
			t := (*tensor.Tensor)(v.UnsafePointer()) // the field may be one that is not exported
			if t.IsLeaf() && t.NeedsGrad() {
				w.strays = append(w.strays, stray{path, t})
			}
			return
		}
		at := place{v.Pointer(), v.Type()}
		if _, seen := w.searched[at]; seen {
			return
		}
		w.searched[at] = struct{}{}
		w.search(path, v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			w.search(join(path, strconv.Itoa(i)), v.Index(i))
		}
	case reflect.Map:
		for each := v.MapRange(); each.Next(); {
			w.search(fmt.Sprintf("%s[%v]", path, each.Key()), each.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Tag.Get("nn") != "-" && carries(f.Type, map[reflect.Type]bool{}) {
				w.search(join(path, f.Name), v.Field(i))
			}
		}
	}
}

// refuseStrays panics if a tensor that requires a gradient stands where it would not be trained, and nowhere else.
func (w *visitor) refuseStrays() {
	for _, s := range w.strays {
		known := false
		for _, t := range w.names {
			known = known || t == s.t
		}
		if !known {
			panic(&Error{s.path, "a tensor that requires a gradient is not found here, so it would not be trained; a parameter is an exported field with a tag of its name " +
				"(Gain *tensor.Tensor `nn:\"gain\"`), or tag the field nn:\"-\""})
		}
	}
}
