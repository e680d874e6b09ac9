package optest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestStaleHandles changes tensors in place in a graph. The change makes a new node, to which the
// changed tensor and its views move, as in PyTorch. Using any other handle of the memory must be an
// error, because its gradient would be wrong.
func TestStaleHandles(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float32{1, 2, 3, 4}).RequiresGrad()
		for name, wrong := range map[string]func(){
			"another handle of the changed tensor":  func() { x := s.Zeros(4); y := x.In(s.New()); defer y.Scope().Close(); x.AddInPlace(w); y.Softmax(0) },
			"a tensor changed by a detached handle": func() { x := s.Zeros(4); x.Detach().AddInPlace(w); x.Exp() },
			"a view of it":                          func() { x := s.Zeros(4); v := x.Narrow(0, 0, 2); x.Detach().AddInPlace(w); v.Exp() },
			"a view of it, in place":                func() { x := s.Zeros(4); v := x.Narrow(0, 0, 4); x.Detach().AddInPlace(w); v.AddInPlace(w) },
		} {
			if err := tensor.Try(wrong); !errors.Is(err, tensor.ErrInPlace) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// These uses stay valid: the changed tensor, its new views, values that were read before,
		// detached handles, and earlier results.
		x := s.Zeros(4)
		v, d := x.Narrow(0, 0, 2), x.Detach()
		before := v.Add(w.Narrow(0, 1, 2))
		x.AddInPlace(w).MulInPlace(w)
		if got := v.Floats(); !slices.Equal(got, []float64{1, 4}) {
			t.Errorf("the view reads %v", got)
		}
		if got := d.MulScalar(2).Floats(); !slices.Equal(got, []float64{2, 8, 18, 32}) {
			t.Errorf("the detached handle reads %v", got)
		}
		g := tensor.Gradients(x.Narrow(0, 0, 2).Sum().Add(before.Sum()), []*tt{w})[0].Floats()
		// the gradient of w₀² + w₁² + w₁ + w₂
		if want := []float64{2, 5, 1, 0}; !slices.Equal(g, want) {
			t.Errorf("gradient %v, want %v", g, want)
		}
		if err := tensor.Try(func() { s.Do(func(c *tensor.Scope) { v.In(c).Exp() }, tensor.NoGrad()) }); err != nil {
			t.Errorf("without gradients a stale view is as good as any: %v", err)
		}
	})
}

// program runs a random sequence of in-place ops on views of one tensor. It runs the same sequence
// with ops that return new tensors, whose results are the expected ones. It uses views again after
// their memory has changed through other views.
type program struct {
	r       *rand.Rand
	w       *tt   // the leaf of the graph
	changed *tt   // the tensor that changes in place
	plain   *tt   // the same elements in one dimension, computed by ops that return new tensors
	views   []*tt // views of changed
	places  []*tt // for each view, the positions of its elements in plain
}

func newProgram(s *tensor.Scope, w *tt, seed uint64) *program {
	p := &program{r: rand.New(rand.NewPCG(seed, 1)), w: w}
	if seed%4 == 3 { // nothing is recorded until a step writes a value that has a gradient
		p.changed, p.plain = s.On(w.Device()).Typed(dtype.F64).Ones(2, 3, 4), s.On(w.Device()).Typed(dtype.F64).Ones(24)
	} else {
		p.changed, p.plain = w.MulScalar(2).Reshape(2, 3, 4), w.MulScalar(2).Reshape(24)
	}
	if seed%2 == 1 { // the elements of changed lie in memory in another order
		p.changed = p.changed.Transpose(0, 2).Contiguous()
		p.plain = p.plain.Reshape(2, 3, 4).Transpose(0, 2).Reshape(24)
		p.views = []*tt{p.changed.Transpose(0, 2)}
		p.places = []*tt{s.On(w.Device()).Typed(dtype.I64).Arange(24).Reshape(4, 3, 2).Transpose(0, 2)}
		return p
	}
	p.views, p.places = []*tt{p.changed}, []*tt{s.On(w.Device()).Typed(dtype.I64).Arange(24).Reshape(2, 3, 4)}
	return p
}

