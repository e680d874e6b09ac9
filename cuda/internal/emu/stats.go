package emu

import (
	"maps"
	"reflect"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// Traffic counts operations that move bytes.
type Traffic struct{ Count, Bytes uint64 }

func (t *Traffic) add(bytes uint64) { t.Count++; t.Bytes += bytes }

// KernelStats adds up the launches of all kernels with one name. Launches, blocks and threads are
// counted at the call. The counts of ptxvm, and Time, are added when the launch has run.
type KernelStats struct {
	Launches, Blocks, Threads uint64
	Time                      time.Duration // total virtual time of the kernel without waits
	ptxvm.Stats
}

func (k *KernelStats) add(s *ptxvm.Stats) {
	to, from := reflect.ValueOf(&k.Stats).Elem(), reflect.ValueOf(s).Elem()
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}

// Counters counts calls and operations since the driver was created, or since ResetStats.
type Counters struct {
	Launches      uint64 // number of launches; a graph counts as one
	GraphLaunches uint64 // launches of graphs
	HtoD, DtoH    Traffic
	DtoD, Peer    Traffic
	// the copies in Peer that avoid the host, thanks to peer access
	PeerDirect Traffic
	Memsets    Traffic
	// number of the copies in HtoD and DtoH from or to pageable memory; hardware stages them in
	// page-locked memory, and the host may wait for them
	Pageable uint64
	// PageableHtoD is the number of the copies in Pageable that are from the host to a device.
	PageableHtoD uint64
	// Synchronisations is the number of calls of CtxSynchronize, StreamSynchronize and
	// EventSynchronize.
	Synchronisations uint64
	Allocs, Frees    uint64 // numbers of calls of MemAlloc and MemFree
	HostAllocs       uint64
	Modules          uint64
	Kernels          map[string]*KernelStats
}

// kernel returns the statistics for a kernel's name. The first call creates them.
func (c *Counters) kernel(name string) *KernelStats {
	k := c.Kernels[name]
	if k == nil {
		if c.Kernels == nil {
			c.Kernels = map[string]*KernelStats{}
		}
		k = &KernelStats{}
		c.Kernels[name] = k
	}
	return k
}

// Stats returns a copy of the counters. Launches that have not run yet are counted, but not the
// instructions that they will execute.
func (d *Driver) Stats() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counters
	c.Kernels = maps.Clone(c.Kernels)
	for name, k := range c.Kernels {
		copied := *k
		c.Kernels[name] = &copied
	}
	return c
}

// ResetStats sets all counters to zero.
func (d *Driver) ResetStats() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counters = Counters{}
}

// Stats returns the counters of an emulated driver. If api is not an emulated driver, ok is
// false.
func Stats(api cu.API) (c Counters, ok bool) {
	d, ok := api.(*Driver)
	if !ok {
		return Counters{}, false
	}
	return d.Stats(), true
}
