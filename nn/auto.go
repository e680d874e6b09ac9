package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// DeviceOf returns the device that holds the parameters and buffers of a model, or nil if the model
// has neither. If these tensors are on several devices, DeviceOf panics with a *[tensor.Error]. The
// error names the first tensor and one that is on another device.
func DeviceOf(m any) device.Device {
	var first Param
	visit(m, &visitor{quick: true, lazy: func(string, lazyLayer) {}, param: func(p Param) {
		if first.Tensor == nil {
			first = p
		}
		if p.Tensor.Device() != first.Tensor.Device() {
			hinted("forward", tensor.ErrDevice, fmt.Sprintf("the model is on several devices: %s is on %s, %s on %s",
				first.Name, first.Tensor.Device().Name(), p.Name, p.Tensor.Device().Name()), "nn.To(model, device) moves all of it", first.Tensor, p.Tensor)
		}
	}})
	if first.Tensor == nil {
		return nil
	}
	return first.Tensor.Device()
}

// Follow returns x on the device of a model, as [DeviceOf] finds it. It returns x itself if x is
// nil or already there, and a copy otherwise. A copy to a GPU is queued after the earlier work of
// x's scope on that GPU, and Follow does not wait for it. Gradients flow back to the device of x.
//
//	y := model.Forward(nn.Follow(model, x))
func Follow(m any, x *tensor.Tensor) *tensor.Tensor { return FollowAll(m, x)[0] }

// FollowAll is [Follow] for several inputs.
func FollowAll(m any, inputs ...*tensor.Tensor) []*tensor.Tensor {
	dev := DeviceOf(m)
	out := make([]*tensor.Tensor, len(inputs))
	for i, x := range inputs {
		if out[i] = x; x != nil && dev != nil {
			out[i] = x.To(dev)
		}
	}
	return out
}

// AutoModule runs a model on the device of its parameters. [Auto] makes one.
type AutoModule[M Module] struct {
	Base
	Model M `nn:",inline"`
}

// Auto wraps a model in a layer whose Forward first copies the input to the device of the model's
// parameters. The results stay on that device. Every call finds the device anew, so [To] may move
// the model at any time. A call panics if the model's parameters are on several devices. Parameters
// keep the names that they have in the model. For a model with several inputs, see [FollowAll].
//
//	m := nn.Auto(nn.To(model, dev))
//	y := m.Forward(batch.X) // batch.X is on the CPU, y on dev
func Auto[M Module](m M) *AutoModule[M] { return &AutoModule[M]{Model: m} }

// Forward applies the model to x, on the model's device.
func (a *AutoModule[M]) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer a.Enter(&x, &y)()
	requireUsable("forward", x)
	return a.Model.Forward(Follow(a, x))
}

// Device returns the device of the model, or nil if the model has no parameters and buffers.
func (a *AutoModule[M]) Device() device.Device { return DeviceOf(a) }
