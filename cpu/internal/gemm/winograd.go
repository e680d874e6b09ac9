package gemm

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// winograd computes a convolution of images with 3×3 weights, or the gradient of its input, by
// Winograd's form F(2×2, 3×3): see Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks" (2016). A tile of 2×2 results takes 16 multiplications for each channel; the definition
// takes 36. Tiles of 4×4 inputs are transformed. Then there are 16 matrix products of transformed
// weights with transformed tiles, and the products are transformed back.
//
// The transforms add neighbouring elements. An element of the input that is infinite or NaN thus
// affects all results of its tile, and rounding errors grow with the largest element of a tile. If
// a result is not finite, or an element is very large beside the others, the convolution is
// computed as a product with columns.
type winograd struct {
	kern    *kernel32
	win     *winogradKernel
	x, y, w []float32
	// channels and rows are the numbers of input and of output channels of one group
	n, groups, channels, rows int
	in, out, before, tiles    [2]int
	// for the gradient of the input: the weights are transposed and reversed
	flipped bool
	panels  int // number of panels of weights in a group
	// number of rows of tiles in a unit, and number of units in a group
	unit, units int
	lanes       int // number of tiles in a unit, rounded up to whole panels
	pitch       int // distance between the transformed tiles of two channels
	// distances between the 16 matrices of weights, of tiles, and of products
	apartU, apartV, apartM int
	chunks                 []winogradChunk
	seen                   [16]int // for each lane, how many elements of a row it reads
	u                      []float32
	broken                 atomic.Bool // set if another method must compute the results
}

// winogradChunk holds masks for up to 16 neighbouring tiles of a row: which elements lie inside the
// images.
type winogradChunk struct {
	source [5]uint16
	result [4]uint16
}

// winogradKernel holds a variant's transforms. cpu/_gen/gemm describes their parameters.
type winogradKernel struct {
	lanes   int  // number of tiles in a vector
	masked  bool // whether source writes no lanes after a row of tiles
	source  func(dst *float32, apart, ldd int, rows *[4]uintptr, steps *[4]int, masks *[5]uint16, ahead, k int, seen *[32]float32)
	weights func(dst *float32, apart int, src *float32, tap, k int)
	result  func(dst *float32, pitch, distance int, src *float32, apart, lds int, masks *[4]uint16, k int)
}

const (
	// limit of the number of transformed elements of a unit: that many stay in the second-level
	// cache
	winogradTile  = 1 << 18
	winogradLanes = 16 // number of tiles that a transform handles at once
	// An element may be this many times as large as a typical element of a unit (see the method
	// even). The rounding errors that it causes in neighbouring results are then below a thousandth
	// of the typical element.
	winogradRange = 4096
)

type winogradBuffer struct{ u []float32 }

type winogradLocal struct {
	v, m, src []float32
	// sums and maxima of the magnitudes of the elements of a unit's images
	seen [32]float32
	// parameters of the transforms; as local variables they would be moved to the heap in each call
	rows  [4]uintptr
	steps [4]int
	masks [4]uint16
}

var winogradBuffers, winogradLocals sync.Pool

func newWinogradLocal() *winogradLocal {
	if l, ok := winogradLocals.Get().(*winogradLocal); ok {
		return l
	}
	return &winogradLocal{}
}

// forwardByTiles computes Forward by Winograd's form. It returns false if another method is faster
// or more exact. In this case the contents of y are undefined.
func (c *Conv) forwardByTiles(par Parallel, y, x, w []float32) bool {
	j := winograd{x: x, y: y, w: w, channels: c.Channels / c.Groups, rows: c.Outputs / c.Groups,
		in: [2]int(c.In[1:]), out: [2]int(c.Out[1:]), before: [2]int(c.Before[1:])}
	return c.byTiles(par, &j)
}

