// Instructions that the lanes of a warp execute together, and barriers of a block.
#include "foreign.h"

#define FULL 0xffffffffu

KERNEL shuffles(const u32 *p, u64 *out, int n) {
	ROW;
	u32 x = p[i], lane = threadIdx.x & 31;
	OUT(__shfl_sync(FULL, x, 5));
	OUT(__shfl_sync(FULL, x, x));
	OUT(__shfl_sync(FULL, x, lane + 1, 8));
	OUT(__shfl_up_sync(FULL, x, 3));
	OUT(__shfl_up_sync(FULL, x, 3, 16));
	OUT(__shfl_down_sync(FULL, x, 7));
	OUT(__shfl_down_sync(FULL, x, 2, 4));
	OUT(__shfl_xor_sync(FULL, x, 9));
	OUT(__shfl_xor_sync(FULL, x, 5, 8));
	OUT(__shfl_xor_sync(FULL, (u64)x << 20, 16));
	OUT(__shfl_down_sync(FULL, (double)x, 1));
	OUT(__ballot_sync(FULL, x & 1));
	OUT((bool)__any_sync(FULL, x == 77));
	OUT((bool)__all_sync(FULL, x < 0x80000000u));
	OUT(__match_any_sync(FULL, x & 3));
	int all;
	OUT(__match_all_sync(FULL, x & 0, &all));
	OUT((bool)all);
	OUT(__match_any_sync(FULL, (u64)(x & 1) << 40));
	// each branch is taken by half of the lanes
	if (lane & 1) { OUT(__shfl_xor_sync(0xaaaaaaaau, x, 2)); OUT(__ballot_sync(0xaaaaaaaau, x & 4)); OUT(__activemask()); }
	else { OUT(__shfl_down_sync(0x55555555u, x, 4)); OUT(__ballot_sync(0x55555555u, x & 8)); OUT(__activemask()); }
	__syncwarp();
	u32 s = x;
	for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(FULL, s, d);
	OUT(s);
	u32 scan = x & 0xffff;
	for (int d = 1; d < 32; d <<= 1) { u32 y = __shfl_up_sync(FULL, scan, d); if (lane >= d) scan += y; }
	OUT(scan);
	OUT(__popc(__ballot_sync(FULL, x & 2) & ((1u << lane) - 1)));
#if __CUDA_ARCH__ >= 800
	OUT(__reduce_add_sync(FULL, x));
	OUT(__reduce_min_sync(FULL, x));
	OUT(__reduce_max_sync(FULL, (s32)x));
	OUT(__reduce_min_sync(FULL, (s32)x));
	OUT(__reduce_and_sync(FULL, x | 1));
	OUT(__reduce_or_sync(FULL, x));
	OUT(__reduce_xor_sync(FULL, x));
#endif
}

KERNEL barriers(const u32 *p, u64 *out, int n) {
	ROW;
	__shared__ u32 buf[128];
	u32 x = p[i];
	OUT(__syncthreads_count(x & 1));
	OUT((bool)__syncthreads_and(x != 12345));
	OUT((bool)__syncthreads_or(x == 12345));
	buf[threadIdx.x] = x;
	__syncthreads();
	OUT(buf[(threadIdx.x * 7 + 3) % blockDim.x]);
	// the first two warps pass data to the other warps through a named barrier
	__syncthreads();
	u32 t = threadIdx.x, v = 0;
	if (t < 64) { buf[t] = x + 1; asm volatile("bar.arrive 1, 128;" ::: "memory"); }
	else { asm volatile("bar.sync 1, 128;" ::: "memory"); v = buf[t - 64]; }
	OUT(v);
	// a tree of additions, in which warps without further work leave
	__syncthreads();
	buf[t] = x;
	for (u32 d = 64; d >= 32; d >>= 1) { __syncthreads(); if (t < d) buf[t] += buf[t + d]; }
	if (t >= 32) return;
	__syncthreads();
	OUT(buf[t] + buf[t ^ 1]);
}

// Blocks wait for each other at a counter, as in a cooperative launch. All of them must be resident
// at the same time.
KERNEL meet(u32 *count, u32 *cells, u64 *out) {
	cells[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		atomicAdd(count, 1);
		while (*(volatile u32 *)count < gridDim.x) __nanosleep(20);
		__threadfence();
	}
	__syncthreads();
	u32 other = (blockIdx.x + 1) % gridDim.x;
	out[blockIdx.x * blockDim.x + threadIdx.x] = __ldcg(cells + other * blockDim.x + threadIdx.x);
}
