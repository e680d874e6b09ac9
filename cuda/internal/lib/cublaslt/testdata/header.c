// Prints header.txt: what cublasLt.h says about the numbers and layouts that package cublaslt
// contains.
#include <cublasLt.h>
#include <stddef.h>
#include <stdio.h>

#define NUMBER(x) printf("%s %lld\n", #x, (long long)(x))
#define OFFSET(f) printf("offsetof(cublasLtMatmulHeuristicResult_t, " #f ") %zu\n", offsetof(cublasLtMatmulHeuristicResult_t, f))

// A pointer of another type does not compile.
static size_t (*version)(void) = cublasLtGetVersion;
static cublasStatus_t (*create)(cublasLtHandle_t *) = cublasLtCreate;
static cublasStatus_t (*destroy)(cublasLtHandle_t) = cublasLtDestroy;
static cublasStatus_t (*desc)(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t) = cublasLtMatmulDescCreate;
static cublasStatus_t (*no_desc)(cublasLtMatmulDesc_t) = cublasLtMatmulDescDestroy;
static cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t) = cublasLtMatmulDescSetAttribute;
static cublasStatus_t (*layout)(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t) = cublasLtMatrixLayoutCreate;
static cublasStatus_t (*no_layout)(cublasLtMatrixLayout_t) = cublasLtMatrixLayoutDestroy;
static cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t) = cublasLtMatrixLayoutSetAttribute;
static cublasStatus_t (*prefer)(cublasLtMatmulPreference_t *) = cublasLtMatmulPreferenceCreate;
static cublasStatus_t (*no_prefer)(cublasLtMatmulPreference_t) = cublasLtMatmulPreferenceDestroy;
static cublasStatus_t (*prefer_set)(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t) = cublasLtMatmulPreferenceSetAttribute;
static cublasStatus_t (*ask)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
	cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *, int *) = cublasLtMatmulAlgoGetHeuristic;
static cublasStatus_t (*product)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t, const void *,
	cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *,
	size_t, cudaStream_t) = cublasLtMatmul;

int main(void) {
	NUMBER(sizeof(cublasStatus_t));
	NUMBER(sizeof(cudaDataType_t));
	NUMBER(sizeof(cublasLtMatmulAlgo_t));
	NUMBER(sizeof(cublasLtMatmulHeuristicResult_t));
	OFFSET(algo);
	OFFSET(workspaceSize);
	OFFSET(state);
	OFFSET(wavesCount);
	NUMBER(CUBLAS_STATUS_SUCCESS);
	NUMBER(CUBLAS_STATUS_NOT_INITIALIZED);
	NUMBER(CUBLAS_STATUS_ALLOC_FAILED);
	NUMBER(CUBLAS_STATUS_INVALID_VALUE);
	NUMBER(CUBLAS_STATUS_ARCH_MISMATCH);
	NUMBER(CUBLAS_STATUS_MAPPING_ERROR);
	NUMBER(CUBLAS_STATUS_EXECUTION_FAILED);
	NUMBER(CUBLAS_STATUS_INTERNAL_ERROR);
	NUMBER(CUBLAS_STATUS_NOT_SUPPORTED);
	NUMBER(CUBLAS_STATUS_LICENSE_ERROR);
	NUMBER(CUDA_R_32F);
	NUMBER(CUDA_R_16F);
	NUMBER(CUDA_R_16BF);
	NUMBER(CUBLAS_COMPUTE_32F);
	NUMBER(CUBLAS_OP_N);
	NUMBER(CUBLAS_OP_T);
	NUMBER(CUBLASLT_MATMUL_DESC_TRANSA);
	NUMBER(CUBLASLT_MATMUL_DESC_TRANSB);
	NUMBER(CUBLASLT_MATMUL_DESC_EPILOGUE);
	NUMBER(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
	NUMBER(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
	NUMBER(CUBLASLT_EPILOGUE_BIAS);
	NUMBER(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
	NUMBER(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
	NUMBER(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
	NUMBER(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
	NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
	NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
	NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
	NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
	NUMBER(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
	return !(version && create && destroy && desc && no_desc && desc_set && layout && no_layout && layout_set && prefer && no_prefer && prefer_set &&
		ask && product);
}
