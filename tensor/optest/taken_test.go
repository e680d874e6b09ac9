package optest

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// The tests of this file check arguments that PyTorch accepts.

// count returns the numbers 0, 1, … in float64, in the shape dims.
func count(s *tensor.Scope, dims ...int) *tt {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return s.Typed(dtype.F64).Arange(n).Reshape(dims...)
}

// TestNarrowFromTheEnd checks that a negative start counts from the end.
func TestNarrowFromTheEnd(t *testing.T) {
	answered(t, []answer{
		{"narrow(0, -2, 2)", func(s *tensor.Scope) *tt { return count(s, 3, 2).Narrow(0, -2, 2) }, dtype.F64, []int{2, 2}, []float64{2, 3, 4, 5}},
		{"narrow(0, -3, 1)", func(s *tensor.Scope) *tt { return count(s, 3, 2).Narrow(0, -3, 1) }, dtype.F64, []int{1, 2}, []float64{0, 1}},
		{"its gradient", func(s *tensor.Scope) *tt {
			return gradient(count(s, 3, 2), func(x *tt) *tt { return x.Narrow(0, -2, 2) })
		}, dtype.F64, []int{3, 2}, []float64{0, 0, 1, 2, 3, 4}},
	})
}

// TestPadsThatCutOff checks that negative padding removes elements. The modes reflect and replicate
// still read these elements, but circular does not.
func TestPadsThatCutOff(t *testing.T) {
	pads := map[string]func(x *tt, pads ...int) *tt{"reflect": (*tt).PadReflect, "replicate": (*tt).PadReplicate, "circular": (*tt).PadCircular}
	var list []answer
	for _, c := range []struct {
		mode          string
		pads          []int
		want, falling []float64 // the expected result and the expected gradient
	}{
		{"reflect", []int{-2, 5}, []float64{2, 3, 4, 5, 4, 3, 2, 1, 0}, []float64{9, 8, 8, 8, 8, 4}},
		{"reflect", []int{3, -2}, []float64{3, 2, 1, 0, 1, 2, 3}, []float64{4, 8, 8, 8, 0, 0}},
		{"reflect", []int{-6, 5}, []float64{4, 3, 2, 1, 0}, []float64{5, 4, 3, 2, 1, 0}},
		{"reflect", []int{3, -6}, []float64{3, 2, 1}, []float64{0, 3, 2, 1, 0, 0}},
		{"replicate", []int{-2, 5}, []float64{2, 3, 4, 5, 5, 5, 5, 5, 5}, []float64{0, 0, 1, 2, 3, 39}},
		{"replicate", []int{3, -2}, []float64{0, 0, 0, 0, 1, 2, 3}, []float64{10, 5, 6, 7, 0, 0}},
		{"replicate", []int{-7, 8}, []float64{5, 5, 5, 5, 5, 5, 5}, []float64{0, 0, 0, 0, 0, 28}},
		{"circular", []int{-1, 2}, []float64{1, 2, 3, 4, 5, 1, 2}, []float64{0, 7, 9, 3, 4, 5}},
		{"circular", []int{3, -2}, []float64{1, 2, 3, 0, 1, 2, 3}, []float64{4, 6, 8, 10, 0, 0}},
		{"circular", []int{-3, -3}, []float64{}, []float64{0, 0, 0, 0, 0, 0}},
		{"circular", []int{-1, -1}, []float64{1, 2, 3, 4}, []float64{0, 1, 2, 3, 4, 0}},
	} {
		pad := func(x *tt) *tt { return pads[c.mode](x, c.pads...) }
		list = append(list,
			answer{c.mode, func(s *tensor.Scope) *tt { return pad(count(s, 1, 6)) }, dtype.F64, []int{1, len(c.want)}, c.want},
			answer{c.mode + ", gradient", func(s *tensor.Scope) *tt { return gradient(count(s, 1, 6), pad) }, dtype.F64, []int{1, 6}, c.falling})
	}
	two := func(mode string, want ...float64) answer {
		return answer{mode + " (-1, 2, -2, 1)", func(s *tensor.Scope) *tt { return pads[mode](count(s, 4, 6), -1, 2, -2, 1) }, dtype.F64, []int{3, 7}, want}
	}
	answered(t, append(list,
		two("reflect", 13, 14, 15, 16, 17, 16, 15, 19, 20, 21, 22, 23, 22, 21, 13, 14, 15, 16, 17, 16, 15),
		two("replicate", 13, 14, 15, 16, 17, 17, 17, 19, 20, 21, 22, 23, 23, 23, 19, 20, 21, 22, 23, 23, 23),
		two("circular", 13, 14, 15, 16, 17, 13, 14, 19, 20, 21, 22, 23, 19, 20, 13, 14, 15, 16, 17, 13, 14)))
}

