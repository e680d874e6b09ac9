package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// QuantizeDynamic quantises the [Linear] layers of a model for inference, in place, and returns how
// many it has changed. It is like torch.ao.quantization.quantize_dynamic(m, {nn.Linear}) with a
// scale for each output feature. The int8 weights take a quarter of the memory.
//
//	nn.Eval(model)
//	nn.QuantizeDynamic(model)
//	y := nn.Infer(model, x)
//
// A changed layer has an int8 Weight and a float32 WeightScale. Its input is quantised in each
// call, row by row. [tensor.Tensor.LinearInt8] describes the computation. The result has the type
// of the input. Layers that share a weight still share it afterwards.
//
// These layers do not change: layers of other types, layers that are quantised already, a Linear
// that is embedded in another layer, and the Linear of a [LinearCrossEntropyLoss]. If the model's
// own code uses the Weight of a layer without calling its Forward, quantise the other parts of the
// model instead.
//
// The model no longer refers to the float weights. Weights that belong to the root scope are
// freed by the garbage collector. Weights of another scope ([In]) are freed with that scope.
//
// A state dict has the name "weight_scale" in addition to "weight" and "bias". So the state dict of
// a quantised model fits only a model that was quantised too. [To] moves quantised layers. [Clone]
// copies them. [Cast] leaves their scales float32.
//
// A quantised layer cannot be trained. Its weight has no gradient, and its bias is frozen. If the
// input requires a gradient and the scope records a graph, Forward raises a *[tensor.Error] of the
// kind tensor.ErrGrad. Optimizers refuse int8 parameters. QuantizeDynamic panics with an *[Error]
// if a layer is lazy and has no parameters yet. Whenever it panics, the model has not changed.
func QuantizeDynamic(m any) (changed int) {
	var list []*Linear
	used := map[*Linear]bool{} // layers whose weight is used without a call of their Forward
	for _, l := range Modules(m) {
		if l, ok := l.(*LinearCrossEntropyLoss); ok {
			used[l.Linear] = true
		}
	}
	for name, l := range Modules(m) {
		switch l, ok := l.(*Linear); {
		case !ok || l.WeightScale != nil || used[l]:
		case l.lazy != nil:
			panic(wrong(name, fmt.Sprintf("the lazy %T has no weight to quantise before its first input", l)))
		case l.Weight != nil && l.Weight.Type().IsFloat():
			list = append(list, l)
		}
	}
	type pair struct{ weight, scale *tensor.Tensor }
	quantised := map[*tensor.Tensor]pair{}
	done := false
	defer func() {
		if !done {
			for _, p := range quantised {
				p.weight.Free()
				p.scale.Free()
			}
		}
	}()
	for _, l := range list {
		if _, ok := quantised[l.Weight]; !ok {
			q, scale := l.Weight.QuantizeRows()
			flat := scale.Squeeze(-1)
			quantised[l.Weight] = pair{q, flat.Clone()}
			flat.Free()
			scale.Free()
		}
	}
	done = true
	for _, l := range list {
		p := quantised[l.Weight]
		l.Weight, l.WeightScale = p.weight, p.scale
		if l.Bias != nil {
			l.Bias.SetRequiresGrad(false)
		}
	}
	return len(list)
}
