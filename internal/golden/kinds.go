package golden

import (
	"math"
	"slices"
	"strings"
)

// Kinds holds the kinds of operands, as returned by [Case.Kinds], that the cases of an op must
// cover together.
var Kinds = []string{"ordinary", "strided", "broadcast", "empty", "extreme"}

// Kinds returns the kinds of operands that a case has, according to the operands and to the
// beginning of the case's name. The kinds are strided (a transposed or narrowed operand), broadcast
// (an expanded operand, or operands of several shapes), empty (an operand without elements),
// extreme and ordinary. An extreme operand has NaN, infinities, denormal numbers, or int64 numbers
// of magnitude 2⁶² and more. For floats, Kinds also returns "NaN", "infinity" or "denormal" if an
// operand has such numbers.
func (c Case) Kinds() (kinds []string) {
	name := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) })
	}
	strided, wide, empty, extreme := name("transposed", "strided", "narrowed"), name("broadcast", "expanded"), name("empty"), name("extreme")
	special := map[string]bool{}
	var first []int
	for i, o := range c.In {
		for _, v := range o.Views {
			strided = strided || v.Name != "expand"
			wide = wide || v.Name == "expand"
		}
		shape := o.Shape()
		if i == 0 {
			first = shape
		} else if !slices.Equal(first, shape) {
			wide = true
		}
		empty = empty || slices.Contains(shape, 0)
		switch {
		case o.Base.IsFloat():
			for _, v := range o.Base.Float64s() {
				special["NaN"] = special["NaN"] || v != v
				special["infinity"] = special["infinity"] || math.IsInf(v, 0)
				special["denormal"] = special["denormal"] || v != 0 && math.Abs(v) < 0x1p-126
			}
		case o.Base.DType == "I64":
			for _, v := range o.Base.Int64s() {
				extreme = extreme || v >= 1<<62 || v <= -1<<62
			}
		}
	}
	for kind, is := range special {
		if is {
			kinds, extreme = append(kinds, kind), true
		}
	}
	for kind, is := range map[string]bool{"strided": strided, "broadcast": wide, "empty": empty, "extreme": extreme, "ordinary": !strided && !empty && !extreme} {
		if is {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Shape returns the shape of the operand after its views.
func (o Operand) Shape() []int {
	s := slices.Clone(o.Base.Shape)
	for _, v := range o.Views {
		switch v.Name {
		case "transpose":
			s[v.Args[0]], s[v.Args[1]] = s[v.Args[1]], s[v.Args[0]]
		case "narrow":
			s[v.Args[0]] = v.Args[2]
		case "expand":
			s = slices.Clone(v.Args)
		}
	}
	return s
}
