package train

import (
	"errors"
	"fmt"
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

// Capturing says whether [Fit] captures its steps: see [Config].Capture.
type Capturing uint8

// The kinds of Capturing.
const (
	CaptureOwn    Capturing = iota // steps whose code is this library's own are captured
	CaptureNever                   // all steps run eagerly
	CaptureAlways                  // the program's own code is captured too
)

// eagerSteps is the number of eager steps with equal shapes before a step is captured. They make
// the optimizer's state, and show that the shapes come again.
const eagerSteps = 3

// mostCaptured is the number of shapes of batches whose steps are captured. It is what a
// [tensor.Compiled] keeps: more shapes would be captured again and again.
const mostCaptured = 16

// captured captures the steps of a training, and replays them.
type captured struct {
	step   *tensor.Compiled
	off    bool // no step is captured any more, and the log says why
	shapes []batchShape
	guard  []guarded // the model's settings that the captured steps depend on
	// number of these shapes whose steps are replays
	replayed int
	check    bool // the program may have changed settings since the last step
}

// batchShape counts the eager steps with batches of one shape.
type batchShape struct {
	x, y     shape.Dims
	tx, ty   dtype.Type
	n, steps int
	replayed bool // the steps are replays
}

// guarded is a setting of the training: a layer, a tensor, or whether there are hooks. The tensors
// are parameters and buffers of the model and the parameters of the optimizer.
type guarded struct {
	owner  any    // pointer to the layer or the tensor; for a layer that is no pointer, its type
	active bool   // the layer trains, the tensor requires a gradient, or the model has hooks
	fields string // the layer's exported numbers and texts
	t      dtype.Type
}

// uncaptured returns why steps are not captured, or "" if they are.
func (t *trainer) uncaptured() string {
	own := func(what string) string {
		return what + " is the program's own code, whose host work a replay does not repeat; with Capture: train.CaptureAlways it is captured"
	}
	_, records := t.c.Device.(device.Recorder)
	switch {
	case !records:
		return t.c.Device.Name() + " cannot record work"
	case len(t.c.devices) > 0:
		return "the training runs on several devices"
	case t.c.Accumulate > 1:
		return "a step accumulates gradients of several batches"
	case t.c.Compute != nil:
		return "Compute gets the whole batch, of which a replay reads only X and Y"
	case t.c.Capture == CaptureAlways:
		return ""
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

// isOursType reports whether a type, or the type to which it points, is one of this library's
// packages.
func isOursType(typ reflect.Type) bool {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return !callsite.Outside(typ.PkgPath()+".", "") && !strings.HasSuffix(typ.PkgPath(), "_test")
}

// callsOthers reports whether a layer of this library has a function of the program, as an
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

// isOurs reports whether f is a function or a method of this library's packages.
func isOurs(f reflect.Value) bool {
	at := runtime.FuncForPC(f.Pointer())
	if at == nil {
		return false
	}
	file, _ := at.FileLine(at.Entry())
	return !callsite.Outside(at.Name(), file)
}

// replays reports whether the step of a batch of n samples is to be a replay. If not, it counts the
// eager step.
func (t *trainer) replays(b *data.Batch, n int) bool {
	g := &t.captured
	if g.off || t.c.Capture == CaptureNever || b.X == nil || b.Y == nil || device.Tracing() != nil {
		return false
	}
	if most := t.adapt.plan.current(); most > 0 && most < n {
		return false // the batch is computed in parts
	}
	if g.check || g.shapes == nil {
		g.check = false
		if now := t.guards(); !slices.Equal(now, g.guard) {
			t.uncapture()
			g.guard, g.shapes, g.replayed = now, []batchShape{}, 0
		}
		if slices.ContainsFunc(t.c.Optimizer.Params(), func(p *tensor.Tensor) bool { return p.Grad() != nil }) {
			return false // a replay would not add to gradients that a callback has left
		}
	}
	form := batchShape{x: b.X.Shape(), y: b.Y.Shape(), tx: b.X.Type(), ty: b.Y.Type(), n: n}
	at := slices.IndexFunc(g.shapes, func(f batchShape) bool { f.steps, f.replayed = 0, false; return f == form })
	if at < 0 {
		at = len(g.shapes)
		g.shapes = append(g.shapes, form)
	}
	switch f := &g.shapes[at]; {
	case f.steps < eagerSteps:
		f.steps++
		return false
	case !f.replayed && g.replayed == mostCaptured:
		return false
	case !f.replayed:
		f.replayed = true
		g.replayed++
	}
	if g.step == nil {
		if why := t.uncaptured(); why != "" {
			t.eagerly(why)
			return false
		}
		g.step = tensor.Compile(t.wholeStep, tensor.Warm(0))
	}
	return true
}

// replay makes the whole step of a batch of n samples as a replay. It frees the batch and notes the
// loss. It returns false if the step has to run eagerly.
func (t *trainer) replay(b *data.Batch, n int) (done bool, err error) {
	if !t.replays(b, n) {
		return false, nil
	}
	scopeOf(b).Do(func(s *tensor.Scope) {
		p := part(s, b, 0, n, n)
		err = tensor.Try(func() { t.captured.step.Call(s, p.X, p.Y) })
	}, t.adapt.options()...)
	var within *device.ReplayError // a part of the step was done, so it cannot be repeated
	if !errors.As(err, &within) && (errors.Is(err, tensor.ErrCapture) || errors.Is(err, device.ErrOutOfMemory)) {
		t.eagerly(err.Error())
		return false, nil
	}
	var changed *optim.Error
	if errors.As(err, &changed) {
		t.uncapture() // nothing of the step was done, and later steps are captured anew
		return false, nil
	}
	b.Free()
	if err != nil {
		return false, err
	}
	t.stepped = true
	return true, t.noted(t.adapt.loss, n)
}

// wholeStep computes the loss of a batch, copies it to where [Adapt] keeps it, and makes the
// optimizer's step. Its work is captured.
func (t *trainer) wholeStep(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
	n := t.captured.samples(x)
	b := &data.Batch{X: x[0], Y: x[1], Index: make([]int, n)}
	_, _, loss := t.c.computePart(s, b, b, n)
	if loss == nil || loss.Size() != 1 {
		panic(tensor.NewError("train", tensor.ErrShape, "the loss has to be one number", loss))
	}
	t.adapt.note(s, loss, 1, true)
	scaler, opt := t.c.Scaler, t.c.Optimizer
	if scaler == nil {
		loss.Backward()
	} else {
		scaler.Scale(loss).Backward()
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
	return nil
}

// samples returns the number of samples of the batch with these tensors.
func (g *captured) samples(x []*tensor.Tensor) int {
	i := slices.IndexFunc(g.shapes, func(f batchShape) bool {
		return f.x == x[0].Shape() && f.y == x[1].Shape() && f.tx == x[0].Type() && f.ty == x[1].Type()
	})
	return g.shapes[i].n
}

// eagerly logs the reason why steps run eagerly. From now on no step is captured.
func (t *trainer) eagerly(reason string) {
	t.captured.off = true
	t.uncapture()
	t.print("steps run eagerly: " + reason)
}

// spare frees the memory of the captured steps, because memory is short without it. It returns
// false if no step is captured.
func (t *trainer) spare() bool {
	if t.captured.step == nil {
		return false
	}
	t.eagerly("memory has run out, and captured steps keep theirs")
	return true
}

// uncapture closes the graphs of the captured steps.
func (t *trainer) uncapture() {
	if c := t.captured.step; c != nil {
		t.captured.step = nil
		t.broken = errors.Join(t.broken, c.Close())
	}
}

// guards returns the settings that decide what a step does.
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

// fieldsOf returns the exported numbers, texts and lists of such of a layer and of the structs in
// it, as a text.
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
