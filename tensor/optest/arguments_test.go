package optest

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// The tests of this file check arguments of PyTorch's ops.

// refused checks that f fails with an error of the given kind, whose text contains all the words.
func refused(t *testing.T, what string, f func(), kind error, words ...string) {
	t.Helper()
	if err := tensor.Try(f); err == nil || !contains(err, kind, words...) {
		t.Errorf("%s: the error is %v, want %v with %q", what, err, kind, words)
	}
}

func TestEyeOfRowsAndColumns(t *testing.T) {
	var list []answer
	for _, ty := range dtype.Types() {
		list = append(list,
			answer{"eye(2, 3)", func(s *tensor.Scope) *tt { return s.Typed(ty).Eye(2, 3) }, ty, []int{2, 3}, []float64{1, 0, 0, 0, 1, 0}},
			answer{"eye(5, 2)", func(s *tensor.Scope) *tt { return s.Typed(ty).Eye(5, 2) }, ty, []int{5, 2}, []float64{1, 0, 0, 1, 0, 0, 0, 0, 0, 0}},
			answer{"eye(3, 0)", func(s *tensor.Scope) *tt { return s.Typed(ty).Eye(3, 0) }, ty, []int{3, 0}, nil},
			answer{"eye(0, 3)", func(s *tensor.Scope) *tt { return s.Typed(ty).Eye(0, 3) }, ty, []int{0, 3}, nil},
			answer{"eye(2)", func(s *tensor.Scope) *tt { return s.Typed(ty).Eye(2) }, ty, []int{2, 2}, []float64{1, 0, 0, 1}})
	}
	answered(t, list)
	refused(t, "a negative size", func() { tensor.Typed(dtype.F32).Eye(2, -1) }, tensor.ErrShape, "eye", "-1")
	refused(t, "three sizes", func() { tensor.Typed(dtype.F32).Eye(2, 1, 1) }, tensor.ErrShape, "eye", "3 sizes")
}

func TestSearchsortedBySorter(t *testing.T) {
	x := func(s *tensor.Scope) *tt { return s.From([]float32{5, 1, 3, 2, 4, 4, 0, 9}, 2, 4) }
	values := func(s *tensor.Scope) *tt { return s.From([]float32{0, 3, 6, 4, 1, 9}, 2, 3) }
	answered(t, []answer{
		{"searchsorted", func(s *tensor.Scope) *tt { return x(s).Searchsorted(values(s), false, x(s).Argsort(-1, false)) }, dtype.I64, []int{2, 3}, []float64{0, 2, 4, 1, 1, 3}},
		{"searchsorted, right", func(s *tensor.Scope) *tt { return x(s).Searchsorted(values(s), true, x(s).Argsort(-1, false)) }, dtype.I64, []int{2, 3}, []float64{0, 3, 4, 3, 1, 4}},
		{"searchsorted in a vector", func(s *tensor.Scope) *tt {
			return x(s).Select(0, 0).Searchsorted(values(s), false, x(s).Select(0, 0).Argsort(-1, false))
		}, dtype.I64, []int{2, 3}, []float64{0, 2, 4, 3, 0, 4}},
	})
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		order := x(s).Argsort(-1, false)
		refused(t, "another shape", func() { x(s).Searchsorted(values(s), false, order.Select(0, 0)) }, tensor.ErrShape, "searchsorted", "one sorter")
		refused(t, "two", func() { x(s).Searchsorted(values(s), false, order, order) }, tensor.ErrShape, "one sorter")
		refused(t, "floats", func() { x(s).Searchsorted(values(s), false, x(s)) }, tensor.ErrType, "searchsorted", "int64")
		refused(t, "a place that is not there", func() { x(s).Searchsorted(values(s), false, order.AddScalar(2)).Floats() }, tensor.ErrIndex, "searchsorted")
	})
}

