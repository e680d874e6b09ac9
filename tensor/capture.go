package tensor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
)

// ErrCapture is the kind of an [Error] about work that cannot be part of a [Graph].
var ErrCapture = errors.New("it cannot be captured")

// A Graph is work that was recorded once and is repeated by one launch: torch.cuda.CUDAGraph.
// [Capture] makes it. It may be replayed from several goroutines, one after the other. Graphs that
// only read the same tensors may also be replayed at once. Those that write tensors which others
// use, or share an optimizer, take turns. Close gives the graph's memory back; one that is dropped
// is closed after the garbage collector found it.
type Graph struct {
	dev    device.Device
	stream device.Stream   // on which the work is repeated
	firsts []device.Stream // of the recording, of each device: stream, and those of Across
	scope  *Scope
	number uint64
	live   atomic.Bool // recording

	kept   kept[*Graph] // for the goroutine that captures
	joined []*joint     // of others: see Join

	lanes map[device.Stream]device.Stream // of the recording, that stand in for others, by these

	replay device.Replayer // of the finished graph
	shares *sharer

	mu      sync.Mutex
	rec     device.Recording
	feeds   []func(to []byte)
	checks  []func() error
	then    []func()
	ended   []func(ok bool) error
	turns   []*Exclusive              // sorted
	gens    map[*Generator]*Generator // stand-ins, by what they stand for
	tokens  map[uint64]*standIn
	outside map[*storage]bool // what is not the graph's and is read or, true, written
	own     []*storage        // what was made by the recorded work
	adopted map[*storage]bool
	leaves  []*Tensor // that got a gradient
	closed  bool
	err     *Error // the first of what could not be captured
}

// epoch is how many captures have begun. A storage knows how many had when it was made.
var epoch atomic.Uint64

// Capture records what f queues in its scope on dev, and returns the graph of it. f runs once, but
// none of its work is done. As in PyTorch nothing on dev has changed when Capture returns, and n
// replays afterwards are n runs of f. What f does on the host (its own counters, printing) happens
// once.
//
// Values that a replay is to see are in tensors that exist before: overwrite a static input with
// [Tensor.Copy], then [Graph.Replay]. They, the parameters and all else that f uses stay alive
// until [Graph.Close]. What f makes in its scope belongs to the graph: results are read after a
// replay, are overwritten by the next one, and are freed by Close; undefined before the first.
// Memory of temporaries is reused inside of the graph only; f gives it back earlier by child scopes
// and Free, as elsewhere.
//
// A scope that f opens with [Stream] has its work recorded beside the rest: replays run it in any
// order that keeps reads behind writes, as eager runs do. The stream itself takes no part.
// [Scope.Stream] is one that stands in for it, for kernels of f's own, and for marks and waits by
// hand. The tensors do not need these, at the end neither: all of a replay is done before what is
// queued after it.
//
// These change from replay to replay: random numbers, and what [Graph.Feed] provides. Random
// numbers come from the generator that the scope has (opts may choose it) and go on as in eager
// steps. By Feed the optimizers of package optim see their learning rate and their number of steps.
//
// Everything else is repeated as it was. What a replay could not repeat is refused, so that nothing
// silently stays as it was: it is an *[Error] of the kind [ErrCapture]. Refused is what waits for a
// value (Item, Data, printing, shapes that depend on values), what brings values from the host, and
// work on another device. So are waits for events and streams that are not recorded, results that
// replays would not compute again, and changes of older tensors that would be made now and not in
// replays. An expression over older tensors alone is started with w.In(s).
//
// Copies from and to page-locked memory that the host does not wait for ([NonBlocking]) are
// recorded: who reads the result of one waits for the last replay. What f panics with else comes
// out as from [Try]. After an error nothing of the capture is left; gradients that were put into
// leaves meanwhile are gone.
//
// Work on other devices is recorded with it where opts name them: see [Across].
//
// The device must be able to record ([device.Recorder]); the CPU is not.
func Capture(dev device.Device, f func(s *Scope), opts ...Option) (*Graph, error) {
	const op = "capture"
	if dev == nil || f == nil {
		return nil, newError(op, ErrValue, nil, "the device or the function is nil")
	}
	if slices.ContainsFunc(opts, func(o Option) bool { return o == nil }) {
		return nil, newError(op, ErrValue, nil, "an option is nil")
	}
	recorder, ok := dev.(device.Recorder)
	if !ok {
		return nil, newError(op, ErrCapture, nil, dev.Name()+" cannot record work").hint("graphs are of CUDA devices; run the function itself here")
	}
	others, err := across(dev, opts)
	if err != nil {
		return nil, err
	}
	rec, err := recorder.NewRecording(others...)
	if err != nil {
		return nil, deviceError(op, err, nil)
	}
	firsts := []device.Stream{rec.Stream()}
	for _, o := range others {
		firsts = append(firsts, rec.On(o))
	}
	g := &Graph{dev: dev, stream: rec.Stream(), firsts: firsts, rec: rec,
		lanes: map[device.Stream]device.Stream{}, gens: map[*Generator]*Generator{}, tokens: map[uint64]*standIn{},
		outside: map[*storage]bool{}, adopted: map[*storage]bool{}}
	g.live.Store(true)
	g.scope = root.New(append(slices.Clone(opts), func(m *modes) {
		m.dev, m.stream, m.capture, m.across = dev, g.stream, g, nil
		if !seeded(opts) {
			m.gen = g.generator(m.gen)
		}
	})...)
	g.number = epoch.Add(1)
	rec.For(g)
	captures.keep(&g.kept, g, false)
	done := false
	defer func() {
		if !done {
			g.abandon() // f panicked with something else
		}
	}()
	err = Try(func() { f(g.scope) })
	if err == nil {
		err = g.finish()
	}
	done = true
	if err != nil {
		g.abandon()
		return nil, captureError(err)
	}
	// The net under a graph that is dropped: its tensors have theirs.
	runtime.AddCleanup(g, func(r device.Replayer) { go r.Close() }, g.replay)
	runtime.AddCleanup(g, func(o *sharer) { go o.leave() }, g.shares)
	return g, nil
}

