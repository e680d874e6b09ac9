package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// ReduceKind says how a reduction combines values.
type ReduceKind uint8

// These are the ways to combine values. Max and Min propagate NaN. A reduction of no elements
// returns the identity of its operation: 0 for Sum, 1 for Prod, -Inf or the least integer for Max,
// +Inf or the greatest integer for Min. ArgMax and ArgMin return the first position of the extreme
// value, as I64, in row-major order of the reduced dimensions. If there is a NaN, they return the
// position of the first NaN.
const (
	Sum ReduceKind = iota
	Prod
	Max
	Min
	ArgMax
	ArgMin
)

func (k ReduceKind) String() string {
	return [...]string{"sum", "prod", "max", "min", "argmax", "argmin"}[k]
}

// Reduction has three stages. Map computes a value from each element, Kind combines the values, and
// Finish computes the result. Values are combined in the result type of Map (for 16-bit floats, in
// float32). Sums in float32 are pairwise or more accurate. The order of the additions does not
// depend on the number of workers.
type Reduction struct {
	Kind ReduceKind
	Map  *expr.Program // program on the operands' elements, with one result
	// Finish computes the result from its operand 0, the combined value. It uses the same scalars
	// as Map. If Finish is nil, the combined value is converted to the result's type.
	Finish *expr.Program
}

// Reduce combines Map(Ins…) over the dimensions that have size 1 in Out but not in Ins. Out has the
// rank of Ins. Params holds the bits of the programs' scalars, as expr.Encode returns them. Every
// device supports Reduce.
type Reduce struct {
	*Reduction
	Out    View
	Ins    []View
	Params []uint64
}

// Name returns "reduce".
func (*Reduce) Name() string { return "reduce" }

// Operand returns operand i: the result comes first, then the inputs.
func (r *Reduce) Operand(i int) Operand {
	if i == 0 {
		return Operand{"out", &r.Out, true}
	}
	if i <= len(r.Ins) {
		return Operand{"in", &r.Ins[i-1], false}
	}
	return Operand{}
}

// Check compares the views with the programs.
func (r *Reduce) Check() (arg, reason string) {
	if r.Reduction == nil || r.Map == nil || len(r.Map.Out) != 1 || len(r.Ins) == 0 {
		return "map", "want a program of at least one operand and with one result"
	}
	if r.Kind > ArgMin {
		return "kind", fmt.Sprintf("there is no kind %d", r.Kind)
	}
	if r.Out.Absent() {
		return "out", "absent"
	}
	s := &r.Ins[0].Shape
	fits := r.Out.Shape.Rank() == s.Rank()
	for k := 0; fits && k < s.Rank(); k++ {
		fits = r.Out.Shape.At(k) == s.At(k) || r.Out.Shape.At(k) == 1
	}
	if !fits {
		return "out", fmt.Sprintf("shape %v is not %v with dimensions of size 1", r.Out.Shape, *s)
	}
	if arg, reason := checkOperands(r.Map, s, r.Ins, len(r.Params)); reason != "" {
		return arg, reason
	}
	if r.Kind >= ArgMax && r.Out.Size() > 0 && s.Size() == 0 {
		return numbered("in", 0, len(r.Ins)), fmt.Sprintf("%v of no elements, shape %v", r.Kind, *s)
	}
	combined := r.Map.Out[0].Compute()
	if r.Kind >= ArgMax {
		combined = dtype.I64
	}
	f := r.Finish
	if f == nil {
		return "", ""
	}
	if len(f.In) > 1 || len(f.Out) != 1 || f.Out[0] != r.Out.Type ||
		len(f.In) == 1 && f.In[0].Compute() != combined {
		return "finish", fmt.Sprintf("takes %v and gives %v, want one operand computed as %v, and %v",
			f.In, f.Out, combined, r.Out.Type)
	}
	return checkParams(f, len(r.Params))
}

// Work counts, for each element, the operations of Map and one combination. For each result it
// counts the operations of Finish.
func (r *Reduce) Work() Work {
	if r.Out.Size() == 0 {
		return Work{}
	}
	w := Work{(r.Map.Cost() + 1) * r.Ins[0].Size(), bytesOf(r.Out) + bytesOf(r.Ins...)}
	if r.Finish != nil {
		w.FLOPs += r.Finish.Cost() * r.Out.Size()
	}
	return w
}

// Clone copies the op.
func (r *Reduce) Clone() Op {
	return &Reduce{r.Reduction, r.Out, clone(r.Ins), append([]uint64(nil), r.Params...)}
}
