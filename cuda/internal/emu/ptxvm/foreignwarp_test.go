package ptxvm

import (
	"math"
	"math/bits"
	"slices"
	"testing"
)

func TestForeignWarps(t *testing.T) {
	const n = 128
	for _, sm := range nvidiaTargets {
		d := newDevice(t)
		p := random32(n, 4)
		for i := range p {
			if i%3 == 0 {
				p[i] &= 0x7fffffff
			}
			if i/32 == 2 {
				p[i] = uint64(i & 1 * 77) // vote.all and vote.any differ in one warp only
			}
		}
		in, out := d.words(p, 4, "in"), d.results(n, 31)
		d.start("warps."+sm, "shuffles", line(1, n), in, out, n)
		// seg returns the lane whose value lane l gets in a segment of w lanes. That is lane l
		// itself if src lies outside of the segment.
		seg := func(l, w, src int) int {
			if first := l / w * w; src < first || src >= first+w {
				return l
			}
			return src
		}
		warp := func(i int) []uint64 { return p[i/32*32 : i/32*32+32] }
		ballot := func(v []uint64, f func(x uint64) bool) (m uint64) {
			for l, x := range v {
				m |= uint64(bit(f(x))) << l
			}
			return m
		}
		d.expect(sm+" shuffles", out, n, func(i, j int) (uint64, bool) {
			v, l, x := warp(i), i%32, p[i]
			odd := l&1 == 1
			side := uint64(0x55555555)
			if odd {
				side = 0xaaaaaaaa
			}
			fold := func(f func(a, b uint32) uint32) uint64 {
				a := uint32(v[0])
				for _, b := range v[1:] {
					a = f(a, uint32(b))
				}
				return uint64(a)
			}
			if j >= 22 && sm == "sm_70" {
				return 0, false
			}
			switch j {
			case 0:
				return v[5], true
			case 1:
				return v[x%32], true
			case 2:
				return v[l/8*8+(l+1)%8], true
			case 3:
				return v[seg(l, 32, l-3)], true
			case 4:
				return v[seg(l, 16, l-3)], true
			case 5:
				return v[seg(l, 32, l+7)], true
			case 6:
				return v[seg(l, 4, l+2)], true
			case 7:
				return v[l^9], true
			case 8:
				return v[l^5], true
			case 9:
				return v[l^16] << 20, true
			case 10:
				return math.Float64bits(float64(v[seg(l, 32, l+1)])), true
			case 11:
				return ballot(v, func(y uint64) bool { return y&1 != 0 }), true
			case 12:
				return uint64(bit(slices.Contains(v, 77))), true
			case 13:
				return uint64(bit(slices.Max(v) < 1<<31)), true
			case 14:
				return ballot(v, func(y uint64) bool { return y&3 == x&3 }), true
			case 15:
				return 0xffffffff, true
			case 16:
				return 1, true
			case 17:
				return ballot(v, func(y uint64) bool { return y&1 == x&1 }), true
			case 18:
				if odd {
					return v[l^2], true
				}
				return v[seg(l, 32, l+4)], true
			case 19:
				if odd {
					return ballot(v, func(y uint64) bool { return y&4 != 0 }) & side, true
				}
				return ballot(v, func(y uint64) bool { return y&8 != 0 }) & side, true
			case 20:
				return side, true
			case 21:
				return fold(func(a, b uint32) uint32 { return a + b }), true
			}
			prefix := uint64(0)
			for _, y := range v[:l+1] {
				prefix += y & 0xffff
			}
			values := []uint64{prefix, uint64(bits.OnesCount64(ballot(v[:l], func(y uint64) bool { return y&2 != 0 }))),
				fold(func(a, b uint32) uint32 { return a + b }), fold(func(a, b uint32) uint32 { return min(a, b) }),
				fold(func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) }), fold(func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) }),
				fold(func(a, b uint32) uint32 { return a & (b | 1) }), fold(func(a, b uint32) uint32 { return a | b }), fold(func(a, b uint32) uint32 { return a ^ b })}
			if j -= 22; j < len(values) {
				if j == 6 {
					all := ^uint32(0)
					for _, y := range v {
						all &= uint32(y) | 1
					}
					return uint64(all), true
				}
				return values[j], true
			}
			return 0, false
		})

		out2 := d.results(n, 6)
		p[99] = 12345
		in2 := d.words(p, 4, "in")
		d.start("warps."+sm, "barriers", line(1, n), in2, out2, n)
		count := 0
		for _, x := range p {
			count += int(x & 1)
		}
		cells := slices.Clone(p)
		for w := 64; w >= 32; w /= 2 {
			for k := range w {
				cells[k] = (cells[k] + cells[k+w]) & 0xffffffff
			}
		}
		d.expect(sm+" barriers", out2, n, func(i, j int) (uint64, bool) {
			handed := uint64(0)
			if i >= 64 {
				handed = (p[i-64] + 1) & 0xffffffff
			}
			v := []uint64{uint64(count), 0, 1, p[(i*7+3)%n], handed, 0}
			if i < 32 {
				v[5] = (cells[i] + cells[i^1]) & 0xffffffff
			}
			if j < len(v) {
				return v[j], true
			}
			return 0, false
		})

		const blocks, threads = 6, 64
		counter, space, out3 := d.words([]uint64{0}, 4, "counter"), d.words(make([]uint64, blocks*threads), 4, "cells"), d.results(blocks*threads, 1)
		s := line(blocks, threads)
		s.workers = blocks
		d.start("warps."+sm, "meet", s, counter, space, out3)
		for i, g := range d.read(out3, blocks*threads, 8) {
			if want := uint64((i/threads+1)%blocks*1000 + i%threads); g != want {
				t.Fatalf("%s meet: cell %d is %d, want %d", sm, i, g, want)
			}
		}
	}
}

