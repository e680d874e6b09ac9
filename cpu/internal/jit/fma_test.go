//go:build linux && amd64 && !noasm

package jit

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestFMA computes x·y+z with operands in registers and in memory. In some expressions an operand
// has no later use, so that its register may be overwritten. The values must be those of the
// interpreter.
func TestFMA(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(11, 12))
	x, y, z := expr.X(0), expr.X(1), expr.X(2)
	v := x.FMA(y, z)
	many := expr.C(0) // needs more constants than registers, so most are in memory
	for i := range 60 {
		c, d := expr.C(float64(i)+0.25), expr.C(float64(i)-0.75)
		many = many.FMA(x, c).Add(d.FMA(many, y)).Add(c.FMA(z, d))
	}
	for k, e := range []*expr.Expr{
		v, v.Add(z), v.Add(x).Add(z), v.Add(y).Add(z), v.Add(x).Add(y), v.Add(x).Add(y).Add(z),
		x.FMA(x, x), x.FMA(x, z), x.FMA(y, x), x.FMA(y, y), x.FMA(y, y).Add(x), many,
		v.FMA(v, v), v.FMA(x, v).FMA(expr.C(2), z), expr.Param(0, dtype.F32).FMA(x, expr.Param(1, dtype.F32)),
	} {
		for _, n := range []int{5, 16, 75} {
			p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32, dtype.F32}, -1)
			q := prepare(t, p, r, 1, n, 0)
			q.run(t)
			if t.Failed() {
				t.Fatalf("expression %d, %d elements", k, n)
			}
		}
	}
}

// TestPrefetchBytes compares the encodings of prefetch instructions with those of GNU as.
func TestPrefetchBytes(t *testing.T) {
	for _, c := range []struct {
		op   byte
		src  operand
		want []byte
	}{
		// "prefetcht0 0x800(%r10,%r9,4)"
		{prefetchRead, operand{memory: true, base: r10, index: at, scale: 2, disp: 0x800, constant: -1}, []byte{0x43, 0x0f, 0x18, 0x8c, 0x8a, 0, 8, 0, 0}},
		// "prefetchw 0x800(%rax,%r9,1)"
		{prefetchWrite, operand{memory: true, base: rax, index: at, disp: 0x800, constant: -1}, []byte{0x42, 0x0f, 0x0d, 0x8c, 0x08, 0, 8, 0, 0}},
	} {
		var a assembler
		if a.prefetch(c.op, c.src); !bytes.Equal(a.code, c.want) {
			t.Errorf("% x, want % x", a.code, c.want)
		}
	}
}
