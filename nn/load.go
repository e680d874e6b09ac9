package nn

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// A LoadOption changes the behaviour of [LoadStateDict].
type LoadOption func(*loadOptions)

type loadOptions struct {
	loose  bool
	assign bool
	report *StateError
}

// Loose loads the tensors whose names are in both the model and the dict, and ignores all other
// tensors: torch's strict=False. Shapes must still match.
func Loose() LoadOption { return func(o *loadOptions) { o.loose = true } }

// Assign makes the model use the memory of the dict's tensors instead of copying it: torch's
// assign=True. From then on, a write to a tensor of the model or of the dict changes both. The
// dict's tensors may be freed.
//
// LoadStateDict still copies a tensor that cannot be shared. Such a tensor has another type or
// device than the model's tensor, is not contiguous, or belongs to a younger scope. A tensor whose
// memory another tensor of the model already uses cannot be shared either.
//
// Assign helps together with [SkipInit] and a file mapped into memory ([safetensors.Open]): loading
// then initialises nothing and reads nothing. The operating system reads a page of the file when it
// is first used.
//
// [safetensors.Open]: https://pkg.go.dev/github.com/flambeau-go/flambeau/safetensors#Open
func Assign() LoadOption { return func(o *loadOptions) { o.assign = true } }

// Report makes LoadStateDict list in r which tensors do not fit, even if the load succeeds. torch
// returns such lists as missing_keys and unexpected_keys.
func Report(r *StateError) LoadOption { return func(o *loadOptions) { o.report = r } }

// A Tied layer has tensors for which a file may contain a second name: Hugging Face's
// _tied_weights_keys. TiedNames maps each such name to the layer's own name of the tensor, for
// example "lm_head.weight" to "wte.weight". Both names are relative to the layer.
type Tied interface{ TiedNames() map[string]string }

// tiedNames collects TiedNames of all layers of a model, with the layers' paths as prefixes.
func tiedNames(m any) map[string]string {
	all := map[string]string{}
	visit(m, &visitor{pre: func(path string, v reflect.Value, _ bool) {
		if t, ok := layerOf(v).(Tied); ok {
			for other, name := range t.TiedNames() {
				all[join(path, other)] = join(path, name)
			}
		}
	}})
	return all
}

type entry struct {
	name string
	x    *tensor.Tensor
}

// LoadStateDict copies each tensor of sd into the model's parameter or buffer of the same name.
// It copies from any device and converts types as [tensor.Tensor.Copy] does. The model's tensors
// remain the same objects and keep their device and type, so existing optimizers remain valid. If
// names or shapes differ, it writes nothing and returns a *[StateError]. If a device fails while
// values are copied, it returns the device's error. In that case some values have been copied.
// LoadStateDict panics with an *[Error] if [Parameters] does.
//
// The parameters of lazy layers, such as [NewLazyLinear]'s, are made with the shapes in the dict.
//
// A parameter that [SkipInit] left without memory gets memory on the device of its scope, or with
// [Assign] the dict's memory. A scope may itself be on a device without memory, made by
// device.OpenMeta. Tensors of such a scope stay without memory, unless Assign moves them to the
// device of the dict's tensors.
//
// Two kinds of names may be missing in the dict. If a tensor of the model has several names, the
// dict needs only one of them, which is all that safetensors files contain. Optional buffers may be
// missing too, such as num_batches_tracked of batch normalisation, which older files lack.
//
// The names that a [Tied] layer returns count as further names of its tensors. The dict may also
// have a tensor of the model under a second name, which the model lacks. That name is accepted if
// the dict's tensors under both names share memory. If the dict has one tensor of the model under
// several names, the values must be equal.
func LoadStateDict(m any, sd map[string]*tensor.Tensor, opts ...LoadOption) error {
	var o loadOptions
	for _, f := range opts {
		f(&o)
	}
	e := &StateError{}
	// statesOf panics if the model's structure has a mistake.
	params, tied := statesOf(m, ignoreLazy), tiedNames(m)
	var order []*tensor.Tensor
	var from map[*tensor.Tensor]*tensor.Tensor
	var lazily lazies
	defer func() { lazily.undo() }()
	if err := tensor.Try(func() {
		e.Missing = lazily.fit(m, sd)
		if len(lazily) > 0 {
			params = statesOf(m, ignoreLazy)
		}
		order, from = match(params, tied, sd, e)
	}); err != nil {
		return err
	}
	if o.report != nil {
		*o.report = *e
	}
	if e.unusable() || !o.loose && len(e.Missing)+len(e.Unexpected) > 0 {
		return e
	}
	lazily = nil
	return tensor.Try(func() {
		taken := map[tensor.Storage]bool{}
		for _, p := range order {
			o.fill(p, from[p], taken)
		}
	})
}

