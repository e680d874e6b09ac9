package autograd

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// CheckOptions configures [Check]. The zero value has torch's defaults.
type CheckOptions struct {
	Eps float64 // half the distance between the two points of a difference; 0 means 1e-6
	// A gradient and the central difference may differ by Atol + Rtol·|difference|. If Atol and
	// Rtol are both 0, Check uses 1e-5 and 1e-3.
	Atol, Rtol float64
	// also check the derivatives of the gradients: torch.autograd.gradgradcheck
	SecondOrder bool
}

// A CheckError says which derivative is wrong.
type CheckError struct {
	Order int // order of the derivative: 1, or 2 for the derivative of a gradient
	Of    int // if Order is 2, number of the input whose gradient is differentiated
	// index of the differentiated element, in the result or (if Order is 2) in the gradient
	Output []int
	// Input is the number of the input with respect to which the derivative is taken, and At is the
	// index of the element in that input. Gradients also depend on the gradient of the result. If
	// Order is 2, this gradient counts as one more input, after all others.
	Input   int
	At      []int
	Got     float64 // derivative as the VJPs compute it
	Want    float64 // derivative as central differences compute it
	Allowed float64 // allowed difference between Got and Want
}

func (e *CheckError) Error() string {
	of := "the result"
	if e.Order == 2 {
		of = fmt.Sprintf("the gradient of input %d", e.Of)
	}
	return fmt.Sprintf("autograd: the derivative of %s at %v by input %d at %v is %.10g, by differences %.10g: they are %.3g apart, %.3g is allowed",
		of, e.Output, e.Input, e.At, e.Got, e.Want, math.Abs(e.Got-e.Want), e.Allowed)
}

// ErrNondeterministic is the error for a function that returns different results for the same
// input.
var ErrNondeterministic = errors.New("autograd: the function is not deterministic")

// Check compares the gradients of f at inputs with central differences: torch.autograd.gradcheck,
// and with SecondOrder gradgradcheck. It returns nil if they agree, otherwise a *[CheckError] for
// the first derivative that differs. If f panics with a *tensor.Error, it returns that error.
//
// Differences need float64. So inputs must be float64, on any device; inputs of integer type are
// held fixed. f must compute in float64 too, and be deterministic (dropout is not). It must be
// smooth around the inputs: at a kink, such as 0 of relu, the difference is the slope of neither
// side. Check calls f twice for every element of the inputs, so use small inputs. The inputs'
// gradients and graphs do not change.
func Check(f func(x []*tensor.Tensor) *tensor.Tensor, inputs []*tensor.Tensor, o CheckOptions) (err error) {
	if o.Eps == 0 {
		o.Eps = 1e-6
	}
	if o.Atol == 0 && o.Rtol == 0 {
		o.Atol, o.Rtol = 1e-5, 1e-3
	}
	if trouble := tensor.Try(func() { err = check(f, inputs, o) }); trouble != nil {
		return trouble
	}
	return err
}

