package dist

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// In the graph of the program, one node stands for the whole call of a Parallel. Its operands are
// the model's parameters and the inputs, and it computes all results. Each replica has a graph of
// its own, which the node keeps. The gradient function (VJP) of the node runs the backward pass of
// all replica graphs, on all devices at the same time.

// gathered is the function of the graph node that stands for a whole call of a Parallel. All its
// operands are on the first device.
type gathered struct {
	call     *replicated
	operands []operand
	results  []int      // indices of the results that have a gradient
	common   dtype.Type // type to which all these results are converted
	rows     [][]int    // rows[k][i] is the number of rows of result k of replica i
	// branch[i][k] is for result results[k] of replica i. It is the number under which the node's
	// context has saved the result, or -1 if the result needs no gradient.
	branch [][]int
}

// operand is a parameter or an input of the call, with the leaf that stands for it in each replica.
// The leaf is nil if the replica does not use the operand.
type operand struct {
	x      *tensor.Tensor
	input  bool
	leaves []*tensor.Tensor
}

// gather returns the results on the first device. If the call records a graph, they are results of
// a [gathered] node.
func (c *replicated) gather() []*tensor.Tensor {
	f := &gathered{call: c}
	y := make([]*tensor.Tensor, len(c.replicas[0].out))
	var plain []int
	for k := range y {
		f.rows = append(f.rows, nil)
		needs := false
		for _, r := range c.replicas {
			n := 1
			if r.out[k].Rank() > 0 {
				n = r.out[k].Dim(0)
			}
			f.rows[k] = append(f.rows[k], n)
			needs = needs || c.grad && r.out[k].NeedsGrad()
		}
		if needs {
			f.results = append(f.results, k)
		} else {
			plain = append(plain, k)
		}
	}
	if len(plain) > 0 {
		c.home.Do(func(s *tensor.Scope) {
			var keep []*tensor.Tensor
			for _, k := range plain {
				y[k] = c.joined(s, k)
				keep = append(keep, y[k])
			}
			s.Close(keep...)
		}, tensor.NoGrad(), tensor.NoAutocast())
	}
	if len(f.results) == 0 {
		onEach(c.devices(), false, func(i int) {
			if i > 0 {
				c.home.Do(func(s *tensor.Scope) { waitForDevice(s, c.replicas[i].dev) }, tensor.NoGrad())
			}
		})
		c.end()
		return y
	}
	f.findOperands()
	for i, t := range f.apply() {
		y[f.results[i]] = t
	}
	for _, r := range c.replicas {
		for _, t := range r.out {
			t.Free()
		}
		for i, t := range r.in {
			if c.inputs[i] == nil {
				t.Free() // the graph keeps what it needs of this tensor
			}
		}
	}
	return y
}

// apply adds the call to the graph as one node. The replicas' tensors live as long as the node.
func (f *gathered) apply() []*tensor.Tensor {
	c := f.call
	first := c.replicas[0].out
	f.common = first[f.results[0]].Type()
	for _, k := range f.results {
		f.common = dtype.Promote(f.common, first[k].Type())
	}
	in := make([]*tensor.Tensor, len(f.operands))
	for i, o := range f.operands {
		in[i] = o.x.In(c.home)
		if in[i] != o.x {
			defer in[i].Free()
		}
	}
	if len(f.results) == 1 {
		return []*tensor.Tensor{tensor.Apply(gatheredOne{f}, in...)}
	}
	out := tensor.ApplyAll(f, in...)
	for i, k := range f.results {
		if t := out[i].Cast(first[k].Type()); t != out[i] {
			out[i].Free()
			out[i] = t
		}
	}
	return out
}

