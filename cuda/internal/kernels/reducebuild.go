package kernels

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// reduceBuilder is the state of a reduction kernel while its code is emitted.
type reduceBuilder struct {
	*ptx.Builder
	s               reduceSpec
	mapping, finish *expr.Program
	// number of independent accumulators of a thread, and of its pending loads
	unroll int
	acc    dtype.Type // computing type of the values that are combined
	// type of the register that holds a combined value; a Bool is a u32 of 0 or 1
	reg        ptx.Type
	results, n ptx.Value
	chunk, cut ptx.Value
	kept, red  coordinates
	ins        []reduceOperand
	position   []reduceOperand // strides of the element's index; used only if the map uses the index
	partial    ptx.Ptr
	positions  ptx.Ptr
	out        reduceOperand
	count      ptx.Ptr
	params     []ptx.Value
}

type reduceOperand struct {
	p         ptx.Ptr
	kept, red []ptx.Value
}

// cheapMap is the greatest cost of a map for which an iteration of the loop handles two vectors.
const cheapMap = 8

// partialValue is the combination of some elements. The field v is the value. In ArgMax and ArgMin
// reductions aux is the position of v. In reductions that count, aux is the count.
type partialValue struct{ v, aux ptx.Value }

func (s reduceSpec) isArg() bool { return s.kind == device.ArgMax || s.kind == device.ArgMin }

// pairs reports whether each partial value is stored with a position or a count.
func (s reduceSpec) pairs() bool { return s.isArg() || s.counts }

func (s reduceSpec) build(b *ptx.Builder, programs []*expr.Program) [3]int {
	r := &reduceBuilder{Builder: b, s: s, mapping: programs[0], finish: programs[1]}
	r.acc = r.mapping.Out[0].Compute()
	roomForRegisters(b)
	if r.acc.Size() == 8 {
		b.MinBlocks(3) // 64-bit partial values need twice the registers
		if r.mapping.Cost() > cheapMap {
			b.MinBlocks(2) // computing the map in 64 bits also needs more registers
		}
	}
	r.unroll = s.chains(r.mapping)
	r.reg = computing(r.acc)
	if r.acc == dtype.Bool {
		r.reg = ptx.U32
	}
	r.declare()
	switch s.form {
	case warpPerRow:
		r.rows(32)
	case blockPerRow:
		r.rows(reduceThreads)
	case columns:
		r.columns()
		return [3]int{columnWidth, columnHeight, 1}
	}
	return [3]int{reduceThreads, 1, 1}
}

// chains returns the number of independent accumulators of a thread for each element of a vector.
func (s reduceSpec) chains(mapping *expr.Program) int {
	n := chains
	if s.stage != lastStage {
		n = 2 * chains
		for i, t := range mapping.In {
			if i == 0 || !s.counts {
				n = min(n, loadsInFlight(t))
			}
		}
	}
	if s.vector > 1 {
		n = 2
		if s.form != columns && (mapping.Cost() > cheapMap || s.isArg()) {
			n = 1 // the map is emitted once for each element of a vector
		}
	}
	if s.unroll > 0 {
		n = s.unroll
	}
	return n
}

// declare declares the kernel parameters in the order in which reduction.launch packs them.
func (r *reduceBuilder) declare() {
	b, s, it := r.Builder, r.s, indexType(r.s.wide)
	r.results, r.n = b.Param("results", it), b.Param("n", it)
	r.chunk, r.cut = b.Param("chunk", it), b.Param("cut", it)
	r.kept = declareCoordinates(b, "k", s.keptRank, s.wide)
	if s.stage != lastStage {
		r.red = declareCoordinates(b, "r", s.redRank, s.wide)
		for i, t := range r.mapping.In {
			name := fmt.Sprintf("x%d", i)
			r.ins = append(r.ins, reduceOperand{b.Pointer(name, storage(t)),
				declareStrides(b, name+"k", s.keptRank, s.wide), declareStrides(b, name+"r", s.redRank, s.wide)})
		}
		if r.mapping.UsesIndex() {
			r.position = []reduceOperand{{kept: declareStrides(b, "ik", s.keptRank, s.wide), red: declareStrides(b, "ir", s.redRank, s.wide)}}
		}
	}
	if s.stage != wholeReduction {
		r.partial = b.Pointer("partial", r.reg)
		if s.pairs() {
			r.positions = b.Pointer("positions", ptx.U64)
		}
	}
	if s.stage != firstStage {
		r.out = reduceOperand{p: b.Pointer("y", storage(s.out)), kept: declareStrides(b, "yk", s.keptRank, s.wide)}
		if s.counts {
			r.count = b.Pointer("count", ptx.S64)
		}
	}
	var types []dtype.Type
	if s.stage != lastStage {
		types = r.mapping.Params
	}
	if r.finish != nil {
		types = mergeParams(types, r.finish.Params)
	}
	r.params = scalarParams(b, types)
}

