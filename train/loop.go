package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train/tensorboard"
)

// A trainer is the state of a running training.
type trainer struct {
	c        Config
	st       State
	stop     EarlyStopping
	bestStep int
	bestPath string // path of the best checkpoint, once the store is closed
	// ended is the reason to end the training, StoppedEarly or StoppedByUs. Until there is such a
	// reason, ended is Finished.
	ended Reason

	evaluated  int    // step of the latest evaluation; -1 before the first
	unmeasured bool   // whether an evaluation was interrupted, which a resume must repeat
	saved      [2]int // step and epoch of the latest checkpoint; -1 before the first
	due        bool   // whether a checkpoint is due

	// batches and samples count what has been collected for the next step. firstSamples is the
	// number of samples in the first of these batches.
	batches, samples, firstSamples int
	// log holds the losses on the device that have not been read.
	log     *tensor.Tensor
	pending []reading
	sum     float64 // sum of the weighted losses of the step whose losses are being read
	count   int
	losses  int
	// sums over the epoch: of the losses times their weights, and of the weights
	epoch struct{ sum, count float64 }

	store  *checkpoint.Store
	tb     *tensorboard.Writer
	bar    *Progress
	adapt  *Adapt
	broken error // error of Profile or of MemorySnapshot
	// history records the history of memory. It is nil if none is recorded, or if it has been
	// written.
	history       device.MemoryHistorian
	resumed       string
	savedSettings map[string]any // settings of the resumed checkpoint
	changed       []string       // settings that differ from those of the resumed checkpoint
	mute          bool           // whether the log has said that events cannot be written
	start         time.Time
	paused        time.Duration
	fresh         int

	rehearsed bool
	captured  captured
	stepped   bool // whether a replay has made the whole step

	mu    sync.Mutex
	lines []string // lines to print, from the goroutine that writes checkpoints
	done  bool
}

// A reading describes a loss that has not been read from the device.
type reading struct {
	samples    int
	lastOfStep bool // whether the batch is the last of its step
}

func newTrainer(c Config) (*trainer, error) {
	var err error
	ours := c.Loss == nil && c.Compute == nil
	if e := tensor.Try(func() { err = c.check() }); e != nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	t := &trainer{c: c, evaluated: -1, saved: [2]int{-1, -1}}
	t.st.Loss = math.NaN()
	t.stop = EarlyStopping{Patience: c.Patience, MinDelta: c.MinDelta, Maximize: c.Maximize}
	if c.Patience == 0 {
		t.stop.Patience = math.MaxInt
	}
	if c.Log != nil {
		t.bar = NewProgress(c.Log)
	}
	if t.adapt, err = t.newAdapt(ours); err != nil {
		return nil, err
	}
	t.adapt.short = t.snapshot
	return t, nil
}

// open opens the directory of checkpoints, resumes if Resume is set, and opens the event file.
func (t *trainer) open() error {
	if t.c.Checkpoints != "" {
		if err := t.openStore(); err != nil {
			return err
		}
	}
	if err := t.record(); err != nil {
		return err
	}
	if t.c.TensorBoard != "" {
		w, err := tensorboard.NewWriter(t.c.TensorBoard)
		if err != nil {
			return err
		}
		t.tb = w
		if t.st.Step > 0 {
			w.Restart(t.st.Step + 1)
		}
	}
	return nil
}

// close ends background writes, and returns their errors.
func (t *trainer) close() error {
	if t.done {
		return nil
	}
	t.done = true
	t.snapshot()
	t.forget()
	t.uncapture()
	err := t.broken
	if t.store != nil {
		if best, ok := t.store.Best(); ok {
			t.bestPath = best.Path
		}
		err = errors.Join(err, t.store.Close())
	}
	if t.tb != nil {
		err = errors.Join(err, t.tb.Close())
	}
	if t.log != nil {
		t.log.Free()
	}
	t.adapt.Close()
	t.print()
	if t.bar != nil {
		t.bar.Done()
	}
	return err
}

