package tensor

// Leaves returns the leaves that gradients of y reach, each once, in the order in which a search
// from y towards the operands finds them. It leaves out leaves that y does not depend on or that
// require no gradient. In PyTorch: the variables of the AccumulateGrad nodes behind y.grad_fn.
func Leaves(y ...*Tensor) []*Tensor {
	const op = "leaves"
	var out []*Tensor
	var stack []edge
	seen := map[edge]bool{}
	push := func(at edge) {
		if at != (edge{}) && !seen[at] {
			seen[at] = true
			stack = append(stack, at)
		}
	}
	for _, x := range y {
		x.use(op)
		x.mustBeCurrent(op)
		push(edgeOf(x))
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if at.leaf != nil {
				out = append(out, at.leaf)
				continue
			}
			for i := len(at.node.inputs) - 1; i >= 0; i-- {
				push(at.node.inputs[i])
			}
		}
	}
	return out
}
