package kernels

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// slowNormSums returns Σ g·z and Σ g in float64, and the sums of the magnitudes of their terms.
func slowNormSums(x, g, mean, rstd []float64, columns int) (dw, db, size []float64) {
	dw, db, size = make([]float64, columns), make([]float64, columns), make([]float64, columns)
	for i := range x {
		r, c := i/columns, i%columns
		z := x[i] * rstd[r]
		if mean != nil {
			z = (x[i] - mean[r]) * rstd[r]
		}
		dw[c] += g[i] * z
		db[c] += g[i]
		size[c] += max(g[i], -g[i]) * max(1, z, -z)
	}
	return dw, db, size
}

// TestNormSums compares the gradients of x, weight and bias with float64 references, for all
// variants of the kernel.
func TestNormSums(t *testing.T) {
	layer := device.RowNorm{Eps: 1e-3, Period: 1, Inner: 1, Zero: true}
	rms := device.RowNorm{Eps: 1e-3, RMS: true, Period: 1, Inner: 1}
	f32, f64, f16, bf16 := dtype.F32, dtype.F64, dtype.F16, dtype.BF16
	for _, c := range []struct {
		typ, g, affine   dtype.Type
		rows, columns    int
		n                device.RowNorm
		noDX, noDW, noDB bool
		// The field odd says that operands start at a misaligned address.
		noWeight, add, odd bool
	}{
		{typ: f32, rows: 1, columns: 1, n: layer},
		{typ: f32, rows: 70, columns: 7, n: layer, add: true},
		{typ: f32, rows: 9, columns: 63, n: layer, noDB: true},
		{typ: f32, rows: 9, columns: 65, n: layer, noDW: true, noWeight: true},
		{typ: f32, rows: 3, columns: 129, n: rms, add: true},
		{typ: f32, rows: 2000, columns: 8, n: layer}, // many blocks store partial sums
		{typ: f32, rows: 130, columns: 768, n: layer, add: true},
		{typ: f32, g: bf16, rows: 100, columns: 768, n: layer, add: true},
		{typ: f32, g: f16, rows: 5, columns: 1000, n: rms, noDB: true},
		{typ: f32, rows: 50, columns: 1028, n: layer, add: true}, // a block holds one row at a time
		{typ: f32, rows: 3, columns: 1025, n: layer, noDX: true},
		{typ: f32, rows: 3, columns: 6144, n: layer},
		{typ: f32, rows: 5, columns: 256, n: layer, noDX: true, odd: true},
		{typ: f32, rows: 5, columns: 2048, n: layer, odd: true, add: true},
		{typ: bf16, affine: f32, rows: 70, columns: 256, n: layer, add: true},
		{typ: bf16, rows: 66, columns: 2048, n: rms, noDB: true},
		{typ: f16, rows: 5, columns: 40, n: layer},
		{typ: f64, rows: 60, columns: 130, n: layer, add: true},
		{typ: f64, rows: 4, columns: 600, n: rms},
		{typ: f32, rows: 0, columns: 8, n: layer},
	} {
		if c.g == dtype.Invalid {
			c.g = c.typ
		}
		if c.affine == dtype.Invalid {
			c.affine = c.typ
		}
		what := fmt.Sprintf("norm sums %+v", c)
		m := newMachine(t)
		skip := 0
		if c.odd {
			skip = 1
		}
		l, acc := dense(c.rows, c.columns), c.typ.Compute()
		random := func(typ dtype.Type, dims ...int) Operand { return m.random(m.tensor(typ, dense(dims...), skip)) }
		o := NormOperands{X: random(c.typ, c.rows, c.columns), Rstd: m.tensor(acc, dense(c.rows), 0)}
		if !c.n.RMS {
			o.Mean = m.tensor(acc, dense(c.rows), 0)
		}
		o.Out = m.tensor(c.typ, l, 0)
		m.run(Norm(o, c.n)) // computes mean and rstd
		o.Grad, o.Out = random(c.g, c.rows, c.columns), Operand{}
		if !c.noWeight {
			o.Weight = random(c.affine, c.columns)
		}
		if !c.noDX {
			o.Out = m.tensor(c.typ, l, skip)
		}
		if c.add {
			o.Add = random(c.typ, c.rows, c.columns)
		}
		if !c.noDW {
			o.DWeight = m.tensor(acc, dense(c.columns), 0)
		}
		if !c.noDB {
			o.DBias = m.tensor(acc, dense(c.columns), 0)
		}
		m.run(NormGrad(o, c.n, m.scratch))
		var w, mean []float64
		if !c.noWeight {
			w = m.decode(o.Weight)
		}
		if !c.n.RMS {
			mean = m.decode(o.Mean)
		}
		x, g := m.decode(o.X), m.decode(o.Grad)
		_, dx, _, rstd := slowNorm(x, g, w, nil, c.columns, c.n)
		dw, db, size := slowNormSums(x, g, mean, rstd, c.columns)
		if c.add {
			for i, v := range m.decode(o.Add) {
				dx[i] += v
			}
		}
		if !c.noDX {
			m.checkNear(what, o.Out, dx, 16*roundings[c.typ])
		}
		for i, v := range []Operand{o.DWeight, o.DBias} {
			if v.Type == dtype.Invalid {
				continue
			}
			want := [][]float64{dw, db}[i]
			for k, got := range m.decode(v) {
				if d := got - want[k]; !(max(d, -d) <= 16*roundings[acc]*size[k]) {
					t.Fatalf("%s: sum %d of column %d is %v, want %v", what, i, k, got, want[k])
				}
			}
		}
	}
	x := fake(f32, 3, 9000)
	o := NormOperands{Out: x, X: x, Grad: x, Mean: fake(f32, 3), Rstd: fake(f32, 3), DBias: fake(f32, 9000)}
	for want, n := range map[string]device.RowNorm{"registers": layer, "share": {Period: 3, Inner: 1}} {
		if _, err := NormGrad(o, n, fakeScratch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("gradients that there is no kernel for give the error %v", err)
		}
	}
}

