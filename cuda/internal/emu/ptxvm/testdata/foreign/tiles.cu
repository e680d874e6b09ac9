// Matrix instructions, ldmatrix, asynchronous copies, mbarriers.
#include "foreign.h"
#include <mma.h>

using namespace nvcuda;

// One warp computes a 16x16x16 product by the warp-matrix interface, whose fragments have no
// documented layout.
template <class T, class A, int LB> __device__ void product(const T *a, const T *b, const A *c, A *d) {
	wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> fa;
	wmma::fragment<wmma::accumulator, 16, 16, 16, A> fc;
	wmma::load_matrix_sync(fa, a, 16);
	wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
	if (LB == 0) {
		wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> fb;
		wmma::load_matrix_sync(fb, b, 16);
		wmma::mma_sync(fc, fa, fb, fc);
	} else {
		wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> fb;
		wmma::load_matrix_sync(fb, b, 16);
		wmma::mma_sync(fc, fa, fb, fc);
	}
	for (int k = 0; k < fc.num_elements; k++) fc.x[k] = fc.x[k] + fc.x[k];
	wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
}

KERNEL wmma_f16(const __half *a, const __half *b, const float *c, float *d) { product<__half, float, 0>(a, b, c, d); }
KERNEL wmma_f16_col(const __half *a, const __half *b, const float *c, float *d) { product<__half, float, 1>(a, b, c, d); }
KERNEL wmma_s8(const s8 *a, const s8 *b, const s32 *c, s32 *d) { product<s8, s32, 1>(a, b, c, d); }
KERNEL wmma_f16_shared(const __half *a, const __half *b, const float *c, float *d) { // through shared memory, with half accumulators
	__shared__ __align__(32) __half sa[256], sb[256];
	__shared__ __align__(32) __half sd[256];
	for (int k = threadIdx.x; k < 256; k += 32) { sa[k] = a[k]; sb[k] = b[k]; }
	__syncwarp();
	wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::col_major> fa;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
	wmma::fragment<wmma::accumulator, 16, 16, 16, __half> fc;
	wmma::fill_fragment(fc, __float2half(0.f));
	wmma::load_matrix_sync(fa, sa, 16);
	wmma::load_matrix_sync(fb, sb, 16);
	wmma::mma_sync(fc, fa, fb, fc);
	wmma::store_matrix_sync(sd, fc, 16, wmma::mem_col_major);
	__syncwarp();
	for (int k = threadIdx.x; k < 256; k += 32) d[k] = 2 * (__half2float(sd[k]) + c[k % 16 * 16 + k / 16]);
}

#if __CUDA_ARCH__ >= 800
KERNEL wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d) { product<__nv_bfloat16, float, 0>(a, b, c, d); }

KERNEL wmma_tf32(const float *a, const float *b, const float *c, float *d) {
	wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
	wmma::fragment<wmma::accumulator, 16, 16, 8, float> fc;
	wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
	for (int k = 0; k < 16; k += 8) {
		wmma::load_matrix_sync(fa, a + k, 16);
		wmma::load_matrix_sync(fb, b + 16 * k, 16);
		for (int e = 0; e < fa.num_elements; e++) fa.x[e] = wmma::__float_to_tf32(fa.x[e]);
		for (int e = 0; e < fb.num_elements; e++) fb.x[e] = wmma::__float_to_tf32(fb.x[e]);
		wmma::mma_sync(fc, fa, fb, fc);
	}
	for (int k = 0; k < fc.num_elements; k++) fc.x[k] *= 2;
	wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
}

