package tensor_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

type tt = tensor.Tensor

// TestViewsShareStorage runs the ops that return a view in torch. A write through the result must
// change the tensor.
func TestViewsShareStorage(t *testing.T) {
	for _, c := range []struct {
		name string
		view func(x *tt) *tt
		hit  []int // indices of the elements that change in a [3, 4] tensor
	}{
		{"Slice", func(x *tt) *tt { return x.Slice(1, 1, tensor.End, 2) }, []int{1, 3, 5, 7, 9, 11}},
		{"Diagonal", func(x *tt) *tt { return x.Diagonal(-1, 0, 1) }, []int{4, 9}},
		{"Unflatten", func(x *tt) *tt { return x.Unflatten(1, 2, 2).Select(1, 1) }, []int{2, 3, 6, 7, 10, 11}},
		{"MoveAxis", func(x *tt) *tt { return x.MoveAxis(0, 1).Select(0, 3) }, []int{3, 7, 11}},
		{"Split", func(x *tt) *tt { return x.Split(2, 0)[1] }, []int{8, 9, 10, 11}},
		{"SplitSizes", func(x *tt) *tt { return x.SplitSizes([]int{1, 3}, 1)[0] }, []int{0, 4, 8}},
		{"Chunk", func(x *tt) *tt { return x.Chunk(2, 1)[0].Select(0, 0) }, []int{0, 1}},
		{"Unbind", func(x *tt) *tt { return x.Unbind(1)[2] }, []int{2, 6, 10}},
		{"Unfold", func(x *tt) *tt { return x.Unfold(1, 2, 2).Select(-1, 1) }, []int{1, 3, 5, 7, 9, 11}},
		{"AsStrided", func(x *tt) *tt { return x.AsStrided([]int{2, 2}, []int{5, 1}, 3) }, []int{3, 4, 8, 9}},
		{"Meshgrid", func(x *tt) *tt { return tensor.Meshgrid(x.Select(0, 0), x.Select(0, 1))[0].Select(1, 0) }, []int{0, 1, 2, 3}},
		{"Einsum", func(x *tt) *tt { return tensor.Einsum("ij->ji", x).Select(0, 0) }, []int{0, 4, 8}},
	} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Zeros(3, 4)
			before := x.Version()
			c.view(x).Fill(1)
			for i, v := range x.Floats() {
				if (v == 1) != slices.Contains(c.hit, i) {
					t.Errorf("%s: element %d is %v", c.name, i, v)
				}
			}
			if x.Version() == before {
				t.Errorf("%s: the write is not counted", c.name)
			}
		})
	}
}

// TestCopiesDoNotShareStorage runs ops that copy in torch, and ranges with a negative step. The
// results must not share storage with the operand.
func TestCopiesDoNotShareStorage(t *testing.T) {
	for name, f := range map[string]func(x *tt) *tt{
		"Slice": func(x *tt) *tt { return x.Slice(0, tensor.End, -tensor.End, -1) }, "Flip": func(x *tt) *tt { return x.Flip() }, "Roll": func(x *tt) *tt { return x.Roll([]int{0}, []int{0}) },
		"Repeat": func(x *tt) *tt { return x.Repeat(1, 1) }, "Tile": func(x *tt) *tt { return x.Tile() }, "RepeatInterleave": func(x *tt) *tt { return x.RepeatInterleave(1, 0) },
		"Pad": func(x *tt) *tt { return x.Pad(0) }, "PadReflect": func(x *tt) *tt { return x.PadReflect(0, 0) }, "Tril": func(x *tt) *tt { return x.Tril(9) },
		"Diag": func(x *tt) *tt { return x.Diag(0) },
	} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Zeros(3, 4)
			f(x).Fill(1)
			if slices.Contains(x.Floats(), 1) {
				t.Errorf("%s shares the storage", name)
			}
		})
	}
}

