package train

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdaptConfig configures an [Adapt]. Only Model is required.
type AdaptConfig struct {
	// Model is the model whose parameters get gradients. Its buffers are restored after a failure.
	Model  any
	Params []*tensor.Tensor // further tensors that get gradients
	// Device is the device to which batches are copied. Nil means the device of the model's first
	// parameter.
	Device device.Device
	// Generator supplies dropout and other random ops. Nil means the root scope's generator.
	Generator *tensor.Generator
	// options of the scope in which Adapt computes a batch or a part of one
	Options []tensor.Option

	// Reduction says how the loss combines the losses of its samples. With [ReductionUnknown],
	// Adapt determines the reduction when it first splits a batch. For this it evaluates the loss a
	// few times, in evaluation mode and without gradients.
	Reduction Reduction
	// Scale maps a loss to the value whose gradients are computed, as a gradient scaler's method
	// Scale does. Nil means the loss itself.
	Scale func(loss *tensor.Tensor) *tensor.Tensor

	// Keep forbids [nn.SetCheckpointing]. Without Keep, Adapt calls it as a last resort, if not
	// even one sample fits into memory. From then on Backward recomputes activations.
	Keep bool

	// Most is the largest number of samples in a part, even if more would fit. 0 means no such
	// limit: batches are split only after one did not fit.
	Most int
	// Probe is the number of steps without a failure after which a larger part is tried. 0 means
	// 16.
	Probe int
	// Log receives warnings, and a line when a split begins or changes. Nil means no log.
	Log func(string)
}

// A Reduction says how a loss combines the losses of its samples.
type Reduction uint8

// These are the reductions.
const (
	ReductionUnknown Reduction = iota
	ReductionMean              // the default reduction of package nn
	ReductionSum
)

// An Adapt computes gradients of batches that do not fit into the device's memory, and recovers
// from running out of memory. [Fit] uses an Adapt. In your own loop, use it directly:
//
//	a, err := train.NewAdapt(train.AdaptConfig{Model: model})
//	for batch, err := range loader.Batches() {
//		loss, err := a.Step(opt, batch, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
//			return nn.CrossEntropy(model.Forward(part.X), part.Y)
//		})
//	}
//
// If the computation of a batch runs out of memory, Adapt repeats it. It repeats the whole batch
// once if the cause may be temporary, such as another program or a fragmented pool. Otherwise it
// computes the batch in parts, which it halves until they fit. It adds up the gradients of the
// parts, weighted by their numbers of samples. The update therefore equals that of the whole batch
// except for rounding.
//
// Later batches start with the part size that fits. After Probe steps without a failure, Adapt
// tries a larger size, between the size that fits and the size that did not fit. If there is no
// size between them, it tries the size that did not fit again, at longer and longer intervals.
//
// A failed attempt changes nothing. Adapt closes its scope, and restores all gradients, including
// those of earlier batches of the same step. It restores the generator and the model's buffers
// (running statistics), which it copies when a batch begins. The function that computes the loss is
// called again, so any other side effect of that function happens again.
//
// Splitting changes some results. Batch normalisation in training normalises over each part, and
// updates its running statistics once for each part. With batch normalisation, a part has at least
// two samples. Dropout may draw different numbers than for the whole batch. A loss that is neither
// a mean nor a sum over samples is weighted by samples nevertheless. The first split logs which of
// these cases apply.
//
// Use an Adapt from one goroutine only.
type Adapt struct {
	c           AdaptConfig
	params      []*tensor.Tensor
	keep        keeper
	loss        *tensor.Tensor
	plan        plan
	splitLogged bool // whether the log has said how splitting changes results
	wholeLogged bool // whether the log has said that a batch cannot be split
	pairs       bool // whether a part needs two samples, because of batch normalisation
	recomputes  bool // whether Backward recomputes activations, because checkpointing is on
	stats       AdaptStats

	changes        []string // sentences for the log that say how the first split changes results
	changesPending bool     // whether the log still has to say how the first split changes results

	// short, unless nil, is called when memory has run out, before the caches are emptied.
	short func()
	// spare, unless nil, is called after a failure. It frees memory that the training does not
	// need, and returns false if there is none.
	spare func() bool

	team *team // computes batches on several devices; nil for one device
	// quiet, unless nil, calls f without averaging gradients over ranks. f is Backward for a part
	// that is not the last of a batch.
	quiet func(f func())
}

// AdaptStats counts the failures from which an [Adapt] recovered.
type AdaptStats struct {
	Failures int // number of attempts that ran out of memory, at a batch or at a change run by Do
	Redone   int // number of failures after which the same work was repeated
	Probes   int // number of attempts with larger parts
	Most     int // present number of samples in a part; 0 if batches are whole

	Checkpointing bool // whether Backward recomputes activations
}

