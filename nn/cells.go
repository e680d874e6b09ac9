package nn

import (
	"fmt"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// forwardCell computes a single step, for RNNCell, LSTMCell and GRUCell.
func forwardCell(k cell, w *RecurrentWeights, x *tensor.Tensor, s states) states {
	op := k.String() + "_cell"
	requireUsable(op, x)
	in := operandsOf(x, s)
	hidden, features := w.WeightHH.Dim(1), w.WeightIH.Dim(1)
	alone := x.Rank() == 1
	if !alone && x.Rank() != 2 || x.Dim(-1) != features {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the input is [n, %d] or [%d], its shape is %v", features, features, x.Shape()), in...)
	}
	want := []int{hidden}
	if !alone {
		want = []int{x.Dim(0), hidden}
	}
	for _, t := range in[1:] {
		if !slices.Equal(t.Shape().Slice(), want) {
			misuse(op, tensor.ErrShape, fmt.Sprintf("a state has shape %v, not %v", want, t.Shape()), in...)
		}
	}
	for _, t := range in {
		if !fits(t.Type(), w.WeightIH.Type(), in) {
			hinted(op, tensor.ErrType, fmt.Sprintf("the layer is %v, an operand %v", w.WeightIH.Type(), t.Type()), "use Cast", in...)
		}
	}
	var last states
	tensor.Youngest(in...).Do(func(c *tensor.Scope) {
		x := x.In(c)
		if alone {
			x, s = x.Unsqueeze(0), s.mapStates(func(t *tensor.Tensor) *tensor.Tensor { return t.In(c).Unsqueeze(0) })
		}
		n := x.Dim(0)
		zeros := func(t *tensor.Tensor) *tensor.Tensor {
			if t != nil {
				return t
			}
			return c.On(x.Device()).Typed(x.Type()).Zeros(n, hidden)
		}
		f := &recurrence{cell: k, sizes: []int{n}, hidden: hidden, bias: w.BiasIH != nil}
		operands := []*tensor.Tensor{x, zeros(s.h), w.WeightIH, w.WeightHH}
		if f.bias {
			operands = append(operands, w.BiasIH, w.BiasHH)
		}
		if k == lstmCell {
			operands = append(operands, zeros(s.c))
		}
		_, last.h, last.c = f.split(tensor.Apply(f, operands...), n, n, hidden)
		if alone {
			last = last.mapStates(func(t *tensor.Tensor) *tensor.Tensor { return t.Squeeze(0) })
		}
		c.Close(last.with(last.h)[1:]...)
	})
	return last
}

func cellWeights(k cell, name string, in, hidden int, opts []Option) RecurrentWeights {
	if in < 1 || hidden < 1 {
		panic(wrong(name, fmt.Sprintf("%d features and states of %d; both are positive", in, hidden)))
	}
	return *newRecurrentWeights(k, in, hidden, hidden, 0, options(name, opts, biased...))
}

// RNNCell is one step of [RNN].
type RNNCell struct {
	Base
	RecurrentWeights
	Relu bool // use relu instead of tanh
}

// NewRNNCell returns a cell with the given numbers of input and state features. Its parameters are
// initialised like those of [NewRNN]. [NoBias] leaves the biases out.
func NewRNNCell(in, hidden int, opts ...Option) *RNNCell {
	return &RNNCell{RecurrentWeights: cellWeights(tanhCell, "RNNCell", in, hidden, opts)}
}

// Forward returns the state that follows state h [n, hidden] after input x [n, in]. A nil h stands
// for zeros. All tensors may omit n.
func (l *RNNCell) Forward(x, h *tensor.Tensor) (next *tensor.Tensor) {
	defer l.Enter(&x, &next)()
	k := tanhCell
	if l.Relu {
		k = reluCell
	}
	return forwardCell(k, &l.RecurrentWeights, x, states{h: h}).h
}

// GRUCell is one step of [GRU].
type GRUCell struct {
	Base
	RecurrentWeights
}

// NewGRUCell returns a cell with the given numbers of input and state features. Its parameters are
// initialised like those of [NewGRU]. [NoBias] leaves the biases out.
func NewGRUCell(in, hidden int, opts ...Option) *GRUCell {
	return &GRUCell{RecurrentWeights: cellWeights(gruCell, "GRUCell", in, hidden, opts)}
}

// Forward returns the state that follows state h [n, hidden] after input x [n, in]. A nil h stands
// for zeros. All tensors may omit n.
func (l *GRUCell) Forward(x, h *tensor.Tensor) (next *tensor.Tensor) {
	defer l.Enter(&x, &next)()
	return forwardCell(gruCell, &l.RecurrentWeights, x, states{h: h}).h
}

// LSTMCell is one step of [LSTM].
type LSTMCell struct {
	Base
	RecurrentWeights
}

// NewLSTMCell returns a cell with the given numbers of input and state features. Its parameters are
// initialised like those of [NewLSTM]. [NoBias] leaves the biases out.
func NewLSTMCell(in, hidden int, opts ...Option) *LSTMCell {
	return &LSTMCell{RecurrentWeights: cellWeights(lstmCell, "LSTMCell", in, hidden, opts)}
}

// Forward returns the states [n, hidden] that follow h and c after input x [n, in]. A nil h or c
// stands for zeros. All tensors may omit n. Hooks see x and nextH.
func (l *LSTMCell) Forward(x, h, c *tensor.Tensor) (nextH, nextC *tensor.Tensor) {
	defer l.Enter(&x, &nextH)()
	s := forwardCell(lstmCell, &l.RecurrentWeights, x, states{h, c})
	return s.h, s.c
}

// A cell is the elementwise part of one step of a recurrent layer. It follows the step's matrix
// products. Its operand x is the product of the step's input with the input weights. Its operand t
// is the product of the previous state with the recurrent weights. Both operands have one block of
// columns for each gate.
type cell uint8

const (
	tanhCell cell = iota
	reluCell
	lstmCell
	gruCell
)

func (c cell) String() string { return [...]string{"rnn_tanh", "rnn_relu", "lstm", "gru"}[c] }

// gates returns the number of gates. A weight has one block of rows for each gate.
func (c cell) gates() int { return [...]int{1, 1, 4, 3}[c] }

// A cellKey identifies one of the programs in cellPrograms.
type cellKey struct {
	cell cell
	t    dtype.Type
	back bool // true for the program of the gradient
	// In a forward program, keeps is true if the program also returns the values that the
	// gradient needs. In the backward program of an LSTM, keeps is true if dy, the gradient of
	// the step's output, is a separate operand. The program then adds dy to dh.
	keeps bool
	bias  bool // for a GRU: whether the new gate's product with the state has a bias
}

var cellPrograms sync.Map // maps a cellKey to its *expr.Program

// program returns the lowered program of k. Only the first call for a key lowers it.
func (k cellKey) program() *expr.Program {
	if p, ok := cellPrograms.Load(k); ok {
		return p.(*expr.Program)
	}
	var outs []*expr.Expr
	var n int
	switch {
	case k.back:
		outs, n = k.backward()
	default:
		outs, n = k.forward()
	}
	types := func(n int) []dtype.Type {
		t := make([]dtype.Type, n)
		for i := range t {
			t[i] = k.t
		}
		return t
	}
	p, _ := cellPrograms.LoadOrStore(k, expr.MustLower(outs, types(len(outs)), types(n), -1))
	return p.(*expr.Program)
}

// operands returns the variables X(0) … X(n-1) of a formula.
func operands(n int) []*expr.Expr {
	x := make([]*expr.Expr, n)
	for i := range x {
		x[i] = expr.X(i)
	}
	return x
}

// forward returns the outputs of one step, and the number of its operands. The list shows operands
// → outputs. A number in brackets counts the gates' blocks.
//
//   - rnn: x, t → h
//   - lstm: x (4), t (4), c → i, f, g, o, c, h (S. Hochreiter, J. Schmidhuber, 1997, with the
//     forget gate of F. Gers et al., 2000)
//   - gru: x (3), t (3), h, b → r, z, n, q, h (K. Cho et al., arXiv:1406.1078)
//
// For gru, q is the new gate's block of t plus the bias b. As in torch, r multiplies q, while in
// the paper r multiplies the previous state.
//
// The new state is h, or c and h for lstm. The outputs that the list shows before the new state are
// needed for the gradient. If keeps is false, forward returns only the new state.
func (k cellKey) forward() (outs []*expr.Expr, n int) {
	switch k.cell {
	case tanhCell:
		return []*expr.Expr{expr.X(0).Add(expr.X(1)).Tanh()}, 2
	case reluCell:
		x := expr.X(0).Add(expr.X(1))
		return []*expr.Expr{x.Lt(expr.C(0)).Select(expr.C(0), x)}, 2
	case lstmCell:
		x := operands(9)
		i, f, g, o := x[0].Add(x[4]).Sigmoid(), x[1].Add(x[5]).Sigmoid(), x[2].Add(x[6]).Tanh(), x[3].Add(x[7]).Sigmoid()
		c := f.Mul(x[8]).Add(i.Mul(g))
		if h := o.Mul(c.Tanh()); !k.keeps {
			return []*expr.Expr{c, h}, 9
		} else {
			return []*expr.Expr{i, f, g, o, c, h}, 9
		}
	}
	n = 7
	if k.bias {
		n = 8
	}
	x := operands(n)
	r, z, q := x[0].Add(x[3]).Sigmoid(), x[1].Add(x[4]).Sigmoid(), x[5]
	if k.bias {
		q = q.Add(x[7])
	}
	new := x[2].Add(r.Mul(q)).Tanh()
	h := x[6].Sub(new).Mul(z).Add(new)
	if !k.keeps {
		return []*expr.Expr{h}, n
	}
	return []*expr.Expr{r, z, new, q, h}, n
}

// backward returns the outputs of a step's gradient, and the number of its operands. The operands
// are the values that forward kept, the gradient dy of the result, and the gradients dh and dc that
// come from the next step:
//
//	rnn: h, dy, dh → dx
//	lstm: i, f, g, o, the previous c, c, dc, dh, dy → dx (4), dc
//	gru: r, z, n, q, the previous h, dh, dy → dx (3), dt (3), the dh that bypasses the gates
//
// For lstm, if keeps is false, dy is absent since dh already contains it.
func (k cellKey) backward() (outs []*expr.Expr, n int) {
	one := expr.C(1)
	switch k.cell {
	case tanhCell, reluCell:
		h, d := expr.X(0), expr.X(1).Add(expr.X(2))
		if k.cell == reluCell {
			return []*expr.Expr{h.Le(expr.C(0)).Select(expr.C(0), d)}, 3
		}
		return []*expr.Expr{d.Mul(one.Sub(h.Mul(h)))}, 3
	case lstmCell:
		n = 8
		if k.keeps {
			n = 9
		}
		x := operands(n)
		i, f, g, o, before, c, dc, dh := x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
		if k.keeps {
			dh = dh.Add(x[8])
		}
		tc := c.Tanh()
		dc = dc.Add(dh.Mul(o).Mul(one.Sub(tc.Mul(tc))))
		slope := func(s *expr.Expr) *expr.Expr { return s.Mul(one.Sub(s)) }
		return []*expr.Expr{dc.Mul(g).Mul(slope(i)), dc.Mul(before).Mul(slope(f)), dc.Mul(i).Mul(one.Sub(g.Mul(g))), dh.Mul(tc).Mul(slope(o)), dc.Mul(f)}, n
	}
	x := operands(7)
	r, z, new, q, before, d := x[0], x[1], x[2], x[3], x[4], x[5].Add(x[6])
	dn := d.Mul(one.Sub(z)).Mul(one.Sub(new.Mul(new)))
	dr := dn.Mul(q).Mul(r).Mul(one.Sub(r))
	dz := d.Mul(before.Sub(new)).Mul(z).Mul(one.Sub(z))
	return []*expr.Expr{dr, dz, dn, dr, dz, dn.Mul(r), d.Mul(z)}, 7
}

// step computes one step with ops on tensors instead of the fused program. It is used if second
// derivatives are needed. It returns the new state. x and t are the gates' blocks, [n,
// gates·hidden], and h and c are the previous state. For GRU, b is the bias of the new gate's
// product with the state.
func (k cell) step(x, t, h, c, b *tensor.Tensor) (_, _ *tensor.Tensor) {
	switch k {
	case tanhCell:
		return x.Add(t).Tanh(), nil
	case reluCell:
		return x.Add(t).Relu(), nil
	case lstmCell:
		p := x.Add(t).Chunk(4, 1)
		c = p[1].Sigmoid().Mul(c).Add(p[0].Sigmoid().Mul(p[2].Tanh()))
		return p[3].Sigmoid().Mul(c.Tanh()), c
	}
	p, q := x.Chunk(3, 1), t.Chunk(3, 1)
	r, z, last := p[0].Add(q[0]).Sigmoid(), p[1].Add(q[1]).Sigmoid(), q[2]
	if b != nil {
		last = last.Add(b)
	}
	new := p[2].Add(r.Mul(last)).Tanh()
	return h.Sub(new).Mul(z).Add(new), nil
}
