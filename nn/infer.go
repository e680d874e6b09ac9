package nn

import (
	"reflect"

	"github.com/flambeau-go/flambeau/tensor"
)

// Infer returns the result of a model for x, in evaluation mode and without a graph. It corresponds
// to a call in PyTorch after model.eval() and within torch.inference_mode(). Infer frees
// intermediate tensors. The result belongs to the scope of x or to the scope of the model's
// parameters, whichever is younger. x must be on the model's device (see [Follow]). Infer does not
// change x. Afterwards each layer is back in its previous mode, even if Forward panics. opts are
// options of the scope in which the model runs, such as tensor.Autocast(dtype.BF16):
//
//	y := nn.Infer(model, x, tensor.Autocast(dtype.BF16))
//
// If the model is already in evaluation mode (see [Eval]), Infer only reads the layers. Then
// several goroutines may call Infer at the same time.
func Infer(m Module, x *tensor.Tensor, opts ...tensor.Option) (y *tensor.Tensor) {
	requireUsable("infer", x)
	own := []*tensor.Tensor{x}
	defer evaluating(m, func(p Param) { own = append(own, p.Tensor) })()
	tensor.Youngest(own...).Do(func(s *tensor.Scope) {
		y = m.Forward(x.In(s))
		s.Close(y)
	}, append(opts[:len(opts):len(opts)], tensor.NoGrad())...)
	return y
}

// evaluating puts all layers of m that are in training mode into evaluation mode. It calls param
// with each parameter and buffer of m. The returned function back restores the modes.
func evaluating(m any, param func(p Param)) (back func()) {
	var switched []interface{ setTraining(bool) }
	visit(m, &visitor{quick: true, lazy: func(string, lazyLayer) {}, pre: func(_ string, v reflect.Value, _ bool) {
		if v.CanAddr() && v.CanInterface() {
			if b, ok := v.Addr().Interface().(interface {
				Training() bool
				setTraining(bool)
			}); ok && b.Training() {
				b.setTraining(false)
				switched = append(switched, b)
			}
		}
	}, param: param})
	return func() {
		for _, b := range switched {
			b.setTraining(true)
		}
	}
}
