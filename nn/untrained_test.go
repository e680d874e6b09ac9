package nn_test

import (
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A tensor that requires a gradient but would not be trained is an error, whatever struct holds
// it. There is no error if the tensor is also a parameter of the model, if its tag is nn:"-", or
// if it requires no gradient.
func TestUntrainedTensors(t *testing.T) {
	w := func() *tensor.Tensor { return tensor.Ones(2).RequiresGrad() }
	type cell struct{ Wx, Wh *tensor.Tensor } // fields without tags
	type tree struct {
		Value *tensor.Tensor
		Left  *tree
	}
	loop := &tree{}
	loop.Left = loop
	lin := nn.NewLinear(2, 2)
	type bag struct {
		W    *tensor.Tensor
		More map[string]bag
		List []bag
	}
	self := map[string]bag{}
	self["again"] = bag{More: self}
	ring := make([]bag, 1)
	ring[0].List = ring
	gone := w()
	gone.Free()
	closed := w()
	tensor.Do(func(s *tensor.Scope) { closed = s.Ones(2).RequiresGrad() })
	long := []bag{{}, {W: w()}}
	for want, m := range map[string]any{
		"W":                  &struct{ W *tensor.Tensor }{w()},
		"w":                  &struct{ w *tensor.Tensor }{w()},
		"Heads.1":            &struct{ Heads []*tensor.Tensor }{[]*tensor.Tensor{tensor.Ones(1), w()}},
		"heads.0":            &struct{ heads [1]*tensor.Tensor }{[1]*tensor.Tensor{w()}},
		"Gates[in]":          &struct{ Gates map[string]*tensor.Tensor }{map[string]*tensor.Tensor{"in": w()}},
		"Cell.Wx":            &struct{ Cell *cell }{&cell{w(), w()}},
		"Cells.0.Wh":         &struct{ Cells []cell }{[]cell{{tensor.Ones(1), w()}}},
		"Tree.Left.Value":    &struct{ Tree tree }{tree{Left: &tree{Value: w()}}},
		"sub.w":              &struct{ Sub *hiding }{&hiding{Fc: lin, w: w()}},
		"Aux.lin.Weight":     &struct{ Aux struct{ lin *nn.Linear } }{struct{ lin *nn.Linear }{lin}},
		"":                   &struct{ Fc *nn.Linear }{lin},
		" freed":             &struct{ w *tensor.Tensor }{func() *tensor.Tensor { x := tensor.Ones(1); x.Free(); return x }()},
		" loop":              &struct{ Tree *tree }{loop},
		" map in itself":     &struct{ Bags map[string]bag }{self},
		" list in itself":    &struct{ Bags []bag }{ring},
		" freed, trained":    &struct{ w, W *tensor.Tensor }{gone, gone},
		" of a closed scope": &struct{ w, W *tensor.Tensor }{closed, closed},
		" behind a mutex": &struct {
			mu   sync.Mutex
			seen map[int]*tensor.Tensor
		}{seen: map[int]*tensor.Tensor{0: w()}},
		" found elsewhere too": &struct {
			Tied *tensor.Tensor
			Fc   *nn.Linear
		}{lin.Weight, lin},
		"longer.1.W":       &struct{ bags, longer []bag }{long[:1], long},
		"Bags[a].List.1.W": &struct{ Bags map[string]bag }{map[string]bag{"a": {List: long}}},
		" no gradient":     &struct{ w, V *tensor.Tensor }{tensor.Ones(1), tensor.Ones(1)},
		" result":          &struct{ w *tensor.Tensor }{w().AddScalar(1)},
		" meant": &struct {
			w *tensor.Tensor `nn:"-"`
		}{w()},
		" found elsewhere": &struct {
			Fc  *nn.Linear
			all []*tensor.Tensor
		}{lin, nn.Parameters(lin)},
		" of an optimizer": &struct {
			Fc  *nn.Linear
			opt *optim.SGD
		}{nn.NewLinear(1, 1), optim.NewSGD(nn.Parameters(lin), optim.SGDConfig{LR: 1})},
		" and of other packages": &struct {
			mu  sync.Mutex
			s   *tensor.Scope
			any any
		}{s: tensor.Root(), any: w()},
	} {
		func() {
			defer func() {
				e, _ := recover().(*nn.Error)
				if got := e != nil; got == (want == "" || want[0] == ' ') {
					t.Errorf("%q: %v", want, e)
				} else if got && e.Path != want {
					t.Errorf("%q, want %q", e.Path, want)
				}
			}()
			nn.Parameters(m)
		}()
	}
	// Functions that are not about training accept such a tensor.
	nn.Eval(&struct{ w *tensor.Tensor }{w()})
}

// hiding is a layer with a field that Parameters does not look into.
type hiding struct {
	Fc *nn.Linear
	w  *tensor.Tensor
}
