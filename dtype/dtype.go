// Package dtype names the ten element types of tensors and says how they combine.
//
// The methods of a [Type] return its size and its class: boolean, integer or floating point.
// [Promote] returns the type of a result from the types of its two operands. [Type.Compute] returns
// the type in which arithmetic is done. [Parse] reads torch's names. Go has no 16-bit floats, so
// this package defines [Float16] and [BFloat16].
//
// There are no complex types.
package dtype

import (
	"fmt"
	"strings"
)

// A Type is the element type of a tensor. The zero value is [Invalid].
type Type uint8

// These are the element types. Within each class they are in order of promotion.
const (
	Invalid Type = iota
	Bool         // one byte, 0 or 1
	U8           // unsigned 8-bit integer
	I8           // signed 8-bit integer
	I16          // signed 16-bit integer
	I32          // signed 32-bit integer
	I64          // signed 64-bit integer
	F16          // IEEE 754 binary16
	BF16         // bfloat16: the upper half of a binary32
	F32          // IEEE 754 binary32
	F64          // IEEE 754 binary64
	// unsigned 32-bit integer; used in expressions and for random bits, but not in tensors
	U32
	U64 // unsigned 64-bit integer; used in expressions, but not in tensors
	count
)

var info = [count]struct {
	name string
	size int
}{
	Invalid: {"invalid", 0},
	Bool:    {"bool", 1}, U8: {"uint8", 1}, I8: {"int8", 1}, I16: {"int16", 2}, I32: {"int32", 4}, I64: {"int64", 8},
	F16: {"float16", 2}, BF16: {"bfloat16", 2}, F32: {"float32", 4}, F64: {"float64", 8},
	U32: {"uint32", 4}, U64: {"uint64", 8},
}

// Types lists the types that a tensor may have.
func Types() []Type { return []Type{Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64} }

// String returns torch's name of the type, such as "float32".
func (t Type) String() string {
	if t < count {
		return info[t].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// Size returns the bytes of one element, or 0 for [Invalid].
func (t Type) Size() int {
	if t < count {
		return info[t].size
	}
	return 0
}

// IsFloat reports whether t is a floating point type.
func (t Type) IsFloat() bool { return t >= F16 && t <= F64 }

// IsHalf reports whether t is a 16-bit floating-point type, whose arithmetic is computed in
// float32.
func (t Type) IsHalf() bool { return t == F16 || t == BF16 }

// IsInteger reports whether t is an integer type. Bool is not one.
func (t Type) IsInteger() bool { return t >= U8 && t <= I64 || t == U32 || t == U64 }

// IsSigned reports whether t can hold negative numbers.
func (t Type) IsSigned() bool { return t >= I8 && t <= F64 }

// Compute returns the type in which arithmetic on t is computed. It is float32 for the 16-bit
// floats. It is int32 for narrow integers, whose results wrap to the width of t when they are
// stored. Otherwise it is t itself.
func (t Type) Compute() Type {
	switch t {
	case F16, BF16:
		return F32
	case U8, I8, I16:
		return I32
	}
	return t
}

// Promote returns the type of a result for operands of types a and b. It follows PyTorch's table
// for two tensors of dimension ≥ 1
// (https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).
func Promote(a, b Type) Type {
	switch {
	case a == b:
		return a
	case a == Invalid || b == Invalid:
		return Invalid
	case a == Bool:
		return b
	case b == Bool:
		return a
	case a.IsFloat() && b.IsFloat():
		if a.IsHalf() && b.IsHalf() {
			return F32
		}
		return max(a, b)
	case a.IsFloat():
		return a
	case b.IsFloat():
		return b
	case a == U8 && b >= I8 && b <= I64:
		return max(b, I16)
	case b == U8 && a >= I8 && a <= I64:
		return max(a, I16)
	}
	return max(a, b)
}

// Parse returns the type for a name that torch uses: "float32", "float", "half", "long" and so on.
func Parse(name string) (Type, error) {
	switch strings.TrimPrefix(name, "torch.") {
	case "float":
		return F32, nil
	case "double":
		return F64, nil
	case "half":
		return F16, nil
	case "int":
		return I32, nil
	case "long":
		return I64, nil
	case "short":
		return I16, nil
	}
	for _, t := range Types() {
		if t.String() == strings.TrimPrefix(name, "torch.") {
			return t, nil
		}
	}
	return Invalid, fmt.Errorf("dtype: unknown type %q (one of %v)", name, Types())
}

// Element is the set of Go types that hold one element. Float16 and BFloat16 hold 16-bit floats.
type Element interface {
	bool | uint8 | int8 | int16 | int32 | int64 | Float16 | BFloat16 | float32 | float64
}

// Of returns the element type for the Go type T.
func Of[T Element]() Type {
	var z T
	switch any(z).(type) {
	case bool:
		return Bool
	case uint8:
		return U8
	case int8:
		return I8
	case int16:
		return I16
	case int32:
		return I32
	case int64:
		return I64
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case float32:
		return F32
	}
	return F64
}
