package dist

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// replicated is the state of one call of a [Parallel] that uses several devices.
type replicated struct {
	params   []nn.Param
	home     *tensor.Scope // scope of the results
	grad     bool          // whether the call records a graph
	inputs   []*tensor.Tensor
	replicas []*replica
}

// replica is the state of a call on one device. The replica has a graph of its own, and its tensors
// are the leaves of that graph. Copies of the model's tensors belong to the same scope as the
// originals, so the model's code can use them in the same way.
type replica struct {
	dev   device.Device
	modes []tensor.Option
	// copies of the model's tensors, in the model's order; nil where the replica uses the original
	tensors []*tensor.Tensor
	in      []*tensor.Tensor // this device's parts of the inputs
	out     []*tensor.Tensor
}

func (c *replicated) devices() []device.Device {
	out := make([]device.Device, len(c.replicas))
	for i, r := range c.replicas {
		out[i] = r.dev
	}
	return out
}

// copiesByName returns a map from the names of the model's tensors to the replica's copies of them.
func (r *replica) copiesByName(params []nn.Param) map[string]*tensor.Tensor {
	with := map[string]*tensor.Tensor{}
	for j, t := range r.tensors {
		if t != nil {
			with[params[j].Name] = t
		}
	}
	return with
}

// setModes gives each replica the modes of the call's scope, and a generator of its own. It draws
// one number from the call scope's generator, even if the model uses no random numbers.
func (c *replicated) setModes() {
	for _, r := range c.replicas {
		r.modes = []tensor.Option{tensor.On(r.dev), tensor.Stream(c.home.Stream(r.dev))}
	}
	seed, at := c.home.Generator().Draw(1)
	for i, r := range c.replicas {
		r.modes = append(r.modes, tensor.Seed(mixed(mixed(seed+uint64(i))+at)))
	}
}

