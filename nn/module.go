// Package nn is layers as plain structs, the losses, and what one does to a whole model.
//
// A model is a struct. Its parameters are *tensor.Tensor fields tagged `nn:"weight"`, or slices of
// them, that RequiresGrad was called on. Those that require no gradient are frozen: nothing trains
// them. Its buffers are the fields tagged `nn:"running_mean,buffer"`. Its layers are exported
// fields that hold structs, pointers to structs, slices of them, or interface values. [Parameters],
// [To], [Train] and the like find them by reflection, as encoding/json finds fields, in the order
// of the fields.
//
// A layer's name is that of its field in lower case with underscores (Fc1 is fc1), or its nn tag.
// Names join with dots as in torch's state dicts ("layers.0.weight"), and a tag may have dots of
// its own. Options follow the name in a tag:
//
//   - `nn:"mean,buffer"`: state without a gradient;
//   - `nn:"mask,transient"`: a buffer that is not part of the state dict (torch's
//     persistent=False);
//   - `nn:"steps,buffer,optional"`: a state dict may lack it;
//   - `nn:"downsample,optional"`: a layer that may be nil;
//   - `nn:",inline"`: a layer, or a list of layers, that adds no name of its own to what is in it,
//     as the list of [Sequential].
//
// [StateDict] and [LoadStateDict] exchange the values of a model, under the names that torch gives
// them. fmt prints the fields of a struct. [Describe] tells how a model is built, as PyTorch's
// print(model), and [Summary] what its layers return.
//
// Some structures are a mistake in the program, and panic with an *[Error]:
//
//   - One hides parameters: a field that is not exported but holds layers, or layers in a map.
//   - One has no sound names: a nil layer, one name for two tensors, a layer that holds itself.
//   - One has a tensor that requires a gradient in a field without a tag, or in one that is not
//     exported, or in a list, a map or a struct there. The tensor looks as if it were to be
//     trained, and would not be.
//
// A tag nn:"-" says that a tensor is not meant to be trained. It is no error either if the tensor
// is found elsewhere in the model, or was freed. Any other tensor without a tag is the model's own
// affair, as in PyTorch: [Describe] lists it, [To] does not move it and [StateDict] lacks it.
//
// Two kinds of fields are not looked into. One is values of interface types without Forward, such
// as any, that hold no layer. The other is fields that are not exported, lists and maps beside a
// mutex, which other goroutines may be writing.
package nn

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Module maps a tensor to a tensor.
type Module interface {
	Forward(x *tensor.Tensor) *tensor.Tensor
}

// A Param is a named tensor of a model.
type Param struct {
	Name   string
	Tensor *tensor.Tensor
	Buffer bool // it is state without a gradient

	Transient bool // a buffer that is not part of the state dict
	Optional  bool // a state dict may lack it
}

type fieldKind uint8

const (
	fieldParam fieldKind = iota
	fieldBuffer
	fieldModule
	fieldLoose // an untagged tensor: only an error if it would be trained
	fieldAny   // an interface value that may hold a layer
)

type field struct {
	index    int
	name     string
	kind     fieldKind
	embedded bool

	transient, optional, inline bool
	hidden                      bool // it is not exported
}

type fieldPlan struct {
	fields  []field
	err     string
	at      string
	byValue bool // Forward works on a copy
	lazy    bool // values may wait for their first input
	names   bool // values name parameters themselves
}

var plans sync.Map // reflect.Type → *fieldPlan

var tensorType = reflect.TypeFor[*tensor.Tensor]()