func TestMoveAxesOfSeveral(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Zeros(2, 3, 4, 5)
		for _, c := range []struct {
			from, to []int
			want     string
		}{
			{[]int{0, 1}, []int{2, 3}, "[4, 5, 2, 3]"}, {[]int{0, 1}, []int{1, 0}, "[3, 2, 4, 5]"}, {[]int{-1, 0}, []int{0, -1}, "[5, 3, 4, 2]"},
			{nil, nil, "[2, 3, 4, 5]"}, {[]int{3, 1}, []int{0, 2}, "[5, 2, 3, 4]"}, {[]int{0, 1, 2, 3}, []int{3, 2, 1, 0}, "[5, 4, 3, 2]"},
		} {
			y := x.MoveAxes(c.from, c.to)
			if got := y.Shape().String(); got != c.want || y.DataPtr() != x.DataPtr() {
				t.Errorf("%v to %v: %s, want %s", c.from, c.to, got, c.want)
			}
		}
		if y := s.Full(3).MoveAxes([]int{0}, []int{0}); y.Rank() != 0 || y.Item() != 3 {
			t.Errorf("of rank 0: %v", y)
		}
		refused(t, "one twice", func() { x.MoveAxes([]int{0, 0}, []int{1, 2}) }, tensor.ErrShape, "movedim", "twice")
		refused(t, "to one place", func() { x.MoveAxes([]int{0, 1}, []int{2, -2}) }, tensor.ErrShape, "movedim", "twice")
		refused(t, "two to one", func() { x.MoveAxes([]int{0, 1}, []int{2}) }, tensor.ErrShape, "movedim", "2 dimensions are moved to 1 places")
		refused(t, "one that is not there", func() { x.MoveAxes([]int{4}, []int{0}) }, tensor.ErrShape, "movedim", "4")
	})
}

func TestMatrixNormOfDimensions(t *testing.T) {
	x := func(s *tensor.Scope) *tt { return s.Typed(dtype.F64).ArangeStep(-10, 14, 1).Reshape(2, 3, 4) }
	norm := func(p float64, dims ...int) func(s *tensor.Scope) *tt {
		return func(s *tensor.Scope) *tt { return x(s).MatrixNorm(p, dims...) }
	}
	inf := math.Inf(1)
	answered(t, []answer{
		{"1, (0, 1)", norm(1, 0, 1), dtype.F64, []int{4}, []float64{12, 12, 12, 14}},
		{"1, (1, 0)", norm(1, 1, 0), dtype.F64, []int{4}, []float64{18, 21, 24, 27}},
		{"-1, (2, 0)", norm(-1, 2, 0), dtype.F64, []int{3}, []float64{14, 18, 4}},
		{"inf, (0, 2)", norm(inf, 0, 2), dtype.F64, []int{3}, []float64{34, 30, 46}},
		{"inf, (0, 2), kept", norm(inf, 0, 2, tensor.KeepDim), dtype.F64, []int{1, 3, 1}, []float64{34, 30, 46}},
		{"-inf, kept", norm(-inf, tensor.KeepDim), dtype.F64, []int{2, 1, 1}, []float64{4, 14}},
		{"2, (-1, 0)", norm(2, -1, 0), dtype.F64, []int{3}, []float64{18.42599714234225, 17.510193143026136, 23.121698139505227}},
		{"-2, (0, 1)", norm(-2, 0, 1), dtype.F64, []int{4}, []float64{8, 7.848942414077294, 7.461048409550875, 6.957301724562177}},
	})
	tensor.Do(func(s *tensor.Scope) {
		refused(t, "one twice", func() { norm(1, 1, -2)(s) }, tensor.ErrShape, "matrix_norm", "twice")
		refused(t, "three", func() { norm(1, 0, 1, 2)(s) }, tensor.ErrShape, "matrix_norm", "3 dimensions are given, a matrix has two")
		refused(t, "one", func() { norm(1, 0)(s) }, tensor.ErrShape, "matrix_norm", "1 dimensions")
		refused(t, "one that is not there", func() { norm(1, 1, 3)(s) }, tensor.ErrShape, "matrix_norm", "3")
	})
}

