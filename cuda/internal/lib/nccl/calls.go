package nccl

import (
	"runtime"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// GetUniqueID is ncclGetUniqueId: it returns the name for a new communicator.
func (l *Library) GetUniqueID() (*UniqueID, error) {
	s := newScratch()
	defer s.free()
	err := l.call(getUniqueID, 0, uintptr(unsafe.Pointer(&s.id)))
	id := s.id
	return &id, err
}

// CommInitRank is ncclCommInitRankConfig, non-blocking, for the device whose context is current.
// The caller becomes the rank with the given number. The argument world is the number of all
// ranks. The library writes the communicator to comm, which must lie on the heap. The library may
// write there until the state is no longer [InProgress].
func (l *Library) CommInitRank(comm *Comm, world int, id *UniqueID, rank int) error {
	c := nonBlocking()
	r := Result(cu.CallStruct(l.fn[commInitRankConfig], 2, (*[cu.StructBytes]byte)(id),
		uintptr(unsafe.Pointer(comm)), uintptr(uint32(world)), uintptr(uint32(rank)), uintptr(unsafe.Pointer(c))))
	runtime.KeepAlive(c)
	return l.answer(commInitRankConfig, r, *comm)
}

// State is ncclCommGetAsyncError. It returns [InProgress] while the library works on the last
// call. Otherwise it returns [Success], or an error that the communicator has had since its
// creation.
func (l *Library) State(c Comm) (Result, error) {
	s := newScratch()
	defer s.free()
	err := l.call(commGetAsyncError, c, uintptr(c), s.at(0))
	runtime.KeepAlive(s)
	return Result(int32(s.n[0])), err
}

// Failure converts a state of the communicator to an error. It returns nil for [Success] and
// [InProgress].
func (l *Library) Failure(c Comm, state Result) error { return l.answer(commGetAsyncError, state, c) }

// CommCount is ncclCommCount: it returns the number of ranks.
func (l *Library) CommCount(c Comm) (int, error) { return l.number(commCount, c) }

// CommUserRank is ncclCommUserRank: it returns the caller's rank.
func (l *Library) CommUserRank(c Comm) (int, error) { return l.number(commUserRank, c) }

func (l *Library) number(f function, c Comm) (int, error) {
	s := newScratch()
	defer s.free()
	err := l.call(f, c, uintptr(c), s.at(0))
	runtime.KeepAlive(s)
	return int(int32(s.n[0])), err
}

// CommFinalize is ncclCommFinalize. All queued work is done when the state is [Success] again.
func (l *Library) CommFinalize(c Comm) error { return l.call(commFinalize, c, uintptr(c)) }

// CommDestroy is ncclCommDestroy. CommFinalize of the communicator must be complete.
func (l *Library) CommDestroy(c Comm) error { return l.call(commDestroy, 0, uintptr(c)) }

// CommAbort is ncclCommAbort: it ends work that hangs, and destroys the communicator. The caller
// aborts all ranks, one after the other.
func (l *Library) CommAbort(c Comm) error { return l.call(commAbort, 0, uintptr(c)) }

// GroupStart is ncclGroupStart: the calls that the thread makes from now on start together.
func (l *Library) GroupStart() error { return l.call(groupStart, 0) }

// GroupEnd is ncclGroupEnd. The error may come from a call in the group. The states of the
// communicators say when the work has been queued.
func (l *Library) GroupEnd() error { return l.call(groupEnd, 0) }

// PreMulSum is ncclRedOpCreatePreMulSum. It creates an operator for sums in which the rank first
// multiplies its elements by a scalar of their type. The call reads the bytes of the scalar.
func (l *Library) PreMulSum(scalar [8]byte, t DataType, c Comm) (RedOp, error) {
	s := newScratch()
	defer s.free()
	*(*[8]byte)(unsafe.Pointer(&s.n[1])) = scalar
	err := l.call(redOpCreatePreMulSum, c, s.at(0), s.at(1), uintptr(uint32(t)), hostImmediate, uintptr(c))
	runtime.KeepAlive(s)
	return RedOp(int32(s.n[0])), err
}

// RedOpDestroy is ncclRedOpDestroy of an operator that PreMulSum has created. All calls that use
// the operator must already be queued.
func (l *Library) RedOpDestroy(op RedOp, c Comm) error {
	return l.call(redOpDestroy, c, uintptr(uint32(op)), uintptr(c))
}

// AllReduce is ncclAllReduce of n elements. The addresses of input and output may be equal.
func (l *Library) AllReduce(in, out uint64, n int, t DataType, op RedOp, c Comm, stream cu.Stream) error {
	return l.call(allReduce, c, uintptr(in), uintptr(out), uintptr(n), uintptr(uint32(t)), uintptr(uint32(op)), uintptr(c), uintptr(stream))
}

// Broadcast is ncclBroadcast of n elements. Only the root reads its input.
func (l *Library) Broadcast(in, out uint64, n int, t DataType, root int, c Comm, stream cu.Stream) error {
	return l.call(broadcast, c, uintptr(in), uintptr(out), uintptr(n), uintptr(uint32(t)), uintptr(uint32(root)), uintptr(c), uintptr(stream))
}

// AllGather is ncclAllGather. Each rank contributes n elements.
func (l *Library) AllGather(in, out uint64, n int, t DataType, c Comm, stream cu.Stream) error {
	return l.call(allGather, c, uintptr(in), uintptr(out), uintptr(n), uintptr(uint32(t)), uintptr(c), uintptr(stream))
}

// ReduceScatter is ncclReduceScatter. Each rank gets n elements.
func (l *Library) ReduceScatter(in, out uint64, n int, t DataType, op RedOp, c Comm, stream cu.Stream) error {
	return l.call(reduceScatter, c, uintptr(in), uintptr(out), uintptr(n), uintptr(uint32(t)), uintptr(uint32(op)), uintptr(c), uintptr(stream))
}

// Send is ncclSend of n elements to rank peer. That rank must call Recv in the corresponding group.
func (l *Library) Send(src uint64, n int, t DataType, peer int, c Comm, stream cu.Stream) error {
	return l.call(send, c, uintptr(src), uintptr(n), uintptr(uint32(t)), uintptr(uint32(peer)), uintptr(c), uintptr(stream))
}

// Recv is ncclRecv of n elements from rank peer.
func (l *Library) Recv(dst uint64, n int, t DataType, peer int, c Comm, stream cu.Stream) error {
	return l.call(recv, c, uintptr(dst), uintptr(n), uintptr(uint32(t)), uintptr(uint32(peer)), uintptr(c), uintptr(stream))
}
