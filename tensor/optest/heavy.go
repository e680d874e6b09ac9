package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// row describes one case of a heavy op (any op that is neither elementwise nor a reduction), of a
// view or of an in-place form.
type row struct {
	op string
	// methods of *tensor.Tensor, or functions of package tensor, that the row tests
	methods []string
	in      [][]int // shapes of the operands
	index   map[int]int
	call    func(x []*tt) *tt
	ref     func(x []array) array
	// returns the sum of the absolute terms of each element; nil if the result is exact
	terms  func(x []array) array
	ints   bool // true if the op is defined for integers and bool as well
	noGrad bool
	// true if devices may have fast kernels; the tests then also run the composition of other ops
	kernels bool
	result  dtype.Type
	// type of the result for integers and bool; Invalid means their own type
	whole dtype.Type
	// floating point types that the op accepts, float64 first; nil means all
	only          []dtype.Type
	noBool        bool
	reads         int    // number of numbers that the op reads back from the device, to learn sizes
	uploads       int    // number of lists that the op uploads from the host
	text          string // the expression, for an op whose argument is text
	roundsWeights bool   // true if a GPU rounds weights of at most 1 to the type of 16-bit operands
	// true if the op rounds intermediate results to the operands' type; these results may be as
	// large as the sums that the function terms returns
	rounds bool
}

func (r *row) String() string {
	if r.text != "" {
		return fmt.Sprintf("%s %q %v", r.op, r.text, r.in)
	}
	return fmt.Sprintf("%s %v", r.op, r.in)
}

// floatTypes lists the floating point types with which rows are tested. float64 comes first.
// Its gradients are compared with central differences. The gradients of the other types are
// compared with those in float64.
var floatTypes = []dtype.Type{dtype.F64, dtype.F32, dtype.BF16, dtype.F16}

// secondOrder reports whether second derivatives of the row's op are checked. They are not checked
// if the op rounds its result to another type, because differences in float64 do not contain that
// rounding.
func (r *row) secondOrder() bool {
	return !r.noGrad && (r.result == dtype.Invalid || r.result == dtype.F64) && r.leaves() > 0
}

func (r *row) floats() []dtype.Type {
	if r.only != nil {
		return r.only
	}
	return floatTypes
}

// integers returns the types other than floating point that a row accepts if its field ints is set.
func (r *row) integers() []dtype.Type {
	return slices.DeleteFunc(dtype.Types(), func(t dtype.Type) bool { return t.IsFloat() || r.noBool && t == dtype.Bool })
}

// leaves returns the number of operands that are not indices.
func (r *row) leaves() int { return len(r.in) - len(r.index) }

func (w *walk) heavy(t reporter) {
	for _, r := range table() {
		if !w.selects(r.op) {
			continue
		}
		layouts := []layout{contiguous, transposed, strided, expanded}
		floats := r.floats()
		if w.o.Small {
			layouts, floats = layouts[:2], floats[:min(3, len(floats))]
		}
		modes := [][]tensor.Option{nil}
		if r.kernels {
			modes = append(modes, []tensor.Option{tensor.Composed()})
		}
		for m, mode := range modes {
			name := r.String()
			if m == 1 {
				name += " composed"
			}
			for _, lay := range layouts {
				w.heavyCase(t, name, &r, lay, floats, mode)
			}
			if !w.o.Small && r.secondOrder() {
				w.heavySecond(t, name, &r, mode)
			}
		}
		if r.ints {
			for _, ty := range r.integers() {
				if !w.o.Small || ty == dtype.I64 {
					w.heavyInts(t, &r, ty)
				}
			}
		}
	}
}

// operands samples a row's operands. An operand holds numbers, or indices below a bound.
func (r *row) operands(t dtype.Type) []array {
	src := random(r.String())
	in := make([]array, len(r.in))
	for k, dims := range r.in {
		if bound, ok := r.index[k]; ok {
			in[k] = sample(src, dtype.I64, 0, float64(bound-1), dims...)
			continue
		}
		in[k] = sample(src, t, -2, 2, dims...)
	}
	return in
}

