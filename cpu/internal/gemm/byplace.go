package gemm

import "sync"

// byPlace computes a convolution of many small images, or the gradient of its input, place by
// place. A place is the position of an element in an image. The columns of the matrix products are
// the images. The source is the input, or the gradient of the result. It is transposed once, to
// [chunk of images, place, channel, image of the chunk]. A place of the result is then a sum of
// matrix products, one for each tap. A tap is an element of the convolution's kernel. Each product
// multiplies a panel of weights by the channels at one place of the source, which is not copied. A
// tap that falls into the padding has no product.
type byPlace struct {
	kern         *kernel32
	win          *spanKernel
	n            int
	groups       int
	channels     int // number of channels of a group, over which the sums run
	rows         int // number of rows of a group's result, one for each output channel
	x, y         []float32
	sourcePlaces int // number of places in an image of the source
	places       int // number of places in an image of the result
	pairs        pairs
	used         []int // taps that read the source for at least one place
	w            []float32
	rs, cs       int // distances in w between neighbouring rows and between neighbouring channels
	taps         int

	chunks, panels int
	block          int // number of channels in a block of the sum
	panelsPerTask  int // number of panels of weights in a task
	parts          int // number of parts into which the places are divided
	perPack        int // number of channels that a packing task transposes
	packs          int // number of packing tasks for a chunk
	a, src         []float32
}

const (
	// Largest number of elements of a chunk of the source. The chunk may exceed the second-level
	// cache, because the taps of one place read elements near each other.
	placeSource = 1 << 19
	// number of elements that a task's result should have: it then stays in the cache
	placeResult = 1 << 15
)

// pairs holds a list of pairs of offsets for each key. A pair stands for one product, and the
// products of a list are added up.
type pairs struct{ begin, list []int }

func (p *pairs) get(key int) []int { return p.list[p.begin[key]:p.begin[key+1]] }

// pair calls f for each place q of the result and each tap t that reads a place p of the input. It
// visits all places for one tap, then those for the next tap.
func (c *Conv) pair(f func(q, t, p int)) {
	for t := range c.taps() {
		k := [3]int{t / (c.Kernel[1] * c.Kernel[2]), t / c.Kernel[2] % c.Kernel[1], t % c.Kernel[2]}
		for i := range k {
			k[i] = k[i]*c.Dilation[i] - c.Before[i]
		}
		for z := range c.Out[0] {
			pz := z*c.Stride[0] + k[0]
			if pz < 0 || pz >= c.In[0] {
				continue
			}
			for y := range c.Out[1] {
				py := y*c.Stride[1] + k[1]
				if py < 0 || py >= c.In[1] {
					continue
				}
				for x := range c.Out[2] {
					if px := x*c.Stride[2] + k[2]; px >= 0 && px < c.In[2] {
						f((z*c.Out[1]+y)*c.Out[2]+x, t, (pz*c.In[1]+py)*c.In[2]+px)
					}
				}
			}
		}
	}
}

// spans returns n lists of pairs of offsets, one list for each key. For place q of the result, tap
// t and place p of the input, the function keyOf returns the key and the pair.
func (c *Conv) spans(n int, keyOf func(q, t, p int) (key, a, b int)) (l pairs) {
	l.begin = make([]int, n+2)
	c.pair(func(q, t, p int) {
		key, _, _ := keyOf(q, t, p)
		l.begin[key+2] += 2
	})
	for i := range n {
		l.begin[i+2] += l.begin[i+1]
	}
	l.list = make([]int, l.begin[n+1])
	c.pair(func(q, t, p int) {
		key, a, b := keyOf(q, t, p)
		at := l.begin[key+1]
		l.list[at], l.list[at+1] = a, b
		l.begin[key+1] += 2
	})
	return l
}

// used returns the indices of the taps that read the input for at least one place. The second
// result maps each tap to its position in this list.
func (c *Conv) used() (list, index []int) {
	index = make([]int, c.taps())
	c.pair(func(_, t, _ int) { index[t] = 1 })
	for t, is := range index {
		if is > 0 {
			index[t] = len(list)
			list = append(list, t)
		}
	}
	return list, index
}

// small reports whether there are enough images to fill vectors, and whether a chunk of them fits
// into the cache. The arguments channels and places are the sizes of one image.
func (c *Conv) small(channels, places int) bool {
	width := active32().width
	return channels*places*width <= placeSource && 4*ceil(c.N, width)*width <= 5*c.N
}

type placeBuffer struct{ a, src []float32 }

var placeBuffers sync.Pool

