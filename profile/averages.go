package profile

import (
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/shape"
)

// An Average sums up all events with the same key. Fields with "Total" in their names include
// nested events. If an op calls an op of the same name, the inner op is not counted twice. Fields
// with "Self" in their names exclude nested events. The GPU times of a host event are those of
// the kernels and copies that it queued.
type Average struct {
	Key string
	// Kind is "op", "direct", "backward", "module", "scope" or "user" for spans; "call" for a call
	// of the driver; "kernel" or "copy" for work on a device
	Kind  string
	Count int

	CPUTotal, CPUSelf   time.Duration
	CUDATotal, CUDASelf time.Duration
	// The fields with Memory in their names hold numbers of allocated bytes minus freed bytes.
	CPUMemory, CPUMemorySelf, CUDAMemory, CUDAMemorySelf int
	// FLOPs and Bytes are those of the primitives that the event ran itself, counted as device.Work
	// specifies
	FLOPs, Bytes int
	FLOPsTotal   int

	Shapes []shape.Dims // shapes of the inputs, if ByShape was given
	Stack  []string     // frames of the program's code, if ByStack was given
	device bool
}

// CPUTime returns CPUTotal divided by the number of events.
func (a *Average) CPUTime() time.Duration { return average(a.CPUTotal, a.Count) }

// CUDATime returns CUDATotal divided by the number of events.
func (a *Average) CUDATime() time.Duration { return average(a.CUDATotal, a.Count) }

func average(t time.Duration, n int) time.Duration {
	if n == 0 {
		return 0
	}
	return t / time.Duration(n)
}

// Averages are the rows of a table, ordered by their first event.
type Averages struct {
	Rows    []Average
	notes   []string
	o       Options
	keyName string // title of the column that shows Key
}

// A Group selects a property by which events are grouped, in addition to their name.
type Group func(*grouping)

type grouping struct {
	shapes, modules bool
	stack           int
}

// ByShape separates events with different input shapes: torch's group_by_input_shape. It needs
// Options.Shapes.
func ByShape() Group { return func(g *grouping) { g.shapes = true } }

// ByStack separates events that were called from different lines: torch's group_by_stack_n. It
// compares the n innermost frames of the program's own code. It needs Options.Stacks.
func ByStack(n int) Group { return func(g *grouping) { g.stack = max(n, 0) } }

// ByModule makes one row for each layer and not for each event. The "self" columns of a row have
// the time and work of the layer itself. The "total" columns include the layers inside it. Forward
// and backward are counted together. The "self" columns of all rows add up to the whole profile.
func ByModule() Group { return func(g *grouping) { g.modules = true } }

// noLayer is the name of the row for work outside of layers.
const noLayer = "(outside of layers)"

// KeyAverages sums up events by name and by the given groups: torch's key_averages.
func (p *Profile) KeyAverages(groups ...Group) *Averages {
	var g grouping
	for _, f := range groups {
		f(&g)
	}
	return p.record().averages(g)
}

func (r *record) averages(g grouping) *Averages {
	if g.modules {
		return r.byModule()
	}
	a := &Averages{notes: r.notes(), o: *r.o}
	at := map[string]int{}
	row := func(key, kind, name string) *Average {
		i, ok := at[key]
		if !ok {
			i = len(a.Rows)
			at[key] = i
			a.Rows = append(a.Rows, Average{Key: name, Kind: kind})
		}
		a.Rows[i].Count++
		return &a.Rows[i]
	}
	keys := make(map[*span]string, len(r.spans))
	for _, p := range r.spans {
		name := p.key()
		key := p.kind.String() + "\x00" + name
		var stack []string
		if g.stack > 0 {
			stack = frameLines(p.stack, g.stack)
			key += "\x00" + strings.Join(stack, "\x00")
		}
		if g.shapes {
			key += "\x00" + shapesString(p.shapes)
		}
		keys[p] = key
		v := row(key, p.kind.String(), name)
		if v.Count == 1 && g.shapes {
			v.Shapes = p.shapes
		}
		v.Stack = stack
		v.addSelf(p.self)
		again := false
		for q := p.parent; q != nil && !again; q = q.parent {
			again = keys[q] == key
		}
		if !again {
			v.CPUTotal += p.total.cpu
			v.CUDATotal += p.total.gpu
			v.CPUMemory += p.total.cpuMem
			v.CUDAMemory += p.total.gpuMem
			v.FLOPsTotal += p.total.flops
		}
	}
	for i := range r.leaves {
		l := &r.leaves[i]
		took := l.end - l.start
		if l.device == nil {
			v := row("call\x00"+l.name, "call", l.name)
			v.CPUSelf += took
			v.CPUTotal += took
			continue
		}
		kind := "kernel"
		if l.copy != nil {
			kind = "copy"
		}
		v := row(kind+"\x00"+l.name, kind, l.name)
		v.device = true
		v.CUDASelf += took
		v.CUDATotal += took
	}
	return a
}

