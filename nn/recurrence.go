package nn

import (
	"cmp"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// A recurrence computes one layer in one direction, over all steps. It is a tensor.Function with
// these operands:
//
//	x [rows, in], h0 [n, out], w_ih [gates·hidden, in], w_hh [gates·hidden, out],
//	b_ih and b_hh [gates·hidden] if there is a bias,
//	c0 [n, hidden] for LSTM, and w_hr [out, hidden] with a projection
//
// The result is a vector that concatenates up to three tensors: the states of all rows, [rows,
// out]; the last states, [n, out]; and, for LSTM only, the last c, [n, hidden]. The rows are
// sorted by step. No step has more rows than the step before it.
//
// One matrix product multiplies the inputs of all steps by w_ih. Each step then multiplies the
// state by w_hh, and runs one kernel that computes the cell. The states, and the gates after their
// activations, are saved for the gradient.
type recurrence struct {
	cell    cell
	sizes   []int // number of rows of each step
	reverse bool
	hidden  int
	bias    bool
	proj    bool
}

func (f *recurrence) Name() string { return f.cell.String() }

// A stretch is a range of rows of one step whose previous states are in contiguous rows.
type stretch struct {
	at, n int // index of the first row, and number of rows
	lo    int // position of the first row among the rows of its step
	prev  int // index of the first row of the previous states; -1 if these are rows of h0
}

// stretches returns all stretches, in the order in which they are computed.
func (f *recurrence) stretches() []stretch {
	var list []stretch
	start := make([]int, len(f.sizes)+1)
	for t, n := range f.sizes {
		start[t+1] = start[t] + n
	}
	for i := range f.sizes {
		t, before := i, i-1
		if f.reverse {
			t = len(f.sizes) - 1 - i
			before = t + 1
		}
		had := 0
		if i > 0 {
			had = min(f.sizes[before], f.sizes[t])
		}
		if had > 0 {
			list = append(list, stretch{start[t], had, 0, start[before]})
		}
		if n := f.sizes[t]; n > had {
			list = append(list, stretch{start[t] + had, n - had, had, -1})
		}
	}
	return list
}

// ends returns the rows of the last states of all sequences as stretches. A stretch has the last
// states of n sequences. The first of these sequences has the number lo, and its last state is in
// row at.
func (f *recurrence) ends() []stretch {
	if f.reverse {
		return []stretch{{at: 0, n: f.sizes[0]}}
	}
	var list []stretch
	start := 0
	for t, n := range f.sizes {
		left := 0
		if t+1 < len(f.sizes) {
			left = f.sizes[t+1]
		}
		if n > left {
			list = append(list, stretch{at: start + left, n: n - left, lo: left})
		}
		start += n
	}
	return list
}

// joined merges neighbouring stretches if their rows are contiguous and the rows of their previous
// states are contiguous too.
func joined(list []stretch) []stretch {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b stretch) int { return cmp.Compare(a.at, b.at) })
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && s.prev >= 0 && out[n-1].prev >= 0 && out[n-1].prev+out[n-1].n == s.prev && out[n-1].at+out[n-1].n == s.at {
			out[n-1].n += s.n
			continue
		}
		out = append(out, s)
	}
	return out
}

func rowsOf(v device.View, at, n int) device.View {
	v.Layout = v.Narrow(0, at, n, 1)
	return v
}

func columnsOf(v device.View, k, n int) device.View {
	v.Layout = v.Narrow(1, k*n, n, 1)
	return v
}

// A queue launches primitives on a stream until one fails.
type queue struct {
	dev     device.Device
	s       device.Stream
	err     error
	mapping device.Map
	times   device.MatMul
	tf32    bool // allows tf32 for products of float32 matrices
}

func (q *queue) mapTo(p *expr.Program, outs, ins []device.View) {
	if q.err == nil {
		q.mapping = device.Map{Program: p, Outs: outs, Ins: ins}
		q.err = device.Run(q.dev, q.s, &q.mapping)
	}
}

func (q *queue) product(out, a, b device.View) {
	if q.err == nil {
		out.Layout, a.Layout, b.Layout = out.Unsqueeze(0), a.Unsqueeze(0), b.Unsqueeze(0)
		q.times = device.MatMul{Out: out, A: a, B: b, TF32: q.tf32 && out.Type == dtype.F32}
		q.err = device.Run(q.dev, q.s, &q.times)
	}
}

func flipped(v device.View) device.View {
	v.Layout = v.Transpose(0, 1)
	return v
}

// recurrenceIn holds the operands of a recurrence.
type recurrenceIn struct{ x, h0, wih, whh, bih, bhh, c0, whr *tensor.Tensor }

