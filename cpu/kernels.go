package cpu

import (
	"math"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// kernel runs one instruction on n elements: d is the result, and a, b and c are the operands. If
// the instruction has fewer operands, the others are nil.
type kernel func(d, a, b, c unsafe.Pointer, n int)

// maxBlock is the largest number of elements that a kernel computes in one call.
const maxBlock = 1024

var (
	// kernels by primitive and type: the operands' type for comparisons, otherwise the result's
	// type
	ops [expr.OpBitcast + 1][dtype.U64 + 1]kernel
	// conversions between types in which programs compute, by source and destination; nil if the
	// bits stay the same
	casts [dtype.U64 + 1][dtype.U64 + 1]kernel
	// conversions from the form in which elements of a type are stored to the form in which
	// programs compute, and back; nil if both forms are the same
	loads, stores [dtype.U64 + 1]kernel

	zeros [maxBlock]uint64
	ones  [maxBlock]uint32
)

func at[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

func unary[D, S any](f func(dst []D, a []S)) kernel {
	return func(d, a, _, _ unsafe.Pointer, n int) { f(at[D](d, n), at[S](a, n)) }
}

func binary[D, S any](f func(dst []D, a, b []S)) kernel {
	return func(d, a, b, _ unsafe.Pointer, n int) { f(at[D](d, n), at[S](a, n), at[S](b, n)) }
}

func ternary[D, M, S any](f func(dst []D, a []M, b, c []S)) kernel {
	return func(d, a, b, c unsafe.Pointer, n int) { f(at[D](d, n), at[M](a, n), at[S](b, n), at[S](c, n)) }
}

// notZero returns a kernel that converts numbers to truth values. The argument ne is the kernel
// that compares two blocks for inequality.
func notZero[S any](ne func(dst []uint32, a, b []S)) kernel {
	return func(d, a, _, _ unsafe.Pointer, n int) {
		ne(at[uint32](d, n), at[S](a, n), at[S](unsafe.Pointer(&zeros), n))
	}
}

func init() {
	asm.FillU32(ones[:], 1)
	fill := func(t dtype.Type, m map[expr.Op]kernel) {
		for op, k := range m {
			ops[op][t] = k
		}
	}
	fill(dtype.F32, map[expr.Op]kernel{
		expr.OpAdd: binary(asm.AddF32), expr.OpSub: binary(asm.SubF32), expr.OpMul: binary(asm.MulF32), expr.OpDiv: binary(asm.DivF32),
		expr.OpFMA: ternary(asm.FMAF32), expr.OpNeg: unary(asm.NegF32), expr.OpAbs: unary(asm.AbsF32), expr.OpMin: binary(asm.MinF32),
		expr.OpMax: binary(asm.MaxF32), expr.OpSqrt: unary(asm.SqrtF32), expr.OpFloor: unary(asm.FloorF32),
		expr.OpTrunc: unary(asm.TruncF32), expr.OpRoundEven: unary(asm.RoundEvenF32),
		expr.OpEq: binary(asm.EqF32), expr.OpNe: binary(asm.NeF32), expr.OpLt: binary(asm.LtF32), expr.OpLe: binary(asm.LeF32),
		expr.OpGt: binary(asm.GtF32), expr.OpGe: binary(asm.GeF32), expr.OpSelect: ternary(asm.SelectF32),
	})
	fill(dtype.F64, map[expr.Op]kernel{
		expr.OpAdd: binary(asm.AddF64), expr.OpSub: binary(asm.SubF64), expr.OpMul: binary(asm.MulF64), expr.OpDiv: binary(asm.DivF64),
		expr.OpFMA: ternary(asm.FMAF64), expr.OpNeg: unary(asm.NegF64), expr.OpAbs: unary(asm.AbsF64), expr.OpMin: binary(asm.MinF64),
		expr.OpMax: binary(asm.MaxF64), expr.OpSqrt: unary(asm.SqrtF64), expr.OpFloor: unary(asm.FloorF64),
		expr.OpTrunc: unary(asm.TruncF64), expr.OpRoundEven: unary(asm.RoundEvenF64),
		expr.OpEq: binary(asm.EqF64), expr.OpNe: binary(asm.NeF64), expr.OpLt: binary(asm.LtF64), expr.OpLe: binary(asm.LeF64),
		expr.OpGt: binary(asm.GtF64), expr.OpGe: binary(asm.GeF64), expr.OpSelect: ternary(asm.SelectF64),
	})
	word := map[expr.Op]kernel{
		expr.OpAdd: binary(asm.AddU32), expr.OpSub: binary(asm.SubU32), expr.OpMul: binary(asm.MulU32), expr.OpNeg: unary(asm.NegU32),
		expr.OpAnd: binary(asm.AndU32), expr.OpOr: binary(asm.OrU32), expr.OpXor: binary(asm.XorU32), expr.OpNot: unary(asm.NotU32),
		expr.OpShl: binary(asm.ShlU32), expr.OpShr: binary(asm.ShrU32), expr.OpMulHi: binary(asm.MulHiU32),
		expr.OpMin: binary(asm.MinU32), expr.OpMax: binary(asm.MaxU32), expr.OpEq: binary(asm.EqU32), expr.OpNe: binary(asm.NeU32),
		expr.OpLt: binary(asm.LtU32), expr.OpLe: binary(asm.LeU32), expr.OpGt: binary(asm.GtU32), expr.OpGe: binary(asm.GeU32),
		expr.OpSelect: ternary(asm.SelectU32),
	}
	fill(dtype.U32, word)
	fill(dtype.I32, word)
	fill(dtype.I32, map[expr.Op]kernel{
		expr.OpAbs: unary(asm.AbsI32), expr.OpShr: binary(asm.ShrI32), expr.OpMin: binary(asm.MinI32), expr.OpMax: binary(asm.MaxI32),
		expr.OpLt: binary(asm.LtI32), expr.OpLe: binary(asm.LeI32), expr.OpGt: binary(asm.GtI32), expr.OpGe: binary(asm.GeI32),
	})
	long := map[expr.Op]kernel{
		expr.OpAdd: binary(asm.AddU64), expr.OpSub: binary(asm.SubU64), expr.OpMul: binary(asm.MulU64), expr.OpNeg: unary(asm.NegU64),
		expr.OpAnd: binary(asm.AndU64), expr.OpOr: binary(asm.OrU64), expr.OpXor: binary(asm.XorU64), expr.OpNot: unary(asm.NotU64),
		expr.OpShl: binary(asm.ShlU64), expr.OpShr: binary(asm.ShrU64),
		expr.OpMin: binary(asm.MinU64), expr.OpMax: binary(asm.MaxU64), expr.OpEq: binary(asm.EqU64), expr.OpNe: binary(asm.NeU64),
		expr.OpLt: binary(asm.LtU64), expr.OpLe: binary(asm.LeU64), expr.OpGt: binary(asm.GtU64), expr.OpGe: binary(asm.GeU64),
		expr.OpSelect: ternary(asm.SelectU64),
	}
	fill(dtype.U64, long)
	fill(dtype.I64, long)
	fill(dtype.I64, map[expr.Op]kernel{
		expr.OpAbs: unary(asm.AbsI64), expr.OpShr: binary(asm.ShrI64), expr.OpMin: binary(asm.MinI64), expr.OpMax: binary(asm.MaxI64),
		expr.OpLt: binary(asm.LtI64), expr.OpLe: binary(asm.LeI64), expr.OpGt: binary(asm.GtI64), expr.OpGe: binary(asm.GeI64),
	})
	fill(dtype.Bool, map[expr.Op]kernel{
		expr.OpAnd: binary(asm.AndU32), expr.OpOr: binary(asm.OrU32), expr.OpXor: binary(asm.XorU32), expr.OpSelect: ternary(asm.SelectU32),
		expr.OpNot: func(d, a, _, _ unsafe.Pointer, n int) { asm.XorU32(at[uint32](d, n), at[uint32](a, n), ones[:n]) },
	})
	fillCasts()
}

func fillCasts() {
	cast := func(from, to dtype.Type, k kernel) { casts[from][to] = k }
	cast(dtype.F32, dtype.F64, unary(asm.CvtF32ToF64))
	cast(dtype.F32, dtype.I32, unary(asm.CvtF32ToI32))
	cast(dtype.F32, dtype.U32, unary(asm.CvtF32ToU32))
	cast(dtype.F32, dtype.I64, unary(asm.CvtF32ToI64))
	cast(dtype.F32, dtype.U64, unary(cvtF32ToU64))
	cast(dtype.F32, dtype.Bool, notZero(asm.NeF32))
	cast(dtype.F64, dtype.F32, unary(asm.CvtF64ToF32))
	cast(dtype.F64, dtype.I32, unary(asm.CvtF64ToI32))
	cast(dtype.F64, dtype.U32, unary(asm.CvtF64ToU32))
	cast(dtype.F64, dtype.I64, unary(asm.CvtF64ToI64))
	cast(dtype.F64, dtype.U64, unary(asm.CvtF64ToU64))
	cast(dtype.F64, dtype.Bool, notZero(asm.NeF64))
	for _, t := range []dtype.Type{dtype.I32, dtype.U32} {
		cast(t, dtype.Bool, notZero(asm.NeU32))
	}
	for _, t := range []dtype.Type{dtype.I64, dtype.U64} {
		cast(t, dtype.Bool, notZero(asm.NeU64))
		for _, to := range []dtype.Type{dtype.I32, dtype.U32} {
			cast(t, to, unary(asm.CvtU64ToU32))
		}
	}
	for _, to := range []dtype.Type{dtype.I64, dtype.U64} {
		cast(dtype.I32, to, unary(asm.CvtI32ToI64))
		cast(dtype.U32, to, unary(asm.CvtU32ToU64))
		cast(dtype.Bool, to, unary(asm.CvtU32ToU64))
	}
	cast(dtype.Bool, dtype.F32, unary(asm.CvtI32ToF32))
	cast(dtype.Bool, dtype.F64, unary(asm.CvtI32ToF64))
	cast(dtype.I32, dtype.F32, unary(asm.CvtI32ToF32))
	cast(dtype.I32, dtype.F64, unary(asm.CvtI32ToF64))
	cast(dtype.U32, dtype.F32, unary(asm.CvtU32ToF32))
	cast(dtype.U32, dtype.F64, unary(asm.CvtU32ToF64))
	cast(dtype.I64, dtype.F32, unary(asm.CvtI64ToF32))
	cast(dtype.I64, dtype.F64, unary(asm.CvtI64ToF64))
	cast(dtype.U64, dtype.F32, unary(asm.CvtU64ToF32))
	cast(dtype.U64, dtype.F64, unary(asm.CvtU64ToF64))

	loads[dtype.F16], stores[dtype.F16] = unary(asm.CvtF16ToF32), unary(asm.CvtF32ToF16)
	loads[dtype.BF16], stores[dtype.BF16] = unary(asm.CvtBF16ToF32), unary(asm.CvtF32ToBF16)
	loads[dtype.Bool], stores[dtype.Bool] = unary(asm.CvtU8ToU32), unary(asm.CvtU32ToU8)
	loads[dtype.U8], stores[dtype.U8] = unary(asm.CvtU8ToU32), unary(asm.CvtU32ToU8)
	loads[dtype.I8], stores[dtype.I8] = unary(asm.CvtI8ToI32), unary(asm.CvtU32ToU8)
	loads[dtype.I16], stores[dtype.I16] = unary(asm.CvtI16ToI32), unary(asm.CvtU32ToU16)
}

// cvtF32ToU64 converts float32 numbers to uint64. It rounds towards zero and saturates, and NaN
// becomes 0.
func cvtF32ToU64(dst []uint64, a []float32) {
	for i, x := range a {
		switch {
		case x >= 1<<64:
			dst[i] = math.MaxUint64
		case x > 0:
			dst[i] = uint64(x)
		default:
			dst[i] = 0
		}
	}
}

// width returns the size in bytes of an element of type t in a kernel's block. Truth values have 32
// bits.
func width(t dtype.Type) int {
	if t == dtype.Bool {
		return 4
	}
	return t.Size()
}
