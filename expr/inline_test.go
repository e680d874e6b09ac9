package expr

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// randomBits returns the bits of a random element of type t, but no NaN, because the payload of a
// NaN may change.
func randomBits(r *rand.Rand, t dtype.Type) uint64 {
	if t == dtype.Bool {
		return uint64(r.IntN(2))
	}
	for {
		b := r.Uint64() & (1<<(8*t.Size()) - 1)
		if r.IntN(2) == 0 && t.IsFloat() {
			b = Store(t, Encode(t.Compute(), r.NormFloat64()))
		}
		if v := Decode(t.Compute(), Load(t, b)); v == v {
			return b
		}
	}
}

// TestInlined compares an inlined program with two programs that run one after the other. The first
// stores a result, which the second reads. The bits must be equal.
func TestInlined(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	x, y := X(0), X(1)
	makers := []*Expr{x, y, x.Add(y), x.Mul(y).Add(Param(0)), x.Max(y), C(3), x.Lt(y).Select(x, Index(dtype.I64))}
	readers := []*Expr{x, x.Add(x), x.Mul(y).Sub(Param(1)), x.Lt(y).Select(y, x), y}
	types := []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.F16, dtype.I64, dtype.I32, dtype.I16, dtype.I8, dtype.U8}
	done := 0
	for _, stored := range types {
		for _, from := range []dtype.Type{stored, dtype.F32, dtype.I32} {
			for _, a := range makers {
				q, err := Lower([]*Expr{a.Mul(x), a}, []dtype.Type{dtype.F32, stored}, []dtype.Type{from, stored}, -1)
				if err != nil {
					continue
				}
				for _, b := range readers {
					for _, out := range []dtype.Type{stored, dtype.F32} {
						p, err := Lower([]*Expr{b, x}, []dtype.Type{out, stored}, []dtype.Type{stored, dtype.F32}, -1)
						if err != nil {
							continue
						}
						// the operands of the new program are y of p, and x and y of q
						n := p.Inlined(&Inline{Program: q, Operands: []int{^1, 0}, Own: []int{1, 2}, Scalars: 2, Keep: []int{0, 1}})
						if want := []dtype.Type{out, stored, dtype.F32, stored}; !slices.Equal(n.Out, want) ||
							!slices.Equal(n.In, []dtype.Type{dtype.F32, from, stored}) {
							t.Fatalf("%v of %v", n.Out, n.In)
						}
						for range 20 {
							in := []uint64{randomBits(r, dtype.F32), randomBits(r, from), randomBits(r, stored)}
							scalar := func(p *Program, i int) uint64 {
								if i < len(p.Params) && p.Params[i] != dtype.Invalid {
									return Encode(p.Params[i], float64(1+i))
								}
								return 0
							}
							own := []uint64{scalar(q, 0)}
							its := []uint64{0, scalar(p, 1)}
							index := r.Int64N(100)
							first := q.Eval(nil, in[1:], own, index)
							want := append(p.Eval(nil, []uint64{first[1], in[0]}, its, index), first...)
							got := n.Eval(nil, in, append(its, own...), index)
							for k := range want {
								if got[k] != want[k] && !isNaN(n.Out[k], got[k], want[k]) {
									t.Fatalf("result %d: %#x, want %#x of\n%v", k, got[k], want[k], n)
								}
							}
							done++
						}
					}
				}
			}
		}
	}
	if done < 5000 {
		t.Errorf("only %d programs have run", done)
	}
}

func isNaN(t dtype.Type, a, b uint64) bool {
	f := func(b uint64) float64 { return Decode(t.Compute(), Load(t, b)) }
	return t.IsFloat() && math.IsNaN(f(a)) && math.IsNaN(f(b))
}

// TestInlinedTwice inlines a program that shares code with its reader. The shared code must be
// computed once, and the name must list the operations in order.
func TestInlinedTwice(t *testing.T) {
	f := []dtype.Type{dtype.F32}
	two := []dtype.Type{dtype.F32, dtype.F32}
	q := MustLower([]*Expr{X(0).Mul(X(1))}, f, two, -1)
	p := MustLower([]*Expr{X(0).Add(X(1).Mul(X(2)))}, f, []dtype.Type{dtype.F32, dtype.F32, dtype.F32}, -1)
	n := p.Inlined(&Inline{Program: q, Operands: []int{^0, 0, 1}, Own: []int{0, 1}})
	if want := MustLower([]*Expr{X(0).Mul(X(1)).Add(X(0).Mul(X(1)))}, f, two, -1); n.Key() != want.Key() {
		t.Errorf("got\n%v\nwant\n%v", n, want)
	}
	if want := "mul_add_float32_" + n.Key()[:8]; n.Name() != want {
		t.Errorf("name %q, want %q", n.Name(), want)
	}
}
