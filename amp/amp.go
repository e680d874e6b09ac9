// Package amp helps to train in float16. As torch.amp.GradScaler does, it scales losses so that
// gradients neither vanish nor overflow.
//
// Mixed precision itself is a mode of a scope, [tensor.Autocast]. bfloat16 needs only this mode.
// The positive numbers of float16 range from 6e-8 to 65504, and a smaller gradient becomes 0.
// float16 therefore also needs a [GradScaler], which does three things:
//
//   - It multiplies the loss by a large number, the scale. It divides the gradients by the scale
//     before the optimizer uses them.
//   - It skips steps whose gradients are infinite or NaN.
//   - It finds the largest scale that does not overflow.
//
// This is a training loop:
//
//	scaler := amp.NewGradScaler()
//	for … {
//		tensor.Do(func(s *tensor.Scope) {
//			loss := nn.CrossEntropy(model.Forward(s.From(x)), s.From(y))
//			scaler.Scale(loss).Backward()
//			scaler.Unscale(opt) // only if the program reads or clips the gradients
//			optim.ClipGradNorm(opt.Params(), 1)
//			scaler.Step(opt)
//			scaler.Update()
//			opt.ZeroGrad()
//		}, tensor.Autocast(dtype.F16))
//	}
//
// The scale, the number of good steps and the flag for an overflow are on the device. The device
// decides whether to make a step, and the host does not wait for the decision. The host learns
// later which steps were skipped. It warns when many consecutive steps were skipped ([WarnAfter]).
//
// A capture ([tensor.Capture]) may contain all of these calls. When a replay runs, it uses the
// present scale, makes or skips the step, and changes the scale. Update belongs in the same capture
// as Step.
//
// Misuse panics with the library's *[tensor.Error]. A state that does not fit is a *[StateError].
// One goroutine at a time may use a scaler.
package amp

