package train

import (
	"math"
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// cpuRates are measured: a primitive takes a start, and then so much for each operation and for each byte, by how many bytes it is of, as
// what fits the caches is faster.
type cpuRates struct {
	start  float64 // seconds of a primitive on nothing, with what an op does around it
	flop   float64 // seconds of an operation of an expression
	bytes  curve   // seconds a byte of a map
	reduce curve   // of a reduction
	moved  curve   // of gather and scatter
	rows   curve   // of softmax, norms and cross entropy, beside their operations
	square curve   // seconds an operation of a matrix product, by its operations
}

// A curve is a value by size, between measured points linear in the logarithm of the size.
type curve []point

type point struct{ size, value float64 }

func (c curve) at(size float64) float64 {
	if len(c) == 0 {
		return 0
	}
	if size <= c[0].size {
		return c[0].value
	}
	for i := 1; i < len(c); i++ {
		if size <= c[i].size {
			a, b := c[i-1], c[i]
			f := math.Log(size/a.size) / math.Log(b.size/a.size)
			return a.value + f*(b.value-a.value)
		}
	}
	return c[len(c)-1].value
}

// seconds is how long a primitive takes.
func (r *cpuRates) seconds(k *device.KernelEvent) float64 {
	flops, bytes := float64(k.Work.FLOPs), float64(k.Work.Bytes)
	switch k.Primitive {
	case "matmul":
		return r.start + flops*r.square.at(flops) + bytes*r.bytes.at(bytes)
	case "reduce":
		return r.start + bytes*r.reduce.at(bytes) + flops*r.flop
	case "gather", "scatter":
		return r.start + bytes*r.moved.at(bytes)
	case "softmax", "softmax gradient", "norm", "norm gradient", "cross-entropy", "cross-entropy gradient":
		return r.start + bytes*r.rows.at(bytes)
	}
	return r.start + bytes*r.bytes.at(bytes) + flops*r.flop
}

func (r *cpuRates) copySeconds(c *device.CopyEvent) float64 {
	b := 2 * float64(c.Bytes)
	return r.start + b*r.bytes.at(b)
}

// MeasureCPU measures the rates of this machine's processor with the library's own kernels, which takes about half a second, for estimates
// of the time of steps on it. What else the machine does at that time is in them.
func MeasureCPU() Machine {
	m := Machine{Name: "cpu", Kind: "cpu", Source: "measured"}
	r := &cpuRates{}
	tensor.Do(func(s *tensor.Scope) {
		dev := s.Device()
		m.Product, m.Memory = dev.Info().Name, dev.Info().Memory
		sizes := []int{1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22} // elements of float32
		tiny := s.Ones(4)
		r.start = typical(s, func(s *tensor.Scope) { tiny.In(s).AddScalar(1) })
		over := func(f func(s *tensor.Scope), bytes int) point {
			return point{float64(bytes), max(typical(s, f)-r.start, 0) / float64(bytes)}
		}
		for _, n := range sizes {
			a, b := s.Rand(n), s.Rand(n)
			r.bytes = append(r.bytes, over(func(s *tensor.Scope) { a.In(s).Add(b) }, 12*n))
			rows := a.Reshape(n/64, 64)
			r.reduce = append(r.reduce, over(func(s *tensor.Scope) { rows.In(s).Sum(0) }, 4*n))
			r.rows = append(r.rows, over(func(s *tensor.Scope) { rows.In(s).Softmax(-1) }, 8*n))
			index := s.Typed(dtype.I64).Zeros(n / 64)
			r.moved = append(r.moved, over(func(s *tensor.Scope) { rows.In(s).Embedding(index) }, 8*n+8*n/64))
		}
		r.flop = r.measureFlop(s)
		for _, n := range []int{16, 32, 64, 128, 256, 512} {
			a, b := s.Rand(n, n), s.Rand(n, n)
			flops, bytes := 2*float64(n)*float64(n)*float64(n), 12*float64(n)*float64(n)
			t := typical(s, func(s *tensor.Scope) { a.In(s).MatMul(b) }) - r.start - bytes*r.bytes.at(bytes)
			r.square = append(r.square, point{flops, max(t, 0) / flops})
		}
	}, tensor.NoGrad(), tensor.On(hostCPU()), tensor.Seed(1))
	m.cpu = r
	return m
}

// measureFlop returns the seconds of one of the operations of exp.
func (r *cpuRates) measureFlop(s *tensor.Scope) float64 {
	const n = 1 << 17
	p := expr.MustLower([]*expr.Expr{expr.X(0).Exp()}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	x, y := s.Rand(n), s.Empty(n)
	t := typical(s, func(*tensor.Scope) {
		tensor.Raw("exp", []*tensor.Tensor{y}, []*tensor.Tensor{x}, func(st device.Stream, outs, ins []device.View) error {
			return x.Device().Map(st, p, outs, ins, nil)
		})
	})
	return max(t-r.start-8*n*r.bytes.at(8*n), 0) / float64(n*p.Cost())
}

// hostCPU is the processor.
func hostCPU() device.Device { return tensor.Zeros(0).Device() }

// typical returns the median time of f in seconds.
func typical(s *tensor.Scope, f func(s *tensor.Scope)) float64 {
	run := func(n int) float64 {
		at := time.Now()
		for range n {
			s.Do(f)
		}
		return time.Since(at).Seconds() / float64(n)
	}
	n := 1
	run(1)
	for run(n)*float64(n) < 500e-6 && n < 1<<12 {
		n *= 2
	}
	var times []float64
	for range 7 {
		times = append(times, run(n))
	}
	slices.Sort(times)
	return times[len(times)/2]
}
