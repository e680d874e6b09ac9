package optest

import (
	"math"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

func emulated(t *testing.T) *cuda.Device {
	t.Helper()
	devices, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return devices[0]
}

// someOps selects a few ops of each kind. With -short the tests run only these. CI uses -short
// together with the race detector, which makes emulation even slower.
var someOps = regexp.MustCompile(`^(add|gelu|sum|argmax|matmul|softmax|cross_entropy|gather|embedding|cast|reshape|copy|dropout)`).MatchString

// TestCUDA runs the tests of all ops on an emulated GPU.
func TestCUDA(t *testing.T) {
	d := emulated(t)
	o := Options{FirstOrder: true, Sparse: true}
	if testing.Short() {
		o.Only = someOps
	}
	if w := Run(t, d, o); o.Only == nil {
		isWalked(t, w)
	}
	if err := d.Synchronize(); err != nil {
		t.Error(err)
	}
	if s := d.Stats(); s.Allocated != 0 {
		t.Errorf("%d bytes are left in use", s.Allocated)
	}
}

func TestGoldenCUDA(t *testing.T) {
	d := emulated(t)
	files, err := filepath.Glob("testdata/*.safetensors.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		f, err := golden.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Cases {
			if testing.Short() && !someOps(c.Op) {
				continue
			}
			for _, msg := range goldenCase(d, c) {
				t.Errorf("%s %s: %s", c.Op, c.Name, msg)
			}
		}
	}
}

var special = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -2.5, 0x1p-149, -0x1p-130, 0x1p-126, 1e-20, -1e20, math.MaxFloat32, -math.MaxFloat32,
	math.Inf(1), math.Inf(-1), math.NaN(), 3, -7, 88.7, -104}

// specialIntegers are special operands for integer ops. Tests limit them to the range of the
// operands' type.
var specialIntegers = []float64{0, 1, -1, 2, -2, 3, 7, -8, 31, 32, 63, 64, 100, -128, math.MaxInt32, math.MinInt32, 1<<53 + 2, 1 << 62, math.MaxInt64, math.MinInt64}

// sameBits compares the bytes of two tensors. It treats all NaNs as equal.
func sameBits(t *testing.T, what string, a, b *tt) {
	t.Helper()
	x, y := a.Bytes(), b.Bytes()
	if a.Type() != b.Type() || len(x) != len(y) {
		t.Errorf("%s: %v and %v", what, a.Type(), b.Type())
		return
	}
	n := a.Type().Size()
	fa, fb := a.Floats(), b.Floats()
	for i := range fa {
		if string(x[i*n:i*n+n]) != string(y[i*n:i*n+n]) && (fa[i] == fa[i] || fb[i] == fb[i]) {
			t.Errorf("%s: element %d is %v on the CPU, %v on the GPU", what, i, fa[i], fb[i])
			return
		}
	}
}

// TestSameBits checks that results and gradients of elementwise ops have the same bits on every
// device.
func TestSameBits(t *testing.T) {
	gpu := emulated(t)
	for _, e := range tensor.Declared() {
		types, special := []dtype.Type{dtype.F32, dtype.F64}, special
		if e.Result == tensor.Integral {
			types, special = []dtype.Type{dtype.I32, dtype.I64, dtype.I8, dtype.U8}, specialIntegers
		}
		for _, ty := range types {
			run := func(dev device.Device, s *tensor.Scope) (out []*tt) {
				w := &walk{dev: dev}
				var in, leaves []*tt
				for k := range e.Arity {
					d := e.Domain[min(k, len(e.Domain)-1)]
					a := sample(random(e.Name, "bits"), typeOf(e, k, ty), d[0], d[1], 400)
					copy(a.v[10*k:], special)
					if k > 0 { // shift one operand, so that each special value meets all others
						for i := range special {
							copy(a.v[i*len(special):], append(append([]float64(nil), special[i:]...), special[:i]...)[:min(len(special), 400-i*len(special))])
						}
						if e.Fixed>>k&1 != 0 {
							a = a.rounded(dtype.Bool)
						}
					} else if e.Fixed&1 == 0 {
						for i := range a.v[:len(special)*len(special)] {
							a.v[i] = special[i%len(special)]
						}
					} else {
						a = a.rounded(dtype.Bool)
					}
					x := w.put(s, &a, typeOf(e, k, ty), contiguous)
					if e.Fixed>>k&1 == 0 && !e.NoGrad && e.Result != tensor.Truth && ty.IsFloat() {
						leaves = append(leaves, x.RequiresGrad())
					}
					in = append(in, x)
				}
				y := e.Apply(in, e.Params...)
				out = append(out, y)
				if len(leaves) > 0 {
					seed := sample(random(e.Name, "seed"), ty, -1, 1, 400)
					out = append(out, tensor.Gradients(y, leaves, tensor.GradOutput(w.put(s, &seed, ty, contiguous)))...)
				}
				return out
			}
			guard(t, e.Name, func(s *tensor.Scope) {
				a, b := run(hostDevice(), s), run(gpu, s)
				for i := range a {
					what := e.Name + " " + ty.String()
					if i > 0 {
						what += " gradient"
					}
					sameBits(t, what, a[i], b[i])
				}
			})
		}
	}
}

