package asm

import "testing"

// BenchmarkBlock measures a block of 1024 elements in the first-level cache, for every variant.
func BenchmarkBlock(b *testing.B) {
	const n = 1024
	x, y, z, w := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	FillF32(x, 1.5)
	FillF32(y, 0.25)
	m, h := make([]uint32, n), make([]uint16, n)
	d, l := make([]float64, n), make([]int64, n)
	var sink float32
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"AddF32", func() { AddF32(z, x, y) }},
		{"FMAF32", func() { FMAF32(z, x, y, w) }},
		{"DivF32", func() { DivF32(z, x, y) }},
		{"MaxF32", func() { MaxF32(z, x, y) }},
		{"SqrtF32", func() { SqrtF32(z, x) }},
		{"RoundEvenF32", func() { RoundEvenF32(z, x) }},
		{"LtF32", func() { LtF32(m, x, y) }},
		{"SelectF32", func() { SelectF32(z, m, x, y) }},
		{"MulHiU32", func() { MulHiU32(m, AsU32(x), AsU32(y)) }},
		{"CvtF32ToI32", func() { CvtF32ToI32(AsI32(z), x) }},
		{"CvtF32ToBF16", func() { CvtF32ToBF16(h, x) }},
		{"CvtF32ToF16", func() { CvtF32ToF16(h, x) }},
		{"CvtI64ToF64", func() { CvtI64ToF64(d, l) }},
		{"FillF32", func() { FillF32(z, 3) }},
		{"SumF32", func() { sink += SumF32(x) }},
		{"DotF32", func() { sink += DotF32(x, y) }},
		{"ReduceMaxF32", func() { sink += ReduceMaxF32(x) }},
	} {
		for _, v := range Variants() {
			b.Run(c.name+"/"+v, func(b *testing.B) {
				defer Use(v)()
				for b.Loop() {
					c.f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/elem")
			})
		}
	}
	_ = sink
}

// BenchmarkFunction measures the kernels of whole functions on a block of 1024 elements.
func BenchmarkFunction(b *testing.B) {
	const n = 1024
	x, z := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = float32(i)/256 + 0.1
	}
	for _, name := range []string{"exp", "log", "tanh", "erf", "sigmoid", "sin"} {
		for _, v := range Variants()[1:] {
			b.Run(name+"/"+v, func(b *testing.B) {
				defer Use(v)()
				f := Function(name)
				if f == nil {
					b.Skip("left to the primitives")
				}
				for b.Loop() {
					f(z, x)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/elem")
			})
		}
	}
}
