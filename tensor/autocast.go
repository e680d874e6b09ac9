package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
)

// An AutocastClass says what [Autocast] does with the floating point operands of an op. Elementwise
// ops and reductions declare their class in the field Autocast. A [Function] declares its class by
// implementing [Autocaster]. The classes of the library's ops are those of torch.autocast("cuda"),
// on every device. Autocast never changes operands of float64, integers and bool, and it does not
// affect ops in place.
type AutocastClass uint8

// The autocast classes.
const (
	// AutocastThrough leaves the operands unchanged, so that the usual promotion decides. Ops that
	// Forward calls are autocast one by one. VJP runs without autocast, as it does for every class
	// except AutocastWithin.
	AutocastThrough AutocastClass = iota
	// AutocastLow casts the operands to the scope's 16-bit type. It is for matrix products and
	// convolutions. Ops that Forward calls are not autocast. The same is true for AutocastHigh,
	// AutocastWidest and AutocastOff.
	AutocastLow
	// AutocastHigh casts the operands to float32. It is for ops that need a wide range or many
	// bits, such as exp, sums, norms and losses.
	AutocastHigh
	// AutocastWidest casts the operands to float32 if their floating point types differ. It leaves
	// them unchanged if all have one type.
	AutocastWidest
	// AutocastOff leaves the operands unchanged, and also the operands of ops that Forward calls.
	AutocastOff
	// AutocastWithin leaves the operands unchanged like AutocastThrough, but its VJP runs under the
	// same autocast as Forward did. It is torch.amp.custom_fwd without cast_inputs, together with
	// torch.amp.custom_bwd.
	AutocastWithin
)

// An Autocaster is a [Function] with an autocast class. A Function that is not an Autocaster has
// the class [AutocastThrough]. torch.amp.custom_fwd with cast_inputs=torch.float32 is
// [AutocastHigh].
type Autocaster interface{ Autocast() AutocastClass }

// Autocast makes a scope use mixed precision, as torch.autocast does. Ops that tolerate low
// precision compute in t, which is dtype.BF16 or dtype.F16. Other ops compute in float32.
// Parameters, their gradients and the optimizer's state keep their types. Autocast(dtype.Invalid)
// is [NoAutocast].
//
//	tensor.Do(func(s *tensor.Scope) {
//		loss := nn.CrossEntropy(model.Forward(s.From(x)), s.From(y))
//		loss.Backward() // VJPs run without autocast, in the types of the forward pass
//	}, tensor.Autocast(dtype.BF16))
//
// An expression whose tensors are all older than the scope must begin with x.In(s). That call lends
// x to the scope, whereas s.From(x) would move x to it. The same rule holds for [NoGrad].
//
// A float32 leaf that requires a gradient is cast once for the scope that set Autocast, and again
// after it has changed. The casts are freed when that scope ends. Leaves that one scope needed are
// remembered as a group: a later scope that needs one of them casts all of them in one launch. So
// from the second step on, a step casts all weights in one launch. While these casts run, no other
// goroutine may change a leaf of the group. A captured step casts the whole group too. If a leaf of
// the group is moved or converted later, the graph of that step refuses to replay, even if the step
// does not use the leaf.
//
// With float16 small gradients become 0 unless the loss is scaled: see package amp.
func Autocast(t dtype.Type) Option {
	if t != dtype.Invalid && !t.IsHalf() {
		fail("autocast", ErrType, nil, "autocast is to bfloat16 or float16, not to %v", t)
	}
	return func(m *modes) { m.autocast = t }
}

// NoAutocast switches [Autocast] off for a child scope.
func NoAutocast() Option { return Autocast(dtype.Invalid) }

// Autocast returns the type that [Autocast] set for s. It is dtype.Invalid if autocast is off.
func (s *Scope) Autocast() dtype.Type {
	s.markUsed()
	return s.modes.autocast
}

// WithAutocast runs f on the given operands. If [Autocast] is on in the operands' scope, it casts
// the operands as the class says. Ops that f calls are not autocast again, except for the classes
// Through and Within. Thus a composed op has one class for the whole op. If autocast is off, f runs
// on the operands themselves. Operands may be nil and stay nil.
func WithAutocast(op string, class AutocastClass, f func(in []*Tensor) *Tensor, in ...*Tensor) *Tensor {
	if y := underAutocast(op, class, f, in...); y != nil {
		return y
	}
	if modeWatches.n.Load() != 0 {
		if given := present(in...); len(given) > 0 {
			youngest(op, given).missCast(op, class, given, 0)
		}
		if class != AutocastThrough && class != AutocastWithin {
			defer ignoreCasts()()
		}
	}
	return f(in)
}

