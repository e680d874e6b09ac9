package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
)

// settings returns the settings that affect the weights and are in no other part of a checkpoint.
// Settings for measuring, writing and profiling, the numbers of goroutines, and Checkpointing do
// not affect the weights.
func (t *trainer) settings() map[string]any {
	c := &t.c
	precision := "full"
	if c.Autocast != dtype.Invalid {
		precision = c.Autocast.String()
	}
	info := c.Device.Info()
	dev := info.Kind
	if dev != "cpu" { // all CPUs compute the same results
		dev += " (" + info.Name + ")"
	}
	all := map[string]any{
		"Accumulate": int64(c.Accumulate), "MicroBatch": int64(c.MicroBatch), "ClipNorm": c.ClipNorm, "ClipValue": c.ClipValue, "Autocast": precision,
		"Scaler": c.Scaler != nil, "Device": dev, "Epochs": int64(c.Epochs), "Steps": int64(c.Steps), "Schedule": scheduleKind(c.Schedule),
	}
	if c.TF32 { // older checkpoints lack TF32, so it is left out if it is off
		all["TF32"] = true
	}
	// Older checkpoints lack Devices, so it is left out for one device.
	if n := len(c.devices); n > 0 {
		all["Devices"] = int64(n)
	}
	return all
}

// scheduleKind returns the name of a schedule's type.
func scheduleKind(schedule any) string {
	if schedule == nil {
		return "none"
	}
	if name, ok := describeSchedule(schedule); ok {
		name, _, _ = strings.Cut(name, "(")
		return name
	}
	return fmt.Sprintf("%T", schedule)
}

// describeSchedule returns the description of a schedule of package sched, which depends only on
// the program's settings and not on the progress. ok is false for other schedules.
func describeSchedule(schedule any) (string, bool) {
	s, ok := schedule.(fmt.Stringer)
	if !ok || !strings.HasPrefix(fmt.Sprintf("%T", s), "*sched.") {
		return "", false
	}
	return s.String(), true
}

// changes lists the settings that differ from those saved in the checkpoint. It skips settings that
// the checkpoint lacks because an earlier version wrote it.
func (t *trainer) changes(saved map[string]any) (list []string) {
	now := t.settings()
	if saved != nil {
		for _, sd := range []*map[string]any{&saved, &now} {
			all := map[string]any{"Devices": int64(1), "TF32": false}
			maps.Copy(all, *sd)
			*sd = all
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		old, known := saved[key]
		switch {
		case !known || old == now[key]:
			continue
		case key == "Epochs" || key == "Steps":
			// The length of a training affects its steps only if a schedule was planned for that
			// length.
			if t.c.Schedule == nil {
				continue
			}
			list = append(list, fmt.Sprintf("%s was %v and is %v, to which the schedule does not adapt itself", key, old, now[key]))
			continue
		}
		list = append(list, fmt.Sprintf("%s was %v and is %v", key, old, now[key]))
	}
	return list
}

// options returns, for each group, the settings of the optimizer that are part of its state, such
// as learning rates. It leaves out what a schedule changes. With a schedule, only the initial
// learning rates remain.
func (t *trainer) options() (groups []map[string]any) {
	list, _ := t.c.Optimizer.StateDict()["param_groups"].([]any)
	for _, g := range list {
		tree, _ := g.(map[string]any)
		tree = maps.Clone(tree)
		delete(tree, "params")
		if t.c.Schedule != nil {
			delete(tree, "lr")
		}
		if _, cycled := tree["max_momentum"]; cycled {
			delete(tree, "momentum")
			delete(tree, "betas")
		}
		groups = append(groups, tree)
	}
	return groups
}

// overruled lists the optimizer's settings that the checkpoint has replaced. As in PyTorch, they
// are part of the optimizer's state.
func overruled(set, loaded []map[string]any) string {
	var list []string
	for i, g := range loaded {
		if i >= len(set) {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(g)) {
			is, was := fmt.Sprint(g[key]), fmt.Sprint(set[i][key])
			if _, ok := set[i][key]; !ok || is == was {
				continue
			}
			text := fmt.Sprintf("%s %s and not %s", strings.TrimPrefix(key, "initial_"), is, was)
			if len(loaded) > 1 {
				text += fmt.Sprintf(" in group %d", i)
			}
			list = append(list, text)
		}
	}
	return strings.Join(list, ", ")
}
