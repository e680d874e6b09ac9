package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
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

// A Loader yields the batches of an epoch at each call of Batches. A *[data.Loader] is a Loader.
// For checkpoints, a Loader must also be a [checkpoint.Stateful]. Its StateDict is called within
// the loop over the batches.
type Loader interface {
	Len() int // number of batches in an epoch; -1 if not known
	Batches() iter.Seq2[*data.Batch, error]
}

// A When says when [Fit] steps a schedule.
type When uint8

// These are the times at which a schedule can be stepped.
const (
	EachStep       When = iota // step the schedule after every step of the optimizer
	EachEpoch                  // step the schedule at the end of every epoch
	EachEvaluation             // step the schedule after every evaluation
)

// Config configures [Fit]. Model, Optimizer and Train are required, and at least one of Steps and
// Epochs.
type Config struct {
	// Model is a model of package nn. Checkpoints contain its parameters and buffers. Model is in
	// training mode between evaluations.
	Model     any
	Optimizer optim.Optimizer
	Train     Loader
	// Device is the device of the model, to which batches are copied. Nil means the device of the
	// first parameter.
	Device device.Device
	// Devices are the devices of a training on several devices. An empty list means only Device.
	// Model is on the first device of the list, where it is updated, evaluated and saved. [Fit]
	// describes the other devices.
	Devices dist.DeviceList
	// Replica returns Forward and Loss, or Compute, for a copy of Model. Set it if these functions
	// refer to Model itself: they would not work for the copy. Fit makes copies for the other
	// devices of Devices, and one without memory for a rehearsal (see Rehearse). If Replica is
	// nil, Fit uses the copy's own Forward and the field Loss.
	Replica func(model any, dev device.Device) Computation
	// Generator supplies dropout and other random ops. Nil means the root scope's generator.
	Generator *tensor.Generator

	// Forward maps a batch's X to the output. A nil Forward means Model's own Forward.
	Forward func(x *tensor.Tensor) *tensor.Tensor
	// Loss maps the output and Y to a mean over the samples. It may be the method Forward of a loss
	// of package nn, such as nn.MSELoss{}.Forward, but not a function with a Reduction, such as
	// nn.MSE. A nil Loss means [nn.CrossEntropy].
	Loss func(output, target *tensor.Tensor) *tensor.Tensor
	// Compute replaces Forward and Loss, for models with several inputs. Its result target is
	// passed to the metrics, and may be nil. With CaptureAlways, it must not use the values of the
	// batch's Index: in a captured step each is math.MinInt, also as the key of a map.
	Compute func(s *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor)

	Epochs int // total number of epochs, including those before a resume; 0 means no limit
	Steps  int // total number of steps of the optimizer; 0 means no limit

	// Accumulate is the number of batches in one step; 0 means 1. The gradients of the batches are
	// weighted by the batches' numbers of samples. For a loss that is a mean over samples, the step
	// equals that of one large batch. The batches left over at the end of an epoch make a smaller
	// step.
	Accumulate int
	// MicroBatch is the largest number of samples computed at once. A larger batch is computed in
	// parts. 0 means that a batch is split only if it did not fit into memory.
	MicroBatch int
	// ClipNorm is the upper bound of the norm of all gradients together (optim.ClipGradNorm). 0
	// means no bound.
	ClipNorm float64
	// ClipValue is the upper bound of the absolute value of a gradient's elements
	// (optim.ClipGradValue). 0 means no bound.
	ClipValue float64

	// Autocast is the type of mixed precision in training and evaluation, dtype.BF16 or dtype.F16
	// ([tensor.Autocast]). 0 means no mixed precision. Parameters keep their own type.
	Autocast dtype.Type
	// TF32 lets a GPU round the factors of float32 products to TF32 ([tensor.AllowTF32]).
	TF32 bool
	// Scaler scales the loss, which float16 needs. Fit unscales gradients before it clips them. It
	// leaves out a step whose gradients have overflowed. Checkpoints contain the scaler. A nil
	// Scaler means no scaling.
	Scaler *amp.GradScaler

	// Rehearse says whether the kernels of a step are loaded before the first step. To find them,
	// Fit runs the step on a copy of the model without memory ([Rehearse]), with the first batch's
	// shapes. The zero value rehearses on GPUs that are not emulated. Parameters, random numbers
	// and the order of the data do not change.
	//
	// Fit skips the rehearsal, and Log says so, if the rehearsal would have side effects. This is
	// the case if the model has hooks, if Forward, Loss or Compute is given without a Replica, or
	// if a copy of the model would share state that Forward may change ([nn.Shares]). If the
	// rehearsal fails, Log says so and the training goes on.
	Rehearse Rehearsing

	// Capture says whether Fit captures steps ([tensor.Capture]) after a few steps of equal shapes.
	// A replay is bitwise equal to an eager step, and is faster if steps are short. A replay does
	// not run the step's Go code again. The zero value therefore captures only if Compute is nil,
	// and Forward, Loss, Optimizer and all layers are this library's own, without hooks. Log says
	// once why steps are not captured.
	//
	// Steps are captured again when a callback has changed the optimizer, the mode of a layer, or a
	// parameter's RequiresGrad. While a profiler traces, steps run eagerly. Captured steps keep
	// their memory. If memory runs out, steps run eagerly from then on. For a step of several
	// batches (Accumulate), Fit keeps the batches until the last one has come. On several devices,
	// one graph has the steps of all ranks, or no step is captured.
	Capture Capturing

	// Checkpointing makes Backward recompute activations instead of keeping them, in the parts of
	// the model that can recompute ([nn.SetCheckpointing]). It saves memory at the cost of time.
	Checkpointing bool

	// Schedule is a schedule of package optim/sched, or another value with a method Step() or
	// StepMetric(v float64). A nil Schedule leaves the learning rate constant. A schedule with
	// StepMetric is stepped after every evaluation, with the watched metric. Other schedules are
	// stepped as ScheduleOn says.
	Schedule   checkpoint.Stateful
	ScheduleOn When

	Valid     Loader   // data for evaluations; nil means none
	Metrics   []Metric // metrics that each evaluation computes, in addition to the loss
	EvalEvery int      // number of steps between evaluations; 0 means one after every epoch
	// Watch is the name of the metric that decides which weights are best. "" means the loss.
	Watch    string
	Maximize bool // whether a greater value of Watch is better
	// Patience is the number of consecutive evaluations without an improvement by MinDelta after
	// which the training stops. 0 means no limit.
	Patience int
	MinDelta float64

	Checkpoints string // directory for the checkpoints of this training; "" means no checkpoints
	Every       int    // number of steps between checkpoints; 0 means one after every epoch
	Keep        int    // number of newest checkpoints to keep; 0 means 3
	KeepBest    bool   // also keep the best checkpoint, which is saved after each improvement
	// Resume continues from the newest intact checkpoint in the directory. If there is none, it
	// begins a new training.
	Resume bool
	Parts  checkpoint.Parts // further parts of the state in checkpoints

	// Profile is a *profile.Profile or similar, and may be nil. Fit calls its Step after every
	// step. The program that started it must stop it.
	Profile interface{ Step() error }

	// MemorySnapshot is the name of a file for the history of the device's memory. The name ends in
	// .html for a browser, or in .pickle for PyTorch's viewer. The history ends with the training,
	// or when memory first runs out. Package profile/memsnap describes the file, which marks
	// parameters. "" means no history.
	MemorySnapshot string

	TensorBoard string // directory for event files; "" means no event files
	// Log receives progress and messages, for example about parameters that are not trained. It may
	// be nil.
	Log io.Writer
	// ReadEvery is the number of losses that are collected on the device and read at once. 0 means
	// 32.
	ReadEvery int

	// OnLoss is called for every step, in order, after the step's loss has been read.
	OnLoss func(step int, loss float64)
	// OnStep is called after every step, for example with optim.Averaged's Update. The error
	// [ErrStop] ends the training normally. Any other error makes the training fail. After an error
	// OnStep is not called again.
	OnStep func(*State) error
	// OnEvaluation is called after every evaluation. Its errors have the same effect as those of
	// OnStep.
	OnEvaluation func(*State) error
	// OnEpoch is called at the end of every epoch. Its errors have the same effect as those of
	// OnStep.
	OnEpoch func(*State) error

	plain   bool            // whether Loss is the default
	given   bool            // whether Forward, Loss or Compute was given
	spare   func() bool     // frees memory for evaluations, as the field spare of Adapt
	foreign string          // name of the setting that holds the program's own code
	devices []device.Device // at least two devices, or none
	team    *team           // evaluates on several devices; nil for one device
}

