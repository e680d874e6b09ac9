package worklist

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

// reader is the part of a later item into which a map can be merged: a map or a reduction.
type reader struct {
	program *expr.Program
	ins     []device.View
	params  []uint64
	outs    []device.View
	reduces *device.Reduce // nil for a map
}

func (l *list) readerAt(j int) (r reader, ok bool) {
	if m := l.mapAt(j); m != nil {
		return reader{m.Program, m.Ins, m.Params[:len(m.Program.Params)], m.Outs, nil}, true
	}
	// A map that stores 16-bit values rounds them, but a reduction does not round the values of its
	// map. So no map is merged into a reduction whose map computes 16-bit values.
	if o, is := l.items[j].Op.(*device.Reduce); is && o.Ins[0].Size() > 0 && !o.Map.Out[0].IsHalf() {
		return reader{o.Map, o.Ins, o.Params, []device.View{o.Out}, o}, true
	}
	return r, false
}

// mergeInto merges a map into item j. It takes a map that can be merged and whose result j reads.
// It returns false if there is no such map.
func (l *list) mergeInto(j int) bool {
	r, ok := l.readerAt(j)
	if !ok || l.gone[j] {
		return false
	}
	var tried []int
	for k := range r.ins {
		i := l.writer(j, SpanOf(&r.ins[k]))
		if i < 0 || slices.Contains(tried, i) || l.mapAt(i) == nil {
			continue
		}
		if tried = append(tried, i); l.merge(i, j, &r) {
			return true
		}
	}
	return false
}

// merger is the state while map i is merged into item j.
type merger struct {
	*list
	i, j int
	made *device.Map // map of item i
	r    *reader
	how  expr.Inline
	ins  []device.View // operands of the new item
	outs []device.View // results of the new item
	ends []int
}

// merge merges map i into item j, which reads its results. The new item has the operands of both,
// and the results of j. It also stores those results of i that other items read. The new item takes
// the position of j in the list if i can move there. Otherwise it takes the position of i. An item
// can move only if no item in between writes its operands or uses its results.
func (l *list) merge(i, j int, r *reader) bool {
	m := &merger{list: l, i: i, j: j, made: l.mapAt(i), r: r}
	if !m.operands() || !m.results() || !m.fits() {
		return false
	}
	at := j
	if !l.moves(i, i, j) {
		if at = i; r.reduces != nil || !l.moves(j, i, j) {
			return false
		}
	}
	p := r.program.Inlined(&m.how)
	if len(p.Code) > l.MostCode {
		return false
	}
	params := slices.Concat(r.params, m.made.Params[:len(m.made.Program.Params)])
	var op device.Op = &device.Map{Program: p, Outs: m.outs, Ins: m.ins, Params: params}
	if o := r.reduces; o != nil {
		n := &device.Reduce{Reduction: &device.Reduction{Kind: o.Kind, Map: p, Finish: o.Finish}, Out: o.Out, Ins: m.ins, Params: params}
		if l.SameOrder != nil && !l.SameOrder(o, n) {
			return false
		}
		op = n
	}
	merged, reader := Of(op, l.items[j].Scratch), &l.items[j]
	merged.Ends, merged.Fails, merged.Place = m.ends, reader.Fails, at
	merged.Number, merged.Parts = reader.Number, slices.Concat(l.items[i].Parts, reader.Parts)
	l.gone[i], l.gone[j] = true, true
	if at == j {
		l.lasts(i, j)
	}
	l.items[at], l.gone[at] = merged, false
	l.Merged++
	return true
}

// lasts notes that item j now reads the operands of item i. If their buffers were freed before j,
// their memory must now stay until after j.
func (l *list) lasts(i, j int) {
	for k := range i {
		for n, end := range l.items[k].Ends {
			if end <= j && meetsAny(l.items[k].Writes[n], l.items[i].Reads) {
				l.items[k].Ends[n] = j + 1
			}
		}
	}
}

// moves reports whether item k, which is i or j, can move to the position of the other. A replay
// stops at an item that fails. Item k must therefore not move past an item that may fail, if
// k's result can be read after the replay.
func (l *list) moves(k, i, j int) bool {
	it := &l.items[k]
	return !l.writes(i, j, it.Reads) && !l.writes(i, j, it.Writes) && !l.reads(i, j, it.Writes) &&
		(!slices.Contains(it.Ends, Alive) || !l.fails(i, j))
}

