package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// peerLink is the way from another GPU's memory to this one. It is opened by the first copy.
type peerLink struct {
	mu     sync.Mutex // the three below
	opened bool
	direct bool
	reason string // why not direct

	copies, bytes atomic.Uint64
}

// peerOf returns the way from the other GPU, opened. The device's context is current.
func (d *Device) peerOf(from *Device) *peerLink {
	v, ok := d.peers.Load(from)
	if !ok {
		v, _ = d.peers.LoadOrStore(from, new(peerLink))
	}
	p := v.(*peerLink)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened {
		return p
	}
	p.opened = true
	can, err := d.api.DeviceCanAccessPeer(d.h, from.h)
	if err == nil && can {
		if err = d.api.CtxEnablePeerAccess(from.ctx); errors.Is(err, cu.ErrPeerAccessAlreadyEnabled) {
			err = nil // by another library of the process
		}
	}
	switch {
	case err != nil:
		p.reason = err.Error()
	case !can:
		p.reason = fmt.Sprintf("%s cannot address memory of %s", d.name, from.name)
	default:
		p.direct = true
	}
	return p
}

// CanDeviceAccessPeer reports whether kernels on dev can address memory of peer, so that copies between them need not go by way of the
// host. The error is a *[ViewError] where one of them is no GPU or they belong to different drivers, or the driver's own.
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
		return nil, &ViewError{op, "peer", fmt.Sprintf("%s belongs to another driver", from.name)}
	}
	return from, nil
}

// PeerTraffic says how copies from one GPU to another went.
type PeerTraffic struct {
	Copies, Bytes uint64 // since the devices were opened
	// Direct says that the copies went from one GPU's memory to the other's, over NVLink or the PCI bus. Otherwise the driver staged them
	// through the host's memory, which takes at least twice as long.
	Direct bool
	Reason string // why they were staged; "" where nothing was copied yet
}

// PeerCopies tells of the copies from peer to dev. Peer access is enabled by the first of them where the hardware has it; nothing needs to be
// called for that. The error is a *[ViewError] where one of them is no GPU or they belong to different drivers.
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
