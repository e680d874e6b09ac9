package ptx

import "fmt"

// Space is a state space of memory.
type Space uint8

// These are the state spaces.
const (
	Global Space = iota
	Shared
	Local
	ParamSpace
)

var spaceNames = [...]string{"global", "shared", "local", "param"}

func (s Space) String() string { return spaceNames[s] }

// Ptr is an address in one space that points to elements of one type. Global addresses have 64
// bits, and addresses of all other spaces have 32.
type Ptr struct {
	b      *Builder
	base   Value
	offset int64 // distance in bytes from the base
	elem   Type
	space  Space
	symbol string // name of the parameter or array that is the base of the address
	hint   string
}

// Elem returns the type of the elements to which p points.
func (p Ptr) Elem() Type { return p.elem }

// As returns p as a pointer to elements of type t.
func (p Ptr) As(t Type) Ptr {
	if t.Size() == 0 {
		p.b.fail("no memory holds elements of type %v", t)
	}
	p.elem = t
	return p
}

// NC returns p for loads through the read-only path (`.nc`). NC is valid only for global memory
// that no thread writes while the kernel runs.
func (p Ptr) NC() Ptr {
	if p.space != Global {
		p.b.fail(".nc is a hint for global loads, not %v", p.space)
		return p
	}
	p.hint = ".nc"
	return p
}

// Streaming returns p with the hint that its elements are loaded or stored only once (`.cs`).
func (p Ptr) Streaming() Ptr { p.hint = ".cs"; return p }

// Volatile returns p for accesses that are never cached, and never reordered among themselves
// (`.volatile`).
func (p Ptr) Volatile() Ptr { p.hint = ".volatile"; return p }

// At returns the address of element i of p. A constant i costs no instruction. In global memory a
// 32-bit i is extended to 64 bits, with its sign if its type is signed.
func (p Ptr) At(i Operand) Ptr { return p.advance(i, int64(p.elem.Size())) }

// AtByte returns the address i bytes after p.
func (p Ptr) AtByte(i Operand) Ptr { return p.advance(i, 1) }

func (p Ptr) advance(i Operand, size int64) Ptr {
	b := p.b
	if c, ok := i.(Int); ok {
		p.offset += int64(c) * size
		return p
	}
	v := i.as(b, U32)
	if !b.check("At", v) {
		p.base = b.poison(p.base.t)
		return p
	}
	if !v.t.IsInt() || v.t.Bits() < 32 {
		b.fail("At: an index is a 32- or 64-bit integer, not %v", v.t)
		p.base = b.poison(p.base.t)
		return p
	}
	if v.r.konst {
		c := int64(v.r.bits)
		if v.t == S32 {
			c = int64(int32(v.r.bits))
		}
		p.offset += c * size
		return p
	}
	if p.space == ParamSpace {
		b.fail("At: parameter space takes constant indices only")
		return p
	}
	if !b.check("At", p.base) {
		return p
	}
	if p.base.t.Bits() == 32 {
		p.base = v.Cvt(U32).Mad(Int(size), p.base)
		return p
	}
	if v.t.Bits() == 32 {
		p.base = v.MadWide(Int(size), p.base.Bitcast(wideOf(v.t))).Bitcast(U64)
		return p
	}
	p.base = v.Bitcast(U64).Mad(Int(size), p.base)
	return p
}

func wideOf(t Type) Type {
	if t == S32 {
		return S64
	}
	return U64
}

// Address returns the address as a value: u64 in global memory, u32 elsewhere.
func (p Ptr) Address() Value {
	if p.space == ParamSpace {
		p.b.fail("a parameter has no address")
		return p.b.poison(U64)
	}
	return p.base.Add(Int(p.offset))
}

// MovedTo returns p with another address, which has the type that [Ptr.Address] returns. It is for
// pointers whose addresses are kept in a Var.
func (p Ptr) MovedTo(address Operand) Ptr {
	a := address.as(p.b, p.base.t)
	if p.space == ParamSpace || a.t != p.base.t {
		p.b.fail("MovedTo: a pointer to %v memory and an address of type %v", p.space, a.t)
		a = p.b.poison(p.base.t)
	}
	p.base, p.offset = a, 0
	return p
}

