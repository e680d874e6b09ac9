package tensor

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A storage is the memory that a tensor and its views share. It counts its uses: one for each live
// handle, and one for each graph node that saved it. When the count is zero the block returns to
// the pool in stream order. A storage has no pointer to a Tensor or a Scope, so that a garbage
// collector's cleanup may hold it.
type storage struct {
	dev    device.Device
	buf    device.Buffer
	home   device.Stream // the stream on which the memory was allocated
	writer device.Stream // the stream of the last write; guarded by mu
	mu     sync.Mutex
	more   *storageMore // guarded by mu; nil for most storages
	// the ledger of the scope that owns the storage; nil for the root scope and for closed scopes
	ledger  atomic.Pointer[ledger]
	epoch   uint64 // how many captures had begun at the allocation
	refs    atomic.Int32
	version atomic.Uint32
	// recorded counts the in-place changes that the graph has recorded. Such a change gives a new
	// node to the handle that was changed. Other handles of the memory keep their old node.
	recorded  atomic.Uint32
	freed     atomic.Bool
	abandoned atomic.Bool // true if a leaf used this memory and now uses other memory
	watched   atomic.Bool
	shared    atomic.Bool // true if the storage was in the ledgers of several open scopes
	// true if the program owns the memory, and must learn when it is no longer used
	userOwned bool
	placed    bool // true if the memory belongs to a captured graph
	isPinned  bool // true if more.pinned is set; it does not change afterwards
}

// A storageMore holds the fields that few storages need. Each result of an op has a storage, so a
// smaller storage makes every op cheaper.
type storageMore struct {
	users   []device.Stream // other streams that have read the memory since the last write
	holds   []*Hold         // holds for work that is not queued yet
	cleanup runtime.Cleanup // set once the storage has belonged to the root scope
	// page-locked memory that another device's driver has allocated and the storage uses on the
	// CPU; nil for ordinary memory
	pinned device.Buffer
}

// extend returns the fields that few storages need. The caller holds st.mu.
func (st *storage) extend() *storageMore {
	if st.more == nil {
		st.more = &storageMore{}
	}
	return st.more
}

// readers returns the other streams that have read the memory since the last write. The caller
// holds st.mu.
func (st *storage) readers() []device.Stream {
	if st.more == nil {
		return nil
	}
	return st.more.users
}

func (st *storage) retain() { st.refs.Add(1) }

func (st *storage) release() {
	switch n := st.refs.Add(-1); {
	case n == 0:
		st.free()
	case n < 0:
		panic("tensor: a storage was released too often")
	}
}

func (st *storage) free() {
	if st.freed.Swap(true) {
		return
	}
	if st.watched.Load() {
		st.mu.Lock()
		st.more.cleanup.Stop()
		st.mu.Unlock()
	}
	st.buf.Free()
}

// queue frees the memory without blocking. A garbage collector's cleanup calls queue instead of
// free, because a cleanup must not block.
func (st *storage) queue() {
	if !st.freed.Swap(true) {
		st.buf.Queue()
	}
}

// plain reports whether the storage is ordinary Go memory, which needs no cleanup.
func (st *storage) plain() bool {
	return !st.userOwned && !st.placed && st.buf.Host() != nil && st.buf.Size() < device.PlainBytes
}

