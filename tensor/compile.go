package tensor

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Compiled is a function of tensors whose work is captured, like the result of torch.compile.
// [Compile] makes it. Several goroutines may call it; their calls run one after the other.
type Compiled struct {
	f      func(s *Scope, x ...*Tensor) []*Tensor
	report func(error)
	warm   int

	mu     sync.Mutex
	closed bool
	forms  []*compiledForm // forms in order of use, the most recently used first
	// error of a graph that was closed to make room for another; Close returns it
	err error
}

// compiledForm is the compiled function for one combination of operand shapes and modes.
type compiledForm struct {
	modes   compiledModes
	shapes  []compiledOperand
	graph   *Graph    // nil if the function is not captured yet, or cannot be captured
	warm    int       // number of further calls that run eagerly
	inputs  []*Tensor // the operands of the graph, which each call overwrites
	results []*Tensor
	// true if the work cannot be captured and OrEager's function has received the error
	eager bool
}

type compiledOperand struct {
	dev   device.Device
	t     dtype.Type
	shape shape.Dims
}

// compiledModes are the modes of a scope that decide what an op does.
type compiledModes struct {
	noGrad, nondet, composed, tf32 bool
	dev                            device.Device
	gen                            *Generator
	anomaly                        AnomalyCheck
	autocast, floatType            dtype.Type
}

func modesOf(m *modes) compiledModes {
	return compiledModes{m.noGrad, m.nondet, m.composed, m.tf32, m.dev, m.gen, m.anomaly, m.autocast, m.floatType}
}

func (c compiledModes) option(m *modes) {
	m.noGrad, m.withGrad, m.nondet, m.composed, m.tf32 = c.noGrad, !c.noGrad, c.nondet, c.composed, c.tf32
	m.dev, m.gen, m.anomaly, m.autocast, m.floatType = c.dev, c.gen, c.anomaly, c.autocast, c.floatType
}

// compiledForms is the maximum number of graphs that a Compiled keeps. If there are more, it closes
// the least recently used one.
const compiledForms = 16

// A CompileOption changes what [Compile] does.
type CompileOption func(*Compiled)

// OrEager makes a [Compiled] run its function eagerly where the work cannot be captured. report
// gets the error of the capture, once for each combination of shapes and modes. Without OrEager the
// call panics with that error.
func OrEager(report func(error)) CompileOption {
	return func(c *Compiled) { c.report = report }
}

// Warm sets how many calls of each combination of shapes and modes run the function eagerly before
// its work is captured; the default is 1. Eager calls create what the function makes once, such as
// an optimizer's state.
func Warm(calls int) CompileOption {
	if calls < 0 {
		fail("compile", ErrValue, nil, "%d eager calls are negative", calls)
	}
	return func(c *Compiled) { c.warm = calls }
}

