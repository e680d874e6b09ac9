// What nccl.h takes of CUDA's runtime, so that the driver's header alone is needed to compile it.
#include <cuda.h>
#define CUDART_VERSION CUDA_VERSION
typedef CUstream cudaStream_t; // both are struct CUstream_st *
