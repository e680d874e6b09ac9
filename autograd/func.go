package autograd

import "github.com/flambeau-go/flambeau/tensor"

// Func is a differentiable function made of two closures: torch.autograd.Function without a new
// type. A type with Name, Forward and VJP as methods implements [tensor.Function], and
// [tensor.Apply] applies it. A Func adds OnceDifferentiable. It must not be changed after its first
// use.
type Func struct {
	// Name is the function's name in error messages.
	Name string
	// Forward computes the result, without recording a graph. It calls c.Save for the tensors that
	// Backward needs.
	Forward func(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor
	// Backward returns the gradient of each operand, given the gradient of the result. A nil
	// gradient says that the operand has none.
	Backward func(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor
	// OnceDifferentiable says that Backward cannot be differentiated, for example because it is not
	// written with tensor ops. A second derivative through the Func is then an error instead of a
	// wrong number. The field is torch's once_differentiable.
	OnceDifferentiable bool
	// Autocast is the autocast class of the function: torch.amp.custom_fwd and custom_bwd.
	Autocast tensor.AutocastClass
	// CrossesDevices says that operands may be on several devices, as for [tensor.DeviceCrosser].
	// Backward must return each gradient on the device of its operand.
	CrossesDevices bool
}

// Apply computes f on the given operands. The result belongs to the youngest scope among the
// operands. If CrossesDevices is not set, all operands must be on one device.
func (f *Func) Apply(in ...*tensor.Tensor) *tensor.Tensor {
	if f.Name == "" || f.Forward == nil || f.Backward == nil {
		misuse("func", tensor.ErrValue, "a Func needs Name, Forward and Backward; this one is called %q", f.Name)
	}
	return tensor.Apply(function{f}, in...)
}

// function makes a Func implement tensor.Function.
type function struct{ f *Func }

func (f function) Name() string { return f.f.Name }

func (f function) Autocast() tensor.AutocastClass { return f.f.Autocast }

func (f function) CrossesDevices() bool { return f.f.CrossesDevices }

func (f function) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	y := f.f.Forward(c, in)
	if f.f.OnceDifferentiable {
		// VJP uses the operands to make a second derivative an error. The operands are saved after
		// the tensors that the user's Forward saved.
		c.Save(in...)
	}
	return y
}

func (f function) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	if !f.f.OnceDifferentiable {
		return f.f.Backward(c, g)
	}
	grads := f.f.Backward(c, g.Detach())
	if !c.Scope().GradEnabled() {
		return grads
	}
	stop := []*tensor.Tensor{nil, g}
	for i := range grads {
		if c.Needs(i) {
			stop = append(stop, c.Saved(c.NumSaved()-len(grads)+i))
		}
	}
	for i, d := range grads {
		if d != nil {
			stop[0] = d.Detach()
			grads[i] = tensor.Apply(onceDifferentiable{f.f.Name}, stop...)
		}
	}
	return grads
}

// onceDifferentiable returns its first operand, which was computed from the other operands. A
// derivative with respect to one of the others is an error.
type onceDifferentiable struct{ name string }

func (f onceDifferentiable) Name() string { return f.name + ".grad" }

// CrossesDevices is true, because all operands after the first may be on any device.
func (f onceDifferentiable) CrossesDevices() bool { return true }

func (f onceDifferentiable) Forward(_ *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	return in[0]
}

func (f onceDifferentiable) VJP(*tensor.Context, *tensor.Tensor) []*tensor.Tensor {
	misuse(f.name, tensor.ErrGrad, "the gradient of %s is OnceDifferentiable: it has no derivative", f.name)
	return nil
}
