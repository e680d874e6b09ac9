package ptx

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Builder collects one kernel. It is not safe for concurrent use.
type Builder struct {
	name     string
	root     *region
	entry    *region // loads of parameters, printed at the start of the kernel
	cur      *region
	params   []Param
	arrays   []array
	dynamic  string
	threads  [3]int
	minCTAs  int
	arch     Arch
	chosen   bool // whether Target was called
	version  int  // PTX version times ten
	problems []Problem
	consts   map[constKey]*register
	shared   int // bytes of static shared memory
	local    int
	frozen   bool
	loaded   map[string]Value
	labels   int
}

type constKey struct {
	t    Type
	bits uint64
}

type array struct {
	space Space
	name  string
	bytes int
}

// Param is a kernel parameter with its offset in the packed parameter block.
type Param struct {
	Name   string
	Type   Type // type of a scalar; U64 for a pointer; U8 for bytes
	Size   int  // size in bytes
	Align  int  // alignment in bytes
	Offset int  // distance in bytes from the start of the block
	Elem   Type // type of a pointer's elements; otherwise Invalid
}

// Problem is one misuse of the builder.
type Problem struct {
	Msg  string
	File string // file of the call, outside this package
	Line int
}

func (p Problem) String() string {
	return fmt.Sprintf("%s:%d: %s", filepath.Base(p.File), p.Line, p.Msg)
}

// Error lists all problems of a kernel.
type Error struct {
	Kernel   string
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return fmt.Sprintf("ptx: kernel %s: %s", e.Kernel, strings.Join(lines, "\n\t"))
}

// New starts a kernel whose entry point has the given name.
func New(name string) *Builder {
	b := &Builder{name: name, consts: map[constKey]*register{}, loaded: map[string]Value{},
		arch: SM80, version: archVersions[SM80]}
	b.entry = &region{}
	b.root = &region{parent: b.entry}
	b.cur = b.root
	if !isIdent(name) {
		b.fail("kernel name %q is not an identifier", name)
	}
	return b
}

// Name returns the name of the entry point.
func (b *Builder) Name() string { return b.name }

func isIdent(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

const packagePath = "github.com/flambeau-go/flambeau/ptx."

func (b *Builder) fail(format string, args ...any) {
	p := Problem{Msg: fmt.Sprintf(format, args...)}
	pcs := make([]uintptr, 24)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		p.File, p.Line = f.File, f.Line
		if !more || !strings.HasPrefix(f.Function, packagePath) || strings.HasSuffix(f.File, "_test.go") {
			break
		}
	}
	b.problems = append(b.problems, p)
}

// Errorf records a problem, with the file and line of the caller. Kernel generators call it when
// they find a mistake in their input.
func (b *Builder) Errorf(format string, args ...any) { b.fail(format, args...) }

// MaxThreads declares the block's shape (`.maxntid`). The kernel is launched with at most that many
// threads in a block. Missing dimensions are 1.
func (b *Builder) MaxThreads(x int, yz ...int) {
	b.threads = [3]int{x, 1, 1}
	copy(b.threads[1:], yz)
	if n := b.threads[0] * b.threads[1] * b.threads[2]; x < 1 || len(yz) > 2 || n < 1 || n > 1024 {
		b.fail("MaxThreads(%d, %v): a block has 1 to 1024 threads in up to 3 dimensions", x, yz)
	}
}

// MinBlocks declares how many blocks should fit on a multiprocessor (`.minnctapersm`). This limits
// the number of registers that the assembler may use.
func (b *Builder) MinBlocks(n int) { b.minCTAs = n }

func (b *Builder) addParam(p Param) bool {
	if !isIdent(p.Name) {
		b.fail("parameter name %q is not an identifier", p.Name)
		return false
	}
	end := 0
	for _, q := range b.params {
		if q.Name == p.Name {
			b.fail("parameter %s is declared twice", p.Name)
			return false
		}
		end = q.Offset + q.Size
	}
	p.Offset = (end + p.Align - 1) / p.Align * p.Align
	b.params = append(b.params, p)
	if p.Offset+p.Size > 4096 {
		b.fail("parameter %s ends at byte %d: a parameter block has at most 4096", p.Name, p.Offset+p.Size)
	}
	return true
}

