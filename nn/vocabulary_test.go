package nn_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Losses over large vocabularies have PyTorch's results and gradients.
func TestGoldenVocabularies(t *testing.T) {
	goldenModels(t, "testdata/vocabulary.safetensors.gz", 35, map[string]goldenModel{
		"adaptive_log_softmax": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
			var names []string
			if err := json.Unmarshal(a["names"], &names); err != nil {
				panic(err)
			}
			if opts = append(opts, nn.DivValue(a.Float("div"))); slices.Contains(names, "head.bias") {
				opts = append(opts, nn.HeadBias())
			}
			m := nn.NewAdaptiveLogSoftmaxWithLoss(8, 12, a.Ints("cutoffs"), opts...)
			return m, func(x, masks []*tt) []*tt {
				y, loss := m.Forward(x[0], x[1])
				if x[0].Rank() == 1 {
					return []*tt{y, loss}
				}
				return []*tt{y, loss, m.LogProb(x[0]), m.Predict(x[0]).Cast(x[0].Type())}
			}
		},
		"linear_cross_entropy": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
			m := nn.NewLinear(4, 7, biasOption(a, opts)...)
			return m, func(x, masks []*tt) []*tt {
				var o nn.LinearCrossEntropyOptions
				o.Rows, o.LabelSmoothing, o.IgnoreIndex, o.Weight = 3, a.Float("smoothing"), new(a.Int("ignore")), append(x, nil)[2]
				return []*tt{nn.LinearCrossEntropy(x[0], m.Weight, m.Bias, x[1], o, reductionOf(a))}
			}
		},
	})
}

// The loss computed in blocks of rows equals the loss computed from all logits, for any number of
// rows in a block. The test covers classes and probabilities, batches of sequences, autocast, and
// second derivatives.
func TestLinearCrossEntropyInParts(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, low := range []bool{false, true} {
			mode, ty, tol := []tensor.Option{}, dtype.F64, 1e-12
			if low {
				mode, ty, tol = append(mode, tensor.Autocast(dtype.BF16)), dtype.F32, 6e-2
			}
			s.Do(func(s *tensor.Scope) {
				m := s.Typed(ty)
				x, w, b := m.Randn(2, 5, 3).RequiresGrad(), m.Randn(6, 3).RequiresGrad(), m.Randn(6).RequiresGrad()
				classes := s.Typed(dtype.I64).RandInt(0, 6, 2, 5)
				chances := m.Randn(2, 5, 6).Softmax(-1).Detach()
				for _, target := range []*tt{classes, chances} {
					flat := target.Flatten(0, 1)
					for _, rows := range []int{0, 1, 4, 10, 99} {
						for _, r := range []nn.Reduction{nn.Mean, nn.Sum, nn.None} {
							leaves := []*tt{x, w, b}
							y := nn.LinearCrossEntropy(x, w, b, target, nn.LinearCrossEntropyOptions{Rows: rows}, r)
							want := nn.CrossEntropy((&nn.Linear{Weight: w, Bias: b}).Forward(x.Flatten(0, 1)), flat, r)
							got, all := []*tt{y.Flatten(0, -1)}, []*tt{want.Flatten(0, -1)}
							for k, v := range []*tt{y.Square().Sum(), want.Square().Sum()} {
								g := tensor.Gradients(v, leaves, tensor.CreateGraph())
								total := g[0].Square().Sum().Add(g[1].Square().Sum())
								if !low {
									g = append(g, tensor.Gradients(total, leaves, tensor.AllowUnused())...)
								}
								if k == 0 {
									got = append(got, g...)
								} else {
									all = append(all, g...)
								}
							}
							for i := range all {
								g, a := got[i].Floats(), all[i].Floats()
								for k := range a {
									if math.Abs(g[k]-a[k]) > tol*(1+math.Abs(a[k])) {
										t.Fatalf("autocast %v, %d rows, reduction %v: result %d[%d] is %v, want %v", low, rows, r, i, k, g[k], a[k])
									}
								}
							}
						}
					}
				}
			}, mode...)
		}
	}, tensor.Seed(3))
}

// The gradients of many blocks of rows are added up in float32, although the matrix products have
// 16-bit operands. Each of the added gradients is 1, so a sum in bfloat16 would stop at 256.
func TestLinearCrossEntropyAddsUpInFloat32(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		const n = 600
		add := func(s *tensor.Scope, ty dtype.Type) float64 {
			w := s.Typed(ty).Full(0, 2, 1).RequiresGrad()
			y := nn.LinearCrossEntropy(s.Typed(ty).Ones(n, 1), w, nil, s.Typed(dtype.I64).Zeros(n), nn.LinearCrossEntropyOptions{Rows: 1}, nn.Sum)
			return tensor.Gradients(y, []*tt{w})[0].Floats()[1]
		}
		if g := add(s, dtype.BF16); g != n/2 {
			t.Errorf("bfloat16: %v, want %v", g, n/2)
		}
		s.Do(func(s *tensor.Scope) {
			if g := add(s, dtype.F32); g != n/2 {
				t.Errorf("autocast: %v, want %v", g, n/2)
			}
		}, tensor.Autocast(dtype.BF16))
	})
}

