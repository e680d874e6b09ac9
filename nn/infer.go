package nn

import (
	"reflect"

	"github.com/flambeau-go/flambeau/tensor"
)

// Infer returns what a model makes of x in evaluation mode and without a graph: PyTorch's model.eval() and torch.inference_mode()
// around a call. What is computed on the way is freed. The result is kept: it belongs to the scope of x, or to that of the model's
// parameters if that is younger. x stays as it is, and is on the model's device ([Follow]). Each layer is put back into the mode
// that it was in, also when Forward panics. Options come on top, such as tensor.Autocast(dtype.BF16):
//
//	y := nn.Infer(model, x, tensor.Autocast(dtype.BF16))
//
// Several goroutines may call Infer for one model at a time if it is in evaluation mode already ([Eval]): its layers are only read then.
func Infer(m Module, x *tensor.Tensor, opts ...tensor.Option) (y *tensor.Tensor) {
	given("infer", x)
	var switched []interface{ setTraining(bool) }
	defer func() {
		for _, b := range switched {
			b.setTraining(true)
		}
	}()
	own := []*tensor.Tensor{x}
	visit(m, &visitor{quick: true, before: func(_ string, v reflect.Value, _ bool) {
		if v.CanAddr() && v.CanInterface() {
			if b, ok := v.Addr().Interface().(interface {
				Training() bool
				setTraining(bool)
			}); ok && b.Training() {
				b.setTraining(false)
				switched = append(switched, b)
			}
		}
	}, param: func(p Param) { own = append(own, p.Tensor) }})
	tensor.Youngest(own...).Do(func(s *tensor.Scope) {
		y = m.Forward(x.In(s))
		s.Close(y)
	}, append(opts[:len(opts):len(opts)], tensor.NoGrad())...)
	return y
}
