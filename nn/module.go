// Package nn has layers as plain structs, losses, and functions for whole models.
//
// A program uses the package in three ways:
//
//   - It defines a model as a struct of layers ([NewLinear], [NewConv2d], [Sequential], …), with a
//     method Forward.
//   - It computes a loss: [CrossEntropy], [MSE], [BCEWithLogits], ….
//   - It applies functions to the model: [Parameters] for an optimizer, [To] to move it, [Train]
//     and [Eval] to set its mode, [StateDict] and [LoadStateDict] for its weights, [Infer] to
//     predict, and [QuantizeDynamic] to predict with weights of int8. [Describe] prints a model as
//     PyTorch's print(model) does, and [Summary] adds the shapes that its layers return.
//
// # Models
//
// A model's parameters are *tensor.Tensor fields with a tag such as `nn:"weight"`, or slices of
// tensors, that require a gradient (RequiresGrad). Parameters that require no gradient are frozen:
// optimizers do not change them. A model's buffers are fields with a tag such as
// `nn:"running_mean,buffer"`. A model's layers are exported fields that hold structs, pointers to
// structs, slices of these, or interface values. The functions of this package find layers,
// parameters and buffers by reflection, in the order of the fields.
//
// A layer's name is its nn tag, or the name of its field in lower case with underscores (Fc1 is
// fc1). The names on the path to a tensor are joined with dots, as in torch's state dicts
// ("layers.0.weight"), and a tag may have dots of its own. In a tag, options follow the name:
//
//   - `nn:"mean,buffer"`: state without a gradient;
//   - `nn:"mask,transient"`: a buffer that is not part of the state dict (torch's
//     persistent=False);
//   - `nn:"steps,buffer,optional"`: a buffer that a state dict may lack;
//   - `nn:"downsample,optional"`: a layer that may be nil;
//   - `nn:",inline"`: a layer, or a list of layers, that adds no name of its own to the names in
//     it, such as the list of [Sequential].
//
// # Mistakes
//
// Some structures are mistakes in the program, and panic with an *[Error]:
//
//   - Hidden parameters: a field that is not exported but holds layers, or layers in a map.
//   - Names that do not work: a nil layer, one name for two tensors, a layer that holds itself.
//   - A tensor that requires a gradient in a field without a tag, in a field that is not exported,
//     or in a list, a map or a struct of such a field. It looks like a parameter, but nothing would
//     train it.
//
// The tag nn:"-" says that a tensor is not meant to be trained, so it is no error. A tensor that is
// also a parameter elsewhere in the model, or that was freed, is no error either. Any other tensor
// without a tag is left to the model's own code, as in PyTorch: [Describe] lists it, [To] does not
// move it, and [StateDict] lacks it.
//
// The functions do not look into two kinds of fields. The first kind is fields of interface types
// without Forward, such as any, if their value is no layer. The second kind is unexported fields,
// lists and maps in a struct with a mutex, because other goroutines may be writing them.
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

// A Module maps one tensor to another.
type Module interface {
	Forward(x *tensor.Tensor) *tensor.Tensor
}

// A Param is a named tensor of a model.
type Param struct {
	Name   string
	Tensor *tensor.Tensor
	Buffer bool // whether the tensor is state without a gradient

	Transient bool // whether the tensor is a buffer that is not part of the state dict
	Optional  bool // whether a state dict may lack the tensor
}

type fieldKind uint8

const (
	fieldParam fieldKind = iota
	fieldBuffer
	fieldModule
	fieldLoose // a tensor without a tag, which is an error only if it requires a gradient
	fieldAny   // an interface value that may hold a layer
)

type field struct {
	index    int
	name     string
	kind     fieldKind
	embedded bool

	transient, optional, inline bool
	hidden                      bool // true if the field is not exported
}

type fieldPlan struct {
	fields  []field
	err     string
	at      string
	byValue bool // Forward has a value receiver, so it works on a copy of the layer
	lazy    bool // true if layers of this type may lack parameters before their first input
	names   bool // true if the type implements namer
}

var plans sync.Map // maps a reflect.Type to its *fieldPlan

var tensorType = reflect.TypeFor[*tensor.Tensor]()

