// A cublasLt without GPUs. It checks that its callers do what NVIDIA's documentation requires:
// descriptors and their attributes, operands that fit each other, leading dimensions, alignment,
// workspace, contexts, streams, memory. It is compiled against NVIDIA's own cublasLt.h, so that its
// prototypes are the real ones. A wrong call ends the process with a line that names the call.
//
//	gcc -shared -fPIC -O1 -Wall -Werror -I . -I INCLUDE -o libcublasLt.so.13 strict.c product.c
//
// The test program provides the machine, which queues the products. strict_plant makes a call fail.
#include <cublasLt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "strict.h"

#define API __attribute__((visibility("default")))
#define MUST(cond, ...) do { if (!(cond)) die(__func__, __VA_ARGS__); } while (0)
#define ENTER pthread_mutex_lock(&lock); calls++; cublasStatus_t planted_; if (trips(__func__, &planted_)) LEAVE(planted_)
#define LEAVE(r) do { cublasStatus_t result_ = (r); pthread_mutex_unlock(&lock); return result_; } while (0)

enum kind { HANDLE, DESC, LAYOUT, PREFERENCE };
static const char *const kind_name[] = {"handle", "description of a product", "layout", "preference"};

// An object of any kind. Objects are never freed, so that a use after the object's end is found.
struct object {
	enum kind kind;
	int live, device; // device: for a handle
	int32_t transa, transb, biastype;
	uint32_t epilogue;
	uint64_t bias;
	int32_t type, batch;
	int64_t rows, cols, ld, stride;
	uint64_t workspace;
	uint32_t reductions, align[4];
	int set; // for a preference: the attributes that were set, as bits
	struct object *next;
};

// The product for which an algorithm is valid. It is stored in the algorithm's 64 bytes, which the
// program keeps.
struct choice { uint64_t magic, signature, workspace; uint32_t align[4], biasalign; };
_Static_assert(sizeof(struct choice) <= sizeof(cublasLtMatmulAlgo_t), "a choice is an algorithm");

static const uint64_t magic = 0x744c7361;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct strict_machine machine;
static struct object *objects;
static unsigned long calls;
static int declines;
static struct { char call[64]; int after, result; } planted;

