package models_test

import (
	"encoding/json"
	"fmt"
	"maps"
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

func openVision(t *testing.T) *golden.File {
	t.Helper()
	f, err := golden.Open("testdata/vision.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// visionValue returns the values of the tensor with the given name. i is the index of the name in
// the sorted names. The script _golden/vision_models.py computes the same values.
func visionValue(s *tensor.Scope, i int, name string, t *tt) *tt {
	if strings.HasSuffix(name, "num_batches_tracked") {
		return s.From([]int64{3}).Reshape()
	}
	norm := strings.Contains(name, "bn") || strings.Contains(name, "ln") || strings.Contains(name, "downsample.1")
	scale, add := 0.125, 0.0
	switch {
	case strings.HasSuffix(name, "running_var"):
		scale, add = 0.5, 1
	case norm && strings.HasSuffix(name, "weight"):
		scale, add = 0.25, 1
	case t.Rank() < 2 || strings.HasSuffix(name, "running_mean"):
	case strings.Contains(name, "token") || strings.Contains(name, "embedding"):
		scale = 0.5
	default:
		scale = math.Sqrt(3 / float64(t.Size()/t.Dim(0)))
	}
	return s.From(uniform(i+1, t.Size(), scale)).Reshape(t.Shape().Slice()...).AddScalar(add)
}

// fillVision loads the weights of the golden file into a model, through its state dict.
func fillVision(t *testing.T, s *tensor.Scope, m any) {
	t.Helper()
	state := nn.StateDict(m)
	sd := map[string]*tt{}
	for i, name := range slices.Sorted(maps.Keys(state)) {
		sd[name] = visionValue(s, i, name, state[name])
	}
	if err := nn.LoadStateDict(m, sd); err != nil {
		t.Fatal(err)
	}
}

// Logits in evaluation and in training, gradients, and running statistics equal those of
// torchvision's networks.
func TestVisionEqualsTorchvision(t *testing.T) {
	f := openVision(t)
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make      func(opts ...nn.Option) nn.Module
		images    []int
		labels    []int64
		tolerance float64 // tolerance in float32, relative to the greatest number
		gpu       bool
	}{
		"basic": {func(opts ...nn.Option) nn.Module {
			return models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 2, 1, 1}, Width: 8, Classes: 7, Channels: 1}, opts...)
		}, []int{4, 1, 48, 40}, []int64{3, 0, 6, 2}, 2e-5, false},
		"bottleneck": {func(opts ...nn.Option) nn.Module {
			return models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 2, 1}, Width: 4, Classes: 5, Bottleneck: true}, opts...)
		}, []int{4, 3, 48, 48}, []int64{3, 0, 4, 2}, 2e-5, false},
		"vit": {func(opts ...nn.Option) nn.Module {
			return models.NewViT(models.ViTConfig{Image: 32, Patch: 8, Layers: 2, Heads: 4, Width: 32, Hidden: 48, Classes: 5}, opts...)
		}, []int{3, 3, 32, 32}, []int64{3, 0, 4}, 1e-5, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, on := range []struct {
				dev device.Device
				ty  dtype.Type
			}{{cpu, dtype.F32}, {cpu, dtype.F64}, {gpus[0], dtype.F32}} {
				if on.dev != cpu && !c.gpu {
					continue
				}
				where := fmt.Sprintf("%v on %s", on.ty, on.dev.Name())
				checked, worst := 0, 0.0
				near := func(what string, y *tt) {
					t.Helper()
					want := tensorOf(t, f, name+"/"+what+"/f64")
					tolerance := c.tolerance
					if on.ty == dtype.F64 {
						tolerance = 1e-11
					}
					got, w := y.Floats(), want.Float64s()
					if len(got) != len(w) || !slices.Equal(want.Shape, y.Shape().Slice()) && len(want.Shape) > 0 {
						t.Errorf("%s, %s: shape %v, want %v", where, what, y.Shape(), want.Shape)
						return
					}
					top, off := 0.0, 0.0
					for i := range w {
						top = max(top, math.Abs(w[i]))
						if off = max(off, math.Abs(got[i]-w[i])); math.IsNaN(got[i]) {
							off = math.Inf(1)
						}
					}
					if checked++; off > tolerance*top || top == 0 {
						t.Errorf("%s, %s: off by %.3g of %.3g", where, what, off, top)
					}
					worst = max(worst, off/top)
				}
				tensor.Do(func(s *tensor.Scope) {
					m := c.make(nn.In(s), nn.Typed(on.ty))
					fillVision(t, s, m)
					size := 1
					for _, n := range c.images {
						size *= n
					}
					x := s.From(uniform(500, size, 1)).Reshape(c.images...).Cast(on.ty)
					near("eval", nn.Eval(m).Forward(x))
					logits := nn.Train(m).Forward(x)
					loss := nn.CrossEntropy(logits, s.From(c.labels))
					loss.Backward()
					near("train", logits)
					near("loss", loss)
					for _, p := range nn.Named(m) {
						switch has := func(kind string) bool {
							_, err := f.Tensor(name + "/" + kind + " " + p.Name + "/f64")
							return err == nil
						}; {
						case has("grad"):
							near("grad "+p.Name, p.Tensor.Grad())
						case has("buffer"):
							near("buffer "+p.Name, p.Tensor)
						}
					}
				}, tensor.On(on.dev))
				if checked < 12 {
					t.Errorf("%s: only %d tensors were compared", where, checked)
				}
				t.Logf("%s: worst %.2g", where, worst)
			}
		})
	}
}

func tensorOf(t *testing.T, f *golden.File, name string) golden.Tensor {
	t.Helper()
	x, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// All names and shapes in the state dicts are torchvision's. The models are made on a GPU that
// stores no values.
func TestVisionNames(t *testing.T) {
	var want map[string]map[string][]int
	if err := json.Unmarshal([]byte(openVision(t).Meta["names"]), &want); err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=4GiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		for name, m := range map[string]any{
			"resnet18": models.ResNet18(1000, 3, nn.In(s)), "resnet34": models.ResNet34(1000, 3, nn.In(s)), "resnet50": models.ResNet50(1000, 3, nn.In(s)),
			"vit_b_16": models.NewViT(models.ViTB16(), nn.In(s)), "mlp": models.NewMLP([]int{4, 5, 3}, 0.1, nn.In(s)),
		} {
			sd := nn.StateDict(m)
			if len(sd) != len(want[name]) {
				t.Errorf("%s: %d tensors, want %d", name, len(sd), len(want[name]))
			}
			for key, shape := range want[name] {
				if x := sd[key]; x == nil || !slices.Equal(x.Shape().Slice(), shape) && x.Rank()+len(shape) > 0 {
					t.Errorf("%s: %s is %v, want %v", name, key, x, shape)
				}
			}
		}
	}, tensor.On(gpus[0]))
}
