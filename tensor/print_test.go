package tensor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
)

// TestPrintsAsTorch compares String with every row of the table that PyTorch printed. Package
// cuda's tests cover the rows of tensors on a GPU.
func TestPrintsAsTorch(t *testing.T) {
	rows, err := golden.Prints()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range rows {
		if strings.HasPrefix(r.Device, "cuda") {
			continue
		}
		n++
		ty, err := dtype.Parse(r.DType)
		if err != nil {
			t.Fatal(err)
		}
		Do(func(s *Scope) {
			var x *Tensor
			if ty.IsFloat() {
				x = s.From(r.Floats, r.Shape...)
			} else {
				x = s.From(r.Ints, r.Shape...)
			}
			x = x.Reshape(r.Shape...).Cast(ty)
			if r.RequiresGrad {
				x.RequiresGrad()
			}
			if got := x.String(); got != r.Repr {
				t.Errorf("%s:\n%s\nwant\n%s", r.Name, got, r.Repr)
			}
		})
	}
	if n < 50 {
		t.Fatalf("only %d rows", n)
	}
}

// The verbs of numbers print the only element. A tensor of several elements says its shape.
func TestFormat(t *testing.T) {
	freed := Ones(1)
	freed.Free()
	for want, got := range map[string]string{
		"0.250 | 2.5e-01 |   0.2": fmt.Sprintf("%.3f | %.1e | %5.1f", Full(0.25), Full(0.25, 1, 1), Full(0.25)),
		"7 007 7":                 fmt.Sprintf("%d %03d %v", From([]int64{7}), From([]uint8{7}), From([]int32{7}).Item()),
		"-7.00 1":                 fmt.Sprintf("%.2f %g", From([]int64{-7}), From([]bool{true})),
		"\"tensor(1.)\"":          fmt.Sprintf("%q", Ones()),
		"true":                    fmt.Sprintf("%t", From([]bool{true})),
		"tensor([1., 1.])":        fmt.Sprintf("%s", Ones(2)),
		"  tensor(1.)|tensor(1.)": fmt.Sprintf("%12v|%+v", Ones(), Ones()),
		"%!f(a tensor of shape [2], which is not one number)": fmt.Sprintf("%f", Ones(2)),
		"tensor(nil)":    fmt.Sprintf("%.2f", (*Tensor)(nil)),
		"%!d(float64=1)": fmt.Sprintf("%d", Ones()),
		freed.String():   fmt.Sprintf("%f", freed),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
