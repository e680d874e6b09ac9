package emu

import (
	"fmt"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

var _ cu.Peers = (*Driver)(nil)

// DeviceCanAccessPeer reports whether dev can address the memory of peer. A device is not its own
// peer.
func (d *Driver) DeviceCanAccessPeer(dev, peer cu.Device) (bool, error) {
	const call = "cuDeviceCanAccessPeer"
	if _, err := d.device(call, dev); err != nil {
		return false, err
	}
	_, err := d.device(call, peer)
	return err == nil && dev != peer && !d.cfg.NoPeer, err
}

// peerContext returns the current context, and the context with the handle peer. They must differ.
// The caller holds d.mu.
func (d *Driver) peerContext(call string, peer cu.Context) (ctx, other *context, err error) {
	if ctx, err = d.currentContext(call); err != nil {
		return nil, nil, err
	}
	switch other = d.contexts[peer]; {
	case other == nil || other == ctx:
		return nil, nil, fail(call, cu.ErrInvalidContext, "context %#x is not that of a peer", uintptr(peer))
	case other.dead != nil:
		return nil, nil, other.dead
	}
	return ctx, other, nil
}

// CtxEnablePeerAccess lets kernels of the current context use memory of the peer's device, and lets
// copies avoid the host.
func (d *Driver) CtxEnablePeerAccess(peer cu.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuCtxEnablePeerAccess"
	ctx, other, err := d.peerContext(call, peer)
	switch {
	case err != nil:
		return err
	case d.cfg.NoPeer:
		return fail(call, cu.ErrPeerAccessUnsupported, "device %d cannot address memory of device %d", ctx.dev.ordinal, other.dev.ordinal)
	case ctx.peers[other]:
		return fail(call, cu.ErrPeerAccessAlreadyEnabled, "of device %d to memory of device %d", ctx.dev.ordinal, other.dev.ordinal)
	}
	if ctx.peers == nil {
		ctx.peers = map[*context]bool{}
	}
	ctx.peers[other] = true
	d.linkPeers()
	return nil
}

// CtxDisablePeerAccess ends the access that CtxEnablePeerAccess enabled, immediately. A pending
// kernel that uses the peer's memory will fault.
func (d *Driver) CtxDisablePeerAccess(peer cu.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuCtxDisablePeerAccess"
	ctx, other, err := d.peerContext(call, peer)
	switch {
	case err != nil:
		return err
	case !ctx.peers[other]:
		return fail(call, cu.ErrPeerAccessNotEnabled, "of device %d to memory of device %d", ctx.dev.ordinal, other.dev.ordinal)
	}
	delete(ctx.peers, other)
	d.linkPeers()
	return nil
}

// partPeers ends all peer access from and to a context. The caller holds d.mu.
func (d *Driver) partPeers(ctx *context) {
	ctx.peers = nil
	for _, c := range d.contexts {
		delete(c.peers, ctx)
	}
	d.linkPeers()
}

// linkPeers tells the memory of each device which peers' memory the device's kernels may access.
// The caller holds d.mu.
func (d *Driver) linkPeers() {
	for _, dev := range d.devices {
		if dev.mem == nil {
			continue
		}
		var list []ptxvm.Peer
		for _, o := range d.devices {
			if o == dev {
				continue
			}
			p := ptxvm.Peer{Mem: o.mem, Base: addressBase(o.ordinal), End: addressBase(o.ordinal + 1), Name: fmt.Sprintf("device %d", o.ordinal)}
			if dev.ctx == nil || o.ctx == nil || !dev.ctx.peers[o.ctx] {
				p.Closed = fmt.Sprintf("to which device %d has no peer access", dev.ordinal)
			}
			list = append(list, p)
		}
		dev.mem.SetPeers(list)
	}
}

// reaches reports whether a copy between two devices, in a stream of ctx, avoids the host. The
// caller holds d.mu.
func (ctx *context) reaches(from, to *context) bool {
	return to == from || ctx.peers[to] || ctx.peers[from]
}

// peerWork checks a copy between devices. It returns the work of a graph's node that makes this
// copy in ctx. The caller holds d.mu.
func (d *Driver) peerWork(call string, ctx *context, c cu.GraphCopy) (work, error) {
	n := c.N
	from, to := d.deviceAt(c.Src), d.deviceAt(c.Dst)
	switch {
	case n == 0 || c.SrcHost != nil || c.DstHost != nil:
		return work{}, fail(call, cu.ErrInvalidValue, "no copy of %d bytes between devices", n)
	case from == nil || to == nil || from.ctx == nil || to.ctx == nil:
		return work{}, fail(call, cu.ErrInvalidValue, "%#x or %#x is of no device that is in use", uint64(c.Src), uint64(c.Dst))
	case from != ctx.dev && to != ctx.dev:
		return work{}, fail(call, cu.ErrInvalidContext, "the node is of device %d, the copy from %d to %d",
			ctx.dev.ordinal, from.ordinal, to.ordinal)
	}
	if err := d.reach(call, to, c.Dst, n); err != nil {
		return work{}, err
	}
	if err := d.reach(call, from, c.Src, n); err != nil {
		return work{}, err
	}
	run := func() (time.Duration, error) {
		cost := d.cfg.Cost.peer(n, ctx.reaches(from.ctx, to.ctx))
		if to.mem == nil {
			return cost, nil
		}
		return cost, transfer(KindCopyPeer, call, to, c.Dst, from, c.Src, n)
	}
	count := func() {
		d.counters.Peer.add(n)
		if from != to && ctx.reaches(from.ctx, to.ctx) {
			d.counters.PeerDirect.add(n)
		}
	}
	o := Op{Kind: KindCopyPeer, Bytes: n, From: from.ordinal, To: to.ordinal}
	return work{Op: o, ctx: ctx, run: run, count: count}, nil
}

// MemcpyPeerAsync copies between the devices of two contexts, in the order of a stream of the
// current context.
func (d *Driver) MemcpyPeerAsync(dst cu.DevicePtr, dstCtx cu.Context, src cu.DevicePtr, srcCtx cu.Context, n uint64, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemcpyPeerAsync"
	s, err := d.streamHere(call, st)
	if err != nil || n == 0 {
		return err
	}
	to, from := d.contexts[dstCtx], d.contexts[srcCtx]
	switch {
	case to == nil || from == nil:
		return fail(call, cu.ErrInvalidContext, "there is no context %#x or %#x", uintptr(dstCtx), uintptr(srcCtx))
	case to.dead != nil:
		return to.dead
	case from.dead != nil:
		return from.dead
	}
	if err := d.reach(call, to.dev, dst, n); err != nil {
		return err
	}
	if err := d.reach(call, from.dev, src, n); err != nil {
		return err
	}
	direct := s.ctx.reaches(from, to)
	d.counters.Peer.add(n)
	if direct && to != from {
		d.counters.PeerDirect.add(n)
	}
	// The copy runs in two parts, so that tests detect other work that runs in the middle of a
	// copy.
	first, cost := n, d.cfg.Cost.peer(n, direct)
	rest := time.Duration(0)
	if d.rng != nil && n > 1 {
		first, rest = n/2, cost/2
	}
	piece := func(at, size uint64, cost time.Duration) {
		run := func() (time.Duration, error) { return cost, nil }
		if to.dev.mem != nil {
			run = func() (time.Duration, error) {
				return cost, transfer(KindCopyPeer, call, to.dev, dst+cu.DevicePtr(at), from.dev, src+cu.DevicePtr(at), size)
			}
		}
		d.enqueue(s, &op{Op: Op{Kind: KindCopyPeer, Bytes: size, From: from.dev.ordinal,
			To: to.dev.ordinal, Staged: !direct}, run: run})
	}
	piece(0, first, cost-rest)
	if first < n {
		piece(first, n-first, rest)
	}
	return s.ctx.dead
}
