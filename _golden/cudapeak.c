// A stand-in for CUDA's runtime, cuBLAS and cuDNN: see cudapeak.py, which compiles it. It hands out addresses of memory that is not there, and no
// kernel runs, so that PyTorch's CUDA build runs its own host code, its caching allocator too, without a GPU.
#include <cuda.h>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define GiB ((size_t)1 << 30)
static const size_t memory = 140 * GiB;
static atomic_ulong next_address = 0x700000000000, next_handle = 0x1000;
static void *handle(void) { return (void *)atomic_fetch_add(&next_handle, 0x1000); }
static int on_device(const void *p) { return (size_t)p >= 0x700000000000 && (size_t)p < next_address; }

// Devices.
cudaError_t cudaGetDeviceCount(int *n) { return *n = 1, 0; }
cudaError_t cudaGetDevice(int *d) { return *d = 0, 0; }
cudaError_t cudaDriverGetVersion(int *v) { return *v = CUDART_VERSION, 0; }
cudaError_t cudaRuntimeGetVersion(int *v) { return *v = CUDART_VERSION, 0; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, 0; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { return *can = 0, 0; }
const char *cudaGetErrorName(cudaError_t e) { return "error"; }
const char *cudaGetErrorString(cudaError_t e) { return "error"; }

// Those of an H200.
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
	memset(p, 0, sizeof *p);
	strcpy(p->name, "stand-in for an H200");
	p->totalGlobalMem = memory, p->major = 9, p->minor = 0, p->multiProcessorCount = 132, p->warpSize = 32;
	p->sharedMemPerBlock = 49152, p->sharedMemPerBlockOptin = 232448, p->sharedMemPerMultiprocessor = 233472, p->reservedSharedMemPerBlock = 1024;
	p->regsPerBlock = p->regsPerMultiprocessor = 65536, p->l2CacheSize = 60 << 20, p->memoryBusWidth = 6144;
	p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
	p->maxThreadsPerMultiProcessor = 2048, p->maxBlocksPerMultiProcessor = 32;
	p->maxGridSize[0] = 0x7fffffff, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
	p->unifiedAddressing = p->concurrentKernels = p->cooperativeLaunch = p->canMapHostMemory = 1, p->textureAlignment = 512, p->asyncEngineCount = 3;
	return 0;
}

cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) {
	struct cudaDeviceProp p;
	cudaGetDeviceProperties(&p, d);
	switch (a) {
	case cudaDevAttrComputeCapabilityMajor: *v = p.major; break;
	case cudaDevAttrComputeCapabilityMinor: *v = p.minor; break;
	case cudaDevAttrMultiProcessorCount: *v = p.multiProcessorCount; break;
	case cudaDevAttrWarpSize: *v = p.warpSize; break;
	case cudaDevAttrMaxThreadsPerBlock: *v = p.maxThreadsPerBlock; break;
	case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *v = 1024; break;
	case cudaDevAttrMaxBlockDimZ: *v = 64; break;
	case cudaDevAttrMaxGridDimX: *v = 0x7fffffff; break;
	case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *v = 65535; break;
	case cudaDevAttrMaxSharedMemoryPerBlock: *v = p.sharedMemPerBlock; break;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = p.sharedMemPerBlockOptin; break;
	case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = p.sharedMemPerMultiprocessor; break;
	case cudaDevAttrMaxThreadsPerMultiProcessor: *v = p.maxThreadsPerMultiProcessor; break;
	case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *v = 65536; break;
	case cudaDevAttrMaxBlocksPerMultiprocessor: *v = 32; break;
	case cudaDevAttrL2CacheSize: *v = p.l2CacheSize; break;
	case cudaDevAttrTextureAlignment: *v = 512; break;
	default: *v = 0;
	}
	return 0;
}

// Memory.
cudaError_t cudaMalloc(void **p, size_t n) { return *p = (void *)atomic_fetch_add(&next_address, (n + (2 << 20) - 1) >> 21 << 21), 0; }
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) { return *free = *total = memory, 0; }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) { return *p = malloc(n), 0; }
cudaError_t cudaMallocHost(void **p, size_t n) { return *p = malloc(n), 0; }
cudaError_t cudaFreeHost(void *p) { return free(p), 0; }
cudaError_t cudaGetSymbolAddress(void **p, const void *symbol) { return cudaMalloc(p, 1 << 20); }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
	memset(a, 0, sizeof *a);
	a->type = on_device(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
	a->devicePointer = on_device(p) ? (void *)p : 0;
	return 0;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
	if (!on_device(to))
		memset(to, 0, n); // what the host reads is zero
	return 0;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) { return cudaMemcpyAsync(to, from, n, kind, 0); }

