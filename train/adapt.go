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

// AdaptConfig says what an [Adapt] works with. Only Model is needed.
type AdaptConfig struct {
	// its parameters get gradients, its buffers are put back after a failure
	Model     any
	Params    []*tensor.Tensor  // leaves beyond the model's that get gradients
	Device    device.Device     // where batches go; nil: that of the model's first parameter
	Generator *tensor.Generator // of dropout and the like; nil: the root scope's
	Options   []tensor.Option   // of the scope that a part is computed in

	// Reduction says what the loss is of its batch. [ReductionUnknown] has it found out when a
	// batch is split for the first time, by a few evaluations of the loss in evaluation mode and
	// without gradients.
	Reduction Reduction
	// Scale maps a loss to what the gradients are taken of, as the Scale method of a gradient
	// scaler; nil: the loss itself.
	Scale func(loss *tensor.Tensor) *tensor.Tensor

	// Keep forbids what is tried when not even one sample fits: [nn.SetCheckpointing], with which
	// activations are computed again in Backward instead of being kept. It stays on.
	Keep bool

	// samples in a part at most, from the beginning and whatever fits; 0: whole batches, until one
	// does not fit
	Most  int
	Probe int          // good steps before a larger part is tried again; 0: 16
	Log   func(string) // gets a line when a split is found or changes, and warnings; nil: none
}

// A Reduction is what a loss is of the samples of its batch.
type Reduction uint8

// The reductions.
const (
	ReductionUnknown Reduction = iota
	ReductionMean              // as of all losses unless told otherwise
	ReductionSum
)

// An Adapt computes gradients of batches that do not fit into the device's memory, and gets over
// running out of it. [Fit] uses one; this is for loops of one's own:
//
//	a, err := train.NewAdapt(train.AdaptConfig{Model: model})
//	for batch, err := range loader.Batches() {
//		loss, err := a.Step(opt, batch, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
//			return nn.CrossEntropy(model.Forward(part.X), part.Y)
//		})
//	}
//
// A batch whose computation runs out of memory is done again. It is done whole if the memory is
// there after all, as when another program or a fragmented pool was the cause. Otherwise it is done
// in parts, halved until they fit. The parts' gradients are added up, weighted by their samples, so
// that the update is that of the whole batch but for rounding. The size that fits is remembered for
// the next batches. After Probe good steps something larger is tried, between what fits and what
// did not; once nothing lies between, ever more rarely the latter.
//
// Nothing of a failed attempt stays. Its scope is closed. Gradients are as they were, those of
// earlier batches of the same step too. The generator and the model's buffers (running statistics)
// are put back; the buffers are copied when a batch begins. The function that computes the loss is
// called again; what it changes beyond tensors of its scope it changes again.
//
// What splitting cannot keep: batch normalisation in training normalises over each part, of two
// samples at least, and updates its running statistics once for each. Dropout may draw other
// numbers. A loss that is neither mean nor sum over samples is weighted by samples all the same.
// The first split says so, once.
//
// An Adapt is used by one goroutine.
type Adapt struct {
	c      AdaptConfig
	params []*tensor.Tensor
	keep   keeper
	loss   *tensor.Tensor
	plan   plan
	told   bool // what splitting changes
	whole  bool // that a batch cannot be split was told
	pairs  bool // a part cannot be of a single sample: batch normalisation
	anew   bool // activations are computed again: checkpointing is on
	stats  AdaptStats

	changes []string // of the first split
	telling bool     // that is to be told of

	short func() // is called after a failure, before caches are emptied; nil: nothing is

	team  *team          // that computes batches together; nil: one device does
	quiet func(f func()) // runs a Backward that is not the last of its batch; nil: as any
}

// AdaptStats counts what an [Adapt] got over.
type AdaptStats struct {
	Failures int // attempts, and changes, that ran out of memory
	Redone   int // of these, what was done again as it was
	Probes   int // larger parts that were tried
	Most     int // samples in a part at present; 0: batches are whole

	Checkpointing bool // activations are computed again
}

