package nn

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A mark holds the name of a layer in its model, for errors. The functions that visit all layers of
// a model make the marks, so that Forward need not allocate them.
type mark struct {
	// base is the Base to which the mark belongs. In a copy of the layer's struct, Base has another
	// address, so the mark does not apply.
	base  *Base
	name  atomic.Pointer[layerName]
	leave func() // function that Enter returns, for Forward to defer
}

type layerName struct {
	path  string // path of the layer in the model; "" for the model itself
	label string // how messages name the layer: "encoder.layers.3 (nn.TransformerEncoderLayer)"
}

func (b *Base) marked() *mark {
	if atomic.LoadUint32(&b.known) == 0 || b.mark.base != b {
		return nil
	}
	return b.mark
}

// marking is locked while a mark is made. Concurrent calls of the layer do not see the mark before
// it is complete.
var marking sync.Mutex

// markAt marks the layer v, which was found at path. Searches may find a layer at different paths,
// because a search may begin at a part of a model. The layer keeps the path with the most elements.
// Among equally long paths it keeps the latest. If several is true, a single search may find a
// layer at several paths. In this case a layer keeps the path that it has. A copy of a marked
// layer's struct counts as unmarked.
func markAt(path string, v reflect.Value, several bool) {
	b := promoted(v)
	if b == nil {
		return
	}
	m := b.marked()
	if m != nil {
		if old := m.name.Load(); old.path == path || several || depth(path) < depth(old.path) {
			return
		}
	}
	n := &layerName{path: path, label: v.Type().String()}
	if v.Type().Name() != "" {
		n.label, _, _ = strings.Cut(n.label, "[") // drops the type arguments
	}
	if path != "" {
		n.label = path + " (" + n.label + ")"
	}
	if m != nil {
		m.name.Store(n)
		return
	}
	marking.Lock()
	defer marking.Unlock()
	if atomic.LoadUint32(&b.known) != 0 {
		return
	}
	b.mark = newMark(b, n)
	atomic.StoreUint32(&b.known, 1)
}

func newMark(b *Base, n *layerName) *mark {
	m := &mark{base: b}
	m.name.Store(n)
	m.leave = func() {
		if r := recover(); r != nil {
			m.annotate(r)
			panic(r)
		}
	}
	return m
}

// promoted returns the same as baseOf, or nil if baseOf panics because an embedded pointer is nil.
func promoted(v reflect.Value) (b *Base) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	return baseOf(v)
}

func depth(path string) int {
	if path == "" {
		return 0
	}
	return 1 + strings.Count(path, ".")
}

// annotate adds the layer's name to r if r is an error that names no layer yet. So an error names
// the innermost layer in which it was raised. An error that a device reports late gets no name,
// because an earlier layer may have caused it.
func (m *mark) annotate(r any) {
	if e, ok := r.(*tensor.Error); ok && e.Layer == "" && !late(e) {
		e.Layer = m.name.Load().label
	}
}

// late reports whether an error may have been caused by work that was queued before the call that
// reports it.
func late(e *tensor.Error) bool {
	var fault *device.Fault
	var index *device.IndexError
	switch {
	case errors.As(e, &fault):
		return true
	case errors.As(e, &index):
		for _, o := range e.Operands {
			if kind, _, _ := strings.Cut(o.Device, ":"); kind != "cpu" {
				return true
			}
		}
	}
	return false
}

// guarded returns a function that calls leave. If Forward panics, the returned function instead
// adds the layer's name to the error, and panics again. A nil m has no name, so guarded returns
// leave itself.
func (m *mark) guarded(leave func()) func() {
	if m == nil {
		return leave
	}
	return func() {
		if r := recover(); r != nil {
			m.annotate(r)
			panic(r)
		}
		leave()
	}
}

// unmarked reports whether a layer can have a mark but has none.
func unmarked(l Module) bool {
	t := reflect.TypeOf(l)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || reflect.ValueOf(l).IsNil() {
		return false
	}
	b, ok := l.(interface{ base() *Base })
	return ok && !planOf(t.Elem()).byValue && atomic.LoadUint32(&b.base().known) == 0
}

// markAll marks the layers of a chain that have no mark yet. If their structure has a mistake,
// markAll marks only the chain itself. Functions such as Parameters report the mistake.
func (s *Sequential) markAll() {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(*Error); !ok {
				panic(r)
			}
			markAt("", reflect.ValueOf(s).Elem(), false)
		}
	}()
	visit(s, &visitor{quick: true})
}
