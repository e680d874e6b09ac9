package cuda

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// vectors is a dataset of vectors with their classes.
type vectors int

func (n vectors) Len() int { return int(n) }

func (n vectors) Get(i int) (data.Sample, error) {
	return data.Sample{X: tensor.Full(float64(i)/10, 16), Y: int64(i % 4)}, nil
}

// TestEveryTransferIsTold runs a training loop with all usual copies. The report must contain every
// copy between host and device, with its op, the line of the program and the number of bytes.
func TestEveryTransferIsTold(t *testing.T) {
	devs, err := Emulate("emulate,mem=64MiB")
	must(t, err)
	dev := devs[0]
	m := nn.To(nn.NewSequential(nn.NewLinear(16, 32), &nn.ReLU{}, nn.NewDropout(0.1), nn.NewLinear(32, 4)), dev)
	params := nn.Parameters(m)
	opt := optim.NewAdamW(params, optim.AdamConfig{LR: 0.01})
	rate := sched.NewStep(opt, 1, 0.5)
	scaler := amp.NewGradScaler(amp.InitScale(8))
	loader, err := data.NewLoader(vectors(12), data.Config{Batch: 4, Device: dev, Pin: true})
	must(t, err)
	store, err := checkpoint.Open(checkpoint.Config{Dir: t.TempDir()})
	must(t, err)
	file := filepath.Join(t.TempDir(), "model.safetensors")
	before, _ := emu.Stats(dev.api)
	p, err := profile.Start(profile.Options{})
	must(t, err)
	for batch, err := range loader.Batches() {
		must(t, err)
		tensor.Do(func(s *tensor.Scope) {
			loss := nn.CrossEntropy(m.Forward(s.From(batch.X)), s.From(batch.Y))
			scaler.Scale(loss).Backward()
			scaler.Unscale(opt)
			norm := optim.ClipGradNorm(params, 1)
			optim.ClipGradValue(params, 0.5)
			scaler.Step(opt)
			scaler.Update()
			opt.ZeroGrad()
			rate.Step()
			_ = loss.Item() + norm.Item()
		}, tensor.On(dev), tensor.Autocast(dtype.F16))
	}
	_ = scaler.Value()
	tensor.Do(func(s *tensor.Scope) { // this scope evaluates the model on the validation data
		nn.Eval(m)
		x := s.From([][]float32{make([]float32, 16), make([]float32, 16)})
		y := m.Forward(x).Softmax(-1)
		_ = fmt.Sprint(y)
		_ = y.Argmax(-1).CPU()
		_ = tensor.Data[float32](y)
		_ = s.Full(2, 3).AddScalar(1).Sum().Item()
		y.Fill(3)
		_ = y.Sub(y.Mean()).Square().Sum().Item()
	}, tensor.On(dev), tensor.NoGrad())
	tensor.Do(func(s *tensor.Scope) { // this scope saves values for Backward on the CPU
		x := s.Randn(64, 64).RequiresGrad()
		x.Square().Exp().Sum().Backward()
	}, tensor.On(dev), autograd.SaveOnCPU(true))
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(64, 64).RequiresGrad()
		x.Square().Exp().Sum().Backward()
	}, tensor.On(dev), autograd.SaveOnCPU(false))
	tree, err := checkpoint.Capture(checkpoint.Parts{"model": m, "opt": opt, "scaler": scaler})
	must(t, err)
	must(t, store.Save(tree, checkpoint.Info{Step: 1}))
	must(t, store.Close())
	must(t, safetensors.Save(file, nn.StateDict(m), nil))
	weights, _, err := safetensors.Load(file)
	must(t, err)
	must(t, nn.LoadStateDict(m, weights))
	must(t, dev.Synchronize())
	must(t, p.Stop())
	after, _ := emu.Stats(dev.api)
	report := p.Transfers()
	type kind struct {
		op, what        string
		pinned, blocked bool
	}
	missing := map[kind]bool{
		{"to", "HtoD", true, false}: true, {"item", "DtoH", false, true}: true, {"string", "DtoH", false, true}: true, {"data", "DtoH", false, true}: true,
		{"to", "DtoH", false, true}: true, {"bytes", "DtoH", false, true}: true, {"optim.ClipGradNorm", "HtoD", false, true}: true,
		{"tensor.Scope.From", "HtoD", false, true}: true, {"safetensors.Save", "DtoH", false, true}: true, {"amp.GradScaler.Step", "event wait", false, true}: true,
		{"exp", "DtoH", true, false}: true, {"ExpBackward", "HtoD", true, false}: true, {"exp", "DtoH", false, true}: true,
		{"ExpBackward", "HtoD", false, true}: true, {"cuda.Device.Synchronize", "device synchronize", false, true}: true,
	}
	sum, count := map[string]int{}, map[string]int{}
	for _, r := range report.Rows {
		sum[r.What] += r.Bytes
		count[r.What] += r.Count
		delete(missing, kind{r.Op, r.What, r.Pinned, r.Blocked})
		if r.Op == "" || !strings.HasPrefix(r.Site, "cuda/transfers_test.go:") || r.Device != "cuda:0" || r.Count == 0 || r.Host <= 0 {
			t.Errorf("%+v", r)
		}
	}
	for k := range missing {
		t.Errorf("not in the report: %+v", k)
	}
	for what, moved := range map[string][2]emu.Traffic{"HtoD": {before.HtoD, after.HtoD}, "DtoH": {before.DtoH, after.DtoH}} {
		bytes, n := int(moved[1].Bytes-moved[0].Bytes), int(moved[1].Count-moved[0].Count)
		if sum[what] != bytes || count[what] != n || bytes == 0 {
			t.Errorf("%s: the report has %d bytes in %d copies, the driver was asked for %d in %d", what, sum[what], count[what], bytes, n)
		}
	}
}
