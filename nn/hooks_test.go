package nn_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// squares is a user's layer with hooks.
type squares struct{ nn.Base }

func (m *squares) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	x = x.Mul(x)
	return x
}

// Hooks are called in the same order and with the same values as in PyTorch 2.15.
func TestModuleHooks(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m, seen := &squares{}, ""
		see := func(what string, x ...*tensor.Tensor) {
			seen += what
			for _, x := range x {
				seen += fmt.Sprint(x.Floats())
			}
			seen += " "
		}
		m.RegisterForwardPreHook(func(x *tensor.Tensor) *tensor.Tensor { see("pre", x); return x.MulScalar(2) })
		m.RegisterForwardPreHook(func(x *tensor.Tensor) *tensor.Tensor { see("pre2", x); return nil })
		m.RegisterForwardHook(func(x, y *tensor.Tensor) *tensor.Tensor { see("forward", x, y); return y.AddScalar(1) })
		m.RegisterForwardHook(func(_, y *tensor.Tensor) *tensor.Tensor { see("forward2", y); return nil })
		m.RegisterFullBackwardPreHook(func(g *tensor.Tensor) *tensor.Tensor { see("backpre", g); return g.MulScalar(10) })
		m.RegisterFullBackwardHook(func(in, out *tensor.Tensor) *tensor.Tensor { see("back", in, out); return in.AddScalar(1) })
		m.RegisterFullBackwardHook(func(in, out *tensor.Tensor) *tensor.Tensor { see("back2", in, out); return nil })
		x := s.From([]float32{1, 2, 3}).RequiresGrad()
		y := m.Forward(x)
		y.Mul(s.From([]float32{1, 2, 3})).Sum().Backward()
		want := "pre[1 2 3] pre2[2 4 6] forward[2 4 6][4 16 36] forward2[5 17 37] backpre[1 2 3] back[40 160 360][10 20 30] back2[41 161 361][10 20 30] "
		if seen != want {
			t.Errorf("hooks saw %s, want %s", seen, want)
		}
		if g := x.Grad().Floats(); !slices.Equal(g, []float64{82, 322, 722}) || !slices.Equal(y.Floats(), []float64{5, 17, 37}) {
			t.Errorf("result %v, gradient %v", y, g)
		}
		seen = ""
		s.Do(func(c *tensor.Scope) { m.Forward(x.In(c)) }, tensor.NoGrad())
		if strings.Contains(seen, "back") || !strings.Contains(seen, "forward2") {
			t.Errorf("without gradients hooks saw %s", seen)
		}
	})
}

func TestBackwardHooks(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		// the input requires no gradient
		l, calls := nn.NewLinear(2, 1, nn.NoBias(), nn.In(s)), 0
		l.RegisterFullBackwardHook(func(in, out *tensor.Tensor) *tensor.Tensor {
			if calls++; in != nil || !slices.Equal(out.Floats(), []float64{1, 1, 1}) {
				t.Errorf("the hook saw %v and %v", in, out)
			}
			return out
		})
		l.Forward(s.Ones(3, 2)).Sum().Backward()
		if calls != 1 || !slices.Equal(l.Weight.Grad().Floats(), []float64{3, 3}) {
			t.Errorf("%d calls, gradient %v", calls, l.Weight.Grad())
		}
		// The backward hook runs for a result that is used twice, for a layer that is called twice,
		// for a graph with two runs of Backward, and for the second derivative.
		m, seen := &squares{}, ""
		remove := m.RegisterFullBackwardHook(func(in, out *tensor.Tensor) *tensor.Tensor {
			seen += fmt.Sprint(in.Floats(), out.Floats())
			return nil
		})
		x := s.Typed(dtype.F64).From([]float64{1, 2}).RequiresGrad()
		y := m.Forward(x)
		z := y.Sum().Add(y.MulScalar(2).Sum()).Add(x.Sum())
		for range 2 {
			z.Backward(tensor.RetainGraph())
		}
		if want := "[6 12] [3 3][6 12] [3 3]"; seen != want || !slices.Equal(x.Grad().Floats(), []float64{14, 26}) {
			t.Errorf("hooks saw %s, want %s; gradient %v", seen, want, x.Grad())
		}
		seen = ""
		m.Forward(m.Forward(x)).Sum().Backward()
		if want := "[2 8] [1 1][4 32] [2 8]"; seen != want {
			t.Errorf("hooks saw %s, want %s", seen, want)
		}
		g := tensor.Gradients(m.Forward(x).Sum(), []*tensor.Tensor{x}, tensor.CreateGraph())[0]
		if h := tensor.Gradients(g.Sum(), []*tensor.Tensor{x})[0].Floats(); !slices.Equal(h, []float64{2, 2}) {
			t.Errorf("the second derivative is %v", h)
		}
		remove()
		seen = ""
		m.Forward(x).Sum().Backward()
		if seen != "" {
			t.Errorf("a hook that was removed saw %s", seen)
		}
		for kind, f := range map[error]func(g *tensor.Tensor) *tensor.Tensor{tensor.ErrShape: func(g *tensor.Tensor) *tensor.Tensor { return g.Sum() }, tensor.ErrType: (*tensor.Tensor).Float} {
			remove := m.RegisterFullBackwardPreHook(f)
			if err := tensor.Try(func() { m.Forward(x).Sum().Backward() }); !errors.Is(err, kind) {
				t.Errorf("%v, want %v", err, kind)
			}
			remove()
		}
		bad := &failing{}
		bad.RegisterForwardHook(func(_, _ *tensor.Tensor) *tensor.Tensor { t.Error("a hook ran after a panic"); return nil })
		if err := tensor.Try(func() { bad.Forward(x) }); !errors.Is(err, tensor.ErrType) {
			t.Error(err)
		}
	})
}

