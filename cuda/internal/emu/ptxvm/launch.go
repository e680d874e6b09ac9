package ptxvm

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const defaultMaxSteps = 1 << 26

// Launch is one kernel launch.
type Launch struct {
	Entry     *Entry
	Grid      [3]uint32
	Block     [3]uint32
	DynShared uint32 // bytes of dynamic shared memory
	// Params holds the parameters as for CU_LAUNCH_PARAM_BUFFER: each at its Param.Offset.
	Params []byte
	Mem    *Memory
	SM     int // compute capability of the device times ten, such as 80 or 90
	// MaxSteps is the largest number of instructions that a warp may execute. 0 means 67 million.
	MaxSteps int64
	// Lines collects counters for each line of the PTX text. If it is nil, they are not collected.
	// Run adds to the counters.
	Lines map[int]*LineStats
	// Traffic counts the sectors that pass between the caches of blocks and memory. If it is nil,
	// they are not counted. Run adds to the counts.
	Traffic *Traffic
	// CheckBlocks finds races between blocks on global memory. Blocks then run one by one, which
	// takes several times as long.
	CheckBlocks bool
	// seed for the order in which warps run; the results of correct kernels do not depend on it
	Seed    uint64
	Workers int // number of blocks that run at once; 0 means GOMAXPROCS
}

// Stats counts what a launch did. A request or instruction of a whole warp counts once.
type Stats struct {
	Instructions   int64 // warp instructions issued
	GlobalLoads    int64 // warp-level global load requests
	GlobalStores   int64 // warp-level global store and atomic requests
	Sectors        int64 // 32-byte sectors that the global requests touched
	IdealSectors   int64 // 32-byte sectors that the same bytes would need if they were contiguous
	GlobalBytes    int64 // bytes moved by global requests
	SharedRequests int64 // warp-level shared loads, stores, atomics, ldmatrix
	SharedLoads    int64 // warp-level shared loads, ldmatrix included
	BankConflicts  int64 // cycles that bank conflicts add
	FMA            int64 // warp-level fused multiply-adds
	MMA            int64 // warp-level matrix instructions
	// Barriers counts barriers of blocks, once for each warp that arrives.
	Barriers int64
}

// LineStats counts what one line of the PTX text did. A request or instruction of a whole warp
// counts once.
type LineStats struct {
	Instructions int64 // number of instructions that warps have issued
	// number of threads that executed the instructions; 32 for each instruction without divergence
	Lanes         int64
	Sectors       int64 // 32-byte sectors of global memory touched
	IdealSectors  int64 // 32-byte sectors that the same bytes would need if they were contiguous
	BankConflicts int64 // cycles that bank conflicts of shared memory add
}

func (s *Stats) add(o *Stats) {
	s.Instructions += o.Instructions
	s.GlobalLoads += o.GlobalLoads
	s.GlobalStores += o.GlobalStores
	s.Sectors += o.Sectors
	s.IdealSectors += o.IdealSectors
	s.GlobalBytes += o.GlobalBytes
	s.SharedRequests += o.SharedRequests
	s.SharedLoads += o.SharedLoads
	s.BankConflicts += o.BankConflicts
	s.FMA += o.FMA
	s.MMA += o.MMA
	s.Barriers += o.Barriers
}

// Run executes the launch to its end. The error is a *Fault. If several blocks fault, it is the
// fault of the block with the lowest index, for any number of workers. After a fault, memory holds
// what was written before.
func (l *Launch) Run() (Stats, error) {
	if f := l.validate(); f != nil {
		return Stats{}, f
	}
	globals, err := l.Entry.mod.Load(l.Mem)
	if err != nil {
		return Stats{}, l.bad("module variables: %v", err)
	}
	total := uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2])
	workers := l.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = int(min(uint64(workers), total))
	var races *blockRaces
	if l.CheckBlocks {
		workers, races = 1, newBlockRaces(l)
	}
	var (
		next   atomic.Uint64
		lowest atomic.Uint64 // lowest index of a block with a fault so far
		mu     sync.Mutex
		sum    Stats
		fault  *Fault
		wg     sync.WaitGroup
		crash  any
	)
	lowest.Store(^uint64(0))
	start := time.Now()
	work := func() {
		c := newCTA(l, globals)
		c.start, c.blocks = start, races
		if l.Lines != nil {
			c.lines = make([]LineStats, len(l.Entry.code))
		}
		c.cache = newBlockCache(l.Traffic)
		c.abort = func() bool { return c.index > lowest.Load() }
		for {
			i := next.Add(1) - 1
			if i >= total || i > lowest.Load() {
				break
			}
			if f := c.run(i); f != nil {
				mu.Lock()
				if i < lowest.Load() {
					lowest.Store(i)
					fault = f
				}
				mu.Unlock()
			}
		}
		mu.Lock()
		sum.add(&c.stats)
		c.cache.addTo(l.Traffic)
		for pc, n := range c.lines {
			if n.Instructions == 0 {
				continue
			}
			at := int(l.Entry.code[pc].line)
			t := l.Lines[at]
			if t == nil {
				t = &LineStats{}
				l.Lines[at] = t
			}
			t.Instructions += n.Instructions
			t.Lanes += n.Lanes
			t.Sectors += n.Sectors
			t.IdealSectors += n.IdealSectors
			t.BankConflicts += n.BankConflicts
		}
		mu.Unlock()
		c.release()
	}
	if workers == 1 {
		work()
	} else {
		for range workers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer func() {
					if e := recover(); e != nil {
						mu.Lock()
						crash = e
						mu.Unlock()
						lowest.Store(0)
					}
				}()
				work()
			}()
		}
		wg.Wait()
		if crash != nil {
			panic(crash)
		}
	}
	if fault != nil {
		return sum, fault
	}
	return sum, nil
}

