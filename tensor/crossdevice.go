package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// A DeviceCrosser is a [Function] whose operands may be on several devices. Other Functions refuse
// operands on several devices. The result may be on any device. VJP returns each gradient
// on the device of its operand. Forward and VJP queue their work on the streams that the scope of
// the operands has for each device.
type DeviceCrosser interface{ CrossesDevices() bool }

func crosses(f Function) bool {
	c, ok := f.(DeviceCrosser)
	return ok && c.CrossesDevices()
}

// BroadcastToDevices returns x on each of the devices, in x's scope, as torch.cuda.comm.broadcast
// does. On x's own device the result is a view of x, and on other devices it is a copy. The
// gradient of x is the sum of the gradients of the results. They are added on x's device in the
// order of devs, so the bits of the sum are always the same.
func (x *Tensor) BroadcastToDevices(devs ...device.Device) []*Tensor {
	const op = "broadcast_to_devices"
	x.use(op)
	checkDevices(op, []*Tensor{x}, devs)
	y := make([]*Tensor, len(devs))
	// Backward runs in the opposite order: the copy recorded last sends its gradient first
	for i := len(devs) - 1; i >= 0; i-- {
		if y[i] = x.To(devs[i]); y[i] == x {
			y[i] = x.view(op, x.layout, func(_ *Context, g *Tensor) *Tensor { return g })
		}
	}
	return y
}

// ScatterToDevices divides x along dimension dim, in x's scope, and returns part i on device i, as
// torch.cuda.comm.scatter does. sizes holds the size of the part for each device, and adds up to
// the size of the dimension. Without sizes the parts are those of [Tensor.Chunk], which may be
// fewer than the devices. A part for x's own device is a view of x. The gradient of x is assembled
// on x's device.
func (x *Tensor) ScatterToDevices(dim int, devs []device.Device, sizes ...int) []*Tensor {
	const op = "scatter_to_devices"
	x.use(op)
	checkDevices(op, []*Tensor{x}, devs)
	a := x.axisOf(op, dim)
	var parts []*Tensor
	switch {
	case len(sizes) == 0:
		parts = x.Chunk(len(devs), a)
	case len(sizes) != len(devs):
		fail(op, ErrValue, []*Tensor{x}, "%d sizes for %d devices", len(sizes), len(devs))
	default:
		parts = x.SplitSizes(sizes, a)
	}
	for i, p := range parts {
		if parts[i] = p.To(devs[i]); parts[i] != p {
			p.Free() // the graph keeps the memory that it needs
		}
	}
	return parts
}

// GatherToDevice concatenates tensors from any devices along dimension dim, on device dev, as
// torch.cuda.comm.gather does. The tensors have one type, and their shapes may differ only in that
// dimension. Tensors of rank 0, such as losses, become a vector. The result belongs to the youngest
// of their scopes. The gradient of each tensor is its part of the result's gradient, on the
// tensor's device.
func GatherToDevice(dim int, dev device.Device, x ...*Tensor) *Tensor {
	const op = "gather_to_device"
	checkGathered(op, dev, x)
	a := 0
	rows := x
	if x[0].Rank() > 0 {
		a = x[0].axis(op, dim)
	} else if dim != 0 && dim != -1 {
		fail(op, ErrShape, x, "dimension %d is out of range for the vector that tensors of rank 0 become", dim)
	}
	out, n := x[0].layout.Shape, 0
	if out.Rank() == 0 {
		out, rows = shape.Of(1), make([]*Tensor, len(x))
	}
	for i, p := range x {
		switch {
		case p.Rank() != x[0].Rank():
			fail(op, ErrShape, x, "tensor %d has %d dimensions, the first %d; shapes are %s", i, p.Rank(), x[0].Rank(), shapes(x))
		case p.Rank() == 0:
			rows[i] = p.Unsqueeze(0)
			n++
			continue
		case p.layout.Shape.With(a, 1) != out.With(a, 1):
			fail(op, ErrShape, x, "shapes %v and %v (tensor %d) differ in another dimension than %d", out, p.Shape(), i, a)
		}
		n += p.layout.Shape.At(a)
	}
	return Apply(gatherDevicesFunc{dev, a, out.With(a, n)}, rows...)
}

