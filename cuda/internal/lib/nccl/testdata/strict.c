// An NCCL without GPUs. It checks that its callers do what NVIDIA's documentation requires: groups,
// states of communicators, arguments on which the ranks of a collective must agree, contexts,
// streams, memory. It is compiled against NVIDIA's own nccl.h, so that its prototypes are the real
// ones. A wrong call ends the process with a line that names the call.
//
//	gcc -shared -fPIC -O1 -Wall -Werror -I . -I INCLUDE -o libnccl.so.2 strict.c reduce.c
//
// Communicators work in the background. Work that was started is in progress for a varying number
// of queries of the state, and begins at the last of them. The test program provides the machine,
// which queues the work. strict_plant makes a call fail, and strict_hang makes work hang.
#include <nccl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "strict.h"

#define API __attribute__((visibility("default")))
#define MUST(cond, ...) do { if (!(cond)) die(__func__, __VA_ARGS__); } while (0)
#define ENTER pthread_mutex_lock(&lock); calls++
#define LEAVE(r) do { ncclResult_t result_ = (r); pthread_mutex_unlock(&lock); return result_; } while (0)

enum { MOST = 64, OPS = 16 };
enum state { JOINING, READY, FINALIZING, FINALIZED, DESTROYED, ABORTED };

// A clique is the set of ranks with one id.
struct clique {
	ncclUniqueId id;
	int number, world, joined, made, used;
	struct ncclComm *rank[MOST];
};

struct ncclComm {
	uint64_t magic;
	struct clique *of;
	int rank, device, looks, hangs, seq, groups;
	enum state state;
	ncclResult_t async;
	struct { int live; ncclDataType_t type; uint64_t scalar; } op[OPS];
	struct ncclComm *next;
};

// The arguments of a collective, by its sequence number. Each rank is compared with the first rank
// that made this call.
struct agreed { int clique, seq; struct strict_op op; struct agreed *next; };

static const uint64_t magic = 0x4343434c;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct strict_machine machine;
static struct clique *cliques[MOST * 64];
static int clique_count;
static unsigned long calls;
static struct ncclComm *comms;
static struct agreed *agreements;

// The group of a thread.
static __thread int depth;
static __thread struct strict_op *group;
static __thread int group_size, group_room, group_joins;
static __thread struct ncclComm *group_comms[4096];
static __thread ncclResult_t group_error;

// Work that was started and waits for its turn. There is only one piece of work at a time: the
// program starts the next one when this one is done.
static struct strict_op *started;
static int started_size;

static char last_error[256] = "";
static struct { char call[64]; int after, result; } planted;
static int hang_next, fail_next;

