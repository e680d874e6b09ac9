package tensor

import (
	"fmt"
	"testing"
)

// These benchmarks compare scans and sorting on the CPU with the compositions that they replace.

func benchmarkOrder(b *testing.B, rows, n int, op func(x *Tensor)) {
	for _, mode := range []struct {
		name string
		opts []Option
	}{{"fast", nil}, {"composed", []Option{Composed()}}} {
		b.Run(fmt.Sprintf("%dx%d/%s", rows, n, mode.name), func(b *testing.B) {
			Do(func(s *Scope) {
				x := s.Randn(rows, n)
				b.SetBytes(int64(4 * rows * n))
				for b.Loop() {
					s.Do(func(c *Scope) { op(x.In(c)) })
				}
			}, mode.opts...)
		})
	}
}

func BenchmarkCumSum(b *testing.B) {
	benchmarkOrder(b, 1000, 1000, func(x *Tensor) { x.CumSum(1) })
	benchmarkOrder(b, 1000, 1000, func(x *Tensor) { x.CumSum(0) })
}

func BenchmarkCumMax(b *testing.B) {
	benchmarkOrder(b, 1000, 1000, func(x *Tensor) { x.CumMax(1) })
}

func BenchmarkSort(b *testing.B) {
	benchmarkOrder(b, 1000, 100, func(x *Tensor) { x.Sort(1, false) })
	benchmarkOrder(b, 1, 1_000_000, func(x *Tensor) { x.Sort(1, false) })
}

func BenchmarkTopK(b *testing.B) {
	benchmarkOrder(b, 100, 50_000, func(x *Tensor) { x.TopK(10, 1, true, true) })
}
