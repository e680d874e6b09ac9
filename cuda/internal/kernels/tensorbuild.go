package kernels

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// tensorBuilder is the state of tensorSpec.build while it emits the code of a kernel.
type tensorBuilder struct {
	*ptx.Builder
	s            tensorSpec
	m, n, k      ptx.Value
	shared       ptx.Ptr
	results      ptx.Ptr // shared memory through which results pass
	stage        int     // size of the tiles of one stage in bytes
	lane         ptx.Value
	tileM, tileN ptx.Value // first row and column of the block's tile
	warpM, warpN ptx.Value // first row and column of the warp within the block
	// 1 if this block computes the rows of a that begin at odd elements, otherwise 0
	odd ptx.Value
	acc [][][]*ptx.Var
	// for blocks that loop: first row and column of the previous tile, and the first row of its
	// results that is not stored yet
	lastM, lastN, later *ptx.Var
	// out is the operand to which the previous tile's results belong. Its address is in outAt.
	out        gemmOperand
	outAt      *ptx.Var
	act        activation
	withPieces [][]*ptx.Var // 16-byte pieces of the operand With, one for each step
	rowSums    tensorSums
	columnSums tensorSums
}

// build emits the kernel. The kernel takes the parameters that all product kernels take.
func (s tensorSpec) build(b *ptx.Builder, programs []*expr.Program) [3]int {
	f := s.form
	g := &tensorBuilder{Builder: b, s: s, lane: b.LaneID()}
	// Without this hint the assembler uses fewer registers than are available, and spills.
	b.MinBlocks(s.tune.or(s.tune.blocks, s.blocks()))
	q := declareProduct(b, s.a.memory(s.typ), s.b.memory(s.typ), s.out, s.bias, s.parts, s.loop)
	g.act = declareActivation(b, s.actSpec, s.out, programs)
	g.m, g.n = q.m, q.n
	if s.loop {
		g.loopTiles(q)
	} else {
		g.oneTile(q)
	}
	return [3]int{f.threads(), 1, 1}
}

// oneTile emits the computation of a single tile, for a block that does not loop.
func (g *tensorBuilder) oneTile(q productParams) {
	f, s := g.s.form, g.s
	g.k = q.k
	switch {
	case s.odd && s.a.alongK:
		g.oddRows(&q)
	case s.odd:
		g.tileM, g.tileN = tileOf(g.Builder, q.tile, g.m, g.n, f.bm-2, f.bn, s.tune)
	default:
		g.tileM, g.tileN = tileOf(g.Builder, q.tile, g.m, g.n, f.bm, f.bn, s.tune)
	}
	g.begin()
	g.declareSums()
	if s.odd && !s.a.alongK {
		g.oddSums(q)
	} else {
		g.sum(g.copiers(q))
	}
	g.complete(q)
}

// begin declares shared memory and the accumulators.
func (g *tensorBuilder) begin() {
	b, s, f := g.Builder, g.s, g.s.form
	g.stage = s.staged()
	g.shared = sharedTiles(b, ptx.U8, s.shared(), s.dynamicShared())
	g.results = g.shared
	wm, wn := f.warp()
	warp := b.WarpID()
	g.warpM, g.warpN = warp.Div(num(f.warpsN)).Mul(num(wm)), warp.Rem(num(f.warpsN)).Mul(num(wn))
	g.acc = make([][][]*ptx.Var, wm/16)
	for i := range g.acc {
		g.acc[i] = make([][]*ptx.Var, wn/8)
		for j := range g.acc[i] {
			for range 4 {
				g.acc[i][j] = append(g.acc[i][j], b.Var(b.F32(0)))
			}
		}
	}
}

// copiers returns the copiers of a and b for the block's tile.
func (g *tensorBuilder) copiers(q productParams) []*tensorCopier {
	f := g.s.form
	return []*tensorCopier{g.copier(g.s.a, q.a, q.a.stride1, q.a.stride2, g.tileM, g.m, f.bm, 0),
		g.copier(g.s.b, q.b, q.b.stride2, q.b.stride1, g.tileN, g.n, f.bn, g.s.stagedA())}
}

