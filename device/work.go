package device

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Work counts the arithmetic operations in the definition of a primitive, and the least number of
// bytes that it must read and write. A driver may do more operations (a second pass over a row,
// padding of a tile). It may transfer fewer bytes if a cache holds the data. These counts give the
// roofline of the primitive: time ≥ max(FLOPs / peak arithmetic, Bytes / peak bandwidth) (S.
// Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009).
//
// A multiplication followed by an addition counts as two operations. In an expression every
// operation counts as one, including comparisons, conversions and integer arithmetic. A function
// such as exp counts as the operations of its implementation, about twenty. An operand that is
// broadcast is read once.
type Work struct {
	FLOPs, Bytes int
}

// Add returns the sum of two Works.
func (w Work) Add(v Work) Work { return Work{w.FLOPs + v.FLOPs, w.Bytes + v.Bytes} }

// Intensity returns FLOPs divided by Bytes, or 0 if Bytes is 0.
func (w Work) Intensity() float64 {
	if w.Bytes == 0 {
		return 0
	}
	return float64(w.FLOPs) / float64(w.Bytes)
}

// Class says what limits the speed of a primitive.
type Class uint8

// These are the classes of primitives.
const (
	ByBytes Class = iota // memory traffic determines the time
	// the operations of matrix products determine the time; the number of operations per byte
	// varies widely
	ByProducts
	// memory traffic and the operations of an expression for each element determine the time
	ByExpression
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

// bytesOf returns the number of bytes of the views. Each stored element counts once, even if it is
// broadcast.
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

// expCost is the number of operations of exp in float32, as package expr implements it.
var expCost = expr.MustLower([]*expr.Expr{expr.X(0).Exp()}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1).Cost()

// Peak holds the peak rates of a device, as its maker states them or as measured.
type Peak struct {
	FLOPs float64 // float32 operations per second
	// operations per second in products of 16-bit floats, with tensor cores if there are any; 0
	// means the same rate as FLOPs
	Half   float64
	Bytes  float64 // memory bandwidth in bytes per second
	Source string  // where the numbers come from
}

// Peaker is satisfied by devices that know their peak rates.
type Peaker interface {
	// Peak returns the peak rates. It returns an error if the device's driver does not report the
	// numbers.
	Peak() (Peak, error)
}
