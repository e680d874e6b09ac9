package main

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// A pairCase is a case that is measured alternately with PyTorch. Its pieces are the work that
// every implementation must do, at full size.
type pairCase struct {
	benchCase
	pieces []piece
}

// A piece is a part of the work that must wait for the part before it. FLOPs is the number of
// operations on bfloat16 that accumulate in float32. Bytes counts each operand once as it is read,
// and each result once as it is written.
type piece struct {
	FLOPs, Bytes float64
}

// minSeconds returns the minimum time in seconds that a GPU needs. A piece takes as long as its
// operations at the peak rate, or its bytes at the full bandwidth, whichever is longer. NVIDIA's
// datasheets give both rates.
func minSeconds(m train.Machine, pieces []piece) (seconds float64) {
	for _, p := range pieces {
		seconds += max(p.FLOPs/m.Half, p.Bytes/m.Bandwidth)
	}
	return seconds
}

// These are the sizes of GPT-2 124M, on 8 rows of 1024 tokens.
const (
	gptRows   = 8
	gptTokens = gptRows * 1024
	gptWidth  = 768
	gptVocab  = 50257
	gptLayers = 12
)

// linears are GPT-2's matrix products with weights, for m tokens, k features and n results.
var linears = []struct {
	name string
	n, k int
	tied bool // whether the weight is the token table, [n, k]
}{
	{"qkv", 3 * gptWidth, gptWidth, false},
	{"proj", gptWidth, gptWidth, false},
	{"fc", 4 * gptWidth, gptWidth, false},
	{"out", gptWidth, 4 * gptWidth, false},
	{"head", gptVocab, gptWidth, true},
}

// An attentionCase is scaled dot product attention on bfloat16. Queries are [batch, heads, queries,
// features], and keys are [batch, heads, keys, features].
type attentionCase struct {
	name                                  string
	batch, heads, queries, keys, features int
	causal                                bool
}

var attentions = []attentionCase{
	{"8x12x1024x64_causal", 8, 12, 1024, 1024, 64, true},
	{"1x12x8192x64_causal", 1, 12, 8192, 8192, 64, true},
	{"8x12x1x64_keys4096", 8, 12, 1, 4096, 64, false},
}

// pairs returns the cases, the most important ones first, so that a run that is aborted early
// measures them.
func pairs() []pairCase {
	step, pieces := training(gptRows, dtype.BF16, gpt2), gpt2Pieces()
	list := []pairCase{
		{benchCase{"gpt2_8x1024_bf16", "samples/s", true, step}, pieces},
		{benchCase{"gpt2_8x1024_bf16_graph", "samples/s", true, replaying(gptRows, dtype.BF16, gpt2)}, pieces},
	}
	for _, a := range attentions {
		list = append(list, pairCase{benchCase{"attention_" + a.name, "GFLOP/s", true, a.measure(false)}, a.pieces(false)})
		if a.queries > 1 {
			list = append(list, pairCase{benchCase{"attention_" + a.name + "_both", "GFLOP/s", true, a.measure(true)}, a.pieces(true)})
		}
	}
	for _, l := range linears {
		for _, way := range []string{"", "_dx", "_dw"} {
			run := linear(l.n, l.k, l.tied, way)
			list = append(list, pairCase{benchCase{"linear_" + l.name + way, "GFLOP/s", true, run}, []piece{productPiece(gptTokens, l.n, l.k)}})
		}
	}
	return list
}

func productPiece(m, n, k int) piece {
	a, b, c := float64(m), float64(n), float64(k)
	return piece{2 * a * b * c, 2 * (a*c + c*b + a*b)}
}

// gpt2Pieces returns the pieces of a step with AdamW: products with weights (forward and both
// gradients), attention, and the optimizer. Norms, GELU, dropout and the loss are left out.
func gpt2Pieces() (list []piece) {
	parameters := 0
	for _, l := range linears {
		times := gptLayers
		if l.tied {
			times = 1
		}
		for range 3 * times {
			list = append(list, productPiece(gptTokens, l.n, l.k))
		}
		parameters += times * l.n * l.k
	}
	for range gptLayers {
		list = append(list, attentions[0].pieces(true)...)
	}
	// AdamW reads and writes each float32 parameter and its two averages, and reads its gradient: 7
	// values of 4 bytes.
	return append(list, piece{Bytes: float64(parameters) * 7 * 4})
}

