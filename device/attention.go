package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Weighing describes how an attention computes its weights, softmax(Scale·Q·Kᵀ + mask), from
// queries Q and keys K. The softmax of a query runs over the keys that are visible to it. A key is
// visible to a query if Causal, Lengths and Mask all allow it. If a query sees no key, its result
// is 0, and its gradients are 0.
type Weighing struct {
	Scale  float64
	Causal bool // query i sees only the keys 0 to i
	// Lengths is an I64 view of shape [batch]: the number of keys of each sample. Keys at later
	// positions are not visible.
	Lengths View
	// Mask has the shape [batch, heads, queries, keys] and is often broadcast. A Mask of Bool is
	// true where the query sees the key. A Mask of type F32, or of Q's and K's type, is added to
	// the products Scale·Q·Kᵀ.
	Mask View
	// Drop is the probability with which dropout sets a weight to 0. The other weights are
	// multiplied by 1/(1-Drop). Let r be the row-major index of a row of weights in [batch, heads,
	// queries]. Dropout keeps the weight of key k if [expr.RandomKeeps] returns true for Seed,
	// Offset and the index r·[RowNumbers](keys) + k.
	Drop         float64
	Seed, Offset uint64
	// Numbers is an I64 view with two elements. The first replaces Seed, and the second is added to
	// Offset. The view is read at each replay of a captured step, so each replay can draw new
	// random numbers.
	Numbers View
}

// RowNumbers returns how many random numbers dropout draws for one row of attention weights: the
// number of keys, rounded up to a multiple of four.
func RowNumbers(keys int) int { return (keys + 3) &^ 3 }

// Rest returns 1/(1-Drop), or 0 if Drop is 1. Dropout multiplies the weights that it keeps by this
// factor.
func (w *Weighing) Rest() float64 {
	if w.Drop >= 1 {
		return 0
	}
	return 1 / (1 - w.Drop)
}

// Plain reports whether w has no mask, no lengths and no dropout. A plain attention may be causal.
func (w *Weighing) Plain() bool { return w.Lengths.Absent() && w.Mask.Absent() && w.Drop == 0 }

// Attention sets Out [batch, heads, queries, values] to softmax(Scale·Q·Kᵀ + mask)·V. Q is [batch,
// heads, queries, features], K [batch, heads/g, keys, features] and V [batch, heads/g, keys,
// values]: g neighbouring heads of queries share one head of keys. The weights are computed block
// by block: the matrix of all weights is never in memory. Out, Q, K and V have the same
// floating-point type, and none of them has a negative stride. For 16-bit types, products and sums
// are computed in float32.
//
// LSE is a contiguous view of shape [batch, heads, queries], in the type in which Out is computed.
// For each query, LSE gets the logarithm of the sum of exponentials of the query's scores, or +Inf
// if the query sees no key. The gradient op reads LSE. LSE may be absent.
type Attention struct {
	Out, LSE, Q, K, V View
	Weighing
}

// Name returns "attention".
func (*Attention) Name() string { return "attention" }

// Operand returns operand i: the results come first, then the inputs.
func (o *Attention) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"lse", &o.LSE, true},
		Operand{"q", &o.Q, false}, Operand{"k", &o.K, false}, Operand{"v", &o.V, false},
		Operand{"mask", &o.Mask, false}, Operand{"lengths", &o.Lengths, false},
		Operand{"numbers", &o.Numbers, false})
}

// Check checks the shapes and types of the operands.
func (o *Attention) Check() (arg, reason string) {
	return o.check(&o.Q, &o.K, &o.V, &o.LSE, Operand{"out", &o.Out, true})
}

// Work counts the operations of two products (Q·Kᵀ and weights·V) and of a softmax. For a causal op
// it counts only the weights of visible keys.
func (o *Attention) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	f, v := o.Q.Shape.At(3), o.V.Shape.At(3)
	return Work{o.weights(&o.Q, &o.K) * (2*f + 2*v + 4 + expCost),
		bytesOf(o.Out, o.LSE, o.Q, o.K, o.V, o.Mask, o.Lengths, o.Numbers)}
}

// Clone copies the op.
func (o *Attention) Clone() Op { c := *o; return &c }

// AttentionGrad sets DQ, DK and DV to the gradients of an [Attention] with the result Out. G is the
// gradient of Out. DQ, DK and DV have the shapes of Q, K and V. Each of them may be absent. The
// weights are recomputed from Q, K and LSE (T. Dao and others, arXiv:2205.14135). The sums are
// added in an order that depends only on the shapes. No gradient of Mask is computed.
type AttentionGrad struct {
	DQ, DK, DV, G, Q, K, V, Out, LSE View
	Weighing
}

// Name returns "attention gradient".
func (*AttentionGrad) Name() string { return "attention gradient" }

// Operand returns operand i: the results come first, then the inputs.
func (o *AttentionGrad) Operand(i int) Operand {
	return nth(i, Operand{"dq", &o.DQ, true}, Operand{"dk", &o.DK, true},
		Operand{"dv", &o.DV, true}, Operand{"g", &o.G, false}, Operand{"q", &o.Q, false},
		Operand{"k", &o.K, false}, Operand{"v", &o.V, false}, Operand{"out", &o.Out, false},
		Operand{"lse", &o.LSE, false}, Operand{"mask", &o.Mask, false},
		Operand{"lengths", &o.Lengths, false}, Operand{"numbers", &o.Numbers, false})
}

