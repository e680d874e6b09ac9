package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// tileLoad says how a block copies a tile of an operand from global to shared memory. The outer
// dimension of an operand is the one over which the product does not sum: m of a, and n of b.
type tileLoad uint8

const (
	vectorsAlongK     tileLoad = iota // stride 1 along k, aligned vectors; copies transpose tiles
	vectorsAlongOuter                 // stride 1 along the outer dimension, aligned vectors
	scalarsAlongK                     // strides are arbitrary; neighbouring threads read along k
	// strides are arbitrary; neighbouring threads read along the outer dimension
	scalarsAlongOuter
)

func (l tileLoad) String() string { return [...]string{"kv", "ov", "ks", "os"}[l] }

func (l tileLoad) vectors() bool { return l <= vectorsAlongOuter }

// gemmTile is the part of the result that a block computes: bm×bn results, with k in steps of bk. A
// thread computes mc chunks of 16 bytes along m, and nc chunks along n. Groups of threads, the
// slices, divide each step of k among themselves. At the end the sums of the slices are added.
type gemmTile struct{ bm, bn, bk, mc, nc, slices int }

// These are the tiles of products without tensor cores. A warp has 4 threads along m by 8 along n,
// so its reads of shared memory are broadcasts or use each bank once. A thread does 8×8
// multiply-adds for each 16 values that it reads. The smaller tiles have slices, so that there are
// enough warps to hide latency.
var (
	largeTile  = gemmTile{128, 128, 16, 2, 2, 1}
	mediumTile = gemmTile{64, 64, 32, 2, 2, 4}
	smallTile  = gemmTile{32, 64, 32, 2, 2, 4}
	doubleTile = gemmTile{64, 64, 16, 2, 2, 1} // for elements of 8 bytes
)

// gemmSpec describes a matrix product kernel: c[m,n] = Σ a[m,k]·b[k,n], batched. For products of
// 16-bit floats and tf32, which use tensor cores, there is [tensorSpec] instead.
type gemmSpec struct {
	typ       dtype.Type // type of a and b
	out       dtype.Type
	tile      gemmTile
	a, b      tileLoad
	vectorOut bool
	bias      dtype.Type // type of the bias; Invalid for none
	parts     bool       // whether blocks divide the sums over k
	actSpec
	sums sumsSpec // sums of either the rows of a or the columns of b
	tune productTune
}

func (s gemmSpec) name() string {
	out := "s"
	if s.vectorOut {
		out = "v"
	}
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
	if s.tune != (productTune{}) {
		out += fmt.Sprintf("_%v_%d%d%d", s.tune, s.tile.mc, s.tile.nc, s.tile.slices)
	}
	return fmt.Sprintf("gemm_%v_%dx%dx%d_%v_%v_%s", s.typ, s.tile.bm, s.tile.bn, s.tile.bk, s.a, s.b, out)
}

// large reports whether a block computes as many results as with the large tile. The sums of such a
// block leave few registers for other values.
func (s gemmSpec) large() bool { return s.tile.slices == 1 && s.tile.bm*s.tile.bn >= 128*128 }

// shared returns the number of bytes of shared memory for the tiles: two buffers for each operand.
// Rows are padded by 4 elements, which prevents bank conflicts when a tile is transposed.
func (s gemmSpec) shared() int {
	t := s.tile
	return max(2*t.bk*(t.bm+4+t.bn+4), t.slices/2*t.bm*t.bn) * s.typ.Compute().Size()
}

// parkedWords returns the number of 32-bit words that a thread keeps in shared memory to save
// registers.
func (s gemmSpec) parkedWords() int {
	if s.parts {
		return 4
	}
	return 2
}

// dynamicShared returns the number of bytes of dynamic shared memory. It includes the parked words
// of 512 threads, the largest block.
func (s gemmSpec) dynamicShared() int { return beyondStatic(s.shared(), 4*s.parkedWords()*512) }

