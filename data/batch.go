package data

import (
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Batch is collated samples: its tensors have a first dimension more than the samples. It belongs
// to who receives it: s.From(b.X), or b.Into(s) for all of it, gives it to a scope; b.X.In(s) lends
// it.
type Batch struct {
	X, Y *tensor.Tensor // nil where the samples' values do not become one tensor

	// Nested has those values as [Collate] makes them: a map[string]any, []any or []string that
	// holds tensors, which [Batch.Tensor] finds by name. Nested.X is nil where X is a tensor, and
	// Nested.Y where Y is.
	Nested Sample

	Index []int // of the samples in the dataset; of a stream their numbers in the epoch, from 0
}

// complete puts a value that is one tensor where such values are.
func (b *Batch) complete() *Batch {
	lift := func(t **tensor.Tensor, v *any) {
		if x, ok := (*v).(*tensor.Tensor); ok && *t == nil {
			*t, *v = x, nil
		}
	}
	lift(&b.X, &b.Nested.X)
	lift(&b.Y, &b.Nested.Y)
	return b
}

// distinct gives each place of the batch a handle of its own: an autoencoder's targets may be its
// inputs, and who takes one of the two frees it.
func (b *Batch) distinct() *Batch {
	if b.complete(); b.Nested == (Sample{}) && b.X != b.Y {
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

// Into hands the batch to s, as s.From does with a tensor: the tensors are copied if s is on
// another device, and the old handles are freed. It returns b, which holds the new ones.
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
	b.X, _ = walk(b.X, f).(*tensor.Tensor) // one after the other: f may panic
	b.Nested.X = walk(b.Nested.X, f)
	b.Y, _ = walk(b.Y, f).(*tensor.Tensor)
	b.Nested.Y = walk(b.Nested.Y, f)
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
