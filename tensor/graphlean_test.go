package tensor

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// leanCases are ops that a single lean function computes (see graphlean.go). Their operands are a
// matrix of floats and a matrix of indices.
var leanCases = []struct {
	name string
	f    func(x, i *Tensor) *Tensor
}{
	{"cat", func(x, _ *Tensor) *Tensor { return Cat(1, x, x) }},
	{"stack", func(x, _ *Tensor) *Tensor { return Stack(1, x, x) }},
	{"stack of types", func(x, i *Tensor) *Tensor { return Stack(-1, x, i) }},
	{"cast", func(x, _ *Tensor) *Tensor { return x.Half() }},
	{"glu", func(x, _ *Tensor) *Tensor { return x.Glu(-1) }},
	{"glu of rows", func(x, _ *Tensor) *Tensor { return x.Glu(0) }},
	{"matmul", func(x, _ *Tensor) *Tensor { return x.MatMul(x) }},
	{"softmax", func(x, _ *Tensor) *Tensor { return x.Softmax(-1) }},
	{"std", func(x, _ *Tensor) *Tensor { return x.Std(1, 0) }},
	{"norm", func(x, _ *Tensor) *Tensor { return x.Norm(2, 1) }},
	{"amax", func(x, _ *Tensor) *Tensor { return x.Amax(1) }},
	{"prod", func(x, _ *Tensor) *Tensor { return x.Prod(1) }},
	{"flip", func(x, _ *Tensor) *Tensor { return x.Flip(1) }},
	{"cumsum", func(x, _ *Tensor) *Tensor { return x.CumSum(1) }},
	{"gather", func(x, i *Tensor) *Tensor { return x.Gather(1, i) }},
	{"scatter", func(x, i *Tensor) *Tensor { return x.Scatter(1, i, x) }},
	{"scatter_reduce", func(x, i *Tensor) *Tensor { return x.ScatterReduce(1, i, x, "amax", false) }},
	{"erfinv", func(x, _ *Tensor) *Tensor { return x.Erfinv() }},
	{"trace", func(x, _ *Tensor) *Tensor { return x.Trace() }},
	{"diag_embed", func(x, _ *Tensor) *Tensor { return x.DiagEmbed(1, 0, 2) }},
	{"one_hot", func(_, i *Tensor) *Tensor { return i.OneHot(4) }},
	{"searchsorted", func(x, i *Tensor) *Tensor {
		sorted, order := i.Sort(1, false)
		defer freeAll(&[]*Tensor{sorted, order})
		return Apply(searchFunc{"searchsorted", true}, sorted, i)
	}},
	{"masked_scatter", func(x, i *Tensor) *Tensor {
		mask := i.Cast(dtype.Bool)
		defer mask.Free()
		return x.MaskedScatter(mask, x)
	}},
	{"interpolate", func(x, _ *Tensor) *Tensor {
		return Apply((&axisSampler{op: "interpolate", axis: 1, n: 4, m: 8, t: dtype.F32}).linear(), x)
	}},
	{"index", func(x, i *Tensor) *Tensor {
		p, q := i.Select(0, 0), i.Select(0, 1)
		defer freeAll(&[]*Tensor{p, q})
		return x.Index(p, q)
	}},
	{"index_put", func(x, i *Tensor) *Tensor {
		p := i.Select(0, 0)
		defer p.Free()
		return x.IndexPut(x, true, p)
	}},
	{"cross_entropy", func(x, i *Tensor) *Tensor {
		target := i.Select(0, 0)
		defer target.Free()
		return x.CrossEntropy(target, CrossEntropyOptions{})
	}},
	{"nll_loss", func(x, i *Tensor) *Tensor { return Apply(nllFunc{mean: true, ignore: -100}, x, i.Select(0, 0).Clone()) }},
}

// TestLean checks that a lean function leaves only its result in the scope. The result must have
// the bits of the composition of other ops, and the same bits if a graph is recorded.
func TestLean(t *testing.T) {
	for _, c := range leanCases {
		t.Run(c.name, func(t *testing.T) {
			Do(func(s *Scope) {
				x := s.Typed(dtype.F32).Rand(4, 4)
				x.Select(1, 1).Fill(math.Copysign(0, -1))
				i := s.RandInt(0, 4, 4, 4)
				var want, got, graded []byte
				s.Do(func(s *Scope) { want = c.f(x.In(s), i.In(s)).Contiguous().bytes("test") }, Composed())
				s.Do(func(s *Scope) {
					p, q := x.In(s), i.In(s)
					old := liveHandles(s)
					y := c.f(p, q)
					if left := liveHandles(s) - old; left != 1 && c.name != "nll_loss" {
						t.Errorf("%d tensors are left, want 1", left)
					}
					got = y.Contiguous().bytes("test")
				})
				s.Do(func(s *Scope) {
					p := x.In(s).Detach().RequiresGrad()
					graded = c.f(p, i.In(s)).Detach().Contiguous().bytes("test")
				})
				if string(got) != string(want) {
					t.Errorf("the bits are %x, composed %x", got, want)
				}
				if string(graded) != string(got) {
					t.Errorf("the bits are %x with a graph, else %x", graded, got)
				}
			})
		})
	}
}

