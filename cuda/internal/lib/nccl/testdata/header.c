// Prints header.txt: what nccl.h says about the numbers and layouts that package nccl contains.
#include <nccl.h>
#include <stddef.h>
#include <stdio.h>

#define NUMBER(x) printf("%s %lld\n", #x, (long long)(x))
#define OFFSET(f) printf("offsetof(ncclConfig_t, " #f ") %zu\n", offsetof(ncclConfig_t, f))
#define DEFAULT(f) printf("NCCL_CONFIG_INITIALIZER." #f " %lld\n", (long long)config.f)

// A pointer of another type does not compile.
static ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *) = ncclCommInitRankConfig;
static ncclResult_t (*reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) = ncclAllReduce;
static ncclResult_t (*scatter)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) = ncclReduceScatter;
static ncclResult_t (*gather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) = ncclAllGather;
static ncclResult_t (*cast)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = ncclBroadcast;
static ncclResult_t (*to)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = ncclSend;
static ncclResult_t (*from)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = ncclRecv;
static ncclResult_t (*op)(ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) = ncclRedOpCreatePreMulSum;
static ncclResult_t (*noop)(ncclRedOp_t, ncclComm_t) = ncclRedOpDestroy;
static ncclResult_t (*state)(ncclComm_t, ncclResult_t *) = ncclCommGetAsyncError;
static const char *(*last)(ncclComm_t) = ncclGetLastError;

int main(void) {
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	NUMBER(sizeof(ncclUniqueId));
	NUMBER(sizeof(ncclResult_t));
	NUMBER(sizeof(ncclDataType_t));
	NUMBER(sizeof(ncclRedOp_t));
	NUMBER(ncclSuccess);
	NUMBER(ncclUnhandledCudaError);
	NUMBER(ncclSystemError);
	NUMBER(ncclInternalError);
	NUMBER(ncclInvalidArgument);
	NUMBER(ncclInvalidUsage);
	NUMBER(ncclRemoteError);
	NUMBER(ncclInProgress);
	NUMBER(ncclInt8);
	NUMBER(ncclUint8);
	NUMBER(ncclInt32);
	NUMBER(ncclInt64);
	NUMBER(ncclFloat16);
	NUMBER(ncclFloat32);
	NUMBER(ncclFloat64);
	NUMBER(ncclBfloat16);
	NUMBER(ncclSum);
	NUMBER(ncclProd);
	NUMBER(ncclMax);
	NUMBER(ncclMin);
	NUMBER(ncclAvg);
	NUMBER(ncclScalarHostImmediate);
	NUMBER(NCCL_VERSION(2, 18, 0));
	OFFSET(size);
	OFFSET(magic);
	OFFSET(version);
	OFFSET(blocking);
	OFFSET(cgaClusterSize);
	OFFSET(minCTAs);
	OFFSET(maxCTAs);
	OFFSET(netName);
	OFFSET(splitShare);
	OFFSET(trafficClass);
	OFFSET(commName);
	DEFAULT(magic);
	DEFAULT(blocking);
	DEFAULT(cgaClusterSize);
	DEFAULT(minCTAs);
	DEFAULT(maxCTAs);
	DEFAULT(netName);
	DEFAULT(splitShare);
	DEFAULT(trafficClass);
	return !(init && reduce && scatter && gather && cast && to && from && op && noop && state && last);
}
