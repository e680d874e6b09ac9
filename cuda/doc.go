// Package cuda is the driver of NVIDIA GPUs. It runs the primitives of package device on them, and
// needs nothing installed but NVIDIA's driver. On a machine without that driver it can run them on
// emulated GPUs (FLAMBEAU_CUDA=emulate).
//
// To train on a GPU, a program needs no more than an import of this package. The rest of its code
// uses packages tensor and nn:
//
//	import _ "github.com/flambeau-go/flambeau/cuda"
//
//	dev, why := device.Best()      // cuda:0 if there is a GPU, else the CPU; why gives the reason
//	model = nn.To(model, dev)
//	tensor.Do(func(s *tensor.Scope) { … }, tensor.On(dev))
//
// To choose a certain GPU, call device.Open("cuda:1"), or [Open] or [Get], which return a
// *[Device] with more methods. tensor.Autocast turns on mixed precision. tensor.Capture makes a
// CUDA graph of a whole step. The profiler is package profile.
//
// The functions here return a GPU's properties, its load and the contents of its memory
// ([RecordMemoryHistory], [MemorySnapshot]). docs/from-pytorch/torch.cuda.md lists them beside
// PyTorch's functions.
//
// The contract:
//
//   - The package registers itself as kind "cuda". It loads nothing before the first use. If
//     there is no driver or GPU, the program continues. [IsAvailable] is then false, and
//     [Unavailable], [Open] and the registry return a *[device.UnavailableError] that says why and
//     what to do. GPUs need compute capability 8.0 (Ampere) or more; older ones are counted but
//     not opened.
//   - Work is queued on streams that do not wait for the driver's legacy stream. A method
//     returns when its work is queued. Only events order the work of different streams, even if
//     the streams belong to different GPUs. A nil stream is the default stream.
//   - Download, Synchronize and the waits of streams and events report errors of the work that
//     they wait for. An index outside its axis is a *[device.IndexError]. It is reported once, and
//     the GPU continues to work. A kernel that failed is a *[device.Fault]. If the fault is
//     Sticky, the process has lost its context, and every later call immediately returns that
//     fault.
//   - Views are checked before anything is queued: a *[device.OperandError] names the operation
//     and the operand.
//   - Memory comes from a caching pool with an arena for each stream. Free and Alloc on one stream
//     need no call of the driver. A buffer that other streams read ([device.Buffer] Use) is reused
//     when those streams are done with it. At the limit, the pool runs the garbage collector,
//     which frees unreachable buffers, and gives cached memory back. If that is not enough, the
//     error is [device.ErrOutOfMemory], with a list of what holds the memory.
//   - Map returns the bits of [expr.Program.Eval]. Every operation returns the same bits on every
//     run.
//   - When Upload or Download returns, it is done with the program's host memory. Upload first
//     copies ordinary memory to page-locked memory of the library, up to 4 MiB for each GPU.
//     Download waits for the data.
//   - All methods are safe for concurrent use. They never leave a goroutine locked to a thread.
//
// # The names of torch.cuda
//
// There is no current device: the functions of torch.cuda take a device as an argument here.
//
//   - Devices: [Get], [DeviceProperties], [MemGetInfo].
//   - Memory: [MemoryAllocated], [MemoryStats], [MemorySummary], [EmptyCache],
//     [SetMemoryFraction], [HostMemoryStats].
//   - Order: [NewStream], [NewEvent].
//   - Load: [Utilization], [Temperature] and similar functions, which ask NVIDIA's management
//     library.
//   - Several GPUs: [CanDeviceAccessPeer], [EnablePeerAccess], [PeerCopies].
//
// For a device that is not a GPU these functions return a *[device.OperandError]. Functions that
// return no error panic with it. Package cuda/doctor says why a GPU is not used or is slow.
//
// # Environment
//
//	FLAMBEAU_CUDA         unset: the NVIDIA driver. off: no GPU.
//	                      emulate[:devices][,mem=256MiB][,sm=90][,segment=64KiB]
//	                      [,expandable=on][,mode=meta][,seed=1][,peer=off][,link=10GB]
//	                      [,pageable=late]: emulated GPUs. link= is the bandwidth between two
//	                      GPUs in each direction. With pageable=late a copy reads or
//	                      writes memory that is not page-locked as late as CUDA allows.
//	                      Read at first use.
//	FLAMBEAU_PAGEABLE     late: the default of pageable= for emulated GPUs.
//	FLAMBEAU_CUDA_EXPANDABLE  1: memory is taken in pages, see [Device.SetExpandableSegments].
//	FLAMBEAU_CUDA_SYNC    1: wait after every launch, so that the operation that caused a fault
//	                      or an index error returns it.
//	FLAMBEAU_LIBS         cublaslt: NVIDIA's cublasLt computes the matrix products whose types
//	                      and layouts it supports, see [Device.Products]. If the library is
//	                      missing, no GPU can be opened. Emulated GPUs use the package's own
//	                      kernels.
//	FLAMBEAU_PRINT_PTX    1: print the text of each kernel to standard error when it is first
//	                      loaded. A folder: write it there.
//
// Compiled kernels are cached below [os.UserCacheDir] in flambeau/cubin. The cache also records the
// kernels for which the driver's compiler did not have enough registers: see [Device.Spills].
// Measurements of matrix products are kept in flambeau/products.
//
// An emulated GPU runs the same kernel text as hardware and checks every access: a fault names
// kernel, line and thread. Its times say nothing about real speed. In mode=meta an emulated GPU
// hands out addresses without memory, and counts kernels instead of running them. So a program can
// find out whether a model fits. Reading a value there is an error that wraps [device.ErrNoValues].
package cuda
