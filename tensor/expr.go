package tensor

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/didyoumean"
)

// Vars are the operands of an expression by name. They are tensors, or numbers and bools of Go's
// types.
type Vars map[string]any

// Expr returns the value of a formula, written as text, for each element, on any device:
//
//	y := tensor.Expr("max(0, a*x + b)", tensor.Vars{"a": a, "x": x, "b": 0.5})
//
// The formula is one op. Its tensors are broadcast to a common shape, and one kernel computes the
// result without temporaries. The gradients of the tensors are derived from the text, including
// second and higher gradients. The text is parsed once. Numbers may change from call to call at no
// cost.
//
// The text is a Go expression of names, numbers, parentheses and operators: + - * / % (Python's
// remainder), comparisons, && || ! (of any type; all values except 0 are true), and & | ^ << >> (of
// integers). Functions have torch's names: exp, log, sqrt, rsqrt, tanh, sigmoid, relu, gelu, silu,
// softplus, sin, cos, abs, floor, erf, min and max of two or more, clamp(x, low, high), pow(x, y)
// and where(condition, a, b). All other elementwise ops of the library that have no run-time
// scalars can be called too, and so can ops that a program declares with [Declare]. pi, inf, nan,
// true and false are constants. Precedence is Go's: & and << bind like *, and | and ^ bind like +.
// Ops over many elements, such as mean and softmax, cannot be called. Call their methods on the
// result, or on an operand.
//
// Types follow the rules of the ops that the text names, which are torch's. A number raises a
// tensor's type only to the number's class: 2 is an integer, 2.0 is not. Parts of the formula
// without tensors are computed in float64. Unlike in a chain of ops, 16-bit floats are rounded
// once, at the end. Gradients at kinks are those of the ops: the gradient of relu at 0 is 0, and
// each of two equal operands of max receives half. A second gradient is the derivative of the first
// gradient's formula. It does not use the gradients that the ops declare. For example, the
// derivative of "relu(a)*b" with respect to b and then a is 1 at a = 0. Under [Autocast] the
// operands are cast to float32 if the formula contains a function such as exp. Otherwise they are
// not cast.
//
// A wrong text panics with an *[Error] that shows the column. At most 12 operands may be tensors,
// which must be on one device. Expressions nest at most 100 deep, and the text is at most 4096
// bytes long.
func Expr(text string, vars Vars) *Tensor {
	names := slices.Sorted(maps.Keys(vars))
	given, tensors, numbers := map[string]exprOperand{}, map[string]*Tensor{}, map[string]float64{}
	var in []*Tensor
	for _, name := range names {
		if t, ok := vars[name].(*Tensor); ok {
			if t == nil {
				fail("expr", ErrValue, nil, "the operand %q is a nil tensor", name)
			}
			t.use("expr")
			given[name], tensors[name] = exprOperand{tensor: true, t: t.dtype, zero: t.Rank() == 0}, t
			in = append(in, t)
			continue
		}
		v, kind, why := exprNumber(vars[name])
		if why != "" {
			fail("expr", ErrValue, nil, "the operand %q %s: operands are tensors, numbers and bools", name, why)
		}
		given[name], numbers[name] = exprOperand{kind: kind}, v
	}
	wrong := func(p *exprProblem) {
		kind := p.kind
		if kind == nil {
			kind = ErrValue
		}
		e := newError("expr", kind, in, p.show(text))
		e.Hint = p.hint
		panic(e)
	}
	parsed, problem := exprTexts.get(text, func() (*exprText, *exprProblem) { return parseExpr(text) })
	if problem != nil {
		wrong(problem)
	}
	if p := parsed.unmatched(names, given); p != nil {
		wrong(p)
	}
	float := root.modes.floatType
	if len(in) > 0 {
		float = youngest("expr", in).modes.floatType
	}
	key := exprKey(text, parsed, given, float)
	plan, problem := exprPlans.get(key, func() (*exprPlan, *exprProblem) { return planOf(parsed, given, float) })
	if problem != nil {
		wrong(problem)
	}
	operands := make([]*Tensor, len(plan.tensors))
	for i, name := range plan.tensors {
		operands[i] = tensors[name]
	}
	if y := underAutocast("expr", plan.autocast, func(in []*Tensor) *Tensor {
		cast := maps.Clone(vars)
		for i, name := range plan.tensors {
			cast[name] = in[i]
		}
		return Expr(text, cast)
	}, operands...); y != nil {
		return y
	}
	v := make([]float64, len(plan.numbers))
	for i, name := range plan.numbers {
		v[i] = numbers[name]
	}
	params := make([]float64, len(plan.params))
	for i, p := range plan.params {
		if params[i] = p.compute(v); !fits(params[i], p.t) {
			wrong(&exprProblem{at: p.node.at, msg: fmt.Sprintf("the number here is %v, which %v does not hold", params[i], p.t)})
		}
	}
	return plan.op.Apply(operands, params...)
}

