package cpu

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// indexed is a gather: elements of index are numbered row-major. The first index outside the axis is kept.
type indexed struct {
	out, src, index device.View
	axis            int
	bound           int64
	bad             atomic.Int64 // position of the first offender, -1 for none
}

// Gather sets out[i…] = src[i… with index[i…] along axis]; see [device.Device]. An index outside the axis is reported at
// once.
func (d *Device) Gather(_ device.Stream, out, src, index device.View, axis int, tag uint32) error {
	if err := d.checkIndexed("gather", "out", &out, "src", &src, &index, axis); err != nil {
		return err
	}
	if out.Size() == 0 {
		return nil
	}
	g := &indexed{out: out, src: src, index: index, axis: axis, bound: int64(src.Shape.At(axis))}
	g.bad.Store(-1)
	d.crew.parallel(out.Size(), max(inlineWork/4, out.Size()/(4*d.crew.size)), g)
	return g.fault(tag)
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
	return &device.IndexError{Tag: tag, Index: g.read(off), Bound: g.bound, Position: p}
}

// read returns the index at element offset off of the index view.
func (g *indexed) read(off int) int64 {
	if g.index.Type == dtype.I32 {
		return int64(*(*int32)(unsafe.Add(pointer(&g.index), 4*off)))
	}
	return *(*int64)(unsafe.Add(pointer(&g.index), 8*off))
}

// note keeps the least position of an index outside the axis.
func (g *indexed) note(p int) {
	for {
		b := g.bad.Load()
		if b >= 0 && b <= int64(p) || g.bad.CompareAndSwap(b, int64(p)) {
			return
		}
	}
}

// checkIndexed checks the operands of a gather (dense is out, table is src) or a scatter (dense is src, table is dst).
func (d *Device) checkIndexed(op, denseName string, dense *device.View, tableName string, table, index *device.View, axis int) error {
	check := func(name string, v *device.View, written bool) error {
		if written {
			return d.checkOut(op, name, v)
		}
		return d.checkIn(op, name, v)
	}
	if err := check(denseName, dense, denseName == "out"); err != nil {
		return err
	}
	if err := check(tableName, table, tableName == "dst"); err != nil {
		return err
	}
	if err := d.checkIn(op, "index", index); err != nil {
		return err
	}
	switch {
	case index.Type != dtype.I64 && index.Type != dtype.I32:
		return &ViewError{op, "index", fmt.Sprintf("of %v, want int64 or int32", index.Type)}
	case dense.Type != table.Type:
		return &ViewError{op, denseName, fmt.Sprintf("%v, but %s is %v", dense.Type, tableName, table.Type)}
	case dense.Shape != index.Shape:
		return &ViewError{op, "index", fmt.Sprintf("shape %v, but %s has %v", index.Shape, denseName, dense.Shape)}
	case table.Shape.Rank() != index.Shape.Rank() || axis < 0 || axis >= table.Shape.Rank():
		return &ViewError{op, "axis", fmt.Sprintf("%d for shapes %v and %v", axis, table.Shape, index.Shape)}
	}
	for k := range table.Shape.Rank() {
		if k != axis && index.Shape.At(k) > table.Shape.At(k) {
			return &ViewError{op, "index", fmt.Sprintf("shape %v is larger than %v in dimension %d", index.Shape, table.Shape, k)}
		}
	}
	return nil
}

// walker steps through the row-major positions of an index view and follows the offsets of three views.
type walker struct {
	c    [8]int
	rank int
}

// run gathers positions lo … hi-1.
func (g *indexed) run(lo, hi int) {
	n := g.index.Shape.Rank()
	w := walker{rank: n}
	q := lo
	for k := n - 1; k >= 0; k-- {
		w.c[k] = q % g.index.Shape.At(k)
		q /= g.index.Shape.At(k)
	}
	size := g.out.Type.Size()
	out, src := pointer(&g.out), pointer(&g.src)
	along := g.src.Strides.At(g.axis)
	var oo, so, io int
	for k := range n {
		oo += w.c[k] * g.out.Strides.At(k)
		io += w.c[k] * g.index.Strides.At(k)
		if k != g.axis {
			so += w.c[k] * g.src.Strides.At(k)
		}
	}
	for p := lo; p < hi; p++ {
		i := g.read(io)
		var v uint64
		if uint64(i) < uint64(g.bound) {
			v = readBits(unsafe.Add(src, (so+int(i)*along)*size), size)
		} else {
			g.note(p)
		}
		writeBits(unsafe.Add(out, oo*size), size, v)
		for k := n - 1; k >= 0; k-- {
			w.c[k]++
			oo += g.out.Strides.At(k)
			io += g.index.Strides.At(k)
			if k != g.axis {
				so += g.src.Strides.At(k)
			}
			if w.c[k] < g.index.Shape.At(k) {
				break
			}
			m := w.c[k]
			w.c[k] = 0
			oo -= m * g.out.Strides.At(k)
			io -= m * g.index.Strides.At(k)
			if k != g.axis {
				so -= m * g.src.Strides.At(k)
			}
		}
	}
}
