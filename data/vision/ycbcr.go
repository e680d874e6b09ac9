package vision

import "image"

// In a JPEG several pixels may share one colour value. libjpeg, Pillow's decoder, does not repeat
// such values, but interpolates them with a triangle filter ("fancy upsampling", jdsample.c). For
// the ratios 4:2:0 and 4:2:2, fromYCbCr computes the same integers. For other ratios, which are
// rare, libjpeg and fromYCbCr repeat the values.

// fromYCbCr converts the w×h pixels at the top left of s to red, green and blue.
func fromYCbCr(s *image.YCbCr, w, h int, red, green, blue []uint8) {
	// across and downward are the numbers of pixels that share one colour value.
	across, downward := 1, 1
	switch s.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		across = 2
	case image.YCbCrSubsampleRatio420:
		across, downward = 2, 2
	case image.YCbCrSubsampleRatio440:
		downward = 2
	case image.YCbCrSubsampleRatio411:
		across = 4
	case image.YCbCrSubsampleRatio410:
		across, downward = 4, 2
	}
	cw, ch := (w+across-1)/across, (h+downward-1)/downward
	sum := make([]int32, cw)
	wide := [2][]uint8{make([]uint8, w+4), make([]uint8, w+4)}
	for y := range h {
		cy := y / downward
		for k, plane := range [2][]uint8{s.Cb, s.Cr} {
			near := plane[cy*s.CStride:][:cw]
			switch {
			case across == 2 && downward == 2:
				further := min(max(cy+2*(y&1)-1, 0), ch-1)
				for x, v := range plane[further*s.CStride:][:cw] {
					sum[x] = 3*int32(near[x]) + int32(v)
				}
				between2(wide[k], sum, 8, 7, 4)
			case across == 2:
				for x, v := range near {
					sum[x] = int32(v)
				}
				between2(wide[k], sum, 1, 2, 2)
			default:
				for x := range w {
					wide[k][x] = near[x/across]
				}
			}
		}
		row := s.Y[y*s.YStride:][:w]
		r, g, b := red[y*w:][:w], green[y*w:][:w], blue[y*w:][:w]
		for x, v := range row {
			// The conversion is that of ITU-T T.871 in fixed point with 16 fractional bits, rounded
			// as in jdcolor.c.
			l, cb, cr := int32(v), int32(wide[0][x])-128, int32(wide[1][x])-128
			r[x] = uint8(min(max(l+(91881*cr+32768)>>16, 0), 255))
			g[x] = uint8(min(max(l+(-22554*cb-46802*cr+32768)>>16, 0), 255))
			b[x] = uint8(min(max(l+(116130*cb+32768)>>16, 0), 255))
		}
	}
}

// between2 replaces each value v of a row by two values. The first is 3·v plus the left
// neighbour of v, and the second is 3·v plus the right neighbour of v. Both sums are divided by
// 1<<shift. Before the division, between2 adds left to the first sum and right to the second,
// so that the rounding alternates. At an end of the row, v itself counts as its missing
// neighbour.
func between2(dst []uint8, src []int32, left, right int32, shift uint) {
	last := len(src) - 1
	for x, v := range src {
		before, after := src[max(x-1, 0)], src[min(x+1, last)]
		dst[2*x] = uint8((3*v + before + left) >> shift)
		dst[2*x+1] = uint8((3*v + after + right) >> shift)
	}
}

// fromWebP converts the w×h pixels at the top left of a lossy WebP image. Unlike image.YCbCr, WebP
// has the limited range of ITU-R BT.601, 16 to 235 for brightness (RFC 6386, 9.2). fromWebP
// interpolates and converts colours in the integer arithmetic of libwebp (upsampling.c, yuv.h),
// which Pillow uses.
func fromWebP(s *image.YCbCr, w, h int, red, green, blue []uint8) {
	cw, ch := (w+1)/2, (h+1)/2
	wide := [2][]uint8{make([]uint8, w), make([]uint8, w)}
	for y := range h {
		further := min(max(y/2+2*(y&1)-1, 0), ch-1)
		for k, plane := range [2][]uint8{s.Cb, s.Cr} {
			between4(wide[k], plane[y/2*s.CStride:][:cw], plane[further*s.CStride:][:cw])
		}
		r, g, b := red[y*w:][:w], green[y*w:][:w], blue[y*w:][:w]
		for x, v := range s.Y[y*s.YStride:][:w] {
			l, u, v := int32(v)*19077>>8, int32(wide[0][x]), int32(wide[1][x])
			r[x] = uint8(min(max((l+v*26149>>8-14234)>>6, 0), 255))
			g[x] = uint8(min(max((l-u*6419>>8-v*13320>>8+8708)>>6, 0), 255))
			b[x] = uint8(min(max((l+u*33050>>8-17685)>>6, 0), 255))
		}
	}
}

// between4 weights the four colour values around a pixel by 9, 3, 3 and 1. The values come from two
// adjacent rows: near is the row that is closer to the pixels, and far is the other.
func between4(dst, near, far []uint8) {
	n := len(dst)
	dst[0] = uint8((3*uint32(near[0]) + uint32(far[0]) + 2) >> 2)
	for x := 1; 2*x-1 < n-1; x++ {
		a, b, c, d := uint32(near[x-1]), uint32(near[x]), uint32(far[x-1]), uint32(far[x])
		sum := a + b + c + d + 8
		dst[2*x-1] = uint8(((sum+2*(b+c))>>3 + a) >> 1)
		dst[2*x] = uint8(((sum+2*(a+d))>>3 + b) >> 1)
	}
	if n%2 == 0 {
		dst[n-1] = uint8((3*uint32(near[n/2-1]) + uint32(far[n/2-1]) + 2) >> 2)
	}
}
