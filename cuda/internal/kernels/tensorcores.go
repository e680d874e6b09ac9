package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// tensorSpec describes a matrix product of 16-bit floats, or of float32 as tf32, on the tensor
// cores. Tiles come in asynchronous copies where the operands allow it, some stages ahead, and are
// swizzled in shared memory so that neither copies nor reads meet bank conflicts.
type tensorSpec struct {
	typ  dtype.Type // of a and b; F32 is tf32
	out  dtype.Type // typ, or F32
	form tensorForm
	a, b tensorLoad
	odd  bool // every second row of a begins at an odd element
	to   tensorStore
	bias dtype.Type // Invalid for none
	actSpec
	sums  sumsSpec
	parts bool // it is divided along k
	loop  bool // blocks loop over tiles
	tune  productTune
}

// tensorForm is how a block divides its work: bm×bn results, k in steps of bk, by warps of which
// each has the same share of both directions.
type tensorForm struct {
	bm, bn, bk     int
	warpsM, warpsN int
	stages         int // tiles of each operand that lie in shared memory
	blocks         int // that a multiprocessor has registers for
}

// The forms. A warp of 64×64 reads least of shared memory for what it multiplies: 128 values for
// 4096, in as many registers as a thread may have. Few rows are bound by the bytes of the other
// operand: small blocks, many of them, with 64 of k in a step, which is a whole line of memory.
var tensorForms = []tensorForm{
	{128, 128, 32, 2, 2, 3, 2},
	{128, 256, 32, 2, 4, 4, 1},
	{256, 128, 32, 4, 2, 4, 1},
	{128, 64, 32, 2, 2, 3, 3},
	{64, 128, 32, 2, 2, 3, 3},
	{64, 256, 32, 1, 4, 3, 2},
	{64, 64, 32, 2, 2, 3, 4},
	{64, 64, 64, 2, 2, 3, 4},
	{32, 128, 64, 1, 4, 3, 3},
	{32, 64, 64, 1, 4, 4, 4},
	{16, 128, 64, 1, 4, 4, 4},
	{16, 64, 64, 1, 4, 4, 4},
}

func (f tensorForm) String() string { return fmt.Sprintf("%dx%dx%d", f.bm, f.bn, f.bk) }

func (f tensorForm) threads() int { return 32 * f.warpsM * f.warpsN }

// warp is the share of a warp.
func (f tensorForm) warp() (m, n int) { return f.bm / f.warpsM, f.bn / f.warpsN }

// tensorLoad is how a block brings a tile of an operand to shared memory.
type tensorLoad struct {
	alongK bool // rows of the tile lie along k, else along the outer dimension
	// neighbours of a copy, aligned: 8, 4, 2 or 1; single ones of 16 bits go through registers
	vector int
	ragged bool // rows do not end with a whole copy
	wide   bool // float32 in memory, rounded to 16 bits on the way, through registers
}

func (l tensorLoad) String() string {
	name := "o"
	if l.alongK {
		name = "k"
	}
	if l.vector < 8 {
		name += fmt.Sprint(l.vector)
	}
	if l.ragged {
		name += "r"
	}
	if l.wide {
		name += "w"
	}
	return name
}

// tensorStore is how results leave for memory.
type tensorStore uint8

const (
	storeElements tensorStore = iota // any strides
	// rows of neighbours that begin anywhere: pieces of 16 bytes but for their ends; float32 singly
	storeShifted
	storePieces // rows of pieces of 16 bytes; of float32 pairs
)

// operations is how many the tensor cores do for a product whose blocks sum up chunk of k each. The
// last stage of a sum is filled up with zeros.
func (s tensorSpec) operations(m, n, k, chunk int) int {
	steps, up := 0, func(k int) int { return ceilDiv(k, s.form.bk) }
	for ; k > 0; k -= chunk {
		switch c := min(k, chunk); {
		case s.odd && s.a.alongK: // of two tiles the second has a k more
			steps += up(c) + up(c+1)
		case s.odd:
			steps += 2 * (up((c+1)/2) + up(c/2))
		default:
			steps += 2 * up(c)
		}
	}
	share := s.tiles(m, n) * s.form.bn * s.form.bm
	if s.sums.rows { // those of ones, of the first blocks
		share += ceilDiv(m, s.form.bm) * 8 * s.form.bm
	}
	if s.sums.columns {
		share += ceilDiv(n, s.form.bn) * 8 * s.form.bn
	}
	return share * s.form.bk * steps
}

func (s tensorStore) String() string { return [...]string{"s", "u", "v"}[s] }

func (s tensorSpec) kernel(programs ...*expr.Program) (*Kernel, error) {
	return kernelOf(s, programs...)
}

func (s tensorSpec) inParts() productForm { s.parts = true; return s }

