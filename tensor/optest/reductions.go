package optest

import (
	"math"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// along applies f to the groups of a reduction over dimensions.
func along(x array, over []int, f func(v []float64) float64) array {
	dims, groups, _ := groupsOf(x, over)
	y := newArray(dims...)
	for i, g := range groups {
		y.v[i] = f(g)
	}
	return y
}

func varianceRef(correction float64) func(v []float64) float64 {
	return func(v []float64) float64 {
		mean, s := 0.0, 0.0
		for _, a := range v {
			mean += a / float64(len(v))
		}
		for _, a := range v {
			s += (a - mean) * (a - mean)
		}
		return s / (float64(len(v)) - correction)
	}
}

func normRef(p float64) func(v []float64) float64 {
	return func(v []float64) float64 {
		s := 0.0
		if p == math.Inf(-1) {
			s = p * -1
		}
		for _, a := range v {
			switch a = math.Abs(a); {
			case math.IsInf(p, 1):
				s = math.Max(s, a)
			case math.IsInf(p, -1):
				s = math.Min(s, a)
			default:
				s += math.Pow(a, p)
			}
		}
		if math.IsInf(p, 0) {
			return s
		}
		return math.Pow(s, 1/p)
	}
}

func logSumExpRef(v []float64) float64 {
	m, s := slices.Max(v), 0.0
	for _, a := range v {
		s += math.Exp(a - m)
	}
	return m + math.Log(s)
}

// reductionRows returns the rows of the reductions that are compositions of other ops.
func reductionRows() []row {
	var rows []row
	add := func(op, method string, in []int, over []int, call func(x *tt) *tt, f func(v []float64) float64, terms func(v []float64) float64) {
		r := one(op, method, in, call, func(x array) array { return along(x, over, f) })
		r.ints = false
		r.terms = func(x []array) array { return along(x[0], over, terms) }
		rows = append(rows, r)
	}
	few := func(v []float64) float64 { return 2 * float64(len(v)) }
	for _, c := range []struct {
		in   []int
		dims []int
		over []int
	}{{[]int{3, 4}, []int{-1}, []int{1}}, {[]int{2, 3, 4}, []int{1, 0}, []int{0, 1}}, {[]int{2, 5}, nil, nil}} {
		add("var", "Var", c.in, c.over, func(x *tt) *tt { return x.Var(1, c.dims...) }, varianceRef(1), few)
		add("std", "Std", c.in, c.over, func(x *tt) *tt { return x.Std(0, c.dims...) }, func(v []float64) float64 { return math.Sqrt(varianceRef(0)(v)) }, few)
		add("logsumexp", "LogSumExp", c.in, c.over, func(x *tt) *tt { return x.LogSumExp(c.dims...) }, logSumExpRef, few)
	}
	for _, p := range []float64{1, 2, 3, 1.5, 0.5, math.Inf(1), math.Inf(-1), -1} {
		add("norm", "Norm", []int{3, 4}, []int{1}, func(x *tt) *tt { return x.Norm(p, -1) }, normRef(p), func(v []float64) float64 { return 8 * math.Abs(normRef(p)(v)) })
	}
	add("norm", "Norm", []int{2, 3, 4}, []int{0, 2}, func(x *tt) *tt { return x.Norm(2, 0, 2) }, normRef(2), few)
	product := func(v []float64) float64 {
		p := 1.0
		for _, a := range v {
			p *= a
		}
		return p
	}
	add("prod", "Prod", []int{3, 4}, []int{1}, func(x *tt) *tt { return x.Prod(-1) }, product, func(v []float64) float64 { return 4 * math.Abs(product(v)) })
	add("prod", "Prod", []int{2, 3, 2}, []int{0, 2}, func(x *tt) *tt { return x.Prod(0, -1) }, product, func(v []float64) float64 { return 4 * math.Abs(product(v)) })
	// zero sets one factor of each row to 0 and returns the product of each row.
	zero := func(x *tt) *tt {
		return x.Mul(x.Scope().On(x.Device()).Arange(4).NeScalar(2).Cast(x.Type())).Prod(1)
	}
	add("prod", "Prod", []int{3, 4}, []int{1}, zero, func([]float64) float64 { return 0 }, few)
	rows[len(rows)-1].ref = func(x []array) array {
		return along(x[0].pick(1, 0, 0, 1, -1, 3), []int{1}, product)
	}
	for _, c := range []struct {
		name string
		call func(x *tt) (*tt, *tt)
		sign float64
	}{{"Max", func(x *tt) (*tt, *tt) { return x.Max(1) }, 1}, {"Min", func(x *tt) (*tt, *tt) { return x.Min(-2) }, -1}} {
		best := func(v []float64) int {
			k := 0
			for i := range v {
				if c.sign*v[i] > c.sign*v[k] {
					k = i
				}
			}
			return k
		}
		rows = append(rows, one(c.name, c.name, []int{2, 4, 3}, func(x *tt) *tt { y, _ := c.call(x); return y },
			func(x array) array { return along(x, []int{1}, func(v []float64) float64 { return v[best(v)] }) }))
		r := one(c.name+" index", c.name, []int{2, 4, 3}, func(x *tt) *tt { _, i := c.call(x); return i },
			func(x array) array { return along(x, []int{1}, func(v []float64) float64 { return float64(best(v)) }) })
		r.noGrad, r.ints, r.result = true, false, dtype.I64
		rows = append(rows, r)
	}
	return rows
}

// productRows returns the rows of the products that are compositions of other products.
func productRows() []row {
	var rows []row
	add := func(op, method string, in [][]int, call func(x []*tt) *tt, ref func(x []array) array) {
		rows = append(rows, row{op: op, methods: []string{method}, in: in, call: call, ref: ref, terms: absAll(ref), rounds: strings.Contains(op, "add")})
	}
	add("outer", "Outer", [][]int{{3}, {4}}, func(x []*tt) *tt { return x[0].Outer(x[1]) }, einsumRef("i,j->ij"))
	add("dot", "Dot", [][]int{{7}, {7}}, func(x []*tt) *tt { return x[0].Dot(x[1]) }, einsumRef("i,i->"))
	add("bmm", "Bmm", [][]int{{2, 3, 4}, {2, 4, 2}}, func(x []*tt) *tt { return x[0].Bmm(x[1]) }, einsumRef("bij,bjk->bik"))
	plus := func(beta, alpha float64, eq string) func(x []array) array {
		return func(x []array) array {
			y := einsumRef(eq)(x[1:])
			from := x[0].expand(y.dims)
			for i, v := range y.v {
				y.v[i] = beta*from.v[i] + alpha*v
			}
			return y
		}
	}
	for _, c := range []struct{ beta, alpha float64 }{{1, 1}, {0.5, 2}, {0, 3}} {
		add("addmm", "Addmm", [][]int{{4}, {2, 3}, {3, 4}}, func(x []*tt) *tt { return x[0].Addmm(x[1], x[2], c.beta, c.alpha) }, plus(c.beta, c.alpha, "ij,jk->ik"))
	}
	add("baddbmm", "Baddbmm", [][]int{{2, 1, 2}, {2, 3, 2}, {2, 2, 2}}, func(x []*tt) *tt { return x[0].Baddbmm(x[1], x[2], 1, 0.5) }, plus(1, 0.5, "bij,bjk->bik"))
	for _, c := range []struct {
		eq string
		in [][]int
	}{
		{"ij,jk->ik", [][]int{{2, 3}, {3, 4}}}, {"ij,jk", [][]int{{2, 3}, {3, 2}}}, {"bij->bji", [][]int{{2, 3, 2}}}, {"ii->i", [][]int{{3, 3}}}, {"ii", [][]int{{3, 3}}},
		{"ij->", [][]int{{2, 3}}}, {"ba", [][]int{{2, 3}}}, {"i,i->i", [][]int{{3}, {3}}}, {"bi,bi->b", [][]int{{2, 3}, {2, 3}}}, {"i,j,k->kji", [][]int{{2}, {3}, {2}}},
		{"bhqd,bhkd->bhqk", [][]int{{2, 2, 3, 2}, {2, 2, 4, 2}}}, {"ij,jk,kl->il", [][]int{{2, 3}, {3, 2}, {2, 2}}}, {"ij,ij->", [][]int{{2, 3}, {2, 3}}},
		{"ijj,kj->ik", [][]int{{2, 3, 3}, {2, 3}}}, {"ij,k->j", [][]int{{2, 3}, {2}}}, {"ij,ij->ij", [][]int{{2, 3}, {1, 3}}}, {"ij,ij->i", [][]int{{2, 1}, {1, 3}}}, {"i,->i", [][]int{{3}, {}}},
	} {
		add("einsum "+c.eq, "Einsum", c.in, func(x []*tt) *tt { return tensor.Einsum(c.eq, x...) }, einsumRef(c.eq))
	}
	some := func(x []array, ref func(x []array) array) array {
		return ref(x).apply(func(v float64) float64 { return 4 + 8*math.Abs(v) })
	}
	compare := func(op, method string, in [][]int, call func(x []*tt) *tt, ref func(x []array) array) {
		rows = append(rows, row{op: op, methods: []string{method}, in: in, call: call, ref: ref, rounds: true, terms: func(x []array) array { return some(x, ref) }})
	}
	compare("cosine_similarity", "CosineSimilarity", [][]int{{3, 4}, {3, 4}}, func(x []*tt) *tt { return x[0].CosineSimilarity(x[1], 1, 1e-8) }, func(x []array) array {
		return einsumRef("ij,ij->i")([]array{unitRows(x[0]), unitRows(x[1])})
	})
	compare("pairwise_distance", "PairwiseDistance", [][]int{{3, 4}, {4}}, func(x []*tt) *tt { return x[0].PairwiseDistance(x[1], 2, 1e-6) }, func(x []array) array {
		y := x[1].expand(x[0].dims)
		for i, v := range x[0].v {
			y.v[i] = v - y.v[i] + 1e-6
		}
		return along(y, []int{1}, normRef(2))
	})
	compare("cdist", "Cdist", [][]int{{3, 4}, {2, 4}}, func(x []*tt) *tt { return x[0].Cdist(x[1], 3) }, func(x []array) array {
		return arrayOfFunc([]int{3, 2}, func(i []int) float64 {
			d := make([]float64, 4)
			for k := range d {
				d[k] = x[0].at(i[0], k) - x[1].at(i[1], k)
			}
			return normRef(3)(d)
		})
	})
	rows = append(rows, row{op: "one_hot", methods: []string{"OneHot"}, in: [][]int{{2, 3}}, index: map[int]int{0: 4}, noGrad: true, result: dtype.I64,
		call: func(x []*tt) *tt { return x[0].OneHot(4) }, ref: func(x []array) array {
			return arrayOfFunc([]int{2, 3, 4}, func(i []int) float64 {
				if int(x[0].at(i[0], i[1])) == i[2] {
					return 1
				}
				return 0
			})
		}})
	add("einsum ...", "Einsum", [][]int{{2, 1, 2, 3}, {3, 3, 2}}, func(x []*tt) *tt { return tensor.Einsum("...ij, ...jk -> ...ik", x...) }, einsumRef("abij,bjk->abik"))
	add("einsum ...", "Einsum", [][]int{{2, 3}, {3, 2, 3}}, func(x []*tt) *tt { return tensor.Einsum("...,i...", x...) }, einsumRef("ab,iab->abi"))
	return rows
}

// einsumRef computes Einsum by its definition: the sum over all indices of the product of the
// entries. Dimensions of size 1 are broadcast.
func einsumRef(eq string) func(x []array) array {
	left, out, explicit := strings.Cut(eq, "->")
	terms := strings.Split(left, ",")
	if !explicit {
		for c := 'a'; c <= 'z'; c++ {
			if strings.Count(left, string(c)) == 1 {
				out += string(c)
			}
		}
	}
	return func(x []array) array {
		names, sizes := "", []int{}
		for k, term := range terms {
			for i, c := range term {
				at := strings.IndexRune(names, c)
				if at < 0 {
					at = len(names)
					names, sizes = names+string(c), append(sizes, 1)
				}
				sizes[at] = sizes[at] * x[k].dims[i] / max(1, min(sizes[at], x[k].dims[i]))
			}
		}
		look := func(idx []int, term string) []int {
			at := make([]int, len(term))
			for i := range term {
				at[i] = idx[strings.IndexByte(names, term[i])]
			}
			return at
		}
		dims := look(sizes, out)
		y := newArray(dims...)
		each(sizes, func(_ int, idx []int) {
			p := 1.0
			for k, term := range terms {
				p *= x[k].at(look(idx, term)...)
			}
			y.v[y.offset(look(idx, out))] += p
		})
		return y
	}
}

func unitRows(x array) array {
	length := along(x, []int{1}, normRef(2))
	return arrayOfFunc(x.dims, func(i []int) float64 { return x.at(i...) / length.v[i[0]] })
}
