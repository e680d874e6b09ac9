// The side of the strict library that a test program sees: package nccltest has the same.
#include <stdint.h>

enum strict_kind { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

// One call of one rank, as the program made it.
struct strict_op {
	int32_t kind, type, op, root; // root: of a broadcast; of SEND and RECV the other rank. op: 5 is a sum of multiples
	int32_t clique, rank, world;
	int32_t seq; // of collectives: the how manyth of the rank; of SEND and RECV the how manyth group
	uint64_t send, recv, count, stream;
	uint64_t scalar; // of op 5: the rank's number, in its type
};

// What the library asks the machine: all are callbacks of the program.
struct strict_machine {
	int32_t (*current)(void);                           // device of the calling thread's context, -1: none
	int32_t (*stream)(uint64_t stream);                 // its device
	int32_t (*memory)(uint64_t at, uint64_t bytes);     // its device
	int32_t (*issue)(const struct strict_op *, int32_t); // queues what has been started; not 0: it could not
	void (*cancel)(int32_t clique);                     // what of it has not run never will
};
