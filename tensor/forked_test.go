package tensor_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A forkedProgram is a random program whose steps run on several streams. The steps use tensors
// that live longer than a step, results of other steps, and memory that was just freed. They order
// nothing explicitly, except where events are tested.
type forkedProgram struct {
	seed    uint64
	dev     *cuda.Device
	streams []device.Stream // the first entry is nil and stands for the scope's own stream
	held    []*tensor.Tensor
	w       *tensor.Tensor
	marks   []*cuda.Event
	gen     *tensor.Generator
}

const runs = 3

var forkedSizes = []int{16, 200, 16, 600, 200, 16}

func newForked(t *testing.T, program, schedule int, one bool) *forkedProgram {
	t.Helper()
	list, err := cuda.Emulate(fmt.Sprintf("emulate,mem=4MiB,segment=8KiB,seed=%d", schedule))
	ok(t, err)
	p := &forkedProgram{seed: uint64(program), dev: list[0], streams: []device.Stream{nil, nil, nil, nil}, gen: tensor.NewGenerator(uint64(program))}
	m := tensor.Root().On(p.dev)
	for i, n := range forkedSizes {
		p.held = append(p.held, m.Linspace(0, 2+float64(i), n))
	}
	p.w = m.Full(0.5, 16).RequiresGrad()
	for range 2 {
		e, err := cuda.NewEvent(p.dev)
		ok(t, err)
		p.marks = append(p.marks, e)
	}
	if !one {
		for i := range p.streams[1:] {
			s, err := p.dev.NewStream(i % 2)
			ok(t, err)
			p.streams[i+1] = s
		}
	}
	return p
}

func (p *forkedProgram) options() []tensor.Option {
	return []tensor.Option{tensor.On(p.dev), tensor.WithGenerator(p.gen)}
}

// run runs the program, with the same random choices each time.
func (p *forkedProgram) run(s *tensor.Scope) {
	r := rand.New(rand.NewPCG(p.seed, 1))
	live := make([][]*tensor.Tensor, len(forkedSizes)) // results that still exist, by size
	any := func(kind int) *tensor.Tensor {
		if n := len(live[kind]); n > 0 && r.IntN(3) > 0 {
			return live[kind][r.IntN(n)]
		}
		return p.held[kind]
	}
	on := func(out *tensor.Scope, f func(c *tensor.Scope), opts ...tensor.Option) {
		if st := p.streams[r.IntN(len(p.streams))]; st != nil {
			opts = append(opts, tensor.Stream(st))
		}
		out.Do(f, opts...)
	}
	drop := func(kind, i int) {
		x := live[kind][i]
		live[kind] = slices.Delete(live[kind], i, i+1)
		on(s, func(c *tensor.Scope) { // the value of x must count in the result of the program
			p.held[kind].In(c).MulScalarInPlace(0.75).AddInPlace(x.In(c).MulScalar(0.25))
		}, tensor.NoGrad())
		x.Free()
	}
	for range 14 {
		kind := r.IntN(len(forkedSizes))
		switch r.IntN(8) {
		// compute a result from two tensors, with temporaries; one temporary is made on another
		// stream
		case 0, 1, 2:
			on(s, func(c *tensor.Scope) {
				x, y := any(kind), any(kind)
				h := x.In(c).AddScalar(0.5).Mul(y)
				var q *tensor.Tensor
				on(c, func(d *tensor.Scope) { q = h.In(d).Square().MulScalar(0.5); d.Close(q) })
				if r.IntN(2) == 0 {
					h.Free() // the other stream may still read h
				}
				z := q.Sub(x.In(c).Square()).Clamp(-2, 1)
				live[kind] = append(live[kind], z)
				c.Close(z)
			}, tensor.NoGrad())
		case 3: // change a tensor in place
			on(s, func(c *tensor.Scope) {
				any(kind).In(c).MulScalarInPlace(0.5).SubInPlace(any(kind).In(c).AddScalar(-0.5).MulScalar(0.5))
			}, tensor.NoGrad())
		case 4:
			on(s, func(c *tensor.Scope) { p.held[kind].In(c).AddInPlace(p.held[kind].In(c).Dropout(0.5).MulScalar(0.1)) }, tensor.NoGrad())
		case 5:
			if n := len(live[kind]); n > 0 {
				drop(kind, r.IntN(n))
			}
		case 6: // run a training step
			on(s, func(c *tensor.Scope) {
				x := p.held[0].In(c)
				var h *tensor.Tensor
				on(c, func(d *tensor.Scope) { h = x.In(d).Mul(p.w).Square(); d.Close(h) })
				h.Mul(p.w).Mean().Backward()
				on(c, func(d *tensor.Scope) { p.w.In(d).SubInPlace(p.w.Grad().In(d).MulScalar(0.5)); p.w.ZeroGrad() }, tensor.NoGrad())
			})
		case 7: // wait explicitly, which must not change the results
			on(s, func(c *tensor.Scope) {
				st := c.Stream().(cuda.Stream)
				e := p.marks[r.IntN(2)]
				if err := errors.Join(st.WaitStream(s.Stream()), e.Record(st), s.Stream().Wait(e)); err != nil {
					panic(err)
				}
			})
		}
	}
	for kind := range live {
		// tensors that are not freed here live until the scope ends
		for len(live[kind]) > 0 && r.IntN(4) > 0 {
			drop(kind, len(live[kind])-1)
		}
	}
}

