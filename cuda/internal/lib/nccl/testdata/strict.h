// The part of the strict library that a test program uses. Package nccltest has the same
// declarations in Go.
#include <stdint.h>

enum strict_kind { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

// One call of one rank, as the program made it.
struct strict_op {
	int32_t kind, type, op, root; // root: of a broadcast; for SEND and RECV the other rank. op: 5 is a sum with a scalar for each rank
	int32_t clique, rank, world;
	int32_t seq; // index of the collective among the rank's collectives; for SEND and RECV, index of the group
	uint64_t send, recv, count, stream;
	uint64_t scalar; // for op 5: the rank's scalar, in its type
};

// What the library needs from the machine. All functions are callbacks into the test program.
struct strict_machine {
	int32_t (*current)(void);                           // device of the calling thread's context; -1: none
	int32_t (*stream)(uint64_t stream);                 // device of a stream
	int32_t (*memory)(uint64_t at, uint64_t bytes);     // device of a range of memory
	int32_t (*issue)(const struct strict_op *, int32_t); // queues the work that was started; not 0 if that failed
	void (*cancel)(int32_t clique);                     // drops the clique's work that has not run yet
};
