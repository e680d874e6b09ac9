// A driver library without a GPU. It checks that its callers do what NVIDIA's documentation
// requires: arguments, handles, the thread's current context, and the life of memory to which
// arguments point. It is compiled against NVIDIA's own cuda.h and cudaTypedefs.h, so that its
// prototypes, structures and version suffixes are the real ones. A wrong call ends the process with
// a line that names the call.
//
//	gcc -shared -fPIC -O1 -Wall -Werror -I INCLUDE -o libcuda.so.1 *.c
//
// Memory is real, and copies and fills are done immediately. Kernels do nothing, so results are
// wrong. With -DWITHOUT_RESOLVER the library lacks cuGetProcAddress_v2, like drivers before 12.0.
// With STRICT_QUICK=1 it does neither copies nor fills, and does not access memory through
// pointers. A benchmark then measures only the caller's own time.
#include "strict.h"

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__thread struct object *current;
__thread int thread_captures;
unsigned long calls;
static struct object *objects[4096], *primary;
static int initialised;
static const uint64_t magic = 0x464c414d42454155;
enum { DRIVER = 13000 };

void die(const char *fn, const char *format, ...) {
	va_list list;
	fprintf(stderr, "strict driver: %s: ", fn);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	fflush(stderr);
	if (getenv("STRICT_ABORT")) abort();
	_exit(86);
}

static unsigned hash(const void *p) { return ((uintptr_t)p >> 4) % 4096; }

struct object *make(enum kind k, struct object *of) {
	struct object *o = calloc(1, sizeof *o);
	o->magic = magic, o->kind = k, o->of = of, o->alive = 1;
	o->next = objects[hash(o)], objects[hash(o)] = o;
	return o;
}

// get finds a handle. Objects are never freed, so that a destroyed object is recognised.
struct object *get(const char *fn, enum kind k, const void *handle) {
	for (struct object *o = objects[hash(handle)]; o; o = o->next)
		if (o == handle) {
			if (o->kind != k) die(fn, "handle %p is of kind %d, want %d", handle, o->kind, k);
			if (!o->alive) die(fn, "handle %p of kind %d was destroyed", handle, k);
			return o;
		}
	die(fn, "%p is no handle that was given out (kind %d)", handle, k);
}

struct object *need(const char *fn) {
	if (!initialised) die(fn, "before cuInit");
	if (!current) die(fn, "no context is current on the calling thread");
	if (!primary || !primary->alive || current != primary) die(fn, "the current context was released");
	return current;
}

static int probe[2] = {-1, -1};

int quick(void) {
	static int known = -1;
	if (known < 0) known = getenv("STRICT_QUICK") != NULL;
	return known;
}

void readable(const char *fn, const char *what, const void *p, size_t n) {
	if (quick()) return;
	if (probe[0] < 0 && pipe(probe)) die(fn, "no pipe");
	for (size_t i = 0; i < n; i += n - i > 4096 ? 4096 : (n - i > 1 ? n - i - 1 : 1)) {
		char c;
		if (write(probe[1], (const char *)p + i, 1) != 1 || read(probe[0], &c, 1) != 1)
			die(fn, "%s: %p + %zu cannot be read", what, p, i);
	}
}

void writable(const char *fn, const char *what, void *p, size_t n) {
	if (!p) die(fn, "%s is NULL", what);
	readable(fn, what, p, n);
	if ((uintptr_t)p % (n < 8 ? n : 8)) die(fn, "%s: %p is not aligned", what, p);
	memset(p, 0xAB, n); // so that a caller notices if it reads more or less than was written
}

// Ranges of memory that are allocated, page-locked, reserved or mapped.
struct range { char *at; size_t n; int kind, access; struct object *h; struct range *next; };
enum { ALLOCATED = 1, PINNED, RESERVED, MAPPED };
static struct range *ranges;
static size_t taken;
enum { GiB = 1 << 30 };
static const size_t total = 141ull * GiB;

static struct range *add_range(char *at, size_t n, int kind) {
	struct range *r = calloc(1, sizeof *r);
	r->at = at, r->n = n, r->kind = kind, r->next = ranges, ranges = r;
	return r;
}

static struct range *find_range(const void *p, int kind) {
	for (struct range *r = ranges; r; r = r->next)
		if (r->kind == kind && (char *)p >= r->at && (char *)p < r->at + r->n) return r;
	return NULL;
}

static void drop_range(struct range *gone) {
	struct range **r = &ranges;
	while (*r != gone) r = &(*r)->next;
	*r = gone->next;
	free(gone);
}