func (p *forkedProgram) numbers() (v []float64) {
	for _, x := range append(p.held, p.w) {
		v = append(v, x.Detach().Floats()...)
	}
	_, offset := p.gen.State()
	return append(v, float64(offset))
}

// replayed captures a program. It returns the values after replays with an eager run in between.
func replayed(t *testing.T, program, schedule int) (v []float64, err error) {
	p := newForked(t, program, schedule, false)
	before := p.dev.Stats().Allocated
	g, err := tensor.Capture(p.dev, p.run, p.options()...)
	if err != nil {
		return nil, err
	}
	for k := range runs {
		if k == 1 {
			err = tensor.Try(func() { tensor.Do(p.run, p.options()...) })
		} else {
			err = g.Replay()
		}
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	err = tensor.Try(func() { v = p.numbers() })
	if err := errors.Join(err, g.Close(), p.dev.Synchronize()); err != nil {
		return nil, err
	}
	if now := p.dev.Stats().Allocated; now != before {
		t.Errorf("program %d: %d bytes are allocated after Close, %d before", program, now, before)
	}
	return v, nil
}

func (p *forkedProgram) eager() []float64 {
	for range runs {
		tensor.Do(p.run, p.options()...)
	}
	return p.numbers()
}

// TestForkedCaptures captures programs on several streams, and replays them in any order that the
// edges of the graph allow. The results must equal those of an eager run on one stream, bit for
// bit. It runs 40 programs, each in a different order. With -short it runs 6, and with
// FLAMBEAU_SOAK 1000.
func TestForkedCaptures(t *testing.T) {
	n := 40
	switch {
	case os.Getenv("FLAMBEAU_SOAK") == "1":
		n = 1000
	case testing.Short():
		n = 6
	}
	for i := 1; i <= n; i++ {
		want := newForked(t, i, 0, true).eager()
		if got, err := replayed(t, i, i); err != nil || !slices.Equal(got, want) {
			t.Fatalf("program %d: %v; the results are others: %v", i, err, err == nil)
		}
	}
}

// TestForkedCapturesFindMissingOrder checks that TestForkedCaptures notices if waits are missing or
// memory is reused too early.
func TestForkedCapturesFindMissingOrder(t *testing.T) {
	for name, missing := range map[string][2]bool{"waits": {true, false}, "uses": {false, true}} {
		found := 0
		n := 4
		tensor.Unordered(missing[0], missing[1], func() {
			for i := 1; i <= n; i++ {
				want := newForked(t, i, 0, true).eager()
				if got, err := replayed(t, i, i); err != nil || !slices.Equal(got, want) {
					found++
				}
			}
		})
		t.Logf("without %s %d of %d programs go wrong", name, found, n)
		if found == 0 {
			t.Errorf("without %s no program goes wrong: the test sees nothing", name)
		}
	}
}
