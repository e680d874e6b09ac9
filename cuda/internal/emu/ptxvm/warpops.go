package ptxvm

import (
	"math/bits"
)

// shuffle decodes shfl.sync.mode.b32 d[|p], a, b, c, membermask.
func shuffle(d *decoder) {
	if !d.modifier("sync") {
		d.fail("%s: only shfl.sync is supported", d.stmt.op)
	}
	mode := d.oneOf("up", "down", "bfly", "idx")
	if mode < 0 {
		d.fail("%s needs .up, .down, .bfly or .idx", d.stmt.op)
	}
	d.typIn(B32)
	a := d.args(5)
	i, x := d.in, d.extra()
	dst := a[0]
	if dst.kind == okGroup {
		if dst.pair != "_" {
			i.q = d.predicate(operand{kind: okWord, name: dst.pair})
		}
		dst.kind = okWord
	}
	i.d = -1
	if dst.name != "_" {
		i.d = d.dst(dst, B32)
	}
	i.a, i.b, i.c = d.src(a[1], B32), d.src(a[2], B32), d.src(a[3], B32)
	x.count, x.mode = d.src(a[4], B32), uint8(mode)
	d.gather(x.count, (*warp).shuffle)
}

// shuffle executes shfl.sync as in the pseudocode of the ISA: c holds the clamp value in bits 0-4
// and the segment mask in bits 8-12.
func (w *warp) shuffle(in *inst, m uint32) {
	w.members(in, m, in.x.count)
	w.requireWritten(in, m, in.b, in.c)
	src, bs, cs := &w.r[in.a], &w.r[in.b], &w.r[in.c]
	var out lanes
	var valid uint32
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		b, c := int(bs[l]&31), int(cs[l])
		clamp, seg := c&31, c>>8&31
		maxLane := l&seg | clamp&^seg
		minLane := l & seg
		var j int
		ok := false
		switch in.x.mode {
		case 0:
			j = l - b
			ok = j >= maxLane
		case 1:
			j = l + b
			ok = j <= maxLane
		case 2:
			j = l ^ b
			ok = j <= maxLane
		case 3:
			j = minLane | b&^seg
			ok = j <= maxLane
		}
		if !ok {
			j = l
		} else {
			valid |= 1 << l
		}
		if m>>j&1 == 0 {
			w.fault(ShuffleDivergence, in, l, "lane %d reads from lane %d, which does not take part", l, j)
		}
		// Only registers from which some lane reads must have been written. Often all lanes read a
		// result that only one lane has written.
		if w.wm[in.a]>>j&1 == 0 {
			w.uninitialised(in, in.a, 1<<j)
		}
		out[l] = src[j]
	}
	if in.d >= 0 {
		w.write(in.d, &out, m)
	}
	if in.q != 0 {
		w.setPred(in.q, valid, m)
	}
}

// vote decodes vote.sync.
func vote(d *decoder) {
	if !d.modifier("sync") {
		d.fail("%s: only vote.sync is supported", d.stmt.op)
	}
	mode := d.oneOf("all", "any", "uni", "ballot")
	i, x := d.in, d.extra()
	a := d.args(3)
	switch {
	case mode < 0:
		d.fail("%s needs .all, .any, .uni or .ballot", d.stmt.op)
	case mode == 3:
		d.typIn(B32)
		i.d = d.dst(a[0], B32)
	default:
		d.typIn(Pred)
		i.p = d.predicate(a[0])
	}
	x.p, x.pn = d.condition(a[1])
	x.count, x.mode = d.src(a[2], B32), uint8(mode)
	d.gather(d.in.x.count, func(w *warp, in *inst, m uint32) {
		w.members(in, m, in.x.count)
		v := w.extraPred(in, m) & m
		var out lanes
		var p uint32
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			g := uint32(w.r[in.x.count][l]) & m
			switch mode {
			case 0:
				p |= bit(v&g == g) << l
			case 1:
				p |= bit(v&g != 0) << l
			case 2:
				p |= bit(v&g == g || v&g == 0) << l
			default:
				out[l] = uint64(v & g)
			}
		}
		if mode == 3 {
			w.write(in.d, &out, m)
		} else {
			w.setPred(in.p, p, m)
		}
	})
}

func activeMask(d *decoder) {
	d.typIn(B32)
	d.in.d = d.dst(d.args(1)[0], B32)
	d.run(func(w *warp, in *inst, m uint32) {
		var v lanes
		for l := range v {
			v[l] = uint64(m)
		}
		w.write(in.d, &v, m)
	})
}

