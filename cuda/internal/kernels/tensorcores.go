package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// tensorSpec describes a matrix product of 16-bit floats, or of float32 as tf32, on the tensor
// cores. If the operands allow it, tiles are copied asynchronously, some stages ahead. The order of
// pieces in shared memory differs from row to row (swizzling), so that neither copies nor reads
// have bank conflicts.
type tensorSpec struct {
	typ   dtype.Type // type of a and b; F32 means tf32
	out   dtype.Type // type of the result: typ, or F32
	form  tensorForm
	a, b  tensorLoad
	odd   bool // whether every second row of a begins at an odd element
	store tensorStore
	bias  dtype.Type // type of the bias; Invalid if there is none
	actSpec
	sums  sumsSpec
	parts bool // whether blocks divide the sums over k
	share bool // whether all blocks of a tile with divided sums help to add up the partial sums
	loop  bool // whether blocks loop over tiles
	tune  productTune
	// oneA and oneB report whether all products of the batch share the matrix a or b. They affect
	// the choice of the form, but not the kernel's code.
	oneA, oneB bool
}

// tensorForm says how a block divides its work: bm×bn results, with k in steps of bk. Its
// warpsM·warpsN warps have equal shares of the results.
type tensorForm struct {
	bm, bn, bk     int
	warpsM, warpsN int
	stages         int // number of tiles of each operand in shared memory
	blocks         int // number of blocks that the registers of a multiprocessor suffice for
}

// These are all forms. A warp with 64×64 results reads the fewest values from shared memory for
// each multiplication: 128 values for 4096 multiplications. Each of its threads needs as many
// registers as a thread may have. A product of few rows takes as long as reading its larger
// operand. For such products there are small blocks, so that many blocks run at once. In a small
// block a step has 64 elements of k, which fill whole lines of memory.
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

// warp returns the number of rows and columns of a warp's results.
func (f tensorForm) warp() (m, n int) { return f.bm / f.warpsM, f.bn / f.warpsN }