KERNEL wmma_f64(const double *a, const double *b, const double *c, double *d) { // four products of 8x8x4
	wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::row_major> fb;
	wmma::fragment<wmma::accumulator, 8, 8, 4, double> fc;
	for (int m = 0; m < 16; m += 8) for (int n = 0; n < 16; n += 8) {
		wmma::load_matrix_sync(fc, c + 16 * m + n, 16, wmma::mem_row_major);
		for (int k = 0; k < 16; k += 4) {
			wmma::load_matrix_sync(fa, a + 16 * m + k, 16);
			wmma::load_matrix_sync(fb, b + 16 * k + n, 16);
			wmma::mma_sync(fc, fa, fb, fc);
		}
		for (int k = 0; k < fc.num_elements; k++) fc.x[k] *= 2;
		wmma::store_matrix_sync(d + 16 * m + n, fc, 16, wmma::mem_row_major);
	}
}

__device__ __forceinline__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Compares ldmatrix with ordinary loads: the 8x8 matrices of a 32x16 tile, plain and transposed.
KERNEL ldmatrices(const u16 *p, u64 *out, int n) {
	__shared__ __align__(16) u16 s[32][24];
	int t = threadIdx.x, i = t, j = 0;
	for (int k = 0; k < 16; k++) s[t][k] = p[16 * t + k];
	__syncwarp();
	u32 a, b, c, d, at = address(&s[t][0]), right = address(&s[t % 16][t / 16 * 8]);
	asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at));
	OUT(a);
	asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at));
	OUT(a);
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at));
	OUT(a); OUT(b);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(right));
	OUT(a); OUT(b); OUT(c); OUT(d);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(right));
	OUT(a); OUT(b); OUT(c); OUT(d);
}

// Copies of 4, 8 and 16 bytes, some with a shorter source. The waits are for groups of copies.
KERNEL copies(const u32 *p, u64 *out, int n) {
	__shared__ __align__(16) u32 s[3][128];
	int t = threadIdx.x, i = t, j = 0;
	u32 fill = t % 5;
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(address(&s[0][t])), "l"(p + t));
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(address(&s[0][64 + t])), "l"(p + t), "r"(fill));
	asm volatile("cp.async.commit_group;");
	if (t < 32) {
		asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(address(&s[1][2 * t])), "l"(p + 2 * t));
		asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(address(&s[1][64 + 2 * t])), "l"(p + 2 * t), "r"(2 * fill));
	}
	asm volatile("cp.async.commit_group;");
	if (t < 16) {
		asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(address(&s[2][4 * t])), "l"(p + 4 * t));
		asm volatile("{.reg .pred q; setp.ne.b32 q, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, q;}" :: "r"(address(&s[2][64 + 4 * t])), "l"(p + 4 * t), "r"(t & 1));
	}
	asm volatile("cp.async.commit_group;");
	asm volatile("cp.async.wait_group 2;");
	OUT(s[0][t]); OUT(s[0][64 + t]);
	asm volatile("cp.async.wait_group 1;");
	__syncthreads();
	OUT(s[1][t]); OUT(s[1][64 + t]);
	asm volatile("cp.async.wait_all;");
	__syncthreads();
	OUT(s[2][t]); OUT(s[2][64 + t]);
}