// needsManyRegisters reports whether a thread needs more than 128 registers. If it does, a
// multiprocessor cannot run two blocks. Reading element by element needs many registers, because
// each row needs an address. The result is true in two cases:
//   - the activation has two operands, and k is divided or an operand is read element by element
//     along k
//   - an operand is not read in vectors, and k is divided or both operands are read along k
func (s gemmSpec) needsManyRegisters() bool {
	alongK := func(l tileLoad) bool { return s.parts || l == vectorsAlongK || l == scalarsAlongK }
	beside := s.with != dtype.Invalid && (s.parts || s.a == scalarsAlongK || s.b == scalarsAlongK)
	return beside || alongK(s.a) && alongK(s.b) && !(s.a.vectors() && s.b.vectors())
}

// ProductOperands are the operands and results of a [device.MatMul]. Absent operands have the type
// Invalid.
type ProductOperands struct {
	Out, Pre, Sums, A, B, Bias, ColumnSums, With Operand
	Act                                          *expr.Program
	TF32                                         bool
	Counters                                     Counters // if nil, blocks do not divide the sums
	Choose                                       Chooser  // if nil, the cost model chooses the kernel
}

// MatMul plans the products out[i] = a[i]·b[i] of a batch. The shapes of a and b are [batch, m, k]
// and [batch, k, n]. 16-bit floats accumulate in float32 and are rounded once. Integers wrap.
func MatMul(g *GPU, out, a, b Operand) ([]Launch, error) {
	return MatMulSplit(g, ProductOperands{Out: out, A: a, B: b}, nil)
}

// MatMulSplit plans a product like MatMul, and also adds a bias and applies an activation. If the
// result has too few tiles to occupy the device, blocks may divide the sums over k. A product with
// a vector is computed as a reduction, which reads each element of the matrix once, in coalesced
// accesses. If scratch is nil, blocks do not divide the sums.
func MatMulSplit(g *GPU, o ProductOperands, scratch Scratch) ([]Launch, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	out, a, b := o.Out, o.A, o.B
	// The stride of the batch dimension is unused if the batch has one matrix. It is set to 0, so
	// that it does not count as misaligned.
	if out.Shape.At(0) == 1 {
		for _, p := range []*Operand{&o.Out, &o.A, &o.B} {
			p.Strides = p.Strides.With(0, 0)
		}
		for _, p := range []*Operand{&o.Pre, &o.With} {
			if p.Type != dtype.Invalid {
				p.Strides = p.Strides.With(0, 0)
			}
		}
		out, a, b = o.Out, o.A, o.B
	}
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	if behind := o.separateSums(scratch); behind != (sumsSpec{}) {
		list, err := o.summed(behind, scratch)
		if err != nil {
			return nil, err
		}
		more, err := MatMulSplit(g, o, scratch)
		return append(list, more...), err
	}
	if batch*m*n == 0 {
		return nil, nil
	}
	vector := scratch != nil && (m == 1 || n == 1) && k >= 32 && a.Type == b.Type
	if o.Act != nil && (vector || !o.activatedInTile()) {
		return activatedSeparately(g, o, scratch)
	}
	if vector {
		return vectorMatMul(o, scratch)
	}
	if o.factor().IsHalf() || o.tf32() {
		return tensorMatMul(g, o, scratch)
	}
	p := floatPlan{spec: floatSpecFor(&o)}
	p.spec.tile = chooseTile(a.Type, batch, m, n)
	// The last argument bounds the number of parts. With it, partial sums cause at most as much
	// memory traffic as the operands.
	p.division.chunk = splitK(k, batch*p.spec.tiles(m, n), k*(m+n)/(2*m*n))
	if p.chunk >= k || !o.divisible(p.spec, scratch) {
		p.division = undivided(k)
	}
	if o.Choose != nil && scratch != nil {
		return o.chosen(g, p).launches(o, scratch)
	}
	return p.launches(o, scratch)
}

type floatPlan struct {
	spec gemmSpec
	division
}

func floatSpecFor(o *ProductOperands) gemmSpec {
	return gemmSpec{typ: o.A.Type, out: o.Out.Type, a: chooseLoad(o.A, 1, 2), b: chooseLoad(o.B, 2, 1), vectorOut: vectorizable(o.Out, 2, 1)}
}

