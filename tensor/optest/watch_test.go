package optest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/tensor"
)

// watchLog is a watcher that records its calls for each run.
type watchLog struct {
	leaves []*tt
	mu     sync.Mutex
	runs   []*watchRun
	// called by Begin; if it is nil, Begin returns r
	begin func(s *tensor.Scope, r *watchRun) tensor.BackwardRun
	ready func(r *watchRun, i int)
}

type watchRun struct {
	d     *watchLog
	scope *tensor.Scope
	words []string
	ended []error
}

func (d *watchLog) Begin(s *tensor.Scope, reached []bool) tensor.BackwardRun {
	r := &watchRun{d: d, scope: s}
	for _, on := range reached {
		r.words = append(r.words, map[bool]string{true: "+", false: "-"}[on])
	}
	r.words = []string{strings.Join(r.words, "")}
	d.mu.Lock()
	d.runs = append(d.runs, r)
	d.mu.Unlock()
	if d.begin != nil {
		return d.begin(s, r)
	}
	return r
}

func (r *watchRun) Ready(i int) {
	r.words = append(r.words, fmt.Sprintf("ready %d%v", i, r.d.leaves[i].Grad().Floats()))
	if r.d.ready != nil {
		r.d.ready(r, i)
	}
}

func (r *watchRun) Missed(i int) { r.words = append(r.words, fmt.Sprint("missed ", i)) }

func (r *watchRun) End(failed error) { r.ended = append(r.ended, failed) }

// expect checks that there was exactly one run since the last call of expect, and that it recorded
// these words. Without words it checks that there was no run.
func (d *watchLog) expect(t *testing.T, what string, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if len(d.runs) != 0 {
			t.Errorf("%s: it was told of %d runs, the first %q", what, len(d.runs), d.runs[0].words)
		}
	} else if len(d.runs) != 1 {
		t.Errorf("%s: it was told of %d runs", what, len(d.runs))
	} else if r := d.runs[0]; !slices.Equal(r.words, words) {
		t.Errorf("%s: it was told %q\nnot %q", what, r.words, words)
	} else if len(r.ended) != 1 || r.ended[0] != nil {
		t.Errorf("%s: the ends are %v", what, r.ended)
	}
	d.runs = nil
}

func watch(x ...*tt) (*watchLog, func()) {
	d := &watchLog{leaves: x}
	return d, tensor.WatchBackward(x, d)
}

// noSecondGradient computes the product of its operands. Its VJP returns no gradient for the second
// operand.
type noSecondGradient struct{}

func (noSecondGradient) Name() string                            { return "forgetful" }
func (noSecondGradient) Forward(_ *tensor.Context, in []*tt) *tt { return in[0].Mul(in[1]) }
func (noSecondGradient) VJP(_ *tensor.Context, g *tt) []*tt      { return []*tt{g, nil} }
func (noSecondGradient) apply(a, b *tt) *tt                      { return tensor.Apply(noSecondGradient{}, a, b) }

