package kernels

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// AttentionWeighing is a [device.Weighing] whose operands have the types of this package. Absent
// operands have the type Invalid.
type AttentionWeighing struct {
	Scale                  float64
	Causal                 bool
	Lengths, Mask, Numbers Operand
	Drop                   float64
	Seed, Offset           uint64
}

// weighingSpec holds the properties of an AttentionWeighing on which a kernel's text depends.
type weighingSpec struct {
	causal, lengths bool
	mask            dtype.Type // type of the mask; Invalid if there is none
	drop, numbers   bool
}

func weighingSpecOf(w AttentionWeighing) weighingSpec {
	s := weighingSpec{causal: w.Causal, lengths: w.Lengths.Type != dtype.Invalid, drop: w.Drop > 0}
	if w.Mask.Type != dtype.Invalid {
		s.mask = w.Mask.Type
	}
	s.numbers = s.drop && w.Numbers.Type != dtype.Invalid
	return s
}

// adds reports whether the mask is added to the scores.
func (s weighingSpec) adds() bool { return s.mask != dtype.Invalid && s.mask != dtype.Bool }

// String returns a part of a kernel's name that describes the weighing.
func (s weighingSpec) String() string {
	name := ""
	for _, p := range []struct {
		is   bool
		name string
	}{{s.causal, "_causal"}, {s.lengths, "_lengths"}, {s.mask != dtype.Invalid, "_mask_" + s.mask.String()},
		{s.drop, "_drop"}, {s.numbers, "_numbers"}} {
		if p.is {
			name += p.name
		}
	}
	return name
}

// weighing holds the kernel parameters with which scores become attention weights, as
// [device.Weighing] defines it. [weighing.moveToHead] moves its pointers to one head of one sample.
type weighing struct {
	*ptx.Builder
	s                    weighingSpec
	heads, queries, keys ptx.Value
	scale                ptx.Value // the scale, as a float32
	limit                ptx.Value // number of keys of the sample
	lengths              ptx.Ptr
	// stride of the operand lengths from one sample to the next, in elements
	perSample    ptx.Value
	mask         headOperand
	seed, offset ptx.Value // seed and offset of the random numbers
	// a weight is dropped if its random bits are at most this number
	dropped ptx.Value
	rest    ptx.Value // factor that scales the weights that dropout keeps
	numbers ptx.Ptr
	block   ptx.Value // first block of random numbers of the head
}

// declareWeighing declares the kernel parameters in the order in which packWeighing packs them.
func declareWeighing(b *ptx.Builder, s weighingSpec) *weighing {
	w := &weighing{Builder: b, s: s}
	w.heads, w.queries, w.keys = b.Param("heads", ptx.U32), b.Param("queries", ptx.U32), b.Param("keys", ptx.U32)
	w.scale = b.Param("scale", ptx.F32)
	w.limit = w.keys
	if s.lengths {
		w.lengths = b.Pointer("lengths", ptx.S64)
		w.perSample = b.Param("lengthsb", ptx.S64)
	}
	if s.mask != dtype.Invalid {
		w.mask = declareHeads(b, "mask", headRows{typ: s.mask})
	}
	if s.drop {
		w.seed, w.offset = b.Param("seed", ptx.S64), b.Param("offset", ptx.S64)
		w.dropped, w.rest = b.Param("drop", ptx.U32), b.Param("rest", ptx.F32)
	}
	if s.numbers {
		w.numbers = b.Pointer("numbers", ptx.S64)
		w.offset = w.offset.Add(w.numbers.At(b.Param("numberss", ptx.S64)).Load())
		w.seed = w.numbers.Load()
	}
	return w
}

func (p *packer) packWeighing(s weighingSpec, w AttentionWeighing, weights shape.Dims) {
	for d := 1; d < 4; d++ {
		p.u32(uint32(weights.At(d)))
	}
	p.u32(math.Float32bits(float32(w.Scale)))
	if s.lengths {
		p.u64(w.Lengths.start())
		p.u64(uint64(w.Lengths.Strides.At(0)))
	}
	if s.mask != dtype.Invalid {
		p.packHeads(w.Mask)
	}
	if s.drop {
		p.u64(w.Seed)
		p.u64(w.Offset)
		p.u32(expr.DropLimit(w.Drop))
		rest := device.Weighing{Drop: w.Drop}
		p.u32(math.Float32bits(float32(rest.Rest())))
	}
	if s.numbers {
		p.u64(w.Numbers.start())
		p.u64(uint64(w.Numbers.Strides.At(0)))
	}
}

// moveToHead moves the weighing's pointers to one head of queries of one sample.
func (w *weighing) moveToHead(batch, head ptx.Value) {
	if w.s.lengths {
		n := w.lengths.At(w.perSample.Mul(batch.Cvt(ptx.S64))).Load()
		w.limit = n.Max(num(0)).Min(w.keys.Cvt(ptx.S64)).Cvt(ptx.U32)
	}
	if w.s.mask != dtype.Invalid {
		w.mask = w.mask.atHead(batch, head)
	}
	if w.s.drop {
		row := batch.Mad(w.heads, head).MulWide(w.queries)
		w.block = w.offset.Bitcast(ptx.U64).Add(row.Mul(w.rowBlocks().Cvt(ptx.U64)))
	}
}

// weighingRow holds the parameters of a weighing for one query.
type weighingRow struct {
	w     *weighing
	i     ptx.Value // index of the query
	line  ptx.Ptr   // the query's row of the mask
	block ptx.Value // first block of random numbers of the row
}

// row returns the parameters for query i. Beyond the last query it uses the mask and the random
// numbers of the last query.
func (w *weighing) row(i ptx.Value) weighingRow {
	r := weighingRow{w: w, i: i}
	at := i.Min(w.queries.Sub(num(1)))
	if w.s.mask != dtype.Invalid {
		r.line = w.mask.line(at)
	}
	if w.s.drop {
		r.block = w.rowBlock(i)
	}
	return r
}

// sees reports whether the query sees key j. It considers only the lengths and the causal order.
func (r weighingRow) sees(j ptx.Value) ptx.Value {
	p := j.Lt(r.w.limit)
	if r.w.s.causal {
		p = p.And(j.Le(r.i))
	}
	return p
}

// masked returns the score with the mask applied: a mask of numbers is added, and a mask of Bool
// sets hidden keys to -Inf. Beyond the last key, it reads the mask of the last key.
func (r weighingRow) masked(j, score ptx.Value) ptx.Value {
	w := r.w
	if w.s.mask == dtype.Invalid {
		return score
	}
	m := widen(w.s.mask, w.mask.element(r.line, j.Min(w.keys.Sub(num(1)))).Load())
	if w.s.mask == dtype.Bool {
		return m.Select(score, w.F32(float32(math.Inf(-1))))
	}
	return score.Add(m)
}

// unseen returns the score, or -Inf if [weighingRow.sees] is false for key j.
func (r weighingRow) unseen(j, score ptx.Value) ptx.Value {
	return r.sees(j).Select(score, r.w.F32(float32(math.Inf(-1))))
}

// lastKey returns the end of the keys that queries 0 to i see: none of them sees a key with this
// index or a greater one.
func (w *weighing) lastKey(i ptx.Value) ptx.Value {
	if !w.s.causal {
		return w.limit
	}
	return w.limit.Min(i.Add(num(1)))
}
