package torchfile

import (
	"encoding/binary"
	"math"
	"math/big"
	"unicode/utf8"
)

// These are the types of the unpickler's objects. Strings, bytes, numbers, bools and nil are Go
// values.
type (
	list  struct{ items []any }
	tuple struct{ items []any }
	set   struct{ items []any }
	// global is a name that this package knows and files use, such as the name of a function.
	global struct {
		module, name string
		// call is the function with that name, or nil if a file may not call it.
		call func(u *unpickler, args []any) any
	}
)

const (
	// The unpickler may use freeBudget bytes of memory, plus perByte bytes for each byte of the
	// pickle that it has read.
	freeBudget = 16 << 20 // 16 MiB
	perByte    = 32
	maxString  = 1 << 30 // greatest length of a string in bytes
	maxInteger = 128     // greatest length of an integer in bytes
	// perContainer and perDict are the numbers of bytes that a container and a dict take, in the
	// unpickler, in the converter's maps and in the tree together.
	perContainer = 96
	perDict      = 160
	// greatest number of values on the stack; Python's pickler writes batches of 1000
	maxStack = 1 << 18
	maxMarks = 1 << 12
)

// An unpickler runs one pickle.
type unpickler struct {
	file  *file
	entry string
	// The pickle is the part of the file from start to end. buf has bytes read from it, and pos is
	// the offset of the next byte.
	start, pos, end int64
	buf             []byte
	bufAt           int64

	used  int64 // approximate number of bytes of memory in use
	stack []any
	marks []int
	memo  []any
	far   map[uint64]any // memo entries whose numbers are not consecutive

	op       int64 // offset of the current instruction
	storages func(u *unpickler, id []any) any
}

func newUnpickler(f *file, entry string, start, end int64) *unpickler {
	return &unpickler{file: f, entry: entry, start: start, pos: start, end: end, buf: make([]byte, 0, 64<<10)}
}

func (u *unpickler) fail(format string, a ...any) {
	u.file.fail(u.entry, u.op-u.base(), format, a...)
}

// base returns the position in the file from which the offsets in errors count: the start of the
// archive's entry, or of the file if it is not an archive.
func (u *unpickler) base() int64 {
	if u.entry == "" {
		return 0
	}
	return u.start
}

// charge adds n bytes to the memory in use. It fails if the total is too large for the number of
// bytes read so far.
func (u *unpickler) charge(n int) {
	u.used += int64(n)
	if u.used > freeBudget+perByte*(u.pos-u.start) {
		u.fail("the pickle makes far more than it contains, which no saved model does")
	}
}

// require fails if fewer than n bytes of the pickle are left.
func (u *unpickler) require(n uint64) {
	if n > uint64(u.end-u.pos) {
		u.fail("%d bytes are announced, %d are left", n, u.end-u.pos)
	}
}

// next returns the next n bytes of the pickle, at most 64 KiB. They stay valid until the next call.
func (u *unpickler) next(n int) []byte {
	u.require(uint64(n))
	off := int(u.pos - u.bufAt)
	if off+n > len(u.buf) {
		u.buf = u.buf[:min(int64(cap(u.buf)), u.end-u.pos)]
		u.file.read(u.entry, u.buf, u.pos)
		u.bufAt, off = u.pos, 0
	}
	u.pos += int64(n)
	return u.buf[off : off+n]
}

func (u *unpickler) byte() byte     { return u.next(1)[0] }
func (u *unpickler) uint16() uint64 { return uint64(binary.LittleEndian.Uint16(u.next(2))) }
func (u *unpickler) uint32() uint64 { return uint64(binary.LittleEndian.Uint32(u.next(4))) }
func (u *unpickler) uint64() uint64 { return binary.LittleEndian.Uint64(u.next(8)) }

// bytes returns a copy of the next n bytes.
func (u *unpickler) bytes(n uint64) []byte {
	u.require(n)
	if n > maxString {
		u.fail("a string of %d bytes, at most %d are supported", n, maxString)
	}
	b := make([]byte, n)
	u.charge(int(n))
	if n <= 4096 {
		copy(b, u.next(int(n)))
		return b
	}
	u.file.read(u.entry, b, u.pos)
	u.pos += int64(n)
	return b
}

