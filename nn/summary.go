package nn

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Overview is the result of [Summary]. A tensor in several places counts once.
type Overview struct {
	Layers []LayerInfo // in the order of the model's fields; the first is the model itself

	Trainable, Frozen, Buffers int

	ParameterBytes, BufferBytes, InputBytes int
	// OutputBytes is the number of bytes of the results of all calls of layers that contain no
	// other layers.
	OutputBytes int
}

// A LayerInfo is a layer in an [Overview].
type LayerInfo struct {
	Name  string // path in the model, such as "layer1.0.conv1"; "" for the model
	Type  string // name of the layer's type, such as "Conv2d"
	Depth int    // number of layers around this layer
	Leaf  bool   // true if the layer contains no other layers
	// Calls is the number of calls of Forward. It is 0 if the number is unknown: the type does not
	// embed [Base], or Forward has several inputs.
	Calls  int
	Output []shape.Dims

	// Parameters and Buffers are the numbers of elements in the layer's own tensors, without those
	// of inner layers.
	Parameters, Buffers int
	// Tied is true if some of the layer's parameters also belong to an earlier layer.
	Tied        bool
	OutputBytes int // size of the result of the latest call, in bytes
}

// Summary describes a model. If there are inputs, it calls the model's Forward with them. This call
// is in evaluation mode and without gradients, and has its own scope and its own random numbers.
// Summary then restores training flags, hooks and buffers, even if Forward panics. If the model has
// lazy layers, an additional first call makes their parameters. No other goroutine may use the
// model during the call of Summary. The result prints as a table:
//
//	fmt.Println(nn.Summary(model, tensor.Ones(1, 3, 224, 224)))
//
// Summary sees outputs through hooks on the layers and the model. So a layer has to embed [Base]
// and begin Forward with Enter, as all layers of this package with one input do. If a slice of
// interfaces holds a layer by value (nn.ReLU{}), the slice holds a pointer to the layer during
// the call.
func Summary(m any, inputs ...*tensor.Tensor) *Overview {
	o := &Overview{}
	requireUsable("summary", inputs...)
	at := map[string]int{} // maps the name of a layer to its index in o.Layers
	var undo []func()
	defer func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}()
	run := len(inputs) > 0
	if run && isLazy(m) { // the first call of a lazy layer makes its parameters
		func() {
			defer evaluating(m, nil)()
			tensor.Youngest(inputs...).Do(func(c *tensor.Scope) {
				in := make([]*tensor.Tensor, len(inputs))
				for i, x := range inputs {
					in[i] = x.In(c)
				}
				callForward(m, in)
			}, tensor.NoGrad(), tensor.WithGenerator(tensor.NewGenerator(0)))
		}()
	}
	list := &visitor{pre: func(path string, v reflect.Value, embedded bool) {
		if embedded {
			return
		}
		l := LayerInfo{Name: path, Type: typeName(v.Type()), Leaf: true}
		for parent := path; parent != ""; {
			parent = parent[:max(0, strings.LastIndexByte(parent, '.'))]
			if i, ok := at[parent]; ok {
				l.Depth++
				o.Layers[i].Leaf = false
			}
		}
		i := len(o.Layers)
		at[path] = i
		o.Layers = append(o.Layers, l)
		if b := baseOf(v); run && b != nil {
			undo = append(undo, b.watch(func(y *tensor.Tensor) { o.called(i, y) }))
		}
	}}
	if run {
		list.slot = func(v reflect.Value) {
			if e := v.Elem(); e.Kind() == reflect.Struct && v.CanSet() && baseOf(reflect.New(e.Type()).Elem()) != nil {
				p, old := reflect.New(e.Type()), reflect.ValueOf(e.Interface())
				p.Elem().Set(e)
				v.Set(p)
				undo = append(undo, func() { v.Set(old) })
			}
		}
	}
	if v := reflect.ValueOf(m); v.Kind() == reflect.Slice || v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Slice {
		at[""] = 0
		o.Layers = []LayerInfo{{Type: typeName(reflect.Indirect(v).Type()), Leaf: true}}
	}
	visit(m, list)
	o.count(m, at)
	if !run {
		return o
	}
	tensor.Youngest(append(Parameters(m), inputs...)...).Do(func(c *tensor.Scope) {
		defer keepBuffers(c, m)()
		in := make([]*tensor.Tensor, len(inputs))
		for i, x := range inputs {
			in[i] = x.In(c)
			o.InputBytes += bytesOf(x)
		}
		if out := callForward(m, in); o.Layers[0].Calls == 0 {
			o.called(0, out...)
		}
	}, tensor.NoGrad(), tensor.WithGenerator(tensor.NewGenerator(0)))
	return o
}

