package main

import (
	"encoding/json"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// onCPU measures all cases of the CPU in a trial.
func onCPU(t *testing.T) (list []*row) {
	t.Helper()
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range casesOn(cpu) {
		r := newRun(cpu, c, 0.01, true)
		if err := r.measureCase(c); err != nil {
			t.Fatal(err)
		}
		list = append(list, r.row)
	}
	return list
}

// All cases run on the CPU. If there is a loop of FMAs for the processor, the row of a product
// contains the peak rate of FMAs.
func TestCasesOnCPU(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	loop, _ := fmaLoop(cpu.Info().SIMD)
	for _, r := range onCPU(t) {
		product := strings.HasPrefix(r.Case, "matmul")
		if !(r.Rate > 0) || (r.FMAs > 0) != (product && loop != nil) || (r.Share > 0) != (r.FMAs > 0) || (r.Parameters > 0) == product {
			t.Errorf("%+v", r)
		}
	}
}

// The models of both sides have the same number of parameters and about equal losses. PyTorch's
// process measures a case when this program requests it.
func TestCasesOnCPUBesidePyTorch(t *testing.T) {
	python := pythonWithTorch(t)
	said, err := exec.Command(python, "-W", "ignore", "torch_compare.py", "--trial", "cpu").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]row{}
	for line := range strings.Lines(string(said)) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		theirs[r.Case] = r
	}
	for _, r := range onCPU(t) {
		v, ok := theirs[r.Case]
		if !ok || v.Error != "" || v.Parameters != r.Parameters || math.Abs(v.Loss-r.Loss) > 1.5 {
			t.Errorf("%+v, in PyTorch %+v", r, v)
		}
	}
	p, err := startPeer([]string{python, "-W", "ignore", "torch_compare.py", "--trial", "--peer", "--compile", "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	list := casesOn(cpu)
	digits := list[slices.IndexFunc(list, func(c benchCase) bool { return c.name == "mlp_digits_b1" })]
	if r, ok := pairRun(cpu, p, pairCase{digits, nil}); !ok || len(r.Theirs) != 2 || !(r.fastest() > 0) {
		t.Errorf("%+v, %v", r.row, r.Theirs)
	}
	if r, ok := pairRun(cpu, p, pairCase{benchCase{"nothing", "ns", false, digits.run}, nil}); ok || r.Theirs[""] == nil || r.Theirs[""].Error == "" {
		t.Errorf("a case without the other side: %v, %v", ok, r.Theirs)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