// rows emits a kernel in which each group of threads, a warp or the block, combines one chunk of
// one result.
func (r *reduceBuilder) rows(group int) {
	b := r.Builder
	var id, lane ptx.Value
	if group == 32 {
		block, warp := b.BlockID(0), b.WarpID()
		if r.s.wide {
			block, warp = block.Cvt(ptx.U64), warp.Cvt(ptx.U64)
		}
		id, lane = block.Mad(num(reduceThreads/32), warp), b.LaneID()
		b.ReturnIf(id.Ge(r.results.Mul(r.cut))) // all lanes of a warp return together
	} else {
		id, lane = b.BlockID(0), b.ThreadID(0)
		if r.s.wide {
			id = id.Cvt(ptx.U64)
		}
	}
	if r.s.wide {
		lane = lane.Cvt(ptx.U64)
	}
	o, c := r.splitChunk(id)
	a := r.accumulate(o, c, lane, group)[0]
	a = r.acrossWarp(a, 32)
	if group > 32 {
		a = r.acrossWarps(a)
	}
	first := lane.Eq(num(0))
	b.If(first, func() { r.write(o, c, a) })
}

// splitChunk splits the index of a group into the index of its result and the index of its chunk.
func (r *reduceBuilder) splitChunk(id ptx.Value) (o, c ptx.Value) {
	if r.s.stage != firstStage {
		return id, r.Const(indexType(r.s.wide), num(0))
	}
	o = id.Div(r.cut)
	return o, id.Sub(o.Mul(r.cut))
}

// columns emits a kernel in which a block combines one chunk of 32 neighbouring results, or of 32
// neighbouring vectors of results.
func (r *reduceBuilder) columns() {
	b := r.Builder
	id := b.BlockID(0)
	tx, ty := b.ThreadID(0), b.ThreadID(1)
	at := ty.Mad(num(columnWidth), tx)
	row, tx32 := ty, tx
	if r.s.wide {
		id, tx, row = id.Cvt(ptx.U64), tx.Cvt(ptx.U64), ty.Cvt(ptx.U64)
	}
	block, c := r.splitChunk(id)
	v := r.s.vector
	o := block.Mad(num(columnWidth), tx).Mul(num(v))
	inside := o.Lt(r.results)
	plane := planeOf(v, r.reg)
	values := b.Shared("values", r.reg, v*plane)
	var places ptx.Ptr
	placePlane := planeOf(v, indexType(r.s.wide))
	if r.s.pairs() {
		places = b.Shared("places", indexType(r.s.wide), v*placePlane)
	}
	b.If(inside, func() {
		for j, a := range r.accumulate(o, c, row, columnHeight) {
			values.At(at).At(num(j * plane)).Store(a.v)
			if r.s.pairs() {
				places.At(at).At(num(j * placePlane)).Store(a.aux)
			}
		}
	})
	b.Barrier()
	// The variable result is the index of the one result that this thread stores. In shared memory
	// it lies in the vector of a lane: lane is the lane's index, and element is the index in the
	// vector.
	result, lane, element := o, tx32, b.U32(0)
	active := inside.And(ty.Eq(num(0)))
	if v > 1 {
		lane, element = at.Div(num(v)), at.Rem(num(v))
		result = at
		if r.s.wide {
			result = at.Cvt(ptx.U64)
		}
		result = block.Mad(num(columnWidth*v), result)
		active = at.Lt(num(columnWidth * v)).And(result.Lt(r.results))
	}
	b.If(active, func() {
		var list []partialValue
		for y := range columnHeight {
			p := partialValue{v: values.At(element.Mad(num(plane), lane)).At(num(y * columnWidth)).Load()}
			if r.s.pairs() {
				p.aux = places.At(element.Mad(num(placePlane), lane)).At(num(y * columnWidth)).Load()
			}
			list = append(list, p)
		}
		r.write(result, c, r.tree(list))
	})
}

// planeOf returns the distance between planes in shared memory, for vectors of v results. Plane e
// holds element e of all vectors. With this distance, threads that read neighbouring elements of a
// vector use different banks.
func planeOf(v int, t ptx.Type) int {
	if v == 1 {
		return reduceThreads
	}
	return reduceThreads + 128/max(t.Bits()/8, 4)/v
}

