package device_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// dense returns a contiguous view without a buffer.
func dense(t dtype.Type, d ...int) device.View {
	return device.View{Buf: testBuffer{}, Type: t, Layout: shape.Dense(shape.Of(d...))}
}

// TestWork compares the results of Work with numbers that were counted by hand.
func TestWork(t *testing.T) {
	f32 := func(d ...int) device.View { return dense(dtype.F32, d...) }
	list := func(v ...device.View) []device.View { return v }
	lower := func(e *expr.Expr, n int) *expr.Program {
		in := make([]dtype.Type, n)
		for i := range in {
			in[i] = dtype.F32
		}
		return expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, in, -1)
	}
	x := f32(4, 5)
	row := f32(5)
	row.Layout, _ = row.Expand(x.Shape)
	one := lower(expr.X(0).Exp(), 1).Cost()
	square, root := lower(expr.X(0).Mul(expr.X(0)), 1), lower(expr.X(0).Sqrt(), 1)
	rows, cols, i64 := f32(4), 20, dense(dtype.I64, 4)
	layer, rms := device.RowNorm{Period: 1, Inner: 1}, device.RowNorm{RMS: true, Period: 1, Inner: 1}
	pool := device.Window{Rank: 1, Kernel: [3]int{2}, Stride: [3]int{2}, Dilation: [3]int{1}}
	channels := f32(2, 2, 5)
	for _, c := range []struct {
		name string
		op   device.Op
		want device.Work
	}{
		{"a broadcast row is read once", &device.Map{Program: lower(expr.X(0).Mul(expr.X(1)).Add(expr.X(0)), 2), Outs: list(x), Ins: list(x, row)}, device.Work{FLOPs: 2 * 20, Bytes: 4 * (20 + 20 + 5)}},
		{"fill", &device.Map{Program: lower(expr.C(1), 0), Outs: list(x)}, device.Work{Bytes: 80}},
		{"sum of squares", &device.Reduce{Reduction: &device.Reduction{Map: square, Finish: root}, Out: f32(4, 1), Ins: list(x)}, device.Work{FLOPs: 2*20 + 4, Bytes: 4 * (20 + 4)}},
		{"matmul", &device.MatMul{Out: f32(2, 3, 7), A: f32(2, 3, 5), B: f32(2, 5, 7)}, device.Work{FLOPs: 2 * 2 * 3 * 5 * 7, Bytes: 4 * (42 + 30 + 70)}},
		{"matmul of int8", &device.MatMul{Out: dense(dtype.I32, 2, 3, 7), A: dense(dtype.I8, 2, 3, 5), B: dense(dtype.I8, 2, 5, 7)}, device.Work{FLOPs: 2 * 2 * 3 * 5 * 7, Bytes: 4*42 + 30 + 70}},
		{"gather", &device.Gather{Out: f32(4), Src: f32(9), Index: i64}, device.Work{Bytes: 2*16 + 32}},
		{"scatter set", &device.Scatter{Kind: device.ScatterSet, Dst: f32(9), Src: f32(4), Index: i64}, device.Work{Bytes: 16 + 32 + 16}},
		{"scatter add", &device.Scatter{Kind: device.ScatterAdd, Dst: f32(9), Src: f32(4), Index: i64}, device.Work{FLOPs: 4, Bytes: 16 + 32 + 2*16}},
		{"softmax", &device.Softmax{Out: x, X: x}, device.Work{FLOPs: cols * (4 + one), Bytes: 160}},
		{"softmax gradient", &device.SoftmaxGrad{DX: x, Y: x, G: x}, device.Work{FLOPs: cols * 4, Bytes: 240}},
		{"log-softmax gradient", &device.SoftmaxGrad{DX: x, Y: x, G: x, Log: true}, device.Work{FLOPs: cols * (3 + one), Bytes: 240}},
		{"cross-entropy", &device.CrossEntropy{Loss: rows, Top: rows, Rest: rows, X: x, Target: i64}, device.Work{FLOPs: cols * (3 + one), Bytes: 3*16 + 80 + 32}},
		{"cross-entropy gradient", &device.CrossEntropyGrad{DX: x, X: x, Top: rows, Rest: rows, Target: i64, G: rows}, device.Work{FLOPs: cols * (3 + one), Bytes: 160 + 3*16 + 32}},
		{"losses of logarithms", &device.CrossEntropy{Loss: rows, X: x, Target: i64}, device.Work{FLOPs: 4, Bytes: 16 + 16 + 32}},
		{"losses of logarithms, gradient", &device.CrossEntropyGrad{DX: x, Target: i64, G: rows}, device.Work{FLOPs: 4, Bytes: 80 + 32 + 16}},
		{"layer norm", &device.Norm{Out: x, Mean: rows, Rstd: rows, X: x, Weight: f32(5), Bias: f32(5), RowNorm: layer}, device.Work{FLOPs: cols * 7, Bytes: 160 + 32 + 40}},
		{"RMS norm without a weight", &device.Norm{Out: x, Rstd: rows, X: x, RowNorm: rms}, device.Work{FLOPs: cols * 3, Bytes: 160 + 16}},
		{"layer norm of no rows", &device.Norm{Out: f32(0, 5), Mean: f32(0), Rstd: f32(0), X: f32(0, 5), Weight: f32(5), Bias: f32(5), RowNorm: layer}, device.Work{}},
		{"layer norm gradient", &device.NormGrad{DX: x, G: x, X: x, Mean: rows, Rstd: rows, Weight: f32(5), RowNorm: layer}, device.Work{FLOPs: cols * 10, Bytes: 240 + 32 + 20}},
		{"layer norm gradient with sums", &device.NormGrad{DX: x, DWeight: f32(5), DBias: f32(5), G: x, X: x, Mean: rows, Rstd: rows, Weight: f32(5), Add: x, RowNorm: layer}, device.Work{FLOPs: cols * 14, Bytes: 320 + 32 + 60}},
		{"RMS norm gradient, the weight's alone", &device.NormGrad{DWeight: f32(5), G: x, X: x, Rstd: rows, RowNorm: rms}, device.Work{FLOPs: cols * 3, Bytes: 160 + 16 + 20}},
		{"RMS norm gradient of no rows", &device.NormGrad{DX: f32(0, 5), G: f32(0, 5), X: f32(0, 5), Rstd: f32(0), Weight: f32(5), RowNorm: rms}, device.Work{}},
		{"convolution", &device.Convolution{X: f32(2, 4, 5), W: f32(6, 2, 3), Y: f32(2, 6, 3), Rank: 1, Groups: 2, Stride: [3]int{1}, Dilation: [3]int{1}}, device.Work{FLOPs: 2 * 36 * 6, Bytes: 4 * (40 + 36 + 36)}},
		{"max pool gradient", &device.MaxPoolGrad{DX: f32(2, 6), G: f32(2, 3), Near: dense(dtype.U8, 2, 3), Window: pool}, device.Work{FLOPs: 6, Bytes: 48 + 24 + 6}},
		{"window sums", &device.SumWindows{Y: f32(2, 3), X: f32(2, 6), Window: pool}, device.Work{FLOPs: 12, Bytes: 48 + 24}},
		{"fold", &device.Fold{Y: f32(2, 1, 6), X: f32(2, 1, 2, 3), Window: pool}, device.Work{FLOPs: 0, Bytes: 48 + 48}},
		{"fold, added", &device.Fold{Y: f32(2, 1, 4), X: f32(2, 1, 2, 3), Window: pool, Add: true}, device.Work{FLOPs: 12, Bytes: 32 + 48}},
		{"fold, weighted", &device.Fold{Y: f32(2, 1, 4), X: f32(2, 1, 2, 3), W: f32(1, 2), Window: pool}, device.Work{FLOPs: 16, Bytes: 32 + 48 + 8}},
		{"blend", &device.Blend{Out: f32(2, 4, 3), X: f32(2, 2, 3), Index: dense(dtype.I64, 2, 4), Weight: f32(2, 4)}, device.Work{FLOPs: 96, Bytes: 96 + 48 + 64 + 32}},
		{"blend gradient", &device.Blend{Out: f32(2, 2, 3), X: f32(2, 4, 3), Index: dense(dtype.I64, 1, 4), Back: true}, device.Work{FLOPs: 48, Bytes: 48 + 96 + 32}},
		{"blend of nothing", &device.Blend{Out: f32(0, 4, 3), X: f32(0, 2, 3), Index: dense(dtype.I64, 1, 4)}, device.Work{}},
		{"unfold", &device.Unfold{Y: f32(2, 1, 2, 3), X: f32(2, 1, 6), Window: pool}, device.Work{Bytes: 48 + 48}},
		{"unfold to nothing", &device.Unfold{Y: f32(2, 1, 2, 0), X: f32(2, 1, 6), Window: pool}, device.Work{}},
		{"channel norm", &device.ChannelNorm{Out: channels, Mean: f32(2), Variance: f32(2), Rstd: f32(2), X: channels, Weight: f32(2), Bias: f32(2)}, device.Work{FLOPs: 140, Bytes: 160 + 5*8}},
		{"channel norm gradient", &device.ChannelNormGrad{Sum: f32(2), Product: f32(2), DX: channels, G: channels, X: channels, Mean: f32(2), Rstd: f32(2)}, device.Work{FLOPs: 180, Bytes: 240 + 4*8}},
		{"scan", &device.Scan{Kind: device.ScanLinear, Out: f32(2, 2, 5), Ins: list(f32(2, 2, 5), f32(2, 2, 5))}, device.Work{FLOPs: 40, Bytes: 240}},
		{"argsort", &device.Argsort{Out: dense(dtype.I64, 4, 2), X: x}, device.Work{FLOPs: 20 * 3, Bytes: 64 + 80}},
		{"attention", &device.Attention{Out: f32(1, 2, 3, 5), Q: f32(1, 2, 3, 4), K: f32(1, 1, 2, 4), V: f32(1, 1, 2, 5), Weighing: device.Weighing{Causal: true}}, device.Work{FLOPs: 2 * 5 * (8 + 10 + 4 + one), Bytes: 120 + 96 + 32 + 40}},
		{"attention gradient", &device.AttentionGrad{DQ: f32(1, 2, 3, 4), DV: f32(1, 1, 2, 5), G: f32(1, 2, 3, 5), Q: f32(1, 2, 3, 4), K: f32(1, 1, 2, 4), V: f32(1, 1, 2, 5), Out: f32(1, 2, 3, 5), LSE: f32(1, 2, 3)}, device.Work{FLOPs: 2 * 6 * (8 + 8 + 10 + 10 + 4 + one), Bytes: 96 + 40 + 120 + 96 + 32 + 40 + 120 + 24}},
		{"search", &device.Search{Out: dense(dtype.I64, 4, 2), Sorted: x, Values: f32(4, 2)}, device.Work{FLOPs: 8 * 3, Bytes: 64 + 80 + 32}},
		{"multi-map", &device.MultiMap{Program: lower(expr.X(0).Neg(), 1), Outs: [][]device.View{{f32(3)}, {f32(4)}}, Ins: [][]device.View{{f32(3)}, {f32(4)}}, Params: dense(dtype.I64, 2)}, device.Work{FLOPs: 7, Bytes: 2*28 + 16}},
	} {
		if arg, reason := c.op.Check(); reason != "" {
			t.Errorf("%s: %s: %s", c.name, arg, reason)
		} else if got := c.op.Work(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	sum := device.Work{FLOPs: 1, Bytes: 2}.Add(device.Work{FLOPs: 3, Bytes: 4})
	if sum != (device.Work{FLOPs: 4, Bytes: 6}) {
		t.Errorf("sum %+v", sum)
	}
	if i := (device.Work{FLOPs: 6, Bytes: 4}).Intensity(); i != 1.5 {
		t.Errorf("intensity %v", i)
	}
	if i := (device.Work{FLOPs: 6}).Intensity(); i != 0 {
		t.Errorf("intensity of no bytes %v", i)
	}
}
