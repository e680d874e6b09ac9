package train

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// cpuRates holds measured times of primitives. The rate of a matrix product is in seconds per
// operation. The rate of any other primitive is in seconds per byte. An elementwise primitive,
// called a map, also takes time for each operation. Rates depend on the size of the work, because
// small operands fit into the caches and large work is shared by several cores.
type cpuRates struct {
	// start is the time that a step spends outside of primitives, in seconds per primitive.
	start float64
	least float64          // minimum time of a primitive, in seconds
	flop  float64          // additional time of a map, in seconds per operation
	rates map[string]curve // maps a kind of primitive to its seconds per unit of size
}

// A curve gives the seconds per unit of size as a function of the size. Between its points it is
// linear in the logarithm of the size.
type curve []point

type point struct{ size, value float64 }

func (c curve) at(size float64) float64 {
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

// sizeOf returns the size of a primitive's work, which determines its time: operations or bytes.
func sizeOf(k *device.KernelEvent) float64 {
	if k.Class == device.ByProducts {
		return float64(k.Work.FLOPs)
	}
	return float64(k.Work.Bytes)
}

// kindOf returns the name of the primitive, a key of rates. For a map the name includes the number
// of dimensions, because maps over windows and transpositions have more dimensions and are slower.
func kindOf(k *device.KernelEvent) string {
	if k.Primitive != "map" || len(k.Shapes) == 0 {
		return k.Primitive
	}
	return mapKinds[min(k.Shapes[0].Rank(), len(mapKinds)-1)]
}

var mapKinds = [...]string{"map", "map", "map", "map 3", "map 4", "map 5"}

// seconds returns the estimated time of a primitive.
func (r *cpuRates) seconds(k *device.KernelEvent) float64 {
	size, kind := sizeOf(k), kindOf(k)
	c, ok := r.rates[kind]
	if !ok && k.Class == device.ByProducts {
		c, ok = r.rates["matmul"]
	}
	if !ok {
		c = r.rates["map"]
	}
	t := size * c.at(size)
	if k.Class == device.ByExpression || !ok {
		t += r.flop * float64(k.Work.FLOPs)
	}
	return r.start + max(t, r.least)
}

func (r *cpuRates) copySeconds(c *device.CopyEvent) float64 {
	b := 2 * float64(c.Bytes)
	return r.least + b*r.rates["map"].at(b)
}

// MeasureCPU measures the speed of the library's kernels on this machine's processor, for estimates
// of the time of steps. It runs steps of a small transformer and of a small convolutional network,
// for about a second. Other work on the machine during that time slows the measured rates.
// MeasureCPU needs the process's tracer, so it returns an *[Error] while a profiler runs.
func MeasureCPU() (Machine, error) {
	planning.Lock()
	defer planning.Unlock()
	dev := tensor.Zeros(0).Device()
	m := Machine{Name: "cpu", Kind: "cpu", Source: "measured", Product: dev.Info().Name, Memory: dev.Info().Memory / 10 * 9, cpu: &cpuRates{}}
	t := &timer{dev: dev}
	if !device.SetTracer(t) {
		return m, &Error{"MeasureCPU", "a profiler is running, and there is one tracer in a process; stop it first"}
	}
	defer device.SetTracer(nil)
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			for _, c := range []struct{ batch, length, width int }{{2, 16, 48}, {6, 40, 96}, {4, 96, 256}} {
				g := models.NewGPT(models.GPTConfig{Vocab: 500, Context: c.length, Layers: 1, Heads: 4, Width: c.width, Dropout: 0.1}, nn.In(s))
				t.steps(s, g, func(s *tensor.Scope) *tensor.Tensor {
					x := s.Typed(dtype.I64).Zeros(c.batch, c.length)
					return g.Loss(x, x)
				})
			}
			for _, batch := range []int{2, 12, 40} {
				n := models.NewCNN(3, 10, nn.In(s))
				t.steps(s, n, func(s *tensor.Scope) *tensor.Tensor {
					return nn.CrossEntropy(n.Forward(s.Rand(batch, 3, 24, 24)), s.Typed(dtype.I64).Zeros(batch))
				})
			}
			for _, n := range []int{256, 640} {
				a, b := s.Rand(n, n), s.Rand(n, n)
				t.repeat(func() { s.Do(func(s *tensor.Scope) { a.In(s).MatMul(b) }, tensor.NoGrad()) }, false)
			}
		}, tensor.On(dev), tensor.Seed(1))
	})
	if err != nil {
		return m, err
	}
	t.fit(m.cpu)
	return m, nil
}

