package dist

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

const opDataParallel = "data_parallel"

// A Parallel is a model whose calls are spread over several devices: see [DataParallel].
type Parallel[M any] struct {
	// Module is the model, on the first of the devices. What it holds has its own names: no state
	// dict has the "module." that PyTorch's wrapper puts before them.
	Module M `nn:",inline"`

	devices []device.Device `nn:"-"`
}

// DataParallel returns a model that cuts its input into parts along dimension 0, one for each
// device, and computes them at the same time: torch.nn.DataParallel. Prefer DDP. It keeps a model
// on each device, where this one copies it there in each call, brings all results to the first
// device, and has the loss and the optimizer there alone. DataParallel is for a program of one
// device that is to use others by a change of one line:
//
//	model := dist.DataParallel(nn.To(newModel(), devices[0]), devices)
//	loss := nn.CrossEntropy(model.Forward(x), target)
//	loss.Backward()
//
// The parameters and buffers of the model are on devices[0], and the results of a call come to be
// there; x may be on any device. Where the model treats each sample by itself, gradients are those
// of a single device with the whole batch, to rounding. A normalisation over the batch sees the
// part of its device. Backward runs on all devices too and hands each parameter one gradient: the
// sum over the devices, in their order. The same run gives the same bits each time.
//
// Parts are those of torch's chunk: of n samples each has n divided by the number of devices,
// rounded up, and the last what is left over. A batch of fewer parts uses the first devices. With
// one part, or one device, the model itself is called. Otherwise each device has a replica, a
// copy in the way of [nn.Replace], for the time of the call:
//
//   - Parameters and buffers are copied to it together. A tensor without nn tag is not: it stays
//     on devices[0], and is for replicas on other devices an error that names it.
//   - The replica on devices[0] has the buffers of the model itself, so that running statistics
//     are those of the first part. What the other replicas change in place in their buffers and
//     parameters, and what any replica changes in other fields of its layers, is lost. A change of
//     a parameter by the forward pass may be an error of Backward.
//   - Replicas run at the same time. Functions, hooks, and what the model holds behind pointers
//     that are no layers they have in common, and so need a lock where they change it.
//   - A field that is not exported and holds a layer or a parameter is an *[nn.Error] that names
//     it.
//   - Each draws random numbers of its own, for dropout, from a generator that depends on that of
//     the scope of x. The call takes one number from this, whether or not the model draws any.
//   - Training flags are those of the model; the modes of the scope of x (no-grad, autocast,
//     anomaly) hold for all. Under a GPU's [tensor.Capture] the call is an error, as is one
//     inside of [autograd.Checkpoint]; checkpoints inside of the model are well.
//
// What a replica depends on and what requires a gradient is a parameter of the model or an input
// of the call. Anything else is an error, as its gradient would be lost. Second derivatives
// ([tensor.CreateGraph]) through the call are an error too.
//
// What a device other than the first reports late, such as an index outside of its axis, comes out
// of Backward. Where the call records no graph it comes out of the call, which waits for it. Errors
// of a replica come out as one *[ReplicaError], that of the first device which has one; a panic of
// the program as a *[ReplicaPanic]. Where devices is empty or names a device twice DataParallel
// panics with a *[tensor.Error].
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

// Devices returns the devices, in their order.
func (d *Parallel[M]) Devices() []device.Device { return append([]device.Device(nil), d.devices...) }

// Forward computes a model that is an [nn.Module], with x of shape [n, …] and a result of shape
// [m, …], of which each device computes a part of dimension 0. A result of rank 0, such as a loss,
// becomes a vector of one element for each part. Other models, and other results, go by way of
// [Parallel.Call].
func (d *Parallel[M]) Forward(x *tensor.Tensor) *tensor.Tensor {
	if _, ok := any(d.Module).(nn.Module); !ok {
		panic(misuse(tensor.ErrValue, fmt.Sprintf("a %T has no method Forward of one tensor; use Call", d.Module), x))
	}
	return d.Call(func(m M, x ...*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{any(m).(nn.Module).Forward(x[0])}
	}, x)[0]
}

// Call computes f, which calls a model m with inputs x, on each device: for models of several
// inputs or results, and with arguments that are no tensors, which f knows.
//
//	y := dp.Call(func(m *nn.TransformerDecoder, x ...*tensor.Tensor) []*tensor.Tensor {
//		return []*tensor.Tensor{m.Forward(x[0], x[1], nn.Masks{Causal: true}, nn.Masks{})}
//	}, target, memory)[0]
//
// All of x have the same size along dimension 0, and f gets a part of each. It returns at least
// one tensor, and as many for each part; Call returns them put together along dimension 0, those
// of rank 0 as vectors. They belong to the youngest scope among x and the parameters. f runs on
// several goroutines at a time. Tensors that are to be whole on each device, such as a mask, it
// moves there itself: mask.To(x[0].Device()).
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
		models[i] = nn.Replace(d.Module, r.stand(params))
	}
	c.forward(func(i int, x []*tensor.Tensor) []*tensor.Tensor { return f(models[i], x...) })
	y := c.gather()
	done = true
	return y
}

// batchOf returns the size that all inputs have along dimension 0.
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

// A part is a piece of a dimension.
type part struct{ start, n int }

// partsOf cuts n samples into at most so many parts, as torch.chunk does. There is at least one.
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
