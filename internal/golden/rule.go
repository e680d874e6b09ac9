package golden

import (
	"fmt"
	"math"
)

// Rule says how close a result must be to PyTorch's. For a float32 result the reference is
// PyTorch's float64 result for the same operands. The allowed error is the largest of three
// numbers: twice the error of PyTorch's float32 result, 4 ulp, and 2⁻²³ of the sum of the
// magnitudes that were added to get the element. (An ulp is the distance to the next number of the
// type.) NaN, infinities and the sign of zero must equal PyTorch's exactly. A float64 result has no
// reference of higher precision. It must meet the same bounds in its own precision, or a relative
// error of 1e-12.
type Rule struct {
	// Terms holds, for each element, the sum of the magnitudes of the numbers that were added to
	// get it. It is nil if the elements are not sums.
	Terms []float64
	// Torn is true for each element for which PyTorch's result is a zero of arbitrary sign.
	Torn *Tensor
	// Rounded64 is the relative error of PyTorch's float64 result, if that is larger than the
	// rounding error of one operation.
	Rounded64 float64
}

// A Precision describes a floating-point type.
type Precision struct {
	bits int // number of bits of the significand after the binary point
	low  int // exponent of the smallest positive normal number
	top  int // exponent of the smallest power of two above all numbers
}

// These are the precisions of the types in which results are compared.
var (
	Half   = Precision{10, -14, 16}
	BFloat = Precision{7, -126, 128}
	Single = Precision{23, -126, 128}
	Double = Precision{52, -1022, 1024}
)

// rounded returns an infinity if rounding v to the type gives an infinity. Otherwise it returns v
// itself.
func (p Precision) rounded(v float64) float64 {
	if p != Double && math.Abs(v) >= math.Ldexp(2-math.Ldexp(1, -p.bits-1), p.top-1) {
		return math.Inf(int(math.Copysign(1, v)))
	}
	return v
}

// Wrong compares got with PyTorch's results in float32 (t32) and float64 (t64). If double is set,
// got was computed in float64, else in float32. Wrong returns "" if all elements are right, or a
// sentence about the worst element.
func (r Rule) Wrong(got []float64, double bool, t32, t64 Tensor) string {
	if double {
		return r.WrongIn(Double, got, t64, t64)
	}
	return r.WrongIn(Single, got, t32, t64)
}

// WrongIn compares got, computed in a type of precision p, with PyTorch's results in that type
// (typed) and in float64 (ref). Like Wrong, it returns "" or a sentence about the worst element.
// The rule for 16-bit types is the same as for float32.
func (r Rule) WrongIn(p Precision, got []float64, typed, ref Tensor) string {
	double := p == Double
	w32, w64 := typed.Float64s(), ref.Float64s()
	if len(got) != len(w64) {
		return fmt.Sprintf("%d elements, want %d", len(got), len(w64))
	}
	var torn []bool
	if r.Torn != nil {
		torn = r.Torn.Bools()
	}
	unit := math.Ldexp(1, -p.bits)
	worst, at, allowed := 0.0, -1, 0.0
	for i, w := range w64 {
		typed := w32[i]
		tol := 4 * p.ulp(w)
		if double {
			typed = w
			tol = max(tol, 1e-12*math.Abs(w), 1e-13, r.Rounded64*math.Abs(w))
		}
		if torn != nil && torn[i] && got[i] == 0 && typed == 0 {
			continue
		}
		if ok, settled := p.exactly(got[i], typed, w); !ok {
			return fmt.Sprintf("element %d of %v is %v; PyTorch has %v in this type and %v in float64", i, ref.Shape, got[i], typed, w)
		} else if settled {
			continue
		}
		if r.Terms != nil && r.Terms[i] < math.Inf(1) {
			tol = max(tol, unit*r.Terms[i])
		}
		if d := math.Abs(typed - w); d < math.Inf(1) {
			tol = max(tol, 2*d)
		}
		if over := math.Abs(got[i]-w) / tol; !(over <= worst) && !(over <= 1) {
			worst, at, allowed = over, i, tol
		}
	}
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("element %d of %v is %v, want %v: off by %.3g, %.3g is allowed", at, ref.Shape, got[at], w64[at], math.Abs(got[at]-w64[at]), allowed)
}

func isSpecial(v float64) bool { return v != v || math.IsInf(v, 0) }

// exactly decides whether an element g is right, if it can: it decides about values that are NaN,
// infinite or zero. The result settled reports whether g needs no further check. The result ok is
// false if g is wrong. The parameter typed is PyTorch's result in the type of g, and ref its result
// in float64.
//
// If g or typed is NaN or infinite, the two must be equal. There is one exception: if an
// intermediate result overflowed in PyTorch's float32 code, ref is a finite number of the type.
// Then g may be finite. A zero must have PyTorch's sign. If typed and ref are zeros of different
// signs, either sign is right: a sum of +0 and -0 depends on the order.
func (p Precision) exactly(g, typed, ref float64) (ok, settled bool) {
	r := p.rounded(ref)
	same := func(a, b float64) bool { return a == b || a != a && b != b }
	switch {
	case isSpecial(g):
		return same(g, typed) || same(g, r), true
	case isSpecial(r):
		return false, true
	case isSpecial(typed):
		return true, false
	case g == 0 && typed == 0 && ref == 0:
		sign := math.Signbit(g)
		return sign == math.Signbit(typed) || sign == math.Signbit(ref), true
	case g == 0 && typed == 0:
		return math.Signbit(g) == math.Signbit(typed), false
	}
	return true, false
}

// ulp returns the distance between v and the next number of the type.
func (p Precision) ulp(v float64) float64 {
	if v == 0 || isSpecial(v) {
		return math.Ldexp(1, p.low-p.bits)
	}
	_, e := math.Frexp(v)
	return math.Ldexp(1, max(e-1, p.low)-p.bits)
}
