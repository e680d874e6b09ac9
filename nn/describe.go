package nn

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Describe returns the structure of a model as text: PyTorch's print(model). Each layer has one
// line: its name, its type, the shapes of its own parameters, and its exported settings that are
// not zero. A parameter's type follows its shape unless it is float32. Parameters that require no
// gradient are marked frozen. The line also lists the shapes of tensors without a tag, which are
// neither parameters nor buffers. The lines of inner layers follow, indented.
//
// Successive layers that differ only in the number in their names are written once, as
// "(layers.0-5): 6 × …". A layer that the model holds in two places appears twice. [Summary] shows
// numbers of parameters and shapes of outputs.
//
//	fmt.Println(nn.Describe(model))
func Describe(m any) string {
	// if m is a layer passed by value, such as nn.ReLU{}, describe a copy of it through a pointer
	if v := reflect.ValueOf(m); v.Kind() == reflect.Struct {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		m = p.Interface()
	}
	root := &described{}
	at := map[string]*described{"": root}
	above := func(path string) (*described, string) {
		parent := path
		for parent != "" {
			parent = parent[:max(0, strings.LastIndexByte(parent, '.'))]
			if d, ok := at[parent]; ok {
				return d, strings.TrimPrefix(path[len(parent):], ".")
			}
		}
		return root, path
	}
	visit(m, &visitor{all: true, lazy: func(string, lazyLayer) {}, pre: func(path string, v reflect.Value, embedded bool) {
		if embedded {
			return
		}
		d := root
		if path != "" {
			parent, name := above(path)
			d = &described{name: name}
			parent.layers = append(parent.layers, d)
			at[path] = d
		}
		d.kind, d.settings = lazyName(v), settings(v)
		if l := lazyAt(v); l != nil && (*l.waiting()).out > 0 {
			d.settings = append([]string{fmt.Sprintf("Out: %d", (*l.waiting()).out)}, d.settings...)
		}
	}, param: func(p Param) {
		if !p.Buffer {
			d, name := above(p.Name)
			text := fmt.Sprintf("%s %v", name, p.Tensor.Shape())
			if t := p.Tensor.Type(); t != dtype.F32 {
				text += " " + t.String()
			}
			if !p.Tensor.NeedsGrad() {
				text += " frozen"
			}
			d.params = append(d.params, text)
		}
	}})
	if root.kind == "" { // m is a list of layers
		root.kind = typeName(reflect.Indirect(reflect.ValueOf(m)).Type())
	}
	return root.text("")
}

// String returns the text of [Describe].
func (s *Sequential) String() string { return Describe(s) }

// described is a layer, as Describe prints it.
type described struct {
	name, kind       string
	params, settings []string
	layers           []*described
}

func (d *described) text(indent string) string {
	var b strings.Builder
	b.WriteString(d.kind + "(" + strings.Join(append(d.params, d.settings...), ", "))
	inner := indent + "  "
	for i := 0; i < len(d.layers); {
		l := d.layers[i]
		text, n := l.text(inner), 1
		for i+n < len(d.layers) && numbered(l.name, d.layers[i+n].name, n) && d.layers[i+n].text(inner) == text {
			n++
		}
		b.WriteString("\n" + inner + "(" + l.name)
		if n > 1 {
			last := d.layers[i+n-1].name
			fmt.Fprintf(&b, "-%s): %d × ", last[strings.LastIndexByte(last, '.')+1:], n)
		} else {
			b.WriteString("): ")
		}
		b.WriteString(text)
		i += n
	}
	if len(d.layers) > 0 {
		b.WriteString("\n" + indent)
	}
	return b.String() + ")"
}

// numbered reports whether name and base differ only in the number at their ends, and name's number
// is greater by n.
func numbered(base, name string, n int) bool {
	i := strings.LastIndexByte(base, '.') + 1
	var k int
	if _, err := fmt.Sscanf(base[i:], "%d", &k); err != nil || fmt.Sprint(k) != base[i:] {
		return false
	}
	return name == fmt.Sprintf("%s%d", base[:i], k+n)
}

// settings returns the exported fields of a layer that are not zero, as text. It lists only
// numbers, strings, and structs and lists of these.
func settings(v reflect.Value) []string {
	var all []string
	for i := range v.NumField() {
		f, t := v.Field(i), v.Type().Field(i)
		switch {
		case t.Anonymous && f.Kind() == reflect.Struct:
			all = append(all, settings(f)...)
		case !t.IsExported() || t.Tag.Get("nn") != "" || f.IsZero():
		case t.Type == tensorType:
			all = append(all, fmt.Sprintf("%s: %v without a tag", t.Name, f.Interface().(*tensor.Tensor).Shape()))
		case f.Kind() == reflect.Struct && plain(t.Type):
			all = append(all, settings(f)...)
		case plain(t.Type):
			all = append(all, fmt.Sprintf("%s: %v", t.Name, f))
		case f.Kind() == reflect.Pointer && plain(t.Type.Elem()):
			all = append(all, fmt.Sprintf("%s: %v", t.Name, f.Elem()))
		}
	}
	return all
}

// plain reports whether type t contains no tensor, layer or function, so that a field of type t is
// a setting.
func plain(t reflect.Type) bool {
	switch k := t.Kind(); {
	case k >= reflect.Bool && k <= reflect.Float64 || k == reflect.String:
		return true
	case k == reflect.Slice || k == reflect.Array:
		return plain(t.Elem())
	case k == reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); !f.IsExported() || !plain(f.Type) {
				return false
			}
		}
		return true
	}
	return false
}