// key returns the name under which spans like p are summed up. The name is the same in all steps.
func (p *span) key() string {
	if p.kind == device.SpanUser && strings.HasPrefix(p.name, "ProfilerStep#") {
		return "ProfilerStep*"
	}
	return p.name
}

func (a *Average) addSelf(s sums) {
	a.CPUSelf += s.cpu
	a.CUDASelf += s.gpu
	a.CPUMemorySelf += s.cpuMem
	a.CUDAMemorySelf += s.gpuMem
	a.FLOPs += s.flops
	a.Bytes += s.bytes
}

func (r *record) byModule() *Averages {
	a := &Averages{notes: r.notes(), o: *r.o, keyName: "Module"}
	at := map[string]int{}
	row := func(name string) *Average {
		i, ok := at[name]
		if !ok {
			i = len(a.Rows)
			at[name] = i
			a.Rows = append(a.Rows, Average{Key: name, Kind: "module"})
		}
		return &a.Rows[i]
	}
	share := func(inner *span, s sums, call bool) {
		if inner == nil {
			v := row(noLayer)
			v.addSelf(s)
			v.addTotal(s)
			return
		}
		row(inner.name).addSelf(s)
		for q := inner; q != nil; {
			seen := false
			for o := inner; o != q && !seen; o = o.outer {
				seen = o.name == q.name
			}
			if !seen {
				row(q.name).addTotal(s)
			}
			q = q.outer
		}
		if call {
			row(inner.name).Count++
		}
	}
	for _, p := range r.spans {
		share(p.inner, p.self, p.kind == device.SpanModule)
	}
	for i := range r.leaves {
		l := &r.leaves[i]
		var inner *span
		if l.in != nil {
			inner = l.in.inner
		}
		switch {
		// a call of the driver counts in the total of its span, not in the span's self time
		case l.device == nil:
			share(inner, sums{cpu: l.end - l.start}, false)
		case l.in == nil:
			share(nil, sums{gpu: l.end - l.start}, false)
		}
	}
	for i := range a.Rows {
		// the row of the kernel or copy counts this GPU time, so no other row may
		a.Rows[i].device = true
	}
	return a
}

func (a *Average) addTotal(s sums) {
	a.CPUTotal += s.cpu
	a.CUDATotal += s.gpu
	a.CPUMemory += s.cpuMem
	a.CUDAMemory += s.gpuMem
	a.FLOPsTotal += s.flops
}

// Total sums up all rows: torch's total_average. The CPU and GPU times of the sum are self times.
// GPU times are taken only from the rows of kernels and copies.
func (a *Averages) Total() Average {
	t := Average{Key: "Total"}
	for i := range a.Rows {
		v := &a.Rows[i]
		t.Count += v.Count
		t.CPUSelf += v.CPUSelf
		t.CPUMemorySelf += v.CPUMemorySelf
		t.CUDAMemorySelf += v.CUDAMemorySelf
		t.FLOPs += v.FLOPs
		t.Bytes += v.Bytes
		if v.device {
			t.CUDASelf += v.CUDASelf
		}
	}
	t.CPUTotal, t.CUDATotal, t.CPUMemory, t.CUDAMemory, t.FLOPsTotal = t.CPUSelf, t.CUDASelf, t.CPUMemorySelf, t.CUDAMemorySelf, t.FLOPs
	return t
}

// frameLines formats the n innermost frames of the program's own code, one on each line.
func frameLines(s *stack, n int) []string {
	var list []string
	for _, f := range s.frames() {
		if len(list) == n {
			break
		}
		list = append(list, callsite.String(f.file, f.line)+": "+short(f.function))
	}
	return list
}

// short removes the package path from a function's name.
func short(function string) string { return function[strings.LastIndexByte(function, '/')+1:] }

func shapesString(list []shape.Dims) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, s := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.String())
	}
	b.WriteByte(']')
	return b.String()
}