func (f *recurrence) named(in []*tensor.Tensor) (o recurrenceIn) {
	o.x, o.h0, o.wih, o.whh = in[0], in[1], in[2], in[3]
	k := 4
	if f.bias {
		o.bih, o.bhh, k = in[4], in[5], 6
	}
	if f.cell == lstmCell {
		o.c0 = in[k]
		k++
	}
	if f.proj {
		o.whr = in[k]
	}
	return o
}

// inputBias returns the bias that is added to the product of the input and the weights: b_ih +
// b_hh. For a GRU it leaves out what stateBias returns.
func (f *recurrence) inputBias(o recurrenceIn) *tensor.Tensor {
	if f.cell != gruCell {
		return o.bih.Add(o.bhh)
	}
	h := 2 * f.hidden
	return tensor.Cat(0, o.bih.Narrow(0, 0, h).Add(o.bhh.Narrow(0, 0, h)), o.bih.Narrow(0, h, f.hidden))
}

// stateBias returns the block of b_hh that a GRU adds to the new gate's product with the state.
// For other cells, and without biases, it returns nil.
func (f *recurrence) stateBias(o recurrenceIn) *tensor.Tensor {
	if f.cell != gruCell || !f.bias {
		return nil
	}
	return o.bhh.Narrow(0, 2*f.hidden, f.hidden)
}

// split returns the tensors that are concatenated in v: all states y, the last states h and, for
// LSTM only, the last c. v is the result of f or the gradient of the result.
func (f *recurrence) split(v *tensor.Tensor, rows, n, out int) (y, h, c *tensor.Tensor) {
	y, h = v.Narrow(0, 0, rows*out).Reshape(rows, out), v.Narrow(0, rows*out, n*out).Reshape(n, out)
	if f.cell == lstmCell {
		c = v.Narrow(0, (rows+n)*out, n*f.hidden).Reshape(n, f.hidden)
	}
	return y, h, c
}

func (f *recurrence) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	keep := false
	for i := range in {
		keep = keep || c.Needs(i)
	}
	o := f.named(in)
	rows, n, out, hidden := o.x.Dim(0), o.h0.Dim(0), o.h0.Dim(1), f.hidden
	m := c.Scope().On(o.x.Device()).Typed(o.x.Type())
	tf32 := c.Scope().TF32()
	gates := o.x.MatMul(o.wih.T())
	if f.bias {
		gates.AddInPlace(f.inputBias(o))
	}
	size := (rows + n) * out
	if f.cell == lstmCell {
		size += n * hidden
	}
	result := m.Empty(size)
	y, last, lastC := f.split(result, rows, n, out)
	outs := []*tensor.Tensor{y, last, gates, m.Empty(n, gates.Dim(1))}
	back := o.whh.T()
	if len(f.sizes) > 4 && 16*n > min(out, 256) {
		// The transposed weight is copied once, instead of in the product of every step. Products
		// with few rows can read the transposed view directly.
		back = back.Contiguous()
	}
	ins := []*tensor.Tensor{o.h0, back}
	kept := in
	more := func(to *[]*tensor.Tensor, t *tensor.Tensor) func(v []device.View) device.View {
		if t == nil {
			return func([]device.View) device.View { return device.View{} }
		}
		at := len(*to)
		*to = append(*to, t)
		return func(v []device.View) device.View { return v[at] }
	}
	// For LSTM, states holds c. With a projection, inner holds the states that w_hr multiplies. For
	// GRU, q holds the new gate's product with the state, plus the bias.
	var states, inner, q *tensor.Tensor
	if f.cell == lstmCell {
		if states = lastC; keep {
			states = m.Empty(rows, hidden)
		} else {
			lastC.Copy(o.c0)
		}
	}
	if f.proj {
		if inner = m.Empty(n, hidden); keep {
			inner = m.Empty(rows, hidden)
		}
	}
	if f.cell == gruCell && keep {
		q = m.Empty(rows, hidden)
	}
	lastCV, statesV, innerV, qV := more(&outs, lastC), more(&outs, states), more(&outs, inner), more(&outs, q)
	var bias *tensor.Tensor
	if b := f.stateBias(o); b != nil {
		bias = b.Unsqueeze(0).Expand(n, hidden)
	}
	c0V, whrV, biasV := more(&ins, o.c0), more(&ins, o.whr), more(&ins, bias)
	if rows > 0 {
		program := cellKey{f.cell, o.x.Type(), false, keep && f.cell != tanhCell && f.cell != reluCell, bias != nil}.program()
		tensor.Raw(f.Name(), outs, ins, func(s device.Stream, outs, ins []device.View) error {
			run := &queue{dev: o.x.Device(), s: s, tf32: tf32}
			y, gates, part, h0, back := outs[0], outs[2], outs[3], ins[0], ins[1]
			var to, from []device.View
			for _, p := range f.stretches() {
				before, at := h0, p.lo
				if p.prev >= 0 {
					before, at = y, p.prev
				}
				before = rowsOf(before, at, p.n)
				t, g := rowsOf(part, 0, p.n), rowsOf(gates, p.at, p.n)
				run.product(t, before, back)
				to, from = to[:0], from[:0]
				for k := range f.cell.gates() {
					from = append(from, columnsOf(g, k, hidden))
				}
				if keep && (f.cell == lstmCell || f.cell == gruCell) {
					to = append(to, from...)
				}
				for k := range f.cell.gates() {
					from = append(from, columnsOf(t, k, hidden))
				}
				now := rowsOf(y, p.at, p.n)
				switch f.cell {
				case lstmCell:
					row := p.lo
					if keep {
						row = p.at
					}
					c := rowsOf(statesV(outs), row, p.n)
					switch {
					case !keep:
						from = append(from, c)
					case p.prev >= 0:
						from = append(from, rowsOf(statesV(outs), p.prev, p.n))
					default:
						from = append(from, rowsOf(c0V(ins), p.lo, p.n))
					}
					if f.proj {
						i := rowsOf(innerV(outs), row, p.n)
						run.mapTo(program, append(to, c, i), from)
						run.product(now, i, flipped(whrV(ins)))
						continue
					}
					to = append(to, c)
				case gruCell:
					from = append(from, before)
					if bias != nil {
						from = append(from, rowsOf(biasV(ins), 0, p.n))
					}
					if keep {
						to = append(to, rowsOf(qV(outs), p.at, p.n))
					}
				}
				run.mapTo(program, append(to, now), from)
			}
			same := sameProgram(o.x.Type())
			for _, e := range f.ends() {
				run.mapTo(same, []device.View{rowsOf(outs[1], e.lo, e.n)}, []device.View{rowsOf(y, e.at, e.n)})
				if keep && f.cell == lstmCell {
					run.mapTo(same, []device.View{rowsOf(lastCV(outs), e.lo, e.n)}, []device.View{rowsOf(statesV(outs), e.at, e.n)})
				}
			}
			return run.err
		})
	}
	if keep {
		kept = append(append([]*tensor.Tensor(nil), in...), result)
		if f.cell == lstmCell || f.cell == gruCell {
			kept = append(kept, gates)
		}
		for _, t := range []*tensor.Tensor{states, inner, q} {
			if t != nil {
				kept = append(kept, t)
			}
		}
		c.Save(kept...)
	}
	return result
}

