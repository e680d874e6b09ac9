package device_test

import (
	"testing"

	_ "github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// The work of primitives, by hand.
func TestWork(t *testing.T) {
	dev, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	view := func(typ dtype.Type, d ...int) device.View {
		s := shape.Of(d...)
		b, err := dev.Alloc(s.Size()*typ.Size(), dev.DefaultStream(), device.Origin{})
		if err != nil {
			t.Fatal(err)
		}
		return device.View{Buf: b, Type: typ, Layout: shape.Dense(s)}
	}
	f32 := func(d ...int) device.View { return view(dtype.F32, d...) }
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
	one := expr.MustLower([]*expr.Expr{expr.X(0).Exp()}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1).Cost()
	rows, cols := f32(4), 20
	i64 := view(dtype.I64, 4)
	for _, c := range []struct {
		name      string
		got, want device.Work
	}{
		{"a broadcast row is read once", device.MapWork(lower(expr.X(0).Mul(expr.X(1)).Add(expr.X(0)), 2), []device.View{f32(4, 5)}, []device.View{x, row}), device.Work{FLOPs: 2 * 20, Bytes: 4 * (20 + 20 + 5)}},
		{"fill", device.MapWork(lower(expr.C(1), 0), []device.View{x}, nil), device.Work{Bytes: 80}},
		{"sum of squares", device.ReduceWork(&device.Reduction{Map: lower(expr.X(0).Mul(expr.X(0)), 1), Finish: lower(expr.X(0).Sqrt(), 1)}, f32(4, 1), []device.View{x}), device.Work{FLOPs: 2*20 + 4, Bytes: 4 * (20 + 4)}},
		{"matmul", device.MatMulWork(f32(2, 3, 7), f32(2, 3, 5), f32(2, 5, 7)), device.Work{FLOPs: 2 * 2 * 3 * 5 * 7, Bytes: 4 * (42 + 30 + 70)}},
		{"gather", device.GatherWork(f32(4), i64), device.Work{Bytes: 2*16 + 32}},
		{"scatter set", device.ScatterWork(device.ScatterSet, f32(9), f32(4), i64), device.Work{Bytes: 16 + 32 + 16}},
		{"scatter add", device.ScatterWork(device.ScatterAdd, f32(9), f32(4), i64), device.Work{FLOPs: 4, Bytes: 16 + 32 + 2*16}},
		{"softmax", device.SoftmaxWork(x, x), device.Work{FLOPs: cols * (4 + one), Bytes: 160}},
		{"softmax gradient", device.SoftmaxGradWork(x, x, x, false), device.Work{FLOPs: cols * 4, Bytes: 240}},
		{"log-softmax gradient", device.SoftmaxGradWork(x, x, x, true), device.Work{FLOPs: cols * (3 + one), Bytes: 240}},
		{"cross-entropy", device.CrossEntropyWork(rows, rows, rows, x, i64), device.Work{FLOPs: cols * (3 + one), Bytes: 3*16 + 80 + 32}},
		{"cross-entropy gradient", device.CrossEntropyGradWork(x, x, rows, rows, i64, rows), device.Work{FLOPs: cols * (3 + one), Bytes: 160 + 3*16 + 32}},
		{"layer norm", device.NormWork(device.Norm{}, x, rows, rows, x, f32(5), f32(5)), device.Work{FLOPs: cols * 7, Bytes: 160 + 32 + 40}},
		{"RMS norm without a weight", device.NormWork(device.Norm{RMS: true}, x, device.View{}, rows, x, device.View{}, device.View{}), device.Work{FLOPs: cols * 3, Bytes: 160 + 16}},
		{"layer norm gradient", device.NormGradWork(device.Norm{}, x, x, x, rows, rows, f32(5)), device.Work{FLOPs: cols * 10, Bytes: 240 + 32 + 20}},
		{"convolution", device.ConvolutionWork(f32(2, 4, 5), f32(6, 2, 3), f32(2, 6, 3)), device.Work{FLOPs: 2 * 36 * 6, Bytes: 4 * (40 + 36 + 36)}},
		{"max pool gradient", device.MaxPoolGradWork(f32(2, 6), f32(2, 3), view(dtype.U8, 2, 3)), device.Work{FLOPs: 6, Bytes: 48 + 24 + 6}},
		{"window sums", device.Window{Rank: 1, Kernel: [3]int{2}}.WindowsWork(f32(2, 6), f32(2, 3)), device.Work{FLOPs: 12, Bytes: 48 + 24}},
		{"channel norm", device.ChannelNormWork(f32(2, 2, 5), f32(2), f32(2), f32(2), f32(2, 2, 5), f32(2), f32(2)), device.Work{FLOPs: 140, Bytes: 160 + 5*8}},
		{"channel norm gradient", device.ChannelNormGradWork(f32(2, 2, 5), f32(2), f32(2), f32(2, 2, 5), f32(2, 2, 5), f32(2), f32(2), device.View{}), device.Work{FLOPs: 180, Bytes: 240 + 4*8}},
		{"scan", device.ScanWork(device.ScanLinear, x, []device.View{x, x}), device.Work{FLOPs: 40, Bytes: 240}},
		{"argsort", device.ArgsortWork(view(dtype.I64, 4, 2), x), device.Work{FLOPs: 20 * 3, Bytes: 64 + 80}},
		{"attention", device.AttentionWork(f32(2, 3, 5), f32(2, 3, 4), f32(1, 2, 4), f32(1, 2, 5), true), device.Work{FLOPs: 2 * 5 * (8 + 10 + 4 + one), Bytes: 120 + 96 + 32 + 40}},
		{"search", device.SearchWork(view(dtype.I64, 4, 2), x, f32(4, 2)), device.Work{FLOPs: 8 * 3, Bytes: 64 + 80 + 32}},
		{"multi-map", device.MultiMapWork(lower(expr.X(0).Neg(), 1), [][]device.View{{f32(3)}, {f32(4)}}, [][]device.View{{f32(3)}, {f32(4)}}, view(dtype.I64, 2)), device.Work{FLOPs: 7, Bytes: 2*28 + 16}},
		{"sum", device.Work{FLOPs: 1, Bytes: 2}.Add(device.Work{FLOPs: 3, Bytes: 4}), device.Work{FLOPs: 4, Bytes: 6}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
	if i := (device.Work{FLOPs: 6, Bytes: 4}).Intensity(); i != 1.5 {
		t.Errorf("intensity %v", i)
	}
	if i := (device.Work{FLOPs: 6}).Intensity(); i != 0 {
		t.Errorf("intensity of no bytes %v", i)
	}
}