// Param declares a scalar parameter and returns its value.
func (b *Builder) Param(name string, t Type) Value {
	if t.Size() == 0 || t != t.register() || t.Bits() == 16 {
		b.fail("parameter %s: a scalar parameter has 32 or 64 bits, not %v", name, t)
		return b.poison(t)
	}
	if !b.addParam(Param{Name: name, Type: t, Size: t.Size(), Align: t.Size()}) {
		return b.poison(t)
	}
	return b.loadParam(name, 0, t)
}

// Pointer declares a parameter that points to global memory with elements of type elem.
func (b *Builder) Pointer(name string, elem Type) Ptr {
	if !b.addParam(Param{Name: name, Type: U64, Size: 8, Align: 8, Elem: elem}) {
		return Ptr{base: b.poison(U64), elem: elem, space: Global, b: b}
	}
	return b.GlobalPtr(b.loadParam(name, 0, U64), elem)
}

// ParamBytes declares a structure of size bytes that is passed by value. It returns a pointer to
// the structure in parameter space, for loads at constant offsets.
func (b *Builder) ParamBytes(name string, size, align int) Ptr {
	if size < 1 || align < 1 || align > 128 || align&(align-1) != 0 {
		b.fail("parameter %s: %d bytes aligned to %d", name, size, align)
		return Ptr{base: b.poison(U64), elem: U8, space: ParamSpace, b: b}
	}
	b.addParam(Param{Name: name, Type: U8, Size: size, Align: align})
	return Ptr{base: b.poison(U64), elem: U8, space: ParamSpace, symbol: name, b: b}
}

// loadParam loads a parameter in the entry region. Such a value may be used everywhere in the
// kernel.
func (b *Builder) loadParam(name string, offset int64, t Type) Value {
	key := fmt.Sprintf("%s+%d:%v", name, offset, t)
	if v, ok := b.loaded[key]; ok {
		return v
	}
	saved := b.cur
	b.cur = b.entry
	v := b.result(t.register())
	b.add(&node{op: "ld.param", t: t, form: formLoad, addr: &address{symbol: name, offset: offset},
		dst: []*register{v.r}, effect: pure})
	b.cur = saved
	b.loaded[key] = v
	return v
}

// GlobalPtr returns a pointer into global memory for a 64-bit generic address, for example one
// loaded from a table of pointers.
func (b *Builder) GlobalPtr(addr Value, elem Type) Ptr {
	if !b.check("GlobalPtr", addr) {
		return Ptr{base: b.poison(U64), elem: elem, space: Global, b: b}
	}
	if addr.t.Bits() != 64 || addr.t == F64 {
		b.fail("GlobalPtr: an address is u64, not %v", addr.t)
	}
	in := b.cur
	if addr.r.region == b.entry {
		in = b.entry
	}
	saved := b.cur
	b.cur = in
	v := b.emit("cvta.to.global", U64, Invalid, U64, addr)
	b.cur = saved
	return Ptr{base: v, elem: elem, space: Global, b: b}
}

// Shared declares a static array of n elements in the block's shared memory,
// aligned to 16 bytes.
func (b *Builder) Shared(name string, elem Type, n int) Ptr {
	return b.array(Shared, name, elem, n)
}

// Local declares a private array of n elements in the thread's local memory.
func (b *Builder) Local(name string, elem Type, n int) Ptr {
	return b.array(Local, name, elem, n)
}

func (b *Builder) array(space Space, name string, elem Type, n int) Ptr {
	bytes := n * elem.Size()
	if !isIdent(name) || n < 1 || elem.Size() == 0 {
		b.fail("%v array %q of %d %v", space, name, n, elem)
	}
	for _, a := range b.arrays {
		if a.name == name {
			b.fail("array %s is declared twice", name)
		}
	}
	b.arrays = append(b.arrays, array{space, name, bytes})
	if space == Shared {
		b.shared = (b.shared+15)/16*16 + bytes
		if b.shared > 48<<10 {
			b.fail("shared array %s: static shared memory grows to %d bytes; the limit is 49152, use DynamicShared", name, b.shared)
		}
	} else {
		b.local += bytes
	}
	return Ptr{base: b.symbol(name), elem: elem, space: space, b: b}
}

