package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// scatter combines elements along lines: the positions that differ only in their index along the
// axis. Only positions on the same line can have the same target. One worker handles all positions
// of a line in order. The result therefore does not depend on which worker handles which line.
type scatter struct {
	indexed
	dst  *device.View
	line func(l *scatterLine) int // function that combines elements along one line

	// kernel that combines parts of rows, if all elements of a row share one index; nil if elements
	// are combined one by one
	whole       kernel
	cols, parts int // number of columns in a part, and number of parts of a row
	// abreast is how many neighbouring lines are combined together; 0 means one after the other
	abreast int
}

// abreastLines is the number of neighbouring lines that are combined together. One line alone would
// use a single element of each cache line.
const abreastLines = 512

// scatters keeps used values of scatter for reuse: a small scatter takes less time than an
// allocation.
var scatters = sync.Pool{New: func() any { return new(scatter) }}

// recycle clears s and keeps it for reuse.
func (s *scatter) recycle() {
	*s = scatter{}
	scatters.Put(s)
}

// scatter runs a scatter. It skips elements whose index is outside the axis, and returns the error
// for them at once, and not at the next wait.
func (d *Device) scatter(o *device.Scatter) error {
	if o.Index.Size() == 0 {
		return nil
	}
	if o.Dst.Type.IsHalf() && o.Kind != device.ScatterSet {
		return d.scatterHalf(o)
	}
	s := scatters.Get().(*scatter)
	defer s.recycle()
	s.dst, s.line = &o.Dst, lineInto(o.Kind, o.Dst.Type)
	s.src, s.index, s.axis, s.bound = &o.Src, &o.Index, o.Axis, int64(o.Dst.Shape.At(o.Axis))
	s.bad.Store(-1)
	if o.Wrap {
		s.wrap = s.bound
	}
	s.share(s.src, s.dst)
	n := o.Index.Shape.At(o.Axis)
	lines := o.Index.Size() / n
	if s.shared >= 16 && s.suffix == o.Axis+1 {
		s.whole = rowKernel(o.Kind, o.Dst.Type)
	}
	if s.whole != nil {
		// If whole rows of a table are combined, divide the columns among the workers.
		s.cols = max(64, (s.shared+d.workers.size()-1)/d.workers.size())
		if work := s.shared * n; work < inlineWork {
			s.cols = s.shared
		}
		s.parts = (s.shared + s.cols - 1) / s.cols
		d.workers.parallel(lines/s.shared*s.parts, 1, s)
		return s.fault(o.Tag)
	}
	least := max(1, inlineWork/4/n, lines/(4*d.workers.size()))
	if s.besides() {
		s.abreast = abreastLines
		least = (max(least, min(abreastLines, lines/d.workers.size())) + 15) &^ 15
	}
	d.workers.parallel(lines, least, s)
	return s.fault(o.Tag)
}

// besides reports whether neighbouring lines lie beside each other in memory.
func (s *scatter) besides() bool {
	last := s.index.Shape.Rank() - 1
	return s.axis < last && s.index.Shape.At(last) >= 8 && s.index.Strides.At(last) == 1 && s.dst.Strides.At(last) == 1
}

// rowKernel returns the kernel that combines two rows of elements of type t. It returns nil if t
// must be converted before it can be computed with.
func rowKernel(kind device.ScatterKind, t dtype.Type) kernel {
	if kind == device.ScatterSet {
		size := t.Size()
		return func(d, _, b, _ unsafe.Pointer, n int) { copy(at8(d, n*size), at8(b, n*size)) }
	}
	if stores[t] != nil {
		return nil
	}
	reduce := device.Min
	switch kind {
	case device.ScatterAdd:
		reduce = device.Sum
	case device.ScatterProd:
		reduce = device.Prod
	case device.ScatterMax:
		reduce = device.Max
	}
	return combiner(reduce, t)
}

// scatterHalf combines 16-bit floats in a float32 copy of the target. It rounds the copy once, at
// the end.
func (d *Device) scatterHalf(o *device.Scatter) error {
	t, err := temporaries(d, o)
	defer release(t[:])
	if err != nil {
		return err
	}
	d.cast(&t[0], &o.Dst)
	d.cast(&t[1], &o.Src)
	wide := *o
	wide.Dst, wide.Src = t[0], t[1]
	// an index outside the axis is an error, but the elements with other indices are still stored
	bad := d.scatter(&wide)
	d.cast(&o.Dst, &t[0])
	return bad
}

