// What cublasLt.h takes of CUDA's runtime, so that the driver's header alone is needed to compile it.
#pragma once
#include <cuda.h>
typedef CUstream cudaStream_t; // both are struct CUstream_st *