// reduceSync decodes redux.sync.op.type d, a, membermask.
func reduceSync(d *decoder) {
	d.require(80, 7, 0)
	if !d.modifier("sync") {
		d.fail("%s needs .sync", d.stmt.op)
	}
	op := d.oneOf("add", "min", "max", "and", "or", "xor")
	t := d.typIn(U32, S32, B32)
	if op < 0 || (op >= 3) != (t == B32) {
		d.fail("%s: .add, .min and .max need .u32 or .s32; .and, .or and .xor need .b32", d.stmt.op)
	}
	a := d.args(3)
	d.in.d, d.in.a = d.dst(a[0], t), d.src(a[1], t)
	d.extra().count = d.src(a[2], B32)
	d.gather(d.in.x.count, func(w *warp, in *inst, m uint32) {
		w.members(in, m, in.x.count)
		w.requireWritten(in, m, in.a)
		src := &w.r[in.a]
		var out lanes
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			g := uint32(w.r[in.x.count][l]) & m
			acc := src[bits.TrailingZeros32(g)]
			for g &= g - 1; g != 0; g &= g - 1 {
				v := src[bits.TrailingZeros32(g)]
				switch op {
				case 0:
					acc += v
				case 1:
					if t == S32 && int32(v) < int32(acc) || t == U32 && v < acc {
						acc = v
					}
				case 2:
					if t == S32 && int32(v) > int32(acc) || t == U32 && v > acc {
						acc = v
					}
				case 3:
					acc &= v
				case 4:
					acc |= v
				default:
					acc ^= v
				}
			}
			out[l] = uint64(uint32(acc))
		}
		w.write(in.d, &out, m)
	})
}

// matchSync decodes match.any.sync d, a, mask and match.all.sync d[|p], a, mask.
func matchSync(d *decoder) {
	d.require(70, 6, 0)
	mode := d.oneOf("any", "all")
	if mode < 0 || !d.modifier("sync") {
		d.fail("%s needs .any or .all, and .sync", d.stmt.op)
	}
	t := d.typIn(B32, B64)
	a := d.args(3)
	i := d.in
	dst := a[0]
	if dst.kind == okGroup {
		if mode == 0 {
			d.fail("%s: match.any has no predicate result", d.stmt.op)
		}
		i.q = d.predicate(operand{kind: okWord, name: dst.pair})
		dst.kind = okWord
	}
	i.d, i.a = d.dst(dst, B32), d.src(a[1], t)
	d.extra().count = d.src(a[2], B32)
	d.gather(d.in.x.count, func(w *warp, in *inst, m uint32) {
		w.members(in, m, in.x.count)
		w.requireWritten(in, m, in.a)
		src := &w.r[in.a]
		var out lanes
		var all uint32
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			g := uint32(w.r[in.x.count][l]) & m
			var same uint32
			for q := g; q != 0; q &= q - 1 {
				j := bits.TrailingZeros32(q)
				same |= bit(src[j] == src[l]) << j
			}
			if mode == 1 {
				if same != g {
					same = 0
				} else {
					all |= 1 << l
				}
			}
			out[l] = uint64(same)
		}
		w.write(in.d, &out, m)
		if in.q != 0 {
			w.setPred(in.q, all, m)
		}
	})
}

// electSync decodes elect.sync d|p, membermask. It elects the lowest lane of the mask.
func electSync(d *decoder) {
	d.require(90, 8, 0)
	if !d.modifier("sync") {
		d.fail("%s needs .sync", d.stmt.op)
	}
	a := d.args(2)
	if a[0].kind != okGroup {
		d.fail("%s needs a destination register and predicate", d.stmt.op)
	}
	i := d.in
	i.q = d.predicate(operand{kind: okWord, name: a[0].pair})
	x := d.extra()
	x.n = -1
	if a[0].name != "_" {
		x.n = int(d.dst(operand{kind: okWord, name: a[0].name}, B32))
	}
	x.count = d.src(a[1], B32)
	d.gather(d.in.x.count, func(w *warp, in *inst, m uint32) {
		w.members(in, m, in.x.count)
		var out lanes
		var p uint32
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			leader := bits.TrailingZeros32(uint32(w.r[in.x.count][l]) & m)
			out[l] = uint64(leader)
			p |= bit(leader == l) << l
		}
		if in.x.n >= 0 {
			w.write(int32(in.x.n), &out, m)
		}
		w.setPred(in.q, p, m)
	})
}
