package golden

import (
	"math"
	"slices"
	"testing"
)

func TestKinds(t *testing.T) {
	plain := Operand{Base: f64s(1, 2)}
	for _, c := range []struct {
		c    Case
		want []string
	}{
		{Case{Name: "one", In: []Operand{plain}}, []string{"ordinary"}},
		{Case{Name: "two", In: []Operand{plain, {Base: f64s(1)}}}, []string{"broadcast", "ordinary"}},
		{Case{Name: "one", In: []Operand{{Base: f64s(1, 2, 3), Views: []View{{"narrow", []int{0, 1, 2}}}}}}, []string{"strided"}},
		{Case{Name: "one", In: []Operand{{Base: f64s(1), Views: []View{{"expand", []int{3}}}}}}, []string{"broadcast", "ordinary"}},
		{Case{Name: "one", In: []Operand{{Base: f64s()}}}, []string{"empty"}},
		{Case{Name: "one", In: []Operand{{Base: f64s(math.NaN(), math.Inf(-1), 0x1p-140)}}}, []string{"NaN", "denormal", "extreme", "infinity"}},
		{Case{Name: "extreme ties", In: []Operand{plain}}, []string{"extreme"}},
	} {
		if got := c.c.Kinds(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.c.Name, got, c.want)
		}
	}
	o := Operand{Base: Tensor{DType: "F64", Shape: []int{2, 3}}, Views: []View{{"transpose", []int{0, 1}}, {"narrow", []int{0, 1, 1}}, {"expand", []int{4, 2}}}}
	if got := o.Shape(); !slices.Equal(got, []int{4, 2}) {
		t.Error(got)
	}
}