// planOf returns the fields of a struct type in which a visitor looks for layers and tensors. It
// caches the result.
func planOf(t reflect.Type) *fieldPlan {
	if p, ok := plans.Load(t); ok {
		return p.(*fieldPlan)
	}
	p := &fieldPlan{byValue: t.Implements(reflect.TypeFor[Module]()), lazy: reflect.PointerTo(t).Implements(reflect.TypeFor[lazyLayer]()), names: t.Implements(namerType)}
	for i := range t.NumField() {
		f := t.Field(i)
		// If t embeds a namer, t has its method too. But only the visit of the embedded struct
		// calls the method, so that no parameter is visited twice.
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
		// An embedded struct has exported fields even if its type is not exported.
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
			d.name = snakeCase(f.Name)
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
			// The model's code may use an untagged tensor as it likes, unless the tensor requires a
			// gradient.
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

// mayHold reports whether t is an interface type, or a list or map of one. Values of such a type
// may hold layers.
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

// snakeCase turns Fc1 into fc1 and LayerNorm into layer_norm.
func snakeCase(s string) string {
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

// A container is a struct that yields the names and values of its own layers or parameters.
type container interface {
	children(yield func(name string, v reflect.Value) bool)
}

// A namer is a struct that names some parameters itself. The parameters in its fields belong to the
// model too.
type namer interface{ ownParams() []Param }

var namerType = reflect.TypeFor[namer]()

// A visitor visits every struct of a model. For each it calls pre, visits what the struct contains,
// and calls post. It calls param for every tensor.
type visitor struct {
	pre   func(path string, v reflect.Value, embedded bool)
	post  func(path string, v reflect.Value, embedded bool)
	param func(p Param)
	slot  func(v reflect.Value) // called with each interface value that holds a layer
	// lazy is called with each layer that has no parameters yet. If lazy is nil and param is set,
	// such a layer is an error.
	lazy  func(path string, l lazyLayer)
	all   bool // visit a layer once for each place where the model holds it
	quick bool // skip the check of names
	// strict makes it an error if a tensor requires a gradient but would not be trained.
	strict bool

	model string // type of the model
	// seen has the visited structs, by address and type. The value is true while the visitor is
	// inside the struct.
	seen  map[place]bool
	names map[string]*tensor.Tensor

	strays   []stray
	waiting  **lazy // result of the method waiting of the last lazy layer
	searched map[place]struct{}
	steps    []step // path from the layer to the value that is being searched
}

// A place identifies a struct by address and type, because the struct's first field has the same
// address.
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
				return // a layer in two places is visited only once
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
		if w.pre != nil {
			w.pre(path, v, embedded)
		}
		w.structure(path, v)
		if w.post != nil {
			w.post(path, v, embedded)
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
					w.visitParam(Param{Name: name, Tensor: t})
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
		// For a struct that embeds a lazy layer, waiting returns the same address as for the
		// layer. The embedded layer is therefore not reported again.
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
			w.visitParam(Param{Name: join(path, p.Name), Tensor: p.Tensor})
		}
	}
	if w.strict {
		for _, i := range strayFields(v.Type()) {
			w.descend(path, step{name: v.Type().Field(i).Name}, v.Field(i))
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
			w.walkInterfaces(name, fv, f.hidden)
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
					w.visitParam(p)
				}
			} else if p.Tensor = fv.Interface().(*tensor.Tensor); p.Tensor != nil {
				// p.Tensor may be nil, for example for an absent bias
				w.visitParam(p)
			}
		}
	}
}

// walkInterfaces visits the layers in an interface value, or in a list or a map of interfaces.
func (w *visitor) walkInterfaces(path string, v reflect.Value, hidden bool) {
	switch v.Kind() {
	case reflect.Interface:
		switch e := v.Elem(); {
		case !e.IsValid():
		case !holdsModule(e.Type()):
			w.walkInterfaces(path, e, hidden)
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
			w.walkInterfaces(join(path, strconv.Itoa(i)), v.Index(i), hidden)
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

// visitParam passes a tensor to w.param after a check that its name is unique.
func (w *visitor) visitParam(p Param) {
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

// Named returns the parameters and buffers of a model with their names, in the order of the fields.
// A tensor in several places is listed once, under its first name.
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

// NamedBuffers is [Named] without the parameters. It includes transient buffers.
func NamedBuffers(m any) []Param {
	return slices.DeleteFunc(Named(m), func(p Param) bool { return !p.Buffer })
}

// Buffers returns the buffers of a model, such as running statistics. A buffer is state without a
// gradient.
func Buffers(m any) []*tensor.Tensor {
	var out []*tensor.Tensor
	for _, p := range NamedBuffers(m) {
		out = append(out, p.Tensor)
	}
	return out
}

// Parameters returns the parameters of a model, including frozen ones. It panics with an *[Error]
// if the model's structure hides parameters.
func Parameters(m any) []*tensor.Tensor {
	var out []*tensor.Tensor
	for _, p := range NamedParameters(m) {
		out = append(out, p.Tensor)
	}
	return out
}

// To moves all parameters, buffers and gradients of a model to device d, in place, and returns the
// model. The *Tensor values remain the same, so existing optimizers remain valid.
func To[M any](m M, d device.Device) M {
	for _, p := range Named(m) {
		p.Tensor.MoveTo(d)
	}
	return m
}

// Train puts a model into training mode.
func Train[M any](m M) M { return setTraining(m, true) }

// Eval puts a model into evaluation mode. In this mode dropout does nothing.
func Eval[M any](m M) M { return setTraining(m, false) }

func setTraining[M any](m M, on bool) M {
	visit(m, &visitor{pre: func(_ string, v reflect.Value, _ bool) {
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
