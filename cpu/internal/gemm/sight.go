package gemm

// windowGrid describes which elements of a source [n, groups·channels, in…] a convolution reads.
// Its windows lie at places that form a grid. A window reads the elements at some offsets from its
// place. These offsets are the taps. Outside the source it reads zeros. Coordinates are those of
// the source.
type windowGrid struct {
	src      []float32
	n        int
	groups   int
	channels int // number of channels of a group
	in       [3]int
	places   [3]int
	step     [3]int   // distance in the source between neighbouring places
	taps     [][3]int // offsets that a window reads, relative to its place
	lo, hi   [3]int   // least and greatest offset in each dimension
}

func (s *windowGrid) bound() {
	for i, t := range s.taps {
		for a, v := range t {
			if i == 0 || v < s.lo[a] {
				s.lo[a] = v
			}
			if i == 0 || v > s.hi[a] {
				s.hi[a] = v
			}
		}
	}
}

func size(v [3]int) int { return v[0] * v[1] * v[2] }

// unit is a part of the places, computed at once: all places of some images, or a range of the
// places of one image. The range is along the first dimension that has several places.
type unit struct {
	image, images int
	from, to      [3]int
}

func (u *unit) sizes() [3]int {
	return [3]int{u.to[0] - u.from[0], u.to[1] - u.from[1], u.to[2] - u.from[2]}
}

// restrict reduces u to the images and rows that contain its places start to stop-1. In the reduced
// unit, these places are newFrom to newTo-1.
func (u *unit) restrict(start, stop int) (newFrom, newTo int) {
	n := u.sizes()
	whole := size(n)
	if u.images > 1 {
		image := start / whole
		u.image, u.images = u.image+image, ceil(stop, whole)-image
		return start - image*whole, stop - image*whole
	}
	for a := range 2 {
		if whole /= n[a]; n[a] > 1 {
			row := start / whole
			u.from[a], u.to[a] = u.from[a]+row, u.from[a]+ceil(stop, whole)
			return start - row*whole, stop - row*whole
		}
	}
	return start, stop
}

// division says how the places are divided into units.
type division struct {
	images int // number of images in a unit
	axis   int
	parts  int // number of parts of an image
	units  int
}

// divide divides the places into units. The number of places in a unit is at most about want. If a
// unit consists of whole images, divide tries the numbers of images that give about want/4 to want
// places. It chooses the number with the least cost.
func (s *windowGrid) divide(want int, cost func(images, units int) int) (d division) {
	whole := size(s.places)
	d.parts = 1
	for d.axis < 2 && s.places[d.axis] == 1 {
		d.axis++
	}
	if whole > want {
		rows := max(1, want/(whole/s.places[d.axis]))
		d.images, d.parts = 1, ceil(s.places[d.axis], rows)
		d.units = s.n * d.parts
		return d
	}
	for images := min(s.n, ceil(want, 4*whole)); images <= min(s.n, want/whole); images++ {
		units := ceil(s.n, images)
		if d.units == 0 || cost(images, units) < cost(d.images, d.units) {
			d.images, d.units = images, units
		}
	}
	return d
}

func (s *windowGrid) unit(d division, i int) (u unit) {
	u.to = s.places
	if d.parts > 1 {
		n, part := s.places[d.axis], i%d.parts
		u.image, u.images = i/d.parts, 1
		u.from[d.axis], u.to[d.axis] = n*part/d.parts, n*(part+1)/d.parts
		return u
	}
	u.image = i * d.images
	u.images = min(d.images, s.n-u.image)
	return u
}

// inputLayout says where a unit's input is in memory: in the source itself, or in a copy with zeros
// around it. The columns of a copy are sorted: neighbouring places read neighbouring columns, even
// if step is more than 1.
type inputLayout struct {
	data []float32
	// offset of the first element: channel 0 of the block, image 0, place 0, the least tap
	at             int
	channel, image int
	row            [2]int // distances of elements along the first two dimensions
	// The columns of a copy are grouped by their number modulo step. phase is the number of columns
	// of a group.
	phase, step int
	copied      bool
	extent      [3]int // size of the range that is copied
}

