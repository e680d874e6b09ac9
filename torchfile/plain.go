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

// plain returns a value of a plain Go type as one that is saved. An integer of any width becomes
// int64 or *big.Int, float32 becomes float64. A slice or array becomes a list, or bytes. A map
// becomes a dict with its keys in order. Types that are made of these, such as time.Duration, are
// what they are made of. What is in lists and dicts stays as it is. It is false for other types.
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

// plainDict is false for keys that are not plain, and for two that Python holds for the same.
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

// compareKeys orders keys of one type by their values, and others by their types.
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

// numbers reports whether v is a list of numbers or bools, in which there is nothing to find.
func numbers(v any) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Array || t.Elem() == reflect.TypeFor[dtype.Type]() {
		return false
	}
	k := t.Elem().Kind()
	return k >= reflect.Bool && k <= reflect.Float64 && k != reflect.Uintptr
}
