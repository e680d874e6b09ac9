package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Loader gives the batches of an epoch after an epoch, as a *[data.Loader] does. For checkpoints
// it must also be a [checkpoint.Stateful] whose state may be taken within the loop.
type Loader interface {
	Len() int // batches of an epoch; -1: not known
	Batches() iter.Seq2[*data.Batch, error]
}

// A When is how often a schedule is stepped.
type When uint8

// The kinds of When.
const (
	EachStep       When = iota // after every step of the optimizer
	EachEpoch                  // at the end of every epoch
	EachEvaluation             // after every evaluation
)

// Config says what [Fit] trains, and how. Model, Optimizer and Train are needed, and Steps or
// Epochs.
type Config struct {
	// of package nn: its parameters and buffers are kept in checkpoints; it is in training mode
	// between evaluations
	Model     any
	Optimizer optim.Optimizer
	Train     Loader
	// where the model is and batches go to; nil: the device of the model's first parameter
	Device device.Device
	// Devices are those of a training on several; none: Device alone. Model is on the first, and is
	// what is stepped, evaluated and kept; see [Fit].
	Devices dist.DeviceList
	// Replica gives Forward and Loss, or Compute, for a copy of Model on another of Devices, or on
	// the device without memory of a rehearsal (see Rehearse). Functions that use Model itself
	// cannot work there. nil: the copy's own Forward, and Loss.
	Replica   func(model any, dev device.Device) Computation
	Generator *tensor.Generator // of dropout and the like; nil: the root scope's

	// Forward maps a batch's X to the output; nil: Model's own Forward.
	Forward func(x *tensor.Tensor) *tensor.Tensor
	// Loss maps the output and Y to a mean over the samples: nn.MSELoss{}.Forward, or Forward of
	// another loss of package nn. nn.MSE itself takes reductions too, and does not fit. nil:
	// [nn.CrossEntropy].
	Loss func(output, target *tensor.Tensor) *tensor.Tensor
	// Compute takes the place of both, for models of several inputs: target is what the metrics
	// get, and may be nil.
	Compute func(s *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor)

	Epochs int // how many in all, counted with those before a resume; 0: no limit
	Steps  int // how many steps of the optimizer in all; 0: no limit

	// Accumulate is how many batches make one step; 0: 1. Their gradients are weighted by their
	// numbers of samples, so that the step is that of one large batch, of a loss that is a mean
	// over samples. What is left at the end of an epoch makes a smaller one.
	Accumulate int
	// samples that are computed at once at most, the rest of a batch after them; 0: whole batches,
	// until one does not fit
	MicroBatch int
	ClipNorm   float64 // greatest norm of all gradients together (optim.ClipGradNorm); 0: no limit
	// greatest absolute value of an element of a gradient (optim.ClipGradValue); 0: no limit
	ClipValue float64

	// Autocast is the type of mixed precision, dtype.BF16 or dtype.F16 ([tensor.Autocast]), in
	// training and evaluation; 0: none. Parameters keep theirs.
	Autocast dtype.Type
	// TF32 permits products of float32 to round their factors on a GPU ([tensor.AllowTF32]).
	TF32 bool
	// Scaler scales the loss, which float16 needs; gradients are unscaled before they are clipped,
	// and a step whose gradients have overflowed is left out. It is kept in checkpoints. nil: none.
	Scaler *amp.GradScaler

	// Rehearse says whether the kernels of a step are loaded before the first step: by running it
	// on a copy of the model that has no memory ([Rehearse]), with the first batch's shapes. The
	// zero value does it on GPUs that are not emulated. Parameters, random numbers and the order of
	// the data stay as they are. It is left out, and Log told, where functions of the program would
	// be called that do not expect it. Those are hooks, and Forward, Loss or Compute without a
	// Replica, which gives those of the copy. It is left out too where a copy of the model would
	// share what Forward may change ([nn.Shares]). It is no condition: where it fails, Log is told.
	Rehearse Rehearsing

	// Checkpointing has activations computed again instead of kept, where the model knows how
	// ([nn.SetCheckpointing]): memory for time.
	Checkpointing bool

	// Schedule is one of package optim/sched, or anything else with a method Step() or StepMetric(v
	// float64); nil: the learning rate stays. A schedule with StepMetric is stepped after every
	// evaluation, with the watched metric; others when ScheduleOn says.
	Schedule   checkpoint.Stateful
	ScheduleOn When

	Valid     Loader   // what is evaluated on; nil: nothing is
	Metrics   []Metric // beside the loss
	EvalEvery int      // steps between evaluations; 0: at the end of every epoch
	Watch     string   // the metric that decides which state is the best; "": the loss
	Maximize  bool     // greater is better
	// stop after so many evaluations in a row that were not better by MinDelta; 0: never
	Patience int
	MinDelta float64

	Checkpoints string // directory, of one training at a time; "": none are kept
	Every       int    // steps between checkpoints; 0: at the end of every epoch
	Keep        int    // how many of the newest are kept; 0: 3
	KeepBest    bool   // keep the best too, and save whenever there is a new one
	// go on from the newest whole checkpoint of the directory; where there is none begin anew
	Resume bool
	Parts  checkpoint.Parts // what else belongs to the state

	// Profile is stepped after every step, as a *profile.Profile, which whoever started it stops;
	// nil: none.
	Profile interface{ Step() error }

	// MemorySnapshot is a file, .html to look at or .pickle for PyTorch's viewer, that gets the
	// history of the device's memory. It goes up to the first out of memory, or to the end. See
	// package profile/memsnap. Parameters are marked in it. "": none, and no history is kept.
	MemorySnapshot string

	TensorBoard string // directory for event files; "": none
	// progress and messages, such as which parameters are not trained; nil: none
	Log       io.Writer
	ReadEvery int // how many losses are collected on the device before they are read; 0: 32

	// for every step in order, when its loss has been read
	OnLoss func(step int, loss float64)
	// after every step, as for optim.Averaged's Update. [ErrStop] ends the training, other errors
	// fail it; it is never called again
	OnStep       func(*State) error
	OnEvaluation func(*State) error // after every evaluation, likewise
	OnEpoch      func(*State) error // at the end of every epoch, likewise

	plain   bool            // Loss was not given
	given   bool            // Forward, Loss or Compute was
	devices []device.Device // more than one, or none
	team    *team           // that evaluates together; nil: Device alone does
}