// forwardByPlace does the same as [Conv.Forward], place by place. If another method is faster, it
// does nothing and returns false.
func (c *Conv) forwardByPlace(par Parallel, y, x, w []float32) bool {
	if !c.small(c.Channels, size(c.In)) || c.Channels/c.Groups < 8 || !finite(par, w) {
		return false
	}
	used, index := c.used()
	j := &byPlace{x: x, y: y, w: w, channels: c.Channels / c.Groups, rows: c.Outputs / c.Groups, sourcePlaces: size(c.In), places: size(c.Out), used: used}
	j.rs, j.cs = j.channels*c.taps(), c.taps()
	c.byPlace(par, j, func(q, t, p int) (key, tap, from int) { return q, index[t], p })
	return true
}

// dataByPlace does the same as [Conv.Data], place by place. If another method is faster, it does
// nothing and returns false.
func (c *Conv) dataByPlace(par Parallel, dx, g, w []float32) bool {
	if !c.small(c.Outputs, size(c.Out)) || c.Outputs/c.Groups < 8 {
		return false
	}
	used, index := c.used()
	j := &byPlace{x: g, y: dx, w: w, channels: c.Outputs / c.Groups, rows: c.Channels / c.Groups, sourcePlaces: size(c.Out), places: size(c.In), used: used}
	j.rs, j.cs = c.taps(), j.rows*c.taps()
	c.byPlace(par, j, func(q, t, p int) (key, tap, from int) { return p, index[t], q })
	return true
}

func (c *Conv) byPlace(par Parallel, j *byPlace, keyOf func(q, t, p int) (key, tap, from int)) {
	j.kern, j.win, j.n, j.groups, j.taps = active32(), activeSpans(), c.N, c.Groups, c.taps()
	width, height, stride := j.kern.width, j.kern.height, j.kern.stride
	j.pairs = c.spans(j.places, func(q, t, p int) (key, a, b int) {
		key, a, b = keyOf(q, t, p)
		return key, a * stride, b * j.groups * j.channels * width
	})
	if len(j.pairs.list) == 0 {
		clear(j.y)
		return
	}
	j.chunks, j.panels = ceil(j.n, width), ceil(j.rows, height)
	j.block = ceil(j.channels, ceil(j.channels, max(1, j.kern.block/len(j.used))))
	j.panelsPerTask = min(j.panels, ceil(2*j.win.group, height*j.places))
	j.parts = ceil(j.places, max(1, placeResult/(j.panelsPerTask*height*width)))
	if tasks := j.chunks * j.groups * ceil(j.panels, j.panelsPerTask); tasks*j.parts < minTasks {
		j.parts = max(j.parts, min(ceil(minTasks, tasks), j.places/j.win.group))
	}
	all := j.groups * j.channels
	j.perPack = max(1, packWork/(j.sourcePlaces*width))
	j.packs = ceil(all, j.perPack)

	buf, _ := placeBuffers.Get().(*placeBuffer)
	if buf == nil {
		buf = &placeBuffer{}
	}
	defer placeBuffers.Put(buf)
	buf.a = aligned(buf.a, j.groups*j.panels*j.channels*len(j.used)*stride)
	buf.src = aligned(buf.src, j.chunks*j.sourcePlaces*all*width)
	j.a, j.src = buf.a, buf.src
	if j.n*all*j.rows*len(j.used)*j.places < parallelWork {
		par = Serial
	}
	par(j.groups*j.panels+j.chunks*j.packs, j.pack)
	par(j.chunks*j.groups*ceil(j.panels, j.panelsPerTask)*j.parts, j.task)
}

// panel returns the number of the first row of panel p of the weights, and how many rows the panel
// has.
func (j *byPlace) panel(p int) (row, h int) {
	row = j.rows * p / j.panels
	return row, j.rows*(p+1)/j.panels - row
}

// pack runs packing task i. It packs a panel of weights, or transposes some channels of a chunk of
// images.
func (j *byPlace) pack(i int) {
	if i < j.groups*j.panels {
		j.packA(i)
		return
	}
	i -= j.groups * j.panels
	chunk, c0 := i/j.packs, i%j.packs*j.perPack
	width, all := j.kern.width, j.groups*j.channels
	c1 := min(c0+j.perPack, all)
	var rows [64]int
	for r := range width {
		rows[r] = min(chunk*width+r, j.n-1) * all * j.sourcePlaces
	}
	if j.sourcePlaces == 1 {
		j.win.transposed(j.src[(chunk*all+c0)*width:], width, j.x[c0:], rows[:width], c1-c0)
		return
	}
	for c := c0; c < c1; c++ {
		j.win.transposed(j.src[(chunk*j.sourcePlaces*all+c)*width:], all*width, j.x[c*j.sourcePlaces:], rows[:width], j.sourcePlaces)
	}
}

