package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// tensorSpec describes a matrix product of 16-bit floats on the tensor cores. Tiles come in asynchronous copies of 16 bytes where the operands
// allow it, in three stages, and are swizzled in shared memory so that neither copies nor ldmatrix meet bank conflicts.
type tensorSpec struct {
	typ       dtype.Type // of a and b
	out       dtype.Type // typ, or F32 for parts of a sum
	block     int        // rows and columns of a block's tile: four warps of half that in each direction
	a, b      tensorLoad
	vectorOut bool
	tune      productTune
}

// tensorLoad is how a block brings a tile of an operand to shared memory.
type tensorLoad struct {
	alongK bool // rows of the tile lie along k, else along the outer dimension
	vector int  // elements of a copy: 8, 4 or 2 that are neighbours and aligned; 1 for elements that go through registers one by one
}

func (l tensorLoad) String() string {
	name := "o"
	if l.alongK {
		name = "k"
	}
	if l.vector < 8 {
		name += fmt.Sprint(l.vector)
	}
	return name
}

func (s tensorSpec) extent() (bm, bn int)     { return s.block, s.block }
func (s tensorSpec) kernel() (*Kernel, error) { return kernelOf(s) }

const (
	tensorK      = 32 // k of a stage
	tensorStages = 3
	tensorWarps  = 4
)

// tensorDepth is how much of k the tensor cores go through in parts of chunk. The last stage of
// each is filled up with zeros.
func tensorDepth(k, chunk int) (depth int) {
	for ; k > 0; k -= chunk {
		depth += ceilDiv(min(k, chunk), tensorK) * tensorK
	}
	return depth
}

func (s tensorSpec) name() string {
	out := "s"
	if s.vectorOut {
		out = "v"
	}
	if s.out != s.typ {
		out += "_" + s.out.String()
	}
	if s.tune != (productTune{}) {
		out += "_" + s.tune.String()
	}
	return fmt.Sprintf("gemm_tensor_%v_%dx%d_%v%v_%s", s.typ, s.block, s.block, s.a, s.b, out)
}

// tensorSpecFor returns the specification for a product of these operands; false if they are not 16-bit floats.
func tensorSpecFor(out, a, b Operand) (tensorSpec, bool) {
	s := tensorSpec{typ: a.Type, out: out.Type}
	if !a.Type.IsHalf() {
		return s, false
	}
	s.a, s.b = chooseTensorLoad(a, 1, 2), chooseTensorLoad(b, 2, 1)
	s.vectorOut = neighbours(out, 2, 1) == 8
	if out.Type == dtype.F32 { // pairs, not eights
		s.vectorOut = out.Shape.At(2)%2 == 0
	}
	s.block = 64
	if out.Shape.At(0)*ceilDiv(out.Shape.At(1), 128)*ceilDiv(out.Shape.At(2), 128) >= 64 && s.a.vector+s.b.vector > 2 { // two operands that go through registers need too many
		s.block = 128
	}
	return s, true
}

// neighbours is how many elements of 16 bits along dimension d, the other being e, can always be moved at once: 8, 4, 2 or 1.
func neighbours(o Operand, d, e int) int {
	if o.Strides.At(d) != 1 {
		return 1
	}
	for v := 8; v > 1; v /= 2 {
		if o.Shape.At(d)%v == 0 && o.Strides.At(e)%v == 0 && o.Strides.At(0)%v == 0 && o.start()%uint64(2*v) == 0 {
			return v
		}
	}
	return 1
}

func chooseTensorLoad(o Operand, outer, k int) tensorLoad {
	abs := func(v int) int { return max(v, -v) }
	alongK, alongOuter := neighbours(o, k, outer), neighbours(o, outer, k)
	if alongK > alongOuter || alongK == alongOuter && abs(o.Strides.At(k)) <= abs(o.Strides.At(outer)) {
		return tensorLoad{true, alongK}
	}
	return tensorLoad{false, alongOuter}
}