// TestResultsFollowOperands checks the strides of an elementwise op's result. Only operands
// that have the result's shape and are not expanded count. If these have equal strides and no
// gaps in memory, the result must have the same strides. Otherwise it must be contiguous.
// Values and gradients must be those of contiguous operands.
func TestResultsFollowOperands(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		// turn permutes [3, 4, 5] to [5, 3, 4]
		turn := func(x *tt) *tt { return x.Permute(2, 0, 1) }
		x, y := s.Randn(3, 4, 5).RequiresGrad(), s.Randn(3, 4, 5).RequiresGrad()
		row, dense := s.Randn(4).RequiresGrad(), s.Randn(5, 3, 4)
		for _, c := range []struct {
			name    string
			f       func(x, y *tt) *tt
			follows bool
		}{
			{"one operand", func(x, _ *tt) *tt { return x.Exp() }, true},
			{"a number", func(x, _ *tt) *tt { return x.MulScalar(3) }, true},
			{"two operands", func(x, y *tt) *tt { return x.Mul(y) }, true},
			{"a row", func(x, _ *tt) *tt { return row.Mul(x) }, true},
			{"a number for all", func(x, y *tt) *tt { return x.Mul(y.Select(0, 0).Select(0, 0).Select(0, 0).Expand(5, 3, 4)) }, true},
			{"a condition", func(x, y *tt) *tt { return tensor.Where(x.Gt(y), x, y) }, true},
			{"another order", func(x, _ *tt) *tt { return x.Mul(dense) }, false},
			{"gaps", func(x, y *tt) *tt { return x.Narrow(0, 0, 2).Mul(y.Narrow(0, 0, 2)) }, false},
			{"reversed", func(x, _ *tt) *tt { return x.Flip(1) }, false},
			{"Clone", func(x, _ *tt) *tt { return x.Clone() }, false},
			{"Contiguous", func(x, _ *tt) *tt { return x.Contiguous() }, false},
		} {
			a, b := turn(x), turn(y)
			got, want := c.f(a, b), c.f(a.Contiguous(), b.Contiguous())
			if follows := got.Strides() == a.Strides(); follows != c.follows || !follows && !got.IsContiguous() {
				t.Errorf("%s: the result has strides %v", c.name, got.Strides())
			}
			if !slices.Equal(got.Floats(), want.Floats()) {
				t.Errorf("%s: %v, want %v", c.name, got, want)
			}
			g := s.Randn(got.Shape().Slice()...)
			gx, wx := tensor.Gradients(got, []*tt{x}, tensor.GradOutput(g))[0], tensor.Gradients(want, []*tt{x}, tensor.GradOutput(g))[0]
			if !slices.Equal(gx.Floats(), wx.Floats()) {
				t.Errorf("%s: gradient %v, want %v", c.name, gx, wx)
			}
			before := got.Floats()
			got.Detach().MulScalarInPlace(2) // writes into the memory of got, in the order of its strides
			if after := got.Floats(); after[7] != 2*before[7] {
				t.Errorf("%s: %v doubled is %v", c.name, before[7], after[7])
			}
		}
	})
}

func TestSliceIsPythons(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for n := range 5 {
			x := s.Arange(n)
			for start := -6; start <= 6; start++ {
				for stop := -6; stop <= 6; stop++ {
					for _, step := range []int{1, 2, 3, math.MaxInt, -1, -2, -3, -math.MaxInt, math.MinInt} {
						var want []float64
						from, to := pythonBounds(start, n, step), pythonBounds(stop, n, step)
						for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
							want = append(want, float64(i))
							if step > n || step < -n {
								break
							}
						}
						if got := x.Slice(0, start, stop, step).Floats(); !slices.Equal(got, want) && len(got)+len(want) > 0 {
							t.Fatalf("%d[%d:%d:%d] is %v, want %v", n, start, stop, step, got, want)
						}
					}
				}
			}
		}
	})
}

// pythonBounds adjusts a start or a stop as Python's slice.indices does (Objects/sliceobject.c,
// PySlice_AdjustIndices).
func pythonBounds(i, n, step int) int {
	if i < 0 {
		if i += n; i < 0 {
			if i = 0; step < 0 {
				i = -1
			}
		}
	} else if i >= n {
		if i = n; step < 0 {
			i = n - 1
		}
	}
	return i
}

