// Divides each row of x by the sum of its magnitudes, with one block for each row. It is compiled
// like the kernels in internal/emu/ptxvm/testdata/foreign, whose README.md says how.
__device__ __noinline__ float magnitude(float v, float least) { return v < 0 ? -v : v < least ? least : v; }

extern "C" __global__ void normalise(float *y, const float *x, unsigned columns, float least) {
	extern __shared__ float part[];
	const float *row = x + (size_t)blockIdx.x * columns;
	float sum = 0;
	for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) sum += magnitude(row[i], least);
	part[threadIdx.x] = sum;
	for (unsigned d = blockDim.x / 2; d > 0; d /= 2) {
		__syncthreads();
		if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
	}
	__syncthreads();
	for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) y[(size_t)blockIdx.x * columns + i] = row[i] / part[0];
}
