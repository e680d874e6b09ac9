// Package cpu is the driver of the CPU. It runs the primitives of package device on all cores.
//
// Programs need not import it: package tensor does. They open the devices by name:
// device.Open("cpu"), device.Open("cpu:1"). [Get] is for programs that want the methods of
// [Device], such as [Device.SetWorkers].
//
// These rules hold:
//
//   - The package registers itself as kind "cpu" when it is imported. There is one device, [Get],
//     named "cpu".
//   - There are also ranks of the CPU, named "cpu:0", "cpu:1", …, which [device.Open] creates on
//     request. Each rank is a separate device with its own pool, statistics and workers, like
//     "cuda:0" and "cuda:1". So a program that trains on many devices also runs without a GPU, on
//     ranks. Results have the same bits as on "cpu". The memory of all ranks is host memory. So a
//     copy between ranks is an ordinary copy, and Borrow makes one rank's memory usable on another
//     rank. In other respects, a buffer belongs to the device that allocated it.
//   - Each device begins with GOMAXPROCS workers. [Device.SetWorkers] changes their number.
//   - Work runs in the calling goroutine, with the help of worker goroutines that stay alive. A
//     method returns when the work is done, so a stream has nothing queued and every event is done.
//     All methods are safe for concurrent use. A function that runs as work of the device may also
//     call them.
//   - A [device.Map] gives the same bits as [expr.Program.Eval], except for the sign and payload of
//     a NaN.
//     Results do not depend on the number of workers: sums are divided into pieces that depend only
//     on shapes. Float32 sums are pairwise.
//   - Products of matrices, and results computed with them (convolutions, attention, recurrent
//     layers), have different bits with AVX-512, with AVX2 and without both. The differences are
//     only rounding errors. The reasons are that the order of sums depends on the vectors, and that
//     the processor may fuse products with additions. So a training that continues on another
//     processor, or with GODEBUG=cpu.avx512f=off, does not give the same bits as an uninterrupted
//     training. The field SIMD of [device.Info] names the instruction set in use.
//   - Products of bfloat16 ([device.MatMul]) use VDPBF16PS, if the processor has AVX512_BF16 and
//     SIMD is avx512. Otherwise factors are first converted to float32: on other processors, for
//     float16, and in attention. In both cases sums are float32, and a result is rounded once.
//     VDPBF16PS adds two neighbouring products in one step, so it sums in another order. It treats
//     subnormal numbers, below 2^-126, as zeros, in factors and in sums. Apart from subnormal
//     numbers, the error has the same bound.
//   - If the processor also has AMX, and Linux grants its tiles, all but small products of bfloat16
//     use TDPBF16PS. It sums the even and the odd elements separately, 32 elements at a time. In
//     other respects the previous point holds for it too.
//   - On Linux, with AVX-512 or AVX2, elementwise programs become machine code when they first run.
//     The code's memory is never writable and executable at the same time. If the system refuses
//     such memory, or with FLAMBEAU_JIT=off, the device runs one prepared kernel after the other,
//     which gives the same bits. The field Interpreted of [device.Info] gives the reason.
//   - Views are checked before anything is read or written. If an operand has an element outside
//     its buffer, the error is a *[device.OperandError].
//   - Memory of 8 KiB and more comes from a caching pool on huge pages. Smaller buffers are Go
//     memory, which the garbage collector frees even without Buffer.Free. [device.Stats] does not
//     count them.
//   - [Get] reserves 16 MiB of Go's heap and does not touch them. Go's garbage collector then runs
//     less often. With GOGC or GOMEMLIMIT in the environment, or after debug.SetMemoryLimit, Get
//     reserves nothing. Setting GOGC=100, Go's default, thus turns the reservation off.
package cpu

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
	"github.com/flambeau-go/flambeau/internal/pool/hostmem"
)

// Device is the CPU or a rank of it. [Get] returns the CPU. [device.Open] with a name such as
// "cpu:0" returns a rank.
type Device struct {
	name    string
	workers *workerPool
	mem     memory
	pool    *pool.Pool
	main    stream
	next    atomic.Uint64 // number of the stream that was created last
	par     gemm.Parallel // runs tasks of package gemm on the workers

	initialWorkers int // number of workers at the start
}

var _ device.Device = (*Device)(nil)

func newDevice(workers int) *Device { return named("cpu", workers) }

func named(name string, workers int) *Device {
	d := &Device{name: name, workers: newWorkerPool(workers), initialWorkers: workers}
	d.main.dev = d
	d.par = func(n int, f func(int)) { d.workers.parallel(n, 1, each(f)) }
	d.pool = pool.New(&d.mem, poolOptions(name))
	d.SetMemoryLimit(0)
	return d
}

// capacity returns how much memory, in bytes, the process may have in total. It returns 0 if the
// system does not report that. The number is read only once, because every call of Info needs it.
var capacity = sync.OnceValue(func() uint64 {
	_, total := new(hostmem.Memory).Capacity()
	return total
})

func poolOptions(name string) pool.Options {
	return pool.Options{Name: name, ErrOOM: device.ErrOutOfMemory, Round: 64, SmallSegment: 2 << 20, GCRatio: 1}
}

var the = sync.OnceValue(func() *Device {
	reserveHeadroom()
	return newDevice(runtime.GOMAXPROCS(0))
})

// Get returns the device "cpu".
func Get() *Device { return the() }

