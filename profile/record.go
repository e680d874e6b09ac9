package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// sums holds the quantities that are added up over spans.
type sums struct {
	cpu, gpu       time.Duration
	cpuMem, gpuMem int
	flops, bytes   int
}

func (a *sums) add(b sums) {
	a.cpu += b.cpu
	a.gpu += b.gpu
	a.cpuMem += b.cpuMem
	a.gpuMem += b.gpuMem
	a.flops += b.flops
	a.bytes += b.bytes
}

// record is a finished cycle, with its events in order.
type record struct {
	o            *Options
	began, ended time.Duration
	wall         time.Time // time of day at the start of the recording
	goroutines   int
	// spans in the order of their numbers: enclosing spans come first
	spans   []*span
	kernels []*kernel
	copies  []*transfer
	waits   []*wait
	memory  []*allocation
	leaves  []leaf // work of the host inside spans, and work of devices
	layers  map[any]string
	dropped int
	// number of kernels and copies on a GPU that have no time, although times were requested
	untimed  int
	emulated bool // whether some times are those of an emulated device
}

// leaf is a piece of work that contains no other: a call of the GPU's driver, or work on a device.
type leaf struct {
	name       string
	device     device.Device // device that did the work; nil for the host
	stream     uint64
	in         *span
	g          *gstate
	start, end time.Duration
	cause      int // number of the driver call that queued this device work; 0 if there is none
	number     int // number of the leaf, counted from 1
	work       device.Work
	kernel     *kernel
	launch     *device.LaunchEvent
	copy       *transfer
}

