package cpu

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A reduction is divided into units that depend only on the shape, so sums do not depend on the
// number of workers. The dimensions form three groups, and elements are visited in the order
// [outer][reduced][inner]. Of the dimensions that are not reduced, inner contains those after the
// last reduced dimension in memory, and outer contains the others.
//
//   - Rows (inner is 1): a unit is a number of rows, or a segment of a long row. The reducing
//     primitives combine each block to one value, and these values are combined pairwise.
//   - Columns: a unit is a tile of columns times a number of reduced positions. Blocks are added to
//     an accumulator as wide as a block. For narrow rows the accumulator holds several rows, which
//     are combined at the end.
//
// If several units belong to one result, their partial results are combined pairwise.
const (
	rowSegment = 1 << 15 // largest number of elements of a row in a unit
	tileSize   = 1 << 16 // number of elements in a tile
	tileRows   = 128     // least number of reduced positions in a tile
	// number of blocks that are added one by one; then their sum is added to the sum of the unit
	runRows = 16
)

type reduction struct {
	*binding
	kind  device.ReduceKind
	ct    dtype.Type // type of the combined values
	size  int        // size of a partial result in bytes
	arg   bool
	outer int
	reduc int
	inner int

	cols, rows int // size of a tile; if inner is 1, cols is 1
	tiles      int // number of tiles along the columns
	chunks     int // number of chunks along the reduced positions
	combine    kernel

	// loop that computes values and reduces rows; nil if the values are stored first
	fold    *jit.Code
	inPlace bool // the loop reads the operands in place
	// the loop reads runs along the innermost dimension in place; each block is one run
	runs bool

	part []byte  // combined values, in the layout [chunk][outer][inner]
	pos  []int64 // positions of the extreme values for ArgMax and ArgMin, in the layout of part
}

func (d *Device) reduce(o *device.Reduce) error {
	if o.Out.Size() == 0 {
		return nil
	}
	r, out, ins := o.Reduction, &o.Out, o.Ins
	tmp := scratches.Get().(*scratch)
	defer scratches.Put(tmp)
	red := &tmp.red
	*red = reduction{kind: r.Kind, ct: r.Map.Out[0].Compute(), arg: r.Kind >= device.ArgMax}
	red.size = width(red.ct)
	s := ins[0].Shape
	var order [shape.MaxRank]int
	var class [shape.MaxRank]bool
	n := s.Rank()
	for k := range n {
		class[k] = out.Shape.At(k) != s.At(k)
	}
	red.split(order[:n], class[:n], s, ins)
	result := dtype.I64
	if !red.arg {
		result = red.ct
	}
	// The strides of dense are those of the combined values, which are contiguous in the order in
	// which elements are visited.
	dense := shape.Layout{Shape: out.Shape, Strides: out.Shape}
	at, isDense := 1, true
	for i := n - 1; i >= 0; i-- {
		k := order[i]
		if class[k] {
			dense.Strides = dense.Strides.With(k, 0)
			continue
		}
		dense.Strides = dense.Strides.With(k, at)
		isDense = isDense && (out.Strides.At(k) == at || out.Shape.At(k) == 1)
		at *= out.Shape.At(k)
	}
	total := red.outer * red.inner
	direct := r.Finish == nil && out.Type == result && stores[result] == nil && isDense
	wide := width(result)
	var final []byte // combined values, in the order in which elements are visited
	if direct {
		final = at8(pointer(out), total*wide)
	} else {
		tmp.values = grown(tmp.values, total*wide)
		final = tmp.values
	}
	if s.Size() == 0 {
		fillBits(unsafe.Pointer(&final[0]), identity(r.Kind, r.Map.Out[0]), wide, total)
	} else {
		red.binding = newBinding(r.Map, rawResults, ins, o.Params)
		red.arrange(s, order[:n], class[:n], nil, ins)
		err := d.reduceAll(red, final, tmp)
		red.release()
		if err != nil {
			return err
		}
		if r.Kind == device.Sum && result.IsFloat() {
			fromZero(final, result, total)
		}
	}
	if direct {
		return nil
	}
	d.finish(o, result, dense, final)
	return nil
}

var plusZeros [4096]byte