// SelectPtr returns the first pointer where the predicate v is true, and the second where it is
// false. Both pointers must have the same space and the same element type.
func (v Value) SelectPtr(yes, no Ptr) Ptr {
	b := v.b
	if yes.space != no.space || yes.elem != no.elem || yes.space == ParamSpace {
		b.fail("selp: mixed pointers to %v %v and %v %v", yes.space, yes.elem, no.space, no.elem)
		yes.base = b.poison(yes.base.t)
		return yes
	}
	yes.base, yes.offset = v.Select(yes.Address(), no.Address()), 0
	return yes
}

// Aligned reports, as a predicate, whether the address is a multiple of the given number of bytes.
// This number must be a power of two.
func (p Ptr) Aligned(bytes int) Value {
	a := p.Address()
	return a.And(Int(bytes - 1)).Eq(Int(0))
}

func (p Ptr) address() *address {
	if p.symbol != "" {
		return &address{symbol: p.symbol, offset: p.offset}
	}
	return &address{base: p.base.r, offset: p.offset}
}

func (p Ptr) usable(op string) bool {
	return p.symbol != "" || p.b.check(op, p.base)
}

// Load loads the element. Elements of U8 and S8 become values of U32 and S32.
func (p Ptr) Load() Value {
	b := p.b
	if p.symbol != "" && p.elem.Size() > 0 {
		return b.loadParam(p.symbol, p.offset, p.elem)
	}
	if !p.usable("ld") || p.elem.Size() == 0 {
		return b.poison(p.elem.register())
	}
	v := b.result(p.elem.register())
	b.add(&node{op: "ld." + p.hinted(), t: p.elem, form: formLoad, addr: p.address(), dst: []*register{v.r}, effect: reads})
	return v
}

// hinted returns the text of the space with the hint. The hint ".volatile" precedes the space, and
// every other hint follows it.
func (p Ptr) hinted() string {
	if p.hint == ".volatile" {
		return "volatile." + p.space.String()
	}
	return p.space.String() + p.hint
}

// LoadVec loads n = 2 or 4 consecutive elements (8 to 128 bits in all) in one access. The address
// must be a multiple of their total size.
func (p Ptr) LoadVec(n int) []Value {
	b := p.b
	list := make([]Value, n)
	for i := range list {
		list[i] = b.poison(p.elem.register())
	}
	if !p.vectorOK("ld", n) || !p.usable("ld") {
		return list
	}
	dst := make([]*register, n)
	for i := range list {
		list[i] = b.result(p.elem.register())
		dst[i] = list[i].r
	}
	b.add(&node{op: fmt.Sprintf("ld.%s.v%d", p.hinted(), n), t: p.elem, form: formLoad, addr: p.address(),
		dst: dst, effect: reads})
	return list
}

func (p Ptr) vectorOK(op string, n int) bool {
	if (n != 2 && n != 4) || p.elem.Size()*n > 16 || p.elem.Size() == 0 || p.space == ParamSpace {
		p.b.fail("%s: no vector of %d %v in %v memory", op, n, p.elem, p.space)
		return false
	}
	return true
}

func (p Ptr) writable(op string) bool {
	if p.space == ParamSpace || p.hint == ".nc" {
		p.b.fail("%s: %v%s memory is read-only", op, p.space, p.hint)
		return false
	}
	return p.usable(op)
}

// element converts o to a value that can be stored at p, or reports a problem and returns false.
func (p Ptr) element(op string, o Operand) (Value, bool) {
	b := p.b
	want := p.elem.register()
	v := o.as(b, want)
	if !b.check(op, v) {
		return v, false
	}
	if v.t != want && !(v.t.Bits() == want.Bits() && (v.t.bitsType() == v.t || want.bitsType() == want)) {
		b.fail("%s: mixed types: memory of %v, value of %v", op, p.elem, v.t)
		return v, false
	}
	return v, true
}

