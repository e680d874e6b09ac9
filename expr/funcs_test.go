package expr

import (
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// spec describes how to test a function.
type spec struct {
	// lower and upper end of the arguments in the tests of float64 accuracy and of derivatives
	lo, hi  float64
	max32   float64                       // allowed error over all float32, in ulp
	max64   float64                       // allowed error over samples of float64, in ulp
	big     func(x *big.Float) *big.Float // reference for float64, with bigPrec bits
	special map[float64]float64           // arguments and their exact results, for both types
}

var nan, inf, negZero = math.NaN(), math.Inf(1), math.Copysign(0, -1)

var specs = map[string]spec{
	"exp":        {-745, 709.7, 1, 1, bigExp, map[float64]float64{0: 1, negZero: 1, inf: inf, -inf: 0, nan: nan, 1e9: inf, -1e9: 0}},
	"log":        {1e-310, 1e300, 1, 1.05, bigLog, map[float64]float64{0: -inf, negZero: -inf, inf: inf, -inf: nan, nan: nan, 1: 0, -1: nan, -1e-320: nan}},
	"exp2":       {-1074, 1023.9, 1, 1, bigExp2, map[float64]float64{0: 1, negZero: 1, inf: inf, -inf: 0, nan: nan, 1e9: inf, -1e9: 0, 10: 1024, -3: 0.125, 127: 0x1p127, -149: 0x1p-149}},
	"expm1":      {-50, 709.7, 1.5, 1.5, bigExpm1, map[float64]float64{0: 0, negZero: negZero, inf: inf, -inf: -1, nan: nan, 1e9: inf, -1e9: -1, 0x1p-149: 0x1p-149, -3e-320: -3e-320}},
	"rsqrt":      {1e-310, 1e300, 1.51, 1.51, bigRsqrt, map[float64]float64{0: inf, negZero: -inf, inf: 0, -inf: nan, nan: nan, 4: 0.5, -1: nan}},
	"log2":       {1e-310, 1e300, 1.1, 1.1, bigLog2, map[float64]float64{0: -inf, negZero: -inf, inf: inf, -inf: nan, nan: nan, 1: 0, -1: nan, 1024: 10, 0x1p-149: -149}},
	"log10":      {1e-310, 1e300, 1.1, 1.1, bigLog10, map[float64]float64{0: -inf, negZero: -inf, inf: inf, -inf: nan, nan: nan, 1: 0, -1: nan, 10: 1, 100: 2, 1000: 3, 1e10: 10}},
	"log1p":      {-1 + 0x1p-53, 1e300, 1.6, 1.1, bigLog1p, map[float64]float64{0: 0, negZero: negZero, inf: inf, -inf: nan, nan: nan, -1: -inf, -2: nan, 0x1p-149: 0x1p-149, -3e-320: -3e-320}},
	"sin":        {-math.MaxFloat64, math.MaxFloat64, 1.1, 1, bigSin, map[float64]float64{0: 0, negZero: negZero, inf: nan, -inf: nan, nan: nan, 0x1p-149: 0x1p-149, -3e-320: -3e-320}},
	"cos":        {-math.MaxFloat64, math.MaxFloat64, 1.1, 1, bigCos, map[float64]float64{0: 1, negZero: 1, inf: nan, -inf: nan, nan: nan, 0x1p-149: 1}},
	"tan":        {-math.MaxFloat64, math.MaxFloat64, 1.9, 1.6, bigTan, map[float64]float64{0: 0, negZero: negZero, inf: nan, -inf: nan, nan: nan, 0x1p-149: 0x1p-149, -3e-320: -3e-320}},
	"atan":       {-1e300, 1e300, 1.6, 1.6, bigAtan, map[float64]float64{0: 0, negZero: negZero, inf: math.Pi / 2, -inf: -math.Pi / 2, nan: nan, 0x1p-149: 0x1p-149, -3e-320: -3e-320}},
	"asin":       {-1, 1, 1.6, 1.6, bigAsin, map[float64]float64{0: 0, negZero: negZero, 1: math.Pi / 2, -1: -math.Pi / 2, 1.0001: nan, -2: nan, inf: nan, nan: nan, 0x1p-149: 0x1p-149}},
	"acos":       {-1, 1, 1.6, 1.6, bigAcos, map[float64]float64{0: math.Pi / 2, negZero: math.Pi / 2, 1: 0, -1: math.Pi, 1.0001: nan, -2: nan, inf: nan, nan: nan}},
	"sinh":       {-710, 710, 1.8, 1.8, bigSinh, map[float64]float64{0: 0, negZero: negZero, inf: inf, -inf: -inf, nan: nan, 0x1p-149: 0x1p-149, 1e9: inf, -1e9: -inf}},
	"cosh":       {-710, 710, 1.8, 1.8, bigCosh, map[float64]float64{0: 1, negZero: 1, inf: inf, -inf: inf, nan: nan, 1e9: inf, -1e9: inf}},
	"asinh":      {-1e300, 1e300, 1.6, 1.4, bigAsinh, map[float64]float64{0: 0, negZero: negZero, inf: inf, -inf: -inf, nan: nan, 0x1p-149: 0x1p-149}},
	"acosh":      {1, 1e300, 1.8, 1.8, bigAcosh, map[float64]float64{1: 0, 0.9999: nan, 0: nan, -inf: nan, inf: inf, nan: nan}},
	"atanh":      {-1 + 0x1p-53, 1 - 0x1p-53, 1.8, 1.8, bigAtanh, map[float64]float64{0: 0, negZero: negZero, 1: inf, -1: -inf, 1.0001: nan, -inf: nan, inf: nan, nan: nan, 0x1p-149: 0x1p-149}},
	"softplus":   {-740, 1e300, 1.8, 1.8, bigSoftplus, map[float64]float64{0: math.Ln2, inf: inf, -inf: 0, nan: nan, -1e9: 0, 1e9: 1e9}},
	"logsigmoid": {-1e300, 740, 1.8, 1.8, func(x *big.Float) *big.Float { return bigNeg(bigSoftplus(bigNeg(x))) }, map[float64]float64{0: -math.Ln2, inf: 0, -inf: -inf, nan: nan, -1e9: -1e9, 1e9: 0}},
	"erfc":       {-7, 27.2, 1.8, 1.8, bigErfc, map[float64]float64{0: 1, negZero: 1, inf: 0, -inf: 2, nan: nan, 1e9: 0, -1e9: 2}},
	"erfinv":     {-1 + 0x1p-53, 1 - 0x1p-53, 1.6, 1.8, bigErfinv, map[float64]float64{0: 0, negZero: negZero, 1: inf, -1: -inf, 1.0001: nan, -3: nan, inf: nan, -inf: nan, nan: nan}},
	"tanh":       {-20, 20, 1.8, 1.5, bigTanh, map[float64]float64{0: 0, negZero: negZero, inf: 1, -inf: -1, nan: nan}},
	"sigmoid":    {-740, 40, 2, 1.7, bigSigmoid, map[float64]float64{0: 0.5, negZero: 0.5, inf: 1, -inf: 0, nan: nan}},
	"erf":        {-6, 6, 1.5, 1.5, bigErf, map[float64]float64{0: 0, negZero: negZero, inf: 1, -inf: -1, nan: nan}},
}

// unary returns a function that evaluates the named function for an operand of type t, given as
// bits.
func unary(name string, t dtype.Type) func(b uint64) uint64 {
	p := MustLower([]*Expr{Call(name, X(0))}, []dtype.Type{t}, []dtype.Type{t}, -1)
	dst, x := make([]uint64, 0, 1), make([]uint64, 1)
	return func(b uint64) uint64 {
		x[0] = b
		return p.Eval(dst[:0], x, nil, 0)[0]
	}
}

func forEachUnary(t *testing.T, run func(t *testing.T, name string, f *Func, s spec)) {
	var names []string
	for name, f := range Funcs() {
		// TestGelu tests the functions gelu and gelu_tanh.
		if f.Arity == 1 && name != "gelu" && name != "gelu_tanh" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s, ok := specs[name]
			if !ok {
				t.Fatal("no entry in the table of tests")
			}
			run(t, name, Funcs()[name], s)
		})
	}
}

