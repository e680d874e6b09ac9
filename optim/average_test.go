package optim_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// recorded returns the tensor with the given name in the golden file.
func recorded(t *testing.T, f *golden.File, name string) *tensor.Tensor {
	t.Helper()
	g, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	ty := map[string]dtype.Type{"F32": dtype.F32, "F64": dtype.F64, "I64": dtype.I64}[g.DType]
	return tensor.FromBytes(ty, g.Data, g.Shape...)
}

func same(t *testing.T, what string, got, want *tensor.Tensor) {
	t.Helper()
	a, b := got.Floats(), want.Floats()
	if len(a) != len(b) || got.Type() != want.Type() {
		t.Fatalf("%s: %d elements of %v, want %d of %v", what, len(a), got.Type(), len(b), want.Type())
	}
	for i := range a {
		if !near(a[i], b[i], 1e-6) {
			t.Fatalf("%s element %d: %v want %v", what, i, a[i], b[i])
		}
	}
}

// The averages after each update, and the statistics after update_bn, equal PyTorch's, on the CPU
// and on an emulated GPU. The names are PyTorch's too.
func TestAveragesEqualTorch(t *testing.T) {
	f, err := golden.Open("testdata/average.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range []device.Device{cpu, emulatedGPU(t, "mem=64MiB")} {
		model := nn.To(nn.NewSequential(nn.NewLinear(3, 4), nn.NewBatchNorm1d(4)), dev)
		cases := map[string]*optim.Averaged{
			"ema":         optim.NewEMA(model, 0.9),
			"ema fast":    optim.NewEMA(model, 0.3),
			"ema buffers": optim.NewEMA(model, 0.6, optim.AverageBuffers()),
			"swa":         optim.NewSWA(model),
		}
		for step := range 6 {
			sd := map[string]*tensor.Tensor{}
			for _, p := range nn.Named(model) {
				sd[p.Name] = recorded(t, f, "model/"+p.Name).Select(0, step)
			}
			if err := nn.LoadStateDict(model, sd); err != nil {
				t.Fatal(err)
			}
			for name, a := range cases {
				a.Update()
				tree := a.StateDict()
				if len(tree) != len(sd)+1 {
					t.Fatalf("%d entries", len(tree))
				}
				for k, v := range tree {
					x := v.(*tensor.Tensor)
					if k != "n_averaged" && x.Device() != dev {
						t.Fatalf("%s is on %s", k, x.Device().Name())
					}
					same(t, name+"/"+k, x, recorded(t, f, name+"/"+k).Select(0, step))
				}
			}
		}
		swa := cases["swa"]
		nn.Eval(model)
		before := recorded(t, f, "model/0.weight").Select(0, 5)
		swa.With(func() {
			inputs := recorded(t, f, "inputs")
			err := optim.UpdateBN(model, func() error {
				for k := range 6 {
					tensor.Do(func(s *tensor.Scope) { model.Forward(s.From(inputs.Select(0, k).Clone()).To(dev)) }, tensor.NoGrad())
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range nn.Named(model) {
				same(t, "updated "+p.Name, p.Tensor.Detach(), recorded(t, f, "updated/module."+p.Name))
			}
		})
		same(t, "the weight after With", nn.Parameters(model)[0].Detach(), before)
		b := model.Layers[1].(*nn.BatchNorm1d)
		if b.Training() || b.Momentum != 0.1 {
			t.Errorf("after UpdateBN the layer trains %v, with momentum %v", b.Training(), b.Momentum)
		}
	}
}

// After a state is loaded into another model's averages, both averages continue equally. A state
// that does not fit changes nothing.
func TestAverageStates(t *testing.T) {
	mk := func() (*nn.Sequential, *optim.Averaged) {
		m := nn.NewSequential(nn.NewLinear(3, 4), nn.NewBatchNorm1d(4))
		return m, optim.NewEMA(m, 0.5)
	}
	m, a := mk()
	a.Update()
	n, b := mk()
	if err := nn.LoadStateDict(n, nn.StateDict(m)); err != nil {
		t.Fatal(err)
	}
	if err := b.LoadStateDict(a.StateDict()); err != nil || b.Updates() != 1 {
		t.Fatal(err, b.Updates())
	}
	for _, x := range []*nn.Sequential{m, n} {
		tensor.Do(func(s *tensor.Scope) { nn.Parameters(x)[0].In(s).Fill(7) }, tensor.NoGrad())
	}
	a.Update()
	b.Update()
	bits := func(a *optim.Averaged) (out []byte) {
		tree := a.StateDict()
		for _, p := range nn.Named(m) {
			out = append(out, tree["module."+p.Name].(*tensor.Tensor).Bytes()...)
		}
		return append(out, tree["n_averaged"].(*tensor.Tensor).Bytes()...)
	}
	if !bytes.Equal(bits(a), bits(b)) {
		t.Error("the averages part")
	}
	before := bits(a)
	for want, spoil := range map[string]func(tree map[string]any){
		`["n_averaged"] is nil`:               func(m map[string]any) { delete(m, "n_averaged") },
		`has no "module.1.bias"`:              func(m map[string]any) { delete(m, "module.1.bias") },
		`["module.1.bias"] has shape [5]`:     func(m map[string]any) { m["module.1.bias"] = tensor.Ones(5) },
		`["module.1.bias"] is 3`:              func(m map[string]any) { m["module.1.bias"] = 3.0 },
		`["other"] is nothing that the model`: func(m map[string]any) { m["other"] = tensor.Ones(5) },
	} {
		tree := maps.Clone(b.StateDict())
		spoil(tree)
		var typed *optim.StateError
		if err := a.LoadStateDict(tree); !errors.As(err, &typed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if !bytes.Equal(before, bits(a)) {
			t.Fatalf("%s: the averages have changed", want)
		}
	}
	func() {
		defer func() {
			if _, ok := recover().(*optim.Error); !ok {
				t.Error("a decay of 2 was taken")
			}
		}()
		optim.NewEMA(m, 2)
	}()
	wrong := errors.New("no data")
	if err := optim.UpdateBN(m, func() error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
}

// masked is a model with a buffer that is not part of its state dict.
type masked struct {
	nn.Base
	FC   *nn.Linear
	Mask *tensor.Tensor `nn:"mask,transient"`
}

// Averages can be loaded into another model. They do not contain transient buffers.
func TestAveragesLoad(t *testing.T) {
	mk := func() *masked { return &masked{FC: nn.NewLinear(2, 3), Mask: tensor.Ones(3)} }
	a, b := mk(), mk()
	initial.Constant(a.FC.Weight, 7)
	for _, opts := range [][]optim.AverageOption{nil, {optim.AverageBuffers()}} {
		ema := optim.NewEMA(a, 0.5, opts...)
		ema.Update()
		if err := nn.LoadStateDict(b, ema.Averages()); err != nil {
			t.Fatal(err)
		}
		if got := b.FC.Weight.Detach().Floats(); got[0] != 7 || len(ema.Averages()) != len(nn.StateDict(a)) {
			t.Errorf("%v, %d names", got, len(ema.Averages()))
		}
	}
}

func TestAverageLaunches(t *testing.T) {
	gpu := emulatedGPU(t, "mem=64MiB")
	m := nn.To(nn.NewSequential(nn.NewLinear(3, 4), nn.NewLinear(4, 5), nn.NewLinear(5, 6)), gpu)
	a := optim.NewEMA(m, 0.9)
	a.Update()
	before := gpu.Counters().Launches
	a.Update()
	if n := gpu.Counters().Launches - before; n != 1 {
		t.Errorf("%d launches", n)
	}
}

// In a function that With calls, all methods of the average except Updates panic.
func TestAveragesWithinWith(t *testing.T) {
	a := optim.NewEMA(nn.NewLinear(2, 1), 0.9)
	tree := a.StateDict()
	a.With(func() {
		for name, f := range map[string]func(){"Update": a.Update, "With": func() { a.With(func() {}) }, "StateDict": func() { a.StateDict() },
			"Averages": func() { a.Averages() }, "LoadStateDict": func() { a.LoadStateDict(tree) }} {
			func() {
				defer func() {
					if e, ok := recover().(*optim.Error); !ok || !strings.Contains(e.Msg, name+" within With") {
						t.Errorf("%s: %v", name, e)
					}
				}()
				f()
			}()
		}
	})
	a.Update()
	if a.Updates() != 1 {
		t.Error("not usable after With")
	}
	func() {
		defer func() {
			if e, ok := recover().(*optim.Error); !ok || !strings.Contains(e.Msg, "no function") {
				t.Errorf("UpdateBN: %v", e)
			}
		}()
		optim.UpdateBN(nn.NewBatchNorm1d(2), nil)
	}()
}
