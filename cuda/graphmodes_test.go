package cuda_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCaptureAmongModes checks that replays compute the same bits as eager steps in many settings.
// Between replays, eager steps run or the memory cache is emptied. The settings are memory in pages
// or segments, mixed precision, recomputation, a memory history and a profile.
func TestCaptureAmongModes(t *testing.T) {
	type setting struct {
		step func(s *tensor.Scope)
		opts []tensor.Option
	}
	under := func(f func(s *tensor.Scope), opts ...tensor.Option) func(s *tensor.Scope) {
		return func(s *tensor.Scope) { s.Do(f, opts...) }
	}
	for name, set := range map[string]func(p *stepper) setting{
		"history": func(p *stepper) setting {
			// A step has more events than this limit.
			p.dev.RecordMemoryHistory(device.MaxHistoryEntries(32))
			return setting{step: p.step}
		},
		"autocast around": func(p *stepper) setting { return setting{p.step, []tensor.Option{tensor.Autocast(dtype.BF16)}} },
		"autocast within": func(p *stepper) setting { return setting{step: under(p.step, tensor.Autocast(dtype.F16))} },
		// with this setting, no saved value is large enough to be moved to the CPU
		"nothing to move":  func(p *stepper) setting { return setting{p.step, []tensor.Option{autograd.SaveOnCPU(true)}} },
		"sequential parts": func(p *stepper) setting { nn.SetCheckpointing(p.m, true); return setting{step: p.step} },
		"checkpoint": func(p *stepper) setting {
			return setting{step: func(s *tensor.Scope) {
				forward := func(x ...*tensor.Tensor) *tensor.Tensor { return p.m.Forward(x[0]) }
				loss := nn.CrossEntropy(autograd.Checkpoint(forward, p.x.In(s)), p.y.In(s))
				loss.Backward()
				p.opt.Step()
				p.opt.ZeroGrad()
				s.Do(func(c *tensor.Scope) { p.loss.In(c).Copy(loss.Detach()) }, tensor.NoGrad())
			}}
		},
	} {
		for _, pages := range []bool{false, true} {
			if testing.Short() && !pages {
				continue
			}
			run := func(captured bool) (all [][]float64) {
				p := newStepper(t, 3, adamW)
				if err := p.dev.SetExpandableSegments(pages); err != nil {
					t.Fatal(err)
				}
				s := set(p)
				opts := append(p.options(), s.opts...)
				eager := func() error { return tensor.Try(func() { tensor.Do(s.step, opts...) }) }
				step := eager
				if captured {
					g, err := tensor.Capture(p.dev, s.step, opts...)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					defer func() {
						if err := g.Close(); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}()
					step = g.Replay
				}
				for k := range 4 {
					p.feed(k)
					do := step
					if k == 2 {
						do = eager
						cuda.EmptyCache(p.dev)
					}
					if err := do(); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					all = append(all, p.numbers())
				}
				if name == "history" {
					if s := p.dev.MemorySnapshot(); len(s.Events) != 32 || s.Dropped == 0 {
						t.Errorf("a history of 32 events has %d and has dropped %d", len(s.Events), s.Dropped)
					}
				}
				return all
			}
			want, got := run(false), run(true)
			for k := range want {
				if !slices.Equal(got[k], want[k]) {
					t.Errorf("%s, pages %v, step %d: replays compute %v…, eager steps %v…", name, pages, k, got[k][:3], want[k][:3])
				}
			}
		}
	}
}

// TestCaptureUnderProfile tests a profile that begins before a capture and ends between two
// replays. The profile must report the replays and must not change their results.
func TestCaptureUnderProfile(t *testing.T) {
	p := newStepper(t, 1, adamW)
	prof, err := profile.Start(profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = prof.Stop() }()
	g, err := tensor.Capture(p.dev, p.step, p.options()...)
	if err != nil {
		t.Fatal(err)
	}
	p.feed(0)
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	if err := prof.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	if p.opt.Steps() != 2 {
		t.Errorf("%d steps", p.opt.Steps())
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNoMemoryInCapture makes each request for memory in a capture fail in turn. Afterwards there
// must be no gradient and no memory in use, and a step must work.
func TestNoMemoryInCapture(t *testing.T) {
	for _, pages := range []bool{false, true} {
		for n := 1; ; n++ {
			p := newStepper(t, 0, adamW)
			if err := p.dev.SetExpandableSegments(pages); err != nil {
				t.Fatal(err)
			}
			p.feed(0)
			tensor.Do(p.step, p.options()...) // allocates the optimizer's state
			p.numbers()
			p.dev.Empty()
			before := p.dev.Stats()
			if err := p.dev.FailAlloc(n); err != nil {
				t.Fatal(err)
			}
			g, err := tensor.Capture(p.dev, p.step, p.options()...)
			if err == nil {
				if err := g.Close(); err != nil || n == 1 {
					t.Errorf("pages %v: the first request was not refused (%v)", pages, err)
				}
				break
			}
			if !errors.Is(err, device.ErrOutOfMemory) || errors.Is(err, tensor.ErrCapture) {
				t.Errorf("pages %v, request %d: %v", pages, n, err)
			}
			if !strings.Contains(err.Error(), "largest free block of the recording") {
				t.Errorf("pages %v, request %d: the error does not say whose memory there is: %v", pages, n, err)
			}
			for _, w := range nn.Parameters(p.m) {
				if w.Grad() != nil {
					t.Errorf("pages %v, request %d: a gradient is left", pages, n)
				}
			}
			p.dev.Empty()
			if now := p.dev.Stats(); now.Allocated != before.Allocated || now.Reserved > before.Reserved {
				t.Errorf("pages %v, request %d: %d bytes allocated and %d reserved, %d and %d before", pages, n, now.Allocated, now.Reserved, before.Allocated, before.Reserved)
			}
			if err := tensor.Try(func() { tensor.Do(p.step, p.options()...) }); err != nil || p.opt.Steps() != 2 {
				t.Errorf("pages %v, request %d: a step afterwards: %v, %d steps", pages, n, err, p.opt.Steps())
			}
		}
	}
}
