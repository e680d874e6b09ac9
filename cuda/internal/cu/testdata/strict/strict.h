// Declarations that the parts of the strict driver share, see libcuda.c.
#define __CUDA_API_VERSION_INTERNAL 1 // cuda.h then declares each version of a function by its own name
#include <cuda.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default"))) CUresult CUDAAPI

enum kind { CONTEXT = 1, MODULE, FUNCTION, STREAM, EVENT, GRAPH, NODE, EXEC, LINK, PHYSICAL };

// An object to which a handle points.
struct object {
	uint64_t magic;
	enum kind kind;
	struct object *next, *of; // of: the context, module or graph to which it belongs
	int alive, timing, recorded, capturing, device, retained;
	unsigned flags;
	size_t size, used;                    // for physical memory and a module's text; used: bytes mapped
	char *text;                           // for modules and links
	char name[256];                       // for functions
	size_t params, shared, dynamic;       // for functions, in bytes
	unsigned most[3], threads;            // for functions: .maxntid
	CUmemorytype from, to;                // for a copy node
	size_t width;
	int what; // kind of a node: 'k' kernel, 'c' copy, 'f' fill, 'e' empty, 'g' child graph
};

extern pthread_mutex_t lock;
extern __thread struct object *current;   // current context of this thread
extern __thread int thread_captures;
extern unsigned long calls;

void die(const char *fn, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
struct object *make(enum kind k, struct object *of);
struct object *get(const char *fn, enum kind k, const void *handle);
int quick(void);
struct object *need(const char *fn); // returns the current context
void readable(const char *fn, const char *what, const void *p, size_t n);
void writable(const char *fn, const char *what, void *p, size_t n);
void on_device(const char *fn, CUdeviceptr p, size_t n);  // the range must be mapped, inside of one allocation
void copyable(const char *fn, const void *p, size_t n);   // the range must be host memory
int pinned(const void *p, size_t n);
struct object *stream_of(const char *fn, CUstream s); // a stream of the current context; nil for the default stream
void check_device(const char *fn, CUdevice d);
void launchable(const char *fn, struct object *f, const unsigned *grid, const unsigned *block, unsigned shared, void **params, void **extra);
void parse_entry(const char *fn, struct object *f, const char *text);
void check_ptx(const char *fn, const char *text);

#define ENTER pthread_mutex_lock(&lock); calls++
#define LEAVE(r) do { CUresult result_ = (r); pthread_mutex_unlock(&lock); return result_; } while (0)
#define MUST(cond, ...) do { if (!(cond)) die(__func__, __VA_ARGS__); } while (0)
#define OUT(p) writable(__func__, #p, p, sizeof *(p))