// The logits of all rows are never in memory at the same time, neither in the forward pass nor in
// Backward. At the peak, memory holds the logits of some rows and the weight's gradients.
func TestLinearCrossEntropyPeak(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=8GiB")
	if err != nil {
		t.Fatal(err)
	}
	const n, features, vocabulary = 8192, 32, 50000
	peak := func(loss func(x, w, y *tt) *tt) uint64 {
		dev := gpus[0]
		tensor.Do(func(s *tensor.Scope) {
			x, w, y := s.Randn(n, features).RequiresGrad(), s.Randn(vocabulary, features).RequiresGrad(), s.Typed(dtype.I64).Zeros(n)
			dev.Synchronize()
			dev.ResetPeak()
			s.Do(func(s *tensor.Scope) { loss(x.In(s), w, y).Backward() })
		}, tensor.On(dev))
		return uint64(dev.Stats().AllocatedPeak)
	}
	logits := uint64(n * vocabulary * 4)
	parts := peak(func(x, w, y *tt) *tt { return nn.LinearCrossEntropy(x, w, nil, y, nn.LinearCrossEntropyOptions{}) })
	whole := peak(func(x, w, y *tt) *tt { return nn.CrossEntropy((&nn.Linear{Weight: w}).Forward(x), y) })
	if parts > logits/6 || whole < logits {
		t.Errorf("a peak of %d MiB in parts, %d MiB at once; all logits are %d MiB", parts>>20, whole>>20, logits>>20)
	}
	t.Logf("%d MiB in parts, %d MiB at once, all logits %d MiB", parts>>20, whole>>20, logits>>20)
}

func TestVocabularyMistakes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, w, y := s.Randn(4, 3), s.Randn(5, 3), s.Typed(dtype.I64).Zeros(4)
		m := nn.NewAdaptiveLogSoftmaxWithLoss(3, 9, []int{2, 5})
		var o nn.LinearCrossEntropyOptions
		for says, f := range map[string]func(){
			"[classes, features]":       func() { nn.LinearCrossEntropy(x, w.Flatten(0, 1), nil, y, o) },
			"4 features":                func() { nn.LinearCrossEntropy(s.Randn(4, 4), w, nil, y, o) },
			"the targets of x":          func() { nn.LinearCrossEntropy(x, w, nil, y.Narrow(0, 0, 2), o) },
			"the bias is [5]":           func() { nn.LinearCrossEntropy(x, w, s.Ones(1), y, o) },
			"-1 rows":                   func() { nn.LinearCrossEntropy(x, w, nil, y, nn.LinearCrossEntropyOptions{Rows: -1}) },
			"9":                         func() { m.Forward(x, y.AddScalar(9)) },
			"-1":                        func() { m.Forward(x, y.SubScalar(1)) },
			"targets [n], or without n": func() { m.Forward(x, y.Narrow(0, 0, 2)) },
			"must be int64":             func() { m.Forward(x, y.Cast(dtype.I32)) },
		} {
			if err := tensor.Try(f); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
		}
		for _, cutoffs := range [][]int{nil, {0, 2}, {3, 3}, {2, 9}} {
			func() {
				defer func() {
					if _, ok := recover().(*nn.Error); !ok {
						t.Errorf("cutoffs %v are taken", cutoffs)
					}
				}()
				nn.NewAdaptiveLogSoftmaxWithLoss(3, 9, cutoffs)
			}()
		}
	})
}

// The example combines the last layer of a language model with its loss. The logits of all rows are
// never in memory at once.
func ExampleLinearCrossEntropyLoss() {
	l := nn.NewLinearCrossEntropyLoss(64, 50000)
	hidden, words := tensor.Zeros(2, 8, 64), tensor.Root().Typed(dtype.I64).Zeros(2, 8)
	// The loss is log 50000, because all classes are equally likely.
	fmt.Printf("%.3f\n", l.Forward(hidden, words).Item())
	// Output: 10.820
}

// Frequent classes have low numbers. The scores of rare classes are computed only for rows whose
// target is rare.
func ExampleAdaptiveLogSoftmaxWithLoss() {
	m := nn.NewAdaptiveLogSoftmaxWithLoss(64, 50000, []int{2000, 10000})
	y, _ := m.Forward(tensor.Zeros(2, 64), tensor.From([]int64{3, 40000}))
	fmt.Printf("%.3f\n", y.Floats()) // -log 2002, and -log 2002 - log 40000
	for _, p := range nn.NamedParameters(m) {
		fmt.Print(p.Name, " ", p.Tensor.Shape(), " ")
	}
	// Output:
	// [-7.602 -18.199]
	// head.weight [2002, 64] tail.0.0.weight [16, 64] tail.0.1.weight [8000, 16] tail.1.0.weight [4, 64] tail.1.1.weight [40000, 4]
}

// The loss has the type of the matrix product's operands, whatever the type of the bias.
func TestLinearCrossEntropyWideBias(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, w, target := s.Randn(7, 4), s.Randn(3, 4), s.RandInt(0, 3, 7)
		b := s.Typed(dtype.F64).Randn(3)
		o := nn.LinearCrossEntropyOptions{CrossEntropyOptions: tensor.CrossEntropyOptions{Weight: s.Ones(3)}}
		if l := nn.LinearCrossEntropy(x, w, b, target, o); l.Type() != dtype.F32 {
			t.Errorf("the loss is %v", l.Type())
		}
	})
}