// TestTolerancesOfRanks passes tolerances that decide which singular values of x count as 0. The
// singular values are 16.9, 1.04 and 0.017.
func TestTolerancesOfRanks(t *testing.T) {
	x := func(s *tensor.Scope) *tt { return s.From([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9.1}, 3, 3) }
	var list []answer
	for _, c := range []struct {
		tolerances []float64
		rank       float64
	}{{nil, 3}, {[]float64{0.1}, 1}, {[]float64{0, 0.1}, 2}, {[]float64{0.001, 0.1}, 2}, {[]float64{0.2, 0}, 1}, {[]float64{0, 20}, 0}, {[]float64{0, 0}, 3}} {
		list = append(list, answer{"matrix_rank", func(s *tensor.Scope) *tt { return x(s).MatrixRank(c.tolerances...) }, dtype.I64, nil, []float64{c.rank}})
	}
	answered(t, append(list,
		answer{"pinv(rtol=0.1)", func(s *tensor.Scope) *tt { return x(s).Pinv(0.1) }, dtype.F64, []int{3, 3}, []float64{0.006062367144865587, 0.014680040269893982, 0.02340946445813453,
			0.007233004740623556, 0.017514742727948403, 0.0279298108074086, 0.008465709918182233, 0.020499742021960875, 0.03268982737385132}},
		answer{"pinv(atol=0.1)", func(s *tensor.Scope) *tt { return x(s).Pinv(0, 0.1) }, dtype.F64, []int{3, 3}, []float64{-0.6672568299476372, -0.15836182895431264, 0.30629375678754783,
			-0.04887837126640369, 0.0030942161323516447, 0.05150410805293453, 0.5385762464821641, 0.15673723315334204, -0.19002763655680438}},
		answer{"pinv(atol=20)", func(s *tensor.Scope) *tt { return x(s).Pinv(0, 20) }, dtype.F64, []int{3, 3}, make([]float64, 9)},
		answer{"pinv(rtol=0.1), gradient", func(s *tensor.Scope) *tt { return gradient(x(s), func(x *tt) *tt { return x.Pinv(0.1) }) }, dtype.F64, []int{3, 3},
			[]float64{-0.001256170854948647, 0.0014722645761336495, 0.004159159785826642, -0.017855584329618743, -0.014109193891832433, -0.01061505913608065, -0.03470750372450277, -0.02993715079427025, -0.025632882869051233}}))
	tensor.Do(func(s *tensor.Scope) {
		refused(t, "negative", func() { x(s).Pinv(-1) }, tensor.ErrValue, "pinv", "not negative")
		refused(t, "three", func() { x(s).MatrixRank(0, 0, 0) }, tensor.ErrValue, "matrix_rank", "a relative and an absolute one")
	})
}

func TestIsCloseOfNaN(t *testing.T) {
	n, inf := math.NaN(), math.Inf(1)
	x := func(s *tensor.Scope) *tt { return s.From([]float64{n, 1, n, inf}) }
	y := func(s *tensor.Scope) *tt { return s.From([]float64{n, n, 2, inf}) }
	answered(t, []answer{
		{"isclose, equal_nan", func(s *tensor.Scope) *tt { return x(s).IsClose(y(s), 1e-5, 1e-8, tensor.EqualNaN) }, dtype.Bool, []int{4}, []float64{1, 0, 0, 1}},
		{"isclose", func(s *tensor.Scope) *tt { return x(s).IsClose(y(s), 1e-5, 1e-8) }, dtype.Bool, []int{4}, []float64{0, 0, 0, 1}},
		{"of integers", func(s *tensor.Scope) *tt {
			return s.From([]int64{1, 2}).IsClose(s.From([]int64{1, 3}), 1e-5, 1e-8, tensor.EqualNaN)
		}, dtype.Bool, []int{2}, []float64{1, 0}},
		{"broadcast", func(s *tensor.Scope) *tt { return x(s).IsClose(s.Typed(dtype.F64).Full(n), 0, 0, tensor.EqualNaN) }, dtype.Bool, []int{4}, []float64{1, 0, 1, 0}},
	})
	tensor.Do(func(s *tensor.Scope) {
		if z := x(s).Narrow(0, 0, 1); !z.AllClose(z, 0, 0, tensor.EqualNaN) || z.AllClose(z, 0, 0) || x(s).AllClose(y(s), 0, 0, tensor.EqualNaN) {
			t.Error("allclose is wrong")
		}
	})
}