// stages is how many tiles of each operand there is room for.
func (s tensorSpec) stages() int { return s.tune.or(s.tune.stages, tensorStages) }

// shared is the bytes of shared memory: for the stages, and after them for the results.
func (s tensorSpec) shared() int {
	return max(s.stages()*s.block*tensorK*2*2, s.block*(s.block+8)*2)
}

func (s tensorSpec) dynamicShared() int { return beyondStatic(s.shared(), 0) }

// tensorBuilder holds the state while a kernel is written.
type tensorBuilder struct {
	*ptx.Builder
	s       tensorSpec
	m, n, k ptx.Value
	shared  ptx.Ptr
	stage   int // bytes of a stage
	lane    ptx.Value
}

// build writes the kernel. The parameters are those of the other products.
func (s tensorSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	g := &tensorBuilder{Builder: b, s: s, lane: b.LaneID()}
	b.MinBlocks(s.tune.or(s.tune.blocks, 256/s.block)) // 255 registers, or 128 for the small tile; left to itself the assembler aims at fewer, and spills for it
	q := declareProduct(b, s.typ, s.out)
	g.m, g.n, g.k = q.m, q.n, q.k
	x, y := q.a, q.b
	tileM, tileN := tileOf(b, g.m, g.n, s.block, s.block, s.tune)
	half := s.block * tensorK * 2 // bytes of an operand's tile
	g.stage = 2 * half
	g.shared = sharedTiles(b, ptx.U8, s.shared(), s.dynamicShared())
	stages := s.stages()

	loadA := g.copier(s.a, x.p, tileM, g.m, x.stride1, x.stride2, 0)
	loadB := g.copier(s.b, y.p, tileN, g.n, y.stride2, y.stride1, half)
	warp := b.WarpID()
	w := s.block / 2
	warpM, warpN := warp.Shr(num(1)).Mul(num(w)), warp.And(num(1)).Mul(num(w))
	readA := g.reader(s.a.alongK, warpM, 0, false)
	readB := g.reader(s.b.alongK, warpN, half, true)

	acc := make([][][]*ptx.Var, w/16)
	for i := range acc {
		acc[i] = make([][]*ptx.Var, w/8)
		for j := range acc[i] {
			for range 4 {
				acc[i][j] = append(acc[i][j], b.Var(b.F32(0)))
			}
		}
	}
	// Without asynchronous copies there is nothing to wait for but the other threads.
	async := loadA.async() || loadB.async()
	commit := func() {
		if async {
			b.CommitGroup()
		}
	}
	arrived := func(but int) {
		if async {
			b.WaitGroup(but)
		}
		b.Barrier()
	}
	b.Comment("fill all stages but one")
	for i := range stages - 1 {
		at := b.U32(uint32(i * g.stage))
		for _, l := range []*tensorCopier{loadA, loadB} {
			l.fetch(0, 1, b.U32(uint32(i*tensorK)), at)()
			l.advance()
		}
		commit()
	}
	next := func(v ptx.Value) ptx.Value {
		n := v.Add(num(g.stage))
		return n.Eq(num(stages*g.stage)).Select(b.U32(0), n)
	}
	read, write := b.Var(b.U32(0)), b.Var(b.U32(uint32((stages-1)*g.stage)))
	b.For(b.U32(0), g.k, num(tensorK), func(k ptx.Value, _ ptx.Loop) {
		b.Comment("this stage has arrived, and everyone is done with the one that is filled next")
		arrived(stages - 2)
		ahead := k.Add(num((stages - 1) * tensorK))
		loads := []*tensorCopier{loadA, loadB}
		const steps = tensorK / 16
		for _, l := range loads {
			if l.async() {
				l.fetch(0, 1, ahead, write.Get())
			}
		}
		commit()
		for step := range steps {
			var stores []func()
			for _, l := range loads {
				if !l.async() { // a part at a time: fewer registers wait for memory while the other blocks multiply
					stores = append(stores, l.fetch(step, steps, ahead, write.Get()))
				}
			}
			fx, fy := make([][]ptx.Value, w/16), make([][]ptx.Value, 0, w/8)
			for i := range fx {
				fx[i] = readA(read.Get(), step, i)
			}
			for j := range w / 16 {
				f := readB(read.Get(), step, j)
				fy = append(fy, f[:2], f[2:])
			}
			for i := range acc {
				for j, v := range acc[i] {
					r := b.MMA(storage(s.typ), fx[i], fy[j], []ptx.Value{v[0].Get(), v[1].Get(), v[2].Get(), v[3].Get()})
					for e := range v {
						v[e].Set(r[e])
					}
				}
			}
			for _, store := range stores {
				store()
			}
		}
		for _, l := range loads {
			l.advance()
		}
		read.Set(next(read.Get()))
		write.Set(next(write.Get()))
	})
	arrived(0)
	c := q.out()
	if s.out == dtype.F32 {
		g.writeSums(c, tileM.Add(warpM), tileN.Add(warpN), acc)
	} else {
		g.writeOut(c, tileM, tileN, warpM, warpN, acc)
	}
	return [3]int{32 * tensorWarps, 1, 1}
}

