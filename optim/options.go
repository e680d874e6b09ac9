package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/tensor"
)

// A config holds the options of a group except the learning rate. It is a pointer to an exported
// type, such as [AdamConfig].
type config interface {
	options() []option
	complete()     // replaces zero values by defaults
	check() string // returns what is wrong, or ""
	clone() config
}

// An option connects torch's name of an option with a pointer to its field in a configuration. The
// type of the pointer is *float64, *int, *bool, *string (torch's None is ""), []*float64 (torch's
// tuple), [negated] or [noneOr]. For an option of torch that has no effect here, the type is
// [fixed].
type option struct {
	name  string
	place any
}

// negated is a flag that torch stores as its opposite.
type negated struct{ flag *bool }

// noneOr is an option that is a pair of numbers or torch's None. For None, value points to nil.
type noneOr struct {
	value  **float64
	second *float64
}

// fixed is an option that is always saved with this value, and ignored when loading.
type fixed struct{ value any }

// ignored returns options of torch that select how a step runs. They do not affect the result.
func ignored(names ...string) []option {
	out := make([]option, len(names))
	for i, n := range names {
		switch n {
		case "foreach", "fused":
			out[i] = option{n, fixed{nil}}
		default:
			out[i] = option{n, fixed{false}}
		}
	}
	return out
}

// tree returns the value of an option as the tree of StateDict contains it.
func (o option) tree() any {
	switch p := o.place.(type) {
	case *float64:
		return *p
	case *int:
		return int64(*p)
	case *bool:
		return *p
	case negated:
		return !*p.flag
	case *string:
		if *p == "" {
			return nil
		}
		return *p
	case []*float64:
		list := make([]any, len(p))
		for i := range p {
			list[i] = *p[i]
		}
		return list
	case noneOr:
		if *p.value == nil {
			return []any{nil, *p.second}
		}
		return []any{**p.value, *p.second}
	case fixed:
		return p.value
	}
	panic(fmt.Sprintf("optim: option %s is kept in a %T", o.name, o.place))
}

// set stores a value from the tree of a state dict. It returns what is wrong with the value, or ""
// if it is valid.
func (o option) set(v any) string {
	switch p := o.place.(type) {
	case *float64:
		f, ok := number(v)
		if !ok {
			return fmt.Sprintf("is %s, want a number", describe(v))
		}
		*p = f
	case *int:
		f, ok := number(v)
		if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<31 {
			return fmt.Sprintf("is %s, want a whole number", describe(v))
		}
		*p = int(f)
	case *bool:
		b, ok := v.(bool)
		if !ok {
			return fmt.Sprintf("is %s, want a bool", describe(v))
		}
		*p = b
	case negated:
		b, ok := v.(bool)
		if !ok {
			return fmt.Sprintf("is %s, want a bool", describe(v))
		}
		*p.flag = !b
	case *string:
		s, ok := v.(string)
		if !ok && v != nil {
			return fmt.Sprintf("is %s, want a string or nil", describe(v))
		}
		*p = s
	case []*float64:
		list, ok := v.([]any)
		if !ok || len(list) != len(p) {
			return fmt.Sprintf("is %s, want a list of %d numbers", describe(v), len(p))
		}
		for i := range p {
			f, ok := number(list[i])
			if !ok {
				return fmt.Sprintf("holds %s, want numbers", describe(list[i]))
			}
			*p[i] = f
		}
	case noneOr:
		list, ok := v.([]any)
		if !ok || len(list) != 2 {
			return fmt.Sprintf("is %s, want a list of two, of which the first is a number or nil", describe(v))
		}
		first, ok := number(list[0])
		second, also := number(list[1])
		if !ok && list[0] != nil || !also {
			return fmt.Sprintf("holds %s and %s, want a number or nil, and a number", describe(list[0]), describe(list[1]))
		}
		if *p.value, *p.second = nil, second; list[0] != nil {
			*p.value = &first
		}
	case fixed:
	}
	return ""
}

// number converts a value v of a tree, which may be an integer, a float, or a tensor with one
// element.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case float32:
		return float64(v), true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case *tensor.Tensor:
		if v == nil || v.Size() != 1 {
			return 0, false
		}
		var f float64
		if tensor.Try(func() { f = v.Detach().Item() }) != nil {
			return 0, false
		}
		return f, true
	}
	return 0, false
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case *tensor.Tensor:
		if v == nil {
			return "a nil tensor"
		}
		return fmt.Sprintf("a tensor %v of %v", v.Shape(), v.Type())
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case string:
		if len(v) > 40 {
			v = v[:40] + "…"
		}
		return fmt.Sprintf("%q", v)
	case bool, int, int64, float64, float32:
		return fmt.Sprintf("%v", v)
	}
	return fmt.Sprintf("a %T", v)
}

// Option returns the value of an option of the group by torch's name, and whether the optimizer has
// such an option. The value is as in a state dict: for example, "weight_decay" is a float64, and
// "betas" is a []any of two numbers. The learning rate is not an option.
func (g *Group) Option(name string) (any, bool) {
	for _, o := range g.config.options() {
		if o.name == name {
			return o.tree(), true
		}
	}
	return nil, false
}

// SetOption sets an option of the group by torch's name. The next step uses the new value. If the
// optimizer has no such option, or the value is not allowed, SetOption returns an *[Error] and
// changes nothing.
func (g *Group) SetOption(name string, v any) error {
	c := g.config.clone()
	for _, o := range c.options() {
		if o.name != name {
			continue
		}
		if _, ok := o.place.(fixed); ok {
			return &Error{g.optimizer, fmt.Sprintf("option %q says how PyTorch computes and cannot be changed here", name)}
		}
		if msg := o.set(v); msg != "" {
			return &Error{g.optimizer, fmt.Sprintf("option %q %s", name, msg)}
		}
		if msg := c.check(); msg != "" {
			return &Error{g.optimizer, fmt.Sprintf("option %q: %s", name, msg)}
		}
		g.config = c
		return nil
	}
	return &Error{g.optimizer, fmt.Sprintf("there is no option %q", name)}
}

func setDefault(p *float64, v float64) {
	if *p == 0 {
		*p = v
	}
}

// These functions check options that several optimizers have. They return what is wrong, or "".

func checkBetas(b1, b2 float64) string {
	if !(b1 >= 0 && b1 < 1 && b2 >= 0 && b2 < 1) {
		return fmt.Sprintf("betas must be in [0, 1), they are %v and %v", b1, b2)
	}
	return ""
}

func checkNotNegative(what string, v float64) string {
	if !(v >= 0) || math.IsInf(v, 1) {
		return fmt.Sprintf("%s cannot be %v", what, v)
	}
	return ""
}

func firstMessage(msgs ...string) string {
	for _, m := range msgs {
		if m != "" {
			return m
		}
	}
	return ""
}
