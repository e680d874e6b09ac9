package dist

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// mlp returns a model with parameters of type typ on the device "cpu". Its values are the same in
// each call.
func mlp(typ dtype.Type) *nn.Sequential {
	return fixed(nn.NewSequential(
		nn.NewLinear(12, 40, nn.Typed(typ)), nn.ReLU{},
		nn.NewLinear(40, 33, nn.Typed(typ)), nn.Tanh{},
		nn.NewLinear(33, 5, nn.Typed(typ))))
}

// fixed sets a model's parameters to fixed values.
func fixed[M any](m M) M {
	tensor.Do(func(s *tensor.Scope) {
		for k, p := range nn.Parameters(m) {
			v := make([]float64, p.Size())
			for i := range v {
				v[i] = math.Sin(float64(i*7+k*13)) * min(0.5, math.Sqrt(float64(p.Dim(0))/float64(p.Size())))
			}
			p.Copy(s.From(v).Reshape(p.Shape().Slice()...).Cast(p.Type()).To(p.Device()))
		}
	}, tensor.NoGrad())
	return m
}

// batch returns the inputs and classes of the samples with numbers lo to hi-1 in the given step.
func batch(s *tensor.Scope, typ dtype.Type, step, lo, hi int) (x, y *tensor.Tensor) {
	var v []float64
	var c []int64
	for i := lo; i < hi; i++ {
		for k := range 12 {
			v = append(v, math.Sin(float64(step*1000+i*37+k*11)))
		}
		c = append(c, int64((step+i*3)%5))
	}
	return s.From(v).Reshape(-1, 12).Cast(typ), s.From(c)
}

// weights returns the elements of a model's parameters.
func weights(m any) (all []float64) {
	for _, p := range nn.Named(m) {
		all = append(all, p.Tensor.Floats()...)
	}
	return all
}

// distance returns |a - b| / |b|, in the Euclidean norm.
func distance(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var d, n float64
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += b[i] * b[i]
	}
	return math.Sqrt(d / n)
}

// tolerance returns the largest permitted distance between weights that were trained by several
// ranks and by one process.
func tolerance(typ dtype.Type) float64 {
	if typ == dtype.F64 {
		return 1e-9
	}
	return 1e-4
}

const whole = 12 // samples in a step

// alone trains the model m on one device, with the whole batch.
func alone[M nn.Module](dev device.Device, typ dtype.Type, m M, steps int) []float64 {
	nn.To(m, dev)
	opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	for step := range steps {
		tensor.Do(func(s *tensor.Scope) {
			x, y := batch(s, typ, step, 0, whole)
			nn.CrossEntropy(m.Forward(x), y).Backward()
			opt.Step()
			opt.ZeroGrad()
		}, tensor.On(dev))
	}
	return weights(m)
}

// TestDDP trains on many devices and on one, and compares the weights. On emulated GPUs, which are
// slow, it takes fewer steps, with one bucket size for each type.
func TestDDP(t *testing.T) {
	t.Parallel()
	alones := map[string][]float64{}
	one := func(typ dtype.Type, steps int) []float64 {
		key := fmt.Sprint(typ, steps)
		if alones[key] == nil {
			alones[key] = alone(tensor.Root().Device(), typ, mlp(typ), steps)
		}
		return alones[key]
	}
	forEach(t, []int{1, 2, 3, 4}, func(t *testing.T, l DeviceList) {
		gpus, steps := !l.devices[0].Info().Host, 20
		if gpus {
			steps = 6
		}
		for k, typ := range []dtype.Type{dtype.F32, dtype.F64} {
			for i, opts := range [][]DDPOption{nil, {BucketBytes(600, 3000)}} {
				if gpus && (k+i+len(l.devices))%2 == 0 {
					continue
				}
				got := make([][]float64, len(l.devices))
				run(t, l, func(g *Group) {
					m := DDP(nn.To(mlp(typ), g.Device()), g, opts...)
					opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
					n := whole / g.World()
					for step := range steps {
						g.Do(func(s *tensor.Scope) {
							x, y := batch(s, typ, step, g.Rank()*n, (g.Rank()+1)*n)
							nn.CrossEntropy(m.Forward(x), y).Backward()
							opt.Step()
							opt.ZeroGrad()
						})
					}
					got[g.Rank()] = weights(m)
				})
				want := one(typ, steps)
				for r := range got {
					if d := distance(got[r], want); !(d <= tolerance(typ)) {
						t.Errorf("%v, rank %d: %v from one process", typ, r, d)
					}
					if fmt.Sprint(got[r]) != fmt.Sprint(got[0]) {
						t.Errorf("%v: ranks 0 and %d differ", typ, r)
					}
				}
			}
		}
	})
}
