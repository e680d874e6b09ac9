package profile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// micros is a time in a trace. It is written in microseconds with three decimals.
type micros time.Duration

func (m micros) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/1e3, 'f', 3, 64), nil
}

// traceEvent is an event of Google's "Trace Event Format", which chrome://tracing and
// ui.perfetto.dev read. It is described at
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
type traceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   micros         `json:"ts"`
	Dur  *micros        `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	ID   string         `json:"id,omitempty"`
	BP   string         `json:"bp,omitempty"`
	S    string         `json:"s,omitempty"`
	Args map[string]any `json:"args,omitempty"`

	// order of events with equal times: an enclosing event comes first
	order int
}

type chromeTrace struct {
	r       *record
	events  []traceEvent
	devices map[device.Device]int
	streams map[streamKey]int
}

type streamKey struct {
	d device.Device
	s uint64
}

func (t *chromeTrace) add(e traceEvent, start, end time.Duration) {
	e.TS = micros(max(start-t.r.began, 0))
	if e.Ph == "X" {
		d := micros(max(end-start, 0))
		e.Dur = &d
		e.order = -int(d)
	}
	t.events = append(t.events, e)
}

func (t *chromeTrace) name(what, name string, pid, tid int) {
	t.events = append(t.events, traceEvent{Name: what, Ph: "M", PID: pid, TID: tid, Args: map[string]any{"name": name}})
}

// process adds the name of a process to the trace. Viewers show the label next to the name, and
// sort processes by pid.
func (t *chromeTrace) process(name, label string, pid int) {
	t.name("process_name", name, pid, 0)
	t.events = append(t.events, traceEvent{Name: "process_labels", Ph: "M", PID: pid, Args: map[string]any{"labels": label}},
		traceEvent{Name: "process_sort_index", Ph: "M", PID: pid, Args: map[string]any{"sort_index": pid}})
}

// device returns the number of a device's process in the trace. The host has number 0.
func (t *chromeTrace) device(d device.Device) int {
	n, ok := t.devices[d]
	if !ok {
		n = len(t.devices) + 1
		t.devices[d] = n
		name := d.Name() + " (" + d.Info().Name + ")"
		if d.Info().Emulated {
			name += ": durations by the emulator's cost model"
		}
		t.process(name, "GPU "+strconv.Itoa(index(d)), n)
	}
	return n
}

// index returns the number in a device's name: 1 for "cuda:1", 0 for "cpu".
func index(d device.Device) int {
	_, number, _ := strings.Cut(d.Name(), ":")
	n, _ := strconv.Atoi(number)
	return n
}

func (t *chromeTrace) stream(d device.Device, s uint64) int {
	k := streamKey{d, s}
	n, ok := t.streams[k]
	if !ok {
		n = len(t.streams) + 1
		t.streams[k] = n
		t.name("thread_name", fmt.Sprintf("stream %d", n), t.device(d), n)
	}
	return n
}

var categories = map[device.SpanKind]string{device.SpanOp: "cpu_op", device.SpanDirect: "cpu_op", device.SpanBackward: "cpu_op",
	device.SpanModule: "module", device.SpanScope: "user_annotation", device.SpanUser: "user_annotation"}

// trace returns the events of the trace, sorted by time.
func (r *record) trace() []traceEvent {
	t := &chromeTrace{r: r, devices: map[device.Device]int{}, streams: map[streamKey]int{}}
	t.process("host", "CPU", 0)
	for g := range r.goroutines {
		t.name("thread_name", fmt.Sprintf("goroutine %d", g+1), 0, g+1)
	}
	t.spans()
	for i := range r.leaves {
		l := &r.leaves[i]
		if l.device == nil {
			e := traceEvent{Name: l.name, Cat: "cuda_driver", Ph: "X", TID: int(l.g.number) + 1, Args: map[string]any{"correlation": l.number}}
			if l.in != nil {
				e.Args["External id"] = l.in.id
			}
			t.add(e, l.start, l.end)
			continue
		}
		pid, tid := t.device(l.device), t.stream(l.device, l.stream)
		e := traceEvent{Name: l.name, Cat: "kernel", Ph: "X", PID: pid, TID: tid,
			Args: map[string]any{"correlation": l.cause, "device": index(l.device), "context": 1, "stream": tid}}
		switch {
		case l.copy != nil:
			e.Cat = "gpu_memcpy"
			e.Args["bytes"] = l.copy.Bytes
			if took := l.end - l.start; took > 0 {
				e.Args["memory bandwidth (GB/s)"] = float64(l.copy.Bytes) / float64(took)
			}
		case l.kernel != nil:
			e.Args["primitive"] = l.kernel.primitive
			e.Args["grid"], e.Args["block"], e.Args["shared memory"] = l.launch.Grid, l.launch.Block, l.launch.Shared
			if l.work != (device.Work{}) {
				e.Args["flops"], e.Args["bytes"] = l.work.FLOPs, l.work.Bytes
			}
		}
		if l.in != nil {
			e.Args["op"], e.Args["External id"] = l.in.name, l.in.id
			if l.in.inner != nil {
				e.Args["module"] = l.in.inner.name
			}
		}
		t.add(e, l.start, l.end)
		cause, id := &r.leaves[l.cause-1], strconv.Itoa(l.cause)
		t.add(traceEvent{Name: "ac2g", Cat: "ac2g", Ph: "s", ID: id, TID: int(cause.g.number) + 1}, cause.start, 0)
		t.add(traceEvent{Name: "ac2g", Cat: "ac2g", Ph: "f", BP: "e", ID: id, PID: pid, TID: tid}, l.start, 0)
	}
	for _, k := range r.kernels {
		if !onGPU(k.device) {
			t.add(traceEvent{Name: k.primitive, Cat: "primitive", Ph: "X", TID: int(k.g.number) + 1,
				Args: map[string]any{"flops": k.work.FLOPs, "bytes": k.work.Bytes}}, k.start, k.end)
		}
	}
	for _, m := range r.memory {
		if !m.pinned {
			e := traceEvent{Name: "[memory]", Cat: "cpu_instant_event", Ph: "i", S: "t", TID: int(m.g.number) + 1,
				Args: map[string]any{"Addr": m.addr, "Bytes": m.bytes, "Device Type": 0, "Device Id": -1}}
			if onGPU(m.device) {
				e.Args["Device Type"], e.Args["Device Id"] = 1, index(m.device)
			}
			if m.inUse >= 0 {
				e.Args["Total Allocated"] = m.inUse
			}
			t.add(e, m.at, 0)
		}
		if m.inUse >= 0 && !m.pinned {
			t.add(traceEvent{Name: "memory of " + m.device.Name(), Ph: "C", Args: map[string]any{"bytes": m.inUse}}, m.at, 0)
		}
	}
	sort.SliceStable(t.events, func(i, j int) bool {
		a, b := &t.events[i], &t.events[j]
		switch {
		case (a.Ph == "M") != (b.Ph == "M"):
			return a.Ph == "M"
		case a.TS != b.TS:
			return a.TS < b.TS
		}
		return a.order < b.order
	})
	return t.events
}

// spans adds the spans to the trace. A span that nests on its goroutine becomes a slice. Any other
// span becomes an asynchronous event, for example a scope that ends on another goroutine.
func (t *chromeTrace) spans() {
	open := map[*gstate][]*span{}
	// made maps each node to the op that made it; an arrow leads from the op to its gradient
	made := map[uint64]*span{}
	slices := map[*span]bool{}
	for _, p := range t.r.spans {
		stack := open[p.g]
		for len(stack) > 0 && stack[len(stack)-1].end <= p.start {
			stack = stack[:len(stack)-1]
		}
		e := traceEvent{Name: p.name, Cat: categories[p.kind], Ph: "X", TID: int(p.g.number) + 1, Args: t.spanArgs(p)}
		if n := len(stack); p.loose || n > 0 && stack[n-1].end < p.end {
			id := "s" + strconv.FormatUint(uint64(p.id), 10)
			e.Ph, e.ID = "b", id
			t.add(e, p.start, 0)
			e.Ph, e.Args = "e", nil
			t.add(e, p.end, 0)
		} else {
			t.add(e, p.start, p.end)
			stack = append(stack, p)
			slices[p] = true
		}
		if p.recorded != 0 {
			made[p.recorded] = p
		}
		if op := made[p.node]; op != nil && p.node != 0 && slices[op] && slices[p] {
			arrow := traceEvent{Name: "fwdbwd", Cat: "fwdbwd", Ph: "s", ID: "n" + strconv.FormatUint(p.node, 10) + "." + strconv.FormatUint(uint64(p.id), 10), TID: int(op.g.number) + 1}
			t.add(arrow, op.start, 0)
			arrow.Ph, arrow.BP, arrow.TID = "f", "e", int(p.g.number)+1
			t.add(arrow, p.start, 0)
		}
		open[p.g] = stack
	}
}

func (t *chromeTrace) spanArgs(p *span) map[string]any {
	a := map[string]any{"kind": p.kind.String(), "External id": p.id}
	if len(p.shapes) > 0 {
		dims := make([][]int, len(p.shapes))
		for i, s := range p.shapes {
			dims[i] = append([]int{}, s.Slice()...)
		}
		a["Input Dims"] = dims
	}
	if n := p.node + p.recorded; n != 0 {
		a["Sequence number"] = n
	}
	if p.inner != nil && p.inner != p {
		a["module"] = p.inner.name
	}
	if s := frameLines(p.stack, 32); len(s) > 0 {
		a["Call stack"] = s
	}
	return a
}

func (r *record) writeTrace(w io.Writer) error {
	b := bufio.NewWriter(w)
	flag := map[bool]int{true: 1}
	head, err := json.Marshal(map[string]any{"schemaVersion": 1, "displayTimeUnit": "ns", "baseTimeNanoseconds": r.wall.UnixNano(),
		"record_shapes": flag[r.o.Shapes], "profile_memory": flag[r.o.Memory], "with_stack": flag[r.o.Stacks], "with_flops": flag[r.o.FLOPs],
		"otherData": map[string]any{"go": runtime.Version(), "pid": os.Getpid(), "notes": r.notes()}})
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%s, \"traceEvents\": [", head[:len(head)-1])
	for i, e := range r.trace() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		j, err := json.Marshal(&e)
		if err != nil {
			return err
		}
		b.Write(j)
	}
	b.WriteString("\n]}\n")
	return b.Flush()
}
