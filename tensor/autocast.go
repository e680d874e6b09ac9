package tensor

import "github.com/flambeau-go/flambeau/dtype"

// An AutocastClass says what [Autocast] does with the floating point operands of an op. Elementwise
// ops and reductions declare it in their field Autocast, a [Function] by implementing [Autocaster].
// The classes of the library's ops are those of torch.autocast("cuda"), on every device. Operands
// of float64, integers and bool are never touched, nor are functions in place.
type AutocastClass uint8

// The classes.
const (
	// AutocastThrough leaves the operands as they are: the usual promotion decides. What the
	// Forward of such a Function calls is autocast op by op; its VJP runs without autocast, as
	// every VJP does.
	AutocastThrough AutocastClass = iota
	// AutocastLow casts the operands to the scope's 16-bit type: products of matrices,
	// convolutions. As in all classes below nothing that Forward calls is autocast.
	AutocastLow
	// AutocastHigh casts the operands to float32: what needs a wide range or many bits, such as
	// exp, sums, norms and losses.
	AutocastHigh
	// AutocastWidest casts the operands to float32 if one of them is, and leaves them 16 bits wide
	// if none is.
	AutocastWidest
	// AutocastOff leaves the operands as they are, and so what Forward calls.
	AutocastOff
	// AutocastWithin is AutocastThrough with a VJP that runs under the same autocast as Forward
	// did: torch.amp.custom_fwd without cast_inputs and torch.amp.custom_bwd.
	AutocastWithin
)

// An Autocaster is a [Function] with an autocast class; one that does not say is of class
// [AutocastThrough]. What torch.amp.custom_fwd does with cast_inputs=torch.float32 is
// [AutocastHigh].
type Autocaster interface{ Autocast() AutocastClass }

// Autocast makes a scope of mixed precision, torch.autocast. Ops whose results do not suffer
// compute in t, dtype.BF16 or dtype.F16, the others in float32. Parameters, their gradients and the
// optimizer's state stay what they are. dtype.Invalid is [NoAutocast].
//
//	tensor.Do(func(s *tensor.Scope) {
//		loss := nn.CrossEntropy(model.Forward(s.From(x)), s.From(y))
//		loss.Backward() // VJPs run without autocast, in the types of the forward pass
//	}, tensor.Autocast(dtype.BF16))
//
// An expression over older tensors alone begins with x.In(s), which lends x where From gives it
// away, as for [NoGrad].
//
// A float32 leaf that requires a gradient is cast once for the scope that set Autocast, and again
// after it has changed; the casts are freed with that scope. With the first one those leaves are
// cast, in one launch, that an earlier scope needed together with it. So a step casts all weights
// at once, from the second step on. No goroutine may change such a leaf meanwhile. A captured step
// casts them too: its graph refuses to replay after one was moved or converted, used or not.
//
// With float16 small gradients vanish unless the loss is scaled: see package amp.
func Autocast(t dtype.Type) Option {
	if t != dtype.Invalid && !t.IsHalf() {
		fail("autocast", ErrType, nil, "autocast is to bfloat16 or float16, not to %v", t)
	}
	return func(m *modes) { m.autocast = t }
}

// NoAutocast switches [Autocast] off for a child scope.
func NoAutocast() Option { return Autocast(dtype.Invalid) }

// Autocast returns the type that [Autocast] set for s, dtype.Invalid if it is off.
func (s *Scope) Autocast() dtype.Type {
	s.asked()
	return s.modes.autocast
}

// WithAutocast runs f on in, cast as the class says where their scope has [Autocast] on. What f
// calls does not autocast again (but for classes Through and Within). So an op that is composed of
// others gets a class as a whole. Where autocast is off it is f(in). Operands may be nil and stay
// so.
func WithAutocast(op string, class AutocastClass, f func(in []*Tensor) *Tensor, in ...*Tensor) *Tensor {
	if y := underAutocast(op, class, f, in...); y != nil {
		return y
	}
	if vigils.n.Load() != 0 {
		if given := present(in...); len(given) > 0 {
			youngest(op, given).missCast(op, class, given, 0)
		}
		if class != AutocastThrough && class != AutocastWithin {
			defer hushCasts()()
		}
	}
	return f(in)
}

// underAutocast is WithAutocast, or nil where autocast is off.
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

// target returns the type to which class casts in under autocast to low, dtype.Invalid for none.
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

// castable reports whether autocast to type to converts t.
func castable(t *Tensor, to dtype.Type) bool {
	return t != nil && t.dtype != to && t.dtype.IsFloat() && t.dtype != dtype.F64
}

// operands returns in, cast as class says; fixed operands, by bit, stay. What it makes and no cache
// holds is added to made, for the caller to free once the op has run: the graph holds what it
// needs. With nil for made it belongs to a scope that ends by itself.
func (s *Scope) operands(class AutocastClass, in []*Tensor, fixed uint, made *[]*Tensor) []*Tensor {
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
			out[i] = s.modes.casts.take(t, to)
		}
		if out[i] != nil {
			continue
		}
		lent := t.In(s)
		out[i] = lent.Cast(to)
		if lent != t {
			lent.Free()
		}
		if made != nil {
			*made = append(*made, out[i])
		}
	}
	return out
}

// autocast returns the result of e on operands that are cast as its class says, or nil if there is
// nothing to cast.
func (e *Elementwise) autocast(in []*Tensor, params []float64) *Tensor {
	if e.Autocast == AutocastThrough || len(in) == 0 {
		return nil
	}
	s := youngest(e.called(), in)
	if s.modes.autocast == dtype.Invalid {
		s.missCast(e.called(), e.Autocast, in, e.Fixed)
		return nil
	}
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

// classOf returns f's autocast class.
func classOf(f Function) AutocastClass {
	if a, ok := f.(Autocaster); ok {
		return a.Autocast()
	}
	return AutocastThrough
}

// high makes e of class AutocastHigh.
func high(e *Elementwise) *Elementwise {
	e.Autocast = AutocastHigh
	return e
}
