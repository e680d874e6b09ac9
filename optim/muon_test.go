package optim_test

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Muon follows PyTorch's trajectories, although it orthogonalises momenta in bfloat16. The emulated
// GPU makes a few of the steps.
func TestMuonEqualsTorch(t *testing.T) {
	f, err := golden.Open("testdata/muon.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range []device.Device{cpu, emulatedGPU(t, "mem=64MiB")} {
		for k, c := range f.Cases {
			for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
				steps := 8
				if dev != cpu {
					steps = 2
					if k > 0 || ty == dtype.F64 {
						continue
					}
				}
				var given, group map[string]any
				if json.Unmarshal(c.Args["given"], &given) != nil || json.Unmarshal(c.Args["group"], &group) != nil {
					t.Fatal("the arguments cannot be read")
				}
				var params []*tensor.Tensor
				for _, o := range c.In[:3] {
					params = append(params, tensor.Root().On(dev).From(o.Base.Float32s(), o.Base.Shape...).Cast(ty).RequiresGrad())
				}
				opt := optim.NewMuon(params, optim.MuonConfig{LR: given["lr"].(float64), WeightDecay: 0.1})
				for _, k := range slices.Sorted(maps.Keys(given)) {
					if k != "lr" {
						if err := opt.Groups()[0].SetOption(k, given[k]); err != nil {
							t.Fatal(err)
						}
					}
				}
				delete(group, "params")
				tree := opt.StateDict()["param_groups"].([]any)[0].(map[string]any)
				delete(tree, "params")
				compareTrees(t, "options", tree, group, 0)
				worst := 0.0
				for step := range steps {
					for i, p := range params {
						g, n := c.In[3+i].Base, p.Size()
						p.SetGrad(tensor.Root().On(dev).From(g.Float32s()[step*n : (step+1)*n]).Reshape(p.Shape().Slice()...).Cast(ty))
					}
					opt.Step()
					for i, p := range params {
						n, rate := p.Size(), given["lr"].(float64)
						for k, v := range p.Detach().Floats() {
							d := math.Abs(v-c.Out[i].F64.Float64s()[step*n+k]) / rate / float64(step+1)
							worst = max(worst, d)
							if tol := map[dtype.Type]float64{dtype.F32: 1e-4, dtype.F64: 1e-13}[ty]; d > tol {
								t.Fatalf("%s %v on %s: step %d parameter %d element %d is off by %v of the rate", c.Name, ty, dev.Name(), step, i, k, d)
							}
						}
					}
				}
				for i := range params {
					if steps < 8 {
						break // the file has only the momentum after the last step
					}
					m := opt.StateDict()["state"].(map[int64]any)[int64(i)].(map[string]any)["momentum_buffer"].(*tensor.Tensor)
					for k, v := range m.Floats() {
						if w := c.Out[3+i].F64.Float64s()[k]; !near(v, w, 1e-6) {
							t.Fatalf("%s: momentum %d element %d is %v, want %v", c.Name, i, k, v, w)
						}
					}
				}
				t.Logf("%s %v on %s: %.2g of the rate a step", c.Name, ty, dev.Name(), worst)
			}
		}
	}
}

// A step of Muon changes the matrix by a nearly orthogonal matrix. Its singular values are in the
// range to which the iterations bring them.
func TestMuonIsNearlyOrthogonal(t *testing.T) {
	g := tensor.NewGenerator(3)
	s := tensor.NewScope(tensor.WithGenerator(g))
	defer s.Close()
	for _, size := range [][]int{{24, 40}, {300, 260}} {
		p := s.Zeros(size...).RequiresGrad()
		p.SetGrad(s.Randn(size...))
		opt := optim.NewMuon([]*tensor.Tensor{p}, optim.MuonConfig{LR: 1, Iterations: 8, Adjust: "original"})
		opt.Step()
		for _, f := range p.Detach().SVDVals().Floats() {
			if f /= math.Sqrt(max(1, float64(size[0])/float64(size[1]))); f < 0.6 || f > 1.3 {
				t.Fatalf("%v: a singular value %v", size, f)
			}
		}
	}
}

// Muon accepts only matrices. Without gradients a step changes nothing.
func TestMuonRefuses(t *testing.T) {
	func() {
		defer func() {
			if _, ok := recover().(*optim.Error); !ok {
				t.Error("a vector was taken")
			}
		}()
		optim.NewMuon([]*tensor.Tensor{ones(3)}, optim.MuonConfig{LR: 1})
	}()
	p := tensor.Ones(2, 2).RequiresGrad()
	opt := optim.NewMuon([]*tensor.Tensor{p}, optim.MuonConfig{LR: 1, WeightDecay: 0.5})
	opt.Step()
	if v := p.Detach().Floats()[0]; v != 1 || opt.Steps() != 1 {
		t.Errorf("%v after %d steps", v, opt.Steps())
	}
	if err := opt.Groups()[0].SetOption("adjust_lr_fn", "somehow"); err == nil {
		t.Error("an unknown adjustment was taken")
	}
}
