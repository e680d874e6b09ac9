package data

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// An oddError says that a sample does not match the first sample of its batch.
type oddError struct {
	at int // index of the sample in the batch
	// key is the path of the wrong value within a nested value, or "" if the whole value is
	// wrong.
	key string
	msg string
}

func (e *oddError) Error() string {
	return e.key + fmt.Sprintf("sample %d of the batch ", e.at) + e.msg
}

func odd(at int, format string, args ...any) error {
	return &oddError{at: at, msg: fmt.Sprintf(format, args...)}
}

// padded is the remedy for slices and tensors whose lengths differ.
const padded = " (data.PadCollate pads them: set it as Config.Collate)"

// Collate makes a batch of samples, as torch's default_collate does.
//
//   - Numbers, slices of numbers (also nested) and arrays of numbers become one tensor with a new
//     first dimension. As in [tensor.From], Go's int becomes int64 and float64 stays float64.
//   - Tensors of equal shape, type and device are stacked.
//   - Strings become a []string.
//   - Maps with string keys become a map[string]any: the values of each key are collated. All maps
//     must have the same keys.
//   - []any and []string values become a []any: the entries at each index are collated. All lists
//     must be equally long.
//
// In PyTorch, unlike here, a list of numbers stays a list. A function in Config.Collate may call
// Collate.
func Collate(samples []Sample) (*Batch, error) { return collator{}.batch(samples) }

// PadCollate returns a function for Config.Collate that collates as [Collate] does, but pads
// tensors and slices of numbers whose lengths differ. The length of a tensor is its first
// dimension. The function pads them with the value pad to the length of the longest in the batch,
// as torch's pad_sequence does with batch_first. For integer types, pad must be a whole number.
func PadCollate(pad float64) func(samples []Sample) (*Batch, error) {
	return collator{pad: true, padValue: pad}.batch
}

// A collator makes batches of samples, with padding if pad is true.
type collator struct {
	pad      bool // pad slices and tensors to the length of the longest
	padValue float64
}

func (c collator) batch(samples []Sample) (*Batch, error) {
	if len(samples) == 0 {
		return nil, fmt.Errorf("data: no samples to collate")
	}
	values := make([]any, len(samples))
	for i := range samples {
		values[i] = samples[i].X
	}
	b := &Batch{}
	var err error
	if b.Nested.X, err = c.values(values); err != nil {
		return nil, err
	}
	for i := range samples {
		values[i] = samples[i].Y
	}
	if b.Nested.Y, err = c.values(values); err != nil {
		b.Free()
		return nil, err
	}
	return b.complete(), nil
}

// CollateValues collates one value of each sample, such as X, by the rules of [Collate].
func CollateValues(values []any) (any, error) { return collator{}.values(values) }

func (c collator) values(values []any) (any, error) {
	if len(values) == 0 {
		return nil, fmt.Errorf("data: no values to collate")
	}
	switch first := values[0].(type) {
	case nil:
		return nil, odd(0, "has nil as a value")
	case *tensor.Tensor:
		if first == nil {
			return nil, odd(0, "has a nil tensor")
		}
		return asAny(c.stack(first, values))
	case float32:
		return asAny(numbers[float32](values))
	case float64:
		return asAny(numbers[float64](values))
	case int:
		return asAny(numbers[int](values))
	case int64:
		return asAny(numbers[int64](values))
	case []float32:
		return asAny(rows[float32](c, values))
	case []uint8:
		return asAny(rows[uint8](c, values))
	case []int64:
		return asAny(rows[int64](c, values))
	case []int:
		return asAny(rows[int](c, values))
	case string:
		out := make([]string, len(values))
		for i, v := range values {
			s, ok := v.(string)
			if !ok {
				return nil, odd(i, "holds a %T, the first a string", v)
			}
			out[i] = s
		}
		return out, nil
	}
	first := reflect.ValueOf(values[0])
	for i, v := range values {
		if t := reflect.TypeOf(v); t != first.Type() {
			return nil, odd(i, "holds a %T, the first a %T", v, values[0])
		}
	}
	switch k := first.Kind(); {
	case k == reflect.Map && first.Type().Key().Kind() == reflect.String:
		return c.maps(values)
	case k == reflect.Slice && (first.Type().Elem().Kind() == reflect.Interface || first.Type().Elem().Kind() == reflect.String || first.Type().Elem().Kind() == reflect.Map):
		return c.lists(values)
	}
	longest := -1
	if k := first.Kind(); c.pad && k == reflect.Slice && isNumber(first.Type().Elem()) {
		for _, v := range values {
			longest = max(longest, reflect.ValueOf(v).Len())
		}
	}
	list := reflect.MakeSlice(reflect.SliceOf(first.Type()), len(values), len(values))
	for i, v := range values {
		r := reflect.ValueOf(v)
		if longest >= 0 && r.Len() < longest {
			padded := reflect.MakeSlice(first.Type(), longest, longest)
			reflect.Copy(padded, r)
			with := reflect.ValueOf(c.padValue).Convert(first.Type().Elem())
			if back := with.Convert(reflect.TypeFor[float64]()).Float(); back != c.padValue && !with.CanFloat() {
				return nil, c.unfit(values[0])
			}
			for k := r.Len(); k < longest; k++ {
				padded.Index(k).Set(with)
			}
			r = padded
		}
		list.Index(i).Set(r)
	}
	var t *tensor.Tensor
	err := tensor.Try(func() { t = tensor.From(list.Interface()) })
	if err != nil {
		// Find the first slice whose lengths differ from those of slice 0, to name it in the error.
		for i, v := range values {
			if a, b := lengths(reflect.ValueOf(v)), lengths(first); a != b {
				remedy := ""
				if isNumber(first.Type().Elem()) {
					remedy = padded
				}
				return nil, odd(i, "has values of shape %s, the first %s"+remedy, a, b)
			}
		}
		return nil, err
	}
	return t, nil
}