// DynamicShared declares the block's dynamic shared memory and returns a pointer to its start. Its
// size is set at launch. A kernel has at most one such declaration. Use At and As to divide the
// memory.
func (b *Builder) DynamicShared(name string, elem Type) Ptr {
	if !isIdent(name) {
		b.fail("dynamic shared array name %q is not an identifier", name)
	}
	if b.dynamic != "" {
		b.fail("dynamic shared memory is declared twice (%s, %s)", b.dynamic, name)
	}
	b.dynamic = name
	return Ptr{base: b.symbol(name), elem: elem, space: Shared, b: b}
}

func (b *Builder) symbol(name string) Value {
	saved := b.cur
	b.cur = b.entry
	v := b.result(U32)
	b.add(&node{op: "mov", t: U32, form: formSpecial, text: name, dst: []*register{v.r}, effect: pure})
	b.cur = saved
	return v
}

// special reads a special register in the entry region. Such a value may be used everywhere in the
// kernel.
func (b *Builder) special(name string) Value {
	if v, ok := b.loaded[name]; ok {
		return v
	}
	saved := b.cur
	b.cur = b.entry
	v := b.result(U32)
	b.add(&node{op: "mov", t: U32, form: formSpecial, text: name, dst: []*register{v.r}, effect: pure})
	b.cur = saved
	b.loaded[name] = v
	return v
}

const axes = "xyz"

func (b *Builder) axisRegister(name string, axis int) Value {
	if axis < 0 || axis > 2 {
		b.fail("axis %d of %s: 0, 1 or 2", axis, name)
		return b.poison(U32)
	}
	return b.special(name + "." + axes[axis:axis+1])
}

// ThreadID returns the thread's index in its block along axis 0, 1 or 2.
func (b *Builder) ThreadID(axis int) Value { return b.axisRegister("%tid", axis) }

// BlockDim returns the number of threads of a block along axis.
func (b *Builder) BlockDim(axis int) Value { return b.axisRegister("%ntid", axis) }

// BlockID returns the block's index in the grid along axis.
func (b *Builder) BlockID(axis int) Value { return b.axisRegister("%ctaid", axis) }

// GridDim returns the number of blocks along axis.
func (b *Builder) GridDim(axis int) Value { return b.axisRegister("%nctaid", axis) }

// LaneID returns the thread's index in its warp, 0 to 31.
func (b *Builder) LaneID() Value { return b.special("%laneid") }

// WarpID returns ThreadID(0)/32, the warp's index in a one-dimensional block. It does not read the
// special register %warpid, which may differ from that index and may change while a kernel runs.
func (b *Builder) WarpID() Value { return b.ThreadID(0).Shr(Int(5)) }

// GlobalID returns BlockID(0)·BlockDim(0) + ThreadID(0) as u32.
func (b *Builder) GlobalID() Value {
	return b.BlockID(0).Mad(b.BlockDim(0), b.ThreadID(0))
}

// Comment puts a line of text into the printed kernel, before the instructions that follow. A
// character beyond ASCII is printed as an escape such as \u00b7, because CUDA 12.8's assembler
// refuses such characters even in a comment.
func (b *Builder) Comment(format string, args ...any) {
	text := ascii(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
	b.add(&node{kind: comment, text: text, effect: effectful})
}

// ascii replaces characters beyond ASCII by the escapes of Go's string literals.
func ascii(s string) string {
	if !strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return s
	}
	var out []byte
	for _, c := range s {
		if c < utf8.RuneSelf {
			out = append(out, byte(c))
			continue
		}
		quoted := strconv.AppendQuoteRuneToASCII(nil, c)
		out = append(out, quoted[1:len(quoted)-1]...)
	}
	return string(out)
}

func (b *Builder) add(n *node) {
	b.require(n.op)
	for _, d := range n.dst {
		if !d.mutable {
			d.def = n
		}
	}
	b.cur.nodes = append(b.cur.nodes, n)
}
