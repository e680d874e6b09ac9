package optest

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// onlyFirst lists the differentiable ops whose second derivatives are not checked, each with the
// reason.
var onlyFirst = map[string]string{
	"Float":    "differences in float64 do not see through its rounding; its gradient is a cast, which is one again",
	"Half":     "differences in float64 do not see through its rounding; its gradient is a cast, which is one again",
	"BFloat16": "differences in float64 do not see through its rounding; its gradient is a cast, which is one again",
}

func TestSecondDerivativesAreWalked(t *testing.T) {
	for _, o := range Matrix() {
		why := onlyFirst[o.Name]
		switch {
		case o.Gradient == nil && o.Second:
			t.Errorf("%s has second derivatives and no first", o.Name)
		case o.Gradient != nil && !o.Second && why == "":
			t.Errorf("%s: second derivatives are not walked", o.Name)
		case o.Second && why != "":
			t.Errorf("%s: second derivatives are walked: it is listed as without (%s)", o.Name, why)
		}
	}
}

// TestDifferences checks that Differences finds the entries of the matrix that were not checked. It
// must also find checks that the matrix does not contain.
func TestDifferences(t *testing.T) {
	w := Walked{}
	for _, o := range Matrix() {
		for _, ty := range o.Types {
			w.add(o.Name, ty, 0)
		}
		for _, ty := range o.Gradient {
			w.add(o.Name, ty, 1)
		}
		if o.Second {
			w.add(o.Name, dtype.F64, 2)
		}
	}
	if d := w.Differences(nil); len(d) > 0 {
		t.Fatal(d)
	}
	delete(w, walkedCell{"Add", dtype.F16, 1})
	w.add("Floor", dtype.Bool, 2)
	if d := w.Differences(nil); !slices.Equal(d, []string{"gradients of Add in float16 are in the matrix, and were not walked", "second derivatives of Floor in bool were walked, and are not in the matrix"}) {
		t.Error(d)
	}
}
