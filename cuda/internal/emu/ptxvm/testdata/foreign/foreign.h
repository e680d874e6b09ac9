// Declarations that the kernels of this folder share. Every result has 64 bits. Result j of row i
// is stored at out[j*n+i].
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

__device__ __forceinline__ u64 bits(u8 x) { return x; }
__device__ __forceinline__ u64 bits(s8 x) { return (u8)x; }
__device__ __forceinline__ u64 bits(u16 x) { return x; }
__device__ __forceinline__ u64 bits(s16 x) { return (u16)x; }
__device__ __forceinline__ u64 bits(u32 x) { return x; }
__device__ __forceinline__ u64 bits(s32 x) { return (u32)x; }
__device__ __forceinline__ u64 bits(u64 x) { return x; }
__device__ __forceinline__ u64 bits(s64 x) { return (u64)x; }
__device__ __forceinline__ u64 bits(bool x) { return x; }
__device__ __forceinline__ u64 bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ u64 bits(double x) { return (u64)__double_as_longlong(x); }
__device__ __forceinline__ u64 bits(__half x) { return __half_as_ushort(x); }
__device__ __forceinline__ u64 bits(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }
__device__ __forceinline__ u64 bits(__half2 x) { return bits(__low2half(x)) | bits(__high2half(x)) << 16; }
__device__ __forceinline__ u64 bits(__nv_bfloat162 x) { return bits(__low2bfloat16(x)) | bits(__high2bfloat16(x)) << 16; }

#define KERNEL extern "C" __global__ void
#define ROW \
	int i = blockIdx.x * blockDim.x + threadIdx.x; \
	if (i >= n) return; \
	int j = 0
#define OUT(x) out[(size_t)(j++) * n + i] = bits(x)