// ulps32 returns |got-want| in units in the last place of the float32 numbers near want. It returns
// 0 for equal special values.
func ulps32(got float32, want float64) float64 {
	w := float32(want)
	switch {
	case want != want || math.IsInf(float64(w), 0) || got != got || math.IsInf(float64(got), 0):
		if got == w || got != got && w != w {
			return 0
		}
		if math.IsInf(float64(got), 0) && math.Signbit(float64(got)) == math.Signbit(want) && math.Abs(want) > 0x1.fffffep127 ||
			math.IsInf(float64(w), 0) && !math.IsInf(want, 0) && got == got {
			// only one of got and want is infinite, because rounding crossed the largest float32
			return math.Abs(math.Min(math.Abs(float64(got)), 0x1p128)-math.Abs(want)) / 0x1p104
		}
		return math.Inf(1)
	case want == 0:
		if got == 0 && math.Signbit(float64(got)) == math.Signbit(want) {
			return 0
		}
		return math.Inf(1)
	}
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// TestFloat32Accuracy compares each function for float32 arguments with package math's function in
// float64. By default it samples the arguments. With FLAMBEAU_SOAK=1 it tests all float32 numbers,
// which takes an hour for each function. With FLAMBEAU_SOAK=n it tests every nth number.
func TestFloat32Accuracy(t *testing.T) {
	stride := uint64(90001)
	if s := os.Getenv("FLAMBEAU_SOAK"); s != "" {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil || n == 0 {
			t.Fatalf("FLAMBEAU_SOAK=%s: want 1, or a stride", s)
		}
		stride = n
	}
	forEachUnary(t, func(t *testing.T, name string, f *Func, s spec) {
		var mu sync.Mutex
		worst, at := 0.0, float32(0)
		var wg sync.WaitGroup
		workers := uint64(runtime.GOMAXPROCS(0))
		for w := range workers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				eval := unary(name, dtype.F32)
				x := make([]float64, 1)
				top, where := 0.0, float32(0)
				for b := w * stride; b < 1<<32; b += workers * stride {
					v := math.Float32frombits(uint32(b))
					x[0] = float64(v)
					if u := ulps32(math.Float32frombits(uint32(eval(b))), f.Ref(x)); u > top {
						top, where = u, v
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if top > worst {
					worst, at = top, where
				}
			}()
		}
		wg.Wait()
		p := MustLower([]*Expr{Call(name, X(0))}, f32, f32, -1)
		t.Logf("%s: largest error %.3f ulp at %v (%#x); %d operations", name, worst, at, math.Float32bits(at), p.Cost())
		if worst > s.max32 {
			got := math.Float32frombits(uint32(unary(name, dtype.F32)(uint64(math.Float32bits(at)))))
			t.Errorf("more than %v ulp: got %v want %v", s.max32, got, f.Ref([]float64{float64(at)}))
		}
	})
}

func TestSpecialValues(t *testing.T) {
	same := func(a, b float64) bool {
		return a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b
	}
	forEachUnary(t, func(t *testing.T, name string, f *Func, s spec) {
		for x, want := range s.special {
			for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
				b := Encode(ty, x)
				if v := Decode(ty, b); v != x && x == x && v == 0 {
					continue // x is too small for float32
				}
				if got := Decode(ty, unary(name, ty)(b)); !same(got, Decode(ty, Encode(ty, want))) {
					t.Errorf("%s(%v) in %v = %v want %v", name, x, ty, got, want)
				}
			}
		}
	})
}

