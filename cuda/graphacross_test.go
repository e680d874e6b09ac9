package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// group holds a copy of a model on each of two GPUs, and trains both with the sum of their
// gradients.
type group struct {
	gpus  []*cuda.Device
	ranks []*stepper
	gen   *tensor.Generator
	sides []tensor.Option // for each rank, the scope option that selects the stream of its forward and backward pass
}

func newGroup(t *testing.T, more string) *group {
	t.Helper()
	list, err := cuda.Emulate("emulate:2,mem=32MiB,segment=64KiB" + more)
	if err != nil {
		t.Fatal(err)
	}
	r := &group{gpus: list, gen: tensor.NewGenerator(11)}
	for _, d := range list {
		r.ranks = append(r.ranks, newStepperOn(d, adamW))
		s, err := d.NewStream(0)
		if err != nil {
			t.Fatal(err)
		}
		r.sides = append(r.sides, tensor.Stream(s))
	}
	return r
}

// step computes each rank's gradients on the rank's own stream, from its own batch. Both ranks use
// one random generator. On each device, step adds the gradients in the order of the ranks, and
// updates the parameters.
func (r *group) step(s *tensor.Scope) {
	for i, p := range r.ranks {
		s.Do(func(c *tensor.Scope) {
			loss := nn.CrossEntropy(p.m.Forward(p.x.In(c)), p.y.In(c))
			loss.Backward()
			p.loss.In(c).Copy(loss.Detach())
		}, tensor.On(p.dev), r.sides[i])
	}
	a, b := nn.Parameters(r.ranks[0].m), nn.Parameters(r.ranks[1].m)
	for i := range a {
		s.Do(func(c *tensor.Scope) {
			ga, gb := a[i].Grad().In(c), b[i].Grad().In(c)
			sums := [2]*tensor.Tensor{ga.Add(gb.To(r.gpus[0])), ga.To(r.gpus[1]).Add(gb)}
			a[i].SetGrad(sums[0])
			b[i].SetGrad(sums[1])
		}, tensor.NoGrad())
	}
	for _, p := range r.ranks {
		p.opt.Step()
		p.opt.ZeroGrad()
	}
}

// feed copies batch k of each rank to the rank's inputs.
func (r *group) feed(k int) {
	for i, p := range r.ranks {
		p.feed(2*k + i)
	}
}

func (r *group) numbers() (v []float64) {
	for _, p := range r.ranks {
		v = append(v, p.numbers()...)
	}
	seed, offset := r.gen.State()
	return append(v, float64(seed), float64(offset))
}

func (r *group) capture() (*tensor.Graph, error) {
	return tensor.Capture(r.gpus[0], r.step, tensor.WithGenerator(r.gen), tensor.Across(r.gpus[1], r.gpus[0]))
}

// TestCapturedAcross checks that a training step of two GPUs that exchange gradients is one graph.
// Its replays must compute the same bits as eager steps in any order that the driver chooses, with
// direct copies or copies through the host. Each replay must be one launch, and all memory must be
// given back.
func TestCapturedAcross(t *testing.T) {
	steps, seeds := 5, 6
	if testing.Short() {
		steps, seeds = 3, 2
	}
	if os.Getenv("FLAMBEAU_SOAK") != "" {
		seeds *= 20
	}
	eager := newGroup(t, "")
	var want [][]float64
	for k := range steps {
		eager.feed(k)
		tensor.Do(eager.step, tensor.On(eager.gpus[0]), tensor.WithGenerator(eager.gen))
		want = append(want, eager.numbers())
	}
	if a, b := eager.ranks[0].numbers(), eager.ranks[1].numbers(); slices.Equal(a, b) {
		t.Fatal("the ranks see the same batches")
	}
	for _, more := range []string{"", ",peer=off"} {
		for seed := range seeds {
			r := newGroup(t, fmt.Sprintf("%s,seed=%d", more, seed))
			before := r.numbers()
			g, err := r.capture()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.numbers(), before) {
				t.Error("the capture has changed something")
			}
			copied, err := cuda.PeerCopies(r.gpus[1], r.gpus[0])
			if err != nil || copied.Copies != 0 || copied.Direct != (more == "") {
				t.Errorf("after the capture: %+v, %v", copied, err)
			}
			for k := range steps {
				r.feed(k)
				launches := [2]uint64{r.gpus[0].Counters().Launches, r.gpus[1].Counters().Launches}
				if err := g.Replay(); err != nil {
					t.Fatal(err)
				}
				for i, want := range []uint64{1, 0} {
					if n := r.gpus[i].Counters().Launches - launches[i]; n != want {
						t.Errorf("%d launches by a replay on device %d", n, i)
					}
				}
				if k == 1 { // the next replay is queued before this one ends
					continue
				}
				if got := r.numbers(); !slices.Equal(got, want[k]) {
					t.Fatalf("seed %d%s, step %d:\n%v\nwant\n%v", seed, more, k, got[:20], want[k][:20])
				}
			}
			params := uint64(len(nn.Parameters(r.ranks[0].m)))
			copied, err = cuda.PeerCopies(r.gpus[1], r.gpus[0])
			if err != nil || copied.Copies != params*uint64(steps) {
				t.Errorf("after the replays: %+v, %v, want %d copies each", copied, err, params)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			// The next step is run eagerly.
			tensor.Do(r.step, tensor.On(r.gpus[0]), tensor.WithGenerator(r.gen))
			for i, d := range r.gpus {
				if err := d.Synchronize(); err != nil {
					t.Errorf("device %d: %v", i, err)
				}
			}
		}
	}
}

