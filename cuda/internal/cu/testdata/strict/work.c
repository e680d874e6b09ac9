// Streams, events, copies, modules, launches and graphs of the strict driver.
#include "strict.h"

API cuStreamCreateWithPriority(CUstream *s, unsigned int flags, int priority) {
	ENTER;
	struct object *c = need(__func__);
	OUT(s);
	MUST(flags == CU_STREAM_DEFAULT || flags == CU_STREAM_NON_BLOCKING, "flags %#x", flags);
	MUST(priority <= 0 && priority >= -5, "priority %d", priority);
	*s = (CUstream)make(STREAM, c);
	LEAVE(0);
}

API cuStreamDestroy_v2(CUstream s) { ENTER; get(__func__, STREAM, s)->alive = 0; LEAVE(0); }

static struct object *idle(const char *fn, CUstream s) {
	struct object *o = stream_of(fn, s);
	if (o && o->capturing) die(fn, "the stream is being captured");
	return o;
}

API cuStreamSynchronize(CUstream s) { ENTER; idle(__func__, s); LEAVE(0); }
API cuStreamQuery(CUstream s) { ENTER; idle(__func__, s); LEAVE(0); }

API cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags) {
	ENTER;
	stream_of(__func__, s);
	get(__func__, EVENT, e);
	MUST(!flags, "flags %#x", flags);
	LEAVE(0);
}

API cuEventCreate(CUevent *e, unsigned int flags) {
	ENTER;
	struct object *c = need(__func__);
	OUT(e);
	MUST(!(flags & ~(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)), "flags %#x", flags);
	struct object *o = make(EVENT, c);
	o->timing = !(flags & CU_EVENT_DISABLE_TIMING);
	*e = (CUevent)o;
	LEAVE(0);
}

API cuEventDestroy_v2(CUevent e) { ENTER; get(__func__, EVENT, e)->alive = 0; LEAVE(0); }

API cuEventRecord(CUevent e, CUstream s) {
	ENTER;
	struct object *on = idle(__func__, s), *o = get(__func__, EVENT, e);
	MUST(o->of == (on ? on->of : need(__func__)), "event and stream are of different contexts");
	o->recorded = 1;
	LEAVE(0);
}

API cuEventQuery(CUevent e) { ENTER; get(__func__, EVENT, e); LEAVE(0); }
API cuEventSynchronize(CUevent e) { ENTER; get(__func__, EVENT, e); LEAVE(0); }

API cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
	ENTER;
	OUT(ms);
	struct object *a = get(__func__, EVENT, from), *b = get(__func__, EVENT, to);
	if (!a->timing || !b->timing || !a->recorded || !b->recorded) LEAVE(CUDA_ERROR_INVALID_HANDLE);
	*ms = 0.5f;
	LEAVE(0);
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) {
	ENTER;
	stream_of(__func__, s);
	on_device(__func__, to, n);
	copyable(__func__, from, n);
	if (!quick()) memmove((void *)to, from, n);
	LEAVE(0);
}

API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) {
	ENTER;
	stream_of(__func__, s);
	on_device(__func__, from, n);
	copyable(__func__, to, n);
	if (!quick()) memmove(to, (void *)from, n);
	LEAVE(0);
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
	ENTER;
	stream_of(__func__, s);
	on_device(__func__, to, n);
	on_device(__func__, from, n);
	MUST(!n || to + n <= from || from + n <= to, "the ranges overlap");
	if (!quick()) memcpy((void *)to, (void *)from, n);
	LEAVE(0);
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext tc, CUdeviceptr from, CUcontext fc, size_t n, CUstream s) {
	ENTER;
	stream_of(__func__, s);
	get(__func__, CONTEXT, tc);
	get(__func__, CONTEXT, fc);
	on_device(__func__, to, n);
	on_device(__func__, from, n);
	memmove((void *)to, (void *)from, n);
	LEAVE(0);
}

