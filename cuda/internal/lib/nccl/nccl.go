// Package nccl calls NVIDIA's library of collectives between GPUs (libnccl.so.2). The library is
// not part of the driver's installation, and exists on linux only.
//
// [Open] finds the library at run time. If it is missing, the error is an *[Unavailable]. A call
// that fails returns an *[Error], in which errors.Is finds the [Result].
//
// # Contract
//
// Communicators are non-blocking. A call that starts work returns nil even while the library still
// works on it (ncclInProgress). [Library.State] says when the call is complete. Until then
// [Library.CommAbort] is the only function that may be called with that communicator. Only one
// thread at a time may use a communicator. A group belongs to the operating system thread that
// began it, so the caller must be locked to its thread from GroupStart to GroupEnd. The context of
// a communicator's device must be current when the communicator is created.
//
// Constants and struct layouts are those of nccl.h of 2.30. The file testdata/header.txt lists them
// as a C compiler reads them, and continuous integration compares it with the header.
package nccl

import "fmt"

// Version is the number that ncclGetVersion returns: 23007 for 2.30.7.
type Version int

// Minimum is the oldest version that Open accepts, 2.18. Older versions cannot initialise and
// finalise non-blocking communicators in a group.
const Minimum Version = 21800

// String returns a text such as "2.30.7".
func (v Version) String() string {
	if v < 10000 { // versions up to 2.8 are encoded differently
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

// Comm is ncclComm_t: one rank of a communicator. The zero value is not a communicator.
type Comm uintptr

// UniqueID is ncclUniqueId, by which the ranks of one communicator find each other.
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

// RedOp is ncclRedOp_t: one of the constants below, or an operator that [Library.PreMulSum]
// returns.
type RedOp int32

// The reductions.
const (
	Sum  RedOp = 0
	Prod RedOp = 1
	// Max and Min ignore a NaN if another rank has a number.
	Max RedOp = 2
	Min RedOp = 3
	// Avg multiplies each element by 1/(number of ranks), rounds the product to its type, and adds
	// up the products.
	Avg RedOp = 4
)

// hostImmediate is ncclScalarHostImmediate: the scalar is in host memory, and is read during the
// call.
const hostImmediate = 1

// config is ncclConfig_t of version 2.18. A later library recognises this version by the fields
// size and version, and uses its own defaults for fields that were added later.
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
	// trafficClass is a field of later versions. In 2.18 it is padding.
	trafficClass int32
}

const (
	configMagic = 0xcafebeef // NCCL_API_MAGIC
	undefined   = -(1 << 31) // NCCL_CONFIG_UNDEF_INT
	configBytes = 48         // size of config
)

// nonBlocking returns the config with which every communicator is created. It lies on the heap,
// which does not move.
//
//go:noinline
func nonBlocking() *config {
	return &config{size: configBytes, magic: configMagic, version: uint32(Minimum), blocking: 0, cgaClusterSize: undefined,
		minCTAs: undefined, maxCTAs: undefined, splitShare: undefined, trafficClass: undefined}
}