func (s tensorSpec) partBytes() int {
	n := s.form.bm * s.form.bn * 4
	wm, wn := s.form.warp() // four sums of a thread for each 16 rows or columns of a warp
	if s.sums.rows {
		n += wm / 16 * 4 * s.form.threads() * 4
	}
	if s.sums.columns {
		n += wn / 16 * 4 * s.form.threads() * 4
	}
	return n
}

func (s tensorSpec) tiles(m, n int) int {
	rows := ceilDiv(m, s.form.bm)
	switch {
	case s.odd && s.a.alongK:
		rows = 2 * ceilDiv(ceilDiv(m, 2), s.form.bm)
	case s.odd:
		rows = ceilDiv(m, s.form.bm-2)
	}
	return rows * ceilDiv(n, s.form.bn)
}

func (s tensorSpec) name() string {
	out := s.to.String()
	if s.out != s.typ {
		out += "_" + s.out.String()
	}
	if s.bias != dtype.Invalid {
		out += "_b" + s.bias.String()
	}
	out += s.suffix() + s.sums.suffix()
	if s.parts {
		out += "_parts"
	}
	if s.loop {
		out += "_loop"
	}
	out += fmt.Sprintf("_s%d", s.stages())
	if s.tune != (productTune{}) {
		out += "_" + s.tune.String()
	}
	if s.odd {
		out += "_odd"
	}
	typ := s.typ.String()
	if s.typ == dtype.F32 {
		typ = "tf32"
	}
	return fmt.Sprintf("gemm_tensor_%v_%v_%v%v_%s", typ, s.form, s.a, s.b, out)
}

// tensorSpecFor returns the specification for a product of these operands but for its form; false
// if tensor cores do not multiply them. Factors of float32 they round to tf32.
func tensorSpecFor(out, a, b Operand) (tensorSpec, bool) {
	o := ProductOperands{A: a, B: b}
	s := tensorSpec{typ: o.factor(), out: out.Type}
	if !s.typ.IsHalf() && s.typ != dtype.F32 {
		return s, false
	}
	s.a, s.b = chooseTensorLoad(a, 1, 2), chooseTensorLoad(b, 2, 1)
	s.a.wide, s.b.wide = a.Type != s.typ, b.Type != s.typ
	if s.odd = s.singly(s.a) && a.Type == b.Type && oddRows(a, s.a.alongK) && !s.b.alongK && s.b.vector > 1; s.odd {
		s.a.vector, s.a.ragged = 2, true
	}
	piece := 8
	if out.Type == dtype.F32 {
		piece = 2
	}
	switch {
	case neighbours(out, 2, 1) >= piece && out.Shape.At(2)%piece == 0:
		s.to = storePieces
	case out.Strides.At(2) == 1 || out.Shape.At(2) == 1:
		s.to = storeShifted
	}
	return s, true
}

// neighbours is how many elements along dimension d, the other being e, can always be moved at once
// in up to 16 bytes: 8, 4, 2 or 1.
func neighbours(o Operand, d, e int) int {
	if o.Strides.At(d) != 1 {
		return 1
	}
	for v := 16 / o.Type.Size(); v > 1; v /= 2 {
		if o.Strides.At(e)%v == 0 && (o.Shape.At(0) == 1 || o.Strides.At(0)%v == 0) && o.start()%uint64(v*o.Type.Size()) == 0 {
			return v
		}
	}
	return 1
}

// inPieces reports whether n neighbours in a row, the first at a multiple of n, can always be moved
// at once, or in pieces of 16 bytes.
func (o Operand) inPieces(n int) bool {
	return neighbours(o, 2, 1) >= min(n, 16/o.Type.Size())
}

func chooseTensorLoad(o Operand, outer, k int) tensorLoad {
	abs := func(v int) int { return max(v, -v) }
	alongK, alongOuter := neighbours(o, k, outer), neighbours(o, outer, k)
	along, vector, d := true, alongK, k
	if alongK < alongOuter || alongK == alongOuter && abs(o.Strides.At(k)) > abs(o.Strides.At(outer)) {
		along, vector, d = false, alongOuter, outer
	}
	return tensorLoad{alongK: along, vector: vector, ragged: vector > 1 && o.Shape.At(d)%vector != 0}
}

// stages is how many tiles of each operand there is room for.
func (s tensorSpec) stages() int { return s.tune.or(s.tune.stages, s.form.stages) }

// blocks is how many a multiprocessor holds: two operands that go through registers need more, as
// does one that is rounded there.
func (s tensorSpec) blocks() int {
	less := 0
	if s.singly(s.a) && s.singly(s.b) {
		less++
	}
	if s.a.wide || s.b.wide {
		less++
	}
	return max(1, s.form.blocks-less)
}

// pitch is the distance of rows of results in shared memory, in elements: those of shifted rows
// begin up to 7 elements late. The padding keeps stores free of conflicts.
func (s tensorSpec) pitch() int { return s.form.bn + 8 }

