package kernels

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// BenchmarkPlan measures how long it takes to plan the launches of an operation. A program plans
// every operation, so this should take less than one or two microseconds.
func BenchmarkPlan(b *testing.B) {
	p := program(b, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, x0.Mul(x1).Add(expr.Param(0)))
	out, x, y := []Operand{fake(dtype.F32, 64, 1024)}, fake(dtype.F32, 64, 1024), fake(dtype.F32, 64, 1024)
	ins, scalars := []Operand{x, y}, []uint64{0}
	row := fake(dtype.F32, 64, 1024)
	row.Strides = row.Strides.With(0, 0)
	bias := []Operand{x, row}
	r := &device.Reduction{Kind: device.Sum, Map: identity(b, dtype.F32)}
	sum := fake(dtype.F32, 64, 1)
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("map dense", func() error { _, err := Map(p, out, ins, scalars); return err })
	run("map rows", func() error { _, err := Map(p, out, bias, scalars); return err })
	run("reduce", func() error { _, err := Reduce(r, sum, ins[:1], nil, nil); return err })
	big := fake(dtype.F32, 1, 1024, 1024)
	run("matmul", func() error { _, err := MatMul(a100, big, big, big); return err })
	half := fake(dtype.BF16, 1, 1024, 1024)
	run("matmul bfloat16", func() error {
		_, err := MatMulSplit(a100, ProductOperands{Out: half, A: half, B: half}, fakeScratch)
		return err
	})
	run("softmax", func() error { _, err := Softmax(x, y, false); return err })
	norm := NormOperands{Out: y, X: x, Mean: fake(dtype.F32, 64), Rstd: fake(dtype.F32, 64), Weight: fake(dtype.F32, 1024)}
	run("layer norm", func() error { _, err := Norm(norm, device.RowNorm{Eps: 1e-5, Period: 1, Inner: 1}); return err })
}

// BenchmarkBuild measures how long it takes to build a kernel's text. A program builds each kernel
// once, when it first uses it.
func BenchmarkBuild(b *testing.B) {
	big := fake(dtype.F32, 1, 1024, 1024)
	half := fake(dtype.BF16, 1, 1024, 1024)
	p := program(b, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, expr.Call("tanh", x0))
	one := []Operand{fake(dtype.F32, 1024)}
	for _, c := range []struct {
		name string
		f    func() ([]Launch, error)
	}{
		{"gemm", func() ([]Launch, error) { return MatMul(a100, big, big, big) }},
		{"tensor gemm", func() ([]Launch, error) { return MatMul(a100, half, half, half) }},
		{"tanh", func() ([]Launch, error) { return Map(p, one, one, nil) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				cache.Clear()
				if _, err := c.f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
