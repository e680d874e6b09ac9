package nn_test

import (
	"maps"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
)

// ignored returns the class that a golden case ignores, or nil for none.
func ignored(a golden.Args) *int {
	if a.Has("ignore_index") {
		return new(a.Int("ignore_index"))
	}
	return nil
}

func init() {
	type args = golden.Args
	at := func(x []*tt, i int) *tt {
		if i < len(x) {
			return x[i]
		}
		return nil
	}
	maps.Copy(goldenLayers, map[string]func(a args, x []*tt) *tt{
		"l1_loss": func(a args, x []*tt) *tt {
			return nn.L1Loss{Weight: at(x, 2), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"mse_loss": func(a args, x []*tt) *tt {
			return nn.MSELoss{Weight: at(x, 2), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"huber_loss": func(a args, x []*tt) *tt {
			return nn.HuberLoss{Delta: a.Float("delta"), Weight: at(x, 2), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"binary_cross_entropy": func(a args, x []*tt) *tt {
			return nn.BCELoss{Weight: at(x, 2), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"binary_cross_entropy_with_logits": func(a args, x []*tt) *tt {
			l := nn.BCEWithLogitsLoss{PosWeight: at(x, 2), Reduction: reductionOf(a)}
			if len(x) == 4 {
				l.Weight, l.PosWeight = x[2], x[3]
			}
			return l.Forward(x[0], x[1])
		},
		"smooth_l1_loss": func(a args, x []*tt) *tt {
			return nn.SmoothL1(x[0], x[1], a.Float("beta"), reductionOf(a))
		},
		"kl_div": func(a args, x []*tt) *tt {
			return nn.KLDivLoss{LogTarget: a.Bool("log_target"), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"cross_entropy": func(a args, x []*tt) *tt {
			return nn.CrossEntropyLoss{Weight: at(x, 2), IgnoreIndex: ignored(a), LabelSmoothing: a.Float("label_smoothing"), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"nll_loss": func(a args, x []*tt) *tt {
			return nn.NLLLoss{Weight: at(x, 2), IgnoreIndex: ignored(a), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"margin_ranking_loss": func(a args, x []*tt) *tt {
			return nn.MarginRankingLoss{Margin: a.Float("margin"), Reduction: reductionOf(a)}.Forward(x[0], x[1], x[2])
		},
		"hinge_embedding_loss": func(a args, x []*tt) *tt {
			return nn.HingeEmbeddingLoss{Margin: a.Float("margin"), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"cosine_embedding_loss": func(a args, x []*tt) *tt {
			return nn.CosineEmbeddingLoss{Margin: a.Float("margin"), Reduction: reductionOf(a)}.Forward(x[0], x[1], x[2])
		},
		"triplet_margin_loss": func(a args, x []*tt) *tt {
			l := nn.NewTripletMarginLoss()
			l.Margin, l.P, l.Swap, l.Reduction = a.Float("margin"), a.Float("p"), a.Bool("swap"), reductionOf(a)
			return l.Forward(x[0], x[1], x[2])
		},
		"poisson_nll_loss": func(a args, x []*tt) *tt {
			l := nn.NewPoissonNLLLoss()
			l.LogInput, l.Full, l.Reduction = a.Bool("log_input"), a.Bool("full"), reductionOf(a)
			return l.Forward(x[0], x[1])
		},
		"gaussian_nll_loss": func(a args, x []*tt) *tt {
			l := nn.NewGaussianNLLLoss()
			l.Full, l.Reduction = a.Bool("full"), reductionOf(a)
			return l.Forward(x[0], x[1], x[2])
		},
		"soft_margin_loss": func(a args, x []*tt) *tt {
			return nn.SoftMarginLoss{Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"multi_margin_loss": func(a args, x []*tt) *tt {
			l := nn.NewMultiMarginLoss()
			l.P, l.Margin, l.Weight, l.Reduction = a.Int("p"), a.Float("margin"), at(x, 2), reductionOf(a)
			return l.Forward(x[0], x[1])
		},
		"ctc_loss": func(a args, x []*tt) *tt {
			logp := x[0]
			if a.Bool("soft") {
				logp = logp.LogSoftmax(-1)
			}
			return nn.CTCLoss{Blank: a.Int("blank"), ZeroInfinity: a.Bool("zero_infinity"), Reduction: reductionOf(a)}.Forward(logp, x[1], x[2], x[3])
		},
		"multilabel_margin_loss": func(a args, x []*tt) *tt {
			return nn.MultiLabelMarginLoss{Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
		"multilabel_soft_margin_loss": func(a args, x []*tt) *tt {
			return nn.MultiLabelSoftMarginLoss{Weight: at(x, 2), Reduction: reductionOf(a)}.Forward(x[0], x[1])
		},
	})
}
