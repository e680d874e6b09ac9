package cpu

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
)

// indexed is a gather, or the part of a scatter that is common with a gather. In the comments, a
// position is the row-major index of an element of the view Index.
type indexed struct {
	out, src, index *device.View
	axis            int
	bound           int64
	wrap            int64 // number that is added to an index outside the axis
	// bad is the first position whose index is outside the axis; -1 if there is none
	bad    atomic.Int64
	shared int // number of neighbouring elements that share one index
	suffix int // first dimension of the elements that share one index
}

// gathers keeps used values of indexed for reuse: a small gather takes less time than an
// allocation.
var gathers = sync.Pool{New: func() any { return new(indexed) }}

// recycle clears g and keeps it for reuse.
func (g *indexed) recycle() {
	*g = indexed{}
	gathers.Put(g)
}

// gather runs a gather. If an index is outside the axis, it returns the error at once, and not at
// the next wait.
func (d *Device) gather(o *device.Gather) error {
	if o.Out.Size() == 0 {
		return nil
	}
	g := gathers.Get().(*indexed)
	defer g.recycle()
	g.out, g.src, g.index, g.axis, g.bound = &o.Out, &o.Src, &o.Index, o.Axis, int64(o.Src.Shape.At(o.Axis))
	g.bad.Store(-1)
	if o.Wrap {
		g.wrap = g.bound
	}
	g.share(g.out, g.src)
	row := g.shared
	if last := g.lastDim(); row == 1 && last >= 0 {
		row = o.Out.Shape.At(last)
	}
	rows := o.Out.Size() / row
	d.workers.parallel(rows, max(1, inlineWork/2/row, rows/(4*d.workers.size())), g)
	return g.fault(o.Tag)
}

// lastDim returns the innermost dimension along which the index has several elements. If there is
// none, it returns the first dimension.
func (g *indexed) lastDim() int {
	k := g.index.Shape.Rank() - 1
	for k > 0 && g.index.Shape.At(k) == 1 {
		k--
	}
	return k
}

func (g *indexed) fault(tag uint32) error {
	p := g.bad.Load()
	if p < 0 {
		return nil
	}
	c, q := [8]int{}, int(p)
	for k := g.index.Shape.Rank() - 1; k >= 0; k-- {
		c[k] = q % g.index.Shape.At(k)
		q /= g.index.Shape.At(k)
	}
	off := 0
	for k := range g.index.Shape.Rank() {
		off += c[k] * g.index.Strides.At(k)
	}
	return &device.IndexError{Tag: tag, Index: indexAt(unsafe.Add(pointer(g.index), off*g.index.Type.Size()), g.index.Type.Size()), Bound: g.bound, Position: p}
}

// noteBad records position p, whose index is outside the axis, unless a lower position is recorded.
func (g *indexed) noteBad(p int) {
	for {
		b := g.bad.Load()
		if b >= 0 && b <= int64(p) || g.bad.CompareAndSwap(b, int64(p)) {
			return
		}
	}
}

// run gathers the rows with numbers lo to hi-1. If neighbouring elements share one index, they are
// a row. Otherwise a row is the elements along the dimension lastDim.
func (g *indexed) run(lo, hi int) {
	n := g.index.Shape.Rank()
	size := g.out.Type.Size()
	out, src, index := pointer(g.out), pointer(g.src), pointer(g.index)
	is := g.index.Type.Size()
	outer := g.lastDim() // number of outer dimensions; their coordinates identify a row
	if g.shared > 1 {
		outer = g.suffix
	}
	outer = max(outer, 0)
	var w walk
	for k := range outer {
		by := [3]int{g.out.Strides.At(k) * size, 0, g.index.Strides.At(k) * is}
		if k != g.axis {
			by[1] = g.src.Strides.At(k) * size
		}
		w.dim(g.index.Shape.At(k), by)
	}
	w.seek(lo)
	along := g.src.Strides.At(g.axis) * size
	l := gatherLine{n: 1, along: along, bound: uint64(g.bound), wrap: g.wrap}
	if g.shared == 1 && n > 0 {
		l.n = g.index.Shape.At(outer)
		l.do, l.dx = g.out.Strides.At(outer)*size, g.index.Strides.At(outer)*is
		if outer != g.axis {
			l.ds = g.src.Strides.At(outer) * size
		}
	}
	for row := lo; row < hi; row++ {
		o, s, x := unsafe.Add(out, w.at[0]), unsafe.Add(src, w.at[1]), unsafe.Add(index, w.at[2])
		w.next()
		if g.shared > 1 {
			dst := at8(o, g.shared*size)
			if i := wrapped(indexAt(x, is), g.wrap, uint64(g.bound)); uint64(i) < uint64(g.bound) {
				copy(dst, at8(unsafe.Add(s, int(i)*along), g.shared*size))
			} else {
				clear(dst)
				g.noteBad(row * g.shared)
			}
			continue
		}
		l.o, l.s, l.x = o, s, x
		if bad := l.run(size, is); bad >= 0 {
			g.noteBad(row*l.n + bad)
		}
	}
}

