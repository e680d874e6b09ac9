package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// normSumsSpec describes a kernel for the gradient of the normalisation of rows, together with the
// gradients of weight and bias. A warp or a block loops over rows and holds one row at a time in
// registers. It computes the row's gradient, and adds the row's contribution to the sums for each
// column. So it reads the operands only once.
type normSumsSpec struct {
	// Types of x, g and weight. The type of weight is Invalid if there is no weight.
	typ, g, weight dtype.Type
	rms            bool
	// which results are wanted; plus says that an operand is added to dx
	dx, dw, db, plus bool
	vector           int  // number of elements in one access
	held             int  // number of vectors of a row that each thread keeps in registers
	ragged           bool // whether some threads hold one vector less
	group            int  // number of threads that share a row
}

func (s normSumsSpec) name() string {
	name := "layernorm_grad"
	if s.rms {
		name = "rmsnorm_grad"
	}
	for _, part := range []struct {
		on   bool
		name string
	}{{s.dx, "dx"}, {s.dw, "dw"}, {s.db, "db"}, {s.plus, "add"}} {
		if part.on {
			name += "_" + part.name
		}
	}
	name += "_" + s.typ.String()
	if s.g != s.typ {
		name += "_g" + s.g.String()
	}
	if s.weight != dtype.Invalid {
		name += "_w" + s.weight.String()
	}
	if s.ragged {
		name += "_ragged"
	}
	return fmt.Sprintf("%s_v%d_h%d_%d", name, s.vector, s.held, s.group)
}

const (
	// A thread holds at most normValues columns, each in four or five registers. If it reads its
	// columns one by one, it holds at most oddValues of them, because each needs an address.
	normValues, oddValues = 32, 24
	// normParts is the largest number of blocks. Each block stores partial sums.
	normParts = 1024
	// normWarps is the number of warps of a block if each warp processes its own row.
	normWarps = 4
)

// normPartRows returns the least number of rows of a block. With this number, the traffic of
// partial sums is less than a twentieth of the traffic of the operands.
func normPartRows(t dtype.Type) int {
	if t.IsHalf() {
		return 64
	}
	return 48
}

// NormGradReason explains why no kernel computes the gradient of x together with the gradients of
// weight and bias. It returns "" if there is a kernel, or if neither the gradient of weight nor
// that of bias is wanted.
func NormGradReason(o NormOperands, n device.RowNorm) string {
	switch {
	case o.DWeight.Type == dtype.Invalid && o.DBias.Type == dtype.Invalid:
		return ""
	case n.Period != 1 || n.Inner != 1:
		return "the gradients of weights that columns or rows share are sums over what has one weight"
	}
	// The addresses are not known yet, so assume the worst case: elements are read one by
	// one.
	if columns := o.X.Shape.At(1); columns > rowThreads*normRoom(o.X.Type, o.Grad.Type, 1) {
		return fmt.Sprintf("rows of %d columns do not fit registers", columns)
	}
	return ""
}

// normRoom returns how many columns of a row a thread can hold, for x of type t and a gradient of
// type g. If elements are read one by one (vector is 1), it can hold fewer. In this case,
// conversions between different types need registers too.
func normRoom(t, g dtype.Type, vector int) int {
	if vector == 1 && g != t {
		return oddValues - 2
	}
	if vector == 1 {
		return oddValues * 4 / t.Compute().Size()
	}
	return normValues * 4 / t.Compute().Size()
}

// newNormSums returns the specification of the kernel for these operands.
func newNormSums(o NormOperands, n device.RowNorm) normSumsSpec {
	s := normSumsSpec{typ: o.X.Type, g: o.Grad.Type, weight: o.Weight.Type, rms: n.RMS, dx: o.Out.Type != dtype.Invalid,
		dw: o.DWeight.Type != dtype.Invalid, db: o.DBias.Type != dtype.Invalid, plus: o.Add.Type != dtype.Invalid}
	if !s.dx {
		s.weight = dtype.Invalid
	}
	columns := o.X.Shape.At(1)
	s.vector = 16 / widest(s.typ, s.weight)
	for _, p := range []Operand{o.Out, o.X, o.Grad, o.Weight, o.Add} {
		if p.Type != dtype.Invalid && p.start()%16 != 0 || columns%s.vector != 0 {
			s.vector = 1
		}
	}
	s.group = 32
	if columns > s.group*normRoom(s.typ, s.g, s.vector) {
		s.group = rowThreads
	}
	s.held = ceilDiv(columns, s.vector*s.group)
	s.ragged = columns%(s.vector*s.group) != 0
	return s
}