// underAutocast does what WithAutocast does, but returns nil if autocast is off.
func underAutocast(op string, class AutocastClass, f func(in []*Tensor) *Tensor, in ...*Tensor) *Tensor {
	for _, t := range in {
		if t != nil && t.scope != nil && t.scope.modes.autocast != dtype.Invalid {
			return underScope(youngest(op, present(in...)), class, f, in)
		}
	}
	return nil
}

func underScope(s *Scope, class AutocastClass, f func(in []*Tensor) *Tensor, in []*Tensor) *Tensor {
	if s.modes.autocast == dtype.Invalid || class == AutocastThrough || class == AutocastWithin {
		return nil
	}
	return within(s, func(c *Scope) *Tensor {
		out := make([]*Tensor, len(in))
		for i, t := range c.operands(class, in, 0, nil) {
			if t != nil {
				out[i] = t.In(c)
			}
		}
		c.modes.autocast = dtype.Invalid
		return f(out)
	})
}

// target returns the type to which an op of this class casts its operands, when autocast uses the
// type low. The result dtype.Invalid means no cast. target ignores operands whose bit is set in
// fixed.
func target(class AutocastClass, low dtype.Type, in []*Tensor, fixed uint) dtype.Type {
	if low == dtype.Invalid {
		return low
	}
	switch class {
	case AutocastLow:
		return low
	case AutocastHigh:
		return dtype.F32
	case AutocastWidest:
		to := dtype.Invalid
		for i, t := range in {
			switch {
			case t == nil || fixed>>i&1 != 0 || !t.dtype.IsFloat():
			case t.dtype == dtype.F64:
				return dtype.Invalid
			case to == dtype.Invalid:
				to = t.dtype
			case t.dtype != to:
				to = dtype.F32
			}
		}
		return to
	}
	return dtype.Invalid
}

// castable reports whether autocast must convert t to get an operand of type typ.
func castable(t *Tensor, typ dtype.Type) bool {
	return t != nil && t.dtype != typ && t.dtype.IsFloat() && t.dtype != dtype.F64
}

// operands returns the operands of an op, cast as class says. Operands whose bit is set in fixed
// are not cast. A cast that no cache holds is appended to uncached. The caller frees these casts
// once the op has run, because the graph keeps the values that it needs. uncached is nil if the
// casts belong to a scope that frees them when it ends.
func (s *Scope) operands(class AutocastClass, in []*Tensor, fixed uint, uncached *[]*Tensor) []*Tensor {
	to := target(class, s.modes.autocast, in, fixed)
	if to == dtype.Invalid {
		return in
	}
	out := in
	for i, t := range in {
		if fixed>>i&1 != 0 || !castable(t, to) {
			continue
		}
		if &out[0] == &in[0] {
			out = append([]*Tensor(nil), in...)
			s.missNoCast()
		}
		out[i] = nil
		for j := range i {
			if in[j] == t {
				out[i] = out[j]
			}
		}
		if out[i] == nil {
			out[i] = s.modes.casts.get(t, to)
		}
		if out[i] != nil {
			continue
		}
		lent := t.In(s)
		out[i] = lent.Cast(to)
		if lent != t {
			lent.Free()
		}
		if uncached != nil {
			*uncached = append(*uncached, out[i])
		}
	}
	return out
}

// autocast casts the operands as the class of e says, and returns the result of e on them. It
// returns nil if there is nothing to cast.
func (e *Elementwise) autocast(in []*Tensor, params []float64) *Tensor {
	if e.Autocast == AutocastThrough || len(in) == 0 {
		return nil
	}
	s := youngest(e.called(), in)
	if s.modes.autocast == dtype.Invalid {
		s.missCast(e.called(), e.Autocast, in, e.Fixed)
		return nil
	}
	// Pass copies. Otherwise in and params would escape, and callers would have to allocate them on
	// the heap even if autocast is off.
	return e.applyCast(s, slices.Clone(in), slices.Clone(params))
}

// applyCast does the work of the method autocast. Autocast is on in s.
func (e *Elementwise) applyCast(s *Scope, in []*Tensor, params []float64) *Tensor {
	var made []*Tensor
	out := s.operands(e.Autocast, in, e.Fixed, &made)
	if &out[0] == &in[0] {
		return nil
	}
	defer freeAll(&made)
	return e.apply(out, params)
}

func freeAll(list *[]*Tensor) {
	for _, t := range *list {
		t.Free()
	}
}

func classOf(f Function) AutocastClass {
	if a, ok := f.(Autocaster); ok {
		return a.Autocast()
	}
	return AutocastThrough
}

// high sets e's class to AutocastHigh and returns e.
func high(e *Elementwise) *Elementwise {
	e.Autocast = AutocastHigh
	return e
}