// TestOpsOfRank0 runs ops on a tensor of rank 0. They must treat it as a vector with one element.
func TestOpsOfRank0(t *testing.T) {
	three := func(s *tensor.Scope) *tt { return s.Typed(dtype.F64).Full(3) }
	other := func(s *tensor.Scope) *tt { return s.From([]float64{-2, 1}) }
	answered(t, []answer{
		{"unfold(0, 1, 1)", func(s *tensor.Scope) *tt { return three(s).Unfold(0, 1, 1) }, dtype.F64, []int{1}, []float64{3}},
		{"unfold(-1, 1, 5)", func(s *tensor.Scope) *tt { return three(s).Unfold(-1, 1, 5) }, dtype.F64, []int{1}, []float64{3}},
		{"unfold(-1, 0, 1)", func(s *tensor.Scope) *tt { return three(s).Unfold(-1, 0, 1) }, dtype.F64, []int{0}, nil},
		{"unfold, gradient", func(s *tensor.Scope) *tt {
			return gradient(three(s), func(x *tt) *tt { return x.Unfold(0, 1, 1) })
		}, dtype.F64, nil, []float64{1}},
		{"cosine_similarity", func(s *tensor.Scope) *tt { return three(s).CosineSimilarity(three(s).Neg(), 0, 1e-8) }, dtype.F64, nil, []float64{-1}},
		{"cosine_similarity(-1)", func(s *tensor.Scope) *tt { return three(s).CosineSimilarity(three(s), -1, 1e-8) }, dtype.F64, nil, []float64{1}},
		{"cosine_similarity of 0 and 1 dimensions", func(s *tensor.Scope) *tt { return three(s).CosineSimilarity(other(s), 0, 1e-8) }, dtype.F64, nil, []float64{-0.31622776601683794}},
		{"cosine_similarity, gradient", func(s *tensor.Scope) *tt {
			return gradient(three(s), func(x *tt) *tt { return x.CosineSimilarity(other(s), 0, 1e-8) })
		}, dtype.F64, nil, []float64{0}},
		{"pairwise_distance", func(s *tensor.Scope) *tt { return s.Full(1).PairwiseDistance(s.Full(4), 2, 1e-6) }, dtype.F32, nil, []float64{2.9999990463256836}},
	})
	tensor.Do(func(s *tensor.Scope) {
		if err := tensor.Try(func() { three(s).CosineSimilarity(three(s), 1, 1e-8) }); err == nil || !contains(err, tensor.ErrShape, "dimension 1") {
			t.Errorf("dimension 1 of rank 0: %v", err)
		}
	})
}

// eight returns whole numbers of a type, in the shape [2, 4].
func eight(s *tensor.Scope, ty dtype.Type) *tt {
	return s.From([]int64{-3, 2, 5, 0, 1, -7, 4, 9}, 2, 4).Cast(ty)
}