// planNormSums plans the gradients of x, weight and bias as two launches. In the first, each block
// stores partial sums over its rows. The second adds these up. The number of blocks depends only on
// the number of rows and on the type.
func planNormSums(o NormOperands, n device.RowNorm, scratch Scratch) ([]Launch, error) {
	const op = "norm gradient"
	if why := NormGradReason(o, n); why != "" {
		return nil, fail(op, "%s", why)
	}
	rows, columns := o.X.Shape.At(0), o.X.Shape.At(1)
	if columns == 0 {
		return nil, nil
	}
	s := newNormSums(o, n)
	parts := min(ceilDiv(rows, normPartRows(s.typ)), normParts)
	sums, first := columns, o.DWeight
	if !s.dw {
		first = o.DBias
	}
	if s.dw && s.db {
		sums *= 2
	}
	var list []Launch
	var partial uint64
	acc := s.typ.Compute()
	if parts > 0 { // without rows the sums are 0
		var err error
		if partial, err = scratch(parts * sums * acc.Size()); err != nil {
			return nil, err
		}
		k, err := kernelOf(s)
		if err != nil {
			return nil, err
		}
		p := make(packer, 0, 128)
		p.u32(uint32(rows))
		p.u32(uint32(columns))
		p.scalar(acc, float64(columns))
		if n.RMS {
			o.Mean = Operand{}
		}
		if !s.dx {
			o.Weight = Operand{}
		}
		for _, m := range []Operand{o.Out, o.X, o.Grad, o.Add, o.Rstd, o.Mean, o.Weight} {
			if m.Type != dtype.Invalid {
				p.u64(m.start())
			}
		}
		p.u64(partial)
		l, err := p.launch(k, parts)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	k, err := kernelOf(normPartsSpec{acc})
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 48)
	p.u32(uint32(parts))
	p.u32(uint32(sums))
	p.u32(uint32(columns))
	p.u64(partial)
	p.u64(first.start())
	p.u64(o.DBias.start())
	l, err := p.launch(k, ceilDiv(sums, columnWidth))
	return append(list, l), err
}

// normSumsWork is the state of normSumsSpec.build while it emits the code of a kernel.
type normSumsWork struct {
	*ptx.Builder
	s       normSumsSpec
	t       ptx.Type
	columns ptx.Value
	lane    ptx.Value
	inside  ptx.Value // whether the last vector of this thread is in the row
	at      []ptx.Value
	shared  ptx.Ptr
	turn    *ptx.Var // index of the half of the shared memory that the next row uses
}

func (s normSumsSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	w := &normSumsWork{Builder: b, s: s, t: computing(s.typ.Compute())}
	if s.held*s.vector*2 <= normRoom(s.typ, s.g, s.vector) {
		b.MinBlocks(2)
	}
	rows := b.Param("rows", ptx.U32)
	w.columns = b.Param("columns", ptx.U32)
	n := b.Param("n", w.t)
	var dx, plus, mean, weight ptx.Ptr
	if s.dx {
		dx = b.Pointer("dx", storage(s.typ))
	}
	x, g := b.Pointer("x", storage(s.typ)), b.Pointer("g", storage(s.g))
	if s.plus {
		plus = b.Pointer("add", storage(s.typ))
	}
	rstd := b.Pointer("rstd", w.t)
	if !s.rms {
		mean = b.Pointer("mean", w.t)
	}
	if s.weight != dtype.Invalid {
		weight = b.Pointer("weight", storage(s.weight))
	}
	partial := b.Pointer("partial", w.t)
	threads, groups := rowThreads, 1
	first := b.BlockID(0)
	w.lane = b.ThreadID(0)
	if s.group == 32 {
		threads, groups = 32*normWarps, normWarps
		w.lane, first = b.LaneID(), first.Mad(num(groups), b.WarpID())
	} else if s.dx {
		w.shared = b.Shared("across", w.t, 2*2*rowThreads/32)
		w.turn = b.Var(b.U32(0))
	}
	for k := range s.held {
		w.at = append(w.at, w.lane.Add(num(k*s.group)).Mul(num(s.vector)))
	}
	if s.ragged {
		last := &w.at[s.held-1]
		w.inside = last.Lt(w.columns)
		*last = last.Min(w.columns.Sub(num(s.vector)))
	}
	var sums [2][]*ptx.Var // sums of g·z and of g
	for a, on := range []bool{s.dw, s.db} {
		for range s.held * s.vector {
			if on {
				sums[a] = append(sums[a], b.Var(b.Const(w.t, real(0))))
			}
		}
	}
	b.For(first, rows, b.GridDim(0).Mul(num(groups)), func(row ptx.Value, _ ptx.Loop) {
		start := row.Cvt(ptx.S64).Mul(w.columns.Cvt(ptx.S64))
		h, z := w.load(g.At(start), s.g), w.load(x.At(start), s.typ)
		var more []ptx.Value
		if s.plus {
			more = w.load(plus.At(start), s.typ)
		}
		r := rstd.At(row).Load()
		var m ptx.Value
		if !s.rms {
			m = mean.At(row).Load()
		}
		for k := range z {
			if !s.rms {
				z[k] = z[k].Sub(m)
			}
			z[k] = z[k].Mul(r)
			if s.dw {
				sums[0][k].Set(h[k].FMA(z[k], sums[0][k].Get()))
			}
			if s.db {
				sums[1][k].Set(sums[1][k].Get().Add(h[k]))
			}
		}
		if s.dx {
			w.gradient(dx.At(start), weight, h, z, more, r, n)
		}
	})
	w.storePart(partial, sums)
	return [3]int{threads, 1, 1}
}