func (p floatPlan) launches(o ProductOperands, scratch Scratch) ([]Launch, error) {
	var list []Launch
	s := p.spec.finishing(o)
	if s.sums != (sumsSpec{}) && !s.sumsFit() {
		var err error
		if list, err = o.summed(s.sums, scratch); err != nil {
			return nil, err
		}
		s.sums = sumsSpec{}
	}
	var l []Launch
	var err error
	if p.chunk >= o.A.Shape.At(2) {
		l, err = launchMatMul(s, o)
	} else {
		l, err = splitMatMul(s, o, p.division, scratch)
	}
	return append(list, l...), err
}

// factor returns the type in which the factors are multiplied. If a factor has a 16-bit type, it
// is that type.
func (o *ProductOperands) factor() dtype.Type {
	if o.B.Type.IsHalf() {
		return o.B.Type
	}
	return o.A.Type
}

// tf32 reports whether float32 factors are multiplied as tf32.
func (o *ProductOperands) tf32() bool { return o.TF32 && o.factor() == dtype.F32 }

func (o *ProductOperands) check() error {
	out, a, b := &o.Out, &o.A, &o.B
	if out.Shape.Rank() != 3 || a.Shape.Rank() != 3 || b.Shape.Rank() != 3 {
		return fail("matmul", "shapes %v = %v · %v: rank 3 is wanted", out.Shape, a.Shape, b.Shape)
	}
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	if a.Shape.At(0) != batch || b.Shape.At(0) != batch || a.Shape.At(1) != m || b.Shape.At(1) != k || b.Shape.At(2) != n {
		return fail("matmul", "shapes %v = %v · %v do not fit", out.Shape, a.Shape, b.Shape)
	}
	factor := o.factor()
	// float32 and 16-bit types may be mixed, and sums of int8 are int32
	for _, p := range []*Operand{out, a, b} {
		if p.Type == dtype.Bool || p.Type != factor && !(p.Type == dtype.F32 && factor.IsHalf() || p == out && p.Type == dtype.I32 && factor == dtype.I8) {
			return fail("matmul", "types %v = %v · %v: one numeric type is wanted", out.Type, a.Type, b.Type)
		}
	}
	const limit = 1<<31 - 1
	if t := o.Bias.Type; t != dtype.Invalid {
		switch {
		case !factor.IsFloat() || t != factor && t != dtype.F32:
			return fail("matmul", "a bias of %v for factors of %v", t, factor)
		case o.Bias.Shape != shape.Of(n):
			return fail("matmul", "a bias of shape %v, want [%d]", o.Bias.Shape, n)
		case max(o.Bias.Strides.At(0), -o.Bias.Strides.At(0)) > limit:
			return fail("matmul", "the bias's stride %d exceeds 2³¹", o.Bias.Strides.At(0))
		}
	}
	matrices := []*Operand{out, a, b}
	if o.With.Type != dtype.Invalid {
		matrices = append(matrices, &o.With)
	}
	for _, p := range matrices {
		for d := range 3 {
			if p.Shape.At(d) > limit-256 || d > 0 && max(p.Strides.At(d), -p.Strides.At(d)) > limit {
				return fail("matmul", "shape %v with strides %v exceeds 2³¹", p.Shape, p.Strides)
			}
		}
	}
	return nil
}

// splitK returns how many elements of k one block sums. If there are enough blocks, or k is short,
// it returns k. Otherwise it returns a multiple of 64, so that there are enough blocks. Never more
// than maxParts blocks divide a sum.
func splitK(k, blocks, maxParts int) int {
	if blocks >= wantedBlocks/2 || k < 256 {
		return max(k, 1)
	}
	parts := min(ceilDiv(wantedBlocks, blocks), k/128, mostParts, maxParts)
	return ceilDiv(ceilDiv(k, max(parts, 1)), 64) * 64
}