// match finds the tensor of sd for each tensor of a model. params are the model's tensors, and
// tied maps second names to first names. match returns the model's tensors in order, and a map
// from each model tensor to its tensor of sd. It records in e what does not fit.
func match(params []Param, tied map[string]string, sd map[string]*tensor.Tensor, e *StateError) (order []*tensor.Tensor, from map[*tensor.Tensor]*tensor.Tensor) {
	// own maps names to the model's tensors; a tensor may have several names.
	own := map[string]*tensor.Tensor{}
	for _, p := range params {
		own[p.Name] = p.Tensor
	}
	names := slices.Clone(params)
	for other, name := range tied {
		if t := own[name]; t != nil && own[other] == nil {
			own[other] = t
			if _, ok := sd[other]; ok {
				names = append(names, Param{Name: other, Tensor: t})
			}
		}
	}
	slices.SortFunc(names[len(params):], func(a, b Param) int { return cmp.Compare(a.Name, b.Name) })
	there := map[*tensor.Tensor][]entry{}
	for _, p := range names {
		y, ok := sd[p.Name]
		switch {
		case !ok:
			continue
		case y == nil || gone(y):
			e.Unusable = append(e.Unusable, p.Name)
			y = nil
		case y.Shape() != p.Tensor.Shape():
			e.Mismatched = append(e.Mismatched, Mismatch{p.Name, p.Tensor.Shape(), y.Shape()})
			y = nil
		}
		there[p.Tensor] = append(there[p.Tensor], entry{p.Name, y})
	}
	from = map[*tensor.Tensor]*tensor.Tensor{}
	used := map[address]bool{}
	for _, p := range params {
		list := there[p.Tensor]
		if len(list) == 0 {
			if !p.Optional && !slices.Contains(e.Missing, p.Name) {
				e.Missing = append(e.Missing, p.Name)
			}
			continue
		}
		if from[p.Tensor] != nil || list[0].x == nil {
			continue
		}
		first := list[0]
		order, from[p.Tensor], used[addressOf(first.x)] = append(order, p.Tensor), first.x, true
		for _, other := range list[1:] {
			if other.x != nil && !sameValues(first.x, other.x) {
				e.Differing = append(e.Differing, [2]string{first.name, other.name})
			}
		}
	}
	for name, y := range sd {
		if own[name] == nil && (y == nil || gone(y) || y.Size() == 0 || !used[addressOf(y)]) {
			e.Unexpected = append(e.Unexpected, name)
		}
	}
	slices.Sort(e.Unexpected)
	return order, from
}

// fill copies the values of the dict's tensor y to the model's tensor p, or makes p share y's
// memory. The storages in shared are already in use by other tensors of the model.
func (o *loadOptions) fill(p, y *tensor.Tensor, shared map[tensor.Storage]bool) {
	dev := p.Device()
	hollow := dev.Info().Meta
	if home := p.Scope().Device(); hollow && !home.Info().Meta {
		dev = home
	} else if hollow && o.assign {
		dev = y.Device()
	} else { // the whole model is on a device without memory
		hollow = false
	}
	s := tensor.Youngest(p, y)
	if o.assign && y.Device() == dev && y.Type() == p.Type() && y.IsContiguous() && s == p.Scope() && !shared[y.Storage()] {
		shared[y.Storage()] = true
		h := y.Detach()
		defer h.Free()
		p.SetData(h)
		return
	}
	if !hollow {
		s.Do(func(s *tensor.Scope) { p.In(s).Copy(y.In(s)) }, tensor.NoGrad())
		return
	}
	x := p.Scope().On(dev).Typed(p.Type()).Empty(p.Shape().Slice()...)
	defer x.Free()
	s.Do(func(s *tensor.Scope) { x.In(s).Copy(y.In(s)) }, tensor.NoGrad())
	p.SetData(x)
}

// An address says which elements of a storage a tensor has, and in which order.
type address struct {
	storage tensor.Storage
	offset  int
	t       dtype.Type
	shape   shape.Dims
	strides shape.Dims
}

func addressOf(x *tensor.Tensor) address {
	return address{x.Storage(), x.StorageOffset(), x.Type(), x.Shape(), x.Strides()}
}

// sameValues reports whether two tensors of one shape have the same type and the same values. Here
// NaN equals NaN.
func sameValues(a, b *tensor.Tensor) (same bool) {
	if addressOf(a) == addressOf(b) {
		return true
	}
	if a.Type() != b.Type() || a.Device() != b.Device() {
		return false
	}
	tensor.Youngest(a, b).Do(func(s *tensor.Scope) {
		a, b := a.In(s), b.In(s)
		equal := a.Eq(b)
		same = equal.All().Item() != 0 ||
			a.Type().IsFloat() && equal.LogicalOr(a.IsNaN().LogicalAnd(b.IsNaN())).All().Item() != 0
	}, tensor.NoGrad())
	return same
}
