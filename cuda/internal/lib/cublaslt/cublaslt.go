// Package cublaslt calls NVIDIA's library of matrix products (libcublasLt), which is not part of
// the driver's installation.
//
// [Open] finds the library at run time. Its absence is a state and not a failure: the error is an
// *[Unavailable]. A call that fails returns an *[Error], in which errors.Is finds the [Status].
//
// # Contract
//
// A handle is created while a device's context is current, and is used while that context is
// current. Matrices are column-major, as in BLAS. A [Plan] is one product with the algorithm that
// the library's heuristic prefers. [Plan.Run] queues it on a stream, or records it if the stream is
// being captured. The only memory that [Plan.Run] needs is the workspace that its caller passes.
// Only one goroutine at a time may use a handle and its plans.
//
// Equal plans give equal bits if their operands are equal and their workspaces have the same size.
// If the library divides a product along k, it keeps the parts in the workspace, in float32, and
// adds them in a separate step.
//
// Numbers of enumerations and layouts are those of cublasLt.h of 13.10. testdata/header.txt has
// them as a C compiler sees them. .ci/run compares that file with the header.
package cublaslt

import "fmt"

// Version is the number that cublasLtGetVersion returns: 131000 for 13.10.0.
type Version int

// Minimum is the oldest library that Open accepts, 11.11. It is the library of CUDA 11.8, and the
// first that has an attribute for the type of a bias.
const Minimum Version = 111100

// String returns "13.10.0".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100) }

// Handle is cublasLtHandle_t. The zero value is not a handle.
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
	compute32F = 68 // CUBLAS_COMPUTE_32F: sums in float32, and also products if the factors are float32

	// attributes of cublasLtMatmulDescAttributes_t
	descTransA   = 3
	descTransB   = 4
	descEpilogue = 7
	descBias     = 8
	descBiasType = 26

	opN, opT     = 0, 1 // values of cublasOperation_t
	epilogueBias = 4    // CUBLASLT_EPILOGUE_BIAS

	// attributes of cublasLtMatrixLayoutAttribute_t
	layoutBatch  = 5
	layoutStride = 6

	// attributes of cublasLtMatmulPreferenceAttributes_t
	preferWorkspace  = 1
	preferReductions = 3
	preferAlignment  = 5 // attribute for A; the attributes for B, C and D have the following numbers

	// CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; the scheme "none" is always allowed
	reduceComputeType = 2
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