// ErrStop is what a callback returns to end a training as if it were finished.
var ErrStop = errors.New("train: stop")

// A State is how far a training is.
type State struct {
	Step    int                // steps made
	Epoch   int                // epochs ended
	Samples int                // samples seen
	Loss    float64            // of the latest step whose loss was read; NaN before
	LR      float64            // learning rate of the next step
	Metrics map[string]float64 // of the latest evaluation, with "loss"; nil before
}

// A Reason is why a training ended.
type Reason uint8

// The reasons.
const (
	Finished     Reason = iota // Epochs or Steps were reached
	StoppedEarly               // Patience was at its end
	StoppedByUs                // a callback returned ErrStop
	Interrupted                // the context was cancelled
	Failed                     // there is an error
)

// String names the reason.
func (r Reason) String() string {
	names := [...]string{"finished", "stopped early", "stopped by a callback", "interrupted", "failed"}
	if int(r) >= len(names) {
		return fmt.Sprintf("Reason(%d)", uint8(r))
	}
	return names[r]
}

// A Result is what [Fit] did.
type Result struct {
	State
	Reason   Reason
	Best     float64 // the watched metric's best value; NaN without evaluation
	BestStep int     // the step that it was measured at
	BestPath string  // the best checkpoint, with KeepBest; "": there is none. See LoadBest
	Resumed  string  // path of the checkpoint that it went on from
	Seconds  float64 // in this process, without evaluations
	Fresh    int     // samples seen in this process

	// Changed says which settings were others before the resume, so that the numbers may not be
	// those of a training that was not interrupted. Log is told too.
	Changed []string
}

// LoadBest puts the weights and buffers of the best checkpoint, [Result].BestPath, into model: the
// one that was trained, which has the last weights, or one that is built as it. The error is an
// *[Error] if there is no such checkpoint, or a *[checkpoint.Error].
func (r *Result) LoadBest(model any) error {
	if r.BestPath == "" {
		return &Error{"KeepBest", "there is no best checkpoint to load; it is kept with KeepBest and Checkpoints, once there was an evaluation"}
	}
	tree, _, err := checkpoint.Read(r.BestPath)
	if err != nil {
		return err
	}
	defer checkpoint.Free(tree)
	return checkpoint.Restore(checkpoint.Parts{"model": model}, tree)
}

