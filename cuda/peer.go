package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// peerLink is the state of copies from another GPU to this GPU. The first copy opens it.
type peerLink struct {
	mu     sync.Mutex // guards the fields opened, direct and reason
	opened bool
	direct bool
	reason string // why copies pass through the host's memory; empty if they are direct

	copies, bytes atomic.Uint64
}

// peerLink returns the state of copies from the GPU peer to d.
func (d *Device) peerLink(peer *Device) *peerLink {
	v, ok := d.peers.Load(peer)
	if !ok {
		v, _ = d.peers.LoadOrStore(peer, new(peerLink))
	}
	return v.(*peerLink)
}

// peerOf returns the state of copies from the GPU peer to d. The first call enables peer access if
// possible. The context of d is current.
func (d *Device) peerOf(peer *Device) *peerLink {
	p := d.peerLink(peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened {
		return p
	}
	if err := p.open(d, peer); err != nil {
		p.reason = err.Error()
	}
	return p
}

// linked returns the state of copies to d from another GPU, ready for a copy. If one of the two
// GPUs has failed, the error is that GPU's fault.
func (d *Device) linked(from *Device) (*peerLink, error) {
	if f := from.dead.Load(); f != nil {
		return nil, f
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	return d.peerOf(from), nil
}

func (p *peerLink) goesDirect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.direct
}

// copyPeer copies n bytes from the address src of the GPU peer to the address dst of d.
func (d *Device) copyPeer(st *stream, dst uint64, peer *Device, src, n uint64, link *peerLink) error {
	if l := st.rec.Load(); l != nil {
		return l.peer(dst, src, n, link)
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	err := d.api.MemcpyPeerAsync(cu.DevicePtr(dst), d.ctx, cu.DevicePtr(src), peer.ctx, n, st.handle)
	if err == nil {
		d.count.within.Add(1)
		link.count(n)
		return nil
	}
	return d.faultOfTwo(peer, err)
}

// faultOfTwo converts an error of a driver call that involves d and another GPU to a fault. If the
// other GPU has lost its context, faultOfTwo returns that GPU's fault, and d can still be used.
func (d *Device) faultOfTwo(from *Device, err error) error {
	var e *cu.Error
	if errors.As(err, &e) && e.Result.Sticky() {
		if f := from.failed(); f != nil {
			return f
		}
	}
	return d.fault("", err)
}

// failed returns a fault if the device has lost its context, and nil otherwise.
func (d *Device) failed() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if _, err := d.api.StreamQuery(d.main.handle); err != nil {
		return d.fault("", err)
	}
	return nil
}

// open enables peer access. The caller holds p.mu, and the context of d is current.
func (p *peerLink) open(d, from *Device) error {
	p.opened = true
	can, err := d.api.DeviceCanAccessPeer(d.h, from.h)
	if err == nil && !can {
		err = &PeerError{Device: d.name, Peer: from.name}
	}
	if err == nil {
		if err = d.api.CtxEnablePeerAccess(from.ctx); errors.Is(err, cu.ErrPeerAccessAlreadyEnabled) {
			err = nil // another library in this process has already enabled access
		}
	}
	if err == nil {
		p.direct, p.reason = true, ""
	}
	return err
}

// PeerError says that a GPU cannot address another GPU's memory.
type PeerError struct{ Device, Peer string }

func (e *PeerError) Error() string {
	return fmt.Sprintf("%s cannot address memory of %s", e.Device, e.Peer)
}

// EnablePeerAccess enables direct copies from peer to dev (cudaDeviceEnablePeerAccess). The first
// copy does the same automatically. A program calls EnablePeerAccess to undo [DisablePeerAccess],
// or to learn early why copies will pass through the host's memory. If access is enabled already,
// EnablePeerAccess does nothing. The error is a *[PeerError] if the hardware does not support peer
// access. It is a *[device.OperandError] if dev or peer is not a GPU, both are the same GPU, or
// they belong to different drivers. The driver's own error is a *[device.Fault].
func EnablePeerAccess(dev, peer device.Device) error {
	return setPeerAccess("enable peer access", dev, peer, func(d, from *Device, p *peerLink) error {
		if p.direct {
			return nil
		}
		err := p.open(d, from)
		if err == nil {
			return nil
		}
		p.reason = err.Error()
		if _, ok := err.(*PeerError); ok {
			return err
		}
		return d.faultOfTwo(from, err)
	})
}

// DisablePeerAccess makes copies from peer to dev pass through the host's memory, until
// [EnablePeerAccess]. It is for machines on which direct copies deliver wrong data or hang, as
// they do behind some PCI switches and IOMMUs. If peer access is enabled, DisablePeerAccess waits
// for the work of dev. If peer access is not enabled, later copies do not enable it. The errors
// are those of EnablePeerAccess.
func DisablePeerAccess(dev, peer device.Device) error {
	return setPeerAccess("disable peer access", dev, peer, func(d, from *Device, p *peerLink) error {
		if p.direct {
			if err := d.api.CtxSynchronize(); err != nil {
				return d.fault("", err)
			}
			api, ok := d.api.(cu.Peers)
			if !ok {
				return d.refusal("disable peer access", "device", "the driver has no call for it")
			}
			if err := api.CtxDisablePeerAccess(from.ctx); err != nil && !errors.Is(err, cu.ErrPeerAccessNotEnabled) {
				return d.faultOfTwo(from, err)
			}
		}
		p.opened, p.direct, p.reason = true, false, "DisablePeerAccess was called"
		return nil
	})
}

// setPeerAccess calls f with both GPUs and the state of copies from peer to dev. During the call,
// this state is locked and dev's context is current.
func setPeerAccess(op string, dev, peer device.Device, f func(d, peerDev *Device, p *peerLink) error) error {
	d, err := gpu(op, dev)
	if err != nil {
		return err
	}
	peerDev, err := d.peerDevice(op, peer)
	if err != nil {
		return err
	}
	if peerDev == d {
		return d.refusal(op, "peer", "it is the device itself")
	}
	if f := peerDev.dead.Load(); f != nil {
		return f
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	p := d.peerLink(peerDev)
	p.mu.Lock()
	defer p.mu.Unlock()
	return f(d, peerDev, p)
}

// CanDeviceAccessPeer reports whether kernels on dev can address memory of peer. If they can,
// copies need not pass through the host's memory. The error is a *[device.OperandError] if dev or
// peer is not a GPU, or if they belong to different drivers. Other errors are the driver's.
func CanDeviceAccessPeer(dev, peer device.Device) (bool, error) {
	const op = "can device access peer"
	d, err := gpu(op, dev)
	if err != nil {
		return false, err
	}
	from, err := d.peerDevice(op, peer)
	if err != nil || from == d {
		return false, err
	}
	return d.api.DeviceCanAccessPeer(d.h, from.h)
}

func (d *Device) peerDevice(op string, peer device.Device) (*Device, error) {
	from, err := gpu(op, peer)
	if err != nil {
		return nil, err
	}
	if from.p != d.p {
		return nil, d.refusal(op, "peer", fmt.Sprintf("%s belongs to another driver", from.name))
	}
	return from, nil
}

// PeerTraffic says how copies from one GPU to another were done.
type PeerTraffic struct {
	// number and total size in bytes of the copies since the devices were opened
	Copies, Bytes uint64
	// Direct says that data goes straight from the first GPU's memory to the second GPU's, over
	// NVLink or the PCI bus. Otherwise the driver copies through the host's memory, which takes at
	// least twice as long.
	Direct bool
	Reason string // why copies are not direct; empty before the first copy
}

// PeerCopies returns the number and kind of the copies from peer to dev. If the hardware supports
// peer access, the first copy enables it. Peer access covers only memory in ordinary segments. For
// memory in expandable segments, the driver decides whether a copy is direct. The error is a
// *[device.OperandError] if dev or peer is not a GPU, or if they belong to different drivers.
func PeerCopies(dev, peer device.Device) (PeerTraffic, error) {
	const op = "peer copies"
	d, err := gpu(op, dev)
	if err != nil {
		return PeerTraffic{}, err
	}
	from, err := d.peerDevice(op, peer)
	if err != nil {
		return PeerTraffic{}, err
	}
	v, ok := d.peers.Load(from)
	if !ok {
		return PeerTraffic{}, nil
	}
	p := v.(*peerLink)
	p.mu.Lock()
	defer p.mu.Unlock()
	return PeerTraffic{Copies: p.copies.Load(), Bytes: p.bytes.Load(), Direct: p.direct, Reason: p.reason}, nil
}

func (p *peerLink) count(bytes uint64) {
	p.copies.Add(1)
	p.bytes.Add(bytes)
}
