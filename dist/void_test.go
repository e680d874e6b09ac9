package dist

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// shortage is a training of three steps. In one step, one rank runs out of memory, and all ranks
// repeat the step in two halves.
type shortage struct {
	opts  []DDPOption
	typ   dtype.Type
	model func() *nn.Sequential
	step  int // number of the step in which memory is short
	// whether the step is computed in halves from the start, for comparison
	halve         bool
	takeMemory    func(g *Group) // allocates most of the memory of this rank's device
	freeMemory    func(g *Group) // frees what takeMemory has allocated
	beforeForward func(g *Group) // called before each forward pass
}

// train trains the model and returns all ranks' weights, and the error of each rank's first
// attempt.
func (c *shortage) train(t *testing.T, l DeviceList) (got [][]float64, failed []error) {
	t.Helper()
	got, failed = make([][]float64, len(l.devices)), make([]error, len(l.devices))
	err := bounded(t, l, 0, func(_ context.Context, g *Group) error {
		m := DDP(nn.To(c.model(), g.Device()), g, c.opts...)
		opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
		n := whole / g.World()
		for step := range 3 {
			try := func(parts int) error {
				return tensor.Try(func() {
					for k := range parts {
						part := func() {
							g.Do(func(s *tensor.Scope) {
								if c.beforeForward != nil {
									c.beforeForward(g)
								}
								x, y := batch(s, c.typ, step, g.Rank()*n+k*n/parts, g.Rank()*n+(k+1)*n/parts)
								nn.CrossEntropy(m.Forward(x), y).DivScalar(float64(parts)).Backward()
							})
						}
						if k < parts-1 {
							g.NoSync(part)
						} else {
							part()
						}
					}
				})
			}
			parts := 1
			if step == c.step {
				if c.halve {
					parts = 2
				}
				if c.takeMemory != nil {
					c.takeMemory(g)
				}
			}
			err := try(parts)
			if step == c.step && c.freeMemory != nil {
				c.freeMemory(g)
			}
			if err != nil {
				failed[g.Rank()] = err
				g.Void(err)
				nn.ZeroGrad(m)
				if err := try(2); err != nil {
					return fmt.Errorf("the second try: %w", err)
				}
			}
			for _, other := range Exchange(g, err != nil) {
				if other != (err != nil) {
					return errors.New("a rank did the step again, and another did not")
				}
			}
			opt.Step()
			opt.ZeroGrad()
		}
		got[g.Rank()] = weights(m)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, failed
}

// blames checks the ranks' errors. The argument who is the number of the rank that must have
// run out of memory. Each other rank must have got a StepError.
func blames(t *testing.T, failed []error, who int) {
	t.Helper()
	for r, err := range failed {
		var step *StepError
		switch told := errors.As(err, &step); {
		case !errors.Is(err, device.ErrOutOfMemory):
			t.Errorf("rank %d is told %v", r, err)
		case told != (r != who):
			t.Errorf("rank %d, where rank %d ran out of memory, is told %v", r, who, err)
		case told && (step.Rank != who || step.Device == ""):
			t.Errorf("rank %d is told that rank %d on %q failed", r, step.Rank, step.Device)
		}
	}
}

func soak(t *testing.T, short, long int) int {
	if os.Getenv("FLAMBEAU_SOAK") != "" {
		return long
	}
	if testing.Short() {
		return 3
	}
	return short
}

// TestShortOfMemory makes GPUs, and ranks of the CPU, run out of memory at random points. Training
// must continue, with the same bits as a training that computes the step in halves from the start.
func TestShortOfMemory(t *testing.T) {
	seed := uint64(1)
	if os.Getenv("FLAMBEAU_SOAK") != "" {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	wide := func() *nn.Sequential {
		return fixed(nn.NewSequential(nn.NewLinear(12, 9000), nn.ReLU{}, nn.NewLinear(9000, 5)))
	}
	options := [][]DDPOption{nil, {BucketBytes(600, 3000)}, {Compress()}, {Compress(), BucketBytes(600, 3000)}}
	for kind, places := range map[string]int{"cuda": 8, "cpu": 40} {
		if testing.Short() && kind == "cuda" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			var l DeviceList
			r := rand.New(rand.NewPCG(seed, 0))
			c := shortage{typ: dtype.F32, model: func() *nn.Sequential { return mlp(dtype.F32) }}
			who, place := 0, 0
			if kind == "cuda" {
				gpus, err := cuda.Emulate("emulate:2,mem=64MiB,segment=1KiB")
				if err != nil {
					t.Fatal(err)
				}
				l = On(gpus[0], gpus[1])
				plant := func(n func() int) func(g *Group) {
					return func(g *Group) {
						if g.Rank() == who {
							d := g.Device().(*cuda.Device)
							d.Empty()
							if err := d.FailAlloc(n()); err != nil {
								panic(err)
							}
						}
					}
				}
				c.takeMemory, c.freeMemory = plant(func() int { return place }), plant(func() int { return 0 })
			} else {
				l = Devices("cpu", "cpu")
				c.model = wide
				var ballast []device.Buffer
				c.takeMemory = func(g *Group) {
					if g.Rank() != who {
						return
					}
					d := g.Device().(*cpu.Device)
					d.Empty()
					d.SetMemoryLimit(d.Stats().Reserved)
					for {
						b, err := d.Alloc(64<<10, nil, device.Origin{Op: "ballast"})
						if err != nil {
							break
						}
						ballast = append(ballast, b)
					}
					for range min(place, len(ballast)) {
						last := len(ballast) - 1
						ballast[last].Free()
						ballast = ballast[:last]
					}
				}
				c.freeMemory = func(g *Group) {
					if g.Rank() == who {
						for _, b := range ballast {
							b.Free()
						}
						ballast = nil
						g.Device().(*cpu.Device).SetMemoryLimit(0)
					}
				}
			}
			bits := map[string]string{}
			hit := 0
			runs := soak(t, 12, 200)
			for k := range runs {
				which := r.IntN(len(options))
				c.opts, c.step, who, place = options[which], r.IntN(3), r.IntN(2), 1+r.IntN(places)
				got, failed := c.train(t, l)
				if failed[0] != nil || failed[1] != nil {
					blames(t, failed, who)
					hit++
				}
				name := fmt.Sprintf("options %d, step %d, halved %v", which, c.step, failed[0] != nil)
				if bits[name] == "" {
					plain := c
					plain.takeMemory, plain.freeMemory, plain.halve = nil, nil, failed[0] != nil
					want, _ := plain.train(t, l)
					bits[name] = fmt.Sprint(want[0])
				}
				for rank := range got {
					if fmt.Sprint(got[rank]) != bits[name] {
						t.Errorf("run %d, %s, rank %d short at place %d: rank %d has other bits", k, name, who, place, rank)
					}
				}
				if t.Failed() {
					t.Logf("run %d, %s, rank %d short at place %d: %v", k, name, who, place, failed)
					return
				}
			}
			t.Logf("memory was short in %d of %d runs", hit, runs)
			if hit < runs/8 {
				t.Errorf("memory was short in %d of %d runs only", hit, runs)
			}
		})
	}
}
