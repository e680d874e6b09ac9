package cpu

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// newView allocates a contiguous view and fills it with small values.
func newView(tb testing.TB, d *Device, t dtype.Type, s ...int) device.View {
	tb.Helper()
	dims := shape.Of(s...)
	b, err := d.Alloc(dims.Size()*t.Size(), nil, device.Origin{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Free)
	h := b.Host()
	for i := range h {
		h[i] = 0
	}
	v := device.View{Buf: b, Type: t, Layout: shape.Dense(dims)}
	if t == dtype.F32 {
		for i, x := range at[float32](pointer(&v), max(dims.Size(), 1))[:dims.Size()] {
			_ = x
			at[float32](pointer(&v), dims.Size())[i] = float32(i%17)*0.25 - 2
		}
	}
	return v
}

func rate(b *testing.B, bytes int) {
	b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N), "µs/op")
}

func must(tb testing.TB, err error) {
	if err != nil {
		tb.Fatal(err)
	}
}

func do(tb testing.TB, d device.Device, op device.Op) { must(tb, device.Run(d, nil, op)) }

func views(v ...device.View) []device.View { return v }

func mapOf(p *expr.Program, out device.View, ins ...device.View) *device.Map {
	return &device.Map{Program: p, Outs: views(out), Ins: ins}
}

var addProgram = expr.MustLower([]*expr.Expr{expr.X(0).Add(expr.X(1))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)

func unaryProgram(e *expr.Expr) *expr.Program {
	return expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
}

// BenchmarkMap measures maps. Compare each result with the case "copy" of the same size in the same
// run.
func BenchmarkMap(b *testing.B) {
	d := Get()
	x := expr.X(0)
	for _, n := range []int{16, 1 << 10, 1 << 16, 1 << 20, 1 << 24} {
		u, v, w := newView(b, d, dtype.F32, n), newView(b, d, dtype.F32, n), newView(b, d, dtype.F32, n)
		run := func(name string, p *expr.Program, bytes int, ins ...device.View) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				op := mapOf(p, w, ins...)
				for b.Loop() {
					do(b, d, op)
				}
				rate(b, n*bytes)
			})
		}
		run("copy", castProgram(dtype.F32, dtype.F32), 8, u)
		run("add", addProgram, 12, u, v)
		run("relu", unaryProgram(x.Max(expr.C(0))), 8, u)
		run("exp", unaryProgram(expr.Call("exp", x)), 8, u)
		run("tanh", unaryProgram(expr.Call("tanh", x)), 8, u)
		run("gelu", unaryProgram(expr.Call("gelu", x)), 8, u)
		for i := range n { // the weights of causal attention
			at[float32](pointer(&u), n)[i] = float32(math.Inf(-1))
		}
		run("exp of -Inf", unaryProgram(expr.Call("exp", x)), 8, u)
	}
}

func reduceOf(k device.ReduceKind, out, in device.View) *device.Reduce {
	return &device.Reduce{Reduction: &device.Reduction{Kind: k, Map: castProgram(dtype.F32, dtype.F32)}, Out: out, Ins: views(in)}
}

func BenchmarkReduce(b *testing.B) {
	d := Get()
	const n = 4096
	x := newView(b, d, dtype.F32, n, n)
	w := newView(b, d, dtype.F32, n, n)
	b.Run("copy", func(b *testing.B) {
		op := mapOf(castProgram(dtype.F32, dtype.F32), w, x)
		for b.Loop() {
			do(b, d, op)
		}
		rate(b, 8*n*n)
	})
	for _, k := range []device.ReduceKind{device.Sum, device.Max, device.ArgMax} {
		for _, c := range []struct {
			name string
			s    []int
		}{{"full", []int{1, 1}}, {"dim0", []int{1, n}}, {"dim1", []int{n, 1}}} {
			t := dtype.F32
			if k == device.ArgMax {
				t = dtype.I64
			}
			out := newView(b, d, t, c.s...)
			b.Run(k.String()+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				op := reduceOf(k, out, x)
				for b.Loop() {
					do(b, d, op)
				}
				rate(b, 4*n*n)
			})
		}
	}
}

