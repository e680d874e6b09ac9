package train

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// Capturing selects whether [Fit] captures its steps: see [Config].Capture.
type Capturing uint8

// These are the settings of Config.Capture.
const (
	CaptureOwn    Capturing = iota // capture steps if all their code is this library's own
	CaptureNever                   // run all steps eagerly
	CaptureAlways                  // capture steps even with the program's own code
)

// eagerSteps is the number of eager steps with equal shapes before a step is captured. They make
// the optimizer's state and show that the shapes repeat.
const eagerSteps = 3

// mostCaptured is the largest number of shapes of batches whose steps are captured, because a
// [tensor.Compiled] keeps this number of graphs. With more shapes, it would drop graphs and capture
// the same steps again and again.
const mostCaptured = 16

// captured has the state for capturing steps of a training and replaying them.
type captured struct {
	step   *tensor.Compiled // the captured steps on one device; nil on several devices
	on     bool             // whether any step has been captured
	off    bool             // whether capturing has stopped, which the log explains
	shapes []batchShape
	guard  []guarded // settings of the model on which the captured steps depend
	// replayed is the number of shapes whose steps are captured.
	replayed int
	check    bool // whether settings may have changed since the last step
	// held are the earlier batches of a step that will be replayed. The field form is the index of
	// their shape in the field shapes.
	held []*data.Batch
	form int
}

// batchShape counts the eager steps with batches of one shape.
type batchShape struct {
	x, y     shape.Dims
	tx, ty   dtype.Type
	n, steps int
	replayed bool // whether the steps with this shape are captured
}

func shapeOf(b *data.Batch) batchShape {
	return batchShape{x: b.X.Shape(), y: b.Y.Shape(), tx: b.X.Type(), ty: b.Y.Type(), n: len(b.Index)}
}

// same reports whether f and g describe batches of the same shape. It ignores the fields steps and
// replayed.
func (f batchShape) same(g batchShape) bool {
	f.steps, f.replayed, g.steps, g.replayed = 0, false, 0, false
	return f == g
}

// guarded holds the settings of one owner on which captured steps depend. The owner is a layer, or
// a tensor: a parameter or buffer of the model, or a parameter of the optimizer. A guarded without
// an owner says whether the model has hooks.
type guarded struct {
	owner any // pointer to the layer or the tensor, or the type of a layer that is not a pointer
	// active says whether the layer is in training mode, the tensor requires a gradient, or the
	// model has hooks.
	active bool
	fields string // text of the layer's exported numbers and strings
	t      dtype.Type
}

// uncaptured returns the reason why steps are not captured, or "" if they are.
func (t *trainer) uncaptured() string {
	own := func(what string) string {
		return what + " is the program's own code, whose host work a replay does not repeat; with Capture: train.CaptureAlways it is captured"
	}
	_, records := t.c.Device.(device.Recorder)
	switch {
	case !records:
		return t.c.Device.Name() + " cannot record work"
	case t.c.Accumulate > 1 && t.adapt.team != nil:
		return "a step accumulates gradients of several batches on several devices"
	case t.c.Capture == CaptureAlways:
		return ""
	case t.adapt.team != nil && otherOrder(t.adapt.team.me.g.Backend()) != "":
		return otherOrder(t.adapt.team.me.g.Backend())
	case t.adapt.team != nil && t.c.Replica != nil:
		return own("Replica")
	case t.c.foreign != "":
		return own(t.c.foreign)
	case nn.Hooked(t.c.Model):
		return own("a hook of the model")
	}
	for name, l := range nn.Modules(t.c.Model) {
		typ := reflect.TypeOf(l)
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if !isOursType(typ) || callsOthers(reflect.ValueOf(l)) {
			if name == "" {
				name = "the model"
			}
			return own(fmt.Sprintf("%s (%v)", name, typ))
		}
	}
	if typ := reflect.TypeOf(t.c.Optimizer); !isOursType(typ) {
		return own(fmt.Sprintf("the optimizer (%v)", typ))
	}
	return ""
}

// otherOrder returns a reason not to capture steps: with the given backend, eager steps add up
// gradients in another order, so the results would differ. It returns "" if the order is the same.
func otherOrder(backend string) string {
	if backend == "in-process" {
		return ""
	}
	return backend + " adds up gradients in another order than a captured step; with Capture: train.CaptureAlways it is captured"
}

// isOursType reports whether a type, or the type to which it points, is from a package of this
// library.
func isOursType(typ reflect.Type) bool {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return !callsite.Outside(typ.PkgPath()+".", "") && !strings.HasSuffix(typ.PkgPath(), "_test")
}

// callsOthers reports whether a layer of this library calls a function of the program, as an
// [nn.Lambda] does.
func callsOthers(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return callsOthers(v.Elem())
	case reflect.Func:
		return !v.IsNil() && !isOurs(v)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() != reflect.Pointer && callsOthers(f) {
				return true
			}
		}
	}
	return false
}

