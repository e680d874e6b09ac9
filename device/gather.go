package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// Gather selects elements of Src along an axis, like torch.gather. With Axis 1, it sets
// Out[i][j][k] = Src[i][Index[i][j][k]][k]. Out and Index have the same shape. For an index outside
// the axis, Gather stores 0, and Run or the next wait returns an [IndexError] with Tag. Every
// device supports Gather without Wrap.
type Gather struct {
	Out, Src, Index View
	Axis            int
	Tag             uint32
	Wrap            bool // the indices -n to -1 count from the end of the axis, which has size n
}

// Name returns "gather".
func (*Gather) Name() string { return "gather" }

// Operand returns operand i: the result comes first, then the inputs.
func (g *Gather) Operand(i int) Operand {
	return nth(i, Operand{"out", &g.Out, true}, Operand{"src", &g.Src, false},
		Operand{"index", &g.Index, false})
}

// Check checks the shapes of the operands.
func (g *Gather) Check() (arg, reason string) {
	return checkIndexed("out", &g.Out, "src", &g.Src, &g.Index, g.Axis)
}

// Work counts the bytes of the gathered elements of Src, not of the whole Src.
func (g *Gather) Work() Work {
	if g.Out.Size() == 0 {
		return Work{}
	}
	return Work{0, 2*bytesOf(g.Out) + bytesOf(g.Index)}
}

// Clone copies the op.
func (g *Gather) Clone() Op { c := *g; return &c }

// checkIndexed checks the operands of a gather or a scatter. The view dense has one element for
// each index: it is a gather's Out or a scatter's Src. The view table holds the indexed elements:
// it is a gather's Src or a scatter's Dst.
func checkIndexed(denseName string, dense *View, tableName string, table, index *View, axis int) (arg, reason string) {
	switch {
	case index.Type != dtype.I64 && index.Type != dtype.I32:
		return "index", fmt.Sprintf("of %v, want int64 or int32", index.Type)
	case dense.Type != table.Type:
		return denseName, fmt.Sprintf("%v, but %s is %v", dense.Type, tableName, table.Type)
	case dense.Shape != index.Shape:
		return "index", fmt.Sprintf("shape %v, but %s has %v", index.Shape, denseName, dense.Shape)
	case table.Shape.Rank() != index.Shape.Rank() || axis < 0 || axis >= table.Shape.Rank():
		return "axis", fmt.Sprintf("%d for shapes %v and %v", axis, table.Shape, index.Shape)
	}
	for k := range table.Shape.Rank() {
		if k != axis && index.Shape.At(k) > table.Shape.At(k) {
			return "index", fmt.Sprintf("shape %v is larger than %v in dimension %d", index.Shape, table.Shape, k)
		}
	}
	return "", ""
}
