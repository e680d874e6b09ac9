package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// DeviceOf returns the device that the parameters and buffers of a model are on, nil for a model
// without any. If they are on several it panics with a *[tensor.Error] that names two of them: one
// that is on the device of the first, and one that is not.
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

// Follow returns x on the device of a model, as [DeviceOf] finds it: x itself if it is there
// already or nil, else a copy. Copying to a GPU is queued behind the work of the scope of x there
// and does not wait for it. Gradients flow back to where x is.
//
//	y := model.Forward(nn.Follow(model, x))
func Follow(m any, x *tensor.Tensor) *tensor.Tensor { return FollowAll(m, x)[0] }

// FollowAll is [Follow] of several inputs.
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

// AutoModule runs a model where its parameters are: see [Auto].
type AutoModule[M Module] struct {
	Base
	Model M `nn:",inline"`
}

// Auto wraps a model so that inputs follow it: they are copied to the device of its parameters,
// wherever they come from, and the results are there. The device is looked up in every call, so
// [To] works before and after. A model whose parameters are on several devices is refused when it
// is called. Names of parameters are those of the model. For a model with several inputs, see
// [FollowAll].
//
//	m := nn.Auto(nn.To(model, dev))
//	y := m.Forward(batch.X) // batch.X is on the CPU, y on dev
func Auto[M Module](m M) *AutoModule[M] { return &AutoModule[M]{Model: m} }

// Forward applies the model to x, on the model's device.
func (a *AutoModule[M]) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer a.Enter(&x, &y)()
	given("forward", x)
	return a.Model.Forward(Follow(a, x))
}

// Device returns where the model is, nil if it has no parameters.
func (a *AutoModule[M]) Device() device.Device { return DeviceOf(a) }
