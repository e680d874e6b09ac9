package pool

import (
	"cmp"
	"runtime"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/callsite"
)

// MemorySnapshot returns the segments and blocks of the pool. If a history is being recorded, it
// also returns the history's events.
func (p *Pool) MemorySnapshot() *device.MemorySnapshot {
	out := &device.MemorySnapshot{Device: p.o.Name}
	_, out.Total = p.backing.Capacity()
	r := resolver{out: out, owners: map[ownerPlace]int{}, stacks: map[*stack]int{nil: 0}}
	out.Owners = []device.MemoryOwner{{}}
	out.Stacks = [][]device.Frame{nil}

	type located struct {
		block  *device.MemoryBlock
		origin Origin
	}
	var blocks []located
	p.mu.Lock()
	p.settleLocked()
	h := p.history
	var events []event
	if h != nil {
		h.addLocked(event{action: device.ActionSnapshot})
		events, out.Dropped = h.eventsLocked()
		out.Recording, out.Since, out.MaxEntries = true, h.start, h.max
	}
	out.Time = p.o.Now()
	s := &p.stats
	out.Allocated, out.AllocatedPeak = s.AllocatedBytes.Current, s.AllocatedBytes.Peak
	out.Reserved, out.ReservedPeak = s.ReservedBytes.Current, s.ReservedBytes.Peak
	out.Limit = p.limit
	out.Segments = make([]device.MemorySegment, 0, len(p.segments))
	for _, seg := range p.segments {
		g := device.MemorySegment{Addr: seg.addr, Size: seg.size, Stream: uint64(seg.home.stream), Small: seg.small, Expandable: seg.space != nil}
		n := 0
		for b := seg.first; b != nil; b = b.next {
			n++
		}
		g.Blocks = make([]device.MemoryBlock, n)
		for i, b := 0, seg.first; b != nil; i, b = i+1, b.next {
			m := &g.Blocks[i]
			m.Addr, m.Size = b.addr, b.size
			if b.state == stateFree {
				continue
			}
			m.State, m.Requested, m.Number = device.BlockActiveAllocated, b.requested, b.number
			if b.state == statePending {
				m.State = device.BlockActiveAwaitingFree
			}
			blocks = append(blocks, located{m, b.origin})
		}
		out.Segments = append(out.Segments, g)
	}
	p.mu.Unlock()

	// The pool's lock is not held here, because finding the functions of stacks is slow.
	for _, l := range blocks {
		l.block.Owner = r.origin(&l.origin)
		l.block.Category = r.category(l.block.Owner)
	}
	out.Events = make([]device.HistoryEvent, len(events))
	for i, e := range events {
		m := device.HistoryEvent{Sequence: e.sequence, Time: e.time, Action: e.action, Addr: e.addr, Size: e.size, Requested: e.requested,
			Stream: uint64(e.stream), Number: e.number, Stack: r.stack(e.stack)}
		if e.owner != nil {
			m.Owner = r.owner(e.owner, "")
			m.Category = r.category(m.Owner)
		}
		if e.action == device.ActionOOM {
			m.Free, m.Requested = e.requested, e.size
		}
		out.Events[i] = m
	}
	slices.SortFunc(out.Segments, func(a, b device.MemorySegment) int { return cmp.Compare(a.Addr, b.Addr) })
	return out
}

// ownerPlace is an owner with the text of its Where. This text is used only if the owner has no
// stack.
type ownerPlace struct {
	owner
	where string
}

// resolver converts recorded events and owners to the form that a snapshot has.
type resolver struct {
	out        *device.MemorySnapshot
	owners     map[ownerPlace]int
	stacks     map[*stack]int
	categories []string // category of each owner
}

func (r *resolver) origin(o *Origin) int {
	where := ""
	if o.stack == nil {
		switch {
		case o.Where != nil:
			where = o.Where.String()
		case o.PC != 0:
			where = "at " + site(o.PC)
		}
	}
	return r.owner(&owner{op: o.Op, scope: o.Scope, dtype: o.DType, shape: o.Shape, dims: o.Dims, stack: o.stack}, where)
}

func (r *resolver) owner(o *owner, where string) int {
	k := ownerPlace{*o, where}
	if i, ok := r.owners[k]; ok {
		return i
	}
	m := device.MemoryOwner{Op: o.op, Scope: o.scope, Type: o.dtype, Where: strings.TrimPrefix(where, "at "), Stack: r.stack(o.stack)}
	if o.dims > 0 {
		m.Shape = slices.Clone(o.shape[:min(o.dims, len(o.shape))])
	}
	if s := firstOutside(r.out.Stacks[m.Stack]); s != "" {
		m.Where = s
	}
	i := len(r.out.Owners)
	r.owners[k] = i
	r.out.Owners = append(r.out.Owners, m)
	return i
}

func (r *resolver) stack(s *stack) int {
	if i, ok := r.stacks[s]; ok {
		return i
	}
	i := len(r.out.Stacks)
	r.stacks[s] = i
	r.out.Stacks = append(r.out.Stacks, s.frames())
	return i
}

// frames returns the frames of a stack. It leaves out the allocator's frames at the innermost end,
// and those of the runtime at the outermost end.
func (s *stack) frames() []device.Frame {
	var out []device.Frame
	frames := runtime.CallersFrames(s.pcs)
	for more := len(s.pcs) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		in, _ := callsite.Within(f.Function)
		if len(out) == 0 && strings.HasPrefix(in, "internal/pool.(") || strings.HasPrefix(f.Function, "runtime.") {
			continue
		}
		out = append(out, device.Frame{Function: f.Function, File: f.File, Line: f.Line})
	}
	return out
}

// firstOutside returns the position, as "dir/file.go:line", of the innermost frame outside the
// library.
func firstOutside(frames []device.Frame) string {
	for _, f := range frames {
		if callsite.Outside(f.Function, f.File) {
			return callsite.String(f.File, f.Line)
		}
	}
	return ""
}

// callSite returns the position of the innermost frame outside the library, or "" if there is none.
func (s *stack) callSite() string {
	if s == nil {
		return ""
	}
	s.resolved.Do(func() { s.at = firstOutside(s.frames()) })
	return s.at
}

func (r *resolver) category(i int) string {
	for len(r.categories) <= i {
		r.categories = append(r.categories, categoryOf(r.out.Stacks[r.out.Owners[len(r.categories)].Stack]))
	}
	return r.categories[i]
}

// categoryOf returns a category, such as [device.CategoryParameter], for memory that was allocated
// with the given stack. The innermost call of a function such as Forward or Backward decides.
func categoryOf(frames []device.Frame) string {
	for _, f := range frames {
		// in the name of a generic function, "[...]" stands for the type arguments
		function := strings.ReplaceAll(f.Function, "[...]", "")
		method := function[strings.LastIndexByte(function, '.')+1:]
		in, _ := callsite.Within(function)
		pkg, name, _ := strings.Cut(in, ".")
		switch {
		case pkg == "optim" && (method == "Step" || strings.HasPrefix(name, "New")):
			return device.CategoryOptimizer
		case pkg == "tensor" && name == "(*Tensor).Backward":
			return device.CategoryGradient
		case pkg == "nn/initial":
			return device.CategoryParameter
		case (pkg == "nn" || pkg == "models") && (strings.HasPrefix(name, "New") || name == "To" || name == "Cast"):
			return device.CategoryParameter
		// in package tensor, a method Forward belongs to an op and not to a layer
		case method == "Forward" && pkg != "tensor":
			return device.CategoryActivation
		}
	}
	return device.CategoryOther
}
