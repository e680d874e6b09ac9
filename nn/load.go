package nn

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// A LoadOption changes how [LoadStateDict] loads.
type LoadOption func(*loadOptions)

type loadOptions struct {
	loose  bool
	assign bool
	report *StateError
}

// Loose loads what has a name in both model and dict, and leaves the rest of both alone: torch's
// strict=False. Shapes still must match.
func Loose() LoadOption { return func(o *loadOptions) { o.loose = true } }

// Assign gives the model the memory of the dict's tensors instead of a copy: torch's assign=True.
// What is written to one is written to both from then on; freeing the dict's is allowed. Where
// sharing cannot be, the tensor is copied as without Assign. That is so for another type or another
// device than the model's, a tensor that does not lie contiguous, one of a younger scope, and
// memory that another tensor of the model has taken.
//
// With [SkipInit] and a file that is mapped ([safetensors.Open]), a model is loaded without being
// initialised and without being read: its pages come as they are used.
//
// [safetensors.Open]: https://pkg.go.dev/github.com/flambeau-go/flambeau/safetensors#Open
func Assign() LoadOption { return func(o *loadOptions) { o.assign = true } }

// Report has LoadStateDict write into r what it found, also where that is no error: torch's
// missing_keys and unexpected_keys.
func Report(r *StateError) LoadOption { return func(o *loadOptions) { o.report = r } }

// A Tied layer has tensors that files may hold under further names, though the layer has them once:
// Hugging Face's _tied_weights_keys. TiedNames returns the name in the layer for each further one,
// both relative to the layer, such as "wte.weight" for "lm_head.weight".
type Tied interface{ TiedNames() map[string]string }

// tiedNames collects those of all layers of a model, with the paths of these.
func tiedNames(m any) map[string]string {
	all := map[string]string{}
	visit(m, &visitor{before: func(path string, v reflect.Value, _ bool) {
		if t, ok := layerOf(v).(Tied); ok {
			for other, name := range t.TiedNames() {
				all[join(path, other)] = join(path, name)
			}
		}
	}})
	return all
}

// An entry is a tensor of a state dict.
type entry struct {
	name string
	x    *tensor.Tensor
}

// LoadStateDict copies the values of sd into the parameters and buffers of a model of the same
// names, from any device and with the conversions of [tensor.Tensor.Copy]. The tensors of the model
// stay the same, so optimizers made before remain valid, and keep their device and type. If names
// or shapes differ it returns a *[StateError] and nothing is written. An error of a device while
// the values are copied is returned as it is; then some have been copied. An unsound structure of
// the model panics with an *[Error].
//
// Lazy layers, such as [NewLazyLinear]'s, are made of the shapes in the dict.
//
// A parameter that [SkipInit] left without memory gets memory on the device of its scope, or with
// [Assign] the dict's. In a scope that is itself on a device without memory, where device.OpenMeta
// plans a program, tensors stay without, but with Assign: then they are where the dict's are.
//
// Two things are taken that torch's strict mode refuses. A tensor of the model with several names
// need be there under one of them only, as in safetensors files that leave out the others. And
// optional buffers may be missing: the num_batches_tracked of batch normalisation, which older
// files lack (torch takes these too). Names that a [Tied] layer tells count as names of its tensor.
// So does a name of the dict that the model does not have, if its tensor shares the memory of one
// that the model has. If one tensor of the model is there under several names, their values must be
// equal.
func LoadStateDict(m any, sd map[string]*tensor.Tensor, opts ...LoadOption) error {
	var o loadOptions
	for _, f := range opts {
		f(&o)
	}
	e := &StateError{}
	params, tied := statesOf(m, ignoreLazy), tiedNames(m) // an unsound structure panics
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

// match finds the tensor of sd for each tensor of a model, params with the names that are tied, and
// says in e what does not fit. The tensors of the model come in its order.
func match(params []Param, tied map[string]string, sd map[string]*tensor.Tensor, e *StateError) (order []*tensor.Tensor, from map[*tensor.Tensor]*tensor.Tensor) {
	own := map[string]*tensor.Tensor{} // by each of their names
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

// fill gives p the values of y. taken is memory that tensors of the model have already.
func (o *loadOptions) fill(p, y *tensor.Tensor, taken map[tensor.Storage]bool) {
	dev := p.Device()
	hollow := dev.Info().Meta
	if home := p.Scope().Device(); hollow && !home.Info().Meta {
		dev = home
	} else if hollow && o.assign {
		dev = y.Device()
	} else { // all of a plan is on such a device
		hollow = false
	}
	s := tensor.Youngest(p, y)
	if o.assign && y.Device() == dev && y.Type() == p.Type() && y.IsContiguous() && s == p.Scope() && !taken[y.Storage()] {
		taken[y.Storage()] = true
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

// An address is where a tensor lies, and how.
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

// sameValues reports whether two tensors of one shape are of one type and have the same values; a
// NaN is the same as a NaN.
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
