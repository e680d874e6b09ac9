package nn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// allFields is a model that holds layers in every kind of field that Parameters visits, and in
// fields that it does not visit.
type allFields struct {
	trunk
	Chain  *nn.Sequential
	Any    any
	List   []nn.Module
	Pair   [2]*nn.Linear
	Far    **nn.Linear
	Map    *nn.ModuleMap[nn.Module]
	LSTM   *nn.LSTM
	Bag    map[string]any
	W      *tensor.Tensor `nn:"w"`
	Tied   *tensor.Tensor `nn:"tied"`
	Moving *tensor.Tensor `nn:"moving,transient"`
	Own    *tensor.Tensor // part of the model's state, though the field has no tag
	Back   *allFields     `nn:"-"`
	All    []nn.Module    `nn:"-"`
	name   string
	mask   *tensor.Tensor
}

func newEverything() *allFields {
	l := func() *nn.Linear { return nn.NewLinear(2, 2) }
	far, w := l(), tensor.Ones(2).RequiresGrad()
	m := &allFields{trunk: trunk{Fc: l()}, Chain: nn.NewSequential(l(), nn.ReLU{}, nn.NewBatchNorm1d(2), nn.NewSequential(l())), Any: []any{3, l()},
		List: []nn.Module{nn.GELU{}, l()}, Pair: [2]*nn.Linear{l(), l()}, Far: &far, Map: nn.NewModuleMap[nn.Module]().Set("a", l()).Set("b", nn.Tanh{}),
		LSTM: nn.NewLSTM(2, 2, nn.RecurrentOptions{Layers: 2, Bidirectional: true}), Bag: map[string]any{"n": 1}, W: w, Tied: w, Moving: tensor.Ones(1), Own: tensor.Ones(3),
		name: "m", mask: tensor.Ones(2)}
	m.Back, m.All = m, []nn.Module{m.Pair[1], m.Chain}
	nn.SetCheckpointing(m, true)
	return m
}

func (m *allFields) run(x *tensor.Tensor) *tensor.Tensor {
	x = m.Map.At("b").Forward(m.Map.At("a").Forward(m.Chain.Forward(m.Fc.Forward(x))))
	x = m.Any.([]any)[1].(*nn.Linear).Forward((*m.Far).Forward(m.Pair[0].Forward(m.List[1].Forward(x)))).Mul(m.W).Add(m.Tied)
	for _, l := range m.Back.All {
		x = l.Forward(x)
	}
	y, _, _ := m.LSTM.Forward(x.Unsqueeze(0), nil, nil)
	return y.Mul(m.mask.Repeat(2)).Mul(m.Own.Sum())
}

// A clone computes the same as its original. A change to either model does not affect the other
// model.
func TestClone(t *testing.T) {
	m := newEverything()
	m.Chain.Layers[0].(*nn.Linear).Weight.SetRequiresGrad(false)
	nn.Eval(m.Chain)
	calls := 0
	m.Fc.RegisterForwardHook(func(_, _ *tensor.Tensor) *tensor.Tensor { calls++; return nil })
	c := nn.Clone(m)
	x := tensor.Root().Randn(3, 2)
	before := m.run(x)
	if !before.AllClose(c.run(x), 0, 0) || calls != 2 {
		t.Fatalf("a clone gives other numbers; the hook ran %d times", calls)
	}
	a, b := nn.Named(m), nn.Named(c)
	if len(a) != len(b) || len(nn.StateDict(m)) != len(nn.StateDict(c)) {
		t.Fatalf("%d tensors, %d in the clone", len(a), len(b))
	}
	for i, p := range a {
		q := b[i]
		if p.Name != q.Name || p.Tensor == q.Tensor || p.Tensor.DataPtr() == q.Tensor.DataPtr() || p.Tensor.NeedsGrad() != q.Tensor.NeedsGrad() || !q.Tensor.IsLeaf() {
			t.Errorf("%s: %s of the clone", p.Name, q.Name)
		}
	}
	if c.W != c.Tied || c.Back != c || c.All[0] != nn.Module(c.Pair[1]) || c.Own == m.Own || c.mask != m.mask || c.name != "m" || c.Chain.Training() || !c.Pair[0].Training() {
		t.Error("the structure is another")
	}
	for _, p := range nn.Parameters(m) {
		p.Detach().Fill(0.5)
	}
	m.Own.Fill(0)
	m.Map.Set("a", nn.ReLU{})
	m.Fc.RegisterForwardHook(func(_, _ *tensor.Tensor) *tensor.Tensor { calls += 100; return nil })
	if y := c.run(x); !before.AllClose(y, 0, 0) || calls != 3 {
		t.Errorf("what changes the model changes its clone; the hooks ran %d times", calls)
	}
	c.run(x).Sum().Backward()
	if m.W.Grad() != nil || c.W.Grad() == nil || c.All[0].(*nn.Linear).Weight.Grad() == nil {
		t.Error("gradients of the clone are its own")
	}
}

