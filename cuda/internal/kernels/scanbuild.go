package kernels

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// scanOperand holds an operand's pointer and strides.
type scanOperand struct {
	t      dtype.Type
	p      ptx.Ptr
	stride [3]ptx.Value
}

func (s scanSpec) declare(b *ptx.Builder, name string, t dtype.Type) scanOperand {
	o := scanOperand{t: t, p: b.Pointer(name, storage(t))}
	for d := range o.stride {
		o.stride[d] = b.Param(fmt.Sprintf("%ss%d", name, d), ptx.S64)
	}
	return o
}

// scanWork is the state of scanSpec.build while it emits the code of a kernel. Its pointers point
// to the thread's column.
type scanWork struct {
	*ptx.Builder
	scanSpec
	n   ptx.Value
	acc ptx.Type
	out scanOperand
	ins []scanOperand
	// these fields are used only if columns are scanned in segments
	perSegment, segments, segment ptx.Value
	totals                        []ptx.Ptr // totals of the segments of this column
}

// positions reports whether the scan stores the positions of elements in addition to their values.
func (s scanSpec) positions() bool { return s.kind == device.ScanMax || s.kind == device.ScanMin }

// accumulator returns the type in which values are combined.
func (s scanSpec) accumulator() ptx.Type {
	switch {
	case s.positions() && s.typ == dtype.Bool:
		return ptx.S32
	case s.positions():
		return computing(s.typ.Compute())
	case !s.typ.IsFloat():
		return ptx.S64
	case s.typ.IsHalf() && s.kind != device.ScanLogSumExp:
		return ptx.F32
	}
	return ptx.F64
}

func (s scanSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(2)
	w := &scanWork{Builder: b, scanSpec: s, acc: s.accumulator()}
	w.n = b.Param("n", ptx.U32)
	columns, inner := b.Param("columns", ptx.U32), b.Param("inner", ptx.U32)
	w.perSegment, w.segments = b.Param("per", ptx.U32), b.Param("segments", ptx.U32)
	result := s.typ
	if s.positions() || !s.typ.IsFloat() {
		result = dtype.I64
	}
	w.out = s.declare(b, "y", result)
	w.ins = []scanOperand{s.declare(b, "x", s.typ)}
	if s.kind == device.ScanLinear {
		w.ins = append(w.ins, s.declare(b, "b", s.typ))
	}
	if s.phase != scanWhole {
		for i, v := range w.start() {
			w.totals = append(w.totals, b.Pointer(fmt.Sprintf("totals%d", i), v.Type()))
		}
	}
	var column, lane ptx.Value
	switch {
	case s.group == 1 || s.phase == scanPrefixes:
		column, lane = b.GlobalID(), b.U32(0)
	case s.phase != scanWhole:
		column, lane = b.BlockID(0).Div(w.segments), b.ThreadID(0)
		w.segment = b.BlockID(0).Sub(column.Mul(w.segments))
	case s.group == 32:
		column, lane = b.BlockID(0).Mad(num(rowThreads/32), b.WarpID()), b.LaneID()
	default:
		column, lane = b.BlockID(0), b.ThreadID(0)
	}
	b.ReturnIf(column.Ge(columns))
	outer := column.Div(inner)
	within := column.Sub(outer.Mul(inner))
	place := func(o *scanOperand) {
		o.p = o.p.At(outer.Cvt(ptx.S64).Mul(o.stride[0])).At(within.Cvt(ptx.S64).Mul(o.stride[2]))
	}
	place(&w.out)
	for i := range w.ins {
		place(&w.ins[i])
	}
	for i := range w.totals {
		w.totals[i] = w.totals[i].At(column.Mul(w.segments))
	}
	switch {
	case s.phase == scanPrefixes:
		w.prefixes()
	case s.group == 1:
		w.serial()
	default:
		w.tiles(lane)
	}
	return [3]int{rowThreads, 1, 1}
}