func BenchmarkLayouts(b *testing.B) {
	d := Get()
	const n = 4096
	x, w := newView(b, d, dtype.F32, n, n), newView(b, d, dtype.F32, n, n)
	row, col := newView(b, d, dtype.F32, 1, n), newView(b, d, dtype.F32, n, 1)
	row.Layout, _ = row.Expand(x.Shape)
	col.Layout, _ = col.Expand(x.Shape)
	xt := x
	xt.Layout = x.Transpose(0, 1)
	for _, c := range []struct {
		name  string
		p     *expr.Program
		bytes int
		ins   []device.View
	}{
		{"copy", castProgram(dtype.F32, dtype.F32), 8, []device.View{x}},
		{"transposed copy", castProgram(dtype.F32, dtype.F32), 8, []device.View{xt}},
		{"transposed add", addProgram, 12, []device.View{xt, x}},
		{"add row", addProgram, 8, []device.View{x, row}},
		{"add column", addProgram, 8, []device.View{x, col}},
	} {
		b.Run(c.name, func(b *testing.B) {
			op := mapOf(c.p, w, c.ins...)
			for b.Loop() {
				do(b, d, op)
			}
			rate(b, c.bytes*n*n)
		})
	}
}

func BenchmarkRows(b *testing.B) {
	d := Get()
	for _, s := range [][2]int{{4096, 1024}, {768, 65}} {
		x, y, g := newView(b, d, dtype.F32, s[0], s[1]), newView(b, d, dtype.F32, s[0], s[1]), newView(b, d, dtype.F32, s[0], s[1])
		loss, top, rest, target := newView(b, d, dtype.F32, s[0]), newView(b, d, dtype.F32, s[0]), newView(b, d, dtype.F32, s[0]), newView(b, d, dtype.I64, s[0])
		size := s[0] * s[1] * 4
		weight, mean, rstd := newView(b, d, dtype.F32, s[1]), newView(b, d, dtype.F32, s[0]), newView(b, d, dtype.F32, s[0])
		norm := device.RowNorm{Eps: 1e-5, Period: 1, Inner: 1}
		for _, c := range []struct {
			name  string
			bytes int
			op    device.Op
		}{
			{"layer norm", 2 * size, &device.Norm{Out: y, Mean: mean, Rstd: rstd, X: x, Weight: weight, Bias: weight, RowNorm: norm}},
			{"layer norm gradient", 3 * size, &device.NormGrad{DX: g, G: y, X: x, Mean: mean, Rstd: rstd, Weight: weight, RowNorm: norm}},
			{"copy", 2 * size, mapOf(castProgram(dtype.F32, dtype.F32), y, x)},
			{"softmax", 2 * size, &device.Softmax{Out: y, X: x}},
			{"log softmax", 2 * size, &device.Softmax{Out: y, X: x, Log: true}},
			{"softmax gradient", 3 * size, &device.SoftmaxGrad{DX: g, Y: y, G: x}},
			{"cross-entropy", size, &device.CrossEntropy{Loss: loss, Top: top, Rest: rest, X: x, Target: target, Ignore: -100}},
			{"cross-entropy gradient", 2 * size, &device.CrossEntropyGrad{DX: g, X: x, Top: top, Rest: rest, Target: target, G: loss, Ignore: -100}},
		} {
			b.Run(fmt.Sprintf("%s/%dx%d", c.name, s[0], s[1]), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					do(b, d, c.op)
				}
				rate(b, c.bytes)
			})
		}
	}
}

// BenchmarkEmbedding measures an embedding and its gradient. The embedding selects rows of a table
// by a column of indices.
func BenchmarkEmbedding(b *testing.B) {
	d := Get()
	for _, s := range [][3]int{{65, 128, 768}, {50257, 768, 8192}} {
		table, out, index := newView(b, d, dtype.F32, s[0], s[1]), newView(b, d, dtype.F32, s[2], s[1]), newView(b, d, dtype.I64, s[2])
		for i := range at[int64](pointer(&index), s[2]) {
			at[int64](pointer(&index), s[2])[i] = int64(i * 7919 % s[0])
		}
		index.Layout = shape.Layout{Shape: out.Shape, Strides: shape.Of(1, 0)}
		b.Run(fmt.Sprintf("gather/%dx%d by %d", s[0], s[1], s[2]), func(b *testing.B) {
			op := &device.Gather{Out: out, Src: table, Index: index}
			for b.Loop() {
				do(b, d, op)
			}
			rate(b, 8*s[1]*s[2])
		})
		b.Run(fmt.Sprintf("scatter-add/%dx%d by %d", s[0], s[1], s[2]), func(b *testing.B) {
			op := &device.Scatter{Kind: device.ScatterAdd, Dst: table, Src: out, Index: index}
			for b.Loop() {
				do(b, d, op)
			}
			rate(b, 12*s[1]*s[2])
		})
	}
}

