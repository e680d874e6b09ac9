package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const streamAhead = 32 // a copy that streams prefetches the row this many rows ahead

// copyRows emits the kernel that packs a panel whose rows are contiguous. It copies rows of the
// given number of bytes.
func copyRows(b *build.Context, name string, bytes, row int, stream bool) {
	b.Function(name)
	b.Attributes(build.NOSPLIT)
	b.Doc(fmt.Sprintf("%s copies k rows of %d bytes: from src, with distance bytes between their beginnings, to dst, without gaps.%s", name, row, streamed(stream)))
	b.Pragma("noescape")
	b.SignatureExpr("func(dst, src *byte, distance, k int)")
	dst, src, distance, k := load(b, "dst"), load(b, "src"), load(b, "distance"), load(b, "k")
	distance3 := b.GP64()
	b.LEAQ(operand.Mem{Base: distance, Index: distance, Scale: 2}, distance3)
	ahead := b.GP64()
	if stream {
		b.IMUL3Q(operand.I8(streamAhead), distance, ahead)
		b.ADDQ(src, ahead)
	}
	move := func(rows int) {
		var v []reg.VecVirtual
		for r := range rows {
			m := operand.Mem{Base: src}
			switch r {
			case 1, 2:
				m.Index, m.Scale = distance, uint8(r)
			case 3:
				m.Index, m.Scale = distance3, 1
			}
			for at := 0; stream && rows > 1 && at < row; at += 64 {
				n := m
				n.Base, n.Disp = ahead, at
				b.PREFETCHT1(n)
			}
			for at := 0; at < row; at += bytes {
				x := vec(b, bytes)
				m.Disp = at
				b.VMOVUPS(m, x)
				v = append(v, x)
			}
		}
		for i, x := range v {
			store(b, stream, x, operand.Mem{Base: dst, Disp: i * bytes})
		}
		b.ADDQ(operand.I32(rows*row), dst)
	}
	loops(b, stream, k, 4, func() {
		move(4)
		b.LEAQ(operand.Mem{Base: src, Index: distance, Scale: 4}, src)
		if stream {
			b.LEAQ(operand.Mem{Base: ahead, Index: distance, Scale: 4}, ahead)
		}
	}, 1, func() {
		move(1)
		b.ADDQ(distance, src)
	})
}
