package ptxvm

import "fmt"

// A Peer is the memory of another device, to which kernels of this device may have access.
type Peer struct {
	Mem       *Memory
	Base, End uint64 // range of addresses of the other device
	Name      string // name of the device, for messages
	Closed    string // reason why kernels cannot access the memory; empty if they can
}

// SetPeers sets the peers and their address ranges. No kernel may be running. Later, kernels on m
// can access the memory of a peer like memory of m, unless the peer is closed. They cannot access
// host memory at the address at which it is mapped for the peer. Neither can they access memory
// that the peer's Map has mapped, which only the peer itself can access.
func (m *Memory) SetPeers(list []Peer) { m.peers.Store(&list) }

// peer returns the Peer in whose range addr lies, or nil.
func (m *Memory) peer(addr uint64) *Peer {
	list := m.peers.Load()
	if list == nil {
		return nil
	}
	for i := range *list {
		if p := &(*list)[i]; addr >= p.Base && addr < p.End {
			return p
		}
	}
	return nil
}

// reach returns the region that contains addr, like find. It also finds memory of peers that
// kernels may access.
func (m *Memory) reach(addr uint64) *region {
	if r := m.find(addr); r != nil {
		return r
	}
	p := m.peer(addr)
	if p == nil || p.Closed != "" {
		return nil
	}
	if r := p.Mem.find(addr); r != nil && r.home == 0 && r.shadow != nil {
		return r
	}
	return nil
}

// describeAccess is describe for an address that a kernel has used and that may belong to a peer.
func (m *Memory) describeAccess(addr, size uint64) string {
	p := m.peer(addr)
	switch {
	case p == nil:
		return m.describe(addr, size)
	case p.Closed != "":
		return fmt.Sprintf("in memory of %s, %s: %s", p.Name, p.Closed, p.Mem.describe(addr, size))
	}
	if r := p.Mem.find(addr); r != nil && r.home != 0 {
		return fmt.Sprintf("in memory of %s that is mapped for that device alone: %s", p.Name, p.Mem.describe(addr, size))
	}
	return fmt.Sprintf("in memory of %s: %s", p.Name, p.Mem.describe(addr, size))
}