// planOf lists what of a struct type matters.
func planOf(t reflect.Type) *fieldPlan {
	if p, ok := plans.Load(t); ok {
		return p.(*fieldPlan)
	}
	p := &fieldPlan{byValue: t.Implements(reflect.TypeFor[Module]()), lazy: reflect.PointerTo(t).Implements(reflect.TypeFor[lazyLayer]()), names: t.Implements(namerType)}
	for i := range t.NumField() {
		f := t.Field(i)
		// the embedded one names them
		p.names = p.names && !(f.Anonymous && f.Type.Implements(namerType))
		tag, tagged := f.Tag.Lookup("nn")
		name, rest, _ := strings.Cut(tag, ",")
		if tagged && name == "-" {
			continue
		}
		var options []string
		if rest != "" {
			options = strings.Split(rest, ",")
		}
		isTensor := f.Type == tensorType
		// The exported fields of an embedded struct can be reached though its type is not exported.
		if !f.IsExported() && !(f.Anonymous && f.Type.Kind() == reflect.Struct) {
			switch {
			case tagged || holdsModule(f.Type):
				p.at, p.err = f.Name, notExported
			case mayHold(f.Type):
				p.fields = append(p.fields, field{index: i, name: f.Name, kind: fieldAny, embedded: true, hidden: true})
			}
			continue
		}
		d := field{index: i, name: name}
		if name == "" {
			d.name = snake(f.Name)
		}
		switch {
		case (isTensor || f.Type == reflect.SliceOf(tensorType)) && tagged:
			d.kind = fieldParam
			for _, o := range options {
				switch o {
				case "buffer":
					d.kind = fieldBuffer
				case "transient":
					d.kind, d.transient = fieldBuffer, true
				case "optional":
					d.optional = true
				default:
					p.at, p.err = f.Name, fmt.Sprintf("unknown option %q in the tag of a tensor; known are buffer, transient and optional", o)
				}
			}
			p.fields = append(p.fields, d)
		case isTensor:
			// an untagged tensor is the model's own affair, unless it wants to be trained
			p.fields = append(p.fields, field{index: i, name: f.Name, kind: fieldLoose, embedded: true})
		case mayHold(f.Type) && !holdsModule(f.Type):
			d.kind, d.embedded = fieldAny, true
			p.fields = append(p.fields, d)
		case holdsModule(f.Type):
			d.kind, d.embedded = fieldModule, f.Anonymous && !tagged
			for _, o := range options {
				switch {
				case o == "optional" && (f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Interface):
					d.optional = true
				case o == "inline" && name == "":
					d.inline = true
				case o == "inline":
					p.at, p.err = f.Name, "what is inline has no name of its own"
				default:
					p.at, p.err = f.Name, fmt.Sprintf("unknown option %q in the tag of a layer; known are inline, and optional for a pointer", o)
				}
			}
			p.fields = append(p.fields, d)
		case tagged:
			p.at, p.err = f.Name, fmt.Sprintf("a field of type %v cannot be a parameter or a layer; a parameter is a *tensor.Tensor, lists are of layers", f.Type)
		}
	}
	seen := map[string]bool{}
	for _, f := range p.fields {
		if f.embedded || f.inline {
			continue
		}
		if seen[f.name] {
			p.at, p.err = t.Field(f.index).Name, fmt.Sprintf("the name %q is used twice", f.name)
		}
		seen[f.name] = true
	}
	plans.Store(t, p)
	return p
}

const notExported = "the field is not exported, so its parameters cannot be found; export it or tag it nn:\"-\""

// mayHold reports whether values of type t are interfaces, or lists or maps of them, in which
// layers may turn up.
func mayHold(t reflect.Type) bool {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t.Kind() == reflect.Interface
}

// holdsModule reports whether values of type t can hold layers.
func holdsModule(t reflect.Type) bool { return holds(t, map[reflect.Type]bool{}) }

func holds(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer:
		return t != tensorType && holds(t.Elem(), seen)
	case reflect.Slice, reflect.Array, reflect.Map:
		return holds(t.Elem(), seen)
	case reflect.Interface:
		return t == reflect.TypeFor[Module]() || t.Implements(reflect.TypeFor[Module]())
	case reflect.Struct:
		if t == reflect.TypeFor[Base]() {
			return false
		}
		if is := reflect.PointerTo(t); is.Implements(reflect.TypeFor[Module]()) || is.Implements(reflect.TypeFor[container]()) {
			return true
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if _, tagged := f.Tag.Lookup("nn"); tagged && (f.Type == tensorType || f.Type == reflect.SliceOf(tensorType)) {
				return true
			}
			if (f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct) && f.Type != tensorType && holds(f.Type, seen) {
				return true
			}
		}
	}
	return false
}

