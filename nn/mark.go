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

// A mark is the name of a layer in its model. The layer's Base keeps it for the errors that leave
// Forward. A walk over the model makes the marks in advance, so that a call of Forward allocates
// nothing.
type mark struct {
	// the Base of this mark; a copy of the layer's struct has the same mark but another Base
	base  *Base
	name  atomic.Pointer[layerName]
	leave func() // the function that a call of Forward defers
}

type layerName struct {
	path  string // the layer's path in the model; "" for the model itself
	label string // the name in messages: "encoder.layers.3 (nn.TransformerEncoderLayer)"
}

// marked returns the mark of the layer, or nil if there is none.
func (b *Base) marked() *mark {
	if atomic.LoadUint32(&b.known) == 0 || b.mark.base != b {
		return nil
	}
	return b.mark
}

// marking is a lock that a walk holds while it makes a mark. Concurrent calls of the layer do not
// see the mark before it is complete.
var marking sync.Mutex

// markAt marks the layer v, which a walk found at path. A walk may begin at a part of a model, so
// the layer keeps its deepest path. Among equally deep paths it keeps the latest. If the argument
// several is true, the walk may find one layer at several paths. Then the layer keeps the first
// path. The copy of a marked layer's struct gets no mark.
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
		n.label, _, _ = strings.Cut(n.label, "[") // the type's name without type arguments
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

// promoted does what baseOf does, but returns nil where baseOf panics because an embedded pointer
// is nil.
func promoted(v reflect.Value) (b *Base) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	return baseOf(v)
}

// depth returns the number of names in a path.
func depth(path string) int {
	if path == "" {
		return 0
	}
	return 1 + strings.Count(path, ".")
}

// annotate adds the layer to an error that passes through it, if the error names no layer yet. So
// the error names the innermost layer. An error that a device reports late may come from any
// earlier layer, so it gets no name.
func (m *mark) annotate(r any) {
	if e, ok := r.(*tensor.Error); ok && e.Layer == "" && !late(e) {
		e.Layer = m.name.Load().label
	}
}

// late reports whether an error may concern work that was queued before the call that reports it.
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

// guarded returns a function that runs the function leave. If Forward has panicked, the returned
// function instead names the layer in the error, and panics again. If m is nil, guarded returns
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

// unmarked reports whether a layer can have a mark but has none yet.
func unmarked(l Module) bool {
	t := reflect.TypeOf(l)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || reflect.ValueOf(l).IsNil() {
		return false
	}
	b, ok := l.(interface{ base() *Base })
	return ok && !planOf(t.Elem()).byValue && atomic.LoadUint32(&b.base().known) == 0
}

// markAll marks the layers of a chain that have no mark yet. If the structure of the layers is
// unsound, markAll marks only the chain. A later explicit walk reports the error.
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