// vectorMatMul plans a product in which m or n is 1, as a reduction over k of a·b with the
// dimensions [batch, m, n, k]. A separate launch adds the bias.
func vectorMatMul(p ProductOperands, scratch Scratch) ([]Launch, error) {
	t := p.A.Type
	times, ok := products[t]
	if !ok {
		return nil, fail("matmul", "no product of %v", t)
	}
	out, a, b := p.Out, p.A, p.B
	if p.Bias.Type != dtype.Invalid {
		addr, err := scratch(out.Shape.Size() * t.Compute().Size())
		if err != nil {
			return nil, err
		}
		out = Operand{Addr: addr, Type: t.Compute(), Layout: shape.Dense(out.Shape)}
	}
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	dims := shape.Of(batch, m, n, k)
	o, x, y := out, a, b
	o.Shape, o.Strides = shape.Of(batch, m, n, 1), out.Strides.Append(0)
	x.Shape, x.Strides = dims, shape.Of(a.Strides.At(0), a.Strides.At(1), 0, a.Strides.At(2))
	y.Shape, y.Strides = dims, shape.Of(b.Strides.At(0), 0, b.Strides.At(2), b.Strides.At(1))
	// the matrix comes first, because the first operand decides how threads divide the work
	matrix := [2]Operand{x, y}
	if m == 1 {
		matrix = [2]Operand{y, x}
	}
	list, err := Reduce(&device.Reduction{Kind: device.Sum, Map: times}, o, matrix[:], nil, scratch)
	if err != nil || p.Bias.Type == dtype.Invalid {
		return list, err
	}
	bias := p.Bias
	bias.Shape, bias.Strides = out.Shape, shape.Of(0, 0, bias.Strides.At(0))
	last, err := Map(biased[[3]dtype.Type{p.Out.Type, out.Type, bias.Type}], []Operand{p.Out}, []Operand{out, bias}, nil)
	return append(list, last...), err
}

// products maps each type to the program that multiplies two elements in the computing type.
var products = map[dtype.Type]*expr.Program{}

// identities maps each type to the program that copies elements unchanged.
var identities = map[dtype.Type]*expr.Program{}

// biased holds the programs that add a bias to a sum, by the types of the result, the sum and the
// bias.
var biased = map[[3]dtype.Type]*expr.Program{}

func init() {
	for _, t := range dtype.Types() {
		for _, out := range []dtype.Type{t, dtype.F32} {
			for _, bias := range []dtype.Type{t, dtype.F32} {
				if sum := t.Compute(); t.IsFloat() {
					biased[[3]dtype.Type{out, sum, bias}] = expr.MustLower([]*expr.Expr{expr.X(0).Add(expr.X(1).Cvt(sum))}, []dtype.Type{out}, []dtype.Type{sum, bias}, -1)
				}
			}
		}
		if t != dtype.Bool {
			products[t] = expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.X(1))}, []dtype.Type{t.Compute()}, []dtype.Type{t, t}, -1)
		}
	}
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.I32, dtype.I64, dtype.F16, dtype.BF16} {
		identities[t] = expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{t}, []dtype.Type{t}, -1)
	}
}

// productForm is a kernel for matrix products with a certain tile.
type productForm interface {
	tiles(m, n int) int // number of blocks for one matrix of results
	kernel(programs ...*expr.Program) (*Kernel, error)
	inParts() productForm // the corresponding kernel for a product whose sums are divided among blocks
	// number of bytes of the partial sums of a block
	partBytes() int
}

func (s gemmSpec) tiles(m, n int) int   { return ceilDiv(m, s.tile.bm) * ceilDiv(n, s.tile.bn) }
func (s gemmSpec) inParts() productForm { s.parts = true; return s }
func (s gemmSpec) partBytes() int {
	n := s.tile.bm * s.tile.bn * s.typ.Compute().Size()
	if s.sums != (sumsSpec{}) {
		n += 16 * s.threads() / s.tile.slices
	}
	return n
}
func (s gemmSpec) kernel(programs ...*expr.Program) (*Kernel, error) {
	return kernelOf(s, programs...)
}

const maxGridY = 65535

// launchMatMul plans a product in which each block sums over all of k.
func launchMatMul(f productForm, o ProductOperands) ([]Launch, error) {
	return launchParts(f, o, undivided(o.A.Shape.At(2)), 0, 0)
}

