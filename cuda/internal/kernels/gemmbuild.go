package kernels

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// gemmBuilder is the state of gemmSpec.build while it emits the code of a kernel.
type gemmBuilder struct {
	*ptx.Builder
	s       gemmSpec
	chunk   int // number of elements of the computing type in 16 bytes
	compute ptx.Type
	threads int // number of threads of a block
	slice   ptx.Value
	m, n, k ptx.Value
	act     activation
	sums    floatSums
}

func (s gemmSpec) threads() int {
	t, chunk := s.tile, 16/s.typ.Compute().Size()
	return 32 * (t.bm / (4 * chunk * t.mc)) * (t.bn / (8 * chunk * t.nc)) * t.slices
}

func (s gemmSpec) build(b *ptx.Builder, programs []*expr.Program) [3]int {
	t := s.tile
	g := &gemmBuilder{Builder: b, s: s, compute: computing(s.typ.Compute())}
	g.chunk = 16 / g.compute.Size()
	warpM, warpN := 4*g.chunk*t.mc, 8*g.chunk*t.nc
	warps := (t.bm / warpM) * (t.bn / warpN) // number of warps of a slice
	g.threads = s.threads()
	q := declareProduct(b, s.typ, s.typ, s.out, s.bias, s.parts, false)
	g.act = declareActivation(b, s.actSpec, s.out, programs)
	g.m, g.n, g.k = q.m, q.n, q.k
	a, w := q.a, q.b
	tileM, tileN := tileOf(b, q.tile, g.m, g.n, t.bm, t.bn, s.tune)

	ldA, ldB := t.bm+4, t.bn+4
	sizeA, sizeB := t.bk*ldA, t.bk*ldB
	shared := sharedTiles(b, g.compute, s.shared(), s.dynamicShared())
	// To save registers, values that are needed only after the loop over k are kept in shared
	// memory. They are stored in pairs.
	var parked ptx.Ptr
	waiting := func(pair int) ptx.Ptr { return parked.At(b.ThreadID(0).Mul(num(2))).At(num(pair * 2 * g.threads)) }
	if s.large() {
		if parked = b.Shared("parked", ptx.U32, s.parkedWords()*g.threads); s.parts {
			waiting(1).StoreVec(q.parts.slot, q.parts.part)
		}
	}
	loadA := g.loader(s.a, a.p, tileM, g.m, a.stride1, a.stride2, t.bm, ldA, shared)
	loadB := g.loader(s.b, w.p, tileN, g.n, w.stride2, w.stride1, t.bn, ldB, shared.At(num(2*sizeA)))

	if s.tune.blocks > 0 {
		b.MinBlocks(s.tune.blocks)
	} else if t == largeTile && s.needsManyRegisters() {
		b.MinBlocks(1)
	} else if t == largeTile || t == doubleTile {
		b.MinBlocks(2)
	} else if t.slices > 1 {
		// Without this hint the assembler would give each thread fewer registers, to make room for
		// more blocks. On some architectures it would then spill registers.
		b.MinBlocks(256 / g.threads)
	}
	thread := b.ThreadID(0)
	lane, warp := thread.And(num(31)), thread.Shr(num(5))
	perSlice := t.bk / t.slices
	var sliceA, sliceB ptx.Value
	if t.slices > 1 {
		g.slice = warp.Div(num(warps))
		warp = warp.Rem(num(warps))
		sliceA, sliceB = g.slice.Mul(num(perSlice*ldA)), g.slice.Mul(num(perSlice*ldB))
	}
	warpsN := t.bn / warpN
	// Neighbouring lanes read the same 16 bytes of b, and every second lane reads the same 16 bytes
	// of a. So half a warp reads at most 128 bytes of each operand, one word from each bank.
	rowBase := warp.Div(num(warpsN)).Mul(num(warpM)).Add(lane.Shr(num(4)).Mul(num(2)).Add(lane.And(num(1))).Mul(num(g.chunk)))
	colBase := warp.Rem(num(warpsN)).Mul(num(warpN)).Add(lane.Shr(num(1)).And(num(7)).Mul(num(g.chunk)))

	g.declareSums(thread.Rem(num(32*warps)), 32*warps, tileM, tileN, shared)
	acc := make([][]*ptx.Var, t.mc*g.chunk)
	zero := b.Const(g.compute, num(0))
	for i := range acc {
		for range t.nc * g.chunk {
			acc[i] = append(acc[i], b.Var(zero))
		}
	}

	parts := g.parts()
	fetch := func(part int, k, buffer ptx.Value) {
		loadA.fetch(part, k, buffer)
		loadB.fetch(part, k, buffer)
	}
	store := func(part int, buffer ptx.Value) {
		loadA.store(part, buffer)
		loadB.store(part, buffer)
	}
	arrived := func() {
		if loadA.async || loadB.async {
			b.CommitGroup()
			b.WaitGroup(0)
		}
		b.Barrier()
	}
	b.Comment("the first tile")
	for part := range parts {
		fetch(part, b.U32(0), b.U32(0))
	}
	for part := range parts {
		store(part, b.U32(0))
	}
	loadA.advance()
	loadB.advance()
	arrived()
	row, col := tileM.Add(rowBase), tileN.Add(colBase)
	if s.large() {
		waiting(0).StoreVec(row, col)
	}
	buffer := b.Var(b.U32(0))
	b.For(b.U32(0), g.k, num(t.bk), func(k ptx.Value, _ ptx.Loop) {
		b.Comment("fetch the next tile while this one is multiplied")
		current := buffer.Get()
		next := b.U32(1).Sub(current)
		readA := shared.At(rowBase).At(current.Mul(num(sizeA)))
		readB := shared.At(num(2 * sizeA)).At(colBase).At(current.Mul(num(sizeB)))
		if t.slices > 1 {
			readA, readB = readA.At(sliceA), readB.At(sliceB)
		}
		for at := range perSlice {
			if at%(perSlice/parts) == 0 {
				fetch(at*parts/perSlice, k.Add(num(t.bk)), next)
			}
			x := g.fragment(readA.At(num(at*ldA)), t.mc, 4*g.chunk)
			y := g.fragment(readB.At(num(at*ldB)), t.nc, 8*g.chunk)
			for i := range acc {
				for n := range acc[i] {
					j := n
					if i%2 == 1 {
						j = len(acc[i]) - 1 - n
					}
					acc[i][j].Set(multiplyAdd(x[i], y[j], acc[i][j].Get()))
				}
			}
			if (at+1)%(perSlice/parts) == 0 {
				store(at*parts/perSlice, next)
			}
		}
		g.addSums(current, perSlice)
		arrived()
		loadA.advance()
		loadB.advance()
		buffer.Set(next)
	})
	if s.large() {
		v := waiting(0).LoadVec(2)
		if row, col = v[0], v[1]; s.parts {
			v = waiting(1).LoadVec(2)
			q.parts.slot, q.parts.part = v[0], v[1]
		}
	}
	write := func() {
		g.addBias(q.bias, col, acc)
		c := q.out()
		if s.act == "" {
			g.writeOut(c, row, col, acc)
		} else {
			g.writeActivated(c, shared, thread.Rem(num(32*warps)), 32*warps, row, col, acc)
		}
		g.storeSums(row.Sub(rowBase), col.Sub(colBase))
	}
	mine := everywhere
	if t.slices > 1 {
		g.addSlices(shared, thread.Rem(num(32*warps)), 32*warps, acc)
		if g.sums.list != nil {
			b.Barrier()
			g.addSlices(shared, thread.Rem(num(32*warps)), 32*warps, [][]*ptx.Var{g.sums.list})
		}
		mine = func(do func()) { b.If(g.slice.Eq(num(0)), do) }
	}
	if s.parts {
		sums := []partSums{{mine, slices.Concat(acc...)}}
		if g.sums.list != nil {
			sums = append(sums, partSums{func(do func()) { mine(func() { b.If(g.sums.active, do) }) }, g.sums.list})
		}
		q.parts.join(b, thread.Rem(num(32*warps)), 32*warps, sums, func() { mine(write) })
	} else {
		mine(write)
	}
	return [3]int{g.threads, 1, 1}
}