// TestFillByTensors checks that a fill value may be a tensor of rank 0. The gradient of the fill
// value is the sum of the gradients of the filled elements.
func TestFillByTensors(t *testing.T) {
	x := func(s *tensor.Scope) *tt { return s.Typed(dtype.F64).ArangeStep(0, 6, 1).Reshape(2, 3) }
	mask := func(s *tensor.Scope) *tt { return s.From([]bool{true, false, true, false, true, false}, 2, 3) }
	index := func(s *tensor.Scope, v ...int64) *tt { return s.From(v) }
	seven := func(s *tensor.Scope) *tt { return s.Typed(dtype.F64).Full(7.5) }
	answered(t, []answer{
		{"masked_fill", func(s *tensor.Scope) *tt { return x(s).MaskedFillBy(mask(s), seven(s)) }, dtype.F64, []int{2, 3}, []float64{7.5, 1, 7.5, 3, 7.5, 5}},
		{"masked_fill, gradient of x", func(s *tensor.Scope) *tt {
			return gradient(x(s), func(x *tt) *tt { return x.MaskedFillBy(mask(s), seven(s)) })
		}, dtype.F64, []int{2, 3}, []float64{0, 2, 0, 4, 0, 6}},
		{"masked_fill, gradient of the value", func(s *tensor.Scope) *tt {
			return gradient(seven(s), func(v *tt) *tt { return x(s).MaskedFillBy(mask(s), v) })
		}, dtype.F64, nil, []float64{9}},
		{"masked_fill_, gradient of the value", func(s *tensor.Scope) *tt {
			return gradient(seven(s), func(v *tt) *tt { return x(s).MaskedFillByInPlace(mask(s), v) })
		}, dtype.F64, nil, []float64{9}},
		{"masked_fill of float32 with float64", func(s *tensor.Scope) *tt { return x(s).Float().MaskedFillBy(mask(s), seven(s)) }, dtype.F32, []int{2, 3}, []float64{7.5, 1, 7.5, 3, 7.5, 5}},
		{"masked_fill, gradient in float64", func(s *tensor.Scope) *tt {
			return gradient(seven(s), func(v *tt) *tt { return x(s).Float().MaskedFillBy(mask(s), v) })
		}, dtype.F64, nil, []float64{9}},
		{"masked_fill of int64", func(s *tensor.Scope) *tt { return x(s).Long().MaskedFillBy(mask(s), seven(s)) }, dtype.I64, []int{2, 3}, []float64{7, 1, 7, 3, 7, 5}},
		{"masked_fill of bool", func(s *tensor.Scope) *tt { return x(s).GtScalar(2).MaskedFillBy(mask(s), seven(s)) }, dtype.Bool, []int{2, 3}, []float64{1, 0, 1, 1, 1, 1}},
		{"masked_fill of a row", func(s *tensor.Scope) *tt { return x(s).Select(0, 0).MaskedFillBy(mask(s), seven(s)) }, dtype.F64, []int{2, 3}, []float64{7.5, 1, 7.5, 0, 7.5, 2}},
		{"index_fill", func(s *tensor.Scope) *tt { return x(s).IndexFillBy(1, index(s, 0, -1), seven(s)) }, dtype.F64, []int{2, 3}, []float64{7.5, 1, 7.5, 7.5, 4, 7.5}},
		{"index_fill, gradient of x", func(s *tensor.Scope) *tt {
			return gradient(x(s), func(x *tt) *tt { return x.IndexFillBy(1, index(s, 0, 0, 2), seven(s)) })
		}, dtype.F64, []int{2, 3}, []float64{0, 2, 0, 0, 5, 0}},
		{"index_fill, gradient of the value, one entry twice", func(s *tensor.Scope) *tt {
			return gradient(seven(s), func(v *tt) *tt { return x(s).IndexFillBy(1, index(s, 0, 0, 2), v) })
		}, dtype.F64, nil, []float64{14}},
		{"index_fill_ of nothing, gradient", func(s *tensor.Scope) *tt {
			return gradient(seven(s), func(v *tt) *tt { return x(s).IndexFillByInPlace(1, index(s), v) })
		}, dtype.F64, nil, []float64{0}},
		{"index_fill of int64 with int32", func(s *tensor.Scope) *tt {
			return x(s).Long().IndexFillBy(1, index(s, 0, -1), s.Typed(dtype.I32).Full(3))
		}, dtype.I64, []int{2, 3}, []float64{3, 1, 3, 3, 4, 3}},
		{"index_fill of rank 0", func(s *tensor.Scope) *tt { return seven(s).IndexFillBy(0, index(s, 0), s.Full(2)) }, dtype.F64, nil, []float64{2}},
	})
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		row := s.From([]float64{3})
		refused(t, "a vector", func() { x(s).MaskedFillBy(mask(s), row) }, tensor.ErrShape, "masked_fill", "rank 0")
		refused(t, "a vector", func() { x(s).IndexFillByInPlace(1, index(s, 0), row) }, tensor.ErrShape, "index_fill", "rank 0")
		refused(t, "no mask", func() { x(s).MaskedFillBy(x(s), seven(s)) }, tensor.ErrType, "masked_fill", "must be bool")
		refused(t, "a larger mask", func() { x(s).Select(0, 0).MaskedFillByInPlace(mask(s), seven(s)) }, tensor.ErrShape, "masked_fill", "in place")
		refused(t, "an entry that is not there", func() { x(s).IndexFillBy(1, index(s, 3), seven(s)).Floats() }, tensor.ErrIndex, "index_fill")
	})
}

