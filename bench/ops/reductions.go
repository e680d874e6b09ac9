package main

import "github.com/flambeau-go/flambeau/tensor"

// first and second select the first and the second of two results.
func first(f func(*T) (*T, *T)) func([]*T) *T {
	return func(x []*T) *T { y, _ := f(x[0]); return y }
}

func over(f func(*T, ...int) *T, d ...int) func([]*T) *T {
	return func(x []*T) *T { return f(x[0], d...) }
}

var reductions = []bench{
	{"sum", "f:n", "a", "a.sum()", over((*T).Sum), "tml"},
	{"sum_rows", "f:R,C", "a", "a.sum(1)", over((*T).Sum, 1), "tml"},
	{"sum_columns", "f:R,C", "a", "a.sum(0)", over((*T).Sum, 0), "tml"},
	{"sum_middle", "f:B,S,D", "a", "a.sum(1)", over((*T).Sum, 1), "tml"},
	{"sum_outer_dims", "f:B,S,D", "a", "a.sum((0, 1))", over((*T).Sum, 0, 1), "tml"},
	{"sum_ends", "f:B,S,D", "a", "a.sum((0, 2))", over((*T).Sum, 0, 2), "tml"},
	{"sum_turned_rows", "f:R,C/t", "a", "a.sum(1)", over((*T).Sum, 1), "tml"},
	{"sum_strided", "f:R,C/s", "a", "a.sum(1)", over((*T).Sum, 1), "tml"},
	{"sum_short_rows", "f:n,4", "a", "a.sum(1)", over((*T).Sum, 1), "mh"},
	{"sum_narrow_columns", "f:n,4", "a", "a.sum(0)", over((*T).Sum, 0), "mh"},
	{"mean", "f:n", "a", "a.mean()", over((*T).Mean), "tml"},
	{"mean_rows", "f:R,C", "a", "a.mean(1)", over((*T).Mean, 1), "tml"},
	{"mean_columns", "f:R,C", "a", "a.mean(0)", over((*T).Mean, 0), "tml"},
	{"mean_bf16_rows", "h:R,C", "a", "a.mean(1)", over((*T).Mean, 1), "tml"},
	{"amax", "f:n", "", "a.amax()", over((*T).Amax), "tml"},
	{"amax_rows", "f:R,C", "a", "a.amax(1)", over((*T).Amax, 1), "tml"},
	{"amax_columns", "f:R,C", "a", "a.amax(0)", over((*T).Amax, 0), "tml"},
	{"max_rows", "f:R,C", "a", "a.max(1)[0]", first(func(x *T) (*T, *T) { return x.Max(1) }), "tml"},
	{"max_columns", "f:R,C", "a", "a.max(0)[0]", first(func(x *T) (*T, *T) { return x.Max(0) }), "tml"},
	{"min_rows", "f:R,C", "a", "a.min(1)[0]", first(func(x *T) (*T, *T) { return x.Min(1) }), "tml"},
	{"argmax", "f:n", "", "a.argmax()", over((*T).Argmax), "tml"},
	{"argmax_rows", "f:R,C", "", "a.argmax(1)", over((*T).Argmax, 1), "tml"},
	{"argmax_columns", "f:R,C", "", "a.argmax(0)", over((*T).Argmax, 0), "tml"},
	{"argmin_rows", "f:R,C", "", "a.argmin(1)", over((*T).Argmin, 1), "tml"},
	{"prod_rows", "p:R,C", "a", "a.prod(1)", over((*T).Prod, 1), "tml"},
	{"var", "f:n", "a", "a.var()", func(x []*T) *T { return x[0].Var(1) }, "tml"},
	{"var_rows", "f:R,C", "a", "a.var(1)", func(x []*T) *T { return x[0].Var(1, 1) }, "tml"},
	{"var_columns", "f:R,C", "a", "a.var(0)", func(x []*T) *T { return x[0].Var(1, 0) }, "tml"},
	{"std_rows", "f:R,C", "a", "a.std(1)", func(x []*T) *T { return x[0].Std(1, 1) }, "tml"},
	{"norm", "f:n", "a", "torch.linalg.vector_norm(a)", func(x []*T) *T { return x[0].Norm(2) }, "tml"},
	{"norm_rows", "f:R,C", "a", "torch.linalg.vector_norm(a, dim=1)", func(x []*T) *T { return x[0].Norm(2, 1) }, "tml"},
	{"norm1_rows", "f:R,C", "a", "torch.linalg.vector_norm(a, 1, dim=1)", func(x []*T) *T { return x[0].Norm(1, 1) }, "tml"},
	{"normalize", "f:R,C", "a", "F.normalize(a)", func(x []*T) *T { return x[0].Normalize(2, 1, 1e-12) }, "tml"},
	{"logsumexp", "f:R,C", "a", "a.logsumexp(1)", over((*T).LogSumExp, 1), "tml"},
	{"count_nonzero", "f:R,C", "", "a.count_nonzero(1)", over((*T).CountNonzero, 1), "tml"},
	{"cumsum_rows", "f:R,C", "a", "a.cumsum(1)", func(x []*T) *T { return x[0].CumSum(1) }, "tml"},
	{"cumsum_columns", "f:R,C", "a", "a.cumsum(0)", func(x []*T) *T { return x[0].CumSum(0) }, "tml"},
	{"cumsum_flat", "f:n", "a", "a.cumsum(0)", func(x []*T) *T { return x[0].CumSum(0) }, "tml"},
	{"cumsum_i64", "g:R,C", "", "a.cumsum(1)", func(x []*T) *T { return x[0].CumSum(1) }, "tml"},
	{"cumprod_rows", "1:R,C", "a", "a.cumprod(1)", func(x []*T) *T { return x[0].CumProd(1) }, "tml"},
	{"cummax_rows", "f:R,C", "a", "a.cummax(1)[0]", first(func(x *T) (*T, *T) { return x.CumMax(1) }), "tmh"},
	{"logcumsumexp", "f:R,C", "a", "a.logcumsumexp(1)", func(x []*T) *T { return x[0].LogCumSumExp(1) }, "tmh"},
	{"cosine_similarity", "f:R,C f:R,C", "ab", "F.cosine_similarity(a, b)", func(x []*T) *T { return x[0].CosineSimilarity(x[1], 1, 1e-8) }, "tml"},
	{"pairwise_distance", "f:R,C f:R,C", "ab", "F.pairwise_distance(a, b)", func(x []*T) *T { return x[0].PairwiseDistance(x[1], 2, 1e-6) }, "tml"},
	{"dot", "f:n f:n", "ab", "a.dot(b)", pair((*T).Dot), "tml"},
	{"trace", "f:R,C", "a", "a.trace()", one((*T).Trace), "tml"},
}

