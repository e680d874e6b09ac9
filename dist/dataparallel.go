package dist

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

const opDataParallel = "data_parallel"

// Parallel is a model whose calls are divided among several devices: see [DataParallel].
type Parallel[M any] struct {
	// Module is the model, on the first device. The names of its parameters in a state dict have no
	// prefix "module.", which PyTorch's wrapper adds.
	Module M `nn:",inline"`

	devices []device.Device `nn:"-"`
}

// DataParallel returns a model that divides its input along dimension 0, one part for each device,
// and computes the parts at the same time: torch.nn.DataParallel. Prefer [DDP], which keeps a model
// on each device. By contrast, each call of a DataParallel copies the model to the devices and
// gathers all results on the first device. The loss and the optimizer run only on the first device.
// To change a program from one device to several, change the line that makes the model:
//
//	model := dist.DataParallel(nn.To(newModel(), devices[0]), devices)
//	loss := nn.CrossEntropy(model.Forward(x), target)
//	loss.Backward()
//
// The parameters and buffers of the model are on devices[0], and so are the results of a call. x
// may be on any device. If the model treats each sample independently, gradients equal those of one
// device with the whole batch, except for rounding. A batch norm uses the statistics of each part
// alone. Backward runs on all devices too. Each parameter gets one gradient, the sum over the
// devices in their order. The same run gives the same bits each time.
//
// The input is divided as torch.chunk does it. For n samples each part has n divided by the number
// of devices, rounded up, and the last part has the remaining samples. If there are fewer parts
// than devices, the first devices are used. With one part or one device, the model itself is
// called. Otherwise each device has a replica during the call. A replica is a copy of the model,
// made in the same way as by [nn.Replace]:
//
//   - Parameters and buffers are copied to the replica together. A tensor without an nn tag stays
//     on devices[0]. If a replica on another device uses it, the call fails with an error that
//     names the tensor.
//   - The replica on devices[0] uses the buffers of the model itself, so running statistics are
//     those of the first part. If other replicas change their buffers or parameters in place, these
//     changes are lost. The same holds for changes that any replica makes to other fields of its
//     layers. If the forward pass changes a parameter, Backward may return an error.
//   - Replicas run at the same time. They share functions, hooks, and data behind pointers that are
//     not layers. A model that changes shared data needs a lock.
//   - If an unexported field holds a layer or a parameter, the call panics with an *[nn.Error] that
//     names it.
//   - Each replica draws its own random numbers, for example for dropout. Its generator is seeded
//     from the generator of x's scope. The call draws one number from that generator, whether the
//     model uses random numbers or not.
//   - Training flags are those of the model. The modes of the scope of x (no-grad, autocast,
//     anomaly) apply to all replicas. The call is an error in a GPU's [tensor.Capture] and inside
//     [autograd.Checkpoint]. Checkpoints inside the model work.
//
// If a replica uses a tensor that requires a gradient, the tensor must be a parameter of the model
// or an input of the call. Otherwise its gradient would be lost, so this is an error. Second
// derivatives ([tensor.CreateGraph]) through the call are an error too.
//
// Some errors, such as an index outside its axis, are found only when a device runs the work.
// Backward returns such errors of the devices other than devices[0]. If the call records no graph,
// the call itself waits and returns them. An error in a replica becomes a *[ReplicaError]. If
// several replicas have errors, the error is that of the first. A panic of the program becomes a
// *[ReplicaPanic]. If devices is empty or contains a device twice, DataParallel panics with a
// *[tensor.Error].
func DataParallel[M any](model M, devices []device.Device) *Parallel[M] {
	if len(devices) == 0 {
		panic(misuse(tensor.ErrDevice, "there are no devices"))
	}
	seen := map[device.Device]bool{}
	for i, d := range devices {
		switch {
		case d == nil:
			panic(misuse(tensor.ErrDevice, fmt.Sprintf("device %d is nil", i)))
		case seen[d]:
			panic(misuse(tensor.ErrDevice, fmt.Sprintf("%s is given twice", d.Name())))
		}
		seen[d] = true
	}
	return &Parallel[M]{Module: model, devices: append([]device.Device(nil), devices...)}
}

func misuse(kind error, msg string, operands ...*tensor.Tensor) *tensor.Error {
	return tensor.NewError(opDataParallel, kind, msg, operands...)
}

// Devices returns the devices in their order.
func (d *Parallel[M]) Devices() []device.Device { return append([]device.Device(nil), d.devices...) }

