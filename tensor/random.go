package tensor

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

type randomKind uint8

const (
	uniformKind randomKind = iota
	normalKind
	bernoulliKind
	integerKind
	dropoutKind
	alphaDropoutKind
	dropoutAddKind
	reluDropoutKind
	truncatedKind
	placeKind
)

// String returns the word for the distribution k in the names of kernels.
func (k randomKind) String() string {
	return [...]string{"uniform", "normal", "bernoulli", "randint", "dropout", "alpha_dropout", "dropout_add", "relu_dropout", "truncated_normal", "multinomial"}[k]
}

type randomKey struct {
	t    dtype.Type
	kind randomKind
	// If fed is true, the last two operands hold seed and offset. The parameter for the offset is
	// then added to the offset operand.
	fed bool
	in  [2]dtype.Type // types of the other operands, Invalid for absent operands
}

var randomPrograms cache[randomKey, *expr.Program]

// randomProgram returns the program that fills a tensor with random numbers. Its parameters are
// seed and offset, then the parameters of the distribution.
func randomProgram(k randomKey) *expr.Program {
	return randomPrograms.get(k, func() *expr.Program {
		t := k.t
		var in []dtype.Type
		for _, t := range k.in {
			if t != dtype.Invalid {
				in = append(in, t)
			}
		}
		seed, offset, index := expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), expr.Index(dtype.I64)
		if k.fed {
			n := len(in)
			seed, offset = expr.X(n), expr.X(n+1).Add(offset)
		}
		w := t.Compute()
		if !w.IsFloat() {
			w = dtype.F32
		}
		a, b := expr.Param(2, w), expr.Param(3, w)
		var e *expr.Expr
		switch k.kind {
		case uniformKind:
			u := expr.RandomUniform(w, seed, offset, index)
			// Rounding may produce b, the open end of the interval. So param 4, the greatest number
			// of the type below b, limits the result.
			e = u.Mul(b.Sub(a)).Add(a).Min(expr.Param(4, w)).Max(a)
		case normalKind:
			e = expr.RandomNormal(w, seed, offset, index).Mul(b).Add(a)
		case truncatedKind:
			e = truncatedNormal(w, expr.RandomUniform(w, seed, offset, index))
		case bernoulliKind:
			e = expr.RandomUniform(w, seed, offset, index).Lt(a).Select(expr.C(1), expr.C(0)).Cvt(w)
		case integerKind:
			// The number is low + ⌊u·range⌋, where u has 53 random bits. It is exact for ranges up
			// to 2⁵³.
			u := expr.RandomUniform(dtype.F64, seed, offset, index)
			e = u.Mul(expr.Param(3, dtype.F64)).Floor().Add(expr.Param(2, dtype.F64)).Cvt(dtype.I64)
		case placeKind:
			// The number is an integer in [0, X(0)), or -1 if X(0) is 0.
			u := expr.RandomUniform(dtype.F64, seed, offset, index)
			e = u.Mul(expr.X(0).Cvt(dtype.F64)).Floor().Cvt(dtype.I64).Min(expr.X(0).Sub(expr.C(1)))
		case dropoutKind, dropoutAddKind, reluDropoutKind:
			keep := expr.RandomKeeps(seed, offset, index, expr.Param(2, dtype.U32))
			if k.kind == dropoutKind {
				x := expr.X(0)
				if in[0] != t {
					x = x.Rounded(t)
				}
				e = keep.Select(x.Mul(b), expr.C(0))
				break
			}
			if k.kind == reluDropoutKind {
				e = keep.Select(reluOp.Expr.Mul(b), expr.C(0))
				break
			}
			e = expr.X(1).Add(keep.Select(expr.X(0).Mul(b), expr.C(0)).Rounded(in[0]))
		case alphaDropoutKind:
			keep := expr.RandomKeeps(seed, offset, index, expr.Param(2, dtype.U32))
			e = keep.Select(expr.X(0).Mul(b).Add(expr.Param(4, w)), expr.Param(5, w))
		}
		if k.fed {
			in = append(in, dtype.I64, dtype.I64)
		}
		return expr.MustLower([]*expr.Expr{e.Named(k.kind.String())}, []dtype.Type{t}, in, -1)
	})
}

