package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// Device is a GPU. Use [Open], device.Open or [Emulate].
type Device struct {
	p    *platform
	api  cu.API
	name string
	h    cu.Device
	ctx  cu.Context
	info device.Info
	sm   int // compute capability times ten
	ptx  int // newest PTX version that the driver takes, times ten
	gpu  *kernels.GPU

	main    *stream
	streams *streamPool // apart, so that a stream's cleanup does not keep the device
	events  eventPool
	timers  eventPool // events that take the time
	pool    *pool.Pool
	page    uint64 // of virtual memory, 0: none
	index   indexFaults
	dead    atomic.Pointer[device.Fault] // what ended the device
	kernels sync.Map                     // *kernels.Kernel to *loaded
	// whose kernels are found out; nil: it is a device of its own
	rehearses *Device
	count     counters
	counters  counterPool
	peers     sync.Map // *Device to *peerLink
	timing    timing
	staging   staging

	products *products // nil: own kernels

	tuning    atomic.Uint32 // a [Tuning]
	tuned     *tunedProducts
	measuring sync.Mutex // one product at a time
}

var _ device.Device = (*Device)(nil)

// newDevice opens device i: its primary context, which other libraries of the process share, its
// stream and its pool.
func newDevice(p *platform, i int, capability [2]int) (*Device, error) {
	d := &Device{p: p, api: p.api, streams: &streamPool{}, name: deviceName(i), sm: 10*capability[0] + capability[1]}
	d.staging.freed.L = &d.staging.mu
	var err error
	if d.h, err = p.api.DeviceGet(i); err != nil {
		return nil, err
	}
	product, err := p.api.DeviceName(d.h)
	if err != nil {
		return nil, err
	}
	memory, err := p.api.DeviceTotalMem(d.h)
	if err != nil {
		return nil, err
	}
	cores, err := p.api.DeviceAttribute(d.h, cu.AttrMultiprocessorCount)
	if err != nil {
		return nil, err
	}
	d.ptx = newestPTX(p.version)
	// plans are those of a GPU, not of the few multiprocessors that the emulator has
	if d.gpu = kernels.GPUOf(d.sm, product, cores); p.emulated {
		d.gpu = kernels.GPUOf(d.sm, "", 0)
	}
	d.info = device.Info{Kind: "cuda", Name: product, Emulated: p.emulated, Meta: p.meta, Capability: capability, Memory: int(memory), Cores: cores,
		Driver: p.version.String(), PTX: fmt.Sprintf("%d.%d", d.ptx/10, d.ptx%10)}

	d.tuned = p.tunedFor(d)
	d.SetTuning(p.tuning)

	// A waiting thread sleeps: Go has better uses for the core. Where another library made the
	// context first, its choice stays.
	_ = p.api.PrimaryCtxSetFlags(d.h, cu.CtxSchedBlockingSync)
	if d.ctx, err = p.api.PrimaryCtxRetain(d.h); err != nil {
		return nil, err
	}
	if err = d.start(); err == nil {
		err = d.openProducts()
	}
	if err != nil {
		_ = p.api.PrimaryCtxRelease(d.h) // the first error is the one to tell
		return nil, err
	}
	return d, nil
}

// start makes what lives in the context.
func (d *Device) start() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	var err error
	if d.streams.least, d.streams.urgent, err = d.api.CtxStreamPriorityRange(); err != nil {
		return err
	}
	if err = d.index.init(d.api); err != nil {
		return err
	}
	if d.main, err = d.newStream(0); err != nil {
		return err
	}
	d.pool, err = d.newPool()
	return err
}

// newestPTX returns the newest PTX version, times ten, that a driver of that CUDA version compiles:
// table "PTX Release History" of NVIDIA's PTX ISA. A later driver takes at least what the last one
// known here takes.
func newestPTX(v cu.Version) int {
	major, minor := int(v)/1000, int(v)%1000/10
	switch {
	case major < 11 || major == 11 && minor < 4:
		return 70
	case major == 11:
		return 70 + min(minor, 8)
	case major == 12 && minor <= 5:
		return 80 + minor
	case major == 12 && minor == 6:
		return 85
	case major == 12:
		return 79 + min(minor, 9)
	case major == 13:
		return 90 + min(minor, 1)
	}
	return 91
}

// Name returns "cuda:0" for the first device.
func (d *Device) Name() string { return d.name }

// Info describes the GPU.
func (d *Device) Info() device.Info { return d.info }

// Synchronize waits for all streams, and reports a fault or an index error of their work.
func (d *Device) Synchronize() error {
	if t := device.Tracing(); t != nil {
		defer d.tracedWait(t, nil, "device synchronize")()
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := d.api.CtxSynchronize(); err != nil {
		return d.fault("", err)
	}
	if e := d.index.take(^uint64(0)); e != nil {
		return e
	}
	return nil
}

// counters count what was asked of the driver.
type counters struct{ launches, kernels, compiled, up, down, downBytes, within atomic.Uint64 }

// Counters says how often a device was asked to do something since it was opened.
type Counters struct {
	Launches  uint64 // of kernels
	Kernels   uint64 // that were loaded
	Compiled  uint64 // by the driver, rather than found in a [Pack] or on disk
	Uploads   uint64 // copies from the host; one that goes in pieces is one
	Downloads uint64 // copies to the host, each of which waits for its stream
	Copies    uint64 // on the device and between devices
	// DownloadedBytes is what the downloads copied.
	DownloadedBytes uint64
}

// Counters returns the counts, for tests that hold an operation to its number of launches and
// copies.
func (d *Device) Counters() Counters {
	c := &d.count
	return Counters{c.launches.Load(), c.kernels.Load(), c.compiled.Load(), c.up.Load(), c.down.Load(), c.within.Load(), c.downBytes.Load()}
}

// String returns the device's name and product, such as "cuda:0 (NVIDIA H200)"; an emulated
// device's says so.
func (d *Device) String() string { return d.Name() + " (" + d.Info().Name + ")" }