// A DivergedError is a loss that is no number, or a parameter. No checkpoint is made of either.
type DivergedError struct {
	Step  int     // that has this loss, or has made such a parameter
	Loss  float64 // of that step, if it was read
	Param string  // the name of a parameter; "" for a loss
}

func (e *DivergedError) Error() string {
	if e.Param != "" {
		return fmt.Sprintf("train: step %d has brought the parameter %s to values that are no numbers; try a smaller learning rate, or a limit for the gradients", e.Step, e.Param)
	}
	if e.Step == 1 {
		return fmt.Sprintf("train: the loss is %v at step 1, before any parameter was changed: look for such numbers in inputs, targets and the weights that it began with; "+
			"a scope with tensor.DetectAnomaly(tensor.AnomalyForward, tensor.AnomalyInf) finds the op", e.Loss)
	}
	return fmt.Sprintf("train: the loss is %v at step %d; try a smaller learning rate", e.Loss, e.Step)
}

// Fit trains. A batch that does not fit into the memory of the device is computed in parts, as
// [Adapt] describes, and Log is told. The error is a *[MemoryError] when nothing helps. A cancelled
// ctx ends the training after the step that is being made, with a last checkpoint, and the error
// wraps the context's cause; the result is there then too. What goes wrong with writing checkpoints
// or events does not end the training: it is told to Log, and returned at the end together with the
// result. Errors of the settings are an *[Error], those of checkpoints a *[checkpoint.Error].
//
// A training that was interrupted, killed or broken off by an error and is begun again with Resume
// ends with the same bits as one that was not. That holds on the same kind of device with as much
// memory. Where that runs out after another step, the parts of a batch are others from there on,
// and so is their rounding. Profiling, snapshots, events, evaluations, the workers of the loader,
// Every, Keep and Checkpointing may be others. Log and [Result].Changed tell of settings that make
// other numbers, such as Accumulate or Autocast. The optimizer's settings are the checkpoint's. A
// checkpoint holds model, optimizer, scheduler, generator, the loader's place and the count of bad
// evaluations. Checkpoints are made between steps, within an epoch too.
//
// With several Devices each has a copy of the model and computes a part of every batch. Of n
// samples on w devices each gets n/w or one more, in their order. Gradients are averaged over all
// samples while Backward goes on, so that a step is that of one device with the whole batch. The
// first device alone makes it, and the others get the parameters. So the number of devices may be
// another after a resume. Batches of an evaluation are dealt likewise, and the metrics get the
// parts in their order. Where one device runs out of memory, all compute the batch again, in parts
// of one size.
//
// What differs from one device: batch normalisation normalises over each device's part, and its
// running statistics are those of the first's; each device has random numbers of its own. They
// follow from Generator, so that the same training on as many devices has the same bits. Forward,
// Loss and Compute are called on a goroutine for each device, callbacks on that of the first. A
// device that fails otherwise ends the training with a *[dist.RankError]. So does a panic of the
// program, which one device lets through.
func Fit(ctx context.Context, c Config) (*Result, error) {
	t, err := newTrainer(c)
	if err != nil {
		return nil, err
	}
	defer t.close()
	var r *Result
	var failed error
	if err := tensor.Try(func() { failed = t.open() }); err != nil {
		failed = err
	}
	if failed != nil {
		return nil, failed
	}
	if len(t.c.devices) > 0 {
		r, failed = t.runTogether(ctx)
	} else if err := tensor.Try(func() { r, failed = t.run(ctx) }); err != nil {
		failed = err
	}
	late := t.close()
	if r == nil {
		return nil, failed
	}
	r.BestPath = t.bestPath
	return r, errors.Join(failed, late)
}

type stepper interface{ Step() }

type measuredStepper interface{ StepMetric(v float64) }

