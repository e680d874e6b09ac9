package profile

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestAsTorch compares schedules, and the formats of times and sizes, with recorded results of
// torch.
func TestAsTorch(t *testing.T) {
	raw, err := os.ReadFile("testdata/torch.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Schedules []struct {
			Wait, Warmup, Active, Repeat int
			SkipFirst                    int `json:"skip_first"`
			SkipFirstWait                int `json:"skip_first_wait"`
			Actions                      []string
		}
		Times, Sizes map[string]string
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Schedules) < 5 || len(golden.Times) < 5 || len(golden.Sizes) < 5 {
		t.Fatal("cases are missing")
	}
	for _, c := range golden.Schedules {
		s := Schedule{Wait: c.Wait, Warmup: c.Warmup, Active: c.Active, Repeat: c.Repeat, SkipFirst: c.SkipFirst, SkipFirstWait: c.SkipFirstWait != 0}
		for i, want := range c.Actions {
			if got := s.Action(i).String(); got != want {
				t.Errorf("%+v, step %d: %s, torch %s", s, i, got, want)
			}
		}
	}
	for ns, want := range golden.Times {
		n, _ := strconv.Atoi(ns)
		if got := timeString(time.Duration(n)); got != want {
			t.Errorf("%s ns: %s, torch %s", ns, got, want)
		}
	}
	for size, want := range golden.Sizes {
		n, _ := strconv.Atoi(size)
		if got := bytesString(n); got != want {
			t.Errorf("%s bytes: %s, torch %s", size, got, want)
		}
	}
	if (Schedule{}).Action(1000) != Record {
		t.Error("without a schedule all is recorded")
	}
}
