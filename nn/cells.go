package nn

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// forwardCell computes one step of a recurrence by itself.
func forwardCell(k cell, w *RecurrentWeights, x *tensor.Tensor, s states) states {
	op := k.String() + "_cell"
	given(op, x)
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
			x, s = x.Unsqueeze(0), s.each(func(t *tensor.Tensor) *tensor.Tensor { return t.In(c).Unsqueeze(0) })
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
			last = last.each(func(t *tensor.Tensor) *tensor.Tensor { return t.Squeeze(0) })
		}
		c.Close(last.with(last.h)[1:]...)
	})
	return last
}

func cellWeights(k cell, name string, in, hidden int, opts []Option) RecurrentWeights {
	if in < 1 || hidden < 1 {
		panic(&Error{Path: name, Msg: fmt.Sprintf("%d features and states of %d; both are positive", in, hidden)})
	}
	return *newRecurrentWeights(k, in, hidden, hidden, 0, options(name, opts, biased...))
}

// RNNCell is one step of [RNN].
type RNNCell struct {
	Base
	RecurrentWeights
	Relu bool // relu instead of tanh
}

// NewRNNCell returns a cell for inputs of in features and states of hidden ones, with parameters as those of [NewRNN].
func NewRNNCell(in, hidden int, opts ...Option) *RNNCell {
	return &RNNCell{RecurrentWeights: cellWeights(tanhCell, "RNNCell", in, hidden, opts)}
}

// Forward returns the state [n, hidden] behind x, [n, in], and h, nil for zeros; all may be without n.
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

// NewGRUCell returns a cell for inputs of in features and states of hidden ones, with parameters as those of [NewGRU].
func NewGRUCell(in, hidden int, opts ...Option) *GRUCell {
	return &GRUCell{RecurrentWeights: cellWeights(gruCell, "GRUCell", in, hidden, opts)}
}

// Forward returns the state [n, hidden] behind x, [n, in], and h, nil for zeros; all may be without n.
func (l *GRUCell) Forward(x, h *tensor.Tensor) (next *tensor.Tensor) {
	defer l.Enter(&x, &next)()
	return forwardCell(gruCell, &l.RecurrentWeights, x, states{h: h}).h
}

// LSTMCell is one step of [LSTM].
type LSTMCell struct {
	Base
	RecurrentWeights
}

// NewLSTMCell returns a cell for inputs of in features and states of hidden ones, with parameters as those of [NewLSTM].
func NewLSTMCell(in, hidden int, opts ...Option) *LSTMCell {
	return &LSTMCell{RecurrentWeights: cellWeights(lstmCell, "LSTMCell", in, hidden, opts)}
}

// Forward returns the states [n, hidden] behind x, [n, in], and h and c, nil for zeros; all may be without n. Hooks see x and the first.
func (l *LSTMCell) Forward(x, h, c *tensor.Tensor) (nextH, nextC *tensor.Tensor) {
	defer l.Enter(&x, &nextH)()
	s := forwardCell(lstmCell, &l.RecurrentWeights, x, states{h, c})
	return s.h, s.c
}
