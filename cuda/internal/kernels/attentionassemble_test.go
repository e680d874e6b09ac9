package kernels

import (
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// weighings returns several AttentionWeighings, with which attention kernels need different numbers
// of registers.
func weighings(batch, heads, queries, keys int, typ dtype.Type) []AttentionWeighing {
	lengths, numbers := fake(dtype.I64, batch), fake(dtype.I64, 2)
	w := AttentionWeighing{Scale: 0.1}
	causal, dropped, masked, added, both, all := w, w, w, w, w, w
	causal.Causal = true
	dropped.Drop, dropped.Causal = 0.1, true
	masked.Mask, masked.Lengths = fake(dtype.Bool, batch, heads, queries, keys), lengths
	added.Mask = fake(typ, batch, heads, queries, keys)
	both.Mask, both.Drop = masked.Mask, 0.1
	all.Drop, all.Causal, all.Lengths, all.Mask, all.Numbers = 0.1, true, lengths, added.Mask, numbers
	return []AttentionWeighing{w, causal, dropped, masked, added, both, all}
}

// TestAttentionAssemble checks that the float32 kernels of attention and of its gradient spill no
// register, for any head size and any masks. It checks the kernels for decoding too. The test
// takes minutes, so it runs only with FLAMBEAU_SOAK=1. TestAssemble always runs a part of it.
func TestAttentionAssemble(t *testing.T) {
	ptxas := tool(t, "ptxas", "FLAMBEAU_PTXAS")
	if ptxas == "" || os.Getenv("FLAMBEAU_SOAK") == "" {
		t.Log("the kernels of attention were NOT all assembled: FLAMBEAU_SOAK=1 and ptxas do it")
		return
	}
	const batch, heads, n = 4, 16, 1024
	scratch := func(int) (uint64, error) { return 1 << 20, nil }
	a := assembler{t: t, ptxas: ptxas, dir: t.TempDir()}
	const typ = dtype.F32
	for _, features := range []int{16, 32, 64, 80, 128, 192, 256} {
		for _, w := range weighings(batch, heads, n, n, typ) {
			x, lse := fake(typ, batch, heads, n, features), fake(dtype.F32, batch, heads, n)
			list, err := AttentionGrad(AttentionGradOperands{DQ: x, DK: x, DV: x, G: x, Q: x, K: x, V: x, Out: x, LSE: lse,
				AttentionWeighing: w}, scratch)
			a.launches(list, err)
			list, err = Attention(a100, AttentionOperands{Out: x, LSE: lse, Q: x, K: x, V: x, AttentionWeighing: w}, nil)
			a.launches(list, err)
		}
	}
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} { // the kernels for decoding
		for _, features := range []int{16, 32, 64, 80, 128, 192, 256} {
			for _, w := range weighings(1, heads, 1, n, typ) {
				w.Causal = false // with causal attention, the few queries would not see many keys
				q, kv := fake(typ, 1, heads, 1, features), fake(typ, 1, heads, n, features)
				list, err := Attention(a100, AttentionOperands{Out: q, Q: q, K: kv, V: kv, AttentionWeighing: w}, scratch)
				a.launches(list, err)
			}
		}
	}
	a.finish()
}