// run combines the units with numbers lo to hi-1. A unit is a line, or some columns of all rows if
// the elements of a row share an index.
func (s *scatter) run(lo, hi int) {
	if s.whole != nil {
		for u := lo; u < hi; u++ {
			s.rows(u/s.parts, u%s.parts*s.cols)
		}
		return
	}
	size := s.dst.Type.Size()
	dst, src, index := pointer(s.dst), pointer(s.src), pointer(s.index)
	n, is := s.index.Shape.At(s.axis), s.index.Type.Size()
	inner := 1 // distance in positions between successive elements of a line
	for k := s.axis + 1; k < s.index.Shape.Rank(); k++ {
		inner *= s.index.Shape.At(k)
	}
	l := scatterLine{is: is, dx: s.index.Strides.At(s.axis) * is, ds: s.src.Strides.At(s.axis) * size, along: s.dst.Strides.At(s.axis) * size, n: n, bound: uint64(s.bound), wrap: s.wrap}
	var w walk
	for k := range s.index.Shape.Rank() {
		if k != s.axis {
			w.dim(s.index.Shape.At(k), [3]int{s.dst.Strides.At(k) * size, s.src.Strides.At(k) * size, s.index.Strides.At(k) * is})
		}
	}
	w.seek(lo)
	if s.abreast > 0 {
		s.lines(&w, l, lo, hi, inner)
		return
	}
	for line := lo; line < hi; line++ {
		l.dst, l.src, l.index = unsafe.Add(dst, w.at[0]), unsafe.Add(src, w.at[1]), unsafe.Add(index, w.at[2])
		w.next()
		if bad := s.line(&l); bad >= 0 {
			s.noteBad((line/inner*n+bad)*inner + line%inner)
		}
	}
}

// lines combines the lines with numbers lo to hi-1; w is at line lo. It handles several
// neighbouring lines together. The elements at the same place of these lines are combined as if
// they formed a line.
func (s *scatter) lines(w *walk, l scatterLine, lo, hi, inner int) {
	dst, src, index := pointer(s.dst), pointer(s.src), pointer(s.index)
	last, n, dx, ds := w.rank-1, l.n, l.dx, l.ds
	l.dx, l.ds, l.dd = w.steps[last][2], w.steps[last][1], w.steps[last][0]
	for line := lo; line < hi; line += l.n {
		l.n = min(s.abreast, hi-line, w.dims[last]-w.c[last])
		l.dst = unsafe.Add(dst, w.at[0])
		for t := range n {
			l.src, l.index = unsafe.Add(src, w.at[1]+t*ds), unsafe.Add(index, w.at[2]+t*dx)
			if bad := s.line(&l); bad >= 0 {
				s.noteBad((line/inner*n+t)*inner + line%inner + bad)
			}
		}
		for range l.n {
			w.next()
		}
	}
}

// rows combines at most s.cols columns, from column c on, of all rows along the axis. The argument
// outer is the row-major index in the dimensions before the axis.
func (s *scatter) rows(outer, c int) {
	var do, so, io int
	q := outer
	for k := s.axis - 1; k >= 0; k-- {
		i := q % s.index.Shape.At(k)
		q /= s.index.Shape.At(k)
		do += i * s.dst.Strides.At(k)
		so += i * s.src.Strides.At(k)
		io += i * s.index.Strides.At(k)
	}
	size, is := s.dst.Type.Size(), s.index.Type.Size()
	dst, src := unsafe.Add(pointer(s.dst), (do+c)*size), unsafe.Add(pointer(s.src), (so+c)*size)
	index := unsafe.Add(pointer(s.index), io*is)
	n, cols := s.index.Shape.At(s.axis), min(s.cols, s.shared-c)
	for t := range n {
		i := wrapped(indexAt(unsafe.Add(index, t*s.index.Strides.At(s.axis)*is), is), s.wrap, uint64(s.bound))
		if uint64(i) >= uint64(s.bound) {
			s.noteBad((outer*n + t) * s.shared)
			continue
		}
		to, from := unsafe.Add(dst, int(i)*s.dst.Strides.At(s.axis)*size), unsafe.Add(src, t*s.src.Strides.At(s.axis)*size)
		s.whole(to, to, from, from, cols)
	}
}

// scatterLine describes the elements along one line: addresses and strides in bytes.
type scatterLine struct {
	dst, src, index unsafe.Pointer
	n, is           int // number of positions, and size of an index in bytes
	dx, ds, along   int
	dd              int // distance between the targets of successive elements with equal indices
	bound           uint64
	wrap            int64
}

// lineInto returns the function that combines elements along a line. The function returns the first
// position whose index is outside the axis, or -1. The sum of truth values is "or", and their
// product is "and".
func lineInto(kind device.ScatterKind, t dtype.Type) func(l *scatterLine) int {
	if kind == device.ScatterSet {
		switch t.Size() {
		case 1:
			return lineSet[uint8]
		case 2:
			return lineSet[uint16]
		case 4:
			return lineSet[uint32]
		}
		return lineSet[uint64]
	}
	switch t {
	case dtype.F32:
		return lineOf[float32](kind)
	case dtype.F64:
		return lineOf[float64](kind)
	case dtype.I64:
		return lineOf[int64](kind)
	case dtype.U64:
		return lineOf[uint64](kind)
	case dtype.I32:
		return lineOf[int32](kind)
	case dtype.U32:
		return lineOf[uint32](kind)
	case dtype.I16:
		return lineOf[int16](kind)
	case dtype.I8:
		return lineOf[int8](kind)
	case dtype.Bool:
		if kind == device.ScatterAdd || kind == device.ScatterMax {
			return lineMax[uint8]
		}
		return lineMin[uint8]
	}
	return lineOf[uint8](kind)
}

