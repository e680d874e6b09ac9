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

// KernelStats adds up the launches of one kernel name. What ptxvm counts, and Time, is added when a
// launch has run, the rest by the call.
type KernelStats struct {
	Launches, Blocks, Threads uint64
	Time                      time.Duration // virtual, of the kernel itself
	ptxvm.Stats
}

// add adds every counter of s.
func (k *KernelStats) add(s *ptxvm.Stats) {
	to, from := reflect.ValueOf(&k.Stats).Elem(), reflect.ValueOf(s).Elem()
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}

// Counters is what a driver was asked to do since it was made or since ResetStats.
type Counters struct {
	Launches      uint64 // a graph is one
	GraphLaunches uint64 // those of graphs
	HtoD, DtoH    Traffic
	DtoD, Peer    Traffic
	PeerDirect    Traffic // those of Peer that peer access spared the host
	Memsets       Traffic
	// of HtoD and DtoH, those from or to pageable memory, which hardware stages and partly waits
	// for
	Pageable         uint64
	PageableHtoD     uint64 // of Pageable, those from the host
	Synchronisations uint64 // CtxSynchronize, StreamSynchronize, EventSynchronize
	Allocs, Frees    uint64 // MemAlloc, MemFree
	HostAllocs       uint64
	Modules          uint64
	Kernels          map[string]*KernelStats
}

// kernel is the entry of a name, made on first use.
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

// Stats returns a copy of the counters. Launches that have not run yet are counted as launches
// only.
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

// Stats returns the counters of an emulated driver; ok is false for any other.
func Stats(api cu.API) (c Counters, ok bool) {
	d, ok := api.(*Driver)
	if !ok {
		return Counters{}, false
	}
	return d.Stats(), true
}