// share finds the innermost dimensions, after the axis, along which the index does not change. The
// elements of both a and b must be contiguous along them. An example is the dimension of the
// columns of an embedding's table.
func (g *indexed) share(a, b *device.View) {
	g.shared, g.suffix = 1, g.index.Shape.Rank()
	for k := g.suffix - 1; k > g.axis; k-- {
		if n := g.index.Shape.At(k); n != 1 {
			if g.index.Strides.At(k) != 0 || a.Strides.At(k) != g.shared || b.Strides.At(k) != g.shared {
				return
			}
			g.shared *= n
		}
		g.suffix = k
	}
}

func indexAt(p unsafe.Pointer, size int) int64 {
	if size == 4 {
		return int64(*(*int32)(p))
	}
	return *(*int64)(p)
}

// gatherLine is one row of a gather: addresses and strides in bytes.
type gatherLine struct {
	o, s, x           unsafe.Pointer
	n                 int
	do, ds, dx, along int
	bound             uint64
	wrap              int64
}

// wrapped returns index i, or i+wrap if i is outside 0 … bound-1. If negative indices count from
// the end, the argument wrap equals the argument bound. Otherwise it is 0.
func wrapped(i, wrap int64, bound uint64) int64 {
	if uint64(i) >= bound {
		return i + wrap
	}
	return i
}

// run gathers the row. It returns the first position whose index is outside the axis, or -1.
func (l *gatherLine) run(size, indexSize int) int {
	switch size {
	case 1:
		return gatherLineAs[uint8](l, indexSize)
	case 2:
		return gatherLineAs[uint16](l, indexSize)
	case 4:
		return gatherLineAs[uint32](l, indexSize)
	}
	return gatherLineAs[uint64](l, indexSize)
}

func gatherLineAs[T uint8 | uint16 | uint32 | uint64](l *gatherLine, indexSize int) int {
	bad := -1
	// the usual case: int64 indices and contiguous elements
	if indexSize == 8 && l.dx == 8 && l.do == int(unsafe.Sizeof(T(0))) {
		out, s, ds, along, bound, wrap := at[T](l.o, l.n), l.s, l.ds, l.along, l.bound, l.wrap
		for j, i := range at[int64](l.x, len(out)) {
			if uint64(i) < bound {
				out[j] = *(*T)(unsafe.Add(s, j*ds+int(i)*along))
			} else if i += wrap; uint64(i) < bound {
				out[j] = *(*T)(unsafe.Add(s, j*ds+int(i)*along))
			} else if out[j] = 0; bad < 0 {
				bad = j
			}
		}
		return bad
	}
	for j := range l.n {
		i := wrapped(indexAt(unsafe.Add(l.x, j*l.dx), indexSize), l.wrap, l.bound)
		var v T
		if uint64(i) < l.bound {
			v = *(*T)(unsafe.Add(l.s, j*l.ds+int(i)*l.along))
		} else if bad < 0 {
			bad = j
		}
		*(*T)(unsafe.Add(l.o, j*l.do)) = v
	}
	return bad
}
