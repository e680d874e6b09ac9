package cpu

import (
	"math"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// If the map of a reduction can run as a loop, a reduction of rows runs as one loop. The loop
// computes the values and combines them at once, in the same order as [fold]. It does not store the
// values in memory.

// foldedBody holds the loop that reduces rows of a plan's first result, and its machine code.
type foldedBody struct {
	loop  *jit.Loop
	codes lookup[foldKey, *jit.Code] // machine code of the loop, made on demand
}

type foldKey struct {
	kind  jit.FoldKind
	short bool
	reads jit.Reads
	// columns is true if the loop combines the elements of columns and not of rows
	columns bool
}

// foldSpill is the size in bytes of the memory for spilled values of a reducing loop. Accumulators
// occupy registers, so more values are spilled than in other loops.
const foldSpill = 64 * 64

// foldLoop turns l into a loop that reduces rows and does not store values. It does nothing if the
// loop has too many operands, or if its results are small integers.
func (pl *plan) foldLoop(l *jit.Loop) {
	if len(l.Loads)+1 > jit.MostPointers {
		return
	}
	switch pl.p.Out[0] {
	// small integers wrap after the map and before they are combined, which the loop cannot do
	case dtype.U8, dtype.I8, dtype.I16:
		return
	}
	l.Stores = nil
	l.Arena, l.Spill = len(pl.slot), pl.arena
	pl.folded = &foldedBody{loop: l}
}

// foldValue makes a loop that reduces rows, for a plan without computation.
func (pl *plan) foldValue(uniform []bool) {
	o := pl.p.Outs[0]
	if len(pl.body) > 0 || uniform[o] || pl.p.Code[o].Op != expr.OpX {
		return
	}
	load := jit.Load{Value: o, Type: pl.p.Code[o].Type, Wide: true, Reg: int(o)}
	pl.foldLoop(&jit.Loop{Name: pl.p.Name(), AVX2: avx2Only(), Code: pl.p.Code, Loads: []jit.Load{load}})
	pl.arena += foldSpill
}

// foldFor returns machine code that combines rows of n values of type t, or nil if there is none.
// The argument reads says how it loads the elements of a row.
func (pl *plan) foldFor(k device.ReduceKind, t dtype.Type, n int, reads jit.Reads) *jit.Code {
	short := t.IsFloat() && (k == device.Prod || k == device.Sum && n < 16)
	return pl.foldOf(k, t, foldKey{short: short, reads: reads})
}

// foldOf returns machine code that combines rows of values of type t as key says, or nil if there
// is none. It sets the kind of the reduction in key.
func (pl *plan) foldOf(k device.ReduceKind, t dtype.Type, key foldKey) *jit.Code {
	if pl.folded == nil || k > device.Min {
		return nil
	}
	key.kind = [...]jit.FoldKind{jit.Sum, jit.Prod, jit.Max, jit.Min}[k]
	if t == dtype.Bool {
		key.kind = [...]jit.FoldKind{jit.Max, jit.Min, jit.Max, jit.Min}[k]
	}
	if c, ok := pl.folded.codes.load(key); ok {
		return c
	}
	l := pl.folded.loop.With(key.reads)
	l.Fold = &jit.Fold{Value: pl.p.Outs[0], Kind: key.kind, Short: key.short, Columns: key.columns, Reg: len(pl.slot) + 1}
	if !l.CanFold() {
		return nil
	}
	c, err := jit.Compile(l)
	if err != nil || c.Spill() > foldSpill {
		return nil
	}
	pl.folded.codes.store(key, c)
	return c
}

// chooseFold sets the fields that make loops reduce the rows, and decides whether the loops read
// the operands in place.
func (r *reduction) chooseFold() {
	r.fold, r.inPlace, r.runs = nil, false, false
	if r.inner != 1 {
		r.chooseColumns()
		return
	}
	n := min(r.reduc, r.pl.block)
	if avx2Only() && n < shortestRow { // a loop for AVX2 would load these elements one by one
		return
	}
	if r.fold = r.pl.foldFor(r.kind, r.ct, n, jit.Reads{}); r.fold == nil {
		return
	}
	last := r.rank - 1
	r.inPlace = len(r.pl.index) == 0 && (r.rank == 1 || r.rank == 2 && r.dims[1] == r.reduc)
	var reads jit.Reads
	for i := range r.pl.folded.loop.Loads {
		x := &r.pl.folded.loop.Loads[i]
		c := r.pl.p.Code[x.Value]
		if c.Op != expr.OpX {
			continue
		}
		a := &r.ins[c.Imm]
		step := a.stride[last] / a.size
		r.inPlace = r.inPlace && (r.dims[last] == 1 || reads.Add(r.pl.folded.loop, i, step))
	}
	for i := range r.pl.loads {
		r.inPlace = r.inPlace && r.pl.loads[i].conv == nil
	}
	if r.inPlace && reads != (jit.Reads{}) {
		loop := r.pl.foldFor(r.kind, r.ct, n, reads)
		if r.inPlace = loop != nil; r.inPlace {
			r.fold = loop
		}
	}
	r.runs = !r.inPlace && r.readsRuns()
}

// readsRuns reports whether a block is a run: elements along the innermost dimension that are
// neighbours in all operands.
func (r *reduction) readsRuns() bool {
	pl, last := r.pl, r.rank-1
	if n := r.dims[last]; r.rank == 1 || n < pl.block/4 || n > pl.block || len(pl.index) > 0 {
		return false
	}
	for i := range pl.loads {
		if pl.loads[i].conv != nil {
			return false
		}
	}
	for i, l := range pl.folded.loop.Loads {
		if pl.p.Code[l.Value].Op != expr.OpX {
			return false // a kernel, and not the loop, computes this value
		}
		if a := r.loaded(pl.folded.loop, i); a.inner != a.size {
			return false
		}
	}
	return true
}

// foldRuns reduces rows that are runs along the innermost dimension. The loop reads the operands in
// place. The first run begins at the coordinates c, and the results are stored at the address to.
func (r *reduction) foldRuns(w *runner, c *cursor, runs int, to unsafe.Pointer) {
	l := r.pl.folded.loop
	w.strides = w.strides[:0]
	for i := range l.Loads {
		a := r.loaded(l, i)
		w.reg[l.Loads[i].Reg] = unsafe.Add(a.base, a.offset(c, r.rank))
		w.strides = append(w.strides, a.stride[r.rank-2])
	}
	w.strides = append(w.strides, r.size)
	w.reg[len(w.reg)-1] = to
	r.fold.Run(w.reg, w.strides, r.dims[r.rank-1], runs)
}

// foldUnit returns how many elements one call of a loop may reduce. Go cannot preempt the goroutine
// during a call, so a long program gets fewer elements.
func (pl *plan) foldUnit() int { return unitOfAProgram / max(1, len(pl.folded.loop.Steps)) }

// foldRows reduces rows of n values each, the first of which begins at element p. It stores the
// results at the address results. If the operands are not read in place, all rows together have at
// most as many elements as a block.
func (r *reduction) foldRows(w *runner, p, n, rows int, results unsafe.Pointer) {
	if !r.inPlace {
		r.load(w, p, n*rows)
	}
	l := r.pl.folded.loop
	w.strides = w.strides[:0]
	for i := range l.Loads {
		v := l.Loads[i].Value
		c := r.pl.p.Code[v]
		size := width(c.Type)
		switch {
		case c.Op == expr.OpX && r.inPlace:
			a := &r.ins[c.Imm]
			between := a.stride[r.rank-1]
			at := p * between
			step := n * between
			if r.rank == 2 {
				row := p / r.reduc
				at = row*a.stride[0] + (p-row*r.reduc)*between
				if n == r.reduc {
					step = a.stride[0]
				}
			}
			w.reg[v] = unsafe.Add(a.base, at)
			w.strides = append(w.strides, step)
			continue
		case c.Op == expr.OpX && r.pl.fused != nil:
			size = r.ins[c.Imm].size
		}
		w.strides = append(w.strides, n*size)
	}
	w.strides = append(w.strides, r.size)
	w.reg[len(w.reg)-1] = results
	r.fold.Run(w.reg, w.strides, n, rows)
}

// foldRow reduces a part of a row with a loop: n elements from element p on. Like reduction.row, it
// stores the result in acc.
func (r *reduction) foldRow(w *runner, acc *accumulator, p, n, to int) {
	c, blk := &acc.cascade, r.pl.block
	c.n = 0
	for i := 0; i < n; {
		m, blocks := r.clipToRun(p+i, min(blk, n-i)), 1
		if r.inPlace {
			m = min(blk, n-i)
			blocks = min(len(acc.folded), (n-i)/m, max(1, r.pl.foldUnit()/m))
		}
		if r.runs && m == r.dims[r.rank-1] {
			at := r.locate(p + i)
			blocks = min(len(acc.folded), (n-i)/m, r.dims[r.rank-2]-at[r.rank-2], max(1, r.pl.foldUnit()/m))
			r.foldRuns(w, &at, blocks, unsafe.Pointer(&acc.folded))
		} else {
			r.foldRows(w, p+i, m, blocks, unsafe.Pointer(&acc.folded))
		}
		for k := range blocks {
			c.push(r, readBits(unsafe.Add(unsafe.Pointer(&acc.folded), k*r.size), r.size))
		}
		i += m * blocks
	}
	writeBits(r.value(to), r.size, c.total(r))
}

// foldSegments reduces neighbouring segments of one row in place: the units from number u on, up to
// at most hi-1. It calls the loop once for all of them. It returns the number of segments that it
// reduced, which is 0 if the loop cannot reduce segments.
func (r *reduction) foldSegments(w *runner, acc *accumulator, u, hi int) int {
	blk := r.pl.block
	blocks := rowSegment / blk // of a unit
	if r.inner != 1 || r.fold == nil || !r.inPlace || r.rows != rowSegment || blocks&(blocks-1) != 0 || blocks*blk != rowSegment {
		return 0
	}
	chunk, k := u%r.chunks, u/r.chunks
	n := min(hi-u, r.reduc/rowSegment-chunk, len(acc.folded)/blocks, r.pl.foldUnit()/rowSegment)
	if n < 1 {
		return 0
	}
	r.foldRows(w, k*r.reduc+chunk*rowSegment, blk, n*blocks, unsafe.Pointer(&acc.folded))
	for i := range n {
		v := unsafe.Add(unsafe.Pointer(&acc.folded), i*blocks*r.size)
		writeBits(r.value((chunk+i)*r.outer+k), r.size, r.pairwise(&acc.cascade, v, blocks))
	}
	return n
}

// pairwise combines n values, a power of two, as a cascade does. It may overwrite them.
func (r *reduction) pairwise(c *cascade, p unsafe.Pointer, n int) uint64 {
	switch {
	case r.kind == device.Sum && r.ct == dtype.F32:
		v := at[float32](p, n)
		for n > 1 {
			n /= 2
			for i := range n {
				v[i] = v[2*i] + v[2*i+1]
			}
		}
		return uint64(math.Float32bits(v[0]))
	case r.kind >= device.Max || !r.ct.IsFloat(): // the order does not matter
		for n > 1 {
			n /= 2
			q := unsafe.Add(p, n*r.size)
			r.combine(p, p, q, q, n)
		}
		return readBits(p, r.size)
	}
	c.n = 0
	for i := range n {
		c.push(r, readBits(unsafe.Add(p, i*r.size), r.size))
	}
	return c.total(r)
}
