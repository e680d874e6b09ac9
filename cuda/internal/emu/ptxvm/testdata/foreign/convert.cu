// Conversions between every pair of types, with every rounding and saturation.
#include "foreign.h"

#define ALL_INTS(f) \
	OUT((s8)f); OUT((u8)f); OUT((s16)f); OUT((u16)f); OUT((s32)f); OUT((u32)f); OUT((s64)f); OUT((u64)f)
#define ROUNDED(type, from) \
	OUT(__##from##2##type##_rn(x)); OUT(__##from##2##type##_rz(x)); OUT(__##from##2##type##_rd(x)); OUT(__##from##2##type##_ru(x))

KERNEL from_f32(const float *p, u64 *out, int n) {
	ROW;
	float x = p[i];
	ROUNDED(int, float);
	ROUNDED(uint, float);
	ROUNDED(ll, float);
	ROUNDED(ull, float);
	OUT((double)x);
	OUT(__float2half_rn(x));
	OUT(__float2half_rz(x));
	OUT(__float2half_rd(x));
	OUT(__float2half_ru(x));
	OUT(__float2bfloat16_rn(x));
	OUT(__float2bfloat16_rz(x));
	OUT(__float2bfloat16_rd(x));
	OUT(__float2bfloat16_ru(x));
	OUT(rintf(x));
	OUT(truncf(x));
	OUT(floorf(x));
	OUT(ceilf(x));
	OUT(__saturatef(x));
	OUT(roundf(x));
	OUT((s64)lrintf(x));
}

KERNEL from_f64(const double *p, u64 *out, int n) {
	ROW;
	double x = p[i];
	ROUNDED(int, double);
	ROUNDED(uint, double);
	ROUNDED(ll, double);
	ROUNDED(ull, double);
	ROUNDED(float, double);
	OUT(rint(x));
	OUT(trunc(x));
	OUT(floor(x));
	OUT(ceil(x));
	OUT(__double2half(x));
	OUT(__double2bfloat16(x));
	OUT(round(x));
}

KERNEL from_f16(const __half *p, u64 *out, int n) {
	ROW;
	__half x = p[i];
	OUT(__half2float(x));
	OUT((double)__half2float(x));
	ROUNDED(short, half);
	ROUNDED(ushort, half);
	ROUNDED(int, half);
	ROUNDED(uint, half);
	ROUNDED(ll, half);
	ROUNDED(ull, half);
	OUT(hrint(x));
	OUT(htrunc(x));
	OUT(hfloor(x));
	OUT(hceil(x));
}

KERNEL from_bf16(const __nv_bfloat16 *p, u64 *out, int n) {
	ROW;
	__nv_bfloat16 x = p[i];
	OUT(__bfloat162float(x));
	ROUNDED(short, bfloat16);
	ROUNDED(ushort, bfloat16);
	ROUNDED(int, bfloat16);
	ROUNDED(uint, bfloat16);
	ROUNDED(ll, bfloat16);
	ROUNDED(ull, bfloat16);
}

#define FROM_INT(T, name) KERNEL from_##T(const T *p, u64 *out, int n) { \
	ROW; \
	T x = p[i]; \
	ROUNDED(float, name); \
	ROUNDED(half, name); \
	OUT(__##name##2bfloat16_rn(x)); OUT(__##name##2bfloat16_rz(x)); OUT(__##name##2bfloat16_rd(x)); OUT(__##name##2bfloat16_ru(x)); \
	ALL_INTS(x); \
}
FROM_INT(s32, int)
FROM_INT(u32, uint)
FROM_INT(s64, ll)
FROM_INT(u64, ull)

KERNEL wide_ints(const s64 *p, u64 *out, int n) {
	ROW;
	s64 x = p[i];
	OUT(__int2double_rn((s32)x));
	OUT(__uint2double_rn((u32)x));
	ROUNDED(double, ll);
	OUT(__ull2double_rn(x)); OUT(__ull2double_rz(x)); OUT(__ull2double_rd(x)); OUT(__ull2double_ru(x));
	OUT((float)(s8)x);
	OUT((float)(u8)x);
	OUT((float)(s16)x);
	OUT((float)(u16)x);
	OUT((double)(s16)x);
	OUT((s64)(s8)x);
	OUT((s32)(s8)(x >> 8));
	s32 v;
	asm("{.reg .s8 t; cvt.sat.s8.s64 t, %1; cvt.s32.s8 %0, t;}" : "=r"(v) : "l"(x));
	OUT(v);
	asm("{.reg .u8 t; cvt.sat.u8.s64 t, %1; cvt.u32.u8 %0, t;}" : "=r"(v) : "l"(x));
	OUT(v);
	asm("{.reg .s16 t; cvt.sat.s16.s32 t, %1; cvt.s32.s16 %0, t;}" : "=r"(v) : "r"((s32)x));
	OUT(v);
	asm("{.reg .u16 t; cvt.sat.u16.s32 t, %1; cvt.u32.u16 %0, t;}" : "=r"(v) : "r"((s32)x));
	OUT(v);
	asm("cvt.sat.s32.s64 %0, %1;" : "=r"(v) : "l"(x));
	OUT(v);
	asm("cvt.sat.u32.s64 %0, %1;" : "=r"(v) : "l"(x));
	OUT(v);
	asm("cvt.sat.s32.u32 %0, %1;" : "=r"(v) : "r"((u32)x));
	OUT(v);
	s32 y = (s32)x, z = (s32)(x >> 20);
#if __CUDA_ARCH__ >= 720
	asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(v) : "r"(y), "r"(z));
	OUT(v);
	asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(v) : "r"(y), "r"(z));
	OUT(v);
#else
	OUT(min(max(y, 0), 255) << 8 | min(max(z, 0), 255));
	OUT(min(max(y, -32768), 32767) << 16 | (min(max(z, -32768), 32767) & 0xffff));
#endif
}