// ReduceAddToDevice returns the sum of tensors from any devices, on device dev, as
// torch.cuda.comm.reduce_add does. The tensors have one shape and one type, and are added one after
// the other in the given order. The result belongs to the youngest of their scopes. The gradient of
// each tensor is the gradient of the sum, on the tensor's device.
func ReduceAddToDevice(dev device.Device, x ...*Tensor) *Tensor {
	const op = "reduce_add_to_device"
	checkGathered(op, dev, x)
	for i, p := range x {
		if p.layout.Shape != x[0].layout.Shape {
			fail(op, ErrShape, x, "tensor %d has shape %v, the first %v", i, p.Shape(), x[0].Shape())
		}
	}
	return Apply(reduceAddDevicesFunc{dev}, x...)
}

// checkDevices panics if the list of devices is empty or has a nil.
func checkDevices(op string, x []*Tensor, devs []device.Device) {
	if len(devs) == 0 {
		fail(op, ErrValue, x, "there are no devices")
	}
	for i, d := range devs {
		if d == nil {
			fail(op, ErrDevice, x, "device %d is nil", i)
		}
	}
}

func checkGathered(op string, dev device.Device, x []*Tensor) {
	switch {
	case len(x) == 0:
		fail(op, ErrValue, nil, "there are no tensors")
	case dev == nil:
		youngest(op, x)
		fail(op, ErrDevice, x, "the device is nil")
	}
	youngest(op, x)
	for i, p := range x {
		if p.dtype != x[0].dtype {
			e := newError(op, ErrType, x, fmt.Sprintf("tensor %d is of type %v, the first of %v", i, p.dtype, x[0].dtype))
			panic(e.hint("Cast it"))
		}
	}
}

// gatherDevicesFunc concatenates tensors from any devices along an axis.
type gatherDevicesFunc struct {
	dev  device.Device
	axis int
	out  shape.Dims
}

func (gatherDevicesFunc) Name() string         { return "gather_to_device" }
func (gatherDevicesFunc) CrossesDevices() bool { return true }

// Forward copies each operand directly to its part of the result, if that part is dense.
func (f gatherDevicesFunc) Forward(c *Context, in []*Tensor) *Tensor {
	op, s := f.Name(), c.Scope()
	y := alloc(op, s, f.dev, in[0].dtype, f.out)
	same := castProgram(y.dtype, y.dtype)
	at := 0
	for _, x := range in {
		n := x.layout.Shape.At(f.axis)
		part := y.handle(op, s, y.layout.Narrow(f.axis, at, n, 1))
		at += n
		switch {
		case x.Size() == 0:
		case x.st.dev == f.dev:
			run(op, s, same, part, []*Tensor{x}, nil)
		case part.layout.Contiguous():
			x.copyInto(op, part, false)
		default:
			near := x.copyTo(op, s, f.dev, false)
			run(op, s, same, part, []*Tensor{near}, nil)
			near.Free()
		}
	}
	return y
}

func (f gatherDevicesFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, len(c.n.operands))
	at := 0
	for i, x := range c.n.operands {
		n := x.shape.At(f.axis)
		if c.Wants(i) {
			grads[i] = g.Narrow(f.axis, at, n).To(x.dev)
		}
		at += n
	}
	return grads
}

// reduceAddDevicesFunc adds tensors from any devices, in the given order.
type reduceAddDevicesFunc struct{ dev device.Device }

func (reduceAddDevicesFunc) Name() string         { return "reduce_add_to_device" }
func (reduceAddDevicesFunc) CrossesDevices() bool { return true }

// Forward needs memory for the sum and for one more tensor on the device at a time.
func (f reduceAddDevicesFunc) Forward(c *Context, in []*Tensor) *Tensor {
	op := f.Name()
	var sum *Tensor
	for _, x := range in {
		near := x
		if x.st.dev != f.dev {
			near = x.copyTo(op, c.Scope(), f.dev, false)
		}
		switch {
		case sum == nil:
			sum = near
			continue
		case contains(in, sum): // sum is still an operand, which must not be overwritten
			next := alloc(op, c.Scope(), f.dev, x.dtype, x.layout.Shape)
			run(op, c.Scope(), addProgram(x.dtype, x.dtype), next, []*Tensor{sum, near}, nil)
			sum = next
		default:
			sum.addInto(near)
		}
		if near != x {
			near.Free()
		}
	}
	return sum
}

func (f reduceAddDevicesFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, len(c.n.operands))
	for i, x := range c.n.operands {
		if c.Wants(i) {
			grads[i] = g.To(x.dev)
		}
	}
	return grads
}