func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		kind error
		want string
		f    func(x *tt) // the call to test; x has the shape [3, 4]
	}{
		{tensor.ErrValue, "slice: the step is 0", func(x *tt) { x.Slice(0, 0, 1, 0) }},
		{tensor.ErrShape, "slice: dimension 2 is out of range", func(x *tt) { x.Slice(2, 0, 1, 1) }},
		{tensor.ErrShape, "slice: a tensor of rank 0", func(x *tt) { x.Sum().Slice(0, 0, 1, 1) }},
		{tensor.ErrIndex, "narrow: indices 1 to", func(x *tt) { x.Narrow(0, 1, math.MaxInt) }},
		{tensor.ErrShape, "the same", func(x *tt) { x.Diagonal(0, 1, -1) }},
		{tensor.ErrShape, "they must exist and differ", func(x *tt) { x.DiagEmbed(0, 1, 1) }},
		{tensor.ErrShape, "needs a vector or a matrix", func(x *tt) { x.Unsqueeze(0).Diag(0) }},
		{tensor.ErrValue, "windows of size 5, 1 apart, along a dimension of size 4", func(x *tt) { x.Unfold(1, 5, 1) }},
		{tensor.ErrValue, "windows", func(x *tt) { x.Unfold(1, 2, 0) }},
		{tensor.ErrIndex, "leave the storage, which holds 12 elements", func(x *tt) { x.AsStrided([]int{4, 4}, []int{4, 1}, 0) }},
		{tensor.ErrIndex, "leave the storage", func(x *tt) { x.AsStrided([]int{math.MaxInt, 2}, []int{math.MaxInt, 1}, 0) }},
		{tensor.ErrIndex, "leave the storage", func(x *tt) { x.AsStrided([]int{2}, []int{1}, math.MaxInt) }},
		{tensor.ErrValue, "must not be negative", func(x *tt) { x.AsStrided([]int{2}, []int{-1}, 5) }},
		{tensor.ErrShape, "as many strides", func(x *tt) { x.AsStrided([]int{2}, nil) }},
		{tensor.ErrGrad, "use Contiguous or Detach first", func(x *tt) { x.Narrow(0, 0, 1).Expand(3, 4).AsStrided([]int{2}, []int{1}) }},
		{tensor.ErrShape, "do not multiply to 4", func(x *tt) { x.Unflatten(1, 3, 2) }},
		{tensor.ErrShape, "moveaxis: dimension 3", func(x *tt) { x.MoveAxis(0, 3) }},
		{tensor.ErrValue, "parts of size 0", func(x *tt) { x.Split(0, 0) }},
		{tensor.ErrShape, "do not add up to 3", func(x *tt) { x.SplitSizes([]int{1, 1}, 0) }},
		{tensor.ErrValue, "0 parts", func(x *tt) { x.Chunk(0, 0) }},
		{tensor.ErrShape, "rank 0", func(x *tt) { x.Sum().Unbind(0) }},
		{tensor.ErrShape, "Tile takes fewer", func(x *tt) { x.Repeat(2) }},
		{tensor.ErrValue, "-1 copies", func(x *tt) { x.Tile(-1) }},
		{tensor.ErrShape, "too many elements", func(x *tt) { x.Repeat(math.MaxInt/8, 2) }},
		{tensor.ErrShape, "too many elements", func(x *tt) { x.RepeatInterleave(math.MaxInt/8, 0) }},
		{tensor.ErrShape, "too many elements", func(x *tt) { x.Pad(0, math.MaxInt/8, math.MaxInt/8) }},
		{tensor.ErrShape, "too many elements", func(x *tt) { x.PadReplicate(math.MaxInt/8, math.MaxInt/8) }},
		{tensor.ErrShape, "too many elements", func(x *tt) { x.Narrow(0, 0, 1).Expand(1<<62, 4).Clone() }},
		{tensor.ErrShape, "dimension -1 appears twice", func(x *tt) { x.Flip(1, -1) }},
		{tensor.ErrShape, "2 shifts for 1 dimensions", func(x *tt) { x.Roll([]int{1, 2}, []int{0}) }},
		{tensor.ErrShape, "give pairs", func(x *tt) { x.Pad(0, 1, 1, 1, 1, 1, 1) }},
		{tensor.ErrShape, "leave -1 elements", func(x *tt) { x.Pad(0, -3, -2) }},
		{tensor.ErrShape, "a reflection is smaller", func(x *tt) { x.PadReflect(4, 0) }},
		{tensor.ErrShape, "more than once", func(x *tt) { x.PadCircular(0, 5) }},
		{tensor.ErrShape, "leave nothing of dimension 1 of size 4", func(x *tt) { x.PadReplicate(-1, -3) }},
		{tensor.ErrShape, "cut off more than dimension 1 has, 4", func(x *tt) { x.PadCircular(-1, -4) }},
		{tensor.ErrShape, "more than once", func(x *tt) { x.PadCircular(-3, 2) }},
		{tensor.ErrIndex, "indices -4 to -3 are out of range for dimension 0 of size 3", func(x *tt) { x.Narrow(0, -4, 1) }},
		{tensor.ErrIndex, "out of range for dimension 0 of size 3", func(x *tt) { x.Narrow(0, -1, 2) }},
		{tensor.ErrValue, "along a dimension of size 1", func(x *tt) { x.Sum().Unfold(0, 2, 1) }},
		{tensor.ErrShape, "no entry to repeat", func(x *tt) { x.Narrow(1, 0, 0).PadReplicate(1, 0) }},
		{tensor.ErrShape, "needs a matrix", func(x *tt) { x.Select(0, 0).Tril(0) }},
		{tensor.ErrValue, "0 vectors", func(*tt) { tensor.Meshgrid() }},
		{tensor.ErrShape, "must be vectors of one type", func(x *tt) { tensor.Meshgrid(x) }},
		{tensor.ErrShape, "Amax and Amin take any number", func(x *tt) { x.Max() }},
		{tensor.ErrShape, "has no value for an empty set", func(x *tt) { x.Narrow(1, 0, 0).Min(1) }},
		{tensor.ErrType, "use Float", func(x *tt) { x.Long().Var(1) }},
		{tensor.ErrType, "norm: needs a floating point tensor", func(x *tt) { x.Long().Norm(2) }},
		{tensor.ErrValue, "the order is NaN", func(x *tt) { x.Norm(math.NaN()) }},
		{tensor.ErrShape, "no value for an empty set", func(x *tt) { x.Narrow(1, 0, 0).Norm(-2, 1) }},
		{tensor.ErrShape, "needs two vectors", func(x *tt) { x.Outer(x) }},
		{tensor.ErrShape, "the vectors have 3 and 4 elements", func(x *tt) { x.Select(1, 0).Dot(x.Select(0, 0)) }},
		{tensor.ErrShape, "MatMul broadcasts batches", func(x *tt) { x.Bmm(x) }},
		{tensor.ErrShape, "needs matrices", func(x *tt) { x.Addmm(x, x, 1, 1) }},
		{tensor.ErrShape, "does not expand to [3, 3]", func(x *tt) { x.Addmm(x, x.T(), 1, 1) }},
		{tensor.ErrType, "Cast to one type", func(x *tt) { x.Sum().Long().Addmm(x, x.T(), 1, 1) }},
		{tensor.ErrType, "not whole", func(x *tt) { x.Long().Sum().Addmm(x.Long(), x.Long().T(), 0.5, 1) }},
		{tensor.ErrValue, "has 2 operands, 1 tensors", func(x *tt) { tensor.Einsum("ij,jk", x) }},
		{tensor.ErrShape, "names 1 dimensions, operand 0 has 2", func(x *tt) { tensor.Einsum("i", x) }},
		{tensor.ErrShape, `"j" names dimensions of sizes 4 and 3`, func(x *tt) { tensor.Einsum("ij,jk", x, x) }},
		{tensor.ErrShape, "of one operand", func(x *tt) { tensor.Einsum("ii", x.Narrow(0, 0, 1)) }},
		{tensor.ErrValue, "'1' in \"i1\"", func(x *tt) { tensor.Einsum("i1", x) }},
		{tensor.ErrValue, "names a dimension twice, or one that no operand has", func(x *tt) { tensor.Einsum("ij->ik", x) }},
		{tensor.ErrType, "Cast one of them", func(x *tt) { tensor.Einsum("ij,ij", x, x.Long()) }},
		{tensor.ErrType, "use Cast(dtype.I64)", func(x *tt) { x.OneHot(3) }},
		{tensor.ErrValue, "-1 classes", func(x *tt) { x.Long().OneHot(-1) }},
		{tensor.ErrIndex, "one_hot", func(x *tt) { x.Long().OneHot(1) }},
		{tensor.ErrShape, "dimension 2 is out of range", func(x *tt) { x.CosineSimilarity(x, 2, 1e-8) }},
		{tensor.ErrType, "pairwise_distance: is not defined for bool", func(x *tt) { x.PairwiseDistance(x.GtScalar(0), 2, 0) }},
		{tensor.ErrShape, "pairwise_distance: shapes [3, 4] and [4, 3] do not broadcast", func(x *tt) { x.PairwiseDistance(x.T(), 2, 0) }},
		{tensor.ErrShape, "needs rows of one size", func(x *tt) { x.Cdist(x.T(), 2) }},
		{tensor.ErrValue, "the order is -1", func(x *tt) { x.Cdist(x, -1) }},
		{tensor.ErrType, "cdist: needs a floating point tensor", func(x *tt) { x.Cdist(x.Long(), 1) }},
		{tensor.ErrShape, "at most 8", func(x *tt) { tensor.Einsum("ab,cd,ef,gh,ij->abcdefghij", x, x, x, x, x) }},
	} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Ones(3, 4).RequiresGrad()
			err := tensor.Try(func() { c.f(x) })
			if err == nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v is not %v with %q", err, c.kind, c.want)
			}
		})
	}
}

