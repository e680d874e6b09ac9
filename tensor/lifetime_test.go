package tensor

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

// collect runs the garbage collector several times, so that it also runs the cleanups of dropped
// values.
func collect() {
	for range 5 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
}

// settles waits until the CPU has only base bytes of pooled memory in use.
func settles(t *testing.T, base int) {
	t.Helper()
	for range 40 {
		if live(t) <= base {
			return
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d bytes are left", live(t)-base)
}

// TestEyeLeavesNoHandle checks that Free returns the memory of a tensor that Eye made. Eye writes
// the diagonal through a second handle, which must not keep the memory.
func TestEyeLeavesNoHandle(t *testing.T) {
	base := live(t)
	x := Eye(1000)
	if n := x.st.refs.Load(); n != 1 {
		t.Errorf("%d handles of the memory", n)
	}
	if x.Free(); live(t) > base {
		t.Errorf("%d bytes are left", live(t)-base)
	}
}

// TestKeptLeafKeepsGradient moves a leaf to the parent scope, by itself or because a graph needs
// it. The leaf must keep its gradient.
func TestKeptLeafKeepsGradient(t *testing.T) {
	Do(func(p *Scope) {
		s := p.New()
		x := s.Ones(big).RequiresGrad()
		y := x.Square().Sum()
		y.Backward(RetainGraph())
		s.Close(y)
		y.Backward()
		if g := x.Grad().Sum().Item(); g != 4*big {
			t.Errorf("gradients add up to %v", g)
		}
		s = p.New()
		c := s.New()
		h := s.Ones(big).RequiresGrad().In(c)
		h.Square().Sum().Backward()
		c.Close(h)
		s.Close(h)
		if g := h.Grad().Sum().Item(); g != 2*big {
			t.Errorf("gradient through a kept handle: %v", g)
		}
	})
}

// TestDroppedScopeSparesSharedStorage checks that a scope that is dropped without Close frees no
// memory that handles in other scopes use.
//
//flambeau:ignore unclosedscope the test shows what happens to scopes that are dropped
func TestDroppedScopeSparesSharedStorage(t *testing.T) {
	base := baseline(t)
	whole := func(name string, x *Tensor) {
		t.Helper()
		collect()
		other := Zeros(big)
		if v := x.Sum().Item(); v != big {
			t.Errorf("%s: the sum is %v", name, v)
		}
		other.Free()
	}
	w := Ones(big)
	func() {
		p := NewScope()
		c := p.New()
		c.Close(w.In(c).Narrow(0, 0, 10))
	}()
	whole("a kept view of a tensor of the root", w)
	w.Free()
	g := NewScope()
	w = g.Ones(big)
	func() {
		p := g.New()
		c := p.New()
		c.Close(w.In(c).Narrow(0, 0, 10))
	}()
	whole("a kept view of a tensor of a grandparent", w)
	func() { w = g.From(NewScope().Ones(big)) }()
	whole("a tensor handed over from a dropped scope", w)
	x := g.Ones(big).RequiresGrad()
	func() { x.SetGrad(NewScope().Ones(big)) }()
	whole("a gradient from a dropped scope", x.Grad())
	g.abandon() // a child of g was never closed
	func() {
		s := NewScope()
		s.From(NewScope().Ones(big))
	}()
	settles(t, base)
}

// TestChildOutlivesItsParent checks that closing a scope before its child panics. The child can
// still be closed, and no goroutine waits forever.
//
//flambeau:ignore unclosedscope the test shows what happens to scopes that are dropped
func TestChildOutlivesItsParent(t *testing.T) {
	base := baseline(t)
	var c *Scope
	var y *Tensor
	_ = Try(func() {
		Do(func(s *Scope) {
			c = s.New()
			y = c.Ones(big)
			s.Ones(2).Add(s.Ones(3))
		})
	})
	if err := Try(func() { c.Close(y) }); !errors.Is(err, ErrScope) {
		t.Fatalf("there is no parent to keep a tensor in: %v", err)
	}
	c.Close()
	if now := live(t); now != base {
		t.Fatalf("%d bytes are left", now-base)
	}
	if err := Try(func() { Do(func(s *Scope) { s.Ones(big); s.New() }) }); !errors.Is(err, ErrScope) {
		t.Fatalf("a child is left open: %v", err)
	}
	if now := live(t); now != base {
		t.Fatalf("%d bytes are left", now-base)
	}
}

// userFunc is a user's Function, made of two Go functions.
type userFunc struct {
	forward func(c *Context, in []*Tensor) *Tensor
	vjp     func(c *Context, g *Tensor) []*Tensor
}

func (userFunc) Name() string                               { return "user" }
func (f userFunc) Forward(c *Context, in []*Tensor) *Tensor { return f.forward(c, in) }
func (f userFunc) VJP(c *Context, g *Tensor) []*Tensor      { return f.vjp(c, g) }

// TestUserFunctionLeavesScopeOpen runs a user's op that leaves a scope open, which is an error. The
// next op must work as usual.
//
//flambeau:ignore unclosedscope the test shows what happens to scopes that are dropped
func TestUserFunctionLeavesScopeOpen(t *testing.T) {
	base := baseline(t)
	leave := func(end func()) userFunc {
		return userFunc{forward: func(c *Context, in []*Tensor) *Tensor {
			k := c.Scope().New()
			y := in[0].In(k).Square()
			end()
			return y
		}}
	}
	Do(func(s *Scope) {
		x := s.Ones(big)
		for range 3 {
			if err := Try(func() { Apply(leave(func() {}), x) }); !errors.Is(err, ErrScope) {
				t.Fatalf("a scope is left open: %v", err)
			}
			if err := Try(func() { Apply(leave(func() { x.Add(s.Ones(3)) }), x) }); !errors.Is(err, ErrShape) {
				t.Fatalf("got %v", err)
			}
		}
		for range 10 {
			if y := Apply(userFunc{forward: func(_ *Context, in []*Tensor) *Tensor { return in[0].Square() }}, x); y.Sum().Item() != big {
				t.Fatal("the sum is wrong")
			}
		}
	})
	settles(t, base)
}

// TestLongLivedScopeForgetsNodes runs Backward many times in one scope. The scope must forget the
// graphs through which Backward has passed.
func TestLongLivedScopeForgetsNodes(t *testing.T) {
	Do(func(s *Scope) {
		x := s.Ones(4).RequiresGrad()
		for range 5000 {
			x.Square().Sum().Backward()
			x.ZeroGrad()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.nodes); n > 1000 {
			t.Errorf("%d nodes are remembered", n)
		}
	})
}

func meanGrad(x *Tensor) float64 { return x.Grad().Mean().Item() }

// TestGradientsAreNotShared checks that two gradients never share memory unless the program made
// them views of one tensor. Backward must detect a change of a gradient that a graph has saved.
func TestGradientsAreNotShared(t *testing.T) {
	Do(func(s *Scope) {
		x, z := s.Ones(big).RequiresGrad(), s.Ones(big).RequiresGrad()
		x.Add(z).Sum().Backward(CreateGraph())
		x.MulScalar(5).Sum().Backward()
		if a, b := meanGrad(x), meanGrad(z); a != 6 || b != 1 {
			t.Errorf("the gradients are %v and %v, want 6 and 1", a, b)
		}
		seed := s.Ones(big)
		y := s.Ones(big).RequiresGrad()
		y.Clone().Backward(GradOutput(seed), CreateGraph())
		y.Clone().Backward(GradOutput(seed))
		if a, b := meanGrad(y), seed.Mean().Item(); a != 2 || b != 1 {
			t.Errorf("the gradient is %v, its seed became %v", a, b)
		}
		w := s.Ones(big).RequiresGrad()
		loss := w.Mul(x.Grad()).Sum()
		x.Sum().Backward() // this run adds to the saved gradient in place
		if err := Try(func() { loss.Backward() }); !errors.Is(err, ErrInPlace) {
			t.Errorf("the saved gradient changed: %v", err)
		}
		z.Grad().Free()
		z.MulScalar(3).Sum().Backward()
		if v := meanGrad(z); v != 3 {
			t.Errorf("after the gradient was freed: %v", v)
		}
	})
}

func TestGradientsOfIntermediates(t *testing.T) {
	Do(func(s *Scope) {
		x := s.Ones(4).RequiresGrad()
		h := x.MulScalar(3)
		y := h.Square().Add(h).Sum()
		g := Gradients(y, []*Tensor{h, x, y, h})
		for i, want := range []float64{7, 21, 1, 7} {
			if v := g[i].Mean().Item(); v != want {
				t.Errorf("gradient %d is %v, want %v", i, v, want)
			}
		}
	})
}

func TestGradOutputIsLent(t *testing.T) {
	Do(func(s *Scope) {
		x := s.Ones(4).RequiresGrad()
		c := s.New()
		g := c.Ones(4)
		x.Clone().Backward(GradOutput(g))
		if g.Scope() != c || g.Sum().Item() != 4 {
			t.Error("the seed stays its owner's")
		}
		c.Close()
		q := NewScope()
		defer q.Close()
		if err := Try(func() { x.Clone().Backward(GradOutput(q.Ones(4))) }); !errors.Is(err, ErrScope) {
			t.Errorf("a seed of an unrelated scope: %v", err)
		}
	})
}

// TestUserFunctionMistakes applies user's ops that break their contract. Each must cause an error
// of the right kind, and leave no memory in use. Gradients of another type, scope or origin do not
// break the contract.
func TestUserFunctionMistakes(t *testing.T) {
	square := func(c *Context, in []*Tensor) *Tensor { c.Save(in[0]); return in[0].Square() }
	for name, f := range map[string]struct {
		fn   userFunc
		kind error
	}{
		"no result":       {userFunc{forward: func(*Context, []*Tensor) *Tensor { return nil }}, ErrValue},
		"freed result":    {userFunc{forward: func(_ *Context, in []*Tensor) *Tensor { y := in[0].Neg(); y.Free(); return y }}, ErrFreed},
		"saves nil":       {userFunc{forward: func(c *Context, in []*Tensor) *Tensor { c.Save(nil); return in[0].Neg() }}, ErrValue},
		"reads too early": {userFunc{forward: func(c *Context, _ []*Tensor) *Tensor { return c.Saved(0) }}, ErrValue},
		"too few":         {userFunc{square, func(*Context, *Tensor) []*Tensor { return nil }}, ErrGrad},
		"too many":        {userFunc{square, func(_ *Context, g *Tensor) []*Tensor { return []*Tensor{g, g} }}, ErrGrad},
		"wrong shape":     {userFunc{square, func(_ *Context, g *Tensor) []*Tensor { return []*Tensor{g.Narrow(0, 0, 1)} }}, ErrGrad},
		"integers":        {userFunc{square, func(_ *Context, g *Tensor) []*Tensor { return []*Tensor{g.Long()} }}, ErrType},
		"freed gradient":  {userFunc{square, func(_ *Context, g *Tensor) []*Tensor { d := g.Neg(); d.Free(); return []*Tensor{d} }}, ErrFreed},
		"not saved":       {userFunc{square, func(c *Context, _ *Tensor) []*Tensor { return []*Tensor{c.Saved(1)} }}, ErrValue},
	} {
		base := baseline(t)
		err := Try(func() { Do(func(s *Scope) { Apply(f.fn, s.Ones(big).RequiresGrad()).Sum().Backward() }) })
		if !errors.Is(err, f.kind) {
			t.Errorf("%s: %v", name, err)
		}
		if now := live(t); now != base {
			t.Errorf("%s: %d bytes are left", name, now-base)
		}
	}
	for name, vjp := range map[string]func(c *Context, g *Tensor) []*Tensor{
		"none":     func(*Context, *Tensor) []*Tensor { return []*Tensor{nil} },
		"itself":   func(_ *Context, g *Tensor) []*Tensor { return []*Tensor{g} },
		"freed g":  func(_ *Context, g *Tensor) []*Tensor { d := g.MulScalar(1); g.Free(); return []*Tensor{d} },
		"operand":  func(c *Context, _ *Tensor) []*Tensor { return []*Tensor{c.Saved(0)} },
		"float64":  func(_ *Context, g *Tensor) []*Tensor { return []*Tensor{g.Double()} },
		"constant": func(*Context, *Tensor) []*Tensor { return []*Tensor{Ones(4)} },
	} {
		x := Ones(4).RequiresGrad()
		Do(func(s *Scope) { Apply(userFunc{square, vjp}, x.In(s)).Sum().Backward() })
		if g := x.Grad(); name == "none" && g != nil || name != "none" && (g.Sum().Item() != 4 || g.Type() != x.Type() || g.Scope() != Root()) {
			t.Errorf("%s: %v", name, g)
		}
	}
	x := Ones(2).RequiresGrad()
	if err := Try(func() { x.SetGrad(Ones(2).Double()) }); !errors.Is(err, ErrType) {
		t.Errorf("a gradient of another type: %v", err)
	}
}