// called records that Forward of layer i returned out.
func (o *Overview) called(i int, out ...*tensor.Tensor) {
	l := &o.Layers[i]
	l.Calls++
	l.Output, l.OutputBytes = nil, 0
	for _, y := range out {
		l.Output = append(l.Output, y.Shape())
		l.OutputBytes += bytesOf(y)
	}
	if l.Leaf {
		o.OutputBytes += l.OutputBytes
	}
}

func bytesOf(x *tensor.Tensor) int { return x.Size() * x.Type().Size() }

// count adds the elements and bytes of all parameters and buffers to o. A tensor in several layers
// counts only for the first.
func (o *Overview) count(m any, at map[string]int) {
	seen := map[*tensor.Tensor]bool{}
	visit(m, &visitor{param: func(p Param) {
		path, owner := p.Name, 0
		for ok := false; !ok && path != ""; {
			path = path[:max(0, strings.LastIndexByte(path, '.'))]
			owner, ok = at[path]
		}
		l := &o.Layers[owner]
		if seen[p.Tensor] {
			l.Tied = true
			return
		}
		seen[p.Tensor] = true
		n := p.Tensor.Size()
		switch {
		case p.Buffer:
			l.Buffers += n
			o.Buffers += n
			o.BufferBytes += bytesOf(p.Tensor)
			return
		case p.Tensor.NeedsGrad():
			o.Trainable += n
		default:
			o.Frozen += n
		}
		l.Parameters += n
		o.ParameterBytes += bytesOf(p.Tensor)
	}})
}

// baseOf returns the Base of a layer, or nil if it has none or is not addressable.
func baseOf(v reflect.Value) *Base {
	if !v.CanAddr() || !v.Addr().CanInterface() {
		return nil
	}
	if b, ok := v.Addr().Interface().(interface{ base() *Base }); ok {
		return b.base()
	}
	return nil
}

// watch puts a layer into evaluation mode and calls f with each result of its Forward. The
// returned function undo restores the mode and ends the calls of f.
func (b *Base) watch(f func(y *tensor.Tensor)) (undo func()) {
	before := *b
	b.evaluating = true
	remove := b.RegisterForwardHook(func(_, y *tensor.Tensor) *tensor.Tensor {
		f(y)
		return nil
	})
	return func() {
		remove()
		*b = before
	}
}

// keepBuffers saves the values of the model's buffers. The returned function restore writes them
// back.
func keepBuffers(c *tensor.Scope, m any) (restore func()) {
	type kept struct {
		t, values *tensor.Tensor
		version   uint32
	}
	var all []kept
	for _, b := range Buffers(m) {
		all = append(all, kept{b, b.In(c).Clone(), b.Version()})
	}
	return func() {
		for _, k := range all {
			if k.t.Version() != k.version {
				k.t.In(c).Copy(k.values)
			}
		}
	}
}