// lengths formats the lengths of a nested slice at each level. It looks only at the first entry of
// each level.
func lengths(v reflect.Value) string {
	var n []int
	for v.Kind() == reflect.Slice || v.Kind() == reflect.Array {
		n = append(n, v.Len())
		if v.Len() == 0 {
			break
		}
		v = v.Index(0)
	}
	return fmt.Sprint(n)
}

func asAny(t *tensor.Tensor, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

func numbers[T any](values []any) (t *tensor.Tensor, err error) {
	all := make([]T, len(values))
	for i, v := range values {
		n, ok := v.(T)
		if !ok {
			return nil, odd(i, "holds a %T, the first a %T", v, values[0])
		}
		all[i] = n
	}
	err = tensor.Try(func() { t = tensor.From(all) })
	return t, err
}

func rows[T float32 | uint8 | int64 | int](c collator, values []any) (t *tensor.Tensor, err error) {
	n := len(values[0].([]T))
	for i, v := range values {
		r, ok := v.([]T)
		if !ok {
			return nil, odd(i, "holds a %T, the first a %T", v, values[0])
		}
		if len(r) != n && !c.pad {
			return nil, odd(i, "has %d values, the first %d"+padded, len(r), n)
		}
		n = max(n, len(r))
	}
	all := make([]T, 0, n*len(values))
	with := T(c.padValue)
	for _, v := range values {
		r := v.([]T)
		all = append(all, r...)
		if _, float := v.([]float32); len(r) < n && float64(with) != c.padValue && !float {
			return nil, c.unfit(v)
		}
		for range n - len(r) {
			all = append(all, with)
		}
	}
	err = tensor.Try(func() { t = tensor.From(all, len(values), n) })
	return t, err
}

// isNumber reports whether t is a predeclared number type. It is false for other types whose
// underlying type is a number, such as dtype.Float16.
func isNumber(t reflect.Type) bool {
	k := t.Kind()
	return k >= reflect.Int && k <= reflect.Float64 && k != reflect.Uintptr && t.PkgPath() == ""
}

func (c collator) unfit(v any) error {
	return fmt.Errorf("the value to pad with, %v, cannot be in a %T", c.padValue, v)
}

// nested collates the values of one key of nested samples. If nested fails, it frees the values of
// the earlier keys, which the argument done holds.
func (c collator) nested(key string, done any, values []any) (any, error) {
	v, err := c.values(values)
	if err != nil {
		(&Batch{Nested: Sample{X: done}}).Free()
		if o, ok := err.(*oddError); ok {
			o.key = key + ": " + o.key
			return nil, o
		}
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return v, nil
}

func (c collator) maps(values []any) (any, error) {
	first := reflect.ValueOf(values[0])
	out := make(map[string]any, first.Len())
	for i, v := range values {
		if n := reflect.ValueOf(v).Len(); n != first.Len() {
			return nil, odd(i, "has %d keys, the first %d", n, first.Len())
		}
	}
	part := make([]any, len(values))
	for _, key := range first.MapKeys() {
		name := key.String()
		for i, v := range values {
			e := reflect.ValueOf(v).MapIndex(key)
			if !e.IsValid() {
				(&Batch{Nested: Sample{X: out}}).Free()
				return nil, odd(i, "has no key %q, which the first has", name)
			}
			part[i] = e.Interface()
		}
		v, err := c.nested(fmt.Sprintf("key %q", name), out, part)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func (c collator) lists(values []any) (any, error) {
	n := reflect.ValueOf(values[0]).Len()
	for i, v := range values {
		if k := reflect.ValueOf(v).Len(); k != n {
			return nil, odd(i, "has %d values, the first %d", k, n)
		}
	}
	out := make([]any, 0, n)
	part := make([]any, len(values))
	for k := range n {
		for i, v := range values {
			part[i] = reflect.ValueOf(v).Index(k).Interface()
		}
		v, err := c.nested(fmt.Sprintf("place %d", k), out, part)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// stack stacks tensors of equal shape and type along a new first dimension.
func (c collator) stack(first *tensor.Tensor, values []any) (y *tensor.Tensor, err error) {
	sh := first.Shape().Slice()
	differ := false
	for i, v := range values {
		t, ok := v.(*tensor.Tensor)
		if !ok {
			return nil, odd(i, "holds a %T, the first a tensor", v)
		}
		if t == nil {
			return nil, odd(i, "has a nil tensor")
		}
		long := len(sh) > 0 && t.Rank() == len(sh) && slices.Equal(t.Shape().Slice()[1:], sh[1:])
		if t.Type() != first.Type() || t.Shape() != first.Shape() && !(c.pad && long) {
			remedy := ""
			if t.Type() == first.Type() && long {
				remedy = padded
			}
			return nil, odd(i, "is a %v tensor of shape %v, the first a %v tensor of shape %v"+remedy, t.Type(), t.Shape(), first.Type(), first.Shape())
		}
		if len(sh) > 0 && t.Dim(0) != sh[0] {
			differ = true
			sh[0] = max(sh[0], t.Dim(0))
		}
	}
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			y = s.Typed(first.Type()).Empty(append([]int{len(values)}, sh...)...)
			if differ {
				y.Fill(c.padValue)
			}
			for i, v := range values {
				t, to := v.(*tensor.Tensor), y.Select(0, i)
				if differ {
					to = to.Narrow(0, 0, t.Dim(0))
				}
				to.Copy(t)
			}
			s.Close(y)
		}, tensor.NoGrad(), tensor.On(first.Device()))
	})
	if err != nil {
		return nil, err
	}
	return y, nil
}