// accumulate combines elements lane, lane+group, … of chunk c for result o, in several
// accumulators. If the row is read in vectors, lane counts vectors. In the form columns,
// accumulate combines the elements of a vector of results, from result o on. It returns one value
// for each of these results.
func (r *reduceBuilder) accumulate(o, c, lane ptx.Value, group int) []partialValue {
	b, vector := r.Builder, r.s.vector
	load := r.loader(o)
	start := c.Mul(r.chunk)
	end := start.Add(r.chunk).Min(r.n)
	vars := make([]*ptx.Var, r.unroll*vector)
	places := make([]*ptx.Var, r.unroll*vector)
	for i := range vars {
		vars[i] = b.Var(r.identity())
		if r.s.pairs() {
			places[i] = b.Var(r.noPosition())
		}
	}
	step := func(k int, at ptx.Value) {
		for j, x := range load(at) {
			k := k*vector + j
			if r.s.pairs() {
				y := r.combine(partialValue{vars[k].Get(), places[k].Get()}, x)
				vars[k].Set(y.v)
				places[k].Set(y.aux)
				continue
			}
			vars[k].Set(r.combine(partialValue{v: vars[k].Get()}, x).v)
		}
	}
	if r.s.form != columns { // a thread reads whole vectors of the row
		group *= vector
		lane = lane.Mul(num(vector))
	}
	tail := start.Add(end.Sub(start).Div(num(r.unroll * group)).Mul(num(r.unroll * group)))
	b.For(start.Add(lane), tail, num(r.unroll*group), func(i ptx.Value, _ ptx.Loop) {
		for k := range r.unroll {
			step(k, i.Add(num(k*group)))
		}
	})
	b.For(tail.Add(lane), end, num(group), func(i ptx.Value, _ ptx.Loop) { step(0, i) })
	list := make([]partialValue, len(vars))
	for k := range list {
		list[k].v = vars[k].Get()
		if r.s.pairs() {
			list[k].aux = places[k].Get()
		}
	}
	if r.s.form != columns {
		return []partialValue{r.tree(list)}
	}
	out := make([]partialValue, vector)
	for j := range out {
		var chains []partialValue
		for k := range r.unroll {
			chains = append(chains, list[k*vector+j])
		}
		out[j] = r.tree(chains)
	}
	return out
}

func (r *reduceBuilder) tree(list []partialValue) partialValue {
	for len(list) > 1 {
		var next []partialValue
		for i := 0; i < len(list); i += 2 {
			next = append(next, r.combine(list[i], list[i+1]))
		}
		list = next
	}
	return list[0]
}

// wrap wraps a 32-bit integer to the range of a narrow integer type.
func wrap(t dtype.Type, v ptx.Value) ptx.Value {
	return v.Bitcast(ptx.U32).Cvt(storage(t)).Cvt(ptx.S32)
}

// noPosition returns the initial position or count of an accumulator.
func (r *reduceBuilder) noPosition() ptx.Value {
	if r.s.counts {
		return r.Const(indexType(r.s.wide), num(0))
	}
	return r.Bits(indexType(r.s.wide), math.MaxUint64)
}

func (r *reduceBuilder) identity() ptx.Value {
	b, t := r.Builder, r.reg
	switch r.s.kind {
	case device.Sum:
		return b.Const(t, num(0))
	case device.Prod:
		return b.Const(t, num(1))
	}
	largest := r.s.kind == device.Max || r.s.kind == device.ArgMax
	switch stored := r.mapping.Out[0]; {
	case stored == dtype.U8:
		// An empty reduction gives the identity of the narrow type, not of the computing type.
		if largest {
			return b.Bits(t, 0)
		}
		return b.Bits(t, math.MaxUint8)
	case stored == dtype.I8 || stored == dtype.I16:
		bound := uint64(1) << (8*stored.Size() - 1)
		if largest {
			return b.Bits(t, uint64(uint32(-bound)))
		}
		return b.Bits(t, bound-1)
	case r.acc == dtype.Bool:
		if largest {
			return b.U32(0)
		}
		return b.U32(1)
	case t.IsFloat():
		if largest {
			return b.Const(t, real(math.Inf(-1)))
		}
		return b.Const(t, real(math.Inf(1)))
	case t.IsSigned():
		least := uint64(1) << (t.Bits() - 1)
		if largest {
			return b.Bits(t, least)
		}
		return b.Bits(t, least-1)
	case largest:
		return b.Bits(t, 0)
	}
	return b.Bits(t, math.MaxUint64)
}

