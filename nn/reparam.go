package nn

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/flambeau-go/flambeau/tensor"
)

// WeightNorm is a layer whose weight has its length and its direction apart: weight = G·V/‖V‖,
// where each slice along Dim has a norm and a G of its own (T. Salimans, D. P. Kingma, "Weight
// Normalization", 2016). It is torch.nn.utils.parametrizations.weight_norm, with its names in state
// dicts. The field of the layer that held the weight is nil; what [WeightNorm.Weight] returns is
// computed anew in each call.
type WeightNorm[L Module] struct {
	Base
	Layer L `nn:",inline"` // without its weight
	// the norms: of the weight's shape, but 1 in all dimensions other than Dim; one number for -1
	G   *tensor.Tensor `nn:"parametrizations.weight.original0"`
	V   *tensor.Tensor `nn:"parametrizations.weight.original1"` // of the weight's shape
	Dim int
}

// NewWeightNorm takes the weight of a layer apart. The layer is the wrapper's from then on, and
// computes what it did before. torch's dim is 0: that of outputs, or of inputs in a transposed
// convolution. For one norm of the whole weight it is None in torch, and -1 here. It panics with an
// *[Error] if the layer has no parameter called "weight".
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

// norm returns the norms of the slices of v.
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

// Weight returns the layer's weight, in scope s.
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
	given("weight_norm", x)
	return forwardWith(m.Layer, m.Weight, x)
}

// Remove returns the layer with the weight as a parameter of its own again:
// torch.nn.utils.parametrize.remove_parametrizations. The wrapper must not be used any more.
func (m *WeightNorm[L]) Remove() L {
	restoreWeight(m.Layer, m.Weight, m.V)
	return m.Layer
}

// SpectralNorm is a layer whose weight is divided by its largest singular value, as the
// discriminators of some GANs have it: weight = Original/σ, σ = uᵀ·W·v. W is the weight as a matrix
// of Dim and all else. u and v are those of one more step of the power method in each call in
// training (T. Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018).
// It is torch.nn.utils.parametrizations.spectral_norm, with its names in state dicts. The field of
// the layer that held the weight is nil; what [SpectralNorm.Weight] returns is computed anew in
// each call. A weight of one dimension is divided by its norm, and has no u and v.
type SpectralNorm[L Module] struct {
	Base
	Layer      L              `nn:",inline"`                             // without its weight
	Original   *tensor.Tensor `nn:"parametrizations.weight.original"`    // of the weight's shape
	U          *tensor.Tensor `nn:"parametrizations.weight.0._u,buffer"` // [rows of W]
	V          *tensor.Tensor `nn:"parametrizations.weight.0._v,buffer"` // [columns of W]
	Dim        int            // 0, or 1 of a transposed convolution, where outputs are
	Iterations int            // of the power method in a call in training: 1
	Eps        float64        // the least that a norm counts as: 1e-12
}

// NewSpectralNorm divides the weight of a layer by its largest singular value. The layer is the
// wrapper's from then on. u and v begin as random numbers, on which it does 15 steps of the power
// method. It panics with an *[Error] if the layer has no parameter called "weight".
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

// matrix is the weight with Dim first, and all other dimensions as one.
func (m *SpectralNorm[L]) matrix(w *tensor.Tensor) *tensor.Tensor {
	if m.Dim != 0 {
		w = w.MoveAxis(m.Dim, 0)
	}
	return w.Reshape(w.Dim(0), -1)
}

// power makes n steps of the power method, in scope s, so that they can be captured.
func (m *SpectralNorm[L]) power(s *tensor.Scope, n int) {
	s.Do(func(c *tensor.Scope) {
		w, u, v := m.matrix(m.Original.In(c)), m.U.In(c), m.V.In(c)
		for range n {
			u.Copy(w.MatMul(v).Normalize(2, 0, m.Eps))
			v.Copy(w.T().MatMul(u).Normalize(2, 0, m.Eps))
		}
	}, tensor.NoGrad(), tensor.NoAutocast())
}

// Weight returns the layer's weight, in scope s, from u and v as they are.
func (m *SpectralNorm[L]) Weight(s *tensor.Scope) (w *tensor.Tensor) {
	s.Do(func(c *tensor.Scope) {
		o := m.Original.In(c)
		if m.U == nil {
			w = o.Normalize(2, 0, m.Eps)
		} else {
			// clones, since Backward wants u and v as they were, also if there is another call
			// before it
			w = o.Div(m.U.In(c).Clone().Dot(m.matrix(o).MatMul(m.V.In(c).Clone())))
		}
		c.Close(w)
	})
	return w
}

// Forward applies the layer with its weight; in training it improves u and v before.
func (m *SpectralNorm[L]) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	given("spectral_norm", x)
	if m.U != nil && m.Training() && !x.Scope().Recomputing() {
		m.power(x.Scope(), m.Iterations)
	}
	return forwardWith(m.Layer, m.Weight, x)
}

// Remove returns the layer with the weight, as it is, as a parameter of its own again:
// torch.nn.utils.parametrize.remove_parametrizations. The wrapper must not be used any more.
func (m *SpectralNorm[L]) Remove() L {
	restoreWeight(m.Layer, m.Weight, m.Original)
	return m.Layer
}

// weightField finds the field of a layer that holds its parameter "weight".
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

// weightOf is weightField of a layer that has a weight.
func weightOf(layer any) reflect.Value {
	f, ok := weightField(layer)
	if !ok || f.IsNil() {
		panic(wrong("", fmt.Sprintf("a %T has no parameter called \"weight\"; wrap the layers in it that have one", layer)))
	}
	return f
}

// forwardWith applies a copy of the layer that has a weight, so that calls at a time do not see
// each other's.
func forwardWith[L Module](layer L, weight func(s *tensor.Scope) *tensor.Tensor, x *tensor.Tensor) *tensor.Tensor {
	given := reflect.ValueOf(layer).Elem()
	l := reflect.New(given.Type())
	l.Elem().Set(given)
	f, _ := weightField(l.Interface())
	w := weight(x.Scope())
	if !x.Scope().GradEnabled() { // otherwise the graph has it, or wants it
		defer w.Free()
	}
	f.Set(reflect.ValueOf(w))
	return l.Interface().(Module).Forward(x)
}

// restoreWeight gives a layer a weight of its own that requires a gradient if was does.
func restoreWeight(layer any, weight func(s *tensor.Scope) *tensor.Tensor, was *tensor.Tensor) {
	f, _ := weightField(layer)
	f.Set(reflect.ValueOf(weight(was.Scope()).Detach().Clone().SetRequiresGrad(was.NeedsGrad())))
}
