package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// inChild runs f in a child of the innermost scope of the operands, and moves f's result out of the
// child. An operand may be nil. Closing the child frees the other tensors that f allocates, unless
// a gradient needs them.
func inChild(f func(c *tensor.Scope) *tensor.Tensor, operands ...*tensor.Tensor) *tensor.Tensor {
	return runInChild(tensor.Youngest(slices.DeleteFunc(operands, func(x *tensor.Tensor) bool { return x == nil })...), f)
}

// Table is the common part of the embedding layers: a matrix of learnt rows, which are looked up by
// row number.
type Table struct {
	Base
	Weight *tensor.Tensor `nn:"weight"` // [rows, features]

	Padding *int // number of the row that gets no gradient, nil for none; see [PaddingIndex]
	// MaxNorm is the greatest norm of a row, or 0 for no limit. A lookup first scales the rows that
	// it uses down to this norm, in place.
	MaxNorm  float64
	NormType float64 // the p of the p-norm that MaxNorm limits; 0 means 2
	// ScaleGradByFreq divides the gradient of a row by the number of times that the batch looks
	// up the row.
	ScaleGradByFreq bool
}

func newTable(rows, features int, o layerOptions) Table {
	if rows < 1 || features < 0 {
		panic(wrong(o.layer, fmt.Sprintf("a table of %d rows and %d features", rows, features)))
	}
	t := Table{Weight: o.parameters().Empty(rows, features), Padding: o.row, NormType: 2}
	initial.Normal(t.Weight, 0, 1)
	if p := t.Padding; p != nil {
		if *p < -rows || *p >= rows {
			panic(wrong(o.layer, fmt.Sprintf("the padding index %d is out of range for %d rows", *p, rows)))
		}
		t.Weight.Scope().Do(func(c *tensor.Scope) { t.Weight.In(c).Select(0, *p).Zero() }, tensor.NoGrad())
	}
	t.Weight.RequiresGrad()
	return t
}

func tableOf(layer string, w *tensor.Tensor, opts []Option) Table {
	requireUsable("embedding", w)
	if w.Rank() != 2 {
		misuse("embedding", tensor.ErrShape, fmt.Sprintf("the table must be a matrix [rows, features], it has shape %v", w.Shape()), w)
	}
	return Table{Weight: w.SetRequiresGrad(false), Padding: accept(layer, opts, lookup).row, NormType: 2}
}

// rows returns the rows of the table whose numbers are in index, a tensor of any shape.
func (t *Table) rows(index *tensor.Tensor) *tensor.Tensor {
	requireUsable("embedding", index, t.Weight)
	if t.MaxNorm > 0 && index.Size() > 0 {
		t.renorm(index)
	}
	var y *tensor.Tensor
	w := t.Weight.In(tensor.Youngest(t.Weight, index))
	if t.Padding != nil {
		y = w.EmbeddingPadded(index, *t.Padding)
	} else {
		y = w.Embedding(index)
	}
	if t.ScaleGradByFreq && y.NeedsGrad() {
		y = tensor.Apply(&frequencyFunc{t.Weight.Dim(0)}, y, index)
	}
	return y
}

// renorm scales the rows whose numbers are in index down to the norm MaxNorm, in place, on the
// device.
func (t *Table) renorm(index *tensor.Tensor) {
	p := t.NormType
	if p == 0 {
		p = 2
	}
	tensor.Youngest(t.Weight, index).Do(func(c *tensor.Scope) { t.Weight.In(c).EmbeddingRenormInPlace(index, t.MaxNorm, p) }, tensor.NoGrad())
}

// frequencyFunc returns the looked-up rows X(0) unchanged. In Backward it divides the gradient of
// each row by the number of times that the row occurs in the index X(1).
type frequencyFunc struct{ rows int }

func (*frequencyFunc) Name() string { return "embedding" }

func (f *frequencyFunc) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	c.Save(in[1])
	return in[0]
}

func (f *frequencyFunc) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	index := c.Saved(0)
	at := index.Reshape(-1)
	m := c.Scope().On(g.Device()).Typed(g.Type())
	if g.Type().Size() < 4 {
		m = m.Typed(dtype.F32) // 16 bits cannot represent every number of lookups
	}
	n := m.Zeros(f.rows).IndexAdd(0, at, m.Ones(at.Size()), 1).IndexSelect(0, at)
	return []*tensor.Tensor{g.Div(n.Cast(g.Type()).Reshape(index.Shape().Append(1).Slice()...)), nil}
}

// Embedding is a table of learnt vectors, which are looked up by row number. Its settings are the
// fields of [Table].
type Embedding struct{ Table }

