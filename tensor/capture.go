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

// A Graph is work that [Capture] recorded once and that one call repeats, like
// torch.cuda.CUDAGraph. On a GPU the call is one launch. Several goroutines may replay a graph; the
// replays run one after the other. Graphs that only read the same tensors may be replayed at the
// same time. Graphs take turns if one writes tensors that the other uses, or if they share an
// optimizer. Close frees the graph's memory. The garbage collector closes a graph that is no longer
// referenced.
type Graph struct {
	dev    device.Device
	stream device.Stream // stream on which replays are queued
	// first recorded stream on each device: on the graph's device, then on the devices of the
	// option Across
	firsts []device.Stream
	scope  *Scope
	number uint64
	live   atomic.Bool // true while the work is recorded

	binding binding[*Graph] // binds the graph to the goroutine that called Capture
	joined  []*joint        // the other goroutines that record into the graph

	// maps each stream that a scope chose to the recorded stream that replaces it
	lanes map[device.Stream]device.Stream

	replay device.Replayer // the driver's graph, once it is finished
	shares *sharer

	mu     sync.Mutex
	rec    device.Recording
	feeds  []func(to []byte)
	checks []func() error
	then   []func()
	ended  []func(ok bool) error
	turns  []*Exclusive              // Exclusives that a replay locks, sorted by number
	gens   map[*Generator]*Generator // maps each generator to its stand-in
	tokens map[uint64]*standIn
	// storages that the work uses and that the graph does not own. The value is true if the work
	// writes the storage.
	outside map[*storage]bool
	own     []*storage // storages that the recorded work made
	adopted map[*storage]bool
	leaves  []*Tensor // leaves that got a gradient in the capture
	closed  bool
	err     *Error // the first error about work that cannot be captured
}

// epoch counts the captures that have begun. A storage remembers the count at its allocation.
var epoch atomic.Uint64