// Replace returns a copy with some tensors replaced, and gradients flow through the new tensors.
// The copy shares all other tensors with the original, which does not change.
func TestReplace(t *testing.T) {
	m := newEverything()
	x := tensor.Root().Randn(3, 2)
	y := m.run(x)
	with := map[string]*tensor.Tensor{}
	var old, now []*tensor.Tensor
	for _, p := range nn.NamedParameters(m) {
		n := p.Tensor.MulScalar(1.5)
		with[p.Name], old, now = n, append(old, p.Tensor), append(now, n)
	}
	r := nn.Replace(m, with)
	z := r.run(x)
	if z.AllClose(y, 0, 0) || !m.run(x).AllClose(y, 0, 0) || r.Moving != m.Moving || r.Own != m.Own || r.W != r.Tied || r.Back != r {
		t.Fatal("the parameters of the copy are the given ones, everything else is shared")
	}
	direct := tensor.Gradients(z.Sum(), now, tensor.RetainGraph())
	through := tensor.Gradients(z.Sum(), old)
	for i := range old {
		if !through[i].AllClose(direct[i].MulScalar(1.5), 1e-5, 1e-7) {
			t.Errorf("gradient of parameter %d", i)
		}
	}
	for _, p := range nn.Parameters(m) {
		p.Detach().MulScalarInPlace(1.5)
	}
	if !m.run(x).AllClose(z, 1e-6, 1e-6) {
		t.Error("the same numbers as those of a model that has the tensors for its own")
	}

	a, b := nn.NewLinear(2, 2), nn.NewLinear(2, 2)
	type hider struct {
		nn.Base
		W     *tensor.Tensor `nn:"w"`
		again []*tensor.Tensor
	}
	w := tensor.Ones(1).RequiresGrad()
	type keeper struct {
		A      *nn.Linear
		layers []*nn.Linear `nn:"-"`
	}
	k := &keeper{A: a, layers: []*nn.Linear{a}}
	for want, f := range map[string]func(){
		`no parameter or buffer "wieght" to replace; it has bias, weight`: func() { nn.Replace(a, map[string]*tensor.Tensor{"wieght": b.Weight}) },
		"weight: the tensor to replace it is nil":                         func() { nn.Replace(a, map[string]*tensor.Tensor{"weight": nil}) },
		"it is one tensor with w": func() {
			nn.Replace(m, map[string]*tensor.Tensor{"w": tensor.Ones(2), "tied": tensor.Ones(2)})
		},
		"again: the field is not exported":  func() { nn.Clone(&hider{W: w, again: []*tensor.Tensor{w}}) },
		"layers: the field is not exported": func() { nn.Clone(k) },
		"the model is nil":                  func() { nn.Clone((*nn.Linear)(nil)) },
	} {
		func() {
			defer func() {
				if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), want) {
					t.Errorf("got %v, want %q", e, want)
				}
			}()
			f()
		}()
	}
	if len(k.layers) != 1 || !slices.Equal(nn.Clone([]*nn.Linear{a})[0].Weight.Floats(), a.Weight.Floats()) {
		t.Error("a list of layers is a model too")
	}
}

// A layer may keep a tensor of an earlier call in a field. Clone copies the tensor without its
// graph. If the tensor was freed, the copy's tensor is freed too. Errors name the copy's layers.
func TestCloneAfterACall(t *testing.T) {
	type keeper struct {
		Fc    *nn.Linear
		Heads []*nn.Linear
		Last  *tensor.Tensor
	}
	m := &keeper{Fc: nn.NewLinear(2, 2), Heads: []*nn.Linear{nn.NewLinear(2, 2), nn.NewLinear(3, 2)}}
	tensor.Do(func(s *tensor.Scope) {
		m.Last = m.Fc.Forward(s.Ones(2, 2))
		c := nn.Clone(m)
		if nn.Count(c) != nn.Count(m) || c.Last == m.Last || c.Last.NeedsGrad() || !c.Last.AllClose(m.Last, 0, 0) {
			t.Errorf("%v is copied as %v", m.Last, c.Last)
		}
	})
	c := nn.Clone(m)
	if c.Last != m.Last {
		t.Error("what is gone is copied")
	}
	chain := nn.NewSequential(nn.NewLinear(2, 2), nn.Tanh{}, nn.NewLinear(2, 2))
	nn.SetCheckpointing(chain, true)
	chain.Layers = chain.Layers[:1] // SetCheckpointing divided the chain of two layers into segments
	if n := nn.Clone(chain); len(n.Layers) != 1 || !n.Forward(tensor.Ones(1, 2)).AllClose(chain.Forward(tensor.Ones(1, 2)), 0, 0) {
		t.Error("a chain that was changed after checkpointing was switched on")
	}
	r := nn.Replace(m, map[string]*tensor.Tensor{"fc.weight": tensor.Ones(2, 3)})
	bare := *m.Heads[1] // a struct copied without Clone has no name
	for _, x := range []struct {
		l    *nn.Linear
		want string
	}{{c.Heads[1], "heads.1 (nn.Linear)"}, {r.Fc, "fc (nn.Linear)"}, {nn.Clone(&bare), ""}} {
		if got := layerIn(t, func() { x.l.Forward(tensor.Ones(2, 2)) }); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

func layerIn(t *testing.T, f func()) string {
	t.Helper()
	var e *tensor.Error
	if err := tensor.Try(f); !errors.As(err, &e) {
		t.Fatalf("%v", err)
	}
	return e.Layer
}
