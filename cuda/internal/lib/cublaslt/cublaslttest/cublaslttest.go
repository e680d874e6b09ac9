//go:build !nogpu && linux && (amd64 || arm64)

// Package cublaslttest loads the strict cublasLt: a replacement of the library that checks every
// call and needs no GPU. A C compiler builds it from the sources in testdata of package cublaslt. A
// test implements the [Machine] whose GPUs the library uses.
package cublaslttest

import (
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
)

// Op is one product that the strict library has checked: strict_op of strict.h.
type Op struct {
	M, N, K, Batch, TransA, TransB                     int32
	Type, Out                                          cublaslt.DataType
	Bias, Device                                       int32
	LdA, LdB, LdD, StrideA, StrideB, StrideD           int64
	A, B, D, BiasAt, Workspace, WorkspaceBytes, Stream uint64
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
	// Issue queues a product.
	Issue(op *Op) error
}

// Strict is the loaded strict library.
type Strict struct {
	*cublaslt.Library
	l *cu.Library
}

var machine Machine

// Load loads the strict library for the machine m. A process has only one such library.
func Load(path string, m Machine) (*Strict, error) {
	l, tried := cu.OpenLibrary(path)
	if l == nil {
		return nil, &cublaslt.Unavailable{Tried: tried}
	}
	bound, err := cublaslt.Bind(l)
	if err != nil {
		return nil, err
	}
	machine = m
	cu.Call(l.Function("strict_init"), uintptr(unsafe.Pointer(table)))
	return &Strict{bound, l}, nil
}

// table is the struct strict_machine of strict.h. It holds callbacks, which are never freed.
var table = &[4]uintptr{
	purego.NewCallback(func() uintptr { return uintptr(machine.CurrentDevice()) }),
	purego.NewCallback(func(s uintptr) uintptr { return uintptr(machine.StreamDevice(uint64(s))) }),
	purego.NewCallback(func(at, bytes uintptr) uintptr {
		return uintptr(machine.MemoryDevice(uint64(at), uint64(bytes)))
	}),
	purego.NewCallback(func(op *Op) uintptr {
		o := *op
		if machine.Issue(&o) != nil {
			return 1
		}
		return 0
	}),
}

// Plant makes a function, such as cublasLtMatmul, return status after the given number of
// successful calls.
func (s *Strict) Plant(call string, calls int, status cublaslt.Status) {
	p := new([64]byte)
	copy(p[:], call)
	var pin runtime.Pinner
	pin.Pin(p)
	defer pin.Unpin()
	cu.Call(s.l.Function("strict_plant"), uintptr(unsafe.Pointer(p)), uintptr(calls), uintptr(uint32(status)))
}

// Decline makes the heuristic find no algorithm for the next n products. The heuristic reports this
// alternately by an error status and by an empty list.
func (s *Strict) Decline(n int) { cu.Call(s.l.Function("strict_decline"), uintptr(n)) }

// Calls returns the number of calls of the library so far.
func (s *Strict) Calls() int { return int(cu.Call(s.l.Function("strict_calls"))) }

// Live returns the number of handles and descriptors that were not destroyed.
func (s *Strict) Live() int { return int(int32(cu.Call(s.l.Function("strict_live")))) }

// Product computes the product op by strict_product of product.c. The operands lie in host memory,
// in the same layout as on the device. The slice bias is nil if there is no bias.
func (s *Strict) Product(op *Op, a, b, bias, d []byte) {
	var pin runtime.Pinner
	defer pin.Unpin()
	at := func(m []byte) uintptr {
		if len(m) == 0 {
			return 0
		}
		pin.Pin(&m[0])
		return uintptr(unsafe.Pointer(&m[0]))
	}
	pin.Pin(op)
	cu.Call(s.l.Function("strict_product"), uintptr(unsafe.Pointer(op)), at(a), at(b), at(bias), at(d))
}
