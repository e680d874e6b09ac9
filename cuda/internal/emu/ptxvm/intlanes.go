package ptxvm

import "math/bits"

// Integer operations on the lanes of a warp. The frequent operations are loops over the lanes. The
// rare ones are functions of one lane, which are applied to each lane.

type laneFn = func(d, a, b, c *lanes)

func lift1(f func(a uint64) uint64) laneFn {
	return func(d, a, _, _ *lanes) {
		for l := range d {
			d[l] = f(a[l])
		}
	}
}

func lift2(f func(a, b uint64) uint64) laneFn {
	return func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = f(a[l], b[l])
		}
	}
}

func lift3(f func(a, b, c uint64) uint64) laneFn {
	return func(d, a, b, c *lanes) {
		for l := range d {
			d[l] = f(a[l], b[l], c[l])
		}
	}
}

type integers interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int8 | ~int16 | ~int32 | ~int64
}

// narrow zero-extends a value from the width of T.
func narrow[T integers](v T) uint64 {
	switch any(v).(type) {
	case uint8, int8:
		return uint64(uint8(v))
	case uint16, int16:
		return uint64(uint16(v))
	case uint32, int32:
		return uint64(uint32(v))
	}
	return uint64(v)
}

func movLanes(d, a, _, _ *lanes) { *d = *a }

func addU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l] + b[l]))
	}
}
func subU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l] - b[l]))
	}
}
func mulU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l] * b[l]))
	}
}
func madU32(d, a, b, c *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l]*b[l] + c[l]))
	}
}
func addU64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] + b[l]
	}
}
func subU64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] - b[l]
	}
}
func mulU64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] * b[l]
	}
}
func madU64(d, a, b, c *lanes) {
	for l := range d {
		d[l] = a[l]*b[l] + c[l]
	}
}
func mulWideU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l])) * uint64(uint32(b[l]))
	}
}
func mulWideS32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(int64(int32(a[l])) * int64(int32(b[l])))
	}
}
func madWideU32(d, a, b, c *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l]))*uint64(uint32(b[l])) + c[l]
	}
}
func madWideS32(d, a, b, c *lanes) {
	for l := range d {
		d[l] = uint64(int64(int32(a[l]))*int64(int32(b[l]))) + c[l]
	}
}
func mulHiU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] * b[l] >> 32
	}
}
func andBits(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] & b[l]
	}
}
func orBits(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] | b[l]
	}
}
func xorBits(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] ^ b[l]
	}
}
func shl32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l]) << uint32(b[l]))
	}
}
func shr32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l]) >> uint32(b[l]))
	}
}
func shl64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] << uint32(b[l])
	}
}
func shr64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] >> uint32(b[l])
	}
}
func sext32(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = uint64(int64(int32(a[l])))
	}
}
func zext32(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l]))
	}
}

// The remaining operations, by type.

func minInt[T integers](d, a, b, _ *lanes) {
	for l := range d {
		d[l] = narrow(min(T(a[l]), T(b[l])))
	}
}
func maxInt[T integers](d, a, b, _ *lanes) {
	for l := range d {
		d[l] = narrow(max(T(a[l]), T(b[l])))
	}
}

// divInt divides lane by lane. The ISA leaves x/0 undefined. The result is then all ones, as on
// hardware. For x%0, remInt gives x.
func divInt[T integers](d, a, b, _ *lanes) {
	for l := range d {
		if T(b[l]) == 0 {
			d[l] = narrow(^T(0))
		} else {
			d[l] = narrow(T(a[l]) / T(b[l]))
		}
	}
}
func remInt[T integers](d, a, b, _ *lanes) {
	for l := range d {
		if T(b[l]) == 0 {
			d[l] = narrow(T(a[l]))
		} else {
			d[l] = narrow(T(a[l]) % T(b[l]))
		}
	}
}
func shrInt[T integers](d, a, b, _ *lanes) {
	for l := range d {
		d[l] = narrow(T(a[l]) >> uint32(b[l]))
	}
}
func absInt[T integers](d, a, _, _ *lanes) {
	for l := range d {
		v := T(a[l])
		if v < 0 {
			v = -v
		}
		d[l] = narrow(v)
	}
}
func sadInt[T integers](d, a, b, c *lanes) {
	for l := range d {
		x, y := T(a[l]), T(b[l])
		d[l] = narrow(T(c[l]) + max(x, y) - min(x, y))
	}
}