// snake turns Fc1 into fc1 and LayerNorm into layer_norm.
func snake(s string) string {
	var b strings.Builder
	r := []rune(s)
	for i, c := range r {
		if unicode.IsUpper(c) && i > 0 && (unicode.IsLower(r[i-1]) || unicode.IsDigit(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// A container is a struct that names its layers, or its parameters, itself.
type container interface {
	children(yield func(name string, v reflect.Value) bool)
}

// A namer is a struct that names parameters itself, beside those of its fields.
type namer interface{ ownParams() []Param }

var namerType = reflect.TypeFor[namer]()

// A visitor sees every struct of a model before, and after, what it holds, and its tensors.
type visitor struct {
	before func(path string, v reflect.Value, embedded bool)
	after  func(path string, v reflect.Value, embedded bool)
	param  func(p Param)
	slot   func(v reflect.Value) // an interface that holds a layer
	// a layer without parameters yet; nil: it must not be where parameters are asked for
	lazy  func(path string, l lazyLayer)
	all   bool // what stands in two places is seen twice
	quick bool // names are not looked at
	// what would not be trained, but looks as if it should, is looked for
	strict bool

	model string         // its type
	seen  map[place]bool // structs by pointer: true while they are being walked
	names map[string]*tensor.Tensor

	strays   []stray
	waiting  **lazy // of the lazy layer that was seen last
	searched map[place]struct{}
	steps    []step // of the search that goes on
}

// A place tells a struct from its first field, which has the same address.
type place struct {
	at uintptr
	t  reflect.Type
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (w *visitor) walk(path string, v reflect.Value, embedded bool) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			panic(w.wrong(path, "the layer is nil"))
		}
		if v.Kind() == reflect.Interface && w.slot != nil {
			w.slot(v)
		}
		if v.Kind() == reflect.Pointer {
			at := place{v.Pointer(), v.Type()}
			switch open, seen := w.seen[at]; {
			case open:
				panic(w.wrong(path, fmt.Sprintf("the %v holds itself; tag the field that leads back nn:\"-\"", v.Type())))
			case seen && !w.all:
				return // a layer that stands in two places counts once
			}
			w.seen[at] = true
			defer func() { w.seen[at] = false }()
		}
		w.walk(path, v.Elem(), embedded)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			w.walk(join(path, strconv.Itoa(i)), v.Index(i), false)
		}
	case reflect.Map:
		panic(w.wrong(path, "layers in a map have no order; use a slice or a ModuleMap, or tag the field nn:\"-\""))
	case reflect.Struct:
		if !embedded && !planOf(v.Type()).byValue {
			markAt(path, v, w.all)
		}
		if w.before != nil {
			w.before(path, v, embedded)
		}
		w.structure(path, v)
		if w.after != nil {
			w.after(path, v, embedded)
		}
	}
}

func (w *visitor) structure(path string, v reflect.Value) {
	if v.CanAddr() && v.Addr().CanInterface() {
		if c, ok := v.Addr().Interface().(container); ok {
			c.children(func(name string, v reflect.Value) bool {
				t, ok := v.Interface().(*tensor.Tensor)
				switch name := join(path, name); {
				case !ok:
					w.walk(name, v, false)
				case t == nil:
					panic(w.wrong(name, "the parameter is nil"))
				default:
					w.found(Param{Name: name, Tensor: t})
				}
				return true
			})
			return
		}
	}
	p := planOf(v.Type())
	if p.err != "" {
		panic(w.wrong(join(path, p.at), p.err))
	}
	if p.lazy {
		// A struct that is embedded in a layer waits with it, and is not seen a second time.
		if l := lazyAt(v); l != nil && l.waiting() != w.waiting {
			w.waiting = l.waiting()
			switch {
			case w.lazy != nil:
				w.lazy(path, l)
			case w.param != nil:
				panic(notYet(path, v))
			}
		}
	}
	if p.names {
		for _, p := range v.Interface().(namer).ownParams() {
			w.found(Param{Name: join(path, p.Name), Tensor: p.Tensor})
		}
	}
	if w.strict {
		for _, i := range strayFields(v.Type()) {
			w.into(path, step{name: v.Type().Field(i).Name}, v.Field(i))
		}
	}
	for _, f := range p.fields {
		fv := v.Field(f.index)
		name := join(path, f.name)
		switch f.kind {
		case fieldLoose:
			if t := fv.Interface().(*tensor.Tensor); t != nil && t.IsLeaf() && t.NeedsGrad() {
				w.strays = append(w.strays, stray{name, "has no nn tag, so it would not be trained; tag it with its name, or nn:\"-\"", t})
			}
		case fieldAny:
			w.loose(name, fv, f.hidden)
		case fieldModule:
			if f.embedded || f.inline {
				name = path
			}
			if f.optional && fv.IsNil() {
				continue
			}
			w.walk(name, fv, f.embedded)
		default:
			p := Param{Name: name, Buffer: f.kind == fieldBuffer, Transient: f.transient, Optional: f.optional}
			if list, ok := fv.Interface().([]*tensor.Tensor); ok {
				for i, t := range list {
					if t == nil {
						panic(w.wrong(join(name, strconv.Itoa(i)), "the parameter is nil"))
					}
					p.Name, p.Tensor = join(name, strconv.Itoa(i)), t
					w.found(p)
				}
			} else if p.Tensor = fv.Interface().(*tensor.Tensor); p.Tensor != nil {
				// nil: an absent bias
				w.found(p)
			}
		}
	}
}

// loose looks for layers in an interface value, or in a list or a map of them.
func (w *visitor) loose(path string, v reflect.Value, hidden bool) {
	switch v.Kind() {
	case reflect.Interface:
		switch e := v.Elem(); {
		case !e.IsValid():
		case !holdsModule(e.Type()):
			w.loose(path, e, hidden)
		case hidden:
			panic(w.wrong(path, notExported))
		default:
			w.walk(path, v, false)
		}
	case reflect.Slice, reflect.Array:
		if !mayHold(v.Type()) {
			return
		}
		if v.Kind() == reflect.Slice && v.Len() > 0 {
			at := place{v.Pointer(), v.Type()}
			if w.seen[at] {
				panic(w.wrong(path, fmt.Sprintf("the %v holds itself; tag the field nn:\"-\"", v.Type())))
			}
			w.seen[at] = true
			defer delete(w.seen, at)
		}
		for i := range v.Len() {
			w.loose(join(path, strconv.Itoa(i)), v.Index(i), hidden)
		}
	case reflect.Map:
		if !mayHold(v.Type()) {
			return
		}
		for each := v.MapRange(); each.Next(); {
			if e := each.Value(); e.Kind() == reflect.Interface && e.Elem().IsValid() && holdsModule(e.Elem().Type()) {
				w.walk(path, v, false)
			}
		}
	}
}

// found hands on a tensor, whose name must be its own.
func (w *visitor) found(p Param) {
	if !w.quick {
		if other := w.names[p.Name]; other != nil && other != p.Tensor {
			panic(w.wrong(p.Name, "the name belongs to two tensors; name one of the fields by a tag"))
		}
		w.names[p.Name] = p.Tensor
	}
	if w.param != nil {
		w.param(p)
	}
}

func visit(m any, w *visitor) {
	w.seen, w.names, w.searched = map[place]bool{}, map[string]*tensor.Tensor{}, map[place]struct{}{}
	v := reflect.ValueOf(m)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(w.wrong("", "the model is nil"))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Struct:
	default:
		panic(w.wrong("", fmt.Sprintf("a %v is not a model; pass a pointer to a struct", v.Type())))
	}
	if v.Kind() == reflect.Struct {
		panic(w.wrong("", fmt.Sprintf("pass a pointer to the model, not a %v", v.Type())))
	}
	w.model = v.Type().String()
	w.walk("", v, false)
	w.refuseStrays()
}