// parts returns the number of parts in which a tile is loaded. While the kernel multiplies one
// tile, it loads the next tile part by part. Loads through registers then need registers for one
// part only.
func (g *gemmBuilder) parts() int {
	n := 1
	if g.s.large() {
		n = 2
	}
	return g.s.tune.or(g.s.tune.parts, n)
}

func multiplyAdd(x, y, z ptx.Value) ptx.Value {
	if x.Type().IsFloat() {
		return x.FMA(y, z)
	}
	return x.Mad(y, z)
}

// fragment reads chunks of 16 bytes from shared memory. The argument distance is the distance
// between the chunks, in elements.
func (g *gemmBuilder) fragment(p ptx.Ptr, chunks, distance int) []ptx.Value {
	var list []ptx.Value
	for c := range chunks {
		list = append(list, p.At(num(c*distance)).LoadVec(g.chunk)...)
	}
	return list
}

// addSlices adds the sums of the slices in pairs, through shared memory. The first slice gets the
// result. The argument thread is the index of this thread among the n threads of its slice.
func (g *gemmBuilder) addSlices(shared ptx.Ptr, thread ptx.Value, n int, acc [][]*ptx.Var) {
	b, size := g.Builder, len(acc)*len(acc[0])*n
	for half := g.s.tile.slices / 2; half > 0; half /= 2 {
		b.Comment("add the sums of the upper %d slices to the lower", half)
		place := func(slice ptx.Value) ptx.Ptr {
			return shared.At(slice.Mul(num(size)).Add(thread.Mul(num(g.chunk))))
		}
		// chunks calls f for each chunk of this thread, with its offset in shared memory. There,
		// chunk i of a thread is followed by chunk i of the next thread.
		chunks := func(f func(at int, v []*ptx.Var)) {
			at := 0
			for i := range acc {
				for j := 0; j < len(acc[i]); j += g.chunk {
					f(at*n*g.chunk, acc[i][j:j+g.chunk])
					at++
				}
			}
		}
		b.If(g.slice.Ge(num(half)).And(g.slice.Lt(num(2*half))), func() {
			to := place(g.slice.Sub(num(half)))
			chunks(func(at int, v []*ptx.Var) {
				list := make([]ptx.Value, len(v))
				for e := range v {
					list[e] = v[e].Get()
				}
				to.At(num(at)).StoreVec(list...)
			})
		})
		b.Barrier()
		b.If(g.slice.Lt(num(half)), func() {
			from := place(g.slice)
			chunks(func(at int, v []*ptx.Var) {
				for e, x := range from.At(num(at)).LoadVec(g.chunk) {
					v[e].Set(v[e].Get().Add(x))
				}
			})
		})
		if half > 1 {
			b.Barrier()
		}
	}
}