// captureError makes what a device could not record of the kind ErrCapture.
func captureError(err error) error {
	var e *Error
	if errors.As(err, &e) && errors.Is(err, device.ErrRecording) && !errors.Is(err, ErrCapture) {
		e.Err = errors.Join(ErrCapture, e.Err)
		if e.Hint == "" {
			e.hint("do it before the capture or after a replay")
		}
	}
	return err
}

// finish ends the recording and makes the graph.
func (g *Graph) finish() (err error) {
	if g.scope.isClosed() || slices.ContainsFunc(g.joined, func(j *joint) bool { return j.scope.isClosed() }) {
		return newError("capture", ErrScope, nil, "the scope of the capture was closed by the function").hint("Graph.Close closes it")
	}
	g.stop()
	if g.err != nil {
		return g.err // f went on, as fmt does when String panics
	}
	for _, f := range g.ended {
		if err := f(true); err != nil {
			return err
		}
	}
	if err := g.join(); err != nil {
		return err
	}
	if g.replay, err = g.rec.Finish(); err != nil {
		return deviceError("capture", err, nil)
	}
	if g.replay.Operations() == 0 {
		return newError("capture", ErrCapture, nil, "nothing was recorded").hint("start expressions with x.In(s), s being the scope that the function gets")
	}
	g.ended = nil
	g.own = slices.DeleteFunc(g.own, func(st *storage) bool { return st.freed.Load() })
	g.shares = g.share()
	return nil
}

// stop ends the time of recording.
func (g *Graph) stop() {
	if g.live.Swap(false) {
		g.kept.end()
		for _, j := range g.joined {
			j.kept.end()
		}
	}
}

