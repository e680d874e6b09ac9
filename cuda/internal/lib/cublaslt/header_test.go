package cublaslt

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// TestHeader compares constants and struct layouts with those that a C compiler reads in
// cublasLt.h.
func TestHeader(t *testing.T) {
	f, err := os.Open("testdata/header.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	header := map[string]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		i := strings.LastIndexByte(lines.Text(), ' ')
		n, err := strconv.ParseInt(lines.Text()[i+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		header[lines.Text()[:i]] = n
	}
	var h heuristic
	const result = "cublasLtMatmulHeuristicResult_t"
	for name, have := range map[string]int64{
		"sizeof(cublasStatus_t)": int64(unsafe.Sizeof(Success)), "sizeof(cudaDataType_t)": int64(unsafe.Sizeof(Float32)),
		"sizeof(cublasLtMatmulAlgo_t)": int64(unsafe.Sizeof(h.algo)), "sizeof(" + result + ")": int64(unsafe.Sizeof(h)),
		"offsetof(" + result + ", algo)": int64(unsafe.Offsetof(h.algo)), "offsetof(" + result + ", workspaceSize)": int64(unsafe.Offsetof(h.workspace)),
		"offsetof(" + result + ", state)": int64(unsafe.Offsetof(h.state)), "offsetof(" + result + ", wavesCount)": int64(unsafe.Offsetof(h.waves)),
		"CUBLAS_STATUS_SUCCESS": int64(Success), "CUBLAS_STATUS_NOT_INITIALIZED": int64(ErrNotInitialized),
		"CUBLAS_STATUS_ALLOC_FAILED": int64(ErrAllocFailed), "CUBLAS_STATUS_INVALID_VALUE": int64(ErrInvalidValue),
		"CUBLAS_STATUS_ARCH_MISMATCH": int64(ErrArchMismatch), "CUBLAS_STATUS_MAPPING_ERROR": int64(ErrMapping),
		"CUBLAS_STATUS_EXECUTION_FAILED": int64(ErrExecutionFailed), "CUBLAS_STATUS_INTERNAL_ERROR": int64(ErrInternal),
		"CUBLAS_STATUS_NOT_SUPPORTED": int64(ErrNotSupported), "CUBLAS_STATUS_LICENSE_ERROR": int64(ErrLicense),
		"CUDA_R_32F": int64(Float32), "CUDA_R_16F": int64(Float16), "CUDA_R_16BF": int64(BFloat16),
		"CUBLAS_COMPUTE_32F": compute32F, "CUBLAS_OP_N": opN, "CUBLAS_OP_T": opT,
		"CUBLASLT_MATMUL_DESC_TRANSA": descTransA, "CUBLASLT_MATMUL_DESC_TRANSB": descTransB, "CUBLASLT_MATMUL_DESC_EPILOGUE": descEpilogue,
		"CUBLASLT_MATMUL_DESC_BIAS_POINTER": descBias, "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE": descBiasType, "CUBLASLT_EPILOGUE_BIAS": epilogueBias,
		"CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": layoutBatch, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": layoutStride,
		"CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": preferWorkspace, "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK": preferReductions,
		"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": preferAlignment, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES": preferAlignment + 1,
		"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES": preferAlignment + 2, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": preferAlignment + 3,
		"CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE": reduceComputeType,
	} {
		want, ok := header[name]
		if !ok || have != want {
			t.Errorf("%s is %d, the header has %d (%v)", name, have, want, ok)
		}
		delete(header, name)
	}
	for name := range header {
		t.Errorf("%s of the header is compared with nothing", name)
	}
}