// launchParts plans the launch of any product kernel, and packs its parameters. Blocks that sum
// over only a part of k store their sums in the memory at partial.
func launchParts(f productForm, o ProductOperands, d division, partial, counters uint64) ([]Launch, error) {
	out, a := o.Out, o.A
	kern, err := f.kernel(o.Act)
	if err != nil {
		return nil, err
	}
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	tiles := f.tiles(m, n)
	var list []Launch
	for first := 0; first < batch; first += maxGridY {
		count := min(batch-first, maxGridY)
		p := make(packer, 0, 128)
		p.u32(uint32(m))
		p.u32(uint32(n))
		p.u32(uint32(k))
		t, tensor := f.(tensorSpec)
		blocks, high := d.blocks(tiles, k), count
		if t.loop { // blocks loop over a common list of the tiles of all matrices
			p.u32(uint32(count))
			blocks, high = min(count*tiles, d.workers), 1
		}
		if partial != 0 {
			p.u32(uint32(d.chunk))
			p.u32(uint32(d.undivided))
			p.u32(uint32(tiles - d.undivided))
			p.u32(uint32(d.parts(k)))
			p.u64(partial)
			p.u64(counters)
		}
		matrix := func(o Operand) {
			p.u64(o.start() + uint64(first*o.Strides.At(0)*o.Type.Size()))
			p.u64(uint64(o.Strides.At(0)))
			p.u32(uint32(o.Strides.At(1)))
			p.u32(uint32(o.Strides.At(2)))
		}
		matrix(out)
		matrix(a)
		matrix(o.B)
		if o.Bias.Type != dtype.Invalid {
			p.u64(o.Bias.start())
			p.u32(uint32(o.Bias.Strides.At(0)))
		}
		if o.Pre.Type != dtype.Invalid {
			p.u64(o.Pre.start() - out.start()) // distance of Pre from the result, which has the same layout
		}
		if o.With.Type != dtype.Invalid {
			matrix(o.With)
		}
		for _, s := range []Operand{o.Sums, o.ColumnSums} {
			if s.Type != dtype.Invalid {
				p.u64(s.start())
				p.u32(uint32(s.Strides.At(0)))
			}
		}
		l, err := p.launch(kern, blocks, high)
		if err != nil {
			return nil, err
		}
		if tensor {
			l.Tensor, l.TF32 = count*t.operations(m, n, k, d.chunk), t.typ == dtype.F32
		}
		list = append(list, l)
	}
	return list, nil
}

// chooseTile returns the largest tile with which most multiprocessors of a large GPU still get a
// block.
func chooseTile(t dtype.Type, batch, m, n int) gemmTile {
	if t.Size() == 8 {
		return doubleTile
	}
	blocks := func(g gemmTile) int { return batch * ceilDiv(m, g.bm) * ceilDiv(n, g.bn) }
	switch {
	case blocks(largeTile) >= 64 && m > 64 && n > 64 && t == dtype.F32:
		return largeTile
	case blocks(mediumTile) >= 64 && m > 32 && n > 32:
		return mediumTile
	}
	return smallTile
}

func tilesOf(t dtype.Type) []gemmTile {
	switch {
	case t.Size() == 8:
		return []gemmTile{doubleTile}
	case t == dtype.F32:
		return []gemmTile{largeTile, mediumTile, smallTile}
	}
	return []gemmTile{mediumTile, smallTile}
}

// vectorElements returns how many elements of type t a vector access moves, or 0 for types that are
// not moved in vectors.
func vectorElements(t dtype.Type) int {
	switch {
	case t.Size() == 8:
		return 2
	case t.Size() == 4:
		return 4
	}
	return 0
}

// vectorizable reports whether o can be accessed in aligned vectors along dimension d. The
// arguments d and e are the two dimensions of the matrix.
func vectorizable(o Operand, d, e int) bool {
	v := vectorElements(o.Type)
	return v > 0 && o.Strides.At(d) == 1 && o.Shape.At(d)%v == 0 && o.Strides.At(e)%v == 0 && o.Strides.At(0)%v == 0 &&
		o.start()%uint64(v*o.Type.Size()) == 0
}

func chooseLoad(o Operand, outer, k int) tileLoad {
	abs := func(v int) int { return max(v, -v) }
	switch {
	case vectorizable(o, k, outer):
		return vectorsAlongK
	case vectorizable(o, outer, k):
		return vectorsAlongOuter
	case abs(o.Strides.At(k)) <= abs(o.Strides.At(outer)):
		return scalarsAlongK
	}
	return scalarsAlongOuter
}

// gemmOperand holds the kernel parameters of a batch of matrices.
type gemmOperand struct {
	p                       ptx.Ptr
	batch, stride1, stride2 ptx.Value
}

