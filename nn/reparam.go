package nn

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/flambeau-go/flambeau/tensor"
)

// WeightNorm is a layer whose weight is stored as length and direction: weight = G·V/‖V‖. Each
// slice along Dim has its own norm and its own G (T. Salimans, D. P. Kingma, "Weight
// Normalization", 2016). It is torch.nn.utils.parametrizations.weight_norm, with torch's names in
// state dicts. The layer's own weight field is nil. [WeightNorm.Weight] computes the weight anew in
// each call.
type WeightNorm[L Module] struct {
	Base
	Layer L `nn:",inline"` // wrapped layer, whose own weight field is nil
	// G holds the norms. It has the weight's number of dimensions, and size 1 in all of them except
	// Dim. If Dim is -1, G has a single element.
	G *tensor.Tensor `nn:"parametrizations.weight.original0"`
	// V is the direction, with the weight's shape.
	V   *tensor.Tensor `nn:"parametrizations.weight.original1"`
	Dim int
}

// NewWeightNorm splits the weight of a layer into length and direction. Afterwards the layer
// belongs to the wrapper, which computes the same function as the layer did. torch's default for
// dim is 0, the dimension of the outputs, or of the inputs for a transposed convolution. With dim
// -1, torch's dim=None, the whole weight has one norm. NewWeightNorm panics with an *[Error] if the
// layer has no parameter named "weight".
func NewWeightNorm[L Module](layer L, dim int) *WeightNorm[L] {
	f := weightOf(layer)
	w := f.Interface().(*tensor.Tensor)
	if dim < -1 || dim >= w.Rank() {
		panic(wrong("", fmt.Sprintf("a weight of shape %v has no dimension %d; -1 stands for all", w.Shape(), dim)))
	}
	m := &WeightNorm[L]{Layer: layer, Dim: dim}
	v := w.Detach()
	m.V = v.Clone().SetRequiresGrad(w.NeedsGrad())
	m.G = m.norm(v).Clone().SetRequiresGrad(w.NeedsGrad())
	f.SetZero()
	return m
}

func (m *WeightNorm[L]) norm(v *tensor.Tensor) *tensor.Tensor {
	if m.Dim < 0 {
		return v.Norm(2)
	}
	if v.Rank() == 1 {
		return v.Abs()
	}
	dims := []int{tensor.KeepDim}
	for i := range v.Rank() {
		if i != m.Dim {
			dims = append(dims, i)
		}
	}
	return v.Norm(2, dims...)
}

// Weight computes the layer's weight in scope s.
func (m *WeightNorm[L]) Weight(s *tensor.Scope) (w *tensor.Tensor) {
	s.Do(func(c *tensor.Scope) {
		v := m.V.In(c)
		w = v.Mul(m.G.In(c).Div(m.norm(v)))
		c.Close(w)
	})
	return w
}

// Forward applies the layer with its weight.
func (m *WeightNorm[L]) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	requireUsable("weight_norm", x)
	return forwardWith(m.Layer, m.Weight, x)
}

// Remove returns the layer with its weight as an ordinary parameter again:
// torch.nn.utils.parametrize.remove_parametrizations. The wrapper must not be used afterwards.
func (m *WeightNorm[L]) Remove() L {
	restoreWeight(m.Layer, m.Weight, m.V)
	return m.Layer
}

// SpectralNorm is a layer whose weight is divided by its largest singular value, as in the
// discriminators of some GANs: weight = Original/σ, with σ = uᵀ·W·v. W is the weight as a matrix:
// dimension Dim gives the rows, and the other dimensions together give the columns. In training
// each call updates u and v by one more step of the power method (T. Miyato et al., "Spectral
// Normalization for Generative Adversarial Networks", 2018).
//
// SpectralNorm is torch.nn.utils.parametrizations.spectral_norm, with torch's names in state dicts.
// The layer's own weight field is nil. [SpectralNorm.Weight] computes the weight anew in each call.
// A weight with one dimension is divided by its norm, and has no u and v.
type SpectralNorm[L Module] struct {
	Base
	Layer L `nn:",inline"` // wrapped layer, whose own weight field is nil
	// Original is the weight before the division.
	Original *tensor.Tensor `nn:"parametrizations.weight.original"`
	U        *tensor.Tensor `nn:"parametrizations.weight.0._u,buffer"` // [rows of W]
	V        *tensor.Tensor `nn:"parametrizations.weight.0._v,buffer"` // [columns of W]
	// Dim is the dimension of the weight that gives W's rows, the outputs: 0, or 1 for a transposed
	// convolution.
	Dim        int
	Iterations int     // steps of the power method in each call in training: 1 by default
	Eps        float64 // norms below Eps are replaced by Eps; 1e-12 by default
}

