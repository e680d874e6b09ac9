package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// tileSpec describes an elementwise kernel for operands that are contiguous along different
// dimensions, such as a copy of a transposed operand. Blocks compute tiles of 32×32 elements. The
// results are contiguous along the last dimension. Inputs that are contiguous along another
// dimension are called turned. Blocks transpose them in shared memory, so that all accesses to
// global memory run along the contiguous dimension.
type tileSpec struct {
	program programID
	rank    int // rank of the iteration space without merged dimensions
	// axis is the dimension along which turned inputs are contiguous.
	axis   int
	turned uint32 // bit i is set if input i is turned
}

func (s tileSpec) name() string {
	return fmt.Sprintf("map_%s_tile_r%d_%d_%x", s.program.name, s.rank, s.axis, s.turned)
}

const (
	tileSide   = 32
	tileHeight = 8            // number of threads of a block along the tile's second dimension
	tilePitch  = tileSide + 1 // one element of padding prevents bank conflicts along columns
	mostShared = 48 << 10     // bytes of shared memory that a kernel may declare
)

// tileSpecFor returns the specification for a map over the space. The first operands of the space
// are the results, and outs is their number. The result is false if a kernel without tiles is
// better.
func tileSpecFor(p *expr.Program, sp space, outs int) (tileSpec, bool) {
	last, shared := sp.rank()-1, 0
	s := tileSpec{program: programIDOf(p), rank: sp.rank(), axis: -1}
	if sp.rank() < 2 || sp.size[last] < tileSide/2 || p.UsesIndex() {
		return s, false
	}
	for k, stride := range sp.stride {
		if k < outs {
			if stride[last] != 1 {
				return s, false
			}
			continue
		}
		if stride[last] == 0 || stride[last] == 1 {
			continue
		}
		// if no shared memory is left, the input is not transposed, and accesses do not run along
		// its contiguous dimension
		tile := tileSide * tilePitch * p.In[k-outs].Size()
		if shared+tile > mostShared {
			continue
		}
		for d := range last {
			if stride[d] == 1 && sp.size[d] >= tileSide/2 && (s.axis < 0 || s.axis == d) {
				s.axis = d
				s.turned |= 1 << (k - outs)
				shared += tile
				break
			}
		}
	}
	return s, s.turned != 0
}

// outer splits a list that has an entry for each dimension. It returns the entries of the
// dimensions outside of the tiles, and the entries of the tiles' two dimensions.
func (s tileSpec) outer(list []int) (outer []int, axis, last int) {
	for d, v := range list[:s.rank-1] {
		if d != s.axis {
			outer = append(outer, v)
		}
	}
	return outer, list[s.axis], list[s.rank-1]
}

func planTiles(s tileSpec, p *expr.Program, sp space, all []Operand, params []uint64) ([]Launch, error) {
	k, err := kernelOf(s, p)
	if err != nil {
		return nil, err
	}
	outer, na, nl := s.outer(sp.size)
	tiles := 1
	for _, n := range outer {
		tiles *= n
	}
	a := make(packer, 0, 256)
	a.u32(uint32(na))
	a.u32(uint32(nl))
	a.packCoordinates(append([]int{1}, outer...), false)
	for i, o := range all {
		a.u64(o.start())
		so, sa, sl := s.outer(sp.stride[i])
		a.packStrides(append(so, sa, sl), false)
	}
	if err := a.packScalars("map", p.Params, params); err != nil {
		return nil, err
	}
	l, err := a.launch(k, tiles*ceilDiv(na, tileSide)*ceilDiv(nl, tileSide))
	return []Launch{l}, err
}

func (s tileSpec) build(b *ptx.Builder, programs []*expr.Program) [3]int {
	p := programs[0]
	na, nl := b.Param("na", ptx.U32), b.Param("nl", ptx.U32)
	// coords.split returns one coordinate more than coords has sizes. Here coords has the sizes of
	// all outer dimensions, so the first coordinate belongs to no dimension and is not used.
	coords := declareCoordinates(b, "d", s.rank-1, false)
	var base []ptx.Ptr
	var strides [][]ptx.Value
	outs := len(p.Out)
	for k := range outs + len(p.In) {
		name := fmt.Sprintf("x%d", k-outs)
		if k < outs {
			name = fmt.Sprintf("y%d", k)
		}
		base = append(base, b.Pointer(name, storage(programType(p, k))))
		strides = append(strides, declareStrides(b, name+"s", s.rank, false))
	}
	params := scalarParams(b, p.Params)

	b.Comment("the tile of this block")
	tilesL := nl.Add(num(tileSide - 1)).Div(num(tileSide))
	tilesA := na.Add(num(tileSide - 1)).Div(num(tileSide))
	id := b.BlockID(0)
	rest := id.Div(tilesL)
	l0 := id.Sub(rest.Mul(tilesL)).Mul(num(tileSide))
	o := rest.Div(tilesA)
	a0 := rest.Sub(o.Mul(tilesA)).Mul(num(tileSide))
	outer := coords.split(o)[1:]
	for k := range base {
		base[k] = base[k].At(dot(b, outer, strides[k][:s.rank-2], false))
	}
	at := func(k int, a, l ptx.Value) ptx.Ptr {
		return base[k].At(dot(b, []ptx.Value{a, l}, strides[k][s.rank-2:], false))
	}
	tx, ty := b.ThreadID(0), b.ThreadID(1)
	shared := make([]ptx.Ptr, len(p.In))
	for i, t := range p.In {
		if s.turned>>i&1 == 0 {
			continue
		}
		b.Comment("operand %d, along its own rows", i)
		shared[i] = b.Shared(fmt.Sprintf("tile%d", i), storage(t), tileSide*tilePitch)
		for j := 0; j < tileSide; j += tileHeight {
			row := ty.Add(num(j))
			a, l := a0.Add(tx), l0.Add(row)
			b.If(a.Lt(na).And(l.Lt(nl)), func() {
				shared[i].At(row.Mad(num(tilePitch), tx)).Store(at(outs+i, a, l).Load())
			})
		}
	}
	b.Barrier()
	b.Comment("the results, along theirs")
	for j := 0; j < tileSide; j += tileHeight {
		column := ty.Add(num(j))
		a, l := a0.Add(column), l0.Add(tx)
		b.If(a.Lt(na).And(l.Lt(nl)), func() {
			x := make([]ptx.Value, len(p.In))
			for i, t := range p.In {
				if s.turned>>i&1 != 0 {
					x[i] = widen(t, shared[i].At(tx.Mad(num(tilePitch), column)).Load())
				} else {
					x[i] = loadVector(b, at(outs+i, a, l), t, 1)[0]
				}
			}
			for k, v := range lower(b, p, environment{x: func(i int) ptx.Value { return x[i] }, params: params}) {
				storeVector(b, at(k, a, l), p.Out[k], []ptx.Value{v})
			}
		})
	}
	return [3]int{tileSide, tileHeight, 1}
}
