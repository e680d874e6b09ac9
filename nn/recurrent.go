package nn

import (
	"fmt"
	"strconv"

	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// RecurrentOptions are the settings of a new recurrent layer. The zero value is torch's default.
type RecurrentOptions struct {
	Layers int // number of stacked layers; 0 means 1
	// Bidirectional adds a second direction, which runs backward through the sequences. The results
	// of both directions are concatenated.
	Bidirectional bool
	// BatchFirst means that sequences are [n, length, features] instead of [length, n, features].
	// The layout of states does not change.
	BatchFirst bool
	// Dropout is the probability of dropping an element between two layers in training.
	Dropout float64
	// ProjSize is only for [LSTM]. It is the number of features to which states are projected, and
	// 0 means no projection.
	ProjSize int
	Relu     bool // only for [RNN]: use relu instead of tanh
}

// RecurrentWeights are the parameters of one layer in one direction. A weight has a block of rows
// for each gate, in this order: input, forget, cell and output for [LSTM]; reset, update and new
// for [GRU].
type RecurrentWeights struct {
	WeightIH *tensor.Tensor `nn:"weight_ih"` // [gates·hidden, features]
	WeightHH *tensor.Tensor `nn:"weight_hh"` // [gates·hidden, states]
	BiasIH   *tensor.Tensor `nn:"bias_ih"`   // [gates·hidden], nil for none
	BiasHH   *tensor.Tensor `nn:"bias_hh"`   // [gates·hidden], nil for none
	WeightHR *tensor.Tensor `nn:"weight_hr"` // [ProjSize, hidden], nil for none
}

// Recurrent is the common part of [RNN], [LSTM] and [GRU]. Its parameters have torch's names:
// weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0. The names for the second
// direction end in "_reverse".
type Recurrent struct {
	Base
	Weights  []*RecurrentWeights `nn:"-"` // layer 0, the second direction of layer 0, layer 1, …
	Features int                 // features of the input
	Hidden   int                 // features of a state, before projection
	Options  RecurrentOptions    // the options, with Layers filled in
	cell     cell
}

func newRecurrent(c cell, in, hidden int, o RecurrentOptions, opts []Option) Recurrent {
	name := [...]string{"RNN", "RNN", "LSTM", "GRU"}[c]
	if o.Layers < 0 {
		panic(wrong(name, fmt.Sprintf("%d layers", o.Layers)))
	}
	if o.Layers == 0 {
		o.Layers = 1
	}
	if in < 1 || hidden < 1 {
		panic(wrong(name, fmt.Sprintf("%d features and states of %d; both are positive", in, hidden)))
	}
	if !(o.Dropout >= 0 && o.Dropout <= 1) {
		panic(wrong(name, fmt.Sprintf("%v is not a probability of dropout", o.Dropout)))
	}
	if o.ProjSize < 0 || o.ProjSize >= hidden || o.ProjSize > 0 && c != lstmCell {
		panic(wrong(name, fmt.Sprintf("states of %d cannot be projected to %d; only an LSTM's are, to less", hidden, o.ProjSize)))
	}
	if o.Relu && c != reluCell {
		panic(wrong(name, "only an RNN has relu"))
	}
	l := Recurrent{Features: in, Hidden: hidden, Options: o, cell: c}
	for k := range o.Layers * l.directions() {
		from := in
		if k >= l.directions() {
			from = l.out() * l.directions()
		}
		l.Weights = append(l.Weights, newRecurrentWeights(c, from, hidden, l.out(), o.ProjSize, options(name, opts, biased...)))
	}
	return l
}

func newRecurrentWeights(c cell, in, hidden, out, proj int, o layerOptions) *RecurrentWeights {
	make := func(dims ...int) *tensor.Tensor {
		w := o.parameters().Empty(dims...)
		initial.Uniform(w, -initial.Bound(hidden), initial.Bound(hidden))
		return w.RequiresGrad()
	}
	rows := c.gates() * hidden
	w := &RecurrentWeights{WeightIH: make(rows, in), WeightHH: make(rows, out)}
	if !o.noBias {
		w.BiasIH, w.BiasHH = make(rows), make(rows)
	}
	if proj > 0 {
		w.WeightHR = make(proj, hidden)
	}
	return w
}

func (l *Recurrent) directions() int {
	if l.Options.Bidirectional {
		return 2
	}
	return 1
}

func (l *Recurrent) out() int {
	if l.Options.ProjSize > 0 {
		return l.Options.ProjSize
	}
	return l.Hidden
}

// ownParams returns the parameters with torch's names, which end in the number of the layer.
func (l Recurrent) ownParams() []Param {
	var list []Param
	for k, w := range l.Weights {
		suffix := "_l" + strconv.Itoa(k/l.directions())
		if k%l.directions() == 1 {
			suffix += "_reverse"
		}
		for _, p := range []Param{
			{Name: "weight_ih", Tensor: w.WeightIH}, {Name: "weight_hh", Tensor: w.WeightHH}, {Name: "bias_ih", Tensor: w.BiasIH}, {Name: "bias_hh", Tensor: w.BiasHH},
			{Name: "weight_hr", Tensor: w.WeightHR},
		} {
			if p.Tensor != nil {
				p.Name += suffix
				list = append(list, p)
			}
		}
	}
	return list
}

// states holds h0 and c0 before a call, or h and c after it, each [layers·directions, n, features].
type states struct{ h, c *tensor.Tensor }

// apply runs all layers in scope c over the rows of data. sizes has the number of rows of each
// step.
func (l *Recurrent) apply(c *tensor.Scope, data *tensor.Tensor, sizes []int, first states) (*tensor.Tensor, states) {
	n, rows, out := sizes[0], data.Dim(0), l.out()
	m := c.On(data.Device()).Typed(data.Type())
	if first.h == nil {
		first.h = m.Zeros(len(l.Weights), n, out)
	}
	if first.c == nil && l.cell == lstmCell {
		first.c = m.Zeros(len(l.Weights), n, l.Hidden)
	}
	hs, cs := make([]*tensor.Tensor, len(l.Weights)), make([]*tensor.Tensor, len(l.Weights))
	for layer := range l.Options.Layers {
		if layer > 0 && l.Options.Dropout > 0 && l.Training() {
			data = data.Dropout(l.Options.Dropout)
		}
		both := make([]*tensor.Tensor, l.directions())
		for d := range both {
			k := layer*l.directions() + d
			w := l.Weights[k]
			f := &recurrence{cell: l.cell, sizes: sizes, reverse: d == 1, hidden: l.Hidden, bias: w.BiasIH != nil, proj: w.WeightHR != nil}
			in := []*tensor.Tensor{data, first.h.In(c).Select(0, k), w.WeightIH, w.WeightHH}
			if f.bias {
				in = append(in, w.BiasIH, w.BiasHH)
			}
			if l.cell == lstmCell {
				in = append(in, first.c.In(c).Select(0, k))
			}
			if f.proj {
				in = append(in, w.WeightHR)
			}
			both[d], hs[k], cs[k] = f.split(tensor.Apply(f, in...), rows, n, out)
		}
		if data = both[0]; len(both) == 2 {
			data = tensor.Cat(1, both...)
		}
	}
	last := states{h: tensor.Stack(0, hs...)}
	if l.cell == lstmCell {
		last.c = tensor.Stack(0, cs...)
	}
	return data, last
}

// padded runs the layer over x, whose sequences all have the same length.
func (l *Recurrent) padded(x *tensor.Tensor, first states) (y *tensor.Tensor, last states) {
	op := l.cell.String()
	requireUsable(op, x)
	in := operandsOf(x, first)
	alone := x.Rank() == 2
	if !alone && x.Rank() != 3 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the input is [length, n, features], [n, length, features] with BatchFirst, or [length, features]; its shape is %v", x.Shape()), in...)
	}
	l.checkFeatures(x, in)
	length, n := x.Dim(0), 1
	if !alone {
		if n = x.Dim(1); l.Options.BatchFirst {
			length, n = n, length
		}
	}
	if length == 0 {
		misuse(op, tensor.ErrShape, "the sequences have no step", in...)
	}
	l.checkStates(first, n, alone, in)
	sizes := make([]int, length)
	for i := range sizes {
		sizes[i] = n
	}
	tensor.Youngest(in...).Do(func(c *tensor.Scope) {
		x := x.In(c)
		if alone {
			x, first = x.Unsqueeze(1), first.mapStates(func(s *tensor.Tensor) *tensor.Tensor { return s.In(c).Unsqueeze(1) })
		} else if l.Options.BatchFirst {
			x = x.Transpose(0, 1)
		}
		y, last = l.apply(c, x.Reshape(length*n, l.Features), sizes, first)
		switch y = y.Reshape(length, n, l.out()*l.directions()); {
		case alone:
			y, last = y.Squeeze(1), last.mapStates(func(s *tensor.Tensor) *tensor.Tensor { return s.Squeeze(1) })
		case l.Options.BatchFirst:
			y = y.Transpose(0, 1)
		}
		c.Close(last.with(y)...)
	})
	return y, last
}