static void die(const char *fn, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
static void die(const char *fn, const char *format, ...) {
	va_list list;
	fprintf(stderr, "strict nccl: %s: ", fn);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(86);
}

// Functions for the test program.

API void strict_init(const struct strict_machine *m) { machine = *m; }

// strict_plant makes a call of the given name fail with a result, after the given number of
// successful calls.
API void strict_plant(const char *call, int after, int result) {
	snprintf(planted.call, sizeof planted.call, "%s", call);
	planted.after = after, planted.result = result;
}

// strict_hang makes the next work that is started stay in progress forever. strict_fail makes it
// fail later.
API void strict_hang(void) { hang_next = 1; }
API void strict_fail(int result) { fail_next = result; }
API uint64_t strict_calls(void) { return calls; }

// strict_live returns the number of communicators and ops that were not destroyed.
API int32_t strict_live(void) {
	int n = 0;
	for (struct ncclComm *c = comms; c; c = c->next) {
		n += c->state != DESTROYED && c->state != ABORTED;
		for (int i = 0; i < OPS; i++) n += c->state == READY && c->op[i].live;
	}
	return n;
}

static int trips(const char *fn, ncclResult_t *result) {
	if (strcmp(fn, planted.call) || planted.after-- > 0) return 0;
	planted.call[0] = 0;
	*result = planted.result;
	snprintf(last_error, sizeof last_error, "planted in %s", fn);
	return 1;
}

#define PLANTED do { ncclResult_t r_; if (trips(__func__, &r_)) { if (depth) group_error = r_; LEAVE(r_); } } while (0)

// looks returns how many queries find the started work in progress: none to six.
static int looks(void) { static unsigned n; n = n * 1103515245 + 12345; return n >> 16 & 7 ? (n >> 16 & 7) - 1 : 0; }

static struct ncclComm *alive(const char *fn, ncclComm_t comm) {
	for (struct ncclComm *c = comms; c; c = c->next)
		if (c == comm) {
			if (c->magic != magic || c->state == DESTROYED) die(fn, "%p was destroyed", (void *)comm);
			if (c->state == ABORTED) die(fn, "%p was aborted", (void *)comm);
			return c;
		}
	die(fn, "%p is no communicator", (void *)comm);
}

static struct ncclComm *ready(const char *fn, ncclComm_t comm) {
	struct ncclComm *c = alive(fn, comm);
	if (c->async == ncclInProgress) die(fn, "rank %d is still in progress", c->rank);
	if (c->async != ncclSuccess) die(fn, "rank %d has failed", c->rank);
	if (c->state != READY) die(fn, "rank %d is not ready (state %d)", c->rank, c->state);
	return c;
}

static void start(struct ncclComm *c) {
	c->async = ncclInProgress, c->looks = looks(), c->hangs = hang_next;
}

API ncclResult_t ncclGetVersion(int *version) {
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t r) {
	static const char *const text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
		"invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
	return r < sizeof text / sizeof *text ? text[r] : "unknown result code";
}

API const char *ncclGetLastError(ncclComm_t comm) { return last_error; }

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
	ENTER;
	PLANTED;
	MUST(clique_count < (int)(sizeof cliques / sizeof *cliques), "too many communicators for a test");
	struct clique *q = calloc(1, sizeof *q);
	for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; i++) q->id.internal[i] = rand() >> 7;
	q->number = clique_count;
	cliques[clique_count++] = q;
	memcpy(id, &q->id, sizeof *id);
	LEAVE(ncclSuccess);
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
	ENTER;
	PLANTED;
	struct clique *q = NULL;
	for (int i = 0; i < clique_count; i++)
		if (!memcmp(&cliques[i]->id, &id, sizeof id)) q = cliques[i];
	MUST(q, "an id that was not given out");
	MUST(comm && nranks > 0 && nranks <= MOST && rank >= 0 && rank < nranks, "rank %d of %d", rank, nranks);
	MUST(!q->world || q->world == nranks, "%d ranks, another rank has %d", nranks, q->world);
	MUST(!q->rank[rank], "rank %d joins twice", rank);
	MUST(config, "no config");
	ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
	MUST(config->size >= offsetof(ncclConfig_t, commName) && config->size <= sizeof c, "a config of %zu bytes", config->size);
	memcpy(&c, config, config->size);
	MUST(c.magic == NCCL_API_MAGIC, "its magic is %#x", c.magic);
	MUST(c.version >= NCCL_VERSION(2, 18, 0) && c.version <= NCCL_VERSION_CODE, "its version is %d", c.version);
	MUST(c.blocking == 0, "it is blocking");
	MUST(c.cgaClusterSize == NCCL_CONFIG_UNDEF_INT && c.minCTAs == NCCL_CONFIG_UNDEF_INT && c.maxCTAs == NCCL_CONFIG_UNDEF_INT && !c.netName &&
		c.splitShare == NCCL_CONFIG_UNDEF_INT && c.trafficClass == NCCL_CONFIG_UNDEF_INT, "something is set that should not be");
	MUST(depth || nranks == 1, "outside of a group: it would wait for the other ranks for ever");
	int device = machine.current();
	MUST(device >= 0, "no context is current");
	for (int i = 0; i < nranks; i++) MUST(!q->rank[i] || q->rank[i]->device != device, "ranks %d and %d are on device %d", i, rank, device);
	struct ncclComm *n = calloc(1, sizeof *n);
	n->magic = magic, n->of = q, n->rank = rank, n->device = device, n->next = comms, comms = n;
	start(n);
	q->world = nranks, q->rank[rank] = n;
	*comm = n;
	group_joins++;
	if (!depth) q->joined++;
	else group_comms[group_joins - 1] = n;
	LEAVE(ncclInProgress);
}

API ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
	ENTER;
	PLANTED;
	*count = ready(__func__, comm)->of->world;
	LEAVE(ncclSuccess);
}

API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
	ENTER;
	PLANTED;
	*rank = ready(__func__, comm)->rank;
	LEAVE(ncclSuccess);
}

API ncclResult_t ncclGroupStart(void) {
	ENTER;
	PLANTED;
	if (!depth++) group_size = group_joins = 0, group_error = ncclSuccess;
	LEAVE(ncclSuccess);
}

// pair finds, for each send of the group, the receive that belongs to it.
static void pair(const char *fn) {
	for (int i = 0; i < group_size; i++) {
		struct strict_op *a = &group[i];
		if (a->kind != SEND && a->kind != RECV) continue;
		int found = 0;
		for (int j = 0; j < group_size; j++) {
			struct strict_op *b = &group[j];
			if (b->clique != a->clique || b->rank != a->root || b->root != a->rank || b->kind != (a->kind == SEND ? RECV : SEND)) continue;
			if (b->count != a->count || b->type != a->type)
				die(fn, "rank %d sends or receives %lu of type %d, rank %d %lu of type %d", a->rank, a->count, a->type, b->rank, b->count, b->type);
			found++;
		}
		if (found != 1) die(fn, "%d calls answer a %s of rank %d and rank %d", found, a->kind == SEND ? "send" : "receive", a->rank, a->root);
	}
}

