// Package cpu is the driver of the processor: it runs the primitives of package device on all
// cores.
//
// Programs do not import it, because package tensor does. They open its devices by name:
// device.Open("cpu"), device.Open("cpu:1"). [Get] is for programs that want the methods of
// [Device], such as [Device.SetWorkers].
//
// The contract:
//
//   - The package registers itself as kind "cpu". The device "cpu" is the one that [Get] returns.
//   - The devices "cpu:0", "cpu:1", … are ranks of the CPU. [device.Open] makes each when it is
//     first asked for. Each has a pool, statistics and workers of its own, as each GPU has. So a
//     program that trains on many devices runs without a GPU. Results have the bits of "cpu". A
//     copy between ranks is a plain copy, and Borrow lends the memory of one to another. In all
//     else a buffer is its own device's.
//   - Each device begins with GOMAXPROCS workers. [Device.SetWorkers] gives it its share.
//   - Work runs in the calling goroutine, and workers help. A method returns when the work is done,
//     so a stream has nothing queued and every event is done. All methods are safe for concurrent
//     use, also from inside work.
//   - A [device.Map] gives the bits of [expr.Program.Eval], but for the payload of a NaN. Results
//     do not depend on the number of workers: sums are cut in pieces by shapes alone, and float32
//     sums are pairwise.
//   - Products of matrices have other bits with AVX-512, with AVX2 and without both. So have
//     convolutions, attention and recurrent layers. They differ within the error of their rounding.
//     The order of their sums fits the vectors, and products are fused with additions where the
//     processor can. [device.Info] names the vectors in use (SIMD). A training that goes on upon
//     another processor, or with GODEBUG=cpu.avx512f=off, gets other bits.
//   - Views are checked before anything is touched. An operand whose elements do not lie in its
//     buffer is a *[device.OperandError].
//   - Memory of 64 KiB and more comes from a caching pool on huge pages. Smaller buffers are Go
//     memory. The garbage collector frees them even without Buffer.Free, and [device.Stats] does
//     not count them.
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

// Device is the CPU, or a rank of it. Use [Get], or [device.Open] of "cpu:0".
type Device struct {
	name string
	crew *crew
	mem  memory
	pool *pool.Pool
	main stream
	next atomic.Uint64 // the last stream's number
	par  gemm.Parallel // the crew, as package gemm calls it

	own int // the workers that it began with
}

var _ device.Device = (*Device)(nil)

func newDevice(workers int) *Device { return named("cpu", workers) }

func named(name string, workers int) *Device {
	d := &Device{name: name, crew: newCrew(workers), own: workers}
	d.main.dev = d
	d.par = func(n int, f func(int)) { d.crew.parallel(n, 1, each(f)) }
	d.pool = pool.New(&d.mem, poolOptions(name))
	d.SetMemoryLimit(0)
	return d
}

// capacity is all memory that the process may ever have, in bytes, read once: it is asked for with
// every [Device.Info]. 0 where the system does not tell.
var capacity = sync.OnceValue(func() uint64 {
	_, total := new(hostmem.Memory).Capacity()
	return total
})

func poolOptions(name string) pool.Options {
	return pool.Options{Name: name, ErrOOM: device.ErrOutOfMemory, Round: 64, SmallSegment: 2 << 20, GCRatio: 1}
}

var the = sync.OnceValue(func() *Device { return newDevice(runtime.GOMAXPROCS(0)) })

// Get returns the device.
func Get() *Device { return the() }

type driver struct{}

func (driver) Count() (int, error)             { return 1, nil }
func (driver) Open(int) (device.Device, error) { return Get(), nil }
func init()                                    { device.Register("cpu", driver{}) }

// Name returns "cpu", or "cpu:1" for a rank.
func (d *Device) Name() string { return d.name }

// Info describes the processor.
func (d *Device) Info() device.Info {
	return device.Info{Kind: "cpu", Host: true, Name: processor(), Memory: int(capacity()), Cores: runtime.NumCPU(), SIMD: asm.Active()}
}

// SetMemoryLimit bounds the memory that the device's pool takes from the system, in bytes. Beyond
// it Alloc collects garbage and at last fails with an error that wraps [device.ErrOutOfMemory]. 0
// restores the bound that the device begins with. That is nine tenths of the memory that the
// process may have, where the system tells that, and none otherwise. It comes before the system's
// own end, which on Linux is the death of the process. That bound holds for what "cpu" and all
// ranks have together; one that is set holds for the device alone.
func (d *Device) SetMemoryLimit(bytes int) {
	d.mem.shared.Store(bytes <= 0)
	if bytes <= 0 {
		bytes = int(most())
	}
	d.pool.SetLimit(uint64(bytes))
}

// most is the bound of all devices together, in bytes; 0 is none.
func most() uint64 { return capacity() / 10 * 9 }

var _ device.WorkerSharer = (*Device)(nil)

// SetWorkers says how many goroutines, the caller included, share the work of one call: of two
// ranks on two cores each gets one. With 1 all work is done by the caller, and no worker runs. A
// number under 1 restores what the device began with, GOMAXPROCS. It may be called while work runs:
// a call that has begun keeps the workers that it has. Results do not depend on it.
func (d *Device) SetWorkers(n int) {
	if n < 1 {
		n = d.own
	}
	d.crew.resize(n)
}

// Workers returns how many goroutines share the work of one call, the caller included.
func (d *Device) Workers() int { return d.crew.size() }

// Stats counts the pool's memory.
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

// ResetPeak lowers the peaks to the present values.
func (d *Device) ResetPeak() { d.pool.ResetPeak() }

// Empty gives cached memory back to the system and returns its bytes.
func (d *Device) Empty() int { return int(d.pool.Empty()) }

// Synchronize returns at once: all work is done when its method returns.
func (d *Device) Synchronize() error { return nil }

// DefaultStream returns the stream used where none is chosen.
func (d *Device) DefaultStream() device.Stream { return &d.main }

// NewStream returns another stream; its priority means nothing.
func (d *Device) NewStream(int) (device.Stream, error) {
	return &stream{dev: d, id: d.next.Add(1)}, nil
}

// stream is a queue that is always empty.
type stream struct {
	dev *Device
	id  uint64
}

func (s *stream) Device() device.Device         { return s.dev }
func (s *stream) ID() uint64                    { return s.id }
func (s *stream) Record() (device.Event, error) { return done{}, nil }
func (s *stream) Synchronize() error            { return nil }

// Wait waits for the event at once: later work runs in the caller.
func (s *stream) Wait(e device.Event) error {
	if _, ok := e.(done); ok || e == nil {
		return nil
	}
	return e.Wait()
}

// done is an event that has happened.
type done struct{}

func (done) Done() bool  { return true }
func (done) Wait() error { return nil }
func (done) Release()    {}

// String returns the device's name.
func (d *Device) String() string { return d.Name() }

// processor returns the product's name where the system tells it, else the architecture.
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