// Streams, events, graphs.
static cudaStream_t capturing;
cudaError_t cudaStreamCreate(cudaStream_t *s) { return *s = handle(), 0; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) { return *s = handle(), 0; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) { return *s = handle(), 0; }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { return *p = 0, 0; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = handle(), 0; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) { return *e = handle(), 0; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { return *ms = 1, 0; }
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) { return capturing = s, 0; }
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { return capturing = 0, *g = handle(), 0; }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *st) {
	return *st = s && s == capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, 0;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **deps,
									 const cudaGraphEdgeData **edges, size_t *n) {
	cudaStreamIsCapturing(s, st);
	if (id) *id = (size_t)s;
	if (g) *g = (cudaGraph_t)s;
	if (deps) *deps = 0;
	if (edges) *edges = 0;
	if (n) *n = 0;
	return 0;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) { return *n = 1, 0; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) { return *e = handle(), 0; }
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) { return *e = handle(), 0; }

// Kernels: registered, and not run.
void **__cudaRegisterFatBinary(void *f) { return handle(); }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *s) { return 1; } // not 0: the launch is left out
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
	memset(a, 0, sizeof *a);
	a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->ptxVersion = a->binaryVersion = 90, a->maxDynamicSharedSizeBytes = 49152;
	return 0;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int block, size_t shared) { return *n = 2, 0; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int block, size_t shared, unsigned flags) { return *n = 2, 0; }

// The driver.
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) { return *flags = 0, *active = 1, 0; }
CUresult cuGetErrorString(CUresult r, const char **s) { return *s = "error", 0; }

CUresult cuCtxGetCurrent(CUcontext *c) { return *c = (CUcontext)&next_handle, 0; }

// cuBLAS: products without a workspace of the algorithm's own.
cublasStatus_t cublasCreate_v2(cublasHandle_t *h) { return *h = handle(), 0; }
cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t *m) { return *m = CUBLAS_DEFAULT_MATH, 0; }
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t *m) { return *m = CUBLAS_POINTER_MODE_HOST, 0; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t t) { return *d = handle(), 0; }
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType t, uint64_t r, uint64_t c, int64_t ld) { return *l = handle(), 0; }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) { return *p = handle(), 0; }
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
											  cublasLtMatrixLayout_t e, cublasLtMatmulPreference_t p, int asked, cublasLtMatmulHeuristicResult_t r[], int *n) {
	memset(r, 0, sizeof *r);
	return *n = 1, 0;
}

// cuDNN by the functions of before version 8, each algorithm without a workspace.
#define DESCRIPTOR(name, type) cudnnStatus_t name(type *d) { return *d = handle(), 0; }
DESCRIPTOR(cudnnCreate, cudnnHandle_t)
DESCRIPTOR(cudnnCreateActivationDescriptor, cudnnActivationDescriptor_t)
DESCRIPTOR(cudnnCreateConvolutionDescriptor, cudnnConvolutionDescriptor_t)
DESCRIPTOR(cudnnCreateDropoutDescriptor, cudnnDropoutDescriptor_t)
DESCRIPTOR(cudnnCreateFilterDescriptor, cudnnFilterDescriptor_t)
DESCRIPTOR(cudnnCreatePoolingDescriptor, cudnnPoolingDescriptor_t)
DESCRIPTOR(cudnnCreateRNNDataDescriptor, cudnnRNNDataDescriptor_t)
DESCRIPTOR(cudnnCreateRNNDescriptor, cudnnRNNDescriptor_t)
DESCRIPTOR(cudnnCreateTensorDescriptor, cudnnTensorDescriptor_t)
#define CHOICE(name, a, b, c, d, type)                                                                                          \
	cudnnStatus_t name(cudnnHandle_t h, const a x, const b y, const c z, const d w, const int asked, int *n, type *r) {          \
		memset(r, 0, sizeof *r);                                                                                               \
		r->algo = 1, r->determinism = CUDNN_DETERMINISTIC, r->mathType = CUDNN_FMA_MATH;                                       \
		return *n = 1, 0;                                                                                                      \
	}
CHOICE(cudnnGetConvolutionForwardAlgorithm_v7, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgoPerf_t)
CHOICE(cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgoPerf_t)
CHOICE(cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgoPerf_t)
#define WORKSPACE(name, a, b, c, d, type) cudnnStatus_t name(cudnnHandle_t h, const a x, const b y, const c z, const d w, type algo, size_t *n) { return *n = 0, 0; }
WORKSPACE(cudnnGetConvolutionForwardWorkspaceSize, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t)
WORKSPACE(cudnnGetConvolutionBackwardDataWorkspaceSize, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t)
WORKSPACE(cudnnGetConvolutionBackwardFilterWorkspaceSize, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t)
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(cudnnHandle_t h, cudnnBatchNormMode_t m, cudnnBatchNormOps_t o, const cudnnTensorDescriptor_t x,
	const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t b, const cudnnActivationDescriptor_t a, size_t *n) { return *n = 0, 0; }
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(cudnnHandle_t h, cudnnBatchNormMode_t m, cudnnBatchNormOps_t o, const cudnnTensorDescriptor_t x,
	const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz, const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t b,
	const cudnnActivationDescriptor_t a, size_t *n) { return *n = 0, 0; }
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t h, cudnnBatchNormMode_t m, cudnnBatchNormOps_t o, const cudnnActivationDescriptor_t a,
	const cudnnTensorDescriptor_t x, size_t *n) { return *n = 0, 0; }
