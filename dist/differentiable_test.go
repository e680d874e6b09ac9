package dist

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// varied returns a float64 tensor whose values depend on the rank and the position.
func varied(s *tensor.Scope, r int, dims ...int) *tensor.Tensor {
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Sin(float64(3*i+7*r+1)) * 1.3
	}
	return s.Typed(dtype.F64).From(v).Reshape(dims...)
}

// differentials are calls of the collectives with gradients. The size of dimension 0 of x must be a
// multiple of the number of ranks.
var differentials = map[string]func(g *Group, x *tensor.Tensor) *tensor.Tensor{
	"sum":            func(g *Group, x *tensor.Tensor) *tensor.Tensor { return AllReduce(g, x, Sum) },
	"mean":           func(g *Group, x *tensor.Tensor) *tensor.Tensor { return AllReduce(g, x, Mean) },
	"gather":         AllGather,
	"gather scalars": func(g *Group, x *tensor.Tensor) *tensor.Tensor { return AllGather(g, x.Sum()) },
	"scatter":        func(g *Group, x *tensor.Tensor) *tensor.Tensor { return ReduceScatter(g, x, Sum) },
	"scatter mean":   func(g *Group, x *tensor.Tensor) *tensor.Tensor { return ReduceScatter(g, x, Mean) },
	"first":          func(g *Group, x *tensor.Tensor) *tensor.Tensor { return Broadcast(g, x, 0) },
	"last":           func(g *Group, x *tensor.Tensor) *tensor.Tensor { return Broadcast(g, x, g.World()-1) },
	"exchange":       AllToAll,
	"strided":        func(g *Group, x *tensor.Tensor) *tensor.Tensor { return AllToAll(g, x.T().Contiguous().T()) },
	"two":            func(g *Group, x *tensor.Tensor) *tensor.Tensor { return AllReduce(g, AllGather(g, x).Sin(), Sum) },
}

// checkOver checks the gradients of the sum of f(x) over all ranks. For each element of each
// rank's x, it compares the gradient with a central difference.
func checkOver(t *testing.T, g *Group, x *tensor.Tensor, f func(x *tensor.Tensor) *tensor.Tensor) {
	t.Helper()
	leaf := x.Detach().Clone().RequiresGrad()
	analytic := tensor.Gradients(f(leaf), []*tensor.Tensor{leaf})[0].Floats()
	total := func(x *tensor.Tensor) (sum float64) {
		for _, v := range Exchange(g, f(x.RequiresGrad()).Item()) {
			sum += v
		}
		return sum
	}
	const h = 1e-5
	values := x.Floats()
	for rank := range g.World() {
		for i := range values {
			at := func(d float64) float64 {
				v := slices.Clone(values)
				if rank == g.Rank() {
					v[i] += d
				}
				return total(x.Scope().Typed(dtype.F64).From(v).Reshape(x.Shape().Slice()...))
			}
			want := (at(h) - at(-h)) / (2 * h)
			if rank == g.Rank() && math.Abs(analytic[i]-want) > 1e-7*(1+math.Abs(want)) {
				t.Errorf("%v: element %d of the gradient is %v, want %v", g, i, analytic[i], want)
			}
		}
	}
}

// weighted returns a nonlinear scalar function of y, a different one on each rank.
func weighted(y *tensor.Tensor, rank int) *tensor.Tensor {
	n := y.Size()
	w := varied(y.Scope(), rank+10, n)
	y = y.Reshape(n)
	return y.Mul(w).Add(y.Square().Mul(w.Cos())).Sum()
}

func TestDifferentiableGradients(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		for name, f := range differentials {
			t.Run(name, func(t *testing.T) {
				run(t, l, func(g *Group) {
					g.Do(func(s *tensor.Scope) {
						x := varied(s, g.Rank(), 2*g.World(), 1)
						first := func(x *tensor.Tensor) *tensor.Tensor { return weighted(f(g, x), g.Rank()) }
						checkOver(t, g, x, first)
						checkOver(t, g, x, func(x *tensor.Tensor) *tensor.Tensor {
							d := tensor.Gradients(first(x), []*tensor.Tensor{x}, tensor.CreateGraph())[0]
							return weighted(d, g.Rank()+5)
						})
					})
				})
			})
		}
	})
}

