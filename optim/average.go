package optim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Averaged holds averages of a model's parameters over the steps of a training, as torch's
// AveragedModel. The averages are separate tensors. [Averaged.With] runs a function while the model
// computes with the averages. If a parameter moves to another device or changes its type, its
// average follows.
type Averaged struct {
	name    string
	list    []average
	n       int64
	buffers bool
	decay   float64
	plain   bool // whether all updates have the same weight
	swapped bool // whether the method With is running, so that the averages are in the model
	turn    tensor.Exclusive
	within  int64 // number of updates recorded so far in the current capture
}

type average struct {
	nn.Param
	mean *tensor.Tensor
}

// An AverageOption changes how [NewEMA] and [NewSWA] average.
type AverageOption func(*Averaged)

// AverageBuffers averages buffers too, such as the running statistics of a batch normalisation.
// Without it, each update copies the buffers. For an integer buffer, the exponential average is
// truncated to an integer, as in torch. The plain average copies an integer buffer, while torch's
// plain average fails.
func AverageBuffers() AverageOption { return func(a *Averaged) { a.buffers = true } }

// NewEMA returns the exponential moving average of a model. The first update copies the model's
// values. Each later update computes a ← decay·a + (1-decay)·w for the average a of the value w.
// The average is torch's AveragedModel with get_ema_multi_avg_fn(decay).
func NewEMA(model any, decay float64, opts ...AverageOption) *Averaged {
	if !(decay >= 0 && decay <= 1) {
		panic(&Error{"EMA", fmt.Sprintf("the decay is %v, it must be in [0, 1]", decay)})
	}
	return newAveraged(&Averaged{name: "EMA", decay: decay}, model, opts)
}

// NewSWA returns the plain average of a model over the updates, for stochastic weight averaging (P.
// Izmailov et al., arXiv:1803.05407). After n updates, the next one computes a ← a + (w-a)/(n+1)
// for the average a of the value w. The average is torch's AveragedModel with default arguments.
// [UpdateBN] recomputes the statistics of batch normalisations for the averaged weights.
func NewSWA(model any, opts ...AverageOption) *Averaged {
	return newAveraged(&Averaged{name: "SWA", plain: true}, model, opts)
}

func newAveraged(a *Averaged, model any, opts []AverageOption) *Averaged {
	for _, o := range opts {
		o(a)
	}
	for _, p := range nn.Named(model) {
		t := p.Tensor
		var c *tensor.Tensor
		t.Scope().Do(func(s *tensor.Scope) {
			c = s.On(t.Device()).Typed(t.Type()).Empty(t.Shape().Slice()...).Copy(t)
			s.Close(c)
		}, tensor.NoGrad())
		a.list = append(a.list, average{p, c})
	}
	if len(a.list) == 0 {
		panic(&Error{a.name, "the model has no parameters"})
	}
	return a
}

// Updates returns the number of calls of Update, torch's n_averaged.
func (a *Averaged) Updates() int { return int(a.n) }

// A pairing is the device and the type that a value and its average share. One launch can
// process all values and averages with the same pairing.
type pairing struct {
	dev device.Device
	t   dtype.Type
}

// Update adds the model's current values to the averages, in one launch for each device and type.
// It allocates all memory before it changes an average. If memory runs out, the averages are
// unchanged, and Update empties the caches and tries once more.
//
// In a capture each replay is an update. Within a capture, call Update after the step, or between
// Backward and the step. A call before Backward is an error, because it would not be captured.
func (a *Averaged) Update() {
	a.requireNotInWith("Update")
	values := make([]*tensor.Tensor, len(a.list))
	for i, e := range a.list {
		values[i] = e.Tensor
	}
	g := tensor.Capturing(values...)
	if g == nil {
		g = tensor.CapturingGrads(values...) // for a call of Update between Backward and the step
	}
	if g != nil {
		a.capture(g)
		return
	}
	began := false
	err := tensor.Try(func() { a.update(&began) })
	if err == nil {
		return
	}
	if began || !errors.Is(err, device.ErrOutOfMemory) {
		panic(err)
	}
	emptied := map[device.Device]bool{}
	for _, e := range a.list {
		if d := e.Tensor.Device(); !emptied[d] {
			emptied[d] = true
			d.Empty()
		}
	}
	a.update(&began)
}

