package ptxvm

import (
	"math/big"
	"math/bits"
	"testing"
)

// field returns the n bits of a that begin at bit pos. As the ISA defines it, bits beyond the
// register are copies of the sign bit, or zero if the field is unsigned.
func field(a uint64, pos, n, width uint, signed bool) uint64 {
	var v big.Int
	v.SetUint64(a)
	if signed && a>>(width-1)&1 != 0 {
		v.Sub(&v, new(big.Int).Lsh(big.NewInt(1), width))
	}
	v.Rsh(&v, pos)
	mod := new(big.Int).Lsh(big.NewInt(1), n)
	v.Mod(&v, mod)
	if signed && n > 0 && v.Bit(int(n-1)) != 0 {
		v.Sub(&v, mod)
	}
	return v.Mod(&v, new(big.Int).Lsh(big.NewInt(1), width)).Uint64()
}

// insert returns b with its n bits from pos on replaced by the lower n bits of a.
func insert(a, b uint64, pos, n, width uint) uint64 {
	for k := range n {
		if pos+k < width {
			b = b&^(1<<(pos+k)) | a>>k&1<<(pos+k)
		}
	}
	return b
}

func bytesOf(a, b uint32) (v [8]uint32) {
	for i := range 4 {
		v[i], v[4+i] = a>>(8*i)&255, b>>(8*i)&255
	}
	return v
}

func fromBytes(b0, b1, b2, b3 uint32) uint32 { return b0 | b1<<8 | b2<<16 | b3<<24 }

func clampS32(v int64) uint32 { return uint32(max(min(v, 1<<31-1), -1<<31)) }

func diff[T int32 | uint32](a, b T) uint32 {
	if a > b {
		return uint32(a - b)
	}
	return uint32(b - a)
}

func bits32Row(row []uint64) (out []uint64) {
	a, b, c := uint32(row[0]), uint32(row[1]), uint32(row[2])
	sa, sb, sc := int64(int32(a)), int64(int32(b)), int64(int32(c))
	add := func(v ...uint32) {
		for _, v := range v {
			out = append(out, uint64(v))
		}
	}
	ffs := uint32(0)
	if a != 0 {
		ffs = uint32(bits.TrailingZeros32(a)) + 1
	}
	by := bytesOf(a, b)
	var perm [4]uint32
	for i := range perm {
		sel := c >> (4 * i) & 15
		perm[i] = by[sel&7]
		if sel&8 != 0 {
			perm[i] = uint32(int32(int8(by[sel&7]))>>7) & 255
		}
	}
	ab := uint64(b)<<32 | uint64(a)
	n, k := c&31, min(c, 32)
	add(bits.Reverse32(a), uint32(bits.OnesCount32(a)), uint32(bits.LeadingZeros32(a)), ffs)
	// The function __byte_perm uses three bits for each byte. The compiler's code must ignore the
	// fourth.
	add(fromBytes(by[c&7], by[c>>4&7], by[c>>8&7], by[c>>12&7]))
	add(uint32(ab<<n>>32), uint32(ab>>n))
	add(uint32(ab<<k>>32), uint32(ab>>k))
	a24, b24 := int64(int32(a<<8))>>8, int64(int32(b<<8))>>8
	add(uint32(uint64(a)*uint64(b)>>32), uint32(sa*sb>>32), a&0xffffff*(b&0xffffff), uint32(a24*b24))
	add(diff(a, b)+c, diff(int32(a), int32(b))+c)
	add(uint32((uint64(a)+uint64(b))>>1), uint32((sa+sb)>>1), uint32((uint64(a)+uint64(b)+1)>>1))
	var dpu, dps, dlo, dhi uint32
	for i := range 4 {
		dpu += by[i] * by[4+i]
		dps += uint32(int32(int8(by[i])) * int32(int8(by[4+i])))
	}
	for i := range 2 {
		dlo += a >> (16 * i) & 0xffff * by[4+i]
		dhi += uint32(int32(int16(a>>(16*i))) * int32(int8(by[6+i])))
	}
	add(dpu+c, dps+c, dlo+c, dhi+c)
	out = append(out, uint64(a)*uint64(b), uint64(sa*sb), uint64(a)*uint64(b)+uint64(c), uint64(sa*sb+sc))
	add(a&b^a&c^b&c, a>>(c&31)&0xff)
	s := c & 63
	add(a<<s, a>>s, uint32(int32(a)>>s))
	bp, cp := uint(b&63), uint(c&63)
	// the ISA says that a signed field of 0 bits is 0
	add(uint32(field(uint64(a), bp, cp, 32, false)))
	add(uint32(field(uint64(a), bp, cp, 32, true)))
	add(uint32(insert(uint64(a), uint64(b), cp, uint(a&63), 32)))
	find := func(v uint32) uint32 {
		if v == 0 {
			return 0xffffffff
		}
		return uint32(bits.Len32(v) - 1)
	}
	abs := a
	if int32(a) < 0 {
		abs = ^a
	}
	shift := find(abs)
	if shift != 0xffffffff {
		shift = 31 - shift
	}
	add(find(a), find(abs), shift, bit(a == 0))
	q := c & 3
	add(fromBytes(by[q], by[q+1], by[q+2], by[q+3]))
	add(fromBytes(by[q], by[(q+7)&7], by[(q+6)&7], by[(q+5)&7]))
	add(fromBytes(by[q], by[q], by[q], by[q]))
	add(fromBytes(by[q], by[max(1, q)], by[max(2, q)], by[3]))
	add(fromBytes(by[0], by[min(1, q)], by[min(2, q)], by[q]))
	add(fromBytes(by[2*(q&1)], by[2*(q&1)+1], by[2*(q&1)], by[2*(q&1)+1]))
	add(uint32(uint64(a)*uint64(b)>>32)+c, uint32(sa*sb>>32)+c, clampS32(sa*sb>>32+sc))
	add(uint32(a24*b24)+c, uint32(uint64(a&0xffffff)*uint64(b&0xffffff)>>16)+c)
	add(clampS32(sa+sb), clampS32(sa-sb))
	lo, carry := bits.Add32(a, b, 0)
	hi, carry := bits.Add32(a, c, carry)
	add(lo, hi, carry)
	lo, carry = bits.Sub32(a, b, 0)
	hi, carry = bits.Sub32(a, c, carry)
	add(lo, hi, -carry)
	phi, plo := bits.Mul32(a, b)
	lo, carry = bits.Add32(plo, c, 0)
	hi, carry = bits.Add32(phi, c, carry)
	add(lo, hi, carry)
	return out
}

