package gemm

import "sync"

// Conv describes a convolution of float32; its methods compute the result and the gradients. They
// never write the matrix of columns (im2col) to memory as a whole: they pack panels of columns from
// the input when they need them. x is [N, Channels, In…], w [Outputs, Channels/Groups, Kernel…], y
// [N, Outputs, Out…], all contiguous. With fewer than three spatial dimensions, the leading sizes
// are 1. For a given variant, the order of sums depends only on the fields of Conv.
type Conv struct {
	N, Groups, Channels, Outputs int
	// Before is the number of zeros before the first element. The other fields determine the number
	// of zeros after the last element.
	In, Kernel, Stride, Dilation, Before, Out [3]int
}

func (c *Conv) taps() int { return size(c.Kernel) }

// inputGrid describes the elements of x that the windows read.
func (c *Conv) inputGrid(x []float32) windowGrid {
	s := windowGrid{src: x, n: c.N, groups: c.Groups, channels: c.Channels / c.Groups, in: c.In, places: c.Out, step: c.Stride}
	for z := range c.Kernel[0] {
		for y := range c.Kernel[1] {
			for x := range c.Kernel[2] {
				s.taps = append(s.taps, [3]int{z*c.Dilation[0] - c.Before[0], y*c.Dilation[1] - c.Before[1], x*c.Dilation[2] - c.Before[2]})
			}
		}
	}
	s.bound()
	return s
}

// gradientGrid describes those elements of y that the gradient of a part of x reads. The part
// consists of the elements of x whose coordinates are r modulo the stride. It also returns the
// indices of the kernel elements with which the elements of y are multiplied.
func (c *Conv) gradientGrid(g []float32, r [3]int) (s windowGrid, kernel []int) {
	s = windowGrid{src: g, n: c.N, groups: c.Groups, channels: c.Outputs / c.Groups, in: c.Out, step: [3]int{1, 1, 1}}
	var at [3][][2]int // for each dimension, pairs of a kernel element and its offset in y
	for a := range 3 {
		s.places[a] = ceil(c.In[a]-r[a], c.Stride[a])
		for k := range c.Kernel[a] {
			if d := r[a] + c.Before[a] - c.Dilation[a]*k; d%c.Stride[a] == 0 {
				at[a] = append(at[a], [2]int{k, d / c.Stride[a]})
			}
		}
	}
	for _, z := range at[0] {
		for _, y := range at[1] {
			for _, x := range at[2] {
				kernel = append(kernel, (z[0]*c.Kernel[1]+y[0])*c.Kernel[2]+x[0])
				s.taps = append(s.taps, [3]int{z[1], y[1], x[1]})
			}
		}
	}
	s.bound()
	return s, kernel
}

// Forward sets y to the convolution of x with w.
func (c *Conv) Forward(par Parallel, y, x, w []float32) {
	if len(y) == 0 {
		return
	}
	if len(x) == 0 || len(w) == 0 {
		clear(y)
		return
	}
	if c.forwardByTiles(par, y, x, w) || c.forwardByPlace(par, y, x, w) {
		return
	}
	j := newColumns(c.inputGrid(x), c.Outputs/c.Groups)
	j.dst, j.dstChannel = y, size(c.Out)
	j.dstStep = [3]int{c.Out[1] * c.Out[2], c.Out[2], 1}
	k := j.k
	j.packA = func(dst []float32, g, row, h, k0, kc int) {
		j.kern.pack(dst, j.kern.stride, w[(g*j.m+row)*k+k0:], k, 1, h, kc)
	}
	if j.n*size(j.places) <= fewPlaces {
		j.weights, j.panelsA = w, ceil(j.m, len(j.win.window)-1)
	}
	if j.channels == 1 && j.m == 1 {
		j.direct(par, func(g int, dst []float32) { copy(dst, w[g*k:]) })
		return
	}
	j.run(par)
}

