package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// blendTask runs a Blend.
type blendTask struct {
	*device.Blend
	to, of, inner int // sizes of the axis in the result and in the operand, and elements of a row
	// number of rows that a formula computes together; all are at the same position along the axis
	group int
	tap   [2]blendTap
	taps  []blendTap // a part of tap
	parts int        // number of parts of a line, or of a row if rows have several elements
	// function that computes units of short rows; nil if rows are long
	direct func(t *blendTask, lo, hi int)
}

type blendTap struct {
	index  []int64
	weight unsafe.Pointer // nil if there is no weight
	// first[p] is the first position j with index[j] ≥ p. It is for gradients only.
	first []int
}

const (
	blendRows     = 4096 // approximate number of elements that a formula computes in one call
	blendPart     = 2048 // number of elements in a part of a line
	linesTogether = 4
)

// blendTasks keeps used tasks for reuse.
var blendTasks = sync.Pool{New: func() any { return new(blendTask) }}

// recycle keeps t for reuse, without the memory of tensors.
func (t *blendTask) recycle() {
	t.Blend = nil
	for k := range t.tap {
		t.tap[k] = blendTap{first: t.tap[k].first[:0]}
	}
	blendTasks.Put(t)
}

// blend runs o. If an index is outside the axis, it returns an error and computes nothing.
func (d *Device) blend(o *device.Blend) error {
	if o.Out.Size() == 0 {
		return nil
	}
	n, m := o.Axes()
	t := blendTasks.Get().(*blendTask)
	defer t.recycle()
	t.Blend, t.to, t.of, t.inner = o, o.Out.Shape.At(1), o.X.Shape.At(1), o.Out.Shape.At(2)
	switch single := o.X.Type == dtype.F32; {
	case t.inner >= shortestRow:
		t.direct = nil
	case t.inner == 1 && single:
		t.direct = blendLines[float32]
	case t.inner == 1:
		t.direct = blendLines[float64]
	case single:
		t.direct = blendShort[float32]
	default:
		t.direct = blendShort[float64]
	}
	t.taps = t.tap[:o.Index.Shape.At(0)]
	for k := range t.taps {
		tap := &t.taps[k]
		tap.index = at[int64](unsafe.Add(pointer(&o.Index), 8*k*m), m)
		if !o.Weight.Absent() {
			tap.weight = unsafe.Add(pointer(&o.Weight), k*m*o.X.Type.Size())
		}
		for j, p := range tap.index {
			if uint64(p) >= uint64(n) || o.Back && int(p) < len(tap.first)-1 {
				return &device.IndexError{Index: p, Bound: int64(n), Position: int64(k*m + j)}
			}
			for o.Back && len(tap.first) <= int(p) {
				tap.first = append(tap.first, j)
			}
		}
		for o.Back && len(tap.first) <= n {
			tap.first = append(tap.first, m)
		}
	}
	outer := o.Out.Shape.At(0)
	if t.inner == 1 {
		t.parts = (t.to-1)/blendPart + 1
		d.workers.parallel((outer-1)/linesTogether*t.parts+t.parts, max(1, inlineWork/16/min(t.to, blendPart)), t)
		return nil
	}
	if t.group, t.parts = 1, 1; t.direct == nil {
		t.group, t.parts = min(outer, max(1, blendRows/t.inner)), (t.inner-1)/blendRows+1
	}
	groups := (outer-1)/t.group + 1
	d.workers.parallel(groups*t.to*t.parts, max(1, inlineWork/4/(t.group*min(t.inner, blendRows))), t)
	return nil
}

// run computes units lo to hi-1. If rows have one element, a unit is the same part of several lines
// along the axis. Otherwise a unit is the same part of the rows of a group, for one position of the
// axis.
func (t *blendTask) run(lo, hi int) {
	if t.direct != nil {
		t.direct(t, lo, hi)
		return
	}
	w := newRowWorker(t.X.Type, min(t.inner, blendRows), t.group)
	defer w.release()
	for u := lo; u < hi; u++ {
		q := u / t.parts
		g := blendGroup{outer: q / t.to * t.group, column: u % t.parts * blendRows}
		g.n, w.cols = min(t.group, t.Out.Shape.At(0)-g.outer), min(t.inner-g.column, blendRows)
		if t.Back {
			t.gradient(w, g, q%t.to)
		} else {
			t.blend(w, g, q%t.to)
		}
	}
}

// blendGroup selects the same part of n rows. The rows have the same position of the axis, and the
// indices outer to outer+n-1 in the first dimension. The part begins at column.
type blendGroup struct{ outer, n, column int }