// TestSameRandomNumbers checks that the same seed gives the same numbers on every device.
func TestSameRandomNumbers(t *testing.T) {
	gpu := emulated(t)
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		run := func(dev device.Device) (out []*tt) {
			tensor.Do(func(s *tensor.Scope) {
				m := s.On(dev).Typed(ty)
				x := m.Ones(40, 25)
				v := m.Zeros(30, 20).T().Narrow(0, 3, 9)
				v.NormalInPlace(1, 2)
				for _, y := range []*tt{m.Rand(1000), m.Randn(999), m.Uniform(-3, 5, 10, 7), m.Normal(4, 0.1, 33), m.Bernoulli(0.3, 500), x.Dropout(0.4), x.T().Dropout(0.1), v,
					s.On(dev).RandInt(-5, 1<<40, 300), s.On(dev).RandPerm(50)} {
					out = append(out, y.CPU().In(s).Contiguous())
				}
				for i, y := range out {
					out[i] = tensor.FromBytes(y.Type(), y.Bytes(), y.Shape().Slice()...)
				}
			}, tensor.Seed(77))
			return out
		}
		a, b := run(hostDevice()), run(gpu)
		for i := range a {
			sameBits(t, ty.String()+" random numbers "+string(rune('0'+i)), a[i], b[i])
		}
	}
}

// TestCasts checks that casts between all types have the same bits on every device, including
// special values.
func TestCasts(t *testing.T) {
	gpu := emulated(t)
	values := append(append([]float64(nil), special...), 255, 256, -129, 65504, 65520, 1e9, -3e9, 1<<40, 0x1p62, 0x1p63, -0x1p63, 0.9999, 2.5, -0.5, 3.4e38)
	tensor.Do(func(s *tensor.Scope) {
		for _, from := range dtype.Types() {
			var x *tt
			if from.IsFloat() {
				x = s.From(values).Cast(from)
			} else {
				x = s.From([]int64{0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 32767, 40000, 65519, 65520, -70000, 1<<24 + 1, 1<<31 - 1, 1 << 31, -1 << 31, 1<<53 + 1, math.MaxInt64, math.MinInt64}).Cast(from)
			}
			y := x.To(gpu)
			for _, to := range dtype.Types() {
				sameBits(t, from.String()+" to "+to.String(), x.Cast(to), y.Cast(to))
			}
		}
		for _, c := range []struct {
			to   dtype.Type
			in   []float64
			want []float64
		}{
			{dtype.I32, []float64{2.9, -2.9, 3e9, -3e9, math.NaN(), math.Inf(1)}, []float64{2, -2, math.MaxInt32, math.MinInt32, 0, math.MaxInt32}},
			{dtype.I64, []float64{2.9, -2.9, 1e30, math.Inf(-1), math.NaN(), 0x1p53}, []float64{2, -2, math.MaxInt64, math.MinInt64, 0, 0x1p53}},
			{dtype.Bool, []float64{0, math.Copysign(0, -1), 0.1, -2, math.NaN(), math.Inf(1)}, []float64{0, 0, 1, 1, 1, 1}},
			{dtype.F16, []float64{65504, 65519, 65520, 0x1p-24, 0x1p-25, 2049}, []float64{65504, 65504, math.Inf(1), 0x1p-24, 0, 2048}},
			{dtype.BF16, []float64{257, 258, 259, 3.4e38, 1e-45, -1}, []float64{256, 258, 260, math.Inf(1), 0, -1}},
			{dtype.U8, []float64{0, 255, 7.9, 128, 1, 2}, []float64{0, 255, 7, 128, 1, 2}},
		} {
			for _, dev := range []device.Device{hostDevice(), gpu} {
				got := s.On(dev).From(c.in).Cast(c.to).Floats()
				for i, w := range c.want {
					if got[i] != w {
						t.Errorf("%v as %v on %s is %v, want %v", c.in[i], c.to, dev.Name(), got[i], w)
					}
				}
			}
		}
	})
}