// columns computes a convolution as a product of weights with the matrix of columns (im2col).
type columns struct {
	windowGrid
	kern    *kernel32
	win     *windowKernel
	m, k    int // for one group: number of rows of the weights, and length of the sum
	block   int // length of a block of k: a whole number of channels
	packA   func(dst []float32, group, row, h, k0, kc int)
	panelsA int
	bufA    []float32
	// if not nil, the kernel reads the weights A in place; packing them would take too long
	weights []float32
	// tapFirst selects the order of k within a block. A tap is an element of the convolution's
	// kernel. If tapFirst is true, all channels of the first tap come first, then those of the next
	// tap. Otherwise all taps of the first channel come first, then those of the next channel.
	tapFirst bool

	dst        []float32
	dstChannel int
	dstAt      int
	dstStep    [3]int
	division   division
	splitA     int // number of parts into which the panels of A are divided
	// packed columns for a block of k, if several tasks use them; each unit has unitSize elements
	shared   []float32
	unitSize int
}

const (
	unitPlaces   = 1024 // greatest number of the results' places in a unit of columns
	columnPanels = 8    // number of panels of columns that are packed at once
	// packing one row of a panel of columns takes as long as multiplying it with this many rows of
	// A
	packRow = 16
	// number of elements of A up to which A stays in the second-level cache together with the
	// copied input
	fewWeights = 1 << 17
	// With at most this many places, A is read in place: packing it would not pay.
	fewPlaces = 128
	// Several tasks use the same packed columns of a block of k only if these have at most this
	// many elements.
	sharedColumns = 1 << 19
	// number of tasks that pack the shared columns of a unit; each copies the input that it reads
	shareSplit = 4
	// greatest number of tasks that read the same shared columns, each for different rows
	finestSplit = 16
)

func newColumns(s windowGrid, m int) *columns {
	j := &columns{windowGrid: s, kern: active32(), win: activeWindows(), m: m, k: s.channels * len(s.taps)}
	j.block = min(s.channels, max(1, j.kern.block/len(s.taps))) * len(s.taps)
	j.panelsA = ceil(m, j.kern.height)
	j.division = s.divide(unitPlaces, func(images, units int) int {
		width, whole := j.kern.width, size(s.places)
		panels := s.n/images*ceil(images*whole, width) + ceil(s.n%images*whole, width)
		return panels * (m + packRow*j.split(units))
	})
	return j
}

// split returns the number of parts into which the rows are divided, so that there are enough tasks
// for the workers.
func (j *columns) split(units int) int {
	return min(j.panelsA, ceil(minTasks, units*j.groups))
}

// rows returns the number of the first row of panel p of A, and how many rows the panel has. Panels
// differ by at most one row.
func (j *columns) rows(p int) (row, h int) {
	h, longer := j.m/j.panelsA, j.m%j.panelsA
	if p < longer {
		return p * (h + 1), h + 1
	}
	return p*h + longer, h
}

func (j *columns) blockA(g, p, k0, kc int) []float32 {
	if j.weights != nil {
		row, _ := j.rows(p)
		return j.weights[(g*j.m+row)*j.k+k0:]
	}
	return j.bufA[(g*j.panelsA*j.k+j.panelsA*k0+p*kc)*j.kern.stride:]
}

var columnBuffers, columnLocals sync.Pool

type columnBuffer struct{ a, shared []float32 }

