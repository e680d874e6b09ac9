package emu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// DriverVersion is the version that the emulated driver reports, CUDA 12.4.
const DriverVersion cu.Version = 12040

// maxPTXMajor and maxPTXMinor are the newest version of PTX that a driver of version DriverVersion
// compiles: 8.4.
const (
	maxPTXMajor = 8
	maxPTXMinor = 4
)

// ErrMeta is the cause of an error in meta mode, where memory has no contents. The failed call
// would have read a value.
var ErrMeta = errors.New("emu: mode=meta has addresses without memory, so there is no value to read")

// Driver is an emulated driver with its devices. It satisfies cu.API, cu.Checker and cu.Emulated.
// All methods may be called from several goroutines at once. Only one call runs at a time, even if
// it executes kernels. A single kernel uses several cores.
type Driver struct {
	cfg Config

	mu        sync.Mutex // guards the fields below it
	devices   []*device
	current   map[uint64]*context // current context of each thread
	contexts  map[cu.Context]*context
	modules   map[cu.Module]*module
	functions map[cu.Function]*function
	events    map[cu.Event]*event
	byHandle  map[cu.Stream]*stream
	streams   []*stream // all streams in order of creation, including default streams
	hosts     []*hostBlock
	handles   uint64
	graphs    graphs

	// rng is the random generator of an adversarial schedule. It is nil if work runs in the order
	// of the calls.
	rng     *rand.Rand
	issue   uint64
	pending int
	links   map[[2]int]*calendar // links by the ordinals of their two devices

	counters Counters
}

var (
	_ cu.API      = (*Driver)(nil)
	_ cu.Checker  = (*Driver)(nil)
	_ cu.Emulated = (*Driver)(nil)
)

type device struct {
	ordinal int
	mem     *ptxvm.Memory // global memory of the device; nil in meta mode
	meta    *metaMemory   // addresses of the device in meta mode; otherwise nil
	virtual *virtual
	ctx     *context // the primary context, if it is retained
	flags   cu.CtxFlags
	// dead is the error that ended an earlier context. Only Reset makes the device usable again.
	dead  error
	short shortage
	// host is the virtual time of the device's host. Operations that are submitted now do not start
	// earlier.
	host    time.Duration
	engines [engines]calendar
}

// context is the primary context of a device.
type context struct {
	handle        cu.Context
	dev           *device
	refs          int
	defaultStream *stream
	dead          error             // error that each call returns after a fault
	peers         map[*context]bool // contexts whose memory this context may address
}

// New returns an emulated driver. The error is a [*SpecError].
func New(cfg Config) (*Driver, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, current: map[uint64]*context{}, contexts: map[cu.Context]*context{}, modules: map[cu.Module]*module{},
		functions: map[cu.Function]*function{}, events: map[cu.Event]*event{}, byHandle: map[cu.Stream]*stream{}}
	if cfg.Seed != 0 {
		d.rng = rand.New(rand.NewPCG(cfg.Seed, 0))
	}
	for i := range cfg.Devices {
		dev := &device{ordinal: i}
		dev.clear(cfg)
		d.devices = append(d.devices, dev)
	}
	d.linkPeers()
	return d, nil
}

// addressBase returns the address at which a device's memory starts. The ranges of devices do not
// overlap, so an address identifies its device.
func addressBase(ordinal int) uint64 { return uint64(ordinal+1) << 44 }

func (dev *device) clear(cfg Config) {
	dev.virtual = newVirtual()
	if cfg.Meta {
		dev.meta = newMetaMemory(addressBase(dev.ordinal), cfg.Memory)
	} else {
		dev.mem = ptxvm.NewMemory(addressBase(dev.ordinal), cfg.Memory)
	}
}

// Config returns the configuration with its defaults filled in.
func (d *Driver) Config() Config { return d.cfg }

// Emulated reports true.
func (d *Driver) Emulated() bool { return true }

// Now returns the virtual time of the host. Each device has its own host clock, which
// synchronisation moves forward. Now returns the latest time of these clocks.
func (d *Driver) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var now time.Duration
	for _, dev := range d.devices {
		now = max(now, dev.host)
	}
	return now
}

// NowOf returns the virtual time of the host clock of one device, or 0 if there is no such device.
func (d *Driver) NowOf(ordinal int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ordinal < 0 || ordinal >= len(d.devices) {
		return 0
	}
	return d.devices[ordinal].host
}

