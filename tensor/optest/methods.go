package optest

import (
	"maps"

	"github.com/flambeau-go/flambeau/tensor"
)

// method says how users call an elementwise op.
type method struct {
	name string // name of the method of *tensor.Tensor, or of the function of package tensor
	call func(x []*tensor.Tensor, p []float64) *tensor.Tensor
}

func unary(name string, f func(*tensor.Tensor) *tensor.Tensor) method {
	return method{name, func(x []*tensor.Tensor, _ []float64) *tensor.Tensor { return f(x[0]) }}
}

func binary(name string, f func(x, y *tensor.Tensor) *tensor.Tensor) method {
	return method{name, func(x []*tensor.Tensor, _ []float64) *tensor.Tensor { return f(x[0], x[1]) }}
}

func withScalar(name string, f func(*tensor.Tensor, float64) *tensor.Tensor) method {
	return method{name, func(x []*tensor.Tensor, p []float64) *tensor.Tensor { return f(x[0], p[0]) }}
}

type tt = tensor.Tensor

func ternary(name string, f func(x, y, z *tt) *tt) method {
	return method{name, func(x []*tt, _ []float64) *tt { return f(x[0], x[1], x[2]) }}
}

func withWhole(name string, f func(*tt, int64) *tt) method {
	return method{name, func(x []*tt, p []float64) *tt { return f(x[0], int64(p[0])) }}
}

// init adds the methods that forms.go does not list, because they do more than apply an op.
func init() {
	maps.Copy(methods, map[string]method{
		"pow_scalar":     withScalar("PowScalar", (*tt).PowScalar),
		"clamp_min":      withScalar("ClampMin", (*tt).ClampMin),
		"clamp_max":      withScalar("ClampMax", (*tt).ClampMax),
		"clamp_plain":    {"Clamp", func(x []*tt, p []float64) *tt { return x[0].Clamp(p[0], p[1]) }},
		"clamp":          {"Clamp", func(x []*tt, p []float64) *tt { return x[0].Clamp(p[0], p[1]) }},
		"pow_fraction":   unary("PowScalar", func(x *tt) *tt { return x.PowScalar(2.4) }),
		"pow_cube":       unary("PowScalar", func(x *tt) *tt { return x.PowScalar(3) }),
		"pow_rsqrt":      unary("PowScalar", func(x *tt) *tt { return x.PowScalar(-0.5) }),
		"where":          {"Where", func(x []*tt, _ []float64) *tt { return tensor.Where(x[0], x[1], x[2]) }},
		"masked_fill":    {"MaskedFill", func(x []*tt, p []float64) *tt { return x[0].MaskedFill(x[1], p[0]) }},
		"erfinv":         unary("Erfinv", (*tt).Erfinv),
		"logit":          unary("Logit", func(x *tt) *tt { return x.Logit() }),
		"logit_eps":      withScalar("Logit", func(x *tt, eps float64) *tt { return x.Logit(eps) }),
		"round_decimals": unary("RoundDecimals", func(x *tt) *tt { return x.RoundDecimals(1) }),
		"nan_to_num":     {"NanToNum", func(x []*tt, p []float64) *tt { return x[0].NanToNum(p...) }},
		"softplus":       {"Softplus", func(x []*tt, p []float64) *tt { return x[0].Softplus(p[0], p[1]) }},
		"prelu": {"PRelu", func(x []*tt, p []float64) *tt {
			if x[1].Size() == 1 {
				return x[0].PRelu(x[1])
			}
			// The method PRelu accepts fewer shapes of weights than the op prelu.
			for _, e := range tensor.Declared() {
				if e.Name == "prelu" {
					return e.Apply(x)
				}
			}
			panic("prelu is not declared")
		}},
		"hardtanh":    {"Hardtanh", func(x []*tt, p []float64) *tt { return x[0].Hardtanh(p[0], p[1]) }},
		"threshold":   {"Threshold", func(x []*tt, p []float64) *tt { return x[0].Threshold(p[0], p[1]) }},
		"isclose":     {"IsClose", func(x []*tt, p []float64) *tt { return x[0].IsClose(x[1], p[0], p[1]) }},
		"lerp_scalar": {"LerpScalar", func(x []*tt, p []float64) *tt { return x[0].LerpScalar(x[1], p[0]) }},
		"addcmul":     {"Addcmul", func(x []*tt, p []float64) *tt { return x[0].Addcmul(x[1], x[2], p[0]) }},
		"addcdiv":     {"Addcdiv", func(x []*tt, p []float64) *tt { return x[0].Addcdiv(x[1], x[2], p[0]) }},
	})
}