// pointer returns the address of element i in the order of the scan.
func (w *scanWork) pointer(o scanOperand, i ptx.Value) ptx.Ptr {
	if w.reverse {
		i = w.n.Sub(num(1)).Sub(i)
	}
	return o.p.At(i.Cvt(ptx.S64).Mul(o.stride[1]))
}

// value returns the values that the scan combines for element i. It computes them from the loaded
// values x.
func (w *scanWork) value(i ptx.Value, x []ptx.Value) []ptx.Value {
	for k := range x {
		x[k] = convert(w.Builder, x[k], w.acc)
	}
	if !w.positions() {
		return x
	}
	if w.reverse {
		i = w.n.Sub(num(1)).Sub(i)
	}
	return append(x, i)
}

// load returns the elements from element i on.
func (w *scanWork) load(i ptx.Value) [][]ptx.Value {
	parts := make([][]ptx.Value, w.perThread)
	raw := make([][]ptx.Value, len(w.ins))
	for k, o := range w.ins {
		if w.vector > 1 {
			first := i
			if w.reverse {
				first = i.Add(num(w.perThread - 1))
			}
			raw[k] = loadVector(w.Builder, w.pointer(o, first), o.t, w.perThread)
			if w.reverse {
				for a, z := 0, w.perThread-1; a < z; a, z = a+1, z-1 {
					raw[k][a], raw[k][z] = raw[k][z], raw[k][a]
				}
			}
			continue
		}
		for e := range w.perThread {
			// an index beyond the end reads the last element, whose value is not used
			p := w.pointer(o, i.Add(num(e)).Min(w.n.Sub(num(1))))
			raw[k] = append(raw[k], loadVector(w.Builder, p, o.t, 1)[0])
		}
	}
	for e := range parts {
		x := make([]ptx.Value, len(raw))
		for k := range raw {
			x[k] = raw[k][e]
		}
		parts[e] = w.value(i.Add(num(e)), x)
	}
	return parts
}

// result returns the value to store for an element of the scan.
func (w *scanWork) result(v []ptx.Value) ptx.Value {
	last := v[len(v)-1]
	if w.positions() {
		return last.Cvt(ptx.S64)
	}
	return convert(w.Builder, last, computing(w.out.t.Compute()))
}

func (w *scanWork) store(i ptx.Value, list [][]ptx.Value) {
	y := make([]ptx.Value, len(list))
	for e, v := range list {
		y[e] = w.result(v)
	}
	if w.vector > 1 {
		w.If(i.Lt(w.n), func() {
			first := i
			if w.reverse {
				first = i.Add(num(w.perThread - 1))
				for a, z := 0, w.perThread-1; a < z; a, z = a+1, z-1 {
					y[a], y[z] = y[z], y[a]
				}
			}
			storeVector(w.Builder, w.pointer(w.out, first), w.out.t, y)
		})
		return
	}
	for e := range y {
		k := i.Add(num(e))
		w.If(k.Lt(w.n), func() { storeVector(w.Builder, w.pointer(w.out, k), w.out.t, y[e:e+1]) })
	}
}

// start returns the identity element of combine.
func (w *scanWork) start() []ptx.Value {
	c := func(v float64) ptx.Value {
		if w.acc.IsFloat() {
			return w.Const(w.acc, real(v))
		}
		return w.Const(w.acc, num(int64(v)))
	}
	switch w.kind {
	case device.ScanProd:
		return []ptx.Value{c(1)}
	case device.ScanLogSumExp:
		return []ptx.Value{c(math.Inf(-1))}
	case device.ScanLinear:
		return []ptx.Value{c(1), c(0)}
	case device.ScanMax, device.ScanMin:
		least := w.Bits(w.acc, 1<<(w.acc.Bits()-1))
		if w.kind == device.ScanMin {
			least = w.Bits(w.acc, 1<<(w.acc.Bits()-1)-1)
		}
		if w.acc.IsFloat() {
			least = c(math.Inf(-1))
			if w.kind == device.ScanMin {
				least = c(math.Inf(1))
			}
		}
		return []ptx.Value{least, w.U32(0)}
	}
	return []ptx.Value{c(0)}
}