// TestMeansOfIntegers checks that average pools and LocalResponseNorm accept int64. Their means are
// truncated.
func TestMeansOfIntegers(t *testing.T) {
	x := func(s *tensor.Scope) *tt { return eight(s, dtype.I64).Reshape(1, 2, 4) }
	two := []int{2}
	answered(t, []answer{
		{"avg_pool1d", func(s *tensor.Scope) *tt { return x(s).AvgPool1d(tensor.AvgPoolOptions{Kernel: two}) }, dtype.I64, []int{1, 2, 2}, []float64{0, 2, -3, 6}},
		{"avg_pool2d", func(s *tensor.Scope) *tt { return x(s).AvgPool2d(tensor.AvgPoolOptions{Kernel: two}) }, dtype.I64, []int{1, 1, 2}, []float64{-1, 4}},
		{"avg_pool2d, padding", func(s *tensor.Scope) *tt {
			return x(s).AvgPool2d(tensor.AvgPoolOptions{Kernel: two, Stride: []int{1}, Padding: []int{1}})
		}, dtype.I64, []int{1, 3, 5}, []float64{0, 0, 1, 1, 0, 0, -1, 1, 4, 2, 0, -1, 0, 3, 2}},
		{"avg_pool2d, without padding counted", func(s *tensor.Scope) *tt {
			return x(s).AvgPool2d(tensor.AvgPoolOptions{Kernel: two, Stride: []int{1}, Padding: []int{1}, ExcludePadding: true})
		}, dtype.I64, []int{1, 3, 5}, []float64{-3, 0, 3, 2, 0, -1, -1, 1, 4, 4, 1, -3, -1, 6, 9}},
		{"avg_pool2d, divisor 3", func(s *tensor.Scope) *tt { return x(s).AvgPool2d(tensor.AvgPoolOptions{Kernel: two, Divisor: 3}) }, dtype.I64, []int{1, 1, 2}, []float64{-2, 6}},
		{"avg_pool3d", func(s *tensor.Scope) *tt {
			return x(s).Reshape(1, 1, 2, 2, 2).AvgPool3d(tensor.AvgPoolOptions{Kernel: two})
		}, dtype.I64, []int{1, 1, 1, 1, 1}, []float64{1}},
		{"avg_pool1d of many", func(s *tensor.Scope) *tt {
			return s.Typed(dtype.I64).Arange(100).Reshape(1, 1, 100).AvgPool1d(tensor.AvgPoolOptions{Kernel: []int{50}})
		}, dtype.I64, []int{1, 1, 2}, []float64{24, 74}},
		{"local_response_norm", func(s *tensor.Scope) *tt { return x(s).LocalResponseNorm(3, 1, 0.5, 2) }, dtype.F32, []int{1, 2, 4},
			[]float64{-1.3416407108306885, 0.45883145928382874, 1.29099440574646, 0, 0.4472135901451111, -1.605910062789917, 1.0327955484390259, 1.6712580919265747}},
		{"local_response_norm, torch's numbers", func(s *tensor.Scope) *tt { return x(s).LocalResponseNorm(2, 1e-4, 0.75, 1) }, dtype.F32, []int{1, 2, 4},
			[]float64{-2.99910044670105, 1.9997000694274902, 4.995504856109619, 0, 0.9996252059936523, -6.986381530761719, 3.9940104484558105, 8.97309398651123}},
	})
	tensor.Do(func(s *tensor.Scope) {
		for _, ty := range []dtype.Type{dtype.I32, dtype.U8, dtype.Bool} {
			if err := tensor.Try(func() { x(s).Cast(ty).AvgPool2d(tensor.AvgPoolOptions{Kernel: two}) }); err == nil || !contains(err, tensor.ErrType, "avg_pool2d", ty.String(), "use Float or Long") {
				t.Errorf("of %v: %v", ty, err)
			}
		}
	})
}

