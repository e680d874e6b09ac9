// The declarations of CUDA's runtime that cublasLt.h needs. With them, only the driver's header is
// needed to compile it.
#pragma once
#include <cuda.h>
typedef CUstream cudaStream_t; // both are struct CUstream_st *