type driver struct{}

func (driver) Count() (int, error)             { return 1, nil }
func (driver) Open(int) (device.Device, error) { return Get(), nil }
func init()                                    { device.Register("cpu", driver{}) }

// Name returns "cpu", or "cpu:1" for a rank.
func (d *Device) Name() string { return d.name }

// Info describes the processor.
func (d *Device) Info() device.Info {
	return device.Info{Kind: "cpu", Host: true, Name: processor(), Memory: int(capacity()), Cores: runtime.NumCPU(), SIMD: asm.Active(), Interpreted: interpreted()}
}

// SetMemoryLimit bounds the memory in bytes that the device's pool takes from the system. At the
// limit Alloc runs the garbage collector. If that is not enough, Alloc fails with an error that
// wraps [device.ErrOutOfMemory]. The argument 0 restores the initial limit: nine tenths of the
// memory that the process may have. (Linux would kill a process that takes more than all of it.) If
// the system does not report that memory, there is no initial limit. The initial limit applies to
// the total of "cpu" and all ranks. A limit that a program sets applies only to this device.
func (d *Device) SetMemoryLimit(bytes int) {
	d.mem.shared.Store(bytes <= 0)
	if bytes <= 0 {
		bytes = int(initialLimit())
	}
	d.pool.SetLimit(uint64(bytes))
}

// initialLimit returns the initial limit in bytes for all devices together; 0 means no limit.
func initialLimit() uint64 { return capacity() / 10 * 9 }

var _ device.WorkerSharer = (*Device)(nil)

// SetWorkers sets how many goroutines, including the caller's, share the work of one op. For
// example, two ranks on two cores should have one worker each. With n = 1, the caller's goroutine
// does all work. A number below 1 restores the initial number, GOMAXPROCS. A program may call
// SetWorkers while work runs: an op that has begun keeps its workers. Results do not depend on the
// number.
func (d *Device) SetWorkers(n int) {
	if n < 1 {
		n = d.initialWorkers
	}
	d.workers.resize(n)
}

// Workers returns how many goroutines share the work of one op, including the caller's.
func (d *Device) Workers() int { return d.workers.size() }

// Stats returns the counts of the memory that the device's pool holds.
func (d *Device) Stats() device.Stats { return poolStats(d.pool) }

func poolStats(p *pool.Pool) device.Stats {
	s := p.Stats()
	return device.Stats{
		Allocated: int(s.AllocatedBytes.Current), AllocatedPeak: int(s.AllocatedBytes.Peak),
		Reserved: int(s.ReservedBytes.Current), ReservedPeak: int(s.ReservedBytes.Peak),
		AllocatedTotal: int(s.AllocatedBytes.Allocated), Allocations: int(s.Allocations), Frees: int(s.Frees),
		Segments: int(s.Segments.Current), Retries: int(s.Retries), OOMs: int(s.OOMs),
	}
}

// ResetPeak sets the peaks in Stats to the current values.
func (d *Device) ResetPeak() { d.pool.ResetPeak() }

// Empty gives cached memory back to the system and returns how many bytes it gave back.
func (d *Device) Empty() int { return int(d.pool.Empty()) }

// Synchronize returns immediately, because every method returns only when its work is done.
func (d *Device) Synchronize() error { return nil }

// DefaultStream returns the stream for calls that pass no stream.
func (d *Device) DefaultStream() device.Stream { return &d.main }

// NewStream returns another stream. Its priority has no effect.
func (d *Device) NewStream(int) (device.Stream, error) {
	return d.newStream(), nil
}

// stream is a queue of work. Work runs at once, so the queue is always empty. While a stream is
// recorded, its work becomes part of the recording and does not run.
type stream struct {
	dev host
	id  uint64
	rec atomic.Pointer[recording] // recording of the stream's work; nil if work runs at once
}

func (s *stream) Device() device.Device { return s.dev }
func (s *stream) ID() uint64            { return s.id }

// Record returns an event that is already done. In a recording, it returns an event that stands for
// a point in the list of recorded work.
func (s *stream) Record() (device.Event, error) {
	if r := s.rec.Load(); r != nil {
		return recordedEvent{r, s}, nil
	}
	return done{}, nil
}

// Synchronize returns at once. If s is recorded, it returns an error.
func (s *stream) Synchronize() error { return refused(s, "synchronize", hostWaits) }

// Wait blocks the caller until the event is done. Later work on the stream then runs after it,
// because the caller itself runs that work. A recording needs no waits: a replay keeps the order of
// the list.
func (s *stream) Wait(e device.Event) error {
	r := s.rec.Load()
	switch e := e.(type) {
	case nil, done:
		return nil
	case recordedEvent:
		if e.r == r {
			return nil
		}
	default:
		if r != nil && !e.Done() {
			return refused(s, "wait for an event", "replays would not wait again")
		}
	}
	return e.Wait()
}

// done is an event that is already done.
type done struct{}

func (done) Done() bool  { return true }
func (done) Wait() error { return nil }
func (done) Release()    {}

// String returns the device's name.
func (d *Device) String() string { return d.Name() }

// processor returns the name of the processor if the system reports it, else the architecture.
var processor = sync.OnceValue(func() string {
	if name := os.Getenv("PROCESSOR_IDENTIFIER"); runtime.GOOS == "windows" && name != "" {
		return name
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return runtime.GOARCH
})
