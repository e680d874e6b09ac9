// State spaces, generic addresses, vectors, grids of three dimensions, special registers.
#include "foreign.h"

struct Odd { u8 a; u16 b; u32 c; u64 d; s8 e[3]; float f; };

__constant__ u32 primes[16] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
__constant__ double halves[4] = {0.5, -1.25, 3.0, 1e300};
__constant__ u8 word[6] = "ptx!?";
__device__ u32 table[8] = {1, 1, 2, 6, 24, 120, 720, 5040};
__device__ u32 *alias = table + 3;
__device__ u32 counter;
__device__ float zeros[4];

KERNEL spaces(const u32 *p, u64 *out, int n) {
	ROW;
	__shared__ u32 shared[256];
	u32 x = p[i], mine[4] = {x, x + 1, x + 2, x + 3};
	shared[threadIdx.x] = x * 5;
	mine[x & 3] = 9;
	__syncwarp();
	const u32 *from;
	switch (x % 5) {
	case 0: from = p + (x % n); break;
	case 1: from = shared + threadIdx.x; break;
	case 2: from = mine + (x >> 2) % 4; break;
	case 3: from = primes + x % 16; break;
	default: from = table + x % 8;
	}
	OUT(*from);
	OUT(primes[x & 15] + word[x % 6]);
	OUT(halves[x & 3]);
	OUT(*(alias + x % 4));
	OUT(zeros[x & 3]);
	OUT((bool)__isGlobal(from));
	OUT((bool)__isShared(from));
	OUT((bool)__isLocal(from));
	*(volatile u32 *)(mine + 1) = x;
	OUT(*(volatile u32 *)(mine + 1));
	OUT(__ldg(p + (x + 1) % n));
	OUT(__ldcs(p + i) + __ldca(p + i) + __ldcg(p + i));
}

KERNEL structs(Odd by, const Odd *p, Odd *q, u64 *out, int n) {
	ROW;
	Odd o = p[i];
	OUT(by.a + by.b + by.c + by.d + by.e[0] + by.e[1] + by.e[2]);
	OUT(by.f);
	OUT(o.a + o.b + o.c + o.d + o.e[0] + o.e[1] + o.e[2]);
	OUT(by.e[o.a % 3]);
	o.e[o.a % 3] = 77;
	o.f *= 2;
	q[i] = o;
}

KERNEL vectors(const float4 *a, const int2 *b, const uchar4 *c, const short4 *d, const double2 *e, u64 *out, float4 *w, int n) {
	ROW;
	float4 x = a[i];
	int2 y = b[i];
	uchar4 z = c[i];
	short4 s = d[i];
	double2 u = e[i];
	OUT(x.x); OUT(x.y); OUT(x.z); OUT(x.w);
	OUT(y.x); OUT(y.y);
	OUT(z.x); OUT(z.y); OUT(z.z); OUT(z.w);
	OUT(s.x); OUT(s.w);
	OUT(u.x); OUT(u.y);
	w[i] = make_float4(x.w, x.z, x.y, x.x);
}

// Each block reverses its part twice, in static and in dynamic shared memory.
KERNEL shared(const u32 *p, u64 *out, int n) {
	extern __shared__ u32 dynamic[];
	__shared__ u32 fixed[96];
	__shared__ double other[3];
	int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, j = 0;
	u32 x = i < n ? p[i] : 0;
	if (t < 3) other[t] = t + blockIdx.x * 0.5;
	fixed[t] = x;
	__syncthreads();
	dynamic[t] = fixed[blockDim.x - 1 - t];
	__syncthreads();
	if (i >= n) return;
	OUT(dynamic[t]);
	OUT(dynamic[blockDim.x - 1 - t]);
	OUT(other[t % 3]);
	u8 *b = (u8 *)(dynamic + blockDim.x);
	b[t] = (u8)x;
	OUT(b[t]);
}

KERNEL grid(u64 *out) {
	int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
	int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
	int n = gridDim.x * gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z;
	int i = b * blockDim.x * blockDim.y * blockDim.z + t, j = 0;
	OUT(threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16);
	OUT(blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16);
	u32 v;
#define SPECIAL(r) asm volatile("mov.u32 %0, %%" r ";" : "=r"(v)); OUT(v)
	SPECIAL("laneid");
	SPECIAL("lanemask_eq");
	SPECIAL("lanemask_lt");
	SPECIAL("lanemask_le");
	SPECIAL("lanemask_gt");
	SPECIAL("lanemask_ge");
	SPECIAL("nwarpid");
	SPECIAL("dynamic_smem_size");
	long long c0 = clock64();
	u32 c1 = clock();
	u64 g;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g));
	OUT(clock64() >= c0 && (u32)clock() - c1 < 1u << 30 && g > 0);
	SPECIAL("warpid");
	SPECIAL("smid");
}