// unmatched reports a name in the text for which there is no operand, or an operand that the text
// does not name.
func (x *exprText) unmatched(names []string, given map[string]exprOperand) *exprProblem {
	for _, name := range x.names {
		if _, ok := given[name]; ok {
			continue
		}
		if _, ok := exprConstants[name]; ok {
			continue
		}
		p := &exprProblem{at: x.first[name], msg: "unknown name " + name}
		known := "; known are " + strings.Join(slices.Sorted(maps.Keys(exprConstants)), ", ")
		lower := strings.ToLower(name)
		_, constant := exprConstants[lower]
		switch near := didyoumean.Nearest(name, names, len(name)/2); {
		case constant:
			p.hint = "did you mean " + lower + "?"
		case near != "":
			p.hint = "did you mean " + near + "?"
		case len(names) > 0:
			p.hint = "given are " + strings.Join(names, ", ") + known
		default:
			p.hint = "no operands are given" + known
		}
		return p
	}
	for _, name := range names {
		if _, ok := x.first[name]; !ok {
			return &exprProblem{
				at: -1, msg: fmt.Sprintf("the operand %q is given and not used", name),
				hint: "leave it out of Vars, or name it in the text",
			}
		}
	}
	return nil
}

// exprNumber returns the value and kind of a Go number. If an expression does not accept v, the
// result why holds the reason. Otherwise it is "".
func exprNumber(v any) (value float64, kind numberKind, why string) {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Bool:
		if r.Bool() {
			return 1, kindBool, ""
		}
		return 0, kindBool, ""
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n := r.Int(); n < -1<<53 || n > 1<<53 {
			return 0, 0, fmt.Sprintf("is %d, beyond the 53 bits that are exact", n)
		}
		return float64(r.Int()), kindInt, ""
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if n := r.Uint(); n > 1<<53 {
			return 0, 0, fmt.Sprintf("is %d, beyond the 53 bits that are exact", n)
		}
		return float64(r.Uint()), kindInt, ""
	case reflect.Float32, reflect.Float64:
		return r.Float(), kindFloat, ""
	case reflect.Invalid:
		return math.NaN(), 0, "is nil"
	}
	return math.NaN(), 0, fmt.Sprintf("is of type %T", v)
}

// exprKey returns the cache key of a plan: the text, and the kind of operand that each name stands
// for.
func exprKey(text string, parsed *exprText, given map[string]exprOperand, float dtype.Type) string {
	key := make([]byte, 0, len(text)+2+2*len(parsed.names))
	for _, name := range parsed.names {
		o, ok := given[name]
		switch {
		case !ok:
			key = append(key, 'c', 0)
		case !o.tensor:
			key = append(key, 'n', byte(o.kind))
		case o.zero:
			key = append(key, 'z', byte(o.t))
		default:
			key = append(key, 't', byte(o.t))
		}
	}
	return string(append(append(key, byte(float)), text...))
}

var (
	exprTexts = bounded[*exprText]{limit: 256}
	exprPlans = bounded[*exprPlan]{limit: 512}
)

// bounded is a cache that forgets its oldest value when it is full.
type bounded[V any] struct {
	limit int
	mu    sync.RWMutex
	m     map[string]V
	keys  []string // the oldest first
}

// get returns the value of k. If there is no value, get calls make_, and keeps the value unless
// make_ returns a problem.
func (c *bounded[V]) get(k string, make_ func() (V, *exprProblem)) (V, *exprProblem) {
	c.mu.RLock()
	v, ok := c.m[k]
	c.mu.RUnlock()
	if ok {
		return v, nil
	}
	v, problem := make_()
	if problem != nil {
		return v, problem
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.m[k]; ok {
		return was, nil
	}
	if c.m == nil {
		c.m = map[string]V{}
	}
	if len(c.keys) >= c.limit {
		delete(c.m, c.keys[0])
		c.keys = c.keys[1:]
	}
	c.m[k], c.keys = v, append(c.keys, k)
	return v, nil
}