var ordered = []bench{
	{"sort", "f:n", "a", "a.sort()[0]", first(func(x *T) (*T, *T) { return x.Sort(0, false) }), "tmh"},
	{"sort_rows", "f:R,C", "a", "a.sort(1)[0]", first(func(x *T) (*T, *T) { return x.Sort(1, false) }), "tmh"},
	{"sort_columns", "f:R,C", "a", "a.sort(0)[0]", first(func(x *T) (*T, *T) { return x.Sort(0, false) }), "tmh"},
	{"sort_i64", "g:n", "", "a.sort()[0]", first(func(x *T) (*T, *T) { return x.Sort(0, false) }), "tmh"},
	{"argsort_rows", "f:R,C", "", "a.argsort(1, descending=True)", func(x []*T) *T { return x[0].Argsort(1, true) }, "tmh"},
	{"topk_5", "f:R,C", "a", "a.topk(5, 1)[0]", first(func(x *T) (*T, *T) { return x.TopK(5, 1, true, true) }), "tmh"},
	{"topk_flat_100", "f:n", "a", "a.topk(20)[0]", first(func(x *T) (*T, *T) { return x.TopK(20, 0, true, true) }), "tmh"},
	{"kthvalue", "f:R,C", "a", "a.kthvalue(3, 1)[0]", first(func(x *T) (*T, *T) { return x.Kthvalue(3, 1) }), "tmh"},
	{"median", "f:R,C", "a", "a.median(1)[0]", first(func(x *T) (*T, *T) { return x.Median(1) }), "tmh"},
	{"median_flat", "f:n", "a", "a.median()", first(func(x *T) (*T, *T) { return x.Median() }), "tmh"},
	{"mode", "g:R,C", "", "a.mode(1)[0]", first(func(x *T) (*T, *T) { return x.Mode(1) }), "tmh"},
	{"quantile", "f:R,C", "a", "a.quantile(0.3, 1)", func(x []*T) *T { return x[0].Quantile(0.3, tensor.Linear, 1) }, "tmh"},
	{"unique", "g:n", "", "a.unique()", func(x []*T) *T { y, _, _ := x[0].Unique(tensor.UniqueOptions{}); return y }, "tmh"},
	{"unique_inverse", "g:n", "", "a.unique(return_inverse=True, return_counts=True)[0]", func(x []*T) *T {
		y, _, _ := x[0].Unique(tensor.UniqueOptions{Inverse: true, Counts: true})
		return y
	}, "tmh"},
	{"unique_consecutive", "g:n", "", "a.unique_consecutive()", func(x []*T) *T { y, _, _ := x[0].UniqueConsecutive(tensor.UniqueOptions{}); return y }, "tmh"},
	{"searchsorted", "f:1000 f:n", "", "torch.searchsorted(a, b)", func(x []*T) *T { return x[0].Searchsorted(x[1], false) }, "tmh"},
	{"bucketize", "f:n f:1000", "", "torch.bucketize(a, b)", func(x []*T) *T { return x[0].Bucketize(x[1], false) }, "tmh"},
	{"histc", "f:n", "", "a.histc(100, -3, 3)", func(x []*T) *T { return x[0].Histc(100, -3, 3) }, "tmh"},
	{"bincount", "i1000:n", "", "a.bincount(minlength=1000)", func(x []*T) *T { return x[0].Bincount(nil, 1000) }, "tmh"},
	{"isin", "g:n g:100", "", "torch.isin(a, b)", func(x []*T) *T { return x[0].IsIn(x[1], false) }, "tmh"},
}

