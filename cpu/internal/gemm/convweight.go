package gemm

import (
	"sync"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// weights computes the gradient of a convolution's weight, transposed. For each group it is a
// matrix product whose sums run over all places of the result. One factor is the input, which the
// kernel reads in place, one element at a time. The other is the gradient of the result.
type weights struct {
	windowGrid
	kern     *kernel32
	win      *windowKernel
	g        []float32
	window   []func(a *float32, rows *[12]int, lines *int, n, cols int, b, c *float32, ldc int)
	width    int // width of a tile in output channels
	outputs  int // number of output channels of a group
	wide     int // outputs rounded up to a multiple of width
	division division
	// number of chunks into which the units are divided; each has sums of its own
	chunks          int
	channelsPerTask int // number of channels in a task
	parts           int // number of parts into which the channels are divided
	sums            []float32
}

const (
	weightPlaces = 512     // number of places in a unit
	weightPanels = 4       // number of panels of the gradient that are packed at once
	weightSums   = 1 << 21 // largest number of elements of all sums
	weightSeen   = 1 << 16 // largest product of the channels of a task and the places of a unit
)

var weightBuffers sync.Pool

// Weight sets dw to the gradient of w; g is the gradient of the result.
func (c *Conv) Weight(par Parallel, dw, x, g []float32) {
	if len(dw) == 0 {
		return
	}
	if len(x) == 0 || len(g) == 0 {
		clear(dw)
		return
	}
	if c.Channels == c.Groups && c.Outputs == c.Groups {
		c.depthwiseWeight(par, dw, x, g)
		return
	}
	if c.weightByPlace(par, dw, x, g) {
		return
	}
	j := &weights{windowGrid: c.inputGrid(x), kern: active32(), win: activeWindows(), g: g, outputs: c.Outputs / c.Groups}
	j.window, j.width = j.win.window, j.kern.width
	if j.outputs <= j.win.lanes && j.win.half != nil {
		j.window, j.width = j.win.half, j.win.lanes
	}
	j.wide = ceil(j.outputs, j.width) * j.width
	j.division = j.divide(weightPlaces, func(images, units int) int { return images * units })
	taps := len(j.taps)
	all := j.groups * j.channels * taps * j.wide
	perUnit := max(1, j.n*size(j.places)/j.division.units)
	j.chunks = max(1, min(j.division.units, 16, weightSums/all, 2*j.n*size(j.places)/max(weightPlaces, perUnit)))
	j.channelsPerTask = max(1, min(j.channels, weightSeen/perUnit))
	if j.groups*j.chunks*ceil(j.channels, j.channelsPerTask) < minTasks {
		j.channelsPerTask = ceil(j.channels, ceil(minTasks, j.groups*j.chunks))
	}
	j.parts = ceil(j.channels, j.channelsPerTask)

	buf, _ := weightBuffers.Get().(*[]float32)
	if buf == nil {
		buf = new([]float32)
	}
	defer weightBuffers.Put(buf)
	*buf = aligned(*buf, all*j.chunks)
	j.sums = *buf
	if j.n*j.channels*taps*c.Outputs*size(j.places) < parallelWork {
		par = Serial
	}
	par(j.groups*j.chunks*j.parts, j.task)

	// Add the sums of all chunks in order, and transpose the result.
	rows := j.groups * j.channels * taps
	few := max(1, packWork/(j.wide*j.chunks))
	par(ceil(rows, few), func(i int) {
		for row := i * few; row < min((i+1)*few, rows); row++ {
			sum := j.sums[row*j.wide:][:j.outputs]
			for k := 1; k < j.chunks; k++ {
				asm.AddF32(sum, sum, j.sums[k*all+row*j.wide:][:j.outputs])
			}
		}
	})
	k := j.channels * taps
	few = max(1, packWork/k/16) * 16 // number of output channels in a task
	blocks := ceil(j.outputs, few)
	par(j.groups*blocks, func(i int) {
		group, first := i/blocks, i%blocks*few
		last := min(first+few, j.outputs)
		for o := first; o < last; o += 16 {
			n := min(16, last-o)
			for row := range k {
				from := j.sums[(group*k+row)*j.wide+o:][:n]
				at := (group*j.outputs+o)*k + row
				for _, v := range from {
					dw[at] = v
					at += k
				}
			}
		}
	})
}

// task computes the sums of some channels of a group over the units of a chunk.
func (j *weights) task(i int) {
	part, i := i%j.parts, i/j.parts
	chunk, group := i%j.chunks, i/j.chunks
	c0, c1 := part*j.channelsPerTask, min((part+1)*j.channelsPerTask, j.channels)
	taps, width := len(j.taps), j.width
	rows := (c1 - c0) * taps
	at := ((chunk*j.groups+group)*j.channels + c0) * taps
	sums := j.sums[at*j.wide : (at+rows)*j.wide]
	clear(sums)
	l := columnsLocal()
	defer columnLocals.Put(l)
	height := len(j.window) - 1
	tiles := ceil(rows, height)
	units := j.division.units
	for n := units * chunk / j.chunks; n < units*(chunk+1)/j.chunks; n++ {
		u := j.unit(j.division, n)
		layout := j.layout(&u, 0)
		l.copied = j.locate(&layout, j.win, &u, group, c0, c1, l.copied)
		l.offs = j.offsets(&layout, c1-c0, false, l.offs)
		var cols int
		l.lines, cols = j.lines(&layout, &u, l.lines)
		places := size(u.sizes())
		panel := u.images * places * width
		l.panels = aligned(l.panels, weightPanels*panel)
		for o0 := 0; o0 < j.outputs; o0 += weightPanels * width {
			count := min(weightPanels, ceil(j.outputs-o0, width))
			for p := range count {
				j.packG(l.panels[p*panel:(p+1)*panel], &u, group, o0+p*width, places)
			}
			for t := range tiles {
				r0, r1 := rows*t/tiles, rows*(t+1)/tiles
				var list [12]int
				copy(list[:], l.offs[r0:r1])
				for p := range count {
					j.window[r1-r0](&layout.data[layout.at], &list, &l.lines[0], len(l.lines), cols, &l.panels[p*panel], &sums[r0*j.wide+o0+p*width], j.wide)
				}
			}
		}
	}
}

// packG packs the gradient of the result for the output channels from o on, place by place.
func (j *weights) packG(dst []float32, u *unit, group, o, places int) {
	all := size(j.windowGrid.places)
	h := min(j.width, j.outputs-o)
	first := (u.from[0]*j.windowGrid.places[1]+u.from[1])*j.windowGrid.places[2] + u.from[2]
	for i := range u.images {
		src := j.g[((u.image+i)*j.groups*j.outputs+group*j.outputs+o)*all+first:]
		j.kern.pack(dst[i*places*j.width:], j.width, src, all, 1, h, places)
	}
}