func (u *unpickler) utf8(n uint64) string {
	b := u.bytes(n)
	if !utf8.Valid(b) {
		u.fail("a string that is not UTF-8")
	}
	return string(b)
}

// line returns the text before the next newline.
func (u *unpickler) line() string {
	var b []byte
	for {
		c := u.byte()
		if c == '\n' {
			return string(b)
		}
		if b = append(b, c); len(b) > 1000 {
			u.fail("a name of more than 1000 bytes")
		}
	}
}

func (u *unpickler) push(v any) {
	if len(u.stack) == maxStack {
		u.fail("more than %d values on the stack", maxStack)
	}
	u.stack = append(u.stack, v)
}

// bottom returns the lowest stack index that an instruction may pop, which is above the last mark.
func (u *unpickler) bottom() int {
	if len(u.marks) > 0 {
		return u.marks[len(u.marks)-1]
	}
	return 0
}

func (u *unpickler) pop() any {
	if len(u.stack) <= u.bottom() {
		u.fail("an instruction takes from an empty stack")
	}
	v := u.stack[len(u.stack)-1]
	u.stack = u.stack[:len(u.stack)-1]
	return v
}

func (u *unpickler) top() any {
	v := u.pop()
	u.push(v)
	return v
}

// popMark pops the values above the last mark, and the mark itself. The result stays valid until
// the next push.
func (u *unpickler) popMark() []any {
	if len(u.marks) == 0 {
		u.fail("an instruction takes from a mark that is not there")
	}
	m := u.bottom()
	items := u.stack[m:]
	u.stack = u.stack[:m]
	u.marks = u.marks[:len(u.marks)-1]
	return items
}

func (u *unpickler) popTuple(n int) *tuple {
	if len(u.stack)-u.bottom() < n {
		u.fail("an instruction takes %d values from a stack of %d", n, len(u.stack)-u.bottom())
	}
	items := u.stack[len(u.stack)-n:]
	u.stack = u.stack[:len(u.stack)-n]
	return u.tuple(items)
}

func (u *unpickler) tuple(items []any) *tuple {
	u.charge(perContainer + 16 + 16*len(items))
	return &tuple{append([]any(nil), items...)}
}

func (u *unpickler) put(i uint64) {
	v := u.top()
	u.charge(16)
	n := uint64(len(u.memo))
	switch {
	case i < n:
		u.memo[i] = v
	case i == n:
		u.memo = append(u.memo, v)
	default:
		u.charge(64)
		if u.far == nil {
			u.far = map[uint64]any{}
		}
		u.far[i] = v
	}
}

func (u *unpickler) get(i uint64) {
	if i < uint64(len(u.memo)) {
		u.push(u.memo[i])
		return
	}
	v, ok := u.far[i]
	if !ok {
		u.fail("place %d of the memo is empty", i)
	}
	u.push(v)
}

func (u *unpickler) appendTo(to any, items ...any) {
	u.charge(32 * len(items))
	l, ok := to.(*list)
	if !ok {
		u.fail("an item is appended to %s", describe(to))
	}
	l.items = append(l.items, items...)
}

func (u *unpickler) setItems(to any, items []any) {
	d, ok := to.(*Dict)
	if !ok {
		u.fail("an item is set in %s", describe(to))
	}
	if len(items)%2 != 0 {
		u.fail("a key of a dict has no value")
	}
	for i := 0; i < len(items); i += 2 {
		u.charge(128)
		k := items[i]
		if t, ok := k.(*tuple); ok {
			k = Tuple(t.items)
			if c, err := comparableKey(k); err == nil {
				// A tupleKey is a text that is made again each time that the key is looked up.
				u.charge(8 * len(c.(tupleKey)))
			}
		}
		if err := d.set(k, items[i+1]); err != nil {
			u.fail("%v", err)
		}
	}
}