// Forward computes a model that is an [nn.Module]. Each device computes the model for a part of x
// along dimension 0, and the results are concatenated. If the model's result has rank 0, such as a
// loss, Forward returns a vector with one element for each part. For models with another method, or
// with several inputs or results, use [Parallel.Call].
func (d *Parallel[M]) Forward(x *tensor.Tensor) *tensor.Tensor {
	if _, ok := any(d.Module).(nn.Module); !ok {
		panic(misuse(tensor.ErrValue, fmt.Sprintf("a %T has no method Forward of one tensor; use Call", d.Module), x))
	}
	return d.Call(func(m M, x ...*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{any(m).(nn.Module).Forward(x[0])}
	}, x)[0]
}

// Call computes f on each device. It is for models with several inputs or results: f gets the
// device's model m and its part of the inputs x. f may use further values that are not tensors.
//
//	y := dp.Call(func(m *nn.TransformerDecoder, x ...*tensor.Tensor) []*tensor.Tensor {
//		return []*tensor.Tensor{m.Forward(x[0], x[1], nn.Masks{Causal: true}, nn.Masks{})}
//	}, target, memory)[0]
//
// All tensors of x must have the same size along dimension 0, and f gets a part of each. f must
// return at least one tensor, and the same number for each part. Call concatenates them along
// dimension 0; tensors of rank 0 become vectors. The results belong to the scope that was opened
// last among the scopes of x and of the parameters. f runs on several goroutines at the same time.
// If each device needs a whole tensor, such as a mask, f must move it: mask.To(x[0].Device()).
func (d *Parallel[M]) Call(f func(m M, x ...*tensor.Tensor) []*tensor.Tensor, x ...*tensor.Tensor) []*tensor.Tensor {
	if f == nil {
		panic(misuse(tensor.ErrValue, "the function is nil", x...))
	}
	n := batchOf(x)
	params := nn.Named(d.Module)
	main := d.devices[0]
	var own []*tensor.Tensor
	for _, p := range params {
		if p.Tensor.Device() != main {
			panic(misuse(tensor.ErrDevice, fmt.Sprintf("%s of the model is on %s, not on %s, the first of the devices",
				p.Name, p.Tensor.Device().Name(), main.Name()), p.Tensor))
		}
		own = append(own, p.Tensor)
	}
	home := tensor.Youngest(append(append([]*tensor.Tensor(nil), x...), own...)...)
	parts := partsOf(n, len(d.devices))
	if len(parts) == 1 {
		in := make([]*tensor.Tensor, len(x))
		for i := range x {
			in[i] = x[i].To(main)
		}
		y := f(d.Module, in...)
		checkResults(y)
		return y
	}
	if home.Checkpointed() {
		panic(misuse(tensor.ErrGrad, "the call is inside of a checkpointed segment; checkpoint parts of the model instead", x...))
	}
	owner := tensor.Root()
	if len(own) > 0 {
		owner = tensor.Youngest(own...)
	}
	c := &replicated{params: params, home: home, grad: home.GradEnabled()}
	for i := range parts {
		c.replicas = append(c.replicas, &replica{dev: d.devices[i]})
	}
	done := false
	defer func() {
		if !done {
			c.end()
		}
	}()
	c.replicate(owner)
	c.scatter(x, parts)
	models := make([]M, len(parts))
	for i, r := range c.replicas {
		models[i] = nn.Replace(d.Module, r.copiesByName(params))
	}
	c.forward(func(i int, x []*tensor.Tensor) []*tensor.Tensor { return f(models[i], x...) })
	y := c.gather()
	done = true
	return y
}

// batchOf returns the size of dimension 0, which must be equal for all inputs.
func batchOf(x []*tensor.Tensor) int {
	if len(x) == 0 {
		panic(misuse(tensor.ErrValue, "there are no inputs to cut into parts"))
	}
	for i, t := range x {
		switch {
		case t == nil:
			panic(misuse(tensor.ErrValue, fmt.Sprintf("input %d is nil", i)))
		case t.Rank() == 0:
			panic(misuse(tensor.ErrShape, fmt.Sprintf("input %d has no dimension to be cut along", i), x...))
		case t.Dim(0) != x[0].Dim(0):
			panic(misuse(tensor.ErrShape, fmt.Sprintf("input %d has %d samples, the first has %d", i, t.Dim(0), x[0].Dim(0)), x...))
		}
	}
	return x[0].Dim(0)
}

type part struct{ start, n int }

// partsOf divides n samples into at most the given number of parts, as torch.chunk does. It returns
// at least one part.
func partsOf(n, most int) (parts []part) {
	size := max(1, (n+most-1)/most)
	for at := 0; at == 0 || at < n; at += size {
		parts = append(parts, part{at, min(size, n-at)})
	}
	return parts
}

func checkResults(y []*tensor.Tensor) {
	if len(y) == 0 {
		panic(misuse(tensor.ErrValue, "the function returned no results"))
	}
	for i, t := range y {
		if t == nil {
			panic(misuse(tensor.ErrValue, fmt.Sprintf("result %d is nil", i)))
		}
	}
}