// complete emits the code that turns the sums of a tile into results, or adds up partial sums
// first.
func (g *tensorBuilder) complete(q productParams) {
	finish := func() {
		g.finish(q)
		g.storeSums()
	}
	switch {
	case g.s.parts && g.s.share:
		g.IfElse(q.parts.part.Lt(q.parts.count), func() { g.joinTogether(q) }, finish)
	case g.s.parts:
		q.parts.join(g.Builder, g.ThreadID(0), g.s.form.threads(), g.partSums(), finish)
	default:
		finish()
	}
}

func (g *tensorBuilder) partSums() []partSums {
	list := []partSums{{everywhere, slices.Concat(slices.Concat(g.acc...)...)}}
	for _, r := range []*tensorSums{&g.rowSums, &g.columnSums} {
		if r.acc != nil {
			list = append(list, partSums{func(do func()) { g.If(r.mine, do) }, slices.Concat(r.acc...)})
		}
	}
	return list
}

// fragments are the registers that a warp multiplies in one step of 32 bytes along k. The field a
// has an entry for every 16 rows, and b has an entry for every 8 columns.
type fragments struct{ a, b [][]*ptx.Var }

// sum emits the loop that adds the products of all steps of k to the accumulators.
func (g *tensorBuilder) sum(loads []*tensorCopier) {
	readA, readB := g.readers()
	g.fill(loads)
	g.multiplyAll(loads, readA, readB)
}

// readers returns the functions that load fragments of a and of b.
func (g *tensorBuilder) readers() (readA, readB fragmentReader) {
	f := g.s.form
	return g.reader(g.s.a.alongK, f.bm, g.warpM, 0, false), g.reader(g.s.b.alongK, f.bn, g.warpN, g.s.stagedA(), true)
}

// async reports whether one of the operands is copied asynchronously. If none is, a barrier is
// enough to wait for the copies.
func async(loads []*tensorCopier) bool { return loads[0].async() || loads[1].async() }

func (g *tensorBuilder) commit(loads []*tensorCopier) {
	if async(loads) {
		g.CommitGroup()
	}
}

// fill emits code that starts to copy the tiles of all stages except the last.
func (g *tensorBuilder) fill(loads []*tensorCopier) {
	b := g.Builder
	b.Comment("fill all stages but one")
	for i := range g.s.stages() - 1 {
		at := b.U32(uint32(i * g.stage))
		for _, l := range loads {
			l.firstTile = i == 0
			l.fetch(0, 1, b.U32(uint32(i*g.s.form.bk)), at)()
			l.firstTile = false
			l.advance()
		}
		g.commit(loads)
	}
}

// multiplyAll adds the products of all tiles. [tensorBuilder.fill] must have begun to copy the
// first tiles. The fragments of the next step are read before the fragments of this step are
// multiplied, so that the tensor cores do not wait for shared memory.
func (g *tensorBuilder) multiplyAll(loads []*tensorCopier, readA, readB fragmentReader) {
	b, f := g.Builder, g.s.form
	stages, steps := g.s.stages(), g.s.steps()
	arrived := func(but int) {
		if async(loads) {
			b.WaitGroup(but)
		}
		b.Barrier()
	}
	var parts [2]fragments // the fragments of this step and of the next step
	for p := range parts {
		parts[p] = g.fragmentVars()
	}
	read := func(to fragments, stage ptx.Value, step int) {
		for i := range to.a {
			set(to.a[i], readA(stage, step, i))
		}
		for j := 0; j < len(to.b); j += 2 {
			v := readB(stage, step, j/2)
			set(to.b[j], v[:2])
			set(to.b[j+1], v[2:])
		}
	}
	next := func(v ptx.Value) ptx.Value {
		n := v.Add(num(g.stage))
		return n.Eq(num(stages*g.stage)).Select(b.U32(0), n)
	}
	arrived(stages - 2)
	read(parts[0], b.U32(0), 0)
	from, to := b.Var(b.U32(0)), b.Var(b.U32(uint32((stages-1)*g.stage)))
	end := g.k
	if g.s.odd && g.s.a.alongK {
		end = end.Add(g.odd)
	}
	b.For(b.U32(0), end, num(f.bk), func(k ptx.Value, _ ptx.Loop) {
		ahead := k.Add(num((stages - 1) * f.bk))
		for step := range steps {
			var stores []func()
			if step == 0 {
				b.Comment("everyone is done with the stage that is filled now")
				for _, l := range loads {
					if l.async() {
						l.fetch(0, 1, ahead, to.Get())
					}
				}
				g.commit(loads)
			}
			for _, l := range loads {
				// Loads into registers are issued in parts, so that fewer registers are in use
				// during the multiplications.
				if !l.async() {
					stores = append(stores, l.fetch(step, steps, ahead, to.Get()))
				}
			}
			if step == steps-1 {
				b.Comment("the next stage has arrived")
				arrived(stages - 2)
				from.Set(next(from.Get()))
			}
			read(parts[(step+1)%2], from.Get(), (step+1)%steps)
			if step == 0 && g.later != nil {
				g.storeLater()
			}
			g.multiply(parts[step%2])
			for _, store := range stores {
				store()
			}
		}
		for _, l := range loads {
			l.advance()
		}
		to.Set(next(to.Get()))
	})
	if g.later != nil {
		g.storeRest()
	}
	arrived(0)
}