// Capture records the work that f queues on dev in its scope, and returns it as a graph. f runs
// once, but the work that it queues does not run. As in PyTorch nothing on dev has changed when
// Capture returns, and n replays then do what n runs of f would do. Host work of f, such as
// counting and printing, happens once.
//
// Values that a replay should read must be in tensors that exist before the capture: overwrite a
// static input with [Tensor.Copy], then call [Graph.Replay]. All older tensors that f uses, such as
// inputs and parameters, stay alive until [Graph.Close]. Tensors that f makes in its scope belong
// to the graph. The first replay sets their values, each later replay overwrites them, and Close
// frees them. Memory of temporaries is reused only inside the graph. Child scopes and Free release
// this memory earlier, as elsewhere.
//
// If f opens a scope with [Stream], the work of that scope is recorded on a separate stream.
// Replays run it in any order that keeps reads after writes, as eager runs do. The stream that f
// names is not used itself: [Scope.Stream] returns the stream that replaces it. Use the returned
// stream for your own kernels, and to record events and wait for them explicitly. Tensors do not
// need such events, not even at the end: all work of a replay is done before work that is queued
// after it.
//
// Two things change from replay to replay: random numbers, and the values that [Graph.Feed]
// provides. Random numbers come from the scope's generator, which opts may choose, and continue as
// in eager steps. The optimizers of package optim use Feed for their learning rate and their number
// of steps.
//
// Everything else is repeated as it was recorded. Work that a replay could not repeat is refused,
// so that no value goes stale silently. The error is an *[Error] of the kind [ErrCapture]. Capture
// refuses:
//
//   - waiting for a value: Item, Data, printing, and shapes that depend on values
//   - copying values from the host
//   - work on another device
//   - waiting for events and streams that are not recorded
//   - results that replays would not compute again
//   - changes of older tensors that would happen during the capture and not in replays
//
// If all tensors of an expression are older than the graph's scope s, the expression must begin
// with w.In(s), where w is its first tensor.
//
// [NonBlocking] copies from and to page-locked memory are recorded. A reader of the result of such
// a copy must wait for the last replay. If f panics, Capture returns the error that [Try] would
// return, and passes on panics that Try passes on. After an error nothing of the capture is left,
// and gradients that it added to leaves are removed.
//
// Work on other devices is recorded too, if opts name them: see [Across].
//
// If an elementwise op reads the result of another, the two become one op, with the same bits. Ops
// that nobody needs are dropped. On GPUs this is done if all work is on one stream.
//
// The device must be able to record ([device.Recorder]). On the CPU a graph is a list of primitives
// whose memory has been assigned. Replay runs the list and returns when the work is done. It stops
// at the first error, which names the line that recorded the op. A capture on a GPU may read and
// change memory of the CPU. The change happens once, during the capture. A capture on the CPU
// treats the CPU's memory like a GPU's.
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
		return nil, newError(op, ErrCapture, nil, dev.Name()+" cannot record work").hint("run the function itself here")
	}
	others, err := otherDevices(dev, opts)
	if err != nil {
		return nil, err
	}
	rec, err := recorder.NewRecording(others...)
	if err != nil {
		return nil, captureError(deviceError(op, err, nil))
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
	captures.bind(&g.binding, g, false)
	done := false
	defer func() {
		if !done {
			g.abandon() // f panicked with a value that is not an error of the library
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
	// These cleanups close a graph that was dropped. Its tensors have cleanups of their own.
	runtime.AddCleanup(g, func(r device.Replayer) { go r.Close() }, g.replay)
	runtime.AddCleanup(g, func(o *sharer) { go o.leave() }, g.shares)
	return g, nil
}

// captureError adds the kind ErrCapture to the error of a device that could not record.
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

func (g *Graph) finish() (err error) {
	if g.scope.isClosed() || slices.ContainsFunc(g.joined, func(j *joint) bool { return j.scope.isClosed() }) {
		return newError("capture", ErrScope, nil, "the scope of the capture was closed by the function").hint("Graph.Close closes it")
	}
	g.stop()
	if g.err != nil {
		return g.err // f recovered the panic and went on, as fmt does when String panics
	}
	for _, f := range g.ended {
		if err := f(true); err != nil {
			return err
		}
	}
	if err := g.joinStreams(); err != nil {
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

func (g *Graph) stop() {
	if g.live.Swap(false) {
		g.binding.end()
		for _, j := range g.joined {
			j.binding.end()
		}
	}
}

// abandon undoes a failed capture and frees everything that it holds.
func (g *Graph) abandon() {
	g.stop()
	for _, f := range g.ended {
		_ = f(false) // Capture returns the earlier error, not this one
	}
	for _, leaf := range g.leaves {
		leaf.gradMu.Lock()
		d := leaf.grad
		// a gradient that was made while recording holds no values before the first replay
		if d != nil && !d.freed.Load() && g.isRecorded(d.st.home) {
			leaf.grad = nil
		} else {
			d = nil
		}
		leaf.gradMu.Unlock()
		if d != nil {
			d.Free()
		}
	}
	g.closeJoined()
	g.scope.abandon()
	if g.replay == nil {
		g.rec.Abort()
	} else {
		_ = g.replay.Close() // no replay has run, so Close has no error of a replay
	}
	g.forget()
}

// forget releases the storages that the graph uses and does not own.
func (g *Graph) forget() {
	g.mu.Lock()
	list := g.outside
	g.outside, g.own, g.leaves, g.adopted = nil, nil, nil, nil
	g.mu.Unlock()
	for st := range list {
		st.release()
	}
}

// Replay queues the recorded work as one launch, and returns without waiting. The work runs after
// all earlier work on the tensors that it uses, and before all later work on these tensors, on any
// stream. Replay returns an error of the device or of a function of [Graph.Check]. It also fails if
// the graph is closed, or if a leaf has left the memory that the graph uses. In these cases nothing
// is queued. After an error of a function of [Graph.Then] the work is queued nevertheless.
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
	for _, f := range g.then { // even after an error, call the other functions: the work is queued
		if e := Try(f); err == nil {
			err = e
		}
	}
	return err
}

// queue queues the recorded work after earlier work on its memory. The caller holds g.mu.
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

// deserted reports whether a leaf has left memory that the graph uses, by a move or a conversion.
// The caller holds g.mu.
func (g *Graph) deserted() bool {
	for st := range g.outside {
		if st.abandoned.Load() {
			return true
		}
	}
	return slices.ContainsFunc(g.own, func(st *storage) bool { return st.abandoned.Load() })
}

// String returns the number of operations of a replay, and the device. If a replay runs fewer
// operations than were recorded, String returns both numbers. If the graph runs all recorded
// operations because it could not be shortened, String says why.
func (g *Graph) String() string {
	switch {
	case g.live.Load():
		return "Graph(being captured on " + g.dev.Name() + ")"
	case g.shares == nil:
		return "Graph(of a capture on " + g.dev.Name() + " that failed)"
	}
	n, recorded := g.Operations(), ""
	if r, ok := g.replay.(interface{ Recorded() int }); ok && r.Recorded() > n {
		recorded = fmt.Sprintf(", of %d recorded", r.Recorded())
	}
	if r, ok := g.replay.(interface{ Unshortened() string }); ok && r.Unshortened() != "" {
		recorded = ", all that were recorded: " + r.Unshortened()
	}
	return fmt.Sprintf("Graph(%d operations on %s%s)", n, g.dev.Name(), recorded)
}

// Operations returns the number of kernels, copies and fills that a replay runs. It is 0 until the
// capture is over. It may be less than what was recorded: see [Capture].
func (g *Graph) Operations() int {
	if g.shares == nil {
		return 0
	}
	return g.replay.Operations()
}

// unfinished returns the error of a method that was called before the graph was finished. The
// captured function can call such a method on the graph that [Scope.Capture] returns.
func (g *Graph) unfinished(op string) error {
	if g.live.Load() {
		return newError(op, ErrCapture, nil, "the graph is still being captured").hint("do it when Capture has returned it")
	}
	return newError(op, ErrCapture, nil, "the capture has failed: there is no graph").hint("see the error of Capture")
}

// Scope returns the graph's scope, which [Capture] passed to its function f. The scope closes with
// the graph. For a nil Graph, which [Capturing] returns for work that is not captured, Scope
// returns the root scope.
func (g *Graph) Scope() *Scope {
	if g == nil {
		return root
	}
	return g.scope
}

// Stream returns the stream on which replays are queued.
func (g *Graph) Stream() device.Stream { return g.stream }

// Close waits for the replays. Then it frees the tensors of the graph's scope and the graph's
// memory. It returns an error of the replays that no call has returned yet. A second call has no
// effect.
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
	g.closeJoined()
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

// Capture returns the graph into which the work of s is recorded. It is nil if the work is not
// captured. Outside of the function given to [Capture] it is always nil.
func (s *Scope) Capture() *Graph {
	s.markUsed()
	if g := s.modes.capture; g != nil && g.live.Load() {
		return g
	}
	return nil
}

// Capturing returns the graph that is recording the latest value of one of these tensors, or nil if
// there is none. If there is a graph, a function that opens a scope of its own, such as an
// optimizer's step, must open it in the graph's scope. Nil tensors are ignored.
func Capturing(x ...*Tensor) *Graph {
	if captures.empty() {
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

// CapturingGrads is [Capturing] for the gradients of these tensors. One gradient that is being
// recorded is enough. Other gradients may be older than the capture: each replay then uses them as
// they are.
func CapturingGrads(x ...*Tensor) *Graph {
	if captures.empty() {
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

// noteLeaf notes that a leaf gets a gradient, so that a failed capture can remove the gradient.
func (g *Graph) noteLeaf(leaf *Tensor) {
	if g != nil && g.live.Load() {
		g.mu.Lock()
		g.leaves = append(g.leaves, leaf)
		g.mu.Unlock()
	}
}

// refused stores e as the error of the capture, unless the capture has an error already. Capture
// returns that error at its end. The caller holds g.mu.
func (g *Graph) refused(e *Error) *Error {
	if g.err == nil {
		g.err = e
	}
	return e
}

// noted stores e as the error of the running capture, if e is the error of a device that could not
// record work.
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

// shapedByValues panics if op, whose result's shape depends on values, is being captured.
func (x *Tensor) shapedByValues(op string) {
	x.scope.uncapturable(op, "the shape of the result depends on values, for which the host would wait")
}

// uncapturable panics if the work of s is being recorded.
func (s *Scope) uncapturable(op, why string) {
	s.unrecordable(op, why, "do it before the capture or after a replay")
}

// unrecordable panics if the work of s is being recorded. The error says why and gives the hint.
func (s *Scope) unrecordable(op, why, hint string) {
	if g := s.Capture(); g != nil {
		e := newError(op, ErrCapture, nil, why)
		g.mu.Lock()
		defer g.mu.Unlock()
		panic(g.refused(e.hint("%s", hint)))
	}
}
