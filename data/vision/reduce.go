package vision

import "image"

// factor returns the factor k of [Decode].Size for an image of h×w pixels. Blocks of k·k pixels
// become one pixel.
func (d Decode) factor(h, w int) int {
	if d.Size <= 0 {
		return 1
	}
	return max(1, min(h, w)/2/d.Size)
}

// reduced returns the same as reduce(planes(src, format), k), but allocates only the result and a
// few rows.
func reduced(src image.Image, format string, k int) *Image {
	part, ok := src.(interface {
		SubImage(r image.Rectangle) image.Image
	})
	b := src.Bounds()
	if !ok || k == 1 {
		return reduce(planes(src, format), k)
	}
	var m *Image
	at := 0
	rows := 2 * k // an even number, because two rows of a JPEG may share colours
	for y := b.Min.Y; y < b.Max.Y; y += rows {
		r := reduce(planes(part.SubImage(image.Rect(b.Min.X, y, b.Max.X, min(y+rows, b.Max.Y))), format), k)
		if m == nil {
			h := (b.Dy() + k - 1) / k
			m = &Image{C: r.C, H: h, W: r.W, U8: make([]uint8, r.C*h*r.W)}
		}
		for c := range r.C {
			copy(m.U8[(c*m.H+at)*m.W:], r.U8[c*r.H*r.W:(c+1)*r.H*r.W])
		}
		at += r.H
	}
	return m
}

// reduce returns the rounded means of blocks of k·k pixels. Blocks at the right and bottom edge are
// smaller if the size is no multiple of k. The result equals that of Pillow's Image.reduce.
func reduce(m *Image, k int) *Image {
	if k == 1 {
		return m
	}
	out := &Image{C: m.C, H: (m.H + k - 1) / k, W: (m.W + k - 1) / k}
	out.U8 = make([]uint8, out.C*out.H*out.W)
	for i := range out.U8 {
		c, y, x := i/out.W/out.H, i/out.W%out.H*k, i%out.W*k
		h, w := min(k, m.H-y), min(k, m.W-x)
		sum := h * w / 2
		for dy := range h {
			for _, v := range m.U8[(c*m.H+y+dy)*m.W+x:][:w] {
				sum += int(v)
			}
		}
		out.U8[i] = uint8(sum / (h * w))
	}
	return out
}
