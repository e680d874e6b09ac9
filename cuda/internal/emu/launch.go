package emu

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// LaunchKernel checks a launch and queues it. It checks the dimensions, the directives .maxntid and
// .reqntid, shared memory, and the size of the parameters. It refuses a launch that hardware would
// refuse, and also a launch in which hardware would silently read beyond the parameters.
func (d *Driver) LaunchKernel(h cu.Function, grid, block cu.Dim3, dynShared uint32, st cu.Stream, params []byte) error {
	return d.launch("cuLaunchKernel", cu.GraphKernel{Func: h, Grid: grid, Block: block, Shared: dynShared, Params: params}, cu.LaunchAttributes{}, st)
}

// LaunchKernelEx is LaunchKernel with attributes. Overlap and Priority have no effect, because
// emulated kernels do not overlap. Clusters of more than one block are refused.
func (d *Driver) LaunchKernelEx(l cu.GraphKernel, a cu.LaunchAttributes, st cu.Stream) error {
	return d.launch("cuLaunchKernelEx", l, a, st)
}

func (d *Driver) launch(call string, l cu.GraphKernel, a cu.LaunchAttributes, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streamHere(call, st)
	if err != nil {
		return err
	}
	w, err := d.kernelWork(call, s.ctx, l)
	if err != nil {
		return err
	}
	if err := d.clusters(call, l.Grid, a.Cluster); err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.add(d, w)
	}
	d.counters.Launches++
	w.count()
	d.enqueue(s, &op{Op: w.Op, run: w.run})
	return s.ctx.dead
}

// mostClustered is the largest number of blocks in a cluster that every device of capability 9.0
// supports.
const mostClustered = 8

// clusters checks whether a grid can be divided into clusters of the given size. A zero size means
// no clusters.
func (d *Driver) clusters(call string, grid, cluster cu.Dim3) error {
	switch n := cluster.Count(); {
	case cluster == cu.Dim3{}:
		return nil
	case d.cfg.SM < 90:
		return fail(call, cu.ErrNotSupported, "clusters %v: they need compute capability 9.0, the device is sm_%d", cluster, d.cfg.SM)
	case n == 0 || n > mostClustered:
		return fail(call, cu.ErrInvalidClusterSize, "clusters %v: 1 to %d blocks", cluster, mostClustered)
	case grid.X%cluster.X != 0 || grid.Y%cluster.Y != 0 || grid.Z%cluster.Z != 0:
		return fail(call, cu.ErrInvalidClusterSize, "grid %v is no multiple of clusters %v", grid, cluster)
	case n > 1:
		return fail(call, cu.ErrNotSupported, "clusters %v: those of more than one block are not emulated", cluster)
	}
	return nil
}

// kernelWork checks a launch in ctx and returns the work of a node for it. The caller holds d.mu.
func (d *Driver) kernelWork(call string, ctx *context, launch cu.GraphKernel) (work, error) {
	grid, block, dynShared, params := launch.Grid, launch.Block, launch.Shared, launch.Params
	f, err := d.functionOf(call, launch.Func)
	if err != nil {
		return work{}, err
	}
	e := f.entry
	threads := block.Count()
	invalid := func(format string, args ...any) (work, error) {
		return work{}, fail(call, cu.ErrInvalidValue, "kernel "+e.Name+": "+format, args...)
	}
	switch {
	case f.mod.ctx != ctx:
		return work{}, fail(call, cu.ErrInvalidHandle, "kernel %s was loaded on device %d, the stream is of device %d", e.Name, f.mod.ctx.dev.ordinal, ctx.dev.ordinal)
	case grid.X < 1 || grid.Y < 1 || grid.Z < 1 || grid.X > maxGridX || grid.Y > maxGridY || grid.Z > maxGridZ:
		return invalid("grid %v, the limits are 1 to (%d, %d, %d)", grid, maxGridX, maxGridY, maxGridZ)
	case threads < 1 || threads > maxThreadsPerBlock || block.X > maxBlockX || block.Y > maxBlockY || block.Z > maxBlockZ:
		return invalid("block %v, the limits are (%d, %d, %d) and %d threads", block, maxBlockX, maxBlockY, maxBlockZ, maxThreadsPerBlock)
	case threads > uint64(maxThreads(e)):
		return invalid("block %v, its .maxntid or .reqntid allows %d threads", block, maxThreads(e))
	case e.ReqThreads && block != (cu.Dim3{X: uint32(max(1, e.MaxThreads[0])), Y: uint32(max(1, e.MaxThreads[1])), Z: uint32(max(1, e.MaxThreads[2]))}):
		return invalid("block %v, its .reqntid is %v", block, e.MaxThreads)
	case uint64(dynShared) > uint64(f.maxDynamic):
		return invalid("%d bytes of dynamic shared memory, FuncMaxDynamicShared is %d", dynShared, f.maxDynamic)
	case len(params) != e.ParamBytes:
		return invalid("%d bytes of parameters, it declares %d", len(params), e.ParamBytes)
	}
	count := func() {
		k := d.counters.kernel(e.Name)
		k.Launches++
		k.Blocks += grid.Count()
		k.Threads += grid.Count() * threads
	}
	dev := ctx.dev
	// in meta mode a kernel takes no time except for its launch
	run := func() (time.Duration, error) { return d.cfg.Cost.kernel(0, 0), nil }
	if dev.mem != nil {
		l := ptxvm.Launch{Entry: e, Grid: [3]uint32{grid.X, grid.Y, grid.Z}, Block: [3]uint32{block.X, block.Y, block.Z}, DynShared: dynShared,
			Params: bytes.Clone(params), Mem: dev.mem, SM: d.cfg.SM, MaxSteps: d.cfg.MaxSteps, Workers: d.cfg.Workers}
		run = func() (time.Duration, error) {
			if f.mod.unloaded {
				return 0, &cu.Error{Call: call, Result: cu.ErrLaunchFailed, Cause: fmt.Errorf("emu: the module of kernel %s was unloaded before the kernel ran", e.Name)}
			}
			stats, err := l.Run()
			cost := d.cfg.Cost.kernel(uint64(stats.Instructions), uint64(stats.Sectors)*sectorBytes)
			k := d.counters.kernel(e.Name)
			k.Time += cost
			k.add(&stats)
			return cost, faultError(err)
		}
	}
	return work{Op: Op{Kind: KindKernel, Name: e.Name}, run: run, count: count}, ctx.dead
}

const sectorBytes = 32

// faultError converts an error of a kernel, which may be nil, to the driver's error.
func faultError(err error) error {
	if err == nil {
		return nil
	}
	r := cu.ErrLaunchFailed
	var f *ptxvm.Fault
	if errors.As(err, &f) {
		switch f.Kind {
		case ptxvm.OutOfBounds, ptxvm.ReadOnly:
			r = cu.ErrIllegalAddress
		case ptxvm.Misaligned:
			r = cu.ErrMisalignedAddress
		case ptxvm.Deadlock, ptxvm.Runaway:
			r = cu.ErrLaunchTimeout
		}
	}
	return &cu.Error{Call: "cuLaunchKernel", Result: r, Cause: err}
}