// view makes a view of one of the views, or selects an existing view. It returns the view's number.
func (p *program) view() int {
	k := p.r.IntN(len(p.views))
	v, at := p.views[k], p.places[k]
	both := func(f func(x *tt) *tt) { v, at = f(v), f(at) }
	if v.Rank() > 0 {
		d := p.r.IntN(v.Rank())
		n := v.Dim(d)
		switch p.r.IntN(6) {
		case 0:
			i := p.r.IntN(n)
			both(func(x *tt) *tt { return x.Select(d, i) })
		case 1:
			i := p.r.IntN(n)
			both(func(x *tt) *tt { return x.Narrow(d, i, n-i) })
		case 2:
			both(func(x *tt) *tt { return x.Slice(d, 0, tensor.End, 2) })
		case 3:
			both(func(x *tt) *tt { return x.Transpose(0, -1) })
		case 4:
			both(func(x *tt) *tt { return x.Unsqueeze(d) })
		default:
			return k
		}
	}
	p.views, p.places = append(p.views, v), append(p.places, at)
	return len(p.views) - 1
}

func (p *program) step() {
	k := p.view()
	v, at := p.views[k], p.places[k]
	flat := at.Reshape(-1)
	old := p.plain.Gather(0, flat).Reshape(v.Shape().Slice()...)
	other := p.w.Reshape(-1).Narrow(0, p.r.IntN(4), v.Size()%8+1).Sum()
	var want *tt
	switch p.r.IntN(7) {
	case 0:
		v.MulScalarInPlace(1.5)
		want = old.MulScalar(1.5)
	case 1:
		v.AddInPlace(other)
		want = old.Add(other)
	case 2:
		v.SinInPlace()
		want = old.Sin()
	case 3:
		v.Copy(other)
		want = other.Expand(v.Shape().Slice()...)
	case 4:
		v.Fill(0.5)
		want = old.FullLike(0.5)
	case 5:
		v.MulInPlace(other)
		want = old.Mul(other)
	case 6: // the operand lies in the memory that changes
		from := p.changed.Reshape(-1).Narrow(0, 0, 1)
		base := p.plain.Narrow(0, 0, 1)
		v.MulInPlace(from.Reshape())
		want = old.Mul(base.Reshape())
	}
	zero := p.plain.ZerosLike()
	kept := zero.OnesLike().Sub(zero.ScatterAdd(0, flat, flat.OnesLike().Double()))
	p.plain = p.plain.Mul(kept).Add(zero.ScatterAdd(0, flat, want.Reshape(-1)))
}

func TestInPlaceViews(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		seeds := uint64(40)
		if s.Device() != hostDevice() {
			seeds = 6
		}
		for seed := range seeds {
			s.Do(func(c *tensor.Scope) {
				w := sample(random("in place views"), dtype.F64, 0.2, 1.2, 24)
				x := c.From(w.v).RequiresGrad()
				p := newProgram(c, x, seed)
				for range 8 {
					p.step()
				}
				weights := c.Typed(dtype.F64).ArangeStep(1, 25, 1)
				k := p.r.IntN(len(p.views)) // the program reads this view, and the whole tensor
				got := p.changed.Reshape(-1).Mul(weights).Sum().Add(p.views[k].Square().Sum())
				want := p.plain.Mul(weights).Sum().Add(p.plain.Gather(0, p.places[k].Reshape(-1)).Square().Sum())
				if d := math.Abs(got.Item() - want.Item()); !(d <= 1e-12*(1+math.Abs(want.Item()))) {
					t.Fatalf("program %d: value %v, want %v", seed, got.Item(), want.Item())
				}
				if !want.NeedsGrad() {
					t.Fatalf("program %d has no gradient", seed)
				}
				var second [2]*tt
				for i, y := range []*tt{got, want} {
					g := tensor.Gradients(y, []*tt{x}, tensor.CreateGraph())[0]
					second[i] = g.Reshape(-1)
					if h := g.Square().Sum(); h.NeedsGrad() {
						second[i] = tensor.Cat(0, g, tensor.Gradients(h, []*tt{x}, tensor.AllowUnused())[0])
					}
				}
				ref := second[1].Floats()
				if msg := differs(second[0], dtype.F64, array{[]int{len(ref)}, ref}, func(i int) float64 { return 1e-11 * (1 + math.Abs(ref[i])) }); msg != "" {
					t.Errorf("program %d: gradients: %s", seed, msg)
				}
			})
		}
	})
}

