package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// randomLayout returns a layout without overlap. Its dimensions have any order in memory, and some
// rows are padded. Dimensions of operands that are only read may also be broadcast or reversed.
func randomLayout(r *rand.Rand, dims []int, written bool) shape.Layout {
	order := r.Perm(len(dims))
	if r.IntN(2) == 0 {
		for i := range order {
			order[i] = i
		}
	}
	strides := make([]int, len(dims))
	p := 1
	for i := len(dims) - 1; i >= 0; i-- {
		d := order[i]
		strides[d] = p
		p *= max(dims[d], 1)
		if r.IntN(6) == 0 {
			p += []int{1, 4, 8}[r.IntN(3)]
		}
	}
	for d := range strides {
		if !written && r.IntN(5) == 0 {
			strides[d] = 0
		}
		if !written && r.IntN(12) == 0 {
			strides[d] = -strides[d]
		}
	}
	return strided(dims, strides)
}

func randomDims(r *rand.Rand) []int {
	d := make([]int, r.IntN(5))
	for i := range d {
		d[i] = []int{1, 2, 3, 4, 8, 16, 5, 7, 32}[r.IntN(9)]
	}
	return d
}

// randomWidth sometimes lowers narrowLimit, so that kernels use 64-bit indices.
func randomWidth(r *rand.Rand) {
	narrowLimit = 1<<31 - 1
	if r.IntN(10) == 0 {
		narrowLimit = 0
	}
}

func TestRandomMaps(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	r := rand.New(rand.NewPCG(7, 8))
	all := dtype.Types()
	pick := func() dtype.Type { return all[r.IntN(len(all))] }
	for i := 0; i < 150 && !t.Failed(); i++ {
		dims := randomDims(r)
		in, out := []dtype.Type{pick(), pick()}, []dtype.Type{pick(), pick()}
		p := program(t, out, in, x0.Add(x1), expr.X(r.IntN(2)))
		outs := []shape.Layout{randomLayout(r, dims, true), randomLayout(r, dims, true)}
		ins := []shape.Layout{randomLayout(r, dims, false), randomLayout(r, dims, false)}
		randomWidth(r)
		mapCase(t, fmt.Sprint("case ", i, dims, outs, ins, in, out), p, outs, ins, r.IntN(3)*r.IntN(2), nil)
	}
}

func TestRandomReductions(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	r := rand.New(rand.NewPCG(7, 8))
	types := []dtype.Type{dtype.F32, dtype.F16, dtype.I64, dtype.I8, dtype.F64}
	for i := 0; i < 60 && !t.Failed(); i++ {
		dims, typ, kind := randomDims(r), types[r.IntN(len(types))], kinds[r.IntN(len(kinds))]
		out := append([]int(nil), dims...)
		for d := range out {
			if r.IntN(2) == 0 {
				out[d] = 1
			}
		}
		randomWidth(r)
		l := randomLayout(r, dims, true)
		reduceCase(t, fmt.Sprint("case ", i, kind, typ, l, out), &device.Reduction{Kind: kind, Map: identity(t, typ)}, typ, l, shape.Of(out...), r.IntN(2))
	}
}

func TestRandomProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 8))
	types := []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.I64, dtype.I8, dtype.F64}
	forms := []string{"N", "T", "padded", "steps", "shared"}
	for i := 0; i < 16 && !t.Failed(); i++ {
		d := []int{1 + r.IntN(3), 1 + r.IntN(70), 1 + r.IntN(70), r.IntN(80)}
		if r.IntN(2) == 0 { // sizes become multiples of a vector
			for k := 1; k < 4; k++ {
				d[k] = (d[k] + 7) / 8 * 8
			}
		}
		typ, fa, fb := types[r.IntN(len(types))], forms[r.IntN(5)], forms[r.IntN(5)]
		matmulCase(t, fmt.Sprint("case ", i, typ, fa, fb, d), typ, matrixLayout(forms[r.IntN(4)], d[0], d[1], d[2]),
			matrixLayout(fa, d[0], d[1], d[3]), matrixLayout(fb, d[0], d[3], d[2]), r.IntN(2))
	}
}
