package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// TestCausalQueriesDoNotSeeWhatIsBehind sets one key to NaN in causal attention. Only the queries
// that see this key may have NaN results.
func TestCausalQueriesDoNotSeeWhatIsBehind(t *testing.T) {
	const queries, features, bad = 40, 4, 30
	d := newDevice(1)
	defer d.workers.dismiss()
	q, k, v, out := newView(t, d, dtype.F32, 1, 1, queries, features), newView(t, d, dtype.F32, 1, 1, queries, features), newView(t, d, dtype.F32, 1, 1, queries, features), newView(t, d, dtype.F32, 1, 1, queries, features)
	floats(&k)[bad*features] = float32(math.NaN())
	do(t, d, &device.Attention{Out: out, Q: q, K: k, V: v, Weighing: device.Weighing{Scale: 1, Causal: true}})
	for i, y := range floats(&out) {
		if row := i / features; (y != y) != (row >= bad) {
			t.Fatalf("query %d gives %v", row, y)
		}
	}
}

// TestKernelsDoNotDependOnWorkers runs the ops that have kernels of their own with 1, 2, 3 and 7
// workers. All must give the same bits.
func TestKernelsDoNotDependOnWorkers(t *testing.T) {
	var want [][]byte
	for _, workers := range []int{1, 2, 3, 7} {
		d := newDevice(workers)
		r := rand.New(rand.NewPCG(3, 4))
		var got [][]byte
		some := func(s ...int) device.View {
			v := newView(t, d, dtype.F32, s...)
			for i := range floats(&v) {
				floats(&v)[i] = r.Float32() - 0.4
			}
			return v
		}
		result := func(ty dtype.Type, s ...int) device.View {
			v := newView(t, d, ty, s...)
			got = append(got, v.Buf.Host())
			return v
		}
		f32 := func(s ...int) device.View { return result(dtype.F32, s...) }

		q, k, v := some(2, 6, 300, 32), some(2, 3, 210, 32), some(2, 3, 210, 20)
		for _, causal := range []bool{false, true} {
			w := device.Weighing{Scale: 0.2, Causal: causal}
			out, lse := f32(2, 6, 300, 20), f32(2, 6, 300)
			if causal {
				w.Drop, w.Seed, w.Offset = 0.2, 5, 6
			}
			do(t, d, &device.Attention{Out: out, LSE: lse, Q: q, K: k, V: v, Weighing: w})
			do(t, d, &device.AttentionGrad{DQ: f32(2, 6, 300, 32), DK: f32(2, 3, 210, 32), DV: f32(2, 3, 210, 20), G: some(2, 6, 300, 20),
				Q: q, K: k, V: v, Out: out, LSE: lse, Weighing: w})
		}
		turned := some(900, 700)
		turned.Layout = turned.Transpose(0, 1)
		do(t, d, &device.Softmax{Out: f32(700, 900), X: turned})
		do(t, d, &device.Argsort{Out: result(dtype.I64, 50, 20), X: some(50, 3000), Descending: true})
		do(t, d, &device.Search{Out: result(dtype.I64, 20, 3000), Sorted: some(20, 700), Values: some(20, 3000)})

		for _, c := range []struct {
			groups  int
			x, w, y []int
		}{
			{1, []int{5, 20, 30, 28}, []int{40, 20, 3, 3}, []int{5, 40, 15, 14}},
			{2, []int{3, 12, 9, 11}, []int{10, 6, 3, 3}, []int{3, 10, 5, 6}},
			{16, []int{3, 16, 40, 33}, []int{16, 1, 3, 3}, []int{3, 16, 20, 17}},
		} {
			x, w, y := some(c.x...), some(c.w...), some(c.y...)
			for kind, from := range []device.Convolution{
				device.ConvForward: {X: x, W: w, Y: f32(c.y...)},
				device.ConvData:    {X: f32(c.x...), W: w, Y: y},
				device.ConvWeight:  {X: x, W: f32(c.w...), Y: y},
			} {
				from.Kind, from.Rank, from.Groups = device.ConvKind(kind), 2, c.groups
				from.Stride, from.Dilation, from.Before = [3]int{2, 2}, [3]int{1, 1}, [3]int{1, 1}
				do(t, d, &from)
			}
		}
		window := device.Window{Rank: 2, Kernel: [3]int{5, 4}, Stride: [3]int{2, 3}, Dilation: [3]int{1, 1}, Before: [3]int{2, 1}}
		planes := some(60, 40, 41)
		do(t, d, &device.SumWindows{Y: f32(60, 20, 14), X: planes, Window: window})
		do(t, d, &device.Fold{Y: f32(60, 1, 40, 41), X: some(60, 1, 5, 4, 20, 14), Window: window})
		numbers := some(60, 1, 1, 1, 20, 14)
		numbers.Layout, _ = numbers.Expand(shape.Of(60, 1, 5, 4, 20, 14))
		do(t, d, &device.Fold{Y: f32(60, 1, 40, 41), X: numbers, Window: window})

		x, weight := some(6, 30, 1500), some(30)
		mean, rstd := f32(30), f32(30)
		do(t, d, &device.ChannelNorm{Out: f32(6, 30, 1500), Mean: mean, Variance: f32(30), Rstd: rstd, X: x, Weight: weight, Eps: 1e-5})
		do(t, d, &device.ChannelNormGrad{DX: f32(6, 30, 1500), Sum: f32(30), Product: f32(30), G: some(6, 30, 1500), X: x, Mean: mean, Rstd: rstd, Weight: weight})

		index := newView(t, d, dtype.I64, 400)
		for i := range 400 {
			at[int64](pointer(&index), 400)[i] = r.Int64N(50)
		}
		index.Layout = shape.Layout{Shape: shape.Of(400, 7), Strides: shape.Of(1, 0)}
		do(t, d, &device.Scatter{Kind: device.ScatterAdd, Dst: f32(50, 7), Src: some(400, 7), Index: index})

		d.workers.dismiss()
		if want == nil {
			for _, b := range got {
				want = append(want, bytes.Clone(b))
			}
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%d workers: result %d differs from that of one", workers, i)
			}
		}
	}
}

// BenchmarkAttention measures attention and its gradient at the size of a GPT-2 layer.
func BenchmarkAttention(b *testing.B) {
	d := Get()
	const heads, n, features = 12, 1024, 64
	some := func() device.View { return newView(b, d, dtype.F32, 1, heads, n, features) }
	q, k, v, out, g, lse := some(), some(), some(), some(), some(), newView(b, d, dtype.F32, 1, heads, n)
	dq, dk, dv := some(), some(), some()
	for _, c := range []struct {
		name string
		w    device.Weighing
	}{{"plain", device.Weighing{Scale: 0.125}}, {"causal", device.Weighing{Scale: 0.125, Causal: true}}, {"dropped", device.Weighing{Scale: 0.125, Causal: true, Drop: 0.1}}} {
		for _, op := range []device.Op{&device.Attention{Out: out, LSE: lse, Q: q, K: k, V: v, Weighing: c.w},
			&device.AttentionGrad{DQ: dq, DK: dk, DV: dv, G: g, Q: q, K: k, V: v, Out: out, LSE: lse, Weighing: c.w}} {
			b.Run(op.Name()+" "+c.name, func(b *testing.B) {
				for b.Loop() {
					do(b, d, op)
				}
				b.ReportMetric(float64(op.(interface{ Work() device.Work }).Work().FLOPs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