// overread is the greatest number of elements that a kernel reads past the end of a row.
const overread = 16

// layout decides how unit u is read. Kernels read the source itself if all windows lie inside it,
// neighbouring places of a row are contiguous, and no read passes the end of the source. Otherwise
// they read a copy with zeros around it. The argument reach is how many elements a kernel may read
// past the last one that it needs.
func (s *windowGrid) layout(u *unit, reach int) (l inputLayout) {
	l.step = s.step[2]
	inside := l.step == 1
	for a := range 3 {
		first, last := u.from[a]*s.step[a]+s.lo[a], (u.to[a]-1)*s.step[a]+s.hi[a]
		l.extent[a] = last - first + 1
		inside = inside && first >= 0 && last < s.in[a]
	}
	if inside {
		l.row = [2]int{s.in[1] * s.in[2], s.in[2]}
		l.channel = size(s.in)
		l.image = s.groups * s.channels * l.channel
		last := (u.image+u.images-1)*l.image + l.image - 1 + reach
		if last < len(s.src) {
			return l
		}
	}
	wide := ceil(l.extent[2], l.step)
	l.copied, l.phase = true, wide
	l.row[1] = wide * l.step
	l.row[0] = l.row[1] * l.extent[1]
	l.image = l.row[0] * l.extent[0]
	l.channel = l.image * u.images
	return l
}

// locate makes l refer to channels c0 … c1-1 of group g. If l describes a copy, locate fills the
// copy in buf, which it grows if necessary. It returns buf.
func (s *windowGrid) locate(l *inputLayout, win *windowKernel, u *unit, g, c0, c1 int, buf []float32) []float32 {
	if !l.copied {
		l.data = s.src
		l.at = u.image*l.image + (g*s.channels+c0)*l.channel
		for a := range 3 {
			at := u.from[a]*s.step[a] + s.lo[a]
			if a < 2 {
				at *= l.row[a]
			}
			l.at += at
		}
		return buf
	}
	n := (c1 - c0) * l.channel
	buf = aligned(buf, n+4*overread)
	l.data, l.at = buf, 0
	plane := size(s.in)
	first := [3]int{}
	for a := range 3 {
		first[a] = u.from[a]*s.step[a] + s.lo[a]
	}
	// Columns left to right-1 come from the source, and all others are zeros.
	left := min(max(0, -first[2]), l.extent[2])
	right := max(left, min(l.extent[2], s.in[2]-first[2]))
	to := 0
	for c := c0; c < c1; c++ {
		for i := range u.images {
			from := ((u.image+i)*s.groups*s.channels + g*s.channels + c) * plane
			for z := range l.extent[0] {
				z += first[0]
				if z < 0 || z >= s.in[0] {
					clear(buf[to : to+l.row[0]])
					to += l.row[0]
					continue
				}
				top, bottom := min(max(0, -first[1]), l.extent[1]), min(l.extent[1], s.in[1]-first[1])
				clear(buf[to : to+top*l.row[1]])
				to += top * l.row[1]
				if rows := bottom - top; rows > 0 {
					src := s.src[from+(z*s.in[1]+first[1]+top)*s.in[2]:]
					s.rows(l, win, buf[to:], src, rows, first[2], left, right)
					to += rows * l.row[1]
				}
				if under := l.extent[1] - max(top, bottom); under > 0 {
					clear(buf[to : to+under*l.row[1]])
					to += under * l.row[1]
				}
			}
		}
	}
	return buf
}