// print prints the queued lines, and then the given lines.
func (t *trainer) print(lines ...string) {
	t.mu.Lock()
	lines, t.lines = append(t.lines, lines...), nil
	t.mu.Unlock()
	if t.bar == nil {
		return
	}
	for _, l := range lines {
		t.bar.Line(l)
	}
}

// total returns the total number of steps, or 0 if it is not known.
func (t *trainer) total() int {
	n := t.c.Steps
	if t.c.Epochs > 0 && t.c.Train.Len() > 0 {
		all := t.c.Epochs * ((t.c.Train.Len() + t.c.Accumulate - 1) / t.c.Accumulate)
		if n == 0 || all < n {
			n = all
		}
	}
	return n
}

func (t *trainer) finished() bool {
	return t.ended != Finished || t.c.Steps > 0 && t.st.Step >= t.c.Steps || t.c.Epochs > 0 && t.st.Epoch >= t.c.Epochs
}

func (t *trainer) run(ctx context.Context) (*Result, error) {
	nn.Train(t.c.Model)
	if text := untrained(t.c.Optimizer, t.c.Model); text != "" {
		t.print(text)
	}
	t.start = time.Now()
	if t.bar != nil {
		t.bar.Begin(t.st.Step)
	}
	if t.unmeasured {
		if err := t.evaluate(ctx); err != nil {
			return t.newResult(Failed), err
		}
	}
	// After a resume, the first iteration runs the rest of an epoch, which may have no batch left.
	rest := t.resumed != ""
	for !t.finished() {
		if ctx.Err() != nil {
			return t.interrupted(ctx)
		}
		any, left := false, false
		for b, err := range t.c.Train.Batches() {
			if err != nil {
				return t.newResult(Failed), err
			}
			any = true
			if err := t.batch(ctx, b); err != nil {
				return t.newResult(Failed), err
			}
			if t.batches < t.c.Accumulate {
				continue
			}
			if err := t.step(ctx, true); err != nil {
				return t.newResult(Failed), err
			}
			if left = t.finished() || ctx.Err() != nil; left {
				break
			}
		}
		switch {
		case left:
			continue // the loop's condition ends the training or handles the interruption
		case !any && !rest:
			return nil, &Error{"Train", noBatches}
		}
		rest = false
		if err := t.release(); err != nil {
			return t.newResult(Failed), err
		}
		if t.batches > 0 {
			if err := t.step(ctx, false); err != nil {
				return t.newResult(Failed), err
			}
		}
		if err := t.endEpoch(ctx); err != nil {
			return t.newResult(Failed), err
		}
	}
	if err := t.finish(ctx); err != nil {
		return t.newResult(Failed), err
	}
	if t.unmeasured { // all steps are done, but the last evaluation was interrupted
		return t.interrupted(ctx)
	}
	return t.newResult(t.ended), nil
}

// interrupted saves the state and returns the result of an interrupted training.
func (t *trainer) interrupted(ctx context.Context) (*Result, error) {
	if err := t.saveState(); err != nil {
		return t.newResult(Failed), err
	}
	if err := t.read(); err != nil {
		return t.newResult(Failed), err
	}
	return t.newResult(Interrupted), fmt.Errorf("train: interrupted after step %d: %w", t.st.Step, context.Cause(ctx))
}

// batch adds the gradient of a batch, in a replay or eagerly.
func (t *trainer) batch(ctx context.Context, b *data.Batch) error {
	n := len(b.Index)
	if n == 0 {
		b.Free()
		return &Error{"Train", "a batch has no Index, which says how many samples it is of"}
	}
	if t.batches == 0 {
		t.firstSamples = n
	}
	t.rehearse(ctx, b, n)
	t.batches++
	t.samples += n
	if done, err := t.replay(b, n); done || err != nil {
		return err
	}
	return t.descend(b, n)
}

