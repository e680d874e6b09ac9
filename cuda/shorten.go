package cuda

import (
	"errors"
	"slices"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/worklist"
)

// When a recording ends, package worklist shortens its list of operations. This requires a list of
// a single stream, because the operations of several streams have no fixed order.

// lifetime says how long a buffer's memory holds the buffer's values during a recording.
type lifetime struct {
	r *recording
	// end is the number of recorded operations before the buffer was freed. While the buffer is
	// alive, end is worklist.Alive.
	end int
}

// over is called when the buffer is freed.
func (l *lifetime) over() {
	if l == nil {
		return
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.live.Load() {
		l.end = l.r.pieces
	}
}

const (
	mostPointers = 12 // largest number of operands and results of a merged map
	// mostCode is the largest number of instructions of a merged program. More might need too many
	// registers.
	mostCode = 192
)

// shortened returns a list with fewer launches that computes the same bits as the recorded list.
// If several devices or streams were recorded, it returns only the reason for not shortening.
func (r *recording) shortened() (list []recorded, why string, err error) {
	switch {
	case len(r.others) > 0:
		return nil, "the work of several devices may run at the same time", nil
	case len(r.lanes) > 1:
		return nil, "the work of several streams may run at the same time", nil
	}
	var items []worklist.Item
	var at []int // for each item of the worklist, the index of its recorded node
	for n := range r.nodes {
		if w := &r.nodes[n]; !w.kind.marks() {
			items, at = append(items, r.work(w)), append(at, n)
		}
	}
	items, _ = worklist.Shorten(items, worklist.Limits{MostPointers: mostPointers, MostCode: mostCode, SameOrder: sameOrder})
	b := blocksOf(r.nodes)
	var pieces []placedNode
	for i := range items {
		it := &items[i]
		w := r.nodes[at[it.Number]]
		if len(it.Parts) > 1 {
			if err := w.merged(it.Op); err != nil {
				return nil, "", err
			}
			for _, p := range it.Parts {
				b.uses(&r.nodes[at[p]], at[p], at[it.Place], it)
			}
		}
		for k, end := range it.Ends {
			to := nodePlace{never, atNode}
			if end != worklist.Alive {
				to = nodePlace{at[end-1], afterNode}
			}
			for _, p := range it.Parts {
				b.lasts(&r.nodes[at[p]], at[p], it.Writes[k], to)
			}
		}
		pieces = append(pieces, placedNode{nodePlace{at[it.Place], atNode}, w})
	}
	pieces = append(pieces, b.marks()...)
	slices.SortStableFunc(pieces, func(p, q placedNode) int { return p.compare(q.nodePlace) })
	for i, p := range pieces {
		w := p.recorded
		if w.deps = nil; i > 0 {
			w.deps = []int{i - 1}
		}
		list = append(list, w)
	}
	return list, "", nil
}

func (r *recording) work(w *recorded) worklist.Item {
	to := []worklist.Span{{Lo: uintptr(w.dst), Hi: uintptr(w.dst + w.n)}}
	from := []worklist.Span{{Lo: uintptr(w.src), Hi: uintptr(w.src + w.n)}}
	switch {
	case w.kind == recordedMove:
		return worklist.Item{Reads: from, Writes: to}
	case w.kind == recordedConstant, w.kind == recordedFeed, w.kind == recordedHost:
		return worklist.Item{Writes: to}
	case w.kind == recordedSave:
		return worklist.Item{Reads: from}
	case w.kind != recordedLaunch, w.op == nil:
		return worklist.Item{Reads: []worklist.Span{worklist.Anywhere}, Writes: []worklist.Span{worklist.Anywhere}}
	}
	it := worklist.Of(w.op, w.scratch)
	if m, ok := w.op.(*device.Map); ok {
		for k := range m.Outs {
			end := worklist.Alive
			if life := m.Outs[k].Buf.(*buffer).life; life != nil && life.r == r {
				end = life.end
			}
			it.Ends = append(it.Ends, end)
		}
	}
	return it
}

// sameOrder reports whether two reductions combine their values in the same order.
func sameOrder(a, b *device.Reduce) bool {
	return kernels.SameOrder(a.Reduction, b.Reduction, operand(&a.Out), operands(a.Ins), operands(b.Ins))
}

var errScratch = errors.New("a merged reduction needs more scratch memory")

// A mergeError says why a merged kernel cannot run. The recorded kernels may still run.
type mergeError struct{ err error }

func (e *mergeError) Error() string { return e.err.Error() }
func (e *mergeError) Unwrap() error { return e.err }

// merged replaces the operation of w by op. A merged reduction uses the scratch memory of the
// recorded reduction.
func (w *recorded) merged(op device.Op) (err error) {
	defer func() {
		if err != nil {
			err = &mergeError{err}
		}
	}()
	spare := w.scratch
	w.op, w.joined = op, true
	switch o := op.(type) {
	case *device.Map:
		w.launches, err = kernels.Map(o.Program, operands(o.Outs), operands(o.Ins), o.Params)
	case *device.Reduce:
		w.launches, err = kernels.Reduce(o.Reduction, operand(&o.Out), operands(o.Ins), o.Params, func(bytes int) (uint64, error) {
			if len(spare) == 0 || uintptr(bytes) > spare[0].Hi-spare[0].Lo {
				return 0, errScratch
			}
			s := spare[0]
			spare = spare[1:]
			return uint64(s.Lo), nil
		})
	}
	return err
}