// dataByTiles computes Data by Winograd's form. It returns false if another method is faster or
// more exact. In this case the contents of dx are undefined.
func (c *Conv) dataByTiles(par Parallel, dx, g, w []float32) bool {
	j := winograd{x: g, y: dx, w: w, channels: c.Outputs / c.Groups, rows: c.Channels / c.Groups, flipped: true,
		in: [2]int(c.Out[1:]), out: [2]int(c.In[1:]), before: [2]int{2 - c.Before[1], 2 - c.Before[2]}}
	return c.byTiles(par, &j)
}

// products counts pairs of a tap (an element of the kernel) and a place of the result, for one
// image. It counts only the pairs in which the tap reads the input and not the padding.
func (c *Conv) products() int {
	n := 1
	for i, kernel := range c.Kernel {
		inside := 0
		for k := range kernel {
			for out := range c.Out[i] {
				if at := out*c.Stride[i] + k*c.Dilation[i] - c.Before[i]; at >= 0 && at < c.In[i] {
					inside++
				}
			}
		}
		n *= inside
	}
	return n
}

func (c *Conv) byTiles(par Parallel, j *winograd) bool {
	j.win = winogradKernels[asm.Active()]
	if j.win == nil || c.Kernel != [3]int{1, 3, 3} || c.Stride != [3]int{1, 1, 1} || c.Dilation != [3]int{1, 1, 1} || c.In[0] != 1 || c.Out[0] != 1 {
		return false
	}
	j.kern, j.n, j.groups = active32(), c.N, c.Groups
	j.tiles = [2]int{ceil(j.out[0], 2), ceil(j.out[1], 2)}
	other := 9 * j.out[0] * j.out[1]
	if c.small(j.groups*j.channels, j.in[0]*j.in[1]) { // computing by place skips the padding
		other = c.products()
	}
	if !j.pays(other) {
		return false
	}
	if j.n*j.groups*j.channels*j.rows*4*j.tiles[0]*j.tiles[1] < parallelWork {
		par = Serial
	}
	j.prepare()
	buf, _ := winogradBuffers.Get().(*winogradBuffer)
	if buf == nil {
		buf = &winogradBuffer{}
	}
	defer winogradBuffers.Put(buf)
	buf.u = aligned(buf.u, j.groups*j.panels*16*j.apartU)
	j.u = buf.u
	par(j.groups*j.panels, j.pack)
	par(j.groups*j.units, j.task)
	return !j.broken.Load()
}

// pays reports whether Winograd's form is faster than another method. It compares estimates of both
// times, counted in multiplications for each pair of an input channel and an output channel. The
// argument other is the number of multiplications of the other method, for one image.
func (j *winograd) pays(other int) bool {
	if min(j.channels, j.rows) < winogradLanes || j.tiles[1]*16*j.channels > winogradTile {
		return false
	}
	tiles := float64(j.n * j.tiles[0] * j.tiles[1])
	if tiles < 4*winogradLanes {
		return false
	}
	filled := float64(j.tiles[1]) / float64(ceil(j.tiles[1], j.win.lanes)*j.win.lanes)
	form := 16*tiles*(1+6/(float64(j.rows)*filled)+6/(float64(j.channels)*filled)) + 160
	// each unit reads the weights from the third-level cache
	if j.channels*j.rows*16 > winogradTile {
		form += 256 * math.Ceil(tiles/float64(j.cached()))
	}
	return 1.15*form < float64(j.n*other)
}

// cached returns how many transformed tiles, of all channels, fit into the second-level cache.
func (j *winograd) cached() int {
	most := winogradTile / 16 / j.channels
	return max(most/2, min(2*j.kern.width, most))
}