// shared is the bytes of shared memory. Results of 16 bits pass through it behind the last step,
// where the stages were. In a loop they need a place of their own, as the stages fill again.
func (s tensorSpec) shared() int {
	stages, results := s.stages()*s.staged(), s.form.bm*s.pitch()*2
	switch {
	case !s.loop:
		return max(stages, results)
	case s.out == dtype.F32:
		return stages
	}
	return stages + results
}

func (s tensorSpec) dynamicShared() int { return beyondStatic(s.shared(), 0) }

// oddRows reports whether the rows of a begin at even and odd elements in turn, so that each second
// one can be copied by pairs as it stands, and the others from one element before. For few rows
// there is no form of it.
func oddRows(a Operand, alongK bool) bool {
	row, along := 1, 2
	if !alongK {
		row, along = 2, 1
	}
	// Where rows lie along m, the element before a row is read: it is the last of the row before.
	stride := a.Strides.At(row)
	return a.Shape.At(1) > 32 && a.Strides.At(along) == 1 && stride%2 != 0 && a.start()%4 == 0 && (a.Shape.At(0) == 1 || a.Strides.At(0)%2 == 0) &&
		(alongK || stride == a.Shape.At(along))
}

// tensorMatMul plans a product of 16-bit floats, or of float32 as tf32, as the device's rates
// advise.
func tensorMatMul(g *GPU, o ProductOperands, scratch Scratch) ([]Launch, error) {
	out, a, b := o.Out, o.A, o.B
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	if scratch == nil {
		s, _ := tensorSpecFor(out, a, b)
		s, d, _ := g.choose(s, batch, m, n, k, false)
		return launchParts(s.finishing(o), o, d, 0, 0)
	}
	p := g.choosePlan(out, a, b, o.Counters != nil)
	if o.Choose != nil {
		return o.chosen(g, p).launches(o, scratch)
	}
	return p.launches(o, scratch)
}

// launches plans the product in that form.
func (p tensorPlan) launches(o ProductOperands, scratch Scratch) ([]Launch, error) {
	out, a, b, k := o.Out, o.A, o.B, o.A.Shape.At(2)
	var list []Launch
	for _, r := range []struct {
		yes   bool
		o     *Operand
		outer int
	}{{p.realignA, &a, 1}, {p.realignB, &b, 2}} {
		if r.yes {
			copied, l, err := realigned(*r.o, r.outer, scratch)
			if err != nil {
				return nil, err
			}
			*r.o, list = copied, append(list, l...)
		}
	}
	var l []Launch
	var err error
	if s, _ := tensorSpecFor(out, a, b); s.odd {
		if l, err = o.summed(o.summing(), scratch); err != nil {
			return nil, err
		}
		list = append(list, l...)
	}
	o.A, o.B = a, b
	s, _ := tensorSpecFor(out, a, b)
	s.form, s.loop = p.form, p.loop
	if s = s.finishing(o); p.chunk >= k {
		l, err = launchParts(s, o, p.division, 0, 0)
	} else {
		l, err = splitMatMul(s, o, p.division, scratch)
	}
	return append(list, l...), err
}

// finishing is s with what o does to its sums.
func (s tensorSpec) finishing(o ProductOperands) tensorSpec {
	s.bias, s.sums, s.actSpec = o.Bias.Type, o.summing(), o.acting()
	if s.with != dtype.Invalid && !o.besideInPieces(s.to) {
		s.to = storeElements
	}
	s.loop = s.loop && s.loops() && s.sums == (sumsSpec{}) // a tile's sums are not those of the next
	return s
}

// realigned plans a copy of an operand whose rows begin on 16 bytes, in the order in which it is
// stored. A matrix that the whole batch shares is copied once.
func realigned(o Operand, outer int, scratch Scratch) (Operand, []Launch, error) {
	row, along := outer, 3-outer
	if !chooseTensorLoad(o, outer, along).alongK {
		row, along = along, outer
	}
	from := o
	if o.Strides.At(0) == 0 {
		from.Shape = from.Shape.With(0, 1)
	}
	ld := ceilDiv(o.Shape.At(along), 8) * 8
	addr, err := scratch(from.Shape.At(0) * o.Shape.At(row) * ld * o.Type.Size())
	if err != nil {
		return o, nil, err
	}
	to := Operand{Addr: addr, Type: o.Type}
	strides := [3]int{o.Shape.At(row) * ld}
	strides[row], strides[along] = ld, 1
	to.Shape, to.Strides = from.Shape, shape.Of(strides[:]...)
	list, err := Map(identities[o.Type], []Operand{to}, []Operand{from}, nil)
	if o.Strides.At(0) == 0 {
		to.Shape, to.Strides = o.Shape, to.Strides.With(0, 0)
	}
	return to, list, err
}
