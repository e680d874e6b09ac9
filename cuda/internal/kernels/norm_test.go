package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// slowNorm computes a normalisation and its gradient in float64.
func slowNorm(x, g, w, b []float64, columns int, n device.RowNorm) (y, dx, mean, rstd []float64) {
	y, dx = make([]float64, len(x)), make([]float64, len(x))
	for r := 0; r < len(x); r += columns {
		var m, v, h, hz float64
		weight := func(list []float64, i int, none float64) float64 {
			if list == nil {
				return none
			}
			return list[(r/columns%n.Period*columns+i)/n.Inner]
		}
		if !n.RMS {
			for _, a := range x[r : r+columns] {
				m += a / float64(columns)
			}
		}
		for _, a := range x[r : r+columns] {
			v += (a - m) * (a - m) / float64(columns)
		}
		s := 1 / math.Sqrt(v+n.Eps)
		for i, a := range x[r : r+columns] {
			gw := g[r+i] * weight(w, i, 1)
			h += gw / float64(columns)
			hz += gw * (a - m) * s / float64(columns)
		}
		if n.RMS {
			h = 0
		}
		for i, a := range x[r : r+columns] {
			y[r+i] = (a-m)*s*weight(w, i, 1) + weight(b, i, 0)
			dx[r+i] = (g[r+i]*weight(w, i, 1) - h - (a-m)*s*hz) * s
		}
		mean, rstd = append(mean, m), append(rstd, s)
	}
	return y, dx, mean, rstd
}

// normCase describes the operands of one normalisation.
type normCase struct {
	// typ is the type of x, and affine is the type of weight and bias.
	typ, affine   dtype.Type
	rows, columns int
	weight, bias  bool
	n             device.RowNorm
	skip          int // number of elements between an aligned address and the start of each operand
}

func (c normCase) operands(m *machine) (forward, backward NormOperands) {
	l, column := dense(c.rows, c.columns), dense(c.rows)
	acc := c.typ.Compute()
	o := NormOperands{Out: m.tensor(c.typ, l, 0), X: m.random(m.tensor(c.typ, l, c.skip)), Rstd: m.tensor(acc, column, 0)}
	if !c.n.RMS {
		o.Mean = m.tensor(acc, column, 0)
	}
	count := c.n.Affine(c.columns)
	if c.weight {
		o.Weight = m.random(m.tensor(c.affine, dense(count), 0))
	}
	if c.bias {
		o.Bias = m.random(m.tensor(c.affine, dense(count), 0))
	}
	forward, backward = o, o
	backward.Out, backward.Grad, backward.Bias = m.tensor(c.typ, l, 0), m.random(m.tensor(c.typ, l, 0)), Operand{}
	return forward, backward
}