func (j *winograd) prepare() {
	width := j.kern.width
	j.panels = ceil(j.rows, j.kern.height)
	all := j.n * j.tiles[0]
	most := max(1, j.cached()/j.tiles[1])
	most = min(most, max(ceil(width, j.tiles[1]), ceil(all*j.groups, minTasks)))
	panels := func(unit int) int { // number of panels of tiles in all units
		return all/unit*ceil(unit*j.tiles[1], width) + ceil(all%unit*j.tiles[1], width)
	}
	j.unit = most
	for unit := most - 1; unit > 0; unit-- {
		if panels(unit) < panels(j.unit) {
			j.unit = unit
		}
	}
	j.units = ceil(all, j.unit)
	j.lanes = ceil(j.unit*j.tiles[1], width) * width
	if j.pitch = j.lanes; !j.win.masked {
		j.pitch += winogradLanes
	}
	// These distances are not powers of two. The 16 matrices therefore use different sets of the
	// cache.
	j.apartU, j.apartV, j.apartM = (j.channels+1)*j.kern.stride, j.channels*j.pitch+16, j.kern.height*j.lanes+16
	j.chunks = make([]winogradChunk, ceil(j.tiles[1], winogradLanes))
	for i := range j.chunks {
		c := &j.chunks[i]
		first := 2*winogradLanes*i - j.before[1]
		for k, e := range []int{0, 16, 2, 18} {
			c.source[k] = lanesWithin(first+e, j.in[1])
		}
		c.source[4] = lanesWithin(winogradLanes*i, j.tiles[1])
		for k := range c.result {
			c.result[k] = lanesWithin(2*winogradLanes*i+k%2*16, j.out[1])
		}
		for lane := range j.seen {
			j.seen[lane] += int(c.source[0]>>lane&1 + c.source[1]>>lane&1)
		}
	}
}

// lanesWithin returns a mask of 16 bits for the numbers first to first+15. A bit is set if its
// number is from 0 to n-1.
func lanesWithin(first, n int) (mask uint16) {
	for i := range 16 {
		if at := first + i; at >= 0 && at < n {
			mask |= 1 << i
		}
	}
	return mask
}

// panel returns the first row of panel p of the weights, and its number of rows.
func (j *winograd) panel(p int) (row, h int) {
	row = j.rows * p / j.panels
	return row, j.rows*(p+1)/j.panels - row
}

// pack transforms panel i of the weights.
func (j *winograd) pack(i int) {
	g, p := i/j.panels, i%j.panels
	row, h := j.panel(p)
	l := newWinogradLocal()
	defer winogradLocals.Put(l)
	stride := j.kern.stride
	l.src = aligned(l.src, 9*j.channels*stride)
	dst := &j.u[i*16*j.apartU]
	if !j.flipped {
		j.kern.pack(l.src, stride, j.w[(g*j.rows+row)*j.channels*9:], j.channels*9, 1, h, j.channels*9)
		j.win.weights(dst, j.apartU, &l.src[0], stride, j.channels)
		return
	}
	for c := range j.channels {
		j.kern.pack(l.src[c*9*stride:], stride, j.w[((g*j.channels+c)*j.rows+row)*9:], 9, 1, h, 9)
	}
	j.win.weights(dst, j.apartU, &l.src[8*stride], -stride, j.channels)
}

// noRow is read in place of a row in the padding.
var noRow [64]float32

// task computes the results of a unit.
func (j *winograd) task(i int) {
	g, first := i/j.units, i%j.units*j.unit
	last := min(first+j.unit, j.n*j.tiles[0])
	l := newWinogradLocal()
	defer winogradLocals.Put(l)
	l.v, l.m = aligned(l.v, 16*j.apartV), aligned(l.m, 16*j.apartM+winogradLanes)
	l.seen = [32]float32{}
	for r := first; r < last; r++ {
		j.source(l, g, r, (r-first)*j.tiles[1])
	}
	if !j.even(l, last-first) {
		j.broken.Store(true)
	}
	if j.broken.Load() {
		return
	}
	all, width, stride := (last-first)*j.tiles[1], j.kern.width, j.kern.stride
	block := j.kern.blockOf(j.channels)
	for p := range j.panels {
		row, h := j.panel(p)
		micro, u := j.kern.micro[h], j.u[(g*j.panels+p)*16*j.apartU:]
		for f := range 16 {
			for k0 := 0; k0 < j.channels; k0 += block {
				kc, how := min(block, j.channels-k0), min(k0, 1)
				a := &u[f*j.apartU+k0*stride]
				for lane := 0; lane < all; lane += width {
					micro(kc, a, &l.v[f*j.apartV+k0*j.pitch+lane], j.pitch, &l.m[f*j.apartM+lane], j.lanes, width, how, a)
				}
			}
		}
		for r := first; r < last; r++ {
			j.result(l, g, row, h, r, (r-first)*j.tiles[1])
		}
		if !j.finite(g, row, h, first, last) {
			j.broken.Store(true)
		}
	}
}