func (l *Launch) bad(format string, args ...any) *Fault {
	name := "?"
	if l.Entry != nil {
		name = l.Entry.Name
	}
	return &Fault{Kind: BadLaunch, Kernel: name, Msg: fmt.Sprintf(format, args...)}
}

func (l *Launch) validate() *Fault {
	e := l.Entry
	if e == nil || l.Mem == nil {
		return l.bad("Launch needs an Entry and a Memory")
	}
	limits := [3]uint32{1024, 1024, 64}
	threads := uint64(1)
	for i := range 3 {
		if l.Block[i] == 0 || l.Block[i] > limits[i] {
			return l.bad("block %v: dimension %d must be 1 to %d", l.Block, i, limits[i])
		}
		threads *= uint64(l.Block[i])
	}
	if threads > 1024 {
		return l.bad("block %v has %d threads, more than 1024", l.Block, threads)
	}
	if l.Grid[0] == 0 || l.Grid[1] == 0 || l.Grid[2] == 0 || l.Grid[0] > 1<<31-1 || l.Grid[1] > 65535 || l.Grid[2] > 65535 {
		return l.bad("grid %v: dimensions must be 1 to (2147483647, 65535, 65535)", l.Grid)
	}
	if m := e.MaxThreads; m[0] > 0 {
		if e.ReqThreads && [3]uint32{uint32(m[0]), uint32(m[1]), uint32(m[2])} != l.Block {
			return l.bad("block %v differs from .reqntid %v", l.Block, m)
		}
		if threads > uint64(m[0]*m[1]*m[2]) {
			return l.bad("block %v has %d threads, more than .maxntid %v", l.Block, threads, m)
		}
	}
	if len(l.Params) != e.ParamBytes {
		return l.bad("parameter block has %d bytes, the entry takes %d", len(l.Params), e.ParamBytes)
	}
	if e.mod.target > l.SM || e.mod.arch[len(e.mod.arch)-1] == 'a' && e.mod.target != l.SM {
		return l.bad("target %s does not run on compute capability %d.%d", e.mod.arch, l.SM/10, l.SM%10)
	}
	limit := 163 << 10
	if l.SM >= 90 {
		limit = 227 << 10
	} else if l.SM == 86 || l.SM == 89 {
		limit = 99 << 10
	}
	if n := e.dynOffset + int(l.DynShared); n > limit {
		return l.bad("%d bytes of shared memory (%d static, %d dynamic) exceed %d", n, e.StaticShared, l.DynShared, limit)
	}
	return nil
}

// Load allocates and initialises the module's .global variables in mem. Load returns the address of
// each variable. Later calls with the same memory only return the addresses. Launch.Run calls Load.
func (m *Module) Load(mem *Memory) (map[*variable]uint64, error) {
	if len(m.globals) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.instances[mem]; g != nil {
		return g, nil
	}
	g := map[*variable]uint64{}
	for _, v := range m.globals {
		addr, err := mem.Alloc(uint64(max(v.size, 1)))
		if err != nil {
			for _, a := range g {
				_ = mem.Free(a)
			}
			return nil, err
		}
		mem.MarkAllocated(addr, uint64(v.size), roundUp(uint64(max(v.size, 1)), smallAlign), v.name)
		b, err := mem.Bytes(addr, uint64(v.size))
		if err != nil {
			return nil, err
		}
		clear(b) // the ISA says that variables without initial values are zero
		copy(b, v.init)
		mem.MarkInitialised(addr, uint64(v.size))
		g[v] = addr
	}
	for _, v := range m.globals {
		for _, l := range v.links {
			b, err := mem.Bytes(g[v]+uint64(l.at), 8)
			if err != nil {
				return nil, err
			}
			binary.LittleEndian.PutUint64(b, l.resolve(m, g))
		}
	}
	m.instances[mem] = g
	return g, nil
}

// Unload frees the module's .global variables in mem.
func (m *Module) Unload(mem *Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.instances[mem] {
		_ = mem.Free(a)
	}
	delete(m.instances, mem)
}

// Global returns the address and size of a .global variable in mem. It loads the module there if
// necessary.
func (m *Module) Global(mem *Memory, name string) (addr, size uint64, err error) {
	g, err := m.Load(mem)
	if err != nil {
		return 0, 0, err
	}
	for v, a := range g {
		if v.name == name {
			return a, uint64(v.size), nil
		}
	}
	return 0, 0, fmt.Errorf("ptxvm: the module has no .global variable %s", name)
}