// A producer warp fills a buffer and the other warps read it, over several phases of two mbarriers.
// Then asynchronous copies arrive at a third mbarrier.
KERNEL mbarriers(const u32 *p, u64 *out, int n) {
	__shared__ u32 s[32], q[32];
	__shared__ __align__(8) u64 full, empty, copied;
	int t = threadIdx.x, i = t, j = 0;
	if (t == 0) {
		asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(address(&full)));
		asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(address(&empty)), "r"(blockDim.x - 32));
		asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(address(&copied)));
	}
	__syncthreads();
	u64 token;
	if (t < 32) {
		for (u32 round = 0; round < 3; round++) {
			if (round > 0) // wait until the other warps have read the buffer: the parity of the previous phase
				asm volatile("{.reg .pred q; W: mbarrier.test_wait.parity.shared.b64 q, [%0], %1; @!q bra W;}" :: "r"(address(&empty)), "r"((round - 1) & 1) : "memory");
			s[t] = p[t] + round;
			asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(address(&full)) : "memory");
		}
		asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(address(&q[t])), "l"(p + t));
		asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(address(&copied)) : "memory");
		for (int k = 0; k < 4; k++) OUT(0);
	} else {
		for (u32 round = 0; round < 3; round++) {
			asm volatile("{.reg .pred q; W: mbarrier.test_wait.parity.shared.b64 q, [%0], %1; @!q bra W;}" :: "r"(address(&full)), "r"(round & 1) : "memory");
			OUT(s[(t + round) & 31]);
			asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(address(&empty)) : "memory");
		}
		asm volatile("{.reg .pred q; W: mbarrier.test_wait.parity.shared.b64 q, [%0], 0; @!q bra W;}" :: "r"(address(&copied)) : "memory");
		OUT(q[t & 31]);
	}
	__syncthreads();
	if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(address(&full) ), "r"(2 * blockDim.x));
	__syncthreads();
	asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 1;" : "=l"(token) : "r"(address(&full)) : "memory");
	u32 pending;
	asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(token));
	OUT((bool)(pending > 0 && pending <= 2 * blockDim.x));
	asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(address(&full)) : "memory");
	u32 done;
	do asm volatile("{.reg .pred q; mbarrier.test_wait.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q;}" : "=r"(done) : "r"(address(&full)), "l"(token) : "memory"); while (!done);
	OUT(done);
}

// Products by mma.sync in the layouts that the ISA documents: row-major a and column-major b.
KERNEL mmas(const __half *a, const __half *b, const u8 *ka, const u8 *kb, const double *da, const double *db, float *d, float *d16, s32 *ds, double *dd) {
	int g = threadIdx.x >> 2, t = threadIdx.x & 3;
	const u32 *a2 = (const u32 *)a, *b2 = (const u32 *)b; // 16x16 halves: 8 words in a row; b2 is b by columns
	u32 fa[4] = {a2[g * 8 + t], a2[(g + 8) * 8 + t], a2[g * 8 + t + 4], a2[(g + 8) * 8 + t + 4]}, fb[2] = {b2[g * 8 + t], b2[g * 8 + t + 4]};
	float c[4] = {0, 0, 0, 0};
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
	for (int k = 0; k < 4; k++) d[(g + k / 2 * 8) * 8 + 2 * t + k % 2] = c[k];
	u32 h[2] = {0, 0};
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};" : "+r"(h[0]), "+r"(h[1]) : "r"(fa[0]), "r"(fa[1]), "r"(fb[0]));
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};" : "+r"(h[0]), "+r"(h[1]) : "r"(fa[2]), "r"(fa[3]), "r"(fb[1]));
	for (int k = 0; k < 2; k++) {
		d16[(g + 8 * k) * 8 + 2 * t] = __half2float(__ushort_as_half((u16)h[k]));
		d16[(g + 8 * k) * 8 + 2 * t + 1] = __half2float(__ushort_as_half((u16)(h[k] >> 16)));
	}
	const u32 *ka4 = (const u32 *)ka, *kb4 = (const u32 *)kb; // 16x32 bytes: 8 words in a row
	u32 ia[4] = {ka4[g * 8 + t], ka4[(g + 8) * 8 + t], ka4[g * 8 + t + 4], ka4[(g + 8) * 8 + t + 4]}, ib[2] = {kb4[g * 8 + t], kb4[g * 8 + t + 4]};
	s32 e[4] = {1, 2, 3, 4};
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3]) : "r"(ia[0]), "r"(ia[1]), "r"(ia[2]), "r"(ia[3]), "r"(ib[0]), "r"(ib[1]));
	asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
		: "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3]) : "r"(ia[0]), "r"(ia[1]), "r"(ib[0]));
	for (int k = 0; k < 4; k++) ds[(g + k / 2 * 8) * 8 + 2 * t + k % 2] = e[k];
	double f[2] = {0, 0};
	asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(f[0]), "+d"(f[1]) : "d"(da[g * 4 + t]), "d"(db[g * 4 + t]));
	dd[g * 8 + 2 * t] = f[0];
	dd[g * 8 + 2 * t + 1] = f[1];
}
#endif
