package tensor

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestAutocastCache uses a parameter twice under autocast. The parameter must be cast once, and
// again after it has changed. Its gradient must be summed in float32. The cast must be freed with
// the scope that set autocast.
func TestAutocastCache(t *testing.T) {
	Do(func(o *Scope) {
		w := o.Ones(4, 4).RequiresGrad()
		frozen := o.Ones(4, 4)
		var cast *storage
		o.Do(func(s *Scope) {
			x := s.Ones(2, 4)
			kept := func() *storage {
				if n := len(s.modes.casts.casts); n != 1 {
					t.Fatalf("%d casts are kept, want 1", n)
				}
				return s.modes.casts.casts[castKey{w, dtype.BF16}].cast.st
			}
			y := x.MatMul(w)
			cast = kept()
			// use w in a child scope, through a handle, and without gradients
			s.Do(func(c *Scope) {
				x.In(c).MatMul(w.In(c)).MatMul(frozen)
			}, NoGrad())
			if kept() != cast {
				t.Error("the parameter was cast again")
			}
			y.MatMul(w).Sum().Backward()
			if g := w.Grad(); g.Type() != dtype.F32 || g.Sum().Item() != 2*4*4*(4+4) {
				t.Errorf("the gradient is %v, its sum %v", g.Type(), g.Sum().Item())
			}
			s.Do(func(c *Scope) { w.In(c).Fill(2) }, NoGrad())
			if v := x.MatMul(w).Sum().Item(); v != 2*4*8 {
				t.Errorf("after the parameter has changed the product is %v", v)
			}
			if again := kept(); again == cast {
				t.Error("the parameter has changed and was not cast again")
			}
			s.Do(func(c *Scope) {
				if x.In(c).MatMul(w); c.modes.casts != s.modes.casts {
					t.Error("a child with the same autocast has casts of its own")
				}
			}, Autocast(dtype.BF16))
			cast = kept()
		}, Autocast(dtype.BF16))
		if !cast.freed.Load() {
			t.Error("a cast has outlived its scope")
		}
	})
}

// TestAutocastTogether checks which leaves a scope casts together. When it casts its first leaf, it
// also casts the leaves that an earlier scope needed together with that leaf, and no others. The
// results and gradients have the bits of single casts. Leaves that were freed or frozen are left
// out.
func TestAutocastTogether(t *testing.T) {
	Do(func(o *Scope) {
		leaves := make([]*Tensor, 4)
		for i := range leaves {
			leaves[i] = o.Randn(3, 3).RequiresGrad()
		}
		// scope uses the leaves one after the other. It returns the number of casts after each use.
		scope := func(grad bool, use ...int) (kept []int, sum float64) {
			modes := []Option{Autocast(dtype.BF16)}
			if !grad {
				modes = append(modes, NoGrad())
			}
			o.Do(func(s *Scope) {
				y := s.Ones(3, 3)
				for _, i := range use {
					y = y.MatMul(leaves[i])
					live := 0
					for key, c := range s.modes.casts.casts {
						if got := s.modes.casts.current(key, key.leaf.st); got != nil && !got.cast.freed.Load() {
							live++
						}
						if !slices.Equal(c.cast.Detach().Float().Floats(), key.leaf.Detach().BFloat16().Float().Floats()) {
							t.Error("a cast is not the leaf's")
						}
					}
					kept = append(kept, live)
				}
				if y := y.Sum(); grad {
					y.Backward()
					for _, w := range leaves {
						if g := w.Grad(); g != nil {
							sum += g.Abs().Sum().Item()
							w.ZeroGrad()
						}
					}
				}
			}, modes...)
			return kept, sum
		}
		var want float64
		for k, c := range []struct {
			grad bool
			use  []int
			kept []int
		}{
			{true, []int{0, 1, 2}, []int{1, 2, 3}},
			{true, []int{0, 1, 2}, []int{3, 3, 3}},
			{false, []int{2, 1, 0}, []int{3, 3, 3}},
			{true, []int{1, 2}, []int{3, 3}},       // an earlier scope used leaf 0 too
			{true, []int{2, 1, 0}, []int{2, 2, 3}}, // the previous scope did not use leaf 0
			{true, []int{3}, []int{1}},
			{true, []int{0, 1, 2, 3}, []int{3, 3, 3, 4}},
			{true, []int{3, 2, 1, 0}, []int{4, 4, 4, 4}},
		} {
			kept, sum := scope(c.grad, c.use...)
			if !slices.Equal(kept, c.kept) {
				t.Errorf("scope %d has %v casts, not %v", k, kept, c.kept)
			}
			switch k {
			case 0:
				want = sum
			case 1:
				if sum != want {
					t.Errorf("the gradients' sum is %v, with single casts %v", sum, want)
				}
			}
		}
		// In this scope all leaves change, and one of them is frozen. The other leaves must be cast
		// again together.
		o.Do(func(s *Scope) {
			x := s.Ones(3, 3)
			x.MatMul(leaves[0])
			leaves[1].SetRequiresGrad(false)
			s.Do(func(c *Scope) {
				for _, w := range leaves {
					w.In(c).MulScalarInPlace(2)
				}
			}, NoGrad())
			x.MatMul(leaves[3])
			again := 0
			for key := range s.modes.casts.casts {
				if s.modes.casts.current(key, key.leaf.st) != nil {
					again++
				}
			}
			if again != 3 {
				t.Errorf("%d casts are of the new values, not those of 3 leaves", again)
			}
		}, Autocast(dtype.BF16))
		leaves[1].RequiresGrad()
		leaves[2].Free()
		if kept, _ := scope(true, 0); !slices.Equal(kept, []int{2}) {
			t.Errorf("without the leaf that is gone there are %v casts", kept)
		}
	})
}

