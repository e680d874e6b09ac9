// Floating-point arithmetic: every operation in every rounding. The file is compiled twice, with
// subnormals kept and with subnormals flushed.
#include "foreign.h"

#define EACH(f, ...) OUT(f##_rn(__VA_ARGS__)); OUT(f##_rz(__VA_ARGS__)); OUT(f##_rd(__VA_ARGS__)); OUT(f##_ru(__VA_ARGS__))

template <class T> __device__ __forceinline__ void compare(T a, T b, u64 *out, int n, int i, int &j) {
	OUT(a < b); OUT(a <= b); OUT(a > b); OUT(a >= b); OUT(a == b); OUT(a != b);
	OUT(!(a < b)); OUT(!(a <= b)); OUT(!(a > b)); OUT(!(a >= b));
	OUT(a == a && b == b);
	OUT(a < b || a > b);
	OUT(isnan(a)); OUT(isinf(a)); OUT((bool)signbit(a));
	OUT(a < b ? a : b);
	OUT(fabs(a) > (T)1 ? a : b);
}

KERNEL f32(const float *pa, const float *pb, const float *pc, u64 *out, int n) {
	ROW;
	float a = pa[i], b = pb[i], c = pc[i];
	EACH(__fadd, a, b);
	EACH(__fsub, a, b);
	EACH(__fmul, a, b);
	EACH(__fmaf, a, b, c);
	EACH(__fdiv, a, b);
	EACH(__fsqrt, a);
	EACH(__frcp, a);
	OUT(a * b + c);
	OUT(a - b * c);
	OUT(fminf(a, b));
	OUT(fmaxf(a, b));
	OUT(fabsf(a));
	OUT(-a);
	OUT(copysignf(a, b));
	OUT(a / b);
	OUT(sqrtf(a));
	OUT(fmodf(a, b));
	OUT(__saturatef(a * b));
	compare(a, b, out, n, i, j);
}

KERNEL f64(const double *pa, const double *pb, const double *pc, u64 *out, int n) {
	ROW;
	double a = pa[i], b = pb[i], c = pc[i];
	EACH(__dadd, a, b);
	EACH(__dsub, a, b);
	EACH(__dmul, a, b);
	EACH(__fma, a, b, c);
	EACH(__ddiv, a, b);
	EACH(__dsqrt, a);
	EACH(__drcp, a);
	OUT(a * b + c);
	OUT(fmin(a, b));
	OUT(fmax(a, b));
	OUT(fabs(a));
	OUT(-a);
	OUT(copysign(a, b));
	OUT(a / b);
	OUT(sqrt(a));
	compare(a, b, out, n, i, j);
}
