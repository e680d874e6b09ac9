package nn

import (
	"reflect"

	"github.com/flambeau-go/flambeau/tensor"
)

// Shares looks for state that a model would share with its [Clone] and that Forward may change.
// It returns the name of a field that holds such state, or "" if there is none. It looks at
// fields that are maps or sources of random numbers. It also looks at pointers to structs of
// the layer's package, if the structs hold maps, tensors or sources of random numbers. Layers
// of this package have no such field.
func Shares(m any) (field string) {
	visit(m, &visitor{lazy: func(string, lazyLayer) {}, pre: func(path string, v reflect.Value, _ bool) {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if field == "" && v.Kind() == reflect.Struct && v.Type().PkgPath() != baseType.PkgPath() {
			field = sharedField(path, v, v.Type().PkgPath())
		}
	}})
	return field
}

// sharedField does what Shares does, for one struct v of a layer that belongs to package pkg.
func sharedField(path string, v reflect.Value, pkg string) string {
	for i := range v.NumField() {
		f, d := v.Field(i), v.Type().Field(i)
		at := join(path, d.Name)
		switch f.Kind() {
		case reflect.Map:
			if own := d.IsExported() && mayRefer(d.Type); !f.IsNil() && !own {
				return at
			}
		case reflect.Pointer, reflect.Interface:
			if !f.IsNil() && (draws(d.Type) || f.Kind() == reflect.Pointer && keeps(d.Type.Elem(), pkg, map[reflect.Type]bool{})) {
				return at
			}
		case reflect.Struct:
			if d.Type.PkgPath() == pkg && !follows(d.Type) {
				if s := sharedField(at, f, pkg); s != "" {
					return s
				}
			}
		}
	}
	return ""
}

var generatorType = reflect.TypeFor[*tensor.Generator]()

func draws(t reflect.Type) bool {
	if t == generatorType {
		return true
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == "math/rand" || t.PkgPath() == "math/rand/v2"
}

// keeps reports whether struct type t has a field in which a layer may cache a result. It considers
// only types of package pkg that are not part of a model.
func keeps(t reflect.Type, pkg string, seen map[reflect.Type]bool) bool {
	if t.Kind() != reflect.Struct || t.PkgPath() != pkg || follows(t) || seen[t] {
		return false
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i).Type
		switch {
		case f.Kind() == reflect.Map || f == tensorType || draws(f):
			return true
		case f.Kind() == reflect.Pointer && keeps(f.Elem(), pkg, seen) || keeps(f, pkg, seen):
			return true
		}
	}
	return false
}