// draw fills x with random numbers for the op with this name, beginning at (seed, offset). operands
// are the op's operands, if the kind has any.
func (x *Tensor) draw(op string, s *Scope, kind randomKind, seed, offset uint64, operands []*Tensor, params ...float64) *Tensor {
	slots := s.numbers(seed, x.st.dev)
	key := randomKey{t: x.dtype, kind: kind, fed: slots != nil}
	for i, x := range operands {
		key.in[i] = x.dtype
	}
	p := randomProgram(key)
	if kind == uniformKind {
		params = append(params, nextBelow(x.dtype, params[1]))
	}
	bits := []uint64{seed, offset}
	for i, v := range params {
		t := dtype.F64
		if i+2 < len(p.Params) && p.Params[i+2] != dtype.Invalid {
			t = p.Params[i+2]
		}
		bits = append(bits, expr.Encode(t, v))
	}
	if slots != nil {
		from, at := slots.Select(0, 0), slots.Select(0, 1)
		defer from.Free()
		defer at.Free()
		operands = append(slices.Clone(operands), from, at)
	}
	runMap(op, s, p, []*Tensor{x}, operands, bits)
	return x
}

// nextBelow returns the greatest number of floating point type t that is less than v.
func nextBelow(t dtype.Type, v float64) float64 {
	b := expr.Encode(t, v)
	r := expr.Decode(t, b)
	sign := uint64(1) << (8*t.Size() - 1)
	switch {
	case r < v || r != r || math.IsInf(r, -1):
		return r
	case r == 0:
		b = sign | 1
	case r < 0:
		b++
	default:
		b--
	}
	return expr.Decode(t, b)
}

// fresh fills x with new random numbers of the scope's generator.
func (x *Tensor) fresh(kind randomKind, params ...float64) *Tensor {
	seed, offset := x.scope.modes.gen.Draw(x.Size())
	return x.draw(x.op, x.scope, kind, seed, offset, nil, params...)
}

// Rand returns random numbers, uniform in [0, 1).
func (m Maker) Rand(dims ...int) *Tensor { return m.Uniform(0, 1, dims...) }

// Uniform returns random numbers, uniform in [lo, hi).
func (m Maker) Uniform(lo, hi float64, dims ...int) *Tensor {
	checkInterval(m.floatType(), lo, hi)
	return m.float("rand", dims).fresh(uniformKind, lo, hi)
}

func checkInterval(t dtype.Type, lo, hi float64, in ...*Tensor) {
	if !(lo <= hi) {
		fail("uniform", ErrValue, in, "the interval [%v, %v) is empty", lo, hi)
	}
	if t.IsFloat() && math.IsInf(expr.Decode(t.Compute(), expr.Encode(t.Compute(), hi-lo)), 0) {
		fail("uniform", ErrValue, in, "the interval [%v, %v) is wider than the numbers of %v", lo, hi, t)
	}
}

func checkDeviation(std float64, in ...*Tensor) {
	if !(std >= 0) {
		fail("normal", ErrValue, in, "a standard deviation cannot be %v", std)
	}
}

// Randn returns random numbers of the standard normal distribution.
func (m Maker) Randn(dims ...int) *Tensor { return m.Normal(0, 1, dims...) }

// Normal returns random numbers of the normal distribution.
func (m Maker) Normal(mean, std float64, dims ...int) *Tensor {
	checkDeviation(std)
	return m.float("randn", dims).fresh(normalKind, mean, std)
}

// Bernoulli returns ones with probability p and otherwise zeros.
func (m Maker) Bernoulli(p float64, dims ...int) *Tensor {
	if !(p >= 0 && p <= 1) {
		fail("bernoulli", ErrValue, nil, "%v is not a probability", p)
	}
	return m.make("bernoulli", m.floatType(), dims).fresh(bernoulliKind, p)
}

// RandInt returns random integers in [lo, hi), as int64 unless a type was chosen.
func (m Maker) RandInt(lo, hi int, dims ...int) *Tensor {
	if lo >= hi {
		fail("randint", ErrValue, nil, "the range [%d, %d) is empty", lo, hi)
	}
	if span := uint64(hi) - uint64(lo); span > 1<<53 {
		fail("randint", ErrValue, nil, "the range [%d, %d) has %d numbers, at most 2⁵³ are supported", lo, hi, span)
	}
	return m.make("randint", m.typeOr(dtype.I64), dims).fresh(integerKind, float64(lo), float64(hi-lo))
}

// RandPerm returns a random permutation of 0 … n-1, as int64 unless a type was chosen. It sorts n
// random numbers of 53 bits.
func (m Maker) RandPerm(n int) *Tensor {
	if n < 0 {
		fail("randperm", ErrValue, nil, "%d elements", n)
	}
	t := m.typeOr(dtype.I64)
	x := m.Typed(dtype.F64).Rand(n)
	defer x.Free()
	y := x.Argsort(0, false)
	if t == y.dtype {
		return y
	}
	defer y.Free()
	return y.Cast(t)
}