#define FILL(name, type)                                               \
	API name(CUdeviceptr to, type v, size_t n, CUstream s) {           \
		ENTER;                                                         \
		stream_of(__func__, s);                                        \
		MUST(to % sizeof v == 0, "%#llx is not aligned", to);          \
		on_device(__func__, to, n * sizeof v);                         \
		for (size_t i = 0; i < n && !quick(); i++) ((type *)to)[i] = v; \
		LEAVE(0);                                                      \
	}
FILL(cuMemsetD8Async, unsigned char)
FILL(cuMemsetD16Async, unsigned short)
FILL(cuMemsetD32Async, unsigned int)

// Options of the compiler. Each key may occur once, with a valid value. The logs are filled.
static void options(const char *fn, unsigned n, CUjit_option *keys, void **values) {
	char *log[2] = {0};
	size_t room[2] = {0};
	readable(fn, "options", keys, n * sizeof *keys);
	readable(fn, "option values", values, n * sizeof *values);
	for (unsigned i = 0; i < n; i++) {
		uintptr_t v = (uintptr_t)values[i];
		switch (keys[i]) {
		case CU_JIT_INFO_LOG_BUFFER: log[0] = values[i]; break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: room[0] = v; break;
		case CU_JIT_ERROR_LOG_BUFFER: log[1] = values[i]; break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: room[1] = v; break;
		case CU_JIT_MAX_REGISTERS: if (v < 16 || v > 255) die(fn, "%zu registers", (size_t)v); break;
		case CU_JIT_LOG_VERBOSE: case CU_JIT_GENERATE_LINE_INFO: if (v > 1) die(fn, "option %d is %zu", keys[i], (size_t)v); break;
		default: die(fn, "option %d", keys[i]);
		}
	}
	for (int i = 0; i < 2; i++) {
		if (!log[i] != !room[i] || room[i] > 1 << 20) die(fn, "log %d: %p of %zu bytes", i, log[i], room[i]);
		if (room[i]) readable(fn, "log", log[i], room[i]), snprintf(log[i], room[i], i ? "" : "strict driver");
	}
}

// The result of a link: this head, followed by the text.
struct image { char elf[4]; uint32_t n; char text[]; };

API cuLinkCreate_v2(unsigned int n, CUjit_option *keys, void **values, CUlinkState *l) {
	ENTER;
	struct object *c = need(__func__);
	options(__func__, n, keys, values);
	OUT(l);
	*l = (CUlinkState)make(LINK, c);
	LEAVE(0);
}

API cuLinkAddData_v2(CUlinkState l, CUjitInputType type, void *data, size_t n, const char *name, unsigned int k, CUjit_option *keys, void **values) {
	ENTER;
	need(__func__);
	struct object *o = get(__func__, LINK, l);
	MUST(type == CU_JIT_INPUT_PTX, "type %d", type);
	MUST(!k && !keys && !values, "%u options", k);
	readable(__func__, "data", data, n);
	readable(__func__, "name", name, 1);
	MUST(n && strnlen(data, n) == n - 1, "PTX text of %zu bytes does not end in its only NUL", n);
	check_ptx(__func__, data);
	o->text = strdup(data), o->size = n;
	LEAVE(0);
}

API cuLinkComplete(CUlinkState l, void **image, size_t *n) {
	ENTER;
	need(__func__);
	struct object *o = get(__func__, LINK, l);
	OUT(image);
	OUT(n);
	MUST(o->text, "nothing was added");
	struct image *m = malloc(sizeof *m + o->size);
	memcpy(m->elf, "\177ELF", 4), m->n = o->size, memcpy(m->text, o->text, o->size);
	free(o->text);
	o->text = (char *)m;
	*image = m, *n = sizeof *m + o->size;
	LEAVE(0);
}

API cuLinkDestroy(CUlinkState l) { // this also destroys the result of the link
	ENTER;
	need(__func__);
	struct object *o = get(__func__, LINK, l);
	if (o->text) memset(o->text, 0xEE, o->size);
	free(o->text);
	o->alive = 0;
	LEAVE(0);
}

API cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned int n, CUjit_option *keys, void **values) {
	ENTER;
	struct object *c = need(__func__);
	OUT(m);
	readable(__func__, "image", image, 8);
	options(__func__, n, keys, values);
	if (thread_captures) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	const struct image *made = image;
	const char *text = memcmp(image, "\177ELF", 4) ? image : made->text;
	if (text == made->text) {
		readable(__func__, "cubin", image, sizeof *made + made->n);
		if (made->n != strnlen(text, made->n) + 1) LEAVE(CUDA_ERROR_INVALID_IMAGE);
	}
	check_ptx(__func__, text);
	struct object *o = make(MODULE, c);
	o->text = strdup(text);
	*m = (CUmodule)o;
	LEAVE(0);
}

API cuModuleUnload(CUmodule m) { ENTER; need(__func__); get(__func__, MODULE, m)->alive = 0; LEAVE(0); }

API cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	ENTER;
	need(__func__);
	OUT(f);
	struct object *o = get(__func__, MODULE, m);
	readable(__func__, "name", name, 1);
	MUST(strnlen(name, 256) < 256 && *name, "name");
	char want[300];
	snprintf(want, sizeof want, ".entry %s", name);
	const char *at = strstr(o->text, want);
	if (!at || strchr("_$.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", at[strlen(want)])) LEAVE(CUDA_ERROR_NOT_FOUND);
	struct object *fn = make(FUNCTION, o);
	snprintf(fn->name, sizeof fn->name, "%s", name);
	parse_entry(__func__, fn, at + strlen(want));
	*f = (CUfunction)fn;
	LEAVE(0);
}

API cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
	ENTER;
	OUT(v);
	struct object *o = get(__func__, FUNCTION, f);
	switch (a) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = o->threads; break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *v = o->shared; break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *v = o->dynamic; break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *v = 0; break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS: *v = 32; break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION: *v = 80; break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *v = 90; break;
	default: die(__func__, "attribute %d", a);
	}
	LEAVE(0);
}

API cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
	ENTER;
	struct object *o = get(__func__, FUNCTION, f);
	MUST(a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, "attribute %d", a);
	if (v < 0 || v + o->shared > 232448) LEAVE(CUDA_ERROR_INVALID_VALUE);
	o->dynamic = v;
	LEAVE(0);
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads, size_t shared) {
	ENTER;
	need(__func__);
	OUT(n);
	get(__func__, FUNCTION, f);
	MUST(threads > 0 && shared <= 232448, "%d threads, %zu bytes", threads, shared);
	*n = 2;
	LEAVE(0);
}

API cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
	CUstream s, void **params, void **extra) {
	ENTER;
	struct object *o = get(__func__, FUNCTION, f);
	MUST(get(__func__, MODULE, o->of)->of == need(__func__), "the kernel is of another context");
	stream_of(__func__, s);
	launchable(__func__, o, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, params, extra);
	LEAVE(0);
}

API cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
	ENTER;
	readable(__func__, "configuration", c, sizeof *c);
	struct object *o = get(__func__, FUNCTION, f);
	MUST(get(__func__, MODULE, o->of)->of == need(__func__), "the kernel is of another context");
	stream_of(__func__, c->hStream);
	unsigned grid[] = {c->gridDimX, c->gridDimY, c->gridDimZ};
	launchable(__func__, o, grid, (unsigned[]){c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes, params, extra);
	MUST(c->numAttrs && c->numAttrs <= 3, "%u attributes: cuLaunchKernel is for none", c->numAttrs);
	readable(__func__, "attributes", c->attrs, c->numAttrs * sizeof *c->attrs);
	for (unsigned i = 0; i < c->numAttrs; i++) {
		const CUlaunchAttribute *a = &c->attrs[i];
		for (unsigned k = 0; k < i; k++) MUST(c->attrs[k].id != a->id, "attribute %d twice", a->id);
		switch (a->id) {
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
			const unsigned n[] = {a->value.clusterDim.x, a->value.clusterDim.y, a->value.clusterDim.z};
			for (int k = 0; k < 3; k++) MUST(n[k] && grid[k] % n[k] == 0, "a grid of %u blocks in clusters of %u", grid[k], n[k]);
			MUST(n[0] * n[1] * n[2] <= 8, "a cluster of %u blocks", n[0] * n[1] * n[2]);
			break;
		}
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
			MUST(a->value.programmaticStreamSerializationAllowed == 1, "serialization %d", a->value.programmaticStreamSerializationAllowed);
			break;
		case CU_LAUNCH_ATTRIBUTE_PRIORITY: MUST(a->value.priority <= 0 && a->value.priority >= -5, "priority %d", a->value.priority); break;
		default: die(__func__, "attribute %d", a->id);
		}
	}
	LEAVE(0);
}

API cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
	ENTER;
	struct object *o = idle(__func__, s);
	MUST(o, "the default stream");
	MUST(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "mode %d", mode);
	o->capturing = thread_captures = 1;
	LEAVE(0);
}

API cuStreamEndCapture(CUstream s, CUgraph *g) {
	ENTER;
	struct object *o = stream_of(__func__, s);
	OUT(g);
	MUST(o && o->capturing && thread_captures, "no capture of this thread");
	o->capturing = thread_captures = 0;
	*g = (CUgraph)make(GRAPH, o->of);
	LEAVE(0);
}

API cuGraphCreate(CUgraph *g, unsigned int flags) { ENTER; OUT(g); MUST(!flags, "flags"); *g = (CUgraph)make(GRAPH, need(__func__)); LEAVE(0); }
API cuGraphDestroy(CUgraph g) { ENTER; get(__func__, GRAPH, g)->alive = 0; LEAVE(0); }

static struct object *node(const char *fn, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, int what) {
	struct object *in = get(fn, GRAPH, g);
	writable(fn, "node", n, sizeof *n);
	if (count) readable(fn, "dependencies", after, count * sizeof *after);
	for (size_t i = 0; i < count; i++)
		if (get(fn, NODE, after[i])->of != in) die(fn, "a dependency of another graph");
	struct object *o = make(NODE, in);
	o->what = what;
	*n = (CUgraphNode)o;
	return o;
}

static void kernel_params(const char *fn, const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
	readable(fn, "parameters", p, sizeof *p);
	launchable(fn, get(fn, FUNCTION, p->func), &p->gridDimX, &p->blockDimX, p->sharedMemBytes, p->kernelParams, p->extra);
}

API cuGraphAddKernelNode(CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
	ENTER;
	need(__func__);
	node(__func__, n, g, after, count, 'k');
	kernel_params(__func__, p);
	LEAVE(0);
}

static void copy_params(const char *fn, const CUDA_MEMCPY3D *p, struct object *o) {
	readable(fn, "copy", p, sizeof *p);
	if (p->srcXInBytes || p->srcY || p->srcZ || p->srcLOD || p->dstXInBytes || p->dstY || p->dstZ || p->dstLOD || p->reserved0 || p->reserved1 || p->srcArray ||
		p->dstArray || p->Height != 1 || p->Depth != 1 || !p->WidthInBytes)
		die(fn, "not a copy of a row: %zu by %zu by %zu", p->WidthInBytes, p->Height, p->Depth);
	if (p->srcPitch && p->srcPitch < p->WidthInBytes) die(fn, "pitch %zu", p->srcPitch);
	for (int end = 0; end < 2; end++) {
		CUmemorytype t = end ? p->dstMemoryType : p->srcMemoryType;
		const void *host = end ? p->dstHost : p->srcHost;
		CUdeviceptr dev = end ? p->dstDevice : p->srcDevice;
		if (t == CU_MEMORYTYPE_HOST) {
			copyable(fn, host, p->WidthInBytes);
			if (!pinned(host, p->WidthInBytes)) die(fn, "host memory of a graph is not page-locked");
			if (dev) die(fn, "both a host's and a device's address");
		} else if (t == CU_MEMORYTYPE_DEVICE) {
			on_device(fn, dev, p->WidthInBytes);
			if (host) die(fn, "both a host's and a device's address");
		} else
			die(fn, "memory type %d", t);
	}
	if (o->width && (o->from != p->srcMemoryType || o->to != p->dstMemoryType)) die(fn, "the kinds of memory changed");
	o->from = p->srcMemoryType, o->to = p->dstMemoryType, o->width = p->WidthInBytes;
}

