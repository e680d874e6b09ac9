package nn_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Training with each kind of normalised weight equals PyTorch's within 1e-12, in the losses, the
// parameters, and the vectors u and v of the power method. The parameters have PyTorch's names.
func TestReparametrizedTrainingEqualsTorch(t *testing.T) {
	f, err := golden.Open("testdata/reparam.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) *tensor.Tensor {
		g, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		return tensor.From(g.Float64s(), g.Shape...)
	}
	var names []string
	var lr float64
	if json.Unmarshal([]byte(f.Meta["names"]), &names) != nil || json.Unmarshal([]byte(f.Meta["lr"]), &lr) != nil {
		t.Fatal("the file lacks names or learning rate")
	}
	f64 := nn.Typed(dtype.F64)
	conv := nn.NewSpectralNorm(nn.NewConv2d(2, 3, 3, nn.Padding(1), f64))
	m := nn.NewSequential(conv, nn.Tanh{},
		nn.NewSpectralNorm(nn.NewConvTranspose2d(3, 4, 2, nn.Stride(2), f64)), nn.Flatten{},
		nn.NewWeightNorm(nn.NewLinear(64, 5, f64), 0), nn.NewWeightNorm(nn.NewLinear(5, 3, nn.NoBias(), f64), 1),
		nn.NewSpectralNorm(nn.NewLinear(3, 2, f64)), nn.NewWeightNorm(nn.NewLinear(2, 2, f64), -1))
	sd := map[string]*tensor.Tensor{}
	for _, name := range names {
		sd[name] = read("first." + name)
	}
	if err := nn.LoadStateDict(m, sd); err != nil {
		t.Fatal(err)
	}
	x, y, losses := read("x"), read("y"), read("losses").Floats()
	for i, want := range losses {
		if i == len(losses)-1 {
			nn.Eval(m)
		}
		tensor.Do(func(s *tensor.Scope) {
			loss := nn.MSE(m.Forward(x.In(s)), y)
			if got := loss.Item(); !(math.Abs(got-want) <= 1e-12) {
				t.Errorf("loss %d: %v, PyTorch's %v", i, got, want)
			}
			if m.Training() {
				nn.ZeroGrad(m)
				loss.Backward()
				for _, p := range nn.Parameters(m) {
					p.Detach().SubInPlace(p.Grad().MulScalar(lr))
				}
			}
		})
	}
	got := nn.StateDict(m)
	for _, name := range names {
		if !got[name].AllClose(read("last."+name), 0, 1e-12) {
			t.Errorf("%s after the training", name)
		}
	}
	if !conv.Weight(tensor.Root()).AllClose(read("weight"), 0, 1e-12) {
		t.Error("the weight after the training")
	}
}

func TestReparametrizedLayers(t *testing.T) {
	x := tensor.Root().Randn(5, 4)
	w := nn.NewLinear(4, 3)
	before := w.Forward(x)
	n := nn.NewWeightNorm(w, 0)
	if w.Weight != nil || !n.Forward(x).AllClose(before, 1e-5, 1e-6) {
		t.Error("a layer with its weight in two parts computes what it did")
	}
	var names []string
	for _, p := range nn.Named(n) {
		names = append(names, p.Name+" "+p.Tensor.Shape().String())
	}
	if want := []string{"bias [3]", "parametrizations.weight.original0 [3, 1]", "parametrizations.weight.original1 [3, 4]"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	n.G.Detach().Fill(2)
	c := nn.Clone(n)
	if l := n.Remove(); l != w || !l.Weight.NeedsGrad() || !l.Weight.IsLeaf() || !l.Weight.Norm(2, 1).AllClose(tensor.Full(2, 3), 1e-5, 0) || !l.Forward(x).AllClose(c.Forward(x), 0, 0) {
		t.Error("the layer without the wrapper has the last weight")
	}

	s := nn.NewSpectralNorm(nn.NewLinear(4, 3))
	for range 50 {
		s.Forward(x)
	}
	if top, _ := s.Weight(tensor.Root()).SVDVals().Max(0); math.Abs(top.Item()-1) > 1e-4 {
		t.Errorf("the largest singular value is %v", top.Item())
	}
	u := s.U.Clone()
	y, z := s.Forward(x), s.Forward(x.MulScalar(2)) // each call changes u and v
	y.Add(z).Sum().Backward()
	if s.U.AllClose(u, 0, 0) && s.Original.Grad() == nil {
		t.Error("training improves u, and two calls before Backward are well")
	}
	// Recomputing a call for Backward makes no further step of the power method.
	tensor.Do(func(sc *tensor.Scope) {
		x := x.In(sc).Clone().RequiresGrad()
		y := autograd.Checkpoint(s.Forward, x)
		u = s.U.Clone()
		y.Sum().Backward()
	})
	if !s.U.AllClose(u, 0, 0) {
		t.Error("a call that is computed again makes no step of the power method")
	}
	nn.Eval(s)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			tensor.Do(func(sc *tensor.Scope) { s.Forward(x.In(sc)) }, tensor.NoGrad())
		})
	}
	wg.Wait()
	if !s.U.AllClose(u, 0, 0) {
		t.Error("evaluation leaves u as it is")
	}
	one := nn.NewSpectralNorm(nn.NewLayerNorm([]int{4}))
	if math.Abs(one.Weight(tensor.Root()).Norm(2).Item()-1) > 1e-6 || one.Forward(x) == nil || len(nn.Buffers(one)) != 0 {
		t.Error("a weight of one dimension has a norm of 1")
	}
	nn.Parameters(&struct {
		D *nn.SpectralNorm[*nn.LayerNorm]
	}{one})
	if got, want := layerIn(t, func() { one.Forward(tensor.Ones(2, 3)) }), "d (nn.SpectralNorm)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for want, f := range map[string]func(){
		"*nn.Tanh has no parameter called \"weight\"": func() { nn.NewSpectralNorm(&nn.Tanh{}) },
		"*nn.Sequential has no parameter called":      func() { nn.NewWeightNorm(nn.NewSequential(nn.NewLinear(1, 1)), 0) },
		"shape [3, 4] has no dimension 2":             func() { nn.NewWeightNorm(nn.NewLinear(4, 3), 2) },
	} {
		func() {
			defer func() {
				if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), want) {
					t.Errorf("got %v, want %q", e, want)
				}
			}()
			f()
		}()
	}
}

// Training steps of layers with WeightNorm and SpectralNorm can be captured. Each replay makes a
// step of the optimizer and a step of the power method.
func TestReparametrizedLayersInACapture(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	m := nn.To(nn.NewSequential(nn.NewWeightNorm(nn.NewLinear(4, 4), 0), nn.NewSpectralNorm(nn.NewLinear(4, 4))), device.Device(gpus[0]))
	x := tensor.Root().On(gpus[0]).Randn(2, 4)
	step := func(m *nn.Sequential) func(s *tensor.Scope) {
		opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1})
		return func(s *tensor.Scope) {
			m.Forward(x.In(s)).Square().Sum().Backward()
			opt.Step()
			opt.ZeroGrad()
		}
	}
	copied := nn.Clone(m)
	eager, captured := step(copied), step(m)
	for range 3 {
		tensor.Do(eager)
	}
	tensor.Do(captured)
	g, err := tensor.Capture(gpus[0], captured)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for range 2 {
		if err := g.Replay(); err != nil {
			t.Fatal(err)
		}
	}
	want := nn.StateDict(copied)
	for name, got := range nn.StateDict(m) {
		if !got.AllClose(want[name], 0, 0) {
			t.Errorf("%s: %v, want %v", name, got, want[name])
		}
	}
}
