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

// Device is a GPU. [Open], device.Open and [Emulate] return one.
type Device struct {
	p    *platform
	api  cu.API
	name string
	h    cu.Device
	ctx  cu.Context
	info device.Info
	sm   int // compute capability times ten
	ptx  int // newest PTX version that the driver compiles, times ten
	gpu  *kernels.GPU

	main *stream
	// The pool of streams is a separate value, so that the cleanup of a garbage stream does not
	// keep the device reachable.
	streams *streamPool
	events  eventPool
	timers  eventPool // events that measure time
	pool    *pool.Pool
	page    uint64 // size of a page of virtual memory in bytes; 0 if the GPU has no virtual memory
	index   indexFaults
	// the fault that made the device unusable; nil if there is none
	dead    atomic.Pointer[device.Fault]
	kernels sync.Map // maps each *kernels.Kernel to its *loaded
	// the device whose work this device imitates without values; nil for ordinary devices
	rehearses *Device
	count     counters
	counters  counterPool
	peers     sync.Map // maps each peer, a *Device, to its *peerLink
	timing    timing
	staging   staging

	products *products // computes matrix products by a library; nil if own kernels compute them

	tuning    atomic.Uint32 // a [Tuning], which says how the kernels of matrix products are chosen
	tuned     *tunedProducts
	measuring sync.Mutex // held while a matrix product is measured
}

var _ device.Device = (*Device)(nil)

// newDevice opens device i, with its default stream and its pool. The device uses the primary
// context, which all libraries of the process share.
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
	// the cost model describes a real GPU, not the few multiprocessors of the emulator
	if d.gpu = kernels.GPUOf(d.sm, product, cores); p.emulated {
		d.gpu = kernels.GPUOf(d.sm, "", 0)
	}
	d.info = device.Info{Kind: "cuda", Name: product, Emulated: p.emulated, Meta: p.meta, Capability: capability, Memory: int(memory), Cores: cores,
		Driver: p.version.String(), PTX: fmt.Sprintf("%d.%d", d.ptx/10, d.ptx%10)}

	d.tuned = p.tunedFor(d)
	d.SetTuning(p.tuning)

	// A waiting thread sleeps, so that other goroutines can use the core. If another library has
	// already created the context, it keeps that library's setting.
	_ = p.api.PrimaryCtxSetFlags(d.h, cu.CtxSchedBlockingSync)
	if d.ctx, err = p.api.PrimaryCtxRetain(d.h); err != nil {
		return nil, err
	}
	if err = d.start(); err == nil {
		err = d.openProducts()
	}
	if err != nil {
		_ = p.api.PrimaryCtxRelease(d.h) // only the first error is reported
		return nil, err
	}
	return d, nil
}

// start creates everything that belongs to the context: the default stream, the memory pool and
// other state.
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

// newestPTX returns the newest PTX version, times ten, that a driver of the given CUDA version
// compiles. Source: the table "PTX Release History" of NVIDIA's PTX ISA. A newer driver counts as
// the newest driver in the table.
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
	if e := d.index.takeFault(^uint64(0)); e != nil {
		return e
	}
	return nil
}

type counters struct{ launches, kernels, compiled, up, down, downBytes, within atomic.Uint64 }

// Counters counts the requests to a device since it was opened.
type Counters struct {
	Launches uint64 // number of kernels launched
	Kernels  uint64 // number of kernels loaded
	// number of kernels compiled by the driver because they were neither in a [Pack] nor on disk
	Compiled  uint64
	Uploads   uint64 // number of copies from the host; a copy in several chunks counts once
	Downloads uint64 // number of copies to the host, each of which waits for its stream
	Copies    uint64 // number of copies on the device and between devices
	// DownloadedBytes is the sum of the sizes of the downloads.
	DownloadedBytes uint64
}

// Counters returns the numbers of requests since the device was opened. Tests use them to check the
// number of launches and copies of an operation.
func (d *Device) Counters() Counters {
	c := &d.count
	return Counters{c.launches.Load(), c.kernels.Load(), c.compiled.Load(), c.up.Load(), c.down.Load(), c.within.Load(), c.downBytes.Load()}
}

// String returns the device's name and product, such as "cuda:0 (NVIDIA H200)". The product of an
// emulated device says that it is emulated.
func (d *Device) String() string { return d.Name() + " (" + d.Info().Name + ")" }