// TestAutocastFrees runs ops whose casts no graph needs. The casts must be freed with the op, not
// with the scope.
func TestAutocastFrees(t *testing.T) {
	Do(func(s *Scope) {
		x, y := s.Ones(4, 4), s.Ones(4, 4)
		before := liveHandles(s)
		x.MatMul(y)
		x.Half().Exp()
		if n := liveHandles(s) - before; n != 3 {
			t.Errorf("%d tensors are left of two products, want 3", n)
		}
	}, Autocast(dtype.F16))
}

func liveHandles(s *Scope) (n int) {
	for _, t := range s.owned {
		if !t.freed.Load() {
			n++
		}
	}
	return n
}

// watched records types inside of a function: the types of its operands, of the ops that it calls,
// and of the tensors in its VJP.
type watched struct {
	class                    AutocastClass
	operand, product, second dtype.Type
}

func (f *watched) Name() string            { return "watched" }
func (f *watched) Autocast() AutocastClass { return f.class }
func (f *watched) Forward(c *Context, in []*Tensor) *Tensor {
	y := in[0].MatMul(in[1])
	f.operand, f.product = in[0].Type(), y.Type()
	c.Save(in...)
	return y
}

func (f *watched) VJP(c *Context, g *Tensor) []*Tensor {
	a, b := c.Saved(0), c.Saved(1)
	f.second = a.MatMul(b).Type()
	return []*Tensor{g.Cast(b.Type()).MatMul(b.T()), a.T().MatMul(g.Cast(a.Type()))}
}

func TestAutocastFunctions(t *testing.T) {
	low, high := dtype.F16, dtype.F32
	for _, c := range []struct {
		class                    AutocastClass
		operand, product, second dtype.Type
	}{
		{AutocastThrough, high, low, high}, {AutocastWithin, high, low, low}, {AutocastLow, low, low, low}, {AutocastHigh, high, high, high},
		{AutocastOff, high, high, high}, {AutocastWidest, high, high, high},
	} {
		Do(func(s *Scope) {
			a, b := s.Ones(2, 2).RequiresGrad(), s.Ones(2, 2).RequiresGrad()
			f := &watched{class: c.class}
			Apply(f, a, b).Sum().Backward()
			if f.operand != c.operand || f.product != c.product || f.second != c.second {
				t.Errorf("class %d: the operand is %v, a product %v, one in the VJP %v; want %v, %v, %v", c.class, f.operand, f.product, f.second, c.operand, c.product, c.second)
			}
			if a.Grad().Type() != high || b.Grad().Sum().Item() != 8 {
				t.Errorf("class %d: gradients %v %v", c.class, a.Grad(), b.Grad())
			}
		}, Autocast(low))
	}
}

