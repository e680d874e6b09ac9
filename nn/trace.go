package nn

import (
	"runtime"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// traced does the work of Enter while a tracer is active. It also opens a span around the call
// and its hooks. The span has the name of the layer's type.
func (b *Base) traced(t device.Tracer, x, y **tensor.Tensor) func() {
	s := device.Span{Kind: device.SpanModule}
	pointer := false
	if s.Name, pointer = layerType(3); pointer {
		s.Owner = b // with a value receiver, b is a new copy in each call and identifies no layer
	}
	if in := *x; in != nil {
		s.Scope = in.Scope().Span()
		if t.Wants().Shapes {
			s.Shapes = []shape.Dims{in.Shape()}
		}
	}
	id := t.Begin(s)
	leave := nothing
	done := false
	defer func() {
		if !done { // a hook is panicking
			t.End(id)
		}
	}()
	if b.hooks != nil {
		leave = b.hooks.enter(x, y)
	}
	done = true
	m := b.marked()
	return func() {
		defer t.End(id)
		if m != nil {
			if r := recover(); r != nil {
				m.annotate(r)
				panic(r)
			}
		}
		leave()
	}
}

// layerType returns the receiver type of a method on the call stack, such as "Linear" for
// (*Linear).Forward, and whether the receiver is a pointer. skip is the number of frames from
// layerType up to the method. layerType reads the call stack because a Base does not know the
// layer that embeds it.
func layerType(skip int) (name string, pointer bool) {
	var pc [1]uintptr
	if runtime.Callers(skip+1, pc[:]) == 0 {
		return "layer", false
	}
	if m, ok := methods.Load(pc[0]); ok {
		return m.(method).typ, m.(method).pointer
	}
	f, _ := runtime.CallersFrames(pc[:]).Next()
	name, pointer = typeOfMethod(f.Function)
	methods.Store(pc[0], method{name, pointer})
	return name, pointer
}

// method describes the receiver of a method Forward.
type method struct {
	typ     string
	pointer bool
}

// methods maps the return address of a call of Enter to the method that contains the call.
var methods sync.Map

// typeOfMethod returns T for "path/to/package.(*T).Method" and for "path/to/package.T.Method",
// without type arguments.
func typeOfMethod(name string) (typ string, pointer bool) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, name, _ = strings.Cut(name, ".")
	rest, pointer := strings.CutPrefix(name, "(*")
	if pointer {
		name, _, _ = strings.Cut(rest, ")")
	} else {
		name, _, _ = strings.Cut(name, ".")
	}
	name, _, _ = strings.Cut(name, "[")
	if name == "" {
		return "layer", pointer
	}
	return name, pointer
}

// ModuleNames names the layers of a model for profile.Options. It maps a layer's pointer, which is
// the owner of the layer's spans, to a name such as "layers.0". The model itself has the name root.
// A layer whose Forward works on a copy, such as [ReLU], has no name, so its spans appear under the
// layer that contains it.
func ModuleNames(m any, root string) map[any]string {
	names := map[any]string{}
	for name, l := range Modules(m) {
		if b, ok := l.(interface{ base() *Base }); ok {
			if name == "" {
				name = root
			}
			names[b.base()] = name
		}
	}
	return names
}