// byType returns the operation on lanes for an integer type t. The other arguments are the
// operations for each type.
func byType(t Type, u16, s16, u32, s32, u64, s64 laneFn) laneFn {
	switch t {
	case U16:
		return u16
	case S16:
		return s16
	case U32:
		return u32
	case S32:
		return s32
	case U64:
		return u64
	case S64:
		return s64
	}
	return nil
}

func signExtend(v uint64, n int) int64 { return int64(v<<(64-n)) >> (64 - n) }

func mulHi(a, b uint64, t Type) uint64 {
	n := t.bits()
	if n == 64 {
		hi, _ := bits.Mul64(a, b)
		if t.signed() {
			if int64(a) < 0 {
				hi -= b
			}
			if int64(b) < 0 {
				hi -= a
			}
		}
		return hi
	}
	if t.signed() {
		return uint64(signExtend(a, n)*signExtend(b, n)>>n) & t.mask()
	}
	return (a & t.mask()) * (b & t.mask()) >> n
}

func mulWide(a, b uint64, t Type) uint64 {
	n := t.bits()
	m := ^uint64(0) >> (64 - 2*n)
	if t.signed() {
		return uint64(signExtend(a, n)*signExtend(b, n)) & m
	}
	return (a & t.mask()) * (b & t.mask()) & m
}

func satS32(v int64) uint64 {
	return uint64(uint32(max(min(v, 1<<31-1), -1<<31)))
}

// bfe extracts c bits of a from bit b on. The bits above this field become 0 for an unsigned type.
// For a signed type they become copies of the field's top bit, or of the register's top bit if the
// field reaches beyond the register.
func bfe(a, b, c uint64, t Type) uint64 {
	msb := uint64(t.bits() - 1)
	pos, n := b&0xff, c&0xff
	var sign uint64
	if t.signed() && n != 0 {
		sign = a >> min(pos+n-1, msb) & 1
	}
	var r uint64
	for i := uint64(0); i <= msb; i++ {
		bit := sign
		if i < n && pos+i <= msb {
			bit = a >> (pos + i) & 1
		}
		r |= bit << i
	}
	return r
}

func bfi(a, b, pos, n uint64, t Type) uint64 {
	pos, n = pos&0xff, n&0xff
	if pos >= 64 || n == 0 {
		return b
	}
	field := ^uint64(0)
	if n < 64 {
		field = 1<<n - 1
	}
	field = field << pos & t.mask()
	return b&^field | a<<pos&field
}

func bfind(a uint64, t Type, shift bool) uint64 {
	n := t.bits()
	a &= t.mask()
	if t.signed() && signExtend(a, n) < 0 {
		a = ^a & t.mask()
	}
	if a == 0 {
		return 0xffffffff
	}
	p := bits.Len64(a) - 1
	if shift {
		p = n - 1 - p
	}
	return uint64(p)
}

func lop3(a, b, c uint64, lut uint8) uint64 {
	var r uint64
	for i := range 8 {
		if lut>>i&1 == 0 {
			continue
		}
		x, y, z := a, b, c
		if i&4 == 0 {
			x = ^x
		}
		if i&2 == 0 {
			y = ^y
		}
		if i&1 == 0 {
			z = ^z
		}
		r |= x & y & z
	}
	return uint64(uint32(r))
}

// prmt selects bytes of b:a. The argument mode is as in the ISA, or -1 for the generic form.
func prmt(a, b, c uint64, mode int) uint64 {
	src := a&0xffffffff | b<<32
	var r uint64
	s := int(c & 3)
	for i := range 4 {
		var sel int
		sign := false
		switch mode {
		case -1:
			sel, sign = int(c>>(4*i)&7), c>>(4*i+3)&1 != 0
		case 0: // f4e
			sel = s + i
		case 1: // b4e
			sel = (s - i) & 7
		case 2: // rc8
			sel = s
		case 3: // ecl
			sel = max(i, s)
		case 4: // ecr
			sel = min(i, s)
		case 5: // rc16
			sel = s&1*2 + i&1
		}
		v := src >> (8 * sel) & 0xff
		if sign {
			v = uint64(uint8(int8(v) >> 7))
		}
		r |= v << (8 * i)
	}
	return r
}