// failing is a layer whose Forward panics.
type failing struct{ nn.Base }

func (m *failing) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return x.MatMul(x.Scope().Ones(7, 7))
}

// Layers that are usually used by value can have hooks if they are used by pointer. A model's
// pre-hooks run before those of its layers, and its forward hooks after theirs.
func TestHooksOfLayers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		relu, lin := &nn.ReLU{}, nn.NewLinear(2, 2, nn.In(s))
		m := nn.NewSequential(lin, relu, nn.Identity{})
		seen := ""
		for name, l := range map[string]interface {
			RegisterForwardHook(func(x, y *tensor.Tensor) *tensor.Tensor) func()
			RegisterForwardPreHook(func(x *tensor.Tensor) *tensor.Tensor) func()
		}{"m": m, "r": relu, "l": lin} {
			l.RegisterForwardPreHook(func(*tensor.Tensor) *tensor.Tensor { seen += name; return nil })
			l.RegisterForwardHook(func(_, _ *tensor.Tensor) *tensor.Tensor { seen += name; return nil })
		}
		m.Forward(s.Ones(1, 2))
		if seen != "mllrrm" {
			t.Errorf("hooks ran in the order %s", seen)
		}
		if n := len(nn.Parameters(m)); n != 2 {
			t.Errorf("%d parameters", n)
		}
		if nn.Eval(m); m.Training() || relu.Training() {
			t.Error("the layers are in training")
		}
	})
}

// Every layer embeds Base, directly or through another struct, and its Forward begins with Enter.
// Without this its hooks would never run.
func TestEveryLayerHasHooks(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	embeds, enters, n := map[string][]string{}, map[string]bool{}, 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok {
						if st, ok := ts.Type.(*ast.StructType); ok {
							for _, f := range st.Fields.List {
								if id, ok := f.Type.(*ast.Ident); ok && len(f.Names) == 0 {
									embeds[ts.Name.Name] = append(embeds[ts.Name.Name], id.Name)
								}
							}
						}
					}
				}
			case *ast.FuncDecl:
				if d.Recv == nil || d.Name.Name != "Forward" {
					continue
				}
				on := d.Recv.List[0].Type
				if p, ok := on.(*ast.StarExpr); ok {
					on = p.X
				}
				if p, ok := on.(*ast.IndexExpr); ok { // the receiver is generic
					on = p.X
				}
				name := on.(*ast.Ident).Name
				if !ast.IsExported(name) || d.Type.Params.NumFields() != 1 { // losses have no hooks
					continue
				}
				enters[name] = false
				if first, ok := d.Body.List[0].(*ast.DeferStmt); ok {
					if call, ok := first.Call.Fun.(*ast.CallExpr); ok {
						sel, ok := call.Fun.(*ast.SelectorExpr)
						enters[name] = ok && sel.Sel.Name == "Enter"
					}
				}
			}
		}
	}
	var base func(name string) bool
	base = func(name string) bool { return name == "Base" || slices.ContainsFunc(embeds[name], base) }
	for name, ok := range enters {
		if n++; !ok || !base(name) {
			t.Errorf("%s: it must embed Base, and its Forward begin with `defer l.Enter(&x, &y)()`", name)
		}
	}
	if n < 30 {
		t.Errorf("only %d layers were found", n)
	}
}
