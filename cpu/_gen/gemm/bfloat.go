package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Products of bfloat16 use VDPBF16PS. Neither avo nor Go's assembler knows this instruction. The
// encoding of VPDPWSSD (VNNI) differs from it only in the prefix. The generator therefore emits
// VPDPWSSD as a placeholder. After avo has allocated the registers, [dotInstructions] replaces the
// placeholder by the bytes of VDPBF16PS.

var placeholder = regexp.MustCompile(`(?m)^\tVPDPWSSD +Z(\d+), Z(\d+), Z(\d+)$`)

// dotInstructions replaces each VPDPWSSD in text by the bytes of VDPBF16PS: EVEX.512.F3.0F38.W0 52
// /r (Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, 2.7 and
// VDPBF16PS). The prefix holds the upper bits of the registers' numbers in inverted form.
func dotInstructions(text []byte) []byte {
	text = placeholder.ReplaceAllFunc(text, func(line []byte) []byte {
		var n [3]byte
		for i, s := range placeholder.FindSubmatch(line)[1:] {
			v, err := strconv.Atoi(string(s))
			check(err)
			n[i] = byte(v)
		}
		rm, v, r := n[0], n[1], n[2]
		bit := func(x byte, from, to int) byte { return (^x >> from & 1) << to }
		code := [6]byte{0x62, bit(r, 3, 7) | bit(rm, 4, 6) | bit(rm, 3, 5) | bit(r, 4, 4) | 2,
			^v&15<<3 | 4 | 2, 0x40 | bit(v, 4, 3), 0x52, 0xC0 | r&7<<3 | rm&7}
		return fmt.Appendf(nil, "\tLONG $0x%02x%02x%02x%02x; WORD $0x%02x%02x // VDPBF16PS Z%d, Z%d, Z%d",
			code[3], code[2], code[1], code[0], code[5], code[4], rm, v, r)
	})
	if bytes.Contains(text, []byte("VPDPWSSD")) {
		panic("gemm: a VDPBF16PS with operands other than registers")
	}
	return text
}

// interleave emits the kernel that packs a panel whose rows are contiguous. It stores neighbours
// along k next to each other, in pairs.
func interleave(b *build.Context, name string, vectors int, stream bool) {
	b.Function(name)
	b.Attributes(build.NOSPLIT)
	b.Doc(fmt.Sprintf("%s computes dst[p*%d+2*r] = src[2*p*ks+r] and dst[p*%d+2*r+1] = src[(2*p+1)*ks+r] for r < w and p < k,", name, 32*vectors, 32*vectors),
		fmt.Sprintf("and puts zeros there for r from w to %d.%s", 16*vectors-1, streamed(stream)))
	b.Pragma("noescape")
	b.SignatureExpr("func(dst, src *uint16, ks, w, k int)")
	dst, src, ks, w, k := load(b, "dst"), load(b, "src"), load(b, "ks"), load(b, "w"), load(b, "k")
	b.SHLQ(operand.U8(1), ks)
	ks3 := b.GP64()
	b.LEAQ(operand.Mem{Base: ks, Index: ks, Scale: 2}, ks3)
	ones, bits := b.GP64(), b.GP64()
	b.MOVQ(operand.I32(-1), ones)
	b.BZHIQ(w, ones, bits)
	mask := make([]reg.Register, vectors)
	for v := range mask {
		mask[v] = b.K()
		b.KMOVQ(bits, mask[v])
		b.SHRQ(operand.U8(16), bits)
	}
	pair := func(m, n operand.Mem, at int) {
		for v := range vectors {
			lo, hi := b.ZMM(), b.ZMM()
			m.Disp, n.Disp = 32*v, 32*v
			b.VPMOVZXWD_Z(m, mask[v], lo)
			b.VPMOVZXWD_Z(n, mask[v], hi)
			b.VPSLLD(operand.U8(16), hi, hi)
			b.VPORD(lo, hi, hi)
			store(b, stream, hi, operand.Mem{Base: dst, Disp: 64 * (at*vectors + v)})
		}
	}
	first, second := operand.Mem{Base: src}, operand.Mem{Base: src, Index: ks, Scale: 1}
	loops(b, stream, k, 2, func() {
		pair(first, second, 0)
		pair(operand.Mem{Base: src, Index: ks, Scale: 2}, operand.Mem{Base: src, Index: ks3, Scale: 1}, 1)
		b.LEAQ(operand.Mem{Base: src, Index: ks, Scale: 4}, src)
		b.ADDQ(operand.I32(128*vectors), dst)
	}, 1, func() {
		pair(first, second, 0)
		b.LEAQ(operand.Mem{Base: src, Index: ks, Scale: 2}, src)
		b.ADDQ(operand.I32(64*vectors), dst)
	})
}
