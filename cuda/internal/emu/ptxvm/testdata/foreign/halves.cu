// 16-bit floats, alone and in pairs.
#include "foreign.h"

template <class T> __device__ __forceinline__ void one(T a, T b, T c, u64 *out, int n, int i, int &j) {
	OUT(__hadd_rn(a, b));
	OUT(__hsub_rn(a, b));
	OUT(__hmul_rn(a, b));
	OUT(__hfma(a, b, c));
	OUT(__hfma_relu(a, b, c));
	OUT(__hadd_sat(a, b));
	OUT(__hmul_sat(a, b));
	OUT(__hdiv(a, b));
	OUT(__hneg(a));
	OUT(__habs(a));
	OUT(__hmin(a, b));
	OUT(__hmax(a, b));
	OUT(__hmin_nan(a, b));
	OUT(__hmax_nan(a, b));
	OUT(__heq(a, b)); OUT(__hne(a, b)); OUT(__hlt(a, b)); OUT(__hle(a, b)); OUT(__hgt(a, b)); OUT(__hge(a, b));
	OUT(__hequ(a, b)); OUT(__hneu(a, b)); OUT(__hltu(a, b)); OUT(__hleu(a, b)); OUT(__hgtu(a, b)); OUT(__hgeu(a, b));
	OUT((bool)__hisnan(a));
	OUT(hsqrt(a));
	OUT(hrcp(a));
}

template <class T2> __device__ __forceinline__ void two(T2 a, T2 b, T2 c, u64 *out, int n, int i, int &j) {
	OUT(__hadd2_rn(a, b));
	OUT(__hsub2_rn(a, b));
	OUT(__hmul2_rn(a, b));
	OUT(__hfma2(a, b, c));
	OUT(__hfma2_relu(a, b, c));
	OUT(__hneg2(a));
	OUT(__habs2(a));
	OUT(__hmin2(a, b));
	OUT(__hmax2_nan(a, b));
	OUT(__heq2(a, b));
	OUT(__hltu2(a, b));
	OUT(__hge2(a, b));
	OUT(__hgt2_mask(a, b));
	OUT(__hneu2_mask(a, b));
	OUT((bool)__hble2(a, b));
	OUT((bool)__hbneu2(a, b));
	OUT(__lowhigh2highlow_any(a));
}

__device__ __forceinline__ __half2 __lowhigh2highlow_any(__half2 a) { return __lowhigh2highlow(a); }
__device__ __forceinline__ __nv_bfloat162 __lowhigh2highlow_any(__nv_bfloat162 a) { return __lowhigh2highlow(a); }

#define HALVES(T, T2, name) KERNEL name(const T2 *pa, const T2 *pb, const T2 *pc, u64 *out, int n) { \
	ROW; \
	T2 a = pa[i], b = pb[i], c = pc[i]; \
	one<T>(a.x, b.x, c.x, out, n, i, j); \
	two<T2>(a, b, c, out, n, i, j); \
}
#if __CUDA_ARCH__ >= 800
HALVES(__half, __half2, f16)
HALVES(__nv_bfloat16, __nv_bfloat162, bf16)
#endif