func (j *columns) run(par Parallel) {
	kern := j.kern
	buf, _ := columnBuffers.Get().(*columnBuffer)
	if buf == nil {
		buf = &columnBuffer{}
	}
	defer columnBuffers.Put(buf)
	small := j.n*j.groups*j.m*j.k*size(j.places) < parallelWork
	if j.weights == nil {
		buf.a = aligned(buf.a, j.groups*j.panelsA*j.k*kern.stride)
		j.bufA = buf.a
		packs := par
		if j.groups*j.m*j.k < packWork {
			packs = Serial
		}
		packs(j.groups*j.panelsA, j.pack)
	}
	tasks := j.groups * j.division.units
	j.splitA = j.split(j.division.units)
	if small {
		par = Serial
	}
	// There is room after the panels of a unit, because a copied piece may end beyond a panel.
	panels := ceil(max(1, j.division.images)*size(j.places), kern.width)
	j.unitSize = panels * (j.block*kern.width + 2*overread)
	if j.splitA == 1 || tasks*j.unitSize > sharedColumns {
		par(tasks*j.splitA, func(i int) { j.task(i, 0, j.k) })
		return
	}
	buf.shared = aligned(buf.shared, tasks*j.unitSize)
	j.shared = buf.shared
	j.splitA = ceil(j.panelsA, ceil(j.panelsA, finestSplit))
	for k0 := 0; k0 < j.k; k0 += j.block {
		par(tasks*shareSplit, func(i int) { j.share(i, k0) })
		par(tasks*j.splitA, func(i int) { j.task(i, k0, min(k0+j.block, j.k)) })
	}
}

// share packs some panels of a unit for one block of k. It copies only the input that these panels
// need.
func (j *columns) share(i, k0 int) {
	part, i := i%shareSplit, i/shareSplit
	g, u := i%j.groups, j.unit(j.division, i/j.groups)
	all := u.images * size(u.sizes())
	panels := ceil(all, j.kern.width)
	first, last := panels*part/shareSplit, panels*(part+1)/shareSplit
	if first == last {
		return
	}
	skip, end := u.restrict(first*j.kern.width, min(last*j.kern.width, all))
	kc, taps := min(j.block, j.k-k0), len(j.taps)
	l := columnsLocal()
	defer columnLocals.Put(l)
	layout := j.layout(&u, overread)
	j.cut(l, &layout, &u, skip, end)
	l.copied = j.locate(&layout, j.win, &u, g, k0/taps, (k0+kc)/taps, l.copied)
	l.offs = j.offsets(&layout, kc/taps, j.tapFirst, l.offs)
	for p := range last - first {
		j.packColumns(l, &layout, p, kc, j.shared[i*j.unitSize+(first+p)*(kc*j.kern.width+2*overread):])
	}
}

// packColumns packs panel p of a unit.
func (j *columns) packColumns(l *columnLocal, layout *inputLayout, p, kc int, dst []float32) {
	list := l.pieces[2*l.panel[p].piece : 2*l.panel[p+1].piece]
	f, n := j.win.pieces[0], len(list)/2
	if n < len(j.win.pieces) && j.win.pieces[n] != nil {
		f = j.win.pieces[n]
	}
	f(&dst[0], &layout.data[layout.at], &l.offs[0], kc, &list[0], n)
}

func (j *columns) pack(i int) {
	g, p := i/j.panelsA, i%j.panelsA
	row, h := j.rows(p)
	for k0 := 0; k0 < j.k; k0 += j.block {
		kc := min(j.block, j.k-k0)
		j.packA(j.blockA(g, p, k0, kc), g, row, h, k0, kc)
	}
}

// run is a range of n places of a panel whose results are contiguous. lane is the number of the
// first place's column in the panel, and index is the index of its result.
type run struct{ lane, n, index int }

// columnLocal is the temporary memory of one task.
type columnLocal struct {
	copied, panels []float32
	offs, lines    []int
	// pieces of all panels of a unit: pairs of an offset in the source and an offset in the panel
	pieces []int
	runs   []run
	panel  []columnPanel
	tile   [512]float32
}

// columnPanel describes a panel by its first piece, its first run and its number of places.
type columnPanel struct{ piece, run, width int }

func columnsLocal() *columnLocal {
	if l, ok := columnLocals.Get().(*columnLocal); ok {
		return l
	}
	return &columnLocal{}
}