// NewEmbedding returns a table whose Weight is [rows, features]. As in torch the values are drawn
// from the normal distribution with mean 0 and deviation 1. [PaddingIndex] makes one row the
// padding.
func NewEmbedding(rows, features int, opts ...Option) *Embedding {
	return &Embedding{newTable(rows, features, options("Embedding", opts, lookup...))}
}

// EmbeddingFromPretrained returns a layer whose weight is w, [rows, features], without a copy, and
// freezes w: torch's from_pretrained. [Unfreeze] makes it trainable.
func EmbeddingFromPretrained(w *tensor.Tensor, opts ...Option) *Embedding {
	return &Embedding{tableOf("Embedding", w, opts)}
}

// Forward maps row numbers to their vectors. x is int64 or int32, of any shape. The result has the
// shape of x followed by a dimension of features. A row number that does not exist is an index
// error. A GPU reports the error at the next wait.
func (l *Embedding) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return l.rows(x)
}

// A BagMode says how the layer combines the vectors of a bag into one vector.
type BagMode uint8

// These are the modes of bags. In each mode an empty bag results in a vector of zeros.
const (
	BagMean BagMode = iota // torch's default
	BagSum
	// BagMax takes the maximum. Its gradient goes to the first of equal elements. NaN counts as
	// the greatest value at any position. In torch it counts as the greatest only if it is the
	// first element of its bag.
	BagMax
)

// String returns torch's name of the mode.
func (m BagMode) String() string {
	if m > BagMax {
		return fmt.Sprintf("BagMode(%d)", uint8(m))
	}
	return [...]string{"mean", "sum", "max"}[m]
}

// EmbeddingBag looks up bags of vectors and combines each bag into one vector.
type EmbeddingBag struct {
	Table
	Mode BagMode
	// the last offset is the end of the last bag instead of the start of one more bag
	IncludeLastOffset bool
}

// NewEmbeddingBag returns a layer with the same table and the same options as [NewEmbedding].
func NewEmbeddingBag(rows, features int, mode BagMode, opts ...Option) *EmbeddingBag {
	return &EmbeddingBag{Table: newTable(rows, features, options("EmbeddingBag", opts, lookup...)), Mode: mode}
}

// EmbeddingBagFromPretrained returns a layer whose weight is w, [rows, features], without a copy,
// and freezes w. [Unfreeze] makes it trainable.
func EmbeddingBagFromPretrained(w *tensor.Tensor, mode BagMode, opts ...Option) *EmbeddingBag {
	return &EmbeddingBag{Table: tableOf("EmbeddingBag", w, opts), Mode: mode}
}

// Forward maps bags of equal size to [bags, features]. x is [bags, n]: each row of x holds the row
// numbers of one bag.
func (l *EmbeddingBag) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return l.Bags(x, nil, nil)
}

// Bags is Forward with the further arguments of torch's forward. If x is a vector, bag i consists
// of the elements from offsets[i] up to offsets[i+1]. offsets has an integer type, begins with 0
// and never decreases. If x is a matrix, its rows are the bags and offsets is nil. weights multiply
// the vectors. weights has x's shape and the table's type, or is nil. Only BagSum accepts weights.
//
// Bags does not read offsets back from the device. If offsets decrease, the result is meaningless.
// A first offset other than 0 is an index error. A GPU reports the error at the next wait. The
// vectors of all bags are in memory at the same time.
func (l *EmbeddingBag) Bags(x, offsets, weights *tensor.Tensor) *tensor.Tensor {
	const op = "embedding_bag"
	requireUsable(op, x, l.Weight)
	switch {
	case l.Mode > BagMax:
		misuse(op, tensor.ErrValue, fmt.Sprintf("there is no mode %v", l.Mode), x)
	case x.Rank() != 1 && x.Rank() != 2:
		misuse(op, tensor.ErrShape, fmt.Sprintf("bags are a matrix, or a vector with offsets, not of shape %v", x.Shape()), x)
	case x.Rank() == 2 && offsets != nil:
		misuse(op, tensor.ErrValue, "a matrix of bags has no offsets: its rows are the bags", x, offsets)
	case x.Rank() == 1 && offsets == nil:
		misuse(op, tensor.ErrValue, "a vector needs the offsets of its bags", x)
	case offsets != nil && (offsets.Rank() != 1 || l.IncludeLastOffset && offsets.Size() == 0):
		misuse(op, tensor.ErrShape, fmt.Sprintf("the offsets are a vector, with one entry at least if the last is included, not of shape %v", offsets.Shape()), x, offsets)
	case offsets != nil && offsets.Type().IsFloat():
		misuse(op, tensor.ErrType, fmt.Sprintf("the offsets are integers, not %v", offsets.Type()), x, offsets)
	case weights != nil && l.Mode != BagSum:
		misuse(op, tensor.ErrValue, fmt.Sprintf("weights go with the mode sum alone, this is %v", l.Mode), x, weights)
	case weights != nil && (weights.Shape() != x.Shape() || weights.Type() != l.Weight.Type()):
		misuse(op, tensor.ErrShape, fmt.Sprintf("the weights have the shape of the numbers and the type of the table, not %v of %v", weights.Shape(), weights.Type()), x, weights)
	case l.ScaleGradByFreq && l.Mode == BagMax:
		misuse(op, tensor.ErrValue, "the mode max does not scale gradients by frequency", x)
	}
	operands := []*tensor.Tensor{x, l.Weight}
	for _, t := range []*tensor.Tensor{offsets, weights} {
		if t != nil {
			operands = append(operands, t)
		}
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor { return l.bags(c, x.In(c), offsets, weights) }, operands...)
}