// TestActivationsOfIntegers checks that activations accept integers. Activations that only limit
// their operand keep the type. Other activations return float32.
func TestActivationsOfIntegers(t *testing.T) {
	var list []answer
	for _, ty := range []dtype.Type{dtype.I8, dtype.I32, dtype.I64} {
		x := func(s *tensor.Scope) *tt { return eight(s, ty) }
		of := func(call string, f func(x *tt) *tt, t dtype.Type, v ...float64) {
			list = append(list, answer{call + " of " + ty.String(), func(s *tensor.Scope) *tt { return f(x(s)) }, t, []int{2, 4}, v})
		}
		of("hardtanh", func(x *tt) *tt { return x.Hardtanh(-1, 1) }, ty, -1, 1, 1, 0, 1, -1, 1, 1)
		of("hardtanh(-2.5, 1.5)", func(x *tt) *tt { return x.Hardtanh(-2.5, 1.5) }, ty, -2, 1, 1, 0, 1, -2, 1, 1)
		of("hardtanh_(-2.5, 1.5)", func(x *tt) *tt { return x.Clone().HardtanhInPlace(-2.5, 1.5) }, ty, -2, 1, 1, 0, 1, -2, 1, 1)
		of("threshold(1, 7)", func(x *tt) *tt { return x.Threshold(1, 7) }, ty, 7, 2, 5, 7, 7, 7, 4, 9)
		of("threshold(1.5, 7.9)", func(x *tt) *tt { return x.Threshold(1.5, 7.9) }, ty, 7, 2, 5, 7, 7, 7, 4, 9)
		of("threshold(-1.5, -7.9)", func(x *tt) *tt { return x.Threshold(-1.5, -7.9) }, ty, -7, 2, 5, 0, 1, -7, 4, 9)
		of("softsign", (*tt).Softsign, dtype.F32, -0.75, 0.6666666865348816, 0.8333333134651184, 0, 0.5, -0.875, 0.800000011920929, 0.8999999761581421)
		of("tanhshrink", (*tt).Tanhshrink, dtype.F32, -2.0049452781677246, 1.0359723567962646, 4.000090599060059, 0, 0.23840582370758057, -6.000001907348633, 3.0006706714630127, 8)
	}
	bytes := func(s *tensor.Scope) *tt { return s.From([]uint8{0, 5, 200}) }
	answered(t, append(list,
		answer{"hardtanh(-1, 1) of uint8", func(s *tensor.Scope) *tt { return bytes(s).Hardtanh(-1, 1) }, dtype.U8, []int{3}, []float64{0, 1, 1}},
		answer{"hardtanh(-2, 300) of uint8", func(s *tensor.Scope) *tt { return bytes(s).Hardtanh(-2, 300) }, dtype.U8, []int{3}, []float64{0, 5, 200}},
		answer{"threshold(-1, 7) of uint8", func(s *tensor.Scope) *tt { return bytes(s).Threshold(-1, 7) }, dtype.U8, []int{3}, []float64{7, 7, 7}}))
	tensor.Do(func(s *tensor.Scope) {
		yes := s.Typed(dtype.Bool).Ones(2)
		for name, f := range map[string]func(){"threshold": func() { yes.Threshold(0, 1) }, "softsign": func() { yes.Softsign() }, "tanhshrink": func() { yes.Tanhshrink() }, "hardtanh": func() { yes.Hardtanh(-1, 1) },
			"bilinear": func() { yes.Reshape(1, 2).Bilinear(yes.Reshape(1, 2), yes.Reshape(1, 2, 1).Expand(1, 2, 2), nil) }} {
			if err := tensor.Try(f); err == nil || !contains(err, tensor.ErrType, name, "bool") {
				t.Errorf("%s of bool: %v", name, err)
			}
		}
		if err := tensor.Try(func() { bytes(s).Threshold(1, 300) }); err == nil || !contains(err, tensor.ErrValue, "threshold", "does not fit into uint8") {
			t.Errorf("a value that does not fit: %v", err)
		}
	})
}