// Check checks the shapes and types of the operands.
func (o *AttentionGrad) Check() (arg, reason string) {
	if o.LSE.Absent() {
		return "lse", "absent"
	}
	arg, reason = o.check(&o.Q, &o.K, &o.V, &o.LSE, Operand{"out", &o.Out, false},
		Operand{"g", &o.G, false})
	for i, x := range []*View{&o.Q, &o.K, &o.V} {
		d := o.Operand(i)
		if reason != "" || d.View.Absent() {
			continue
		}
		if d.View.Type != x.Type || d.View.Shape != x.Shape {
			return d.Name, wrong(d.View, x.Type, x.Shape)
		}
		if reason := d.View.backwards(); reason != "" {
			return d.Name, reason
		}
	}
	return arg, reason
}

// Work counts the operations that recompute the weights, and five matrix products: Q·Kᵀ, the
// gradient of the weights, DQ, DK and DV. It leaves out the products that only absent gradients
// need.
func (o *AttentionGrad) Work() Work {
	if o.Out.Size() == 0 || o.DQ.Absent() && o.DK.Absent() && o.DV.Absent() {
		return Work{}
	}
	f, v := o.Q.Shape.At(3), o.V.Shape.At(3)
	each := 2*f + 2 + expCost
	if !o.DV.Absent() {
		each += 2 * v
	}
	if !o.DQ.Absent() || !o.DK.Absent() {
		each += 2*v + 2
	}
	for _, d := range []*View{&o.DQ, &o.DK} {
		if !d.Absent() {
			each += 2 * f
		}
	}
	return Work{o.weights(&o.Q, &o.K) * each,
		bytesOf(o.DQ, o.DK, o.DV, o.G, o.Q, o.K, o.V, o.Out, o.LSE, o.Mask, o.Lengths, o.Numbers)}
}

// Clone copies the op.
func (o *AttentionGrad) Clone() Op { c := *o; return &c }

// weights returns the number of attention weights. For a causal op it counts only visible keys.
func (w *Weighing) weights(q, k *View) int {
	queries, keys := q.Shape.At(2), k.Shape.At(2)
	n := queries * keys
	if w.Causal {
		seen := min(queries, keys)
		n = seen*(seen+1)/2 + (queries-seen)*keys
	}
	return q.Shape.At(0) * q.Shape.At(1) * n
}

// backwards returns a reason if v has a negative stride, otherwise "".
func (v *View) backwards() (reason string) {
	for d := range v.Strides.Rank() {
		if v.Strides.At(d) < 0 {
			return fmt.Sprintf("strides %v", v.Strides)
		}
	}
	return ""
}

// check compares the operands' shapes and types with each other. Each view in results must have the
// shape of Out: [batch, heads, queries, values].
func (w *Weighing) check(q, k, v, lse *View, results ...Operand) (arg, reason string) {
	operands := [...]Operand{{"q", q, false}, {"k", k, false}, {"v", v, false}}
	for _, list := range [...][]Operand{operands[:], results} {
		for _, o := range list {
			if !o.View.Type.IsFloat() || o.View.Type != q.Type || o.View.Shape.Rank() != 4 {
				return o.Name, fmt.Sprintf("%v of %v, want four dimensions of %v, a floating point type",
					o.View.Shape, o.View.Type, q.Type)
			}
			if reason := o.View.backwards(); reason != "" {
				return o.Name, reason
			}
		}
	}
	batch, heads, queries, keys := q.Shape.At(0), q.Shape.At(1), q.Shape.At(2), k.Shape.At(2)
	shared := k.Shape.At(1)
	if k.Shape.At(0) != batch || shared == 0 && heads > 0 || shared > 0 && heads%shared != 0 ||
		k.Shape.At(3) != q.Shape.At(3) {
		return "k", fmt.Sprintf("%v for queries of %v", k.Shape, q.Shape)
	}
	if v.Shape.Head(3) != k.Shape.Head(3) {
		return "v", fmt.Sprintf("%v for keys of %v", v.Shape, k.Shape)
	}
	want := q.Shape.With(3, v.Shape.At(3))
	for _, o := range results {
		if o.View.Shape != want {
			return o.Name, wrong(o.View, q.Type, want)
		}
	}
	if rows := want.Head(3); !lse.Absent() && (lse.Shape != rows || lse.Type != q.Type.Compute() || !lse.Contiguous()) {
		return "lse", sparse(lse, q.Type.Compute(), rows)
	}
	if m := &w.Mask; !m.Absent() {
		weights := shape.Of(batch, heads, queries, keys)
		if m.Shape != weights || m.Type != dtype.Bool && m.Type != dtype.F32 && m.Type != q.Type {
			return "mask", wrong(m, dtype.Bool, weights)
		}
	}
	if n := &w.Lengths; !n.Absent() && (n.Shape != shape.Of(batch) || n.Type != dtype.I64) {
		return "lengths", wrong(n, dtype.I64, shape.Of(batch))
	}
	if n := &w.Numbers; !n.Absent() && (n.Shape != shape.Of(2) || n.Type != dtype.I64) {
		return "numbers", wrong(n, dtype.I64, shape.Of(2))
	}
	if !(w.Drop >= 0 && w.Drop <= 1) {
		return "drop", fmt.Sprintf("%v is not a probability", w.Drop)
	}
	return "", ""
}