int pinned(const void *p, size_t n) {
	struct range *r = find_range(p, PINNED);
	return r && (char *)p + n <= r->at + r->n;
}

void on_device(const char *fn, CUdeviceptr p, size_t n) {
	char *at = (char *)p, *end = at + n;
	if (!n) return;
	struct range *r = find_range(at, ALLOCATED);
	if (!r) r = find_range(at, PINNED);
	if (r) {
		if (end > r->at + r->n) die(fn, "%zu bytes at %p leave the allocation of %zu bytes at %p", n, at, r->n, r->at);
		return;
	}
	while (at < end) {
		if (!(r = find_range(at, MAPPED)) || !r->access) die(fn, "%p is not the device's memory", at);
		at = r->at + r->n;
	}
}

void copyable(const char *fn, const void *p, size_t n) {
	if (!n) return;
	if (find_range(p, ALLOCATED) || find_range(p, MAPPED)) die(fn, "%p is a device's address, a host's is wanted", p);
	struct range *r = find_range(p, PINNED);
	if (r && (char *)p + n > r->at + r->n) die(fn, "%zu bytes at %p leave page-locked memory", n, p);
	readable(fn, "host memory", p, n);
}

struct object *stream_of(const char *fn, CUstream s) {
	struct object *c = need(fn);
	if (!s) return NULL;
	if (s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD) die(fn, "a special stream");
	struct object *o = get(fn, STREAM, s);
	if (o->of != c) die(fn, "the stream is of another context than the current one");
	return o;
}

void check_device(const char *fn, CUdevice d) {
	if (!initialised) die(fn, "before cuInit");
	if (d) die(fn, "device %d of 1", d);
}

API cuInit(unsigned int flags) { ENTER; MUST(!flags, "flags %#x", flags); initialised = 1; LEAVE(0); }
API cuDriverGetVersion(int *v) { ENTER; OUT(v); *v = DRIVER; LEAVE(0); }
API cuDeviceGetCount(int *n) { ENTER; MUST(initialised, "before cuInit"); OUT(n); *n = 1; LEAVE(0); }
API cuDeviceGet(CUdevice *d, int ordinal) { ENTER; OUT(d); if (ordinal) LEAVE(CUDA_ERROR_INVALID_DEVICE); *d = 0; LEAVE(0); }

API cuDeviceGetName(char *name, int n, CUdevice d) {
	ENTER;
	check_device(__func__, d);
	MUST(n >= 32, "%d bytes for a name", n);
	readable(__func__, "name", name, n);
	snprintf(name, n, "Strict driver without a GPU");
	LEAVE(0);
}

API cuDeviceGetPCIBusId(char *id, int n, CUdevice d) {
	ENTER;
	check_device(__func__, d);
	MUST(n >= 13, "%d bytes for a bus id", n);
	readable(__func__, "id", id, n);
	snprintf(id, n, "0000:01:00.0");
	LEAVE(0);
}

API cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) {
	ENTER;
	check_device(__func__, d);
	readable(__func__, "uuid", u, sizeof *u);
	for (int i = 0; i < 16; i++) u->bytes[i] = i;
	LEAVE(0);
}

API cuDeviceTotalMem_v2(size_t *n, CUdevice d) { ENTER; check_device(__func__, d); OUT(n); *n = total; LEAVE(0); }
API cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) { ENTER; check_device(__func__, a); check_device(__func__, b); OUT(can); *can = 0; LEAVE(0); }

