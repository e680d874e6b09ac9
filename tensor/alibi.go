package tensor

// ALiBi returns what attention with linear biases adds to the scores, [heads, queries, keys]: -m·|i - j| for query i and key j, where the
// queries are at the end of the keys' positions (O. Press et al., arXiv:2108.12409). The slopes m of n heads are 2^(-8/n), 2^(-16/n) …; where
// n is no power of two they are those of the power below, followed by every second of the power above, as in the authors' code. For causal attention
// fill the bias above the diagonal with -Inf: it is a Mask of [ScaledDotProductAttention].
func (m Maker) ALiBi(heads, queries, keys int) *Tensor {
	const op = "alibi"
	if heads < 1 || queries < 0 || keys < 0 {
		fail(op, ErrShape, nil, "%d heads, %d queries, %d keys", heads, queries, keys)
	}
	power := 1
	for 2*power <= heads {
		power *= 2
	}
	t := m.floatType()
	if !t.IsFloat() {
		fail(op, ErrType, nil, "a bias is of floating point, not %v", t)
	}
	return within(m.s, func(c *Scope) *Tensor {
		w := Maker{c, t.Compute(), m.dev}
		slopes := w.ArangeStep(1, float64(power+1), 1).MulScalar(-8 / float64(power))
		if more := heads - power; more > 0 {
			slopes = Cat(0, slopes, w.ArangeStep(1, float64(2*more), 2).MulScalar(-4/float64(power)))
		}
		i := w.ArangeStep(float64(keys-queries), float64(keys), 1).Unsqueeze(1)
		return w.Arange(keys).Sub(i).Abs().Mul(slopes.Exp2().Neg().Unsqueeze(-1).Unsqueeze(-1)).Cast(t)
	})
}