// timing is a measured time of a primitive.
type timing struct {
	primitive   string // name that kindOf returns
	class       device.Class
	size, flops float64
	seconds     float64
}

// timer is a tracer that records the times of primitives.
type timer struct {
	ignoringTracer
	dev device.Device

	mu   sync.Mutex
	now  []timing // timings of the current run
	list []timing

	beside     float64 // time that steps have spent outside of primitives, in seconds
	primitives int     // number of primitives in these steps
}

// Wants requests events with the shapes of kernels.
func (t *timer) Wants() device.TraceWants { return device.TraceWants{KernelShapes: true} }

// Kernel records a primitive's time.
func (t *timer) Kernel(k device.KernelEvent) {
	if k.Device != t.dev || k.Work.Bytes == 0 {
		return
	}
	t.mu.Lock()
	t.now = append(t.now, timing{kindOf(&k), k.Class, sizeOf(&k), float64(k.Work.FLOPs), (k.End - k.Start).Seconds()})
	t.mu.Unlock()
}

// steps trains a model for several equal steps, and records the median time of each primitive.
func (t *timer) steps(s *tensor.Scope, m any, loss func(s *tensor.Scope) *tensor.Tensor) {
	o := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
	t.repeat(func() {
		s.Do(func(s *tensor.Scope) { loss(s).Backward() })
		o.Step()
		o.ZeroGrad()
	}, true)
}

// repeat runs f several times and records the median time of each primitive. If step is true, f is
// a training step, and repeat also records the time spent outside of primitives.
func (t *timer) repeat(f func(), step bool) {
	const warm, runs = 2, 5
	var all [][]timing
	var rest []float64
	for i := range warm + runs {
		t.now = nil
		at := time.Now()
		f()
		took := time.Since(at).Seconds()
		if i < warm {
			continue
		}
		for _, k := range t.now {
			took -= k.seconds
		}
		rest = append(rest, max(took, 0))
		all = append(all, t.now)
	}
	for i, k := range all[0] {
		var times []float64
		for _, list := range all {
			if i < len(list) && list[i].primitive == k.primitive {
				times = append(times, list[i].seconds)
			}
		}
		k.seconds = median(times)
		t.list = append(t.list, k)
	}
	if step {
		t.beside += median(rest)
		t.primitives += len(all[0])
	}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// tiny is the size below which the time of a primitive does not depend on the size.
const tiny = 4 << 10

// fit computes the rates from the recorded times. It groups sizes by powers of four. The rate of a
// group is its total time divided by its total size. For maps, fit alternately computes the rates
// for bytes and the rate for operations, eight times each. Each computation uses the latest result
// of the other.
func (t *timer) fit(r *cpuRates) {
	r.start = t.beside / float64(max(t.primitives, 1))
	var small []float64
	kinds := map[string][]timing{}
	for _, k := range t.list {
		if k.size < tiny && k.class == device.ByExpression {
			small = append(small, k.seconds)
		}
		if k.size >= tiny {
			kinds[k.primitive] = append(kinds[k.primitive], k)
		}
	}
	if len(small) > 0 {
		r.least = median(small)
	}
	r.rates = map[string]curve{}
	for range 8 {
		for name, list := range kinds {
			f := 0.0
			if list[0].class == device.ByExpression {
				f = r.flop
			}
			r.rates[name] = curveOf(list, f)
		}
		// The rate f for operations minimises Σ (t - a·bytes - f·flops)²/t, where t is a measured
		// time and a is the rate for bytes.
		up, down := 0.0, 0.0
		for name, list := range kinds {
			for _, k := range list {
				if k.class == device.ByExpression && k.seconds > 0 {
					up += (k.seconds - k.size*r.rates[name].at(k.size)) * k.flops / k.seconds
					down += k.flops * k.flops / k.seconds
				}
			}
		}
		if down > 0 {
			r.flop = max(0, up/down)
		}
	}
}

// curveOf returns the curve of the timings in list. From each time it first subtracts flop seconds
// for each arithmetic operation.
func curveOf(list []timing, flop float64) curve {
	var size, spent, count [32]float64
	for _, k := range list {
		b := bits.Len64(uint64(k.size)) / 2
		size[b] += k.size
		spent[b] += max(k.seconds-flop*k.flops, 0)
		count[b]++
	}
	var c curve
	for b := range size {
		if count[b] > 0 {
			c = append(c, point{size[b] / count[b], spent[b] / size[b]})
		}
	}
	return c
}
