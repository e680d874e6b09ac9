package optest

import (
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// optional returns a list of numbers that a case may lack.
func optional(a golden.Args, name string) []int {
	if a.Has(name) {
		return a.Ints(name)
	}
	return nil
}

// The ops of _golden/conv.py.
func init() {
	type args = golden.Args
	groups := func(a args) int {
		if a.Has("groups") {
			return a.Int("groups")
		}
		return 0
	}
	conv := func(f func(x, w, b *tt, o tensor.ConvOptions) *tt) goldenOp {
		return func(a args, x []*tt) *tt {
			return f(x[0], x[1], biasOf(x), tensor.ConvOptions{Stride: optional(a, "stride"), Padding: optional(a, "padding"), Dilation: optional(a, "dilation"),
				Groups: groups(a), Same: a.Has("same")})
		}
	}
	transposed := func(f func(x, w, b *tt, o tensor.ConvTransposeOptions) *tt) goldenOp {
		return func(a args, x []*tt) *tt {
			return f(x[0], x[1], biasOf(x), tensor.ConvTransposeOptions{Stride: optional(a, "stride"), Padding: optional(a, "padding"), Dilation: optional(a, "dilation"),
				OutputPadding: optional(a, "output_padding"), Groups: groups(a)})
		}
	}
	for name, op := range map[string]goldenOp{
		"conv1d": conv((*tt).Conv1d), "conv2d": conv((*tt).Conv2d), "conv3d": conv((*tt).Conv3d),
		"conv_transpose1d": transposed((*tt).ConvTranspose1d), "conv_transpose2d": transposed((*tt).ConvTranspose2d), "conv_transpose3d": transposed((*tt).ConvTranspose3d),
	} {
		goldenOps[name] = op
		goldenTerms[name] = convTerms
	}
}

// convTerms are the terms of an op that is linear in each operand: those of the absolute values.
func convTerms(c golden.Case) terms {
	t := absoluteRun(c)
	for i, v := range t.out {
		t.out[i] = finite(v)
	}
	for _, g := range t.grads {
		for i, v := range g {
			g[i] = finite(v)
		}
	}
	return t
}