// findOperands lists the operands that the replicas use. It panics if a replica uses another tensor
// that requires a gradient.
func (f *gathered) findOperands() {
	c := f.call
	all := make([]operand, len(c.params)+len(c.inputs))
	for j, p := range c.params {
		all[j] = operand{x: p.Tensor}
	}
	for j, x := range c.inputs {
		all[len(c.params)+j] = operand{x: x, input: true}
	}
	used := make([]bool, len(all))
	for _, r := range c.replicas {
		at := map[*tensor.Tensor]int{}
		for j, t := range append(append([]*tensor.Tensor(nil), r.tensors...), r.in...) {
			if t != nil {
				at[t] = j
			}
		}
		for j := range all {
			all[j].leaves = append(all[j].leaves, nil)
		}
		var from []*tensor.Tensor
		for _, k := range f.results {
			if r.out[k].NeedsGrad() {
				from = append(from, r.out[k])
			}
		}
		for _, leaf := range tensor.Leaves(from...) {
			j, ok := at[leaf]
			if !ok {
				panic(&ReplicaError{r.dev.Name(), false, misuse(tensor.ErrGrad, "it depends on a tensor that requires a gradient and is "+
					"neither a parameter of the model nor an input; give it to Call as an input, or Detach it", leaf)})
			}
			used[j] = true
			all[j].leaves[len(all[j].leaves)-1] = leaf
		}
	}
	for j, o := range all {
		if used[j] {
			f.operands = append(f.operands, o)
		}
	}
}

func (f *gathered) Name() string { return opDataParallel }

func (f *gathered) Forward(c *tensor.Context, _ []*tensor.Tensor) []*tensor.Tensor {
	y := make([]*tensor.Tensor, len(f.results))
	for i, k := range f.results {
		y[i] = f.call.joined(c.Scope(), k).Cast(f.common)
	}
	n := 0
	f.branch = nil
	for _, r := range f.call.replicas {
		at := make([]int, len(f.results))
		for i, k := range f.results {
			at[i] = -1
			if r.out[k].NeedsGrad() {
				c.SaveBranch(r.out[k])
				at[i] = n
				n++
			}
		}
		f.branch = append(f.branch, at)
	}
	c.AtEnd(f.call.end)
	return y
}

// replicaPass holds the state of a backward pass through one replica.
type replicaPass struct {
	dev      device.Device
	y, g     []*tensor.Tensor
	starts   []int // for each result, the first row of this replica's part
	rows     []int
	operands []int            // indices of the operands for which gradients are computed
	leaves   []*tensor.Tensor // the replica's leaves for these operands, in the same order
	out      []*tensor.Tensor // gradients of these operands, copied to the first device
}

func (f *gathered) VJP(c *tensor.Context, g []*tensor.Tensor) []*tensor.Tensor {
	if c.Scope().GradEnabled() {
		panic(misuse(tensor.ErrGrad, "a model on several devices has no second derivative, which CreateGraph asks for; use one device"))
	}
	main := f.call.replicas[0].dev
	var ways []*replicaPass
	var devices []device.Device
	of := make([]*replicaPass, len(f.call.replicas))
	for i, r := range f.call.replicas {
		w := f.prepare(c, i, g)
		if len(w.y) > 0 && len(w.leaves) > 0 {
			of[i], ways, devices = w, append(ways, w), append(devices, r.dev)
		}
	}
	onEach(devices, true, func(i int) {
		w := ways[i]
		c.Scope().Do(func(s *tensor.Scope) { w.backward(c, s, main) })
	})
	return f.collect(c, of)
}

// prepare returns the state for the backward pass through replica i. The tensors g are the
// gradients of all results.
func (f *gathered) prepare(c *tensor.Context, i int, g []*tensor.Tensor) *replicaPass {
	w := &replicaPass{dev: f.call.replicas[i].dev}
	for k, number := range f.branch[i] {
		if number < 0 {
			continue
		}
		start, rows := 0, f.rows[f.results[k]]
		for _, n := range rows[:i] {
			start += n
		}
		w.y, w.g = append(w.y, c.Branch(number)), append(w.g, g[k])
		w.starts, w.rows = append(w.starts, start), append(w.rows, rows[i])
	}
	for j, o := range f.operands {
		if leaf := o.leaves[i]; leaf != nil && c.Wants(j) {
			w.operands, w.leaves = append(w.operands, j), append(w.leaves, leaf)
		}
	}
	return w
}