func TestProductsAndDistancesOfIntegers(t *testing.T) {
	var list []answer
	for _, ty := range []dtype.Type{dtype.U8, dtype.I8, dtype.I32, dtype.I64} {
		x := func(s *tensor.Scope) *tt { return eight(s, ty) }
		flip := func(s *tensor.Scope) *tt { return x(s).Flip(0) }
		ones := func(s *tensor.Scope, dims ...int) *tt { return s.Typed(ty).Ones(dims...) }
		first, second, third := []float64{13.379088401794434, 13.379088401794434}, []float64{23, 23}, []float64{11.505353927612305, 11.505353927612305}
		if ty == dtype.U8 { // unsigned differences wrap
			first, second, third = []float64{352.98016357421875, 355.1492614746094}, []float64{509, 515}, []float64{314.3843688964844, 316.32318115234375}
		}
		list = append(list,
			answer{"bilinear", func(s *tensor.Scope) *tt { return x(s).Bilinear(x(s), ones(s, 2, 4, 4), nil) }, ty, []int{2, 2}, []float64{16, 16, 49, 49}},
			answer{"bilinear, bias", func(s *tensor.Scope) *tt { return x(s).Bilinear(x(s), ones(s, 2, 4, 4), ones(s, 2)) }, ty, []int{2, 2}, []float64{17, 17, 50, 50}},
			answer{"pairwise_distance", func(s *tensor.Scope) *tt { return x(s).PairwiseDistance(flip(s), 2, 1e-6) }, dtype.F32, []int{2}, first},
			answer{"pairwise_distance, p=1", func(s *tensor.Scope) *tt { return x(s).PairwiseDistance(flip(s), 1, 1e-6) }, dtype.F32, []int{2}, second},
			answer{"pairwise_distance, p=3, eps=0", func(s *tensor.Scope) *tt { return x(s).PairwiseDistance(flip(s), 3, 0) }, dtype.F32, []int{2}, third})
	}
	answered(t, append(list, answer{"pairwise_distance with float16", func(s *tensor.Scope) *tt {
		return eight(s, dtype.I64).PairwiseDistance(eight(s, dtype.F16).Flip(0), 2, 1e-6)
	}, dtype.F16, []int{2}, []float64{13.3828125, 13.3828125}}))
}

// TestMatrixExpOf16Bits checks that MatrixExp of 16-bit matrices equals PyTorch's result in
// float64, rounded once. In 16 bits PyTorch's CPU returns infinities.
func TestMatrixExpOf16Bits(t *testing.T) {
	x := func(s *tensor.Scope, ty dtype.Type) *tt { return s.From([]float64{0.1, 0.7, -0.3, 1.2}, 2, 2).Cast(ty) }
	answered(t, []answer{
		{"float16", func(s *tensor.Scope) *tt { return x(s, dtype.F16).MatrixExp() }, dtype.F16, []int{2, 2}, []float64{0.93505859375, 1.3623046875, -0.58349609375, 3.07421875}},
		{"bfloat16", func(s *tensor.Scope) *tt { return x(s, dtype.BF16).MatrixExp() }, dtype.BF16, []int{2, 2}, []float64{0.93359375, 1.359375, -0.5859375, 3.078125}},
		{"float16, gradient", func(s *tensor.Scope) *tt { return gradient(x(s, dtype.F16), (*tt).MatrixExp) }, dtype.F16, []int{2, 2}, []float64{1.1298828125, 2.22265625, 9.7265625, 13.078125}},
		{"bfloat16, gradient", func(s *tensor.Scope) *tt { return gradient(x(s, dtype.BF16), (*tt).MatrixExp) }, dtype.BF16, []int{2, 2}, []float64{1.125, 2.21875, 9.75, 13.125}},
		{"of nothing", func(s *tensor.Scope) *tt { return s.Typed(dtype.F16).Zeros(0, 0).MatrixExp() }, dtype.F16, []int{0, 0}, nil},
	})
	tensor.Do(func(s *tensor.Scope) {
		if err := tensor.Try(func() { x(s, dtype.I64).MatrixExp() }); err == nil || !contains(err, tensor.ErrType, "matrix_exp", "int64") {
			t.Errorf("of integers: %v", err)
		}
	})
}

func TestLogitBeyondHalf(t *testing.T) {
	x := func(s *tensor.Scope) *tt { return s.From([]float64{-0.5, 0, 0.2, 0.5, 0.7, 1, math.NaN()}) }
	inf, nan := math.Inf(1), math.NaN()
	const a, b = 0.4054651081081642, -0.4054651081081643
	var list []answer
	for eps, want := range map[float64][]float64{0.5: {0, 0, 0, 0, 0, 0, nan}, 0.6: {a, a, a, a, b, b, nan}, 1: {inf, inf, inf, inf, inf, -inf, nan}, 1.5: full(7, nan)} {
		slope := []float64{0, 0, 0, 0, 0, 0, nan}
		if eps == 0.5 {
			slope[3] = 16
		}
		if eps == 1.5 {
			slope[6] = nan
		}
		list = append(list,
			answer{"logit", func(s *tensor.Scope) *tt { return x(s).Logit(eps) }, dtype.F64, []int{7}, want},
			answer{"logit, gradient", func(s *tensor.Scope) *tt { return gradient(x(s), func(x *tt) *tt { return x.Logit(eps) }) }, dtype.F64, []int{7}, slope})
	}
	answered(t, append(list, answer{"of bool", func(s *tensor.Scope) *tt { return s.From([]bool{true, false}).Logit(0.6) }, dtype.F32, []int{2}, []float64{-0.40546515583992004, 0.40546518564224243}}))
}

