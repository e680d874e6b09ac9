package cuda_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCommandOfAGPU uses most features of a GPU in one program: graphs, events, memory and its
// history, expandable segments, mixed precision, recomputation and the profiler. It runs on an
// emulated GPU, and with FLAMBEAU_TEST_GPU=1 also on a real one.
func TestCommandOfAGPU(t *testing.T) {
	t.Run("emulated", func(t *testing.T) { commandGPU(t, emulated(t, "64MiB")) })
	if os.Getenv("FLAMBEAU_TEST_GPU") == "1" {
		dev, err := cuda.Open(0)
		if err != nil || dev.Info().Emulated {
			t.Fatalf("FLAMBEAU_TEST_GPU=1, but there is no GPU: %v", err)
		}
		t.Run("hardware", func(t *testing.T) { commandGPU(t, dev) })
	}
}

func commandGPU(t *testing.T, dev *cuda.Device) {
	good := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := cuda.DeviceProperties(dev)
	good(err)
	free, total, err := cuda.MemGetInfo(dev)
	good(err)
	if free <= 0 || free > total || p.Name == "" {
		t.Errorf("%d of %d bytes are free on %q", free, total, p.Name)
	}
	if celsius, err := cuda.Temperature(dev); err == nil {
		busy, _ := cuda.Utilization(dev)
		milliwatts, _ := cuda.PowerDraw(dev)
		t.Logf("%v °C, %v %% busy, %v mW", celsius, busy, milliwatts)
	} else if !dev.Info().Emulated {
		t.Errorf("no temperature: %v", err)
	}

	good(cuda.RecordMemoryHistory(dev))
	defer func() { good(cuda.StopMemoryHistory(dev)) }()
	for _, pages := range []bool{false, true} {
		good(dev.SetExpandableSegments(pages))
		// A captured step must give the result of an eager step.
		eager, captured := newStepperOn(dev, adamW), newStepperOn(dev, adamW)
		graph, err := tensor.Capture(dev, captured.step, captured.options()...)
		good(err)
		start, err := cuda.NewEvent(dev, cuda.EnableTiming())
		good(err)
		end, err := cuda.NewEvent(dev, cuda.EnableTiming())
		good(err)
		for k := range 4 {
			eager.feed(k)
			captured.feed(k)
			tensor.Do(eager.step, eager.options()...)
			before := dev.Counters().Launches
			good(start.Record(nil))
			good(graph.Replay())
			good(end.Record(nil))
			if n := dev.Counters().Launches - before; n != 1 {
				t.Errorf("a replay made %d launches", n)
			}
			want, got := eager.numbers(), captured.numbers()
			for i := range want {
				if math.Float64bits(want[i]) != math.Float64bits(got[i]) {
					t.Fatalf("expandable %v, step %d: number %d is %v, eager %v", pages, k, i, got[i], want[i])
				}
			}
		}
		good(end.Wait())
		took, err := start.Elapsed(end)
		good(err)
		if took < 0 {
			t.Errorf("the last replay took %v", took)
		}
		graph.Close()
		cuda.EmptyCache(dev)
	}
	good(dev.SetExpandableSegments(false))

	// Mixed precision with recomputation is compared with float32.
	prof, err := profile.Start(profile.Options{CPU: true, CUDA: true})
	good(err)
	losses := map[string]float64{}
	for name, half := range map[string]dtype.Type{"float32": dtype.Invalid, "bfloat16": dtype.BF16, "float16": dtype.F16} {
		s := newStepperOn(dev, adamW)
		s.feed(0)
		scaler := amp.NewGradScaler(amp.Enabled(half == dtype.F16))
		options := s.options()
		if half != dtype.Invalid {
			options = append(options, tensor.Autocast(half))
		}
		for range 3 {
			tensor.Do(func(c *tensor.Scope) {
				y := autograd.Checkpoint(s.m.Forward, s.x.In(c))
				loss := nn.CrossEntropy(y, s.y.In(c))
				scaler.Scale(loss).Backward()
				scaler.Unscale(s.opt)
				optim.ClipGradNorm(nn.Parameters(s.m), 1)
				scaler.Step(s.opt)
				scaler.Update()
				s.opt.ZeroGrad()
				losses[name] = loss.Item()
			}, options...)
		}
	}
	good(prof.Stop())
	for name, loss := range losses {
		if d := math.Abs(loss - losses["float32"]); !(d < 0.1) {
			t.Errorf("%s: the loss is %v, %v in float32", name, loss, losses["float32"])
		}
	}
	table, err := prof.KeyAverages().Table(profile.SortBy("cuda_time_total"), profile.Rows(8))
	good(err)
	t.Logf("losses %v\n%s\n%s", losses, table, prof.Transfers().Table())
	if low := strings.ToLower(table); !strings.Contains(low, "linear") && !strings.Contains(low, "matmul") {
		t.Error("the profile names no matrix product")
	}
	snap, err := cuda.MemorySnapshot(dev)
	good(err)
	if len(snap.Events) == 0 || len(snap.Segments) == 0 {
		t.Errorf("the history has %d events, in %d segments", len(snap.Events), len(snap.Segments))
	}
	t.Log(cuda.MemorySummary(dev, true))
}