func (l *EmbeddingBag) bags(c *tensor.Scope, x, offsets, weights *tensor.Tensor) *tensor.Tensor {
	n, width := x.Size(), l.Weight.Dim(1)
	dev := c.On(x.Device())
	at := dev.Typed(dtype.I64).Arange(n)
	var bags int
	var bag *tensor.Tensor // the number of the bag of each element
	if offsets == nil {
		bags = x.Dim(0)
		bag = at.FloorDivideScalar(float64(max(1, x.Dim(1))))
		x = x.Reshape(-1)
	} else {
		bags = offsets.Size()
		if offsets = offsets.In(c); l.IncludeLastOffset {
			bags--
			offsets = offsets.Narrow(0, 0, bags)
		}
		bag = offsets.Cast(dtype.I64).Searchsorted(at, true).SubScalar(1)
	}
	rows := l.rows(x)
	m := dev.Typed(rows.Type())
	if weights != nil {
		rows = rows.Mul(weights.In(c).Reshape(n, 1))
	}
	var pads *tensor.Tensor
	if l.Padding != nil {
		p := *l.Padding
		if p < 0 {
			p += l.Weight.Dim(0)
		}
		pads = x.EqScalar(float64(p)).Unsqueeze(1)
	}
	if l.Mode == BagMax {
		return bagMax(m, rows, bag, at, pads, bags)
	}
	if pads != nil {
		rows = rows.MaskedFill(pads, 0)
	}
	y := m.Zeros(bags, width).IndexAdd(0, bag, rows, 1)
	if l.Mode == BagMean {
		ones := dev.Typed(dtype.F32).Ones(n)
		if pads != nil {
			ones = ones.MaskedFill(pads.Squeeze(1), 0)
		}
		y = y.Div(dev.Typed(dtype.F32).Zeros(bags).IndexAdd(0, bag, ones, 1).ClampMin(1).Cast(y.Type()).Unsqueeze(1))
	}
	return y
}

// bagMax returns the maximum of each bag. It ignores elements where pads is true. It gathers each
// maximum from its first position, which alone gets the gradient.
func bagMax(m tensor.Maker, rows, bag, at, pads *tensor.Tensor, bags int) *tensor.Tensor {
	n, width := rows.Dim(0), rows.Dim(1)
	if n == 0 {
		// The term 0·sum makes the result depend on rows, so that the graph contains rows even if
		// there are no bags.
		return m.Zeros(bags, width).Add(rows.Sum().MulScalar(0))
	}
	to := bag.Unsqueeze(1).Expand(n, width)
	plain := rows.Detach()
	most := m.Zeros(bags, width)
	seen := plain
	if pads != nil {
		seen = seen.MaskedFill(pads, math.Inf(-1))
	}
	most = most.ScatterReduce(0, to, seen, "amax", false)
	best := seen.Eq(most.Gather(0, to)).LogicalOr(seen.IsNaN())
	if pads != nil {
		best = best.LogicalAnd(pads.LogicalNot())
	}
	place := at.Unsqueeze(1).Expand(n, width).MaskedFill(best.LogicalNot(), float64(n))
	none := at.Narrow(0, 0, 1).MulScalar(0).AddScalar(float64(n)).Expand(bags, width)
	first := none.ScatterReduce(0, to, place, "amin", true)
	return rows.Gather(0, first.ClampMax(float64(n-1))).MaskedFill(first.EqScalar(float64(n)), 0)
}