static void die(const char *fn, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
static void die(const char *fn, const char *format, ...) {
	va_list list;
	fprintf(stderr, "strict cublasLt: %s: ", fn);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(86);
}

// Functions for the test program.

API void strict_init(const struct strict_machine *m) { machine = *m; }

// strict_plant makes a call of the given name fail with a status, after the given number of
// successful calls.
API void strict_plant(const char *call, int after, int result) {
	snprintf(planted.call, sizeof planted.call, "%s", call);
	planted.after = after, planted.result = result;
}

// strict_decline makes the heuristic find nothing for the given number of products. The heuristic
// reports this alternately by its status and by an empty list.
API void strict_decline(int n) { declines = n; }
API uint64_t strict_calls(void) { return calls; }

// strict_live returns the number of objects that were not destroyed.
API int32_t strict_live(void) {
	int n = 0;
	pthread_mutex_lock(&lock);
	for (struct object *o = objects; o; o = o->next) n += o->live;
	pthread_mutex_unlock(&lock);
	return n;
}

static int trips(const char *fn, cublasStatus_t *result) {
	if (strcmp(fn, planted.call) || planted.after-- > 0) return 0;
	planted.call[0] = 0;
	*result = planted.result;
	return 1;
}

static struct object *new(enum kind kind) {
	struct object *o = calloc(1, sizeof *o);
	o->kind = kind, o->live = 1, o->next = objects, o->biastype = -1, o->batch = 1;
	objects = o;
	return o;
}

static struct object *alive(const char *fn, enum kind kind, const void *p) {
	for (struct object *o = objects; o; o = o->next)
		if (o == p) {
			if (o->kind != kind) die(fn, "%p is a %s and no %s", p, kind_name[o->kind], kind_name[kind]);
			if (!o->live) die(fn, "the %s %p was destroyed", kind_name[kind], p);
			return o;
		}
	die(fn, "%p is no %s", p, kind_name[kind]);
}

static int64_t size_of(int type) { return type == CUDA_R_32F ? 4 : 2; }
static int known(int type) { return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF; }

// bytes returns the size of the memory that a matrix, or a batch of matrices, spans.
static uint64_t bytes(const struct object *l) {
	return (uint64_t)((l->batch - 1) * l->stride + (l->cols - 1) * l->ld + l->rows) * size_of(l->type);
}

API size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
	ENTER;
	MUST(machine.current() >= 0, "no context is current");
	struct object *o = new(HANDLE);
	o->device = machine.current();
	*handle = (cublasLtHandle_t)o;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
	ENTER;
	alive(__func__, HANDLE, handle)->live = 0;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale) {
	ENTER;
	MUST(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, "compute type %d, scale type %d", compute, scale);
	*desc = (cublasLtMatmulDesc_t)new(DESC);
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
	ENTER;
	alive(__func__, DESC, desc)->live = 0;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

// take copies an attribute. The documentation fixes the attribute's size.
#define TAKE(field) do { MUST(size == sizeof(field), "attribute %d has %zu bytes, it takes %zu", attr, size, sizeof(field)); memcpy(&(field), buf, size); } while (0)

API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attr, const void *buf, size_t size) {
	ENTER;
	struct object *o = alive(__func__, DESC, desc);
	MUST(buf, "attribute %d of nothing", attr);
	switch (attr) {
	case CUBLASLT_MATMUL_DESC_TRANSA: TAKE(o->transa); break;
	case CUBLASLT_MATMUL_DESC_TRANSB: TAKE(o->transb); break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE: TAKE(o->epilogue); break;
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER: TAKE(o->bias); break;
	case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: TAKE(o->biastype); break;
	default: die(__func__, "attribute %d", attr);
	}
	MUST((o->transa == CUBLAS_OP_N || o->transa == CUBLAS_OP_T) && (o->transb == CUBLAS_OP_N || o->transb == CUBLAS_OP_T), "operations %d and %d", o->transa, o->transb);
	MUST(!o->epilogue || o->epilogue == CUBLASLT_EPILOGUE_DEFAULT || o->epilogue == CUBLASLT_EPILOGUE_BIAS, "epilogue %u", o->epilogue);
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld) {
	ENTER;
	MUST(known(type), "type %d", type);
	MUST(rows && cols && rows <= INT32_MAX && cols <= INT32_MAX, "%lu rows, %lu columns", rows, cols);
	MUST(ld >= (int64_t)rows, "a leading dimension of %ld for %lu rows", ld, rows);
	struct object *o = new(LAYOUT);
	o->type = type, o->rows = rows, o->cols = cols, o->ld = ld;
	*layout = (cublasLtMatrixLayout_t)o;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
	ENTER;
	alive(__func__, LAYOUT, layout)->live = 0;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attr, const void *buf, size_t size) {
	ENTER;
	struct object *o = alive(__func__, LAYOUT, layout);
	MUST(buf, "attribute %d of nothing", attr);
	switch (attr) {
	case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: TAKE(o->batch); break;
	case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: TAKE(o->stride); break;
	default: die(__func__, "attribute %d", attr);
	}
	MUST(o->batch > 0 && o->stride >= 0, "a batch of %d, its stride %ld", o->batch, o->stride);
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
	ENTER;
	struct object *o = new(PREFERENCE);
	o->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
	for (int i = 0; i < 4; i++) o->align[i] = 256;
	*preference = (cublasLtMatmulPreference_t)o;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
	ENTER;
	alive(__func__, PREFERENCE, preference)->live = 0;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attr, const void *buf, size_t size) {
	ENTER;
	struct object *o = alive(__func__, PREFERENCE, preference);
	MUST(buf, "attribute %d of nothing", attr);
	switch (attr) {
	case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: TAKE(o->workspace); break;
	case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: TAKE(o->reductions); break;
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
		uint32_t *align = &o->align[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
		TAKE(*align);
		MUST(*align && !(*align & (*align - 1)), "an alignment of %u bytes", *align);
		break;
	}
	default: die(__func__, "attribute %d", attr);
	}
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

// alignment returns the largest power of 2, up to 256, that divides an address.
static uint32_t alignment(uint64_t at) { return at & 255 ? at & -at : 256; }

static void mix(uint64_t *h, int64_t x) { *h = (*h ^ (uint64_t)x) * 0x100000001b3; }

// together checks that the operands fit each other. It returns a hash of everything that
// distinguishes products.
static uint64_t together(const char *fn, const struct object *p, const struct object *a, const struct object *b, const struct object *c, const struct object *d,
	struct strict_op *op) {
	int64_t m = p->transa ? a->cols : a->rows, k = p->transa ? a->rows : a->cols, k2 = p->transb ? b->cols : b->rows, n = p->transb ? b->rows : b->cols;
	if (k != k2 || d->rows != m || d->cols != n) die(fn, "[%ld,%ld] by [%ld,%ld] is not [%ld,%ld]", m, k, k2, n, d->rows, d->cols);
	if (a->type != b->type) die(fn, "A is of type %d, B of type %d", a->type, b->type);
	if (c->type != d->type || c->rows != d->rows || c->cols != d->cols || c->ld != d->ld || c->batch != d->batch || c->stride != d->stride) die(fn, "C is not like D");
	if (d->type != a->type && d->type != CUDA_R_32F) die(fn, "no product of type %d into type %d", a->type, d->type);
	if (a->batch != d->batch || b->batch != d->batch) die(fn, "batches of %d, %d and %d", a->batch, b->batch, d->batch);
	if (d->batch > 1 && d->stride < (d->cols - 1) * d->ld + d->rows && d->ld < (d->batch - 1) * d->stride + d->rows) die(fn, "the matrices of D overlap: stride %ld", d->stride);
	int bias = p->epilogue == CUBLASLT_EPILOGUE_BIAS;
	if (bias && !p->bias) die(fn, "a bias without an address");
	if (bias && p->biastype != d->type) die(fn, "the bias is of type %d, D of type %d", p->biastype, d->type);
	*op = (struct strict_op){.m = m, .n = n, .k = k, .batch = d->batch, .transa = p->transa, .transb = p->transb, .type = a->type, .out = d->type, .bias = bias,
		.lda = a->ld, .ldb = b->ld, .ldd = d->ld, .stridea = a->stride, .strideb = b->stride, .strided = d->stride};
	uint64_t h = 0xcbf29ce484222325;
	int64_t all[] = {m, n, k, d->batch, p->transa, p->transb, a->type, d->type, bias, a->ld, b->ld, d->ld, a->stride, b->stride, d->stride};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) mix(&h, all[i]);
	return h;
}

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
	cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D, cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[], int *count) {
	ENTER;
	struct object *h = alive(__func__, HANDLE, handle), *p = alive(__func__, DESC, desc), *f = alive(__func__, PREFERENCE, preference);
	MUST(machine.current() == h->device, "device %d is current, the handle is of device %d", machine.current(), h->device);
	MUST(wanted > 0 && results && count, "%d results", wanted);
	MUST(f->reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, "reductions %#x round what is summed, or add in an order of their own", f->reductions);
	struct strict_op op;
	struct choice c = {.magic = magic};
	c.signature = together(__func__, p, alive(__func__, LAYOUT, A), alive(__func__, LAYOUT, B), alive(__func__, LAYOUT, C), alive(__func__, LAYOUT, D), &op);
	if (declines > 0) {
		*count = 0;
		LEAVE(declines-- % 2 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS);
	}
	memcpy(c.align, f->align, sizeof c.align);
	c.biasalign = op.bias ? alignment(p->bias) : 1;
	if (op.k >= 32) c.workspace = (uint64_t)op.m * op.n * op.batch * 4; // workspace, as if the product were divided along k
	if (c.workspace > f->workspace) c.workspace = 0;
	memset(&results[0], 0, sizeof results[0]);
	memcpy(&results[0].algo, &c, sizeof c);
	results[0].workspaceSize = c.workspace, results[0].state = CUBLAS_STATUS_SUCCESS, results[0].wavesCount = 1;
	*count = 1;
	LEAVE(CUBLAS_STATUS_SUCCESS);
}