// TestInPlaceOfItself multiplies and divides in place. The ops must save the factor that their
// gradient needs, even if both operands are the same tensor.
func TestInPlaceOfItself(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float64{1, 2, 3}).RequiresGrad()
		x := w.MulScalar(2)
		x.MulInPlace(x) // x is now 4w²
		x.DivInPlace(w) // x is now 4w
		x.MulInPlace(w) // x is now 4w²
		if g := tensor.Gradients(x.Sum(), []*tt{w})[0].Floats(); !slices.Equal(g, []float64{8, 16, 24}) {
			t.Errorf("gradient %v, want 8w", g)
		}
		y := s.From([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
		// If two overlapping views of one memory are operands, the op must work as if the second
		// were a copy.
		y.Narrow(1, 0, 2).AddInPlace(y.Narrow(1, 1, 2))
		if got := y.Floats(); !slices.Equal(got, []float64{3, 5, 3, 9, 11, 6}) {
			t.Errorf("overlapping views give %v", got)
		}
		// There are so many elements that a wrong order of the writes shows.
		for _, shift := range []int{1, -1} {
			z, want := s.Typed(dtype.F32).Arange(4000), make([]float64, 4000)
			from, to := max(0, -shift), max(0, shift)
			z.Narrow(0, to, 3999).Copy(z.Narrow(0, from, 3999))
			for i := range want {
				want[i] = float64(i)
			}
			copy(want[to:to+3999], slices.Clone(want[from:from+3999]))
			if !slices.Equal(z.Floats(), want) {
				t.Errorf("a copy within one memory by %d is not as of a copy", shift)
			}
		}
		sq := s.From([]float32{1, 2, 3, 4}, 2, 2)
		sq.Copy(sq.T())
		if got := sq.Floats(); !slices.Equal(got, []float64{1, 3, 2, 4}) {
			t.Errorf("a matrix set to its transpose is %v", got)
		}
	})
}

// TestFromKeepsGraph checks that From keeps the graph of a tensor: its result is not a constant.
func TestFromKeepsGraph(t *testing.T) {
	w := tensor.From([]float32{1, 2}).RequiresGrad()
	defer w.Free()
	gpu := emulated(t)
	for _, opts := range [][]tensor.Option{nil, {tensor.On(gpu)}} {
		tensor.Do(func(s *tensor.Scope) {
			if g := tensor.Gradients(s.From(w).Square().Sum(), []*tt{w})[0].Floats(); !slices.Equal(g, []float64{2, 4}) {
				t.Errorf("gradient %v", g)
			}
		}, opts...)
	}
}

// TestInputTwice names an input twice. Gradients must return its gradient twice.
func TestInputTwice(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float32{1, 2}).RequiresGrad()
		y := w.MulScalar(3)
		g := tensor.Gradients(y.Square().Sum(), []*tt{w, y, w, y})
		for i, want := range [][]float64{{18, 36}, {6, 12}, {18, 36}, {6, 12}} {
			if !slices.Equal(g[i].Floats(), want) {
				t.Errorf("gradient %d is %v, want %v", i, g[i].Floats(), want)
			}
		}
		g[0].Free()
		if !slices.Equal(g[2].Floats(), []float64{18, 36}) {
			t.Error("the second handle died with the first")
		}
	})
}

