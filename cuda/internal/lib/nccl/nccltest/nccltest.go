//go:build !nogpu && linux && (amd64 || arm64)

// Package nccltest loads the strict NCCL: a replacement of the library that checks every call and
// needs no GPU. A C compiler builds it from the sources in testdata of package nccl. A test
// implements the [Machine] whose GPUs the library uses.
package nccltest

import (
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
)

// Kind says which function of the library a rank called.
type Kind int32

// Functions that a rank can call.
const (
	AllReduce Kind = iota
	Broadcast
	AllGather
	ReduceScatter
	Send
	Recv
)

// ScaledSum is the op of a sum in which each rank multiplies its elements by a scalar.
const ScaledSum = nccl.RedOp(5)

// Op is one call of one rank that the strict library has checked: strict_op of strict.h.
type Op struct {
	Kind Kind
	Type nccl.DataType
	Op   nccl.RedOp
	// Root is the root of a broadcast. For Send and Recv it is the partner's rank.
	Root                int32
	Clique, Rank, World int32
	// Seq is the index of this collective among the rank's collectives. For Send and Recv it is the
	// index of the group among the rank's groups.
	Seq                       int32
	Send, Recv, Count, Stream uint64
	// Scalar is the rank's factor for ScaledSum, in the type of the elements.
	Scalar uint64
}

// Machine is a simulated machine whose GPUs the library uses. The library calls its methods on the
// thread that called the library.
type Machine interface {
	// CurrentDevice returns the device of the thread's context, or -1 without a context.
	CurrentDevice() int
	// StreamDevice returns the device of a stream, or -1 if there is no such stream.
	StreamDevice(s uint64) int
	// MemoryDevice returns the device of a range of memory, or -1 if it does not belong to one
	// device.
	MemoryDevice(at, bytes uint64) int
	// Issue queues the calls of a group.
	Issue(ops []Op) error
	// Cancel drops the work of a clique (the ranks of a communicator) that has not run yet.
	Cancel(clique int)
}

// Strict is the loaded strict library.
type Strict struct {
	*nccl.Library
	l *cu.Library
}

var machine Machine

// Load loads the strict library for the machine m. A process has only one such library.
func Load(path string, m Machine) (*Strict, error) {
	l, tried := cu.OpenLibrary(path)
	if l == nil {
		return nil, &nccl.Unavailable{Tried: tried}
	}
	bound, err := nccl.Bind(l)
	if err != nil {
		return nil, err
	}
	machine = m
	s := &Strict{bound, l}
	cu.Call(l.Function("strict_init"), uintptr(unsafe.Pointer(table)))
	return s, nil
}

// table is the struct strict_machine of strict.h. It holds callbacks, which are never freed.
var table = &[5]uintptr{
	purego.NewCallback(func() uintptr { return uintptr(machine.CurrentDevice()) }),
	purego.NewCallback(func(s uintptr) uintptr { return uintptr(machine.StreamDevice(uint64(s))) }),
	purego.NewCallback(func(at, bytes uintptr) uintptr {
		return uintptr(machine.MemoryDevice(uint64(at), uint64(bytes)))
	}),
	purego.NewCallback(func(ops *Op, n uintptr) uintptr {
		if machine.Issue(append([]Op(nil), unsafe.Slice(ops, int32(n))...)) != nil {
			return 1
		}
		return 0
	}),
	purego.NewCallback(func(clique uintptr) uintptr { machine.Cancel(int(int32(clique))); return 0 }),
}

// Plant makes a function, such as ncclAllReduce, return r after the given number of successful
// calls.
func (s *Strict) Plant(call string, calls int, r nccl.Result) {
	name := append([]byte(call), 0)
	p := heap(name)
	cu.Call(s.l.Function("strict_plant"), uintptr(unsafe.Pointer(p)), uintptr(calls), uintptr(uint32(r)))
	runtime.KeepAlive(p)
}

//go:noinline
func heap(b []byte) *[64]byte {
	p := new([64]byte)
	copy(p[:], b)
	return p
}

// Hang makes the work that is started next run forever.
func (s *Strict) Hang() { cu.Call(s.l.Function("strict_hang")) }

// Fail makes the work that is started next fail with r. The call that starts it returns no error.
func (s *Strict) Fail(r nccl.Result) { cu.Call(s.l.Function("strict_fail"), uintptr(uint32(r))) }

// Calls returns the number of calls of the library so far.
func (s *Strict) Calls() int { return int(cu.Call(s.l.Function("strict_calls"))) }

// Live returns the number of communicators and operators that were not destroyed.
func (s *Strict) Live() int { return int(int32(cu.Call(s.l.Function("strict_live")))) }

// Reduce combines count elements of the ranks' inputs, from index start on, in the arithmetic of
// type t. It calls strict_reduce of reduce.c.
func (s *Strict) Reduce(t nccl.DataType, op nccl.RedOp, ins [][]byte, scalars []uint64, out []byte, start, count int) bool {
	var pin runtime.Pinner
	defer pin.Unpin()
	list := make([]unsafe.Pointer, len(ins))
	for i, b := range ins {
		list[i] = unsafe.Pointer(&b[0])
		pin.Pin(list[i])
	}
	pin.Pin(&list[0])
	pin.Pin(&scalars[0])
	pin.Pin(&out[0])
	return cu.Call(s.l.Function("strict_reduce"), uintptr(uint32(t)), uintptr(uint32(op)), uintptr(len(ins)), uintptr(unsafe.Pointer(&list[0])),
		uintptr(unsafe.Pointer(&scalars[0])), uintptr(unsafe.Pointer(&out[0])), uintptr(start), uintptr(count)) == 0
}
