// The part of the strict library that a test program uses. Package cublaslttest has the same
// declarations in Go.
#include <stdint.h>

// One product as the program requested it, with column-major matrices.
struct strict_op {
	int32_t m, n, k, batch, transa, transb;
	int32_t type, out, bias; // type: cudaDataType_t of A and B; out: of D; bias: whether there is a bias, of D's type
	int32_t device;
	int64_t lda, ldb, ldd, stridea, strideb, strided; // in elements
	uint64_t a, b, d, biasat, workspace, workspacebytes, stream;
};

// What the library needs from the machine. All functions are callbacks into the test program.
struct strict_machine {
	int32_t (*current)(void);                       // device of the calling thread's context; -1: none
	int32_t (*stream)(uint64_t stream);             // device of a stream
	int32_t (*memory)(uint64_t at, uint64_t bytes); // device of a range of memory
	int32_t (*issue)(const struct strict_op *);     // queues the product; not 0 if that failed
};
