package cpu

import (
	"slices"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/expr"
)

// If a loop can read the operands in place, a reduction of columns runs as one loop. The loop goes
// down the rows, for one vector of columns at a time, and stores neither values nor partial sums in
// memory. It adds in the same order as [reduction.tile].

// chooseColumns sets the fields that make a loop reduce the columns, if that is possible.
func (r *reduction) chooseColumns() {
	pl, last := r.pl, r.rank-1
	if r.arg || pl.folded == nil || len(pl.body) == 0 || len(pl.index) > 0 || r.inner < shortestRow ||
		r.rank < 2 || r.dims[last] != r.inner || r.dims[last-1] != r.reduc {
		return
	}
	for i := range pl.loads {
		if pl.loads[i].conv != nil {
			return
		}
	}
	once := uint64(0)
	for i, l := range pl.folded.loop.Loads {
		if pl.p.Code[l.Value].Op != expr.OpX {
			return // a kernel, and not the loop, computes this value
		}
		switch a := r.loaded(pl.folded.loop, i); a.inner {
		case a.size:
		case 0:
			once |= 1 << i
		default:
			return
		}
	}
	r.fold = pl.foldOf(r.kind, r.ct, foldKey{reads: jit.Reads{Once: once}, columns: true})
}

// foldTile stores the sum of n rows of a tile in acc.sum, as a wide row. A wide row consists of
// rows of partial sums next to each other; their number is the argument per. The tile begins at row
// firstRow of group k, and at column c0.
func (r *reduction) foldTile(w *runner, acc *accumulator, k, c0, cols, firstRow, n, per int) {
	sum, run := unsafe.Pointer(&acc.sum), unsafe.Pointer(&acc.run)
	t := columnTile{reduction: r, w: w, c0: c0, cols: cols, per: per}
	for d := r.rank - 3; d >= 0; d-- {
		t.place[d], k = k%r.dims[d], k/r.dims[d]
	}
	for i := 0; i < n; {
		depth, rest := min(runRows, (n-i)/per), 0
		if depth < runRows { // rest is the number of rows in the last, incomplete wide row
			rest = n - i - depth*per
		}
		to := run
		if i == 0 {
			to = sum
		}
		t.fold(firstRow+i, rest, depth+1, to)
		if depth > 0 {
			t.fold(firstRow+i+rest, per-rest, depth, unsafe.Add(to, rest*cols*r.size))
		}
		if m := per; i > 0 {
			if depth == 0 {
				m = rest
			}
			r.combine(sum, sum, run, run, m*cols)
		}
		i += depth*per + rest
	}
}

// columnTile is a tile of columns that a loop reduces.
type columnTile struct {
	*reduction
	w             *runner
	place         cursor
	c0, cols, per int
}

// fold computes the given number of rows of results. Row i of the results is the sum of depth rows
// of the tile: row+i, row+i+per, row+i+2·per, and so on.
func (t *columnTile) fold(row, rows, depth int, results unsafe.Pointer) {
	in, l, w := t.rank-2, t.pl.folded.loop, t.w
	most := max(1, t.pl.foldUnit()/(t.cols*depth))
	for rows > 0 {
		w.strides = slices.Grow(w.strides[:0], 3*len(l.Loads)+4)
		t.place[in], t.place[in+1] = row, t.c0
		for i := range l.Loads {
			a := t.loaded(l, i)
			w.reg[l.Loads[i].Reg] = unsafe.Add(a.base, a.offset(&t.place, t.rank))
			w.strides = append(w.strides, a.stride[in])
		}
		w.strides = append(w.strides, t.cols*t.size)
		for i := range l.Loads {
			w.strides = append(w.strides, t.per*t.loaded(l, i).stride[in])
		}
		w.strides = append(w.strides, 0)
		w.reg[len(w.reg)-1] = results
		t.reduction.fold.RunColumns(w.reg, w.strides, t.cols, min(rows, most), depth)
		if rows -= most; rows <= 0 {
			break // there is no next row, and a pointer to it would be outside the memory
		}
		row += most
		results = unsafe.Add(results, most*t.cols*t.size)
	}
}
