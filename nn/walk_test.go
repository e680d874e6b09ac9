package nn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Parameters finds a layer behind any pointer and in any list, even if only the dynamic type shows
// that the value is a layer.
func TestLayersInLists(t *testing.T) {
	l := func() *nn.Linear { return nn.NewLinear(2, 2, nn.NoBias()) }
	first, list := l(), []nn.Module{l(), nn.NewSequential(l())}
	m := &struct {
		A any
		B []any
		C [2]any
		D any
		E *[]nn.Module
		F **nn.Linear
		G []any
		H any
		i any
	}{A: l(), B: []any{3, l(), nil, []any{l()}}, C: [2]any{1: l()}, D: []any{first}, E: &list, F: &first, H: map[string]any{"a": 1}, i: []any{"nothing"}}
	var names []string
	for _, p := range nn.Named(m) {
		names = append(names, strings.TrimSuffix(p.Name, ".weight"))
	}
	if want := []string{"a", "b.1", "b.3.0", "c.1", "d.0", "e.0", "e.1.0"}; !slices.Equal(names, want) || m.i == nil {
		t.Errorf("got %v, want %v", names, want)
	}
	if sd := nn.StateDict(m); sd["f.weight"] == nil || sd["f.weight"] != sd["d.0.weight"] {
		t.Errorf("a layer that stands in two places has both names: %v", sd)
	}
	nn.Eval(m)
	if first.Training() || m.B[1].(*nn.Linear).Training() || list[0].(*nn.Linear).Training() {
		t.Error("Eval reaches the layers in lists")
	}
	circle := []any{nil}
	circle[0] = circle
	for want, m := range map[string]any{
		"layers in a map":           &struct{ Heads map[string]any }{map[string]any{"a": 1, "b": l()}},
		"i: the field is not":       &struct{ i any }{l()},
		"i.0: the field is not":     &struct{ i []any }{[]any{l()}},
		"holds itself":              &struct{ A []any }{circle},
		"a.0: the layer is nil":     &struct{ A []any }{[]any{(*nn.Linear)(nil)}},
		"l.1.0: the layer is nil":   &struct{ L [][]*nn.Linear }{[][]*nn.Linear{{l()}, {nil}}},
		"layers in a map have no o": &struct{ A []map[int]any }{[]map[int]any{{1: l()}}},
	} {
		func() {
			defer func() {
				if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), want) {
					t.Errorf("got %v, want %q", e, want)
				}
			}()
			nn.Parameters(m)
		}()
	}
}

// A layer may free a tensor when it returns. A hook can keep the tensor by s.From(y.Detach()), as
// the doc comment of Base says.
func TestHooksKeepWhatDies(t *testing.T) {
	m := nn.NewTransformerEncoderLayer(4, 2, nn.TransformerOptions{FeedForward: 8})
	tensor.Do(func(s *tensor.Scope) {
		var kept, lost *tensor.Tensor
		m.Linear1.RegisterForwardHook(func(_, y *tensor.Tensor) *tensor.Tensor {
			kept, lost = s.From(y.Detach()), y
			return nil
		})
		m.Forward(s.Randn(3, 1, 4)).Sum().Backward()
		if n := len(kept.Floats()); n != 3*8 || m.Linear1.Weight.Grad() == nil {
			t.Errorf("%d numbers are kept", n)
		}
		if err := tensor.Try(func() { lost.Sum() }); !errors.Is(err, tensor.ErrScope) && !errors.Is(err, tensor.ErrFreed) {
			t.Errorf("what was not kept: %v", err)
		}
	})
}

// A missing operand or layer raises a *tensor.Error, not a nil dereference.
func TestForwardOfNothing(t *testing.T) {
	if err := tensor.Try(func() { nn.NewLinear(2, 2).Forward(nil) }); !errors.Is(err, tensor.ErrValue) {
		t.Errorf("got %v", err)
	}
	for want, m := range map[string]nn.Module{
		"nn: 1: the layer is nil\n  in a *nn.Sequential\n  at nn/walk_test.go:": nn.NewSequential(nn.ReLU{}, nil),
		"nn: Lambda: there is no function\n  at nn/walk_test.go:":               &nn.Lambda{},
	} {
		func() {
			defer func() {
				if e, ok := recover().(*nn.Error); !ok || !strings.HasPrefix(e.Error(), want) {
					t.Errorf("got %v, want %q", e, want)
				}
			}()
			m.Forward(tensor.Ones(1))
		}()
	}
}

// If Forward fails inside Summary, the error names a line of the program, and no line of package
// reflect.
func TestSummaryNamesTheCaller(t *testing.T) {
	err := tensor.Try(func() { nn.Summary(nn.NewLinear(3, 2), tensor.Ones(1, 2)) })
	if err == nil || !strings.Contains(err.Error(), "at nn/walk_test.go") {
		t.Errorf("got %v", err)
	}
}
