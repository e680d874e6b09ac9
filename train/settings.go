package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
)

// settings are those that decide the bits of a training and are in no other part of a checkpoint.
// Those that do not change the bits are not among them: how many goroutines load and compute, what
// is measured, written or profiled, and Checkpointing.
func (t *trainer) settings() map[string]any {
	c := &t.c
	precision := "full"
	if c.Autocast != dtype.Invalid {
		precision = c.Autocast.String()
	}
	info := c.Device.Info()
	dev := info.Kind
	if dev != "cpu" { // whose results are those of any other
		dev += " (" + info.Name + ")"
	}
	all := map[string]any{
		"Accumulate": int64(c.Accumulate), "MicroBatch": int64(c.MicroBatch), "ClipNorm": c.ClipNorm, "ClipValue": c.ClipValue, "Autocast": precision,
		"Scaler": c.Scaler != nil, "Device": dev, "Epochs": int64(c.Epochs), "Steps": int64(c.Steps), "Schedule": scheduleKind(c.Schedule),
	}
	if c.TF32 { // not said where it is off, as before there was such a setting
		all["TF32"] = true
	}
	if n := len(c.devices); n > 0 { // of one nothing is said, as before there could be more
		all["Devices"] = int64(n)
	}
	return all
}

// scheduleKind names a schedule without its settings.
func scheduleKind(schedule any) string {
	if schedule == nil {
		return "none"
	}
	if name, ok := library(schedule); ok {
		name, _, _ = strings.Cut(name, "(")
		return name
	}
	return fmt.Sprintf("%T", schedule)
}

// library returns what a schedule of package sched, which is the same as long as nobody changes its
// settings, says of itself.
func library(schedule any) (string, bool) {
	s, ok := schedule.(fmt.Stringer)
	if !ok || !strings.HasPrefix(fmt.Sprintf("%T", s), "*sched.") {
		return "", false
	}
	return s.String(), true
}

// changes says which settings are others than those of the checkpoint that is gone on from, was.
// Those of an earlier version are not known.
func (t *trainer) changes(was map[string]any) (list []string) {
	now := t.settings()
	if was != nil {
		for _, sd := range []*map[string]any{&was, &now} {
			all := map[string]any{"Devices": int64(1), "TF32": false}
			maps.Copy(all, *sd)
			*sd = all
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		old, known := was[key]
		switch {
		case !known || old == now[key]:
			continue
		case key == "Epochs" || key == "Steps":
			// The end of a training is no part of what it computes, unless the learning rate was to
			// come down by then.
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

// options are the settings of an optimizer that its state brings along: learning rates and the like
// by group. What a schedule changes is not among them: of the learning rate only that which it
// began with.
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

// overruled says which settings of the optimizer those of the checkpoint have taken the place of:
// as in PyTorch they are a part of its state.
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
