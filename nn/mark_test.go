package nn_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// head is a user's layer whose Forward begins with Enter.
type head struct {
	nn.Base
	Fc1, Fc2 *nn.Linear
}

func (h *head) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer h.Enter(&x, &y)()
	return h.Fc2.Forward(h.Fc1.Forward(x).Relu()).Add(x.Select(1, 0))
}

type net struct {
	Embed  *nn.Embedding
	Body   *nn.TransformerEncoder
	Heads  []*head
	Act    nn.ReLU
	Extras *nn.Sequential
}

func newNet() *net {
	return &net{Embed: nn.NewEmbedding(5, 8), Body: nn.NewTransformerEncoder(8, 2, 2, nn.TransformerOptions{FeedForward: 16}),
		Heads:  []*head{{Fc1: nn.NewLinear(8, 4), Fc2: nn.NewLinear(4, 2)}, {Fc1: nn.NewLinear(8, 4), Fc2: nn.NewLinear(3, 2)}},
		Extras: nn.NewSequential(nn.NewLinear(8, 8), nn.ReLU{}, nn.NewSequential(nn.NewDropout(0.5), nn.NewLinear(7, 8)))}
}

func layerOf(t *testing.T, f func()) string {
	t.Helper()
	var e *tensor.Error
	if err := tensor.Try(f); !errors.As(err, &e) {
		t.Fatalf("%v", err)
	}
	if e.Layer != "" && !strings.Contains(e.Error(), "\n  in "+e.Layer+"\n  at nn/mark_test.go:") {
		t.Errorf("%q is not in: %v", e.Layer, e)
	}
	return e.Layer
}

// An error names the layer that raised it.
func TestErrorsNameTheLayer(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newNet()
		x := s.Ones(2, 8)
		if got := layerOf(t, func() { m.Heads[1].Forward(x) }); got != "" {
			t.Errorf("before the model was walked: %q", got)
		}
		if got := layerOf(t, func() { m.Extras.Forward(x) }); got != "2.1 (nn.Linear)" {
			t.Errorf("a chain by itself: %q", got)
		}
		nn.Parameters(m)
		nn.Count(m.Body) // visiting only a part of the model changes no names
		nn.StateDict(m.Extras)
		for _, c := range []struct {
			want string
			f    func()
		}{
			{"extras.2.1 (nn.Linear)", func() { m.Extras.Forward(x) }},
			{"heads.1.fc2 (nn.Linear)", func() { m.Heads[1].Forward(x) }},
			// The error is raised by an op in Forward of the layer.
			{"heads.0 (nn_test.head)", func() { m.Heads[0].Forward(s.Ones(3, 8)) }},
			{"heads.0.fc1 (nn.Linear)", func() { m.Heads[0].Forward(s.Ones(2, 9)) }},
			{"embed (nn.Embedding)", func() { m.Embed.Forward(s.Typed(dtype.I64).Full(7, 2)) }},
			{"body.layers.0.self_attn (nn.MultiheadAttention)", func() { m.Body.Forward(s.Ones(1, 3, 7)) }},
			{"body.layers.1.linear1 (nn.Linear)", func() {
				m.Body.Layers[1].Linear1 = nn.NewLinear(4, 16)
				nn.Train(m)
				m.Body.Forward(s.Ones(1, 3, 8))
			}},
			{"body.layers.0 (nn.TransformerEncoderLayer)", func() { m.Body.Layers[0].Forward(nil) }},
			// The call copies m.Act, and the copy has no name.
			{"", func() { m.Act.Forward(nil) }},
		} {
			if got := layerOf(t, c.f); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		}
		// Hooks and a profile do not change the names.
		m.Heads[1].Fc2.RegisterForwardHook(func(_, _ *tensor.Tensor) *tensor.Tensor { t.Error("a hook ran"); return nil })
		p, err := profile.Start(profile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		for range 2 {
			if got, want := layerOf(t, func() { m.Heads[1].Forward(x) }), "heads.1.fc2 (nn.Linear)"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			p.Stop()
		}
		// A model may be a single layer, and a layer may be part of two models.
		lone := nn.NewLinear(2, 2)
		nn.Parameters(lone)
		if got, want := layerOf(t, func() { lone.Forward(x) }), "nn.Linear"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		nn.Parameters(&struct{ Inner *struct{ Last *nn.Linear } }{&struct{ Last *nn.Linear }{lone}})
		if got, want := layerOf(t, func() { lone.Forward(x) }), "inner.last (nn.Linear)"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		// Panics with other values pass through unchanged, and a copy of a layer has no name.
		copied := *lone
		if got := layerOf(t, func() { copied.Forward(x) }); got != "" {
			t.Errorf("a copy is called %q", got)
		}
		remove := lone.RegisterForwardHook(func(_, _ *tensor.Tensor) *tensor.Tensor { panic("mine") })
		defer remove()
		func() {
			defer func() {
				if r := recover(); r != "mine" {
					t.Errorf("%v", r)
				}
			}()
			lone.Forward(s.Ones(2, 2))
		}()
	})
}