func newRecord(c *collector, states []*gstate, o *Options) *record {
	r := &record{o: o, began: c.began, ended: c.ended, wall: time.Now().Add(c.began - device.Now()), goroutines: len(states), dropped: int(c.dropped.Load())}
	for _, g := range states {
		for _, s := range g.stacks.known {
			s.resolve()
		}
		r.spans = slices.AppendSeq(r.spans, g.spans.entries(0))
		r.kernels = slices.AppendSeq(r.kernels, g.kernels.entries(0))
		r.copies = slices.AppendSeq(r.copies, g.copies.entries(0))
		r.waits = slices.AppendSeq(r.waits, g.waits.entries(0))
		r.memory = slices.AppendSeq(r.memory, g.memory.entries(0))
	}
	places := make([]place, len(r.spans))
	for i, p := range r.spans {
		p.place = &places[i]
	}
	slices.SortFunc(r.spans, func(a, b *span) int { return cmp.Compare(a.id, b.id) })
	slices.SortStableFunc(r.kernels, func(a, b *kernel) int { return cmp.Compare(a.start, b.start) })
	slices.SortStableFunc(r.copies, func(a, b *transfer) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(r.waits, func(a, b *wait) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(r.memory, func(a, b *allocation) int { return cmp.Compare(a.at, b.at) })
	r.nameLayers()
	r.findLeaves()
	r.place()
	r.addUp()
	return r
}

// copyKey identifies the counter that numbers layers without a pointer. Layers of the same type
// within the same span share a counter.
type copyKey struct {
	in   *span
	name string
}

// nameLayers finds, for each span, the call of a layer that contains it. A layer without a name
// gets one from its type and a number.
func (r *record) nameLayers() {
	r.layers = map[any]string{}
	count, copies := map[string]int{}, map[copyKey]int{}
	ops, first := map[uint64]*span{}, map[string]*span{}
	// in this order, an enclosing span comes before the spans inside it, and an op before its
	// gradient
	for _, p := range r.spans {
		if p.recorded != 0 {
			ops[p.recorded] = p
		}
		if q := p.parent; q != nil {
			p.again = q.kind == device.SpanBackward || q.again && q.kind != device.SpanModule
			p.inner = q.inner
		}
		// a gradient belongs to the layer of the op that it differentiates
		if p.kind == device.SpanBackward {
			if op := ops[p.node]; op != nil {
				p.inner = op.inner
			}
		}
		if p.kind != device.SpanModule {
			continue
		}
		p.outer, p.inner = p.inner, p
		// Here p.outer is the layer whose gradient caused the recomputing. Replace it by the layer
		// around it, which also contains p.
		if p.again && p.outer != nil {
			p.outer = p.outer.outer
		}
		// A layer without an owner is a struct that was copied. Number it by its type within the
		// enclosing layer.
		if p.owner == nil {
			name := p.name
			if p.outer != nil {
				name = p.outer.name + "." + name
			}
			if p.again { // it is not known which of the copies is recomputed
				p.name = name + " (computed again)"
				continue
			}
			k := copyKey{p.parent, name}
			p.name = fmt.Sprintf("%s_%d", name, copies[k])
			copies[k]++
			continue
		}
		name, ok := r.layers[p.owner]
		if !ok {
			if name, ok = r.o.Modules[p.owner]; !ok {
				name = fmt.Sprintf("%s_%d", p.name, count[p.name])
				count[p.name]++
			}
			r.layers[p.owner] = name
		}
		p.name = name
		if f := first[name]; f == nil {
			first[name] = p
		} else if p.again && !f.again {
			p.outer = f.outer
		}
	}
}

// onGPU reports whether a device works asynchronously to the host.
func onGPU(d device.Device) bool { return !d.Info().Host }

var driverCalls = map[string]string{
	"stream synchronize": "cuStreamSynchronize", "device synchronize": "cuCtxSynchronize", "event wait": "cuEventSynchronize",
	"wait for memory": "cuEventSynchronize",
}

// findLeaves lists the pieces of work that contain no other: launches, copies and waits of the
// host, and kernels and copies of devices.
func (r *record) findLeaves() {
	add := func(l leaf) int {
		l.number = len(r.leaves) + 1
		r.leaves = append(r.leaves, l)
		return l.number
	}
	run := func(l leaf, v interval, d device.Device) {
		switch {
		case v.ok:
			l.start, l.end = v.start, v.end
			r.emulated = r.emulated || d.Info().Emulated
			add(l)
		case r.o.CUDA:
			r.untimed++
		}
	}
	for _, k := range r.kernels {
		work := k.work
		if k.gpu == nil {
			continue
		}
		for i := range k.gpu.launches {
			l := &k.gpu.launches[i]
			n := add(leaf{name: "cuLaunchKernel", in: k.in, g: k.g, start: l.Start, end: l.End})
			run(leaf{name: l.Kernel, device: k.device, stream: k.gpu.stream, in: k.in, g: k.g, cause: n, work: work, kernel: k, launch: l}, k.gpu.runs[i], k.device)
			work = device.Work{} // count the work of the primitive only for its first kernel
		}
	}
	for _, c := range r.copies {
		if !onGPU(c.Device) {
			continue
		}
		call := map[device.CopyKind]string{device.HostToDevice: "cuMemcpyHtoDAsync", device.DeviceToHost: "cuMemcpyDtoHAsync",
			device.DeviceToDevice: "cuMemcpyDtoDAsync", device.PeerToPeer: "cuMemcpyPeerAsync"}[c.Kind]
		n := add(leaf{name: call, in: c.in, g: c.g, start: c.Start, end: c.End})
		run(leaf{name: copyName(c), device: c.Device, stream: c.stream, in: c.in, g: c.g, cause: n, copy: c}, c.run, c.Device)
	}
	for _, w := range r.waits {
		name := driverCalls[w.Call]
		if name == "" {
			name = w.Call
		}
		add(leaf{name: name, in: w.in, g: w.g, start: w.Start, end: w.End})
	}
}

func copyName(c *transfer) string {
	host := "Pageable"
	if c.Pinned {
		host = "Pinned"
	}
	switch c.Kind {
	case device.HostToDevice:
		return "Memcpy HtoD (" + host + " -> Device)"
	case device.DeviceToHost:
		return "Memcpy DtoH (Device -> " + host + ")"
	case device.DeviceToDevice:
		return "Memcpy DtoD (Device -> Device)"
	}
	return "Memcpy PtoP (Device -> Device)"
}

// place corrects the times of device work. Work cannot begin before it was queued, or before the
// previous work on its stream has ended. The measured times may contradict this, because the clocks
// of host and device agree only to some microseconds. The clock of an emulated device is
// independent of the host's.
func (r *record) place() {
	type track struct {
		d device.Device
		s uint64
	}
	tracks := map[track][]*leaf{}
	for i := range r.leaves {
		if l := &r.leaves[i]; l.device != nil {
			t := track{l.device, l.stream}
			tracks[t] = append(tracks[t], l)
		}
	}
	for _, list := range tracks {
		slices.SortStableFunc(list, func(a, b *leaf) int { return cmp.Compare(a.start, b.start) })
		at := time.Duration(0)
		for _, l := range list {
			took := l.end - l.start
			l.start = max(l.start, at, r.leaves[l.cause-1].start)
			at = l.start + took
			l.end = at
		}
	}
}

// addUp computes, for each span, the sums over the work and the spans inside it.
func (r *record) addUp() {
	for _, p := range r.spans {
		if !p.loose { // the time of a loose span is already counted by other spans on its goroutine
			p.self = sums{cpu: p.end - p.start}
		}
	}
	for i := range r.leaves {
		l := &r.leaves[i]
		switch {
		case l.in == nil:
		case l.device == nil:
			l.in.self.cpu -= l.end - l.start
		default:
			l.in.self.gpu += l.end - l.start
		}
	}
	for _, k := range r.kernels {
		if k.in != nil {
			k.in.self.flops += k.work.FLOPs
			k.in.self.bytes += k.work.Bytes
		}
	}
	for _, m := range r.memory {
		switch {
		case m.in == nil || m.pinned:
		case onGPU(m.device):
			m.in.self.gpuMem += m.bytes
		default:
			m.in.self.cpuMem += m.bytes
		}
	}
	for _, p := range r.spans {
		if p.parent != nil && p.parent.g == p.g && !p.loose {
			p.parent.self.cpu -= max(min(p.end, p.parent.end)-p.start, 0)
		}
	}
	for _, p := range r.spans {
		p.self.cpu = max(p.self.cpu, 0)
		p.total = p.self
		p.total.cpu = p.end - p.start
	}
	// Go from the last span to the first, so that inner spans come before the spans around them.
	for i := len(r.spans) - 1; i >= 0; i-- {
		if p := r.spans[i]; p.parent != nil {
			t := p.total
			t.cpu = 0
			p.parent.total.add(t)
		}
	}
}

// notes returns remarks on how the times were measured, for every report.
func (r *record) notes() []string {
	var n []string
	if r.emulated {
		n = append(n, "Times of the GPU are emulated: a virtual clock's, by the cost model, and not those of hardware.")
	}
	if r.untimed > 0 {
		n = append(n, fmt.Sprintf("%d kernels or copies have no time: the device gave none.", r.untimed))
	}
	if r.dropped > 0 {
		n = append(n, fmt.Sprintf("%d events were dropped: there was room for %d (Options.MaxEvents). Times of what encloses them are complete, counts and sums are not.",
			r.dropped, r.o.MaxEvents))
	}
	return n
}

func noteLines(n []string) string {
	if len(n) == 0 {
		return ""
	}
	return strings.Join(n, "\n") + "\n"
}
