package kernels

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestAttentionInstructions counts tensor-core instructions. A 128×128×64 product takes exactly
// 512 instructions of the shape 16×8×16, over all warps of a tile. Attention must have two such
// products. The gradient must have four in the launch for dk and dv, and three in the launch for
// dq. There must be no bank conflicts.
func TestAttentionInstructions(t *testing.T) {
	const product = 128 / 16 * (128 / 8) * (64 / 16)
	// with 2 heads, tiles have 64 queries; with 64 heads, they have 128
	for _, heads := range []int{2, 64} {
		m := newMachine(t)
		c := attentionCase{typ: dtype.BF16, batch: 1, heads: heads, queries: 128, keys: 128, features: 64, lse: true}
		o := c.operands(m)
		list, err := Attention(a100, o, nil)
		s := m.run(list, err)
		if want := int64(2 * product * heads); s.MMA != want || s.BankConflicts != 0 {
			t.Errorf("%d heads: %d instructions, want %d; %d bank conflicts", heads, s.MMA, want, s.BankConflicts)
		}
		f := attentionTensorFor(attentionShape{q: headRowsOf(o.Q), k: headRowsOf(o.K), v: headRowsOf(o.V), out: headRowsOf(o.Out), lse: true},
			o.Scale, heads, 128, false)
		rows, keys := f.tile()
		a := strings.Count(list[0].Kernel.PTX, "mma.sync.aligned.m16n8k16")
		if want := 2 * product * rows / 128 * keys / 128; a*f.warps != want {
			t.Errorf("%d×%d: %d instructions a tile over %d warps, want %d", rows, keys, a*f.warps, f.warps, want)
		}
		if heads > 2 {
			continue
		}
		like := func() Operand { return m.tensor(o.Q.Type, o.Q.Layout, 0) }
		list, err = AttentionGrad(AttentionGradOperands{DQ: like(), DK: like(), DV: like(), G: m.random(like()), Q: o.Q, K: o.K, V: o.V,
			Out: o.Out, LSE: o.LSE, AttentionWeighing: o.AttentionWeighing}, m.scratch)
		s = m.run(list, err)
		if want := int64(7 * product * heads); s.MMA != want || s.BankConflicts != 0 {
			t.Errorf("gradient: %d instructions, want %d; %d bank conflicts", s.MMA, want, s.BankConflicts)
		}
	}
}
