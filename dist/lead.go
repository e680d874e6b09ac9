package dist

import (
	"errors"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Here is what a program needs in which one rank leads. That rank steps the optimizer and gives the
// others its parameters. After a rank has run out of memory it has all of them do the step again.

// FixedBuckets keeps the buckets as they are made, the last parameters first. By default they are
// made anew after the first Backward, in the order in which gradients became ready.
func FixedBuckets() DDPOption { return func(s *ddpSettings) { s.fixed = true } }

// Reserve takes the memory now that averaging, and [Reducer.Spread], would take later. With
// [FixedBuckets] they ask for none then, but for tables of some bytes. All ranks call it.
func (r *Reducer) Reserve() {
	if r.g.World() == 1 {
		return
	}
	r.makeStatics()
	average := func(x *tensor.Tensor, weight float64) {
		r.g.begin(what{op: "all reduce", kind: device.KindAllReduce, combine: Mean, weighted: true}, "reserve", x, x, weight)
	}
	least := map[any]*bucket{}
	for _, b := range r.buckets {
		average(b.flat.all, 1)
		if s := least[b.flat.all.Type()]; s == nil || b.flat.all.Size() < s.flat.all.Size() {
			least[b.flat.all.Type()] = b
		}
	}
	// Without the ranks that have no samples it is another kernel.
	for _, b := range r.buckets {
		if least[b.flat.all.Type()] != b {
			continue
		}
		for k := 1; k < r.g.World(); k++ {
			weight := 0.0
			if r.g.rank < k {
				weight = 1
			}
			average(b.flat.all, weight)
		}
	}
	r.g.exchange("reserve", nil, nil)
}

// Once runs f, in which one Backward averages, and takes part in its place if there was none: where
// f has failed before by an error of the library as [Reducer.Void] does, else without a gradient.
// So no rank waits for this one, whatever f does.
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

// Spread gives all ranks the parameters of one that require a gradient, or its buffers, or both.
// All ranks call it alike. Parameters go by way of the memory of the averaged gradients, which
// are lost. A rank that runs out of memory takes part all the same, and panics afterwards.
func (r *Reducer) Spread(root int, params, buffers bool) {
	if r.g.World() == 1 {
		return
	}
	var failed error
	move := func(f *flat, of string, list []*tensor.Tensor) {
		copies := func(in bool) {
			err := tensor.Try(func() { f.copies(nil, list, in) })
			if errors.Is(err, device.ErrOutOfMemory) {
				r.g.Device().Empty()
				err = tensor.Try(func() { f.copies(nil, list, in) })
			}
			if failed == nil {
				failed = err
			}
		}
		if r.g.rank == root {
			copies(true)
		}
		r.g.begin(what{op: "broadcast", kind: device.KindBroadcast, root: root}, of, f.all, f.all, 1)
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