var logAddExp = map[dtype.Type]*expr.Program{}

func init() {
	t := dtype.F64
	logAddExp[t] = expr.MustLower([]*expr.Expr{expr.X(0).LogAddExp(expr.X(1))}, []dtype.Type{t}, []dtype.Type{t, t}, -1)
}

// combine combines two partial results. The elements of earlier precede the elements of later in
// the order of the scan. The operation is associative.
func (w *scanWork) combine(earlier, later []ptx.Value) []ptx.Value {
	switch w.kind {
	case device.ScanSum:
		return []ptx.Value{earlier[0].Add(later[0])}
	case device.ScanProd:
		return []ptx.Value{earlier[0].Mul(later[0])}
	case device.ScanLogSumExp:
		in := []ptx.Value{earlier[0], later[0]}
		return lower(w.Builder, logAddExp[dtype.F64], environment{x: func(i int) ptx.Value { return in[i] }})
	case device.ScanLinear:
		return []ptx.Value{earlier[0].Mul(later[0]), later[0].Mul(earlier[1]).Add(later[1])}
	}
	take := later[0].Ge(earlier[0])
	if w.kind == device.ScanMin {
		take = later[0].Le(earlier[0])
	}
	if w.acc.IsFloat() {
		take = take.Or(later[0].IsNaN())
	}
	return selectAll(take, later, earlier)
}

// join combines two partial results like combine, but earlier may be absent. If hasLater is given,
// later may be absent too. Most scans could use the identity for an absent value. A linear
// recurrence cannot, because it would multiply the identity by factors that may be infinite.
func (w *scanWork) join(earlier, later []ptx.Value, hasEarlier ptx.Value, hasLater ...ptx.Value) []ptx.Value {
	v := w.combine(earlier, later)
	if w.kind != device.ScanLinear {
		return v
	}
	for _, has := range hasLater {
		v = selectAll(has, v, earlier)
	}
	return selectAll(hasEarlier, v, later)
}

func selectAll(p ptx.Value, yes, no []ptx.Value) []ptx.Value {
	v := make([]ptx.Value, len(yes))
	for i := range v {
		v[i] = p.Select(yes[i], no[i])
	}
	return v
}

func shuffleAll(v []ptx.Value, mode ptx.ShuffleMode, arg ptx.Operand) []ptx.Value {
	out := make([]ptx.Value, len(v))
	for i := range v {
		out[i] = v[i].Shuffle(mode, arg)
	}
	return out
}

// serial emits code in which one thread scans a column.
func (w *scanWork) serial() {
	carry := w.vars(w.start())
	w.For(w.U32(0), w.n, num(1), func(i ptx.Value, _ ptx.Loop) {
		v := w.join(get(carry), w.load(i)[0], i.Ne(num(0)))
		set(carry, v)
		w.store(i, [][]ptx.Value{v})
	})
}

func (w *scanWork) vars(v []ptx.Value) []*ptx.Var {
	list := make([]*ptx.Var, len(v))
	for i := range v {
		list[i] = w.Var(v[i])
	}
	return list
}

func get(list []*ptx.Var) []ptx.Value {
	v := make([]ptx.Value, len(list))
	for i := range v {
		v[i] = list[i].Get()
	}
	return v
}

func set(list []*ptx.Var, v []ptx.Value) {
	for i := range v {
		list[i].Set(v[i])
	}
}

// upTo combines each lane's values v with the values of all lanes before it. In each step it
// combines lanes that are twice as far apart as in the previous step.
func (w *scanWork) upTo(v []ptx.Value, width int) []ptx.Value {
	for d := 1; d < width; d *= 2 {
		other := shuffleAll(v, ptx.ShuffleUp, num(d))
		v = selectAll(w.LaneID().Ge(num(d)), w.combine(other, v), v)
	}
	return v
}

