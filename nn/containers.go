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

// ModuleList is a list of layers: torch's nn.ModuleList. M is the layers' common type, or [Module].
// A layer's name is its index in the list. A struct field may also be a plain slice of layers.
type ModuleList[M any] []M

// NewModuleList returns a list of layers.
func NewModuleList[M any](layers ...M) ModuleList[M] { return layers }

// ModuleMap maps names to layers, in the order in which they were set: torch's nn.ModuleDict. The
// name of a layer is part of its parameters' names. The zero value is an empty map. A map must not
// be copied: use a *ModuleMap.
type ModuleMap[M any] struct {
	names  []string
	layers []M
}

// ParameterMap maps names to parameters, in the order in which they were set: torch's
// nn.ParameterDict. It is a [ModuleMap] of tensors. The name of a tensor in the map is the last
// part of its name in the state dict. Tensors that require a gradient are trained. Instead of
// nn.ParameterList, use a field of type []*tensor.Tensor with a tag.
type ParameterMap = ModuleMap[*tensor.Tensor]

// NewParameterMap returns an empty map.
func NewParameterMap() *ParameterMap { return &ParameterMap{} }

// NewModuleMap returns an empty map.
func NewModuleMap[M any]() *ModuleMap[M] { return &ModuleMap[M]{} }

// Set stores layer m under the name and returns the map. A new name comes after the others. Set
// panics with an *[Error] if the name is empty or has a dot.
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

// Get returns the layer with that name, and whether the map has it.
func (d *ModuleMap[M]) Get(name string) (m M, ok bool) {
	if i := slices.Index(d.names, name); i >= 0 {
		return d.layers[i], true
	}
	return m, false
}

// At returns the layer with that name. If the map has no such layer, At panics with an *[Error]
// that lists the names.
func (d *ModuleMap[M]) At(name string) M {
	m, ok := d.Get(name)
	if !ok {
		panic(wrong("", fmt.Sprintf("no layer or parameter has the name %q; there are %s", name, strings.Join(d.names, ", "))))
	}
	return m
}

// Delete removes a layer and reports whether the map had it.
func (d *ModuleMap[M]) Delete(name string) bool {
	i := slices.Index(d.names, name)
	if i >= 0 {
		d.names, d.layers = slices.Delete(d.names, i, i+1), slices.Delete(d.layers, i, i+1)
	}
	return i >= 0
}

// Len returns the number of layers.
func (d *ModuleMap[M]) Len() int { return len(d.names) }

// All iterates over names and layers in the order in which the names were first set.
func (d *ModuleMap[M]) All() iter.Seq2[string, M] {
	return func(yield func(string, M) bool) {
		for i, name := range d.names {
			if !yield(name, d.layers[i]) {
				return
			}
		}
	}
}

// children yields the layers with their names, for functions such as Parameters that visit all
// layers of a model.
func (d *ModuleMap[M]) children(yield func(name string, v reflect.Value) bool) {
	list := reflect.ValueOf(d.layers)
	for i, name := range d.names {
		if !yield(name, list.Index(i)) {
			return
		}
	}
}

// Lambda is a layer that applies a function and has no parameters; use it in a [Sequential].
type Lambda struct {
	Base
	F func(x *tensor.Tensor) *tensor.Tensor
}

// NewLambda returns a layer that applies f. If f uses other layers, functions such as [Parameters]
// do not find them.
func NewLambda(f func(x *tensor.Tensor) *tensor.Tensor) *Lambda { return &Lambda{F: f} }

// Forward applies the layer.
func (l *Lambda) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	if l.F == nil {
		panic(wrong("Lambda", "there is no function"))
	}
	return l.F(x)
}

// Sequential applies its layers one after another. A layer's name is its index. A tensor that
// one layer of this package passes to another is freed once the second layer has run, as in
// PyTorch. It is not freed if a hook of either layer sees it. Tensors that a [Lambda] or a
// layer from outside this package receives or returns live until the input's scope is closed.
type Sequential struct {
	Base
	Checkpointing
	Layers []Module `nn:",inline"`

	segments []segment // segments of the chain while recomputation is on; else nil
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
	// markAll visits all layers, so it is called only if the chain and at least one of its layers
	// are not marked. This saves time for a copied chain, and for a chain that is built from marked
	// layers for one call.
	if atomic.LoadUint32(&s.known) == 0 && slices.ContainsFunc(s.Layers, unmarked) {
		s.markAll()
	}
	requireUsable("sequential", x)
	if s.enabled && x.Scope().GradEnabled() {
		return s.checkpointed(x)
	}
	return applyAll(s.Layers, x)
}

func applyAll(layers []Module, x *tensor.Tensor) *tensor.Tensor {
	ours := false // true if no one else refers to x
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

// passesOn reports whether a layer keeps no reference to its input and result. This is the case for
// layers of this package without hooks and without layers inside, and for chains of such layers.
func passesOn(l Module) bool {
	if b, ok := l.(interface{ base() *Base }); ok && b.base().hooks != nil {
		return false
	}
	t := reflect.TypeOf(l)
	// A chain's first or last layer may return its own input, as Identity does. So all layers of
	// the chain must pass this check.
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

var passing sync.Map // maps the reflect.Type of a layer to its result of passesOn

func holdsLayers(t reflect.Type) bool {
	for _, f := range planOf(t).fields {
		if (f.kind == fieldModule || f.kind == fieldAny) && !f.embedded {
			return true
		}
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[container]())
}
