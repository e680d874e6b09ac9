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

// A key that is NaN shows in the causal queries that see it, and in these alone.
func TestCausalQueriesDoNotSeeWhatIsBehind(t *testing.T) {
	const queries, features, bad = 40, 4, 30
	d := newDevice(1)
	defer d.crew.dismiss()
	q, k, v, out := newView(t, d, dtype.F32, 1, queries, features), newView(t, d, dtype.F32, 1, queries, features), newView(t, d, dtype.F32, 1, queries, features), newView(t, d, dtype.F32, 1, queries, features)
	floats(&k)[bad*features] = float32(math.NaN())
	must(t, d.Attend(nil, out, q, k, v, 1, true))
	for i, y := range floats(&out) {
		if row := i / features; (y != y) != (row >= bad) {
			t.Fatalf("query %d gives %v", row, y)
		}
	}
}

// What has kernels of its own has the same bits for 1, 2, 3 and 7 workers.
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

		q, k, v := some(6, 300, 32), some(3, 210, 32), some(3, 210, 20)
		for _, causal := range []bool{false, true} {
			must(t, d.Attend(nil, f32(6, 300, 20), q, k, v, 0.2, causal))
		}
		turned := some(900, 700)
		turned.Layout = turned.Transpose(0, 1)
		must(t, d.Softmax(nil, f32(700, 900), turned, false))
		must(t, d.Argsort(nil, result(dtype.I64, 50, 20), some(50, 3000), true))
		must(t, d.Search(nil, result(dtype.I64, 20, 3000), some(20, 700), some(20, 3000), false))

		for _, c := range []struct {
			groups  int
			x, w, y []int
		}{
			{1, []int{5, 20, 30, 28}, []int{40, 20, 3, 3}, []int{5, 40, 15, 14}},
			{2, []int{3, 12, 9, 11}, []int{10, 6, 3, 3}, []int{3, 10, 5, 6}},
			{16, []int{3, 16, 40, 33}, []int{16, 1, 3, 3}, []int{3, 16, 20, 17}},
		} {
			g := device.Convolution{Rank: 2, Groups: c.groups, Stride: [3]int{2, 2}, Dilation: [3]int{1, 1}, Before: [3]int{1, 1}}
			x, w, y := some(c.x...), some(c.w...), some(c.y...)
			must(t, d.Convolve(nil, f32(c.y...), x, w, g))
			must(t, d.ConvolveData(nil, f32(c.x...), y, w, g))
			must(t, d.ConvolveWeight(nil, f32(c.w...), x, y, g))
		}
		window := device.Window{Rank: 2, Kernel: [3]int{5, 4}, Stride: [3]int{2, 3}, Dilation: [3]int{1, 1}, Before: [3]int{2, 1}}
		planes := some(60, 40, 41)
		must(t, d.SumWindows(nil, f32(60, 20, 14), planes, window))
		must(t, d.AddWindows(nil, f32(60, 40, 41), some(60, 20, 14), window))

		x, weight := some(6, 30, 1500), some(30)
		mean, rstd := f32(30), f32(30)
		must(t, d.ChannelNorm(nil, f32(6, 30, 1500), mean, f32(30), rstd, x, weight, device.View{}, device.ChannelNorm{Eps: 1e-5}))
		must(t, d.ChannelNormGrad(nil, f32(6, 30, 1500), f32(30), f32(30), some(6, 30, 1500), x, mean, rstd, weight))

		index := newView(t, d, dtype.I64, 400)
		for i := range 400 {
			at[int64](pointer(&index), 400)[i] = r.Int64N(50)
		}
		index.Layout = shape.Layout{Shape: shape.Of(400, 7), Strides: shape.Of(1, 0)}
		must(t, d.Scatter(nil, device.ScatterAdd, f32(50, 7), some(400, 7), index, 0, 0))

		d.crew.dismiss()
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
