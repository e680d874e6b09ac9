// The side of the strict library that a test program sees: package cublaslttest has the same.
#include <stdint.h>

// One product, as the program asked for it: column-major matrices.
struct strict_op {
	int32_t m, n, k, batch, transa, transb;
	int32_t type, out, bias; // cudaDataType_t of A and B and of D; bias: whether there is one, of D's type
	int32_t device;
	int64_t lda, ldb, ldd, stridea, strideb, strided; // in elements
	uint64_t a, b, d, biasat, workspace, workspacebytes, stream;
};

// What the library asks the machine: all are callbacks of the program.
struct strict_machine {
	int32_t (*current)(void);                       // device of the calling thread's context, -1: none
	int32_t (*stream)(uint64_t stream);             // its device
	int32_t (*memory)(uint64_t at, uint64_t bytes); // its device
	int32_t (*issue)(const struct strict_op *);     // queues the product; not 0: it could not
};