// TestWatchBackward checks that Begin tells a watcher which leaves a run reaches. Ready is called
// as soon as a leaf is complete.
func TestWatchBackward(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		a, b, c := s.From([]float32{1}).RequiresGrad(), s.From([]float32{2}).RequiresGrad(), s.From([]float32{3}).RequiresGrad()
		clear := func() { a.ZeroGrad(); b.ZeroGrad(); c.ZeroGrad() }
		d, remove := watch(a, b, c)

		// The result does not use c. b is nearer to the result than a, and a occurs twice.
		f := func() *tt { return a.Square().Mul(a).Mul(b).Sum() }
		f().Backward()
		d.expect(t, "a run", "++-", "ready 1[1]", "ready 0[6]")
		f().Backward()
		d.expect(t, "a second run adds", "++-", "ready 1[2]", "ready 0[12]")
		clear()
		y := f()
		tensor.Gradients(y, []*tt{a, b}, tensor.RetainGraph())
		d.expect(t, "Gradients")
		y.Backward(tensor.Into(b, b), tensor.RetainGraph())
		d.expect(t, "into one", "-+-", "ready 1[1]")
		y.Backward(tensor.Into(c, b, a), tensor.RetainGraph())
		d.expect(t, "into all", "++-", "ready 1[2]", "ready 0[6]")
		y.Backward(tensor.Into(c), tensor.RetainGraph())
		d.expect(t, "into what is not used")
		clear()
		y.Backward(tensor.CreateGraph())
		d.expect(t, "with a graph", "++-", "ready 1[1]", "ready 0[6]")
		clear()
		c.Sum().Backward(tensor.Also(b, nil))
		d.expect(t, "two results, one a leaf", "-++", "ready 1[1]", "ready 2[1]")
		clear()
		s.From([]float32{1}).RequiresGrad().Sum().Backward()
		d.expect(t, "other leaves")
		s.Do(func(i *tensor.Scope) { a.In(i).Mul(i.Ones(1)).Sum().Backward() })
		d.expect(t, "through a handle", "+--", "ready 0[1]")
		clear()
		b.SetRequiresGrad(false)
		f().Backward()
		d.expect(t, "one is frozen", "+--", "ready 0[6]")
		b.RequiresGrad()
		clear()

		// Here one leaf receives no gradient. Missed must report this leaf before the leaves
		// further back are complete.
		noSecondGradient{}.apply(a.Exp().Log(), b).Sum().Backward()
		d.expect(t, "a VJP without", "++-", "missed 1", "ready 0[1]")
		noSecondGradient{}.apply(a, b).Add(b).Sum().Backward(tensor.Into(a, b))
		d.expect(t, "a VJP without, another with", "++-", "ready 0[2]", "ready 1[1]")
		noSecondGradient{}.apply(a, b).Sum().Backward(tensor.Into(b))
		d.expect(t, "into what gets none", "-+-", "missed 1")
		clear()

		gone := s.From([]float32{5}).RequiresGrad()
		dg, removeGone := watch(a, gone)
		y = a.Mul(gone.MulScalar(1)).Sum()
		gone.Free()
		y.Backward()
		dg.expect(t, "a leaf that was freed", "++", "ready 0[5]", "missed 1")
		removeGone()
		d.runs = nil
		clear()

		// Hooks run before Ready, and post-accumulate hooks run after it. Ready sees the gradient
		// that the hooks return.
		seen := ""
		off := a.RegisterPostAccumulateGradHook(func(*tt) { seen += fmt.Sprint(len(d.runs[0].words)) })
		twice := a.RegisterHook(func(g *tt) *tt { return g.MulScalar(2) })
		f().Backward()
		d.expect(t, "with hooks", "++-", "ready 1[1]", "ready 0[12]")
		if seen != "3" {
			t.Errorf("hooks came after %s words", seen)
		}
		off()
		twice()
		clear()

		// Ready may set, take or free a gradient. The next run adds to the gradient that it finds.
		views := s.Zeros(2)
		d.ready = func(r *watchRun, i int) {
			switch x := d.leaves[i]; i {
			case 0:
				g := x.TakeGrad()
				x.SetGrad(views.Detach().Narrow(0, 1, 1))
				s.Do(func(c *tensor.Scope) { x.Grad().In(c).Copy(g.In(c)) }, tensor.NoGrad())
				g.Free()
			case 1:
				x.ZeroGrad()
			}
		}
		for range 2 {
			f().Backward()
		}
		want(t, "the bucket", views, 0, 12)
		if b.Grad() != nil {
			t.Errorf("what was freed is %v", b.Grad())
		}
		d.ready, d.runs = nil, nil
		clear()

		// First, Backward computes the forward pass of a checkpoint again. Then Ready starts
		// another run within a run.
		autograd.Checkpoint(func(x *tt) *tt { return x.Mul(a).Exp().Log() }, b).Sum().Backward()
		d.expect(t, "a checkpoint", "++-", "ready 1[1]", "ready 0[2]")
		clear()
		d.ready = func(r *watchRun, i int) {
			if d.ready = nil; i == 1 {
				c.Sum().Backward()
			}
		}
		f().Backward()
		if len(d.runs) != 2 || fmt.Sprint(d.runs[0].words, d.runs[1].words) != "[++- ready 1[1] ready 0[6]] [--+ ready 2[1]]" {
			t.Errorf("of a run in a run: %v", d.runs)
		}
		d.runs = nil
		clear()

		// If Begin returns nil, there are no further calls for this run. After remove, there are no
		// calls at all.
		d.begin = func(*tensor.Scope, *watchRun) tensor.BackwardRun { return nil }
		f().Backward()
		if len(d.runs) != 1 || len(d.runs[0].words) != 1 || d.runs[0].ended != nil {
			t.Errorf("a run without a watcher: %v", d.runs)
		}
		d.begin, d.runs = nil, nil
		clear()
		e, removeE := watch(c, a)
		f().Backward()
		d.expect(t, "the first of two", "++-", "ready 1[1]", "ready 0[6]")
		e.expect(t, "the second of two", "-+", "ready 1[6]")
		removeE()
		removeE()
		f().Backward()
		d.expect(t, "the one that is left", "++-", "ready 1[2]", "ready 0[12]")
		e.expect(t, "the one that was removed")
		remove()
		f().Backward()
		d.expect(t, "none is left")
	})
}

