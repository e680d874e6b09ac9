package optest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestHooks checks that hooks run in the same order and receive the same values as in torch. The
// expected numbers are results of PyTorch 2.15.
func TestHooks(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		leaf := func() *tt { return s.From([]float32{1, 2, 3}).RequiresGrad() }
		times := func(v float64) func(g *tt) *tt { return func(g *tt) *tt { return g.MulScalar(v) } }
		{ // Backward and Gradients each call a hook on a leaf once, with the complete gradient.
			x, seen := leaf(), []string{}
			x.RegisterHook(func(g *tt) *tt { seen = append(seen, fmt.Sprint(g.Floats())); return g.MulScalar(10) })
			y := x.MulScalar(2).Sum().Add(x.MulScalar(3).Sum())
			want(t, "gradient by a leaf", tensor.Gradients(y, []*tt{x}, tensor.RetainGraph())[0], 50, 50, 50)
			y.Backward()
			want(t, "gradient of a leaf", x.Grad(), 50, 50, 50)
			if !slices.Equal(seen, []string{"[5 5 5]", "[5 5 5]"}) {
				t.Errorf("a leaf's hook saw %v", seen)
			}
		}
		{ // Hooks on a result run in order, before the gradient is retained or goes further back. Each
			// receives the gradient from the hook before it.
			x, seen := leaf(), ""
			y := x.MulScalar(2)
			y.RetainGrad()
			y.RegisterHook(func(g *tt) *tt { seen += "1"; return g.MulScalar(10) })
			y.RegisterHook(func(g *tt) *tt { seen += "2"; return g.AddScalar(1) })
			y.RegisterHook(func(g *tt) *tt { seen += "3"; return nil })
			y.Sum().Backward()
			want(t, "retained gradient", y.Grad(), 11, 11, 11)
			want(t, "gradient behind it", x.Grad(), 22, 22, 22)
			if seen != "123" {
				t.Errorf("the order is %s", seen)
			}
		}
		{ // a hook on an input of Gradients, which runs even if no older node needs the gradient
			x := leaf()
			y := x.MulScalar(2)
			y.RegisterHook(times(10))
			z := y.Sum()
			want(t, "gradient by a result", tensor.Gradients(z, []*tt{y}, tensor.RetainGraph())[0], 10, 10, 10)
			g := tensor.Gradients(z, []*tt{y, x})
			want(t, "gradient by a result", g[0], 10, 10, 10)
			want(t, "gradient by a leaf", g[1], 20, 20, 20)
		}
		{ // a hook on the result from which Backward starts
			x := leaf()
			y := x.MulScalar(2)
			y.RegisterHook(times(3))
			y.Backward(tensor.GradOutput(s.Ones(3)))
			want(t, "gradient", x.Grad(), 6, 6, 6)
		}
		{ // If a tensor changes in place, its hook still receives the gradient of the old value.
			x, seen := leaf(), ""
			y := x.MulScalar(2)
			y.RegisterHook(func(g *tt) *tt { seen += fmt.Sprint("a", g.Floats()); return nil })
			y.MulScalarInPlace(5)
			y.RegisterHook(func(g *tt) *tt { seen += fmt.Sprint("b", g.Floats()); return nil })
			y.MulScalar(3).Sum().Backward()
			if seen != "b[3 3 3]a[15 15 15]" {
				t.Errorf("hooks around an in-place op saw %s", seen)
			}
		}
		{ // hooks that are removed
			x, seen := leaf(), ""
			a := x.RegisterHook(func(*tt) *tt { seen += "a"; return nil })
			var b func()
			b = x.RegisterHook(func(*tt) *tt { seen += "b"; b(); return nil })
			x.Sum().Backward()
			a()
			a()
			x.RegisterHook(func(*tt) *tt { seen += "c"; return nil })
			x.Sum().Backward()
			if seen != "abc" {
				t.Errorf("hooks that were removed ran: %s", seen)
			}
		}
		{ // a differentiable hook, registered through a handle of another scope
			x := s.From([]float64{2}).RequiresGrad()
			s.Do(func(c *tensor.Scope) { x.In(c).RegisterHook(func(g *tt) *tt { return g.Mul(x) }) })
			// Here the gradient is 2x, and the hook multiplies it by x.
			g := tensor.Gradients(x.Square().Sum(), []*tt{x}, tensor.CreateGraph())[0]
			want(t, "hooked gradient", g, 8)
			// The hooked gradient is 2x·x = 2x², whose derivative at x = 2 is 4x = 8. The hook
			// multiplies this by x too.
			want(t, "its gradient", tensor.Gradients(g, []*tt{x})[0], 16)
		}
		{ // a hook that keeps the gradient
			x := leaf()
			var kept *tt
			x.MulScalar(2).RegisterHook(func(g *tt) *tt { kept = g; return nil })
			y := x.MulScalar(4)
			y.RegisterHook(func(g *tt) *tt { kept = s.From(g); return nil })
			y.Sum().Backward()
			want(t, "kept gradient", kept, 1, 1, 1)
		}
		{ // Into makes a result keep its gradient. Each run adds to that gradient once.
			x := leaf()
			y := x.MulScalar(2)
			z := y.MulScalar(3).Sum()
			z.Backward(tensor.Into(y, x), tensor.RetainGraph())
			want(t, "gradient of a result", y.Grad(), 3, 3, 3)
			z.Backward(tensor.RetainGraph())
			want(t, "gradient that it keeps", y.Grad(), 6, 6, 6)
			z.Backward(tensor.Into(y))
			want(t, "gradient that is retained already", y.Grad(), 9, 9, 9)
			want(t, "gradient of the leaf", x.Grad(), 12, 12, 12)
			x.Sum().Backward(tensor.Into(y, x)) // the sum does not depend on y
			want(t, "gradient of what is not used", y.Grad(), 9, 9, 9)
		}
		{ // a hook that runs when a leaf's gradient is complete; Gradients does not run it
			x, seen := leaf(), []string{}
			x.RegisterPostAccumulateGradHook(func(x *tt) { seen = append(seen, fmt.Sprint(x.Grad().Floats())); x.ZeroGrad() })
			y := x.MulScalar(2).Sum().Add(x.Sum())
			tensor.Gradients(y, []*tt{x}, tensor.RetainGraph())
			y.Backward(tensor.RetainGraph())
			y.Backward(tensor.Into(x))
			if !slices.Equal(seen, []string{"[3 3 3]", "[3 3 3]"}) || x.Grad() != nil {
				t.Errorf("the hook after accumulation saw %v, and left %v", seen, x.Grad())
			}
		}
		{ // A hook runs when the gradient of its leaf is complete: first for the leaf nearer to the
			// result, and before nodes further back are computed.
			a, b, seen := leaf(), leaf(), ""
			a.RegisterPostAccumulateGradHook(func(*tt) { seen += "a" })
			b.RegisterPostAccumulateGradHook(func(*tt) { seen += "b" })
			h := a.Square()
			h.RegisterHook(func(*tt) *tt { seen += "h"; return nil })
			h.Mul(b).Sum().Backward()
			if seen != "bha" {
				t.Errorf("leaves were complete in the order %s", seen)
			}
		}
		for what, c := range map[string]struct {
			kind error
			f    func()
		}{
			"a hook where there is no gradient":  {tensor.ErrGrad, func() { s.Ones(3).RegisterHook(times(1)) }},
			"no hook":                            {tensor.ErrValue, func() { leaf().RegisterHook(nil) }},
			"no hook after accumulation":         {tensor.ErrValue, func() { leaf().RegisterPostAccumulateGradHook(nil) }},
			"a hook after accumulation, result":  {tensor.ErrGrad, func() { leaf().Exp().RegisterPostAccumulateGradHook(func(*tt) {}) }},
			"a hook after accumulation, no grad": {tensor.ErrGrad, func() { s.Ones(2).RegisterPostAccumulateGradHook(func(*tt) {}) }},
			"another shape":                      {tensor.ErrShape, func() { x := leaf(); x.RegisterHook(func(g *tt) *tt { return g.Sum() }); x.Sum().Backward() }},
			"another type":                       {tensor.ErrType, func() { x := leaf(); x.RegisterHook((*tt).Double); x.Sum().Backward() }},
			"a freed gradient": {tensor.ErrFreed, func() {
				x := leaf()
				x.RegisterHook(func(g *tt) *tt { y := g.Neg(); y.Free(); return y })
				x.Sum().Backward()
			}},
			"Into of nothing": {tensor.ErrValue, func() { leaf().Sum().Backward(tensor.Into([]*tt{}...)) }},
			"no option":       {tensor.ErrValue, func() { leaf().Sum().Backward(nil) }},
			//flambeau:ignore unclosedscope the call panics
			"no scope's option":  {tensor.ErrValue, func() { s.New(nil) }},
			"Into for Gradients": {tensor.ErrValue, func() { x := leaf(); tensor.Gradients(x.Sum(), []*tt{x}, tensor.Into(x)) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) {
				t.Errorf("%s: %v, want %v", what, err, c.kind)
			}
		}
	})
}