// callForward calls m.Forward, and passes the elements of in as its arguments. It returns those
// results that are tensors.
func callForward(m any, in []*tensor.Tensor) (out []*tensor.Tensor) {
	f := reflect.ValueOf(m).MethodByName("Forward")
	if !f.IsValid() {
		panic(wrong("", fmt.Sprintf("a %T has no method Forward; without inputs Summary lists its parameters", m)))
	}
	t := f.Type()
	args := make([]reflect.Value, len(in))
	fits := t.NumIn() == len(in) && !t.IsVariadic()
	for i, x := range in {
		args[i] = reflect.ValueOf(x)
		fits = fits && t.In(i) == tensorType
	}
	if !fits {
		panic(wrong("", fmt.Sprintf("Forward of a %T is a %v and cannot be called with %d tensors", m, t, len(in))))
	}
	for _, y := range f.Call(args) {
		if y, ok := y.Interface().(*tensor.Tensor); ok && y != nil {
			out = append(out, y)
		}
	}
	return out
}

// typeName returns a type's name without its package and its type arguments.
func typeName(t reflect.Type) string {
	name := t.Name()
	if t == reflect.TypeFor[ParameterMap]() {
		return "ParameterMap"
	}
	if i := strings.IndexByte(name, '['); i > 0 {
		name = name[:i] // drops the type arguments
	}
	if name == "" {
		return t.Kind().String()
	}
	return name
}

// String returns the table of all layers.
func (o *Overview) String() string { return o.Table(-1) }

// Table returns a table of the layers down to a depth, followed by the totals of the whole model.
// Depth 0 shows only the model. A negative depth shows all layers.
func (o *Overview) Table(depth int) string {
	rows := [][]string{{"Layer", "Type", "Output", "Parameters", "Output size"}}
	for _, l := range o.Layers {
		if depth >= 0 && l.Depth > depth {
			continue
		}
		name := l.Name[strings.LastIndexByte(l.Name, '.')+1:]
		if l.Name == "" {
			name = "model"
		}
		row := []string{strings.Repeat("  ", l.Depth) + name, l.Type, "", "", ""}
		for i, s := range l.Output {
			if i > 0 {
				row[2] += " "
			}
			row[2] += s.String()
		}
		if l.Calls > 0 {
			row[4] = humanBytes(l.OutputBytes)
		}
		if l.Calls > 1 {
			row[2] += " ×" + strconv.Itoa(l.Calls)
		}
		if l.Parameters > 0 {
			row[3] = grouped(l.Parameters)
		}
		if l.Tied {
			row[3] = strings.TrimSpace(row[3] + " (tied)")
		}
		rows = append(rows, row)
	}
	var width [5]int
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for k, r := range rows {
		line := ""
		for i, cell := range r {
			space := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i >= 3 {
				line += space + cell + "  "
			} else {
				line += cell + space + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if k == 0 {
			b.WriteString(strings.Repeat("─", width[0]+width[1]+width[2]+width[3]+width[4]+8) + "\n")
		}
	}
	n := o.Trainable + o.Frozen
	fmt.Fprintf(&b, "\nParameters  %s (%s), trainable %s, frozen %s; buffers %s\n", grouped(n), human(n), grouped(o.Trainable), grouped(o.Frozen), grouped(o.Buffers))
	fmt.Fprintf(&b, "Memory      %s of parameters, %s of buffers", humanBytes(o.ParameterBytes), humanBytes(o.BufferBytes))
	if o.Layers[0].Calls > 0 {
		fmt.Fprintf(&b, ", %s of inputs, %s of outputs", humanBytes(o.InputBytes), humanBytes(o.OutputBytes))
	}
	return b.String()
}

// grouped writes a number with commas, such as 1,234,567.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// human writes a number of elements in thousands, millions, …
func human(n int) string { return scaled(float64(n), 1000, []string{"", " K", " M", " G", " T"}) }

// humanBytes writes a number of bytes in KiB, MiB, …
func humanBytes(n int) string {
	return scaled(float64(n), 1024, []string{" B", " KiB", " MiB", " GiB", " TiB"})
}

func scaled(v, by float64, units []string) string {
	i := 0
	for v >= by && i < len(units)-1 {
		v, i = v/by, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%.0f%s", v, units[i])
	}
	return fmt.Sprintf("%.1f%s", v, units[i])
}