// place puts the operands on the device in the given layout. An expanded operand repeats its first
// entry, and place changes the array to match.
func (r *row) place(w *walk, s *tensor.Scope, in []array, t dtype.Type, lay layout) (x, leaves []*tt, at []int) {
	for k := range in {
		if _, ok := r.index[k]; ok {
			l := lay
			if l == expanded || l == strided {
				l = contiguous
			}
			x = append(x, w.put(s, &in[k], dtype.I64, l))
			continue
		}
		v := w.put(s, &in[k], t, lay)
		if t.IsFloat() && !r.noGrad {
			leaves, at = append(leaves, v.RequiresGrad()), append(at, k)
		}
		x = append(x, v)
	}
	return
}

func (w *walk) heavyCase(t reporter, name string, r *row, lay layout, types []dtype.Type, mode []tensor.Option) {
	in := r.operands(dtype.BF16)
	var grads, sizes []array
	for _, ty := range types {
		where := fmt.Sprintf("%s %s %v", name, lay, ty)
		if w.walked.addRow(r, ty, 0); !r.noGrad && r.leaves() > 0 {
			w.walked.addRow(r, ty, 1)
		}
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				x, leaves, at := r.place(w, s, in, ty, lay)
				y := r.call(x)
				want, result := r.ref(in), ty
				if r.result != dtype.Invalid {
					result = r.result
				}
				var terms array
				if r.terms != nil {
					// If the result of terms has another length, its first entry applies to every
					// element.
					if terms = r.terms(in); len(terms.v) != len(want.v) {
						all := terms.v[0]
						terms = newArray(want.dims...).apply(func(float64) float64 { return all })
					}
				}
				acc := 0x1p-24
				if ty == dtype.F64 {
					acc = 0x1p-53
				}
				want = want.rounded(result)
				if msg := differs(y, result, want, func(i int) float64 {
					if terms.v == nil {
						return 0
					}
					tol := 2*ulp(result, want.v[i]) + 8*acc*terms.v[i]
					if r.roundsWeights && ty.IsHalf() && !w.dev.Info().Host {
						tol += ulp(result, 1)
					}
					if r.rounds {
						tol += ulp(result, terms.v[i])
					}
					return tol
				}); msg != "" {
					t.Errorf("%s: %s", where, msg)
					return
				}
				if r.noGrad || len(leaves) == 0 {
					return
				}
				seed := sample(random(r.op, "seed"), dtype.BF16, -1, 1, want.dims...)
				if grads == nil {
					for _, k := range at {
						g, size := r.jacobian(in, k, seed)
						grads, sizes = append(grads, g), append(sizes, size)
					}
				}
				tol := 16 * ulp(ty, 1)
				if ty == dtype.F64 {
					tol = 1e-8
				}
				for n, g := range tensor.Gradients(y, leaves, tensor.GradOutput(w.put(s, &seed, y.Type(), contiguous)), tensor.AllowUnused()) {
					if g == nil {
						t.Errorf("%s gradient %d: none", where, at[n])
						continue
					}
					if msg := differs(g, ty, grads[n], func(i int) float64 { return tol*sizes[n].v[i] + 1e-9 }); msg != "" {
						t.Errorf("%s gradient %d: %s", where, at[n], msg)
					}
				}
			}, mode...)
		})
		if err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// jacobian returns the gradient of Σ seed·ref with respect to operand k, by central differences. It
