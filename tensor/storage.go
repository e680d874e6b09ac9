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

// plainBytes is the size under which CPU storage is ordinary Go memory: nothing is lost if it is
// never freed.
const plainBytes = 64 << 10

// A storage is the memory that a tensor and its views share. It is counted: one for each live
// handle and one for each graph node that saved it; at zero the block returns to the pool in stream
// order. It points to no Tensor and no Scope, so that a garbage collector's cleanup may hold it.
type storage struct {
	dev device.Device
	buf device.Buffer
	// what buf is on the CPU of: page-locked memory of another driver; nil for ordinary memory
	pinned  device.Buffer
	lent    bool          // the memory is of others, who want to know when it is free
	home    device.Stream // the stream it was allocated on
	refs    atomic.Int32
	version atomic.Uint32
	// recorded counts the in-place changes that hung their handle into a graph. Other handles do
	// not learn of them.
	recorded atomic.Uint32
	freed    atomic.Bool
	left     atomic.Bool // a leaf was here, and has other memory now
	epoch    uint64      // how many captures had begun when it was made

	mu     sync.Mutex
	writer device.Stream   // of the last write
	users  []device.Stream // other streams than the writer that have read it since
	holds  []*Hold         // of work that is not queued yet

	cleanup runtime.Cleanup // under mu; set once the root scope has owned it
	watched atomic.Bool

	ledger atomic.Pointer[ledger] // of the scope that owns it; nil for the root and for closed ones
	shared atomic.Bool            // it has been in the ledgers of several open scopes
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
		st.cleanup.Stop()
		st.mu.Unlock()
	}
	st.buf.Free()
}

// queue is free for a garbage collector's cleanup: it may not block.
func (st *storage) queue() {
	if !st.freed.Swap(true) {
		st.buf.Queue()
	}
}

// plain reports whether the storage needs no net under it.
func (st *storage) plain() bool {
	return !st.lent && st.buf.Host() != nil && st.buf.Size() < plainBytes
}

// watch hangs the release of the memory on the storage's own reachability: for tensors of the root
// scope, which has no end.
func (st *storage) watch() {
	if st.plain() || st.watched.Load() {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.freed.Load() || st.watched.Swap(true) {
		return
	}
	st.cleanup = runtime.AddCleanup(st, device.Buffer.Queue, st.buf)
}

// read orders a read on stream s after the last write, write orders a write after everything.
func (st *storage) read(op string, r route) {
	s := r.stream
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.holds != nil {
		st.settle(op, false, nil)
	}
	if st.writer == s {
		return
	}
	for _, u := range st.users {
		if u == s {
			return // it has waited for the last write
		}
	}
	if r.graph != nil {
		r.graph.touch(op, st, false)
	}
	if st.writer != nil {
		waitFor(op, s, st.writer)
	}
	st.users = append(st.users, s)
	if st.home != s {
		st.foreign(s)
	}
}

func (st *storage) write(op string, r route) {
	s := r.stream
	if r.graph == nil && !captures.none() {
		st.once(op)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.holds != nil {
		st.settle(op, true, nil)
	}
	if st.writer == s && len(st.users) == 0 {
		return
	}
	if r.graph != nil {
		r.graph.touch(op, st, true)
	}
	// A wait is for all that is queued on the other stream by now: one that has been made is not
	// made again.
	if st.writer != nil && st.writer != s && !slices.Contains(st.users, s) {
		waitFor(op, s, st.writer)
	}
	for _, u := range st.users {
		if u != s {
			waitFor(op, s, u)
		}
	}
	st.users = st.users[:0]
	st.writer = s
	if st.home != s {
		st.foreign(s)
	}
}

// waitFor makes later work of s wait for what is queued on other so far.
func waitFor(op string, s, other device.Stream) {
	if withoutWaits {
		return
	}
	ev, err := other.Record()
	check(op, err)
	check(op, s.Wait(ev))
	ev.Release()
}

// denseBytes returns the bytes of a contiguous tensor, whose sizes are not negative; false if they,
// or its strides, which a size of 0 does not make smaller, are beyond an int.
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

// alloc makes a contiguous tensor with undefined contents in scope s.
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
	st := &storage{dev: dev, buf: buf, home: to.stream, writer: to.stream, epoch: epoch.Load()}
	if to.graph != nil {
		to.graph.owns(st)
	}
	x := &Tensor{st: st, layout: shape.Dense(sh), dtype: t, op: op, made: made}
	x.self = x
	st.refs.Store(1)
	s.own(x, true)
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
