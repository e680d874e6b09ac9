package kernels

import (
	"github.com/flambeau-go/flambeau/ptx"
)

// tileLoader moves tiles of one operand into shared memory as rows along the outer dimension, one for each k. Where the elements lie in
// shared memory as they do in global memory, fetch starts asynchronous copies and store has nothing to do; else fetch reads into registers,
// and store puts those into shared memory.
type tileLoader struct {
	g      *gemmBuilder
	mode   tileLoad
	async  bool
	vector int // elements of a unit
	units  []loadUnit
	first  ptx.Value // k of the first unit within the tile
	step   ptx.Value // bytes from one tile to the next
	ld     int
}

// loadUnit is a vector or an element that this thread moves in each tile.
type loadUnit struct {
	from ptx.Ptr  // of the first unit in its line
	at   *ptx.Var // its address in the next tile; units in one line share it
	dk   int      // distance from the first unit along k, in elements …
	skip ptx.Value
	to   ptx.Ptr // in the first buffer
	regs []*ptx.Var
}

// loader prepares to load tiles of extent outer (bo elements from first on) by k. count is the size of the outer
// dimension; the strides count elements.
func (g *gemmBuilder) loader(mode tileLoad, p ptx.Ptr, first, count, outerStride, kStride ptx.Value, bo, ld int, shared ptx.Ptr) *tileLoader {
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
	// Where the thread's first unit lies, and the others from there: the number of threads is such that these distances are the same for all.
	v, thread := l.vector, b.ThreadID(0)
	last := count.Sub(num(1))
	var outer ptx.Value
	var distance func(units int) (outer, k int)
	switch mode {
	case vectorsAlongOuter, scalarsAlongOuter:
		per := bo / v
		last = count.Sub(num(v))
		outer, l.first = thread.Rem(num(per)).Mul(num(v)), thread.Div(num(per))
		distance = func(n int) (int, int) { return 0, n / per }
	case vectorsAlongK:
		// Two vectors a row, sixteen rows a warp: with the rows' padding no two lanes store to one bank.
		outer = thread.Div(num(2)).Rem(num(bo))
		l.first = thread.Div(num(2 * bo)).Mul(num(2)).Add(thread.Rem(num(2))).Mul(num(v))
		distance = func(n int) (int, int) { return n / 2 % bo, n / (2 * bo) * 2 * v }
	case scalarsAlongK:
		width := 32 / g.compute.Size()
		outer = thread.Div(num(width)).Rem(num(bo))
		l.first = thread.Div(num(width * bo)).Mul(num(width)).Add(thread.Rem(num(width)))
		distance = func(n int) (int, int) { return n / width % bo, n / (width * bo) * width }
	}
	lines := map[int]loadUnit{} // by the distance along the outer dimension
	to := shared.At(l.first.Mad(num(ld), outer))
	for i := range bo * bk / v / g.threads {
		away, dk := distance(i * g.threads)
		unit, ok := lines[away]
		if !ok {
			// What lies outside of the matrix is read from its edge: the results of it are not stored.
			at := first.Add(outer).Add(num(away)).Min(last)
			unit.from = p.At(at.Bitcast(ptx.S32).MulWide(outerStride)).At(l.first.Bitcast(ptx.S32).MulWide(kStride))
			unit.at = b.Var(unit.from.Address())
			lines[away] = unit
		}
		unit.dk, unit.skip = dk, bytes(dk)
		unit.to = to.At(num(dk*ld + away))
		if !l.async {
			for range v {
				unit.regs = append(unit.regs, b.Var(b.Const(g.compute, num(0))))
			}
		}
		l.units = append(l.units, unit)
	}
	return l
}

// place is where a unit lies in the given buffer.
func (l *tileLoader) place(u loadUnit, buffer ptx.Value) ptx.Ptr {
	return u.to.At(buffer.Mul(num(l.g.s.tile.bk * l.ld)))
}

// advance moves on to the next tile.
func (l *tileLoader) advance() {
	moved := map[*ptx.Var]bool{}
	for _, u := range l.units {
		if !moved[u.at] {
			moved[u.at] = true
			u.at.Set(u.at.Get().Add(l.step))
		}
	}
}

// part is what a loader moves in one of the parts into which a step over the tile is divided: asynchronous copies all start in the first.
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

// fetch reads a part of the tile that starts at k, for the given buffer; what is beyond the last k becomes zero.
func (l *tileLoader) fetch(part int, k, buffer ptx.Value) {
	b := l.g.Builder
	for _, u := range l.part(part) {
		inside := k.Add(l.first).Add(num(u.dk)).Lt(l.g.k)
		from := u.from.MovedTo(u.at)
		if u.dk > 0 {
			from = u.from.MovedTo(u.at.Get().Add(u.skip))
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

// store puts the registers of a part into the given buffer.
func (l *tileLoader) store(part int, buffer ptx.Value) {
	for _, u := range l.part(part) {
		for i, r := range u.regs {
			l.place(u, buffer).At(num(i * l.ld)).Store(r)
		}
	}
}
