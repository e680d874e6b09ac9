package autograd

import "github.com/flambeau-go/flambeau/tensor"

// A Func is a differentiable function in two closures: torch.autograd.Function for what needs no
// type of its own. A type with these as methods implements [tensor.Function] and is applied by
// [tensor.Apply]; a Func adds OnceDifferentiable. It must not be changed after its first use.
type Func struct {
	// Name is what messages call it.
	Name string
	// Forward computes the result. It runs without recording a graph; c.Save keeps what Backward
	// needs.
	Forward func(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor
	// Backward returns the gradient of each operand, given that of the result; nil for none.
	Backward func(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor
	// OnceDifferentiable says that Backward is not written with tensor ops, or not differentiable
	// for another reason. A second derivative through it is then an error instead of a wrong
	// number. It is torch's once_differentiable.
	OnceDifferentiable bool
	// Autocast says what mixed precision does with the operands, as torch.amp.custom_fwd and
	// custom_bwd.
	Autocast tensor.AutocastClass
	// CrossesDevices says that operands may lie on several devices, as [tensor.DeviceCrosser] does.
	// Each gradient that Backward returns is on the device of its operand.
	CrossesDevices bool
}

// Apply computes f on in. The result belongs to the youngest scope among the operands, which are on
// one device unless CrossesDevices is set.
func (f *Func) Apply(in ...*tensor.Tensor) *tensor.Tensor {
	if f.Name == "" || f.Forward == nil || f.Backward == nil {
		misuse("func", tensor.ErrValue, "a Func needs Name, Forward and Backward; this one is called %q", f.Name)
	}
	return tensor.Apply(function{f}, in...)
}

// function is a Func as a tensor.Function.
type function struct{ f *Func }

func (f function) Name() string { return f.f.Name }

func (f function) Autocast() tensor.AutocastClass { return f.f.Autocast }

func (f function) CrossesDevices() bool { return f.f.CrossesDevices }

func (f function) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	y := f.f.Forward(c, in)
	if f.f.OnceDifferentiable {
		// behind what Forward saved: a second derivative is stopped on its way to them
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
			grads[i] = tensor.Apply(once{f.f.Name}, stop...)
		}
	}
	return grads
}

// once is its first operand. It cannot be differentiated by the others, on which that depends.
type once struct{ name string }

func (f once) Name() string { return f.name + ".grad" }

func (f once) CrossesDevices() bool { return true } // what stops it may lie anywhere

func (f once) Forward(_ *tensor.Context, in []*tensor.Tensor) *tensor.Tensor { return in[0] }

func (f once) VJP(*tensor.Context, *tensor.Tensor) []*tensor.Tensor {
	misuse(f.name, tensor.ErrGrad, "the gradient of %s is OnceDifferentiable: it has no derivative", f.name)
	return nil
}
