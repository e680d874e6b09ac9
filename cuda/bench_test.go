package cuda

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// BenchmarkHost measures how long the host takes to queue an operation. In mode=meta the emulated
// device stores no values and runs no kernels. The times include the emulated driver's bookkeeping,
// which takes longer than a call of a real driver.
func BenchmarkHost(b *testing.B) {
	d := emulated(b, "emulate,mem=8GiB,mode=meta")
	const n = 1 << 10
	x, y := empty(b, d, nil, n*n), empty(b, d, nil, n*n)
	x.Layout, y.Layout = shape.Dense(shape.Of(1, n, n)), shape.Dense(shape.Of(1, n, n))
	row := empty(b, d, nil, n)
	row.Layout = shape.Dense(shape.Of(1, 1, n))
	sum := &device.Reduction{Kind: device.Sum, Map: double}
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"map", func() error { return apply(d, nil, plus, views(y), views(x, y)) }},
		{"reduce", func() error { return device.Run(d, nil, &device.Reduce{Reduction: sum, Out: row, Ins: views(x)}) }},
		{"matmul", func() error { return device.Run(d, nil, &device.MatMul{Out: y, A: x, B: x}) }},
		{"alloc and free", func() error {
			v, err := d.Alloc(n, nil, device.Origin{Op: "benchmark", Shape: shape.Of(n / 4), Type: dtype.F32})
			if err == nil {
				v.Free()
			}
			return err
		}},
		{"event", func() error {
			e, err := d.main.Record()
			if err == nil {
				err = d.main.Wait(e)
				e.Release()
			}
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, c.f())
			}
		})
	}
}