// descend adds the gradient of a batch of n samples, eagerly.
func (t *trainer) descend(b *data.Batch, n int) error {
	// The batch's weight is relative to the number of samples in the step's first batch, so that it
	// is 1 for most batches.
	loss, err := t.adapt.backward(b, float64(n)/float64(t.firstSamples), func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
		_, _, loss := t.c.computePart(s, part, b, n)
		return loss
	})
	if err != nil {
		return err
	}
	return t.noted(loss, n)
}

// noted records the loss of a batch of n samples.
func (t *trainer) noted(loss *tensor.Tensor, n int) error {
	// Earlier losses are read before collect adds this one. The function read must know whether a
	// batch is the last of its step, and for this batch that is not known yet.
	if len(t.pending) == t.c.ReadEvery {
		if err := t.read(); err != nil {
			return err
		}
	}
	return t.adapt.Do("the record of losses", func() { t.collect(loss, n) })
}

// collect appends a loss to the losses on the device that have not been read.
func (t *trainer) collect(loss *tensor.Tensor, n int) {
	if t.log == nil {
		ty := dtype.F32
		if loss.Type() == dtype.F64 {
			ty = dtype.F64
		}
		t.log = tensor.Root().On(loss.Device()).Typed(ty).Zeros(t.c.ReadEvery)
	}
	tensor.Do(func(s *tensor.Scope) { t.log.In(s).Select(0, len(t.pending)).Copy(loss) }, tensor.NoGrad())
	// Append last, so that collect can be repeated after a failure.
	t.pending = append(t.pending, reading{n, false})
}

// read reads the collected losses from the device.
func (t *trainer) read() error {
	if len(t.pending) == 0 {
		return nil
	}
	values := t.log.Floats()[:len(t.pending)]
	pending := t.pending
	t.pending = t.pending[:0]
	steps := 0
	for _, p := range pending {
		if p.lastOfStep {
			steps++
		}
	}
	step := t.st.Step - steps // the step before the one whose loss is read next
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return &DivergedError{Step: step + 1, Loss: v}
		}
		t.sum += v * float64(pending[i].samples)
		t.count += pending[i].samples
		t.losses++
		if !pending[i].lastOfStep {
			continue
		}
		loss := v
		if t.losses > 1 {
			loss = t.sum / float64(t.count)
		}
		t.epoch.sum += t.sum
		t.epoch.count += float64(t.count)
		t.sum, t.count, t.losses = 0, 0, 0
		step++
		t.st.Loss = loss
		if t.tb != nil {
			t.tb.Scalar("loss/train", loss, step)
		}
		if t.c.OnLoss != nil {
			t.captured.check = true
			t.c.OnLoss(step, loss)
		}
	}
	return nil
}

// step updates the parameters with the accumulated gradients, and does everything else that is due
// after a step. A checkpoint that is due is saved here if midEpoch is true, and by endEpoch
// otherwise.
func (t *trainer) step(ctx context.Context, midEpoch bool) error {
	t.pending[len(t.pending)-1].lastOfStep = true
	if err := t.update(); err != nil {
		return err
	}
	t.st.Step++
	t.st.Samples += t.samples
	t.fresh += t.samples
	t.batches, t.samples = 0, 0
	if err := t.schedule(EachStep, 0); err != nil {
		return err
	}
	if len(t.pending) == t.c.ReadEvery {
		if err := t.read(); err != nil {
			return err
		}
	}
	t.profiled()
	if err := t.show(); err != nil {
		return err
	}
	if err := t.call(t.c.OnStep); err != nil {
		return err
	}
	if t.c.EvalEvery > 0 && t.st.Step%t.c.EvalEvery == 0 {
		if err := t.evaluate(ctx); err != nil {
			return err
		}
	}
	t.due = t.due || t.c.Every > 0 && t.st.Step%t.c.Every == 0
	if midEpoch && t.due {
		return t.saveState()
	}
	return nil
}

