package tensor

import "testing"

// These benchmarks measure the overhead of an op, with tensors of one element.

func BenchmarkAdd(b *testing.B) {
	b.ReportAllocs()
	s := NewScope()
	defer s.Close()
	x := s.Ones(1)
	for b.Loop() {
		x.Add(x).Free()
	}
}

func BenchmarkAddWithGrad(b *testing.B) {
	b.ReportAllocs()
	w := Ones(1).RequiresGrad()
	for b.Loop() {
		Do(func(s *Scope) {
			x := w.In(s)
			for range 100 {
				x.Add(x)
			}
		})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/add")
}

// BenchmarkChain runs a chain of 50 ops, forward and backward.
func BenchmarkChain(b *testing.B) {
	b.ReportAllocs()
	w := Ones(1).RequiresGrad()
	for b.Loop() {
		Do(func(s *Scope) {
			x := w.In(s)
			for range 25 {
				x = x.MulScalar(0.5).Tanh()
			}
			x.Sum().Backward()
		})
		w.ZeroGrad()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50, "ns/op-pair")
}

func BenchmarkMatMulSmall(b *testing.B) {
	b.ReportAllocs()
	s := NewScope()
	defer s.Close()
	x := s.Ones(2, 2)
	for b.Loop() {
		x.MatMul(x).Free()
	}
}

func BenchmarkScope(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Do(func(*Scope) {})
	}
}

// BenchmarkLayerNorm runs a layer normalisation, forward and backward. It compares the fused
// kernels with the composition that they replace.
func BenchmarkLayerNorm(b *testing.B) {
	for _, mode := range []struct {
		name string
		opts []Option
	}{{"fused", nil}, {"composed", []Option{Composed()}}} {
		b.Run(mode.name, func(b *testing.B) {
			const rows, columns = 2048, 768
			x, w, g := root.Randn(rows, columns).RequiresGrad(), Ones(columns).RequiresGrad(), Ones(rows, columns)
			for b.Loop() {
				Do(func(s *Scope) {
					Gradients(x.In(s).LayerNorm([]int{columns}, w, w, 1e-5), []*Tensor{x, w}, GradOutput(g))
				}, mode.opts...)
			}
			b.ReportMetric(float64(b.N)*5*4*rows*columns/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
}

// BenchmarkDeepGraph runs a hundred thousand nodes forward and backward, with a graph of the
// gradients. Then it frees them.
func BenchmarkDeepGraph(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Do(func(s *Scope) {
			x := s.Ones(1).RequiresGrad()
			y := x
			for range 100_000 {
				y = y.MulScalar(1)
			}
			Gradients(y, []*Tensor{x}, CreateGraph())
		})
	}
}
