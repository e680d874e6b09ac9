// The declarations of CUDA's runtime that nccl.h needs. With them, only the driver's header is
// needed to compile it.
#include <cuda.h>
#define CUDART_VERSION CUDA_VERSION
typedef CUstream cudaStream_t; // both are struct CUstream_st *
