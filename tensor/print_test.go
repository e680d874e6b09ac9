package tensor

import (
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