func BenchmarkMatMul(b *testing.B) {
	d := Get()
	for _, s := range [][4]int{{1, 4, 4, 4}, {1, 64, 784, 512}, {1, 256, 256, 256}, {1, 512, 512, 512}, {1, 1024, 1024, 1024}, {48, 64, 32, 64}} {
		for _, t := range []dtype.Type{dtype.F32, dtype.BF16, dtype.I8} {
			to := t
			if t == dtype.I8 {
				to = dtype.I32
			}
			x, y, out := newView(b, d, t, s[0], s[1], s[2]), newView(b, d, t, s[0], s[2], s[3]), newView(b, d, to, s[0], s[1], s[3])
			b.Run(fmt.Sprintf("%v/%dx%dx%dx%d", t, s[0], s[1], s[2], s[3]), func(b *testing.B) {
				b.ReportAllocs()
				op := &device.MatMul{Out: out, A: x, B: y}
				for b.Loop() {
					do(b, d, op)
				}
				b.ReportMetric(2*float64(s[0]*s[1]*s[2]*s[3])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkAfterRest measures products during the first 2 ms after a pause. The workers fall asleep
// in the pause. BenchmarkMatMul measures the same products without a pause.
func BenchmarkAfterRest(b *testing.B) {
	d := Get()
	x, y, out := newView(b, d, dtype.F32, 1, 256, 256), newView(b, d, dtype.F32, 1, 256, 256), newView(b, d, dtype.F32, 1, 256, 256)
	op := &device.MatMul{Out: out, A: x, B: y}
	var took time.Duration
	calls := 0
	for b.Loop() {
		time.Sleep(6 * time.Millisecond)
		for start := clock(); clock() < start+2*time.Millisecond; calls++ {
			began := clock()
			do(b, d, op)
			took += clock() - began
		}
	}
	b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(calls), "µs/call")
}

// BenchmarkSmallReduce measures the cost of a reduction of few elements.
func BenchmarkSmallReduce(b *testing.B) {
	d := Get()
	x, one, rows := newView(b, d, dtype.F32, 4, 8), newView(b, d, dtype.F32, 1, 1), newView(b, d, dtype.F32, 4, 1)
	for _, c := range []struct {
		name string
		out  device.View
		fin  *expr.Program
	}{{"full", one, nil}, {"rows", rows, nil}, {"mean", rows, unaryProgram(expr.X(0).Scale(0.125))}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			op := reduceOf(device.Sum, c.out, x)
			op.Finish = c.fin
			for b.Loop() {
				do(b, d, op)
			}
			rate(b, 4*32)
		})
	}
}

// BenchmarkChannelSum measures the statistics of a batch of images. These are sums over all
// dimensions except the second.
func BenchmarkChannelSum(b *testing.B) {
	d := Get()
	x, out := newView(b, d, dtype.F32, 32, 64, 28, 28), newView(b, d, dtype.F32, 1, 64, 1, 1)
	op := reduceOf(device.Sum, out, x)
	for b.Loop() {
		do(b, d, op)
	}
	rate(b, 4*x.Size())
}

// BenchmarkForkJoin measures what it costs to share two units of work among workers. In the names
// of the cases, unit is the time that a unit of work takes. gap is the time for which the caller
// works alone between two calls.
func BenchmarkForkJoin(b *testing.B) {
	for _, unit := range []time.Duration{0, 2 * time.Microsecond, 10 * time.Microsecond} {
		for _, gap := range []time.Duration{0, 10 * time.Microsecond, 200 * time.Microsecond} {
			b.Run(fmt.Sprintf("unit=%v/gap=%v", unit, gap), func(b *testing.B) {
				c := newWorkerPool(2)
				defer c.dismiss()
				t := each(func(int) { wait(unit) })
				var took time.Duration
				for b.Loop() {
					wait(gap)
					start := time.Now()
					c.parallel(2, 1, t)
					took += time.Since(start)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(took-time.Duration(b.N)*unit)/float64(b.N), "ns/call")
			})
		}
	}
}
