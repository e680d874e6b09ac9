package nn

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/tensor"
)

// ModuleList is a list of layers, of one type or of [Module]s: torch's nn.ModuleList. It is a
// slice; as a field a plain slice of layers does the same. Layers have their numbers for names.
type ModuleList[M any] []M

// NewModuleList returns a list of layers.
func NewModuleList[M any](layers ...M) ModuleList[M] { return layers }

// ModuleMap is layers by name, in the order in which they were set: torch's nn.ModuleDict. It is
// used by pointer; parameters are named after the layers. The zero value is empty.
type ModuleMap[M any] struct {
	names  []string
	layers []M
}

// ParameterMap is parameters by name, in the order in which they were set: torch's
// nn.ParameterDict. It is a [ModuleMap] of tensors, whose names they have in the state dict. Those
// that require a gradient are trained. A list of parameters (nn.ParameterList) is a field of type
// []*tensor.Tensor with a tag.
type ParameterMap = ModuleMap[*tensor.Tensor]

// NewParameterMap returns an empty map.
func NewParameterMap() *ParameterMap { return &ParameterMap{} }

// NewModuleMap returns an empty map.
func NewModuleMap[M any]() *ModuleMap[M] { return &ModuleMap[M]{} }

// Set gives layer m the name, behind the others if the name is new, and returns the map. Names are
// not empty and have no dot; others panic with an *[Error].
func (d *ModuleMap[M]) Set(name string, m M) *ModuleMap[M] {
	if name == "" || strings.Contains(name, ".") {
		panic(wrong("", fmt.Sprintf("%q cannot be the name of a layer or a parameter: names are not empty and have no dot", name)))
	}
	if i := slices.Index(d.names, name); i >= 0 {
		d.layers[i] = m
		return d
	}
	d.names, d.layers = append(d.names, name), append(d.layers, m)
	return d
}

// Get returns the layer of that name, and whether there is one.
func (d *ModuleMap[M]) Get(name string) (m M, ok bool) {
	if i := slices.Index(d.names, name); i >= 0 {
		return d.layers[i], true
	}
	return m, false
}

// At is Get of a layer that is there; if it is not, it panics with an *[Error] that lists the
// names.
func (d *ModuleMap[M]) At(name string) M {
	m, ok := d.Get(name)
	if !ok {
		panic(wrong("", fmt.Sprintf("no layer or parameter has the name %q; there are %s", name, strings.Join(d.names, ", "))))
	}
	return m
}

// Delete takes a layer out and reports whether it was there.
func (d *ModuleMap[M]) Delete(name string) bool {
	i := slices.Index(d.names, name)
	if i >= 0 {
		d.names, d.layers = slices.Delete(d.names, i, i+1), slices.Delete(d.layers, i, i+1)
	}
	return i >= 0
}

// Len returns the number of layers.
func (d *ModuleMap[M]) Len() int { return len(d.names) }

// All goes through names and layers in order.
func (d *ModuleMap[M]) All() iter.Seq2[string, M] {
	return func(yield func(string, M) bool) {
		for i, name := range d.names {
			if !yield(name, d.layers[i]) {
				return
			}
		}
	}
}

// children names the layers for the walk through a model.
func (d *ModuleMap[M]) children(yield func(name string, v reflect.Value) bool) {
	list := reflect.ValueOf(d.layers)
	for i, name := range d.names {
		if !yield(name, list.Index(i)) {
			return
		}
	}
}

// Lambda applies a function: a layer without parameters, for a [Sequential].
type Lambda struct {
	Base
	F func(x *tensor.Tensor) *tensor.Tensor
}

// NewLambda returns a layer that applies f. What f uses of other layers is not found by the walk
// through a model.
func NewLambda(f func(x *tensor.Tensor) *tensor.Tensor) *Lambda { return &Lambda{F: f} }

// Forward applies the layer.
func (l *Lambda) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	if l.F == nil {
		panic(wrong("Lambda", "there is no function"))
	}
	return l.F(x)
}

// Sequential applies its layers one after another. Their names are their numbers. What goes from
// one layer of this package to the next is freed behind it, as it is in PyTorch, unless a hook on
// one of the two sees it. What layers of one's own, and a [Lambda], take and return belongs to the
// scope of the input until that is closed.
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
			e := wrong(strconv.Itoa(i), "the layer is nil")
			e.Type = "*nn.Sequential"
			panic(e)
		}
	}
	// a copy, or a chain made for a call, is not walked again and again
	if atomic.LoadUint32(&s.known) == 0 && slices.ContainsFunc(s.Layers, unmarked) {
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
	for i := 0; i < len(layers); i++ {
		l, y := layers[i], (*tensor.Tensor)(nil)
		passes := passesOn(l)
		first, act := activated(layers[i:])
		switch d := reluDropout(layers[i:]); {
		case d != nil:
			i++
			y, passes = d.forwardRelu(x), passesOn(d)
		case act != nil:
			i++
			y, passes = first.ForwardAct(x, act), true
		default:
			y = l.Forward(x)
		}
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

// passesOn reports that a layer keeps neither its input nor its result: one of this package,
// without hooks and layers inside.
func passesOn(l Module) bool {
	if b, ok := l.(interface{ base() *Base }); ok && b.base().hooks != nil {
		return false
	}
	t := reflect.TypeOf(l)
	// all of them: its first or last may return what they are given, as Identity does
	if s, ok := l.(*Sequential); ok {
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