// Store stores o. For elements of U8 and S8 it stores the low byte of a 32-bit value.
func (p Ptr) Store(o Operand) {
	v, ok := p.element("st", o)
	if !p.writable("st") || !ok {
		return
	}
	p.b.add(&node{op: "st." + p.hinted(), t: p.elem, form: formStore, addr: p.address(), args: []*register{v.r}, effect: effectful})
}

// StoreVec stores 2 or 4 consecutive elements in one access. The address must be a multiple of
// their total size.
func (p Ptr) StoreVec(list ...Value) {
	if !p.vectorOK("st", len(list)) || !p.writable("st") {
		return
	}
	for _, v := range list {
		if _, ok := p.element("st", v); !ok {
			return
		}
	}
	p.b.add(&node{op: fmt.Sprintf("st.%s.v%d", p.hinted(), len(list)), t: p.elem, form: formStore,
		addr: p.address(), args: registers(list), effect: effectful})
}

// AtomicOp is a read-modify-write operation.
type AtomicOp uint8

// These are the operations. AtomicInc adds 1, and wraps around from the operand to 0. AtomicDec
// subtracts 1, and wraps around from 0 to the operand.
const (
	AtomicAdd AtomicOp = iota
	AtomicMin
	AtomicMax
	AtomicAnd
	AtomicOr
	AtomicXor
	AtomicExchange
	AtomicInc
	AtomicDec
)

var atomicNames = [...]string{"add", "min", "max", "and", "or", "xor", "exch", "inc", "dec"}

func (p Ptr) atomicType(op AtomicOp) (Type, bool) {
	t := p.elem
	ok := t.Bits() >= 32 && (p.space == Global || p.space == Shared)
	switch op {
	case AtomicAdd:
		if t == S64 {
			t = U64 // signed addition is the same operation in two's complement
		}
		ok = ok && (t.IsInt() || t.IsFloat())
	case AtomicMin, AtomicMax:
		ok = ok && t.IsInt()
	case AtomicInc, AtomicDec:
		ok = ok && t == U32
	default:
		t = t.bitsType()
	}
	if !ok {
		p.b.fail("atom.%s is not defined for %v in %v memory", atomicNames[op], p.elem, p.space)
	}
	return t, ok
}

// Atomic applies op to the element and returns its former value.
func (p Ptr) Atomic(op AtomicOp, o Operand) Value { return p.atomic("atom.", op, o) }

// AtomicOrdered does the same as Atomic, on global memory only, and orders memory accesses for
// other blocks (`.acq_rel.gpu`). A thread that later applies AtomicOrdered to this element sees all
// writes that the calling thread made before its call. If a barrier precedes the call, the later
// thread also sees all writes that the threads of the caller's block made before the barrier.
func (p Ptr) AtomicOrdered(op AtomicOp, o Operand) Value {
	if p.space != Global {
		p.b.fail("atom.acq_rel.gpu is for global memory, not %v", p.space)
		return p.b.poison(p.elem)
	}
	return p.atomic("atom.acq_rel.gpu.", op, o)
}

func (p Ptr) atomic(name string, op AtomicOp, o Operand) Value {
	b := p.b
	v, ok := p.element("atom", o)
	t, defined := p.atomicType(op)
	if !ok || !defined || !p.writable("atom") {
		return b.poison(p.elem)
	}
	out := b.result(p.elem)
	b.add(&node{op: name + p.space.String() + "." + atomicNames[op], t: t, form: formAtomic, addr: p.address(),
		dst: []*register{out.r}, args: []*register{v.r}, effect: effectful})
	return out
}

// Reduce applies op to the element, and does not return its former value (`red`).
func (p Ptr) Reduce(op AtomicOp, o Operand) {
	v, ok := p.element("red", o)
	t, defined := p.atomicType(op)
	if !ok || !defined || !p.writable("red") {
		return
	}
	if p.space != Global || op == AtomicExchange {
		p.b.fail("red.%s is not defined in %v memory", atomicNames[op], p.space)
		return
	}
	p.b.add(&node{op: "red.global." + atomicNames[op], t: t, form: formAtomic, addr: p.address(),
		args: []*register{v.r}, effect: effectful})
}

