package nn

import (
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// Linear is y = x·Wᵀ + b.
type Linear struct {
	Base
	Weight *tensor.Tensor `nn:"weight"` // [out, in]
	Bias   *tensor.Tensor `nn:"bias"`   // [out], nil for none

	lazy *lazy
}

// NewLinear returns a layer from in to out features. Weight and bias are uniform in ±1/√in, as torch's.
func NewLinear(in, out int, opts ...Option) *Linear {
	o := options("Linear", opts, biased...)
	l := &Linear{}
	l.fill(in, &lazy{o: o, out: out})
	return l
}

// NewLazyLinear returns a layer to out features, from as many as its first input has: torch's
// LazyLinear. Until then it has no parameters; see [LoadStateDict] for another way to them. It
// takes the options of [NewLinear].
func NewLazyLinear(out int, opts ...Option) *Linear {
	return &Linear{lazy: &lazy{o: options("LazyLinear", opts, biased...), out: out}}
}

func (l *Linear) waiting() **lazy { return &l.lazy }

func (l *Linear) empty() { l.Weight, l.Bias = nil, nil }

func (l *Linear) inputsOf(*lazy) (names []string, dim, by int) { return []string{"weight"}, 1, 1 }

func (l *Linear) fill(in int, z *lazy) {
	o := z.o
	l.Weight = o.parameters().Empty(z.out, in)
	initial.KaimingUniform(l.Weight, initial.LeakyGain(2.23606797749979)) // a = √5
	l.Weight.RequiresGrad()
	if !o.noBias {
		l.Bias = o.parameters().Empty(z.out)
		initial.Uniform(l.Bias, -initial.Bound(in), initial.Bound(in))
		l.Bias.RequiresGrad()
	}
}

// Forward maps x of shape [..., in] to [..., out].
func (l *Linear) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	if l.lazy != nil {
		given("linear", x)
		if x.Rank() == 0 {
			misuse("linear", tensor.ErrShape, scalarInput, x)
		}
		ready(l, x, x.Dim(-1))
	}
	features("linear", x, l.Weight)
	return linear(x, l.Weight, l.Bias)
}

// linear returns x·weightᵀ + bias, nil for none.
func linear(x, weight, bias *tensor.Tensor) *tensor.Tensor {
	return tensor.WithAutocast("linear", tensor.AutocastLow, func(in []*tensor.Tensor) *tensor.Tensor {
		x, weight, bias := in[0], in[1], in[2]
		product := x.MatMul(weight.In(x.Scope()).T())
		if bias == nil {
			return product
		}
		defer product.Free() // no gradient needs it
		return product.Add(bias)
	}, x, weight, bias)
}

// Sequential applies its layers one after another. Their names are their numbers. What goes from one layer of this package to the next is
// freed behind it, as it is in PyTorch, unless a hook on one of the two sees it; what layers of one's own, and a [Lambda], take and return
// belongs to the scope of the input until that is closed.
type Sequential struct {
	Base
	Checkpointing
	Layers []Module `nn:",inline"`

	segments []segment // with checkpointing
}

// NewSequential returns a chain of layers.
func NewSequential(layers ...Module) *Sequential { return &Sequential{Layers: layers} }

// Forward applies every layer.
func (s *Sequential) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer s.Enter(&x, &out)()
	for i, l := range s.Layers {
		if l == nil {
			panic(&Error{strconv.Itoa(i), "the layer is nil"})
		}
	}
	if atomic.LoadUint32(&s.known) == 0 && slices.ContainsFunc(s.Layers, unmarked) { // a copy, or a chain made for a call, is not walked again and again
		s.markAll()
	}
	given("sequential", x)
	if s.on && x.Scope().GradEnabled() {
		return s.checkpointed(x)
	}
	return through(s.Layers, x)
}

// through applies layers one after another.
func through(layers []Module, x *tensor.Tensor) *tensor.Tensor {
	ours := false // nobody but this chain has x
	for i, l := range layers {
		y := l.Forward(x)
		passes := passesOn(l)
		if y == x {
			ours = ours && passes
			continue
		}
		if ours && passes {
			x.Free()
		}
		x, ours = y, passes && i < len(layers)-1
	}
	return x
}

// passesOn reports that a layer keeps neither its input nor its result: one of this package, without hooks and layers inside.
func passesOn(l Module) bool {
	if b, ok := l.(interface{ base() *Base }); ok && b.base().hooks != nil {
		return false
	}
	t := reflect.TypeOf(l)
	if s, ok := l.(*Sequential); ok { // all of them: its first or last may return what they are given, as Identity does
		return !slices.ContainsFunc(s.Layers, func(l Module) bool { return !passesOn(l) })
	}
	known, ok := passing.Load(t)
	if !ok {
		e := t
		if e.Kind() == reflect.Pointer {
			e = e.Elem()
		}
		known = e.PkgPath() == reflect.TypeFor[Base]().PkgPath() && e.Kind() == reflect.Struct && e != reflect.TypeFor[Lambda]() && !holdsLayers(e)
		passing.Store(t, known)
	}
	return known.(bool)
}

var passing sync.Map // reflect.Type → bool

// holdsLayers reports whether a struct has fields that are layers.
func holdsLayers(t reflect.Type) bool {
	for _, f := range planOf(t).fields {
		if (f.kind == fieldModule || f.kind == fieldAny) && !f.embedded {
			return true
		}
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[container]())
}

// ReLU is the greater of x and 0.
type ReLU struct{ Base }

// Forward applies the layer.
func (l ReLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Relu()
}

// GELU is x·Φ(x), by the error function, or with Tanh by its tanh approximation.
type GELU struct {
	Base
	Tanh bool
}

// Forward applies the layer.
func (g GELU) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer g.Enter(&x, &out)()
	if g.Tanh {
		return x.GeluTanh()
	}
	return x.Gelu()
}

// Tanh is the hyperbolic tangent.
type Tanh struct{ Base }

// Forward applies the layer.
func (l Tanh) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Tanh()
}

// Sigmoid is 1/(1+e⁻ˣ).
type Sigmoid struct{ Base }

// Forward applies the layer.
func (l Sigmoid) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Sigmoid()
}

// SiLU is x·sigmoid(x).
type SiLU struct{ Base }

// Forward applies the layer.
func (l SiLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Silu()
}

// Flatten merges dimensions into one: all but the first, unless it is made by [NewFlatten].
type Flatten struct {
	Base
	Start, End *int // the first and the last of them; nil: 1 and -1, torch's defaults
}

// NewFlatten returns a layer that merges dimensions start to end, both included; negative ones
// count from the last.
func NewFlatten(start, end int) Flatten { return Flatten{Start: &start, End: &end} }

// Forward applies the layer.
func (l Flatten) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	start, end := 1, -1
	if l.Start != nil {
		start = *l.Start
	}
	if l.End != nil {
		end = *l.End
	}
	return x.Flatten(start, end)
}
