package nccl

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// TestHeader compares constants and struct layouts with those that a C compiler reads in nccl.h.
func TestHeader(t *testing.T) {
	f, err := os.Open("testdata/header.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	header := map[string]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		i := strings.LastIndexByte(lines.Text(), ' ')
		n, err := strconv.ParseInt(lines.Text()[i+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		header[lines.Text()[:i]] = n
	}
	c := nonBlocking()
	for name, have := range map[string]int64{
		"sizeof(ncclUniqueId)": int64(unsafe.Sizeof(UniqueID{})), "sizeof(ncclResult_t)": int64(unsafe.Sizeof(Success)),
		"sizeof(ncclDataType_t)": int64(unsafe.Sizeof(Int8)), "sizeof(ncclRedOp_t)": int64(unsafe.Sizeof(Sum)),
		"ncclSuccess": int64(Success), "ncclUnhandledCudaError": int64(ErrUnhandledCUDA), "ncclSystemError": int64(ErrSystem),
		"ncclInternalError": int64(ErrInternal), "ncclInvalidArgument": int64(ErrInvalidArgument), "ncclInvalidUsage": int64(ErrInvalidUsage),
		"ncclRemoteError": int64(ErrRemote), "ncclInProgress": int64(InProgress),
		"ncclInt8": int64(Int8), "ncclUint8": int64(Uint8), "ncclInt32": int64(Int32), "ncclInt64": int64(Int64),
		"ncclFloat16": int64(Float16), "ncclFloat32": int64(Float32), "ncclFloat64": int64(Float64), "ncclBfloat16": int64(BFloat16),
		"ncclSum": int64(Sum), "ncclProd": int64(Prod), "ncclMax": int64(Max), "ncclMin": int64(Min), "ncclAvg": int64(Avg),
		"ncclScalarHostImmediate": hostImmediate, "NCCL_VERSION(2, 18, 0)": int64(Minimum),
		"offsetof(ncclConfig_t, size)": int64(unsafe.Offsetof(c.size)), "offsetof(ncclConfig_t, magic)": int64(unsafe.Offsetof(c.magic)),
		"offsetof(ncclConfig_t, version)": int64(unsafe.Offsetof(c.version)), "offsetof(ncclConfig_t, blocking)": int64(unsafe.Offsetof(c.blocking)),
		"offsetof(ncclConfig_t, cgaClusterSize)": int64(unsafe.Offsetof(c.cgaClusterSize)),
		"offsetof(ncclConfig_t, minCTAs)":        int64(unsafe.Offsetof(c.minCTAs)), "offsetof(ncclConfig_t, maxCTAs)": int64(unsafe.Offsetof(c.maxCTAs)),
		"offsetof(ncclConfig_t, netName)": int64(unsafe.Offsetof(c.netName)), "offsetof(ncclConfig_t, splitShare)": int64(unsafe.Offsetof(c.splitShare)),
		"offsetof(ncclConfig_t, trafficClass)": int64(unsafe.Offsetof(c.trafficClass)),
		// this package's config ends where commName begins
		"offsetof(ncclConfig_t, commName)": int64(c.size),
		"NCCL_CONFIG_INITIALIZER.magic":    int64(c.magic), "NCCL_CONFIG_INITIALIZER.blocking": undefined,
		"NCCL_CONFIG_INITIALIZER.cgaClusterSize": int64(c.cgaClusterSize), "NCCL_CONFIG_INITIALIZER.minCTAs": int64(c.minCTAs),
		"NCCL_CONFIG_INITIALIZER.maxCTAs": int64(c.maxCTAs), "NCCL_CONFIG_INITIALIZER.netName": int64(c.netName),
		"NCCL_CONFIG_INITIALIZER.splitShare": int64(c.splitShare), "NCCL_CONFIG_INITIALIZER.trafficClass": int64(c.trafficClass),
	} {
		want, ok := header[name]
		if !ok || have != want {
			t.Errorf("%s is %d, the header has %d (%v)", name, have, want, ok)
		}
		delete(header, name)
	}
	for name := range header {
		t.Errorf("%s of the header is compared with nothing", name)
	}
	if unsafe.Sizeof(*c) != configBytes || c.size != configBytes || c.blocking != 0 || c.version != uint32(Minimum) {
		t.Errorf("the config is %+v of %d bytes", *c, unsafe.Sizeof(*c))
	}
}