// AddVec adds 2 or 4 float32 values to consecutive elements. Each addition is atomic by itself.
// AddVec needs sm_90 and PTX 8.1.
func (p Ptr) AddVec(list ...Value) {
	if !p.vectorOK("red", len(list)) || !p.writable("red") {
		return
	}
	if p.elem != F32 || p.space != Global {
		p.b.fail("red.v%d is not defined for %v in %v memory", len(list), p.elem, p.space)
		return
	}
	if !p.b.sameType("red", append([]Value{p.b.F32(0)}, list...)...) {
		return
	}
	p.b.add(&node{op: fmt.Sprintf("red.global.add.v%d", len(list)), t: F32, form: formAtomic, text: "vector",
		addr: p.address(), args: registers(list), effect: effectful})
}

// CompareAndSwap stores the value swap if the element equals the value compare. It returns the
// element's former value.
func (p Ptr) CompareAndSwap(compare, swap Operand) Value {
	b := p.b
	c, ok1 := p.element("atom.cas", compare)
	s, ok2 := p.element("atom.cas", swap)
	if !ok1 || !ok2 || !p.writable("atom.cas") {
		return b.poison(p.elem)
	}
	if p.elem.Bits() < 32 || p.space != Global && p.space != Shared {
		b.fail("atom.cas is not defined for %v in %v memory", p.elem, p.space)
		return b.poison(p.elem)
	}
	out := b.result(p.elem)
	b.add(&node{op: "atom." + p.space.String() + ".cas", t: p.elem.bitsType(), form: formAtomic, addr: p.address(),
		dst: []*register{out.r}, args: []*register{c.r, s.r}, effect: effectful})
	return out
}

// CopyAsync starts a copy of 4, 8 or 16 bytes from global memory at src to shared memory at p
// (`cp.async`). CommitGroup puts the copy into a group. When [Builder.WaitGroup] has waited for
// that group, this thread may read the bytes. A barrier after the wait makes them visible to the
// other threads of the block.
func (p Ptr) CopyAsync(src Ptr, bytes int) { p.copyAsync(src, bytes, Value{}) }

// CopyAsyncPartial does the same as CopyAsync, but reads only size bytes from src, and fills the
// remaining bytes at p with zeros. The argument size is a u32, and must not exceed bytes.
func (p Ptr) CopyAsyncPartial(src Ptr, bytes int, size Value) { p.copyAsync(src, bytes, size) }

func (p Ptr) copyAsync(src Ptr, bytes int, size Value) {
	b := p.b
	if p.space != Shared || src.space != Global || bytes != 4 && bytes != 8 && bytes != 16 {
		b.fail("cp.async copies 4, 8 or 16 bytes from global to shared, not %d from %v to %v", bytes, src.space, p.space)
		return
	}
	if !p.usable("cp.async") || !src.usable("cp.async") {
		return
	}
	// The cache operator ".cg" bypasses the first-level cache. It exists only for copies of 16
	// bytes.
	cache := "ca"
	if bytes == 16 {
		cache = "cg"
	}
	n := &node{op: "cp.async." + cache + ".shared.global", form: formCopy, addr: p.address(), addr2: src.address(),
		text: fmt.Sprint(bytes), effect: effectful}
	if size.b != nil {
		if !b.check("cp.async", size) || size.t != U32 {
			b.fail("cp.async: the number of bytes is u32, not %v", size.t)
			return
		}
		n.args = []*register{size.r}
	}
	b.add(n)
}

// CommitGroup closes a group: all asynchronous copies that this thread started since the last
// CommitGroup.
func (b *Builder) CommitGroup() { b.effect("cp.async.commit_group", "") }

// WaitGroup waits for groups of asynchronous copies of this thread. Afterwards only the newest
// groups may be unfinished. The argument pending is the largest number of such groups.
func (b *Builder) WaitGroup(pending int) {
	if pending < 0 {
		b.fail("cp.async.wait_group: %d groups", pending)
		return
	}
	b.effect("cp.async.wait_group", fmt.Sprint(pending))
}

func (b *Builder) effect(op, text string) {
	b.add(&node{op: op, form: formText, text: text, effect: effectful})
}
