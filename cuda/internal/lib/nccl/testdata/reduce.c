// The arithmetic of the strict library, in the elements' own type as NCCL has it: each step rounds.
// The ranks are added from the last to the first: NCCL promises no order.
#include <math.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include "strict.h"

static float from_bf16(uint16_t h) {
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static uint16_t to_bf16(float f) {
	uint32_t u;
	memcpy(&u, &f, 4);
	if (f != f) return 0x7fff;
	return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

static float from_f16(uint16_t h) {
	int e = h >> 10 & 31, m = h & 1023;
	float f = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
	return h >> 15 ? -f : f;
}

static uint16_t to_f16(float f) {
	uint16_t sign = signbit(f) ? 0x8000 : 0;
	float a = fabsf(f);
	if (f != f) return 0x7fff;
	if (a >= 65520) return sign | 0x7c00;
	int e;
	frexpf(a, &e);
	if (e < -13) e = -13;
	float m = rintf(ldexpf(a, 11 - e)); // to even
	if (m >= 2048) m /= 2, e++;
	if (m < 1024) return sign | (uint16_t)m; // subnormal: e is -13 then
	return sign | (uint16_t)((e + 14) << 10) | ((uint16_t)m & 1023);
}

#define SAME(x) (x)

// REDUCE is all ops of one type; W is the type of the arithmetic of a step.
#define REDUCE(T, W, LOAD, STORE, MAX, MIN) do { \
	T *o = out; \
	T s[64]; \
	for (int r = 0; r < world; r++) memcpy(&s[r], &scalars[r], sizeof(T)); \
	for (uint64_t i = 0; i < count; i++) { \
		T acc = 0; \
		for (int r = world; r-- > 0;) { \
			T x = ((const T *)ins[r])[first + i]; \
			if (op == 5) x = STORE((W)(LOAD(x) * LOAD(s[r]))); \
			if (op == ncclAvg) { T part = STORE((W)(1.0 / world)); x = STORE((W)(LOAD(x) * LOAD(part))); } \
			if (r == world - 1) { acc = x; continue; } \
			W a = LOAD(acc), b = LOAD(x); \
			acc = STORE(op == ncclProd ? (W)(a * b) : op == ncclMax ? MAX(a, b) : op == ncclMin ? MIN(a, b) : (W)(a + b)); \
		} \
		o[i] = acc; \
	} \
} while (0)

#define MORE(a, b) ((a) > (b) ? (a) : (b))
#define LESS(a, b) ((a) < (b) ? (a) : (b))

// strict_reduce combines elements first to first+count of the ranks' ins. Reductions of integers wrap.
__attribute__((visibility("default"))) int32_t strict_reduce(int32_t type, int32_t op, int32_t world, const void *const *ins, const uint64_t *scalars,
	void *out, uint64_t first, uint64_t count) {
	switch (type) {
	case ncclInt8: REDUCE(int8_t, int32_t, SAME, SAME, MORE, LESS); return 0;
	case ncclUint8: REDUCE(uint8_t, uint32_t, SAME, SAME, MORE, LESS); return 0;
	case ncclInt32: REDUCE(int32_t, int64_t, SAME, SAME, MORE, LESS); return 0;
	case ncclInt64: REDUCE(int64_t, int64_t, SAME, SAME, MORE, LESS); return 0;
	case ncclFloat16: REDUCE(uint16_t, float, from_f16, to_f16, fmaxf, fminf); return 0;
	case ncclBfloat16: REDUCE(uint16_t, float, from_bf16, to_bf16, fmaxf, fminf); return 0;
	case ncclFloat32: REDUCE(float, float, SAME, SAME, fmaxf, fminf); return 0;
	case ncclFloat64: REDUCE(double, double, SAME, SAME, fmax, fmin); return 0;
	}
	return 1;
}
