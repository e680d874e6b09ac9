package nn

import (
	"reflect"

	"github.com/flambeau-go/flambeau/tensor"
)

// Infer returns what a model makes of x in evaluation mode and without a graph: PyTorch's
// model.eval() and torch.inference_mode() around a call. What is computed on the way is freed. The
// result is kept. It belongs to the scope of x, or to that of the model's parameters if that is
// younger. x stays as it is, and is on the model's device ([Follow]). Each layer is put back into
// the mode that it was in, also when Forward panics. Options come on top, such as
// tensor.Autocast(dtype.BF16):
//
//	y := nn.Infer(model, x, tensor.Autocast(dtype.BF16))
//
// Several goroutines may call Infer for one model at a time if it is in evaluation mode already
// ([Eval]): its layers are only read then.
func Infer(m Module, x *tensor.Tensor, opts ...tensor.Option) (y *tensor.Tensor) {
	given("infer", x)
	own := []*tensor.Tensor{x}
	defer evaluating(m, func(p Param) { own = append(own, p.Tensor) })()
	tensor.Youngest(own...).Do(func(s *tensor.Scope) {
		y = m.Forward(x.In(s))
		s.Close(y)
	}, append(opts[:len(opts):len(opts)], tensor.NoGrad())...)
	return y
}

// evaluating puts the layers of m that are in training into evaluation mode, calls param with its
// parameters and buffers, and returns what puts the layers back.
func evaluating(m any, param func(p Param)) (back func()) {
	var switched []interface{ setTraining(bool) }
	visit(m, &visitor{quick: true, lazy: func(string, lazyLayer) {}, before: func(_ string, v reflect.Value, _ bool) {
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
