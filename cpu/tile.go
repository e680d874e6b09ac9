package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/dtype"
)

// If an operand of a map is transposed relative to the results, the map computes one tile after the
// other. A tile extends along two dimensions: the innermost of the results, and the innermost of
// the operand. While a tile is computed, its cache lines stay in the cache and are used completely.

// chooseTiles makes the map run in tiles if an operand is transposed.
func (b *binding) chooseTiles() {
	b.across = -1
	in := b.rank - 1
	if b.rank == 1 || b.dims[in] < 8 {
		return
	}
	for _, l := range b.pl.loads {
		a := &b.ins[l.from]
		if a.inner == a.size || a.inner == 0 {
			continue
		}
		for k := range in {
			if a.stride[k] == a.size && b.dims[k] >= 8 {
				b.across = k
			}
		}
	}
	if b.across < 0 {
		return
	}
	b.tileCols = min(b.dims[in], 32)
	b.tileRows = min(b.dims[b.across], b.pl.block/b.tileCols)
	b.chooseTileLoop()
}

// chooseTileLoop decides whether a compiled loop runs over the rows of a tile. The loop reads
// copies of transposed operands in temporary memory, and accesses all other memory in place.
func (b *binding) chooseTileLoop() {
	pl := b.pl
	if b.turns = b.copiesTurned(); b.turns {
		return
	}
	if pl.fused == nil || pl.fused.whole == nil || len(pl.fused.whole.Loads)+len(pl.fused.whole.Stores) > jit.MostPointers {
		return
	}
	l := pl.fused.whole
	for k := range b.outs {
		if !b.direct[k] || b.outs[k].inner != b.outs[k].size {
			return
		}
	}
	var reads jit.Reads
	for i := range l.Loads {
		if a := b.loaded(l, i); !b.turned(a) && !reads.Add(l, i, a.inner/a.size) {
			return
		}
	}
	b.loop = pl.loopFor(reads)
}

// copiesTurned reports whether the map is a transposed copy of 32-bit words to other memory.
func (b *binding) copiesTurned() bool {
	pl := b.pl
	if len(pl.body) > 0 || len(pl.loads) != 1 || len(b.outs) != 1 || pl.outs[0].val != pl.loads[0].val || pl.loads[0].conv != nil || pl.outs[0].conv != nil {
		return false
	}
	from, to := &b.ins[pl.loads[0].from], &b.outs[0]
	lo, hi := b.extent(to)
	l, h := b.extent(from)
	return to.size == 4 && to.inner == 4 && b.turned(from) && (h <= lo || hi <= l)
}

// turned reports whether operand a is transposed relative to the results.
func (b *binding) turned(a *access) bool {
	return a.stride[b.across] == a.size && a.inner != a.size && a.inner != 0
}

// loopTile computes a tile with the compiled loop.
func (b *binding) loopTile(r *runner, c *cursor, rows, cols int) {
	l := b.pl.fused.whole
	r.strides = r.strides[:0]
	for i := range l.Loads {
		a := b.loaded(l, i)
		src, step := unsafe.Add(a.base, a.offset(c, b.rank)), a.stride[b.across]
		if b.turned(a) {
			slot := unsafe.Add(r.base, b.pl.slot[l.Loads[i].Value])
			transpose(slot, src, a.size, a.inner, rows, cols)
			src, step = slot, cols*a.size
		}
		r.reg[l.Loads[i].Reg] = src
		r.strides = append(r.strides, step)
	}
	for k := range b.outs {
		a := &b.outs[k]
		r.reg[l.Stores[k].Reg] = unsafe.Add(a.base, a.offset(c, b.rank))
		r.strides = append(r.strides, a.stride[b.across])
	}
	b.loop.Run(r.reg, r.strides, cols, rows)
}

// tiles returns the number of tiles.
func (b *binding) tiles() int {
	in := b.rank - 1
	other := b.size / (b.dims[in] * b.dims[b.across])
	return other * ((b.dims[in] + b.tileCols - 1) / b.tileCols) * ((b.dims[b.across] + b.tileRows - 1) / b.tileRows)
}