// NewSpectralNorm divides the weight of a layer by its largest singular value. Afterwards the layer
// belongs to the wrapper. u and v begin as random vectors, improved by 15 steps of the power
// method. NewSpectralNorm panics with an *[Error] if the layer has no parameter named "weight".
func NewSpectralNorm[L Module](layer L) *SpectralNorm[L] {
	f := weightOf(layer)
	w := f.Interface().(*tensor.Tensor)
	m := &SpectralNorm[L]{Layer: layer, Iterations: 1, Eps: 1e-12}
	switch any(layer).(type) {
	case *ConvTranspose1d, *ConvTranspose2d, *ConvTranspose3d:
		m.Dim = 1
	}
	m.Original = w.Detach().Clone().SetRequiresGrad(w.NeedsGrad())
	if w.Rank() > 1 {
		w.Scope().Do(func(c *tensor.Scope) {
			mat := m.matrix(w.Detach().In(c))
			at := c.On(w.Device()).Typed(w.Type())
			u, v := at.Randn(mat.Dim(0)).Normalize(2, 0, m.Eps), at.Randn(mat.Dim(1)).Normalize(2, 0, m.Eps)
			c.Close(u, v)
			m.U, m.V = u, v
		}, tensor.NoGrad())
		m.power(w.Scope(), 15)
	}
	f.SetZero()
	return m
}

// matrix returns w as a matrix: dimension Dim gives the rows, and the other dimensions together
// give the columns.
func (m *SpectralNorm[L]) matrix(w *tensor.Tensor) *tensor.Tensor {
	if m.Dim != 0 {
		w = w.MoveAxis(m.Dim, 0)
	}
	return w.Reshape(w.Dim(0), -1)
}

// power makes n steps of the power method in scope s. If s is captured, the captured graph includes
// these steps.
func (m *SpectralNorm[L]) power(s *tensor.Scope, n int) {
	s.Do(func(c *tensor.Scope) {
		w, u, v := m.matrix(m.Original.In(c)), m.U.In(c), m.V.In(c)
		for range n {
			u.Copy(w.MatMul(v).Normalize(2, 0, m.Eps))
			v.Copy(w.T().MatMul(u).Normalize(2, 0, m.Eps))
		}
	}, tensor.NoGrad(), tensor.NoAutocast())
}

// Weight computes the layer's weight in scope s, from the current u and v.
func (m *SpectralNorm[L]) Weight(s *tensor.Scope) (w *tensor.Tensor) {
	s.Do(func(c *tensor.Scope) {
		o := m.Original.In(c)
		if m.U == nil {
			w = o.Normalize(2, 0, m.Eps)
		} else {
			// U and V are cloned because Backward needs their present values, and another call
			// may change them before Backward runs.
			w = o.Div(m.U.In(c).Clone().Dot(m.matrix(o).MatMul(m.V.In(c).Clone())))
		}
		c.Close(w)
	})
	return w
}

// Forward applies the layer with its weight. In training it first improves u and v.
func (m *SpectralNorm[L]) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	requireUsable("spectral_norm", x)
	if m.U != nil && m.Training() && !x.Scope().Recomputing() {
		m.power(x.Scope(), m.Iterations)
	}
	return forwardWith(m.Layer, m.Weight, x)
}

// Remove returns the layer with its current weight as an ordinary parameter again:
// torch.nn.utils.parametrize.remove_parametrizations. The wrapper must not be used afterwards.
func (m *SpectralNorm[L]) Remove() L {
	restoreWeight(m.Layer, m.Weight, m.Original)
	return m.Layer
}

// weightField returns the field that holds a layer's parameter "weight", and whether there is one.
func weightField(layer any) (f reflect.Value, ok bool) {
	v := reflect.ValueOf(layer)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return f, false
	}
	var find func(v reflect.Value) bool
	find = func(v reflect.Value) bool {
		for i := range v.NumField() {
			d := v.Type().Field(i)
			name, _, _ := strings.Cut(d.Tag.Get("nn"), ",")
			if d.Type == tensorType && name == "weight" && d.IsExported() {
				f = v.Field(i)
				return true
			}
			if d.Anonymous && d.Type.Kind() == reflect.Struct && find(v.Field(i)) {
				return true
			}
		}
		return false
	}
	return f, find(v.Elem())
}

// weightOf returns the field that holds a layer's parameter "weight". It panics if there is none.
func weightOf(layer any) reflect.Value {
	f, ok := weightField(layer)
	if !ok || f.IsNil() {
		panic(wrong("", fmt.Sprintf("a %T has no parameter called \"weight\"; wrap the layers in it that have one", layer)))
	}
	return f
}

// forwardWith calls Forward of a copy of the layer that has the computed weight. The copy keeps
// concurrent calls apart.
func forwardWith[L Module](layer L, weight func(s *tensor.Scope) *tensor.Tensor, x *tensor.Tensor) *tensor.Tensor {
	given := reflect.ValueOf(layer).Elem()
	l := reflect.New(given.Type())
	l.Elem().Set(given)
	f, _ := weightField(l.Interface())
	w := weight(x.Scope())
	if !x.Scope().GradEnabled() { // with gradients, the graph may still need the weight
		defer w.Free()
	}
	f.Set(reflect.ValueOf(w))
	return l.Interface().(Module).Forward(x)
}

// restoreWeight stores a copy of the computed weight in the layer. The copy requires a gradient if
// param, the wrapper's parameter, requires one.
func restoreWeight(layer any, weight func(s *tensor.Scope) *tensor.Tensor, param *tensor.Tensor) {
	f, _ := weightField(layer)
	f.Set(reflect.ValueOf(weight(param.Scope()).Detach().Clone().SetRequiresGrad(param.NeedsGrad())))
}