// compose computes the recurrence with ops that the graph records.
func (f *recurrence) compose(in []*tensor.Tensor) *tensor.Tensor {
	o := f.named(in)
	n, out := o.h0.Dim(0), o.h0.Dim(1)
	gates := o.x.MatMul(o.wih.T())
	if f.bias {
		gates = gates.Add(f.inputBias(o))
	}
	parts := gates.SplitSizes(f.sizes, 0)
	h, c := o.h0.Narrow(0, 0, 0), o.c0
	if c != nil {
		c = c.Narrow(0, 0, 0)
	}
	results := make([]*tensor.Tensor, len(f.sizes))
	// ended and endedC are the last states of the sequences that have ended, in the order of their
	// ends.
	var ended, endedC []*tensor.Tensor
	for i := range f.sizes {
		t := i
		if f.reverse {
			t = len(f.sizes) - 1 - i
		}
		size := f.sizes[t]
		// fit drops the states of sequences that end here, and appends the states of sequences that
		// begin here.
		fit := func(x, first *tensor.Tensor, ended *[]*tensor.Tensor) *tensor.Tensor {
			had := x.Dim(0)
			if had > size {
				*ended = append(*ended, x.Narrow(0, size, had-size))
				return x.Narrow(0, 0, size)
			}
			return tensor.Cat(0, x, first.Narrow(0, had, size-had))
		}
		if h = fit(h, o.h0, &ended); c != nil {
			c = fit(c, o.c0, &endedC)
		}
		h, c = f.cell.step(parts[t], h.MatMul(o.whh.T()), h, c, f.stateBias(o))
		if f.proj {
			h = h.MatMul(o.whr.T())
		}
		results[t] = h
	}
	all := []*tensor.Tensor{tensor.Cat(0, results...).Reshape(-1)}
	last := func(x *tensor.Tensor, ended []*tensor.Tensor, width int) {
		list := []*tensor.Tensor{x}
		for i := len(ended) - 1; i >= 0; i-- {
			list = append(list, ended[i])
		}
		all = append(all, tensor.Cat(0, list...).Reshape(n*width))
	}
	if last(h, ended, out); c != nil {
		last(c, endedC, f.hidden)
	}
	return tensor.Cat(0, all...)
}

var _ tensor.Function = (*recurrence)(nil)
