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

// A mark says which layer of its model a Base is part of, for the errors that leave its Forward. A
// walk of the model leaves it there, so that a call makes nothing.
type mark struct {
	base  *Base // whose it is: one that was copied from a layer is not the copy's
	name  atomic.Pointer[layerName]
	leave func() // is deferred by a call
}

type layerName struct {
	path string // in the model; "" for a model itself
	told string // "encoder.layers.3 (nn.TransformerEncoderLayer)"
}

// marked returns the mark of the layer, nil if there is none.
func (b *Base) marked() *mark {
	if atomic.LoadUint32(&b.known) == 0 || b.mark.base != b {
		return nil
	}
	return b.mark
}

// marking is held by walks that leave a mark; calls of the layer, which may go on meanwhile, see it
// when it is complete.
var marking sync.Mutex

// markAt marks the layer v, which a walk found at path. The deepest name stays, as a part of a
// model may be walked by itself. Of equally deep ones the latest stays, or the first where a walk
// comes to one layer several times. A copy of a marked layer stays without.
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
	n := &layerName{path: path, told: v.Type().String()}
	if v.Type().Name() != "" {
		n.told, _, _ = strings.Cut(n.told, "[") // without type arguments
	}
	if path != "" {
		n.told = path + " (" + n.told + ")"
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
			m.tell(r)
			panic(r)
		}
	}
	return m
}

// promoted is baseOf, nil too where that is a field of an embedded pointer that is nil.
func promoted(v reflect.Value) (b *Base) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	return baseOf(v)
}

// depth is how many names a path has.
func depth(path string) int {
	if path == "" {
		return 0
	}
	return 1 + strings.Count(path, ".")
}

// tell names the layer in an error that is on its way and knows none yet: the innermost. What a
// device reports late happened before, in whatever layer.
func (m *mark) tell(r any) {
	if e, ok := r.(*tensor.Error); ok && e.Layer == "" && !late(e) {
		e.Layer = m.name.Load().told
	}
}

// late reports whether an error may be of work that was queued before the call that reports it.
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

// guarded is leave with the mark's function around it.
func (m *mark) guarded(leave func()) func() {
	if m == nil {
		return leave
	}
	return func() {
		if r := recover(); r != nil {
			m.tell(r)
			panic(r)
		}
		leave()
	}
}

// unmarked reports whether a layer can have a mark, and no walk has come to it.
func unmarked(l Module) bool {
	t := reflect.TypeOf(l)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || reflect.ValueOf(l).IsNil() {
		return false
	}
	b, ok := l.(interface{ base() *Base })
	return ok && !planOf(t.Elem()).byValue && atomic.LoadUint32(&b.base().known) == 0
}

// markAll marks the layers of a chain that no walk has come to yet. What is unsound in their
// structure is for a walk to tell.
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
