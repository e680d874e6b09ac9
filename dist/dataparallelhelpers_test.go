package dist_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

type tt = tensor.Tensor

func gpus(t testing.TB, spec string) []device.Device {
	t.Helper()
	list, err := cuda.Emulate("emulate" + spec)
	if err != nil {
		t.Fatal(err)
	}
	var out []device.Device
	for _, d := range list {
		out = append(out, d)
	}
	return out
}

func host(t testing.TB) device.Device {
	t.Helper()
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// checkNear fails the test if elements of got and want differ by more than the tolerance.
func checkNear(t *testing.T, what string, got, want *tt, tolerance float64) {
	t.Helper()
	if (got == nil) != (want == nil) {
		t.Errorf("%s: %v and %v", what, got, want)
		return
	}
	if got == nil {
		return
	}
	a, b := got.Double().Floats(), want.Double().Floats()
	if len(a) != len(b) {
		t.Errorf("%s: %v and %v", what, got.Shape(), want.Shape())
		return
	}
	for i := range a {
		if !(math.Abs(a[i]-b[i]) <= tolerance*(1+math.Abs(b[i]))) {
			t.Errorf("%s: element %d is %v, want %v", what, i, a[i], b[i])
			return
		}
	}
}

// checkPanic checks that f panics with an error of the library that wraps kind and contains all
// words. If kind is nil, the error may wrap anything.
func checkPanic(t *testing.T, kind error, f func(), words ...string) error {
	t.Helper()
	err := tensor.Try(f)
	if err == nil {
		t.Errorf("no error; want %q", words)
		return nil
	}
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("%v is not %v", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v\ndoes not say %q", err, w)
		}
	}
	return err
}

// allocated returns the bytes in use on each device.
func allocated(devices []device.Device) []int {
	var n []int
	for _, d := range devices {
		n = append(n, d.Stats().Allocated)
	}
	return n
}

// gradients returns the gradients of a model's parameters, and clears them.
func gradients(s *tensor.Scope, m any) (out []*tt) {
	for _, p := range nn.Parameters(m) {
		g := p.TakeGrad()
		if g != nil {
			g = s.From(g.CPU())
		}
		out = append(out, g)
	}
	return out
}
