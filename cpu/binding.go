package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// access describes how a loop moves through the elements of a view. The dimensions are in the order
// of the binding, and strides are in bytes.
type access struct {
	base   unsafe.Pointer
	size   int // size of an element in bytes
	stride [shape.MaxRank]int
	inner  int  // stride of the innermost dimension in bytes
	dense  bool // the elements are contiguous in the order in which the loop reads them
	// number of elements in a contiguous part; parts begin at multiples of run
	run int
}

// binding connects a plan with its operands. All workers of one call share it. Elements are
// numbered in row-major order of dims, whose order may differ from that of the views' dimensions.
type binding struct {
	pl   *plan
	rank int
	dims [shape.MaxRank]int
	size int
	ins  []access
	outs []access
	// index computes the row-major position of an element in the views' shape
	index access
	// for each result, whether the step that computes it may write directly to the result's memory
	direct []bool
	params []uint64
	blk    int // number of elements of a block
	whole  int // a block must end at a multiple of this number of elements; 0 means anywhere

	// loop is machine code that reads and writes the operands' own memory; nil if there is none
	loop *jit.Code
	// a run of loop computes one unit: at most rows×cols elements along the innermost two
	// dimensions
	rows, cols int

	across             int // dimension that forms tiles with the innermost one; -1 means no tiles
	tileRows, tileCols int
	// turns is true for a transposed copy, whose tiles need no temporary memory
	turns bool
}

var bindings = sync.Pool{New: func() any { return new(binding) }}

// newBinding returns a binding of program p to the operands ins. It reuses an old binding if it
// can. The dimensions of the binding are not set yet.
func newBinding(p *expr.Program, f form, ins []device.View, params []uint64) *binding {
	var scalars uint64
	for i := range ins {
		if isScalar(&ins[i]) && i < 64 {
			scalars |= 1 << i
		}
	}
	b := bindings.Get().(*binding)
	b.pl = planFor(p, scalars, f).specialized(params)
	b.params = append(b.params[:0], params...)
	return b
}

func isScalar(v *device.View) bool {
	for k := range v.Shape.Rank() {
		if v.Shape.At(k) != 1 && v.Strides.At(k) != 0 {
			return false
		}
	}
	return true
}

func (b *binding) release() {
	clear(b.ins)
	clear(b.outs)
	b.pl, b.loop = nil, nil
	bindings.Put(b)
}

// arrange sets the order of the dimensions in which the elements are visited. It merges
// neighbouring dimensions if all views allow it and both have the same class. In a reduction, class
// is true for reduced dimensions. Otherwise class is nil.
func (b *binding) arrange(s shape.Dims, order []int, class []bool, outs, ins []device.View) {
	rank := 0
	b.ins, b.outs = sized(b.ins, len(ins)), sized(b.outs, len(outs))
	for i := range ins {
		b.ins[i] = access{base: pointer(&ins[i]), size: ins[i].Type.Size()}
	}
	for i := range outs {
		b.outs[i] = access{base: pointer(&outs[i]), size: outs[i].Type.Size()}
	}
	useIndex := len(b.pl.index) > 0
	own := s.Contiguous()
	b.index = access{size: 1}
	b.size = s.Size()
	var last bool
	for _, k := range order {
		n := s.At(k)
		if n == 1 {
			continue
		}
		c := class != nil && class[k]
		merge := rank > 0 && c == last
		if merge {
			for i := range ins {
				merge = merge && b.ins[i].stride[rank-1] == n*ins[i].Strides.At(k)*b.ins[i].size
			}
			for i := range outs {
				merge = merge && b.outs[i].stride[rank-1] == n*outs[i].Strides.At(k)*b.outs[i].size
			}
			if useIndex {
				merge = merge && b.index.stride[rank-1] == n*own.At(k)
			}
		}
		if !merge {
			rank++
			b.dims[rank-1] = 1
		}
		b.dims[rank-1] *= n
		for i := range ins {
			b.ins[i].stride[rank-1] = ins[i].Strides.At(k) * b.ins[i].size
		}
		for i := range outs {
			b.outs[i].stride[rank-1] = outs[i].Strides.At(k) * b.outs[i].size
		}
		b.index.stride[rank-1] = own.At(k)
		last = c
	}
	if rank == 0 {
		b.dims[0], rank = 1, 1
		b.index.stride[0] = 1
	}
	b.rank = rank
	for i := range b.ins {
		b.cacheStrides(&b.ins[i])
	}
	for i := range b.outs {
		b.cacheStrides(&b.outs[i])
	}
	b.cacheStrides(&b.index)
}

func sized(a []access, n int) []access {
	if cap(a) < n {
		return make([]access, n)
	}
	return a[:n]
}

// cacheStrides sets the fields of an access that the loops use. It derives them from the strides.
func (b *binding) cacheStrides(a *access) {
	a.inner = a.stride[b.rank-1]
	p := a.size
	a.dense, a.run = true, 1
	for k := b.rank - 1; k >= 0; k-- {
		if a.stride[k] != p && b.dims[k] != 1 {
			a.dense = false
		}
		p *= b.dims[k]
		if a.dense {
			a.run *= b.dims[k]
		}
	}
}

