package data

import (
	"fmt"
	"reflect"

	"github.com/flambeau-go/flambeau/tensor"
)

// collate stacks values of one type and shape: numbers, slices of numbers, or tensors.
func collate(values []any) (*tensor.Tensor, error) {
	if t, ok := values[0].(*tensor.Tensor); ok {
		return stack(t, values)
	}
	first := reflect.ValueOf(values[0])
	if !first.IsValid() {
		return nil, fmt.Errorf("a sample's value is nil")
	}
	list := reflect.MakeSlice(reflect.SliceOf(first.Type()), len(values), len(values))
	flat := first.Kind() == reflect.Slice && first.Type().Elem().Kind() != reflect.Slice
	var out reflect.Value
	if flat {
		out = reflect.MakeSlice(first.Type(), 0, len(values)*first.Len())
	}
	for i, v := range values {
		r := reflect.ValueOf(v)
		if !r.IsValid() || r.Type() != first.Type() {
			return nil, fmt.Errorf("sample %d of the batch holds a %T, the first a %T", i, v, values[0])
		}
		if flat {
			if r.Len() != first.Len() {
				return nil, fmt.Errorf("sample %d of the batch has %d values, the first %d", i, r.Len(), first.Len())
			}
			out = reflect.AppendSlice(out, r)
			continue
		}
		list.Index(i).Set(r)
	}
	var t *tensor.Tensor
	err := tensor.Try(func() {
		if flat {
			t = tensor.From(out.Interface(), len(values), first.Len())
		} else {
			t = tensor.From(list.Interface())
		}
	})
	return t, err
}

// stack puts tensors of one shape and type behind one another along a new first dimension.
func stack(first *tensor.Tensor, values []any) (y *tensor.Tensor, err error) {
	var differs error
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			y = s.Typed(first.Type()).Empty(append([]int{len(values)}, first.Shape().Slice()...)...)
			for i, v := range values {
				t, ok := v.(*tensor.Tensor)
				if !ok || t.Shape() != first.Shape() || t.Type() != first.Type() {
					differs = fmt.Errorf("sample %d of the batch is not a %v tensor of shape %v", i, first.Type(), first.Shape())
					return
				}
				y.Select(0, i).Copy(t)
			}
			s.Close(y)
		}, tensor.NoGrad())
	})
	if err == nil {
		err = differs
	}
	if err != nil {
		return nil, err
	}
	return y, nil
}
