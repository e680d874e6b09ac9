package asm

// generic is the reference: plain Go, on every machine.
var generic = kernels{
	addF32: add[float32], subF32: sub[float32], mulF32: mul[float32], divF32: div[float32],
	minF32: least[float32], maxF32: greatest[float32], fmaF32: fmaF32,
	negF32: negF32, absF32: absF32, sqrtF32: sqrt[float32],
	floorF32: floor[float32], ceilF32: ceil[float32], truncF32: trunc[float32], roundEvenF32: roundEven[float32],

	addF64: add[float64], subF64: sub[float64], mulF64: mul[float64], divF64: div[float64],
	minF64: least[float64], maxF64: greatest[float64], fmaF64: fmaF64,
	negF64: negF64, absF64: absF64, sqrtF64: sqrt[float64],
	floorF64: floor[float64], ceilF64: ceil[float64], truncF64: trunc[float64], roundEvenF64: roundEven[float64],

	addU32: add[uint32], subU32: sub[uint32], mulU32: mul[uint32], mulHiU32: mulHiU32,
	andU32: and[uint32], orU32: or[uint32], xorU32: xor[uint32], notU32: not[uint32], negU32: neg[uint32],
	shlU32: shl[uint32], shrU32: shr[uint32], shrI32: shrI32, absI32: absI[int32],
	minI32: least[int32], maxI32: greatest[int32], minU32: least[uint32], maxU32: greatest[uint32],

	addU64: add[uint64], subU64: sub[uint64], mulU64: mul[uint64], mulHiU64: mulHiU64,
	andU64: and[uint64], orU64: or[uint64], xorU64: xor[uint64], notU64: not[uint64], negU64: neg[uint64],
	shlU64: shl[uint64], shrU64: shr[uint64], shrI64: shrI64, absI64: absI[int64],
	minI64: least[int64], maxI64: greatest[int64], minU64: least[uint64], maxU64: greatest[uint64],

	eqF32: eq[float32], neF32: ne[float32], ltF32: lt[float32], leF32: le[float32],
	eqF64: eq[float64], neF64: ne[float64], ltF64: lt[float64], leF64: le[float64],
	eqU32: eq[uint32], neU32: ne[uint32], ltU32: lt[uint32], leU32: le[uint32], ltI32: lt[int32], leI32: le[int32],
	eqU64: eq[uint64], neU64: ne[uint64], ltU64: lt[uint64], leU64: le[uint64], ltI64: lt[int64], leI64: le[int64],
	selectU32: choose[uint32], selectU64: choose[uint64],

	cvtF32ToF64: cvt[float64, float32], cvtF64ToF32: cvt[float32, float64],
	cvtI32ToF32: cvt[float32, int32], cvtU32ToF32: cvt[float32, uint32],
	cvtI64ToF32: cvt[float32, int64], cvtU64ToF32: cvt[float32, uint64],
	cvtI32ToF64: cvt[float64, int32], cvtU32ToF64: cvt[float64, uint32],
	cvtI64ToF64: cvt[float64, int64], cvtU64ToF64: cvt[float64, uint64],
	cvtF32ToI32: cvtToI32[float32], cvtF32ToU32: cvtToU32[float32], cvtF32ToI64: cvtToI64[float32],
	cvtF64ToI32: cvtToI32[float64], cvtF64ToU32: cvtToU32[float64], cvtF64ToI64: cvtToI64[float64], cvtF64ToU64: cvtToU64[float64],
	cvtI32ToI64: cvt[int64, int32], cvtU32ToU64: cvt[uint64, uint32], cvtU64ToU32: cvt[uint32, uint64],
	cvtU8ToU32: cvt[uint32, uint8], cvtI8ToI32: cvt[int32, int8], cvtI16ToI32: cvt[int32, int16],
	cvtU32ToU8: cvt[uint8, uint32], cvtU32ToU16: cvt[uint16, uint32], cvtU8ToF32: cvt[float32, uint8],
	cvtF16ToF32: cvtF16ToF32, cvtF32ToF16: cvtF32ToF16, cvtBF16ToF32: cvtBF16ToF32, cvtF32ToBF16: cvtF32ToBF16,

	sumF32: sumF32, sumF64: sumF64, dotF32: dotF32, dotF64: dotF64,
	reduceMinF32: reduceMin[float32], reduceMinF64: reduceMin[float64],
	reduceMaxF32: reduceMax[float32], reduceMaxF64: reduceMax[float64],
}