func TestForeignAtomics(t *testing.T) {
	const n, threads, blocks = 240, 96, 3
	for _, sm := range nvidiaTargets {
		d := newDevice(t)
		p := random32(n, 11)
		for i := range p {
			p[i] >>= 8 * (i % 3)
			if i%2 == 0 {
				p[i] = -p[i] & 0xffffffff
			}
		}
		start := []uint64{0, 0, 0x7fffffff, 0x80000000, 0x7fffffff, 0, 0xffffffff, 0, 0, 0, 0, 0}
		start64 := []uint64{0, 1<<63 - 1, 0, 0}
		g := append(slices.Clone(start), make([]uint64, 512+32*blocks-12)...)
		for i := range n {
			g[16+i] = uint64(i) + 1000
		}
		g64 := append(slices.Clone(start64), make([]uint64, 12+8*blocks)...)
		ag, ag64 := d.words(g, 4, "g"), d.words(g64, 8, "g64")
		af, ad, ah, out := d.words(make([]uint64, 2), 4, "f"), d.words([]uint64{0}, 8, "d"), d.words(make([]uint64, 10), 4, "h"), d.results(n, 1)
		in := d.words(p, 4, "in")
		d.start("atomics."+sm, "atomics", line(blocks, threads), in, ag, ag64, af, ad, ah, out, n)

		// cells returns the final contents of the memory cells, after atomic operations with the
		// values in p. The operations may run in any order.
		cells := func(p []uint64, first int) (c []uint64, w []uint64) {
			c, w = slices.Clone(start), slices.Clone(start64)
			for i, x := range p {
				s := int32(x)
				c[0] += x
				c[1] -= x
				c[2] = uint64(uint32(min(int32(c[2]), s)))
				c[3] = uint64(uint32(max(int32(c[3]), s)))
				c[4], c[5] = min(c[4], x), max(c[5], x)
				c[6] &= x | 0x0ff00000
				c[7] |= x & 0x00f0f000
				c[8] ^= x
				if c[9]++; c[9] > 10 {
					c[9] = 0
				}
				if c[10]--; c[10] > 12 {
					c[10] = 12
				}
				w[0] += uint64(int64(s))
				w[1] = uint64(min(int64(w[1]), int64(s)<<20))
				w[2] ^= x<<32 | uint64(first+i)
				w[3] = max(w[3], uint64(int64(s)*int64(s)))
			}
			c[0], c[1] = c[0]&0xffffffff, c[1]&0xffffffff
			return c, w
		}
		check := func(what string, got, want []uint64) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s is\n%x, want\n%x", sm, what, got, want)
			}
		}
		c, w := cells(p, 0)
		check("global", d.read(ag, 11, 4), c[:11])
		check("global, 64 bits", d.read(ag64, 4, 8), w)
		check("count", d.read(ag+44, 1, 4), []uint64{n})
		for b := range blocks {
			part := p[b*threads : min((b+1)*threads, n)]
			c, w := cells(part, b*threads)
			check("shared", d.read(ag+uint64(4*(512+32*b)), 12, 4), append(c[:11:11], uint64(len(part))))
			check("shared, 64 bits", d.read(ag64+uint64(8*(16+8*b)), 4, 8), w)
		}
		check("exchanged", d.read(ag+64, n, 4), p)
		for i, v := range d.read(out, n, 8) {
			if v != uint64(i)+1000 {
				t.Fatalf("%s: exchange %d gave %d", sm, i, v)
			}
		}
		var f15, f7, d2, h0, h1, h2 float64
		for _, x := range p {
			f15 += float64(x & 15)
			f7 += float64(x & 7)
			d2 += float64(int32(x)) * 0.5
			h0 += float64(x & 1)
			h1 += float64(x >> 1 & 1)
			h2 += float64(x >> 2 & 1)
		}
		check("float", d.read(af, 2, 4), []uint64{uint64(math.Float32bits(float32(f15))), uint64(math.Float32bits(float32(f7)))})
		check("double", d.read(ad, 1, 8), []uint64{math.Float64bits(d2)})
		half := func(x float64) uint64 { return binary32.convert(binary16, uint64(math.Float32bits(float32(x))), "rn") }
		brain := func(x float64) uint64 { return binary32.convert(bfloat16, uint64(math.Float32bits(float32(x))), "rn") }
		check("half2", d.read(ah, 3, 2), []uint64{half(h0), half(h1), half(h0)})
		check("cas of 16 bits", d.read(ah+16, 2, 2), []uint64{7, 8})
		if sm == "sm_90" {
			check("bfloat16", d.read(ah+8, 2, 2), []uint64{brain(h0), brain(h2)})
			check("bfloat16 alone", d.read(ah+12, 1, 2), []uint64{brain(h0)})
		}
	}
}