import (
	"fmt"
	"log"
	"math"
	"reflect"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Optimizer is what a scaler needs of an optimizer. The optimizer comes from package optim or
// from the program.
type Optimizer interface {
	Params() []*tensor.Tensor
	Step()
}

// A Skipper is an Optimizer that can skip a step depending on a number on the device. For any other
// optimizer, [GradScaler.Step] waits for the device and reads the number, which has four bytes.
type Skipper interface {
	// StepUnless does the same as Step if foundInf, a tensor with one float32, is 0. Otherwise it
	// changes nothing, not even the number of steps. In a capture, foundInf belongs to the graph's
	// scope. Otherwise it belongs to the root scope.
	StepUnless(foundInf *tensor.Tensor)
}

// A GradScaler scales losses and unscales gradients, as the package comment describes.
type GradScaler struct {
	settings
	home device.Device
	// scale and tracker are on the device in the field home. They are nil before the first use.
	scale, tracker *tensor.Tensor
	slots          *tensor.Tensor // settings on the device; nil after a change of a setting
	copies         map[device.Device]*tensor.Tensor
	optimizers     map[Optimizer]*optimizerState
	watch          watch
	// turn lets only one graph that changes the scale run at a time.
	turn tensor.Exclusive
}

// settings holds what options set. begin is the initial scale, and tracked is the initial number
// of good steps.
type settings struct {
	begin           float64
	growth, backoff float64
	interval        int
	tracked         int
	floor           float64
	off             bool
	patience        int
	warn            func(Warning)
}

// A stage says what has been done with an optimizer since the last update.
type stage uint8

const (
	ready stage = iota
	unscaled
	stepped
)

type optimizerState struct {
	stage    stage
	graph    *tensor.Graph // graph that captures the gradients; nil outside of captures
	foundInf map[device.Device]*tensor.Tensor
	combined *tensor.Tensor // foundInf, combined over all devices
}

// An Option changes a setting of a new scaler.
type Option func(*settings)

// InitScale sets the initial scale; the default is torch's, 65536.
func InitScale(v float64) Option { return func(s *settings) { s.begin = v } }

// GrowthFactor sets the factor by which the scale is multiplied after GrowthInterval consecutive
// good steps. The default is 2.
func GrowthFactor(v float64) Option { return func(s *settings) { s.growth = v } }

// BackoffFactor sets the factor by which the scale is multiplied after a skipped step. The default
// is 0.5.
func BackoffFactor(v float64) Option { return func(s *settings) { s.backoff = v } }

// GrowthInterval sets the number of consecutive good steps after which the scale grows. The default
// is 2000.
func GrowthInterval(n int) Option { return func(s *settings) { s.interval = n } }

// Enabled sets whether the scaler scales. With Enabled(false) it only calls the optimizer's Step.
// A program can therefore use the same code to train with and without float16.
func Enabled(on bool) Option { return func(s *settings) { s.off = !on } }

// Floor sets the lowest scale. The default is 0, which means no limit, as in torch. Without a
// limit, the scale keeps falling while gradients are NaN.
func Floor(v float64) Option { return func(s *settings) { s.floor = v } }

// WarnAfter makes the scaler call f instead of writing to the log. It calls f when n consecutive
// steps were skipped, or when a step is skipped at the lowest scale. The default for n is 10. f is
// not called again before the next good step. The call comes a few steps late, because the host
// learns of skipped steps late. If f is called within a replay, it must not use the graph.
func WarnAfter(n int, f func(Warning)) Option {
	return func(s *settings) {
		s.patience = n
		if f != nil {
			s.warn = f
		}
	}
}

// NewGradScaler returns a scaler. Invalid options panic. As in torch, factors must be positive,
// GrowthFactor must be above 1 and BackoffFactor below 1.
func NewGradScaler(opts ...Option) *GradScaler {
	s := settings{begin: 65536, growth: 2, backoff: 0.5, interval: 2000, patience: 10, warn: func(w Warning) { log.Print(w) }}
	for _, o := range opts {
		o(&s)
	}
	if msg := s.check(); msg != "" {
		misuse("grad_scaler", msg, "")
	}
	g := &GradScaler{settings: s, optimizers: map[Optimizer]*optimizerState{}}
	g.watch.scale, g.watch.tracked = float32(s.begin), s.tracked
	return g
}

func (s *settings) check() string {
	switch bad := func(v float64) bool { return !(v > 0) || math.IsInf(v, 1) }; {
	case bad(s.begin):
		return fmt.Sprintf("a scale of %v; it must be positive", s.begin)
	case bad(s.growth) || s.growth <= 1:
		return fmt.Sprintf("a growth factor of %v; it must be above 1", s.growth)
	case bad(s.backoff) || s.backoff >= 1:
		return fmt.Sprintf("a backoff factor of %v; it must be between 0 and 1", s.backoff)
	case s.interval < 1:
		return fmt.Sprintf("a growth interval of %d steps; it must be positive", s.interval)
	case s.floor < 0 || s.floor != s.floor || s.floor > s.begin:
		return fmt.Sprintf("a least scale of %v; it must be between 0 and the scale, %v", s.floor, s.begin)
	case s.patience < 1:
		return fmt.Sprintf("a warning after %d steps; it must be after 1 or more", s.patience)
	case s.tracked < 0 || s.tracked >= s.interval:
		return fmt.Sprintf("%d good steps so far, of a growth interval of %d", s.tracked, s.interval)
	}
	return ""
}

func misuse(op, msg, hint string, operands ...*tensor.Tensor) {
	e := tensor.NewError(op, tensor.ErrValue, msg, operands...)
	e.Hint = hint
	panic(e)
}

// String returns the settings. Unlike [GradScaler.Value], it does not read the scale from the
// device.
func (g *GradScaler) String() string {
	if g.off {
		return "GradScaler(disabled)"
	}
	return fmt.Sprintf("GradScaler(begun with %v, times %v after %d good steps, times %v after a bad one)", g.begin, g.growth, g.interval, g.backoff)
}

// Enabled reports whether the scaler is enabled. A scaler that is not enabled does not scale.
func (g *GradScaler) Enabled() bool { return !g.off }

// Scale returns the loss multiplied by the scale, for Backward. The scaler's own tensors are on the
// device of the first loss.
func (g *GradScaler) Scale(loss *tensor.Tensor) *tensor.Tensor {
	if g.off {
		return loss
	}
	if loss == nil {
		misuse("grad_scaler.scale", "the loss is nil", "")
	}
	if g.scale == nil {
		g.allocate(loss.Device())
	}
	if graph := tensor.Capturing(loss); graph != nil {
		graph.Adopt(g.scale, g.tracker)
	}
	return loss.Mul(g.scaleOn(loss.Device()))
}

func (g *GradScaler) allocate(d device.Device) {
	m := tensor.Root().On(d)
	g.home, g.scale, g.tracker = d, m.Typed(dtype.F32).Full(g.begin), m.Typed(dtype.I64).Full(float64(g.tracked))
}

// scaleOn returns the scale as a tensor on device d, a copy if d is not the scaler's device.
func (g *GradScaler) scaleOn(d device.Device) *tensor.Tensor {
	if d == g.home {
		return g.scale
	}
	c := g.copies[d]
	if c == nil {
		if g.copies == nil {
			g.copies = map[device.Device]*tensor.Tensor{}
		}
		c = g.scale.To(d)
		g.copies[d] = c
	}
	return c
}

// requireScaled raises an error if op is called before the first Scale.
func (g *GradScaler) requireScaled(op string) {
	if g.scale == nil {
		misuse(op, "nothing was scaled yet", "call Scale(loss).Backward() before")
	}
}

// stateOf returns what the scaler knows of opt since the last update. It raises an error if the
// scaler cannot make a step of opt.
func (g *GradScaler) stateOf(op string, opt Optimizer) *optimizerState {
	v := reflect.ValueOf(opt)
	switch {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		misuse(op, "the optimizer is nil", "")
	case !v.Comparable():
		misuse(op, fmt.Sprintf("the optimizer is a %T, which cannot be told from others of its kind", opt), "pass a pointer to it")
	}
	for i, p := range opt.Params() {
		if p == nil {
			misuse(op, fmt.Sprintf("parameter %d of the optimizer is nil", i), "")
		}
	}
	st := g.optimizers[opt]
	if st == nil {
		st = &optimizerState{foundInf: map[device.Device]*tensor.Tensor{}}
		g.captured(op, opt, st)
		g.optimizers[opt] = st
	}
	return st
}

// Unscale divides the gradients of opt's parameters by the scale. The device also records whether a
// gradient is infinite or NaN. Step calls Unscale if the program has not. Call Unscale yourself
// only if the program uses the gradients between Backward and Step, for example to clip them. Call
// it only once for each Step. As in torch, float16 gradients are an error. Such gradients come from
// parameters that are themselves float16.
func (g *GradScaler) Unscale(opt Optimizer) {
	const op = "grad_scaler.unscale"
	if g.off {
		return
	}
	g.requireScaled(op)
	st := g.stateOf(op, opt)
	switch st.stage {
	case unscaled:
		misuse(op, "the gradients of this optimizer were unscaled already since the last update", "call Unscale once, before Step")
	case stepped:
		misuse(op, "the optimizer was stepped already since the last update", "call Unscale before Step, and Update after it")
	}
	g.unscale(op, opt, st)
	st.stage = unscaled
}

// Step divides the gradients by the scale and calls opt's Step. If a gradient is infinite or NaN it
// skips the step.
func (g *GradScaler) Step(opt Optimizer) {
	const op = "grad_scaler.step"
	if g.off {
		opt.Step()
		return
	}
	g.requireScaled(op)
	st := g.stateOf(op, opt)
	switch st.stage {
	case stepped:
		misuse(op, "the optimizer was stepped already since the last update", "call Update after each Step")
	case ready:
		g.unscale(op, opt, st)
		st.stage = unscaled // this remains true if the optimizer's Step fails
	}
	if len(st.foundInf) == 0 {
		delete(g.optimizers, opt) // as if the iteration had not begun
		misuse(op, "no parameter of the optimizer has a gradient", "call Scale(loss).Backward() before")
	}
	st.combined = g.combined(st)
	if s, ok := opt.(Skipper); ok {
		s.StepUnless(st.combined)
	} else if st.graph != nil {
		e := tensor.NewError(op, tensor.ErrCapture, fmt.Sprintf("a %T cannot leave a step out on the device, and the host, which decides for it, is not in a replay", opt))
		e.Hint = "give it the method StepUnless, or capture Scale and Backward alone and step after each replay"
		panic(e)
	} else if st.combined.Item() == 0 {
		opt.Step()
	}
	st.stage = stepped
}

// combined returns a tensor on the scaler's device that says whether an infinity or NaN was found
// on any device.
func (g *GradScaler) combined(st *optimizerState) *tensor.Tensor {
	var all *tensor.Tensor
	for _, f := range st.foundInf {
		here := f.To(g.home)
		if all == nil {
			all = here
			continue
		}
		both := all.Maximum(here)
		for _, t := range []*tensor.Tensor{all, here} {
			if st.foundInf[g.home] != t {
				t.Free()
			}
		}
		all = both
	}
	return all
}

// Value returns the scale, or 1 if the scaler is not enabled. It waits for the device.
func (g *GradScaler) Value() float64 {
	switch {
	case g.off:
		return 1
	case g.scale == nil:
		return float64(float32(g.begin))
	}
	return g.scale.Item()
}

// GrowthTracker returns the number of good steps since the scale last changed. It waits for the
// device.
func (g *GradScaler) GrowthTracker() int {
	switch {
	case g.off:
		return 0
	case g.tracker == nil:
		return g.tracked
	}
	return int(g.tracker.Item())
}

// Overflowed returns the names of the parameters of model whose gradients contain an infinity or
// NaN. The names are in reverse order of the model's layers, which is usually the order in which
// Backward reaches them. The first parameter is then usually the cause. Call Overflowed after
// Backward and before ZeroGrad, because it reads the present gradients. It waits for the device.
func (g *GradScaler) Overflowed(model any) []string {
	var names []string
	list := nn.NamedParameters(model)
	for i := len(list) - 1; i >= 0; i-- {
		if d := list[i].Tensor.Grad(); d != nil && d.Size() > 0 {
			d.Scope().Do(func(s *tensor.Scope) {
				if v := d.In(s).Norm(math.Inf(1)).Item(); math.IsNaN(v) || math.IsInf(v, 0) {
					names = append(names, list[i].Name)
				}
			}, tensor.NoGrad())
		}
	}
	return names
}