// update does the work of Update outside of captures. It sets *began just before it changes the
// first average. If update fails before that, the caller can repeat it.
func (a *Averaged) update(began *bool) {
	copied, averaged := map[pairing]*launch{}, map[pairing]*launch{}
	var order []*launch
	add := func(m map[pairing]*launch, scalars []float64, program string, rule func(flags) []*expr.Expr, e average) {
		k := pairing{e.Tensor.Device(), e.Tensor.Type()}
		l := m[k]
		if l == nil {
			l = &launch{dev: k.dev, t: k.t, scalars: scalars}
			l.program = lowered(program, flags{}, k.t, 2, rule)
			m[k], order = l, append(order, l)
		}
		l.outs, l.ins = append(l.outs, []*tensor.Tensor{e.mean}), append(l.ins, []*tensor.Tensor{e.mean, e.Tensor})
	}
	tensor.Do(func(s *tensor.Scope) {
		var whole []average
		for _, e := range a.list {
			follow(e.Tensor, e.mean)
			switch {
			case !e.Tensor.Type().IsFloat():
				whole = append(whole, e)
			case a.n == 0 || e.Buffer && !a.buffers:
				add(copied, nil, "copy", func(flags) []*expr.Expr { return []*expr.Expr{expr.X(1)} }, e)
			default:
				program, mean, scalar := a.formula(a.n)
				add(averaged, []float64{scalar}, program, func(flags) []*expr.Expr { return []*expr.Expr{mean} }, e)
			}
		}
		next := make([]*tensor.Tensor, len(whole))
		defer func() {
			for _, t := range next {
				if t != nil {
					t.Free()
				}
			}
		}()
		for i, e := range whole {
			if a.n > 0 && a.buffers && !a.plain && e.Tensor.Type() != dtype.Bool {
				e.mean.Scope().Do(func(c *tensor.Scope) {
					next[i] = a.intMean(c, e)
					c.Close(next[i])
				}, tensor.NoGrad())
			}
		}
		for _, l := range order {
			l.pack(s)
		}
		*began = true
		for _, l := range order {
			l.run("average")
		}
		for i, e := range whole {
			v := e.Tensor
			if next[i] != nil {
				v = next[i]
			}
			e.mean.Scope().Do(func(c *tensor.Scope) { e.mean.In(c).Copy(v) }, tensor.NoGrad())
		}
	}, tensor.NoGrad())
	a.n++
}

// formula returns the expression for the new average, in which X(0) is the old average and X(1) the
// value. It also returns the name of the program, and the program's Param after n updates.
func (a *Averaged) formula(n int64) (program string, mean *expr.Expr, scalar float64) {
	old, value, p := expr.X(0), expr.X(1), expr.Param(0)
	switch w := 1 - a.decay; {
	case a.plain:
		return "swa", old.Add(value.Sub(old).Div(p)), float64(n + 1)
	case w < 0.5:
		return "ema", old.Add(value.Sub(old).Mul(p)), w
	}
	// As in torch, the formula starts from the value, which is closer to the result here than the
	// old average is.
	return "ema back", value.Sub(value.Sub(old).Mul(p)), a.decay
}

// With calls f while the model computes with the averages, for evaluation. It exchanges the model's
// values and the averages before f and again after it, even if f panics. f must not train the
// model. While f runs, all other methods of the Averaged panic. With keeps a buffer as large as the
// largest tensor until f has returned, so the second exchange cannot run out of memory.
func (a *Averaged) With(f func()) {
	a.requireNotInWith("With")
	over := map[pairing]*tensor.Tensor{}
	defer func() {
		for _, t := range over {
			t.Free()
		}
	}()
	a.place(over)
	a.swap(over)
	a.swapped = true
	defer func() {
		a.swapped = false
		a.place(over) // f may have moved or converted the model
		a.swap(over)
	}()
	f()
}

// place allocates a buffer for each pairing that has none. It is as large as the pairing's largest
// tensor.
func (a *Averaged) place(over map[pairing]*tensor.Tensor) {
	sizes := map[pairing]int{}
	for _, e := range a.list {
		follow(e.Tensor, e.mean)
		k := pairing{e.Tensor.Device(), e.Tensor.Type()}
		sizes[k] = max(sizes[k], e.Tensor.Size())
	}
	for k, n := range sizes {
		if over[k] == nil {
			over[k] = tensor.Root().On(k.dev).Typed(k.t).Empty(n)
		}
	}
}

// requireNotInWith panics while With runs, because the averages are then in the model.
func (a *Averaged) requireNotInWith(method string) {
	if a.swapped {
		panic(&Error{a.name, method + " within With, where the averages are in the model; call it before or after"})
	}
}

