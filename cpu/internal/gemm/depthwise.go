package gemm

import (
	"slices"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// depthwiseWeight computes Weight for groups of one channel and one output channel. The gradient of
// a tap, an element of the convolution's kernel, is a dot product of the gradient of the result
// with the inputs that the tap reads. The gradient of the result is copied with zeros between its
// rows: it then has the same layout as these inputs.
func (c *Conv) depthwiseWeight(par Parallel, dw, x, g []float32) {
	s := c.inputGrid(x)
	kern, win := active32(), activeWindows()
	whole, taps := size(s.places), len(s.taps)
	if c.N*c.Groups*whole*taps < parallelWork {
		par = Serial
	}
	par(c.Groups, func(group int) {
		l := columnsLocal()
		defer columnLocals.Put(l)
		sums := make([]float64, taps)
		for image := range c.N {
			u := unit{image: image, images: 1, to: s.places}
			layout := s.layout(&u, 0)
			l.copied = s.locate(&layout, win, &u, group, 0, 1, l.copied)
			l.offs = s.offsets(&layout, 1, false, l.offs)
			lines, cols := s.lines(&layout, &u, l.lines)
			l.lines = lines
			from := g[(image*c.Groups+group)*whole:][:whole]
			n := lines[len(lines)-1] + cols
			seen := layout.data[layout.at:][:n+slices.Max(l.offs)]
			// An infinite input times a zero between the rows would give NaN. If an input is not
			// finite, sums leave out these zeros.
			if sum := asm.SumF32(seen); sum-sum != 0 || kern.dots == nil {
				for t, off := range l.offs {
					for i, at := range lines {
						for q, v := range seen[at+off:][:cols] {
							sums[t] += float64(v) * float64(from[i*cols+q])
						}
					}
				}
				continue
			}
			l.panels = aligned(l.panels, n)
			at := 0
			for i, line := range lines {
				clear(l.panels[at:line])
				copy(l.panels[line:], from[i*cols:(i+1)*cols])
				at = line + cols
			}
			for t := 0; t < taps; {
				// One call of the kernel handles consecutive taps whose offsets have equal
				// distances.
				h, apart := 1, 0
				for h < dotRows && t+h < taps && (h == 1 || l.offs[t+h]-l.offs[t+h-1] == apart) && l.offs[t+h] >= l.offs[t+h-1] {
					apart = l.offs[t+h] - l.offs[t+h-1]
					h++
				}
				kern.dots1[h](n, &seen[l.offs[t]], apart, &l.panels[0], 0, &l.panels[0], &l.tile[0])
				for r := range h {
					sums[t+r] += float64(l.tile[r])
				}
				t += h
			}
		}
		for t, v := range sums {
			dw[group*taps+t] = float32(v)
		}
	})
}
