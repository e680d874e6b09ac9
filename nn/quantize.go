package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// QuantizeDynamic quantises the [Linear] layers of a model for inference, in place, and returns how
// many it has changed. It is torch.ao.quantization.quantize_dynamic(m, {nn.Linear}) with a scale
// for each output feature. The weights take a quarter of their memory.
//
//	nn.Eval(model)
//	nn.QuantizeDynamic(model)
//	y := nn.Infer(model, x)
//
// A changed layer has an int8 Weight and a float32 WeightScale. Its input is quantised in each
// call, row by row. [tensor.Tensor.LinearInt8] says how, and what the result is. The result has the
// type of the input. Other layers, and layers that are quantised already, do not change. A layer of
// which the model's own code uses Weight, without Forward, must not be quantised: quantise the
// other parts of the model instead.
//
// A state dict has the name "weight_scale" beside "weight" and "bias". So the state dict of a
// quantised model fits a new model after QuantizeDynamic, and no other model. [To] moves quantised
// layers. [Clone] copies them.
//
// A quantised layer cannot be trained. Its weight has no gradient, and its bias is frozen. If the
// input requires a gradient and the scope records a graph, Forward raises a *[tensor.Error] of the
// kind tensor.ErrGrad. Optimizers refuse int8 parameters. QuantizeDynamic panics with an *[Error]
// if a layer is lazy and has no parameters yet. Then it has changed nothing.
func QuantizeDynamic(m any) (changed int) {
	var list []*Linear
	for name, l := range Modules(m) {
		switch l, ok := l.(*Linear); {
		case !ok || l.WeightScale != nil:
		case l.lazy != nil:
			panic(wrong(name, fmt.Sprintf("the lazy %T has no weight to quantise before its first input", l)))
		case l.Weight != nil && l.Weight.Type().IsFloat():
			list = append(list, l)
		}
	}
	quantised := map[*tensor.Tensor][2]*tensor.Tensor{} // layers that share a weight go on sharing it
	for _, l := range list {
		pair, ok := quantised[l.Weight]
		if !ok {
			q, scale := l.Weight.QuantizeRows()
			flat := scale.Squeeze(-1)
			pair = [2]*tensor.Tensor{q, flat.Clone()}
			flat.Free()
			scale.Free()
			quantised[l.Weight] = pair
		}
		l.Weight, l.WeightScale = pair[0], pair[1]
		if l.Bias != nil {
			l.Bias.SetRequiresGrad(false)
		}
	}
	return len(list)
}