// NewAdapt returns an Adapt. The error is an *[Error].
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

// Close frees the copies that a holds, and the loss that it returned last.
func (a *Adapt) Close() {
	a.keep.free()
	if a.loss != nil {
		a.loss.Free()
		a.loss = nil
	}
}

// Stats returns the counts.
func (a *Adapt) Stats() AdaptStats {
	s := a.stats
	s.Most, s.Checkpointing = a.plan.now(), a.anew
	return s
}

// Step is a whole step of an optimizer: [Adapt.Backward], then opt.Step, which is done again if it
// runs out of memory, and opt.ZeroGrad. The batch is taken over.
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

// Do runs a change that is made wholly or not at all when memory runs out. Such are the Step of
// every optimizer of package optim, clipping, averages, and what programs write in that way. If
// memory runs out, Do empties the caches and runs the change once more. The error is then a
// *[MemoryError], in which what names the change. Other panics go on.
func (a *Adapt) Do(what string, change func()) error {
	for again := false; ; again = true {
		err := outOfMemory(change)
		if err == nil {
			return nil
		}
		a.failed()
		a.c.Device.Empty()
		if again || !roomy(err) {
			return a.memoryError(what, 0, err)
		}
		a.stats.Redone++
	}
}

// Backward adds the gradients of a batch's loss to those of the parameters. It returns the loss as
// a tensor of one number on the device, which a keeps and overwrites in the next call. It takes the
// batch over and frees its tensors. For those that are needed afterwards give it handles:
// data.Batch{X: x.Detach(), Y: y.Detach()}. f computes the loss of the batch, or of a part of it.
// The part's tensors belong to s, a scope on the device.
//
// The error is a *[MemoryError] when not even a single sample fits, or when the batch has no
// dimension of samples to be split along. Gradients, buffers and generator are then as they were
// before.
func (a *Adapt) Backward(b *data.Batch, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (loss *tensor.Tensor, err error) {
	return a.backward(b, 1, f)
}

// backward is Backward of weight times the loss.
func (a *Adapt) backward(b *data.Batch, weight float64, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (*tensor.Tensor, error) {
	if b == nil || f == nil {
		panic(tensor.NewError("train", tensor.ErrValue, "there is no batch, or no function that computes its loss"))
	}
	defer a.team.free(b)
	n := samplesOf(b)
	if a.team != nil {
		if err := a.team.own(); err != nil {
			return nil, err
		}
	}
	held, done := a.takeGradients(), false
	defer func() {
		if !done { // by a panic that is none of ours, too
			a.putBack(held)
		}
	}()
	a.keep.taken = false
	seed, offset := a.c.Generator.State()
	ranks := a.ranks(b, n)
	per := ceil(n, ranks) // samples of the device that has most
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
		if !lone {
			a.failed()
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
		case probe:
			k, probe = a.plan.failed(per, size), false
		case !again && roomy(err):
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
		a.say(fmt.Sprintf("out of memory with %d samples at once: going on in parts of %d, whose gradients are added up to the same update", refused, a.plan.now()))
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
	a.merge(held)
	return a.loss, nil
}

// failed counts a failure.
func (a *Adapt) failed() {
	a.stats.Failures++
	if a.short != nil {
		a.short()
	}
}

// mostParts is into how many parts a batch of n samples can be divided.
func (a *Adapt) mostParts(n int) int {
	if a.pairs {
		return max(1, n/2)
	}
	return n
}

// attempt computes the samples lo … hi-1 of a batch of n in k parts, and reports whether one of
// them, of a single sample, is too small for batch normalisation.
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
	opts := append([]tensor.Option{tensor.On(a.c.Device), tensor.WithGenerator(a.c.Generator)}, a.c.Options...)
	for i := range k {
		from, to := lo+m*i/k, lo+m*(i+1)/k
		// The gradients of several devices are averaged by their samples, their losses are added
		// up.
		share, portion := float64(to-from)/float64(m), float64(to-from)/float64(n)
		if a.c.Reduction == ReductionSum {
			share, portion = float64(n)/float64(m), 1
		}
		scopeOf(b).Do(func(s *tensor.Scope) {
			loss := f(s, part(s, b, from, to, n))
			if loss == nil || loss.Size() != 1 {
				panic(tensor.NewError("train", tensor.ErrShape, "the loss has to be one number", loss))
			}
			y := loss
			if w := share * weight; w != 1 {
				y = y.MulScalar(w)
			}
			if a.c.Scale != nil {
				y = a.c.Scale(y)
			}
			if a.quiet != nil && i < k-1 {
				a.quiet(func() { y.Backward() })
			} else {
				y.Backward()
			}
			a.note(s, loss, portion, i == 0)
		}, opts...)
	}
	return false
}

// note adds the loss of a part to that of the batch.
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

// takeGradients sets gradients of earlier batches aside, so that those of an attempt can be given
// up.
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

// putBack gives the parameters the gradients that were set aside, in place of any that they have.
func (a *Adapt) putBack(held []*tensor.Tensor) {
	for i, p := range a.params {
		if held != nil {
			p.SetGrad(held[i])
		} else {
			p.ZeroGrad()
		}
	}
}

// merge adds the gradients of a batch to those set aside, in place: that needs no memory.
func (a *Adapt) merge(held []*tensor.Tensor) {
	if held == nil {
		return
	}
	for i, p := range a.params {
		switch g := p.Grad(); {
		case held[i] == nil:
		case g == nil:
			p.SetGrad(held[i])
		default:
			tensor.Youngest(held[i], g).Do(func(s *tensor.Scope) { held[i].In(s).AddInPlace(g) }, tensor.NoGrad())
			p.SetGrad(held[i])
		}
	}
}

// checkpoint switches checkpointing on, as the last resort, and reports whether that may help: it
// has not been tried, and a part of the model knows how. Batches are whole again then, until one
// does not fit.
func (a *Adapt) checkpoint() bool {
	if a.anew || a.c.Keep || nn.SetCheckpointing(a.c.Model, true) == 0 {
		return false
	}
	a.anew = true
	a.plan.most, a.plan.bad, a.plan.steps = 0, 0, 0
	a.say("out of memory with a single sample: from now on activations are computed again instead of kept (checkpointing)")
	return true
}

// state is what a checkpoint keeps.
func (a *Adapt) state() map[string]any {
	sd := a.plan.state()
	sd["checkpointing"] = a.anew
	return sd
}

// load goes on from a state.
func (a *Adapt) load(sd map[string]any) error {
	on, ok := sd["checkpointing"].(bool)
	if !ok {
		return fmt.Errorf("the split of batches has \"checkpointing\" as %v", sd["checkpointing"])
	}
	if err := a.plan.load(sd); err != nil {
		return err
	}
	if on && !a.anew {
		nn.SetCheckpointing(a.c.Model, true)
		a.anew = true
	}
	return nil
}

// sayWhole says, once, that a batch is computed whole although no more than Most samples were to
// be.
func (a *Adapt) sayWhole(why string) {
	if a.c.Most > 0 && !a.whole {
		a.whole = true
		a.say(fmt.Sprintf("more than %d samples are computed at once: %s", a.c.Most, why))
	}
}

func (a *Adapt) say(line string) {
	if a.c.Log != nil {
		a.c.Log(line)
	}
}

// outOfMemory runs f and returns the out of memory that it panicked with. Other panics go on.
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

// roomy reports whether there was as much memory as an allocation failed for: in pieces, or held by
// others for a moment, so that doing the same again may succeed. Of an error without numbers that
// is assumed.
func roomy(err error) bool {
	var e device.ShortageError
	if !errors.As(err, &e) {
		return true
	}
	s := e.Shortage()
	return s.Available() >= s.Asked
}