// TestNormSumsBytes counts the bytes that are moved to compute the gradients of x, weight and bias.
// The number may exceed the size of the operands only slightly, because each operand is read once.
func TestNormSumsBytes(t *testing.T) {
	for _, c := range []struct {
		typ, g dtype.Type
		add    bool
	}{{dtype.F32, dtype.F32, false}, {dtype.F32, dtype.BF16, false}, {dtype.F32, dtype.BF16, true}, {dtype.BF16, dtype.BF16, false}} {
		const rows, columns = 8192, 768
		x, v, w := fake(c.typ, rows, columns), fake(dtype.F32, rows), fake(dtype.F32, columns)
		o := NormOperands{Out: x, X: x, Grad: fake(c.g, rows, columns), Mean: v, Rstd: v, Weight: w, DWeight: w, DBias: w}
		each := 2*c.typ.Size() + c.g.Size()
		if c.add {
			o.Add = x
			each += c.typ.Size()
		}
		least, scratch := rows*columns*each+4*(2*rows+3*columns), 0
		list, err := NormGrad(o, device.RowNorm{Period: 1, Inner: 1}, func(bytes int) (uint64, error) {
			scratch += bytes
			return fakeScratch(bytes)
		})
		if err != nil || len(list) != 2 {
			t.Fatalf("%d launches: %v", len(list), err)
		}
		ratio := float64(least+2*scratch) / float64(least) // partial sums are written and read again
		t.Logf("%v, gradient %v, added %v: %.3f of the least bytes", c.typ, c.g, c.add, ratio)
		if ratio > 1.05 {
			t.Errorf("%v, gradient %v: %.3f of the least bytes", c.typ, c.g, ratio)
		}
	}
}