// TestWatchBackwardScope checks the scope that Begin receives. It must have the gradient mode of
// the run, and exist until the end of the run.
func TestWatchBackwardScope(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		a := s.From([]float32{1, 2}).RequiresGrad()
		d, remove := watch(a)
		defer remove()
		var y *tt
		d.ready = func(r *watchRun, i int) { y = a.In(r.scope).MulScalar(2) }
		a.Sum().Backward()
		if err := tensor.Try(func() { y.Item() }); !errors.Is(err, tensor.ErrFreed) {
			t.Errorf("behind the end a result of the run's scope is %v", err)
		}
		d.ready = func(r *watchRun, i int) {
			if y = a.In(r.scope).MulScalar(2); y.NeedsGrad() {
				t.Error("the run's scope records a graph")
			}
			want(t, "a result", y, 2, 4)
		}
		a.Sum().Backward()
	})
}

// TestWatchBackwardFails lets runs fail. End must receive the error, once for every watcher of the
// run. The panic must continue.
func TestWatchBackwardFails(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		a, b := s.From([]float32{1}).RequiresGrad(), s.From([]float32{2}).RequiresGrad()
		d, remove := watch(a, b)
		defer remove()
		e, removeE := watch(b)
		defer removeE()
		boom := errors.New("boom")
		run := func(f func()) (p any) {
			defer func() { p = recover() }()
			f()
			return nil
		}
		ends := func(what string, d *watchLog, words int, is func(error) bool) {
			t.Helper()
			if len(d.runs) != 1 || len(d.runs[0].words) != words || len(d.runs[0].ended) != 1 || !is(d.runs[0].ended[0]) {
				t.Errorf("%s: %d runs", what, len(d.runs))
				for _, r := range d.runs {
					t.Errorf("  %q, ended %v", r.words, r.ended)
				}
			}
			d.runs = nil
		}
		isBoom := func(err error) bool { return err == boom }
		h := a.Square()
		off := h.RegisterHook(func(*tt) *tt { panic(boom) })
		if p := run(func() { h.Mul(b).Sum().Backward() }); p != boom {
			t.Errorf("the panic that goes on is %v", p)
		}
		ends("a hook panics", d, 2, isBoom)
		ends("a hook panics, the other watcher", e, 2, isBoom)
		off()
		off = b.RegisterHook(func(*tt) *tt { panic("no error") })
		if p := run(func() { b.Sum().Backward() }); p != "no error" {
			t.Errorf("the panic that goes on is %v", p)
		}
		ends("a panic with a string", d, 1, func(err error) bool { return err != nil && strings.Contains(err.Error(), "no error") })
		off()
		d.runs, e.runs = nil, nil
		d.ready = func(*watchRun, int) { panic(boom) }
		run(func() { b.Sum().Backward() })
		ends("the watcher panics", d, 2, isBoom)
		ends("the watcher panics, the other one", e, 1, isBoom)
		d.ready = nil
		e.begin = func(*tensor.Scope, *watchRun) tensor.BackwardRun { panic(boom) }
		run(func() { b.Sum().Backward() })
		ends("a beginning panics", d, 1, isBoom)
		e.begin, e.runs = nil, nil
		y := b.Square().Sum()
		y.Backward()
		d.runs, e.runs = nil, nil
		err := tensor.Try(func() { y.Backward() })
		if !errors.Is(err, tensor.ErrGrad) {
			t.Errorf("a second run is %v", err)
		}
		ends("a run of a freed graph", d, 1, func(e error) bool { return e == err })
		ends("a run of a freed graph, the other one", e, 1, func(e error) bool { return e == err })
		done := make(chan int)
		off = b.RegisterHook(func(*tt) *tt { runtime.Goexit(); return nil })
		go func() {
			defer close(done)
			b.Sum().Backward()
		}()
		<-done
		ends("the goroutine ends", d, 1, func(err error) bool { return err != nil && strings.Contains(err.Error(), "Goexit") })
		off()
		d.runs, e.runs = nil, nil
		run(func() { s.Ones(3).Mul(b).Backward() }) // this call fails before a run begins
		d.expect(t, "no run at all")
	})
}

