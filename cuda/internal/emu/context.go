package emu

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// addDefaultStream creates stream 0 of ctx. The caller holds d.mu.
func (d *Driver) addDefaultStream(ctx *context) {
	ctx.defaultStream = &stream{ctx: ctx, blocking: true, weight: d.weight()}
	d.streams = append(d.streams, ctx.defaultStream)
}

// weight returns the scheduling weight of a new stream. In an adversarial schedule it is random, so
// that some streams run late.
func (d *Driver) weight() int {
	if d.rng == nil {
		return 1
	}
	return weights[d.rng.IntN(len(weights))]
}

// PrimaryCtxRetain creates the primary context, or adds a reference to it. A device whose context
// ended with an error stays unusable until Reset.
func (d *Driver) PrimaryCtxRetain(dev cu.Device) (cu.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dv, err := d.device("cuDevicePrimaryCtxRetain", dev)
	if err != nil {
		return 0, err
	}
	if dv.ctx == nil {
		if dv.dead != nil {
			return 0, dv.dead
		}
		dv.ctx = &context{handle: cu.Context(d.handle()), dev: dv}
		d.contexts[dv.ctx.handle] = dv.ctx
		d.addDefaultStream(dv.ctx)
	}
	dv.ctx.refs++
	return dv.ctx.handle, nil
}

// Contexts returns the ordinals of the devices that have a context, in ascending order.
func (d *Driver) Contexts() (devices []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, dv := range d.devices {
		if dv.ctx != nil {
			devices = append(devices, i)
		}
	}
	return devices
}

// PrimaryCtxRelease drops a reference to the primary context. The last release completes the
// context's work and destroys everything in it.
func (d *Driver) PrimaryCtxRelease(dev cu.Device) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dv, err := d.device("cuDevicePrimaryCtxRelease", dev)
	if err != nil {
		return err
	}
	ctx := dv.ctx
	if ctx == nil {
		return fail("cuDevicePrimaryCtxRelease", cu.ErrInvalidContext, "device %d has no primary context", dev)
	}
	if ctx.refs--; ctx.refs > 0 {
		return nil
	}
	d.drain(ctx)
	dv.dead = ctx.dead
	d.dismantle(ctx)
	delete(d.contexts, ctx.handle)
	dv.ctx = nil
	return nil
}

// PrimaryCtxSetFlags ignores its flags. They say how a host thread waits, which makes no difference
// in the emulator.
func (d *Driver) PrimaryCtxSetFlags(dev cu.Device, f cu.CtxFlags) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dv, err := d.device("cuDevicePrimaryCtxSetFlags", dev)
	if err != nil {
		return err
	}
	switch f {
	case cu.CtxSchedAuto, cu.CtxSchedSpin, cu.CtxSchedYield, cu.CtxSchedBlockingSync:
		dv.flags = f
		return nil
	}
	return fail("cuDevicePrimaryCtxSetFlags", cu.ErrInvalidValue, "flags %#x", uint32(f))
}

// CtxSetCurrent makes c the calling thread's current context.
func (d *Driver) CtxSetCurrent(c cu.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c == 0 {
		delete(d.current, threadID())
		return nil
	}
	ctx := d.contexts[c]
	if ctx == nil {
		return fail("cuCtxSetCurrent", cu.ErrInvalidContext, "there is no context %#x", uintptr(c))
	}
	d.current[threadID()] = ctx
	return nil
}

// CtxSynchronize completes all work of the current context.
func (d *Driver) CtxSynchronize() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, err := d.currentContext("cuCtxSynchronize")
	if err != nil {
		return err
	}
	d.counters.Synchronisations++
	d.drain(ctx)
	return ctx.dead
}

// CtxStreamPriorityRange returns 0 and −5, as current hardware does.
func (d *Driver) CtxStreamPriorityRange() (least, greatest int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.currentContext("cuCtxGetStreamPriorityRange")
	return 0, greatestPriority, err
}

const greatestPriority = -5

// String describes the driver, such as "emulated: 2 devices of sm_90 with 256MiB".
func (d *Driver) String() string {
	return fmt.Sprintf("emulated: %d devices of sm_%d with %s", d.cfg.Devices, d.cfg.SM, formatBytes(d.cfg.Memory))
}
