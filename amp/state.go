package amp

import (
	"fmt"
	"math"
)

// A StateError says which entry of a tree does not fit a scaler that loads it. The scaler was not
// changed.
type StateError struct {
	Key string // torch's name of the entry
	Msg string
}

func (e *StateError) Error() string {
	if e.Key == "" {
		return "amp: cannot load the state: " + e.Msg
	}
	return fmt.Sprintf("amp: cannot load the state: %q %s", e.Key, e.Msg)
}

// StateDict returns the state with torch's names: scale, growth_factor and backoff_factor
// (float64), growth_interval and _growth_tracker (int64). The tree is empty for a scaler that is
// not enabled. StateDict waits for the device. Call it after Update.
func (g *GradScaler) StateDict() map[string]any {
	if g.off {
		return map[string]any{}
	}
	return map[string]any{"scale": g.Value(), "growth_factor": g.growth, "backoff_factor": g.backoff, "growth_interval": int64(g.interval),
		"_growth_tracker": int64(g.GrowthTracker())}
}

// LoadStateDict loads the state from a tree made by StateDict or by torch. It does not change the
// lowest scale and the warnings. A scaler that is not enabled accepts any tree and ignores it. The
// error is a *[StateError].
func (g *GradScaler) LoadStateDict(tree map[string]any) error {
	if g.off {
		return nil
	}
	if g.recording() != nil {
		return &StateError{Msg: "a step of the scaler is being captured; load it before the capture or between replays"}
	}
	if len(tree) == 0 {
		return &StateError{Msg: "it is empty; it may be that of a scaler that was not enabled"}
	}
	s := g.settings
	for _, e := range []struct {
		key   string
		float *float64
		whole *int
	}{{"scale", &s.begin, nil}, {"growth_factor", &s.growth, nil}, {"backoff_factor", &s.backoff, nil}, {"growth_interval", nil, &s.interval}, {"_growth_tracker", nil, &s.tracked}} {
		v, ok := tree[e.key]
		if !ok {
			return &StateError{e.key, "is missing"}
		}
		f, ok := number(v)
		switch {
		case !ok:
			return &StateError{e.key, fmt.Sprintf("is a %T, want a number", v)}
		case e.float != nil:
			*e.float = f
		case f != math.Trunc(f) || math.Abs(f) > 1<<31:
			return &StateError{e.key, fmt.Sprintf("is %v, want a whole number", f)}
		default:
			*e.whole = int(f)
		}
	}
	if msg := s.check(); msg != "" {
		return &StateError{Msg: msg}
	}
	g.watch.waitAll(&g.settings)
	g.settings = s
	g.watch = watch{scale: float32(s.begin), tracked: s.tracked}
	g.slots.Free()
	g.slots = nil
	if g.scale != nil {
		g.scale.Fill(s.begin)
		g.tracker.Fill(float64(s.tracked))
	}
	g.renew()
	return nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case float32:
		return float64(v), true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	}
	return 0, false
}
