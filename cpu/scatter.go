package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// scatter combines along lines of the axis. Two positions meet in one element only if they lie on one line, so a line is done
// by one worker in the order of the positions, and the result does not depend on how lines are shared out.
type scatter struct {
	indexed
	dst  device.View
	into func(dst, src unsafe.Pointer) // combines one element

	whole       kernel // combines parts of rows that share an index; nil: one by one
	cols, parts int    // of a row
}

// Scatter combines src[i…] into dst[i… with index[i…] along axis], in the order of the positions; see [device.Device].
// Positions whose index is outside the axis are left out and reported at once.
func (d *Device) Scatter(stream device.Stream, kind device.ScatterKind, dst, src, index device.View, axis int, tag uint32) error {
	if err := d.checkIndexed("scatter-"+kind.String(), "src", &src, "dst", &dst, &index, axis); err != nil {
		return err
	}
	if index.Size() == 0 {
		return nil
	}
	if t := device.Tracing(); t != nil && stream != nil {
		defer d.traced(t, stream, "scatter-"+kind.String(), device.ScatterWork(kind, dst, src, index), dst.Type, t.Wants().ShapesOf([]device.View{dst, src, index})).done()
	}
	if dst.Type.IsHalf() && kind != device.ScatterSet {
		return d.scatterHalf(kind, dst, src, index, axis, tag)
	}
	s := &scatter{dst: dst, into: scatterInto(kind, dst.Type)}
	s.src, s.index, s.axis, s.bound = src, index, axis, int64(dst.Shape.At(axis))
	s.bad.Store(-1)
	s.share(&s.src, &s.dst)
	n := index.Shape.At(axis)
	lines := index.Size() / n
	if k := rowKernel(kind, dst.Type); s.shared >= 16 && s.suffix == axis+1 && k != nil {
		// Rows of a table: the columns are shared out.
		s.whole, s.cols = k, max(64, (s.shared+d.crew.size-1)/d.crew.size)
		if work := s.shared * n; work < inlineWork {
			s.cols = s.shared
		}
		s.parts = (s.shared + s.cols - 1) / s.cols
		d.crew.parallel(lines/s.shared*s.parts, 1, s)
		return s.fault(tag)
	}
	d.crew.parallel(lines, max(1, inlineWork/4/n, lines/(4*d.crew.size)), s)
	return s.fault(tag)
}

// rowKernel returns what combines a row with a row, nil where the stored form is not the computing form.
func rowKernel(kind device.ScatterKind, t dtype.Type) kernel {
	if kind == device.ScatterSet {
		size := t.Size()
		return func(d, _, b, _ unsafe.Pointer, n int) { copy(at8(d, n*size), at8(b, n*size)) }
	}
	if stores[t] != nil {
		return nil
	}
	return combiner(map[device.ScatterKind]device.ReduceKind{device.ScatterAdd: device.Sum, device.ScatterProd: device.Prod,
		device.ScatterMax: device.Max, device.ScatterMin: device.Min}[kind], t)
}

// scatterHalf combines 16-bit floats in a float32 copy of dst, which is rounded once.
func (d *Device) scatterHalf(kind device.ScatterKind, dst, src, index device.View, axis int, tag uint32) error {
	wide := [2]device.View{}
	for i, v := range []device.View{dst, src} {
		w, err := d.temporary(dtype.F32, v.Shape)
		if err != nil {
			return err
		}
		defer w.Buf.Free()
		if err := d.Map(nil, castProgram(dtype.F32, v.Type), []device.View{w}, []device.View{v}, nil); err != nil {
			return err
		}
		wide[i] = w
	}
	bad := d.Scatter(nil, kind, wide[0], wide[1], index, axis, tag) // an index outside the axis: the others are done
	if err := d.Map(nil, castProgram(dst.Type, dtype.F32), []device.View{dst}, wide[:1], nil); err != nil {
		return err
	}
	return bad
}