// waitForDevice waits for the work on dev and panics with an error of that work, such as an index
// outside its axis. A program that reads a result waits only for the first device, so it would not
// see this error. Scope s must record no graph.
func waitForDevice(s *tensor.Scope, dev device.Device) {
	one := s.On(dev).Empty(1)
	defer one.Free()
	tensor.Raw(opDataParallel, []*tensor.Tensor{one}, nil, func(st device.Stream, _, _ []device.View) error { return st.Synchronize() })
}

// backward computes the gradients of one replica's operands in scope s, and copies them to the
// device main. It runs on the goroutine of the replica's device.
func (w *replicaPass) backward(c *tensor.Context, s *tensor.Scope, main device.Device) {
	if w.dev != main {
		// Do not wait for the first device here: it still waits for results of the other devices,
		// so a wait would delay everything.
		waitForDevice(s, w.dev)
	}
	y, g := make([]*tensor.Tensor, len(w.y)), make([]*tensor.Tensor, len(w.y))
	for k := range y {
		y[k] = w.y[k].In(s)
		part := w.g[k].In(s).Narrow(0, w.starts[k], w.rows[k]).To(w.dev)
		g[k] = part.Reshape(y[k].Shape().Slice()...)
	}
	w.out = c.Gradients(y, g, w.leaves)
	if w.dev != main {
		w.out = copyToDevice(s, w.out, main)
	}
	var keep []*tensor.Tensor
	for k, d := range w.out {
		if d != nil {
			w.out[k] = d.In(s)
			keep = append(keep, w.out[k])
		}
	}
	s.Close(keep...)
}

// collect combines the replicas' gradients. For a parameter it sums them in the order of the
// devices; for an input it concatenates the parts.
func (f *gathered) collect(c *tensor.Context, ways []*replicaPass) []*tensor.Tensor {
	found := make([][]*tensor.Tensor, len(f.operands)) // gradients, indexed by operand and replica
	for j := range found {
		found[j] = make([]*tensor.Tensor, len(ways))
	}
	for i, w := range ways {
		if w == nil {
			continue
		}
		for k, j := range w.operands {
			found[j][i] = w.out[k]
		}
	}
	out := make([]*tensor.Tensor, len(f.operands))
	terms := make([][]*tensor.Tensor, len(f.operands))
	for j, o := range f.operands {
		for _, d := range found[j] {
			if d != nil {
				terms[j] = append(terms[j], d)
			}
		}
		if o.input && len(terms[j]) > 0 {
			out[j] = f.parts(c.Scope(), o, found[j])
			terms[j] = nil
		}
	}
	for j, d := range summed(c.Scope(), terms) {
		if d != nil {
			out[j] = d
		}
	}
	return out
}

// parts concatenates the gradients of the parts of an input. If a replica did not use its part,
// zeros stand for the gradient.
func (f *gathered) parts(s *tensor.Scope, o operand, found []*tensor.Tensor) *tensor.Tensor {
	list := make([]*tensor.Tensor, len(found))
	at := -1
	for k, x := range f.call.inputs {
		if x == o.x {
			at = k
		}
	}
	for i, d := range found {
		if list[i] = d; d == nil {
			in := f.call.replicas[i].in[at]
			list[i] = s.On(f.call.replicas[0].dev).Typed(in.Type()).Zeros(in.Shape().Slice()...)
		}
	}
	return tensor.Cat(0, list...)
}

// gatheredOne is a [gathered] whose call has a single result.
type gatheredOne struct{ f *gathered }

func (o gatheredOne) Name() string { return o.f.Name() }

func (o gatheredOne) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	return o.f.Forward(c, in)[0]
}

func (o gatheredOne) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	return o.f.VJP(c, []*tensor.Tensor{g})
}