// mixed hashes n with the finaliser of splitmix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast
// Splittable Pseudorandom Number Generators", 2014).
func mixed(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// replicate copies the model's tensors to each replica. The argument owner is the scope that owns
// the copies.
func (c *replicated) replicate(owner *tensor.Scope) {
	c.setModes()
	list := make([]*tensor.Tensor, len(c.params))
	for j, p := range c.params {
		list[j] = p.Tensor
	}
	first := c.replicas[0]
	for _, r := range c.replicas {
		r.tensors = make([]*tensor.Tensor, len(list))
	}
	for j, p := range c.params {
		if c.grad && !p.Buffer { // the copy is a new leaf on the parameter's memory
			first.tensors[j] = p.Tensor.Detach()
		}
	}
	owner.Do(func(s *tensor.Scope) {
		var keep []*tensor.Tensor
		for _, b := range bundlesOf(list) {
			flat := b.pack(s, list)
			for _, r := range c.replicas[1:] {
				there := flat.To(r.dev)
				b.unpack(there, list, r.tensors)
				for _, j := range b.indices {
					// the model may change a buffer in place, so the copy must not be a view of
					// memory that other tensors share
					if c.params[j].Buffer && len(b.indices) > 1 {
						r.tensors[j] = r.tensors[j].Clone()
					}
					keep = append(keep, r.tensors[j])
				}
			}
			flat.Free()
		}
		s.Close(keep...)
	}, tensor.NoGrad(), tensor.NoAutocast())
	for _, r := range c.replicas {
		for j, t := range r.tensors {
			if t == nil {
				continue
			}
			if p := list[j]; p.NeedsGrad() {
				t.RequiresGrad()
			} else if p.IsFrozen() {
				t.SetRequiresGrad(false)
			}
		}
	}
}

// scatter copies to each replica its part of the inputs x. The copies belong to c.home.
func (c *replicated) scatter(x []*tensor.Tensor, parts []part) {
	main := c.replicas[0].dev
	c.inputs = make([]*tensor.Tensor, len(x))
	for i, t := range x {
		if c.grad && t.NeedsGrad() {
			// this copy belongs to the graph, so the input's gradient will be computed on the first
			// device
			c.inputs[i] = t.In(c.home).To(main)
		}
	}
	c.home.Do(func(s *tensor.Scope) {
		var keep []*tensor.Tensor
		for k, r := range c.replicas {
			for i, t := range x {
				if c.inputs[i] != nil {
					t = c.inputs[i]
				}
				piece := t.In(s).Detach().Narrow(0, parts[k].start, parts[k].n).To(r.dev)
				r.in, keep = append(r.in, piece), append(keep, piece)
			}
		}
		s.Close(keep...)
	}, tensor.NoGrad())
	for _, r := range c.replicas {
		for i, t := range r.in {
			if c.inputs[i] != nil {
				t.RequiresGrad()
			}
		}
	}
}

// forward computes f on each device. The results belong to c.home.
func (c *replicated) forward(f func(i int, x []*tensor.Tensor) []*tensor.Tensor) {
	low := c.home.Autocast()
	onEach(c.devices(), false, func(i int) {
		r := c.replicas[i]
		compute := func(s *tensor.Scope) []*tensor.Tensor {
			in := make([]*tensor.Tensor, len(r.in))
			for k, t := range r.in {
				in[k] = t.In(s)
			}
			y := f(i, in)
			checkResults(y)
			out := make([]*tensor.Tensor, len(y))
			for k, t := range y {
				out[k] = t.In(s) // the scope home needs a handle of its own
			}
			s.Close(out...)
			return out
		}
		if low == dtype.Invalid {
			c.home.Do(func(s *tensor.Scope) { r.out = compute(s) }, r.modes...)
			return
		}
		// The scope with Autocast ends with the call. This also frees the cached casts of the
		// replica's parameters.
		c.home.Do(func(inner *tensor.Scope) {
			var out []*tensor.Tensor
			inner.Do(func(s *tensor.Scope) { out = compute(s) }, append(r.modes, tensor.Autocast(low))...)
			inner.Close(out...)
			r.out = out
		}, tensor.NoAutocast())
	})
	c.checkAlike()
}

// checkAlike checks that all replicas returned results that can be concatenated.
func (c *replicated) checkAlike() {
	first := c.replicas[0]
	for _, r := range c.replicas[1:] {
		between := fmt.Sprintf("the replicas on %s and %s return ", first.dev.Name(), r.dev.Name())
		if len(r.out) != len(first.out) {
			panic(misuse(tensor.ErrValue, fmt.Sprintf("%s%d and %d results", between, len(first.out), len(r.out))))
		}
		for k, y := range r.out {
			a, b := first.out[k].Shape().Slice(), y.Shape().Slice()
			if len(a) != len(b) || len(a) > 0 && !slices.Equal(a[1:], b[1:]) {
				panic(misuse(tensor.ErrShape, fmt.Sprintf("%sresult %d in shapes that differ in more than dimension 0", between, k), first.out[k], y))
			}
			if y.Type() != first.out[k].Type() {
				panic(misuse(tensor.ErrType, fmt.Sprintf("%sresult %d in two types", between, k), first.out[k], y))
			}
		}
	}
}

// end frees the replicas' tensors.
func (c *replicated) end() {
	for _, r := range c.replicas {
		for _, list := range [][]*tensor.Tensor{r.tensors, r.in, r.out} {
			for _, t := range list {
				t.Free()
			}
		}
	}
}

// joined concatenates result k of all replicas on the first device. The new tensor belongs to scope
// s, which must record no graph.
func (c *replicated) joined(s *tensor.Scope, k int) *tensor.Tensor {
	parts := make([]*tensor.Tensor, len(c.replicas))
	for i, r := range c.replicas {
		y := r.out[k].In(s).Detach()
		if y.Rank() == 0 {
			y = y.Reshape(1)
		}
		parts[i] = y.To(c.replicas[0].dev)
	}
	return tensor.Cat(0, parts...)
}
