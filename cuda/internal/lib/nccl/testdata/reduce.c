// The arithmetic of the strict library. As in NCCL, it is done in the elements' own type, so each
// step rounds. The ranks are added from the last to the first, because NCCL promises no order.
#include <nccl.h>
#include <stdlib.h>
#include "floats.h"
#include "strict.h"

#define SAME(x) (x)

// REDUCE contains all ops of one type. W is the type in which a step is computed.
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

// strict_reduce combines elements first to first+count-1 of the ranks' ins. Reductions of integers
// wrap.
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
