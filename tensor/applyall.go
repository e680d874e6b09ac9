package tensor

import "github.com/flambeau-go/flambeau/shape"

// A FunctionAll is a differentiable operation with several results on one device, like a
// torch.autograd.Function that returns a tuple. It may also be an [Autocaster] and a
// [DeviceCrosser].
type FunctionAll interface {
	// Name is the operation's name in messages.
	Name() string
	// Forward computes at least one result. All results have one floating point type. It runs
	// without recording a graph, and its intermediate tensors are freed when it returns. Operands
	// and results that it saves keep their position in the graph, so that VJP can be
	// differentiated.
	Forward(c *Context, in []*Tensor) []*Tensor
	// VJP returns the gradient of each operand, nil for an operand without one. g holds the
	// gradients of all results. The gradient of a result that the loss does not depend on is zeros.
	VJP(c *Context, g []*Tensor) []*Tensor
}

// ApplyAll runs f on the given operands and returns the results of f. They belong to the youngest
// scope among the operands. The results are views of one memory, which is freed when the last of
// them is freed. An op in place on one result counts as a change of all results.
func ApplyAll(f FunctionAll, in ...*Tensor) []*Tensor {
	p := &resultsOf{f: f}
	y := Apply(p, in...)
	defer y.Free() // the returned views keep the memory of y
	out := make([]*Tensor, len(p.shapes))
	for i := range out {
		out[i] = p.resultView(y, i)
	}
	return out
}

// resultsOf makes a Function from a FunctionAll. The result of the Function holds all results of
// the FunctionAll, one after the other. A resultsOf can be applied only once.
type resultsOf struct {
	f      FunctionAll
	shapes []shape.Dims
	starts []int
	// saved has an entry for each saved value that is a result: its index among the saved values,
	// and its index among the results
	saved map[int]int
}

func (p *resultsOf) Name() string { return p.f.Name() }

func (p *resultsOf) Autocast() AutocastClass {
	if a, ok := p.f.(Autocaster); ok {
		return a.Autocast()
	}
	return AutocastThrough
}

func (p *resultsOf) CrossesDevices() bool {
	f, ok := p.f.(DeviceCrosser)
	return ok && f.CrossesDevices()
}

func (p *resultsOf) resultView(y *Tensor, i int) *Tensor {
	flat := y.Narrow(0, p.starts[i], p.shapes[i].Size())
	if p.shapes[i].Rank() == 1 {
		return flat
	}
	defer flat.Free() // the returned view keeps the memory
	return flat.View(p.shapes[i].Slice()...)
}

func (p *resultsOf) Forward(c *Context, in []*Tensor) *Tensor {
	op, all := p.f.Name(), p.f.Forward(c, in)
	if len(all) == 0 {
		fail(op, ErrValue, in, "the function has no results")
	}
	p.shapes, p.starts, p.saved = nil, nil, map[int]int{}
	parts, at := make([]*Tensor, len(all)), 0
	for i, y := range all {
		if y == nil {
			fail(op, ErrValue, in, "result %d is nil", i)
		}
		y.use(op)
		if y.dtype != all[0].dtype || !y.dtype.IsFloat() {
			fail(op, ErrType, all, "the results are of %v and %v; they have one floating point type, and what has no gradient is computed beside the function", all[0].dtype, y.dtype)
		}
		p.shapes, p.starts = append(p.shapes, y.layout.Shape), append(p.starts, at)
		at += y.Size()
		parts[i] = y.In(c.scope).Reshape(-1)
	}
	sameDevice(op, all)
	flat := Cat(0, parts...)
	if len(parts) == 1 {
		flat = parts[0].Clone()
	}
	for k, t := range c.keep {
		for i, y := range all {
			if t == y && !contains(in, y) {
				p.saved[k], c.keep[k] = i, flat
			}
		}
	}
	return flat
}

func (p *resultsOf) VJP(c *Context, g *Tensor) []*Tensor {
	all := make([]*Tensor, len(p.shapes))
	for i := range all {
		all[i] = p.resultView(g, i)
	}
	return p.f.VJP(c, all)
}