// pointer returns the address of a view's first element.
func pointer(v *device.View) unsafe.Pointer {
	b := v.Buf.(*buffer)
	if len(b.mem) == 0 {
		return nil
	}
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.mem)), v.Offset*v.Type.Size())
}

// aliasing sets b.direct. The step that computes a result may write to the result's memory, unless
// a later step still reads an operand from that memory.
func (b *binding) aliasing() {
	b.direct = b.direct[:0]
	for k := range b.pl.outs {
		o := &b.pl.outs[k]
		ok := o.def >= 0
		if ok {
			lo, hi := b.extent(&b.outs[k])
			for i := range b.ins {
				// a loop reads each element before it writes a result to the same address, so equal
				// addresses are safe
				if b.pl.lastUse[i] > o.def || b.pl.fused != nil && !b.matches(&b.ins[i], &b.outs[k]) {
					l, h := b.extent(&b.ins[i])
					ok = ok && (h <= lo || hi <= l)
				}
			}
		}
		b.direct = append(b.direct, ok)
	}
}

// matches reports whether each element of operand x has the same address as the element of result y
// with the same index.
func (b *binding) matches(x, y *access) bool {
	return x.base == y.base && x.size == y.size && x.stride == y.stride
}

func (b *binding) extent(a *access) (lo, hi uintptr) {
	lo = uintptr(a.base)
	hi = lo + uintptr(a.size)
	for k := range b.rank {
		if d := (b.dims[k] - 1) * a.stride[k]; d < 0 {
			lo -= uintptr(-d)
		} else {
			hi += uintptr(d)
		}
	}
	return lo, hi
}

// cursor holds the coordinates of an element.
type cursor [shape.MaxRank]int

func (b *binding) locate(p int) (c cursor) {
	for k := b.rank - 1; k > 0; k-- {
		q := p / b.dims[k]
		c[k] = p - q*b.dims[k]
		p = q
	}
	c[0] = p
	return c
}

func (a *access) offset(c *cursor, rank int) int {
	off := 0
	for k := range rank {
		off += c[k] * a.stride[k]
	}
	return off
}

// next moves c from the end of a run to the start of the next run. A run is the elements along the
// innermost dimension. The result is the distance in bytes between the starts of the two runs in
// access a.
func (b *binding) next(c *cursor, a *access) int {
	d := 0
	for k := b.rank - 2; k >= 0; k-- {
		c[k]++
		d += a.stride[k]
		if c[k] < b.dims[k] {
			return d
		}
		c[k] = 0
		d -= b.dims[k] * a.stride[k]
	}
	return d
}

// begin takes a runner from the pool, for blocks of at most n elements. It computes the values that
// are equal for all elements.
func (b *binding) begin(n int) *runner {
	r := b.pl.pool.Get().(*runner)
	n = b.pl.copies(min(n, b.pl.block))
	for _, l := range b.pl.params {
		fillBits(r.reg[l.val], b.params[l.from], width(l.typ), n)
	}
	for _, l := range b.pl.scalar {
		a := &b.ins[l.from]
		fillBits(r.reg[l.val], expr.Load(l.typ, readBits(a.base, a.size)), width(l.typ.Compute()), n)
	}
	exec(r.reg, b.pl.uniform, n)
	return r
}

func (b *binding) end(r *runner) { b.pl.putRunner(r) }

// putRunner returns the runner to the pool. It first removes the pointers to operands from the
// runner.
func (pl *plan) putRunner(r *runner) {
	for _, l := range pl.loads {
		r.reg[l.val] = unsafe.Add(r.base, pl.slot[l.val])
	}
	for k := range pl.outs {
		if o := &pl.outs[k]; o.def >= 0 {
			r.reg[o.val] = unsafe.Add(r.base, pl.slot[o.val])
		}
	}
	pl.pool.Put(r)
}

// load loads the elements p to p+n-1 of each operand into registers of the runner.
func (b *binding) load(r *runner, p, n int) {
	pl := b.pl
	if len(pl.loads) == 0 && len(pl.index) == 0 {
		return
	}
	var c cursor
	if b.rank > 1 {
		c = b.locate(p)
	} else {
		c[0] = p
	}
	for i := range pl.loads {
		l := &pl.loads[i]
		slot := unsafe.Add(r.base, pl.slot[l.val])
		if l.conv == nil {
			v := b.fetch(&b.ins[l.from], &c, p, n, slot)
			if l.keep && v != slot {
				w := n * b.ins[l.from].size
				copy(at[byte](slot, w), at[byte](v, w))
				v = slot
			}
			r.reg[l.val] = v
			continue
		}
		l.conv(slot, b.fetch(&b.ins[l.from], &c, p, n, r.stage), nil, nil, n)
	}
	for i := range pl.index {
		l := &pl.index[i]
		b.positions(unsafe.Add(r.base, pl.slot[l.val]), l.typ, c, p, n)
	}
}