// check finds what cannot be in the settings, and fills in what was left out.
func (c *Config) check() error {
	bad := func(field, format string, a ...any) error { return &Error{field, fmt.Sprintf(format, a...)} }
	if c.Model == nil {
		return bad("Model", "there is none")
	}
	if err := checkModel(c.Model); err != nil {
		return err
	}
	if c.Optimizer == nil {
		return bad("Optimizer", "there is none")
	}
	if c.Train == nil {
		return bad("Train", "there is no loader")
	}
	if c.Epochs <= 0 && c.Steps <= 0 {
		return bad("Epochs", "neither Epochs nor Steps says when to end")
	}
	for _, n := range []struct {
		field string
		v     int
	}{{"Epochs", c.Epochs}, {"Steps", c.Steps}, {"Accumulate", c.Accumulate}, {"MicroBatch", c.MicroBatch}, {"EvalEvery", c.EvalEvery}, {"Patience", c.Patience}, {"Every", c.Every},
		{"Keep", c.Keep}, {"ReadEvery", c.ReadEvery}} {
		if n.v < 0 {
			return bad(n.field, "%d is negative", n.v)
		}
	}
	if !(c.ClipNorm >= 0) || !(c.ClipValue >= 0) {
		return bad("ClipNorm", "gradients are limited to positive numbers, not to %v and %v", c.ClipNorm, c.ClipValue)
	}
	if c.Autocast != dtype.Invalid && c.Autocast != dtype.BF16 && c.Autocast != dtype.F16 {
		return bad("Autocast", "%v is no type of mixed precision; dtype.BF16 and dtype.F16 are", c.Autocast)
	}
	closures := c.Compute != nil || c.Forward != nil
	c.given = closures || c.Loss != nil
	if !closures {
		m, ok := c.Model.(nn.Module)
		if !ok {
			return bad("Forward", "a %T has no method Forward(x); set Forward or Compute", c.Model)
		}
		c.Forward = m.Forward
	}
	if !trains(c.Optimizer, c.Model) {
		return bad("Optimizer", "none of its parameters is the model's: it was made of another model, or of one that was built anew since")
	}
	if c.Loss == nil {
		c.Loss, c.plain = func(output, target *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(output, target) }, true
	}
	if c.ScheduleOn > EachEvaluation {
		return bad("ScheduleOn", "%d is none", c.ScheduleOn)
	}
	_, steps := c.Schedule.(stepper)
	_, measured := c.Schedule.(measuredStepper)
	switch {
	case measured:
		c.ScheduleOn = EachEvaluation
	case c.Schedule != nil && !steps:
		return bad("Schedule", "a %T has neither a method Step nor StepMetric", c.Schedule)
	}
	if c.Schedule != nil && c.ScheduleOn == EachEvaluation && c.Valid == nil {
		return bad("ScheduleOn", "there are no evaluations: Valid is not set")
	}
	if (c.Patience > 0 || c.KeepBest || c.Watch != "") && c.Valid == nil {
		return bad("Valid", "Patience, KeepBest and Watch need something to evaluate on")
	}
	if c.Watch == "" {
		c.Watch = "loss"
	}
	known := c.Watch == "loss"
	names := map[string]bool{"loss": true}
	for _, m := range c.Metrics {
		if m == nil || names[m.Name()] {
			return bad("Metrics", "one is nil, or two have one name")
		}
		names[m.Name()] = true
		known = known || m.Name() == c.Watch
	}
	if !known {
		return bad("Watch", "%q is not among the metrics", c.Watch)
	}
	if c.Resume && c.Checkpoints == "" {
		return bad("Resume", "Checkpoints does not say from where")
	}
	if c.Checkpoints != "" {
		if _, ok := c.Train.(checkpoint.Stateful); !ok {
			return bad("Train", "a %T cannot be kept in a checkpoint: it has no StateDict and LoadStateDict", c.Train)
		}
		for name := range c.Parts {
			switch name {
			case "model", "optimizer", "loader", "schedule", "generator", "train", "scaler":
				return bad("Parts", "%q is the name of a part of Fit's own", name)
			}
		}
	}
	if c.Generator == nil {
		c.Generator = tensor.Root().Generator()
	}
	if err := c.checkDevices(closures); err != nil {
		return err
	}
	if c.Device == nil {
		params := c.Optimizer.Params()
		if len(params) == 0 {
			return bad("Optimizer", "it has no parameters")
		}
		c.Device = params[0].Device()
	}
	c.Accumulate = max(c.Accumulate, 1)
	if c.ReadEvery == 0 {
		c.ReadEvery = 32
	}
	return nil
}

