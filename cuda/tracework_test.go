package cuda_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// TestEveryPrimitiveIsTold runs every primitive on the CPU and on an emulated GPU. Each device must
// report each primitive once, and both must report the same work.
func TestEveryPrimitiveIsTold(t *testing.T) {
	devs, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	type told struct {
		primitive string
		work      device.Work
	}
	var lists [2][]told
	for k, d := range []device.Device{cpu, devs[0]} {
		s := d.DefaultStream()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		fill := func(typ dtype.Type, dims ...int) device.View {
			sh := shape.Of(dims...)
			b, err := d.Alloc(sh.Size()*typ.Size(), s, device.Origin{})
			must(err)
			v := device.View{Buf: b, Type: typ, Layout: shape.Dense(sh)}
			must(device.Run(d, s, &device.Map{Program: expr.MustLower([]*expr.Expr{expr.C(1)}, []dtype.Type{typ}, nil, -1), Outs: []device.View{v}}))
			return v
		}
		f := func(dims ...int) device.View { return fill(dtype.F32, dims...) }
		x, g, y, row := f(4, 6), f(4, 6), f(4, 6), f(4)
		half, wide := fill(dtype.F16, 1, 4, 6), fill(dtype.F16, 1, 6, 4)
		halves, table := fill(dtype.F16, 4, 6), fill(dtype.F16, 3, 6)
		product, truth := fill(dtype.F16, 1, 4, 4), fill(dtype.Bool, 1, 3, 3)
		index, target, place := fill(dtype.I64, 4, 6), fill(dtype.I64, 4), fill(dtype.I64, 4, 6)
		params := fill(dtype.I64, 1)
		list, weight, sum := f(1, 6, 4), f(6), f(6)
		stats := f(4)
		unary := expr.MustLower([]*expr.Expr{expr.X(0).Neg()}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		l := &listener{spans: map[device.SpanID]device.Span{}, nodes: map[uint64]string{}}
		if !device.SetTracer(l) {
			t.Fatal("there is a tracer")
		}
		func() {
			defer device.SetTracer(nil)
			top, rest := row, stats
			loss := device.View{Buf: weight.Buf, Type: dtype.F32, Layout: shape.Dense(shape.Of(4))}
			layer := device.RowNorm{Eps: 1e-5, Period: 1, Inner: 1}
			for _, op := range []device.Op{
				&device.Map{Program: unary, Outs: []device.View{y}, Ins: []device.View{x}},
				&device.Reduce{Reduction: &device.Reduction{Kind: device.Sum, Map: unary}, Out: f2(row, 4, 1), Ins: []device.View{x}},
				// the CPU computes this product in float32
				&device.MatMul{Out: product, A: half, B: wide},
				&device.MatMul{Out: truth, A: truth, B: truth},
				&device.Gather{Out: y, Src: x, Index: index, Tag: 1},
				// this sum is computed in float32
				&device.Scatter{Kind: device.ScatterAdd, Dst: table, Src: halves, Index: index, Tag: 1},
				&device.Scatter{Kind: device.ScatterSet, Dst: y, Src: x, Index: index, Tag: 1},
				&device.Softmax{Out: y, X: x, Log: true},
				&device.SoftmaxGrad{DX: g, Y: y, G: x, Log: true},
				&device.CrossEntropy{Loss: loss, Top: top, Rest: rest, X: x, Target: target, Ignore: -100, Tag: 1},
				&device.CrossEntropyGrad{DX: g, X: x, Top: top, Rest: rest, Target: target, G: loss, Ignore: -100},
				&device.Norm{Out: y, Mean: row, Rstd: stats, X: x, Weight: weight, RowNorm: layer},
				&device.NormGrad{DX: y, G: g, X: x, Mean: row, Rstd: stats, Weight: weight, RowNorm: layer},
				&device.NormGrad{DX: y, DWeight: sum, G: g, X: x, Mean: row, Rstd: stats, Weight: weight, Add: g, RowNorm: layer},
				&device.Scan{Kind: device.ScanSum, Out: f2(y, 1, 6, 4), Ins: []device.View{list}},
				&device.Argsort{Out: place, X: x},
				&device.Search{Out: place, Sorted: x, Values: y},
				&device.MultiMap{Program: unary, Outs: [][]device.View{{y}, {g}}, Ins: [][]device.View{{x}, {x}}, Params: params},
			} {
				if !d.Supports(op) {
					t.Errorf("%s has no %s", d.Name(), op.Name())
				}
				must(device.Run(d, s, op))
			}
			must(d.Synchronize())
		}()
		for _, e := range l.kernels {
			if e.Device != d || e.Stream != s || len(e.Shapes) == 0 || e.Work.Bytes <= 0 || e.Type == dtype.Invalid || e.End < e.Start {
				t.Errorf("%s: %s: %+v", d.Name(), e.Primitive, e)
			}
			lists[k] = append(lists[k], told{e.Primitive, e.Work})
		}
	}
	if len(lists[0]) != 18 || len(lists[1]) != 18 {
		t.Fatalf("told of %d and %d primitives, want 18: %v, %v", len(lists[0]), len(lists[1]), lists[0], lists[1])
	}
	for i := range lists[0] {
		if lists[0][i] != lists[1][i] {
			t.Errorf("the CPU tells %+v, the GPU %+v", lists[0][i], lists[1][i])
		}
	}
}

// f2 returns a view of the same memory with another shape.
func f2(v device.View, dims ...int) device.View { v.Layout = shape.Dense(shape.Of(dims...)); return v }