// swizzle returns the byte at which 16-byte piece number c of a row lies. Along k a row is 64 bytes and two rows share
// the 128 bytes of all banks; otherwise a row is a multiple of 128 bytes.
func (g *tensorBuilder) swizzle(alongK bool, row, c ptx.Value) ptx.Value {
	if alongK {
		return row.Mul(num(tensorK * 2)).Add(c.Xor(row.Shr(num(1)).And(num(3))).Shl(num(4)))
	}
	return row.Mul(num(g.s.block * 2)).Add(c.Xor(row.And(num(7))).Shl(num(4)))
}

// reader returns a function that loads the fragments of 16 outer elements by 16 k, number i along the outer dimension
// from first on, of step number step along k in the stage at a byte offset. For a the four registers are the matrices
// (outer, k) = (0,0), (8,0), (0,8), (8,8); for b (second) they are (0,0), (0,8), (8,0), (8,8).
func (g *tensorBuilder) reader(alongK bool, first ptx.Value, base int, second bool) func(stage ptx.Value, step, i int) []ptx.Value {
	low, high := g.lane.Shr(num(3)).And(num(1)), g.lane.Shr(num(4)) // bits of the matrix that this lane addresses
	outerBit, kBit := low, high
	if second {
		outerBit, kBit = high, low
	}
	r := g.lane.And(num(7))
	return func(stage ptx.Value, step, i int) []ptx.Value {
		p := g.shared.At(num(base))
		if alongK {
			outer := first.Add(outerBit.Mad(num(8), r))
			at := g.swizzle(true, outer, kBit.Or(num(2*step)))
			return p.At(at).At(stage).At(num(i*16*tensorK*2)).LoadMatrix(4, false)
		}
		k := kBit.Mad(num(8), r)
		at := g.swizzle(false, k, first.Shr(num(3)).Or(outerBit).Or(num(2*i)))
		return p.At(at).At(stage).At(num(step*16*g.s.block*2)).LoadMatrix(4, true)
	}
}

// writeSums stores float32 sums, whose rows are contiguous, as they lie in the registers.
func (g *tensorBuilder) writeSums(c gemmOperand, row, col ptx.Value, acc [][][]*ptx.Var) {
	b := g.Builder
	row, col = row.Add(g.lane.Shr(num(2))), col.Add(g.lane.And(num(3)).Shl(num(1)))
	for i := range acc {
		for h := range 2 {
			at := row.Add(num(i*16 + h*8))
			b.If(at.Lt(g.m), func() {
				line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1))
				for j, v := range acc[i] {
					k := col.Add(num(j * 8))
					lo, hi := v[2*h].Get(), v[2*h+1].Get()
					if g.s.vectorOut {
						b.If(k.Lt(g.n), func() { line.At(k).StoreVec(lo, hi) })
						continue
					}
					b.If(k.Lt(g.n), func() { line.At(k).Store(lo) })
					b.If(k.Add(num(1)).Lt(g.n), func() { line.At(k).At(num(1)).Store(hi) })
				}
			})
		}
	}
}