// also returns the sum of the absolute terms of each entry.
func (r *row) jacobian(in []array, k int, seed array) (g, size array) {
	g, size = newArray(in[k].dims...), newArray(in[k].dims...)
	moved := slices.Clone(in)
	moved[k] = in[k].clone()
	for i, v := range in[k].v {
		moved[k].v[i] = v + step
		hi := r.ref(moved)
		moved[k].v[i] = v - step
		lo := r.ref(moved)
		moved[k].v[i] = v
		for o := range hi.v {
			d := seed.v[o] * (hi.v[o] - lo.v[o]) / (2 * step)
			g.v[i] += d
			size.v[i] += math.Abs(d)
		}
		size.v[i] += 0.25 // this allows for terms that cancel inside a derivative
	}
	return g, size
}

func (w *walk) heavyInts(t reporter, r *row, ty dtype.Type) {
	in := r.operands(ty)
	w.walked.addRow(r, ty, 0)
	guard(t, r.String()+" "+ty.String(), func(s *tensor.Scope) {
		x, _, _ := r.place(w, s, in, ty, transposed)
		result := ty
		if r.result != dtype.Invalid {
			result = r.result
		} else if r.whole != dtype.Invalid {
			result = r.whole
		}
		if msg := differs(r.call(x), result, r.ref(in).rounded(result), func(int) float64 { return 0 }); msg != "" {
			t.Errorf("%s %v: %s", r, ty, msg)
		}
	})
}

// heavySecond compares the gradient of Σ weight·gradient with central differences, in float64. With
// Options.FirstOrder it compares that gradient with the CPU's.
func (w *walk) heavySecond(t reporter, name string, r *row, mode []tensor.Option) {
	in := r.operands(dtype.F32)
	w.walked.addRow(r, dtype.F64, 2)
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			inner := func(w *walk, s *tensor.Scope, in []array, opts ...tensor.GradOption) (*tt, []*tt, []int) {
				x, leaves, at := r.place(w, s, in, dtype.F64, contiguous)
				// Because of the square, the gradient that arrives at the op depends on the
				// operands too.
				y := r.call(x).Square()
				seed := sample(random(r.op, "seed"), dtype.F32, 0.5, 1, y.Shape().Slice()...)
				var sum *tt
				for n, g := range tensor.Gradients(y, leaves, append(opts, tensor.GradOutput(w.put(s, &seed, y.Type(), contiguous)))...) {
					weight := sample(random(r.op, "weight", fmt.Sprint(n)), dtype.F32, 0.5, 1, g.Shape().Slice()...)
					part := g.Mul(w.put(s, &weight, dtype.F64, contiguous)).Sum()
					if sum == nil {
						sum = part
					} else {
						sum = sum.Add(part)
					}
				}
				return sum, leaves, at
			}
			twice := func(w *walk) ([]*tt, []int) {
				sum, leaves, at := inner(w, s, in, tensor.CreateGraph())
				got := make([]*tt, len(leaves))
				if sum.NeedsGrad() {
					got = tensor.Gradients(sum, leaves, tensor.AllowUnused())
				}
				return got, at
			}
			got, at := twice(w)
			if w.o.FirstOrder {
				want, _ := twice(&walk{dev: hostDevice()})
				sameSecond(t, name, got, want, at)
				return
			}
			for n, k := range at {
				want := newArray(in[k].dims...)
				moved := slices.Clone(in)
				moved[k] = in[k].clone()
				value := func(v float64, i int) (f float64) {
					moved[k].v[i] = v
					s.Do(func(c *tensor.Scope) {
						y, _, _ := inner(w, c, moved)
						f = y.Item()
					})
					return f
				}
				for i, v := range in[k].v {
					want.v[i] = (value(v+step, i) - value(v-step, i)) / (2 * step)
					moved[k].v[i] = v
				}
				have := newArray(in[k].dims...).v
				if got[n] != nil {
					have = got[n].Floats()
				}
				if msg := differ(have, want, func(i int) float64 { return 1e-7 * (10 + math.Abs(want.v[i])) }); msg != "" {
					t.Errorf("%s second order, operand %d: %s", name, k, msg)
				}
			}
		}, mode...)
	})
	if err != nil {
		t.Errorf("%s second order: %v", name, err)
	}
}