// TestDotBits checks that Dot has the bits of a matrix product, for every layout.
func TestDotBits(t *testing.T) {
	Do(func(s *Scope) {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I64} {
			for _, n := range []int{0, 1, 7, 32, 1000} {
				x, y := s.Randn(2*n).MulScalar(9).Cast(typ).Slice(0, 0, 2*n, 2), s.Randn(n).MulScalar(9).Cast(typ)
				got := x.Dot(y).bytes("test")
				want := x.Unsqueeze(0).MatMul(y.Unsqueeze(1)).bytes("test")
				if string(got) != string(want) {
					t.Errorf("%v of %d: %x, want %x", typ, n, got, want)
				}
			}
		}
	})
}

// TestOnlyResultLeft checks ops that use views of their operands, or that save an intermediate
// tensor for their gradient. They must leave only their result in the scope, so that the memory is
// free after the result's Free.
func TestOnlyResultLeft(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      func(x, i *Tensor) *Tensor
		vector bool // true if the index is a vector
	}{
		{"rows", func(x, i *Tensor) *Tensor { return x.Index(i) }, false},
		{"rows by a transposed index", func(x, i *Tensor) *Tensor { v := i.T(); defer v.Free(); return x.Index(v) }, false},
		{"take", func(x, i *Tensor) *Tensor { return x.Take(i) }, false},
		{"index_select", func(x, i *Tensor) *Tensor { return x.IndexSelect(1, i) }, true},
		{"nll_loss", func(x, i *Tensor) *Tensor { return Apply(nllFunc{mean: true, ignore: -100}, x, i) }, true},
		{"cummax", func(x, _ *Tensor) *Tensor { y, places := x.CumMax(0); places.Free(); return y }, false},
	} {
		for _, grad := range []bool{false, true} {
			Do(func(s *Scope) {
				x, i := s.Rand(4, 4), s.RandInt(0, 4, 4, 4)
				if c.vector {
					i = i.Select(0, 0)
				}
				x.SetRequiresGrad(grad)
				old := liveHandles(s)
				c.f(x, i)
				if left := liveHandles(s) - old; left != 1 {
					t.Errorf("%s, gradient %v: %d tensors are left, want 1", c.name, grad, left)
				}
			})
		}
	}
}

// TestNothingLeftAfterError checks that an op that panics because of a wrong index leaves no tensor
// in the scope.
func TestNothingLeftAfterError(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(x, i *Tensor)
		err  error
	}{
		{"index", func(x, i *Tensor) { x.Index(i) }, ErrIndex},
		{"index by two tensors", func(x, i *Tensor) { x.Index(i, i) }, ErrIndex},
		{"index_put", func(x, i *Tensor) { x.IndexPut(x, true, i) }, ErrIndex},
		{"index_put in columns", func(x, i *Tensor) { x.IndexPut(x, true, All, i) }, ErrIndex},
		{"index_put of the wrong shape", func(x, i *Tensor) { x.IndexPut(x, true, i, Range(0, 3)) }, ErrShape},
		{"index_select", func(x, i *Tensor) { x.IndexSelect(0, i) }, ErrIndex},
		{"take", func(x, i *Tensor) { x.Take(i) }, ErrIndex},
		{"cross_entropy", func(x, i *Tensor) { x.CrossEntropy(i, CrossEntropyOptions{}) }, ErrIndex},
		{"mean of cross_entropy", func(x, i *Tensor) { x.CrossEntropy(i, CrossEntropyOptions{Mean: true}) }, ErrIndex},
		{"nll_loss", func(x, i *Tensor) { x.CrossEntropy(i, CrossEntropyOptions{Mean: true, LogProbabilities: true}) }, ErrIndex},
		{"masked_scatter", func(x, i *Tensor) {
			m := x.GeScalar(0)
			defer m.Free()
			y := x.Detach()
			defer y.Free()
			z := y.Select(0, 0)
			defer z.Free()
			x.MaskedScatter(m, z)
		}, ErrIndex},
	} {
		for _, grad := range []bool{false, true} {
			Do(func(s *Scope) {
				x, i := s.Rand(4, 4), s.Typed(dtype.I64).From([]int64{0, 1, 99, 2})
				x.SetRequiresGrad(grad)
				old := liveHandles(s)
				if err := Try(func() { c.f(x, i) }); !errors.Is(err, c.err) {
					t.Errorf("%s, gradient %v: the error is %v, want %v", c.name, grad, err, c.err)
				}
				if left := liveHandles(s) - old; left != 0 {
					t.Errorf("%s, gradient %v: %d tensors are left, want 0", c.name, grad, left)
				}
			})
		}
	}
}

// TestCumMaxOfChangedBase calls CumMax on a view whose base joins a graph by a change in place. The
// values must have a gradient, and the integer positions must have none.
func TestCumMaxOfChangedBase(t *testing.T) {
	Do(func(s *Scope) {
		base, w := s.From([]float64{1, 3, 2}).MulScalar(1), s.From([]float64{1, 1, 1}).RequiresGrad()
		view := base.Slice(0, 0, 3, 1)
		base.MulInPlace(w)
		values, places := view.CumMax(0)
		if places.NeedsGrad() || !values.NeedsGrad() {
			t.Errorf("NeedsGrad is %v for the values and %v for the places", values.NeedsGrad(), places.NeedsGrad())
		}
	})
}
