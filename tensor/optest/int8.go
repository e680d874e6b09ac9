package optest

import "github.com/flambeau-go/flambeau/dtype"

// linearInt8Same computes a linear layer by LinearInt8, and again by other ops. It returns 1 for
// each element that is equal bit for bit, and 0 for others.
func linearInt8Same(x []*tt) *tt {
	w, scale := x[1].QuantizeRows()
	scale = scale.Squeeze(-1)
	q, rows := x[0].QuantizeRows()
	want, bias := q.IntMM(w.T()).Float().Mul(rows).Mul(scale), (*tt)(nil)
	if len(x) > 2 {
		bias = x[2].Detach()
		want = want.Add(bias.Float())
	}
	y := x[0].Detach().LinearInt8(w, scale, bias)
	return y.Eq(want.Cast(y.Type())).Cast(dtype.F32)
}