// TestFloat64Accuracy compares results with values computed in arbitrary precision. Some samples
// are uniform over the function's interval. Others have a uniform exponent. The rest are near 0 and
// ±1.
func TestFloat64Accuracy(t *testing.T) {
	n := 700
	if os.Getenv("FLAMBEAU_SOAK") != "" {
		n = 100000
	}
	forEachUnary(t, func(t *testing.T, name string, f *Func, s spec) {
		eval := unary(name, dtype.F64)
		r := rand.New(rand.NewPCG(5, uint64(len(name))))
		worst, at := 0.0, 0.0
		for i := range n {
			var x float64
			switch i % 4 {
			case 0:
				u := r.Float64()
				x = s.lo*(1-u) + s.hi*u
			case 1:
				x = (r.Float64()*2 - 1) * 3
			case 2:
				x = 1 - 2*float64(r.IntN(2)) + math.Ldexp(r.Float64()-0.5, -r.IntN(50))
			default:
				x = math.Float64frombits(r.Uint64())
			}
			if !(x >= s.lo && x <= s.hi) || x == 0 {
				continue
			}
			got := math.Float64frombits(eval(math.Float64bits(x)))
			if u := ulps64(got, s.big(new(big.Float).SetPrec(bigPrec).SetFloat64(x))); u > worst {
				worst, at = u, x
			}
		}
		p := MustLower([]*Expr{Call(name, X(0))}, f64, f64, -1)
		t.Logf("%s: largest error %.3f ulp at %v; %d operations", name, worst, at, p.Cost())
		if worst > s.max64 {
			want, _ := s.big(new(big.Float).SetPrec(bigPrec).SetFloat64(at)).Float64()
			t.Errorf("more than %v ulp: got %v want %v", s.max64, math.Float64frombits(eval(math.Float64bits(at))), want)
		}
	})
}

