package cpu

import (
	"slices"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

// maxCode is the maximum number of instructions of a merged program.
const maxCode = 384

// reader is a map or a reduction that may read results of a map.
type reader struct {
	program *expr.Program
	ins     []device.View
	params  []uint64
	outs    []device.View
	reduces *device.Reduce // nil: it is a map
}

func (l *list) readerAt(j int) (r reader, ok bool) {
	if m := l.mapAt(j); m != nil {
		return reader{m.Program, m.Ins, m.Params[:len(m.Program.Params)], m.Outs, nil}, true
	}
	// A map that stores 16-bit floats rounds them. A reduction does not round the values of its
	// map, so it must not be merged then.
	if o, is := l.items[j].op.(*device.Reduce); is && o.Ins[0].Size() > 0 && !o.Map.Out[0].IsHalf() {
		return reader{o.Map, o.Ins, o.Params, []device.View{o.Out}, o}, true
	}
	return r, false
}

// mergeInto finds a map whose result item j reads, and computes it within item j. It returns false
// if there is no such map.
func (l *list) mergeInto(j int) bool {
	r, ok := l.readerAt(j)
	if !ok || l.dropped[j] {
		return false
	}
	var tried []int
	for k := range r.ins {
		i := l.writer(j, spanOf(&r.ins[k]))
		if i < 0 || slices.Contains(tried, i) || l.mapAt(i) == nil {
			continue
		}
		if tried = append(tried, i); l.merge(i, j, &r) {
			return true
		}
	}
	return false
}

// merger merges map i into item j.
type merger struct {
	*list
	i, j     int
	producer *device.Map // map i
	r        *reader
	inline   expr.Inline
	ins      []device.View // operands of the new item
	outs     []device.View // results of the new item
	ends     []int
}

// merge computes map i within item j, which reads its results. The new item has the operands of
// both items. Its results are those of j, and the results of map i that other items read. It takes
// the place of j if map i can move there, otherwise the place of i. An item can move if, between
// the two places, no item writes its operands or uses its results.
func (l *list) merge(i, j int, r *reader) bool {
	m := &merger{list: l, i: i, j: j, producer: l.mapAt(i), r: r}
	if !m.operands() || !m.results() || !m.fits() {
		return false
	}
	at := j
	if !l.canMove(i, i, j) {
		if at = i; r.reduces != nil || !l.canMove(j, i, j) {
			return false
		}
	}
	p := r.program.Inlined(&m.inline)
	if len(p.Code) > maxCode {
		return false
	}
	params := slices.Concat(r.params, m.producer.Params[:len(m.producer.Program.Params)])
	merged := item{callers: l.items[j].callers}
	if o := r.reduces; o != nil {
		merged.op = &device.Reduce{Reduction: &device.Reduction{Kind: o.Kind, Map: p, Finish: o.Finish}, Out: o.Out, Ins: m.ins, Params: params}
	} else {
		merged.op = &device.Map{Program: p, Outs: m.outs, Ins: m.ins, Params: params}
	}
	l.dropped[i], l.dropped[j] = true, true
	if at == j {
		l.extendOperands(i, j)
	}
	l.items[at], l.effects[at], l.ends[at], l.dropped[at] = merged, effectsOf(&merged), m.ends, false
	l.merged++
	return true
}

// extendOperands extends the lifetimes of the operands of item i, because item j now reads them.
// Their buffers may be freed before j.
func (l *list) extendOperands(i, j int) {
	for k := range i {
		for n, end := range l.ends[k] {
			if end <= j && overlapsAny(l.effects[k].writes[n], l.effects[i].reads) {
				l.ends[k][n] = j + 1
			}
		}
	}
}

// canMove reports whether item k, which is i or j, can move to the other place. If its results are
// visible after a replay, it must not move across an item that may fail, because the replay stops
// at a failed item.
func (l *list) canMove(k, i, j int) bool {
	e := &l.effects[k]
	return !l.writes(i, j, e.reads) && !l.writes(i, j, e.writes) && !l.reads(i, j, e.writes) &&
		(!slices.Contains(l.ends[k], neverFreed) || !l.mayFail(i, j))
}

// operands collects the operands of the new item. It returns false if the new item cannot read the
// operands of map i in the order in which j reads its result.
func (m *merger) operands() bool {
	producer, r := m.producer, m.r
	own := producer.Ins
	m.inline = expr.Inline{Program: producer.Program, Operands: make([]int, len(r.ins)), Scalars: len(r.params)}
	linked := false
	for k := range r.ins {
		v := &r.ins[k]
		out := slices.IndexFunc(producer.Outs, func(o device.View) bool { return spanOf(&o).overlaps(spanOf(v)) })
		if out < 0 {
			m.inline.Operands[k] = m.operand(*v)
			continue
		}
		ins, ok := m.follow(&producer.Outs[out], v)
		if !ok || linked && !slices.EqualFunc(ins, own, equalViews) {
			return false
		}
		m.inline.Operands[k], own, linked = ^out, ins, true
		// The operands of map i replace v. A reduction adds in an order that depends on the first
		// of its operands with the largest number of dimensions with a stride other than 0.
		for i := range own {
			m.operand(own[i])
		}
	}
	for i := range own {
		m.inline.Own = append(m.inline.Own, m.operand(own[i]))
	}
	return len(m.ins) > 0 || r.reduces == nil
}

// operand returns the number of view v among the operands of the new item. It adds v if necessary.
func (m *merger) operand(v device.View) int {
	i := slices.IndexFunc(m.ins, func(w device.View) bool { return sameView(&v, &w) })
	if i < 0 {
		i = len(m.ins)
		m.ins = append(m.ins, v)
	}
	return i
}

// follow returns views of the operands of map i. Their elements are in the order in which v reads
// the result out.
func (m *merger) follow(out, v *device.View) ([]device.View, bool) {
	producer := m.producer
	// A program that uses the position prevents a reduction from merging dimensions. That would
	// change the order of its additions.
	if producer.Program.UsesIndex() && (!sameOrder(out, v) || m.r.reduces != nil && !v.Contiguous()) {
		return nil, false
	}
	if sameView(out, v) {
		return producer.Ins, m.r.reduces == nil || m.sameTraversal(producer.Ins, v)
	}
	ins, ok := reindexed(out, v, producer.Ins)
	if !ok || m.r.reduces != nil && !m.sameTraversal(ins, v) {
		return nil, false
	}
	// A value must not be computed twice, which happens if windows overlap. And a computation
	// should read neighbours.
	last := v.Shape.Rank() - 1
	apart := last >= 0 && v.Strides.At(last) > 1 && v.Shape.At(last) > 1
	if producer.Program.Cost() > 0 && (apart || !v.Contiguous() && v.Overlaps()) {
		return nil, false
	}
	return ins, true
}

// sameTraversal reports whether a reduction traverses the operands ins in the same way as v. Then
// it combines values in the same order.
func (m *merger) sameTraversal(ins []device.View, v *device.View) bool {
	return len(ins) > 0 && !slices.ContainsFunc(ins, func(w device.View) bool { return !sameStrides(&w, v) })
}

// results collects the results of the new item: the results of j, and the results of map i that are
// read later.
func (m *merger) results() bool {
	its := m.r.outs
	m.outs, m.ends = slices.Clone(its), slices.Clone(m.list.ends[m.j])
	for k := range m.producer.Outs {
		out := m.producer.Outs[k]
		s := spanOf(&out)
		if over := slices.IndexFunc(its, func(o device.View) bool { return spanOf(&o).overlaps(s) }); over >= 0 {
			t := spanOf(&its[over])
			if t.lo > s.lo || t.hi < s.hi || !fills(&its[over]) {
				return false
			}
			continue // j overwrites it
		}
		if !m.needed(m.i, k, m.j) {
			continue
		}
		if out.Shape != its[0].Shape {
			if !out.Contiguous() || out.Size() != its[0].Size() {
				return false
			}
			out.Shape, out.Strides = its[0].Shape, its[0].Shape.Contiguous()
		}
		if m.r.reduces != nil || !m.inOrder(k) {
			return false
		}
		m.inline.Keep = append(m.inline.Keep, k)
		m.outs, m.ends = append(m.outs, out), append(m.ends, m.list.ends[m.i][k])
	}
	return true
}

// inOrder reports whether j reads the results of map i in their row-major order. Then the new item
// can store result k.
func (m *merger) inOrder(k int) bool {
	for i, n := range m.inline.Operands {
		if n < 0 && !sameOrder(&m.producer.Outs[^n], &m.r.ins[i]) {
			return false
		}
	}
	return true
}

// fits reports whether one loop can have all operands and results. It also reports whether a loop
// may write results while it reads operands. For this, a result must be the same view as an
// operand, or share no memory with it.
func (m *merger) fits() bool {
	before := max(len(m.producer.Ins)+len(m.producer.Outs), len(m.r.ins)+len(m.r.outs), jit.MostPointers)
	if len(m.ins)+len(m.outs) > before {
		return false
	}
	for i := range m.outs {
		s := spanOf(&m.outs[i])
		for k := range m.ins {
			if spanOf(&m.ins[k]).overlaps(s) && (m.r.reduces != nil || !sameView(&m.ins[k], &m.outs[i]) && !m.inPlace(&m.ins[k], &m.outs[i])) {
				return false
			}
		}
	}
	return true
}

// inPlace reports whether an operand and a result occupy the same memory in the same order. Their
// types may differ but have the same size.
func (m *merger) inPlace(in, out *device.View) bool {
	v := *in
	v.Type = out.Type
	return in.Type.Size() == out.Type.Size() && sameView(&v, out)
}
