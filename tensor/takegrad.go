package tensor

// TakeGrad takes the gradient away from x, a leaf, and returns it, or nil: what Backward then adds up begins anew, and [Tensor.SetGrad] gives the
// old one back. Unlike [Tensor.ZeroGrad] it frees nothing. In PyTorch: g = x.grad; x.grad = None.
func (x *Tensor) TakeGrad() *Tensor {
	x.use("take_grad")
	b := x.base()
	b.gradMu.Lock()
	defer b.gradMu.Unlock()
	g := b.grad
	b.grad = nil
	return g
}
