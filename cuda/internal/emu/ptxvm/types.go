package ptxvm

// Type is a PTX fundamental type.
type Type uint8

// The types, by their PTX names.
const (
	noType Type = iota
	Pred
	B8
	B16
	B32
	B64
	B128
	U8
	U16
	U32
	U64
	S8
	S16
	S32
	S64
	F16
	F16x2
	BF16
	BF16x2
	TF32
	F32
	F64
)

var typeNames = [...]string{noType: "?", Pred: "pred", B8: "b8", B16: "b16", B32: "b32", B64: "b64", B128: "b128", U8: "u8", U16: "u16", U32: "u32", U64: "u64",
	S8: "s8", S16: "s16", S32: "s32", S64: "s64", F16: "f16", F16x2: "f16x2", BF16: "bf16", BF16x2: "bf16x2", TF32: "tf32", F32: "f32", F64: "f64"}

var typeByName = func() map[string]Type {
	m := map[string]Type{}
	for t, n := range typeNames {
		if t != 0 {
			m[n] = Type(t)
		}
	}
	return m
}()

func (t Type) String() string { return typeNames[t] }

// Size returns the size in bytes, or 0 for predicates.
func (t Type) Size() int {
	switch t {
	case B8, U8, S8:
		return 1
	case B16, U16, S16, F16, BF16:
		return 2
	case B32, U32, S32, F16x2, BF16x2, TF32, F32:
		return 4
	case B64, U64, S64, F64:
		return 8
	case B128:
		return 16
	}
	return 0
}

func (t Type) bits() int      { return 8 * t.Size() }
func (t Type) untyped() bool  { return t >= B8 && t <= B128 }
func (t Type) unsigned() bool { return t >= U8 && t <= U64 }
func (t Type) signed() bool   { return t >= S8 && t <= S64 }
func (t Type) integer() bool  { return t.unsigned() || t.signed() }
func (t Type) float() bool    { return t >= F16 }

// mask returns the mask of the value bits of a type of up to 64 bits.
func (t Type) mask() uint64 {
	if n := t.bits(); n < 64 {
		return 1<<n - 1
	}
	return ^uint64(0)
}

// space is a PTX state space.
type space uint8

const (
	spGeneric space = iota
	spGlobal
	spShared
	spLocal
	spParam
	spConst
)

var spaceNames = [...]string{"generic", "global", "shared", "local", "param", "const"}

func (s space) String() string { return spaceNames[s] }

// Ranges of the generic address space. Global addresses lie below all of them.
const (
	windowShift = 56
	winShared   = uint64(1) << windowShift
	winLocal    = uint64(2) << windowShift
	winConst    = uint64(3) << windowShift
	winParam    = uint64(4) << windowShift
	winMask     = uint64(1)<<windowShift - 1
)

// sharedOrigin is the first valid shared-space address. Hardware of compute capability 9 reserves
// the bytes below it.
const sharedOrigin = 1024
