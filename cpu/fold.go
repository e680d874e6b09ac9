package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// combiner returns the kernel that combines two blocks of values, element by element. For truth
// values the sum is "or" and the product is "and".
func combiner(k device.ReduceKind, t dtype.Type) kernel {
	op := [...]expr.Op{expr.OpAdd, expr.OpMul, expr.OpMax, expr.OpMin, expr.OpMax, expr.OpMin}[k]
	if t == dtype.Bool {
		op = [...]expr.Op{expr.OpOr, expr.OpAnd, expr.OpOr, expr.OpAnd, expr.OpOr, expr.OpAnd}[k]
	}
	return ops[op][t]
}

type number interface {
	int32 | int64 | uint32 | uint64 | float32 | float64
}

// fold combines n ≥ 1 values and returns the bits of the result. The order in which it combines
// them depends only on n.
func fold(t dtype.Type, k device.ReduceKind, p unsafe.Pointer, n int) uint64 {
	switch t {
	case dtype.F32:
		return uint64(math.Float32bits(foldFloat(k, at[float32](p, n), asm.SumF32, asm.ReduceMaxF32, asm.ReduceMinF32)))
	case dtype.F64:
		return math.Float64bits(foldFloat(k, at[float64](p, n), asm.SumF64, asm.ReduceMaxF64, asm.ReduceMinF64))
	case dtype.I32:
		return uint64(uint32(foldAs(k, at[int32](p, n))))
	case dtype.I64:
		return uint64(foldAs(k, at[int64](p, n)))
	case dtype.U64:
		return foldAs(k, at[uint64](p, n))
	case dtype.Bool:
		if k == device.Sum {
			k = device.Max
		} else if k == device.Prod {
			k = device.Min
		}
	}
	return uint64(foldAs(k, at[uint32](p, n)))
}

func foldFloat[T float32 | float64](k device.ReduceKind, x []T, sum, most, least func([]T) T) T {
	if len(x) < 16 || k == device.Prod {
		return foldAs(k, x)
	}
	switch k {
	case device.Sum:
		return sum(x)
	case device.Max:
		return most(x)
	}
	return least(x)
}

func foldAs[T number](k device.ReduceKind, x []T) T {
	switch k {
	case device.Max:
		r := x[0]
		for _, v := range x[1:] {
			r = max(r, v)
		}
		return r
	case device.Min:
		r := x[0]
		for _, v := range x[1:] {
			r = min(r, v)
		}
		return r
	case device.Prod:
		lane := [8]T{1, 1, 1, 1, 1, 1, 1, 1}
		for ; len(x) >= 8; x = x[8:] {
			for i, v := range x[:8] {
				lane[i] *= v
			}
		}
		for i, v := range x {
			lane[i] *= v
		}
		return ((lane[0] * lane[4]) * (lane[2] * lane[6])) * ((lane[1] * lane[5]) * (lane[3] * lane[7]))
	}
	var lane [8]T
	for ; len(x) >= 8; x = x[8:] {
		for i, v := range x[:8] {
			lane[i] += v
		}
	}
	for i, v := range x {
		lane[i] += v
	}
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))
}

// sumShortRows sums rows of two to four elements, in the order of [foldAs]. It returns false for
// rows of other lengths.
func sumShortRows(sums, x []float32, n int) bool {
	switch n {
	case 2:
		for i := range sums {
			v := x[2*i : 2*i+2]
			sums[i] = v[0] + v[1]
		}
	case 3:
		for i := range sums {
			v := x[3*i : 3*i+3]
			sums[i] = v[0] + v[2] + v[1]
		}
	case 4:
		for i := range sums {
			v := x[4*i : 4*i+4]
			sums[i] = v[0] + v[2] + (v[1] + v[3])
		}
	default:
		return false
	}
	return true
}

// foldArg returns the extreme value of n ≥ 1 values and its first position. If there is a NaN, the
// first NaN counts as the extreme value.
func foldArg(t dtype.Type, k device.ReduceKind, p unsafe.Pointer, n int) (uint64, int) {
	switch t {
	case dtype.F32:
		x := at[float32](p, n)
		i := argFloat(k, x, asm.ReduceMaxF32, asm.ReduceMinF32)
		return uint64(math.Float32bits(x[i])), i
	case dtype.F64:
		x := at[float64](p, n)
		i := argFloat(k, x, asm.ReduceMaxF64, asm.ReduceMinF64)
		return math.Float64bits(x[i]), i
	case dtype.I32:
		x := at[int32](p, n)
		i := argOf(k, x)
		return uint64(uint32(x[i])), i
	case dtype.I64:
		x := at[int64](p, n)
		i := argOf(k, x)
		return uint64(x[i]), i
	case dtype.U64:
		x := at[uint64](p, n)
		i := argOf(k, x)
		return x[i], i
	}
	x := at[uint32](p, n)
	i := argOf(k, x)
	return uint64(x[i]), i
}