func lineOf[T number | int16 | int8 | uint8](kind device.ScatterKind) func(l *scatterLine) int {
	switch kind {
	case device.ScatterAdd:
		return lineAdd[T]
	case device.ScatterProd:
		return lineProd[T]
	case device.ScatterMax:
		return lineMax[T]
	}
	return lineMin[T]
}

// next returns the addresses of the target and of the source for element t of the line. If its
// index is outside the axis, ok is false.
func (l *scatterLine) next(t int) (dst, src unsafe.Pointer, ok bool) {
	i := uint64(wrapped(indexAt(unsafe.Add(l.index, t*l.dx), l.is), l.wrap, l.bound))
	if i >= l.bound {
		return nil, nil, false
	}
	return unsafe.Add(l.dst, int(i)*l.along+t*l.dd), unsafe.Add(l.src, t*l.ds), true
}

func lineSet[T uint8 | uint16 | uint32 | uint64](l *scatterLine) int {
	bad := -1
	if l.is == 8 && l.dx == 8 && l.dd == 0 { // the usual case: contiguous I64 indices
		dst, src, along, ds, bound, wrap := l.dst, l.src, l.along, l.ds, l.bound, l.wrap
		for t, i := range at[int64](l.index, l.n) {
			if uint64(i) < bound {
				*(*T)(unsafe.Add(dst, int(i)*along)) = *(*T)(unsafe.Add(src, t*ds))
			} else if i += wrap; uint64(i) < bound {
				*(*T)(unsafe.Add(dst, int(i)*along)) = *(*T)(unsafe.Add(src, t*ds))
			} else if bad < 0 {
				bad = t
			}
		}
		return bad
	}
	if size := int(unsafe.Sizeof(T(0))); l.is == 8 && l.dx == 8 && l.dd == size && l.ds == size {
		dst, along, bound, wrap := l.dst, l.along, l.bound, l.wrap
		src := at[T](l.src, l.n)
		for t, i := range at[int64](l.index, len(src)) {
			if i = wrapped(i, wrap, bound); uint64(i) < bound {
				*(*T)(unsafe.Add(dst, int(i)*along+t*size)) = src[t]
			} else if bad < 0 {
				bad = t
			}
		}
		return bad
	}
	for t := range l.n {
		if d, s, ok := l.next(t); ok {
			*(*T)(d) = *(*T)(s)
		} else if bad < 0 {
			bad = t
		}
	}
	return bad
}

func lineAdd[T number | int16 | int8 | uint8](l *scatterLine) int {
	bad := -1
	if l.is == 8 && l.dx == 8 && l.dd == 0 { // the usual case: contiguous I64 indices
		dst, src, along, ds, bound, wrap := l.dst, l.src, l.along, l.ds, l.bound, l.wrap
		for t, i := range at[int64](l.index, l.n) {
			if uint64(i) < bound {
				*(*T)(unsafe.Add(dst, int(i)*along)) += *(*T)(unsafe.Add(src, t*ds))
			} else if i += wrap; uint64(i) < bound {
				*(*T)(unsafe.Add(dst, int(i)*along)) += *(*T)(unsafe.Add(src, t*ds))
			} else if bad < 0 {
				bad = t
			}
		}
		return bad
	}
	if size := int(unsafe.Sizeof(T(0))); l.is == 8 && l.dx == 8 && l.dd == size && l.ds == size {
		dst, along, bound, wrap := l.dst, l.along, l.bound, l.wrap
		src := at[T](l.src, l.n)
		for t, i := range at[int64](l.index, len(src)) {
			if i = wrapped(i, wrap, bound); uint64(i) < bound {
				*(*T)(unsafe.Add(dst, int(i)*along+t*size)) += src[t]
			} else if bad < 0 {
				bad = t
			}
		}
		return bad
	}
	for t := range l.n {
		if d, s, ok := l.next(t); ok {
			*(*T)(d) += *(*T)(s)
		} else if bad < 0 {
			bad = t
		}
	}
	return bad
}

func lineProd[T number | int16 | int8 | uint8](l *scatterLine) int {
	bad := -1
	for t := range l.n {
		if d, s, ok := l.next(t); ok {
			*(*T)(d) *= *(*T)(s)
		} else if bad < 0 {
			bad = t
		}
	}
	return bad
}

func lineMax[T number | int16 | int8 | uint8](l *scatterLine) int {
	bad := -1
	for t := range l.n {
		if d, s, ok := l.next(t); ok {
			*(*T)(d) = max(*(*T)(d), *(*T)(s))
		} else if bad < 0 {
			bad = t
		}
	}
	return bad
}

func lineMin[T number | int16 | int8 | uint8](l *scatterLine) int {
	bad := -1
	for t := range l.n {
		if d, s, ok := l.next(t); ok {
			*(*T)(d) = min(*(*T)(d), *(*T)(s))
		} else if bad < 0 {
			bad = t
		}
	}
	return bad
}
