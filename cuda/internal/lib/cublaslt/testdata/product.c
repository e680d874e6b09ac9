// The arithmetic of the strict library. The terms are added in float32 from the first to the last,
// then the bias is added, and the sum is rounded once.
#include <cublasLt.h>
#include "../../nccl/testdata/floats.h"
#include "strict.h"

static float load(const void *p, int64_t i, int type) {
	if (type == CUDA_R_32F) return ((const float *)p)[i];
	uint16_t h = ((const uint16_t *)p)[i];
	return type == CUDA_R_16F ? from_f16(h) : from_bf16(h);
}

static void store(void *p, int64_t i, int type, float x) {
	if (type == CUDA_R_32F) ((float *)p)[i] = x;
	else ((uint16_t *)p)[i] = type == CUDA_R_16F ? to_f16(x) : to_bf16(x);
}

// strict_product computes the product op in host memory, with the layouts of op.
__attribute__((visibility("default"))) void strict_product(const struct strict_op *o, const void *a, const void *b, const void *bias, void *d) {
	for (int64_t z = 0; z < o->batch; z++)
		for (int64_t j = 0; j < o->n; j++)
			for (int64_t i = 0; i < o->m; i++) {
				float sum = 0;
				for (int64_t l = 0; l < o->k; l++) {
					int64_t x = o->transa ? i * o->lda + l : l * o->lda + i, y = o->transb ? l * o->ldb + j : j * o->ldb + l;
					sum += load(a, z * o->stridea + x, o->type) * load(b, z * o->strideb + y, o->type);
				}
				if (o->bias) sum += load(bias, i, o->out);
				store(d, z * o->strided + j * o->ldd + i, o->out, sum);
			}
}