// isOurs reports whether f is a function or method from a package of this library.
func isOurs(f reflect.Value) bool {
	at := runtime.FuncForPC(f.Pointer())
	if at == nil {
		return false
	}
	file, _ := at.FileLine(at.Entry())
	return !callsite.Outside(at.Name(), file)
}

// replays reports whether the step of b, a batch of n samples, will be a replay. If so, it also
// returns the index of the batch's shape. It counts the eager steps that come before the first
// capture of a shape.
func (t *trainer) replays(b *data.Batch, n int) (form int, yes bool) {
	g := &t.captured
	if g.off || t.c.Capture == CaptureNever || b.X == nil || b.Y == nil || device.Tracing() != nil {
		return 0, false
	}
	if t.nested(b) {
		t.eagerly("a batch has values besides X and Y, which a replay of Compute would not read")
		return 0, false
	}
	team, per := t.adapt.team, n
	if team != nil {
		per = ceil(n, team.world())
	}
	if most := t.adapt.plan.current(); most > 0 && most < per {
		return 0, false // the batch has to be split
	}
	if team != nil && t.adapt.ranks(b, n) < team.world() {
		return 0, false // a device would get no samples
	}
	if g.check || g.shapes == nil || team != nil && !team.inSync() {
		g.check = false
		if now := t.guards(); !slices.Equal(now, g.guard) {
			t.uncapture()
			g.guard, g.shapes, g.replayed = now, []batchShape{}, 0
		}
		if slices.ContainsFunc(t.c.Optimizer.Params(), func(p *tensor.Tensor) bool { return p.Grad() != nil }) {
			// a callback has left gradients, and a replay would not add its own gradients to them
			return 0, false
		}
	}
	now := shapeOf(b)
	at := slices.IndexFunc(g.shapes, now.same)
	if at < 0 {
		at = len(g.shapes)
		g.shapes = append(g.shapes, now)
	}
	switch f := &g.shapes[at]; {
	case f.steps < eagerSteps:
		f.steps++
		return 0, false
	case !f.replayed && g.replayed == mostCaptured:
		return 0, false
	case !f.replayed:
		f.replayed = true
		g.replayed++
	}
	if !g.on {
		if why := t.uncaptured(); why != "" {
			t.eagerly(why)
			return 0, false
		}
		g.on = true
	}
	return at, true
}

// nested reports whether Compute may read values of b that no captured step reads.
func (t *trainer) nested(b *data.Batch) bool {
	return t.c.Compute != nil && b.Nested != (data.Sample{})
}

// replay receives the batches of a step one by one. It holds them until it has the last batch of
// the step, and then replays the step. After the replay it frees the batches and records their
// losses. It returns false if the step has to run eagerly.
func (t *trainer) replay(b *data.Batch, n int) (done bool, err error) {
	g := &t.captured
	if t.batches == 1 {
		yes := false
		if g.form, yes = t.replays(b, n); !yes {
			return false, nil
		}
		if t.adapt.team != nil {
			return t.replayTogether(b, n, g.form)
		}
	} else if len(g.held) == 0 {
		return false, nil // the step has to run eagerly
	} else if b.X == nil || b.Y == nil || t.nested(b) || !g.shapes[g.form].same(shapeOf(b)) {
		if err := t.release(); err != nil {
			b.Free()
			return false, err
		}
		return false, nil
	}
	if g.held = append(g.held, b); len(g.held) < t.c.Accumulate {
		return true, nil
	}
	if g.step == nil {
		g.step = tensor.Compile(t.wholeStep, tensor.Warm(0))
	}
	var losses []*tensor.Tensor
	err = tensor.Try(func() {
		var all []*tensor.Tensor
		for _, b := range g.held {
			all = append(all, b.X, b.Y)
		}
		tensor.Youngest(all...).Do(func(s *tensor.Scope) {
			for i, x := range all {
				all[i] = s.From(x.In(s))
			}
			losses = g.step.Call(s, all...)
			s.Close(losses...)
		}, t.adapt.options()...)
	})
	if err != nil && t.repeats(err) {
		return true, t.release()
	}
	t.forget()
	if err != nil {
		return false, err
	}
	t.stepped = true
	if len(losses) == 0 {
		return true, t.noted(t.adapt.loss, n)
	}
	for _, loss := range losses {
		if err == nil {
			err = t.noted(loss, n)
		}
		loss.Free()
	}
	return true, err
}

// release eagerly computes the batches that were held for a replay.
func (t *trainer) release() error {
	g := &t.captured
	for len(g.held) > 0 {
		b := g.held[0]
		g.held = g.held[1:]
		if err := t.descend(b, len(b.Index)); err != nil {
			return err
		}
	}
	return nil
}

// forget frees the batches that were held for a replay.
func (t *trainer) forget() {
	for _, b := range t.captured.held {
		b.Free()
	}
	t.captured.held = nil
}