// packed runs the layer over sequences of several lengths.
func (l *Recurrent) packed(p *PackedSequence, first states) (y *PackedSequence, last states) {
	op := l.cell.String()
	if p == nil {
		misuse(op, tensor.ErrValue, "the packed sequence is nil")
	}
	p.check(op)
	in := operandsOf(p.Data, first)
	if p.Data.Rank() != 2 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("steps of sequences have features, [rows, features]; the shape of the packed data is %v", p.Data.Shape()), in...)
	}
	l.checkFeatures(p.Data, in)
	l.checkStates(first, p.BatchSizes[0], false, in)
	y = &PackedSequence{BatchSizes: p.BatchSizes, Sorted: p.Sorted, Unsorted: p.Unsorted}
	tensor.Youngest(in...).Do(func(c *tensor.Scope) {
		reordered := func(s states, order []int) states {
			if order == nil {
				return s
			}
			return s.mapStates(func(s *tensor.Tensor) *tensor.Tensor { return s.In(c).IndexSelect(1, indexOf(c, s, order)) })
		}
		y.Data, last = l.apply(c, p.Data.In(c), p.BatchSizes, reordered(first, p.Sorted))
		last = reordered(last, p.Unsorted)
		c.Close(last.with(y.Data)...)
	})
	return y, last
}

