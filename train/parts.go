package train

import (
	"fmt"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// These are numbers of good steps after which a plan changes. A step is good if it does not run out
// of memory.
const (
	probeAfter = 16 // good steps before a larger part is tried
	probeRetry = 64 // good steps before a size that has failed is tried again
	// Each further failure of a size doubles the number of good steps before the size is tried
	// again, up to probeMost.
	probeMost = 8192
)

// A plan records which part sizes fit into memory, and when to try a larger one.
type plan struct {
	limit int // largest part size, even if more would fit; 0 means no limit
	most  int // largest number of samples known to fit; 0 if every batch has fitted
	bad   int // smallest number of samples known not to fit; 0 if none is known
	steps int // number of good steps since a larger part was tried
	after int // number of good steps before a larger part is tried
	retry int // number of good steps before a size that has failed is tried again
}

func newPlan(limit, after int) plan {
	if after == 0 {
		after = probeAfter
	}
	return plan{limit: limit, after: after, retry: max(probeRetry, 4*after)}
}

// current returns the largest number of samples that are computed at once. 0 means that batches are
// not split.
func (p *plan) current() int {
	if p.limit > 0 && (p.most == 0 || p.most > p.limit) {
		return p.limit
	}
	return p.most
}

func ceil(n, d int) int { return (n + d - 1) / d }

// parts returns the number of parts into which a batch of n samples should be divided. probe is
// true if these parts are larger than any part known to fit.
func (p *plan) parts(n int) (k int, probe bool) {
	most := p.current()
	if most == 0 || n <= most {
		return 1, false
	}
	k = ceil(n, most)
	least := 1 // smallest number of parts that has not failed
	if p.limit > 0 {
		least = ceil(n, p.limit)
	}
	if k == least {
		return k, false
	}
	if p.bad > 1 {
		least = max(least, ceil(n, p.bad-1))
	}
	switch {
	case least < k && p.steps >= p.after:
		return (least + k) / 2, true
	case least >= k && p.steps >= p.retry:
		return k - 1, true
	}
	return k, false
}

// failed records that an attempt with larger parts, of the given size, has failed. It returns into
// how many parts a batch of n samples should be divided instead. Such parts are known to fit.
func (p *plan) failed(n, size int) (k int) {
	if p.bad > 0 && size >= p.bad { // this size has failed before
		p.retry = min(2*p.retry, probeMost)
	} else {
		p.bad = size
	}
	p.steps = 0
	k, _ = p.parts(n)
	return k
}

// halve records that parts of the given size did not fit, although they had fitted before. From now
// on, a part has at most half of this size, rounded up. halve returns the number of such parts in a
// batch of n samples.
func (p *plan) halve(n, size int) (k int) {
	p.most, p.bad, p.steps = ceil(size, 2), size, 0
	return ceil(n, p.most)
}

// good records that a batch of n samples was computed in k parts. It returns the largest number of
// samples in a part, before and after this record.
func (p *plan) good(n, k int, probe bool) (before, now int) {
	before = p.current()
	p.steps++
	if probe {
		p.steps = 0
		p.most = ceil(n, k)
		if p.bad <= p.most {
			p.bad = 0
		}
		if k == 1 && p.bad == 0 {
			p.most = 0
		}
	}
	return before, p.current()
}

func (p *plan) state() map[string]any {
	return map[string]any{"most": int64(p.most), "bad": int64(p.bad), "steps": int64(p.steps), "retry": int64(p.retry)}
}

// load restores a state that the method state has returned.
func (p *plan) load(sd map[string]any) error {
	var v [4]int
	for i, key := range []string{"most", "bad", "steps", "retry"} {
		n, ok := sd[key].(int64)
		if !ok || n < 0 || n > 1<<31-1 {
			return fmt.Errorf("the split of batches has %q as %v", key, sd[key])
		}
		v[i] = int(n)
	}
	p.most, p.bad, p.steps, p.retry = v[0], v[1], v[2], max(v[3], 1)
	return nil
}

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
	for _, v := range []any{b.X, b.Y, b.Nested.X, b.Nested.Y} {
		walk(v)
	}
	return out
}

// scopeOf returns the scope in which a batch is computed: the innermost scope of its tensors.
func scopeOf(b *data.Batch) *tensor.Scope {
	if list := tensorsOf(b); len(list) > 0 {
		return tensor.Youngest(list...)
	}
	return tensor.Root()
}

// indivisible returns the reason why a batch of n samples cannot be divided, or "" if it can.
func indivisible(b *data.Batch, n int) (reason string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case *tensor.Tensor:
			if v != nil && v.Rank() > 0 && v.Dim(0) != n {
				reason = fmt.Sprintf("the batch cannot be split into parts: it is of %d samples, and one of its tensors has the shape %v; "+
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
				reason = fmt.Sprintf("the batch cannot be split into parts: it is of %d samples, and a list of texts in it has %d", n, len(v))
			}
		default:
			reason = fmt.Sprintf("the batch cannot be split into parts: it holds a %T", v)
		}
	}
	for _, v := range []any{b.X, b.Y, b.Nested.X, b.Nested.Y} {
		walk(v)
	}
	return reason
}

// perSample reports whether a list has one element for each of n samples. In any other list, each
// tensor holds all samples.
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

// part returns the samples start … end-1 of a batch of n samples, as a batch in scope s and on the
// device of s. b does not change.
func part(s *tensor.Scope, b *data.Batch, start, end, n int) *data.Batch {
	whole := end-start == n
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
				x = x.Narrow(0, start, end-start)
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
				v = v[start:end]
			}
			out := make([]any, len(v))
			for i, e := range v {
				if t, ok := e.(*tensor.Tensor); ok && each && t != nil {
					out[i] = s.From(t.In(s)) // t belongs to a single sample
				} else {
					out[i] = walk(e)
				}
			}
			return out
		case []string:
			if !whole {
				return v[start:end:end]
			}
			return v
		}
		return v
	}
	out := &data.Batch{Index: b.Index}
	if !whole && len(b.Index) == n {
		out.Index = b.Index[start:end:end]
	}
	out.X, out.Nested.X = walk(b.X).(*tensor.Tensor), walk(b.Nested.X)
	clear(seen) // a target that is also an input needs its own handle
	out.Y, out.Nested.Y = walk(b.Y).(*tensor.Tensor), walk(b.Nested.Y)
	return out
}