// TestBatchNormOfNothing checks that BatchNorm returns an empty vector unchanged and does not
// change the running statistics.
func TestBatchNormOfNothing(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		for _, training := range []bool{true, false} {
			mean, variance := s.Zeros(3), s.Ones(3)
			x := s.Zeros(0).RequiresGrad()
			y := x.BatchNorm(mean, variance, nil, nil, training, 0.1, 1e-5)
			if y.Size() != 0 || y.Rank() != 1 || y.Type() != dtype.F32 {
				t.Errorf("the result is %v", y)
			}
			y.Sum().Backward()
			if g := x.Grad(); g == nil || g.Size() != 0 {
				t.Errorf("the gradient is %v", g)
			}
			want(t, "the mean", mean, 0, 0, 0)
			want(t, "the variance", variance, 1, 1, 1)
			if y := x.BatchNorm(nil, nil, nil, nil, training, 0.1, 1e-5); y.Size() != 0 {
				t.Errorf("without statistics the result is %v", y)
			}
		}
		if err := tensor.Try(func() { s.Ones(3).BatchNorm(nil, nil, nil, nil, true, 0.1, 1e-5) }); err == nil || !contains(err, tensor.ErrShape, "[n, channels, …]") {
			t.Errorf("a vector of three: %v", err)
		}
	})
}

// TestPoolsOverEmptyChannels runs pools on inputs without elements. The batch may be empty, but
// there must be channels.
func TestPoolsOverEmptyChannels(t *testing.T) {
	o, a := tensor.MaxPoolOptions{Kernel: []int{2}}, tensor.AvgPoolOptions{Kernel: []int{2}}
	tensor.Do(func(s *tensor.Scope) {
		for name, f := range map[string]func(dims ...int) *tt{
			"max_pool1d": func(d ...int) *tt { return s.Zeros(append(d, 4)...).MaxPool1d(o) },
			"max_pool2d": func(d ...int) *tt { return s.Zeros(append(d, 4, 4)...).MaxPool2d(o) },
			"max_pool3d": func(d ...int) *tt { return s.Zeros(append(d, 4, 4, 4)...).MaxPool3d(o) },
			"avg_pool1d": func(d ...int) *tt { return s.Zeros(append(d, 4)...).AvgPool1d(a) },
			"avg_pool2d": func(d ...int) *tt { return s.Zeros(append(d, 4, 4)...).AvgPool2d(a) },
			"avg_pool3d": func(d ...int) *tt { return s.Zeros(append(d, 4, 4, 4)...).AvgPool3d(a) },
			"lp_pool2d":  func(d ...int) *tt { return s.Zeros(append(d, 4, 4)...).LPPool2d(2, a) },
			"adaptive_max_pool2d": func(d ...int) *tt {
				y, _ := s.Zeros(append(d, 4, 4)...).AdaptiveMaxPool2d(2)
				return y
			},
		} {
			for _, d := range [][]int{{2, 0}, {0, 0}, {0}} {
				if name == "adaptive_max_pool2d" && len(d) == 1 { // torch accepts this shape
					continue
				}
				if err := tensor.Try(func() { f(d...) }); err == nil || !contains(err, tensor.ErrShape, name, "no channels") {
					t.Errorf("%s of %v: %v", name, d, err)
				}
			}
			if y := f(0, 3); y.Dim(0) != 0 || y.Dim(1) != 3 || y.Dim(2) != 2 {
				t.Errorf("%s of no batch: %v", name, y)
			}
		}
	})
}
