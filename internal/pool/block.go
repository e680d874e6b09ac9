package pool

import (
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
)

// Origin says what a block is for and who asked. Filling it allocates nothing; text is made only
// when it is printed.
type Origin struct {
	PC uintptr // of the call outside the library, as runtime.Callers gives it; 0: not recorded
	// Where says where instead of PC: "at train.go:31", "in the scope opened at train.go:28"; nil:
	// not recorded. The pool holds it until the block is free, so it must not refer to what owns
	// the block: that would never become garbage.
	Where fmt.Stringer
	Op    string // what made it: "matmul"
	Scope string // the scope's name
	DType string
	Shape [8]int
	Dims  int // how much of Shape counts; negative: not a tensor
	// Collected marks a block that is released by a garbage-collector cleanup and not by its owner:
	// only these count towards Options.GCRatio, and only where some live does the ladder collect
	// before it tries anything else.
	Collected bool
	stack     *stack // of the allocation, while a history is recorded
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
	switch where := o.stack.where(); {
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

// ownerKey groups blocks by origin. A block whose Where cannot be compared is a group of its own.
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

// site resolves a PC of runtime.Callers to file:line.
func site(pc uintptr) string {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if f.File == "" {
		return fmt.Sprintf("pc %#x", pc)
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

type state uint8

const (
	stateSpare   state = iota // a recycled struct, no memory
	stateFree                 // in its arena's index
	stateLive                 // owned
	statePending              // freed, waiting for foreign streams
)

func (s state) String() string {
	return [...]string{"spare", "free", "live", "pending"}[s]
}

// Block is a piece of device memory. Its owner is whoever got it from Alloc, until Free or Queue.
type Block struct {
	pool      *Pool
	addr      uintptr
	size      uint64 // rounded
	requested uint64
	gen       uint64 // raised by each free
	stream    atomic.Uint64

	seg        *segment // nil: an empty block
	prev, next *Block   // neighbours by address in seg; next also links spare structs
	state      state
	split      bool // while free: counted as inactive split

	// The arena's index: equal sizes are a list, of which large blocks hang the first into a tree.
	listPrev, listNext *Block
	left, right        *Block

	uses     []StreamID // foreign streams; its capacity survives recycling
	events   int        // while pending: not yet done
	deferred bool       // while pending: in Pool.deferred

	queueNext *Block
	queued    atomic.Uint64 // the generation that Queue was asked to free; 0: not in the queue

	number uint64 // of the allocation, counted from 1
	// last: what is above is touched by every walk through the index, and shares cache lines
	origin Origin
}

// Addr returns the device address, 0 for an empty block.
func (b *Block) Addr() uintptr { return b.addr }

// Size returns the bytes that were asked for.
func (b *Block) Size() uint64 { return b.requested }

// Rounded returns the bytes that the block occupies.
func (b *Block) Rounded() uint64 { return b.size }

// Generation returns what Free and Queue need: it differs for each owner of the same memory. At
// least 1.
func (b *Block) Generation() uint64 { return b.gen }

// Stream returns the stream on which the block was allocated, or the heir of a retired one.
func (b *Block) Stream() StreamID { return StreamID(b.stream.Load()) }

// Origin returns what Alloc was told.
func (b *Block) Origin() Origin {
	o := b.origin
	o.stack = nil
	return o
}

// segment is a piece of memory of the backing, tiled by its blocks.
type segment struct {
	addr  uintptr
	size  uint64
	small bool
	home  *arena
	first *Block
	tail  *Block // the last, of an expandable segment
	index int    // in Pool.segments
	space *space // nil: not expandable
}

// newBlockLocked returns a struct with a generation that no earlier owner of it had.
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

// recycleLocked keeps a struct whose memory went elsewhere. The generation goes on counting.
func (p *Pool) recycleLocked(b *Block) {
	b.state, b.seg, b.prev, b.addr, b.size, b.requested = stateSpare, nil, nil, 0, 0, 0
	b.next = p.spare
	p.spare = b
}