// TestDifferentiableValues compares collectives with gradients to the methods of Group, which work
// in place. Values must be the same, the operand must not change, and types without gradients must
// be accepted.
func TestDifferentiableValues(t *testing.T) {
	forEach(t, []int{1, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			w, r := g.World(), g.Rank()
			for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.I64} {
				g.Do(func(s *tensor.Scope) {
					for _, n := range []int{0, 2} {
						x := filled(s, typ, r, w*n*3).Reshape(w*n, 3)
						if typ.IsFloat() {
							x = x.RequiresGrad()
						}
						name := fmt.Sprintf("%v of %d", typ, n)
						at := func(y *tensor.Tensor, rows int) *tensor.Tensor {
							if y.Dim(0) != rows || y.Dim(1) != 3 || y.Type() != typ || y.Scope() != x.Scope() || y.NeedsGrad() != typ.IsFloat() {
								t.Errorf("%s: a result of shape %v and %v, gradient %v", name, y.Shape(), y.Type(), y.NeedsGrad())
							}
							return y.Detach()
						}
						sum := func(i int) float64 { return combined(Sum, w, i) }
						want(t, "all reduce "+name, at(AllReduce(g, x, Sum), w*n), sum)
						want(t, "reduce scatter "+name, at(ReduceScatter(g, x, Sum), n), func(i int) float64 { return sum(r*n*3 + i) })
						want(t, "broadcast "+name, at(Broadcast(g, x, w-1), w*n), func(i int) float64 { return element(w-1, i) })
						want(t, "all to all "+name, at(AllToAll(g, x), w*n), func(i int) float64 { return element(i/max(3*n, 1), r*n*3+i%max(3*n, 1)) })
						all := w * n * 3
						want(t, "all gather "+name, at(AllGather(g, x), w*w*n), func(i int) float64 { return element(i/max(all, 1), i%max(all, 1)) })
						want(t, "the operand "+name, x.Detach(), func(i int) float64 { return element(r, i) })
					}
				})
			}
		})
	})
}

// TestDifferentiableMisuse calls collectives with operands that differ between ranks. This must be
// an error and must not make ranks wait forever.
func TestDifferentiableMisuse(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(g *Group, s *tensor.Scope)
		kind error
		text string
	}{
		{"one rank without a gradient", func(g *Group, s *tensor.Scope) {
			x := s.Ones(2)
			if g.Rank() == 1 {
				x = x.RequiresGrad()
			}
			Broadcast(g, x, 1).Floats()
		}, ErrMismatch, "broadcast with a gradient of 2 float32"},
		{"a product", func(g *Group, s *tensor.Scope) { AllReduce(g, s.Ones(2), Product) }, tensor.ErrValue, "no gradient of a product"},
		{"a maximum", func(g *Group, s *tensor.Scope) { ReduceScatter(g, s.Ones(2), Max) }, tensor.ErrValue, "no gradient of a max"},
		{"odd parts", func(g *Group, s *tensor.Scope) { AllToAll(g, s.Ones(3, 2)) }, tensor.ErrShape, "[3, 2] cannot be divided among 2 ranks"},
		{"a scalar", func(g *Group, s *tensor.Scope) { ReduceScatter(g, s.Ones(), Sum) }, tensor.ErrShape, "[] cannot be divided"},
		{"no such root", func(g *Group, s *tensor.Scope) { Broadcast(g, s.Ones(2), 2) }, tensor.ErrValue, "there is no rank 2 of 2"},
		{"a gradient that one rank leaves out", func(g *Group, s *tensor.Scope) {
			x := s.Ones(2).RequiresGrad()
			y := AllReduce(g, x, Sum)
			if g.Rank() == 1 {
				y = x
			}
			y.Sum().Backward()
			_ = x.Grad().Floats()
		}, ErrLeft, "all reduce"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Run(context.Background(), Devices("cpu", "cpu"), func(_ context.Context, g *Group) error {
				g.Do(func(s *tensor.Scope) { c.f(g, s) })
				return nil
			})
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %q", err, c.text)
			}
		})
	}
}
