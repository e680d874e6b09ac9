package main

import "github.com/flambeau-go/flambeau/tensor"

// ordering measures calls of f without gradients. It waits for the device after every ten calls.
// operands makes the operands of f. The rate is in millions of elements per second.
func ordering(n, small int, operands func(s *tensor.Scope, n int) []*tensor.Tensor, f func(x []*tensor.Tensor)) func(*run) {
	return func(r *run) {
		n := r.n(n, small)
		tensor.ManualSeed(1)
		tensor.Do(func(data *tensor.Scope) {
			v := operands(data, n)
			r.measure(10, false, func() {
				data.Do(func(s *tensor.Scope) {
					x := make([]*tensor.Tensor, len(v))
					for i := range v {
						x[i] = v[i].In(s)
					}
					f(x)
				})
			})
		}, tensor.On(r.dev), tensor.NoGrad())
		r.Rate = float64(n) / r.Median / 1e6
	}
}

func randomVector(s *tensor.Scope, n int) []*tensor.Tensor { return []*tensor.Tensor{s.Randn(n)} }

// logits returns rows of logits over GPT-2's vocabulary.
func logits(s *tensor.Scope, rows int) []*tensor.Tensor {
	return []*tensor.Tensor{s.Randn(rows, 50257)}
}

// tokenRows returns three tensors: a row of features per token, the tokens, and a table with one
// row per word of the vocabulary.
func tokenRows(s *tensor.Scope, n int) []*tensor.Tensor {
	vocab := min(50257, 16*n)
	return []*tensor.Tensor{s.Randn(n, 768), s.RandInt(0, vocab, n), s.Zeros(vocab, 768)}
}

// numbers returns random integers below 2²⁰.
func numbers(s *tensor.Scope, n int) []*tensor.Tensor {
	return []*tensor.Tensor{s.RandInt(0, 1<<20, n)}
}
