package models

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Cache holds the keys and values of the tokens that a [GPT] has processed. With a cache, each
// further token takes the work of one position only. NewCache allocates all of the cache's memory:
// 2·layers·batch·context·width elements.
type Cache struct {
	keys, values []*tensor.Tensor // one tensor for each layer, [batch, heads, context, features]
	n            int              // number of filled positions
}

// NewCache returns an empty cache for a batch of sequences, in scope s. The cache has the device
// and the type of the model's weights.
func (m *GPT) NewCache(s *tensor.Scope, batch int) *Cache {
	c := m.Config
	if batch < 1 {
		misuse("gpt.cache", tensor.ErrValue, fmt.Sprintf("a batch of %d sequences", batch))
	}
	k := &Cache{}
	make := s.On(m.WTE.Weight.Device()).Typed(m.WTE.Weight.Type())
	for range c.Layers {
		k.keys = append(k.keys, make.Zeros(batch, c.Heads, c.Context, c.Width/c.Heads))
		k.values = append(k.values, make.Zeros(batch, c.Heads, c.Context, c.Width/c.Heads))
	}
	return k
}

// Len returns the number of filled positions.
func (c *Cache) Len() int {
	if c == nil {
		return 0
	}
	return c.n
}

// Truncate keeps only the first n positions. Truncate(0) empties the cache.
func (c *Cache) Truncate(n int) {
	if n < 0 || n > c.Len() {
		misuse("gpt.cache", tensor.ErrValue, fmt.Sprintf("the first %d of %d positions", n, c.Len()))
	}
	if c != nil {
		c.n = n
	}
}

// Free frees the cache before its scope ends. Freeing twice is allowed.
func (c *Cache) Free() {
	if c == nil {
		return
	}
	for i := range c.keys {
		c.keys[i].Free()
		c.values[i].Free()
	}
}

// extend stores the keys and values of new positions. It returns the keys and values of all
// positions, and the options for attention to them.
func (c *Cache) extend(layer int, k, v *tensor.Tensor) (keys, values *tensor.Tensor, o tensor.AttentionOptions) {
	n, s := k.Dim(2), k.Scope()
	all := func(store, x *tensor.Tensor) *tensor.Tensor {
		store = store.In(s)
		store.Narrow(2, c.n, n).Copy(x)
		return store.Narrow(2, 0, c.n+n)
	}
	switch {
	case n == 1: // the last position attends to all positions
	case c.n == 0:
		o.Causal = true
	default:
		pos := s.On(k.Device())
		o.Mask = pos.Arange(c.n + n).Le(pos.ArangeStep(float64(c.n), float64(c.n+n), 1).Unsqueeze(1))
	}
	return all(c.keys[layer], k), all(c.values[layer], v), o
}

// Decode appends ids, [batch, length], to the sequences in the cache, and returns the logits of the
// tokens that follow them, [batch, vocab]. It records no graph and applies no dropout, even in
// training mode. If there are more positions than the model's context, it raises tensor.ErrShape
// and does not change the cache.
func (m *GPT) Decode(ids *tensor.Tensor, c *Cache) (y *tensor.Tensor) {
	if c == nil || len(c.keys) != len(m.H) {
		misuse("gpt.decode", tensor.ErrValue, "the cache was not made by this model's NewCache", ids)
	}
	requireNonNil("gpt.decode", ids)
	if ids.Rank() == 2 && (ids.Dim(0) != c.keys[0].Dim(0) || ids.Dim(1) == 0) {
		misuse("gpt.decode", tensor.ErrShape, fmt.Sprintf("tokens %v; the cache is of %d sequences, and at least one token is needed", ids.Shape(), c.keys[0].Dim(0)), ids)
	}
	ids.Scope().Do(func(s *tensor.Scope) {
		x := m.features(ids.In(s), pass{cache: c})
		y = m.head(x.Select(1, -1))
		s.Close(y)
	}, tensor.NoGrad())
	c.n += ids.Dim(1)
	return y
}