func check(f func(x []*tensor.Tensor) *tensor.Tensor, inputs []*tensor.Tensor, o CheckOptions) error {
	for i, x := range inputs {
		if t := x.Type(); t.IsFloat() && t != dtype.F64 {
			e := tensor.NewError("check", tensor.ErrType, fmt.Sprintf("input %d is of type %v; differences need float64", i, t), inputs...)
			e.Hint = "use Double, or hold it fixed in the function"
			return e
		}
	}
	if err := compare(f, inputs, o); err != nil || !o.SecondOrder {
		return err
	}
	var v *tensor.Tensor // the gradient of the result
	withLeaves("check", inputs, func(leaves, _ []*tensor.Tensor) []*tensor.Tensor {
		y := result("check", f, leaves)
		v = random(inputs[0].Scope().On(y.Device()), y.Shape().Slice())
		return nil
	})
	defer v.Free()
	for k, x := range inputs {
		if !x.Type().IsFloat() {
			continue
		}
		err := compare(func(x []*tensor.Tensor) *tensor.Tensor {
			x, v := x[:len(x)-1], x[len(x)-1]
			y := result("check", f, x)
			if !y.NeedsGrad() {
				return x[k].Detach().ZerosLike()
			}
			if g := tensor.Gradients(y, x[k:k+1], tensor.GradOutput(v), tensor.CreateGraph(), tensor.AllowUnused())[0]; g != nil {
				return g
			}
			return x[k].Detach().ZerosLike()
		}, append(slices.Clip(inputs), v), o)
		var wrong *CheckError
		if errors.As(err, &wrong) {
			wrong.Order, wrong.Of = 2, k
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// random returns a tensor of shape dims, made by m. The absolute values of its elements lie in [½,
// 1). Each call returns the same elements.
func random(m tensor.Maker, dims []int) *tensor.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		if v[i] = 0.5 + r.Float64()/2; r.IntN(2) == 0 {
			v[i] = -v[i]
		}
	}
	return m.From(v).Reshape(dims...)
}

func compare(f func(x []*tensor.Tensor) *tensor.Tensor, inputs []*tensor.Tensor, o CheckOptions) error {
	values := make([][]float64, len(inputs))
	for k, x := range inputs {
		if x.Type().IsFloat() {
			values[k] = x.Floats()
		}
	}
	// eval calls f with leaves whose elements are those in values. Then it calls use with the
	// leaves and the result.
	eval := func(use func(wanted []*tensor.Tensor, y *tensor.Tensor)) {
		withLeaves("check", inputs, func(leaves, _ []*tensor.Tensor) []*tensor.Tensor {
			var wanted []*tensor.Tensor
			for k, x := range leaves {
				if values[k] != nil {
					leaves[k] = x.Scope().On(x.Device()).From(values[k]).Reshape(x.Shape().Slice()...).Detach().RequiresGrad()
					wanted = append(wanted, leaves[k])
				}
			}
			y := result("check", f, leaves)
			if y.Type() != dtype.F64 {
				e := tensor.NewError("check", tensor.ErrType, fmt.Sprintf("the function returns %v; differences need float64", y.Type()), y)
				e.Hint = "is there a cast, or a parameter of another type, in it?"
				panic(e)
			}
			use(wanted, y)
			return nil
		})
	}
	point := func() (y []float64) {
		eval(func(_ []*tensor.Tensor, t *tensor.Tensor) { y = t.Floats() })
		return y
	}
	var dims []int
	var y []float64
	var got [2][][]float64 // the derivatives, computed twice to find nondeterminism
	for i := range got {
		eval(func(wanted []*tensor.Tensor, t *tensor.Tensor) {
			dims, y = t.Shape().Slice(), t.Floats()
			for _, d := range rows("check", t.Reshape(-1), wanted) {
				got[i] = append(got[i], d.Floats())
			}
		})
	}
	if !same(y, point()) {
		return fmt.Errorf("%w: its result changes from call to call", ErrNondeterministic)
	}
	n := 0
	for k, x := range inputs {
		if values[k] == nil {
			continue
		}
		if !same(got[0][n], got[1][n]) {
			return fmt.Errorf("%w: the gradient of input %d changes from call to call", ErrNondeterministic, k)
		}
		for j, v := range values[k] {
			values[k][j] = v + o.Eps
			hi := point()
			values[k][j] = v - o.Eps
			lo := point()
			values[k][j] = v
			for i := range hi {
				want, have := (hi[i]-lo[i])/(2*o.Eps), got[0][n][i*len(values[k])+j]
				if allowed := o.Atol + o.Rtol*math.Abs(want); !(math.Abs(have-want) <= allowed) {
					return &CheckError{Order: 1, Output: index(dims, i), Input: k, At: index(x.Shape().Slice(), j), Got: have, Want: want, Allowed: allowed}
				}
			}
		}
		n++
	}
	return nil
}

func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
}

// index returns the index in each dimension of element i, in row-major order, of a tensor of the
// given shape.
func index(dims []int, i int) []int {
	at := make([]int, len(dims))
	for k := len(dims) - 1; k >= 0; k-- {
		at[k] = i % dims[k]
		i /= dims[k]
	}
	return at
}