func argFloat[T float32 | float64](k device.ReduceKind, x []T, most, least func([]T) T) int {
	if len(x) < 16 {
		return argOf(k, x)
	}
	var m T
	if k == device.ArgMax {
		m = most(x)
	} else {
		m = least(x)
	}
	if m != m {
		for i, v := range x {
			if v != v {
				return i
			}
		}
	}
	for i, v := range x {
		if v == m {
			return i
		}
	}
	return 0
}

func argOf[T number](k device.ReduceKind, x []T) int {
	best := 0
	for i, v := range x {
		if better(k, v, x[best]) {
			best = i
		}
	}
	return best
}

// better reports whether the value v replaces the best value so far, which has a lower position.
func better[T number](k device.ReduceKind, v, best T) bool {
	if best != best {
		return false
	}
	if k == device.ArgMax {
		return v > best || v != v
	}
	return v < best || v != v
}

// beats does what better does, for values that are given as bits of type t.
func beats(t dtype.Type, k device.ReduceKind, v, best uint64) bool {
	switch t {
	case dtype.F32:
		return better(k, math.Float32frombits(uint32(v)), math.Float32frombits(uint32(best)))
	case dtype.F64:
		return better(k, math.Float64frombits(v), math.Float64frombits(best))
	case dtype.I32:
		return better(k, int32(v), int32(best))
	case dtype.I64:
		return better(k, int64(v), int64(best))
	}
	return better(k, v, best)
}

// joinArg compares two lists of values with positions, pair by pair. It stores the better value of
// each pair in a, and its position in pa. The positions in pa are lower than those in pb.
func joinArg(t dtype.Type, k device.ReduceKind, a, b unsafe.Pointer, pa, pb []int64) {
	n := len(pa)
	switch t {
	case dtype.F32:
		joinArgAs(k, at[float32](a, n), at[float32](b, n), pa, pb)
	case dtype.F64:
		joinArgAs(k, at[float64](a, n), at[float64](b, n), pa, pb)
	case dtype.I32:
		joinArgAs(k, at[int32](a, n), at[int32](b, n), pa, pb)
	case dtype.I64:
		joinArgAs(k, at[int64](a, n), at[int64](b, n), pa, pb)
	case dtype.U64:
		joinArgAs(k, at[uint64](a, n), at[uint64](b, n), pa, pb)
	default:
		joinArgAs(k, at[uint32](a, n), at[uint32](b, n), pa, pb)
	}
}

func joinArgAs[T number](k device.ReduceKind, a, b []T, pa, pb []int64) {
	for i, v := range b {
		if better(k, v, a[i]) {
			a[i], pa[i] = v, pb[i]
		}
	}
}

// updateArg compares n values at position pos with the best values so far. It stores the better
// value of each pair in best, and its position in at0.
func updateArg(t dtype.Type, k device.ReduceKind, best, v unsafe.Pointer, at0 []int64, pos int64) {
	n := len(at0)
	switch t {
	case dtype.F32:
		updateArgAs(k, at[float32](best, n), at[float32](v, n), at0, pos)
	case dtype.F64:
		updateArgAs(k, at[float64](best, n), at[float64](v, n), at0, pos)
	case dtype.I32:
		updateArgAs(k, at[int32](best, n), at[int32](v, n), at0, pos)
	case dtype.I64:
		updateArgAs(k, at[int64](best, n), at[int64](v, n), at0, pos)
	case dtype.U64:
		updateArgAs(k, at[uint64](best, n), at[uint64](v, n), at0, pos)
	default:
		updateArgAs(k, at[uint32](best, n), at[uint32](v, n), at0, pos)
	}
}

func updateArgAs[T number](k device.ReduceKind, best, v []T, at []int64, pos int64) {
	for i, x := range v {
		if better(k, x, best[i]) {
			best[i], at[i] = x, pos
		}
	}
}

// accumulator is memory in which a worker combines blocks of values.
type accumulator struct {
	run, sum [maxBlock]uint64
	pos      [maxBlock]int64
	at, row  [maxBlock]uint32
	keep     [maxBlock]uint32
	cascade  cascade
	folded   [256]uint64 // results of a loop as bits, one for each block
}

var accumulators = sync.Pool{New: func() any { return new(accumulator) }}