// watch makes the garbage collector release the memory when the storage is unreachable. It is for
// tensors of the root scope, which does not end.
func (st *storage) watch() {
	if st.plain() || st.watched.Load() {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.freed.Load() || st.watched.Swap(true) {
		return
	}
	st.extend().cleanup = runtime.AddCleanup(st, device.Buffer.Queue, st.buf)
}

// read makes a read on r's stream wait for the last write. write makes a write wait for all earlier
// reads and writes.
func (st *storage) read(op string, r route) {
	s := r.stream
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.more != nil && st.more.holds != nil {
		st.settle(op, false, nil)
	}
	if st.writer == s {
		return
	}
	for _, u := range st.readers() {
		if u == s {
			return // stream u has waited for the last write already
		}
	}
	if r.graph != nil {
		r.graph.touch(op, st, false)
	}
	if st.writer != nil {
		waitFor(op, s, st.writer)
	}
	more := st.extend()
	more.users = append(more.users, s)
	if st.home != s {
		st.usedBy(s)
	}
}

func (st *storage) write(op string, r route) {
	s := r.stream
	if r.graph == nil && !captures.empty() {
		st.guardOlder(op)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.more != nil && st.more.holds != nil {
		st.settle(op, true, nil)
	}
	readers := st.readers()
	if st.writer == s && len(readers) == 0 {
		return
	}
	if r.graph != nil {
		r.graph.touch(op, st, true)
	}
	// If s is among readers, it has read the memory since the last write, and so has waited for the
	// writer already.
	if st.writer != nil && st.writer != s && !slices.Contains(readers, s) {
		waitFor(op, s, st.writer)
	}
	for _, u := range readers {
		if u != s {
			waitFor(op, s, u)
		}
	}
	if len(readers) > 0 {
		st.more.users = readers[:0]
	}
	st.writer = s
	if st.home != s {
		st.usedBy(s)
	}
}

// waitFor makes later work on the first stream wait for the work that is queued on the second
// stream now.
func waitFor(op string, s, other device.Stream) {
	if withoutWaits {
		return
	}
	ev, err := other.Record()
	check(op, err)
	check(op, s.Wait(ev))
	ev.Release()
}

// denseBytes returns the number of bytes of a contiguous tensor. The sizes must not be negative. It
// returns false if the number, or a stride, overflows an int. For strides a size of 0 counts as 1.
func denseBytes(t dtype.Type, sh shape.Dims) (int, bool) {
	bytes, stride := t.Size(), 1
	for i := range sh.Rank() {
		d := sh.At(i)
		if d != 0 && bytes > math.MaxInt/d || i > 0 && stride > math.MaxInt/max(d, 1) {
			return 0, false
		}
		bytes *= d
		if i > 0 {
			stride *= max(d, 1)
		}
	}
	return bytes, true
}

// alloc allocates a contiguous tensor with undefined contents in scope s.
func alloc(op string, s *Scope, dev device.Device, t dtype.Type, sh shape.Dims) *Tensor {
	bytes, ok := denseBytes(t, sh)
	if !ok {
		fail(op, ErrShape, nil, "shape %v of %v has too many elements", sh, t)
	}
	to := s.route(op, dev)
	o := device.Origin{Op: op, Scope: s.modes.path, Shape: sh, Type: t, Collected: s == root}
	var made *site
	if s.modes.sites {
		made = deepSite()
		o.Where = atSite{made}
	} else if bytes >= 1<<20 {
		made = callSite()
		o.Where = atSite{made}
	} else if s.opened != nil {
		o.Where = s.opened
	}
	buf, err := dev.Alloc(bytes, to.stream, o)
	if err != nil {
		e := newError(op, err, nil, fmt.Sprintf("result %v %v: %v", sh, t, err))
		if errors.Is(err, device.ErrOutOfMemory) {
			e.Msg += "\nwhat needs less: a smaller batch, autograd.Checkpoint, tensor.Autocast, " +
				"tensor.NoGrad where nothing is trained, a batch in parts whose gradients are added up"
		}
		panic(e)
	}
	st := &storage{dev: dev, buf: buf, home: to.stream, writer: to.stream, epoch: epoch.Load(), placed: to.graph != nil}
	if to.graph != nil {
		to.graph.noteAllocation(st)
	}
	x := &Tensor{st: st, layout: shape.Dense(sh), dtype: t, op: op, made: made}
	x.self = x
	st.refs.Store(1)
	s.addOwned(x, true)
	return x
}

// atSite prints as "at train.go:31".
type atSite struct{ *site }

func (a atSite) String() string {
	if s := a.site.String(); s != "" {
		return "at " + s
	}
	return ""
}
