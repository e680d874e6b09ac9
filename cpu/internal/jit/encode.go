package jit

import "encoding/binary"

// assembler writes machine code for amd64. Constants are in memory after the code. An instruction
// addresses a constant relative to its own end. The encodings are in the Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 2, sections 2.1 (prefixes), 2.3 (VEX) and 2.7
// (EVEX).
type assembler struct {
	wide bool // the code is for AVX-512; otherwise for AVX2
	code []byte
	// constants; each is repeated until it fills the number of bytes that entry returns
	pool   []uint64
	index  map[uint64]int // index of each constant in pool
	fixups []fixup
}

// fixup is the place of a displacement in the code. The displacement leads to a constant. finish
// computes it when the address of the constant is known.
type fixup struct{ at, end, constant int }

// gpr is a general-purpose register.
type gpr uint8

const (
	rax gpr = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r8
	r9
	r10
	r11
	r12
	r13
	r14
	r15
	none gpr = 0xff
)

// These are the lengths of vectors, as EVEX encodes them.
const (
	len128 = iota
	len256
	len512
)

// opcode describes a vector instruction. space is the opcode map (1: 0F, 2: 0F38, 3: 0F3A), and
// prefix is the mandatory prefix (1: 66, 2: F3, 3: F2). w is the W bit, and op is the opcode byte.
type opcode struct{ space, prefix, w, op byte }

// operand is the last source of an instruction, or the destination of a store. It is a register,
// memory at base + index<<scale + disp, or a constant. If spread is set, one element in memory
// fills all lanes.
type operand struct {
	reg         uint8
	memory      bool
	spread      bool
	base, index gpr
	scale       uint8
	disp        int32
	constant    int // index of the constant in the pool; -1 if the operand is not a constant
}

func register(r uint8) operand { return operand{reg: r, constant: -1} }

func memory(base gpr, disp int32) operand {
	return operand{memory: true, base: base, index: none, disp: disp, constant: -1}
}

// options holds options of a vector instruction. The zero value means no mask and no immediate
// byte.
type options struct {
	mask   uint8
	zero   bool // lanes outside of the mask become 0; otherwise they keep their value
	hasImm bool
	imm    byte
}

func imm(v byte) options { return options{hasImm: true, imm: v} }

func (a *assembler) bytes(b ...byte) { a.code = append(a.code, b...) }

func (a *assembler) word(v uint32) { a.code = binary.LittleEndian.AppendUint32(a.code, v) }

// vector writes an instruction on vectors, in EVEX form for AVX-512 and in VEX form for AVX2. The
// arguments reg and vvvv are the fields of the encoding with these names. Each holds the number of
// a vector register or of a mask register, or an opcode extension.
func (a *assembler) vector(o opcode, length int, reg, vvvv uint8, src operand, opt options) {
	if !a.wide {
		if opt.mask != 0 || length == len512 || src.spread {
			panic("jit: an instruction of AVX-512 for a processor without it")
		}
		if o == spread[1] { // the VEX form has another W bit
			o.w = 0
		}
		a.vex(o, byte(length), reg, vvvv, src, opt)
		return
	}
	flag := func(set bool, bit byte) byte {
		if set {
			return bit
		}
		return 0
	}
	x, b := src.reg>>4&1, src.reg>>3&1
	if src.memory {
		x, b = 0, 0
		if src.constant < 0 {
			b = byte(src.base) >> 3
			if src.index != none {
				x = byte(src.index) >> 3
			}
		}
	}
	a.bytes(0x62,
		(reg>>3&1^1)<<7|(x^1)<<6|(b^1)<<5|(reg>>4&1^1)<<4|o.space,
		o.w<<7|(^vvvv&15)<<3|1<<2|o.prefix,
		flag(opt.zero, 1<<7)|byte(length)<<5|flag(src.spread, 1<<4)|(vvvv>>4&1^1)<<3|opt.mask,
		o.op)
	a.modrm(reg&7, src, int(flag(opt.hasImm, 1)))
	if opt.hasImm {
		a.bytes(opt.imm)
	}
}

// masks writes an instruction on mask registers. The argument long is the L bit of the encoding.
func (a *assembler) masks(o opcode, long byte, reg, vvvv uint8, src operand) {
	a.vex(o, long, reg, vvvv, src, options{})
}

// vex writes an instruction in VEX form.
func (a *assembler) vex(o opcode, long byte, reg, vvvv uint8, src operand, opt options) {
	x, b, after := byte(0), src.reg>>3&1, 0
	if src.memory {
		b = 0
		if src.constant < 0 {
			b = byte(src.base) >> 3
			if src.index != none {
				x = byte(src.index) >> 3
			}
		}
	}
	if opt.hasImm {
		after = 1
	}
	a.bytes(0xc4, (reg>>3&1^1)<<7|(x^1)<<6|(b^1)<<5|o.space, o.w<<7|(^vvvv&15)<<3|long<<2|o.prefix, o.op)
	a.modrm(reg&7, src, after)
	if opt.hasImm {
		a.bytes(opt.imm)
	}
}

