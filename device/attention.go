package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// An Attention sets Out [heads, queries, values] to softmax(Scale·Q·Kᵀ)·V for Q [heads, queries,
// features], K [heads/g, keys, features] and V [heads/g, keys, values], where g neighbouring heads
// of queries share one of keys, without the weights of all queries and keys in memory. All are F32,
// and strides are not negative. If Causal, query i sees the keys 0 … i only. A query whose products
// are all minus infinity gives 0.
type Attention struct {
	Out, Q, K, V View
	Scale        float64
	Causal       bool
}

// Name returns "attention".
func (*Attention) Name() string { return "attention" }

// Operand returns the result, then the operands.
func (o *Attention) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"q", &o.Q, false},
		Operand{"k", &o.K, false}, Operand{"v", &o.V, false})
}

// Check compares the shapes and types.
func (o *Attention) Check() (arg, reason string) {
	for i := range 4 {
		o := o.Operand(i)
		if o.View.Type != dtype.F32 || o.View.Shape.Rank() != 3 {
			return o.Name, fmt.Sprintf("%v of %v, want three dimensions of float32", o.View.Shape, o.View.Type)
		}
		for k := range o.View.Strides.Rank() {
			if o.View.Strides.At(k) < 0 {
				return o.Name, fmt.Sprintf("strides %v", o.View.Strides)
			}
		}
	}
	q, k, v, out := &o.Q.Shape, &o.K.Shape, &o.V.Shape, &o.Out.Shape
	heads, shared := q.At(0), k.At(0)
	switch {
	case shared == 0 && heads > 0 || shared > 0 && heads%shared != 0 || k.At(2) != q.At(2):
		return "k", fmt.Sprintf("%v for queries of %v", *k, *q)
	case v.At(0) != shared || v.At(1) != k.At(1):
		return "v", fmt.Sprintf("%v for keys of %v", *v, *k)
	case out.At(0) != heads || out.At(1) != q.At(1) || out.At(2) != v.At(2):
		return "out", fmt.Sprintf("%v for queries of %v and values of %v", *out, *q, *v)
	}
	return "", ""
}

// Work counts two products and a softmax of the weights, of which a causal one leaves out those
// that no query sees.
func (o *Attention) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	queries, keys := o.Q.Shape.At(1), o.K.Shape.At(1)
	weights := queries * keys
	if o.Causal {
		seen := min(queries, keys)
		weights = seen*(seen+1)/2 + (queries-seen)*keys
	}
	return Work{o.Q.Shape.At(0) * weights * (2*o.Q.Shape.At(2) + 2*o.V.Shape.At(2) + 4 + expCost),
		bytesOf(o.Out, o.Q, o.K, o.V)}
}

// Clone copies the op.
func (o *Attention) Clone() Op { c := *o; return &c }
