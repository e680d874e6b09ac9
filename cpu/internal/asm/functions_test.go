package asm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestFunctions compares every function kernel with the formula in package expr, bit for bit.
func TestFunctions(t *testing.T) {
	for _, v := range variants {
		if !v.usable {
			continue
		}
		r := rand.New(rand.NewPCG(9, 10))
		for name, f := range v.functions {
			p, err := expr.Lower([]*expr.Expr{expr.Call(name, expr.X(0))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
			if err != nil {
				t.Fatal(err)
			}
			if f.formula != p.Key() {
				t.Errorf("%s: %s was made from another formula than package expr has: run go generate", v.name, name)
				continue
			}
			check := func(n int) {
				block := make([]float32, n+2*guard)
				dst := block[guard : guard+n : guard+n]
				a := make([]float32, n)
				for i := range a {
					switch r.IntN(4) {
					case 0:
						a[i] = float32Value(r)
					case 1:
						a[i] = float32(r.NormFloat64())
					case 2:
						a[i] = 1 + float32(r.NormFloat64())*0x1p-10
					default:
						a[i] = float32(r.NormFloat64() * 100)
					}
				}
				f.run(dst, a)
				alias := append([]float32(nil), a...)
				f.run(alias, alias)
				for i, x := range a {
					want := math.Float32frombits(uint32(p.Eval(nil, []uint64{uint64(math.Float32bits(x))}, nil, 0)[0]))
					for _, got := range []float32{dst[i], alias[i]} {
						if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
							t.Fatalf("%s: %s(%x) = %x, want %x (element %d of %d)", v.name, name, x, got, want, i, n)
						}
					}
				}
				for i, x := range block {
					if (i < guard || i >= guard+n) && x != 0 {
						t.Fatalf("%s: %s of %d wrote at %d", v.name, name, n, i-guard)
					}
				}
			}
			for n := range 40 {
				check(n)
			}
			check(5000)
		}
	}
}

func TestFunctionsExist(t *testing.T) {
	for _, name := range Variants()[1:] {
		restore := Use(name)
		for _, f := range []string{"exp", "log", "tanh", "erf", "sigmoid"} {
			if Function(f) == nil {
				t.Errorf("%s: no kernel for %s", name, f)
			}
		}
		restore()
	}
	defer Use("generic")()
	if Function("exp") != nil {
		t.Error("generic Go has a kernel for exp; it should leave it to the primitives")
	}
}
