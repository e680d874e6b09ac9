package cuda

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// rankWork summarises the work of a device during training steps, according to the emulator's
// timeline.
type rankWork struct {
	compute, links time.Duration // total time of kernels, and total time of copies between devices
	first, end     time.Duration
}

// trainedSteps trains a deep perceptron on two GPUs with the given times for a kernel and for a
// copy between the GPUs. It returns the work of device 0, without the first steps.
func trainedSteps(t *testing.T, kernel, link time.Duration, layers, steps int) rankWork {
	t.Helper()
	var mu sync.Mutex
	var w rankWork
	streams := map[cu.Stream]bool{} // streams on which kernels run
	on := false
	cfg := emu.Config{Devices: 2, Memory: 32 << 20}
	cfg.Cost.Launch, cfg.Cost.Copy = time.Nanosecond, time.Nanosecond
	cfg.Latency = func(op emu.Op) time.Duration {
		switch {
		case op.Kind == emu.KindKernel && streams[op.Stream]:
			return kernel
		case op.Kind == emu.KindCopyPeer:
			return link
		}
		return 0
	}
	cfg.Timeline = func(op emu.Op, start, end time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if !on || op.Device != 0 || start == end {
			return
		}
		if w.first == 0 {
			w.first = start
		}
		w.end = max(w.end, end)
		switch {
		case op.Kind == emu.KindKernel && streams[op.Stream]:
			w.compute += end - start
		case op.Kind == emu.KindCopyPeer:
			w.links += end - start
		}
	}
	api, err := emu.New(cfg)
	must(t, err)
	p, err := newPlatform(api)
	must(t, err)
	var gpus []device.Device
	for i := range 2 {
		d, err := p.open(i)
		must(t, err)
		gpus = append(gpus, d)
		streams[d.DefaultStream().(*stream).handle] = true
	}
	err = dist.Run(context.Background(), dist.On(gpus...), func(_ context.Context, g *dist.Group) error {
		m := dist.Make(g, func() *nn.Sequential {
			var list []nn.Module
			for range layers {
				list = append(list, nn.NewLinear(32, 32, nn.NoBias()))
			}
			return nn.NewSequential(list...)
		})
		dist.DDP(nn.To(m, g.Device()), g, dist.BucketBytes(32*32*4, 32*32*4))
		opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.01})
		for step := range 2 + steps {
			if step == 2 {
				g.Barrier()
				mu.Lock()
				on = true
				mu.Unlock()
				g.Barrier()
			}
			g.Do(func(s *tensor.Scope) {
				m.Forward(s.Ones(4, 32)).Mean().Backward()
				opt.Step()
				opt.ZeroGrad()
			})
		}
		g.Barrier()
		return nil
	}, dist.InProcess())
	must(t, err)
	return w
}

// TestOverlap checks that gradients are exchanged while Backward continues. A step must take as
// long as its computation or its communication, whichever is longer, plus the exchange of the last
// bucket.
func TestOverlap(t *testing.T) {
	const steps = 4
	for _, c := range []struct {
		name         string
		kernel, link time.Duration
		layers       int
	}{
		{"computation takes longer", 100 * time.Microsecond, 60 * time.Microsecond, 8},
		{"the link takes as long as the backward pass", 100 * time.Microsecond, 140 * time.Microsecond, 8},
		{"the link takes longer", 20 * time.Microsecond, 400 * time.Microsecond, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := trainedSteps(t, c.kernel, c.link, c.layers, steps)
			// The exchange of the last bucket takes two copies: one for its parts, and one for its
			// results.
			took, last := (w.end-w.first)/steps, 2*c.link
			longer := max(w.compute, w.links) / steps
			t.Logf("a step takes %v: %v of kernels, %v of copies, the last bucket %v", took, w.compute/steps, w.links/steps, last)
			if limit := longer + longer/10 + last; took > limit {
				t.Errorf("a step takes %v, more than %v", took, limit)
			}
			if serial := (w.compute + w.links) / steps; took > serial-(serial-longer)/2 {
				t.Errorf("a step takes %v of %v: nothing overlaps", took, serial)
			}
		})
	}
}
