package memsnap

import (
	"encoding/binary"
	"io"
	"strconv"
	"strings"

	"github.com/flambeau-go/flambeau/device"
)

// WritePickle writes the snapshots in the format of torch.cuda.memory._dump_snapshot. This is a
// dictionary of segments, device_traces and allocator_settings. The documentation of
// torch.cuda.memory._snapshot describes it. The list of traces is indexed by device number. As in
// PyTorch, sizes in events are the requested sizes.
func WritePickle(w io.Writer, snaps ...*device.MemorySnapshot) error {
	if err := checked(snaps); err != nil {
		return err
	}
	p := &pickler{w: w, strings: map[string]uint32{}}
	p.op(0x80, 4) // protocol 4, in which MEMOIZE takes no index
	p.op('}', '(')
	p.key("segments")
	p.segments(snaps)
	p.key("device_traces")
	p.traces(snaps)
	p.key("allocator_settings")
	expandable := false
	for _, s := range snaps {
		for _, g := range s.Segments {
			expandable = expandable || g.Expandable
		}
	}
	p.op('}', '(')
	p.key("expandable_segments")
	p.bool(expandable)
	p.op('u')
	p.op('u', '.')
	p.flush()
	if p.err != nil {
		return &Error{Err: p.err}
	}
	return nil
}

// pickler writes a pickle of protocol 4. It uses only opcodes that PyTorch's viewer can decode. The
// viewer does not support classes, or an opcode that appends more than a thousand items.
type pickler struct {
	w       io.Writer
	buf     []byte
	err     error
	memo    uint32 // number of objects stored in the memo so far
	strings map[string]uint32
	// memo numbers of the stacks of the current snapshot, by index of the stack
	stacks map[int]uint32
	owners map[int]uint32
	frames map[device.Frame]uint32
}

const batch = 1000

func (p *pickler) op(b ...byte) {
	p.buf = append(p.buf, b...)
	if len(p.buf) > 1<<16 {
		p.flush()
	}
}