// task multiplies some panels of A with the columns of a unit, for the blocks from k0 to k1.
func (j *columns) task(i, k0, k1 int) {
	kern := j.kern
	part, i := i%j.splitA, i/j.splitA
	g, u := i%j.groups, j.unit(j.division, i/j.groups)
	first, last := j.panelsA*part/j.splitA, j.panelsA*(part+1)/j.splitA
	l := columnsLocal()
	defer columnLocals.Put(l)
	layout := j.layout(&u, overread)
	j.cut(l, &layout, &u, 0, u.images*size(u.sizes()))
	taps := len(j.taps)
	tile := columnPanels
	if (last-first)*j.block*kern.stride <= fewWeights {
		// multiply a packed panel of columns with all panels of A before the next is packed
		tile = 1
	}
	l.panels = aligned(l.panels, tile*j.block*kern.width+2*overread)
	base := g * j.m
	for ; k0 < k1; k0 += j.block {
		kc := min(j.block, k1-k0)
		panels, distance := l.panels, kc*kern.width
		if j.shared == nil {
			l.copied = j.locate(&layout, j.win, &u, g, k0/taps, (k0+kc)/taps, l.copied)
			l.offs = j.offsets(&layout, kc/taps, j.tapFirst, l.offs)
		}
		for p0 := 0; p0 < len(l.panel)-1; p0 += tile {
			p1 := min(p0+tile, len(l.panel)-1)
			if j.shared != nil {
				distance = kc*kern.width + 2*overread
				panels = j.shared[i*j.unitSize+p0*distance:]
			} else {
				for p := p0; p < p1; p++ {
					j.packColumns(l, &layout, p, kc, l.panels[(p-p0)*distance:])
				}
			}
			for pa := first; pa < last; pa++ {
				row, h := j.rows(pa)
				a := &j.blockA(g, pa, k0, kc)[0]
				for p := p0; p < p1; p++ {
					j.multiply(l, l.panel[p:p+2], kc, h, base+row, a, &panels[(p-p0)*distance], k0 > 0)
				}
			}
		}
	}
}

// cut divides the places start to stop-1 of a unit into panels. For each panel it lists the pieces
// of the input from which it is packed, and the runs of places whose results are contiguous.
func (j *columns) cut(l *columnLocal, layout *inputLayout, u *unit, start, stop int) {
	width, lanes := j.kern.width, j.win.lanes
	l.pieces, l.runs, l.panel = l.pieces[:0], l.runs[:0], l.panel[:0]
	n := u.sizes()
	left := stop - start
	// coordinates of the current place; row is the one along the last dimension
	row, y, z, image := start%n[2], start/n[2]%n[1], start/(n[2]*n[1])%n[0], start/size(n)
	for left > 0 {
		w := min(width, left)
		left -= w
		l.panel = append(l.panel, columnPanel{len(l.pieces) / 2, len(l.runs), w})
		start, begun, next, end := 0, 0, -1, -1
		flush := func(lane int) {
			for at := begun; at < lane; at += lanes {
				l.pieces = append(l.pieces, start+at-begun, at)
			}
		}
		for lane := 0; lane < w; {
			m := min(w-lane, n[2]-row)
			at := j.place(layout, image, z, y, row)
			if at != next {
				if next >= 0 {
					flush(lane)
				}
				start, begun = at, lane
			}
			next = at + m
			stop := (u.image+image)*j.groups*j.m*j.dstChannel + j.dstAt + (u.from[0]+z)*j.dstStep[0] + (u.from[1]+y)*j.dstStep[1] + (u.from[2]+row)*j.dstStep[2]
			if stop == end && j.dstStep[2] == 1 {
				l.runs[len(l.runs)-1].n += m
			} else {
				l.runs = append(l.runs, run{lane, m, stop})
			}
			end = stop + m*j.dstStep[2]
			lane += m
			if row += m; row == n[2] {
				row, y = 0, y+1
				if y == n[1] {
					y, z = 0, z+1
					if z == n[0] {
						z, image = 0, image+1
					}
				}
			}
		}
		flush(w)
	}
	l.panel = append(l.panel, columnPanel{len(l.pieces) / 2, len(l.runs), 0})
}