// writeOut rounds the results and stores them through shared memory, so that they leave in 16-byte pieces.
func (g *tensorBuilder) writeOut(c gemmOperand, tileM, tileN, warpM, warpN ptx.Value, acc [][][]*ptx.Var) {
	b, s := g.Builder, g.s
	b.Comment("the results go through shared memory")
	pitch := s.block + 8 // in elements; the padding keeps the stores free of conflicts
	t := storage(s.typ)
	row, col := g.lane.Shr(num(2)), g.lane.And(num(3)).Shl(num(1))
	to := g.shared.As(ptx.U8).AtByte(warpM.Add(row).Mul(num(pitch)).Add(warpN.Add(col)).Shl(num(1)))
	for i := range acc {
		for j, v := range acc[i] {
			p := to.AtByte(num((i*16*pitch + j*8) * 2)).As(ptx.B32)
			p.Store(b.Pack2(t, v[0].Get(), v[1].Get()))
			p.AtByte(num(8 * pitch * 2)).Store(b.Pack2(t, v[2].Get(), v[3].Get()))
		}
	}
	b.Barrier()
	threads := 32 * tensorWarps
	thread := b.ThreadID(0)
	if !s.vectorOut {
		b.For(thread, b.U32(uint32(s.block*s.block)), num(threads), func(e ptx.Value, _ ptx.Loop) {
			r, k := e.Div(num(s.block)), e.Rem(num(s.block))
			at, col := tileM.Add(r), tileN.Add(k)
			b.If(at.Lt(g.m).And(col.Lt(g.n)), func() {
				p := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1)).At(col.Bitcast(ptx.S32).MulWide(c.stride2))
				p.Store(g.shared.As(t).At(r.Mul(num(pitch)).Add(k)).Load())
			})
		})
		return
	}
	per := s.block / 8
	piece := thread.Rem(num(per)).Mul(num(8))
	for i := range s.block * per / threads {
		r := thread.Div(num(per)).Add(num(i * threads / per))
		from := g.shared.AtByte(r.Mul(num(pitch)).Add(piece).Shl(num(1)))
		at, k := tileM.Add(r), tileN.Add(piece)
		b.If(at.Lt(g.m).And(k.Lt(g.n)), func() {
			line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1))
			line.At(k).As(ptx.B32).StoreVec(from.As(ptx.B32).LoadVec(4)...)
		})
	}
}

// tensorCopier brings one operand's tiles into the stages of a [tensorSpec]'s kernel, one after the
// other.
type tensorCopier struct {
	g          *tensorBuilder
	how        tensorLoad
	width      int // elements of a unit, which a thread stores at once
	units      int // of a thread and tile
	rows       int // of the tile that all threads bring at once
	rowBytes   int
	to         []ptx.Ptr // of the first units in the first stage, as many as the swizzle takes to repeat
	p          ptx.Ptr
	at         *ptx.Var    // the address of this thread's first element in the next tile
	rowStep    ptx.Value   // bytes from a unit to the next
	step       ptx.Value   // bytes from an element of a unit to the next
	tileStep   ptx.Value   // bytes from one tile to the next
	outer, k   []ptx.Value // of the elements of the first unit, in the matrix and within the tile
	outerLimit ptx.Value
}