API ncclResult_t ncclGroupEnd(void) {
	ENTER;
	MUST(depth > 0, "in no group");
	if (--depth) LEAVE(ncclSuccess);
	PLANTED;
	if (group_error) LEAVE(group_error);
	for (int i = 0; i < group_joins; i++) group_comms[i]->of->joined++;
	pair(__func__);
	if (!group_size) LEAVE(group_joins ? ncclInProgress : ncclSuccess);
	MUST(!group_joins, "ranks join in a group that has collectives");
	MUST(!started, "what was started before has not been asked for to its end");
	struct ncclComm *c;
	for (int i = 0; i < group_size; i++)
		for (c = comms; c; c = c->next)
			if (c->of->number == group[i].clique && c->rank == group[i].rank && c->async != ncclInProgress) start(c), c->groups++;
	hang_next = 0;
	started = malloc(group_size * sizeof *started), started_size = group_size;
	memcpy(started, group, group_size * sizeof *started);
	LEAVE(ncclInProgress);
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
	ENTER;
	PLANTED;
	struct ncclComm *c = alive(__func__, comm);
	*state = c->async;
	if (c->async != ncclInProgress || c->hangs || c->looks-- > 0) LEAVE(ncclSuccess);
	if (fail_next) {
		c->async = *state = fail_next, fail_next = 0;
		snprintf(last_error, sizeof last_error, "planted in the background");
		LEAVE(ncclSuccess);
	}
	switch (c->state) {
	case JOINING:
		if (c->of->joined < c->of->world) LEAVE(ncclSuccess); // other ranks have not joined yet
		c->state = READY;
		break;
	case FINALIZING:
		c->state = FINALIZED;
		break;
	default:
		break;
	}
	int issued = 0;
	if (started) {
		issued = machine.issue(started, started_size);
		free(started), started = NULL;
	}
	c->async = *state = issued ? ncclUnhandledCudaError : ncclSuccess;
	LEAVE(ncclSuccess);
}

API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
	ENTER;
	PLANTED;
	MUST(!depth, "in a group");
	struct ncclComm *c = ready(__func__, comm);
	for (int i = 0; i < OPS; i++) MUST(!c->op[i].live, "an op of rank %d was not destroyed", c->rank);
	c->state = FINALIZING;
	start(c);
	hang_next = 0;
	LEAVE(ncclInProgress);
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
	ENTER;
	PLANTED;
	struct ncclComm *c = alive(__func__, comm);
	MUST(c->state == FINALIZED && c->async == ncclSuccess, "rank %d has not been finalised", c->rank);
	c->state = DESTROYED;
	LEAVE(ncclSuccess);
}

API ncclResult_t ncclCommAbort(ncclComm_t comm) {
	ENTER;
	PLANTED;
	MUST(!depth, "in a group");
	struct ncclComm *c = alive(__func__, comm);
	c->state = ABORTED;
	free(started), started = NULL;
	machine.cancel(c->of->number);
	LEAVE(ncclSuccess);
}

API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm) {
	ENTER;
	PLANTED;
	struct ncclComm *c = ready(__func__, comm);
	MUST(residence == ncclScalarHostImmediate, "the scalar is not the host's");
	int i = 0;
	while (i < OPS && c->op[i].live) i++;
	MUST(i < OPS, "rank %d has %d ops that were not destroyed", c->rank, OPS);
	static const int size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
	MUST(type <= ncclBfloat16, "type %d", type);
	c->op[i].live = 1, c->op[i].type = type, c->op[i].scalar = 0;
	memcpy(&c->op[i].scalar, scalar, size[type]);
	*op = ncclNumOps + 100 * (c->rank + 1) + i; // the number of an op differs between ranks
	LEAVE(ncclSuccess);
}

API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
	ENTER;
	PLANTED;
	struct ncclComm *c = ready(__func__, comm);
	int i = (int)op - ncclNumOps - 100 * (c->rank + 1);
	MUST(i >= 0 && i < OPS && c->op[i].live, "rank %d has no op %d", c->rank, op);
	c->op[i].live = 0;
	LEAVE(ncclSuccess);
}

static const int type_size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

