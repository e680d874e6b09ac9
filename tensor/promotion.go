package tensor

import "github.com/flambeau-go/flambeau/dtype"

// resultType returns the promoted type of the operands and the type of the result. As in torch a
// tensor of rank 0 changes the type of a tensor of higher rank only if its own class is higher. The
// classes are bool, integer and float.
func (e *Elementwise) resultType(in []*Tensor) (common, result dtype.Type) {
	if e.types != nil {
		return e.stored, e.stored
	}
	var p promotion
	for i, t := range in {
		if e.Fixed>>i&1 == 0 {
			p.add(t.dtype, t.Rank() == 0)
		}
	}
	common, result, wrong := e.ruled(p.common())
	if wrong != "" {
		err := newError(e.called(), ErrType, in, wrong)
		if e.Result == FixedFloat && !common.IsFloat() {
			panic(err.hint("use Float or Cast"))
		}
		panic(err.hint("use Cast"))
	}
	return common, result
}

// A promotion finds the common type of operands. dim is the promoted type of the tensors of rank 1
// or more. zero is the promoted type of the tensors of rank 0.
type promotion struct{ dim, zero dtype.Type }

func (p *promotion) add(t dtype.Type, zero bool) {
	to := &p.dim
	if zero {
		to = &p.zero
	}
	if *to == dtype.Invalid {
		*to = t
	} else {
		*to = dtype.Promote(*to, t)
	}
}

func (p *promotion) common() dtype.Type {
	switch {
	case p.dim == dtype.Invalid:
		return p.zero
	case p.zero == dtype.Invalid || typeClass(p.zero) <= typeClass(p.dim):
		return p.dim
	case p.zero.IsFloat() && !p.dim.IsFloat():
		return p.zero
	}
	return dtype.Promote(p.dim, p.zero)
}

// typeClass returns the class of a type: bool, integers, floats, in this order.
func typeClass(t dtype.Type) numberKind {
	switch {
	case t == dtype.Bool:
		return kindBool
	case t.IsFloat():
		return kindFloat
	}
	return kindInt
}

// ruled returns the type in which the op computes and the type of its result, for operands whose
// common type is given. If the op refuses this type, wrong says why. Otherwise wrong is "".
func (e *Elementwise) ruled(common dtype.Type) (compute, result dtype.Type, wrong string) {
	if e.NoBool && common == dtype.Bool {
		return common, common, "is not defined for bool operands"
	}
	switch e.Result {
	case Floating:
		if !common.IsFloat() {
			common = dtype.F32
		}
	case FixedFloat:
		if !common.IsFloat() {
			return common, common, "needs floating point operands, not " + common.String()
		}
	case Integral:
		if common.IsFloat() {
			return common, common, "needs integer or bool operands, not " + common.String()
		}
	case Truth:
		return common, dtype.Bool, ""
	}
	return common, common, ""
}
