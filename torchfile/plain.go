package torchfile

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
)

// plain converts v, a value of a plain Go type, to a value that Save can write. Integers of any
// width become int64 or *big.Int, and float32 becomes float64. A slice or array becomes a list, or
// bytes. A map becomes a dict with sorted keys. A defined type, such as time.Duration, counts as
// its underlying type. plain does not convert the elements of lists and dicts. It returns false for
// other types.
func plain(v any) (any, bool) {
	switch v.(type) {
	case dtype.Type, Device:
		return nil, false
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Bool:
		return r.Bool(), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int(), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n := r.Uint(); n > math.MaxInt64 {
			return new(big.Int).SetUint64(n), true
		}
		return int64(r.Uint()), true
	case reflect.Float32, reflect.Float64:
		return r.Float(), true
	case reflect.String:
		return r.String(), true
	case reflect.Slice, reflect.Array:
		return plainList(r), true
	case reflect.Map:
		return plainDict(r)
	}
	return nil, false
}

func plainList(r reflect.Value) any {
	if r.Type().Elem() == reflect.TypeFor[byte]() {
		b := make([]byte, r.Len())
		reflect.Copy(reflect.ValueOf(b), r)
		return b
	}
	list := make([]any, r.Len())
	for i := range list {
		list[i] = r.Index(i).Interface()
	}
	return list
}

// plainDict converts a map to a Dict with sorted keys. It returns false if a key has an unsuitable
// type, or if two keys are equal in Python.
func plainDict(r reflect.Value) (any, bool) {
	type item struct{ key, value any }
	items := make([]item, 0, r.Len())
	for each := r.MapRange(); each.Next(); {
		key := each.Key().Interface()
		if key != nil {
			var ok bool
			if key, ok = plain(key); !ok {
				return nil, false
			}
		}
		items = append(items, item{key, each.Value().Interface()})
	}
	slices.SortFunc(items, func(a, b item) int { return compareKeys(a.key, b.key) })
	d := &Dict{}
	for _, i := range items {
		if d.Set(i.key, i.value) != nil {
			return nil, false
		}
	}
	return d, d.Len() == len(items)
}

// compareKeys orders keys of the same type by value, and other keys by type.
func compareKeys(a, b any) int {
	switch x := a.(type) {
	case int64:
		if y, ok := b.(int64); ok {
			return cmp.Compare(x, y)
		}
	case float64:
		if y, ok := b.(float64); ok {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(fmt.Sprintf("%T %v", a, a), fmt.Sprintf("%T %v", b, b))
}

// numbers reports whether v is a list of numbers or bools, which contains no tensors.
func numbers(v any) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Array || t.Elem() == reflect.TypeFor[dtype.Type]() {
		return false
	}
	k := t.Elem().Kind()
	return k >= reflect.Bool && k <= reflect.Float64 && k != reflect.Uintptr
}