func (m Maker) float(op string, dims []int) *Tensor {
	t := m.floatType()
	if !t.IsFloat() {
		fail(op, ErrType, nil, "random numbers of type %v: use RandInt", t)
	}
	return m.make(op, t, dims)
}

// Rand returns random numbers, uniform in [0, 1), float32 on the scope's device.
func (s *Scope) Rand(dims ...int) *Tensor { return s.Typed(dtype.Invalid).Rand(dims...) }

// Randn returns random numbers of the standard normal distribution, float32 on the scope's device.
func (s *Scope) Randn(dims ...int) *Tensor { return s.Typed(dtype.Invalid).Randn(dims...) }

// RandInt returns random int64 integers in [lo, hi) on the scope's device.
func (s *Scope) RandInt(lo, hi int, dims ...int) *Tensor {
	return s.Typed(dtype.Invalid).RandInt(lo, hi, dims...)
}

// RandPerm returns a random permutation of 0 … n-1, int64 on the scope's device.
func (s *Scope) RandPerm(n int) *Tensor { return s.Typed(dtype.Invalid).RandPerm(n) }

// Uniform returns random numbers, uniform in [lo, hi), float32 on the scope's device.
func (s *Scope) Uniform(lo, hi float64, dims ...int) *Tensor {
	return s.Typed(dtype.Invalid).Uniform(lo, hi, dims...)
}

// Normal returns random numbers of the normal distribution, float32 on the scope's device.
func (s *Scope) Normal(mean, std float64, dims ...int) *Tensor {
	return s.Typed(dtype.Invalid).Normal(mean, std, dims...)
}

// Bernoulli returns ones with probability p and zeros, float32 on the scope's device.
func (s *Scope) Bernoulli(p float64, dims ...int) *Tensor {
	return s.Typed(dtype.Invalid).Bernoulli(p, dims...)
}

// Rand returns random numbers, uniform in [0, 1), float32 in the root scope, on the CPU.
func Rand(dims ...int) *Tensor { return root.Rand(dims...) }

// Randn returns random numbers of the standard normal distribution, float32 in the root scope, on
// the CPU.
func Randn(dims ...int) *Tensor { return root.Randn(dims...) }

// RandInt returns random int64 integers in [lo, hi) in the root scope, on the CPU.
func RandInt(lo, hi int, dims ...int) *Tensor { return root.RandInt(lo, hi, dims...) }

// RandPerm returns a random permutation of 0 … n-1, int64 in the root scope, on the CPU.
func RandPerm(n int) *Tensor { return root.RandPerm(n) }

// ManualSeed restarts the generator of the root scope with this seed. The seed is 0 at first, so a
// program that does not set it draws the same numbers in each run. To draw different numbers in
// each run, as PyTorch does, call ManualSeed(rand.Uint64()), with math/rand/v2.
func ManualSeed(seed uint64) { root.modes.gen.SetState(seed, 0) }

// redraw fills x in place. The gradient of x's old elements is 0. If x is a leaf, nothing
// is recorded, because the program is initialising x.
func (x *Tensor) redraw(op string, kind randomKind, params ...float64) *Tensor {
	x.use(op)
	x.mustFloat(op)
	if x.scope.GradEnabled() && !x.IsLeaf() {
		x.overwritten(op, x.writable(op), x)
	} else if x.layout.Overlaps() {
		panic(newError(op, ErrShape, []*Tensor{x}, "the tensor is expanded: several elements share one place").hint("use Clone first"))
	}
	x.fresh(kind, params...)
	x.st.version.Add(1)
	return x
}

// UniformInPlace overwrites x with random numbers in [lo, hi). x may also be a leaf that requires a
// gradient, for example a parameter that is initialised. If x is a result, the gradient of its old
// elements is 0.
func (x *Tensor) UniformInPlace(lo, hi float64) *Tensor {
	x.use("uniform")
	checkInterval(x.dtype, lo, hi, x)
	return x.redraw("uniform", uniformKind, lo, hi)
}

// NormalInPlace overwrites x with random numbers of the normal distribution. Gradients are as for
// [Tensor.UniformInPlace].
func (x *Tensor) NormalInPlace(mean, std float64) *Tensor {
	x.use("normal")
	checkDeviation(std, x)
	return x.redraw("normal", normalKind, mean, std)
}
