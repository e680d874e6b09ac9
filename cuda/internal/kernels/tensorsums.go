package kernels

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// Rows of a are summed up by the tensor cores, as products with ones, from the fragments that the
// warps of the first column have. Each part of k has sums of its own.

// sumsInTile reports whether blocks of the product can sum up rows: those of tensor cores.
func (o *ProductOperands) sumsInTile(scratch Scratch) bool {
	vector := o.Out.Shape.At(1) == 1 || o.Out.Shape.At(2) == 1
	return o.A.Type.IsHalf() && scratch != nil && !vector
}

// sumsBehind plans a product whose sums of rows have launches of their own.
func sumsBehind(g *GPU, o ProductOperands, scratch Scratch) ([]Launch, error) {
	list, err := sumRows(o.Sums, o.A, scratch)
	if err != nil {
		return nil, err
	}
	o.Sums = Operand{}
	more, err := MatMulSplit(g, o, scratch)
	return append(list, more...), err
}

// sumRows sums up the rows of the one matrix of a batch.
func sumRows(sums, of Operand, scratch Scratch) ([]Launch, error) {
	sums.Shape, sums.Strides = shape.Of(1, sums.Shape.At(0), 1), shape.Of(0, sums.Strides.At(0), 0)
	return Reduce(&device.Reduction{Map: identities[of.Type]}, sums, []Operand{of}, nil, scratch)
}

// tensorSums is the state of a kernel that sums up rows of a.
type tensorSums struct {
	p      ptx.Ptr
	stride ptx.Value
	mine   ptx.Value    // whether this warp does it
	acc    [][]*ptx.Var // for each 16 rows
}

// declareRowSums declares the parameters and the sums.
func (g *tensorBuilder) declareRowSums() {
	if !g.s.sums {
		return
	}
	r := &g.rowSums
	r.p, r.stride = g.Pointer("sums", ptx.F32), g.Param("sumsr", ptx.S32)
	r.mine = g.tileN.Add(g.warpN).Eq(num(0))
	for range g.acc {
		var v []*ptx.Var
		for range 4 {
			v = append(v, g.Var(g.F32(0)))
		}
		r.acc = append(r.acc, v)
	}
}

// addRows adds the fragments of a step.
func (g *tensorBuilder) addRows(a [][]*ptx.Var) {
	if !g.s.sums {
		return
	}
	ones := uint64(0x3f803f80)
	if g.s.typ == dtype.F16 {
		ones = 0x3c003c00
	}
	one := g.Bits(ptx.B32, ones)
	g.If(g.rowSums.mine, func() {
		for i, v := range g.rowSums.acc {
			set(v, g.MMA(storage(g.s.typ), get(a[i]), []ptx.Value{one, one}, get(v)))
		}
	})
}

// storeRowSums stores them, from the lanes of the first column.
func (g *tensorBuilder) storeRowSums() {
	if !g.s.sums {
		return
	}
	r := &g.rowSums
	g.Comment("the sums of rows")
	g.If(r.mine.And(g.lane.And(num(3)).Eq(num(0))), func() {
		part := g.BlockID(2).Mul(g.m)
		row := g.tileM.Add(g.warpM).Add(g.lane.Shr(num(2)))
		for i, v := range r.acc {
			for h := range 2 {
				at := row.Add(num(i*16 + h*8))
				g.If(at.Lt(g.m), func() {
					r.p.At(part.Bitcast(ptx.S32).MulWide(num(1))).At(at.Bitcast(ptx.S32).MulWide(r.stride)).Store(v[2*h].Get())
				})
			}
		}
	})
}
