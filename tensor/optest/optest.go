// Package optest is the table test of package tensor. It runs every declared op with all element
// types and layouts, on any device.
//
// The test of a device is one call:
//
//	func TestOps(t *testing.T) { optest.Run(t, dev, optest.Options{}) }
//
// [Run] tests every elementwise op ([tensor.Declared], including a user's own), every reduction
// ([tensor.Reductions]), and every heavy op and view in the package's table. Operands are
// contiguous, transposed, strided, broadcast, expanded, empty and scalar. Some have more than three
// dimensions. Run checks:
//
//   - values, against the op's float64 reference: within a few ulp in float32, within one ulp of
//     the rounded value in 16 bits, exactly for integers and bool;
//   - gradients: in float64 against central differences of the reference, and in float32 and 16
//     bits against the gradients in float64;
//   - second derivatives, in float64 against central differences of the gradients;
//   - functions in place, against the forms that return a new tensor;
//   - fast kernels, against the composition of primitives that they replace.
//
// The references share no code with package tensor. [Unwalked] names the ops and methods that no
// row of the table calls.
package optest

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Options reduce what [Run] tests.
type Options struct {
	// Small reduces the number of layouts and element types. It is for the race detector and for
	// emulated devices.
	Small bool
	// Sparse runs fewer tests of elementwise ops. In float32, or in int64 for ops of integers only,
	// it tests every layout. In the other types it tests the contiguous layout and one third of the
	// other layouts. This is enough because the computation of addresses does not depend on the
	// computation of elements. On a GPU each combination of a layout and a computation of elements
	// would need one more kernel.
	// Integers that a floating point function first converts are tested in the contiguous layout
	// only.
	Sparse bool
	// FirstOrder compares second derivatives with those on the CPU. The default is to compare them
	// with central differences, which need many small runs. FirstOrder is for emulated devices, on
	// which second derivatives are composed of the same ops as on the CPU.
	FirstOrder bool
	// Only, if set, selects the ops by name.
	Only func(op string) bool
}

// Test is a *testing.T. The package does not import testing, so that programs can show what [Run]
// checks: see [Matrix].
type Test[T any] interface {
	Helper()
	Errorf(format string, args ...any)
	Run(name string, f func(t T)) bool
}

// reporter holds the methods of a Test that report failures.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Run tests all ops on dev and returns what it checked.
func Run[T Test[T]](t T, dev device.Device, o Options) Walked {
	w := &walk{dev: dev, o: o, walked: Walked{}}
	t.Run("Elementwise", func(t T) { w.elementwise(t) })
	t.Run("Reductions", func(t T) { w.reductions(t) })
	t.Run("Heavy", func(t T) { w.heavy(t) })
	t.Run("InPlace", func(t T) { w.inPlaces(t) })
	t.Run("Sources", func(t T) { w.sources(t) })
	return w.walked
}

// walk is one call of Run.
type walk struct {
	dev    device.Device
	o      Options
	walked Walked
}

// skips reports whether Options.Sparse leaves out the test of op e in type ty with the operands of
// specs[spec].
func (w *walk) skips(e *tensor.Elementwise, ty dtype.Type, spec int) bool {
	first := dtype.F32
	if e.Result == tensor.Integral {
		first = dtype.I64
	}
	turn := len(e.Name) + int(e.Name[0]) + int(ty)
	switch dense := specs[spec].lay[0] == contiguous && len(specs[spec].dims) == 1; {
	case !w.o.Sparse || ty == first:
		return false
	case e.Result == tensor.Floating && !ty.IsFloat():
		return !dense
	case dense:
		return false
	}
	return (turn+spec)%3 != 0
}

func (w *walk) selects(op string) bool { return w.o.Only == nil || w.o.Only(op) }

// random returns a source of random numbers that depends only on names.
func random(names ...string) *rand.Rand {
	h := fnv.New64a()
	for _, n := range names {
		h.Write([]byte(n))
	}
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

// sample returns numbers of type t from [lo, hi]. Floats are rounded to t, integers are whole
// numbers, and bools are 0 and 1.
func sample(r *rand.Rand, t dtype.Type, lo, hi float64, dims ...int) array {
	a := newArray(dims...)
	for i := range a.v {
		v := lo + r.Float64()*(hi-lo)
		switch {
		case t == dtype.Bool:
			v = float64(r.IntN(2))
		case t.IsInteger():
			lo, hi := math.Ceil(lo), math.Floor(hi)
			if !t.IsSigned() {
				lo = max(lo, 0)
			}
			v = lo + math.Floor(r.Float64()*(hi-lo+1))
		}
		a.v[i] = round(t, v)
	}
	return a
}

// A layout says how an operand lies in its storage.
type layout string

const (
	contiguous layout = "contiguous"
	transposed layout = "transposed" // the first and the last dimension are swapped
	// there are gaps between the rows, and an offset before the first; the gaps hold NaN
	strided  layout = "strided"
	expanded layout = "expanded" // the first dimension has stride 0
)

// put makes a tensor from a on the device, in the layout. For an expanded operand, put repeats the
// first entry of a and changes a to match.
func (w *walk) put(s *tensor.Scope, a *array, t dtype.Type, l layout) *tensor.Tensor {
	n, home := len(a.dims), w.dev
	if !home.Info().Host { // cast on the host, because an emulated device casts slowly
		home = hostDevice()
	}
	host := func(a array) *tensor.Tensor {
		x := s.On(home).From(a.v).Reshape(a.dims...).Cast(t).To(w.dev)
		return x.Detach()
	}
	switch {
	case n == 0 || l == contiguous:
		return host(*a)
	case l == transposed:
		p := make([]int, n)
		for i := range p {
			p[i] = i
		}
		p[0], p[n-1] = n-1, 0
		return host(a.permute(p)).Transpose(0, n-1)
	case l == strided:
		wide := append([]int(nil), a.dims...)
		wide[n-1] += 3
		b := newArray(wide...)
		for i := range b.v {
			b.v[i] = math.NaN()
			if !t.IsFloat() {
				b.v[i] = 1
			}
		}
		each(a.dims, func(i int, idx []int) {
			to := append([]int(nil), idx...)
			to[n-1] += 2
			b.v[b.offset(to)] = a.v[i]
		})
		return host(b).Narrow(n-1, 2, a.dims[n-1])
	case l == expanded:
		one := append([]int(nil), a.dims...)
		one[0] = min(1, one[0])
		if one[0] == 0 {
			return host(*a)
		}
		b := a.narrow(0, 0, 1)
		*a = b.expand(a.dims)
		return host(b).Expand(a.dims...)
	}
	panic("optest: unknown layout " + string(l))
}

// guard runs f in a scope and reports the error of a panic.
func guard(t reporter, where string, f func(s *tensor.Scope)) {
	t.Helper()
	if err := tensor.Try(func() { tensor.Do(f) }); err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

// hostDevice returns the CPU, a device that package tensor always has.
func hostDevice() device.Device {
	d, err := device.Open("cpu")
	if err != nil {
		panic(err)
	}
	return d
}
