package optest

import (
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// init adds the ops of _golden/completing.py to goldenOps.
func init() {
	type args = golden.Args
	for _, op := range []string{"add_scalar", "mul_scalar", "div_scalar", "rsub_scalar", "rdiv_scalar", "floor_divide_scalar", "trunc_divide_scalar", "remainder_scalar", "fmod_scalar",
		"copysign_scalar", "eq_scalar", "ne_scalar", "lt_scalar", "le_scalar", "gt_scalar", "ge_scalar", "floor_divide_integer_scalar", "trunc_divide_integer_scalar",
		"remainder_integer_scalar", "fmod_integer_scalar", "bitwise_and_scalar", "bitwise_or_scalar", "bitwise_xor_scalar", "bitwise_left_shift_scalar", "bitwise_right_shift_scalar"} {
		goldenOps[op] = func(a args, x []*tt) *tt { return methods[op].call(x, []float64{a.Float("v")}) }
	}
	of := func(f func(a args, x *tt) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(a, x[0]) }
	}
	for name, op := range map[string]goldenOp{
		"sub_scalar":           of(func(a args, x *tt) *tt { return x.SubScalar(a.Float("v")) }),
		"trunc_divide_integer": binaryOp((*tt).TruncDivide),
		"pow_tensor":           binaryOp((*tt).Pow),
		"flatten":              unaryOp(func(x *tt) *tt { return x.Flatten(0, -1) }),
		"view":                 unaryOp(func(x *tt) *tt { return x.Contiguous().View(-1) }),
		"t":                    unaryOp((*tt).T),
		"unsqueeze":            of(func(a args, x *tt) *tt { return x.Unsqueeze(a.Int("dim")) }),
		"squeeze":              of(func(a args, x *tt) *tt { return x.Squeeze(a.Int("dim")) }),
		"clone":                unaryOp((*tt).Clone),
		"detach":               unaryOp((*tt).Detach),
		"zeros_like":           unaryOp((*tt).ZerosLike),
		"ones_like":            unaryOp((*tt).OnesLike),
		"full_like":            of(func(a args, x *tt) *tt { return x.FullLike(a.Float("v")) }),
		"fill":                 of(func(a args, x *tt) *tt { return x.Clone().Fill(a.Float("v")) }),
		"zero":                 unaryOp(func(x *tt) *tt { return x.Clone().Zero() }),
		"copy":                 binaryOp(func(x, y *tt) *tt { return x.Clone().Copy(y) }),
		"glu":                  of(func(a args, x *tt) *tt { return x.Glu(a.Int("dim")) }),
		"gather":               func(a args, x []*tt) *tt { return x[0].Gather(a.Int("dim"), x[1]) },
		"rfloor_divide_scalar": of(func(a args, x *tt) *tt { return x.RFloorDivideScalar(a.Float("v")) }),
		"rremainder_scalar":    of(func(a args, x *tt) *tt { return x.RRemainderScalar(a.Float("v")) }),
		"rxlogy_scalar":        of(func(a args, x *tt) *tt { return x.Abs().RXLogYScalar(a.Float("v")) }),
		"xlogy_scalar":         of(func(a args, x *tt) *tt { return x.XLogYScalar(a.Float("v")) }),
		"where_scalar":         of(func(a args, x *tt) *tt { return tensor.WhereScalar(x.GtScalar(0.25), x, a.Float("v")) }),
		"rwhere_scalar":        of(func(a args, x *tt) *tt { return tensor.RWhereScalar(x.GtScalar(0.25), a.Float("v"), x) }),
		"where_scalars": of(func(a args, x *tt) *tt {
			return tensor.WhereScalars(x.GtScalar(0.25), a.Float("v"), -a.Float("v"))
		}),
		"rbitwise_left_shift_scalar":  of(func(a args, x *tt) *tt { return x.RBitwiseLeftShiftScalar(int64(a.Float("v"))) }),
		"rbitwise_right_shift_scalar": of(func(a args, x *tt) *tt { return x.RBitwiseRightShiftScalar(int64(a.Float("v"))) }),
	} {
		if goldenOps[name] != nil {
			panic("optest: two ops are " + name)
		}
		goldenOps[name] = op
	}
}