// TestInPlaceViewsAndScopes checks that in-place ops and gradients are right for views whose bases
// are freed, belong to another scope, or repeat elements.
func TestInPlaceViewsAndScopes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{1, 2, 3}).RequiresGrad()
		grad := func(y *tt, v ...float64) {
			t.Helper()
			if g := tensor.Gradients(y.Sum(), []*tt{x})[0].Floats(); !slices.Equal(g, v) {
				t.Errorf("gradient %v, want %v", g, v)
			}
		}
		var kept *tt
		s.Do(func(c *tensor.Scope) {
			kept = x.In(c).MulScalar(2).Narrow(0, 1, 2)
			c.Close(kept)
		})
		grad(kept.MulInPlace(x.Narrow(0, 0, 2)), 4, 8, 4) // the gradient of 2x₁x₀ + 2x₂x₁
		y := x.MulScalar(2)
		v, w := y.Narrow(0, 0, 2), y.Narrow(0, 1, 2)
		y.Free()
		v.MulScalarInPlace(3)
		grad(v, 6, 6, 0)
		grad(w, 0, 6, 2)
		s.Do(func(c *tensor.Scope) { // the whole graph lives in c; no older tensor changes
			y := x.In(c).MulScalar(2)
			y.Narrow(0, 0, 2).AddInPlace(c.From([]float64{1, 1}).RequiresGrad())
			grad(y, 2, 2, 2)
		})
		windows := x.MulScalar(1)
		u := windows.Unfold(0, 2, 1)
		windows.SquareInPlace()
		grad(u, 2, 8, 6)
		z := x.MulScalar(1)
		e := z.Expand(2, 3)
		// e expands z, so all rows of e are the memory of z. A change of one row changes z and
		// every row.
		e.Select(0, 0).MulScalarInPlace(3)
		grad(e, 6, 6, 6)
		grad(z, 3, 3, 3)
		d := x.MulScalar(5).Detach() // a constant, until an op adds a tensor with a gradient
		one, other := d.Narrow(0, 0, 2), d.Narrow(0, 1, 2)
		one.AddInPlace(x.Narrow(0, 1, 2))
		grad(other, 0, 0, 1)
		grad(d, 0, 1, 1)
		gpu := emulated(t)
		// the copy below converts from another device and type
		there := s.On(gpu).Typed(dtype.F32).Zeros(2, 3)
		there.Select(0, 1).Copy(x.MulScalar(5))
		grad(there.MulScalar(2), 10, 10, 10)
		q := x.MulScalar(5)
		still := q.Detach().Narrow(0, 0, 2) // a view of a detached tensor reads the current values
		q.MulScalarInPlace(2)
		if still.Exp().NeedsGrad() || still.Floats()[0] != 10 {
			t.Errorf("a view of a detached tensor is %v", still)
		}
		for name, c := range map[string]struct {
			kind error
			f    func()
		}{
			"of an older tensor, by a younger one": {tensor.ErrScope, func() {
				y := x.MulScalar(2)
				v := y.Narrow(0, 0, 2)
				s.Do(func(c *tensor.Scope) { v.In(c).AddInPlace(c.From([]float64{1, 1}).RequiresGrad()) })
			}},
			"of an older tensor's handle, that is used afterwards": {tensor.ErrInPlace, func() {
				y := x.MulScalar(2)
				s.Do(func(c *tensor.Scope) { y.In(c).Narrow(0, 0, 2).AddInPlace(c.From([]float64{1, 1}).RequiresGrad()) })
				y.Exp()
			}},
			"of an expanded constant": {tensor.ErrShape, func() { s.Typed(dtype.F64).Ones(1, 3).Expand(2, 3).Detach().Select(0, 0).AddInPlace(x) }},
			"of a leaf's handle":      {tensor.ErrGrad, func() { s.Do(func(c *tensor.Scope) { x.In(c).Narrow(0, 0, 2).Zero() }) }},
			"copied into a leaf":      {tensor.ErrGrad, func() { x.Narrow(0, 0, 2).Copy(s.Ones(2)) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) {
				t.Errorf("%s: %v, want %v", name, err, c.kind)
			}
		}
	})
}