// cuDeviceGetAttribute returns the attributes of an H200, as far as they are documented.
API cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
	static const struct { CUdevice_attribute a; int v; } list[] = {
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024}, {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024}, {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64}, {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647}, {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535}, {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
		{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536}, {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32}, {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
		{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000}, {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132}, {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0},
		{CU_DEVICE_ATTRIBUTE_INTEGRATED, 0}, {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1}, {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
		{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1}, {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1}, {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1},
		{CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0}, {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0}, {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
		{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144}, {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048}, {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3}, {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9}, {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
		{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1}, {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
		{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536}, {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
		{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0}, {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448}, {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32}, {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
		{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1}, {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1}, {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1},
	};
	ENTER;
	check_device(__func__, d);
	OUT(v);
	for (size_t i = 0; i < sizeof list / sizeof *list; i++)
		if (list[i].a == a) { *v = list[i].v; LEAVE(0); }
	die(__func__, "attribute %d is not one that this library knows", a);
}

API cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	ENTER;
	check_device(__func__, d);
	OUT(c);
	if (!primary || !primary->alive) primary = make(CONTEXT, NULL);
	primary->retained++;
	*c = (CUcontext)primary;
	LEAVE(0);
}

API cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	ENTER;
	check_device(__func__, d);
	MUST(primary && primary->retained > 0, "more often than retained");
	if (!--primary->retained) primary->alive = 0;
	LEAVE(0);
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned int flags) {
	ENTER;
	check_device(__func__, d);
	MUST(!(flags & ~CU_CTX_FLAGS_MASK), "flags %#x", flags);
	LEAVE(0);
}

API cuCtxSetCurrent(CUcontext c) { ENTER; current = c ? get(__func__, CONTEXT, c) : NULL; LEAVE(0); }
API cuCtxSynchronize(void) { ENTER; need(__func__); MUST(!thread_captures, "during a capture"); LEAVE(0); }
API cuCtxEnablePeerAccess(CUcontext c, unsigned int flags) { ENTER; need(__func__); MUST(!flags, "flags"); get(__func__, CONTEXT, c); LEAVE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED); }
API cuCtxDisablePeerAccess(CUcontext c) { ENTER; need(__func__); get(__func__, CONTEXT, c); LEAVE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED); }
API cuCtxGetStreamPriorityRange(int *least, int *greatest) { ENTER; need(__func__); OUT(least); OUT(greatest); *least = 0, *greatest = -5; LEAVE(0); }

API cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	ENTER;
	need(__func__);
	OUT(p);
	MUST(n, "0 bytes");
	if (thread_captures) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (n > total - taken) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	add_range(at, n, ALLOCATED);
	taken += n;
	*p = (CUdeviceptr)at;
	LEAVE(0);
}

API cuMemFree_v2(CUdeviceptr p) {
	ENTER;
	need(__func__);
	if (thread_captures) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	struct range *r = find_range((void *)p, ALLOCATED);
	MUST(r && r->at == (char *)p, "%#llx was not allocated", p);
	munmap(r->at, r->n);
	taken -= r->n;
	drop_range(r);
	LEAVE(0);
}

API cuMemGetInfo_v2(size_t *unused, size_t *all) { ENTER; need(__func__); OUT(unused); OUT(all); *unused = total - taken, *all = total; LEAVE(0); }

API cuMemHostAlloc(void **p, size_t n, unsigned int flags) {
	ENTER;
	need(__func__);
	OUT(p);
	MUST(n, "0 bytes");
	MUST(!(flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)), "flags %#x", flags);
	if (thread_captures) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	add_range(at, n, PINNED);
	*p = at;
	LEAVE(0);
}

API cuMemFreeHost(void *p) {
	ENTER;
	need(__func__);
	struct range *r = find_range(p, PINNED);
	MUST(r && r->at == (char *)p, "%p was not allocated", p);
	munmap(r->at, r->n);
	drop_range(r);
	LEAVE(0);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned int flags) {
	ENTER;
	need(__func__);
	OUT(d);
	MUST(!flags, "flags %#x", flags);
	MUST(find_range(p, PINNED), "%p is not page-locked", p);
	*d = (CUdeviceptr)p;
	LEAVE(0);
}

// Virtual memory. No test maps memory twice, so the memory itself lies at the reserved address.
static const size_t page = 2 << 20;

static void check_prop(const char *fn, const CUmemAllocationProp *p) {
	readable(fn, "properties", p, sizeof *p);
	if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		p->location.id || p->win32HandleMetaData || p->allocFlags.compressionType || p->allocFlags.gpuDirectRDMACapable || p->allocFlags.usage)
		die(fn, "properties that are not memory of device 0");
	for (size_t i = 0; i < sizeof p->allocFlags.reserved; i++)
		if (p->allocFlags.reserved[i]) die(fn, "reserved bytes of the properties are set");
}

API cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags f) {
	ENTER;
	OUT(n);
	check_prop(__func__, p);
	MUST(f == CU_MEM_ALLOC_GRANULARITY_MINIMUM, "flag %d", f);
	*n = page;
	LEAVE(0);
}

API cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t alignment, CUdeviceptr at, unsigned long long flags) {
	ENTER;
	OUT(p);
	MUST(n && n % page == 0 && !alignment && !at && !flags, "%zu bytes, alignment %zu, at %#llx, flags %#llx", n, alignment, at, flags);
	char *m = mmap(NULL, n + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	m += (page - (uintptr_t)m % page) % page;
	add_range(m, n, RESERVED);
	*p = (CUdeviceptr)m;
	LEAVE(0);
}

API cuMemAddressFree(CUdeviceptr p, size_t n) {
	ENTER;
	struct range *r = find_range((void *)p, RESERVED);
	MUST(r && r->at == (char *)p && r->n == n, "%zu bytes at %#llx were not reserved so", n, p);
	for (struct range *m = ranges; m; m = m->next)
		MUST(m->kind != MAPPED || m->at < r->at || m->at >= r->at + n, "memory is still mapped there");
	munmap(r->at, n);
	drop_range(r);
	LEAVE(0);
}

API cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long flags) {
	ENTER;
	OUT(h);
	check_prop(__func__, p);
	MUST(n && n % page == 0 && !flags, "%zu bytes, flags %#llx", n, flags);
	if (n > total - taken) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	struct object *o = make(PHYSICAL, NULL);
	o->size = n, taken += n;
	*h = (CUmemGenericAllocationHandle)(uintptr_t)o;
	LEAVE(0);
}

static void unused_physical(struct object *o) {
	if (!o->alive && !o->used) taken -= o->size;
}

API cuMemRelease(CUmemGenericAllocationHandle h) {
	ENTER;
	struct object *o = get(__func__, PHYSICAL, (void *)(uintptr_t)h);
	o->alive = 0;
	unused_physical(o);
	LEAVE(0);
}

API cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags) {
	ENTER;
	struct object *o = get(__func__, PHYSICAL, (void *)(uintptr_t)h);
	struct range *r = find_range((void *)p, RESERVED);
	MUST(n == o->size && !offset && !flags && p % page == 0, "%zu of %zu bytes, offset %zu, flags %#llx", n, o->size, offset, flags);
	MUST(r && (char *)p + n <= r->at + r->n, "%zu bytes at %#llx are not reserved", n, p);
	for (struct range *m = ranges; m; m = m->next)
		MUST(m->kind != MAPPED || m->at + m->n <= (char *)p || m->at >= (char *)p + n, "%#llx is mapped", p);
	add_range((char *)p, n, MAPPED)->h = o;
	o->used++;
	LEAVE(0);
}

API cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *a, size_t count) {
	ENTER;
	readable(__func__, "access", a, sizeof *a);
	MUST(count == 1 && a->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !a->location.id && a->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access");
	for (char *at = (char *)p, *end = at + n; at < end;) {
		struct range *m = find_range(at, MAPPED);
		MUST(m && m->at == at && m->at + m->n <= end, "%p is not mapped, or in part", at);
		MUST(!mprotect(m->at, m->n, PROT_READ | PROT_WRITE), "mprotect");
		m->access = 1;
		at += m->n;
	}
	LEAVE(0);
}

API cuMemUnmap(CUdeviceptr p, size_t n) {
	ENTER;
	struct range *m = find_range((void *)p, MAPPED);
	MUST(m && m->at == (char *)p && m->n == n, "%zu bytes at %#llx were not mapped so", n, p);
	MUST(mmap(m->at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == m->at, "mmap");
	m->h->used--;
	unused_physical(m->h);
	drop_range(m);
	LEAVE(0);
}

#ifndef WITHOUT_RESOLVER
// cuGetProcAddress returns the newest form that is not newer than the requested version.
#define ROW(base, version, fn) {#base, version, (void *)(1 ? fn : (PFN_##base##_v##version)0)}
static CUresult newer(void) { die("a newer form of a function", "the caller knows the older one only"); }

static const struct { const char *base; int version; void *fn; } table[] = {
#include "table.inc"
	{"cuGraphAddKernelNode", 12000, (void *)newer}, {"cuGraphExecKernelNodeSetParams", 12000, (void *)newer},
	{"cuGraphAddDependencies", 12030, (void *)newer}, {"cuEventElapsedTime", 12080, (void *)newer},
};

API cuGetProcAddress_v2(const char *symbol, void **fn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
	ENTER;
	readable(__func__, "symbol", symbol, 1);
	OUT(fn);
	OUT(status);
	MUST(version >= 11080 && version <= DRIVER, "version %d", version);
	MUST(flags == CU_GET_PROC_ADDRESS_DEFAULT, "flags %#llx", (unsigned long long)flags);
	int best = 0, known = 0;
	*fn = NULL;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (!strcmp(table[i].base, symbol)) {
			known = 1;
			if (table[i].version <= version && table[i].version > best) best = table[i].version, *fn = table[i].fn;
		}
	MUST(known, "%s is asked for, and not in the table of this library", symbol);
	*status = *fn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	LEAVE(*fn ? 0 : CUDA_ERROR_NOT_FOUND);
}
#endif
