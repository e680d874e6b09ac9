package sched

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String tells the schedule with its settings, by torch's names.
func (l *LR) String() string { return l.name + "(" + words(l.settings) + ")" }

// String tells the schedule with its settings, by torch's names.
func (p *Plateau) String() string { return "ReduceLROnPlateau(" + words(p.plan()) + ")" }

// String tells the schedules and where each begins.
func (q *Sequential) String() string {
	return fmt.Sprintf("%s(%v, milestones %v)", q.title(), q.list, q.milestones)
}

// String tells the schedules.
func (c *Chained) String() string { return fmt.Sprintf("%s(%v)", c.title(), c.list) }

// place are the entries that say how far a schedule is.
var place = map[string]bool{"T_cur": true, "T_i": true, "last_epoch": true, "best": true, "cooldown_counter": true, "num_bad_epochs": true, "mode_worse": true,
	"default_min_lr": true, "lr_lambdas": true}

// words writes settings, without torch's housekeeping.
func words(plan []setting) string {
	var list []string
	for _, s := range plan {
		if place[s.name] || strings.HasPrefix(s.name, "_") {
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