// checkModel finds what package nn cannot take for a model.
func checkModel(m any) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *nn.Error:
			err = &Error{"Model", r.Error()}
		default:
			panic(r)
		}
	}()
	nn.Named(m)
	return nil
}

// compute runs the model on a batch in scope s, which takes the batch over.
func (c *Config) compute(s *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor) {
	b.Into(s)
	if c.Compute != nil {
		return c.Compute(s, b)
	}
	if b.X == nil || b.Y == nil {
		panic(tensor.NewError("train", tensor.ErrValue, "the batch has no X or no Y; set Compute, which takes them from batch.Tensor(name) or Nested"))
	}
	output = c.Forward(b.X)
	return output, b.Y, c.Loss(output, b.Y)
}

// Evaluate returns the mean loss of c's model over a loader's batches, as "loss", and c's metrics,
// which it resets first. Of c only Model, Forward, Loss, Compute, Metrics, Device, Generator,
// Autocast and Log count. Log shows how far it is: a bar on a terminal, elsewhere a line every ten
// seconds. A batch that does not fit into memory is evaluated in parts. The model is in evaluation
// mode meanwhile and in training mode afterwards.
func Evaluate(ctx context.Context, c Config, l Loader) (map[string]float64, error) {
	if err := checkModel(c.Model); err != nil {
		return nil, err
	}
	if c.Device == nil {
		params := nn.Parameters(c.Model)
		if len(params) == 0 {
			return nil, &Error{"Device", "it is not given, and the model has no parameters to tell it"}
		}
		c.Device = params[0].Device()
	}
	if c.Generator == nil {
		c.Generator = tensor.Root().Generator()
	}
	if c.Compute == nil && c.Forward == nil {
		m, ok := c.Model.(nn.Module)
		if !ok {
			return nil, &Error{"Forward", fmt.Sprintf("a %T has no method Forward(x); set Forward or Compute", c.Model)}
		}
		c.Forward = m.Forward
	}
	if c.Loss == nil {
		c.Loss, c.plain = func(output, target *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(output, target) }, true
	}
	var out map[string]float64
	var failed error
	var bar *Progress
	if c.Log != nil {
		bar = NewProgress(c.Log)
		defer bar.Done()
	}
	if err := tensor.Try(func() { out, failed = c.evaluate(ctx, l, bar) }); err != nil {
		return nil, err
	}
	return out, failed
}

const noBatches = "the loader gave no batches in an epoch: its dataset is empty, or smaller than a batch that DropLast leaves out"

// evaluate shows how far it is on bar, unless that is nil.
func (c *Config) evaluate(ctx context.Context, l Loader, bar *Progress) (map[string]float64, error) {
	nn.Eval(c.Model)
	defer nn.Train(c.Model)
	mean, most := NewMean("loss"), 0
	for _, m := range c.Metrics {
		m.Reset()
	}
	any, done := false, 0
	var part *Progress
	if bar != nil {
		part = bar.part()
		defer func() { bar.width = part.width }()
	}
	for b, err := range l.Batches() {
		if err != nil {
			return nil, err
		}
		any = true
		if ctx.Err() != nil {
			b.Free()
			return nil, fmt.Errorf("train: the evaluation was interrupted: %w", context.Cause(ctx))
		}
		measured := false
		if c.team != nil {
			if measured, err = c.team.measure(b, mean); err != nil {
				c.team.free(b)
				return nil, err
			}
		}
		if measured {
			b.Free()
		} else if most, err = c.measure(b, most, mean); err != nil {
			return nil, err
		}
		if done++; part != nil {
			part.tell(done, max(l.Len(), 0), "evaluation")
		}
	}
	if !any {
		return nil, &Error{"Valid", noBatches}
	}
	out := map[string]float64{"loss": mean.Value()}
	mean.Reset()
	for _, m := range c.Metrics {
		out[m.Name()] = m.Value()
	}
	return out, nil
}

// newResult describes where the training is.
func (t *trainer) newResult(why Reason) *Result {
	r := &Result{State: t.st, Reason: why, Best: t.stop.Best(), BestStep: t.bestStep, Resumed: t.resumed, Fresh: t.fresh, Changed: t.changed,
		Seconds: (time.Since(t.start) - t.paused).Seconds()}
	r.LR = t.c.Optimizer.LR()
	if t.c.Valid == nil {
		r.Best = math.NaN()
	}
	return r
}