// addBias adds the bias to a thread's results, whose first column is col.
func (g *gemmBuilder) addBias(o gemmOperand, col ptx.Value, acc [][]*ptx.Var) {
	if g.s.bias == dtype.Invalid {
		return
	}
	g.Comment("the bias")
	for j := range acc[0] {
		v := o.ofColumn(g.Builder, g.s.bias, col.Add(num(j/g.chunk*g.chunk*8+j%g.chunk)), g.n)
		for i := range acc {
			acc[i][j].Set(acc[i][j].Get().Add(convert(g.Builder, v, g.compute)))
		}
	}
}

// writeOut rounds and stores a thread's results, which start at row, col.
func (g *gemmBuilder) writeOut(c gemmOperand, row, col ptx.Value, acc [][]*ptx.Var) {
	g.Comment("store the results")
	for i := range acc {
		r := row.Add(num(i/g.chunk*4*g.chunk + i%g.chunk))
		g.If(r.Lt(g.m), func() {
			line := c.p.At(r.Bitcast(ptx.S32).MulWide(c.stride1))
			for j := 0; j < len(acc[i]); j += g.chunk {
				g.storeChunk(c, line, col.Add(num(j*8)), get(acc[i][j:j+g.chunk]), make([][]ptx.Value, g.chunk))
			}
		})
	}
}

// tileLoader copies tiles of one operand into shared memory. In shared memory a tile has one row
// along the outer dimension for each index of k. If the elements have the same order in shared and
// global memory, fetch starts asynchronous copies and store does nothing. Otherwise fetch reads
// into registers, and store moves them into shared memory.
type tileLoader struct {
	g      *gemmBuilder
	mode   tileLoad
	async  bool
	vector int // number of elements that one access moves
	units  []loadUnit
	// offset along k, within the tile, of the first vector or element that the thread moves
	kStart ptx.Value
	step   ptx.Value // distance between consecutive tiles, in bytes
	ld     int
}

// loadUnit is a vector or an element that a thread moves in each tile. The units with the same
// index of the outer dimension are a line.
type loadUnit struct {
	src ptx.Ptr // address of the first unit of the same line
	// address of the line's first unit in the next tile; the units of a line share this variable
	addr *ptx.Var
	// distance along k from the first unit of the line to this one: dk in elements, skip in bytes
	dk   int
	skip ptx.Value
	dst  ptx.Ptr // address of the unit in the first of the two buffers of shared memory
	regs []*ptx.Var
}