func (a *Averaged) swap(over map[pairing]*tensor.Tensor) {
	for _, e := range a.list {
		room := over[pairing{e.Tensor.Device(), e.Tensor.Type()}]
		tensor.Youngest(e.Tensor, e.mean, room).Do(func(s *tensor.Scope) {
			x, y := e.Tensor.In(s), e.mean.In(s)
			c := room.In(s).Narrow(0, 0, x.Size()).Reshape(x.Shape().Slice()...).Copy(x)
			x.Copy(y)
			y.Copy(c)
		}, tensor.NoGrad())
	}
}

// Averages returns the averages under the names of nn.StateDict(model), including buffers. Use it
// to load them into another model with nn.LoadStateDict, or to write a file. The tensors share
// memory with the averages.
func (a *Averaged) Averages() map[string]*tensor.Tensor {
	a.requireNotInWith("Averages")
	out := map[string]*tensor.Tensor{}
	for _, e := range a.list {
		if !e.Transient {
			out[e.Name] = e.mean.Detach()
		}
	}
	return out
}

// StateDict returns the averages as a tree with the names of torch's AveragedModel. These names
// have the prefix "module.", and the tree has the additional name "n_averaged". The tensors share
// memory with the averages.
func (a *Averaged) StateDict() map[string]any {
	a.requireNotInWith("StateDict")
	out := map[string]any{"n_averaged": tensor.From(a.n)}
	for _, e := range a.list {
		if !e.Transient {
			out["module."+e.Name] = e.mean.Detach()
		}
	}
	return out
}

// LoadStateDict loads averages from a tree made by StateDict or by torch, and converts them to the
// types of the model. If the tree does not fit, the error is a *[StateError], and nothing was
// changed.
func (a *Averaged) LoadStateDict(tree map[string]any) error {
	a.requireNotInWith("LoadStateDict")
	bad := func(path, format string, args ...any) error {
		return &StateError{Optimizer: a.name, Path: path, Msg: fmt.Sprintf(format, args...)}
	}
	n, ok := number(tree["n_averaged"])
	if !ok || !(n >= 0) || n > 1<<53 || n != float64(int64(n)) {
		return bad(`["n_averaged"]`, "is %s, want a count", describe(tree["n_averaged"]))
	}
	known := map[string]bool{"n_averaged": true}
	var made []*tensor.Tensor
	var into []int
	done := false
	defer func() {
		for _, t := range made {
			if !done {
				t.Free()
			}
		}
	}()
	l := &loader{b: &base{name: a.name}}
	for i, e := range a.list {
		name := "module." + e.Name
		known[name] = true
		v, ok := tree[name]
		if !ok {
			if e.Transient || e.Optional {
				continue
			}
			return bad("", "has no %q", name)
		}
		t, ok := v.(*tensor.Tensor)
		if !ok || t == nil {
			return bad(fmt.Sprintf("[%q]", name), "is %s, want a tensor", describe(v))
		}
		if t.Shape() != e.Tensor.Shape() {
			return bad(fmt.Sprintf("[%q]", name), "has shape %v, in the model it is %v", t.Shape(), e.Tensor.Shape())
		}
		_, err := l.copy(fmt.Sprintf("[%q]", name), t, e.Tensor)
		made = append(made, l.made...)
		l.made = nil
		if err != nil {
			return err
		}
		into = append(into, i)
	}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if !known[name] {
			return bad(fmt.Sprintf("[%q]", name), "is nothing that the model has; names begin with \"module.\"")
		}
	}
	for k, i := range into {
		a.list[i].mean.Free()
		a.list[i].mean = made[k]
	}
	a.n, done = int64(n), true
	return nil
}

// UpdateBN recomputes the running statistics of a model's batch normalisations, for a model with
// averaged parameters: torch's update_bn. It resets the statistics, and calls pass in training
// mode. The function pass must call the model's Forward with all data. The statistics become the
// plain averages over these calls. Afterwards UpdateBN restores the modes of all layers. UpdateBN
// returns the error of pass.
func UpdateBN(model any, pass func() error) error {
	if pass == nil {
		panic(&Error{"UpdateBN", "there is no function that computes the model's Forward of all data"})
	}
	type kept struct {
		l        any
		training bool
	}
	var norms []*nn.ChannelNorm
	var modes []kept
	nn.Apply(model, func(l any) {
		if b, ok := l.(interface{ Training() bool }); ok {
			modes = append(modes, kept{l, b.Training()})
		}
		var n *nn.ChannelNorm
		switch l := l.(type) {
		case *nn.BatchNorm1d:
			n = &l.ChannelNorm
		case *nn.BatchNorm2d:
			n = &l.ChannelNorm
		case *nn.BatchNorm3d:
			n = &l.ChannelNorm
		}
		if n != nil && n.RunningMean != nil {
			norms = append(norms, n)
		}
	})
	if len(norms) == 0 {
		return nil
	}
	momenta := make([]float64, len(norms))
	for i, n := range norms {
		momenta[i] = n.Momentum
		tensor.Do(func(*tensor.Scope) {
			n.RunningMean.Zero()
			n.RunningVar.Fill(1)
			if n.NumBatchesTracked != nil {
				n.NumBatchesTracked.Zero()
			}
		})
		n.Momentum = nn.CumulativeAverage
	}
	defer func() {
		for i, n := range norms {
			n.Momentum = momenta[i]
		}
		// In modes, inner layers come first. Restore them last, because restoring an outer layer
		// also changes the layers inside it.
		for _, m := range slices.Backward(modes) {
			if m.training {
				nn.Train(m.l)
			} else {
				nn.Eval(m.l)
			}
		}
	}()
	for _, m := range modes {
		nn.Train(m.l)
	}
	return pass()
}

