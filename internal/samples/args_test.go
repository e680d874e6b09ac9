package samples

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// args holds the arguments of a sample's call. An adapter must read all of them: an argument that
// it does not read has no effect, and the sample fails.
type args struct {
	scope  *tensor.Scope
	double bool // the sample runs in float64
	pos    []any
	kw     map[string]any
	used   map[string]bool
}

// A lack says which argument, or value of an argument, PyTorch's operator supports and ours does
// not.
type lack string

// lacks ends the sample with a panic. The value of the panic is a [lack] with the formatted text.
func lacks(format string, v ...any) { panic(lack(fmt.Sprintf(format, v...))) }

func (a *args) arg(i int, name string) any {
	if i >= 0 && i < len(a.pos) {
		a.used[fmt.Sprint(i)] = true
		return a.pos[i]
	}
	if v, ok := a.kw[name]; ok {
		a.used[name] = true
		return v
	}
	return nil
}

// unused returns the name of an argument that was passed but not read, or "".
func (a *args) unused() string {
	for i, v := range a.pos {
		if v != nil && !a.used[fmt.Sprint(i)] {
			return fmt.Sprintf("argument %d, %v", i, v)
		}
	}
	for name, v := range a.kw {
		if v != nil && !a.used[name] {
			return fmt.Sprintf("argument %s=%v", name, v)
		}
	}
	return ""
}

func (a *args) has(i int, name string) bool { return a.arg(i, name) != nil }

// wrong is the value of a panic. It says that an argument has a type that the adapter does not
// expect. The call then counts as refused.
type wrong string

func typed[T any](v any, what string) T {
	x, ok := v.(T)
	if !ok {
		panic(wrong(fmt.Sprintf("%s is %T %v", what, v, v)))
	}
	return x
}

// T returns a tensor argument that must be present. The method opt returns nil if it is missing.
func (a *args) T(i int, name string) *tensor.Tensor {
	return typed[*tensor.Tensor](a.arg(i, name), name)
}

func (a *args) opt(i int, name string) *tensor.Tensor {
	if !a.has(i, name) {
		return nil
	}
	return a.T(i, name)
}

func (a *args) x() *tensor.Tensor { return a.T(0, "input") }

// list returns a list of tensors: the first argument, or all positional arguments.
func (a *args) list() []*tensor.Tensor {
	if _, ok := a.arg(0, "tensors").(*tensor.Tensor); ok {
		var out []*tensor.Tensor
		for i := range a.pos {
			if t, ok := a.pos[i].(*tensor.Tensor); ok {
				out = append(out, t)
				a.arg(i, "")
			}
		}
		return out
	}
	return tensors(a.arg(0, "tensors"))
}

func tensors(v any) (out []*tensor.Tensor) {
	for _, e := range items(v) {
		out = append(out, typed[*tensor.Tensor](e, "an element of a list of tensors"))
	}
	return out
}

func items(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case tuple:
		return v
	}
	panic(wrong(fmt.Sprintf("%T %v is not a list", v, v)))
}

func (a *args) float(i int, name string, or float64) float64 {
	v := a.arg(i, name)
	if v == nil {
		return or
	}
	return number64(v)
}

func isNumber(v any) bool {
	switch v.(type) {
	case int, float64, bool:
		return true
	}
	return false
}

func isBool(v any) bool {
	_, ok := v.(bool)
	return ok
}

func isFloat(v any) bool {
	_, ok := v.(float64)
	return ok
}

// scalar returns v if it is a tensor. If v is a number, it returns a tensor without dimensions, of
// type bool, int64 or floating point. As in PyTorch, such a tensor affects type promotion only by
// its category (bool, integer or floating point).
func (a *args) scalar(v any) *tensor.Tensor {
	switch v := v.(type) {
	case *tensor.Tensor:
		return v
	case bool:
		return a.scope.Typed(dtype.Bool).Full(number64(v))
	case int:
		return a.scope.Typed(dtype.I64).Full(float64(v))
	}
	t := dtype.F32
	if a.double {
		t = dtype.F64
	}
	return a.scope.Typed(t).Full(number64(v))
}

func number64(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case float64:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	case *tensor.Tensor:
		if v.Rank() == 0 {
			return v.Item()
		}
	}
	panic(wrong(fmt.Sprintf("%T %v is not a number", v, v)))
}

func (a *args) int(i int, name string, or int) int {
	v := a.arg(i, name)
	if v == nil {
		return or
	}
	return whole(v)
}

func whole(v any) int {
	if t, ok := v.(*tensor.Tensor); ok && t.Rank() == 0 && t.Type().IsInteger() {
		return int(t.Item())
	}
	return typed[int](v, "a whole number")
}

func (a *args) bool(i int, name string, or bool) bool {
	if v := a.arg(i, name); v != nil {
		return typed[bool](v, name)
	}
	return or
}

func (a *args) text(i int, name, or string) string {
	v := a.arg(i, name)
	if v == nil {
		return or
	}
	return typed[string](v, name)
}

// ints returns a list of whole numbers; a single number is a list of one. It returns nil if the
// argument is missing.
func (a *args) ints(i int, name string) []int { return toInts(a.arg(i, name)) }

func toInts(v any) []int {
	switch v := v.(type) {
	case nil:
		return nil
	case int:
		return []int{v}
	case *tensor.Tensor:
		return []int{whole(v)}
	default:
		out := []int{}
		for _, e := range items(v) {
			out = append(out, whole(e))
		}
		return out
	}
}

// intArgs returns a list of whole numbers. They may be one list argument at position i, or all
// positional arguments from i on.
func (a *args) intArgs(i int, name string) []int {
	if i < len(a.pos) {
		if _, ok := a.pos[i].(int); ok {
			var out []int
			for ; i < len(a.pos); i++ {
				out = append(out, whole(a.arg(i, "")))
			}
			return out
		}
	}
	return a.ints(i, name)
}

// dtype returns the element type that the named argument specifies, or t if it is absent.
func (a *args) dtype(i int, name string, t dtype.Type) dtype.Type {
	if v := a.arg(i, name); v != nil {
		return typed[dtype.Type](v, name)
	}
	return t
}

// dims returns the dimensions of a reduction, and KeepDim if the argument keepdim is true.
func (a *args) dims(i int) []int {
	d := a.ints(i, "dim")
	if i < 0 {
		return a.addKeepDim(i, d)
	}
	return a.addKeepDim(i+1, d)
}

// addKeepDim appends KeepDim to d if the argument keepdim, at position i, is true.
func (a *args) addKeepDim(i int, d []int) []int {
	if a.bool(i, "keepdim", false) {
		return append(slices.Clone(d), tensor.KeepDim)
	}
	return d
}

// cast converts x to the type that the argument dtype specifies, if it is present.
func (a *args) cast(i int, x *tensor.Tensor) *tensor.Tensor {
	return x.Cast(a.dtype(i, "dtype", x.Type()))
}

// ignored marks arguments as read. It is for arguments that have no meaning here, such as memory
// formats, and for those that always have the same value.
func (a *args) ignored(names ...string) {
	for _, n := range names {
		a.arg(-1, n)
	}
}