// TestHooksAtOnce checks that several goroutines may register, remove and run hooks at the same
// time. They may also use a view whose base was changed in place.
func TestHooksAtOnce(t *testing.T) {
	x := tensor.From([]float32{1, 2}).RequiresGrad()
	y := x.MulScalar(1)
	v := y.Narrow(0, 0, 1)
	y.MulScalarInPlace(2)
	var mu sync.Mutex
	n, after := 0, 0
	x.RegisterPostAccumulateGradHook(func(*tt) { mu.Lock(); after++; mu.Unlock() })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				remove := x.RegisterHook(func(*tt) *tt { mu.Lock(); n++; mu.Unlock(); return nil })
				tensor.Do(func(c *tensor.Scope) { v.In(c).Sum().Backward(tensor.RetainGraph()) })
				remove()
			}
		})
	}
	wg.Wait()
	want(t, "gradient", x.Grad(), 80, 0)
	if after != 40 || n < 40 {
		t.Errorf("%d hooks after accumulation, %d before", after, n)
	}
}

// TestOnlyNeededPaths checks that Gradients computes only the nodes on the paths from the result to
// its inputs. Other nodes may already be freed.
func TestOnlyNeededPaths(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		var calls []string
		x, w := s.From([]float64{1, 2}).RequiresGrad(), s.From([]float64{3, 4}).RequiresGrad()
		h := tensor.Apply(&counted{"h", &calls}, x, w)
		side := tensor.Apply(&counted{"side", &calls}, w, w)
		y := tensor.Apply(&counted{"y", &calls}, h, side)
		for _, c := range []struct {
			in   []*tt
			want []string
		}{
			{[]*tt{x}, []string{"y[true false]", "h[true false]"}}, {[]*tt{h}, []string{"y[true false]"}},
			{[]*tt{side}, []string{"y[false true]"}}, {[]*tt{w}, []string{"y[true true]", "side[true true]", "h[false true]"}},
			{[]*tt{y}, nil}, {[]*tt{h, x}, []string{"y[true false]", "h[true false]"}}, {[]*tt{}, nil},
		} {
			calls = nil
			tensor.Gradients(y, c.in, tensor.GradOutput(s.Typed(dtype.F64).Ones(2)), tensor.RetainGraph())
			if !slices.Equal(calls, c.want) {
				t.Errorf("gradients by %d inputs called %v, want %v", len(c.in), calls, c.want)
			}
		}
		calls = nil
		y.Backward(tensor.GradOutput(s.Typed(dtype.F64).Ones(2)), tensor.Into(w))
		if !slices.Equal(calls, []string{"y[true true]", "side[true true]", "h[false true]"}) {
			t.Errorf("Backward into one leaf called %v", calls)
		}
	})
}

