// Atomics of every kind and type, on global and on shared memory. The order of threads is free, so
// the final contents of the cells must not depend on it.
#include "foreign.h"

// The cells: add, sub, min, max, umin, umax, and, or, xor, inc, dec, the sum of old values, exch
// marks …
KERNEL atomics(const s32 *p, u32 *g, u64 *g64, float *gf, double *gd, __half2 *gh, u64 *out, int n) {
	__shared__ u32 s[12];
	__shared__ u64 s64[4];
	__shared__ float sf;
	int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
	if (t < 12) s[t] = t == 2 || t == 4 ? 0x7fffffff : t == 3 ? 0x80000000 : t == 6 ? ~0u : 0;
	if (t < 4) s64[t] = t == 1 ? ~0ull >> 1 : 0;
	if (t == 0) sf = 0;
	__syncthreads();
	if (i < n) {
		s32 x = p[i];
		for (int k = 0; k < 2; k++) {
			u32 *c = k ? s : g;
			atomicAdd(c + 0, x);
			atomicSub(c + 1, x);
			atomicMin((s32 *)c + 2, x);
			atomicMax((s32 *)c + 3, x);
			atomicMin(c + 4, (u32)x);
			atomicMax(c + 5, (u32)x);
			atomicAnd(c + 6, x | 0x0ff00000);
			atomicOr(c + 7, x & 0x00f0f000);
			atomicXor(c + 8, x);
			atomicInc(c + 9, 10);
			atomicDec(c + 10, 12);
			u64 *d = k ? s64 : g64;
			atomicAdd(d + 0, (u64)(long long)x);
			atomicMin((long long *)d + 1, (long long)x << 20);
			atomicXor(d + 2, (u64)x << 32 | (u32)i);
			// a loop with compare and swap, which finds the largest square
			u64 old = *(volatile u64 *)(d + 3), was;
			u64 want = (u64)((long long)x * x);
			do { was = old; if (was >= want) break; old = atomicCAS(d + 3, was, want); } while (old != was);
		}
		atomicAdd(gf, (float)(x & 15));
		atomicAdd(&sf, (float)(x & 7));
		atomicAdd(gd, x * 0.5);
		atomicAdd(gh, __floats2half2_rn((float)(x & 1), (float)(x >> 1 & 1)));
		atomicAdd((__half *)(gh + 1), __float2half((float)(x & 1)));
#if __CUDA_ARCH__ >= 900
		atomicAdd((__nv_bfloat162 *)gh + 2, __floats2bfloat162_rn((float)(x & 1), (float)(x >> 2 & 1)));
		atomicAdd((__nv_bfloat16 *)gh + 6, __float2bfloat16((float)(x & 1)));
#endif
		atomicCAS((u16 *)(gh + 4) + (i & 1), (u16)0, (u16)(7 + (i & 1)));
		out[i] = atomicExch(g + 16 + i, (u32)x) + atomicAdd_system(g + 11, 1) * 0;
		atomicAdd_block(s + 11, 1);
	}
	__syncthreads();
	if (t < 12) atomicAdd(g + 512 + 32 * blockIdx.x + t, s[t]);
	if (t < 4) atomicAdd(g64 + 16 + 8 * blockIdx.x + t, s64[t]);
	if (t == 0) atomicAdd(gf + 1, sf);
}