// fromZero changes results of -0 to +0. A sum starts with +0, so it is never -0. But the loop that
// adds rows starts with the first row and may return -0.
func fromZero(final []byte, t dtype.Type, n int) {
	wide := width(t)
	for block := len(plusZeros) / wide; n > 0; n -= block {
		p := unsafe.Pointer(&final[0])
		ops[expr.OpAdd][t](p, p, unsafe.Pointer(&plusZeros), unsafe.Pointer(&plusZeros), min(n, block))
		final = final[min(n, block)*wide:]
	}
}

func at8(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }

// scratch is temporary memory for one call of a reduction. Its contents are undefined.
type scratch struct {
	values, parts, positions []byte
	red                      reduction
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// split orders the dimensions into the three groups outer, reduced and inner, and sets the sizes of
// the groups.
func (r *reduction) split(order []int, class []bool, s shape.Dims, ins []device.View) {
	// lead is the operand with the most dimensions whose stride is not 0. The order of the
	// dimensions follows its strides.
	lead, most := 0, -1
	for i := range ins {
		moves := 0
		for k := range order {
			if ins[i].Strides.At(k) != 0 && s.At(k) > 1 {
				moves++
			}
		}
		if moves > most {
			lead, most = i, moves
		}
	}
	stride := func(k int) int {
		if s.At(k) == 1 {
			return math.MaxInt // a dimension of size 1 fits any position in the order
		}
		v := ins[lead].Strides.At(k)
		return max(v, -v)
	}
	for i := range order {
		order[i] = i
		for k := i; k > 0 && stride(order[k]) > stride(order[k-1]); k-- {
			order[k], order[k-1] = order[k-1], order[k]
		}
	}
	n := len(order)
	inner := n // first dimension after the last reduced one
	for inner > 0 && !class[order[inner-1]] {
		inner--
	}
	if inner == 0 {
		inner = n // no dimension is reduced, so each row has one element
	}
	// The dimensions from index inner on stay last. The reduced dimensions come before them, and
	// the other dimensions come first. Each group keeps its order. For ArgMax and ArgMin the
	// reduced dimensions keep the order of the view, in which positions are counted.
	var o [shape.MaxRank]int
	w := 0
	for _, k := range order[:inner] {
		if !class[k] {
			o[w] = k
			w++
		}
	}
	first := w
	if r.arg {
		for k := range n {
			if class[k] {
				o[w] = k
				w++
			}
		}
	} else {
		for _, k := range order[:inner] {
			if class[k] {
				o[w] = k
				w++
			}
		}
	}
	copy(o[w:], order[inner:])
	copy(order, o[:n])
	r.outer, r.reduc, r.inner = 1, 1, 1
	for i, k := range order {
		switch {
		case i < first:
			r.outer *= s.At(k)
		case i < w:
			r.reduc *= s.At(k)
		default:
			r.inner *= s.At(k)
		}
	}
}

// identity returns the result of a reduction of no values, as bits of the type in which t is
// computed.
func identity(k device.ReduceKind, t dtype.Type) uint64 {
	ct := t.Compute()
	switch k {
	case device.Sum:
		return 0
	case device.Prod:
		return expr.Encode(ct, 1)
	}
	lo, hi := -inf, inf
	switch t {
	case dtype.Bool, dtype.U8, dtype.I8, dtype.I16:
		lo, hi = 0, 255
		if t == dtype.Bool {
			hi = 1
		} else if t != dtype.U8 {
			hi = float64(int(1)<<(8*t.Size()-1) - 1)
			lo = -hi - 1
		}
	}
	if k == device.Max {
		return expr.Encode(ct, lo)
	}
	return expr.Encode(ct, hi)
}

// maxPartials limits the number of bytes of partial results. A tensor that fits into memory needs
// far less. But a tensor may be expanded to 2⁵⁰ elements by strides of 0. Its partial results would
// not fit into memory, and its sum would take years.
const maxPartials = 1 << 33

// reduceAll stores the combined values in final, in the order in which elements are visited.
func (d *Device) reduceAll(r *reduction, final []byte, tmp *scratch) error {
	r.whole = 0
	blk := r.pl.block
	if r.inner == 1 {
		r.cols, r.tiles, r.rows = 1, 1, rowSegment
	} else {
		r.cols = min(r.inner, blk)
		r.tiles = (r.inner + r.cols - 1) / r.cols
		r.rows = max(tileRows, tileSize/r.inner)
	}
	r.rows = min(r.rows, r.reduc)
	r.chunks = (r.reduc + r.rows - 1) / r.rows
	r.combine = combiner(r.kind, r.ct)
	r.chooseFold()
	total := r.outer * r.inner
	if r.chunks > maxPartials/8/total {
		return fmt.Errorf("%w: the partial results of %d elements in each of %d sums", device.ErrOutOfMemory, r.reduc, total)
	}
	var last []int64
	if r.arg {
		last = at64(final)
	}
	switch {
	case r.chunks == 1 && !r.arg:
		r.part = final
	case r.chunks == 1:
		tmp.parts = grown(tmp.parts, total*r.size)
		r.part, r.pos = tmp.parts, last
	default:
		tmp.parts = grown(tmp.parts, r.chunks*total*r.size)
		r.part = tmp.parts
		if r.arg {
			tmp.positions = grown(tmp.positions, r.chunks*total*8)
			r.pos = at64(tmp.positions)
		}
	}
	units := r.outer * r.tiles * r.chunks
	work := r.rows * r.cols * (2 + len(r.pl.body))
	grain := max(1, inlineWork/max(1, work))
	grain = max(grain, units/(8*d.workers.size()))
	d.workers.parallel(units, grain, r)
	if r.chunks > 1 {
		r.join(total)
		if r.arg {
			copy(last, r.pos[:total])
		} else {
			copy(final, r.part[:total*r.size])
		}
	}
	r.part, r.pos = nil, nil
	return nil
}

func at64(b []byte) []int64 { return unsafe.Slice((*int64)(unsafe.Pointer(&b[0])), len(b)/8) }

// join combines the partial results of all chunks pairwise. It stores the combinations in place of
// the partial results of the first chunk.
func (r *reduction) join(total int) {
	for step := 1; step < r.chunks; step *= 2 {
		for c := 0; c+step < r.chunks; c += 2 * step {
			a, b := c*total, (c+step)*total
			if r.arg {
				joinArg(r.ct, r.kind, r.value(a), r.value(b), r.pos[a:a+total], r.pos[b:b+total])
				continue
			}
			r.combine(r.value(a), r.value(a), r.value(b), r.value(b), total)
		}
	}
}

func (r *reduction) value(i int) unsafe.Pointer { return unsafe.Pointer(&r.part[i*r.size]) }

// run reduces the units with numbers lo to hi-1. Units are numbered in the order
// [outer][tile][chunk].
func (r *reduction) run(lo, hi int) {
	w := r.begin(min(r.pl.block, r.binding.size))
	acc := accumulators.Get().(*accumulator)
	// Rows that are read in place count as short if they fit into a block. With one call for each
	// row, they would take twice as long.
	if short := r.reduc <= r.pl.block/2 || r.inPlace && r.reduc <= r.pl.block; short && r.inner == 1 && r.chunks == 1 {
		r.shortRows(w, lo, hi)
	} else {
		for u := lo; u < hi; u++ {
			if n := r.foldSegments(w, acc, u, hi); n > 0 {
				u += n - 1
				continue
			}
			chunk := u % r.chunks
			t := u / r.chunks
			from := chunk * r.rows
			n := min(r.rows, r.reduc-from)
			if r.inner == 1 {
				r.row(w, acc, t, chunk, from, n)
			} else {
				r.tile(w, acc, t/r.tiles, t%r.tiles, chunk, from, n)
			}
		}
	}
	w.reg[len(w.reg)-1] = nil // clear the address at which a loop stores results
	r.end(w)
	accumulators.Put(acc)
}

// evaluate computes the values that Map gives for the elements p to p+n-1, and returns their
// address.
func (r *reduction) evaluate(w *runner, p, n int) unsafe.Pointer {
	r.load(w, p, n)
	exec(w.reg, r.pl.body, n)
	o := &r.pl.outs[0]
	v := w.reg[o.val]
	// small integers wrap, as they do when stored in a tensor
	if o.conv != nil && o.typ.IsInteger() {
		o.conv(w.stage, v, nil, nil, n)
		v = unsafe.Add(w.base, r.pl.stage2)
		loads[o.typ](v, w.stage, nil, nil, n)
	}
	return v
}

// shortRows reduces rows that are short enough for a block to hold several of them.
func (r *reduction) shortRows(w *runner, lo, hi int) {
	per := r.pl.block / r.reduc
	if r.inPlace {
		per = max(per, min(longestUnit, r.pl.foldUnit())/r.reduc)
	}
	for u := lo; u < hi; u += per {
		m := min(per, hi-u)
		if r.fold != nil {
			r.foldRows(w, u*r.reduc, r.reduc, m, r.value(u))
			continue
		}
		v := r.evaluate(w, u*r.reduc, m*r.reduc)
		if r.kind == device.Sum && r.ct == dtype.F32 && sumShortRows(at[float32](r.value(u), m), at[float32](v, m*r.reduc), r.reduc) {
			continue
		}
		for i := range m {
			x := unsafe.Add(v, i*r.reduc*r.size)
			if r.arg {
				b, at := foldArg(r.ct, r.kind, x, r.reduc)
				writeBits(r.value(u+i), r.size, b)
				r.pos[u+i] = int64(at)
			} else {
				writeBits(r.value(u+i), r.size, fold(r.ct, r.kind, x, r.reduc))
			}
		}
	}
}

// row combines n consecutive positions of one row, from position startPos on.
func (r *reduction) row(w *runner, acc *accumulator, k, chunk, startPos, n int) {
	p := k*r.reduc + startPos
	to := chunk*r.outer + k
	blk := r.pl.block
	if r.arg {
		var best uint64
		at := -1
		for i, m := 0, 0; i < n; i += m {
			m = r.clipToRun(p+i, min(blk, n-i))
			b, a := foldArg(r.ct, r.kind, r.evaluate(w, p+i, m), m)
			if at < 0 || beats(r.ct, r.kind, b, best) {
				best, at = b, startPos+i+a
			}
		}
		writeBits(r.value(to), r.size, best)
		r.pos[to] = int64(at)
		return
	}
	if r.fold != nil {
		r.foldRow(w, acc, p, n, to)
		return
	}
	c := &acc.cascade
	c.n = 0
	for i, m := 0, 0; i < n; i += m {
		m = r.clipToRun(p+i, min(blk, n-i))
		c.push(r, fold(r.ct, r.kind, r.evaluate(w, p+i, m), m))
	}
	writeBits(r.value(to), r.size, c.total(r))
}

// clipToRun returns the length of a block that begins at element p. This is n, or less if the
// innermost dimension ends earlier. If that dimension is too short for use in place, clipToRun
// returns n.
func (r *reduction) clipToRun(p, n int) int {
	run := r.dims[r.rank-1]
	if r.rank == 1 || run < r.pl.block/4 {
		return n
	}
	return min(n, run-p%run)
}

// cascade combines the values of a row pairwise. Level i holds a combination of 2^i values.
type cascade struct {
	level [32]uint64
	pair  [2]uint64
	n     int
}

func (c *cascade) push(r *reduction, v uint64) {
	k := 0
	for ; c.n>>k&1 == 1; k++ {
		v = c.two(r, c.level[k], v)
	}
	c.level[k] = v
	c.n++
}

func (c *cascade) total(r *reduction) uint64 {
	var v uint64
	some := false
	for k := 0; c.n>>k > 0; k++ {
		if c.n>>k&1 == 1 {
			if !some {
				v, some = c.level[k], true
			} else {
				v = c.two(r, c.level[k], v)
			}
		}
	}
	return v
}

// two combines two values that are given as bits.
func (c *cascade) two(r *reduction, a, b uint64) uint64 {
	if r.ct == dtype.F32 { // the usual cases need no kernel
		x, y := math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b))
		switch r.kind {
		case device.Sum:
			return uint64(math.Float32bits(x + y))
		case device.Max:
			return uint64(math.Float32bits(max(x, y)))
		case device.Min:
			return uint64(math.Float32bits(min(x, y)))
		}
	}
	c.pair = [2]uint64{a, b}
	p, q := unsafe.Pointer(&c.pair[0]), unsafe.Pointer(&c.pair[1])
	r.combine(p, p, q, q, 1)
	return c.pair[0]
}