func TestWatchBackwardRefuses(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		a := s.From([]float32{1}).RequiresGrad()
		freed := s.Ones(1).RequiresGrad()
		freed.Free()
		d := &watchLog{}
		for what, c := range map[string]struct {
			kind   error
			leaves []*tt
			w      tensor.BackwardWatcher
		}{
			"no leaves":      {tensor.ErrValue, nil, d},
			"no watcher":     {tensor.ErrValue, []*tt{a}, nil},
			"nil":            {tensor.ErrValue, []*tt{a, nil}, d},
			"a result":       {tensor.ErrGrad, []*tt{a.Exp()}, d},
			"no gradient":    {tensor.ErrGrad, []*tt{a, s.Ones(1)}, d},
			"one twice":      {tensor.ErrValue, []*tt{a, a.In(s)}, d},
			"a freed tensor": {tensor.ErrFreed, []*tt{freed}, d},
		} {
			if err := tensor.Try(func() { tensor.WatchBackward(c.leaves, c.w) }); !errors.Is(err, c.kind) {
				t.Errorf("%s: %v", what, err)
			}
		}
		a.Sum().Backward()
		d.expect(t, "after what was refused")
	})
}

// TestWatchBackwardConcurrently watches concurrent runs. The watcher must see them as separate
// runs, even if they reach the same leaves.
func TestWatchBackwardConcurrently(t *testing.T) {
	const runs = 8
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		shared := s.From([]float32{1, 1}).RequiresGrad()
		all := &watchLog{leaves: []*tt{shared}}
		defer tensor.WatchBackward([]*tt{shared}, countsReady{all})()
		var wg sync.WaitGroup
		for k := range runs {
			own := s.From([]float32{float32(k), 1}).RequiresGrad()
			wg.Go(func() {
				d, remove := watch(own)
				defer remove()
				for range 3 {
					s.Do(func(c *tensor.Scope) {
						own.In(c).Mul(shared).Sum().Backward()
					})
					d.expect(t, "a run of its own", "+", "ready 0[1 1]")
					own.ZeroGrad()
				}
			})
		}
		wg.Wait()
		if len(all.runs) != 3*runs {
			t.Errorf("%d runs reach the shared leaf, not %d", len(all.runs), 3*runs)
		}
		for _, r := range all.runs {
			if fmt.Sprint(r.words) != "[+ ready]" || len(r.ended) != 1 || r.ended[0] != nil {
				t.Fatalf("a run over the shared leaf: %v, ended %v", r.words, r.ended)
			}
		}
		want(t, "the shared gradient", shared.Grad(), 3*(runs*(runs-1)/2), 3*runs)
	})
}

// countsReady is a watcher that does not read gradients, because another run may be adding to them.
type countsReady struct{ *watchLog }

type countedRun struct{ *watchRun }

func (c countsReady) Begin(s *tensor.Scope, reached []bool) tensor.BackwardRun {
	return countedRun{c.watchLog.Begin(s, reached).(*watchRun)}
}

func (r countedRun) Ready(int) { r.words = append(r.words, "ready") }
