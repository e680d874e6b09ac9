package tensor

import "github.com/flambeau-go/flambeau/shape"

// A FunctionAll is a differentiable operation with several results, which are on one device: a
// torch.autograd.Function that returns a tuple. It may be an [Autocaster] and a [DeviceCrosser].
type FunctionAll interface {
	// Name is the operation's name in messages.
	Name() string
	// Forward computes the results, which are of one floating point type and at least one. It runs
	// without recording a graph; intermediates die when it returns. What it saves of operands and
	// results keeps its place in the graph, so that VJP can be differentiated.
	Forward(c *Context, in []*Tensor) []*Tensor
	// VJP returns the gradient of each operand, given those of all results, which are zeros for a
	// result that the loss does not depend on; nil for none.
	VJP(c *Context, g []*Tensor) []*Tensor
}

// ApplyAll runs f on in and returns its results, which belong to the youngest scope among the
// operands. They are views of one memory, that is free when the last of them is, and an op in place
// on one of them counts as a change of all.
func ApplyAll(f FunctionAll, in ...*Tensor) []*Tensor {
	p := &resultsOf{f: f}
	y := Apply(p, in...)
	defer y.Free() // the results hold it
	out := make([]*Tensor, len(p.shapes))
	for i := range out {
		out[i] = p.part(y, i)
	}
	return out
}

// resultsOf is a FunctionAll with its results behind one another. It is of one call.
type resultsOf struct {
	f      FunctionAll
	shapes []shape.Dims
	starts []int
	saved  map[int]int // which of the saved values are results, and which
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

// part is result i in y.
func (p *resultsOf) part(y *Tensor, i int) *Tensor {
	flat := y.Narrow(0, p.starts[i], p.shapes[i].Size())
	if p.shapes[i].Rank() == 1 {
		return flat
	}
	defer flat.Free() // the view holds it
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
		all[i] = p.part(g, i)
	}
	return p.f.VJP(c, all)
}