// declareMatrices declares the kernel parameters of a batch of matrices, in the order in which
// launchParts packs them.
func declareMatrices(b *ptx.Builder, name string, t dtype.Type) gemmOperand {
	o := gemmOperand{p: b.Pointer(name, storage(t)), batch: b.Param(name+"b", ptx.S64)}
	o.stride1, o.stride2 = b.Param(name+"r", ptx.S32), b.Param(name+"c", ptx.S32)
	return o
}

// ofBatch returns the operand with its pointer moved to a matrix of the batch.
func (o gemmOperand) ofBatch(matrix ptx.Value) gemmOperand {
	o.p = o.p.At(o.batch.Mul(matrix.Cvt(ptx.S64)))
	return o
}

// productParams holds the parameters of a product kernel. The pointers point to the matrix and the
// part of k of this block. If the block loops over tiles, ofMatrix moves the pointers to the matrix
// of each tile.
type productParams struct {
	m, n, k ptx.Value // k is the length of this block's part of the dimension k
	// number of matrices in the batch, if blocks loop over them
	matrices ptx.Value
	a, b     gemmOperand
	bias     gemmOperand // only its fields p and stride2 are used, and only if there is a bias
	// out is a function, so that the address of the results occupies no registers until they are
	// stored.

	out    func() gemmOperand
	matrix func() ptx.Value // index of the block's matrix
	parts  productParts     // the part of k over which this block sums, if blocks divide k
	tile   ptx.Value        // index of the block's tile
}

// ofMatrix returns the parameters with all pointers moved to a matrix of the batch.
func (q productParams) ofMatrix(matrix func() ptx.Value) productParams {
	q = q.withResultsAt(matrix)
	q.a, q.b = q.a.ofBatch(matrix()), q.b.ofBatch(matrix())
	return q
}

// withResultsAt returns the parameters with the results' pointer moved to a matrix of the batch.
// The operands' pointers do not change.
func (q productParams) withResultsAt(matrix func() ptx.Value) productParams {
	o := q.out
	q.matrix, q.out = matrix, func() gemmOperand { return o().ofBatch(matrix()) }
	return q
}

// declareProduct declares the kernel parameters in the order in which launchParts packs them.
func declareProduct(b *ptx.Builder, a, w, out, bias dtype.Type, parts, loop bool) productParams {
	q := productParams{m: b.Param("m", ptx.U32), n: b.Param("n", ptx.U32), k: b.Param("k", ptx.U32)}
	if loop {
		q.matrices = b.Param("matrices", ptx.U32)
	}
	var start ptx.Value
	if parts {
		q.parts, q.tile, start, q.k = declareParts(b, computing(a.Compute()), q.k)
	}
	o, x, y := declareMatrices(b, "out", out), declareMatrices(b, "a", a), declareMatrices(b, "b", w)
	if bias != dtype.Invalid {
		q.bias = gemmOperand{p: b.Pointer("bias", storage(bias)), stride2: b.Param("biasc", ptx.S32)}
	}
	q.a, q.b, q.out = x, y, func() gemmOperand { return o }
	if !loop {
		q = q.ofMatrix(func() ptx.Value { return b.BlockID(1) })
	}
	if parts {
		b.Comment("the part of k")
		q.a.p = q.a.p.At(start.Bitcast(ptx.S32).MulWide(q.a.stride2))
		q.b.p = q.b.p.At(start.Bitcast(ptx.S32).MulWide(q.b.stride1))
	} else {
		q.tile = b.BlockID(0)
	}
	return q
}

// tileOf returns the first row and column of the block's tile. Consecutive blocks compute groups of
// 8 tiles along m, so that blocks that run at the same time share tiles of b.
func tileOf(b *ptx.Builder, id, m, n ptx.Value, bm, bn int, tune productTune) (row, column ptx.Value) {
	b.Comment("the tile of this block")
	tilesM := m.Add(num(bm - 1)).Div(num(bm))
	tilesN := n.Add(num(bn - 1)).Div(num(bn))
	group := tune.or(tune.group, 8)
	perGroup := tilesN.Mul(num(group))
	first := id.Div(perGroup).Mul(num(group))
	height := tilesM.Sub(first).Min(num(group))
	in := id.Rem(perGroup)
	return first.Add(in.Rem(height)).Mul(num(bm)), in.Div(height).Mul(num(bn))
}