// TestCapturedModelOfTwoDevices captures a model with layers on two GPUs as one graph. The graph
// copies activations and gradients between the GPUs.
func TestCapturedModelOfTwoDevices(t *testing.T) {
	type model struct {
		gpus    []*cuda.Device
		a, b    *nn.Linear
		x, y    *tensor.Tensor
		results []*tensor.Tensor
	}
	build := func(spec string) (*model, func(s *tensor.Scope)) {
		list, err := cuda.Emulate(spec)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{gpus: list, a: nn.NewLinear(3, 4), b: nn.NewLinear(4, 2)}
		for k, l := range []*nn.Linear{m.a, m.b} {
			for _, w := range nn.Parameters(l) {
				values := tensor.Root().Arange(w.Size()).Float().MulScalar(0.1 + 0.2*float64(k))
				w.Detach().Reshape(-1).Copy(values)
			}
			nn.To(l, list[k])
			for _, w := range nn.Parameters(l) {
				m.results = append(m.results, w.ZerosLike())
			}
		}
		m.x, m.y = tensor.Root().On(list[0]).Ones(5, 3), tensor.Root().On(list[1]).Typed(dtype.I64).Zeros(5)
		return m, func(s *tensor.Scope) {
			h := nn.Tanh{}.Forward(m.a.Forward(m.x.In(s))).To(list[1])
			nn.CrossEntropy(m.b.Forward(h), m.y.In(s)).Backward()
			params := append(nn.Parameters(m.a), nn.Parameters(m.b)...)
			s.Do(func(c *tensor.Scope) {
				for i, w := range params {
					m.results[i].In(c).Copy(w.Grad())
					w.SetGrad(nil)
				}
			}, tensor.NoGrad())
		}
	}
	numbers := func(m *model) (v []float64) {
		for _, r := range m.results {
			v = append(v, r.Floats()...)
		}
		return v
	}
	m, step := build("emulate:2,mem=16MiB")
	tensor.Do(step)
	want := numbers(m)
	if slices.Max(want) == 0 {
		t.Fatal("there are no gradients")
	}
	for seed := range 4 {
		m, step := build(fmt.Sprintf("emulate:2,mem=16MiB,segment=16KiB,seed=%d", seed))
		g, err := tensor.Capture(m.gpus[1], step, tensor.Across(m.gpus[0]))
		if err != nil {
			t.Fatal(err)
		}
		m.x.Fill(0.5)
		// each replay must read the value written just before it
		for _, x := range []float64{0.5, 1} {
			m.x.Fill(x)
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
		}
		if got := numbers(m); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v, want %v", seed, got, want)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAcrossRefuses captures work on a device that was not passed to Across. The error must say
// that Across has to name this device.
func TestAcrossRefuses(t *testing.T) {
	list, err := cuda.Emulate("emulate:3,mem=8MiB")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := cuda.Emulate("emulate,mem=8MiB")
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Root().On(list[0]).Ones(4)
	z := tensor.Root().On(list[2]).Ones(4)
	use := func(s *tensor.Scope) { x.In(s).Neg() }
	for name, row := range map[string]struct {
		f     func(s *tensor.Scope)
		opts  []tensor.Option
		kind  error
		words string
	}{
		"another device": {func(s *tensor.Scope) { use(s); z.In(s).Neg() }, []tensor.Option{tensor.Across(list[1])}, tensor.ErrCapture,
			"work on cuda:2 is not recorded with that of cuda:0"},
		"a copy to it":     {func(s *tensor.Scope) { x.In(s).To(list[2]) }, []tensor.Option{tensor.Across(list[1])}, tensor.ErrCapture, "Across"},
		"a copy from it":   {func(s *tensor.Scope) { use(s); z.In(s).To(list[0]) }, nil, tensor.ErrCapture, "Across"},
		"nil":              {use, []tensor.Option{tensor.Across(nil)}, tensor.ErrValue, "nil"},
		"another driver's": {use, []tensor.Option{tensor.Across(stranger[0])}, nil, "another driver"},
		"the CPU":          {use, []tensor.Option{tensor.Across(tensor.Root().Ones(1).Device())}, nil, "not a GPU"},
	} {
		g, err := tensor.Capture(list[0], row.f, row.opts...)
		if g != nil || err == nil || row.kind != nil && !errors.Is(err, row.kind) || !strings.Contains(err.Error(), row.words) {
			t.Errorf("%s: %v, want %v with %q", name, err, row.kind, row.words)
		}
	}
	if err := tensor.Try(func() { tensor.Do(use, tensor.Across(list[1])) }); !errors.Is(err, tensor.ErrValue) {
		t.Errorf("a scope took it: %v", err)
	}
	if _, err := list[0].NewRecording(list[1], list[1]); err == nil {
		t.Error("a device was given twice")
	}
	r, err := list[0].NewRecording(list[1])
	if err != nil {
		t.Fatal(err)
	}
	var e *device.OperandError
	if _, err := r.Fork(list[2]); !errors.As(err, &e) || e.Arg != "on" {
		t.Errorf("a fork on a device that takes no part: %v", err)
	}
	if _, err := r.Feed(nil, 8, device.Origin{}); !errors.As(err, &e) {
		t.Errorf("a feed on no device: %v", err)
	}
	if r.On(list[2]) != nil || r.On(list[0]) != r.Stream() || r.On(list[1]) == nil {
		t.Error("the streams are not those of the devices")
	}
	r.Abort()
	for _, d := range list {
		// all devices must still work
		tensor.Do(func(s *tensor.Scope) { s.Ones(4).Neg().Floats() }, tensor.On(d))
	}
}

// TestAcrossFaults checks that a wait for the second device returns that device's index error. If
// one device fails, replays must return an error, and the other device must still work.
func TestAcrossFaults(t *testing.T) {
	list, err := cuda.Emulate("emulate:2,mem=8MiB")
	if err != nil {
		t.Fatal(err)
	}
	index := tensor.Root().On(list[1]).Typed(dtype.I64).Zeros(3)
	table := tensor.Root().On(list[0]).Ones(5, 2)
	var rows *tensor.Tensor
	g, err := tensor.Capture(list[0], func(s *tensor.Scope) {
		rows = table.In(s).MulScalar(2).To(list[1]).IndexSelect(0, index.In(s))
	}, tensor.Across(list[1]))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	if v := rows.Floats(); !slices.Equal(v, []float64{2, 2, 2, 2, 2, 2}) {
		t.Errorf("rows %v", v)
	}
	index.Fill(7)
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	var wrong *device.IndexError
	if err := tensor.Try(func() { rows.Floats() }); !errors.As(err, &wrong) || wrong.Index != 7 {
		t.Errorf("an index beyond the table: %v", err)
	}
	index.Fill(1)
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	if v := rows.Floats(); v[5] != 2 {
		t.Errorf("rows %v after the error", v)
	}
	// A read of memory that nothing has written ends the second device.
	lost := tensor.Try(func() { tensor.Root().On(list[1]).Empty(3).Exp().Floats() })
	var f *device.Fault
	if !errors.As(lost, &f) || f.Device != "cuda:1" {
		t.Fatalf("the device lives: %v", lost)
	}
	if err := g.Replay(); !errors.As(err, &f) || f.Device != "cuda:1" {
		t.Errorf("a replay without one of its devices: %v", err)
	}
	if v := table.MulScalar(3).Floats(); v[0] != 3 {
		t.Errorf("the first device: %v", v)
	}
	if err := g.Close(); !errors.As(err, &f) || f.Device != "cuda:1" {
		t.Errorf("closed: %v", err)
	}
}

// TestAcrossFaultWithin checks a graph of two devices whose work makes one of them unusable. The
// other device must still work.
func TestAcrossFaultWithin(t *testing.T) {
	list, err := cuda.Emulate("emulate:2,mem=8MiB")
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Root().On(list[0]).Ones(4)
	var y *tensor.Tensor
	g, err := tensor.Capture(list[0], func(s *tensor.Scope) {
		y = x.In(s).MulScalar(2)
		s.On(list[1]).Empty(4).Add(y.To(list[1])) // reads memory that nothing has written
	}, tensor.Across(list[1]))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	if v := y.Floats(); !slices.Equal(v, []float64{2, 2, 2, 2}) {
		t.Errorf("the first device computed %v", v)
	}
	var f *device.Fault
	for _, err := range []error{list[1].Synchronize(), g.Replay(), g.Close()} {
		if !errors.As(err, &f) || f.Device != "cuda:1" || !f.Sticky {
			t.Errorf("the second device's work: %v", err)
		}
	}
	if v := x.Neg().Floats(); v[0] != -1 {
		t.Errorf("the first device goes on with %v", v)
	}
}