// NewAdapt returns an Adapt. An error is an *[Error].
func NewAdapt(c AdaptConfig) (*Adapt, error) {
	if c.Model == nil {
		return nil, &Error{"Model", "there is none"}
	}
	if err := checkModel(c.Model); err != nil {
		return nil, err
	}
	if c.Most < 0 || c.Probe < 0 {
		return nil, &Error{"Most", fmt.Sprintf("%d samples, and %d steps to a probe; neither can be negative", c.Most, c.Probe)}
	}
	if c.Reduction > ReductionSum {
		return nil, &Error{"Reduction", fmt.Sprintf("%d is none", c.Reduction)}
	}
	a := &Adapt{c: c, params: nn.Parameters(c.Model)}
	for _, p := range c.Params {
		if p != nil && !slices.Contains(a.params, p) {
			a.params = append(a.params, p)
		}
	}
	if a.c.Device == nil {
		if len(a.params) == 0 {
			return nil, &Error{"Device", "it is not given, and there are no parameters to tell it"}
		}
		a.c.Device = a.params[0].Device()
	}
	if a.c.Generator == nil {
		a.c.Generator = tensor.Root().Generator()
	}
	a.keep.buffers = nn.Buffers(c.Model)
	a.plan = newPlan(c.Most, c.Probe)
	return a, nil
}

// Close frees the copies of buffers, and the loss of the latest call.
func (a *Adapt) Close() {
	a.keep.free()
	if a.loss != nil {
		a.loss.Free()
		a.loss = nil
	}
}

// Stats returns the numbers of failures and attempts so far.
func (a *Adapt) Stats() AdaptStats {
	s := a.stats
	s.Most, s.Checkpointing = a.plan.current(), a.recomputes
	return s
}