// integer reads an integer of n bytes in two's complement.
func (u *unpickler) integer(n uint64) any {
	u.require(n)
	if n > maxInteger {
		u.fail("an integer of %d bytes, at most %d are supported", n, maxInteger)
	}
	b := u.next(int(n))
	if n <= 8 {
		var v uint64
		for i, c := range b {
			v |= uint64(c) << (8 * i)
		}
		if n == 0 {
			return int64(0)
		}
		shift := 64 - 8*n
		return int64(v<<shift) >> shift
	}
	be := make([]byte, n)
	for i, c := range b {
		be[int(n)-1-i] = c
	}
	v := new(big.Int).SetBytes(be)
	if be[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
	}
	if v.IsInt64() {
		return v.Int64()
	}
	u.charge(64 + int(n))
	return v
}

func (u *unpickler) reduce(f any, args any) any {
	a, ok := args.(*tuple)
	if !ok {
		u.fail("a call with %s for its arguments", describe(args))
	}
	g, ok := f.(*global)
	if !ok {
		u.fail("a call of %s", describe(f))
	}
	if g.call == nil {
		u.fail("%s.%s is called, which is not done here", g.module, g.name)
	}
	u.charge(64)
	return g.call(u, a.items)
}

// run executes the pickle and returns its value. At the end pos is the offset after the pickle.
func (u *unpickler) run() any {
	for {
		u.op = u.pos
		if u.pos >= u.end {
			u.fail("the pickle ends without an end mark")
		}
		c := u.byte()
		if c == '.' { // opcode STOP
			v := u.pop()
			if len(u.stack) != 0 || len(u.marks) != 0 {
				u.fail("%d values are left on the stack", len(u.stack))
			}
			return v
		}
		u.step(c)
	}
}