// runTiles computes the tiles with numbers lo to hi-1.
func (b *binding) runTiles(lo, hi int) {
	r := b.begin(b.tileRows * b.tileCols)
	in := b.rank - 1
	nc := (b.dims[in] + b.tileCols - 1) / b.tileCols
	nr := (b.dims[b.across] + b.tileRows - 1) / b.tileRows
	for t := lo; t < hi; t++ {
		var c cursor
		q := t
		c[in], q = q%nc*b.tileCols, q/nc
		c[b.across], q = q%nr*b.tileRows, q/nr
		for k := in - 1; k >= 0; k-- {
			if k != b.across {
				c[k], q = q%b.dims[k], q/b.dims[k]
			}
		}
		b.evalTile(r, &c, min(b.tileRows, b.dims[b.across]-c[b.across]), min(b.tileCols, b.dims[in]-c[in]))
	}
	b.end(r)
}

// evalTile computes a tile of rows×cols elements, whose first element has the coordinates c.
func (b *binding) evalTile(r *runner, c *cursor, rows, cols int) {
	pl := b.pl
	n := rows * cols
	// Read each cache line of the tile first. These reads are independent of each other, so their
	// cache misses overlap. This is not done for small operands, which are in the cache anyway.
	var sum byte
	far := b.size >= 1<<17
	for i := range pl.loads {
		a := &b.ins[pl.loads[i].from]
		if far && a.stride[b.across] == a.size {
			sum |= touch(unsafe.Add(a.base, a.offset(c, b.rank)), a.inner, rows*a.size, cols)
		}
	}
	for k := range pl.outs {
		if a := &b.outs[k]; far && a.inner == a.size {
			sum |= touch(unsafe.Add(a.base, a.offset(c, b.rank)), a.stride[b.across], cols*a.size, rows)
		}
	}
	*(*byte)(r.stage) = sum
	switch {
	case b.loop != nil:
		b.loopTile(r, c, rows, cols)
		return
	case b.turns:
		from, to := &b.ins[pl.loads[0].from], &b.outs[0]
		dst, src := unsafe.Add(to.base, to.offset(c, b.rank)), unsafe.Add(from.base, from.offset(c, b.rank))
		transposeWords(dst, src, to.stride[b.across], from.inner, rows, cols)
		return
	}
	for i := range pl.loads {
		l := &pl.loads[i]
		a := &b.ins[l.from]
		slot := unsafe.Add(r.base, pl.slot[l.val])
		to := slot
		if l.conv != nil {
			to = r.stage
		}
		src := unsafe.Add(a.base, a.offset(c, b.rank))
		if b.turned(a) {
			transpose(to, src, a.size, a.inner, rows, cols)
		} else {
			for k := range rows {
				gather(unsafe.Add(to, k*cols*a.size), unsafe.Add(src, k*a.stride[b.across]), a.size, a.inner, cols)
			}
		}
		if l.conv != nil {
			l.conv(slot, to, nil, nil, n)
		}
		r.reg[l.val] = slot
	}
	for i := range pl.index {
		l := &pl.index[i]
		w := width(l.typ)
		off := b.index.offset(c, b.rank)
		for k := range rows {
			at := unsafe.Add(r.base, pl.slot[l.val]+k*cols*w)
			line(at, l.typ, off+k*b.index.stride[b.across], b.index.inner, cols)
		}
	}
	for k := range pl.outs {
		if o := &pl.outs[k]; o.def >= 0 {
			r.reg[o.val] = unsafe.Add(r.base, pl.slot[o.val])
		}
	}
	exec(r.reg, pl.body, n)
	for k := range pl.outs {
		o, a := &pl.outs[k], &b.outs[k]
		v := r.reg[o.val]
		if o.conv != nil {
			o.conv(r.stage, v, nil, nil, n)
			v = r.stage
		}
		dst := unsafe.Add(a.base, a.offset(c, b.rank))
		for i := range rows {
			spread(unsafe.Add(dst, i*a.stride[b.across]), unsafe.Add(v, i*cols*a.size), a.size, a.inner, cols)
		}
	}
}