// loader returns a tileLoader for tiles of bo outer elements by bk elements of k. The argument
// start is the index of the first outer element, and count is the size of the outer dimension. The
// strides count elements.
func (g *gemmBuilder) loader(mode tileLoad, p ptx.Ptr, start, count, outerStride, kStride ptx.Value, bo, ld int, shared ptx.Ptr) *tileLoader {
	b, bk := g.Builder, g.s.tile.bk
	l := &tileLoader{g: g, mode: mode, ld: ld, vector: 1}
	l.async = mode != vectorsAlongK && storage(g.s.typ) == g.compute
	if mode.vectors() {
		l.vector = vectorElements(g.s.typ)
	}
	if mode == vectorsAlongK {
		kStride = b.S32(1)
	}
	bytes := func(k int) ptx.Value { return kStride.MulWide(num(k * g.s.typ.Size())).Bitcast(ptx.U64) }
	l.step = bytes(bk)
	// The variables outer and l.kStart are the offsets of the thread's first unit. The function
	// distance returns the distance of a later unit from the first one. The number of threads is
	// chosen so that these distances are the same for all threads.
	v, thread := l.vector, b.ThreadID(0)
	last := count.Sub(num(1))
	var outer ptx.Value
	var distance func(units int) (outer, k int)
	switch mode {
	case vectorsAlongOuter, scalarsAlongOuter:
		per := bo / v
		last = count.Sub(num(v))
		outer, l.kStart = thread.Rem(num(per)).Mul(num(v)), thread.Div(num(per))
		distance = func(n int) (int, int) { return 0, n / per }
	case vectorsAlongK:
		// A row has two vectors, so a warp copies sixteen rows. The padding of the rows prevents
		// two lanes from storing to the same bank.
		outer = thread.Div(num(2)).Rem(num(bo))
		l.kStart = thread.Div(num(2 * bo)).Mul(num(2)).Add(thread.Rem(num(2))).Mul(num(v))
		distance = func(n int) (int, int) { return n / 2 % bo, n / (2 * bo) * 2 * v }
	case scalarsAlongK:
		width := 32 / g.compute.Size()
		outer = thread.Div(num(width)).Rem(num(bo))
		l.kStart = thread.Div(num(width * bo)).Mul(num(width)).Add(thread.Rem(num(width)))
		distance = func(n int) (int, int) { return n / width % bo, n / (width * bo) * width }
	}
	lines := map[int]loadUnit{} // first unit of each line, by the line's offset in the outer dimension
	dst := shared.At(l.kStart.Mad(num(ld), outer))
	for i := range bo * bk / v / g.threads {
		away, dk := distance(i * g.threads)
		unit, ok := lines[away]
		if !ok {
			// For indices outside of the matrix, elements at its edge are read. The results that
			// depend on them are not stored.
			at := start.Add(outer).Add(num(away)).Min(last)
			unit.src = p.At(at.Bitcast(ptx.S32).MulWide(outerStride)).At(l.kStart.Bitcast(ptx.S32).MulWide(kStride))
			unit.addr = b.Var(unit.src.Address())
			lines[away] = unit
		}
		unit.dk, unit.skip = dk, bytes(dk)
		unit.dst = dst.At(num(dk*ld + away))
		if !l.async {
			for range v {
				unit.regs = append(unit.regs, b.Var(b.Const(g.compute, num(0))))
			}
		}
		l.units = append(l.units, unit)
	}
	return l
}

// place returns the address of unit u in the given buffer of shared memory.
func (l *tileLoader) place(u loadUnit, buffer ptx.Value) ptx.Ptr {
	return u.dst.At(buffer.Mul(num(l.g.s.tile.bk * l.ld)))
}

// advance moves the addresses to the next tile.
func (l *tileLoader) advance() {
	moved := map[*ptx.Var]bool{}
	for _, u := range l.units {
		if !moved[u.addr] {
			moved[u.addr] = true
			u.addr.Set(u.addr.Get().Add(l.step))
		}
	}
}

// part returns the units that the thread moves in part i of a tile. All asynchronous copies are in
// the first part.
func (l *tileLoader) part(i int) []loadUnit {
	n := l.g.parts()
	if l.async {
		n = 1
	}
	if i >= n {
		return nil
	}
	return l.units[len(l.units)*i/n : len(l.units)*(i+1)/n]
}

// fetch reads one part of the tile that starts at index k, for the given buffer. Elements beyond
// the end of dimension k become zero.
func (l *tileLoader) fetch(part int, k, buffer ptx.Value) {
	b := l.g.Builder
	for _, u := range l.part(part) {
		inside := k.Add(l.kStart).Add(num(u.dk)).Lt(l.g.k)
		from := u.src.MovedTo(u.addr)
		if u.dk > 0 {
			from = u.src.MovedTo(u.addr.Get().Add(u.skip))
		}
		if l.async {
			bytes := l.vector * l.g.s.typ.Size()
			l.place(u, buffer).CopyAsyncPartial(from, bytes, inside.Select(b.U32(uint32(bytes)), num(0)))
			continue
		}
		for _, r := range u.regs {
			r.Set(num(0))
		}
		b.If(inside, func() {
			for i, v := range loadVector(b, from, l.g.s.typ, l.vector) {
				u.regs[i].Set(v)
			}
		})
	}
}

// store moves one part of a tile from registers into the given buffer.
func (l *tileLoader) store(part int, buffer ptx.Value) {
	for _, u := range l.part(part) {
		for i, r := range u.regs {
			l.place(u, buffer).At(num(i * l.ld)).Store(r)
		}
	}
}
