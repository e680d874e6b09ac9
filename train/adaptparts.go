package train

import (
	"fmt"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// samplesOf is how many samples a batch is of.
func samplesOf(b *data.Batch) int {
	if len(b.Index) > 0 {
		return len(b.Index)
	}
	for _, t := range tensorsOf(b) {
		if t.Rank() > 0 {
			return t.Dim(0)
		}
	}
	return 1
}

// tensorsOf lists the tensors of a batch.
func tensorsOf(b *data.Batch) (out []*tensor.Tensor) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case *tensor.Tensor:
			if v != nil {
				out = append(out, v)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	for _, v := range []any{b.X, b.Y, b.Inputs, b.Targets} {
		walk(v)
	}
	return out
}

// scopeOf is the scope under which a batch is computed: the youngest of its tensors.
func scopeOf(b *data.Batch) *tensor.Scope {
	if list := tensorsOf(b); len(list) > 0 {
		return tensor.Youngest(list...)
	}
	return tensor.Root()
}

// indivisible says why a batch of n samples cannot be divided, "" if it can.
func indivisible(b *data.Batch, n int) (why string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case *tensor.Tensor:
			if v != nil && v.Rank() > 0 && v.Dim(0) != n {
				why = fmt.Sprintf("the batch cannot be split into parts: it is of %d samples, and one of its tensors has the shape %v; "+
					"let the first dimension be that of the samples", n, v.Shape())
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		case []any:
			if !perSample(v, n) {
				for _, e := range v {
					walk(e)
				}
			}
		case nil, bool, string, int, int64, float64, float32:
		case []string:
			if len(v) != n {
				why = fmt.Sprintf("the batch cannot be split into parts: it is of %d samples, and a list of texts in it has %d", n, len(v))
			}
		default:
			why = fmt.Sprintf("the batch cannot be split into parts: it holds a %T", v)
		}
	}
	for _, v := range []any{b.X, b.Y, b.Inputs, b.Targets} {
		walk(v)
	}
	return why
}

// perSample reports whether a list has an element for each of n samples, rather than tensors of all of them.
func perSample(list []any, n int) bool {
	if len(list) != n {
		return false
	}
	for _, v := range list {
		if t, ok := v.(*tensor.Tensor); ok && (t.Rank() == 0 || t.Dim(0) != n) || !ok {
			return true
		}
	}
	return false
}

// part returns the samples from, …, to-1 of a batch of n in the scope s, on its device. The batch stays as it is.
func part(s *tensor.Scope, b *data.Batch, from, to, n int) *data.Batch {
	whole := to-from == n
	seen := map[*tensor.Tensor]*tensor.Tensor{}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case *tensor.Tensor:
			if v == nil {
				return v
			}
			if y := seen[v]; y != nil {
				return y
			}
			x := v.In(s)
			if !whole && x.Rank() > 0 {
				x = x.Narrow(0, from, to-from)
			}
			seen[v] = s.From(x)
			return seen[v]
		case map[string]any:
			out := make(map[string]any, len(v))
			for k, e := range v {
				out[k] = walk(e)
			}
			return out
		case []any:
			each := !whole && perSample(v, n)
			if each {
				v = v[from:to]
			}
			out := make([]any, len(v))
			for i, e := range v {
				if t, ok := e.(*tensor.Tensor); ok && each && t != nil {
					out[i] = s.From(t.In(s)) // it is one sample's own
				} else {
					out[i] = walk(e)
				}
			}
			return out
		case []string:
			if !whole {
				return v[from:to:to]
			}
			return v
		}
		return v
	}
	out := &data.Batch{Index: b.Index}
	if !whole && len(b.Index) == n {
		out.Index = b.Index[from:to:to]
	}
	place := func(t *tensor.Tensor, v any) (*tensor.Tensor, any) {
		clear(seen) // targets that are the inputs get handles of their own
		if v == nil && t != nil {
			v = t
		}
		v = walk(v)
		if t != nil {
			t = walk(t).(*tensor.Tensor)
		}
		return t, v
	}
	out.X, out.Inputs = place(b.X, b.Inputs)
	out.Y, out.Targets = place(b.Y, b.Targets)
	return out
}