// row returns the group's rows in view v, at position p of the axis. The axis of v has the given
// size.
func (t *blendTask) row(w *rowWorker, v *device.View, g blendGroup, size, p int) rowOperand {
	first := (g.outer*size+p)*t.inner + g.column
	return rowOperand{unsafe.Add(pointer(v), first*w.size), w.t, size * t.inner * w.size, w.size}
}

// term appends row p of X to the operands of a formula, and its weight if there is one.
func (t *blendTask) term(w *rowWorker, list []rowOperand, tap *blendTap, g blendGroup, p, j int) []rowOperand {
	list = append(list, t.row(w, &t.X, g, t.of, p))
	if tap.weight != nil {
		list = append(list, rowOperand{unsafe.Add(tap.weight, j*w.size), w.t, 0, 0})
	}
	return list
}

// blend computes rows for position j of the result.
func (t *blendTask) blend(w *rowWorker, g blendGroup, j int) {
	var space [maxOperands]rowOperand
	terms := space[:0]
	for k := range t.taps {
		terms = t.term(w, terms, &t.taps[k], g, int(t.taps[k].index[j]), j)
	}
	w.compute(blendFormulas[len(terms)], g.n, t.row(w, &t.Out, g, t.to, j), terms...)
}

// gradient computes rows for position p of the result.
func (t *blendTask) gradient(w *rowWorker, g blendGroup, p int) {
	out, begun := t.row(w, &t.Out, g, t.to, p), false
	for k := range t.taps {
		tap := &t.taps[k]
		j, end := tap.first[p], tap.first[p+1]
		if j == end { // the sum is +0; adding it changes no sum, because none is -0
			continue
		}
		to, form := out, beginSum
		switch {
		case begun && end-j <= mostTerms:
			form = addSum
		case begun:
			to = w.matrix(data(w.space[0]))
		}
		for ; j < end; form = continueSum {
			var space [maxOperands]rowOperand
			terms := space[:0]
			if form != beginSum {
				terms = append(terms, to)
			}
			c := min(mostTerms, end-j)
			for range c {
				terms = t.term(w, terms, tap, g, j, j)
				j++
			}
			weighted := 0
			if tap.weight != nil {
				weighted = 1
			}
			w.compute(sumFormulas[form][weighted][c-1], g.n, to, terms...)
		}
		if to != out {
			w.compute(plus, g.n, out, out, to)
		}
		begun = true
	}
	for i := 0; i < g.n && !begun; i++ {
		clear(at8(unsafe.Add(out.p, i*out.row), w.cols*w.size))
	}
}

// blendFormulas are the formulas of blends, by their number of operands: a row, a row and its
// weight, or two rows and their weights.
var blendFormulas = [5]*formula{1: same, 2: times, 4: {e: expr.X(0).Mul(expr.X(1)).Add(expr.X(2).Mul(expr.X(3)))}}

// mostTerms is the greatest number of terms of a gradient's sum that one formula adds.
const mostTerms = 3

// A gradient's sum is computed by formulas of these forms. In continueSum and addSum, X(0) is the
// sum so far, and the other operands are rows. In beginSum, all operands are rows. If there are
// weights, each row is followed by its weight.
const (
	beginSum    = iota // a sum that begins with 0
	continueSum        // X(0) plus terms, added one after the other
	addSum             // X(0) plus a sum that begins with 0
)

// sumFormulas holds the formulas by their form, by whether there are weights, and by the number of
// terms less 1.
var sumFormulas = func() (list [3][2][mostTerms]*formula) {
	for form := range list {
		for weighted := range 2 {
			sum, next := expr.C(0), 0
			operand := func() *expr.Expr {
				next++
				return expr.X(next - 1)
			}
			if form != beginSum {
				old := operand()
				if form == continueSum {
					sum = old
				}
			}
			for c := range mostTerms {
				term := operand()
				if weighted == 1 {
					term = term.Mul(operand())
				}
				sum = sum.Add(term)
				if e := sum; form == addSum {
					list[form][weighted][c] = &formula{e: expr.X(0).Add(e)}
				} else {
					list[form][weighted][c] = &formula{e: e}
				}
			}
		}
	}
	return list
}()

// plus adds two rows.
var plus = &formula{e: expr.X(0).Add(expr.X(1))}