// tile combines n rows of a tile of columns, from row startRow on. A row has the elements at one
// position of the reduced dimensions.
func (r *reduction) tile(w *runner, acc *accumulator, k, tile, chunk, startRow, n int) {
	c0 := tile * r.cols
	cols := min(r.cols, r.inner-c0)
	to := (chunk*r.outer+k)*r.inner + c0
	at := func(row int) int { return (k*r.reduc+row)*r.inner + c0 }
	sum := unsafe.Pointer(&acc.sum)
	if r.arg {
		pos := acc.pos[:cols]
		if r.size == 4 && r.argWords(w, acc, at, startRow, n, cols) {
			for c := range pos {
				pos[c] = int64(acc.at[c])
			}
			copy(r.part[to*r.size:], at8(sum, cols*r.size))
			copy(r.pos[to:], pos)
			return
		}
		for i := range n {
			v := r.evaluate(w, at(startRow+i), cols)
			if i == 0 {
				copy(at8(sum, cols*r.size), at8(v, cols*r.size))
				for c := range pos {
					pos[c] = int64(startRow)
				}
				continue
			}
			updateArg(r.ct, r.kind, sum, v, pos, int64(startRow+i))
		}
		copy(r.part[to*r.size:], at8(sum, cols*r.size))
		copy(r.pos[to:], pos)
		return
	}
	// If rows are narrow, a block holds several rows, which are added like one wide row. The
	// variable per is the number of rows in a block.
	per := 1
	if r.tiles == 1 {
		per = max(1, min(r.pl.block/cols, n))
	}
	if r.fold != nil {
		r.foldTile(w, acc, k, c0, cols, startRow, n, per)
	} else {
		r.addTile(w, acc, at, cols, startRow, n, per)
	}
	for per > 1 { // add the upper half of the wide row to its lower half, repeatedly
		half := (per + 1) / 2
		r.combine(sum, sum, unsafe.Add(sum, half*cols*r.size), sum, (per-half)*cols)
		per = half
	}
	copy(r.part[to*r.size:], at8(sum, cols*r.size))
}

// addTile stores the sum of n rows of a tile in acc.sum. The result is a wide row: rows of partial
// sums next to each other. The argument per is the number of these rows.
func (r *reduction) addTile(w *runner, acc *accumulator, at func(int) int, cols, from, n, per int) {
	sum, run := unsafe.Pointer(&acc.sum), unsafe.Pointer(&acc.run)
	wide := per * cols
	have := 0 // number of wide rows that are summed in acc.run
	sums := 0 // number of sums that were already moved from acc.run to acc.sum
	for i := 0; i < n; i += per {
		m := min(per, n-i) * cols
		v := r.evaluate(w, at(from+i), m)
		switch {
		case have == 0 && m == wide:
			copy(at8(run, wide*r.size), at8(v, wide*r.size))
			have = 1
		case have == 0: // add the last, incomplete wide row directly to the sum
			r.combine(sum, sum, v, v, m)
			continue
		default:
			r.combine(run, run, v, v, m)
			have++
		}
		if have == runRows || i+per >= n {
			if sums == 0 {
				copy(at8(sum, wide*r.size), at8(run, wide*r.size))
			} else {
				r.combine(sum, sum, run, run, wide)
			}
			sums, have = sums+1, 0
		}
	}
}

// argWords finds the extremes of a tile of 32-bit values with operations on whole blocks. It stores
// the values in acc.sum and their positions in acc.at. It returns false if there is a NaN, because
// these operations cannot find the first NaN.
func (r *reduction) argWords(w *runner, acc *accumulator, at0 func(int) int, from, n, cols int) bool {
	best, keep := unsafe.Pointer(&acc.sum), unsafe.Pointer(&acc.keep)
	pos, row := acc.at[:cols], acc.row[:cols]
	// holds computes where the best value stays: best ≥ v for a maximum, best ≤ v for a minimum
	holds := ops[expr.OpGe][r.ct]
	if r.ct == dtype.Bool {
		holds = ops[expr.OpGe][dtype.U32]
	}
	if r.kind == device.ArgMin {
		holds = ops[expr.OpLe][r.ct]
		if r.ct == dtype.Bool {
			holds = ops[expr.OpLe][dtype.U32]
		}
	}
	for i := range n {
		v := r.evaluate(w, at0(from+i), cols)
		if i == 0 {
			copy(at8(best, cols*4), at8(v, cols*4))
			asm.FillU32(pos, uint32(from))
			continue
		}
		holds(keep, best, v, v, cols)
		asm.FillU32(row, uint32(from+i))
		asm.SelectU32(pos, acc.keep[:cols], pos, row)
		r.combine(best, best, v, v, cols)
	}
	if r.ct == dtype.F32 {
		for _, v := range at[float32](best, cols) {
			if v != v {
				return false
			}
		}
	}
	return true
}