// ErrStop is the error with which a callback ends a training normally.
var ErrStop = errors.New("train: stop")

// A State describes the progress of a training.
type State struct {
	Step    int     // number of steps done
	Epoch   int     // number of epochs completed
	Samples int     // number of samples seen
	Loss    float64 // loss of the latest step whose loss was read; NaN before the first
	LR      float64 // learning rate for the next step
	// Metrics are the results of the latest evaluation, including "loss". They are nil before the
	// first.
	Metrics map[string]float64
}

// A Reason says why a training ended.
type Reason uint8

// These are the reasons.
const (
	Finished     Reason = iota // the training reached Epochs or Steps
	StoppedEarly               // there was no improvement for Patience evaluations
	StoppedByUs                // a callback returned [ErrStop]
	Interrupted                // the context was cancelled
	Failed                     // an error occurred
)

// String returns the reason in words.
func (r Reason) String() string {
	names := [...]string{"finished", "stopped early", "stopped by a callback", "interrupted", "failed"}
	if int(r) >= len(names) {
		return fmt.Sprintf("Reason(%d)", uint8(r))
	}
	return names[r]
}

// A Result describes the end of a training.
type Result struct {
	State
	Reason   Reason
	Best     float64 // the watched metric's best value; NaN without evaluations
	BestStep int     // the step at which Best was measured
	// BestPath is the path of the best checkpoint if KeepBest is set, or "". It may be from another
	// step than BestStep, because an improvement by less than MinDelta changes only BestStep.
	BestPath string
	Resumed  string  // path of the checkpoint from which the training continued
	Seconds  float64 // duration of the training in this process, without evaluations
	Fresh    int     // number of samples seen by this process

	// Changed lists the settings that differ from those before the resume and may affect the
	// weights. Log has the list too.
	Changed []string
}

