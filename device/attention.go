package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Weighing says how queries weigh keys: with softmax(Scale·Q·Kᵀ + mask) over the keys that are
// seen. A key is seen if Causal, Lengths and Mask all let it be. A query that sees none weighs
// nothing: its result is 0, and so are gradients through it.
type Weighing struct {
	Scale  float64
	Causal bool // query i sees the keys 0 … i only
	// Lengths, I64 of [batch], is how many keys each sample has. Those behind are not seen.
	Lengths View
	// Mask, of [batch, heads, queries, keys], is often broadcast. It is of Bool, true where the
	// query sees the key, or of F32 or the operands' type and added to the scaled products.
	Mask View
	// Drop is the probability with which a weight becomes 0. Those that stay are multiplied by
	// 1/(1-Drop). Key k of row r, counted over [batch, heads, queries], stays if
	// [expr.RandomKeeps] says so for Seed, Offset and the index r·[RowNumbers](keys) + k.
	Drop         float64
	Seed, Offset uint64
	// Numbers, I64 of [2], holds a seed, which takes the place of Seed, and what is added to
	// Offset: a captured step draws other numbers in each replay.
	Numbers View
}

// RowNumbers is how many random numbers a row of so many weights has: whole blocks of four.
func RowNumbers(keys int) int { return (keys + 3) &^ 3 }

// Rest is what a weight that is not dropped is multiplied by.
func (w *Weighing) Rest() float64 {
	if w.Drop >= 1 {
		return 0
	}
	return 1 / (1 - w.Drop)
}

// Plain reports whether every query sees every key, or the causal ones, and no weight is dropped.
func (w *Weighing) Plain() bool { return w.Lengths.Absent() && w.Mask.Absent() && w.Drop == 0 }

// An Attention sets Out [batch, heads, queries, values] to softmax(Scale·Q·Kᵀ + mask)·V. Q is
// [batch, heads, queries, features], K [batch, heads/g, keys, features] and V [batch, heads/g,
// keys, values]. g neighbouring heads of queries share one head of keys. The weights of all queries
// and keys are never in memory at once. The views have one floating point type and any strides that
// are not negative. 16-bit floats are computed in float32.
//
// LSE, contiguous [batch, heads, queries] of the computing type, gets the logarithm of the sum of
// exponentials of each query's scores, and +Inf where it sees no key: the gradient reads it. It may
// be absent.
type Attention struct {
	Out, LSE, Q, K, V View
	Weighing
}

// Name returns "attention".
func (*Attention) Name() string { return "attention" }

// Operand returns the results, then the operands.
func (o *Attention) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"lse", &o.LSE, true},
		Operand{"q", &o.Q, false}, Operand{"k", &o.K, false}, Operand{"v", &o.V, false},
		Operand{"mask", &o.Mask, false}, Operand{"lengths", &o.Lengths, false},
		Operand{"numbers", &o.Numbers, false})
}

// Check compares the shapes and types.
func (o *Attention) Check() (arg, reason string) {
	return o.check(&o.Q, &o.K, &o.V, &o.LSE, Operand{"out", &o.Out, true})
}

// Work counts two products and a softmax of the weights, of which a causal one leaves out those
// that no query sees.
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

// An AttentionGrad sets DQ, DK and DV, which have the shapes of Q, K and V, to the gradients of an
// [Attention] with the result Out, of which G is the gradient. Those that are not wanted are
// absent. Weights are computed again from Q, K and LSE (T. Dao and others, arXiv:2205.14135). Sums
// are in an order that the shapes alone decide. A mask gets no gradient.
type AttentionGrad struct {
	DQ, DK, DV, G, Q, K, V, Out, LSE View
	Weighing
}

// Name returns "attention gradient".
func (*AttentionGrad) Name() string { return "attention gradient" }

// Operand returns the results, then the operands.
func (o *AttentionGrad) Operand(i int) Operand {
	return nth(i, Operand{"dq", &o.DQ, true}, Operand{"dk", &o.DK, true},
		Operand{"dv", &o.DV, true}, Operand{"g", &o.G, false}, Operand{"q", &o.Q, false},
		Operand{"k", &o.K, false}, Operand{"v", &o.V, false}, Operand{"out", &o.Out, false},
		Operand{"lse", &o.LSE, false}, Operand{"mask", &o.Mask, false},
		Operand{"lengths", &o.Lengths, false}, Operand{"numbers", &o.Numbers, false})
}

// Check compares the shapes and types.
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

// Work counts five products of the weights' size, or fewer where results are absent, and the
// weights.
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

// weights is how many weights there are: of a causal op those that are seen.
func (w *Weighing) weights(q, k *View) int {
	queries, keys := q.Shape.At(2), k.Shape.At(2)
	n := queries * keys
	if w.Causal {
		seen := min(queries, keys)
		n = seen*(seen+1)/2 + (queries-seen)*keys
	}
	return q.Shape.At(0) * q.Shape.At(1) * n
}

// backwards says which strides of v, which need not be as many as its dimensions, are negative.
func (v *View) backwards() (reason string) {
	for d := range v.Strides.Rank() {
		if v.Strides.At(d) < 0 {
			return fmt.Sprintf("strides %v", v.Strides)
		}
	}
	return ""
}

// check holds the operands to each other. results have the result's shape.
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
