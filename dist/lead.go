package dist

import (
	"errors"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// The methods of this file are for programs in which only one rank calls the optimizer's Step. That
// rank leads: it sends its parameters to the other ranks. If a rank runs out of memory, all ranks
// repeat the step.

// FixedBuckets keeps the initial order of buckets, in which the model's last parameters come first.
// By default the buckets are rearranged after the first Backward, in the order in which gradients
// became ready.
func FixedBuckets() DDPOption { return func(s *ddpSettings) { s.fixed = true } }

// Reserve allocates the memory that averaging and [Reducer.Spread] would allocate later. With
// [FixedBuckets], averaging and Spread then allocate only small tables. All ranks call it.
func (r *Reducer) Reserve() {
	if r.g.World() == 1 {
		return
	}
	r.makeStatics()
	average := func(x *tensor.Tensor, weight float64) {
		r.g.begin(signature{op: "all reduce", kind: device.KindAllReduce, combine: Mean, weighted: true}, "reserve", x, x, weight)
	}
	least := map[any]*bucket{}
	for _, b := range r.buckets {
		average(b.flat.buffer, 1)
		if s := least[b.flat.buffer.Type()]; s == nil || b.flat.buffer.Size() < s.flat.buffer.Size() {
			least[b.flat.buffer.Type()] = b
		}
	}
	// If ranks without samples are left out, averaging uses another kernel for each number of
	// such ranks. To load these kernels too, average once for each number, with a weight of 0 on
	// that many ranks.
	for _, b := range r.buckets {
		if least[b.flat.buffer.Type()] != b {
			continue
		}
		for k := 1; k < r.g.World(); k++ {
			weight := 0.0
			if r.g.rank < k {
				weight = 1
			}
			average(b.flat.buffer, weight)
		}
	}
	r.g.exchange("reserve", nil, nil)
}

// Once runs f, which should contain one Backward that averages. If f does not run Backward, Once
// takes part in the averaging without a gradient, so that the other ranks do not wait for this rank
// in vain. If f panics with an error of the library, Once makes the step void, as [Reducer.Void]
// does.
func (r *Reducer) Once(f func()) {
	if r.g.World() == 1 {
		f()
		return
	}
	runs, returned := r.runs, false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if failed, ours := p.(device.Raised); ours && r.runs == runs {
			r.Void(failed)
		}
		if p != nil {
			panic(p)
		}
	}()
	f()
	returned = true
	if r.runs == runs {
		r.Void(nil)
	}
}

// Spread copies parameters and buffers of rank root to all ranks. The flags select them: params
// selects the parameters that require a gradient, buffers selects the buffers. All ranks call
// Spread with the same arguments. Spread uses the memory of the averaged gradients for the
// parameters, so those gradients are lost. A rank that runs out of memory still takes part in the
// collective, and panics afterwards.
func (r *Reducer) Spread(root int, params, buffers bool) {
	if r.g.World() == 1 {
		return
	}
	var failed error
	move := func(f *flat, of string, list []*tensor.Tensor) {
		copies := func(in bool) {
			err := tensor.Try(func() { f.copies(r.g.recorded(), list, in) })
			if errors.Is(err, device.ErrOutOfMemory) {
				r.g.Device().Empty()
				err = tensor.Try(func() { f.copies(r.g.recorded(), list, in) })
			}
			if failed == nil {
				failed = err
			}
		}
		if r.g.rank == root {
			copies(true)
		}
		r.g.begin(signature{op: "broadcast", kind: device.KindBroadcast, root: root}, of, f.buffer, f.buffer, 1)
		if r.g.rank != root {
			copies(false)
		}
	}
	if params {
		for _, b := range r.buckets {
			for k, i := range b.leaves {
				if g := b.views[k]; g != nil && r.leaves[i].Grad() == g {
					r.leaves[i].ZeroGrad()
				}
				b.views[k] = nil
			}
			move(b.flat, "parameters", pick(r.leaves, b.leaves))
		}
	}
	if buffers {
		r.makeStatics()
		for k, f := range r.statics {
			move(f, "buffers", pick(r.bufs, r.packed[k]))
		}
	}
	if failed != nil {
		panic(failed)
	}
}