// blendLines computes units lo to hi-1. It requires that rows have one element.
func blendLines[K float32 | float64](t *blendTask, lo, hi int) {
	lines := t.Out.Shape.At(0)
	x, out := at[K](pointer(&t.X), lines*t.of), at[K](pointer(&t.Out), lines*t.to)
	var w [2][]K
	for k := range t.taps {
		if tap := &t.taps[k]; tap.weight != nil {
			w[k] = at[K](tap.weight, len(tap.index))
		}
	}
	var spare []K
	for u := lo; u < hi; u++ {
		start := u % t.parts * blendPart
		end := min(t.to, start+blendPart)
		var from, to [linesTogether][]K
		for r := range from {
			if l := u/t.parts*linesTogether + r; l < lines {
				from[r], to[r] = x[l*t.of:][:t.of], out[l*t.to:][start:end]
				continue
			}
			if spare == nil { // compute a line again
				spare = make([]K, blendPart)
			}
			from[r], to[r] = from[0], spare[:end-start]
		}
		switch {
		case t.Back:
			for k := range t.taps {
				sumLines(&to, &from, w[k], t.taps[k].first[start:end+1], k > 0)
			}
		case len(t.taps) == 2:
			mixLines(&to, &from, t.taps[0].index[start:end], t.taps[1].index[start:end], w[0][start:end], w[1][start:end])
		default:
			for r := range to {
				for i, j := range t.taps[0].index[start:end] {
					if to[r][i] = from[r][j]; w[0] != nil {
						to[r][i] *= w[0][start+i]
					}
				}
			}
		}
	}
}

// mixLines sets each result to the sum of two elements of a line, each multiplied by its weight.
func mixLines[K float32 | float64](to, from *[linesTogether][]K, first, second []int64, u, v []K) {
	a := from[0]
	b, c, d := from[1][:len(a)], from[2][:len(a)], from[3][:len(a)]
	n := len(first)
	p, q, r, s := to[0][:n], to[1][:n], to[2][:n], to[3][:n]
	second, u, v = second[:n], u[:n], v[:n]
	for i, j := range first {
		k, u, v := second[i], u[i], v[i]
		p[i] = K(a[j]*u) + K(a[k]*v)
		q[i] = K(b[j]*u) + K(b[k]*v)
		r[i] = K(c[j]*u) + K(c[k]*v)
		s[i] = K(d[j]*u) + K(d[k]*v)
	}
}

// sumLines stores the sums of parts of lines, or adds them to the results. Part i consists of
// elements first[i] to first[i+1]-1. If there are weights, the elements are multiplied by them.
func sumLines[K float32 | float64](to, from *[linesTogether][]K, w []K, first []int, add bool) {
	a := from[0]
	b, c, d := from[1][:len(a)], from[2][:len(a)], from[3][:len(a)]
	j := first[0]
	for i, end := range first[1:] {
		var p, q, r, s K
		if w == nil {
			for ; j < end; j++ {
				p, q, r, s = p+a[j], q+b[j], r+c[j], s+d[j]
			}
		} else {
			for ; j < end; j++ {
				v := w[j]
				p, q, r, s = p+K(a[j]*v), q+K(b[j]*v), r+K(c[j]*v), s+K(d[j]*v)
			}
		}
		if add {
			p, q, r, s = to[0][i]+p, to[1][i]+q, to[2][i]+r, to[3][i]+s
		}
		to[0][i], to[1][i], to[2][i], to[3][i] = p, q, r, s
	}
}

// blendShort computes units lo to hi-1, which are rows of a few elements.
func blendShort[K float32 | float64](t *blendTask, lo, hi int) {
	lines, n := t.Out.Shape.At(0), t.inner
	x, out := at[K](pointer(&t.X), lines*t.of*n), at[K](pointer(&t.Out), lines*t.to*n)
	for u := lo; u < hi; u++ {
		from, to, p := x[u/t.to*t.of*n:], out[u*n:][:n], u%t.to
		for k := range t.taps {
			tap := &t.taps[k]
			for i := range to {
				var sum K
				if !t.Back {
					sum = weighed(from, tap, int(tap.index[p])*n+i, p)
				} else {
					for j := tap.first[p]; j < tap.first[p+1]; j++ {
						sum += weighed(from, tap, j*n+i, j)
					}
				}
				if k > 0 {
					sum = to[i] + sum
				}
				to[i] = sum
			}
		}
	}
}

// weighed returns element i of x, multiplied by weight j if there is one.
func weighed[K float32 | float64](x []K, tap *blendTap, i, j int) K {
	if tap.weight == nil {
		return x[i]
	}
	return K(x[i] * at[K](tap.weight, len(tap.index))[j])
}