// TestProdGradient checks the gradient of a product of many factors, with and without zeros among
// them.
func TestProdGradient(t *testing.T) {
	for zeros := range 3 {
		tensor.Do(func(s *tensor.Scope) {
			v := make([]float64, 40)
			for i := range v {
				v[i] = 0.75 + float64(i%7)/10
			}
			for k := range zeros {
				v[10*k+3] = 0
			}
			x := s.From(v).RequiresGrad()
			y := x.Prod()
			first := tensor.Gradients(y, []*tt{x}, tensor.RetainGraph())[0].Floats()
			second := tensor.Gradients(y, []*tt{x}, tensor.CreateGraph())[0].Floats()
			for i := range v {
				want := 1.0
				for j, w := range v {
					if j != i {
						want *= w
					}
				}
				if math.Abs(first[i]-want) > 1e-13*math.Abs(want) || math.Abs(second[i]-want) > 1e-13*math.Abs(want) {
					t.Errorf("%d zeros: gradient %d is %v, and %v of a graph, want %v", zeros, i, first[i], second[i], want)
				}
			}
		})
	}
}

// TestTruthOfBytes checks that Any and All of a uint8 tensor return uint8, as torch.any and
// torch.all do.
func TestTruthOfBytes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]uint8{0, 7})
		if a, b := x.Any(), x.All(); a.Type() != dtype.U8 || a.Item() != 1 || b.Type() != dtype.U8 || b.Item() != 0 {
			t.Errorf("%v and %v", a, b)
		}
	})
}

// FuzzEinsum checks that Einsum either computes a result or panics with the library's error, for
// any equation.
func FuzzEinsum(f *testing.F) {
	for _, eq := range []string{"ij,jk->ik", "...,...", "ii", "ij,jk", "i...j->...", "->", ",->", "ab->ba", "aab,b", "....", "i j , j", "\x01,\x02", "ij,ij->ijij", "ij->", ".ij", "Zz,zZ->zZ"} {
		f.Add(eq, uint64(0x22), uint64(0x32))
	}
	f.Fuzz(func(t *testing.T, eq string, a, b uint64) {
		dims := func(bits uint64) []int { // at most five sizes of 0 to 3
			d := []int{}
			for i := range bits & 7 % 6 {
				d = append(d, int(bits>>(4+2*i)&3))
			}
			return d
		}
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				in := []*tt{s.Ones(dims(a)...).RequiresGrad()}
				if strings.Contains(eq, ",") {
					in = append(in, s.Ones(dims(b)...))
				}
				if y := tensor.Einsum(eq, in...); y.Rank() > 0 {
					y.Sum().Backward()
				}
			})
		})
		var e *tensor.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%q: %v", eq, err)
		}
	})
}