func (p *pickler) flush() {
	if p.err == nil {
		_, p.err = p.w.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

// memoise stores the object on top of the pickle machine's stack in the memo, and returns its
// number.
func (p *pickler) memoise() uint32 {
	p.op(0x94)
	p.memo++
	return p.memo - 1
}

func (p *pickler) get(i uint32) {
	if i < 256 {
		p.op('h', byte(i))
	} else {
		p.op(binary.LittleEndian.AppendUint32([]byte{'j'}, i)...)
	}
}

// str writes a string, or a reference to the memo if the string was written before.
func (p *pickler) str(s string) {
	if i, ok := p.strings[s]; ok {
		p.get(i)
		return
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	p.op(binary.LittleEndian.AppendUint32([]byte{'X'}, uint32(len(s)))...)
	p.op([]byte(s)...)
	p.strings[s] = p.memoise()
}

func (p *pickler) key(s string) { p.str(s) }

func (p *pickler) uint(v uint64) {
	switch {
	case v < 1<<8:
		p.op('K', byte(v))
	case v < 1<<16:
		p.op('M', byte(v), byte(v>>8))
	case v < 1<<31:
		p.op(binary.LittleEndian.AppendUint32([]byte{'J'}, uint32(v))...)
	case v < 1<<63:
		p.op(binary.LittleEndian.AppendUint64([]byte{0x8a, 8}, v)...)
	default: // a ninth byte, 0, says that the number is positive
		p.op(append(binary.LittleEndian.AppendUint64([]byte{0x8a, 9}, v), 0)...)
	}
}

func (p *pickler) bool(b bool) {
	if b {
		p.op(0x88)
	} else {
		p.op(0x89)
	}
}

func (p *pickler) field(name string, v uint64) {
	p.key(name)
	p.uint(v)
}

func (p *pickler) text(name, v string) {
	p.key(name)
	p.str(v)
}

// list writes a list of n items, each by calling item.
func (p *pickler) list(n int, item func(i int)) {
	p.op(']')
	for i := 0; i < n; i += batch {
		p.op('(')
		for j := i; j < min(n, i+batch); j++ {
			item(j)
		}
		p.op('e')
	}
}

// stack writes the frames of stack i as a list, or a reference to the memo if it was written
// before.
func (p *pickler) stack(s *device.MemorySnapshot, i int) {
	if i < 0 || i >= len(s.Stacks) {
		i = 0
	}
	if at, ok := p.stacks[i]; ok {
		p.get(at)
		return
	}
	var frames []device.Frame
	if len(s.Stacks) > 0 {
		frames = s.Stacks[i]
	}
	p.writeFrames(frames)
	p.stacks[i] = p.memoise()
}

// owned writes the stack of an allocation. It puts a line that describes the owner before the
// frames, because PyTorch's viewer has no field for the owner.
func (p *pickler) owned(s *device.MemorySnapshot, i int) {
	if i <= 0 || i >= len(s.Owners) {
		p.stack(s, 0)
		return
	}
	if at, ok := p.owners[i]; ok {
		p.get(at)
		return
	}
	o := s.Owners[i]
	var frames []device.Frame
	if o.Stack > 0 && o.Stack < len(s.Stacks) {
		frames = s.Stacks[o.Stack]
		o.Where = "" // the stack already shows the line
	}
	p.writeFrames(append([]device.Frame{{Function: o.String(), File: "op"}}, frames...))
	p.owners[i] = p.memoise()
}

func (p *pickler) writeFrames(frames []device.Frame) {
	p.list(len(frames), func(j int) {
		f := frames[j]
		if at, ok := p.frames[f]; ok {
			p.get(at)
			return
		}
		p.op('}', '(')
		p.text("name", f.Function)
		p.text("filename", f.File)
		p.field("line", uint64(max(f.Line, 0)))
		p.op('u')
		p.frames[f] = p.memoise()
	})
}

// begin prepares the pickler for the stacks of another snapshot.
func (p *pickler) begin() {
	p.stacks, p.owners, p.frames = map[int]uint32{}, map[int]uint32{}, map[device.Frame]uint32{}
}

// number returns the N of "cuda:N" or "cpu:N", and 0 for other names.
func number(name string) int {
	_, n, _ := strings.Cut(name, ":")
	i, err := strconv.Atoi(n)
	if err != nil || i < 0 || i > 1023 {
		return 0
	}
	return i
}

func (p *pickler) segments(snaps []*device.MemorySnapshot) {
	p.op(']')
	for _, s := range snaps {
		p.begin()
		// caused maps each segment to the index of the stack that allocated it.
		caused := map[uintptr]int{}
		for _, e := range s.Events {
			if e.Action == device.ActionSegmentAlloc || e.Action == device.ActionSegmentMap {
				caused[e.Addr] = e.Stack
			}
		}
		for i := range s.Segments {
			p.op('(')
			p.segment(s, &s.Segments[i], caused)
			p.op('e')
		}
	}
}

func (p *pickler) segment(s *device.MemorySnapshot, g *device.MemorySegment, caused map[uintptr]int) {
	var allocated, active, requested uint64
	for _, b := range g.Blocks {
		if b.State != device.BlockInactive {
			active += b.Size
		}
		if b.State == device.BlockActiveAllocated {
			allocated += b.Size
			requested += b.Requested
		}
	}
	p.op('}', '(')
	p.field("device", uint64(number(s.Device)))
	p.field("address", uint64(g.Addr))
	p.field("total_size", g.Size)
	p.field("allocated_size", allocated)
	p.field("active_size", active)
	p.field("requested_size", requested)
	p.field("stream", g.Stream)
	kind := "large"
	if g.Small {
		kind = "small"
	}
	p.text("segment_type", kind)
	p.key("segment_pool_id")
	p.op('K', 0, 'K', 0, 0x86)
	p.key("is_expandable")
	p.bool(g.Expandable)
	p.key("frames")
	p.stack(s, caused[g.Addr])
	p.key("blocks")
	p.list(len(g.Blocks), func(i int) {
		b := g.Blocks[i]
		p.op('}', '(')
		p.field("address", uint64(b.Addr))
		p.field("size", b.Size)
		p.field("requested_size", b.Requested)
		p.text("state", states[b.State])
		p.key("frames")
		p.owned(s, b.Owner)
		p.op('u')
	})
	p.op('u')
}

// states holds the names of block states in PyTorch's files. The name for a freed block that
// waits for other streams differs from the name in PyTorch's documentation.
var states = [...]string{device.BlockInactive: "inactive", device.BlockActiveAllocated: "active_allocated", device.BlockActiveAwaitingFree: "active_pending_free"}

// unknown is the viewer's name for a missing category. The viewer requires at least one event with
// this category.
const unknown = "unknown"

func (p *pickler) traces(snaps []*device.MemorySnapshot) {
	n := 0
	for _, s := range snaps {
		n = max(n, number(s.Device)+1)
	}
	p.op(']', '(')
	for i := range n {
		p.op(']')
		for _, s := range snaps {
			if number(s.Device) == i {
				p.begin()
				p.trace(s)
			}
		}
	}
	p.op('e')
}

// trace appends the events of a snapshot to the list on top of the pickle machine's stack.
func (p *pickler) trace(s *device.MemorySnapshot) {
	for i := 0; i < len(s.Events); i += batch {
		p.op('(')
		for _, e := range s.Events[i:min(len(s.Events), i+batch)] {
			p.event(s, e)
		}
		p.op('e')
	}
}

func (p *pickler) event(s *device.MemorySnapshot, e device.HistoryEvent) {
	p.op('}', '(')
	p.text("action", e.Action.String())
	size := e.Size
	switch e.Action {
	case device.ActionAlloc, device.ActionFreeRequested, device.ActionFreeCompleted:
		size = e.Requested
	}
	if e.Action == device.ActionOOM {
		p.field("device_free", e.Free)
	} else {
		p.field("addr", uint64(e.Addr))
	}
	p.field("size", size)
	p.field("stream", e.Stream)
	p.field("time_us", uint64(max(e.Time, 0)/1000))
	p.key("frames")
	if e.Action == device.ActionAlloc || e.Action == device.ActionOOM {
		p.owned(s, e.Owner)
	} else {
		p.stack(s, e.Stack)
	}
	switch {
	case e.Action == device.ActionSnapshot || e.Category == device.CategoryOther:
		p.text("category", unknown)
	case e.Category != "":
		p.text("category", e.Category)
	}
	p.op('u')
}