// abandon gives everything back after a failure.
func (g *Graph) abandon() {
	g.stop()
	for _, f := range g.ended {
		_ = f(false) // there is an error already
	}
	for _, leaf := range g.leaves {
		leaf.gradMu.Lock()
		d := leaf.grad
		if d != nil && !d.freed.Load() && g.has(d.st.home) { // it was never computed
			leaf.grad = nil
		} else {
			d = nil
		}
		leaf.gradMu.Unlock()
		if d != nil {
			d.Free()
		}
	}
	g.part()
	g.scope.abandon()
	if g.replay == nil {
		g.rec.Abort()
	} else {
		_ = g.replay.Close() // nothing was replayed
	}
	g.forget()
}

// forget lets go of what others own.
func (g *Graph) forget() {
	g.mu.Lock()
	list := g.outside
	g.outside, g.own, g.leaves, g.adopted = nil, nil, nil, nil
	g.mu.Unlock()
	for st := range list {
		st.release()
	}
}

// Replay queues the recorded work, as one launch, after what was queued before on the tensors that
// it uses, and returns without waiting. Later work on these tensors, on any stream, comes after it.
// An error is that of the device, or of a hook that finds that what was captured is not there any
// more. Nothing is queued then, unless the error is one of [Graph.Then].
func (g *Graph) Replay() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	const op = "replay"
	if g.shares == nil {
		return g.unfinished(op)
	}
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, op, nil, nil))
	}
	if g.closed {
		return newError(op, ErrFreed, nil, "the graph has been closed")
	}
	for _, x := range g.turns {
		x.mu.Lock()
		defer x.mu.Unlock()
	}
	if g.deserted() {
		e := newError(op, ErrCapture, nil, "a tensor that the graph uses was moved to a device or converted since the capture, and a replay would go on with its old memory")
		return e.hint("capture it again after MoveTo, CastInPlace, nn.To and nn.Cast")
	}
	for _, c := range g.checks {
		var err error
		if e := Try(func() { err = c() }); e != nil {
			return e
		}
		if err != nil {
			return newError(op, err, nil, err.Error())
		}
	}
	err := g.queue()
	if err != nil {
		return err
	}
	for _, f := range g.then { // all of them: the work is queued
		if e := Try(f); err == nil {
			err = e
		}
	}
	return err
}

// queue queues the recorded work behind what was queued on its memory. g.mu is held.
func (g *Graph) queue() error {
	const op = "replay"
	defer g.shares.turn()()
	err := Try(func() {
		for st, written := range g.outside {
			if written {
				st.write(op, route{stream: g.streamOf(st.dev)})
				st.version.Add(1)
			} else {
				st.read(op, route{stream: g.streamOf(st.dev)})
			}
		}
		for _, st := range g.own {
			if !st.freed.Load() {
				st.write(op, route{stream: g.streamOf(st.dev)})
				st.version.Add(1)
			}
		}
	})
	if err != nil {
		return err
	}
	if err := g.replay.Replay(func(i int, to []byte) { g.feeds[i](to) }); err != nil {
		return deviceError(op, err, nil)
	}
	return nil
}

// deserted reports whether a leaf was in memory that the graph uses, and is elsewhere now. g.mu is
// held.
func (g *Graph) deserted() bool {
	for st := range g.outside {
		if st.left.Load() {
			return true
		}
	}
	return slices.ContainsFunc(g.own, func(st *storage) bool { return st.left.Load() })
}

// String tells how much is recorded, and for which device.
func (g *Graph) String() string {
	switch {
	case g.live.Load():
		return "Graph(being captured on " + g.dev.Name() + ")"
	case g.shares == nil:
		return "Graph(of a capture on " + g.dev.Name() + " that failed)"
	}
	return fmt.Sprintf("Graph(%d operations on %s)", g.Operations(), g.dev.Name())
}

// Operations returns the number of kernels, copies and fills that a replay runs, 0 until the
// capture is over.
func (g *Graph) Operations() int {
	if g.shares == nil {
		return 0
	}
	return g.replay.Operations()
}