// Compile returns f with its work captured. The first call with operands of new shapes, types or
// devices runs f. So does the first call under new modes, such as [Autocast]. The second call with
// the same properties captures the work ([Capture]), and each further call replays it. The results
// have the bits of eager calls.
//
//	step := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
//		loss := nn.CrossEntropy(model.Forward(x[0]), x[1])
//		loss.Backward()
//		opt.Step()
//		opt.ZeroGrad()
//		return []*tensor.Tensor{loss}
//	})
//	defer step.Close()
//	for batch := range batches {
//		loss := step.Call(s, batch.X, batch.Y)[0]
//	}
//
// The rules of a capture hold for f. In particular, host work of f happens in the first two calls
// only. That includes the choice between training and evaluation mode. Other tensors that f uses,
// such as parameters, belong to the root scope. f must not use the Compiled itself.
//
// Results have no gradient graph. A call with an operand that requires a gradient panics, unless
// the scope is [NoGrad]. Compile the whole step instead, with Backward in f.
func Compile(f func(s *Scope, x ...*Tensor) []*Tensor, opts ...CompileOption) *Compiled {
	if f == nil || slices.ContainsFunc(opts, func(o CompileOption) bool { return o == nil }) {
		fail("compile", ErrValue, nil, "the function or an option is nil")
	}
	c := &Compiled{f: f, warm: 1}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Call returns f(x...) in scope s. Operands are copied to the graph's memory, and results from it.
// Within a capture it calls f itself, and the work of f belongs to that capture. Call panics with
// an *[Error] as an op does, also if c is closed.
func (c *Compiled) Call(s *Scope, x ...*Tensor) []*Tensor {
	const op = "compiled"
	m := modesOf(&s.modes)
	shapes := make([]compiledOperand, len(x))
	for i, t := range x {
		if t == nil {
			fail(op, ErrValue, nil, "operand %d is nil", i)
		}
		t.use(op)
		shapes[i] = compiledOperand{t.st.dev, t.dtype, t.layout.Shape}
		if t.NeedsGrad() && !m.noGrad {
			panic(newError(op, ErrCapture, x, fmt.Sprintf("operand %d requires a gradient, and replays record no graph", i)).
				hint("compile the whole step with Backward in the function, or call it in a scope with NoGrad"))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		fail(op, ErrFreed, nil, "the compiled function is closed")
	}
	if s.Capture() != nil {
		return c.eagerly(s, x)
	}
	f := c.form(m, shapes)
	if f.eager || f.warm > 0 {
		f.warm--
		return c.eagerly(s, x)
	}
	if f.graph == nil {
		if err := c.capture(f, s.deviceFor(x)); err != nil {
			if c.report == nil || !errors.Is(err, ErrCapture) {
				panic(err)
			}
			f.eager = true
			c.report(err)
			return c.eagerly(s, x)
		}
	}
	return f.replay(s, x)
}

func (c *Compiled) form(m compiledModes, shapes []compiledOperand) *compiledForm {
	f := &compiledForm{modes: m, shapes: shapes, warm: c.warm}
	i := slices.IndexFunc(c.forms, func(f *compiledForm) bool { return f.modes == m && slices.Equal(f.shapes, shapes) })
	if i >= 0 {
		f = c.forms[i]
		c.forms = slices.Delete(c.forms, i, i+1)
	}
	c.forms = slices.Insert(c.forms, 0, f)
	if len(c.forms) > compiledForms {
		last := c.forms[compiledForms]
		c.forms = c.forms[:compiledForms]
		c.err = errors.Join(c.err, last.close())
	}
	return f
}

// eagerly runs the function without a graph. Like the results of a replay, its results share no
// memory with other tensors.
func (c *Compiled) eagerly(s *Scope, x []*Tensor) (y []*Tensor) {
	s.Do(func(in *Scope) {
		list := make([]*Tensor, len(x))
		for i, t := range x {
			list[i] = t.In(in)
		}
		for _, t := range c.f(in, list...) {
			y = append(y, t.In(in).Detach())
		}
		in.Close(y...)
	})
	for i, t := range y {
		if t.st.refs.Load() > 1 {
			y[i] = t.copyTo("compiled", s, t.st.dev, false)
			t.Free()
		}
	}
	return y
}

// deviceFor returns the device of the first operand. If there are no operands, it returns the
// scope's device.
func (s *Scope) deviceFor(x []*Tensor) device.Device {
	if len(x) > 0 {
		return x[0].st.dev
	}
	return s.Device()
}

// capture makes the form's graph. If it fails or panics, a later call can capture again.
func (c *Compiled) capture(f *compiledForm, dev device.Device) (err error) {
	defer func() {
		if f.graph == nil {
			f.free()
		}
	}()
	for _, o := range f.shapes {
		f.inputs = append(f.inputs, root.On(o.dev).Typed(o.t).make("compile", o.t, o.shape.Slice()))
	}
	f.graph, err = Capture(dev, func(s *Scope) {
		in := make([]*Tensor, len(f.inputs))
		for i, t := range f.inputs {
			in[i] = t.In(s)
		}
		f.results = nil
		for _, t := range c.f(s, in...) {
			f.results = append(f.results, t.In(s).Detach().Contiguous())
		}
	}, f.modes.option)
	return err
}

// replay copies the operands in, replays the graph and copies the results out. It allocates the
// results first. So if memory is short, the error comes before the replay changes anything.
func (f *compiledForm) replay(s *Scope, x []*Tensor) []*Tensor {
	s.Do(func(in *Scope) {
		for i, t := range f.inputs {
			t.In(in).Copy(x[i].In(in))
		}
	}, NoGrad())
	y := make([]*Tensor, len(f.results))
	for i, t := range f.results {
		y[i] = alloc("compiled", s, t.st.dev, t.dtype, t.layout.Shape)
	}
	if err := f.graph.Replay(); err != nil {
		panic(err)
	}
	for i, t := range f.results {
		t.copyInto("compiled", y[i], false)
	}
	return y
}

func (f *compiledForm) free() {
	for _, t := range f.inputs {
		t.Free()
	}
	f.inputs = nil
}

func (f *compiledForm) close() (err error) {
	if f.graph != nil {
		err = f.graph.Close()
	}
	f.free()
	return err
}

// Graphs returns the captured graphs, the most recently used first.
func (c *Compiled) Graphs() (list []*Graph) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.forms {
		if f.graph != nil {
			list = append(list, f.graph)
		}
	}
	return list
}

// Close closes the graphs and frees their memory. If replays had errors that no call has returned
// yet, Close returns them. A second call of Close has no effect.
func (c *Compiled) Close() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, f := range c.forms {
		err = errors.Join(err, f.close())
	}
	err, c.forms, c.err = errors.Join(c.err, err), nil, nil
	return err
}