// modrm writes the bytes that address src. The argument following is the number of bytes that the
// instruction has after them.
func (a *assembler) modrm(reg byte, src operand, following int) {
	switch {
	case !src.memory:
		a.bytes(3<<6 | reg<<3 | src.reg&7)
	case src.constant >= 0:
		a.bytes(reg<<3 | 5)
		a.fixups = append(a.fixups, fixup{len(a.code), len(a.code) + 4 + following, src.constant})
		a.word(0)
	default:
		mod := byte(2) // an address with a displacement of 32 bits
		if src.disp == 0 && src.base&7 != rbp {
			mod = 0
		}
		switch {
		case src.index != none:
			a.bytes(mod<<6|reg<<3|4, src.scale<<6|byte(src.index&7)<<3|byte(src.base&7))
		case src.base&7 == rsp:
			a.bytes(mod<<6|reg<<3|4, 4<<3|byte(src.base&7))
		default:
			a.bytes(mod<<6 | reg<<3 | byte(src.base&7))
		}
		if mod == 2 {
			a.word(uint32(src.disp))
		}
	}
}

// integer writes a 64-bit instruction on a general-purpose register. Its opcode has one byte.
func (a *assembler) integer(op byte, reg gpr, src operand) {
	x, b := byte(0), src.reg>>3&1
	if src.memory {
		b = byte(src.base) >> 3
		if src.index != none {
			x = byte(src.index) >> 3
		}
	}
	a.bytes(0x48|byte(reg)>>3<<2|x<<1|b, op)
	a.modrm(byte(reg&7), src, 0)
}

// load sets r to the word at base + disp.
func (a *assembler) load(r, base gpr, disp int32) { a.integer(0x8b, r, memory(base, disp)) }

// address64 sets r to the address of src.
func (a *assembler) address64(r gpr, src operand) { a.integer(0x8d, r, src) }

func (a *assembler) addMemory(r, base gpr, disp int32) { a.integer(0x03, r, memory(base, disp)) }

func (a *assembler) addImmediate(r gpr, v int8) {
	a.integer(0x83, 0, register(uint8(r)))
	a.bytes(byte(v))
}

// andImmediate sets r to r & v, where v is sign-extended.
func (a *assembler) andImmediate(r gpr, v int8) {
	a.integer(0x83, 4, register(uint8(r)))
	a.bytes(byte(v))
}

func (a *assembler) compareImmediate(r gpr, v int8) {
	a.integer(0x83, 7, register(uint8(r)))
	a.bytes(byte(v))
}

// store64 sets the word at base + disp to r.
func (a *assembler) store64(r, base gpr, disp int32) { a.integer(0x89, r, memory(base, disp)) }

// compareMemory compares r with the word at base + disp and sets the flags.
func (a *assembler) compareMemory(r, base gpr, disp int32) { a.integer(0x3b, r, memory(base, disp)) }

func (a *assembler) subtract(r, s gpr) { a.integer(0x2b, r, register(uint8(s))) }

func (a *assembler) compare(r, s gpr) { a.integer(0x3b, r, register(uint8(s))) }

func (a *assembler) move(r, s gpr) { a.integer(0x8b, r, register(uint8(s))) }

func (a *assembler) zero(r gpr) { a.integer(0x33, r, register(uint8(r))) }

// These are the conditions of jumps, as the second byte of the opcode.
const (
	below      = 0x82
	aboveEqual = 0x83
	equal      = 0x84
	notEqual   = 0x85
)

// jump writes a jump to a later point in the code. The caller must call the returned function when
// it reaches that point.
func (a *assembler) jump(condition byte) (here func()) {
	a.bytes(0x0f, condition)
	at := len(a.code)
	a.word(0)
	return func() { binary.LittleEndian.PutUint32(a.code[at:], uint32(len(a.code)-at-4)) }
}

func (a *assembler) jumpAlways() (here func()) {
	a.bytes(0xe9)
	at := len(a.code)
	a.word(0)
	return func() { binary.LittleEndian.PutUint32(a.code[at:], uint32(len(a.code)-at-4)) }
}

// jumpBack writes a conditional jump back. The argument to is the offset of the jump's target.
func (a *assembler) jumpBack(condition byte, to int) {
	a.bytes(0x0f, condition)
	a.word(uint32(int32(to - len(a.code) - 4)))
}

// jumpTo writes a jump back. The argument to is the offset of the jump's target.
func (a *assembler) jumpTo(to int) {
	a.bytes(0xe9)
	a.word(uint32(int32(to - len(a.code) - 4)))
}

// constant returns the operand for a constant of 32 or 64 bits.
func (a *assembler) constant(bits uint64, size int) operand {
	if size == 4 {
		bits = bits&0xffffffff | bits<<32
	}
	i, ok := a.index[bits]
	if !ok {
		i = len(a.pool)
		if a.index == nil {
			a.index = map[uint64]int{}
		}
		a.index[bits] = i
		a.pool = append(a.pool, bits)
	}
	return operand{memory: true, constant: i}
}

// bytes16 returns the operand for a constant of 16 bytes. Only code for AVX-512 has such constants.
func (a *assembler) bytes16(b [16]byte) operand {
	i := len(a.pool)
	a.pool = append(a.pool, binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:]))
	return operand{memory: true, constant: i}
}

// finish appends the constants to the code and returns both.
func (a *assembler) finish() []byte {
	for len(a.code)%8 != 0 {
		a.bytes(0xcc)
	}
	start := len(a.code)
	for _, v := range a.pool {
		for range a.entry() / 8 {
			a.code = binary.LittleEndian.AppendUint64(a.code, v)
		}
	}
	for _, f := range a.fixups {
		binary.LittleEndian.PutUint32(a.code[f.at:], uint32(start+a.entry()*f.constant-f.end))
	}
	return a.code
}

// entry returns the number of bytes that a constant occupies. For AVX-512 it is one element, which
// an instruction broadcasts to all lanes. For AVX2 it is a whole vector.
func (a *assembler) entry() int {
	if a.wide {
		return 8
	}
	return 32
}