// tensorLoad says how a block copies a tile of an operand to shared memory.
type tensorLoad struct {
	alongK bool // whether the tile's rows lie along k; otherwise they lie along the outer dimension
	// number of neighbouring elements of one aligned copy: 8, 4, 2 or 1; single 16-bit elements go
	// through registers
	vector int
	ragged bool // whether the last copy of a row has fewer elements
	wide   bool // whether the factor is float32 in memory, and is rounded to 16 bits in registers
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

// tensorStore says how a block stores its results in global memory.
type tensorStore uint8

const (
	storeElements tensorStore = iota // single elements, for any strides
	// contiguous rows that may be misaligned: single elements at the ends of a row, and 16-byte
	// accesses between them; float32 results only in single elements
	storeShifted
	storePieces // aligned rows, in 16-byte accesses; float32 results in pairs
)

// operations returns the number of operations on tensor cores for a product. The argument chunk is
// the number of elements of k over which each block sums. The result includes operations on the
// zeros that fill up the last stage.
func (s tensorSpec) operations(m, n, k, chunk int) int {
	steps, up := 0, func(k int) int { return ceilDiv(k, s.form.bk) }
	for ; k > 0; k -= chunk {
		switch c := min(k, chunk); {
		case s.odd && s.a.alongK:
			// for odd rows, a tile sums over one more element of k than for even rows
			steps += up(c) + up(c+1)
		case s.odd:
			steps += 2 * (up((c+1)/2) + up(c/2))
		default:
			steps += 2 * up(c)
		}
	}
	share := s.tiles(m, n) * s.form.bn * s.form.bm
	if s.sums.rows { // the blocks of the first column of tiles also multiply by a matrix of ones
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
	wm, wn := s.form.warp() // a thread has four more sums for each 16 rows or columns of its warp
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
	out := s.store.String()
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
	if s.share {
		out += "_share"
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

// tensorSpecFor returns the specification of a product kernel for these operands, without its form.
// It returns false if tensor cores cannot multiply their types. Factors of float32 are rounded to
// tf32.
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
		s.store = storePieces
	case out.Strides.At(2) == 1 || out.Shape.At(2) == 1:
		s.store = storeShifted
	}
	return s, true
}

// neighbours returns how many neighbouring elements along dimension d one access can always move:
// 8, 4, 2 or 1, and at most 16 bytes. The arguments d and e are the two dimensions of the matrix.
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

// inPieces reports whether n neighbouring elements of a row can always be moved in one access, or
// in accesses of 16 bytes. The index of the first element is a multiple of n.
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

func (s tensorSpec) stages() int { return s.tune.or(s.tune.stages, s.form.stages) }

// blocks returns the number of blocks that fit on a multiprocessor. It is lower if two operands go
// through registers, or if an operand is rounded in registers, because more registers are needed.
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

// pitch returns the distance in elements between rows of results in shared memory. A shifted row
// begins up to 7 elements later than other rows. The padding makes room for this, and prevents bank
// conflicts of stores.
func (s tensorSpec) pitch() int { return s.form.bn + 8 }

// shared returns the number of bytes of shared memory. After the last step, 16-bit results pass
// through the memory of the stages. If blocks loop over tiles, the results need separate memory,
// because the next tile already uses the stages. If blocks share the work of adding up partial
// sums, these sums pass through shared memory too.
func (s tensorSpec) shared() int {
	stages, results := s.stages()*s.staged(), s.form.bm*s.pitch()*2
	switch {
	case s.share:
		return max(stages, results, s.partBytes()+16*mostParts)
	case !s.loop:
		return max(stages, results)
	case s.out == dtype.F32:
		return stages
	}
	return stages + results
}

func (s tensorSpec) dynamicShared() int { return beyondStatic(s.shared(), 0) }

// oddRows reports whether the rows of the operand a alternately begin at even and odd elements. A
// row at an even element can be copied in pairs from its start. A row at an odd element can be
// copied in pairs from the element before it. Forms for few rows do not support this.
func oddRows(a Operand, alongK bool) bool {
	row, along := 1, 2
	if !alongK {
		row, along = 2, 1
	}
	// If rows lie along m, copies read the element before a row. They may do this only if that
	// element is the last one of the previous row.
	stride := a.Strides.At(row)
	return a.Shape.At(1) > 32 && a.Strides.At(along) == 1 && stride%2 != 0 && a.start()%4 == 0 && (a.Shape.At(0) == 1 || a.Strides.At(0)%2 == 0) &&
		(alongK || stride == a.Shape.At(along))
}

// tensorMatMul plans a product of 16-bit floats, or of float32 as tf32. The form is chosen by
// o.Choose, or by the device's cost model.
func tensorMatMul(g *GPU, o ProductOperands, scratch Scratch) ([]Launch, error) {
	out, a, b := o.Out, o.A, o.B
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	if scratch == nil {
		s, _ := tensorSpecFor(out, a, b)
		s, d, _ := g.choose(s, batch, m, n, k, false)
		return launchParts(s.finishing(o), o, d, 0, 0)
	}
	p := g.choosePlan(out, a, b, o.Counters != nil, o.plain())
	if o.Choose != nil {
		return o.chosen(g, p).launches(o, scratch)
	}
	return p.launches(o, scratch)
}

// launches plans the launches of the product with the kernel of p.
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
	s.form, s.loop, s.share = p.form, p.loop, p.share
	if s = s.finishing(o); p.chunk >= k {
		l, err = launchParts(s, o, p.division, 0, 0)
	} else {
		l, err = splitMatMul(s, o, p.division, scratch)
	}
	return append(list, l...), err
}

// finishing returns s with the bias, the sums and the activation of o.
func (s tensorSpec) finishing(o ProductOperands) tensorSpec {
	s.bias, s.sums, s.actSpec = o.Bias.Type, o.summing(), o.acting()
	if s.with != dtype.Invalid && !o.withInPieces(s.store) {
		s.store = storeElements
	}
	// a kernel that also sums rows or columns cannot loop, because these sums belong to one tile
	s.loop = s.loop && s.loops() && s.sums == (sumsSpec{})
	s.share = s.share && s.plain()
	return s
}

// realigned plans a copy of an operand to rows that begin at multiples of 16 bytes. Rows that are
// contiguous in the operand are contiguous in the copy. A matrix that the whole batch shares is
// copied once.
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