// operands finds the operands of the new item. It returns false if j reads a result of map i in an
// order that the new item cannot reproduce.
func (m *merger) operands() bool {
	made, r := m.made, m.r
	own := made.Ins
	m.how = expr.Inline{Program: made.Program, Operands: make([]int, len(r.ins)), Scalars: len(r.params)}
	linked := false
	for k := range r.ins {
		v := &r.ins[k]
		out := slices.IndexFunc(made.Outs, func(o device.View) bool { return SpanOf(&o).Meets(SpanOf(v)) })
		if out < 0 {
			m.how.Operands[k] = m.operand(*v)
			continue
		}
		ins, ok := m.follow(&made.Outs[out], v)
		if !ok || linked && !slices.EqualFunc(ins, own, equalViews) {
			return false
		}
		m.how.Operands[k], own, linked = ^out, ins, true
		// The map's operands replace v in the list of operands. The order of this list matters for
		// a reduction: it visits the elements in the order of the first operand with the most
		// nonzero strides.
		for i := range own {
			m.operand(own[i])
		}
	}
	for i := range own {
		m.how.Own = append(m.how.Own, m.operand(own[i]))
	}
	return len(m.ins) > 0 || r.reduces == nil
}

// operand returns the index of v among the operands of the new item. It adds v if it is not one of
// them.
func (m *merger) operand(v device.View) int {
	i := slices.IndexFunc(m.ins, func(w device.View) bool { return SameView(&v, &w) })
	if i < 0 {
		i = len(m.ins)
		m.ins = append(m.ins, v)
	}
	return i
}

// follow returns views of map i's operands. The argument out is a result of the map, and item j
// reads this result through the view v. The new views have the shape and the order of v.
func (m *merger) follow(out, v *device.View) ([]device.View, bool) {
	made := m.made
	// A reduction whose map uses the position cannot merge dimensions, so it may add in another
	// order than a reduction that merges them.
	if made.Program.UsesIndex() && (!sameOrder(out, v) || m.r.reduces != nil && !v.Contiguous()) {
		return nil, false
	}
	if SameView(out, v) {
		return made.Ins, m.r.reduces == nil || m.alongside(made.Ins, v)
	}
	ins, ok := reindexed(out, v, made.Ins)
	if !ok || m.r.reduces != nil && !m.alongside(ins, v) {
		return nil, false
	}
	// If v has overlapping windows, the merged item would compute values several times. If
	// successive elements of v are far apart in memory, it would be slower.
	last := v.Shape.Rank() - 1
	apart := last >= 0 && v.Strides.At(last) > 1 && v.Shape.At(last) > 1
	if made.Program.Cost() > 0 && (apart || !v.Contiguous() && v.Overlaps()) {
		return nil, false
	}
	return ins, true
}

// alongside reports whether a reduction visits elements in the same order with the operands ins as
// with the operand v. Only then does it combine values in the same order.
func (m *merger) alongside(ins []device.View, v *device.View) bool {
	return len(ins) > 0 && !slices.ContainsFunc(ins, func(w device.View) bool { return !sameStrides(&w, v) })
}

// results finds the results of the new item: those of j, and those of map i that are read later.
func (m *merger) results() bool {
	its := m.r.outs
	m.outs, m.ends = slices.Clone(its), slices.Clone(m.items[m.j].Ends)
	for k := range m.made.Outs {
		out := m.made.Outs[k]
		s := SpanOf(&out)
		if over := slices.IndexFunc(its, func(o device.View) bool { return SpanOf(&o).Meets(s) }); over >= 0 {
			t := SpanOf(&its[over])
			if t.Lo > s.Lo || t.Hi < s.Hi || !fills(&its[over]) {
				return false
			}
			continue // item j overwrites this result of map i
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
		m.how.Keep = append(m.how.Keep, k)
		m.outs, m.ends = append(m.outs, out), append(m.ends, m.items[m.i].Ends[k])
	}
	return true
}

// inOrder reports whether j reads result k of map i in the order in which i writes it. Only then
// can the new item store that result.
func (m *merger) inOrder(k int) bool {
	for i, n := range m.how.Operands {
		if n < 0 && !sameOrder(&m.made.Outs[^n], &m.r.ins[i]) {
			return false
		}
	}
	return true
}

// fits reports whether the new item can write results while it reads operands. Each result must
// either be the same view as an operand or share no memory with it. Also, no operand may share
// memory with the temporary memory of j. That can happen if an operand of i was freed before j.
func (m *merger) fits() bool {
	before := max(len(m.made.Ins)+len(m.made.Outs), len(m.r.ins)+len(m.r.outs), m.MostPointers)
	if len(m.ins)+len(m.outs) > before {
		return false
	}
	if meetAny(spans(m.ins), m.items[m.j].Scratch) {
		return false
	}
	for i := range m.outs {
		s := SpanOf(&m.outs[i])
		for k := range m.ins {
			if SpanOf(&m.ins[k]).Meets(s) && (m.r.reduces != nil || !SameView(&m.ins[k], &m.outs[i]) && !m.inPlace(&m.ins[k], &m.outs[i])) {
				return false
			}
		}
	}
	return true
}

// inPlace reports whether an operand and a result are the same memory in the same order. Their
// types may differ, but not the size of their elements.
func (m *merger) inPlace(in, out *device.View) bool {
	v := *in
	v.Type = out.Type
	return in.Type.Size() == out.Type.Size() && SameView(&v, out)
}
