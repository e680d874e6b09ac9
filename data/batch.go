package data

import (
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Batch is collated samples: X and Y have a first dimension more than the samples. It belongs to who receives it:
// s.From(b.X), or b.Into(s) for all of it, gives it to a scope; b.X.In(s) lends it.
type Batch struct {
	X, Y  *tensor.Tensor // nil where a sample's value does not become one tensor
	Index []int          // of the samples in the dataset; of a stream their numbers in the epoch, counted from 0

	// Inputs and Targets are what samples became, of whatever form ([Collate]): X and Y themselves, or a map[string]any, []any or
	// []string that holds tensors.
	Inputs, Targets any
}

// complete makes the two forms of a batch's values agree.
func (b *Batch) complete() *Batch {
	fill := func(t **tensor.Tensor, v *any) {
		if *t != nil {
			*v = *t
		} else if x, ok := (*v).(*tensor.Tensor); ok {
			*t = x
		}
	}
	fill(&b.X, &b.Inputs)
	fill(&b.Y, &b.Targets)
	return b
}

// distinct gives each place of the batch a handle of its own: an autoencoder's targets may be its inputs, and who takes one of the two
// frees it.
func (b *Batch) distinct() *Batch {
	b.complete()
	x, one := b.Inputs.(*tensor.Tensor)
	y, other := b.Targets.(*tensor.Tensor)
	if one && other && x != y {
		return b
	}
	seen := map[*tensor.Tensor]bool{}
	return b.each(func(t *tensor.Tensor) *tensor.Tensor {
		if seen[t] {
			t = t.Detach()
		}
		seen[t] = true
		return t
	})
}

// Into hands the batch to s, as s.From does with a tensor: the tensors are copied if s is on another device, and the old handles are
// freed. It returns b, which holds the new ones.
func (b *Batch) Into(s *tensor.Scope) *Batch {
	return b.distinct().each(func(t *tensor.Tensor) *tensor.Tensor { return s.From(t) })
}

// Free gives the memory of a batch back that no scope has taken.
func (b *Batch) Free() {
	if b != nil {
		b.each(func(t *tensor.Tensor) *tensor.Tensor { t.Free(); return t })
	}
}

// each replaces every tensor of the batch.
func (b *Batch) each(f func(t *tensor.Tensor) *tensor.Tensor) *Batch {
	b.complete()
	b.Inputs = walk(b.Inputs, f) // one after the other: f may panic
	b.X, _ = b.Inputs.(*tensor.Tensor)
	b.Targets = walk(b.Targets, f)
	b.Y, _ = b.Targets.(*tensor.Tensor)
	return b
}

// walk returns v with f of every tensor in it, in a fixed order.
func walk(v any, f func(t *tensor.Tensor) *tensor.Tensor) any {
	switch v := v.(type) {
	case *tensor.Tensor:
		if v != nil {
			return f(v)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			v[k] = walk(v[k], f)
		}
	case []any:
		for i := range v {
			v[i] = walk(v[i], f)
		}
	}
	return v
}