// operand checks the memory of a matrix, of a vector or of workspace.
static void operand(const char *fn, const char *name, uint64_t at, uint64_t n, uint32_t align, int device) {
	if (at % align) die(fn, "%s at %#lx is not aligned to %u bytes", name, at, align);
	if (machine.memory(at, n) != device) die(fn, "%s: %lu bytes at %#lx are no memory of device %d", name, n, at, device);
}

static int overlap(uint64_t a, uint64_t an, uint64_t b, uint64_t bn) { return a < b + bn && b < a + an; }

API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc, const void *B,
	cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
	const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspaceBytes, cudaStream_t stream) {
	ENTER;
	struct object *h = alive(__func__, HANDLE, handle), *p = alive(__func__, DESC, desc), *a = alive(__func__, LAYOUT, Adesc), *b = alive(__func__, LAYOUT, Bdesc),
		*c = alive(__func__, LAYOUT, Cdesc), *d = alive(__func__, LAYOUT, Ddesc);
	MUST(machine.current() == h->device, "device %d is current, the handle is of device %d", machine.current(), h->device);
	MUST(machine.stream((uint64_t)stream) == h->device, "its stream is not of device %d", h->device);
	MUST(alpha && beta && *(const float *)alpha == 1 && *(const float *)beta == 0, "alpha and beta are not 1 and 0");
	MUST(algo, "no algorithm");
	struct choice chosen;
	memcpy(&chosen, algo, sizeof chosen);
	MUST(chosen.magic == magic, "an algorithm that the heuristic has not made");
	struct strict_op op;
	MUST(chosen.signature == together(__func__, p, a, b, c, d, &op), "an algorithm of another product");
	MUST(workspaceBytes >= chosen.workspace, "%zu bytes of workspace, its algorithm needs %lu", workspaceBytes, chosen.workspace);
	MUST(C == D, "C is not at D");
	op.a = (uint64_t)A, op.b = (uint64_t)B, op.d = (uint64_t)D, op.stream = (uint64_t)stream, op.device = h->device;
	operand(__func__, "A", op.a, bytes(a), chosen.align[0], h->device);
	operand(__func__, "B", op.b, bytes(b), chosen.align[1], h->device);
	operand(__func__, "D", op.d, bytes(d), chosen.align[3], h->device);
	MUST(op.a % size_of(a->type) == 0 && op.b % size_of(b->type) == 0 && op.d % size_of(d->type) == 0, "an address inside of an element");
	MUST(!overlap(op.a, bytes(a), op.d, bytes(d)) && !overlap(op.b, bytes(b), op.d, bytes(d)), "D overlaps a factor");
	if (op.bias) {
		uint64_t n = op.m * size_of(d->type);
		op.biasat = p->bias;
		operand(__func__, "the bias", op.biasat, n, chosen.biasalign, h->device);
		MUST(!overlap(op.biasat, n, op.d, bytes(d)), "D overlaps the bias");
	}
	if (chosen.workspace) {
		op.workspace = (uint64_t)workspace, op.workspacebytes = workspaceBytes;
		operand(__func__, "workspace", op.workspace, workspaceBytes, 256, h->device);
		MUST(!overlap(op.workspace, workspaceBytes, op.d, bytes(d)) && !overlap(op.workspace, workspaceBytes, op.a, bytes(a)) &&
			!overlap(op.workspace, workspaceBytes, op.b, bytes(b)), "the workspace overlaps an operand");
	}
	LEAVE(machine.issue(&op) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS);
}
