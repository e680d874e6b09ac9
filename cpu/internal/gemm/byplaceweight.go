package gemm

import "sync"

// weightByPlace computes the gradient of a convolution's weight for many small images. The gradient
// of each tap, an element of the convolution's kernel, is a sum of matrix products. There is one
// product for each place of the result for which the tap reads the input. Each product sums over
// images. Both factors are first transposed, so that the kernels read them in order.
type weightByPlace struct {
	*Conv
	kern          *kernel32
	win           *spanKernel
	dw, x, g      []float32
	channels      int   // number of channels of a group
	outputs       int   // number of output channels of a group
	used          []int // indices of the taps that read the input for at least one place
	pairs         pairs // for each entry of used, the places whose products are added up
	panels        int   // number of panels of a group's output channels
	columns       int   // number of panels of a group's channels
	image         int   // number of the current chunk's first image
	images        int   // number of images in the current chunk
	imagesPerTask int   // number of images in a packing task
	a, b          []float32
	sums          []float32 // tiles of all tasks, if there are several chunks
}

const (
	weightImages = 32      // greatest number of images in a chunk
	weightSource = 1 << 20 // limit of the number of elements of each factor for one chunk
)

type weightPlaceBuffer struct{ a, b, sums []float32 }

var weightPlaceBuffers sync.Pool

// weightByPlace does the same as [Conv.Weight], place by place. If another method is faster, it
// does nothing and returns false.
func (c *Conv) weightByPlace(par Parallel, dw, x, g []float32) bool {
	kern := active32()
	channels, outputs, in, out := c.Channels/c.Groups, c.Outputs/c.Groups, size(c.In), size(c.Out)
	wide := ceil(channels, kern.width) * kern.width
	if c.N < weightImages/2 || 4*wide > 5*channels || max(wide*in, c.Outputs*out)*weightImages > weightSource || !finite(par, g) {
		return false
	}
	used, index := c.used()
	if len(used) == 0 {
		clear(dw)
		return true
	}
	j := &weightByPlace{Conv: c, kern: kern, win: activeSpans(), dw: dw, x: x, g: g, channels: channels, outputs: outputs, used: used}
	j.panels, j.columns = ceil(outputs, kern.height), ceil(channels, kern.width)
	buf, _ := weightPlaceBuffers.Get().(*weightPlaceBuffer)
	if buf == nil {
		buf = &weightPlaceBuffer{}
	}
	defer weightPlaceBuffers.Put(buf)
	most := min(c.N, weightImages)
	buf.a = aligned(buf.a, c.Groups*j.panels*out*most*kern.stride)
	buf.b = aligned(buf.b, c.Groups*j.columns*in*most*kern.width)
	tasks := c.Groups * j.panels * j.columns
	if c.N > weightImages {
		buf.sums = aligned(buf.sums, tasks*len(used)*kern.height*kern.width)
	}
	j.a, j.b, j.sums = buf.a, buf.b, buf.sums
	if c.N*c.Channels*outputs*len(used)*out < parallelWork {
		par = Serial
	}
	for j.image = 0; j.image < c.N; j.image += j.images {
		if images := min(weightImages, c.N-j.image); images != j.images {
			j.images = images
			j.pairs = c.spans(len(used), func(q, t, p int) (key, a, b int) {
				return index[t], q * images * kern.stride, p * images * kern.width
			})
		}
		j.imagesPerTask = max(1, packWork/(kern.width*max(in, out)))
		par(c.Groups*(j.panels+j.columns)*ceil(j.images, j.imagesPerTask), j.pack)
		par(tasks, j.task)
	}
	return true
}

// panel returns the first output channel of panel p, and the panel's number of output channels.
func (j *weightByPlace) panel(p int) (row, h int) {
	row = j.outputs * p / j.panels
	return row, j.outputs*(p+1)/j.panels - row
}