var random = []bench{
	{"rand", "f:n", "", "torch.rand(a.shape)", one((*T).RandLike), "tml"},
	{"randn", "f:n", "", "torch.randn(a.shape)", one((*T).RandnLike), "tml"},
	{"randint", "g:n", "", "torch.randint(0, 1000, a.shape)", func(x []*T) *T { return x[0].RandIntLike(0, 1000) }, "tml"},
	{"randperm", "f:n", "", "torch.randperm(a.shape[0])", func(x []*T) *T { return x[0].Scope().Typed(0).RandPerm(x[0].Dim(0)) }, "tmh"},
	{"uniform_in_place", "f:n", "", "a.uniform_(-1, 1)", one(with2((*T).UniformInPlace, -1, 1)), "tml"},
	{"normal_in_place", "f:n", "", "a.normal_(0, 1)", one(with2((*T).NormalInPlace, 0, 1)), "tml"},
	{"bernoulli_in_place", "f:n", "", "a.bernoulli_(0.3)", one(fixSecond((*T).BernoulliInPlace, 0.3)), "tml"},
	{"bernoulli", "p:n", "", "(a * 0.9).bernoulli()", func(x []*T) *T { return x[0].MulScalar(0.9).Bernoulli() }, "tml"},
	{"dropout", "f:n", "a", "F.dropout(a, 0.1)", one(fixSecond((*T).Dropout, 0.1)), "tml"},
	{"multinomial", "p:R,C", "", "a.multinomial(1)", func(x []*T) *T { return x[0].Multinomial(1, false) }, "tmh"},
	{"multinomial_many", "p:R,C", "", "a.multinomial(8, True)", func(x []*T) *T { return x[0].Multinomial(8, true) }, "tmh"},
}
