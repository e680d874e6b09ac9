package sched

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String returns the schedule's name and settings, with torch's names.
func (l *LR) String() string { return l.name + "(" + words(l.settings) + ")" }

// String returns the schedule's name and settings, with torch's names.
func (p *Plateau) String() string { return "ReduceLROnPlateau(" + words(p.plan()) + ")" }

// String lists the schedules and the steps at which they start.
func (q *Sequential) String() string {
	return fmt.Sprintf("%s(%v, milestones %v)", q.title(), q.list, q.milestones)
}

// String lists the schedules.
func (c *Chained) String() string { return fmt.Sprintf("%s(%v)", c.title(), c.list) }

// progressKeys has the names of entries that are not settings. Most of them describe the progress
// of a schedule.
var progressKeys = map[string]bool{"T_cur": true, "T_i": true, "last_epoch": true, "best": true, "cooldown_counter": true, "num_bad_epochs": true, "mode_worse": true,
	"default_min_lr": true, "lr_lambdas": true}

// words formats settings, without torch's internal entries.
func words(plan []setting) string {
	var list []string
	for _, s := range plan {
		if progressKeys[s.name] || strings.HasPrefix(s.name, "_") {
			continue
		}
		v := s.get()
		if counts, ok := v.(map[int64]any); ok {
			v = slices.Sorted(maps.Keys(counts))
		}
		list = append(list, fmt.Sprint(s.name, " ", v))
	}
	return strings.Join(list, ", ")
}