// step executes one instruction, with opcode c. The comments have the instructions' names in
// Python's pickletools.
func (u *unpickler) step(c byte) {
	switch c {
	case 0x80: // opcode PROTO
		if v := u.byte(); v < 2 || v > 5 {
			u.fail("protocol %d of pickle, 2 to 5 are supported", v)
		}
	case 0x95: // opcode FRAME
		u.require(u.uint64())
	case '(': // opcode MARK
		if len(u.marks) == maxMarks {
			u.fail("marks in marks, more than %d deep", maxMarks)
		}
		u.marks = append(u.marks, len(u.stack))
	case '0': // opcode POP
		if len(u.stack) == u.bottom() {
			u.popMark()
		} else {
			u.pop()
		}
	case '1': // opcode POP_MARK
		u.popMark()
	case '2': // opcode DUP
		u.push(u.top())

	case 'N': // opcode NONE
		u.push(nil)
	case 0x88: // opcode NEWTRUE
		u.push(true)
	case 0x89: // opcode NEWFALSE
		u.push(false)
	case 'K': // opcode BININT1
		u.push(int64(u.byte()))
	case 'M': // opcode BININT2
		u.push(int64(u.uint16()))
	case 'J': // opcode BININT
		u.push(int64(int32(u.uint32())))
	case 0x8a: // opcode LONG1
		u.push(u.integer(uint64(u.byte())))
	case 0x8b: // opcode LONG4
		n := u.uint32()
		if n > math.MaxInt32 {
			u.fail("an integer of a negative number of bytes")
		}
		u.push(u.integer(n))
	case 'G': // opcode BINFLOAT
		u.push(math.Float64frombits(binary.BigEndian.Uint64(u.next(8))))

	case 0x8c: // opcode SHORT_BINUNICODE
		u.push(u.utf8(uint64(u.byte())))
	case 'X': // opcode BINUNICODE
		u.push(u.utf8(u.uint32()))
	case 0x8d: // opcode BINUNICODE8
		u.push(u.utf8(u.uint64()))
	case 'U': // opcode SHORT_BINSTRING: str of Python 2
		u.push(u.utf8(uint64(u.byte())))
	case 'T': // opcode BINSTRING
		u.push(u.utf8(u.uint32()))
	case 'C': // opcode SHORT_BINBYTES
		u.push(u.bytes(uint64(u.byte())))
	case 'B': // opcode BINBYTES
		u.push(u.bytes(u.uint32()))
	case 0x8e, 0x96: // opcodes BINBYTES8, BYTEARRAY8
		u.push(u.bytes(u.uint64()))

	case ']': // opcode EMPTY_LIST
		u.charge(perContainer)
		u.push(&list{})
	case '}': // opcode EMPTY_DICT
		u.charge(perDict)
		u.push(&Dict{})
	case 0x8f: // opcode EMPTY_SET
		u.charge(perContainer)
		u.push(&set{})
	case ')': // opcode EMPTY_TUPLE
		u.push(emptyTuple)
	case 't': // opcode TUPLE
		u.push(u.tuple(u.popMark()))
	case 0x85, 0x86, 0x87: // opcodes TUPLE1, TUPLE2, TUPLE3
		u.push(u.popTuple(int(c-0x85) + 1))
	case 'l': // opcode LIST
		items := u.popMark()
		u.charge(perContainer + 16*len(items))
		u.push(&list{append([]any(nil), items...)})
	case 'd': // opcode DICT
		items := u.popMark()
		u.charge(perDict)
		d := &Dict{}
		u.setItems(d, items)
		u.push(d)
	case 'a': // opcode APPEND
		v := u.pop()
		u.appendTo(u.top(), v)
	case 'e': // opcode APPENDS
		items := u.popMark()
		u.appendTo(u.top(), items...)
	case 's': // opcode SETITEM
		v := u.pop()
		k := u.pop()
		u.setItems(u.top(), []any{k, v})
	case 'u': // opcode SETITEMS
		items := u.popMark()
		u.setItems(u.top(), items)
	case 0x90: // opcode ADDITEMS
		items := u.popMark()
		s, ok := u.top().(*set)
		if !ok {
			u.fail("an item is added to %s", describe(u.top()))
		}
		u.charge(32 * len(items))
		s.items = append(s.items, items...)
	case 0x91: // opcode FROZENSET
		items := u.popMark()
		u.charge(perContainer + 16*len(items))
		u.push(&set{append([]any(nil), items...)})

	case 'q': // opcode BINPUT
		u.put(uint64(u.byte()))
	case 'r': // opcode LONG_BINPUT
		u.put(u.uint32())
	case 0x94: // opcode MEMOIZE
		u.put(uint64(len(u.memo)))
	case 'h': // opcode BINGET
		u.get(uint64(u.byte()))
	case 'j': // opcode LONG_BINGET
		u.get(u.uint32())

	case 'c': // opcode GLOBAL
		module := u.line()
		u.push(u.global(module, u.line()))
	case 0x93: // opcode STACK_GLOBAL
		name, ok1 := u.pop().(string)
		module, ok2 := u.pop().(string)
		if !ok1 || !ok2 {
			u.fail("a name that is not a string")
		}
		u.push(u.global(module, name))
	case 'R', 0x81: // opcodes REDUCE, NEWOBJ
		args := u.pop()
		u.push(u.reduce(u.pop(), args))
	// The instruction BUILD sets attributes, such as _metadata of a state dict. They are not part
	// of the tree.
	case 'b':
		u.pop()
		switch v := u.top().(type) {
		case *Dict, *tensorRef:
		default:
			u.fail("attributes are set on %s", describe(v))
		}
	case 'Q': // opcode BINPERSID
		id, ok := u.pop().(*tuple)
		if !ok || u.storages == nil {
			u.fail("a persistent object that is no storage of a tensor")
		}
		u.charge(128)
		u.push(u.storages(u, id.items))

	case 'i', 'o', 0x92, 0x82, 0x83, 0x84: // opcodes INST, OBJ, NEWOBJ_EX, EXT1, EXT2, EXT4
		u.fail("instruction 0x%02x makes an object of a class, which is not done here", c)
	case 'I', 'L', 'F', 'S', 'V', 'P', 'g', 'p': // instructions of protocol 0
		u.fail("instruction %q is of pickle's text protocol, which torch does not write; save with protocol 2", c)
	default:
		u.fail("0x%02x is no instruction of pickle", c)
	}
}

var emptyTuple = &tuple{}