func TestNanQuantilesOfSeveral(t *testing.T) {
	n := math.NaN()
	x := func(s *tensor.Scope) *tt { return s.From([]float64{1, n, 3, 2, n, n, n, n, 4, 5, 6, 7}, 3, 4) }
	q := []float64{0.25, 0.5}
	answered(t, []answer{
		{"nanquantile", func(s *tensor.Scope) *tt { return x(s).NanQuantiles(q, tensor.Linear, 1) }, dtype.F64, []int{2, 3}, []float64{1.5, n, 4.75, 2, n, 5.5}},
		{"nanquantile, kept", func(s *tensor.Scope) *tt { return x(s).NanQuantiles(q, tensor.Linear, 1, tensor.KeepDim) }, dtype.F64, []int{2, 3, 1}, []float64{1.5, n, 4.75, 2, n, 5.5}},
		{"nanquantile of all", func(s *tensor.Scope) *tt { return x(s).NanQuantiles(q, tensor.Linear) }, dtype.F64, []int{2}, []float64{2.5, 4}},
		{"nanquantile of none", func(s *tensor.Scope) *tt { return x(s).NanQuantiles(nil, tensor.Linear, 1) }, dtype.F64, []int{0, 3}, nil},
	})
}

// TestEmbeddingWithMaxNorm calls EmbeddingRenormInPlace before Embedding. It must shorten the rows
// that Embedding will read, as F.embedding does with max_norm.
func TestEmbeddingWithMaxNorm(t *testing.T) {
	w := func(s *tensor.Scope) *tt { return s.Typed(dtype.F64).ArangeStep(-3, 5, 1).Reshape(4, 2) }
	twice := func(s *tensor.Scope) *tt { return s.From([]int64{0, 3, 3, 1}, 2, 2) }
	var list []answer
	for p, want := range map[float64][4]float64{
		2: {-1.6641005425218427, -1.1094003616812285, 1.1999999760000004, 1.5999999680000005}, 1: {-1.1999999760000004, -0.7999999840000003, 0.8571428448979593, 1.1428571265306124},
		3: {-1.8342641963218584, -1.2228427975479057, 1.3339435249669551, 1.7785913666226068}, math.Inf(1): {-1.9999999333333358, -1.3333332888888905, 1.499999962500001, 1.9999999500000012},
	} {
		list = append(list,
			answer{"embedding_renorm_", func(s *tensor.Scope) *tt { return w(s).EmbeddingRenormInPlace(twice(s), 2, p) }, dtype.F64, []int{4, 2}, []float64{want[0], want[1], -1, 0, 1, 2, want[2], want[3]}},
			answer{"embedding", func(s *tensor.Scope) *tt {
				return w(s).EmbeddingRenormInPlace(twice(s), 2, p).Embedding(twice(s))
			}, dtype.F64, []int{2, 2, 2}, []float64{want[0], want[1], want[2], want[3], want[2], want[3], -1, 0}})
	}
	answered(t, append(list,
		answer{"of float16", func(s *tensor.Scope) *tt { return w(s).Half().EmbeddingRenormInPlace(s.From([]int64{0, 3}), 2, 2) }, dtype.F16, []int{4, 2}, []float64{-1.6640625, -1.109375, -1, 0, 1, 2, 1.19921875, 1.599609375}},
		answer{"to 0", func(s *tensor.Scope) *tt {
			return w(s).EmbeddingRenormInPlace(s.From([]int64{0}), 0, 2).Narrow(0, 0, 1)
		}, dtype.F64, []int{1, 2}, []float64{0, 0}},
		answer{"of no rows", func(s *tensor.Scope) *tt { return w(s).EmbeddingRenormInPlace(s.From([]int64{}), 2, 2).Narrow(0, 0, 1) }, dtype.F64, []int{1, 2}, []float64{-3, -2}},
		answer{"of an index of rank 0, in a view", func(s *tensor.Scope) *tt {
			x := w(s)
			x.T().EmbeddingRenormInPlace(s.From([]int64{1}).Reshape(), 2, 2)
			return x.T()
		}, dtype.F64, []int{2, 4}, []float64{-3, -1, 1, 3, -0.8164965642610598, 0, 0.8164965642610598, 1.6329931285221195}}))
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		x := w(s).RequiresGrad()
		refused(t, "a leaf", func() { x.EmbeddingRenormInPlace(twice(s), 2, 2) }, tensor.ErrGrad, "embedding_renorm")
		version := x.Version()
		s.Do(func(c *tensor.Scope) { x.In(c).EmbeddingRenormInPlace(twice(s), 2, 2) }, tensor.NoGrad())
		if x.Version() == version || !x.NeedsGrad() || x.Floats()[7] > 1.6 {
			t.Errorf("without a graph the leaf is %v", x)
		}
		x.Embedding(s.From([]int64{0, 3, 3})).Sum().Backward()
		want(t, "the gradient", x.Grad(), 1, 1, 0, 0, 0, 0, 2, 2)
		refused(t, "a negative norm", func() { w(s).EmbeddingRenormInPlace(twice(s), -1, 2) }, tensor.ErrValue, "embedding_renorm", "-1")
		refused(t, "a vector", func() { w(s).Select(0, 0).EmbeddingRenormInPlace(twice(s), 2, 2) }, tensor.ErrShape, "embedding_renorm", "matrix")
		refused(t, "a row that is not there", func() { w(s).EmbeddingRenormInPlace(s.From([]int64{9}), 2, 2).Floats() }, tensor.ErrIndex, "embedding_renorm", "9")
	})
}