func bits64Row(row []uint64) (out []uint64) {
	a, b, c := row[0], row[1], row[2]
	ffs := uint64(0)
	if a != 0 {
		ffs = uint64(bits.TrailingZeros64(a)) + 1
	}
	hi, lo := bits.Mul64(a, b)
	var signed big.Int
	signed.Mul(big.NewInt(int64(a)), big.NewInt(int64(b))).Rsh(&signed, 64)
	signedHi := new(big.Int).And(&signed, new(big.Int).SetUint64(^uint64(0))).Uint64()
	out = append(out, bits.Reverse64(a), uint64(bits.OnesCount64(a)), uint64(bits.LeadingZeros64(a)), ffs, hi, signedHi, a&b^a&c^b&c, a<<(c&63)|b>>(63-c&63))
	k, m := uint(c&127), uint(b&127)
	out = append(out, a<<k, a>>k, uint64(int64(a)>>k), field(a, m, k, 64, false), field(a, m, k, 64, true), insert(a, b, m, k, 64))
	l2, carry := bits.Add64(lo, c, 0)
	out = append(out, l2, hi+carry)
	d := new(big.Int).Sub(big.NewInt(int64(a)), big.NewInt(int64(b)))
	d.Rsh(d, 1).And(d, new(big.Int).SetUint64(^uint64(0)))
	out = append(out, d.Uint64(), uint64(int64(a)>>3), uint64(uint32(a>>32)+uint32(b)))
	return append(out, (a>>32<<32|uint64(uint32(b)))^c)
}

func bits16Row(row []uint64) []uint64 {
	a, b, c := uint16(row[0]), uint16(row[1]), uint16(row[2])
	k := c & 31
	p := int32(int16(a)) * int32(int16(b))
	return []uint64{uint64(a << k), uint64(a >> k), uint64(uint16(int16(a) >> k)), uint64(uint32(a) * uint32(b)), uint64(uint32(p) + uint32(c)<<20),
		uint64(uint16(p >> 16)), uint64(uint32(a) * uint32(b) >> 16), uint64(uint16(p) + c)}
}

func TestForeignBits(t *testing.T) {
	for _, sm := range nvidiaTargets {
		table(t, "bits."+sm, "bits32", 4, rowsOf(corners(32), 32, 3), equal, bits32Row)
		table(t, "bits."+sm, "bits64", 8, rowsOf(corners(64), 64, 3), equal, bits64Row)
		table(t, "bits."+sm, "bits16", 2, rowsOf(corners(16), 16, 3), equal, bits16Row)
	}
}