func TestAutocastModes(t *testing.T) {
	Do(func(s *Scope) {
		x := s.Ones(2, 2)
		if s.Autocast() != dtype.BF16 || x.MatMul(x).Type() != dtype.BF16 {
			t.Error("autocast is not on")
		}
		s.Do(func(c *Scope) {
			if y := x.In(c).MatMul(x); c.Autocast() != dtype.Invalid || y.Type() != dtype.F32 {
				t.Errorf("without autocast the product is %v", y.Type())
			}
			c.Do(func(c *Scope) {
				if y := x.In(c).MatMul(x); y.Type() != dtype.F16 {
					t.Errorf("under autocast to float16 again the product is %v", y.Type())
				}
			}, Autocast(dtype.F16))
		}, NoAutocast())
		for _, y := range []*Tensor{x.Double().MatMul(x.Double()), x.Double().Exp(), x.Double().Sum()} {
			if y.Type() != dtype.F64 {
				t.Errorf("float64 became %v", y.Type())
			}
		}
		if y := x.Long().MatMul(x.Long()); y.Type() != dtype.I64 {
			t.Errorf("int64 became %v", y.Type())
		}
		if y := x.BFloat16().ExpInPlace(); y.Type() != dtype.BF16 {
			t.Errorf("in place bfloat16 became %v", y.Type())
		}
		if y := x.Half().MatMul(x); y.Type() != dtype.BF16 {
			t.Errorf("a product of float16 and float32 is %v under autocast to bfloat16", y.Type())
		}
	}, Autocast(dtype.BF16))
	for _, bad := range []dtype.Type{dtype.F32, dtype.F64, dtype.I64} {
		if err := Try(func() { Do(func(*Scope) {}, Autocast(bad)) }); !errors.Is(err, ErrType) {
			t.Errorf("autocast to %v: %v", bad, err)
		}
	}
}

// TestAutocastTwice computes second derivatives through the casts of autocast.
func TestAutocastTwice(t *testing.T) {
	Do(func(s *Scope) {
		x := s.From([]float32{0.5, -1, 2, 0.25}).Reshape(2, 2).RequiresGrad()
		y := x.MatMul(x).Exp().Sum()
		g := Gradients(y, []*Tensor{x}, CreateGraph())[0]
		h := Gradients(g.Square().Sum(), []*Tensor{x})[0]
		if g.Type() != dtype.F32 || h.Type() != dtype.F32 || h.IsFinite().LogicalNot().Sum().Item() != 0 {
			t.Errorf("the gradient is %v, that of its square %v: %v", g.Type(), h.Type(), h)
		}
	}, Autocast(dtype.BF16))
}

// TestAutocastShared runs goroutines that use one parameter, each in a scope of its own, under the
// autocast of the enclosing scope. The parameter's gradient must be the sum of all their gradients.
func TestAutocastShared(t *testing.T) {
	Do(func(o *Scope) {
		w := o.Ones(8, 8).RequiresGrad()
		o.Do(func(s *Scope) {
			var wait sync.WaitGroup
			for range 4 {
				wait.Go(func() {
					for range 8 {
						s.Do(func(c *Scope) { c.Ones(2, 8).MatMul(w).Sum().Backward() })
					}
				})
			}
			wait.Wait()
		}, Autocast(dtype.BF16))
		if v := w.Grad().Sum().Item(); v != 4*8*2*64 {
			t.Errorf("the sum of the gradient is %v", v)
		}
	})
}