// TestDerivatives compares Diff with central differences in float64, and Ref with the expanded
// formula.
func TestDerivatives(t *testing.T) {
	forEachUnary(t, func(t *testing.T, name string, f *Func, s spec) {
		lo, hi := math.Max(s.lo, -5), math.Min(s.hi, 5)
		if name == "tan" { // central differences are inaccurate near the poles
			lo, hi = -1.3, 1.3
		}
		checkDerivatives(t, name, f, [][2]float64{{lo, hi}})
	})
}

func checkDerivatives(t *testing.T, name string, f *Func, dom [][2]float64) {
	t.Helper()
	args := make([]*Expr, f.Arity)
	for i := range args {
		args[i] = X(i)
	}
	e := Call(name, args...)
	in := make([]dtype.Type, f.Arity)
	for i := range in {
		in[i] = dtype.F64
	}
	val := MustLower([]*Expr{e}, f64, in, -1)
	r := rand.New(rand.NewPCG(7, 8))
	for i := range f.Arity {
		d := Diff(e, i)
		if d == nil {
			t.Fatalf("%s has no derivative", name)
		}
		grad := MustLower([]*Expr{d}, f64, append(in, dtype.F64), f.Arity)
		for range 200 {
			x, b := make([]float64, f.Arity), make([]uint64, f.Arity)
			for k, iv := range dom {
				margin := 1e-3 * (iv[1] - iv[0])
				x[k] = iv[0] + margin + (iv[1]-iv[0]-2*margin)*r.Float64()
				b[k] = math.Float64bits(x[k])
			}
			y := math.Float64frombits(val.Eval(nil, b, nil, 0)[0])
			if ref := f.Ref(x); math.Abs(y-ref) > 1e-14*(math.Abs(ref)+1e-300) {
				t.Fatalf("%s(%v) = %v, by Ref %v", name, x, y, ref)
			}
			got := math.Float64frombits(grad.Eval(nil, append(b, math.Float64bits(y)), nil, 0)[0])
			h := 1e-4 * math.Min(1, math.Abs(x[i])+1e-3)
			at := func(v float64) float64 {
				c := append([]float64(nil), x...)
				c[i] = v
				return f.Ref(c)
			}
			// the five-point formula has an error of O(h⁴)
			want := (8*(at(x[i]+h)-at(x[i]-h)) - (at(x[i]+2*h) - at(x[i]-2*h))) / (12 * h)
			if math.Abs(got-want) > 1e-7*(math.Abs(want)+math.Abs(y)+1e-3) {
				t.Fatalf("%s d%d at %v: %v want %v", name, i, x, got, want)
			}
		}
	}
}
