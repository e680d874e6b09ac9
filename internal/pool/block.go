package pool

import (
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
)

// Origin says what a block is used for and where it was requested. Making an Origin allocates
// nothing; its text is made only when it is printed.
type Origin struct {
	PC uintptr // program counter of the call in the user's program; 0 if not recorded
	// Where describes the call site if PC is not recorded: "at train.go:31", "in the scope opened
	// at train.go:28". It may be nil. The pool refers to Where until the block is free. If Where
	// referred to the owner of the block, the garbage collector could never collect that owner.
	Where fmt.Stringer
	Op    string // name of the op that made the tensor: "matmul"
	Scope string // name of the scope
	DType string
	Shape [8]int
	Dims  int // number of dimensions used in Shape; negative if the block is not a tensor
	// Collected is true if the owner does not free the block: a cleanup of the garbage collector
	// does. Only such blocks count towards Options.GCRatio. If any are live, the first step of the
	// out-of-memory ladder is a garbage collection.
	Collected bool
	stack     *stack // stack of the allocation; only while a history is recorded
}

// Describe returns one line such as "[64, 784] float32, result of matmul at train.go:31, in scope
// "forward"".
func (o Origin) Describe() string {
	var s strings.Builder
	word := func(w string) {
		if s.Len() > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(w)
	}
	comma := func() {
		if s.Len() > 0 {
			s.WriteByte(',')
		}
	}
	if o.Dims > 0 || (o.Dims == 0 && o.DType != "") {
		text := "["
		for i, n := range o.Shape[:min(o.Dims, len(o.Shape))] {
			if i > 0 {
				text += ", "
			}
			text += strconv.Itoa(n)
		}
		word(text + "]")
	}
	if o.DType != "" {
		word(o.DType)
	}
	if o.Op != "" || o.PC != 0 || o.Where != nil || o.stack != nil {
		comma()
	}
	if o.Op != "" {
		word("result of " + o.Op)
	}
	at := ""
	switch where := o.stack.callSite(); {
	case where != "":
		at = "at " + where
	case o.Where != nil:
		at = o.Where.String()
	case o.PC != 0:
		at = "at " + site(o.PC)
	}
	if at != "" {
		word(at)
	}
	if last := o.Scope[strings.LastIndexByte(o.Scope, '/')+1:]; last != "" && !strings.Contains(at, strconv.Quote(last)) {
		comma()
		word(fmt.Sprintf("in scope %q", o.Scope))
	}
	if s.Len() == 0 {
		return "origin not recorded"
	}
	return s.String()
}

// ownerKey identifies the blocks with the same origin. A block whose Where is not comparable forms
// a group by itself.
type ownerKey struct {
	origin Origin
	only   *Block
}

func (b *Block) ownerKey() ownerKey {
	k := ownerKey{origin: b.origin}
	if w := b.origin.Where; w != nil && !reflect.ValueOf(w).Comparable() {
		k.origin.Where, k.only = nil, b
	}
	return k
}

// site returns "file:line" for a program counter from runtime.Callers.
func site(pc uintptr) string {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if f.File == "" {
		return fmt.Sprintf("pc %#x", pc)
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

type state uint8

const (
	stateSpare   state = iota // the struct stands for no memory, and is kept for reuse
	stateFree                 // the block is in its arena's index
	stateLive                 // the block has an owner
	statePending              // the block was freed, but other streams may still use it
)

func (s state) String() string {
	return [...]string{"spare", "free", "live", "pending"}[s]
}

// Block is a piece of device memory. The caller of Alloc owns it until Free or Queue.
type Block struct {
	pool      *Pool
	addr      uintptr
	size      uint64 // size in bytes with rounding
	requested uint64
	gen       uint64 // generation, which each free increments
	stream    atomic.Uint64

	seg        *segment // segment of the block; nil for an empty block
	prev, next *Block   // neighbours by address in the segment; next also links spare structs
	state      state
	split      bool // whether the block counts as "inactive split" in the statistics

	// These fields belong to the index of free blocks of an arena. Free blocks of equal size form a
	// list. For large sizes, the first block of each list is a node of a tree.
	listPrev, listNext *Block
	left, right        *Block

	// other streams that used the block; when the Block struct is recycled, it keeps the memory of
	// the slice
	uses     []StreamID
	events   int  // number of events that must be done before the block can be reused
	deferred bool // whether the block is in Pool.deferred

	queueNext *Block
	// generation with which Queue was called; 0 if the block is not in the queue
	queued atomic.Uint64

	number uint64 // number of the allocation, counted from 1
	// origin is the last field: searches in the index read only the fields before it, which fit
	// into few cache lines
	origin Origin
}

// Addr returns the device address, or 0 for an empty block.
func (b *Block) Addr() uintptr { return b.addr }

// Size returns the requested size in bytes.
func (b *Block) Size() uint64 { return b.requested }

// Rounded returns the size in bytes that the block occupies: the requested size, rounded up.
func (b *Block) Rounded() uint64 { return b.size }

// Generation returns the number that the block's owner must pass to Free and Queue. It is at least
// 1. Each later owner of the memory gets another number.
func (b *Block) Generation() uint64 { return b.gen }

// Stream returns the stream on which the block was allocated. If [Pool.Retire] has given the blocks
// of that stream to another stream, it returns the other stream.
func (b *Block) Stream() StreamID { return StreamID(b.stream.Load()) }

// Origin returns the origin that was passed to Alloc.
func (b *Block) Origin() Origin {
	o := b.origin
	o.stack = nil
	return o
}

// segment is a piece of memory from the backing. Blocks fill it completely.
type segment struct {
	addr  uintptr
	size  uint64
	small bool
	home  *arena
	first *Block
	tail  *Block // last block of an expandable segment
	index int    // index in Pool.segments
	space *space // address space of an expandable segment, else nil
}

// newBlockLocked returns a Block struct, with a generation that the struct has not had before.
func (p *Pool) newBlockLocked() *Block {
	b := p.spare
	if b == nil {
		b = &Block{pool: p, gen: 1}
		return b
	}
	p.spare = b.next
	b.next = nil
	return b
}

// recycleLocked keeps a Block struct for reuse, when the block has been merged into another. The
// generation of the struct never decreases.
func (p *Pool) recycleLocked(b *Block) {
	b.state, b.seg, b.prev, b.addr, b.size, b.requested = stateSpare, nil, nil, 0, 0, 0
	b.next = p.spare
	p.spare = b
}