// mapStates applies f to the states that are not nil.
func (s states) mapStates(f func(*tensor.Tensor) *tensor.Tensor) states {
	if s.h != nil {
		s.h = f(s.h)
	}
	if s.c != nil {
		s.c = f(s.c)
	}
	return s
}

func (s states) with(y *tensor.Tensor) []*tensor.Tensor {
	if s.c != nil {
		return []*tensor.Tensor{y, s.h, s.c}
	}
	return []*tensor.Tensor{y, s.h}
}

func operandsOf(x *tensor.Tensor, s states) []*tensor.Tensor {
	in := []*tensor.Tensor{x}
	s.mapStates(func(t *tensor.Tensor) *tensor.Tensor {
		in = append(in, t)
		return t
	})
	return in
}

func (l *Recurrent) checkFeatures(x *tensor.Tensor, in []*tensor.Tensor) {
	op := l.cell.String()
	if x.Dim(-1) != l.Features {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the input has %d features, the layer needs %d", x.Dim(-1), l.Features), in...)
	}
	for _, t := range in {
		if want := l.Weights[0].WeightIH.Type(); !fits(t.Type(), want, in) {
			hinted(op, tensor.ErrType, fmt.Sprintf("the layer is %v, an operand %v", want, t.Type()), "use Cast", in...)
		}
	}
}

func (l *Recurrent) checkStates(s states, n int, alone bool, in []*tensor.Tensor) {
	check := func(name string, t *tensor.Tensor, width int) {
		if t == nil {
			return
		}
		want, means := shape.Of(len(l.Weights), n, width), "layers and directions, sequences, features"
		if alone {
			want, means = shape.Of(len(l.Weights), width), "layers and directions, features, since the input is one sequence"
		}
		if t.Shape() != want {
			misuse(l.cell.String(), tensor.ErrShape, fmt.Sprintf("%s has shape %v, it must be %v: %s", name, t.Shape(), want, means), in...)
		}
	}
	check("h0", s.h, l.out())
	check("c0", s.c, l.Hidden)
}

// RNN is hₜ = tanh(W_ih·xₜ + b_ih + W_hh·hₜ₋₁ + b_hh) (J. Elman, Finding structure in time, 1990).
// The option Relu replaces tanh by relu.
type RNN struct{ Recurrent }

// NewRNN returns a layer with the given numbers of input and state features. As in torch,
// parameters are uniform in ±1/√hidden. [NoBias] leaves the biases out.
func NewRNN(in, hidden int, o RecurrentOptions, opts ...Option) *RNN {
	c := tanhCell
	if o.Relu {
		c = reluCell
	}
	return &RNN{newRecurrent(c, in, hidden, o, opts)}
}

