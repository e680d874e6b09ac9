package ptx

import "fmt"

// Type is the type of a register value or of a memory element.
type Type uint8

// These are the types. Pred is a predicate (truth value). B16, B32 and B64 are bits without an
// interpretation. U8 and S8 exist in memory only: their elements are loaded into U32 and S32
// registers. F16 and BF16 are held in 16-bit registers, and can only be loaded, stored, converted
// and bit-cast.
const (
	Invalid Type = iota
	Pred
	U8
	S8
	B16
	U16
	S16
	F16
	BF16
	B32
	U32
	S32
	F32
	B64
	U64
	S64
	F64
)

type kind uint8

const (
	kindNone kind = iota
	kindPred
	kindBits
	kindUnsigned
	kindSigned
	kindFloat
)

var typeTable = [...]struct {
	name string
	bits int
	kind kind
}{
	Invalid: {"invalid", 0, kindNone},
	Pred:    {"pred", 1, kindPred},
	U8:      {"u8", 8, kindUnsigned},
	S8:      {"s8", 8, kindSigned},
	B16:     {"b16", 16, kindBits},
	U16:     {"u16", 16, kindUnsigned},
	S16:     {"s16", 16, kindSigned},
	F16:     {"f16", 16, kindFloat},
	BF16:    {"bf16", 16, kindFloat},
	B32:     {"b32", 32, kindBits},
	U32:     {"u32", 32, kindUnsigned},
	S32:     {"s32", 32, kindSigned},
	F32:     {"f32", 32, kindFloat},
	B64:     {"b64", 64, kindBits},
	U64:     {"u64", 64, kindUnsigned},
	S64:     {"s64", 64, kindSigned},
	F64:     {"f64", 64, kindFloat},
}

// String returns the PTX name of t, such as "f32".
func (t Type) String() string {
	if int(t) < len(typeTable) {
		return typeTable[t].name
	}
	return fmt.Sprintf("ptx.Type(%d)", uint8(t))
}

// Bits returns the width of t in bits; 1 for Pred.
func (t Type) Bits() int { return typeTable[t].bits }

// Size returns the width of t in bytes. For Pred it returns 0.
func (t Type) Size() int { return typeTable[t].bits / 8 }

// IsFloat reports whether t is a floating-point type.
func (t Type) IsFloat() bool { return typeTable[t].kind == kindFloat }

// IsInt reports whether t is a signed or unsigned integer type.
func (t Type) IsInt() bool { return t.IsSigned() || t.IsUnsigned() }

// IsSigned reports whether t is a signed integer type.
func (t Type) IsSigned() bool { return typeTable[t].kind == kindSigned }

// IsUnsigned reports whether t is an unsigned integer type.
func (t Type) IsUnsigned() bool { return typeTable[t].kind == kindUnsigned }

// bitsType returns the untyped form of t: the same register class without an interpretation.
func (t Type) bitsType() Type {
	switch t.Bits() {
	case 1:
		return Pred
	case 16:
		return B16
	case 32:
		return B32
	case 64:
		return B64
	}
	return t
}

// register returns the type of a register into which an element of t is loaded.
func (t Type) register() Type {
	switch t {
	case U8:
		return U32
	case S8:
		return S32
	}
	return t
}

// memoryName returns the name of t in loads and stores.
func (t Type) memoryName() string {
	if t == F16 || t == BF16 {
		return "b16"
	}
	return t.String()
}

// classes lists the register classes, in the order in which they are declared in PTX.
var classes = []struct{ name, prefix string }{
	{"pred", "%p"}, {"b16", "%rs"}, {"b32", "%r"}, {"b64", "%rd"},
}

func (t Type) class() int {
	switch t.Bits() {
	case 1:
		return 0
	case 16:
		return 1
	case 32:
		return 2
	}
	return 3
}
