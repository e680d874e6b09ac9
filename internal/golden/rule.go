package golden

import (
	"fmt"
	"math"
)

// Rule says how near to PyTorch's a result must be. In float32 the reference is PyTorch's float64
// result for the same operands. Ours may be off by twice what PyTorch's own float32 result is, by 4
// ulp, or by 2⁻²³ of the sum of what is added up in it. NaN, infinities and the sign of zero are
// PyTorch's to the bit. In float64, which has no better reference, it is the same in its own
// precision, and no less than 1e-12 of the number.
type Rule struct {
	// Terms is, for each element, the sum of the absolute values of what is added up in it; nil
	// where nothing is.
	Terms []float64
	// Torn is where PyTorch leaves the sign of zero to chance; see [Result].
	Torn *Tensor
	// Rounded64 is how far PyTorch's float64 result is from the exact one, in proportion, where
	// that is more than its rounding.
	Rounded64 float64
}

// A Precision is what a floating-point type holds.
type Precision struct {
	bits int // of the significand after the point
	low  int // the exponent of the smallest normal number
	top  int // the exponent that the largest number is below
}

// The precisions of the types that results are compared in.
var (
	Half   = Precision{10, -14, 16}
	BFloat = Precision{7, -126, 128}
	Single = Precision{23, -126, 128}
	Double = Precision{52, -1022, 1024}
)

// rounded is v as the type has it where that is infinite, and v itself elsewhere.
func (p Precision) rounded(v float64) float64 {
	if p != Double && math.Abs(v) >= math.Ldexp(2-math.Ldexp(1, -p.bits-1), p.top-1) {
		return math.Inf(int(math.Copysign(1, v)))
	}
	return v
}

// Wrong compares got, of float64 if double and of float32 otherwise, with PyTorch's results in both
// types. It returns "" or a sentence about the worst element.
func (r Rule) Wrong(got []float64, double bool, t32, t64 Tensor) string {
	if double {
		return r.WrongIn(Double, got, t64, t64)
	}
	return r.WrongIn(Single, got, t32, t64)
}

// WrongIn is Wrong for a type of precision p: own is PyTorch's result in that type, ref that in
// float64. Of 16 bits it says what it says of float32.
func (r Rule) WrongIn(p Precision, got []float64, own, ref Tensor) string {
	double := p == Double
	w32, w64 := own.Float64s(), ref.Float64s()
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
		own := w32[i]
		tol := 4 * p.ulp(w)
		if double {
			own = w
			tol = max(tol, 1e-12*math.Abs(w), 1e-13, r.Rounded64*math.Abs(w))
		}
		if torn != nil && torn[i] && got[i] == 0 && own == 0 {
			continue
		}
		if ok, settled := p.exactly(got[i], own, w); !ok {
			return fmt.Sprintf("element %d of %v is %v; PyTorch has %v in this type and %v in float64", i, ref.Shape, got[i], own, w)
		} else if settled {
			continue
		}
		if r.Terms != nil && r.Terms[i] < math.Inf(1) {
			tol = max(tol, unit*r.Terms[i])
		}
		if d := math.Abs(own - w); d < math.Inf(1) {
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

// exactly reports whether g is what PyTorch's result demands where one of them is special, and
// whether that settles it. own is PyTorch's result in the type of g, ref that in float64.
//
// A NaN or an infinity must be PyTorch's, and PyTorch's must be ours. The exception is an overflow
// on the way in float32: then the float64 result is a number of float32, and ours may be that. A
// zero has PyTorch's sign; where its float32 and its float64 code contradict each other (which zero
// comes out of a sum of +0 and -0 depends on the order) either sign is PyTorch's.
func (p Precision) exactly(g, own, ref float64) (ok, settled bool) {
	r := p.rounded(ref)
	same := func(a, b float64) bool { return a == b || a != a && b != b }
	switch {
	case isSpecial(g):
		return same(g, own) || same(g, r), true
	case isSpecial(r):
		return false, true
	case isSpecial(own):
		return true, false
	case g == 0 && own == 0 && ref == 0:
		sign := math.Signbit(g)
		return sign == math.Signbit(own) || sign == math.Signbit(ref), true
	case g == 0 && own == 0:
		return math.Signbit(g) == math.Signbit(own), false
	}
	return true, false
}

// ulp is the distance between v and the next number of the type.
func (p Precision) ulp(v float64) float64 {
	if v == 0 || isSpecial(v) {
		return math.Ldexp(1, p.low-p.bits)
	}
	_, e := math.Frexp(v)
	return math.Ldexp(1, max(e-1, p.low)-p.bits)
}
