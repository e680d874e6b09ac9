package train

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// openStore opens the directory of checkpoints. If c.Resume is set, it continues from the newest
// checkpoint.
func (t *trainer) openStore() error {
	best := checkpoint.NoBest
	if t.c.KeepBest {
		if best = checkpoint.Least; t.c.Maximize {
			best = checkpoint.Most
		}
	}
	there, err := checkpoint.Latest(t.c.Checkpoints)
	if err == nil && !t.c.Resume {
		return &Error{"Checkpoints", fmt.Sprintf("there is %s of an earlier training; go on from it with Resume, or take another directory", there)}
	}
	t.store, err = checkpoint.Open(checkpoint.Config{Dir: t.c.Checkpoints, Keep: t.c.Keep, Best: best, Done: func(s checkpoint.Saved) {
		if s.Err != nil {
			t.later(fmt.Sprintf("the checkpoint of step %d could not be written, the older ones are kept: %v", s.Info.Step, s.Err))
		}
	}})
	if err != nil {
		return err
	}
	if why := t.store.Unlocked(); why != nil {
		t.print(fmt.Sprintf("the file system of %s has no locks (%v): see to it that no other training keeps its checkpoints there, it would not be noticed", t.c.Checkpoints, why))
	}
	for _, name := range t.store.Removed() {
		t.print("removed what a killed save has left: " + name)
	}
	if !t.c.Resume {
		return nil
	}
	l, err := t.store.Load()
	if errors.Is(err, fs.ErrNotExist) {
		t.print("there is no checkpoint in " + t.c.Checkpoints + " yet: the training begins anew")
		return nil
	}
	if err != nil {
		return err
	}
	defer checkpoint.Free(l.Tree)
	for _, d := range l.Damaged {
		t.print(fmt.Sprintf("a newer checkpoint cannot be used: %v", d))
	}
	if _, ok := l.Tree["schedule"]; ok && t.c.Schedule == nil {
		return &checkpoint.Error{Path: l.Path, Part: "schedule", Msg: "the training that is gone on from had a schedule, this one has none"}
	}
	parts := t.parts()
	if _, ok := l.Tree["scaler"]; !ok {
		delete(parts, "scaler") // the scaler begins with its initial scale
	}
	set := t.options()
	schedule, _ := describeSchedule(t.c.Schedule)
	err = checkpoint.Restore(parts, l.Tree)
	// A half-restored state cannot be used. But if memory ran out, restoring can be repeated.
	if errors.Is(err, device.ErrOutOfMemory) {
		t.c.Device.Empty()
		err = checkpoint.Restore(parts, l.Tree)
	}
	if err != nil {
		var e *checkpoint.Error
		if errors.As(err, &e) {
			return &checkpoint.Error{Path: l.Path, Part: e.Part, Msg: e.Msg, Err: e.Err}
		}
		return err
	}
	t.resumed = l.Path
	text := fmt.Sprintf("going on from %s: step %d, epoch %d", l.Path, t.st.Step, t.st.Epoch)
	if t.finished() {
		text += "; that is where it ends already, no steps are left to make"
	}
	t.print(text)
	t.changed = t.changes(t.savedSettings)
	for _, name := range slices.Sorted(maps.Keys(l.Tree)) {
		if _, ok := parts[name]; !ok && name != "scaler" {
			t.changed = append(t.changed, fmt.Sprintf("there was a part %q", name))
		}
	}
	if len(t.changed) > 0 {
		t.print("settings are not those that it was begun with, and the numbers may not be those of a training that was not interrupted: " + strings.Join(t.changed, "; "))
	}
	if text := overruled(set, t.options()); text != "" {
		t.print("settings of the optimizer are those of the checkpoint: " + text + "; OnStep can change them")
	}
	if now, _ := describeSchedule(t.c.Schedule); now != schedule {
		t.print(fmt.Sprintf("the schedule is that of the checkpoint: %s and not %s", now, schedule))
	}
	return nil
}

// later queues a line, which the goroutine of the training will print.
func (t *trainer) later(line string) {
	t.mu.Lock()
	t.lines = append(t.lines, line)
	t.mu.Unlock()
}

func (t *trainer) parts() checkpoint.Parts {
	p := checkpoint.Parts{"model": t.c.Model, "optimizer": t.c.Optimizer, "loader": t.c.Train, "generator": t.c.Generator, "train": (*loopState)(t)}
	if t.c.Schedule != nil {
		p["schedule"] = t.c.Schedule
	}
	if t.c.Scaler != nil {
		p["scaler"] = t.c.Scaler
	}
	maps.Copy(p, t.c.Parts)
	return p
}

// saveState saves a checkpoint of the present state, unless it has already done so.
func (t *trainer) saveState() error {
	t.due = false
	now := [2]int{t.st.Step, t.st.Epoch}
	if t.store == nil || t.saved == now {
		return nil
	}
	if err := t.read(); err != nil { // a loss that is NaN or infinite must not be saved
		return err
	}
	if err := t.finite(); err != nil {
		return err
	}
	info := checkpoint.Info{Step: t.st.Step, Epoch: t.st.Epoch, Metric: math.NaN()}
	if t.evaluated == t.st.Step {
		info.Metric = t.st.Metrics[t.c.Watch]
	}
	err := t.save(info)
	// Memory may only be fragmented, so the caches are emptied for a second attempt.
	if errors.Is(err, device.ErrOutOfMemory) {
		t.c.Device.Empty()
		if err = t.save(info); errors.Is(err, device.ErrOutOfMemory) {
			t.broken = errors.Join(t.broken, err)
			t.print(fmt.Sprintf("the checkpoint of step %d could not be made, the older ones are kept: %v", info.Step, err))
			return nil
		}
	}
	if err == nil {
		t.saved = now
	}
	return err
}

