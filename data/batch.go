package data

import (
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Batch holds several samples, collated into tensors whose first dimension counts the samples. It
// belongs to the code that receives it. s.From(b.X) gives one tensor to scope s, b.Into(s) gives
// the whole batch to s, and b.X.In(s) lends a tensor to s.
type Batch struct {
	// X and Y are the inputs and the targets. They are nil if the samples' values cannot be
	// collated into a single tensor.
	X, Y *tensor.Tensor

	// Nested holds values that [Collate] did not collate into a single tensor: a map[string]any,
	// []any or []string. Their entries may be tensors. [Batch.Tensor] finds a tensor of a map by
	// its name. Nested.X is nil if the field X is set. Nested.Y is nil if the field Y is set.
	Nested Sample

	// Index is the index of each sample in the dataset. For a stream it is the sample's number in
	// the epoch, from 0.
	Index []int
}

// complete moves Nested.X to X and Nested.Y to Y if they are single tensors.
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

// distinct gives each tensor in the batch a handle of its own. In a batch for an autoencoder, X
// and Y may be the same tensor. Without distinct, the caller would free it twice.
func (b *Batch) distinct() *Batch {
	if b.complete(); b.Nested == (Sample{}) && b.X != b.Y {
		return b
	}
	seen := map[*tensor.Tensor]bool{}
	return b.mapTensors(func(t *tensor.Tensor) *tensor.Tensor {
		if seen[t] {
			t = t.Detach()
		}
		seen[t] = true
		return t
	})
}

// Into gives the batch to scope s, as s.From does with a tensor. If s is on another device, Into
// copies the tensors. It frees the old handles and returns b, which holds the new handles.
func (b *Batch) Into(s *tensor.Scope) *Batch {
	return b.distinct().mapTensors(func(t *tensor.Tensor) *tensor.Tensor { return s.From(t) })
}

// Free frees the tensors of the batch, except those that s.From has given to a scope.
func (b *Batch) Free() {
	if b != nil {
		b.mapTensors(func(t *tensor.Tensor) *tensor.Tensor { t.Free(); return t })
	}
}

func (b *Batch) mapTensors(f func(t *tensor.Tensor) *tensor.Tensor) *Batch {
	b.complete()
	b.X, _ = walk(b.X, f).(*tensor.Tensor) // assign X now, because f may panic for Y
	b.Nested.X = walk(b.Nested.X, f)
	b.Y, _ = walk(b.Y, f).(*tensor.Tensor)
	b.Nested.Y = walk(b.Nested.Y, f)
	return b
}

// walk returns v with every tensor t in it replaced by f(t). It visits the tensors in a fixed
// order.
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