// An out-of-memory error names the layer too. An index error that an emulated GPU reports late
// names no layer.
func TestErrorsOfADeviceNameTheLayer(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	m := nn.To(newNet(), device.Device(gpus[0]))
	tensor.Do(func(s *tensor.Scope) {
		x := s.On(gpus[0]).Empty(1<<16, 8)
		gpus[0].SetMemoryLimit(int(gpus[0].Stats().Reserved))
		defer gpus[0].SetMemoryLimit(0)
		var e *tensor.Error
		if err := tensor.Try(func() { m.Heads[0].Forward(m.Extras.Forward(x)) }); !errors.Is(err, device.ErrOutOfMemory) || !errors.As(err, &e) || e.Layer != "extras.0 (nn.Linear)" {
			t.Errorf("%v", err)
		}
	})
	tensor.Do(func(s *tensor.Scope) {
		on := s.On(gpus[0])
		m.Embed.Forward(on.Typed(dtype.I64).Full(7, 2))
		for range 1000 { // until the device reports the error
			if err := tensor.Try(func() { m.Heads[1].Fc1.Forward(on.Ones(2, 8)).Sum().Item() }); errors.Is(err, tensor.ErrIndex) {
				if e := err.(*tensor.Error); e.Layer != "" {
					t.Errorf("%v", err)
				}
				return
			}
		}
		t.Error("the index was taken")
	})
}

// One goroutine calls a model while another marks its layers for the first time.
func TestMarkWhileItRuns(t *testing.T) {
	m := newNet()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 20 {
				tensor.Do(func(s *tensor.Scope) { m.Heads[0].Forward(s.Ones(2, 8)) }, tensor.NoGrad())
				nn.Count(m)
			}
		})
	}
	wait.Wait()
}

// A call of a layer with a name allocates no more than a call of one without.
func TestMarksAllocateNothing(t *testing.T) {
	marked, plain := nn.NewLinear(2, 2), nn.NewLinear(2, 2)
	nn.Parameters(marked)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 2)
		count := func(l *nn.Linear) float64 {
			return leastAllocs(func() { l.Forward(x).Free() })
		}
		if a, b := count(marked), count(plain); a != b {
			t.Errorf("%v allocations a call, %v of a layer without a name", a, b)
		}
		chain := nn.NewSequential(nn.NewLinear(2, 2), nn.NewLinear(2, 2))
		through := func(c *nn.Sequential) float64 {
			return leastAllocs(func() { c.Forward(x).Free() })
		}
		a := through(chain)
		copied := *chain
		if b := through(&copied); a != b {
			t.Errorf("%v allocations a call of a chain, %v of its copy", a, b)
		}
		type wrapped struct{ *nn.Linear }
		nn.NewSequential(wrapped{marked}, &nn.ReLU{}).Forward(x)
		made := leastAllocs(func() { (&nn.Sequential{Layers: chain.Layers}).Forward(x).Free() })
		if made > a+1 {
			t.Errorf("%v allocations a call of a chain, %v of one that is made for the call", a, made)
		}
	}, tensor.NoGrad())
}

// leastAllocs returns the least number of allocations measured for a call of f. Some measurements
// are higher because sync.Pool drops objects: all at a garbage collection, and every fourth under
// the race detector.
func leastAllocs(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 300 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

// The device "cpu:1" raises an index error immediately, as "cpu" does, so the error names the
// layer.
func TestIndexErrorOfRankNamesTheLayer(t *testing.T) {
	for _, name := range []string{"cpu", "cpu:1"} {
		d, err := device.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		m := nn.To(nn.NewSequential(nn.NewEmbedding(4, 3), nn.NewLinear(3, 2)), d)
		nn.Parameters(m)
		index := tensor.Root().On(d).From([]int64{1, 9})
		if got := layerOf(t, func() { m.Forward(index) }); got != "0 (nn.Embedding)" {
			t.Errorf("on %s: %q", name, got)
		}
	}
}