// Forward maps x of shape [length, n, features] to y and h. The result y, [length, n,
// directions·hidden], has the states of the last layer at each step. The result h,
// [layers·directions, n, hidden], has the states of each layer and direction after the last step.
// h0 has the initial states, in the shape of h. A nil h0 means zeros. With BatchFirst n is the
// first dimension of x and y. All tensors may omit n. Hooks see x and y.
func (l *RNN) Forward(x, h0 *tensor.Tensor) (y, h *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	y, last := l.padded(x, states{h: h0})
	return y, last.h
}

// ForwardPacked is Forward for sequences of several lengths. h has the state after the last step of
// each sequence. h0 and h are in the order of the sequences before packing. Hooks do not see this
// call.
func (l *RNN) ForwardPacked(p *PackedSequence, h0 *tensor.Tensor) (y *PackedSequence, h *tensor.Tensor) {
	y, last := l.packed(p, states{h: h0})
	return y, last.h
}

// GRU is the gated recurrent unit (K. Cho et al., arXiv:1406.1078). Its gates r = σ(…) and z = σ(…)
// are functions of the input and the state. With n = tanh(W_in·xₜ + b_in + r·(W_hn·hₜ₋₁ + b_hn))
// the state is hₜ = (1-z)·n + z·hₜ₋₁.
type GRU struct{ Recurrent }

// NewGRU returns a layer with the given numbers of input and state features. As in torch,
// parameters are uniform in ±1/√hidden. [NoBias] leaves the biases out.
func NewGRU(in, hidden int, o RecurrentOptions, opts ...Option) *GRU {
	return &GRU{newRecurrent(gruCell, in, hidden, o, opts)}
}

// Forward maps x of shape [length, n, features] to the states y of the last layer at each step, and
// the last states h of all layers. [RNN.Forward] gives the shapes.
func (l *GRU) Forward(x, h0 *tensor.Tensor) (y, h *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	y, last := l.padded(x, states{h: h0})
	return y, last.h
}

// ForwardPacked is Forward for sequences of several lengths. h has the state after the last step of
// each sequence. h0 and h are in the order of the sequences before packing. Hooks do not see this
// call.
func (l *GRU) ForwardPacked(p *PackedSequence, h0 *tensor.Tensor) (y *PackedSequence, h *tensor.Tensor) {
	y, last := l.packed(p, states{h: h0})
	return y, last.h
}

// LSTM is long short-term memory (S. Hochreiter, J. Schmidhuber, 1997, with the forget gate of F.
// Gers et al., 2000). Its gates i, f, o = σ(…) and g = tanh(…) are functions of the input and the
// state. Its states are cₜ = f·cₜ₋₁ + i·g and hₜ = o·tanh(cₜ). With ProjSize hₜ is multiplied by
// W_hr (H. Sak et al., arXiv:1402.1128).
type LSTM struct{ Recurrent }

// NewLSTM returns a layer with the given numbers of input and state features. As in torch,
// parameters are uniform in ±1/√hidden. [NoBias] leaves the biases out.
func NewLSTM(in, hidden int, o RecurrentOptions, opts ...Option) *LSTM {
	return &LSTM{newRecurrent(lstmCell, in, hidden, o, opts)}
}

// Forward maps x of shape [length, n, features] to the states y of the last layer at each step, and
// the last states h and c of all layers. [RNN.Forward] gives the shapes, and c is
// [layers·directions, n, hidden]. With ProjSize, y and h have ProjSize features instead of hidden.
// A nil h0 or c0 means zeros.
func (l *LSTM) Forward(x, h0, c0 *tensor.Tensor) (y, h, c *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	y, last := l.padded(x, states{h0, c0})
	return y, last.h, last.c
}

// ForwardPacked is Forward for sequences of several lengths. h and c have the states after the last
// step of each sequence. h0, c0, h and c are in the order of the sequences before packing. Hooks do
// not see this call.
func (l *LSTM) ForwardPacked(p *PackedSequence, h0, c0 *tensor.Tensor) (y *PackedSequence, h, c *tensor.Tensor) {
	y, last := l.packed(p, states{h0, c0})
	return y, last.h, last.c
}
