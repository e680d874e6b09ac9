package tensor

import (
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// An equation names each dimension of each operand, and of the result, by a byte. The byte is a
// letter, or 1, 2, … for a dimension of an ellipsis, counted from the ellipsis' last dimension.
type equation struct {
	in  [][]byte
	out []byte
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// einsumTerm returns the names in one term of an equation. hidden is the number of dimensions that
// its ellipsis stands for.
func einsumTerm(term string, hidden int, x []*Tensor) []byte {
	var names []byte
	dots := false
	for i := 0; i < len(term); i++ {
		switch c := term[i]; {
		case strings.IndexByte(letters, c) >= 0:
			names = append(names, c)
		case strings.HasPrefix(term[i:], "...") && !dots:
			dots = true
			for k := hidden; k > 0; k-- {
				names = append(names, byte(k))
			}
			i += 2
		default:
			fail("einsum", ErrValue, x, "the equation has %q in %q: dimensions are letters, and one ellipsis (...) stands for the others", c, term)
		}
	}
	return names
}

// parseEinsum reads an equation, and finds which dimensions of x its ellipses stand for.
func parseEinsum(eq string, x []*Tensor) equation {
	left, right, explicit := strings.Cut(strings.ReplaceAll(eq, " ", ""), "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(x) {
		fail("einsum", ErrValue, x, "the equation %q has %d operands, %d tensors are given", eq, len(terms), len(x))
	}
	var e equation
	count, most := [256]int{}, 0
	for k, term := range terms {
		named := strings.Replace(term, "...", "", 1)
		hidden := 0
		if len(named) < len(term) {
			hidden = x[k].Rank() - len(named)
		}
		if hidden < 0 || len(named)+hidden != x[k].Rank() {
			fail("einsum", ErrShape, x, "%q names %d dimensions, operand %d has %d", term, len(named), k, x[k].Rank())
		}
		names := einsumTerm(term, hidden, x)
		most = max(most, hidden)
		for _, c := range names {
			count[c]++
		}
		e.in = append(e.in, names)
	}
	if explicit {
		e.out = einsumTerm(right, most, x)
		var seen [256]bool
		for _, c := range e.out {
			if seen[c] || count[c] == 0 {
				fail("einsum", ErrValue, x, "the result %q names a dimension twice, or one that no operand has", right)
			}
			seen[c] = true
		}
	} else {
		for k := most; k > 0; k-- {
			e.out = append(e.out, byte(k))
		}
		for _, c := range []byte(letters) {
			if count[c] == 1 {
				e.out = append(e.out, c)
			}
		}
	}
	if len(e.out) > shape.MaxRank {
		fail("einsum", ErrShape, x, "the result has %d dimensions, at most %d are supported", len(e.out), shape.MaxRank)
	}
	return e
}

// factor is a tensor whose dimensions are named by different bytes.
type factor struct {
	x     *Tensor
	names []byte
}

func (f factor) axisNamed(c byte) int { return strings.IndexByte(string(f.names), c) }

// diagonals replaces dimensions that have the same name by their diagonal.
func (f factor) diagonals(all []*Tensor) factor {
	for i := 0; i < len(f.names); i++ {
		for j := i + 1; j < len(f.names); j++ {
			if f.names[i] != f.names[j] {
				continue
			}
			if f.x.Dim(i) != f.x.Dim(j) {
				fail("einsum", ErrShape, all, "%q names dimensions of sizes %d and %d of one operand", f.names[i], f.x.Dim(i), f.x.Dim(j))
			}
			c := f.names[i]
			f.x = f.x.Diagonal(0, i, j)
			f.names = append(append(append(append([]byte(nil), f.names[:i]...), f.names[i+1:j]...), f.names[j+1:]...), c)
			i, j = -1, len(f.names)
		}
	}
	return f
}

// sumExcept returns the sum of f over the dimensions for which keep returns false. A sum of
// integers has type int64, as in [Tensor.Sum]. If ones is false, dimensions of size 1 are only
// removed, and do not change the type. If ones is true, they are summed like the others.
func (f factor) sumExcept(keep func(c byte) bool, ones bool) factor {
	var over, out []int
	var names []byte
	for i, c := range f.names {
		switch {
		case keep(c):
			names = append(names, c)
		case f.x.Dim(i) == 1 && !ones:
			out = append(out, i)
		default:
			over = append(over, i)
		}
	}
	if len(over) > 0 {
		f.x = f.x.Sum(append(over, KeepDim)...)
	}
	if len(over)+len(out) > 0 {
		f.x, f.names = f.x.Squeeze(append(over, out...)...), names
	}
	return f
}

// ordered returns the tensor with its dimensions in the order of names. A dimension that the tensor
// lacks gets size 1.
func (f factor) ordered(names []byte) *Tensor {
	var p []int
	s := shape.Dims{}
	for _, c := range names {
		if i := f.axisNamed(c); i >= 0 {
			p = append(p, i)
			s = s.Append(f.x.Dim(i))
		} else {
			s = s.Append(1)
		}
	}
	return f.x.Permute(p...).reshape(s)
}

// contract returns the product of two factors, summed over the dimensions for which keep returns
// false. sizes holds the size of each name.
func (f factor) contract(g factor, keep func(c byte) bool, sizes *[256]int, all []*Tensor) factor {
	// if a dimension has size 1 in one factor, only the other factor is summed over it
	shared := func(c byte) bool {
		i, j := f.axisNamed(c), g.axisNamed(c)
		return keep(c) || i >= 0 && j >= 0 && f.x.Dim(i) == g.x.Dim(j)
	}
	f, g = f.sumExcept(shared, false), g.sumExcept(shared, false)
	t := dtype.Promote(f.x.dtype, g.x.dtype)
	f.x, g.x = f.x.Cast(t), g.x.Cast(t)
	var both, left, right, sum []byte
	for _, c := range f.names {
		switch i := g.axisNamed(c); {
		case i < 0:
			left = append(left, c)
		case keep(c):
			both = append(both, c)
		default:
			sum = append(sum, c)
		}
	}
	for _, c := range g.names {
		if f.axisNamed(c) < 0 {
			right = append(right, c)
		}
	}
	names := append(append(append([]byte(nil), both...), left...), right...)
	if len(names) > shape.MaxRank || len(f.names) > shape.MaxRank || len(g.names) > shape.MaxRank {
		e := newError("einsum", ErrShape, all, "an intermediate product has "+itoa(len(names))+" dimensions, at most "+itoa(shape.MaxRank)+" are supported")
		panic(e.hint("order the operands so that summed dimensions go earlier"))
	}
	if len(sum) == 0 {
		return factor{f.ordered(names).Mul(g.ordered(names)), names}
	}
	// There is one matrix product for each index of the dimensions that both factors have and that
	// the result keeps.
	n := func(list []byte) int {
		p := 1
		for _, c := range list {
			p *= sizes[c]
		}
		return p
	}
	full := func(f factor, order ...[]byte) *Tensor { // a dimension of size 1 is expanded
		var list []byte
		for _, o := range order {
			list = append(list, o...)
		}
		var s shape.Dims
		for _, c := range list {
			s = s.Append(sizes[c])
		}
		return f.ordered(list).expand(s)
	}
	a := full(f, both, left, sum).reshape(shape.Of(n(both), n(left), n(sum)))
	b := full(g, both, sum, right).reshape(shape.Of(n(both), n(sum), n(right)))
	var s shape.Dims
	for _, c := range names {
		s = s.Append(sizes[c])
	}
	return factor{a.MatMul(b).reshape(s), names}
}

// Einsum sums products of elements over dimensions, as an equation says. The equation names each
// dimension of each operand by a letter: "ij,jk->ik" is the matrix product, "bij->bji" a
// transposition, "ii" a trace. Einsum sums over letters that the result lacks. A letter that occurs
// twice in one operand selects its diagonal. ... stands for further dimensions, which broadcast.
// Without -> the result has the dimensions of an ellipsis first, then the letters that occur once,
// in alphabetical order. Spaces are ignored.
//
// The operands have one type, and are contracted from left to right. The result has this type too,
// with exceptions for integers: as in PyTorch bool is counted as int64, and sums within one operand
// are computed in int64. Matrix products of small integers wrap.
func Einsum(eq string, x ...*Tensor) *Tensor {
	if y := underAutocast("einsum", AutocastLow, func(in []*Tensor) *Tensor { return Einsum(eq, in...) }, x...); y != nil {
		return y
	}
	if len(x) == 0 {
		fail("einsum", ErrValue, nil, "the equation %q has no operands", eq)
	}
	s := youngest("einsum", x)
	sameDevice("einsum", x)
	for _, t := range x {
		if t.dtype != x[0].dtype {
			e := newError("einsum", ErrType, x, "operands are "+x[0].dtype.String()+" and "+t.dtype.String())
			panic(e.hint("Cast one of them"))
		}
	}
	e := parseEinsum(eq, x)
	var sizes, uses [256]int
	for k, names := range e.in {
		for i, c := range names {
			switch d := x[k].Dim(i); {
			case sizes[c] == 0 && uses[c] == 0 || sizes[c] == 1:
				sizes[c] = d
			case d != sizes[c] && d != 1:
				fail("einsum", ErrShape, x, "%q names dimensions of sizes %d and %d", name(c), sizes[c], d)
			}
			uses[c]++
		}
	}
	return within(s, func(c *Scope) *Tensor {
		f := make([]factor, len(x))
		for k, t := range x {
			t = t.In(c)
			if t.dtype == boolType {
				t = t.Long()
			}
			f[k] = factor{t, e.in[k]}.diagonals(x)
		}
		acc := f[0]
		for k := 1; k < len(f); k++ {
			later := func(c byte) bool {
				if strings.IndexByte(string(e.out), c) >= 0 {
					return true
				}
				for _, g := range f[k+1:] {
					if g.axisNamed(c) >= 0 {
						return true
					}
				}
				return false
			}
			acc = acc.contract(f[k], later, &sizes, x)
		}
		acc = acc.sumExcept(func(c byte) bool { return strings.IndexByte(string(e.out), c) >= 0 }, len(x) == 1)
		return acc.ordered(e.out)
	})
}

func name(c byte) string {
	if c < 32 {
		return "..."
	}
	return string(rune(c))
}
