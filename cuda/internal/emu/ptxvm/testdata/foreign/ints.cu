// Integer arithmetic of every width.
#include "foreign.h"

template <class T> __device__ __forceinline__ void arithmetic(T a, T b, T c, u64 *out, int n, int i) {
	int j = 0;
	OUT((T)(a + b));
	OUT((T)(a - b));
	OUT((T)(a * b));
	OUT((T)(a * b + c));
	OUT(b == 0 ? (T)0 : (T)(a / b));
	OUT(b == 0 ? (T)0 : (T)(a % b));
	OUT((T)(a / (T)7));
	OUT((T)(a % (T)10));
	OUT((T)(a / (T)16));
	OUT((T)(a & b));
	OUT((T)(a | b));
	OUT((T)(a ^ b));
	OUT((T)~a);
	OUT((T)-a);
	OUT((T)((a & b) | (~a & c)));
	OUT((T)(a << (int)(b & (T)(8 * sizeof(T) - 1))));
	OUT((T)(a >> (int)(b & (T)(8 * sizeof(T) - 1))));
	OUT((T)(a >> 3));
	OUT(a < b ? a : b);
	OUT(a > b ? a : b);
	OUT((T)(a < 0 ? -a : a));
	OUT(a < b);
	OUT(a <= b);
	OUT(a == b);
	OUT(a != b && b >= c);
	OUT((s8)a);
	OUT((u8)a);
	OUT((s16)a);
	OUT((u16)a);
	OUT((s32)a);
	OUT((u32)a);
	OUT((s64)a);
	OUT((u64)a);
}

#define INTS(T) KERNEL ints_##T(const T *a, const T *b, const T *c, u64 *out, int n) { \
	int i = blockIdx.x * blockDim.x + threadIdx.x; \
	if (i < n) arithmetic<T>(a[i], b[i], c[i], out, n, i); \
}
INTS(u8)
INTS(s8)
INTS(u16)
INTS(s16)
INTS(u32)
INTS(s32)
INTS(u64)
INTS(s64)