// line writes the n positions off, off+step, off+2·step, … to dst.
func line(dst unsafe.Pointer, t dtype.Type, off, step, n int) {
	if t == dtype.U32 {
		for i, d := 0, at[uint32](dst, n); i < n; i++ {
			d[i] = uint32(off + i*step)
		}
		return
	}
	for i, d := 0, at[int64](dst, n); i < n; i++ {
		d[i] = int64(off + i*step)
	}
}

// transpose sets dst[i][j] = src[j][i]. dst is contiguous and has rows×cols elements. The elements
// of a row of src are contiguous, and its rows are stride bytes apart.
func transpose(dst, src unsafe.Pointer, size, stride, rows, cols int) {
	switch size {
	case 1:
		transposeAs[uint8](dst, src, stride, rows, cols)
	case 2:
		transposeAs[uint16](dst, src, stride, rows, cols)
	case 4:
		transposeWords(dst, src, 4*cols, stride, rows, cols)
	default:
		transposeAs[uint64](dst, src, stride, rows, cols)
	}
}

// touch reads a byte of every cache line of n rows of the given length in bytes.
func touch(p unsafe.Pointer, stride, bytes, n int) (sum byte) {
	for j := range n {
		row := unsafe.Add(p, j*stride)
		for o := 0; o < bytes; o += 64 {
			sum |= *(*byte)(unsafe.Add(row, o))
		}
	}
	return sum
}

func transposeAs[T uint8 | uint16 | uint32 | uint64](dst, src unsafe.Pointer, stride, rows, cols int) {
	d := at[T](dst, rows*cols)
	for j := range cols {
		k := j
		for _, v := range at[T](unsafe.Add(src, j*stride), rows) {
			d[k] = v
			k += cols
		}
	}
}

func turnWords(dst, src unsafe.Pointer, stride, rows, cols int) {
	d, s := at[uint32](dst, (cols-1)*stride+rows), at[uint32](src, rows*cols)
	full, most := gemm.Transpose32(at[float32](dst, len(d)), stride, at[float32](src, len(s)), cols, rows, cols)
	for i := range rows {
		from := 0
		if i < full {
			from = most
		}
		for c := from; c < cols; c++ {
			d[c*stride+i] = s[i*cols+c]
		}
	}
}

// transposeWords transposes a matrix of 32-bit words. The rows of dst are step bytes apart, and
// those of src are stride bytes apart. Without a kernel, it handles four rows of src at a time and
// writes 16 bytes at a time.
func transposeWords(dst, src unsafe.Pointer, step, stride, rows, cols int) {
	j := 0
	if stride > 0 && stride%4 == 0 && step > 0 {
		full, most := gemm.Transpose32(at[float32](dst, (rows-1)*step/4+cols), step/4, at[float32](src, (cols-1)*stride/4+rows), stride/4, cols, rows)
		for i := most; i < rows && full > 0; i++ {
			for j := range full {
				*(*uint32)(unsafe.Add(dst, i*step+j*4)) = *(*uint32)(unsafe.Add(src, j*stride+i*4))
			}
		}
		j = full
	}
	for ; j+4 <= cols; j += 4 {
		a := at[uint32](unsafe.Add(src, j*stride), rows)
		b := at[uint32](unsafe.Add(src, (j+1)*stride), rows)[:len(a)]
		c := at[uint32](unsafe.Add(src, (j+2)*stride), rows)[:len(a)]
		e := at[uint32](unsafe.Add(src, (j+3)*stride), rows)[:len(a)]
		for i := range a {
			*(*[2]uint64)(unsafe.Add(dst, i*step+j*4)) = [2]uint64{uint64(a[i]) | uint64(b[i])<<32, uint64(c[i]) | uint64(e[i])<<32}
		}
	}
	for ; j < cols; j++ {
		for i, v := range at[uint32](unsafe.Add(src, j*stride), rows) {
			*(*uint32)(unsafe.Add(dst, i*step+j*4)) = v
		}
	}
}