// TestAutocastClasses finds every [Function] of packages tensor and nn that is passed to Apply.
// Each must have an autocast class. A new function needs a line in autocastclass.go.
func TestAutocastClasses(t *testing.T) {
	forward := regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?(\w+)\) Forward\((?:\w+,? )?\*(?:tensor\.)?Context, (?:\w+ )?\[\]\*(?:tensor\.)?Tensor\)`)
	class := regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?(\w+)\) Autocast\(\) (?:tensor\.)?AutocastClass`)
	// the functions below are never passed to Apply
	never := map[string]bool{"elementwiseFunc": true, "reductionFunc": true, "viewFunc": true, "spliceFunc": true, "overwriteFunc": true}
	n := 0
	for _, dir := range []string{".", "../nn"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var functions []string
		classes := map[string]bool{}
		for _, name := range files {
			if regexp.MustCompile(`_test\.go$`).MatchString(name) {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range forward.FindAllSubmatch(text, -1) {
				functions = append(functions, string(m[1]))
			}
			for _, m := range class.FindAllSubmatch(text, -1) {
				classes[string(m[1])] = true
			}
		}
		for _, f := range functions {
			if n++; !classes[f] && !never[f] {
				t.Errorf("%s has no autocast class: give it a line in %s/autocastclass.go (AutocastOff leaves it alone)", f, dir)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d functions are found", n)
	}
}

// TestAutocastLossKept keeps the loss when the scope with autocast closes, as PyTorch's examples
// do. It then runs Backward outside of that scope.
func TestAutocastLossKept(t *testing.T) {
	Do(func(s *Scope) {
		w := s.Ones(4, 4).RequiresGrad()
		var loss *Tensor
		s.Do(func(c *Scope) {
			x := c.Ones(2, 4)
			loss = x.MatMul(w).MatMul(w).Exp().Log().Sum()
			c.Close(loss)
		}, Autocast(dtype.BF16))
		loss.Backward()
		if g := w.Grad(); g.Type() != dtype.F32 || g.Sum().Item() != 2*4*4*(4+4) {
			t.Errorf("the gradient is %v, its sum %v", g.Type(), g.Sum().Item())
		}
	})
}

// TestGradientsOfCastsAddUp uses one float32 tensor, which is not a leaf, in several layers. The
// gradients of its casts must be added up in float32. One op must cast and add.
func TestGradientsOfCastsAddUp(t *testing.T) {
	Do(func(s *Scope) {
		x, w := s.Randn(4, 8).RequiresGrad(), s.Randn(3, 8, 8)
		y := x.MulScalar(2)
		z := y.Square().Sum()
		s.Do(func(c *Scope) {
			for i := range 3 {
				z = z.In(c).Add(y.In(c).Linear(w.In(c).Select(0, i), nil).Float().Sum())
			}
			c.Close(z)
		}, Autocast(dtype.BF16))
		apart := Gradients(z, []*Tensor{y}, CreateGraph())[0].Detach()
		n := &gradientOps{ops: map[string]int{}}
		device.SetTracer(n)
		got := Gradients(z, []*Tensor{y})[0]
		device.SetTracer(nil)
		if !bytes.Equal(got.Bytes(), apart.Bytes()) {
			t.Errorf("%v, want %v", got, apart)
		}
		// The first gradient is only cast, two gradients are cast and added in one op, and the
		// gradient of the square is added without a cast.
		if n.ops["cast.grad"] != 2 || n.ops["add"] != 1 {
			t.Errorf("ops %v", n.ops)
		}
	}, Seed(1))
}

// gradientOps counts the launches of each op.
type gradientOps struct{ ops map[string]int }

func (*gradientOps) Wants() (w device.TraceWants) { return w }
func (*gradientOps) End(device.SpanID)            {}
func (*gradientOps) Recorded(uint64)              {}
func (*gradientOps) Kernel(device.KernelEvent)    {}
func (*gradientOps) Copy(device.CopyEvent)        {}
func (*gradientOps) Sync(device.SyncEvent)        {}
func (*gradientOps) Memory(device.MemoryEvent)    {}

func (c *gradientOps) Begin(s device.Span) device.SpanID {
	if s.Kind == device.SpanDirect {
		c.ops[s.Name]++
	}
	return device.NewSpanID()
}
