// Package cublaslt calls NVIDIA's library of matrix products (libcublasLt), which is not part of
// the driver's installation.
//
// [Open] finds the library at run time. If it is missing, the error is an *[Unavailable]. A call
// that fails returns an *[Error], in which errors.Is finds the [Status].
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
// If the library divides the sums over k, it keeps partial sums in the workspace, in float32, and
// adds them in a separate step.
//
// Constants and struct layouts are those of cublasLt.h of 13.10. The file testdata/header.txt lists
// them as a C compiler reads them, and continuous integration compares it with the header.
package cublaslt

import "fmt"

// Version is the number that cublasLtGetVersion returns: 131000 for 13.10.0.
type Version int

// Minimum is the oldest version that Open accepts, 11.11. It belongs to CUDA 11.8, and is the first
// with an attribute for the type of a bias.
const Minimum Version = 111100

// String returns a text such as "13.10.0".
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
	// compute32F is CUBLAS_COMPUTE_32F: sums, and products of float32 factors, are in float32.
	compute32F = 68

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
	// preferAlignment is the attribute for A. The attributes for B, C and D have the following
	// numbers.
	preferAlignment = 5

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
