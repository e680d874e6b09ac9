package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdafactorConfig sets Adafactor. Zero values of Beta2Decay, Eps2 and D take torch's defaults -0.8,
// 1e-3 and 1.
type AdafactorConfig struct {
	LR          float64  // the most that a relative step can be, 1e-2 in torch; no default: it has to be set
	Beta2Decay  float64  // how the weight of the newest squares falls: step^Beta2Decay; not positive
	Eps1        *float64 // the least root of an estimated square; nil: the machine epsilon of the parameter's type
	Eps2        float64  // the least root mean square that a parameter counts as
	D           float64  // the root mean square at which updates are clipped, at least 1
	WeightDecay float64  // decoupled: p ← p·(1 - lr·λ)
	Maximize    bool     // go up the gradient
}

func (c *AdafactorConfig) options() []option {
	return []option{{"beta2_decay", &c.Beta2Decay}, {"eps", noneOr{&c.Eps1, &c.Eps2}}, {"d", &c.D}, {"weight_decay", &c.WeightDecay},
		{"foreach", fixed{nil}}, {"maximize", &c.Maximize}}
}

func (c *AdafactorConfig) complete() {
	either(&c.Beta2Decay, -0.8)
	either(&c.Eps2, 1e-3)
	either(&c.D, 1)
}

func (c *AdafactorConfig) check() string {
	if !(c.Beta2Decay <= 0) {
		return fmt.Sprintf("beta2_decay must not be positive, it is %v", c.Beta2Decay)
	}
	if !(c.D >= 1) || math.IsInf(c.D, 1) {
		return fmt.Sprintf("d must be at least 1, it is %v", c.D)
	}
	if c.Eps1 != nil && checkNotNegative("", *c.Eps1) != "" {
		return checkNotNegative("eps[0]", *c.Eps1)
	}
	return first(checkNotNegative("eps[1]", c.Eps2), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *AdafactorConfig) clone() config { d := *c; return &d }

// Adafactor scales gradients by estimates of their squares, of which it remembers for a matrix only
// the means of rows and of columns, as torch.optim.Adafactor (N. Shazeer, M. Stern,
// arXiv:1804.04235). For step t, with w = t^Beta2Decay and the means of g² over columns and over
// rows,
//
//	r ← r + w·(mean of rows - r); c ← c + w·(mean of columns - c); v = r·c / max(mean of r, ε₁)
//	u = g / √max(v, ε₁²); α = max(ε₂, rms(p))·min(lr, 1/√t)
//	p ← p·(1 - lr·λ) - α·u / max(1, rms(u)/d)
//
// A parameter of more dimensions is many matrices, its last two; one of fewer has an estimate v for
// each element. The numbers of 16-bit parameters are computed in float32.
type Adafactor struct{ base }

// NewAdafactor returns Adafactor over params.
func NewAdafactor(params []*tensor.Tensor, c AdafactorConfig) *Adafactor {
	return NewAdafactorGroups(With[AdafactorConfig]{params, c})
}

// NewAdafactorGroups returns Adafactor over groups of parameters.
func NewAdafactorGroups(groups ...With[AdafactorConfig]) *Adafactor {
	o := &Adafactor{newBase("Adafactor", schema{tensors: []string{"row_var", "col_var", "variance"}, shape: factors})}
	if len(groups) == 0 {
		o.bad("there are no parameters")
	}
	for _, g := range groups {
		o.AddGroup(g.Params, g.Config)
	}
	return o
}

// AddGroup adds parameters with a configuration of their own.
func (o *Adafactor) AddGroup(params []*tensor.Tensor, c AdafactorConfig) {
	o.addGroup(params, c.LR, &c)
}

// factors are the shapes of what is remembered: means of rows and columns of matrices, or an
// estimate for each element.
func factors(p shape.Dims, i int) (s shape.Dims, used bool) {
	matrix := p.Rank() > 1
	if i == 2 {
		return p, !matrix
	}
	if !matrix {
		return p, false
	}
	return p.With(p.Rank()-1-i, 1), true
}

// epsilon is the machine epsilon of a type.
func epsilon(t dtype.Type) float64 {
	switch t {
	case dtype.F64:
		return 0x1p-52
	case dtype.F16:
		return 0x1p-10
	case dtype.BF16:
		return 0x1p-7
	}
	return 0x1p-23
}

// The numbers of a step, in the order in which they lie on the device.
const (
	factorWeight = iota // of the newest squares
	factorRate          // of what is relative, its sign that of the step
	factorKeep          // what is left of the parameter
	factorEps1
	factorEps2
	factorClip
	factorNumbers
)

// numbers are those of step t of a parameter.
func (c *AdafactorConfig) numbers(lr, t float64, of dtype.Type) []float64 {
	v := make([]float64, factorNumbers)
	v[factorWeight] = math.Pow(t, c.Beta2Decay)
	if v[factorRate] = min(lr, 1/math.Sqrt(t)); c.Maximize {
		v[factorRate] = -v[factorRate]
	}
	v[factorKeep], v[factorEps1], v[factorEps2], v[factorClip] = 1-lr*c.WeightDecay, epsilon(of), c.Eps2, c.D
	if c.Eps1 != nil {
		v[factorEps1] = *c.Eps1
	}
	return v
}