func TestAntialias(t *testing.T) {
	x := func(s *tensor.Scope) *tt {
		return s.Typed(dtype.F64).ArangeStep(0, 30, 1).Reshape(1, 1, 5, 6).PowScalar(1.3)
	}
	smooth := func(o tensor.InterpolateOptions) func(s *tensor.Scope) *tt {
		o.Antialias = true
		return func(s *tensor.Scope) *tt { return x(s).Interpolate(o) }
	}
	linear, cubic := tensor.InterpolateLinear, tensor.InterpolateCubic
	answered(t, []answer{
		{"bilinear", smooth(tensor.InterpolateOptions{Size: []int{2, 3}, Mode: linear}), dtype.F64, []int{1, 1, 2, 3}, []float64{13.37042870673321, 17.356283949870942, 21.718636184127792, 45.767609209407105, 51.39423834979267, 57.16578813003139}},
		{"bilinear, by half", smooth(tensor.InterpolateOptions{Scale: []float64{0.5}, Mode: linear}), dtype.F64, []int{1, 1, 2, 3}, []float64{9.336929577200932, 13.004708231332291, 17.110852273491496, 36.70970153044568, 42.04687815603971, 47.54850856179954}},
		{"bilinear, corners", smooth(tensor.InterpolateOptions{Size: []int{2, 3}, Mode: linear, AlignCorners: true}), dtype.F64, []int{1, 1, 2, 3}, []float64{26.570940085288896, 32.50569638123146, 36.571892865724, 54.934442304313066, 62.3498998709765, 67.27827557282595}},
		{"bicubic", smooth(tensor.InterpolateOptions{Size: []int{2, 3}, Mode: cubic}), dtype.F64, []int{1, 1, 2, 3}, []float64{10.672856492380143, 14.877224601949253, 19.57493026662397, 47.496063079065976, 53.78761487429361, 60.23538310552665}},
		{"bicubic, one row, corners", smooth(tensor.InterpolateOptions{Size: []int{1, 4}, Mode: cubic, AlignCorners: true}), dtype.F64, []int{1, 1, 1, 4}, []float64{-1.0259685167797354, 0.8732232469713028, 3.921752037343751, 6.235054656445223}},
		{"bicubic to one", smooth(tensor.InterpolateOptions{Size: []int{1}, Mode: cubic}), dtype.F64, []int{1, 1, 1, 1}, []float64{34.48842017230487}},
		{"bicubic of many", func(s *tensor.Scope) *tt {
			return s.Typed(dtype.F64).ArangeStep(0, 100, 1).PowScalar(1.1).Reshape(1, 1, 1, 100).Interpolate(tensor.InterpolateOptions{Size: []int{1, 7}, Mode: cubic, Antialias: true})
		}, dtype.F64, []int{1, 1, 1, 7}, []float64{8.599833913366698, 27.938901179390538, 50.27547208519855, 73.12367508159987, 96.64815186367541, 121.22786242822697, 144.64899062402245}},
		{"float16", func(s *tensor.Scope) *tt {
			return x(s).Half().Interpolate(tensor.InterpolateOptions{Size: []int{2, 3}, Mode: linear, Antialias: true})
		}, dtype.F16, []int{1, 1, 2, 3}, []float64{13.37042870673321, 17.356283949870942, 21.718636184127792, 45.767609209407105, 51.39423834979267, 57.16578813003139}},
	})
	tensor.Do(func(s *tensor.Scope) {
		size := []int{2}
		for _, mode := range []tensor.InterpolateMode{tensor.InterpolateNearest, tensor.InterpolateNearestExact, tensor.InterpolateArea} {
			refused(t, mode.String(), func() { smooth(tensor.InterpolateOptions{Size: size, Mode: mode})(s) }, tensor.ErrValue, "interpolate", "antialiasing", mode.String())
		}
		refused(t, "one dimension", func() {
			x(s).Select(0, 0).Interpolate(tensor.InterpolateOptions{Size: size, Mode: linear, Antialias: true})
		}, tensor.ErrValue, "antialiasing", "two dimensions")
		refused(t, "no channels", func() {
			x(s).Narrow(1, 0, 0).Interpolate(tensor.InterpolateOptions{Size: size, Mode: linear, Antialias: true})
		}, tensor.ErrShape, "no channels")
	})
}
