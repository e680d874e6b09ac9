// Package cpu is the driver of the processor: it runs the primitives of package device on all cores.
//
// The contract:
//
//   - It registers itself as kind "cpu" when it is imported; there is one device, [Get], named "cpu".
//   - Work runs in the calling goroutine, helped by workers that are started once; a method returns when the work is done, so
//     a stream has nothing queued and every event is done. All methods are safe for concurrent use, also from inside work.
//   - A [device.Map] gives the bits of [expr.Program.Eval], but for the payload of a NaN. Results
//     do not depend on the number of workers: what is summed is cut in pieces that depend on shapes
//     alone, and float32 sums are pairwise.
//   - Products of matrices, and what is computed with them (convolutions, attention, recurrent layers), have other bits with
//     AVX-512, with AVX2 and without both, within the error of their rounding: the order of their sums fits the vectors, and
//     products are fused with additions where the processor can. [device.Info] names what is used (SIMD). So a training that
//     goes on upon another processor, or with GODEBUG=cpu.avx512f=off, does not repeat the bits that it would have had.
//   - Views are checked before anything is touched: an operand whose elements do not lie in its
//     buffer is a *[device.OperandError].
//   - Memory of 64 KiB and more comes from a caching pool on huge pages; smaller buffers are Go memory, which the garbage
//     collector frees also without Buffer.Free and which [device.Stats] does not count.
package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// Device is the processor. Use [Get].
type Device struct {
	crew *crew
	mem  memory
	pool *pool.Pool
	main stream
	next atomic.Uint64 // the last stream's number
	par  gemm.Parallel // the crew, as package gemm calls it

	capacity func() int // all memory that the process may ever have, read once: it is asked for with every [Device.Info]
}

var _ device.Device = (*Device)(nil)

func newDevice(workers int) *Device {
	d := &Device{crew: newCrew(workers)}
	d.main.dev = d
	d.par = func(n int, f func(int)) { d.crew.parallel(n, 1, each(f)) }
	d.pool = pool.New(&d.mem, poolOptions())
	d.SetMemoryLimit(0)
	d.capacity = sync.OnceValue(func() int {
		_, total := d.mem.Capacity()
		return int(total)
	})
	return d
}

func poolOptions() pool.Options {
	return pool.Options{Name: "cpu", ErrOOM: device.ErrOutOfMemory, Round: 64, SmallSegment: 2 << 20, GCRatio: 1}
}

var the = sync.OnceValue(func() *Device { return newDevice(runtime.GOMAXPROCS(0)) })

// Get returns the device.
func Get() *Device { return the() }

type driver struct{}

func (driver) Count() (int, error)             { return 1, nil }
func (driver) Open(int) (device.Device, error) { return Get(), nil }
func init()                                    { device.Register("cpu", driver{}) }

// Name returns "cpu".
func (d *Device) Name() string { return "cpu" }

// Info describes the processor.
func (d *Device) Info() device.Info {
	return device.Info{Kind: "cpu", Host: true, Name: processor(), Memory: d.capacity(), Cores: runtime.NumCPU(), SIMD: asm.Active()}
}

// SetMemoryLimit bounds the memory that the device's pool takes from the system, in bytes. Beyond it Alloc collects garbage
// and at last fails with an error that wraps [device.ErrOutOfMemory]. 0 restores the bound that the device begins with: nine
// tenths of the memory that the process may have, where the system tells; none otherwise. It comes before the system's own end,
// which on Linux is the death of the process.
func (d *Device) SetMemoryLimit(bytes int) {
	if bytes <= 0 {
		_, total := d.mem.Capacity()
		bytes = int(total / 10 * 9)
	}
	d.pool.SetLimit(uint64(bytes))
}

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

// String returns the device's name, "cpu".
func (d *Device) String() string { return d.Name() }