// multiply computes a tile of results: the places of a panel for h output channels. The argument
// channel is the first of these channels. panel[0] describes the panel, and panel[1] the next
// panel.
func (j *columns) multiply(l *columnLocal, panel []columnPanel, kc, h, channel int, a, b *float32, add bool) {
	kern := j.kern
	runs := l.runs[panel[0].run:panel[1].run]
	w := panel[0].width
	switch {
	case j.weights != nil:
		var rows [12]int
		for r := range h {
			rows[r] = r * j.k
		}
		line := 0
		if len(runs) == 1 && j.dstStep[2] == 1 && w == kern.width {
			// The kernel can only add to the memory of the result. Set it to 0 first if the sums
			// begin here.
			at := runs[0].index + channel*j.dstChannel
			for r := 0; r < h && !add; r++ {
				clear(j.dst[at+r*j.dstChannel:][:w])
			}
			j.win.window[h](a, &rows, &line, 1, kc, b, &j.dst[at], j.dstChannel)
			return
		}
		clear(l.tile[:h*kern.width])
		j.win.window[h](a, &rows, &line, 1, kc, b, &l.tile[0], kern.width)
	case len(runs) == 1 && j.dstStep[2] == 1 && (kern.masked || w == kern.width):
		how := 0
		if add {
			how = 1
		}
		kern.micro[h](kc, a, b, kern.width, &j.dst[runs[0].index+channel*j.dstChannel], j.dstChannel, w, how, a)
		return
	default:
		kern.micro[h](kc, a, b, kern.width, &l.tile[0], kern.width, kern.width, 0, a)
	}
	step := j.dstStep[2]
	for r := range h {
		row := l.tile[r*kern.width:]
		for _, q := range runs {
			from, at := row[q.lane:q.lane+q.n], q.index+(channel+r)*j.dstChannel
			switch {
			case step == 1 && add:
				to := j.dst[at : at+len(from)]
				for i, v := range from {
					to[i] += v
				}
			case step == 1:
				copy(j.dst[at:at+len(from)], from)
			default:
				for _, v := range from {
					put(j.dst, at, v, add)
					at += step
				}
			}
		}
	}
}

// direct computes convolutions whose groups have one channel and one output channel, so that each
// sum has few products. It computes a row of places at a time.
func (j *columns) direct(par Parallel, weights func(g int, dst []float32)) {
	d := division{images: 1, parts: 1, units: j.n}
	if j.n*j.groups*j.k*size(j.places) < parallelWork {
		par = Serial
	}
	some := max(1, packWork/(j.k*size(j.places))) // number of groups in a task
	tasks := ceil(j.groups, some)
	par(d.units*tasks, func(i int) {
		u := j.unit(d, i/tasks)
		l := columnsLocal()
		defer columnLocals.Put(l)
		layout := j.layout(&u, overread)
		l.offs = j.offsets(&layout, 1, false, l.offs)
		l.panels = aligned(l.panels, j.k)
		n, step := u.sizes(), j.dstStep
		for g := i % tasks * some; g < min((i%tasks+1)*some, j.groups); g++ {
			weights(g, l.panels[:j.k])
			l.copied = j.locate(&layout, j.win, &u, g, 0, 1, l.copied)
			to := (u.image*j.groups+g)*j.dstChannel + j.dstAt
			whole := 0
			if step[2] == 1 {
				whole = n[2] - n[2]%j.win.lanes
			}
			for z := range n[0] {
				for y := range n[1] {
					at, from := to+z*step[0]+y*step[1], layout.at+j.place(&layout, 0, z, y, 0)
					if whole > 0 {
						j.win.taps(&j.dst[at], &layout.data[from], &l.offs[0], &l.panels[0], j.k, whole)
					}
					for x := whole; x < n[2]; x += j.win.lanes {
						j.win.taps(&l.tile[0], &layout.data[from+x], &l.offs[0], &l.panels[0], j.k, j.win.lanes)
						m := min(j.win.lanes, n[2]-x)
						if step[2] == 1 {
							copy(j.dst[at+x:at+x+m], l.tile[:m])
							continue
						}
						for i, v := range l.tile[:m] {
							j.dst[at+(x+i)*step[2]] = v
						}
					}
				}
			}
		}
	})
}