// packA packs panel i of the weights. For each channel and tap, the panel holds the weights of all
// its rows next to each other.
func (j *byPlace) packA(i int) {
	stride, taps := j.kern.stride, len(j.used)
	row, h := j.panel(i % j.panels)
	dst := j.a[i*j.channels*taps*stride:][:j.channels*taps*stride]
	w := j.w[i/j.panels*j.rows*j.channels*j.taps+row*j.rs:]
	var rows [64]int
	for r := range stride {
		rows[r] = min(r, h-1) * j.rs
	}
	switch {
	case taps == j.taps && j.cs == taps:
		j.win.transposed(dst, stride, w, rows[:stride], j.channels*taps)
	case taps == j.taps && taps >= 4:
		for c := range j.channels {
			j.win.transposed(dst[c*taps*stride:], stride, w[c*j.cs:], rows[:stride], taps)
		}
	case j.taps == 1:
		for c := range j.channels {
			copy(dst[c*stride:][:stride], w[c*j.cs:][:h])
		}
	default:
		for c := range j.channels {
			from := w[c*j.cs:]
			for u, t := range j.used {
				to := dst[(c*taps+u)*stride:][:stride]
				for r := range to {
					to[r] = from[rows[r]+t]
				}
			}
		}
	}
}

// task computes some panels of the result, at some places of a chunk of images.
func (j *byPlace) task(i int) {
	part, i := i%j.parts, i/j.parts
	tasks := ceil(j.panels, j.panelsPerTask)
	pa, i := i%tasks*j.panelsPerTask, i/tasks
	g, chunk := i%j.groups, i/j.groups
	q0, q1 := j.places*part/j.parts, j.places*(part+1)/j.parts
	pb := min(pa+j.panelsPerTask, j.panels)
	first, _ := j.panel(pa)
	last, h := j.panel(pb - 1)
	last += h
	width, stride, taps, all := j.kern.width, j.kern.stride, len(j.used), j.groups*j.channels
	l := columnsLocal()
	defer columnLocals.Put(l)
	l.panels = aligned(l.panels, (last-first)*(q1-q0)*width)
	for p := pa; p < pb; p++ {
		row, h := j.panel(p)
		sums := l.panels[(row-first)*(q1-q0)*width:]
		for c0 := 0; c0 < j.channels; c0 += j.block {
			a := &j.a[((g*j.panels+p)*j.channels+c0)*taps*stride]
			b := &j.src[(chunk*j.sourcePlaces*all+g*j.channels+c0)*width]
			how := min(c0, 1)
			for q := q0; q < q1; q++ {
				tile := sums[(q-q0)*h*width:][:h*width]
				list := j.pairs.get(q)
				if len(list) == 0 {
					clear(tile)
					continue
				}
				j.win.spans[h](&list[0], len(list)/2, min(j.block, j.channels-c0), a, taps*stride, b, width, &tile[0], width, how)
			}
		}
	}
	// Transpose the sums: the results of an image are contiguous in the result.
	l.offs = l.offs[:0]
	for p := pa; p < pb; p++ {
		row, h := j.panel(p)
		for r := range h {
			for q := range q1 - q0 {
				l.offs = append(l.offs, ((row-first)*(q1-q0)+q*h+r)*width)
			}
		}
	}
	some := q1 - q0 // number of contiguous results
	if j.parts == 1 {
		some *= last - first
	}
	images, ldd := min(width, j.n-chunk*width), j.groups*j.rows*j.places
	at := (chunk*width*j.groups*j.rows+g*j.rows+first)*j.places + q0
	for n := 0; n < len(l.offs); n += some {
		j.put(j.y[at+n/some*j.places:], ldd, l.panels, l.offs[n:n+some], images)
	}
}

// put transposes like spanKernel.transposed, but for any number of rows. It changes no other
// elements of dst.
func (j *byPlace) put(dst []float32, ldd int, src []float32, rows []int, k int) {
	group := j.win.group
	if len(rows) < group {
		for p := range k {
			for r, row := range rows {
				dst[p*ldd+r] = src[row+p]
			}
		}
		return
	}
	for r := 0; r < len(rows); r += group {
		r := min(r, len(rows)-group) // the last group of rows overlaps the one before it
		j.win.transposed(dst[r:], ldd, src, rows[r:r+group], k)
	}
}
