package nn

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/tensor"
)

// ModuleList is a list of layers, of one type or of [Module]s: torch's nn.ModuleList. It is a slice; as a field a plain slice of layers does the
// same. Layers have their numbers for names.
type ModuleList[M any] []M

// NewModuleList returns a list of layers.
func NewModuleList[M any](layers ...M) ModuleList[M] { return layers }

// ModuleMap is layers by name, in the order in which they were set: torch's nn.ModuleDict. It is used by pointer; parameters are named after
// the layers. The zero value is empty.
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

// Set gives layer m the name, behind the others if the name is new, and returns the map. Names are not empty and have no dot; others panic
// with an *[Error].
func (d *ModuleMap[M]) Set(name string, m M) *ModuleMap[M] {
	if name == "" || strings.Contains(name, ".") {
		panic(&Error{"", fmt.Sprintf("%q cannot be the name of a layer or a parameter: names are not empty and have no dot", name)})
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

// At is Get of a layer that is there; if it is not, it panics with an *[Error] that lists the names.
func (d *ModuleMap[M]) At(name string) M {
	m, ok := d.Get(name)
	if !ok {
		panic(&Error{"", fmt.Sprintf("no layer or parameter has the name %q; there are %s", name, strings.Join(d.names, ", "))})
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

// NewLambda returns a layer that applies f. What f uses of other layers is not found by the walk through a model.
func NewLambda(f func(x *tensor.Tensor) *tensor.Tensor) *Lambda { return &Lambda{F: f} }

// Forward applies the layer.
func (l *Lambda) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	if l.F == nil {
		panic(&Error{"", "a Lambda without a function"})
	}
	return l.F(x)
}

// Unflatten makes dimension Dim into several of the given sizes; see [tensor.Tensor.Unflatten].
type Unflatten struct {
	Base
	Dim   int
	Sizes []int
}

// NewUnflatten returns a layer; one of the sizes may be -1.
func NewUnflatten(dim int, sizes ...int) *Unflatten { return &Unflatten{Dim: dim, Sizes: sizes} }

// Forward applies the layer.
func (l *Unflatten) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Unflatten(l.Dim, l.Sizes...)
}

// Unfold returns the windows of images as columns; see [tensor.Tensor.Unfold2d].
type Unfold struct {
	Base
	Options tensor.FoldOptions
}

// NewUnfold returns a layer with windows of one size for both dimensions, or of one for each. It
// takes the options [Stride], [Padding] and [Dilation].
func NewUnfold[K Sizes](kernel K, opts ...Option) *Unfold {
	return &Unfold{Options: windows("Unfold", kernel, opts)}
}

// Forward maps images [n, channels, height, width], or without n, to columns [n, channels·size of the windows, number of windows].
func (l *Unfold) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Unfold2d(l.Options)
}

// Fold adds columns up to images; see [tensor.Tensor.Fold].
type Fold struct {
	Base
	Height, Width int
	Options       tensor.FoldOptions
}

// NewFold returns a layer whose results are images of the given size, from windows as [NewUnfold]'s.
func NewFold[K Sizes](height, width int, kernel K, opts ...Option) *Fold {
	return &Fold{Height: height, Width: width, Options: windows("Fold", kernel, opts)}
}

// Forward maps columns [n, channels·size of the windows, number of windows], or without n, to images.
func (l *Fold) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Fold(l.Height, l.Width, l.Options)
}

// CosineSimilarity is x·z/(‖x‖·‖z‖) along dimension Dim of two inputs; see [tensor.Tensor.CosineSimilarity].
type CosineSimilarity struct {
	Dim int
	Eps float64 // the least that a norm counts as
}

// NewCosineSimilarity returns a layer; torch's defaults are 1 and 1e-8.
func NewCosineSimilarity(dim int, eps float64) CosineSimilarity { return CosineSimilarity{dim, eps} }

// Forward returns the similarities of x and z, which broadcast, without dimension Dim.
func (l CosineSimilarity) Forward(x, z *tensor.Tensor) *tensor.Tensor {
	return x.CosineSimilarity(z, l.Dim, l.Eps)
}

// PairwiseDistance is the norm of order P of x - z + Eps along the last dimension of two inputs; see [tensor.Tensor.PairwiseDistance].
type PairwiseDistance struct {
	P, Eps  float64
	KeepDim bool
}

// NewPairwiseDistance returns a layer; torch's defaults are 2 and 1e-6.
func NewPairwiseDistance(p, eps float64) PairwiseDistance { return PairwiseDistance{P: p, Eps: eps} }

// Forward returns the distances of x and z, which broadcast.
func (l PairwiseDistance) Forward(x, z *tensor.Tensor) *tensor.Tensor {
	y := x.PairwiseDistance(z, l.P, l.Eps)
	if l.KeepDim {
		defer y.Free() // the view holds it
		return y.Unsqueeze(-1)
	}
	return y
}
