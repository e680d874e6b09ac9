package profile

import (
	"compress/gzip"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/flambeau-go/flambeau/device"
)

// protobuf is an encoded protocol buffer message. The numbers of fields below are those of
// https://github.com/google/pprof/blob/main/proto/profile.proto.
type protobuf []byte

// number appends a numeric field. It appends nothing if the number is 0.
func (p *protobuf) number(field protowire.Number, v int64) {
	if v != 0 {
		*p = protowire.AppendTag(*p, field, protowire.VarintType)
		*p = protowire.AppendVarint(*p, uint64(v))
	}
}

// bytes appends a field whose value is a string or a message.
func (p *protobuf) bytes(field protowire.Number, b []byte) {
	*p = protowire.AppendTag(*p, field, protowire.BytesType)
	*p = protowire.AppendBytes(*p, b)
}

// packed appends a repeated numeric field.
func (p *protobuf) packed(field protowire.Number, list []int64) {
	var b []byte
	for _, v := range list {
		b = protowire.AppendVarint(b, uint64(v))
	}
	p.bytes(field, b)
}

// sampleTypes describes the values of a sample, in the order of the values: "cpu" is time of the
// host, and "gpu" is time of devices. "moved" counts bytes that primitives and copies read and
// write. "allocated" counts bytes of allocations.
var sampleTypes = [][2]string{{"cpu", "nanoseconds"}, {"gpu", "nanoseconds"}, {"flops", "count"}, {"moved", "bytes"}, {"allocated", "bytes"}}

const (
	valueCPU = iota
	valueGPU
	valueFLOPs
	valueMoved
	valueAllocated
	values
)

// frame is a frame of a sample's stack.
type frame struct {
	function, file string
	line           int
}

type sampleKey struct {
	in     *span
	leaf   string
	device string
}

// pprofWriter collects samples, and the tables of strings and functions that they refer to.
type pprofWriter struct {
	strings   map[string]int64
	table     []string
	functions map[[2]string]int64
	locations map[frame]int64
	funcs     protobuf
	locs      protobuf
}

func (w *pprofWriter) str(s string) int64 {
	s = strings.ToValidUTF8(s, "\uFFFD")
	n, ok := w.strings[s]
	if !ok {
		n = int64(len(w.table))
		w.strings[s] = n
		w.table = append(w.table, s)
	}
	return n
}

func (w *pprofWriter) location(f frame) int64 {
	if n, ok := w.locations[f]; ok {
		return n
	}
	key := [2]string{f.function, f.file}
	fn, ok := w.functions[key]
	if !ok {
		fn = int64(len(w.functions) + 1)
		w.functions[key] = fn
		var m protobuf
		m.number(1, fn)
		m.number(2, w.str(f.function))
		m.number(3, w.str(f.function))
		m.number(4, w.str(f.file))
		w.funcs.bytes(5, m)
	}
	n := int64(len(w.locations) + 1)
	w.locations[f] = n
	var line, m protobuf
	line.number(1, fn)
	line.number(2, int64(f.line))
	m.number(1, n)
	m.bytes(4, line)
	w.locs.bytes(4, m)
	return n
}

// samples returns the distinct stacks, and for each the sum of its values.
func (r *record) samples() (order []sampleKey, sum map[sampleKey]*[values]int64) {
	sum = map[sampleKey]*[values]int64{}
	at := func(k sampleKey) *[values]int64 {
		v := sum[k]
		if v == nil {
			v = new([values]int64)
			sum[k] = v
			order = append(order, k)
		}
		return v
	}
	for _, p := range r.spans {
		if p.self.cpu > 0 {
			at(sampleKey{in: p})[valueCPU] += int64(p.self.cpu)
		}
	}
	for i := range r.leaves {
		l := &r.leaves[i]
		if l.device == nil {
			at(sampleKey{in: l.in, leaf: l.name})[valueCPU] += int64(l.end - l.start)
			continue
		}
		v := at(sampleKey{l.in, l.name, l.device.Name()})
		v[valueGPU] += int64(l.end - l.start)
		v[valueFLOPs] += int64(l.work.FLOPs)
		v[valueMoved] += int64(l.work.Bytes)
		if l.copy != nil {
			v[valueMoved] += int64(l.copy.Bytes)
		}
	}
	for _, k := range r.kernels {
		if !onGPU(k.device) { // on the CPU, the time is already part of the op's time
			v := at(sampleKey{k.in, "", k.device.Name()})
			v[valueFLOPs] += int64(k.work.FLOPs)
			v[valueMoved] += int64(k.work.Bytes)
		}
	}
	for _, m := range r.memory {
		if m.bytes > 0 {
			at(sampleKey{m.in, "", m.device.Name()})[valueAllocated] += int64(m.bytes)
		}
	}
	return order, sum
}

// stack returns the frames of a sample, innermost first: the kernel or call, the spans around it,
// and the program's own frames if they were recorded.
func (k sampleKey) stack() []frame {
	var list []frame
	if k.leaf != "" {
		// pprof would cut off a name at its parentheses
		list = append(list, frame{function: strings.NewReplacer("(", "", ")", "").Replace(k.leaf)})
	}
	for p := k.in; p != nil; p = p.parent {
		name := p.key()
		switch p.kind {
		case device.SpanModule:
			name = "layer " + name
		case device.SpanScope:
			name = "scope " + name
		case device.SpanUser:
			name = "span " + name
		}
		list = append(list, frame{function: name})
	}
	if k.in != nil {
		list = append(list, k.in.stack.frames()...)
	}
	if len(list) == 0 {
		list = append(list, frame{function: "(outside of ops)"})
	}
	return list
}

func (r *record) writePprof(out io.Writer) error {
	w := &pprofWriter{strings: map[string]int64{}, functions: map[[2]string]int64{}, locations: map[frame]int64{}}
	w.str("")
	var p protobuf
	for _, t := range sampleTypes {
		var m protobuf
		m.number(1, w.str(t[0]))
		m.number(2, w.str(t[1]))
		p.bytes(1, m)
	}
	order, sum := r.samples()
	label := func(key, value string) []byte {
		var m protobuf
		m.number(1, w.str(key))
		m.number(2, w.str(value))
		return m
	}
	for _, k := range order {
		var m protobuf
		var ids []int64
		for _, f := range k.stack() {
			ids = append(ids, w.location(f))
		}
		m.packed(1, ids)
		m.packed(2, sum[k][:])
		if k.device != "" {
			m.bytes(3, label("device", k.device))
		}
		if k.in != nil {
			m.bytes(3, label("kind", k.in.kind.String()))
			if k.in.inner != nil {
				m.bytes(3, label("module", k.in.inner.name))
			}
		}
		p.bytes(2, m)
	}
	p = append(p, w.locs...)
	p = append(p, w.funcs...)
	kind := "cpu"
	for i := range r.leaves {
		if r.leaves[i].device != nil {
			kind = "gpu"
			break
		}
	}
	p.number(9, r.wall.UnixNano())
	p.number(10, int64(r.ended-r.began))
	for _, n := range r.notes() {
		p.number(13, w.str(n))
	}
	p.number(14, w.str(kind))
	for _, s := range w.table {
		p.bytes(6, []byte(s))
	}
	z := gzip.NewWriter(out)
	if _, err := z.Write(p); err != nil {
		return err
	}
	return z.Close()
}
