// Package cuda is the driver of NVIDIA GPUs. It runs the primitives of package device on them, with
// nothing installed but NVIDIA's driver. On a machine that has none it can run them on emulated
// GPUs (FLAMBEAU_CUDA=emulate).
//
// A program that trains needs the import alone; the rest is package tensor's and nn's:
//
//	import _ "github.com/flambeau-go/flambeau/cuda"
//
//	dev, why := device.Best()      // cuda:0 where there is a GPU, else the CPU, and in words why
//	model = nn.To(model, dev)
//	tensor.Do(func(s *tensor.Scope) { … }, tensor.On(dev))
//
// A certain GPU is device.Open("cuda:1"), or [Open] and [Get], whose *[Device] has more methods.
// Mixed precision is tensor.Autocast, and a whole step as a graph is tensor.Capture. The profiler
// is package profile.
//
// The functions here tell what a GPU is, what it does, and what its memory holds
// ([RecordMemoryHistory], [MemorySnapshot]). docs/from-pytorch/torch.cuda.md lists them beside
// PyTorch's.
//
// The contract:
//
//   - It registers itself as kind "cuda". Nothing is loaded before first use. To have no driver or
//     no GPU is a normal state, not a failure. [IsAvailable] is then false. [Unavailable], [Open]
//     and the registry say why and what to do, by a *[device.UnavailableError]. GPUs need compute
//     capability 8.0 (Ampere) or more. Older ones are counted but not opened.
//   - Work is queued on streams of the driver that do not wait for its legacy stream. A method
//     returns when its work is queued. Only events order streams, also those of different GPUs. A
//     nil stream is the default stream.
//   - Download, Synchronize and the waits of streams and events report failures of the work that
//     they wait for. An index outside its axis is a *[device.IndexError]. It is reported once, and
//     the GPU goes on as before. A failed kernel is a *[device.Fault]. A fault that is Sticky has
//     cost the process its context: every later call returns the same fault at once.
//   - Views are checked before anything is queued: a *[device.OperandError] names operation and
//     operand.
//   - Memory comes from a caching pool with an arena for each stream. Free and Alloc on one stream
//     cost no call of the driver. A buffer that other streams read ([device.Buffer] Use) is reused
//     when they are done. At the limit, garbage is collected and cached memory is returned. If that
//     is not enough, the error is [device.ErrOutOfMemory], with a list of the memory's owners.
//   - Map gives the bits of [expr.Program.Eval]. Every primitive gives the same bits on every run.
//   - Host memory of a program is its own again when Upload and Download return. Upload first
//     copies to the library's page-locked memory, at most 4 MiB for each GPU. Download waits for
//     its copy.
//   - All methods are safe for concurrent use. When they return, no goroutine is bound to a thread.
//
// # The names of torch.cuda
//
// There is no current device: the functions of torch.cuda take one here.
//
//   - Devices: [Get], [DeviceProperties], [MemGetInfo].
//   - Memory: [MemoryAllocated], [MemoryStats], [MemorySummary], [EmptyCache],
//     [SetMemoryFraction], [HostMemoryStats].
//   - Order: [NewStream], [NewEvent].
//   - Load: [Utilization], [Temperature] and their like, which ask NVIDIA's management library.
//   - Several GPUs: [CanDeviceAccessPeer], [EnablePeerAccess], [PeerCopies].
//
// Given a device that is no GPU they return a *[device.OperandError], and those without an error
// panic with it. Package cuda/doctor says why a GPU is not used or is slow.
//
// # Environment
//
//	FLAMBEAU_CUDA         unset: the NVIDIA driver. off: no GPU.
//	                      emulate[:devices][,mem=256MiB][,sm=90][,segment=64KiB]
//	                      [,expandable=on][,mode=meta][,seed=1][,peer=off][,link=10GB]
//	                      [,pageable=late]: emulated ones. link= is what a link between two
//	                      carries a second, each way. With pageable=late a copy reads or
//	                      writes memory that is not page-locked as late as CUDA allows.
//	                      Read at first use.
//	FLAMBEAU_PAGEABLE     late: emulated GPUs without a pageable= of their own have pageable=late.
//	FLAMBEAU_CUDA_EXPANDABLE  1: memory is taken in pages, see [Device.SetExpandableSegments].
//	FLAMBEAU_CUDA_SYNC    1: wait after every launch, so that a fault or an index error comes out
//	                      of the operation that made it.
//	FLAMBEAU_LIBS         cublaslt: NVIDIA's cublasLt does the matrix products whose types and
//	                      layouts it takes, see [Device.Products]. A GPU is not opened
//	                      where it is not there. Emulated GPUs have own kernels.
//	FLAMBEAU_PRINT_PTX    1: print the text of each kernel to standard error when it is first
//	                      loaded. A folder: write it there.
//
// Compiled kernels are cached below [os.UserCacheDir] in flambeau/cubin. Beside them lie records of
// those for which the driver's compiler had not enough registers: see [Device.Spills]. Measurements
// of products are kept in flambeau/products.
//
// An emulated GPU runs the text of the kernels that hardware gets, and checks every access: a fault
// names kernel, line and thread. It says nothing about speed. In mode=meta addresses are given out
// without memory, and kernels are counted, not run. That answers whether a model fits. Reading a
// value there is an error that wraps [device.ErrNoValues].
package cuda