// gpt2 builds GPT-2 124M, with dropout 0.1 and its own vocabulary.
func gpt2(r *run, home *tensor.Scope, to device.Device, batch int) *train.PlannedStep {
	c := models.GPT2()
	if r.trial {
		c = models.GPTConfig{Vocab: 61, Context: 32, Layers: 1, Heads: 2, Width: 64, Dropout: 0.1}
	}
	m := models.NewGPT(c, nn.In(home))
	return adamW(m, to, func(s *tensor.Scope) *tensor.Tensor {
		return m.Loss(s.RandInt(0, c.Vocab, batch, c.Context), s.RandInt(0, c.Vocab, batch, c.Context))
	})
}

// pieces returns the work of attention. A key that causal attention hides from a query does not
// count. The forward pass has two products. The gradient has five, and reads the operands and the
// result again. T. Dao counts in the same way ("FlashAttention-2", arXiv:2307.08691, section 4.1).
func (a attentionCase) pieces(gradient bool) []piece {
	seen := float64(a.queries) * float64(a.keys)
	if a.causal {
		seen = float64(a.queries) * float64(a.queries+1) / 2
	}
	rows := float64(a.batch * a.heads)
	q, k := rows*float64(a.queries*a.features)*2, rows*float64(a.keys*a.features)*2
	list := []piece{{4 * rows * seen * float64(a.features), 2*q + 2*k}}
	if gradient {
		list = append(list, piece{2.5 * list[0].FLOPs, 4*q + 4*k})
	}
	return list
}

// measure measures attention. If gradient is set, it also measures the backward pass.
func (a attentionCase) measure(gradient bool) func(*run) {
	return func(r *run) {
		small := a
		small.batch, small.heads = r.n(a.batch, 1), r.n(a.heads, 2)
		small.queries, small.keys = r.n(a.queries, min(a.queries, 32)), r.n(a.keys, 32)
		options := []tensor.Option{tensor.On(r.dev)}
		if !gradient {
			options = append(options, tensor.NoGrad())
		}
		var flops float64
		for _, p := range small.pieces(gradient) {
			flops += p.FLOPs
		}
		tensor.Do(func(data *tensor.Scope) {
			make := func(length int) *tensor.Tensor {
				return data.Randn(small.batch, small.heads, length, small.features).Cast(dtype.BF16).Detach()
			}
			q, k, v, g := make(small.queries), make(small.keys), make(small.keys), make(small.queries)
			if gradient {
				for _, x := range []*tensor.Tensor{q, k, v} {
					x.RequiresGrad()
				}
			}
			r.measure(calls(flops), true, func() {
				data.Do(func(s *tensor.Scope) {
					y := tensor.ScaledDotProductAttention(q.In(s), k.In(s), v.In(s), tensor.AttentionOptions{Causal: a.causal})
					if gradient {
						tensor.Gradients(y, []*tensor.Tensor{q, k, v}, tensor.GradOutput(g))
					}
				})
			})
		}, options...)
		r.Rate = flops / r.Median / 1e9
	}
}

// linear measures a linear layer's product as models.GPT computes it. The suffix "_dx" or "_dw"
// selects the product for the gradient of the input or of the weight instead.
func linear(n, k int, tied bool, suffix string) func(*run) {
	return func(r *run) {
		m, n, k := r.n(gptTokens, 48), r.n(n, min(n, 72)), r.n(k, 64)
		flops := productPiece(m, n, k).FLOPs
		tensor.Do(func(data *tensor.Scope) {
			make := func(a, b int) *tensor.Tensor { return data.Randn(a, b).Cast(dtype.BF16) }
			x, g, w := make(m, k), make(m, n), make(k, n)
			if tied {
				w = make(n, k).T()
			}
			r.measure(calls(flops), true, func() {
				data.Do(func(s *tensor.Scope) {
					switch {
					case suffix == "_dx":
						g.In(s).MatMul(w.T())
					case suffix == "_dw" && tied:
						g.In(s).T().MatMul(x)
					case suffix == "_dw":
						x.In(s).T().MatMul(g)
					default:
						x.In(s).MatMul(w)
					}
				})
			})
		}, tensor.On(r.dev), tensor.NoGrad())
		r.Rate = flops / r.Median / 1e9
	}
}

// calls returns the number of calls between two events. With fewer, the clock would not be precise
// enough.
func calls(flops float64) int { return int(min(100, max(1, 2e11/flops))) }