// capture records an update. The first update copies the values, and later updates average. When
// the host queues a replay, it tells the device whether to copy or to average.
func (a *Averaged) capture(g *tensor.Graph) {
	before := a.within // number of updates recorded earlier in this capture
	if a.within++; before == 0 {
		g.Ended(func(bool) error {
			a.within = 0
			return nil
		})
	}
	g.Exclude(&a.turn)
	means := make([]*tensor.Tensor, len(a.list))
	for i, e := range a.list {
		means[i] = e.mean
		if e.mean.Device() != e.Tensor.Device() || e.mean.Type() != e.Tensor.Type() {
			misplaced := tensor.NewError(a.name, tensor.ErrCapture, "the average of "+e.Name+" is on another device or of another type than its parameter", e.Tensor, e.mean)
			misplaced.Hint = "call Update once before the capture: the averages follow then"
			panic(misplaced)
		}
	}
	g.Check(func() error {
		if a.swapped {
			return &Error{a.name, "a replay that updates the averages within With, where they are in the model; replay before or after"}
		}
		for i, e := range a.list {
			if e.mean != means[i] {
				return &Error{a.name, "the averages were replaced since the update was captured, such as by LoadStateDict; capture it again"}
			}
		}
		return nil
	})
	list := map[pairing]*launch{}
	var order []*launch
	program, mean, _ := a.formula(a.n)
	add := func(name string, rule func(flags) []*expr.Expr, e average) {
		k := pairing{e.Tensor.Device(), e.Tensor.Type()}
		l := list[k]
		if l == nil {
			l = &launch{dev: k.dev, t: k.t}
			l.program = lowered(name, flags{}, l.t, 2, rule)
			list[k], order = l, append(order, l)
		}
		l.outs, l.ins = append(l.outs, []*tensor.Tensor{e.mean}), append(l.ins, []*tensor.Tensor{e.mean, e.Tensor})
	}
	g.Scope().Do(func(s *tensor.Scope) {
		for _, e := range a.list {
			switch {
			case e.Buffer && !a.buffers, !e.Tensor.Type().IsFloat() && (a.plain || e.Tensor.Type() == dtype.Bool):
				e.mean.In(s).Copy(e.Tensor)
			case !e.Tensor.Type().IsFloat():
				if a.n == 0 {
					first := tensor.NewError(a.name, tensor.ErrCapture, "the first update copies "+e.Name+", and later ones average it in another way", e.Tensor)
					first.Hint = "call Update once before the capture"
					panic(first)
				}
				s.Do(func(c *tensor.Scope) { e.mean.In(c).Copy(a.intMean(c, e)) })
			default:
				dense(a.name, []*tensor.Tensor{e.mean, e.Tensor})
				add(program+" or first", func(flags) []*expr.Expr {
					return []*expr.Expr{expr.Param(1, dtype.I64).Ne(expr.C(0)).Select(expr.X(1), mean)}
				}, e)
			}
		}
		for _, l := range order {
			l.slots = g.FeedOn(l.dev, dtype.I64, 2, func(to []byte) {
				_, _, scalar := a.formula(a.n + before)
				l.encode([]float64{scalar}, to)
				first := uint64(0)
				if a.n+before == 0 {
					first = 1
				}
				binary.NativeEndian.PutUint64(to[8:], first)
			})
			l.run("average")
		}
	}, tensor.NoGrad())
	g.Then(func() { a.n++ })
}

// intMean returns the exponential average of an integer buffer, as a tensor in scope c.
func (a *Averaged) intMean(c *tensor.Scope, e average) *tensor.Tensor {
	return e.mean.In(c).Float().MulScalar(a.decay).Add(e.Tensor.In(c).Float().MulScalar(1 - a.decay)).Cast(e.mean.Type())
}