// save captures the state and starts to write it to a checkpoint.
func (t *trainer) save(info checkpoint.Info) error {
	tree, err := checkpoint.Capture(t.parts())
	if err != nil {
		return err
	}
	defer checkpoint.Free(tree)
	return t.store.Save(tree, info)
}

// finite returns an error if parameters are NaN or infinite. Training cannot continue from such
// parameters, so they must not be saved, even if the last loss was finite.
func (t *trainer) finite() error {
	var names []string
	var list []*tensor.Tensor
	for _, p := range nn.NamedParameters(t.c.Model) {
		if p.Tensor.Size() > 0 && p.Tensor.NeedsGrad() {
			names, list = append(names, p.Name), append(list, p.Tensor)
		}
	}
	var largest []float64
	err := t.adapt.Do("a look at the parameters", func() {
		largest = largest[:0]
		byDevice := map[device.Device][]*tensor.Tensor{}
		tensor.Do(func(s *tensor.Scope) {
			for _, p := range list {
				byDevice[p.Device()] = append(byDevice[p.Device()], p.In(s).Norm(math.Inf(1)).Cast(dtype.F64))
			}
			read := map[device.Device][]float64{}
			for d, norms := range byDevice {
				read[d] = tensor.Stack(0, norms...).Floats()
			}
			for _, p := range list {
				d := p.Device()
				largest, read[d] = append(largest, read[d][0]), read[d][1:]
			}
		}, tensor.NoGrad())
	})
	if err != nil {
		return err
	}
	for i, v := range largest {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return &DivergedError{Step: t.st.Step, Loss: t.st.Loss, Param: names[i]}
		}
	}
	return nil
}

// flush writes the events to the file. It logs a failure only once.
func (t *trainer) flush() {
	if t.tb == nil || t.mute {
		return
	}
	if err := t.tb.Flush(); err != nil {
		t.mute = true
		t.print(fmt.Sprintf("the events for TensorBoard could not be written: %v", err))
	}
}

// loopState is the part of a checkpoint that holds the progress of the loop.
type loopState trainer

// StateDict returns the progress of the loop.
func (t *loopState) StateDict() map[string]any {
	metrics := map[string]any{}
	for k, v := range t.st.Metrics {
		metrics[k] = v
	}
	return map[string]any{
		"step": int64(t.st.Step), "epoch": int64(t.st.Epoch), "samples": int64(t.st.Samples), "loss": t.st.Loss, "metrics": metrics,
		"evaluated": int64(t.evaluated), "unmeasured": t.unmeasured, "best_step": int64(t.bestStep), "stopping": t.stop.StateDict(),
		"ended": int64(t.ended), "epoch_loss": t.epoch.sum, "epoch_samples": t.epoch.count,
		"adapt": t.adapt.state(), "settings": (*trainer)(t).settings(),
	}
}

// LoadStateDict restores the progress of the loop.
func (t *loopState) LoadStateDict(sd map[string]any) error {
	for key, to := range map[string]*int{"step": &t.st.Step, "epoch": &t.st.Epoch, "samples": &t.st.Samples, "evaluated": &t.evaluated, "best_step": &t.bestStep} {
		v, ok := sd[key].(int64)
		if !ok || int64(int(v)) != v || v < -1 {
			return fmt.Errorf("%q is %v", key, sd[key])
		}
		*to = int(v)
	}
	for key, to := range map[string]*float64{"loss": &t.st.Loss, "epoch_loss": &t.epoch.sum, "epoch_samples": &t.epoch.count} {
		v, ok := sd[key].(float64)
		if !ok {
			return fmt.Errorf("%q is %v", key, sd[key])
		}
		*to = v
	}
	metrics, ok1 := sd["metrics"].(map[string]any)
	stopping, ok2 := sd["stopping"].(map[string]any)
	ended, ok3 := sd["ended"].(int64)
	unmeasured, ok4 := sd["unmeasured"].(bool)
	if !ok1 || !ok2 || !ok3 || !ok4 || ended < 0 || ended > int64(Failed) {
		return fmt.Errorf("this is not the state of a training; it has %q", slices.Sorted(maps.Keys(sd)))
	}
	if v, ok := sd["adapt"]; ok { // checkpoints of earlier versions lack this entry
		adapt, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("\"adapt\" is %v", v)
		}
		if err := t.adapt.load(adapt); err != nil {
			return err
		}
	}
	if v, ok := sd["settings"]; ok { // checkpoints of earlier versions lack this entry
		if t.savedSettings, ok = v.(map[string]any); !ok {
			return fmt.Errorf("\"settings\" is %v", v)
		}
	}
	t.st.Metrics = nil
	for k, v := range metrics {
		f, ok := v.(float64)
		if !ok {
			return fmt.Errorf("the metric %q is %v", k, v)
		}
		if t.st.Metrics == nil {
			t.st.Metrics = map[string]float64{}
		}
		t.st.Metrics[k] = f
	}
	// A training that Patience has ended stays ended. A training that a callback has ended goes on.
	if t.unmeasured = unmeasured; Reason(ended) == StoppedEarly && t.c.Patience > 0 {
		t.ended = StoppedEarly
	}
	t.saved = [2]int{t.st.Step, t.st.Epoch}
	return t.stop.LoadStateDict(stopping)
}