func (t *trainer) call(f func(*State) error) error {
	if f == nil {
		return nil
	}
	t.captured.check = true
	st := t.st
	err := f(&st)
	if errors.Is(err, ErrStop) {
		t.ended = StoppedByUs
		return nil
	}
	return err
}

// show redraws the progress bar with the loss of the latest step. For this it reads the losses, at
// most a few times a second.
func (t *trainer) show() error {
	if t.bar == nil {
		return nil
	}
	t.print()
	total := t.total()
	if t.bar.due(t.st.Step, total) {
		if err := t.read(); err != nil {
			return err
		}
	}
	text := ""
	if !math.IsNaN(t.st.Loss) {
		text = fmt.Sprintf("loss %.4f", t.st.Loss)
	}
	t.bar.Step(t.st.Step, total, text)
	return nil
}

// evaluate evaluates the model, unless it has done so since the last step. Then it decides whether
// the training continues. An interrupted evaluation has no result.
func (t *trainer) evaluate(ctx context.Context) error {
	if t.c.Valid == nil || t.evaluated == t.st.Step {
		return nil
	}
	if err := t.read(); err != nil {
		return err
	}
	began := time.Now()
	m, err := t.c.evaluate(ctx, t.c.Valid, t.bar)
	t.paused += time.Since(began)
	if err != nil {
		if ctx.Err() != nil {
			t.unmeasured = true
			return nil
		}
		return err
	}
	t.unmeasured, t.saved = false, [2]int{-1, -1}
	t.evaluated, t.st.Metrics = t.st.Step, m
	v := m[t.c.Watch]
	best := t.stop.better(v)
	if t.stop.Observe(v) {
		t.ended = StoppedEarly
	}
	if best {
		t.bestStep = t.st.Step
		t.due = t.due || t.c.KeepBest
	}
	if err := t.schedule(EachEvaluation, v); err != nil {
		return err
	}
	loss := t.st.Loss
	// The bar shows the mean over the epoch so far, because the loss of a single step varies much.
	if t.epoch.count > 0 {
		loss = t.epoch.sum / t.epoch.count
	}
	text := fmt.Sprintf("step %d: loss %.4f, validation loss %.4f", t.st.Step, loss, m["loss"])
	for _, x := range t.c.Metrics {
		text += fmt.Sprintf(", %s %.4f", x.Name(), m[x.Name()])
	}
	t.print(text)
	if t.tb != nil {
		for name, v := range m {
			t.tb.Scalar(name+"/valid", v, t.st.Step)
		}
	}
	t.flush()
	return t.call(t.c.OnEvaluation)
}

// endEpoch does the work that is due at the end of an epoch.
func (t *trainer) endEpoch(ctx context.Context) error {
	if err := t.read(); err != nil {
		return err
	}
	t.st.Epoch++
	if err := t.schedule(EachEpoch, 0); err != nil {
		return err
	}
	if t.c.EvalEvery == 0 {
		if err := t.evaluate(ctx); err != nil {
			return err
		}
	}
	if interval := max(1, t.c.Epochs/6); t.c.Valid == nil && t.st.Epoch%interval == 0 {
		t.print(fmt.Sprintf("epoch %d: loss %.4f", t.st.Epoch, t.epoch.sum/t.epoch.count))
	}
	t.epoch.sum, t.epoch.count = 0, 0
	t.flush()
	if err := t.call(t.c.OnEpoch); err != nil {
		return err
	}
	if t.due || t.c.Every == 0 {
		return t.saveState()
	}
	return nil
}

// finish evaluates the model and saves the last state.
func (t *trainer) finish(ctx context.Context) error {
	if err := t.read(); err != nil {
		return err
	}
	if err := t.evaluate(ctx); err != nil {
		return err
	}
	return t.saveState()
}
