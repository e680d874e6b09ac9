package device

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Work is what a primitive does: the arithmetic operations of its definition, and the bytes that it
// must at least read and write. A driver may do more (a second pass over a row, padding of a tile)
// or less traffic (what a cache holds). The roofline follows from the work of the definition: time
// ≥ max(FLOPs / peak arithmetic, Bytes / peak bandwidth) (S. Williams, A. Waterman, D. Patterson,
// "Roofline", CACM 52(4), 2009).
//
// A multiplication and an addition count as two. Of an expression every operation counts as one,
// also comparisons, conversions and integer arithmetic: exp is the twenty or so instructions that
// it is. An operand that is broadcast is read once.
type Work struct {
	FLOPs, Bytes int
}

// Add returns the work of both.
func (w Work) Add(v Work) Work { return Work{w.FLOPs + v.FLOPs, w.Bytes + v.Bytes} }

// Intensity is FLOPs a byte, 0 for no bytes.
func (w Work) Intensity() float64 {
	if w.Bytes == 0 {
		return 0
	}
	return float64(w.FLOPs) / float64(w.Bytes)
}

// A Class says what the time of a primitive grows with.
type Class uint8

// The classes of primitives.
const (
	ByBytes Class = iota // the memory that it reads and writes
	// the operations of matrix products, of which a byte has very different numbers
	ByProducts
	ByExpression // its memory, and the operations of an expression for each element
)

func classOf(op Op) Class {
	switch op.(type) {
	case *MatMul, *Convolution, *Attention, *AttentionGrad:
		return ByProducts
	case *Map, *MultiMap:
		return ByExpression
	}
	return ByBytes
}

// bytesOf is the memory that views touch, each element once however often it is broadcast.
func bytesOf(views ...View) int {
	n := 0
	for i := range views {
		n += touched(&views[i])
	}
	return n
}

func touched(v *View) int {
	if v.Absent() {
		return 0
	}
	n := v.Type.Size()
	for i := range v.Shape.Rank() {
		if v.Strides.At(i) != 0 || v.Shape.At(i) == 0 {
			n *= v.Shape.At(i)
		}
	}
	return n
}

// expCost is the number of operations of exp in float32, as package expr writes it.
var expCost = expr.MustLower([]*expr.Expr{expr.X(0).Exp()}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1).Cost()

// A Peak is what a device can do at most, by its makers' numbers or by measurement.
type Peak struct {
	FLOPs float64 // a second, of float32 arithmetic
	// a second, of products of 16-bit floats: tensor cores where there are some; 0 for FLOPs
	Half   float64
	Bytes  float64 // a second, of its memory
	Source string  // where the numbers are from
}

// Peaker is satisfied by devices that know their peak.
type Peaker interface {
	// Peak fails for a device whose driver does not tell.
	Peak() (Peak, error)
}