// fetch returns the address of n consecutive elements, the first of which has the number p and the
// coordinates c. If they are contiguous in the operand, this is their address in the operand.
// Otherwise fetch copies them to space and returns space.
func (b *binding) fetch(a *access, c *cursor, p, n int, space unsafe.Pointer) unsafe.Pointer {
	if a.dense {
		return unsafe.Add(a.base, p*a.size)
	}
	src := unsafe.Add(a.base, a.offset(c, b.rank))
	in := b.rank - 1
	if n <= a.run && n <= a.run-p%a.run {
		return src
	}
	if n <= b.dims[in]-c[in] {
		gather(space, src, a.size, a.inner, n)
		return space
	}
	cc := *c
	dst := space
	loop, words := rowsLoop(b.dims[in], a.size, a.inner)
	for {
		m := min(n, b.dims[in]-cc[in])
		if rows := min(n/b.dims[in], b.dims[in-1]-cc[in-1]); loop != nil && cc[in] == 0 && rows > 1 {
			m = rows * b.dims[in]
			copyRuns(loop, dst, src, words, b.dims[in]*a.size, a.stride[in-1], rows)
			src = unsafe.Add(src, (rows-1)*a.stride[in-1])
			cc[in-1] += rows - 1
		} else {
			gather(dst, src, a.size, a.inner, m)
		}
		if n -= m; n == 0 {
			return space
		}
		dst = unsafe.Add(dst, m*a.size)
		src = unsafe.Add(src, b.next(&cc, a)-cc[in]*a.inner)
		cc[in] = 0
	}
}

// store writes the elements p to p+n-1 of each result, except results that steps have written
// directly.
func (b *binding) store(r *runner, p, n int) {
	var c cursor
	if b.rank > 1 {
		c = b.locate(p)
	} else {
		c[0] = p
	}
	for k := range b.pl.outs {
		o, a := &b.pl.outs[k], &b.outs[k]
		v := r.reg[o.val]
		dst, ok := b.place(a, &c, p, n)
		switch {
		case ok && o.conv != nil:
			o.conv(dst, v, nil, nil, n)
			continue
		case ok:
			if dst != v {
				copy(at[byte](dst, n*a.size), at[byte](v, n*a.size))
			}
			continue
		case o.conv != nil:
			o.conv(r.stage, v, nil, nil, n)
			v = r.stage
		}
		b.scatter(a, c, v, n)
	}
}

// place returns the address of the n elements from number p on. It returns false if they are not
// contiguous.
func (b *binding) place(a *access, c *cursor, p, n int) (unsafe.Pointer, bool) {
	if a.dense {
		return unsafe.Add(a.base, p*a.size), true
	}
	in := b.rank - 1
	if a.inner == a.size && n <= b.dims[in]-c[in] {
		return unsafe.Add(a.base, a.offset(c, b.rank)), true
	}
	return nil, false
}

func (b *binding) scatter(a *access, c cursor, src unsafe.Pointer, n int) {
	dst := unsafe.Add(a.base, a.offset(&c, b.rank))
	in := b.rank - 1
	for {
		m := min(n, b.dims[in]-c[in])
		spread(dst, src, a.size, a.inner, m)
		if n -= m; n == 0 {
			return
		}
		src = unsafe.Add(src, m*a.size)
		dst = unsafe.Add(dst, b.next(&c, a)-c[in]*a.inner)
		c[in] = 0
	}
}

// aim lets steps write directly to the memory of results. It does this for each result whose n
// elements from number p on are contiguous, if b.direct allows it.
func (b *binding) aim(r *runner, p, n int) {
	var c cursor
	located := false
	for k := range b.pl.outs {
		o := &b.pl.outs[k]
		if o.def < 0 {
			continue
		}
		r.reg[o.val] = unsafe.Add(r.base, b.pl.slot[o.val])
		if !b.direct[k] {
			continue
		}
		if !located && b.rank > 1 {
			c = b.locate(p)
		} else if !located {
			c[0] = p
		}
		located = true
		if dst, ok := b.place(&b.outs[k], &c, p, n); ok {
			r.reg[o.val] = dst
		}
	}
}

// positions stores the row-major positions of n elements. The first element has the number p and
// the coordinates c.
func (b *binding) positions(dst unsafe.Pointer, t dtype.Type, c cursor, p, n int) {
	a := &b.index
	if a.dense {
		if t == dtype.U32 {
			asm.IotaU32(at[uint32](dst, n), uint32(p))
		} else {
			asm.IotaI64(at[int64](dst, n), int64(p))
		}
		return
	}
	in := b.rank - 1
	off := a.offset(&c, b.rank)
	for {
		m := min(n, b.dims[in]-c[in])
		line(dst, t, off, a.inner, m)
		if n -= m; n == 0 {
			return
		}
		dst = unsafe.Add(dst, m*width(t))
		off += b.next(&c, a) - c[in]*a.inner
		c[in] = 0
	}
}
