package device

import (
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Work is what a primitive does: the arithmetic operations of its definition, and the bytes that it must at least read and write. A
// driver may do more (a second pass over a row, padding of a tile) or less traffic (what a cache holds); from the work of the definition
// the roofline follows: time ≥ max(FLOPs / peak arithmetic, Bytes / peak bandwidth) (S. Williams, A. Waterman, D. Patterson, "Roofline",
// CACM 52(4), 2009).
//
// A multiplication and an addition count as two. Of an expression every operation counts as one, also comparisons, conversions and
// integer arithmetic: exp is the twenty or so instructions that it is. An operand that is broadcast is read once.
type Work struct {
	FLOPs, Bytes int
}

// Add returns the work of both.
func (w Work) Add(v Work) Work { return Work{w.FLOPs + v.FLOPs, w.Bytes + v.Bytes} }

// Intensity is FLOPs a byte, 0 for no bytes.
func (w Work) Intensity() float64 {
	if w.Bytes == 0 {
		return 0
	}
	return float64(w.FLOPs) / float64(w.Bytes)
}

// bytesOf is the memory that views touch, each element once however often it is broadcast.
func bytesOf(views ...View) int {
	n := 0
	for i := range views {
		n += touched(&views[i])
	}
	return n
}

func touched(v *View) int {
	if v.Buf == nil {
		return 0
	}
	n := v.Type.Size()
	for i := range v.Shape.Rank() {
		if v.Strides.At(i) != 0 || v.Shape.At(i) == 0 {
			n *= v.Shape.At(i)
		}
	}
	return n
}

// MapWork is the work of [Device].Map.
func MapWork(p *expr.Program, outs, ins []View) Work {
	if len(outs) == 0 {
		return Work{}
	}
	return Work{p.Cost() * outs[0].Size(), bytesOf(outs...) + bytesOf(ins...)}
}

// ReduceWork is the work of [Device].Reduce: the map and one combination for each element, the finish for each result.
func ReduceWork(r *Reduction, out View, ins []View) Work {
	n := out.Size()
	if len(ins) > 0 {
		n = ins[0].Size()
	}
	w := Work{(r.Map.Cost() + 1) * n, bytesOf(out) + bytesOf(ins...)}
	if r.Finish != nil {
		w.FLOPs += r.Finish.Cost() * out.Size()
	}
	return w
}

// MatMulWork is the work of [Device].MatMul: 2·batch·m·n·k.
func MatMulWork(out, a, b View) Work {
	return Work{2 * out.Size() * a.Shape.At(2), bytesOf(out, a, b)}
}

// GatherWork is the work of [Device].Gather: of src, what is gathered is read.
func GatherWork(out, index View) Work {
	return Work{0, 2*bytesOf(out) + bytesOf(index)}
}

// ScatterWork is the work of [Device].Scatter: of dst, as much as src has is written, and read where values are combined.
func ScatterWork(kind ScatterKind, dst, src, index View) Work {
	at := src.Size() * dst.Type.Size()
	if kind == ScatterSet {
		return Work{0, bytesOf(src, index) + at}
	}
	return Work{src.Size(), bytesOf(src, index) + 2*at}
}

// expCost is the number of operations of exp in float32, as package expr writes it.
var expCost = expr.MustLower([]*expr.Expr{expr.X(0).Exp()}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1).Cost()

// SoftmaxWork is the work of [Softmaxer].Softmax: for each element the maximum, the difference, the exponential, the sum, and the
// division or difference.
func SoftmaxWork(out, x View) Work {
	return Work{(4 + expCost) * x.Size(), bytesOf(out, x)}
}

// SoftmaxGradWork is the work of [Softmaxer].SoftmaxGrad: for each element product, sum, difference, product; of the logarithm an
// exponential instead of the first product.
func SoftmaxGradWork(dx, y, g View, log bool) Work {
	each := 4
	if log {
		each += expCost - 1
	}
	return Work{each * y.Size(), bytesOf(dx, y, g)}
}

// CrossEntropyWork is the work of [CrossEntropyer].CrossEntropy: maximum, difference, exponential and sum.
func CrossEntropyWork(loss, top, rest, x, target View) Work {
	return Work{(3 + expCost) * x.Size(), bytesOf(loss, top, rest, x, target)}
}

// CrossEntropyGradWork is the work of [CrossEntropyer].CrossEntropyGrad: two differences, exponential, product.
func CrossEntropyGradWork(dx, x, top, rest, target, g View) Work {
	return Work{(3 + expCost) * x.Size(), bytesOf(dx, x, top, rest, target, g)}
}

// NormWork is the work of [Normer].Norm: mean (two operations with the difference), square and sum, product with rstd, and one operation
// each for weight and bias.
func NormWork(n Norm, out, mean, rstd, x, weight, bias View) Work {
	each := 3
	if !n.RMS {
		each += 2
	}
	for _, v := range []View{weight, bias} {
		if v.Buf != nil {
			each++
		}
	}
	return Work{each * x.Size(), bytesOf(out, mean, rstd, x, weight, bias)}
}

// NormGradWork is the work of [Normer].NormGrad: of rstd·(h - m(h) - z·m(h·z)) with z = (x - mean)·rstd, h = g·weight.
func NormGradWork(n Norm, dx, g, x, mean, rstd, weight View) Work {
	each := 6 // z: 1; h·z and its sum: 2; z·m: 1; difference: 1; ·rstd: 1
	if !n.RMS {
		each += 3 // x - mean; the sum of h; the difference
	}
	if weight.Buf != nil {
		each++
	}
	return Work{each * x.Size(), bytesOf(dx, g, x, mean, rstd, weight)}
}

// MultiMapWork is the work of [MultiMapper].MultiMap.
func MultiMapWork(p *expr.Program, outs, ins [][]View, params View) Work {
	w := Work{0, bytesOf(params)}
	for k := range outs {
		w = w.Add(MapWork(p, outs[k], ins[k]))
	}
	return w
}

// ScanWork is the work of [Scanner].Scan: a combination an element, of logarithms of sums an exponential and a logarithm more, of a
// linear recurrence two.
func ScanWork(kind ScanKind, out View, ins []View) Work {
	each := 1
	switch kind {
	case ScanLogSumExp:
		each += 2 * expCost
	case ScanLinear:
		each = 2
	}
	return Work{each * out.Size(), bytesOf(out) + bytesOf(ins...)}
}

// SearchWork is the work of [Searcher].Search: ⌈log₂(n+1)⌉ comparisons a value.
func SearchWork(out, sorted, values View) Work {
	return Work{values.Size() * bits.Len(uint(sorted.Shape.At(1))), bytesOf(out, sorted, values)}
}

// ArgsortWork is the work of [Sorter].Argsort: n·⌈log₂ n⌉ comparisons a row.
func ArgsortWork(out, x View) Work {
	return Work{x.Size() * bits.Len(uint(max(x.Shape.At(1)-1, 0))), bytesOf(out, x)}
}
