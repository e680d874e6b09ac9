package sched

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/optim"
)

// A setting is an entry of a schedule's state. The function get returns its value for a tree. The
// function set checks a value from a tree, and returns a function that stores the value, or a text
// that says what is wrong.
type setting struct {
	name string
	get  func() any
	set  func(v any) (apply func(), wrong string)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	}
	return 0, false
}

func integer(v any) (int, bool) {
	f, ok := number(v)
	if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<52 {
		return 0, false
	}
	return int(f), true
}

func integerEntry(name string, p *int) setting {
	return setting{name, func() any { return int64(*p) }, func(v any) (func(), string) {
		n, ok := integer(v)
		if !ok {
			return nil, fmt.Sprintf("is %v, want a whole number", v)
		}
		return func() { *p = n }, ""
	}}
}

func real(name string, p *float64) setting {
	return setting{name, func() any { return *p }, func(v any) (func(), string) {
		f, ok := number(v)
		if !ok {
			return nil, fmt.Sprintf("is %v, want a number", v)
		}
		return func() { *p = f }, ""
	}}
}

func flag(name string, p *bool) setting {
	return setting{name, func() any { return *p }, func(v any) (func(), string) {
		b, ok := v.(bool)
		if !ok {
			return nil, fmt.Sprintf("is %v, want a bool", v)
		}
		return func() { *p = b }, ""
	}}
}

func text(name string, p *string, allowed ...string) setting {
	return setting{name, func() any { return *p }, func(v any) (func(), string) {
		s, ok := v.(string)
		if !ok || !slices.Contains(allowed, s) {
			return nil, fmt.Sprintf("is %v, want one of %q", v, allowed)
		}
		return func() { *p = s }, ""
	}}
}

// constant returns an entry that always has the value v. Loading ignores it.
func constant(name string, v any) setting {
	return setting{name, func() any { return v }, func(any) (func(), string) { return func() {}, "" }}
}

// reals returns an entry whose value is a list with one number for each parameter group.
func reals(name string, p *[]float64) setting {
	get := func() any {
		out := make([]any, len(*p))
		for i, v := range *p {
			out[i] = v
		}
		return out
	}
	return setting{name, get, func(v any) (func(), string) {
		list, ok := v.([]any)
		if !ok || len(list) != len(*p) {
			return nil, fmt.Sprintf("is %v, want a list of %d numbers", v, len(*p))
		}
		out := make([]float64, len(list))
		for i := range list {
			if out[i], ok = number(list[i]); !ok {
				return nil, fmt.Sprintf("holds %v, want numbers", list[i])
			}
		}
		return func() { *p = out }, ""
	}}
}

// integerEntries returns the entry of a list of integers.
func integerEntries(name string, p *[]int) setting {
	get := func() any {
		out := make([]any, len(*p))
		for i, v := range *p {
			out[i] = int64(v)
		}
		return out
	}
	return setting{name, get, func(v any) (func(), string) {
		list, ok := v.([]any)
		if !ok || len(list) != len(*p) {
			return nil, fmt.Sprintf("is %v, want a list of %d whole numbers", v, len(*p))
		}
		out := make([]int, len(list))
		for i := range list {
			if out[i], ok = integer(list[i]); !ok {
				return nil, fmt.Sprintf("holds %v, want whole numbers", list[i])
			}
		}
		return func() { *p = out }, ""
	}}
}

// counter returns the entry of a sorted list of integers. torch stores such a list as a map from
// each integer to the number of its occurrences.
func counter(name string, p *[]int) setting {
	get := func() any {
		out := map[int64]any{}
		for _, v := range *p {
			n, _ := out[int64(v)].(int64)
			out[int64(v)] = n + 1
		}
		return out
	}
	return setting{name, get, func(v any) (func(), string) {
		m, ok := v.(map[int64]any)
		if s, empty := v.(map[string]any); empty && len(s) == 0 {
			ok = true
		}
		if !ok {
			return nil, fmt.Sprintf("is a %T, want a map from whole numbers to how often they occur", v)
		}
		var out []int
		for _, k := range slices.Sorted(maps.Keys(m)) {
			n, ok := integer(m[k])
			if !ok || n < 0 || n > 1<<16 {
				return nil, fmt.Sprintf("has %v for %d, want how often that occurs", m[k], k)
			}
			for range n {
				out = append(out, int(k))
			}
		}
		return func() { *p = out }, ""
	}}
}

// plan lists the entries of the state, including torch's internal entries.
func (l *LR) plan() []setting {
	return append([]setting{reals("base_lrs", &l.base), integerEntry("last_epoch", &l.lastEpoch), integerEntry("_step_count", &l.stepCount), reals("_last_lr", &l.last),
		constant("_is_initial", false), constant("_get_lr_called_within_step", false)}, l.settings...)
}

// StateDict returns the state as a tree with torch's names.
func (l *LR) StateDict() map[string]any { return tree(l.plan()) }

// LoadStateDict loads the state from a tree made by StateDict or by torch. If the tree does not
// fit, the error is an *[optim.StateError], and nothing was changed.
func (l *LR) LoadStateDict(m map[string]any) error { return load(l.name, l.plan(), m) }

func tree(plan []setting) map[string]any {
	out := map[string]any{}
	for _, s := range plan {
		out[s.name] = s.get()
	}
	return out
}

func load(name string, plan []setting, m map[string]any) error {
	apply, path, wrong := read(plan, m)
	if wrong != "" {
		return &optim.StateError{Optimizer: name, Path: path, Msg: wrong}
	}
	for _, f := range apply {
		f()
	}
	return nil
}

// read checks a tree and returns the functions that store its values. It also returns the path of a
// wrong value, and what is wrong with it. torch's internal entries may be missing.
func read(plan []setting, m map[string]any) (apply []func(), path, wrong string) {
	for _, s := range plan {
		v, ok := m[s.name]
		if !ok {
			if s.name == "_is_initial" || s.name == "_get_lr_called_within_step" {
				continue
			}
			return nil, "", fmt.Sprintf("has no %q", s.name)
		}
		f, wrong := s.set(v)
		if wrong != "" {
			return nil, fmt.Sprintf("[%q]", s.name), wrong
		}
		apply = append(apply, f)
	}
	return apply, "", ""
}