// rows copies consecutive rows of the source to columns left to right-1 of a copy, and sets the
// other columns to zero.
func (s *windowGrid) rows(l *inputLayout, win *windowKernel, dst, src []float32, rows, first, left, right int) {
	width := l.row[1]
	// The kernel reads past the end of a row, so it cannot copy the last rows of the source.
	some := max(0, min(rows, (len(src)-win.lanes)/s.in[2]))
	switch {
	case l.step > 1:
		for r := range rows {
			l.sortColumns(win, dst[r*width:(r+1)*width], src[r*s.in[2]:(r+1)*s.in[2]], first)
		}
		return
	case left == right:
		clear(dst[:rows*width])
		return
	case left > win.lanes || width-right > win.lanes:
		some = 0
	case some > 0:
		win.padRows(&dst[0], &src[first+left], some, width, left, right-left, s.in[2])
	}
	for r := some; r < rows; r++ {
		row := dst[r*width : (r+1)*width]
		clear(row[:left])
		copy(row[left:right], src[r*s.in[2]+first+left:])
		clear(row[right:])
	}
}

// sortColumns copies a row of the source to a row of the copy, whose columns are sorted by their
// number modulo step.
func (l *inputLayout) sortColumns(win *windowKernel, row, in []float32, first int) {
	lo, hi := 0, 0 // for each remainder, the kernel fills the columns lo to hi-1
	if l.step == 2 && win.halves != nil {
		lo = min(l.phase, max(0, -first+1)/2)
		hi = lo + max(0, min(l.phase, (len(in)-first)/2)-lo)&^7
		if hi > lo {
			win.halves(&row[lo], &row[l.phase+lo], &in[first+2*lo], hi-lo)
		}
	}
	for p := range l.step {
		l.pick(row[p*l.phase:][:lo], in, first+p)
		l.pick(row[p*l.phase+hi:(p+1)*l.phase], in, first+p+hi*l.step)
	}
}

// pick sets dst[j] to src[index+j·step], or to 0 if that element is outside src.
func (l *inputLayout) pick(dst, src []float32, index int) {
	for j := range dst {
		dst[j] = 0
		if uint(index) < uint(len(src)) {
			dst[j] = src[index]
		}
		index += l.step
	}
}

// tap returns the distance in memory of a tap from its place.
func (s *windowGrid) tap(l *inputLayout, t [3]int) int {
	x := t[2] - s.lo[2]
	return (t[0]-s.lo[0])*l.row[0] + (t[1]-s.lo[1])*l.row[1] + x%l.step*l.phase + x/l.step
}

// place returns the offset in memory of a place of the unit.
func (s *windowGrid) place(l *inputLayout, image, z, y, x int) int {
	return image*l.image + z*s.step[0]*l.row[0] + y*s.step[1]*l.row[1] + x
}

// offsets lists the offsets of the taps of n channels from a place. They are in the order of the
// product's dimension k. If tapFirst is true, all channels of the first tap come first, otherwise
// all taps of the first channel.
func (s *windowGrid) offsets(l *inputLayout, n int, tapFirst bool, list []int) []int {
	list = list[:0]
	if tapFirst {
		for _, t := range s.taps {
			at := s.tap(l, t)
			for c := range n {
				list = append(list, c*l.channel+at)
			}
		}
		return list
	}
	for _, t := range s.taps {
		list = append(list, s.tap(l, t))
	}
	taps := len(list)
	for i := taps; i < n*taps; i++ {
		list = append(list, list[i-taps]+l.channel)
	}
	return list
}

// lines returns the offsets of the rows of a unit, and the number of places in a row. If all places
// of an image are contiguous, they form one row.
func (s *windowGrid) lines(l *inputLayout, u *unit, list []int) ([]int, int) {
	n := u.sizes()
	cols := n[2]
	if n[1] == 1 || s.step[1]*l.row[1] == cols {
		if n[0] == 1 || s.step[0]*l.row[0] == cols*n[1] {
			n, cols = [3]int{1, 1, 1}, size(n)
		} else {
			n[1], cols = 1, cols*n[1]
		}
	}
	list = list[:0]
	for i := range u.images {
		for z := range n[0] {
			for y := range n[1] {
				list = append(list, s.place(l, i, z, y, 0))
			}
		}
	}
	return list, cols
}
