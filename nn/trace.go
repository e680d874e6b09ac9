package nn

import (
	"runtime"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// traced is Enter for a tracer: a span around the call, hooks included, that has the name of the layer's type.
func (b *Base) traced(t device.Tracer, x, y **tensor.Tensor) func() {
	s := device.Span{Kind: device.SpanModule, Name: layerType(3), Owner: b}
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
		if !done { // a hook panics
			t.End(id)
		}
	}()
	if b.hooks != nil {
		leave = b.hooks.enter(x, y)
	}
	done = true
	return func() {
		defer t.End(id)
		leave()
	}
}

// layerType returns the type whose method is so many frames up, Linear of (*Linear).Forward: a Base does not know what it is part of.
func layerType(skip int) string {
	var pc [1]uintptr
	if runtime.Callers(skip+1, pc[:]) == 0 {
		return "layer"
	}
	f, _ := runtime.CallersFrames(pc[:]).Next()
	return typeOfMethod(f.Function)
}

// typeOfMethod returns T of "path/to/package.(*T).Method" or "path/to/package.T.Method", without type arguments.
func typeOfMethod(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, name, _ = strings.Cut(name, ".")
	if rest, ok := strings.CutPrefix(name, "(*"); ok {
		name, _, _ = strings.Cut(rest, ")")
	} else {
		name, _, _ = strings.Cut(name, ".")
	}
	name, _, _ = strings.Cut(name, "[")
	if name == "" {
		return "layer"
	}
	return name
}