func (g *tensorBuilder) fragmentVars() fragments {
	list := func(n, registers int) [][]*ptx.Var {
		all := make([][]*ptx.Var, n)
		for i := range all {
			for range registers {
				all[i] = append(all[i], g.Var(g.Bits(ptx.B32, 0)))
			}
		}
		return all
	}
	return fragments{list(len(g.acc), 4), list(len(g.acc[0]), 2)}
}

// multiply adds the products of a step. It computes the columns forwards in one row and backwards
// in the next, so that each instruction shares a fragment with the previous one.
func (g *tensorBuilder) multiply(f fragments) {
	x, y := g.factors(f.a), g.factors(f.b)
	for i := range g.acc {
		for j := range g.acc[i] {
			if i%2 == 1 {
				j = len(g.acc[i]) - 1 - j
			}
			v := g.acc[i][j]
			set(v, g.MMA(storage(g.s.typ), x[i], y[j], get(v)))
		}
	}
	g.addSums(f)
}

// swizzle returns the byte offset of the 16-byte piece c of a row in shared memory. The argument
// length is the number of 16-bit elements of a row. The order of the pieces differs from row to
// row, so that piece c of eight neighbouring rows lies in eight different groups of banks.
func swizzle(length int, row, c ptx.Value) ptx.Value {
	pieces := length / 8
	mask, per := min(pieces, 8)-1, max(1, 8/pieces)
	x := row
	if per > 1 {
		x = row.Div(num(per))
	}
	return row.Mul(num(2 * length)).Add(c.Xor(x.And(num(mask))).Shl(num(4)))
}

// fragmentReader loads a fragment from the stage at a byte offset. The arguments step and i are the
// indices of the fragment along k and along the outer dimension.
type fragmentReader func(stage ptx.Value, step, i int) []ptx.Value

// reader returns a function that loads fragments of 16 outer elements by 32 bytes of k. The
// operand's tile begins base bytes into a stage, and length is its size along the outer dimension.
// The argument start is the outer element at which fragment 0 begins. Each following fragment
// begins 16 outer elements later. A fragment is four registers, each with a matrix of 8 outer
// elements by 8 elements of k. For operand a, the matrices begin at (outer, k) = (0,0), (8,0),
// (0,8), (8,8). For operand b (operandB is true), they begin at (0,0), (0,8), (8,0), (8,8). For
// tf32 a matrix has 4 elements along k, not 8.
func (g *tensorBuilder) reader(alongK bool, length int, start ptx.Value, base int, operandB bool) fragmentReader {
	if g.s.typ == dtype.F32 && !alongK {
		return g.wordReader(length, start, base, operandB)
	}
	// Each lane addresses a row of one of four matrices. The variables low and high are the two
	// bits of that matrix's index.
	low, high := g.lane.Shr(num(3)).And(num(1)), g.lane.Shr(num(4))
	outerBit, kBit := low, high
	if operandB {
		outerBit, kBit = high, low
	}
	r, bk := g.lane.And(num(7)), g.s.form.bk*g.s.typ.Size()/2
	return func(stage ptx.Value, step, i int) []ptx.Value {
		p := g.shared.At(num(base))
		if alongK {
			outer := start.Add(outerBit.Mad(num(8), r))
			at := swizzle(bk, outer, kBit.Or(num(2*step)))
			return p.At(at).At(stage).At(num(i*16*bk*2)).LoadMatrix(4, false)
		}
		k := kBit.Mad(num(8), r)
		at := swizzle(length, k, start.Shr(num(3)).Or(outerBit).Add(num(2*i)))
		return p.At(at).At(stage).At(num(step*16*length*2)).LoadMatrix(4, true)
	}
}
