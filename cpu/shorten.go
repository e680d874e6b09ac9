package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/worklist"
)

// When a recording ends, package worklist shortens the recording's list of work.

// lifetime says at which point of a recording the memory of a buffer is freed.
type lifetime struct {
	r   *recording
	end int // number of items before the buffer was freed; worklist.Alive if it is not freed
}

// noteFreed records that the buffer is freed now.
func (l *lifetime) noteFreed() {
	if l == nil {
		return
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.live {
		l.end = len(l.r.items)
	}
}

// mostCode is the largest number of instructions of a program that is made by merging maps.
const mostCode = 384

// shortened returns a shorter list that leaves the same bits in memory as items.
func (r *recording) shortened(items []item) ([]item, worklist.Savings) {
	list := make([]worklist.Item, len(items))
	for i := range items {
		list[i] = r.work(&items[i])
	}
	list, saved := worklist.Shorten(list, worklist.Limits{MostPointers: jit.MostPointers, MostCode: mostCode})
	short := make([]item, len(list))
	for i := range list {
		short[i] = items[list[i].Number]
		short[i].op = list[i].Op
	}
	return short, saved
}

// work describes an item for package worklist.
func (r *recording) work(it *item) worklist.Item {
	if it.op == nil {
		return worklist.Item{Reads: []worklist.Span{bytesSpan(it.src)}, Writes: []worklist.Span{bytesSpan(it.dst)}}
	}
	w := worklist.Of(it.op, nil)
	m, ok := it.op.(*device.Map)
	if w.Fails = !ok; w.Fails {
		return w
	}
	for k := range m.Outs {
		end := worklist.Alive
		if life := m.Outs[k].Buf.(*buffer).life; life != nil && life.r == r {
			end = life.end
		}
		w.Ends = append(w.Ends, end)
	}
	return w
}

func bytesSpan(b []byte) worklist.Span {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return worklist.Span{Lo: lo, Hi: lo + uintptr(len(b))}
}