func (w *normSumsWork) load(p ptx.Ptr, t dtype.Type) (v []ptx.Value) {
	for _, i := range w.at {
		v = append(v, loadVector(w.Builder, p.At(i), t, w.s.vector)...)
	}
	return v
}

// forEach calls f for each of the thread's vectors. The arguments of f are the vector's first
// column, and the index of its first value among the thread's values.
func (w *normSumsWork) forEach(f func(i ptx.Value, value int)) {
	for k, i := range w.at {
		run := func() { f(i, k*w.s.vector) }
		if w.s.ragged && k == w.s.held-1 {
			w.If(w.inside, run)
		} else {
			run()
		}
	}
}

// gradient emits the code that stores rstd·(h - m(h) - z·m(h·z)) for a row. Here h is g·weight, z
// is (x - mean)·rstd, and m is the mean over the row. If an operand is added to the gradient,
// addend holds its values.
func (w *normSumsWork) gradient(dx, weight ptx.Ptr, h, z, addend []ptx.Value, r, n ptx.Value) {
	s := w.s
	if s.weight != dtype.Invalid {
		for k, f := range w.load(weight, s.weight) {
			h[k] = h[k].Mul(f)
		}
	}
	w.Comment("the means of h*z and of h")
	mhz := w.sum(apply(h, func(k int) ptx.Value { return h[k].Mul(z[k]) }))
	list := []ptx.Value{mhz}
	if !s.rms {
		list = append(list, w.sum(h))
	}
	list = w.reduceRow(list)
	for i := range list {
		list[i] = list[i].Div(n)
	}
	w.forEach(func(i ptx.Value, from int) {
		storeVector(w.Builder, dx.At(i), s.typ, apply(h[from:from+s.vector], func(k int) ptx.Value {
			v := h[from+k]
			if !s.rms {
				v = v.Sub(list[1])
			}
			v = v.Sub(z[from+k].Mul(list[0])).Mul(r)
			if s.plus {
				v = v.Add(addend[from+k])
			}
			return v
		}))
	})
}

func (w *normSumsWork) sum(v []ptx.Value) ptx.Value {
	last := len(v) - w.s.vector
	tail := pairwise(v[last:])
	if w.s.ragged {
		tail = w.inside.Select(tail, w.Const(w.t, real(0)))
	}
	if last == 0 {
		return tail
	}
	return pairwise(v[:last]).Add(tail)
}

// reduceRow adds up each value of the list over the threads of a row. Every thread gets the sums.
// One barrier for each row is enough, because successive rows alternate between the two halves of
// the shared memory.
func (w *normSumsWork) reduceRow(list []ptx.Value) []ptx.Value {
	add := func(x, y ptx.Value) ptx.Value { return x.Add(y) }
	for i := range list {
		list[i] = list[i].WarpReduce(add)
	}
	if w.s.group == 32 {
		return list
	}
	const warps = rowThreads / 32
	half := w.shared.At(w.turn.Get().Mul(num(2 * warps)))
	w.If(w.LaneID().Eq(num(0)), func() {
		for i, v := range list {
			half.At(w.WarpID()).At(num(i * warps)).Store(v)
		}
	})
	w.Barrier()
	for i := range list {
		list[i] = half.At(w.LaneID().And(num(warps-1))).At(num(i*warps)).Load().WarpReduceWidth(warps, add)
	}
	w.turn.Set(w.turn.Get().Xor(num(1)))
	return list
}