// counted computes x + y. It records each call of its VJP, and which gradients the call needs.
type counted struct {
	name  string
	calls *[]string
}

func (f *counted) Name() string { return f.name }

func (f *counted) Forward(c *tensor.Context, in []*tt) *tt {
	c.Save(in...)
	return in[0].Add(in[1])
}

func (f *counted) VJP(c *tensor.Context, g *tt) []*tt {
	*f.calls = append(*f.calls, fmt.Sprint(f.name, []bool{c.Wants(0), c.Wants(1)}))
	return []*tt{g.MulScalar(1), g.MulScalar(1)}
}

// TestDeepGraphs runs Backward on graphs of a hundred thousand nodes. No function may recurse, and
// the time must grow linearly with the number of nodes.
func TestDeepGraphs(t *testing.T) {
	n := 100_000
	if testing.Short() { // the race detector is slow
		n = 10_000
	}
	begin := time.Now()
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{0.5}).RequiresGrad()
		y := x.MulScalar(1)
		for range n - 1 {
			y = y.MulScalar(1)
		}
		y.Backward(tensor.RetainGraph())
		want(t, "gradient of a deep graph", x.Grad(), 1)
		g := tensor.Gradients(y.Square(), []*tt{x}, tensor.CreateGraph())[0]
		want(t, "gradient with a graph", g, 1)
		want(t, "second derivative", tensor.Gradients(g, []*tt{x})[0], 2)
		// Here a chain of views is made of a tensor that changes in place. The last view outlives
		// its scope.
		s.Do(func(c *tensor.Scope) {
			v := x.In(c).MulScalar(1)
			for range n / 10 {
				v = v.AddScalarInPlace(1).Reshape(1, 1).Reshape(1)
			}
			c.Close(v)
			v.Sum().Backward()
		})
	})
	tensor.Do(func(s *tensor.Scope) { // a wide graph: many uses of one leaf
		x := s.From([]float64{0.5}).RequiresGrad()
		sum := x.MulScalar(0)
		for range n / 2 {
			sum = sum.Add(x)
		}
		sum.Backward()
		want(t, "gradient of many uses", x.Grad(), float64(n/2))
	})
	// The graphs need under two seconds on a quiet machine. Quadratic time would exceed the limit.
	if d := time.Since(begin); d > 2*time.Minute {
		t.Errorf("deep graphs took %v", d)
	} else {
		t.Log(d)
	}
}