// copier prepares to bring tiles of an operand to where base lies in each stage. What lies outside
// of the matrix becomes zero.
func (g *tensorBuilder) copier(how tensorLoad, p ptx.Ptr, first, count, outerStride, kStride ptx.Value, base int) *tensorCopier {
	b := g.Builder
	c := &tensorCopier{g: g, how: how, width: max(how.vector, 2), p: p, outerLimit: count}
	length := g.s.block
	if how.alongK {
		length = tensorK
	}
	const threads = 32 * tensorWarps
	perRow := length / c.width
	c.rows, c.rowBytes, c.units = threads/perRow, length*2, g.s.block*tensorK/c.width/threads
	thread := b.ThreadID(0)
	row, column := thread.Div(num(perRow)), thread.Rem(num(perRow)).Mul(num(c.width))
	for i := range max(1, 8/c.rows) { // the swizzle repeats after 8 rows
		piece := g.swizzle(how.alongK, row.Add(num(i*c.rows)), column.Shr(num(3)))
		c.to = append(c.to, g.shared.At(num(base)).At(piece).At(column.And(num(7)).Mul(num(2))))
	}
	rowStride, stride := kStride, outerStride
	if how.alongK {
		rowStride, stride = outerStride, kStride
	}
	for e := range c.width {
		along := column.Add(num(e))
		if how.alongK {
			c.outer, c.k = append(c.outer, first.Add(row)), append(c.k, along)
		} else {
			c.outer, c.k = append(c.outer, first.Add(along)), append(c.k, row)
		}
	}
	bytes := func(stride ptx.Value, n int) ptx.Value { return stride.MulWide(num(2 * n)).Bitcast(ptx.U64) }
	c.rowStep, c.step, c.tileStep = bytes(rowStride, c.rows), bytes(stride, 1), bytes(kStride, tensorK)
	// The unit stride needs no multiplication.
	from := p
	for _, d := range []struct {
		at, stride ptx.Value
		unit       bool
	}{{c.outer[0], outerStride, how.vector > 1 && !how.alongK}, {c.k[0], kStride, how.vector > 1 && how.alongK}} {
		if d.unit {
			from = from.At(d.at)
		} else {
			from = from.At(d.at.Bitcast(ptx.S32).MulWide(d.stride))
		}
	}
	c.at = b.Var(from.Address())
	return c
}

func (c *tensorCopier) async() bool { return c.how.vector > 1 }

// advance moves on to the next tile.
func (c *tensorCopier) advance() { c.at.Set(c.at.Get().Add(c.tileStep)) }

// fetch starts a part of the parts of a tile at k into the stage at a byte offset. What it returns
// puts into shared memory what goes there through registers, when it is called.
func (c *tensorCopier) fetch(part, parts int, k, stage ptx.Value) (store func()) {
	b, g := c.g.Builder, c.g
	type word struct {
		to     ptx.Ptr
		lo, hi *ptx.Var
	}
	var words []word
	address := c.at.Get()
	for i := range c.units {
		if i > 0 {
			address = address.Add(c.rowStep)
		}
		if i*parts/c.units != part {
			continue
		}
		inside := func(e int) ptx.Value {
			outer, at := c.outer[e], k.Add(c.k[e])
			if c.how.alongK {
				outer = outer.Add(num(i * c.rows))
			} else {
				at = at.Add(num(i * c.rows))
			}
			return outer.Lt(c.outerLimit).And(at.Lt(g.k))
		}
		period := len(c.to)
		to := c.to[i%period].At(num(i / period * period * c.rows * c.rowBytes)).At(stage)
		if c.async() { // of what is outside nothing is read, whatever its address
			bytes := 2 * c.width
			to.CopyAsyncPartial(c.p.MovedTo(address), bytes, inside(0).Select(b.U32(uint32(bytes)), num(0)))
			continue
		}
		w := word{to: to}
		for e, v := range []**ptx.Var{&w.lo, &w.hi} {
			*v = b.Var(b.Bits(storage(g.s.typ), 0))
			from := address
			if e > 0 {
				from = from.Add(c.step)
			}
			b.If(inside(e), func() { (*v).Set(c.p.MovedTo(from).Load()) })
		}
		words = append(words, w)
	}
	return func() {
		for _, w := range words {
			w.to.As(ptx.B32).Store(b.Join(ptx.B32, w.lo.Get(), w.hi.Get()))
		}
	}
}
