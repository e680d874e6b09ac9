package profile_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestRooflineOfIntegers profiles products of int8. The peak for floats must not limit them, but
// their FLOPs must be counted as usual.
func TestRooflineOfIntegers(t *testing.T) {
	p := recorded(t, profile.Options{}, func(*profile.Profile) {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Typed(dtype.I8).Ones(64, 64)
			x.IntMM(x)
		})
	})
	found := false
	for _, r := range p.Roofline(map[string]device.Peak{"cpu": {FLOPs: 1e9, Bytes: 20e9}}).Rows {
		if r.Primitive != "matmul" {
			continue
		}
		found = true
		// the bound is the time for 24 KiB of memory traffic
		if r.Work.FLOPs != 2*64*64*64 || r.By != "memory" || r.Bound.Nanoseconds() != 1228 {
			t.Errorf("%d FLOPs, bound %v by %s; want 524288, 1.228µs by memory", r.Work.FLOPs, r.Bound, r.By)
		}
	}
	if !found {
		t.Error("the product is not in the roofline")
	}
}
