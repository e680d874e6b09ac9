package nn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// All functions for models accept a ParameterMap: listing names, state dicts, copies, moves between
// devices, Freeze and Describe.
func TestParameterMap(t *testing.T) {
	type net struct {
		nn.Base
		Scales *nn.ParameterMap
		Shifts nn.ParameterMap `nn:"shift"`
		Fc     *nn.Linear
	}
	make := func() *net {
		m := &net{Scales: nn.NewParameterMap().Set("rain", tensor.Ones(2).RequiresGrad()).Set("sun", tensor.Ones(3).RequiresGrad()), Fc: nn.NewLinear(2, 2)}
		m.Shifts.Set("all", tensor.Zeros(2).RequiresGrad())
		return m
	}
	m := make()
	var names []string
	for _, p := range nn.NamedParameters(m) {
		names = append(names, p.Name)
	}
	if want := []string{"scales.rain", "scales.sun", "shift.all", "fc.weight", "fc.bias"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	m.Scales.At("sun").Detach().Fill(7)
	other, copied := make(), nn.Clone(m)
	if err := nn.LoadStateDict(other, nn.StateDict(m)); err != nil || other.Scales.At("sun").Floats()[2] != 7 {
		t.Errorf("loaded %v, %v", other.Scales.At("sun"), err)
	}
	m.Scales.At("sun").Detach().Fill(5)
	if c := copied.Scales.At("sun"); c.Floats()[0] != 7 || !c.NeedsGrad() || c == m.Scales.At("sun") {
		t.Errorf("the copy has %v", c)
	}
	if n := nn.Count(nn.Freeze(copied)); n != 2+3+2+6 || copied.Shifts.At("all").NeedsGrad() {
		t.Errorf("%d elements, of which some are not frozen", n)
	}
	if d := nn.Describe(m); !strings.Contains(d, "(scales): ParameterMap(rain [2], sun [3])") {
		t.Error(d)
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	if nn.To(m, device.Device(gpus[0])); m.Scales.At("rain").Device() != device.Device(gpus[0]) {
		t.Error("a parameter stays on the CPU")
	}
	m.Scales.Set("none", nil)
	mustPanic(t, "nn: scales.none: the parameter is nil", func() { nn.Parameters(m) })
	mustPanic(t, "names are not empty and have no dot", func() { m.Scales.Set("a.b", tensor.Ones(1)) })
}

// Parameters have the names under which they were set.
func ExampleParameterMap() {
	m := &struct{ Scales *nn.ParameterMap }{nn.NewParameterMap().Set("rain", tensor.Ones(2).RequiresGrad()).Set("sun", tensor.Ones(3).RequiresGrad())}
	for _, p := range nn.NamedParameters(m) {
		fmt.Print(p.Name, " ", p.Tensor.Shape(), " ")
	}
	// Output: scales.rain [2] scales.sun [3]
}