// even examines the elements that the lanes have read for the given number of rows of tiles. It
// reports whether none of them is much larger than a typical element. The typical size is the upper
// quartile of the lanes' means. One very large element changes only few of these means, but it
// would change the mean of all elements.
func (j *winograd) even(l *winogradLocal, rows int) bool {
	var sum float32
	means := make([]float32, 0, winogradLanes)
	for i, n := range j.seen {
		if n > 0 {
			sum += l.seen[i]
			means = append(means, l.seen[i]/float32(n*rows*4*j.channels))
		}
	}
	most := slices.Max(l.seen[16:])
	switch {
	case sum-sum != 0: // not finite
		return false
	case most == 0:
		return true
	}
	slices.Sort(means)
	return most <= winogradRange*means[(len(means)-1)*3/4]
}

// finite reports whether all results of h rows of the weights, and their partial sums, are finite.
// It checks the rows of tiles from first to last-1, whose results are still in the cache.
func (j *winograd) finite(g, row, h, first, last int) bool {
	plane := j.out[0] * j.out[1]
	for r := first; r < last; {
		image, top := r/j.tiles[0], r%j.tiles[0]
		n := min(last-r, j.tiles[0]-top)
		start, end := 2*top*j.out[1], min(2*(top+n)*j.out[1], plane)
		for c := range h {
			y := j.y[((image*j.groups+g)*j.rows+row+c)*plane:]
			if sum := asm.SumF32(y[start:end]); sum-sum != 0 {
				return false
			}
		}
		r += n
	}
	return true
}

// source transforms the inputs of row r of tiles, where r counts the rows of all images. The first
// tile of the row goes to the given lane.
func (j *winograd) source(l *winogradLocal, g, r, lane int) {
	image, top := r/j.tiles[0], r%j.tiles[0]*2-j.before[0]
	plane := j.in[0] * j.in[1]
	base := uintptr(unsafe.Pointer(&j.x[(image*j.groups+g)*j.channels*plane]))
	for i := range j.chunks {
		for k := range l.rows {
			l.rows[k], l.steps[k] = uintptr(unsafe.Pointer(&noRow)), 0
			if y := top + k; y >= 0 && y < j.in[0] {
				l.rows[k], l.steps[k] = base+uintptr(4*(y*j.in[1]+2*winogradLanes*i-j.before[1])), plane
			}
		}
		j.win.source(&l.v[lane+winogradLanes*i], j.apartV, j.pitch, &l.rows, &l.steps, &j.chunks[i].source, 2*j.in[1], j.channels, &l.seen)
	}
}

// result transforms the products of row r of tiles back to results, for h rows of the weights.
func (j *winograd) result(l *winogradLocal, g, row, h, r, lane int) {
	image, top := r/j.tiles[0], r%j.tiles[0]*2
	plane := j.out[0] * j.out[1]
	at := ((image*j.groups+g)*j.rows+row)*plane + top*j.out[1]
	for i := range j.chunks {
		l.masks = j.chunks[i].result
		if top+1 == j.out[0] {
			l.masks[2], l.masks[3] = 0, 0
		}
		j.win.result(&j.y[at+2*winogradLanes*i], j.out[1], plane, &l.m[lane+winogradLanes*i], j.apartM, j.lanes, &l.masks, h)
	}
}
