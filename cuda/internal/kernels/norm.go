package kernels

import (
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// normSpec describes the normalisation of rows, or its gradient. A thread reads some vectors of its
// row. If its registers hold all of them, it reads each vector once. Otherwise it reads them once
// for each loop over the row.
type normSpec struct {
	typ, weight, bias dtype.Type // element types; those of weight and bias are Invalid if absent
	y                 dtype.Type // type of the result, or of the result's gradient
	grad, rms, zero   bool
	plus              bool // whether an operand is added to the gradient
	runs              bool // whether neighbouring columns have the same weight
	vector            int  // number of elements in one access
	held              int  // number of vectors that a thread keeps in registers; 0 for none
	group             int
}

func (s normSpec) name() string {
	name := []string{"layernorm"}
	if s.rms {
		name[0] = "rmsnorm"
	}
	add := func(on bool, part string) {
		if on {
			name = append(name, part)
		}
	}
	add(s.grad, "grad")
	add(s.zero, "zero")
	add(s.plus, "add")
	name = append(name, s.typ.String())
	add(s.y != s.typ, "y"+s.y.String())
	add(s.weight != dtype.Invalid, "w"+s.weight.String())
	add(s.bias != dtype.Invalid, "b"+s.bias.String())
	add(s.runs, "runs")
	return fmt.Sprintf("%s_v%d_h%d_%d", strings.Join(name, "_"), s.vector, s.held, s.group)
}

// NormOperands are the operands and results of a [device.Norm]. Absent operands have the type
// Invalid.
type NormOperands struct {
	Out, Mean, Rstd, X, Weight, Bias Operand
	Grad                             Operand // gradient of the result
	// These are used only for the gradient ([device.NormGrad]).
	DWeight, DBias, Add Operand
}

// Norm plans a normalisation of the rows of o.X.
func Norm(o NormOperands, n device.RowNorm) ([]Launch, error) { return planNorm("norm", o, n, false) }

// NormGrad plans the gradient of the rows of o.X, which it stores in o.Out, and the gradients of
// weight and bias. It reads the gradient of the result from o.Grad. If [NormGradReason] gives a
// reason why the gradients cannot be computed together, NormGrad returns an error with this
// reason.
func NormGrad(o NormOperands, n device.RowNorm, scratch Scratch) ([]Launch, error) {
	if o.DWeight.Type != dtype.Invalid || o.DBias.Type != dtype.Invalid {
		return planNormSums(o, n, scratch)
	}
	return planNorm("norm gradient", o, n, true)
}

func planNorm(op string, o NormOperands, n device.RowNorm, grad bool) ([]Launch, error) {
	y, matrices := o.Out, []Operand{o.Out, o.X}
	if grad {
		y, matrices = o.Grad, append(matrices, o.Grad)
	}
	alike := []Operand{o.X, o.Out, y}
	for i := range alike[1:] { // for float32 rows, the result may be a 16-bit float
		if v := &alike[i+1]; o.X.Type == dtype.F32 && v.Type == y.Type && y.Type.IsHalf() {
			v.Type = dtype.F32
		}
	}
	if o.Add.Type != dtype.Invalid {
		matrices, alike = append(matrices, o.Add), append(alike, o.Add)
	}
	if err := checkRows(op, alike...); err != nil || o.X.Shape.Size() == 0 {
		return nil, err
	}
	rows, columns := o.X.Shape.At(0), o.X.Shape.At(1)
	if n.Period < 1 || n.Inner < 1 || n.Affine(columns)*n.Inner != n.Period*columns {
		return nil, fail(op, "weights for every %d columns of %d rows do not fit %d columns", n.Inner, n.Period, columns)
	}
	s := normSpec{typ: o.X.Type, weight: o.Weight.Type, bias: o.Bias.Type, y: y.Type, plus: o.Add.Type != dtype.Invalid, grad: grad, rms: n.RMS, runs: n.Inner > 1}
	s.zero = n.Zero && !grad && s.bias == dtype.Invalid
	if s.weight == dtype.Invalid && s.bias == dtype.Invalid {
		s.runs = false
	}
	s.choose(columns, n.Inner, matrices, []Operand{o.Weight, o.Bias})
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u32(uint32(rows))
	p.u32(uint32(columns / s.vector))
	p.scalar(s.typ.Compute(), float64(columns))
	if !grad {
		p.scalar(s.typ.Compute(), n.Eps)
	}
	if s.weight != dtype.Invalid || s.bias != dtype.Invalid {
		p.u32(uint32(n.Period))
		if s.runs {
			p.u32(uint32(n.Inner))
		}
	}
	for _, m := range append(matrices, o.Rstd) {
		p.u64(m.start())
	}
	if n.RMS {
		o.Mean = Operand{}
	}
	for _, m := range []Operand{o.Mean, o.Weight, o.Bias} {
		if m.Type != dtype.Invalid {
			p.u64(m.start())
		}
	}
	l, err := p.launch(k, ceilDiv(rows, rowThreads/s.group))
	return []Launch{l}, err
}

// scalar packs the number v as a value of the computing type t.
func (p *packer) scalar(t dtype.Type, v float64) {
	if t.Size() == 8 {
		p.u64(expr.Encode(t, v))
		return
	}
	p.u32(uint32(expr.Encode(t, v)))
}

// choose decides how a row's columns are read. A thread keeps up to 32 values of 4 bytes in
// registers. For a gradient it keeps up to 16 pairs of values.
func (s *normSpec) choose(columns, inner int, matrices, affine []Operand) {
	s.vector = 16 / widest(s.typ, s.weight, s.bias)
	if s.runs {
		s.vector = 16 / s.typ.Size()
	}
	for _, o := range append(matrices, affine...) {
		if o.Type != dtype.Invalid && o.start()%16 != 0 {
			s.vector = 1
		}
	}
	if columns%s.vector != 0 || s.runs && inner%s.vector != 0 {
		s.vector = 1
	}
	room := 32
	if s.grad {
		room /= 2
	}
	if s.typ == dtype.F64 {
		room /= 2
	}
	room = room / s.vector * s.vector
	s.group = 32
	if columns > 32*room || s.vector == 1 && columns > 1024 {
		s.group = rowThreads
	}
	if s.vector > 1 && columns <= s.group*room {
		s.held = 1
		for s.held*s.vector*s.group < columns {
			s.held *= 2
		}
	}
}

// widest returns the size in bytes of the widest type of a list. A thread reads as many columns
// together as fill one access of 16 bytes in the widest type. More columns would take two accesses,
// which would touch the same sectors and use half of each.
func widest(list ...dtype.Type) int {
	n := 0
	for _, t := range list {
		if t != dtype.Invalid {
			n = max(n, t.Size())
		}
	}
	return n
}

// normWork is the state of normSpec.build while it emits the code of a kernel.
type normWork struct {
	*rowWork
	s     normSpec
	t     ptx.Type
	n     ptx.Value // number of columns, as a value of the computing type
	start ptx.Value // index of the weight for the row's first column
	inner ptx.Value
	// at has the indices of the vectors that are kept in registers. inside says, for each of them,
	// whether the row has such a vector.
	at, inside []ptx.Value
}

// rowValues holds the values of a thread's columns. They are kept in registers, or loaded again for
// each loop over the row.
type rowValues struct {
	w    *normWork
	held [][]ptx.Value
	load func(i ptx.Value) []ptx.Value
}

func (s normSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	w := &normWork{s: s, t: computing(s.typ.Compute())}
	rows, vectors := b.Param("rows", ptx.U32), b.Param("vectors", ptx.U32)
	w.n = b.Param("n", w.t)
	var eps, period ptx.Value
	if !s.grad {
		eps = b.Param("eps", w.t)
	}
	if s.weight != dtype.Invalid || s.bias != dtype.Invalid {
		if period = b.Param("period", ptx.U32); s.runs {
			w.inner = b.Param("inner", ptx.U32)
		}
	}
	to := s.y // type of the results
	if s.grad {
		to = s.typ
	}
	out, x := b.Pointer("out", storage(to)), b.Pointer("x", storage(s.typ))
	var g, plus, mean, weight, bias ptx.Ptr
	if s.grad {
		g = b.Pointer("g", storage(s.y))
	}
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
	if s.bias != dtype.Invalid {
		bias = b.Pointer("bias", storage(s.bias))
	}
	w.rowWork = newRows(b, s.group, s.typ, rows, vectors)
	if s.vector > 1 {
		w.unroll = 32 / (s.vector * s.typ.Size())
	}
	first := w.row.Cvt(ptx.S64).Mul(vectors.Cvt(ptx.S64)).Mul(num(s.vector))
	out, x = out.At(first), x.At(first)
	if s.grad {
		g = g.At(first)
	}
	if s.plus {
		plus = plus.At(first)
	}
	if s.weight != dtype.Invalid || s.bias != dtype.Invalid {
		w.start = w.row.Rem(period).Mul(vectors).Mul(num(s.vector))
	}
	if s.held > 0 {
		last := vectors.Sub(num(1))
		for k := range s.held {
			i := w.lane.Add(num(k * s.group))
			w.inside = append(w.inside, i.Lt(vectors))
			w.at = append(w.at, i.Min(last))
		}
	}
	vector := func(p ptx.Ptr, t dtype.Type, i ptx.Value) []ptx.Value {
		return loadVector(b, p.At(i.Mul(num(s.vector))), t, s.vector)
	}
	store := func(i ptx.Value, v []ptx.Value) {
		if s.plus {
			more := vector(plus, s.typ, i)
			v = apply(v, func(k int) ptx.Value { return v[k].Add(more[k]) })
		}
		storeVector(b, out.At(i.Mul(num(s.vector))), to, v)
	}
	if s.grad {
		w.gradient(func(i ptx.Value) []ptx.Value { return append(vector(g, s.y, i), vector(x, s.typ, i)...) }, store, mean, rstd, weight)
	} else {
		w.forward(func(i ptx.Value) []ptx.Value { return vector(x, s.typ, i) }, store, eps, mean, rstd, weight, bias)
	}
	return [3]int{rowThreads, 1, 1}
}

// forward emits the code that stores three results: (x - mean)·rstd·weight + bias, the mean, and
// rstd.
func (w *normWork) forward(load func(i ptx.Value) []ptx.Value, store func(i ptx.Value, v []ptx.Value), eps ptx.Value, mean, rstd, weight, bias ptx.Ptr) {
	b, s := w.Builder, w.s
	x := w.values(load)
	var m ptx.Value
	if !s.rms {
		b.Comment("the mean, and the distances from it")
		m = x.sum(func(v []ptx.Value) []ptx.Value { return v }).Div(w.n)
		x = x.mapped(func(_ ptx.Value, v []ptx.Value) []ptx.Value {
			return apply(v, func(k int) ptx.Value { return v[k].Sub(m) })
		})
	}
	b.Comment("the mean square")
	squares := x.sum(func(v []ptx.Value) []ptx.Value {
		return apply(v, func(k int) ptx.Value { return v[k].Mul(v[k]) })
	})
	r := b.Const(w.t, num(1)).Div(squares.Div(w.n).Add(eps).Sqrt())
	b.If(w.lane.Eq(num(0)), func() {
		rstd.At(w.row).Store(r)
		if !s.rms {
			mean.At(w.row).Store(m)
		}
	})
	x.forEach(func(i ptx.Value, v []ptx.Value) {
		v = apply(v, func(k int) ptx.Value { return v[k].Mul(r) })
		if s.weight != dtype.Invalid {
			f := w.affine(weight, s.weight, i)
			v = apply(v, func(k int) ptx.Value { return v[k].Mul(f[k]) })
		}
		switch {
		case s.bias != dtype.Invalid:
			f := w.affine(bias, s.bias, i)
			v = apply(v, func(k int) ptx.Value { return v[k].Add(f[k]) })
		case s.zero:
			v = apply(v, func(k int) ptx.Value { return v[k].Add(b.Const(w.t, real(0))) })
		}
		store(i, v)
	})
}

// gradient emits the code that stores rstd·(h - m(h) - z·m(h·z)). Here h is g·weight, z is (x -
// mean)·rstd, and m is the mean over the row.
func (w *normWork) gradient(load func(i ptx.Value) []ptx.Value, store func(i ptx.Value, v []ptx.Value), mean, rstd, weight ptx.Ptr) {
	s, n := w.s, w.s.vector
	r := rstd.At(w.row).Load()
	var m, mh ptx.Value
	if !s.rms {
		m = mean.At(w.row).Load()
	}
	both := w.values(load).mapped(func(i ptx.Value, v []ptx.Value) []ptx.Value {
		h, z := v[:n], v[n:]
		if s.weight != dtype.Invalid {
			f := w.affine(weight, s.weight, i)
			h = apply(h, func(k int) ptx.Value { return v[k].Mul(f[k]) })
		}
		return append(h[:n:n], apply(z, func(k int) ptx.Value {
			if s.rms {
				return v[n+k].Mul(r)
			}
			return v[n+k].Sub(m).Mul(r)
		})...)
	})
	w.Comment("the means of h*z and of h")
	mhz := both.sum(func(v []ptx.Value) []ptx.Value {
		return apply(v[:n], func(k int) ptx.Value { return v[k].Mul(v[n+k]) })
	}).Div(w.n)
	if !s.rms {
		mh = both.sum(func(v []ptx.Value) []ptx.Value { return v[:n] }).Div(w.n)
	}
	both.forEach(func(i ptx.Value, v []ptx.Value) {
		store(i, apply(v[:n], func(k int) ptx.Value {
			h := v[k]
			if !s.rms {
				h = h.Sub(mh)
			}
			return h.Sub(v[n+k].Mul(mhz)).Mul(r)
		}))
	})
}

// affine loads the weights for vector i.
func (w *normWork) affine(p ptx.Ptr, t dtype.Type, i ptx.Value) []ptx.Value {
	at := i.Mul(num(w.s.vector)).Add(w.start)
	if !w.s.runs {
		return loadVector(w.Builder, p.At(at), t, w.s.vector)
	}
	f := loadVector(w.Builder, p.At(at.Div(w.inner)), t, 1)
	for len(f) < w.s.vector {
		f = append(f, f[0])
	}
	return f
}

func apply(v []ptx.Value, f func(k int) ptx.Value) []ptx.Value {
	out := make([]ptx.Value, len(v))
	for k := range v {
		out[k] = f(k)
	}
	return out
}

// values loads the thread's columns with the function load. It keeps as many of them as registers
// can hold.
func (w *normWork) values(load func(i ptx.Value) []ptx.Value) rowValues {
	v := rowValues{w: w, load: load}
	for _, i := range w.at {
		v.held = append(v.held, load(i))
	}
	return v
}

func (r rowValues) mapped(f func(i ptx.Value, v []ptx.Value) []ptx.Value) rowValues {
	out := rowValues{w: r.w, load: func(i ptx.Value) []ptx.Value { return f(i, r.load(i)) }}
	for k, v := range r.held {
		out.held = append(out.held, f(r.w.at[k], v))
	}
	return out
}

// pairwise adds up a list of values: first neighbours in pairs, then neighbouring sums.
func pairwise(list []ptx.Value) ptx.Value {
	return combinePairs(list, func(x, y ptx.Value) ptx.Value { return x.Add(y) })
}

// combinePairs combines a list of values: first neighbours in pairs, then neighbouring results.
func combinePairs(list []ptx.Value, combine func(x, y ptx.Value) ptx.Value) ptx.Value {
	for len(list) > 1 {
		var next []ptx.Value
		for i := 0; i+1 < len(list); i += 2 {
			next = append(next, combine(list[i], list[i+1]))
		}
		if len(list)%2 == 1 {
			next = append(next, list[len(list)-1])
		}
		list = next
	}
	return list[0]
}

// sum adds up f(v) over the vectors v of the row.
func (r rowValues) sum(f func(v []ptx.Value) []ptx.Value) ptx.Value {
	w := r.w
	if r.held == nil {
		return w.rowWork.sum(w.t, r.load, func(v []ptx.Value) ptx.Value { return pairwise(f(v)) })
	}
	zero := w.Const(w.t, real(0))
	var list []ptx.Value
	for k, v := range r.held {
		list = append(list, w.inside[k].Select(pairwise(f(v)), zero))
	}
	return w.reduceRow(pairwise(list), func(x, y ptx.Value) ptx.Value { return x.Add(y) })
}

// forEach calls visit for every vector of the row.
func (r rowValues) forEach(visit func(i ptx.Value, v []ptx.Value)) {
	if r.held == nil {
		r.w.rowWork.forEach(r.load, visit)
		return
	}
	for k, v := range r.held {
		r.w.If(r.w.inside[k], func() { visit(r.w.at[k], v) })
	}
}
