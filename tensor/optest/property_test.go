package optest

import (
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
	"pgregory.net/rapid"
)

// drawArray draws a shape of minRank to maxRank dimensions, some of which have size 1 or 0. The
// elements are whole numbers, so that sums are exact.
func drawArray(t *rapid.T, minRank, maxRank int) array {
	dims := rapid.SliceOfN(rapid.IntRange(1, 4), minRank, maxRank).Draw(t, "dims")
	if len(dims) > 0 && rapid.IntRange(0, 19).Draw(t, "empty") == 0 {
		dims[0] = 0
	}
	a := newArray(dims...)
	base := rapid.IntRange(-50, 50).Draw(t, "base")
	for i := range a.v {
		a.v[i] = float64(base + i*7%23)
	}
	return a
}

// drawView applies a random chain of views to a tensor and to its reference.
func drawView(t *rapid.T, x *tt, a array) (*tt, array) {
	for range rapid.IntRange(0, 4).Draw(t, "views") {
		n := len(a.dims)
		if n == 0 {
			break
		}
		d := rapid.IntRange(0, n-1).Draw(t, "dim")
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			p := rapid.Permutation(identity(n)).Draw(t, "permutation")
			x, a = x.Permute(p...), a.permute(p)
		case 1:
			start := rapid.IntRange(0, a.dims[d]).Draw(t, "start")
			length := rapid.IntRange(0, a.dims[d]-start).Draw(t, "length")
			x, a = x.Narrow(d, start, length), a.narrow(d, start, length)
		case 2:
			if a.dims[d] > 0 {
				i := rapid.IntRange(0, a.dims[d]-1).Draw(t, "index")
				x = x.Select(d-n, i)
				a = a.narrow(d, i, 1).reshape(slices.Delete(slices.Clone(a.dims), d, d+1)...)
			}
		case 3:
			x, a = x.Unsqueeze(d), a.reshape(slices.Insert(slices.Clone(a.dims), d, 1)...)
			if len(a.dims) > 6 {
				x, a = x.Squeeze(d), a.reshape(slices.Delete(slices.Clone(a.dims), d, d+1)...)
			}
		case 4:
			if a.dims[d] == 1 {
				dims := slices.Clone(a.dims)
				dims[d] = 3
				x, a = x.Expand(dims...), a.expand(dims)
			}
		case 5: // a reshape, which copies if the layout requires it
			x, a = x.Flatten(0, -1), a.reshape(size(a.dims))
		}
	}
	return x, a
}

func identity(n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	return p
}

func in(t *rapid.T, f func(s *tensor.Scope)) {
	if err := tensor.Try(func() { tensor.Do(f) }); err != nil {
		t.Fatal(err)
	}
}

func same(t *rapid.T, what string, x *tt, a array) {
	if !slices.Equal(x.Shape().Slice(), a.dims) && x.Rank()+len(a.dims) > 0 || !slices.Equal(x.Floats(), a.v) {
		t.Fatalf("%s: %v %v, want %v %v", what, x.Shape(), x.Floats(), a.dims, a.v)
	}
}

// TestViewsReadAsCopies compares chains of views with their copies. Their values must be equal,
// also as operands of ops.
func TestViewsReadAsCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 0, 4)
			x, a := drawView(t, s.From(a.v).Reshape(a.dims...), a)
			same(t, "view", x, a)
			same(t, "contiguous", x.Contiguous(), a)
			if c := x.Contiguous(); !c.IsContiguous() {
				t.Fatal("Contiguous is not")
			}
			same(t, "clone", x.Clone(), a)
			same(t, "neg", x.Neg(), a.apply(func(v float64) float64 { return -v }))
			same(t, "cast", x.Cast(dtype.I32).Cast(dtype.F64), a)
			same(t, "sum", x.Sum(), a.sumTo(nil))
		})
	})
}

// TestViewGradientsAreAdjoint checks that the gradient of a view is the adjoint of the view: ⟨view
// x, seed⟩ = ⟨x, gradient⟩. The gradient adds the seed to the elements that the view reads.
func TestViewGradientsAreAdjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 1, 4)
			x := s.From(a.v).Reshape(a.dims...).RequiresGrad()
			y, b := drawView(t, x.MulScalar(1), a)
			seed := newArray(b.dims...)
			for i := range seed.v {
				seed.v[i] = float64(i%5 - 2)
			}
			g := tensor.Gradients(y, []*tt{x}, tensor.GradOutput(s.From(seed.v).Reshape(seed.dims...)))[0].Floats()
			left, right := 0.0, 0.0
			for i := range b.v {
				left += b.v[i] * seed.v[i]
			}
			for i := range a.v {
				right += a.v[i] * g[i]
			}
			if left != right {
				t.Fatalf("⟨view x, seed⟩ is %v, ⟨x, gradient⟩ %v", left, right)
			}
		})
	})
}

func TestPermuteInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 0, 6)
			p := rapid.Permutation(identity(len(a.dims))).Draw(t, "permutation")
			inverse := make([]int, len(p))
			for i, d := range p {
				inverse[d] = i
			}
			x := s.From(a.v).Reshape(a.dims...)
			same(t, "permute and back", x.Permute(p...).Permute(inverse...), a)
			if y := x.Permute(p...).Permute(inverse...); y.Strides() != x.Strides() {
				t.Fatalf("strides %v, want %v", y.Strides(), x.Strides())
			}
		})
	})
}

// TestSumOrder checks that a sum over several dimensions is equal to sums over one dimension after
// the other, in any order.
func TestSumOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 1, 5)
			for i := range a.v {
				a.v[i] = math.Sin(float64(i)) * math.Exp(float64(i%7))
			}
			x := s.From(a.v).Reshape(a.dims...)
			order := rapid.Permutation(identity(len(a.dims))).Draw(t, "order")
			order = order[:rapid.IntRange(1, len(order)).Draw(t, "count")]
			one := x
			for _, d := range order {
				one = one.Sum(d, tensor.KeepDim)
			}
			whole, parts := x.Sum(append(slices.Clone(order), tensor.KeepDim)...), one.Floats()
			terms := x.Abs().Sum().Item()
			for i, v := range whole.Floats() {
				if math.Abs(v-parts[i]) > 1e-14*terms {
					t.Fatalf("element %d is %v at once, %v in steps", i, v, parts[i])
				}
			}
			if got, want := x.Sum(order...).Size(), whole.Size(); got != want {
				t.Fatalf("%d elements without KeepDim, %d with it", got, want)
			}
		})
	})
}

// TestCatOfParts checks that Cat joins the parts that Narrow returns, and that Stack joins the
// parts that Select returns.
func TestCatOfParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 1, 4)
			x, a := drawView(t, s.From(a.v).Reshape(a.dims...), a)
			if len(a.dims) == 0 {
				return
			}
			d := rapid.IntRange(0, len(a.dims)-1).Draw(t, "along")
			var parts []*tt
			for at := 0; at < a.dims[d] || len(parts) == 0; {
				n := rapid.IntRange(0, a.dims[d]-at).Draw(t, "length")
				parts = append(parts, x.Narrow(d, at, n))
				if at += n; n == 0 && len(parts) > 20 {
					parts = append(parts, x.Narrow(d, at, a.dims[d]-at))
					break
				}
			}
			same(t, "cat", tensor.Cat(d, parts...), a)
			var rows []*tt
			for i := range a.dims[d] {
				rows = append(rows, x.Select(d, i))
			}
			if len(rows) > 0 {
				same(t, "stack", tensor.Stack(d, rows...), a)
			}
		})
	})
}

// TestWritesThroughViews checks that a write through a view changes the tensor and its other views,
// and nothing else.
func TestWritesThroughViews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 1, 4)
			x := s.From(a.v).Reshape(a.dims...)
			places := newArray(a.dims...)
			for i := range places.v {
				places.v[i] = float64(i)
			}
			// v is a view: neither Permute nor Narrow copies. p holds the positions in x that v
			// reads.
			v, p := x, places
			for range rapid.IntRange(1, 3).Draw(t, "views") {
				d := rapid.IntRange(0, len(p.dims)-1).Draw(t, "dim")
				if rapid.Bool().Draw(t, "swap") {
					q := identity(len(p.dims))
					q[0], q[d] = q[d], q[0]
					v, p = v.Permute(q...), p.permute(q)
				} else {
					n := rapid.IntRange(0, p.dims[d]).Draw(t, "length")
					start := rapid.IntRange(0, p.dims[d]-n).Draw(t, "start")
					v, p = v.Narrow(d, start, n), p.narrow(d, start, n)
				}
			}
			version := x.Version()
			want := a.clone()
			switch rapid.IntRange(0, 3).Draw(t, "write") {
			case 0:
				v.Fill(99)
				for _, at := range p.v {
					want.v[int(at)] = 99
				}
			case 1:
				v.AddScalarInPlace(1000)
				for _, at := range p.v {
					want.v[int(at)] += 1000
				}
			case 2:
				src := newArray(p.dims...)
				for i := range src.v {
					src.v[i] = float64(-i)
					want.v[int(p.v[i])] = float64(-i)
				}
				v.Copy(s.From(src.v).Reshape(src.dims...))
			case 3: // a copy from another view of the same memory
				src := v.MulScalar(1)
				r := src.Floats()
				slices.Reverse(r)
				v.Copy(s.From(r).Reshape(p.dims...))
				for i, at := range p.v {
					want.v[int(at)] = r[i]
				}
			}
			same(t, "after the write", x, want)
			if x.Version() == version {
				t.Fatal("the version did not change")
			}
		})
	})
}
