package optim_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A workCounter is a tracer that counts the work of a device.
type workCounter struct {
	dev device.Device
	mu  sync.Mutex
	ops map[string]int
}

func (c *workCounter) Wants() device.TraceWants             { return device.TraceWants{Memory: true} }
func (c *workCounter) Begin(device.Span) (id device.SpanID) { return 0 }
func (c *workCounter) End(device.SpanID)                    {}
func (c *workCounter) Recorded(uint64)                      {}
func (c *workCounter) Copy(device.CopyEvent)                {}
func (c *workCounter) Sync(device.SyncEvent)                {}
func (c *workCounter) Kernel(k device.KernelEvent)          { c.note(k.Device, k.Primitive) }

func (c *workCounter) Memory(m device.MemoryEvent) {
	if !m.Freed {
		c.note(m.Device, m.Origin.Op)
	}
}

func (c *workCounter) note(d device.Device, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d == c.dev {
		c.ops[what]++
	}
}

// rankNet returns a network with layers of several kinds, with running statistics and random
// numbers.
func rankNet() *nn.Sequential {
	return nn.NewSequential(nn.NewConv2d(1, 4, 3, nn.Padding(1)), nn.NewBatchNorm2d(4), nn.GELU{}, nn.NewMaxPool2d(2),
		nn.Flatten{}, nn.NewLinear(64, 32), nn.NewLayerNorm([]int{32}), nn.NewDropout(0.2), nn.NewLinear(32, 5))
}

// rankTraining trains the network on a device. It returns the losses, the weights and the averages.
func rankTraining(d device.Device, m *nn.Sequential) (v []float64, err error) {
	nn.To(m, d)
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			params := nn.Parameters(m)
			opt, average := optim.NewAdamW(params, optim.AdamConfig{LR: 0.01, WeightDecay: 0.01}), optim.NewEMA(m, 0.9)
			for step := range 8 {
				x, y := cnnBatch(step)
				s.Do(func(s *tensor.Scope) {
					mode := []tensor.Option{}
					if step%2 == 1 {
						mode = append(mode, tensor.Autocast(dtype.BF16))
					}
					s.Do(func(s *tensor.Scope) {
						loss := nn.CrossEntropy(m.Forward(s.From(x, 16, 1, 8, 8)), s.From(y))
						loss.Backward()
						v = append(v, loss.Item())
					}, mode...)
					v = append(v, optim.ClipGradNorm(params, 0.5).Item())
					opt.Step()
					opt.ZeroGrad()
					average.Update()
					if step == 4 { // loads a saved state, as a resumed training does
						if err := opt.LoadStateDict(opt.StateDict()); err != nil {
							panic(err)
						}
					}
				})
			}
			for _, p := range nn.Named(m) {
				if p.Tensor.Device() != d {
					panic(fmt.Sprintf("%s is on %s", p.Name, p.Tensor.Device().Name()))
				}
				v = append(v, p.Tensor.Floats()...)
			}
			for _, name := range slices.Sorted(maps.Keys(average.Averages())) {
				v = append(v, average.Averages()[name].Floats()...)
			}
		}, tensor.On(d), tensor.Seed(5))
	})
	return v, err
}

// Two ranks of the CPU train at the same time, with one worker and with three workers. Their
// results are bitwise equal to those of the CPU, and none of their work runs on the device "cpu"
// itself.
func TestTrainingOnRanks(t *testing.T) {
	tensor.ManualSeed(3)
	models := []*nn.Sequential{rankNet(), rankNet(), rankNet()}
	for _, m := range models[1:] {
		if err := nn.LoadStateDict(m, nn.StateDict(models[0])); err != nil {
			t.Fatal(err)
		}
	}
	host, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	want, err := rankTraining(host, models[2])
	if err != nil {
		t.Fatal(err)
	}
	c := &workCounter{dev: host, ops: map[string]int{}}
	var got [2][]float64
	var errs [2]error
	var wg sync.WaitGroup
	traced := device.SetTracer(c)
	for i := range got {
		d, err := device.Open(fmt.Sprintf("cpu:%d", i))
		if err != nil {
			t.Fatal(err)
		}
		d.(device.WorkerSharer).SetWorkers(1 + 2*i)
		defer d.(device.WorkerSharer).SetWorkers(0)
		wg.Go(func() { got[i], errs[i] = rankTraining(d, models[i]) })
	}
	wg.Wait()
	device.SetTracer(nil)
	for i := range got {
		if errs[i] != nil {
			t.Errorf("cpu:%d: %v", i, errs[i])
		} else if !slices.Equal(got[i], want) {
			t.Errorf("cpu:%d: the %d numbers differ: %v, want %v", i, len(want), got[i][:8], want[:8])
		}
	}
	if !traced {
		t.Error("there is another tracer")
	}
	// As in PyTorch, an optimizer's state has a CPU tensor with the number of steps for each
	// parameter. The test does not count the reads of these tensors as copies from the ranks.
	c.ops["from"] -= len(got) * len(nn.Parameters(models[0]))
	for what, n := range c.ops {
		if n == 0 {
			continue
		}
		t.Errorf("%s went to the CPU %d times", what, n)
	}
}