func TestNorm(t *testing.T) {
	plain := device.RowNorm{Eps: 1e-3, Period: 1, Inner: 1, Zero: true}
	rms := device.RowNorm{Eps: 1e-3, RMS: true, Period: 1, Inner: 1}
	f32, f64, f16, bf16 := dtype.F32, dtype.F64, dtype.F16, dtype.BF16
	for _, c := range []normCase{
		{typ: f32, rows: 3, columns: 1, n: plain},
		{typ: f32, rows: 9, columns: 33, weight: true, bias: true, n: plain},
		{typ: f32, rows: 9, columns: 64, weight: true, bias: true, n: plain},
		// a warp computes a row of the result, but a block computes a row of the gradient
		{typ: f32, rows: 2, columns: 1024, weight: true, bias: true, n: plain},
		{typ: f32, rows: 2, columns: 1028, n: plain},
		{typ: f32, rows: 2, columns: 8192, weight: true, n: rms},
		// these rows have more columns than registers hold
		{typ: f32, rows: 1, columns: 9000, weight: true, bias: true, n: plain},
		{typ: f32, rows: 2, columns: 1025, weight: true, n: rms},
		{typ: f32, rows: 3, columns: 64, skip: 1, n: rms},
		{typ: bf16, affine: f32, rows: 5, columns: 256, weight: true, bias: true, n: plain},
		{typ: f16, rows: 5, columns: 40, weight: true, bias: true, n: plain},
		{typ: bf16, affine: f32, rows: 2, columns: 2048, weight: true, n: rms},
		{typ: f64, rows: 3, columns: 130, weight: true, bias: true, n: plain},
		{typ: f32, rows: 6, columns: 32, weight: true, bias: true, n: device.RowNorm{Eps: 1e-3, Period: 3, Inner: 16}},
		{typ: bf16, affine: f32, rows: 4, columns: 24, weight: true, bias: true, n: device.RowNorm{Eps: 1e-3, Period: 2, Inner: 3}},
		{typ: f32, rows: 6, columns: 8, weight: true, bias: true, n: device.RowNorm{Eps: 1e-3, Period: 3, Inner: 8}},
		{typ: f32, rows: 0, columns: 8, n: plain},
	} {
		if c.affine == dtype.Invalid {
			c.affine = c.typ
		}
		what := fmt.Sprintf("norm %+v", c)
		m := newMachine(t)
		o, back := c.operands(m)
		list, err := Norm(o, c.n)
		m.run(list, err)
		list, err = NormGrad(back, c.n, m.scratch)
		m.run(list, err)
		var w, b []float64
		if c.weight {
			w = m.decode(o.Weight)
		}
		if c.bias {
			b = m.decode(o.Bias)
		}
		y, dx, mean, rstd := slowNorm(m.decode(o.X), m.decode(back.Grad), w, b, c.columns, c.n)
		tol := 4 * roundings[c.typ]
		m.checkNear(what, o.Out, y, tol)
		m.checkNear(what+" rstd", o.Rstd, rstd, 4*roundings[c.typ.Compute()])
		if !c.n.RMS {
			m.checkNear(what+" mean", o.Mean, mean, 4*roundings[c.typ.Compute()])
		}
		m.checkNear(what+" gradient", back.Out, dx, 4*tol)
	}
}

func TestNormGolden(t *testing.T) {
	n := device.RowNorm{Eps: 1e-5, Period: 1, Inner: 1, Zero: true}
	l := fake(dtype.F32, 64, 1024)
	list, err := Norm(NormOperands{Out: l, X: l, Mean: fake(dtype.F32, 64), Rstd: fake(dtype.F32, 64), Weight: fake(dtype.F32, 1024), Bias: fake(dtype.F32, 1024)}, n)
	golden(t, "layernorm", list, err)
	list, err = NormGrad(NormOperands{Out: l, X: l, Grad: l, Mean: fake(dtype.F32, 64), Rstd: fake(dtype.F32, 64), Weight: fake(dtype.F32, 1024)}, n, fakeScratch)
	golden(t, "layernorm_grad", list, err)
	h := fake(dtype.BF16, 64, 20000)
	n.RMS = true
	list, err = Norm(NormOperands{Out: h, X: h, Rstd: fake(dtype.F32, 64), Weight: fake(dtype.F32, 20000)}, n)
	golden(t, "rmsnorm_long", list, err)
	n = device.RowNorm{Eps: 1e-5, Period: 4, Inner: 64}
	h = fake(dtype.BF16, 8, 512)
	list, err = NormGrad(NormOperands{Out: h, X: h, Grad: h, Mean: fake(dtype.F32, 8), Rstd: fake(dtype.F32, 8), Weight: fake(dtype.BF16, 32)}, n, fakeScratch)
	golden(t, "groupnorm_grad", list, err)
	for _, bad := range []Operand{fake(dtype.I32, 2, 3), fake(dtype.F32, 6), {Addr: 16, Type: dtype.F32, Layout: shape.Dense(shape.Of(3, 2))}} {
		if _, err := Norm(NormOperands{Out: fake(dtype.F32, 2, 3), X: bad, Rstd: fake(dtype.F32, 2)}, n); err == nil {
			t.Errorf("no error for a norm of %v %v", bad.Type, bad.Shape)
		}
	}
	if _, err := Norm(NormOperands{Out: l, X: l, Rstd: fake(dtype.F32, 64)}, device.RowNorm{Period: 1, Inner: 3}); err == nil {
		t.Error("no error for weights that do not fit")
	}
}