// pack runs packing task i. It packs a panel of the gradient of y, or a panel of x, for some
// images. At each place, a panel holds all channels of the first image, then those of the next.
func (j *weightByPlace) pack(i int) {
	parts := ceil(j.images, j.imagesPerTask)
	n0, i := i%parts*j.imagesPerTask, i/parts
	n1 := min(n0+j.imagesPerTask, j.images)
	if i < j.Groups*j.panels {
		row, h := j.panel(i % j.panels)
		out := size(j.Out)
		j.packChannels(j.a[i*out*j.images*j.kern.stride:], j.g[(i/j.panels*j.outputs+row)*out:], j.Outputs, out, h, j.kern.stride, n0, n1)
		return
	}
	i -= j.Groups * j.panels
	c, in := i%j.columns*j.kern.width, size(j.In)
	j.packChannels(j.b[i*in*j.images*j.kern.width:], j.x[(i/j.columns*j.channels+c)*in:], j.Channels, in, min(j.kern.width, j.channels-c), j.kern.width, n0, n1)
}

// packChannels packs h channels of the images n0 to n1-1 as rows of the given width. total is the
// number of channels of an image.
func (j *weightByPlace) packChannels(dst, src []float32, total, places, h, width, n0, n1 int) {
	var rows [64]int
	for r := range width {
		rows[r] = min(r, h-1) * places
	}
	for n := n0; n < n1; n++ {
		from := src[(j.image+n)*total*places:]
		if places == 1 {
			copy(dst[n*width:][:width], from[:h])
			continue
		}
		j.win.transposed(dst[n*width:], j.images*width, from, rows[:width], places)
	}
}

// task computes the gradients of all taps for one panel of output channels and one panel of input
// channels.
func (j *weightByPlace) task(i int) {
	column, p := i%j.columns, i/j.columns
	g := p / j.panels
	row, h := j.panel(p % j.panels)
	width, stride, taps := j.kern.width, j.kern.stride, len(j.used)
	l := columnsLocal()
	defer columnLocals.Put(l)
	one := taps * j.kern.height * width
	var sums []float32
	if j.N > weightImages {
		sums = j.sums[i*one : (i+1)*one]
	} else {
		l.copied = aligned(l.copied, one)
		sums = l.copied
	}
	a := &j.a[p*size(j.Out)*j.images*stride]
	b := &j.b[(g*j.columns+column)*size(j.In)*j.images*width]
	for u := range taps {
		list := j.pairs.get(u)
		j.win.spans[h](&list[0], len(list)/2, j.images, a, stride, b, width, &sums[u*h*width], width, min(j.image, 1))
	}
	if j.image+j.images < j.N {
		return
	}
	c := column * width
	n := min(width, j.channels-c)
	dw := j.dw[((g*j.outputs+row)*j.channels+c)*j.taps():]
	for r := range h {
		j.storeGradient(dw[r*j.channels*j.taps():][:n*j.taps()], sums[r*width:], h*width, n)
	}
}

// storeGradient stores the gradients of the weights for n channels. The sums of one tap are
// contiguous. distance is the number of elements from the sums of one tap to those of the next.
func (j *weightByPlace) storeGradient(dw, sums []float32, distance, n int) {
	taps, group := j.taps(), j.win.group
	if taps == 1 {
		copy(dw, sums[:n])
		return
	}
	if len(j.used) < taps {
		clear(dw)
	}
	whole := 0
	if len(j.used) == taps {
		// The kernel transposes a fixed number of rows at a time. If there are fewer taps, it also
		// writes to the next channels, which are stored later. It must not handle the last
		// channels, because it would write beyond dw.
		whole = (n - ceil(max(0, group-taps), taps)) &^ 3
		for t := 0; t < taps && whole > 0; t += group {
			t := max(0, min(t, taps-group))
			var rows [16]int
			for r := range rows {
				rows[r] = min(t+r, taps-1) * distance
			}
			j.win.turn(&dw[t], taps, &sums[0], &rows, whole)
		}
		whole = max(0, whole)
	}
	for u, t := range j.used {
		for c, v := range sums[u*distance+whole : u*distance+n] {
			dw[(whole+c)*taps+t] = v
		}
	}
}
