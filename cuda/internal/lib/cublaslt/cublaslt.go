// Package cublaslt calls NVIDIA's library of matrix products (libcublasLt), which is installed
// apart from the driver.
//
// [Open] finds the library at run time. That it is not there is a state and not a failure: the
// error is an *[Unavailable]. A call that fails returns an *[Error], in which errors.Is finds the
// [Status].
//
// # Contract
//
// A handle is made with a device's context current, and is used with that context current. Matrices
// are column-major, as in BLAS. A [Plan] is one product with the algorithm that the library's
// heuristic prefers. [Plan.Run] queues it on a stream, or records it where the stream is being
// captured, and needs no memory but the workspace that it is given. One goroutine at a time uses a
// handle and its plans.
//
// The same plan, workspace size and operands give the same bits each time. A product that is split
// along k keeps its parts in the workspace, in float32, and adds them in a step of its own.
//
// Numbers of enumerations and layouts are those of cublasLt.h of 13.10. testdata/header.txt has
// them as a C compiler sees them, and .ci/run holds that file to the header.
package cublaslt

import "fmt"

// Version is cublasLtGetVersion's number: 131000 for 13.10.0.
type Version int

// Minimum is the oldest library that Open accepts, 11.11: that of CUDA 11.8, the first that takes
// the type of a bias.
const Minimum Version = 111100

// String returns "13.10.0".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100) }

// Handle is cublasLtHandle_t. The zero value is none.
type Handle uintptr

// DataType is cudaDataType_t.
type DataType int32

// The types of elements.
const (
	Float32  DataType = 0
	Float16  DataType = 2
	BFloat16 DataType = 14
)

const (
	compute32F = 68 // CUBLAS_COMPUTE_32F: sums in float32, and of float32 the products too

	// cublasLtMatmulDescAttributes_t
	descTransA   = 3
	descTransB   = 4
	descEpilogue = 7
	descBias     = 8
	descBiasType = 26

	opN, opT     = 0, 1 // cublasOperation_t
	epilogueBias = 4    // CUBLASLT_EPILOGUE_BIAS

	// cublasLtMatrixLayoutAttribute_t
	layoutBatch  = 5
	layoutStride = 6

	// cublasLtMatmulPreferenceAttributes_t
	preferWorkspace  = 1
	preferReductions = 3
	preferAlignment  = 5 // of A; B, C and D follow

	reduceComputeType = 2 // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; none is always allowed
)

// algorithm is cublasLtMatmulAlgo_t.
type algorithm [8]uint64

// heuristic is cublasLtMatmulHeuristicResult_t.
type heuristic struct {
	algo      algorithm
	workspace uint64
	state     Status
	waves     float32
	_         [4]int32
}