// LoadBest loads the weights and buffers of the best checkpoint, [Result].BestPath, into model.
// model is the trained model, which has the last weights, or another model of the same structure.
// LoadBest returns an *[Error] if there is no best checkpoint, and a *[checkpoint.Error] if the
// checkpoint does not fit.
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

// A DivergedError reports a loss or a parameter that is NaN or infinite. Such a state is never
// saved in a checkpoint.
type DivergedError struct {
	Step  int     // step with this loss, or step that computed the parameter
	Loss  float64 // loss of the step, if it was read
	Param string  // name of the parameter; "" if the loss is not finite
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

// Fit runs a training. A batch that does not fit into the device's memory is computed in parts, as
// [Adapt] describes, and Log says so. If nothing helps, the error is a *[MemoryError]. If ctx is
// cancelled, the training ends after the current step with a last checkpoint. In this case Fit
// returns a result too, and the error wraps the context's cause. Failures to write checkpoints or
// events do not end the training. Log reports them, and Fit returns them at the end together with
// the result. An error in the settings is an *[Error], and an error of a checkpoint is a
// *[checkpoint.Error].
//
// With Resume, Fit continues a training that was interrupted, killed or ended by an error. Its
// final weights are bitwise equal to those of an uninterrupted training, if the kind of device and
// its amount of memory are the same. If memory runs out at another step, batches are split
// differently after this step, and rounding differs. These settings do not affect the weights:
// profiling, snapshots, events, evaluations, the loader's workers, Every, Keep and Checkpointing.
// If a setting that affects the weights has changed, such as Accumulate or Autocast, Log and
// [Result].Changed say so. The optimizer's settings come from the checkpoint. A checkpoint contains
// model, optimizer, schedule, generator, the loader's position and the number of evaluations
// without improvement. Checkpoints are made between steps, and may be made within an epoch.
//
// With several Devices, each device has a copy of the model and computes a part of every batch.
// Each of w devices gets n/w of the n samples, rounded down or up, in order. Gradients are averaged
// over all samples while Backward runs, so a step equals that of one device with the whole batch.
// Only the first device makes the step, and the other devices receive the parameters. So the number
// of devices may change at a resume. Batches of an evaluation are distributed in the same way, and
// the metrics get the parts in order. If one device runs out of memory, all devices compute the
// batch again, in parts of equal size.
//
// The results differ from those of a single device in two ways. Batch normalisation normalises over
// each device's part, and its running statistics are those of the first device. Each device has its
// own random numbers, derived from Generator. A repeated training on the same number of devices
// gives bitwise equal results. Each device has a goroutine, which calls Forward, Loss and Compute.
// The goroutine of the first device calls the callbacks. If the program panics on a device, or a
// device fails for another reason than memory, the training ends with a *[dist.RankError].
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

// check finds invalid settings, and fills in defaults.
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
	switch {
	case c.Compute != nil:
		c.foreign = "Compute"
	case c.Forward != nil && !isOurs(reflect.ValueOf(c.Forward)):
		c.foreign = "Forward"
	case c.Loss != nil && !isOurs(reflect.ValueOf(c.Loss)):
		c.foreign = "Loss"
	}
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

// checkModel returns an error if package nn does not accept m as a model.
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

// compute runs the model on a batch in scope s. It moves the batch's tensors into s.
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

func (t *trainer) newResult(why Reason) *Result {
	r := &Result{State: t.st, Reason: why, Best: t.stop.Best(), BestStep: t.bestStep, Resumed: t.resumed, Fresh: t.fresh, Changed: t.changed,
		Seconds: (time.Since(t.start) - t.paused).Seconds()}
	r.LR = t.c.Optimizer.LR()
	if t.c.Valid == nil {
		r.Best = math.NaN()
	}
	return r
}