// add checks a call and puts it into the group.
static ncclResult_t add(const char *fn, enum strict_kind kind, const void *send, void *recv, size_t count, ncclDataType_t type, int op, int root,
	ncclComm_t comm, cudaStream_t stream) {
	struct ncclComm *c = ready(fn, comm);
	int world = c->of->world;
	if (!depth) die(fn, "outside of a group: it would wait for the other ranks for ever");
	if (!count) die(fn, "of nothing");
	if (type > ncclBfloat16) die(fn, "type %d", type);
	if (root < 0 || root >= world) die(fn, "root or peer %d of %d", root, world);
	if (machine.current() != c->device) die(fn, "device %d is current, rank %d is on device %d", machine.current(), c->rank, c->device);
	if (machine.stream((uint64_t)stream) != c->device) die(fn, "rank %d: its stream is not of device %d", c->rank, c->device);
	size_t bytes = count * type_size[type], in = bytes * (kind == REDUCE_SCATTER ? world : 1), out = bytes * (kind == ALL_GATHER ? world : 1);
	int sends = kind != RECV && !(kind == BROADCAST && c->rank != root), receives = kind != SEND;
	if (sends && machine.memory((uint64_t)send, in) != c->device) die(fn, "rank %d: %zu bytes at %p are no memory of device %d", c->rank, in, send, c->device);
	if (receives && machine.memory((uint64_t)recv, out) != c->device) die(fn, "rank %d: %zu bytes at %p are no memory of device %d", c->rank, out, recv, c->device);
	if (sends && (uintptr_t)send % type_size[type]) die(fn, "rank %d: %p is not aligned", c->rank, send);
	if (sends && receives && (char *)send < (char *)recv + out && (char *)recv < (char *)send + in) {
		const char *place = kind == REDUCE_SCATTER ? (const char *)send + c->rank * bytes : kind == ALL_GATHER ? (char *)recv + c->rank * bytes : (char *)recv;
		if (place != (kind == REDUCE_SCATTER ? (char *)recv : (const char *)send)) die(fn, "rank %d: its operands overlap, and not in place", c->rank);
	}
	struct strict_op o = {.kind = kind, .type = type, .op = op, .root = root, .clique = c->of->number, .rank = c->rank, .world = world,
		.send = sends ? (uint64_t)send : 0, .recv = receives ? (uint64_t)recv : 0, .count = count, .stream = (uint64_t)stream};
	if (op >= ncclNumOps) {
		int i = op - ncclNumOps - 100 * (c->rank + 1);
		if (i < 0 || i >= OPS || !c->op[i].live) die(fn, "rank %d has no op %d", c->rank, op);
		if (c->op[i].type != type) die(fn, "rank %d: its op is of type %d, the call of type %d", c->rank, c->op[i].type, type);
		o.op = ncclNumOps, o.scalar = c->op[i].scalar;
	}
	if (kind == SEND || kind == RECV) {
		o.seq = c->groups;
		for (int i = 0; i < group_size; i++)
			if (group[i].clique == o.clique && group[i].rank == o.rank && group[i].stream != o.stream) die(fn, "rank %d uses two streams in a group", o.rank);
	} else {
		o.seq = c->seq++;
		struct agreed *a = agreements;
		while (a && (a->clique != o.clique || a->seq != o.seq)) a = a->next;
		if (!a) {
			a = calloc(1, sizeof *a);
			a->clique = o.clique, a->seq = o.seq, a->op = o, a->next = agreements, agreements = a;
		} else if (a->op.kind != o.kind || a->op.count != o.count || a->op.type != o.type || a->op.op != o.op || a->op.root != o.root)
			die(fn, "call %d of rank %d: kind %d of %lu of type %d, op %d, root %d; that of rank %d: kind %d of %lu of type %d, op %d, root %d", o.seq,
				o.rank, o.kind, o.count, o.type, o.op, o.root, a->op.rank, a->op.kind, a->op.count, a->op.type, a->op.op, a->op.root);
	}
	if (group_size == group_room) group = realloc(group, (group_room = 2 * group_room + 16) * sizeof *group);
	group[group_size++] = o;
	return ncclSuccess;
}

API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
	ENTER;
	PLANTED;
	LEAVE(add(__func__, ALL_REDUCE, send, recv, count, type, op, 0, comm, stream));
}

API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
	ENTER;
	PLANTED;
	LEAVE(add(__func__, REDUCE_SCATTER, send, recv, count, type, op, 0, comm, stream));
}

API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
	ENTER;
	PLANTED;
	LEAVE(add(__func__, BROADCAST, send, recv, count, type, 0, root, comm, stream));
}

API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
	ENTER;
	PLANTED;
	LEAVE(add(__func__, ALL_GATHER, send, recv, count, type, 0, 0, comm, stream));
}

API ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
	ENTER;
	PLANTED;
	LEAVE(add(__func__, SEND, send, NULL, count, type, 0, peer, comm, stream));
}

API ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
	ENTER;
	PLANTED;
	LEAVE(add(__func__, RECV, NULL, recv, count, type, 0, peer, comm, stream));
}