// run does the lines lo … hi-1, or the parts of rows of that number.
func (s *scatter) run(lo, hi int) {
	if s.whole != nil {
		for u := lo; u < hi; u++ {
			s.rows(u/s.parts, u%s.parts*s.cols)
		}
		return
	}
	size := s.dst.Type.Size()
	dst, src := pointer(&s.dst), pointer(&s.src)
	n := s.index.Shape.At(s.axis)
	inner := 1 // positions between neighbours on a line
	for k := s.axis + 1; k < s.index.Shape.Rank(); k++ {
		inner *= s.index.Shape.At(k)
	}
	for line := lo; line < hi; line++ {
		q := line
		var do, so, io int
		for k := s.index.Shape.Rank() - 1; k >= 0; k-- {
			if k == s.axis {
				continue
			}
			c := q % s.index.Shape.At(k)
			q /= s.index.Shape.At(k)
			do += c * s.dst.Strides.At(k)
			so += c * s.src.Strides.At(k)
			io += c * s.index.Strides.At(k)
		}
		for t := range n {
			i := s.read(io + t*s.index.Strides.At(s.axis))
			if uint64(i) >= uint64(s.bound) {
				s.note((line/inner*n+t)*inner + line%inner)
				continue
			}
			s.into(unsafe.Add(dst, (do+int(i)*s.dst.Strides.At(s.axis))*size), unsafe.Add(src, (so+t*s.src.Strides.At(s.axis))*size))
		}
	}
}

// rows does the part that begins at column c of all rows of one position before the axis.
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
	dst, src := unsafe.Add(pointer(&s.dst), (do+c)*size), unsafe.Add(pointer(&s.src), (so+c)*size)
	index := unsafe.Add(pointer(&s.index), io*is)
	n, cols := s.index.Shape.At(s.axis), min(s.cols, s.shared-c)
	for t := range n {
		i := indexAt(unsafe.Add(index, t*s.index.Strides.At(s.axis)*is), is)
		if uint64(i) >= uint64(s.bound) {
			s.note((outer*n + t) * s.shared)
			continue
		}
		to, from := unsafe.Add(dst, int(i)*s.dst.Strides.At(s.axis)*size), unsafe.Add(src, t*s.src.Strides.At(s.axis)*size)
		s.whole(to, to, from, from, cols)
	}
}

// scatterInto returns the combination of one element. The sum of truth values is "or", their product "and".
func scatterInto(kind device.ScatterKind, t dtype.Type) func(dst, src unsafe.Pointer) {
	if kind == device.ScatterSet {
		switch t.Size() {
		case 1:
			return setter[uint8]
		case 2:
			return setter[uint16]
		case 4:
			return setter[uint32]
		}
		return setter[uint64]
	}
	switch t {
	case dtype.F32:
		return intoOf[float32](kind)
	case dtype.F64:
		return intoOf[float64](kind)
	case dtype.I64:
		return intoOf[int64](kind)
	case dtype.U64:
		return intoOf[uint64](kind)
	case dtype.I32:
		return intoOf[int32](kind)
	case dtype.U32:
		return intoOf[uint32](kind)
	case dtype.I16:
		return intoOf[int16](kind)
	case dtype.I8:
		return intoOf[int8](kind)
	case dtype.Bool:
		if kind == device.ScatterAdd || kind == device.ScatterMax {
			return intoOf[uint8](device.ScatterMax)
		}
		return intoOf[uint8](device.ScatterMin)
	}
	return intoOf[uint8](kind)
}

func setter[T uint8 | uint16 | uint32 | uint64](dst, src unsafe.Pointer) { *(*T)(dst) = *(*T)(src) }

func intoOf[T number | int16 | int8 | uint8](kind device.ScatterKind) func(dst, src unsafe.Pointer) {
	switch kind {
	case device.ScatterAdd:
		return func(dst, src unsafe.Pointer) { *(*T)(dst) += *(*T)(src) }
	case device.ScatterProd:
		return func(dst, src unsafe.Pointer) { *(*T)(dst) *= *(*T)(src) }
	case device.ScatterMax:
		return func(dst, src unsafe.Pointer) { *(*T)(dst) = max(*(*T)(dst), *(*T)(src)) }
	}
	return func(dst, src unsafe.Pointer) { *(*T)(dst) = min(*(*T)(dst), *(*T)(src)) }
}