// unfinished is the error of what needs the finished graph, of one that f got by [Scope.Capture].
func (g *Graph) unfinished(op string) error {
	if g.live.Load() {
		return newError(op, ErrCapture, nil, "the graph is still being captured").hint("do it when Capture has returned it")
	}
	return newError(op, ErrCapture, nil, "the capture has failed: there is no graph").hint("see the error of Capture")
}

// Scope returns the scope of the graph, which f got: it closes with the graph. That of nil, which
// [Capturing] returns for work that runs, is the root scope.
func (g *Graph) Scope() *Scope {
	if g == nil {
		return root
	}
	return g.scope
}

// Stream returns the stream on which replays are queued.
func (g *Graph) Stream() device.Stream { return g.stream }

// Close waits for the replays, frees what the graph's scope owns and gives the memory back. What
// went wrong in the replays and was not told yet comes out of it. A second call has no effect.
func (g *Graph) Close() error {
	g.mu.Lock()
	if g.shares == nil {
		g.mu.Unlock()
		return g.unfinished("close")
	}
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.mu.Unlock()
	g.part()
	if !g.scope.isClosed() {
		g.scope.close(nil, true)
	}
	err := g.replay.Close()
	g.shares.leave()
	g.forget()
	if err != nil {
		return deviceError("close", err, nil)
	}
	return nil
}

// Capture returns the graph into which work of s is recorded, nil when it runs: inside of the
// function given to [Capture] only.
func (s *Scope) Capture() *Graph {
	s.asked()
	if g := s.modes.capture; g != nil && g.live.Load() {
		return g
	}
	return nil
}

// Capturing returns the graph into which the latest value of one of these tensors is being
// recorded, nil if there is none. An op that opens a scope of its own, such as an optimizer's step,
// then opens it in that of the graph. Nils are left out.
func Capturing(x ...*Tensor) *Graph {
	if captures.none() {
		return nil
	}
	for _, t := range x {
		if t == nil || t.freed.Load() {
			continue
		}
		t.st.mu.Lock()
		w := t.st.writer
		t.st.mu.Unlock()
		if g := recordedBy(w); g != nil {
			return g
		}
	}
	return nil
}

// CapturingGrads is [Capturing] of the gradients of these tensors. One of them is enough: others
// may be left from before the capture, and each replay then takes them as they are.
func CapturingGrads(x ...*Tensor) *Graph {
	if captures.none() {
		return nil
	}
	for _, t := range x {
		if t == nil {
			continue
		}
		if g := Capturing(t.Grad()); g != nil {
			return g
		}
	}
	return nil
}

// gets notes that a leaf gets a gradient, which is undone if the capture fails.
func (g *Graph) gets(leaf *Tensor) {
	if g != nil && g.live.Load() {
		g.mu.Lock()
		g.leaves = append(g.leaves, leaf)
		g.mu.Unlock()
	}
}

// refused keeps the first error for the end of the capture. g.mu is held.
func (g *Graph) refused(e *Error) *Error {
	if g.err == nil {
		g.err = e
	}
	return e
}

// noted keeps what the device could not record for the end of the capture.
func noted(e *Error) *Error {
	var r *device.RecordError
	if errors.As(e.Err, &r) {
		if g := recordedBy(r.Stream); g != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.refused(e)
		}
	}
	return e
}

// shapedByValues panics if op, the shape of whose result depends on values, is being captured.
func (x *Tensor) shapedByValues(op string) {
	x.scope.uncapturable(op, "the shape of the result depends on values, for which the host would wait")
}

// uncapturable panics if s records.
func (s *Scope) uncapturable(op, why string) {
	s.unrecordable(op, why, "do it before the capture or after a replay")
}

// unrecordable is uncapturable with another hint.
func (s *Scope) unrecordable(op, why, hint string) {
	if g := s.Capture(); g != nil {
		e := newError(op, ErrCapture, nil, why)
		g.mu.Lock()
		defer g.mu.Unlock()
		panic(g.refused(e.hint("%s", hint)))
	}
}