API cuGraphAddMemcpyNode(CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, const CUDA_MEMCPY3D *p, CUcontext c) {
	ENTER;
	get(__func__, CONTEXT, c);
	copy_params(__func__, p, node(__func__, n, g, after, count, 'c'));
	LEAVE(0);
}

API cuGraphAddMemsetNode(CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext c) {
	ENTER;
	get(__func__, CONTEXT, c);
	node(__func__, n, g, after, count, 'f');
	readable(__func__, "fill", p, sizeof *p);
	MUST(p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4, "elements of %u bytes", p->elementSize);
	MUST(p->height == 1 && p->width && p->dst % p->elementSize == 0, "%zu by %zu at %#llx", p->width, p->height, p->dst);
	on_device(__func__, p->dst, p->width * p->elementSize);
	LEAVE(0);
}

API cuGraphAddEmptyNode(CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count) { ENTER; node(__func__, n, g, after, count, 'e'); LEAVE(0); }

API cuGraphAddChildGraphNode(CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, CUgraph child) {
	ENTER;
	get(__func__, GRAPH, child);
	node(__func__, n, g, after, count, 'g');
	LEAVE(0);
}

API cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n) {
	ENTER;
	struct object *in = get(__func__, GRAPH, g);
	readable(__func__, "from", from, n * sizeof *from);
	readable(__func__, "to", to, n * sizeof *to);
	for (size_t i = 0; i < n; i++) MUST(get(__func__, NODE, from[i])->of == in && get(__func__, NODE, to[i])->of == in, "a node of another graph");
	LEAVE(0);
}

API cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long flags) {
	ENTER;
	struct object *c = need(__func__), *in = get(__func__, GRAPH, g);
	OUT(e);
	MUST(!flags, "flags %#llx", flags);
	struct object *o = make(EXEC, in);
	o->of = in;
	MUST(in->of == c, "the graph is of another context");
	*e = (CUgraphExec)o;
	LEAVE(0);
}

static struct object *node_of(const char *fn, CUgraphExec e, CUgraphNode n, int what) {
	struct object *o = get(fn, NODE, n);
	if (o->of != get(fn, EXEC, e)->of || o->what != what) die(fn, "the node is of another graph or kind");
	if (!o->of->alive) die(fn, "the node's graph was destroyed");
	return o;
}

API cuGraphExecKernelNodeSetParams(CUgraphExec e, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
	ENTER;
	need(__func__);
	node_of(__func__, e, n, 'k');
	kernel_params(__func__, p);
	LEAVE(0);
}

API cuGraphExecMemcpyNodeSetParams(CUgraphExec e, CUgraphNode n, const CUDA_MEMCPY3D *p, CUcontext c) {
	ENTER;
	get(__func__, CONTEXT, c);
	copy_params(__func__, p, node_of(__func__, e, n, 'c'));
	LEAVE(0);
}

API cuGraphExecDestroy(CUgraphExec e) { ENTER; get(__func__, EXEC, e)->alive = 0; LEAVE(0); }
API cuGraphLaunch(CUgraphExec e, CUstream s) { ENTER; get(__func__, EXEC, e); idle(__func__, s); LEAVE(0); }
