// Package nccl calls NVIDIA's library of collectives between GPUs (libnccl.so.2), which is
// installed apart from the driver and is there on linux alone.
//
// [Open] finds the library at run time. That it is not there is a state and not a failure: the
// error is an *[Unavailable]. A call that fails returns an *[Error], in which errors.Is finds the
// [Result].
//
// # Contract
//
// Communicators are made non-blocking. A call that starts something returns nil also where the
// library still works on it (ncclInProgress). [Library.State] tells when it is done. Until then
// nothing else but [Library.CommAbort] may be called with that communicator. A communicator is used
// by one thread at a time. A group belongs to the operating system thread that began it, so that
// its caller is locked to a thread from GroupStart to GroupEnd. The context of a communicator's
// device is current when it is made.
//
// Numbers of enumerations and layouts are those of nccl.h of 2.30; testdata/header.txt has them as
// a C compiler sees them, and .ci/run holds that file to the header.
package nccl

import "fmt"

// Version is ncclGetVersion's number: 23007 for 2.30.7.
type Version int

// Minimum is the oldest library that Open accepts, 2.18: non-blocking communicators that are
// initialised and finalised as a group.
const Minimum Version = 21800

// String returns "2.30.7".
func (v Version) String() string {
	if v < 10000 { // up to 2.8
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

// Comm is ncclComm_t: one rank of a communicator. The zero value is none.
type Comm uintptr

// UniqueID is ncclUniqueId: what the ranks of one communicator find each other by.
type UniqueID [128]byte

// DataType is ncclDataType_t.
type DataType int32

// The types of elements.
const (
	Int8     DataType = 0
	Uint8    DataType = 1
	Int32    DataType = 2
	Int64    DataType = 4
	Float16  DataType = 6
	Float32  DataType = 7
	Float64  DataType = 8
	BFloat16 DataType = 9
)

// RedOp is ncclRedOp_t: one of these, or what [Library.PreMulSum] makes.
type RedOp int32

// The reductions.
const (
	Sum  RedOp = 0
	Prod RedOp = 1
	// Max and Min ignore NaN where another rank has a number.
	Max RedOp = 2
	Min RedOp = 3
	// Avg multiplies each element by 1/ranks, rounded to its type, and adds.
	Avg RedOp = 4
)

// hostImmediate is ncclScalarHostImmediate: a scalar in the host's memory, read by the call.
const hostImmediate = 1

// config is ncclConfig_t as of 2.18. A later library is told so by size and version, and takes its
// own defaults for what it has beside.
type config struct {
	size           uintptr
	magic          uint32
	version        uint32
	blocking       int32
	cgaClusterSize int32
	minCTAs        int32
	maxCTAs        int32
	netName        uintptr
	splitShare     int32
	trafficClass   int32 // of later versions, and padding in 2.18
}

const (
	configMagic = 0xcafebeef // NCCL_API_MAGIC
	undefined   = -(1 << 31) // NCCL_CONFIG_UNDEF_INT
	configBytes = 48         // as far as it is laid out here
)

// nonBlocking is the config of every communicator, on the heap, which does not move.
//
//go:noinline
func nonBlocking() *config {
	return &config{size: configBytes, magic: configMagic, version: uint32(Minimum), blocking: 0, cgaClusterSize: undefined,
		minCTAs: undefined, maxCTAs: undefined, splitShare: undefined, trafficClass: undefined}
}