// combine applies the reduction's operation to two partial values.
func (r *reduceBuilder) combine(x, y partialValue) partialValue {
	truth := r.acc == dtype.Bool
	switch kind := r.s.kind; {
	case truth && (kind == device.Sum || kind == device.Max):
		return partialValue{v: x.v.Or(y.v)}
	case truth && (kind == device.Prod || kind == device.Min):
		return partialValue{v: x.v.And(y.v)}
	case r.s.counts:
		return partialValue{x.v.Add(y.v), x.aux.Add(y.aux)}
	case kind == device.Sum:
		return partialValue{v: x.v.Add(y.v)}
	case kind == device.Prod:
		return partialValue{v: x.v.Mul(y.v)}
	case kind == device.Max:
		return partialValue{v: x.v.MaxNaN(y.v)}
	case kind == device.Min:
		return partialValue{v: x.v.MinNaN(y.v)}
	}
	// Keep the extreme value and, if both values are equal or both are NaN, the lower position. NaN
	// counts as more extreme than any number.
	var better, same ptx.Value
	if r.s.kind == device.ArgMax {
		better = y.v.Gt(x.v)
	} else {
		better = y.v.Lt(x.v)
	}
	same = y.v.Eq(x.v)
	if r.reg.IsFloat() {
		xn, yn := x.v.IsNaN(), y.v.IsNaN()
		better = better.Or(yn.And(xn.Not()))
		same = same.Or(yn.And(xn))
	}
	take := better.Or(same.And(y.aux.Lt(x.aux)))
	return partialValue{take.Select(y.v, x.v), take.Select(y.aux, x.aux)}
}

// acrossWarp combines the values of neighbouring lanes, in groups of width lanes. Every lane gets
// the result of its group.
func (r *reduceBuilder) acrossWarp(a partialValue, width int) partialValue {
	for d := width / 2; d > 0; d /= 2 {
		other := partialValue{v: a.v.Shuffle(ptx.ShuffleXor, num(d))}
		if r.s.pairs() {
			other.aux = a.aux.Shuffle(ptx.ShuffleXor, num(d))
		}
		a = r.combine(a, other)
	}
	return a
}

// acrossWarps combines the warps' values through shared memory. The first warp gets the result.
func (r *reduceBuilder) acrossWarps(a partialValue) partialValue {
	b := r.Builder
	const warps = reduceThreads / 32
	values := b.Shared("values", r.reg, warps)
	var places ptx.Ptr
	if r.s.pairs() {
		places = b.Shared("places", indexType(r.s.wide), warps)
	}
	b.If(b.LaneID().Eq(num(0)), func() {
		values.At(b.WarpID()).Store(a.v)
		if r.s.pairs() {
			places.At(b.WarpID()).Store(a.aux)
		}
	})
	b.Barrier()
	lane := b.LaneID().And(num(warps - 1))
	p := partialValue{v: values.At(lane).Load()}
	if r.s.pairs() {
		p.aux = places.At(lane).Load()
	}
	return r.acrossWarp(p, warps)
}

// write emits the code that applies finish and stores result o. In the first stage it stores the
// partial value of chunk c instead.
func (r *reduceBuilder) write(o, c ptx.Value, a partialValue) {
	b := r.Builder
	if r.s.stage == firstStage {
		at := c.Mad(r.results, o)
		r.partial.At(at).Store(a.v)
		if r.s.pairs() {
			r.positions.At(at).Store(a.aux.Cvt(ptx.U64))
		}
		return
	}
	v := a.v
	switch {
	case r.s.isArg():
		v = convert(b, a.aux, ptx.S64)
		v = convert(b, v, computing(r.s.out.Compute()))
	default:
		of := []ptx.Value{v}
		if r.acc == dtype.Bool {
			of[0] = v.Ne(num(0))
		}
		if r.s.counts {
			of = append(of, convert(b, a.aux, ptx.S64))
			r.count.Store(of[1])
		}
		if r.finish != nil {
			v = lower(b, r.finish, environment{x: func(k int) ptx.Value { return of[k] }, params: r.params})[0]
		} else {
			v = convert(b, of[0], computing(r.s.out.Compute()))
		}
	}
	p := r.out.p.At(dot(b, r.kept.split(o), r.out.kept, r.s.wide))
	storeVector(b, p, r.s.out, []ptx.Value{v})
}