// Named returns the parameters and buffers of a model with their names, in order. A tensor that
// stands in two places is listed once, with the first of its names.
func Named(m any) []Param {
	var out []Param
	seen := map[*tensor.Tensor]bool{}
	visit(m, &visitor{strict: true, param: func(p Param) {
		if !seen[p.Tensor] {
			seen[p.Tensor] = true
			out = append(out, p)
		}
	}})
	return out
}

// NamedParameters is [Named] without the buffers.
func NamedParameters(m any) []Param {
	return slices.DeleteFunc(Named(m), func(p Param) bool { return p.Buffer })
}

// NamedBuffers is [Named] without the parameters. Transient buffers are among them.
func NamedBuffers(m any) []Param {
	return slices.DeleteFunc(Named(m), func(p Param) bool { return !p.Buffer })
}

// Buffers returns the tensors of a model that are state without a gradient, such as running
// statistics.
func Buffers(m any) []*tensor.Tensor {
	var out []*tensor.Tensor
	for _, p := range NamedBuffers(m) {
		out = append(out, p.Tensor)
	}
	return out
}

// Parameters returns the tensors of a model that are trained. It panics with an *[Error] if the
// model's structure hides some.
func Parameters(m any) []*tensor.Tensor {
	var out []*tensor.Tensor
	for _, p := range NamedParameters(m) {
		out = append(out, p.Tensor)
	}
	return out
}

// To moves all parameters, buffers and gradients of a model to device d, in place: the tensors stay
// the same values, so optimizers made before remain valid. It returns the model.
func To[M any](m M, d device.Device) M {
	for _, p := range Named(m) {
		p.Tensor.MoveTo(d)
	}
	return m
}

// Train puts a model into training mode.
func Train[M any](m M) M { return setTraining(m, true) }

// Eval puts a model into evaluation mode: dropout passes everything.
func Eval[M any](m M) M { return setTraining(m, false) }

func setTraining[M any](m M, on bool) M {
	visit(m, &visitor{before: func(_ string, v reflect.Value, _ bool) {
		if v.CanAddr() && v.CanInterface() {
			if b, ok := v.Addr().Interface().(interface{ setTraining(bool) }); ok {
				b.setTraining(on)
			}
		}
	}})
	return m
}

// ZeroGrad frees the gradients of all parameters.
func ZeroGrad(m any) {
	for _, p := range Parameters(m) {
		p.ZeroGrad()
	}
}

// Count returns the number of elements of all parameters.
func Count(m any) int {
	n := 0
	for _, p := range Parameters(m) {
		n += p.Size()
	}
	return n
}