// Step makes a whole step of an optimizer: [Adapt.Backward], opt.Step and opt.ZeroGrad. If opt.Step
// runs out of memory, Step repeats it. Step takes ownership of the batch.
func (a *Adapt) Step(opt interface {
	Step()
	ZeroGrad()
}, b *data.Batch, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (loss *tensor.Tensor, err error) {
	if loss, err = a.Backward(b, f); err != nil {
		return nil, err
	}
	if err := a.Do("the optimizer's step", opt.Step); err != nil {
		return nil, err
	}
	opt.ZeroGrad()
	return loss, nil
}

// Do runs change, such as the Step of an optimizer of package optim, clipping, or an update of
// averaged weights. If it runs out of memory, change must leave everything as it was. Do then
// empties the caches and, if this may help, runs change once more. If change fails again, Do
// returns a *[MemoryError] with name in its field What. Other panics pass through.
func (a *Adapt) Do(name string, change func()) error {
	for again := false; ; again = true {
		err := outOfMemory(change)
		if err == nil {
			return nil
		}
		a.failed()
		spared := a.spare != nil && a.spare()
		a.c.Device.Empty()
		if !spared && (again || !retryMayHelp(err)) {
			return a.memoryError(name, 0, err)
		}
		a.stats.Redone++
	}
}

// Backward adds the gradients of a batch's loss to the gradients of the parameters. It returns the
// loss as a tensor of one number on the device. The Adapt owns this tensor, and overwrites it in
// the next call. f computes the loss of the batch, or of a part of it. The part's tensors belong to
// s, a scope on the device.
//
// Backward takes ownership of the batch and frees its tensors. To keep tensors, pass handles:
// data.Batch{X: x.Detach(), Y: y.Detach()}.
//
// The error is a *[MemoryError] if not even a single sample fits. It is also a *[MemoryError] if
// the batch has no dimension of samples along which it can be split. In this case gradients,
// buffers and generator do not change.
func (a *Adapt) Backward(b *data.Batch, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (loss *tensor.Tensor, err error) {
	return a.backward(b, 1, f)
}

// backward does the same as Backward for the loss multiplied by weight.
func (a *Adapt) backward(b *data.Batch, weight float64, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (*tensor.Tensor, error) {
	if b == nil || f == nil {
		panic(tensor.NewError("train", tensor.ErrValue, "there is no batch, or no function that computes its loss"))
	}
	defer a.team.free(b)
	n := samplesOf(b)
	if a.team != nil {
		if err := a.team.copyGrads(); err != nil {
			return nil, err
		}
	}
	held, done := a.takeGradients(), false
	defer func() {
		// The gradients are restored even after a panic that Adapt passes on.
		if !done {
			a.putBack(held)
		}
	}()
	a.keep.taken = false
	seed, offset := a.c.Generator.State()
	ranks := a.ranks(b, n)
	per := ceil(n, ranks) // largest number of samples for one device
	k, probe := a.plan.parts(per)
	if k > 1 || ranks > 1 {
		if why := indivisible(b, n); why != "" {
			k, probe = 1, false
			a.sayWhole(why)
		} else {
			a.firstSplit(b, n, f, seed, offset)
		}
	}
	k = min(k, a.mostParts(per))
	if probe {
		a.stats.Probes++
	}
	again, refused := false, 0
	for {
		lone, err, fatal := a.try(b, n, ranks, k, weight, f)
		if fatal != nil {
			return nil, fatal
		}
		if err == nil && !lone {
			break
		}
		spared := false
		if !lone {
			a.failed()
			spared = a.spare != nil && a.spare()
		}
		for _, p := range a.params {
			p.ZeroGrad()
		}
		a.keep.restore()
		a.c.Generator.SetState(seed, offset)
		a.c.Device.Empty()
		size := (per + k - 1) / k
		switch {
		case lone:
			a.pairs = true
			a.sayWhole("batch normalisation does not learn from a single one")
			ranks = a.ranks(b, n)
			per = ceil(n, ranks)
			k, probe = min(k, a.mostParts(per)), false
		case spared:
			a.stats.Redone++
		case probe:
			k, probe = a.plan.failed(per, size), false
		case !again && retryMayHelp(err):
			again = true
			a.stats.Redone++
		case k >= a.mostParts(per) && a.checkpoint():
			k, again = 1, false
		case size == 1:
			return nil, a.memoryError("", n, err)
		case k >= a.mostParts(per):
			e := a.memoryError("", n, err)
			e.What = fmt.Sprintf("the gradients of %d samples, and batch normalisation does not learn from a single one", size)
			return nil, e
		default:
			if why := indivisible(b, n); why != "" {
				e := a.memoryError("", n, err)
				e.What = fmt.Sprintf("the gradients of a batch of %d samples", n)
				e.Advice = append([]string{why}, e.Advice...)
				return nil, e
			}
			k = min(a.plan.halve(per, size), a.mostParts(per))
			again, refused = false, max(refused, size)
			a.firstSplit(b, n, f, seed, offset)
		}
	}
	if refused > 0 {
		a.say(fmt.Sprintf("out of memory with %d samples at once: going on in parts of %d, whose gradients are added up to the same update", refused, a.plan.current()))
	}
	if before, now := a.plan.good(per, k, probe); before != now {
		if now == 0 {
			a.say(fmt.Sprintf("%d samples at once fit again", per))
		} else {
			a.say(fmt.Sprintf("%d samples at once fit again, instead of %d", now, before))
		}
	}
	done = true
	a.tellSplit(seed, offset)
	a.merge(nil, held)
	return a.loss, nil
}

func (a *Adapt) failed() {
	a.stats.Failures++
	if a.short != nil {
		a.short()
	}
}

// mostParts returns the largest number of parts into which a batch of n samples can be divided.
func (a *Adapt) mostParts(n int) int {
	if a.pairs {
		return max(1, n/2)
	}
	return n
}

// attempt computes the samples lo … hi-1 of a batch of n samples, in k parts. The result lone is
// true if a part would have a single sample and batch normalisation needs more.
func (a *Adapt) attempt(b *data.Batch, n, lo, hi, k int, weight float64, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (lone bool) {
	m := hi - lo
	if n > 1 && m/k == 1 {
		defer func() {
			r := recover()
			if err, ok := r.(error); ok && errors.Is(err, tensor.ErrOneValue) {
				lone = true
			} else if r != nil {
				panic(r)
			}
		}()
	}
	opts := a.options()
	for i := range k {
		from, to := lo+m*i/k, lo+m*(i+1)/k
		scopeOf(b).Do(func(s *tensor.Scope) {
			a.descend(s, f(s, part(s, b, from, to, n)), share{to - from, m, n}, weight, i == 0, i == k-1)
		}, opts...)
	}
	return false
}

// A share holds three numbers of samples: those in a part of a batch, those on the device that
// computes the part, and those in the whole batch.
type share struct{ part, device, batch int }

// descend adds the gradient of a part's loss, multiplied by weight, to the parameters' gradients,
// and records the loss. first and last say whether the part is the first or the last on its device.
func (a *Adapt) descend(s *tensor.Scope, loss *tensor.Tensor, n share, weight float64, first, last bool) {
	if loss == nil || loss.Size() != 1 {
		panic(tensor.NewError("train", tensor.ErrShape, "the loss has to be one number", loss))
	}
	// Several devices average their gradients, weighted by numbers of samples. Their losses are
	// added up.
	factor, portion := float64(n.part)/float64(n.device), float64(n.part)/float64(n.batch)
	if a.c.Reduction == ReductionSum {
		factor, portion = float64(n.batch)/float64(n.device), 1
	}
	y := loss
	if w := factor * weight; w != 1 {
		y = y.MulScalar(w)
	}
	if a.c.Scale != nil {
		y = a.c.Scale(y)
	}
	if a.quiet != nil && !last {
		a.quiet(func() { y.Backward() })
	} else {
		y.Backward()
	}
	a.note(s, loss, portion, first)
}

func (a *Adapt) options() []tensor.Option {
	return append([]tensor.Option{tensor.On(a.c.Device), tensor.WithGenerator(a.c.Generator)}, a.c.Options...)
}

// note adds the loss of a part, multiplied by share, to the loss of the batch.
func (a *Adapt) note(s *tensor.Scope, loss *tensor.Tensor, share float64, first bool) {
	if a.loss == nil {
		ty := dtype.F32
		if loss.Type() == dtype.F64 {
			ty = dtype.F64
		}
		a.loss = tensor.Root().On(loss.Device()).Typed(ty).Zeros()
	}
	s.Do(func(s *tensor.Scope) {
		v, sum := loss.Detach().Reshape(), a.loss.In(s)
		if share != 1 {
			v = v.In(s).MulScalar(share)
		}
		if first {
			sum.Copy(v)
		} else {
			sum.AddInPlace(v.Cast(sum.Type()))
		}
	}, tensor.NoGrad())
}

// takeGradients removes the gradients of earlier batches from the parameters, and returns them. A
// failed attempt can then discard its own gradients and leave these unchanged.
func (a *Adapt) takeGradients() []*tensor.Tensor {
	var held []*tensor.Tensor
	for i, p := range a.params {
		if g := p.TakeGrad(); g != nil {
			if held == nil {
				held = make([]*tensor.Tensor, len(a.params))
			}
			held[i] = g
		}
	}
	return held
}

// putBack replaces the parameters' gradients by held, the result of takeGradients.
func (a *Adapt) putBack(held []*tensor.Tensor) {
	for i, p := range a.params {
		if held != nil {
			p.SetGrad(held[i])
		} else {
			p.ZeroGrad()
		}
	}
}

// merge adds the gradients of a batch to held, the result of takeGradients. It works in place and
// allocates nothing. s is the scope of a capture, or nil outside of a capture.
func (a *Adapt) merge(s *tensor.Scope, held []*tensor.Tensor) {
	if held == nil {
		return
	}
	for i, p := range a.params {
		switch g := p.Grad(); {
		case held[i] == nil:
		case g == nil:
			p.SetGrad(held[i])
		default:
			in := s
			if in == nil {
				in = tensor.Youngest(held[i], g)
			}
			in.Do(func(s *tensor.Scope) { held[i].In(s).AddInPlace(g) }, tensor.NoGrad())
			p.SetGrad(held[i])
		}
	}
}

// checkpoint switches checkpointing on, as the last resort. It returns false if this cannot help,
// because checkpointing was on already or no part of the model can recompute. Afterwards batches
// are whole again until one does not fit.
func (a *Adapt) checkpoint() bool {
	if a.recomputes || a.c.Keep || nn.SetCheckpointing(a.c.Model, true) == 0 {
		return false
	}
	a.recomputes = true
	a.plan.most, a.plan.bad, a.plan.steps = 0, 0, 0
	a.say("out of memory with a single sample: from now on activations are computed again instead of kept (checkpointing)")
	return true
}

func (a *Adapt) state() map[string]any {
	sd := a.plan.state()
	sd["checkpointing"] = a.recomputes
	return sd
}

// load restores a state that the method state has returned.
func (a *Adapt) load(sd map[string]any) error {
	on, ok := sd["checkpointing"].(bool)
	if !ok {
		return fmt.Errorf("the split of batches has \"checkpointing\" as %v", sd["checkpointing"])
	}
	if err := a.plan.load(sd); err != nil {
		return err
	}
	if on && !a.recomputes {
		nn.SetCheckpointing(a.c.Model, true)
		a.recomputes = true
	}
	return nil
}

// sayWhole logs, once, that a batch is computed whole although it has more than Most samples.
func (a *Adapt) sayWhole(why string) {
	if a.c.Most > 0 && !a.wholeLogged {
		a.wholeLogged = true
		a.say(fmt.Sprintf("more than %d samples are computed at once: %s", a.c.Most, why))
	}
}

func (a *Adapt) say(line string) {
	if a.c.Log != nil {
		a.c.Log(line)
	}
}

// outOfMemory runs f and returns its panic if the panic is an out-of-memory error. Other panics
// pass through.
func outOfMemory(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *tensor.Error:
			if !errors.Is(r, device.ErrOutOfMemory) {
				panic(r)
			}
			err = r
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// retryMayHelp reports whether a failed allocation may succeed at a second attempt. This is so if
// the device had enough memory, which was fragmented or briefly used by other programs. If the
// error does not say how much memory was asked for and available, retryMayHelp returns true.
func retryMayHelp(err error) bool {
	var e device.ShortageError
	if !errors.As(err, &e) {
		return true
	}
	s := e.Shortage()
	return s.Available() >= s.Asked
}
