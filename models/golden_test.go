package models_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

type tt = tensor.Tensor

// mix hashes i with a seed. It uses MurmurHash3's finalizer, as _golden/language.py does.
func mix(seed, i int) uint32 {
	x := uint32(i) + uint32(seed)*0x9E3779B1
	x = (x ^ x>>16) * 0x85EBCA6B
	x = (x ^ x>>13) * 0xC2B2AE35
	return x ^ x>>16
}

// uniform returns n numbers, uniform in [-scale, scale), that are computed from hashes.
func uniform(seed, n int, scale float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32((float64(mix(seed, i))/(1<<31) - 1) * scale)
	}
	return out
}

// named returns a model's parameters by their names in the golden file. Such a name is prefix
// followed by the model's own name.
func named(m any, prefix string) (names []string, params map[string]*tt) {
	params = map[string]*tt{}
	for _, p := range nn.Named(m) {
		names = append(names, prefix+p.Name)
		params[prefix+p.Name] = p.Tensor
	}
	slices.Sort(names)
	return names, params
}

// fill sets the parameters to numbers that are computed from hashes. The weights of norms are near
// 1.
func fill(m any, prefix string, scale float64) {
	names, params := named(m, prefix)
	for i, n := range names {
		p := params[n]
		p.Scope().Do(func(s *tensor.Scope) {
			v := s.From(uniform(i+1, p.Size(), scale)).Reshape(p.Shape().Slice()...)
			if strings.Contains(n, "LayerNorm.weight") || strings.Contains(n, "ln_") && strings.HasSuffix(n, "weight") {
				v = v.AddScalar(1)
			}
			p.In(s).Copy(v)
		}, tensor.NoGrad())
	}
}

// digest returns what the golden file contains of g, the gradient of parameter i. For a vector this
// is g itself. For a matrix it is the weighted sums of the rows and of the columns.
func digest(i int, g *tt) []float64 {
	v := g.Floats()
	if g.Rank() == 1 {
		return v
	}
	r, c := g.Dim(0), g.Dim(1)
	rows, columns := uniform(1000+i, r, 1), uniform(2000+i, c, 1)
	out := make([]float64, c+r)
	for a := range r {
		for b := range c {
			out[b] += float64(rows[a]) * v[a*c+b]
			out[c+a] += v[a*c+b] * float64(columns[b])
		}
	}
	return out
}

func open(t *testing.T) *golden.File {
	t.Helper()
	f, err := golden.Open("testdata/language.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func stored(t *testing.T, f *golden.File, name string) golden.Tensor {
	t.Helper()
	x, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func tokens(t *testing.T, s *tensor.Scope, f *golden.File, name string) *tt {
	x := stored(t, f, name)
	return s.From(x.Int64s()).Reshape(x.Shape...)
}

// checkNear compares numbers with PyTorch's float64 results. The limit is the tolerance times the
// greatest number. In float32 it is at least ten times the error of PyTorch's float32 results.
// checkNear returns the largest error divided by the greatest number.
func (r goldenRun) checkNear(what string, got []float64, name string) float64 {
	t, where := r.t, r.name+" "+r.ty.String()+" on "+r.dev.Name()+": "+what
	t.Helper()
	w, w32 := stored(t, r.f, r.name+"/"+name+"/f64").Float64s(), stored(t, r.f, r.name+"/"+name+"/f32").Float64s()
	if len(got) != len(w) || len(w) == 0 {
		t.Errorf("%s: %d numbers, want %d", where, len(got), len(w))
		return 0
	}
	top, worst, torch := 0.0, 0.0, 0.0
	for i := range w {
		torch = max(torch, math.Abs(w32[i]-w[i]))
		top, worst = max(top, math.Abs(w[i])), max(worst, math.Abs(got[i]-w[i]))
		if math.IsNaN(got[i]) {
			worst = math.Inf(1)
		}
	}
	if r.ty == dtype.F64 {
		torch = 0
	}
	if worst > max(r.tolerance()*top, 10*torch) {
		t.Errorf("%s: off by %.3g of %.3g, PyTorch's float32 by %.3g", where, worst, top, torch)
	}
	return worst / top
}

// A goldenRun is a model on one device, in one element type.
type goldenRun struct {
	t    *testing.T
	f    *golden.File
	dev  device.Device
	ty   dtype.Type
	name string // name of the model in the golden file
}

// tolerance returns the tolerance relative to the greatest element of a tensor. It allows for the
// rounding errors of about thirty consecutive sums.
func (r goldenRun) tolerance() float64 {
	if r.ty == dtype.F64 {
		return 1e-12
	}
	return 1e-5
}

// check compares results, loss and gradients with the golden file. In the file, the parameters'
// names begin with prefix.
func (r goldenRun) check(m any, prefix string, loss *tt, results map[string]*tt) {
	r.t.Helper()
	loss.Backward()
	where := r.name + " " + r.ty.String() + " on " + r.dev.Name() + ": "
	worst := r.checkNear("loss", loss.Floats(), "loss")
	for key, y := range results {
		if y.Type() != r.ty {
			r.t.Errorf("%s%s is %v", where, key, y.Type())
		}
		worst = max(worst, r.checkNear(key, y.Floats(), key))
	}
	names, params := named(m, prefix)
	for i, n := range names {
		g := params[n].Grad()
		switch {
		case g == nil:
			r.t.Errorf("%s%s has no gradient", where, n)
		// The softmax does not depend on the bias of the keys. So the gradient of this bias
		// consists of rounding errors.
		case strings.HasSuffix(n, "key.bias"):
			for _, v := range digest(i, g) {
				if !(math.Abs(v) < r.tolerance()) {
					r.t.Errorf("%s%s has the gradient %v, not 0", where, n, v)
				}
			}
		default:
			worst = max(worst, r.checkNear("gradient of "+n, digest(i, g), "grad/"+n))
		}
	}
	r.t.Logf("%sworst %.2g", where, worst)
}

// everywhere calls f for the CPU in float32 and float64, and for an emulated GPU in float32.
func everywhere(t *testing.T, name string, f func(r goldenRun, s *tensor.Scope)) {
	file := open(t)
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []goldenRun{{t, file, cpu, dtype.F32, name}, {t, file, cpu, dtype.F64, name}, {t, file, gpus[0], dtype.F32, name}} {
		tensor.Do(func(s *tensor.Scope) { f(r, s) }, tensor.On(r.dev))
	}
}

func smallGPT(vocab int) models.GPTConfig {
	return models.GPTConfig{Vocab: vocab, Context: 16, Layers: 2, Heads: 4, Width: 32}
}

// Logits, loss and gradients equal those of GPT2LMHeadModel in Hugging Face's transformers.
func TestGPTEqualsTransformers(t *testing.T) {
	everywhere(t, "gpt", func(r goldenRun, s *tensor.Scope) {
		m := models.NewGPT(smallGPT(67), nn.In(s), nn.Typed(r.ty))
		fill(m, "transformer.", 0.125)
		ids := tokens(t, s, r.f, "gpt/ids")
		n := ids.Dim(1)
		loss := m.Loss(ids.Narrow(1, 0, n-1), ids.Narrow(1, 1, n-1))
		r.check(m, "transformer.", loss, map[string]*tt{"logits": m.Forward(ids)})
	})
}
