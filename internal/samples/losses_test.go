package samples

import (
	"github.com/flambeau-go/flambeau/nn"
)

// reduction converts PyTorch's name of a reduction.
func (a *args) reduction(i int) nn.Reduction {
	a.ignored("size_average", "reduce")
	switch r := a.text(i, "reduction", "mean"); r {
	case "mean":
		return nn.Mean
	case "sum":
		return nn.Sum
	case "none":
		return nn.None
	case "batchmean":
		return nn.BatchMean
	default:
		panic(wrong("reduction " + r))
	}
}

// table returns an embedding with the rows of w. The argument padding_idx is at position i.
func (a *args) table(w T, i int) nn.Table {
	a.ignored("sparse")
	t := nn.Table{Weight: w, MaxNorm: a.float(-1, "max_norm", 0),
		NormType: a.float(-1, "norm_type", 2), ScaleGradByFreq: a.bool(-1, "scale_grad_by_freq", false)}
	if a.has(i, "padding_idx") {
		p := a.int(i, "padding_idx", 0)
		if p < 0 {
			p += w.Dim(0)
		}
		t.Padding = &p
	}
	return t
}

func (a *args) target() T { return a.T(1, "target") }

var losses = map[string]call{
	"nn.functional.mse_loss": func(a *args) any {
		return nn.MSELoss{Weight: a.opt(-1, "weight"), Reduction: a.reduction(-1)}.Forward(a.x(),
			a.target())
	},
	"nn.functional.l1_loss": func(a *args) any {
		return nn.L1Loss{Weight: a.opt(-1, "weight"), Reduction: a.reduction(-1)}.Forward(a.x(),
			a.target())
	},
	"nn.functional.smooth_l1_loss": func(a *args) any {
		return nn.SmoothL1Loss{Beta: a.float(-1, "beta", 1), Reduction: a.reduction(-1)}.
			Forward(a.x(), a.target())
	},
	"nn.functional.huber_loss": func(a *args) any {
		return nn.HuberLoss{Delta: a.float(-1, "delta", 1), Weight: a.opt(-1, "weight"),
			Reduction: a.reduction(2)}.Forward(a.x(), a.target())
	},
	"nn.functional.kl_div": func(a *args) any {
		return nn.KLDivLoss{LogTarget: a.bool(-1, "log_target", false), Reduction: a.reduction(-1)}.
			Forward(a.x(), a.target())
	},
	"nn.functional.nll_loss": func(a *args) any {
		l := nn.NLLLoss{Weight: a.opt(2, "weight"), Reduction: a.reduction(-1)}
		if a.has(-1, "ignore_index") {
			l.IgnoreIndex = new(a.int(-1, "ignore_index", 0))
		}
		return l.Forward(a.x(), a.target())
	},
	"nn.functional.cross_entropy": func(a *args) any {
		l := nn.CrossEntropyLoss{Weight: a.opt(2, "weight"), Reduction: a.reduction(-1),
			LabelSmoothing: a.float(-1, "label_smoothing", 0)}
		if a.has(-1, "ignore_index") {
			l.IgnoreIndex = new(a.int(-1, "ignore_index", 0))
		}
		return l.Forward(a.x(), a.target())
	},
	"nn.functional.binary_cross_entropy": func(a *args) any {
		return nn.BCELoss{Weight: a.opt(-1, "weight"), Reduction: a.reduction(-1)}.Forward(a.x(),
			a.target())
	},
	"nn.functional.binary_cross_entropy_with_logits": func(a *args) any {
		return nn.BCEWithLogitsLoss{Weight: a.opt(-1, "weight"), PosWeight: a.opt(-1, "pos_weight"),
			Reduction: a.reduction(-1)}.Forward(a.x(), a.target())
	},
	"nn.functional.soft_margin_loss": func(a *args) any {
		return nn.SoftMarginLoss{Reduction: a.reduction(-1)}.Forward(a.x(), a.target())
	},
	"nn.functional.multilabel_margin_loss": func(a *args) any {
		return nn.MultiLabelMarginLoss{Reduction: a.reduction(-1)}.Forward(a.x(), a.target())
	},
	"nn.functional.multilabel_soft_margin_loss": func(a *args) any {
		return nn.MultiLabelSoftMarginLoss{Weight: a.opt(2, "weight"), Reduction: a.reduction(-1)}.
			Forward(a.x(), a.target())
	},
	"nn.functional.multi_margin_loss": func(a *args) any {
		l := nn.NewMultiMarginLoss()
		l.P, l.Margin = a.int(-1, "p", 1), a.float(-1, "margin", 1)
		l.Weight, l.Reduction = a.opt(-1, "weight"), a.reduction(-1)
		return l.Forward(a.x(), a.target())
	},
	"nn.functional.margin_ranking_loss": func(a *args) any {
		return nn.MarginRankingLoss{Margin: a.float(3, "margin", 0), Reduction: a.reduction(-1)}.
			Forward(a.x(), a.T(1, "input2"), a.T(2, "target"))
	},
	"nn.functional.hinge_embedding_loss": func(a *args) any {
		return nn.HingeEmbeddingLoss{Margin: a.float(2, "margin", 1), Reduction: a.reduction(-1)}.
			Forward(a.x(), a.target())
	},
	"nn.functional.cosine_embedding_loss": func(a *args) any {
		return nn.CosineEmbeddingLoss{Margin: a.float(3, "margin", 0), Reduction: a.reduction(-1)}.
			Forward(a.x(), a.T(1, "input2"), a.T(2, "target"))
	},
	"nn.functional.gaussian_nll_loss": func(a *args) any {
		l := nn.NewGaussianNLLLoss()
		l.Full, l.Eps, l.Reduction = a.bool(-1, "full", false), a.float(-1, "eps", 1e-6),
			a.reduction(-1)
		switch v := a.arg(2, "var").(type) {
		case T:
			return l.Forward(a.x(), a.target(), v)
		default:
			return l.Forward(a.x(), a.target(), a.x().FullLike(number64(v)))
		}
	},
	"nn.functional.poisson_nll_loss": func(a *args) any {
		l := nn.NewPoissonNLLLoss()
		l.LogInput, l.Full = a.bool(2, "log_input", true), a.bool(3, "full", false)
		l.Eps, l.Reduction = a.float(-1, "eps", 1e-8), a.reduction(-1)
		return l.Forward(a.x(), a.target())
	},
	"nn.functional.triplet_margin_loss":               triplets,
	"nn.functional.triplet_margin_with_distance_loss": triplets,
	"nn.functional.ctc_loss": func(a *args) any {
		l := nn.CTCLoss{Blank: a.int(4, "blank", 0), Reduction: a.reduction(5),
			ZeroInfinity: a.bool(6, "zero_infinity", false)}
		return l.Forward(a.x(), a.target(), a.lengths(2), a.lengths(3))
	},
	"nn.functional.linear_cross_entropy": func(a *args) any {
		var o nn.LinearCrossEntropyOptions
		o.Weight, o.LabelSmoothing = a.opt(-1, "weight"), a.float(-1, "label_smoothing", 0)
		o.IgnoreIndex = a.ignoreIndex()
		return nn.LinearCrossEntropy(a.x(), a.T(1, "linear_weight"), a.opt(-1, "linear_bias"),
			a.T(2, "target"), o,
			a.reduction(-1))
	},
	"nn.functional.embedding_bag": func(a *args) any {
		modes := map[string]nn.BagMode{"sum": nn.BagSum, "mean": nn.BagMean, "max": nn.BagMax}
		l := &nn.EmbeddingBag{Table: a.table(a.x(), -1), Mode: modes[a.text(-1, "mode", "mean")]}
		l.IncludeLastOffset = a.bool(-1, "include_last_offset", false)
		return l.Bags(a.T(1, "indices"), a.opt(2, "offsets"), a.opt(-1, "per_sample_weights"))
	},
}

var triplets call = func(a *args) any {
	l := nn.NewTripletMarginLoss()
	l.Margin, l.P, l.Eps = a.float(-1, "margin", 1), a.float(-1, "p", 2), a.float(-1, "eps", 1e-6)
	l.Swap, l.Reduction = a.bool(-1, "swap", false), a.reduction(-1)
	return l.Forward(a.x(), a.T(1, "positive"), a.T(2, "negative"))
}