// repeats reports whether a step can run eagerly after its replay has failed with err. It can if
// the replay has changed nothing.
func (t *trainer) repeats(err error) bool {
	var within *device.ReplayError // a replay that failed halfway cannot be repeated
	var changed *optim.Error
	switch {
	case errors.As(err, &within):
		return false
	case errors.Is(err, tensor.ErrCapture) || errors.Is(err, device.ErrOutOfMemory):
		t.eagerly(err.Error())
	case errors.As(err, &changed):
		t.uncapture() // later steps will be captured again
	default:
		return false
	}
	return true
}

// wholeStep computes the gradients of a step's batches and makes the optimizer's step. This is the
// work that is captured. x holds the inputs and the targets of each batch. wholeStep returns the
// losses of several batches. For a single batch it returns none, because [Adapt] keeps the loss.
func (t *trainer) wholeStep(s *tensor.Scope, x ...*tensor.Tensor) (losses []*tensor.Tensor) {
	n, done := t.captured.shapes[t.captured.form].n, false
	defer func() {
		if !done {
			t.adapt.putBack(nil) // a step begins without gradients
		}
	}()
	for i := 0; i < len(x); i += 2 {
		held := t.adapt.takeGradients()
		s.Do(func(s *tensor.Scope) {
			b := &data.Batch{X: x[i].In(s), Y: x[i+1].In(s), Index: unknown(n)}
			_, _, loss := t.c.computePart(s, b, b, n)
			t.adapt.descend(s, loss, share{n, n, n}, 1, true, true)
			if len(x) > 2 {
				losses = append(losses, t.adapt.loss.In(s).Clone())
				s.Close(losses[len(losses)-1])
			}
		})
		t.adapt.merge(s, held)
	}
	t.wholeUpdate(s, len(x)/2)
	done = true
	return losses
}

// unknown returns the indices of n samples in a captured step, which cannot know them. Each is the
// least int, so that a slice or a tensor refuses it as an index.
func unknown(n int) []int { return slices.Repeat([]int{math.MinInt}, n) }

// wholeUpdate makes the optimizer's step at the end of a captured step with the given number of
// batches, in scope s.
func (t *trainer) wholeUpdate(s *tensor.Scope, batches int) {
	scaler, opt := t.c.Scaler, t.c.Optimizer
	t.average(s, 1/float64(batches))
	if scaler != nil {
		scaler.Unscale(opt)
	}
	for _, limit := range t.limits() {
		limit()
	}
	if scaler == nil {
		opt.Step()
	} else {
		scaler.Step(opt)
		scaler.Update()
	}
	opt.ZeroGrad()
}

// eagerly stops capturing, and logs the reason.
func (t *trainer) eagerly(reason string) {
	t.captured.off = true
	t.uncapture()
	t.print("steps run eagerly: " + reason)
}

// spare frees the memory of the captured steps when memory has run out. It returns false if no step
// is captured.
func (t *trainer) spare() bool {
	if !t.captured.on {
		return false
	}
	t.eagerly("memory has run out, and captured steps keep theirs")
	return true
}

// uncapture closes the graphs of the captured steps.
func (t *trainer) uncapture() {
	if t.captured.on && t.adapt.team != nil {
		t.adapt.team.drop = true
	}
	t.captured.on = false
	if c := t.captured.step; c != nil {
		t.captured.step = nil
		t.broken = errors.Join(t.broken, c.Close())
	}
}

// guards returns the present settings on which captured steps depend.
func (t *trainer) guards() []guarded {
	list := []guarded{{active: nn.Hooked(t.c.Model)}}
	for _, l := range nn.Modules(t.c.Model) {
		m, ok := l.(interface{ Training() bool })
		g := guarded{owner: l, active: ok && m.Training()}
		v := reflect.ValueOf(l)
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		} else {
			g.owner = v.Type()
		}
		g.fields = fieldsOf(v)
		list = append(list, g)
	}
	tensors := append(nn.Parameters(t.c.Model), nn.Buffers(t.c.Model)...)
	for _, p := range append(tensors, t.c.Optimizer.Params()...) {
		list = append(list, guarded{owner: p, active: p.NeedsGrad(), t: p.Type()})
	}
	return list
}

// fieldsOf returns the exported fields of a layer, and of the structs in it, as a string. It
// includes only numbers, bools, strings, and lists of these.
func fieldsOf(v reflect.Value) string {
	var b []byte
	for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
		kind := v.Type().Field(i).Type
		if f := v.Type().Field(i); kind.Kind() == reflect.Struct && (f.IsExported() || f.Anonymous) {
			b = append(b, fieldsOf(v.Field(i))...)
		}
		if kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		if k := kind.Kind(); v.Type().Field(i).IsExported() && (k <= reflect.Complex128 || k == reflect.String) {
			b = fmt.Append(b, v.Field(i).Interface(), ";")
		}
	}
	return string(b)
}