// tiles emits code in which a group of threads scans a column, tile by tile.
func (w *scanWork) tiles(lane ptx.Value) {
	const warps = rowThreads / 32
	start := w.start()
	from, to := w.U32(0), w.n
	carried := start
	if w.phase != scanWhole {
		from = w.segment.Mul(w.perSegment)
		to = from.Add(w.perSegment).Min(w.n)
	}
	if w.phase == scanSegments {
		carried = loadFrom(w.totals, w.segment)
	}
	carry := w.vars(carried)
	var shared []ptx.Ptr
	if w.group > 32 {
		for i, v := range start {
			shared = append(shared, w.Shared(fmt.Sprintf("warps%d", i), v.Type(), warps))
		}
	}
	w.For(from, to, num(w.group*w.perThread), func(tile ptx.Value, _ ptx.Loop) {
		first := lane.Mad(num(w.perThread), tile)
		// A thread whose vector begins beyond the end reads the last vector of the column instead.
		// Its values are not used.
		place := first
		if w.vector > 1 {
			place = first.Min(w.n.Sub(num(w.perThread)))
		}
		list := w.load(place)
		for e := 1; e < w.perThread; e++ {
			list[e] = w.combine(list[e-1], list[e])
		}
		total := w.upTo(list[w.perThread-1], 32)
		// The variable behind is true in all lanes except lane 0. In these lanes, the variable
		// before is the total of the elements of all earlier lanes.
		behind := w.LaneID().Ne(num(0))
		before := selectAll(behind, shuffleAll(total, ptx.ShuffleUp, num(1)), start)
		if w.group > 32 {
			w.If(w.LaneID().Eq(num(31)), func() {
				for i, p := range shared {
					p.At(w.WarpID()).Store(total[i])
				}
			})
			w.Barrier()
			all := make([]ptx.Value, len(shared))
			for i, p := range shared {
				all[i] = p.At(w.LaneID().And(num(warps - 1))).Load()
			}
			all = w.upTo(all, warps)
			w.Barrier() // all threads must read the totals before the next tile overwrites them
			later := w.WarpID().Ne(num(0))
			warpsBefore := shuffleAll(all, ptx.ShuffleIndex, w.WarpID().Sub(num(1)).And(num(31)))
			before = w.join(selectAll(later, warpsBefore, start), before, later, behind)
			total = shuffleAll(all, ptx.ShuffleIndex, num(warps-1))
		} else {
			total = shuffleAll(total, ptx.ShuffleIndex, num(31))
		}
		carried := get(carry)
		later := tile.Ne(num(0))
		if w.phase == scanTotals {
			later = tile.Ne(from)
			set(carry, w.join(carried, total, later))
			return
		}
		before = w.join(carried, before, later, lane.Ne(num(0)))
		set(carry, w.join(carried, total, later))
		for e := range list {
			list[e] = w.join(before, list[e], first.Ne(num(0)))
		}
		w.store(first, list)
	})
	if w.phase == scanTotals {
		w.If(lane.Eq(num(0)), func() { storeTo(w.totals, w.segment, get(carry)) })
	}
}

// prefixes replaces the total of each segment of a column by the total of all segments before it.
// It loads several totals together, and combines them in order.
func (w *scanWork) prefixes() {
	carry := w.vars(w.start())
	step := func(i ptx.Value, v []ptx.Value) {
		before := get(carry)
		storeTo(w.totals, i, before)
		set(carry, w.join(before, v, i.Ne(num(0))))
	}
	ahead := 16 / w.parts()
	if w.kind == device.ScanLogSumExp {
		ahead = 2 // the code for a step of a recurrence is long
	}
	tail := w.segments.And(num(^uint32(ahead - 1)))
	w.For(w.U32(0), tail, num(ahead), func(i ptx.Value, _ ptx.Loop) {
		v := make([][]ptx.Value, ahead)
		for k := range v {
			v[k] = loadFrom(w.totals, i.Add(num(k)))
		}
		for k := range v {
			step(i.Add(num(k)), v[k])
		}
	})
	w.For(tail, w.segments, num(1), func(i ptx.Value, _ ptx.Loop) { step(i, loadFrom(w.totals, i)) })
}