// storePart stores the block's partial sums in the memory at partial.
func (w *normSumsWork) storePart(partial ptx.Ptr, sums [2][]*ptx.Var) {
	var list [][]*ptx.Var
	for _, v := range sums {
		if v != nil {
			list = append(list, v)
		}
	}
	s, acc := w.s, w.s.typ.Compute()
	values := func(v []*ptx.Var, from int) []ptx.Value {
		out := make([]ptx.Value, s.vector)
		for k := range out {
			out[k] = v[from+k].Get()
		}
		return out
	}
	partial = partial.At(w.BlockID(0).Cvt(ptx.S64).Mul(w.columns.Cvt(ptx.S64)).Mul(num(len(list))))
	if s.group > 32 {
		for a, v := range list {
			to := partial.At(w.columns.Mul(num(a)))
			w.forEach(func(i ptx.Value, from int) { storeVector(w.Builder, to.At(i), acc, values(v, from)) })
		}
		return
	}
	w.Comment("the sums of the block's warps, a vector of each lane at a time")
	// In shared memory, element e of all vectors of a warp lies in plane e. In one step each lane
	// stores a few values of one plane, next to those of its neighbour. The gap between planes
	// prevents bank conflicts.
	width, threads, chunk := 32*s.vector, 32*normWarps, min(s.vector, 16/acc.Size())
	plane := 32 * chunk
	if chunk < s.vector {
		plane += 16
	}
	warp := s.vector / chunk * plane
	tile := w.Shared("tile", w.t, len(list)*normWarps*warp)
	for k := range s.held {
		if k > 0 {
			w.Barrier()
		}
		for a, v := range list {
			to := tile.At(num(a * normWarps * warp)).At(w.WarpID().Mul(num(warp))).At(w.LaneID().Mul(num(chunk)))
			all := values(v, k*s.vector)
			for i := 0; i < s.vector; i += chunk {
				storeVector(w.Builder, to.At(num(i/chunk*plane)), acc, all[i:i+chunk])
			}
		}
		w.Barrier()
		for c := 0; c < width; c += threads {
			at := w.ThreadID(0).Add(num(c))
			column := at.Add(num(k * width))
			has := column.Lt(w.columns)
			if width < threads {
				has = has.And(at.Lt(num(width)))
			}
			from := tile.At(at)
			if chunk < s.vector {
				lane, part := at.Div(num(s.vector)), at.Rem(num(s.vector))
				from = tile.At(part.Div(num(chunk)).Mul(num(plane))).At(lane.Mad(num(chunk), part.Rem(num(chunk))))
			}
			w.If(has, func() {
				for a := range list {
					var v []ptx.Value
					for i := range normWarps {
						v = append(v, from.At(num((a*normWarps+i)*warp)).Load())
					}
					partial.At(w.columns.Mul(num(a)).Add(column)).Store(pairwise(v))
				}
			})
		}
	}
}

// normPartsSpec describes the kernel that adds up the partial sums of the gradients of weight and
// bias. Eight threads work on each result, and the lanes of a warp work on neighbouring results.
type normPartsSpec struct{ acc dtype.Type }

func (s normPartsSpec) name() string { return "norm_grad_sums_" + s.acc.String() }

func (s normPartsSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	t := computing(s.acc)
	parts, sums, columns := b.Param("parts", ptx.U32), b.Param("sums", ptx.U32), b.Param("columns", ptx.U32)
	partial, first, second := b.Pointer("partial", t), b.Pointer("first", t), b.Pointer("second", t)
	tx, ty := b.ThreadID(0), b.ThreadID(1)
	sum := b.BlockID(0).Mad(num(columnWidth), tx)
	inside := sum.Lt(sums)
	tile := b.Shared("tile", t, reduceThreads)
	b.If(inside, func() {
		part := func(i ptx.Value) ptx.Value {
			return partial.At(i.Cvt(ptx.S64).Mul(sums.Cvt(ptx.S64)).Add(sum.Cvt(ptx.S64))).Load()
		}
		vars := make([]*ptx.Var, chains)
		for k := range vars {
			vars[k] = b.Var(b.Const(t, real(0)))
		}
		tail := parts.Div(num(chains * columnHeight)).Mul(num(chains * columnHeight))
		b.For(ty, tail, num(chains*columnHeight), func(i ptx.Value, _ ptx.Loop) {
			for k, v := range vars {
				v.Set(v.Get().Add(part(i.Add(num(k * columnHeight)))))
			}
		})
		b.For(tail.Add(ty), parts, num(columnHeight), func(i ptx.Value, _ ptx.Loop) { vars[0].Set(vars[0].Get().Add(part(i))) })
		list := make([]ptx.Value, chains)
		for k := range list {
			list[k] = vars[k].Get()
		}
		tile.At(ty.Mad(num(columnWidth), tx)).Store(pairwise(list))
	})
	b.Barrier()
	b.If(inside.And(ty.Eq(num(0))), func() {
		var list []ptx.Value
		for y := range columnHeight {
			list = append(list, tile.At(tx).At(num(y*columnWidth)).Load())
		}
		all := pairwise(list)
		b.IfElse(sum.Lt(columns), func() { first.At(sum).Store(all) }, func() { second.At(sum.Sub(columns)).Store(all) })
	})
	return [3]int{columnWidth, columnHeight, 1}
}