// Reset makes a device usable again after a fault. On hardware this is impossible. Reset destroys
// the device's memory, streams, events and modules. A retained primary context keeps its handle,
// but is otherwise like a new context. The error is ErrInvalidDevice if there is no such device.
func (d *Driver) Reset(ordinal int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ordinal < 0 || ordinal >= len(d.devices) {
		return fail("Reset", cu.ErrInvalidDevice, "ordinal %d of %d devices", ordinal, len(d.devices))
	}
	dev := d.devices[ordinal]
	if dev.ctx != nil {
		d.dismantle(dev.ctx)
		dev.ctx.dead = nil
		d.addDefaultStream(dev.ctx)
	}
	dev.dead = nil
	return nil
}

// dismantle destroys everything that belongs to ctx. The caller holds d.mu.
func (d *Driver) dismantle(ctx *context) {
	d.kill(ctx, errDestroyed)
	d.streams = slices.DeleteFunc(d.streams, func(s *stream) bool {
		if s.ctx == ctx {
			delete(d.byHandle, s.handle)
		}
		return s.ctx == ctx
	})
	deleteIf(d.events, func(e *event) bool { return e.ctx == ctx })
	deleteIf(d.functions, func(f *function) bool { return f.mod.ctx == ctx })
	deleteIf(d.modules, func(m *module) bool { return m.ctx == ctx })
	d.graphs.dismantle(ctx)
	ctx.dev.clear(d.cfg)
	d.partPeers(ctx)
	// the device's memory is gone, and with it the mappings of page-locked memory
	for _, h := range d.hosts {
		delete(h.mapped, ctx.dev.ordinal)
	}
}

func deleteIf[K comparable, V any](m map[K]V, del func(V) bool) {
	for k, v := range m {
		if del(v) {
			delete(m, k)
		}
	}
}

var errDestroyed = &cu.Error{Call: "cuDevicePrimaryCtxRelease", Result: cu.ErrContextIsDestroyed}

// handle returns a new handle. No two objects of any kind ever have the same handle, so that a
// wrong handle is always detected.
func (d *Driver) handle() uint64 {
	d.handles++
	return 0x10000 + 16*d.handles
}

// fail returns the *cu.Error of a failed call.
func fail(call string, r cu.Result, format string, args ...any) error {
	return &cu.Error{Call: call, Result: r, Detail: fmt.Sprintf(format, args...)}
}

// currentContext returns the calling thread's current context, or an error if it has none or the
// context has ended. The caller holds d.mu.
func (d *Driver) currentContext(call string) (*context, error) {
	ctx := d.current[threadID()]
	switch {
	case ctx == nil:
		return nil, fail(call, cu.ErrInvalidContext, "the calling thread has no current context: CtxSetCurrent after runtime.LockOSThread")
	case d.contexts[ctx.handle] != ctx:
		return nil, fail(call, cu.ErrContextIsDestroyed, "the calling thread's current context was released")
	case ctx.dead != nil:
		return nil, ctx.dead
	}
	return ctx, nil
}

// streamOf returns the stream with the given handle. Handle 0 is the default stream of the current
// context. The caller holds d.mu.
func (d *Driver) streamOf(call string, h cu.Stream) (*stream, error) {
	if h == 0 {
		ctx, err := d.currentContext(call)
		if err != nil {
			return nil, err
		}
		return ctx.defaultStream, nil
	}
	s := d.byHandle[h]
	if s == nil || s.closed {
		return nil, fail(call, cu.ErrInvalidHandle, "there is no stream %#x", uintptr(h))
	}
	if s.capture != nil && !capturable[call] {
		return nil, s.capture.refuse(call)
	}
	return s, s.ctx.dead
}

// streamHere is streamOf for streams that must belong to the current context. The caller holds
// d.mu.
func (d *Driver) streamHere(call string, h cu.Stream) (*stream, error) {
	ctx, err := d.currentContext(call)
	if err != nil {
		return nil, err
	}
	s, err := d.streamOf(call, h)
	if err != nil {
		return nil, err
	}
	if s.ctx != ctx {
		return nil, fail(call, cu.ErrInvalidHandle, "stream %#x is of device %d, the current context of device %d", uintptr(h), s.ctx.dev.ordinal, ctx.dev.ordinal)
	}
	return s, nil
}
