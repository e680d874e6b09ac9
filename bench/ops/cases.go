package main

import (
	"strings"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func sliceOf(f func(x []*T) []*T) func([]*T) *T { return func(x []*T) *T { return f(x)[0] } }

// shaped are ops that copy elements to other shapes, and views with an expensive gradient.
var shaped = []bench{
	{"cat_rows", "f:R,C f:R,C", "ab", "torch.cat([a, b])", func(x []*T) *T { return tensor.Cat(0, x...) }, "tml"},
	{"cat_columns", "f:R,C f:R,C", "ab", "torch.cat([a, b], 1)", func(x []*T) *T { return tensor.Cat(1, x...) }, "tml"},
	{"cat_narrow", "f:n,1 f:n,1", "ab", "torch.cat([a, b], 1)", func(x []*T) *T { return tensor.Cat(1, x...) }, "mh"},
	{"stack", "f:R,C f:R,C", "ab", "torch.stack([a, b])", func(x []*T) *T { return tensor.Stack(0, x...) }, "tml"},
	{"stack_last", "f:R,C f:R,C", "ab", "torch.stack([a, b], -1)", func(x []*T) *T { return tensor.Stack(-1, x...) }, "tml"},
	{"split", "f:R,C", "a", "a.split(a.shape[1] // 2, 1)[0]", sliceOf(func(x []*T) []*T { return x[0].Split(x[0].Dim(1)/2, 1) }), "tml"},
	{"unbind", "f:B,S,D", "a", "a.unbind(0)[0]", sliceOf(func(x []*T) []*T { return x[0].Unbind(0) }), "tml"},
	{"repeat", "f:R,C", "a", "a.repeat(2, 1)", func(x []*T) *T { return x[0].Repeat(2, 1) }, "tml"},
	{"repeat_columns", "f:R,C", "a", "a.repeat(1, 2)", func(x []*T) *T { return x[0].Repeat(1, 2) }, "tml"},
	{"repeat_interleave", "f:R,C", "a", "a.repeat_interleave(2, 0)", func(x []*T) *T { return x[0].RepeatInterleave(2, 0) }, "tml"},
	{"repeat_interleave_last", "f:R,C", "a", "a.repeat_interleave(2, 1)", func(x []*T) *T { return x[0].RepeatInterleave(2, 1) }, "tml"},
	{"flip", "f:R,C", "a", "a.flip(1)", func(x []*T) *T { return x[0].Flip(1) }, "tml"},
	{"flip_rows", "f:R,C", "a", "a.flip(0)", func(x []*T) *T { return x[0].Flip(0) }, "tml"},
	{"roll", "f:R,C", "a", "a.roll(1, 1)", func(x []*T) *T { return x[0].Roll([]int{1}, []int{1}) }, "tml"},
	{"pad", "f:R,C", "a", "F.pad(a, (1, 1))", func(x []*T) *T { return x[0].Pad(0, 1, 1) }, "tml"},
	{"pad_2d", "f:B,S,D", "a", "F.pad(a, (1, 1, 2, 2))", func(x []*T) *T { return x[0].Pad(0, 1, 1, 2, 2) }, "tml"},
	{"pad_reflect", "f:B,S,D", "a", "F.pad(a, (1, 1), mode='reflect')", func(x []*T) *T { return x[0].PadReflect(1, 1) }, "tml"},
	{"tril", "f:R,C", "a", "a.tril()", func(x []*T) *T { return x[0].Tril(0) }, "tml"},
	{"triu", "f:R,C", "a", "a.triu(1)", func(x []*T) *T { return x[0].Triu(1) }, "tml"},
	{"diag", "f:C", "a", "a.diag()", func(x []*T) *T { return x[0].Diag(0) }, "tml"},
	{"diagonal", "f:R,C", "a", "a.diagonal()", func(x []*T) *T { return x[0].Diagonal(0, 0, 1) }, "tml"},
	{"diff", "f:R,C", "a", "a.diff()", func(x []*T) *T { return x[0].Diff(1, 1) }, "tml"},
	{"unfold", "f:R,C", "a", "a.unfold(1, 4, 2).contiguous()", func(x []*T) *T { return x[0].Unfold(1, 4, 2).Contiguous() }, "tml"},
	{"pixel_shuffle", "f:B,16,S,K", "a", "F.pixel_shuffle(a, 2)", func(x []*T) *T { return x[0].PixelShuffle(2) }, "tml"},
	{"one_hot", "i10:n", "", "F.one_hot(a, 10)", func(x []*T) *T { return x[0].OneHot(10) }, "tmh"},
	{"meshgrid", "f:R f:C", "", "torch.meshgrid(a, b, indexing='ij')[0].contiguous()", func(x []*T) *T { return tensor.Meshgrid(x...)[0].Contiguous() }, "tml"},
	{"slice_gradient", "f:R,C", "a", "a[:, 1:-1].exp()", func(x []*T) *T { return x[0].Slice(1, 1, x[0].Dim(1)-1, 1).Exp() }, "tml"},
	{"interpolate_nearest", "f:B,4,S,K", "a", "F.interpolate(a, scale_factor=2)", func(x []*T) *T { return x[0].Interpolate(tensor.InterpolateOptions{Scale: []float64{2}}) }, "tml"},
	{"interpolate_bilinear", "f:B,4,S,K", "a", "F.interpolate(a, scale_factor=2, mode='bilinear')", func(x []*T) *T {
		return x[0].Interpolate(tensor.InterpolateOptions{Scale: []float64{2}, Mode: tensor.InterpolateLinear})
	}, "tml"},
}

var indexed = []bench{
	{"index_select_rows", "f:R,C iR:R", "a", "a.index_select(0, b)", pair(func(a, i *T) *T { return a.IndexSelect(0, i) }), "tml"},
	{"index_select_columns", "f:R,C iC:C", "a", "a.index_select(1, b)", pair(func(a, i *T) *T { return a.IndexSelect(1, i) }), "tml"},
	{"index_rows", "f:R,C iR:R", "a", "a[b]", pair(func(a, i *T) *T { return a.Index(i) }), "tml"},
	{"index_pairs", "f:R,C iR:R iC:R", "a", "a[b, c]", func(x []*T) *T { return x[0].Index(x[1], x[2]) }, "tml"},
	{"index_bool", "f:n o:n", "a", "a[b]", pair(func(a, i *T) *T { return a.Index(i) }), "tml"},
	{"masked_select", "f:n o:n", "a", "a.masked_select(b)", pair((*T).MaskedSelect), "tml"},
	{"nonzero", "o:n", "", "a.nonzero()", one((*T).Nonzero), "tml"},
	{"take", "f:n in:n", "a", "a.take(b)", pair((*T).Take), "tmh"},
	{"gather_rows", "f:R,C iC:R,C", "a", "a.gather(1, b)", pair(func(a, i *T) *T { return a.Gather(1, i) }), "tml"},
	{"gather_columns", "f:R,C iR:R,C", "a", "a.gather(0, b)", pair(func(a, i *T) *T { return a.Gather(0, i) }), "tml"},
	{"gather_one", "f:R,C iC:R,1", "a", "a.gather(1, b)", pair(func(a, i *T) *T { return a.Gather(1, i) }), "tml"},
	{"scatter_rows", "f:R,C iC:R,C f:R,C", "ac", "a.scatter(1, b, c)", func(x []*T) *T { return x[0].Scatter(1, x[1], x[2]) }, "tmh"},
	{"scatter_one", "f:R,C iC:R,1", "", "a.scatter(1, b, 1.0)", func(x []*T) *T { return x[0].ScatterScalar(1, x[1], 1) }, "tml"},
	{"scatter_add_rows", "f:R,C iC:R,C f:R,C", "ac", "a.scatter_add(1, b, c)", func(x []*T) *T { return x[0].ScatterAdd(1, x[1], x[2]) }, "tmh"},
	{"scatter_add_columns", "f:R,C iR:R,C f:R,C", "ac", "a.scatter_add(0, b, c)", func(x []*T) *T { return x[0].ScatterAdd(0, x[1], x[2]) }, "tmh"},
	{"scatter_reduce_amax", "f:R,C iC:R,C f:R,C", "", "a.scatter_reduce(1, b, c, 'amax')", func(x []*T) *T { return x[0].ScatterReduce(1, x[1], x[2], "amax", true) }, "tmh"},
	{"index_add_rows", "f:R,C iR:R f:R,C", "ac", "a.index_add(0, b, c)", func(x []*T) *T { return x[0].IndexAdd(0, x[1], x[2], 1) }, "tml"},
	{"index_add_flat", "f:1000 i1000:n f:n", "ac", "a.index_add(0, b, c)", func(x []*T) *T { return x[0].IndexAdd(0, x[1], x[2], 1) }, "tmh"},
	{"index_copy", "f:R,C iR:R f:R,C", "", "a.index_copy(0, b, c)", func(x []*T) *T { return x[0].IndexCopy(0, x[1], x[2]) }, "tml"},
	{"index_fill", "f:R,C iR:K", "a", "a.index_fill(0, b, 1)", pair(func(a, i *T) *T { return a.IndexFill(0, i, 1) }), "tml"},
	{"index_put_add", "f:R,C iR:R f:R,C", "", "a.index_put((b,), c, accumulate=True)", func(x []*T) *T { return x[0].IndexPut(x[2], true, x[1]) }, "tml"},
	{"masked_scatter", "f:n o:n f:n", "", "a.masked_scatter(b, c)", func(x []*T) *T { return x[0].MaskedScatter(x[1], x[2]) }, "tmh"},
	{"embedding", "f:V,64 iV:B,S", "a", "F.embedding(b, a)", pair((*T).Embedding), "tml"},
	{"embedding_wide", "f:1000,D iR:B,S", "a", "F.embedding(b % 1000, a)", pair(func(a, i *T) *T { return a.Embedding(i.RemainderScalar(1000)) }), "tml"},
}

func loss(l interface{ Forward(x, y *T) *T }) func([]*T) *T {
	return func(x []*T) *T { return l.Forward(x[0], x[1]) }
}

func rows(f func(x []*T, d []int) *T) func([]*T) *T {
	return func(x []*T) *T { return f(x, []int{x[0].Dim(-1)}) }
}

var neural = []bench{
	{"softmax", "f:R,C", "a", "a.softmax(-1)", func(x []*T) *T { return x[0].Softmax(-1) }, "tml"},
	{"softmax_columns", "f:R,C", "a", "a.softmax(0)", func(x []*T) *T { return x[0].Softmax(0) }, "tml"},
	{"softmax_short", "f:n,10", "a", "a.softmax(-1)", func(x []*T) *T { return x[0].Softmax(-1) }, "tmh"},
	{"log_softmax", "f:R,C", "a", "a.log_softmax(-1)", func(x []*T) *T { return x[0].LogSoftmax(-1) }, "tml"},
	{"cross_entropy", "f:R,C iC:R", "a", "F.cross_entropy(a, b)", pair(func(a, b *T) *T { return nn.CrossEntropy(a, b) }), "tml"},
	{"cross_entropy_10", "f:n,10 i10:n", "a", "F.cross_entropy(a, b)", pair(func(a, b *T) *T { return nn.CrossEntropy(a, b) }), "tmh"},
	{"cross_entropy_smooth", "f:R,C iC:R", "a", "F.cross_entropy(a, b, label_smoothing=0.1)", loss(nn.CrossEntropyLoss{LabelSmoothing: 0.1}), "tml"},
	{"nll_loss", "f:R,C iC:R", "a", "F.nll_loss(a, b)", loss(nn.NLLLoss{}), "tml"},
	{"mse_loss", "f:n f:n", "a", "F.mse_loss(a, b)", loss(nn.MSELoss{}), "tml"},
	{"l1_loss", "f:n f:n", "a", "F.l1_loss(a, b)", loss(nn.L1Loss{}), "tml"},
	{"huber_loss", "f:n f:n", "a", "F.huber_loss(a, b)", loss(nn.HuberLoss{Delta: 1}), "tml"},
	{"bce_with_logits", "f:n p:n", "a", "F.binary_cross_entropy_with_logits(a, b)", loss(nn.BCEWithLogitsLoss{}), "tml"},
	{"kl_div", "f:R,C p:R,C", "a", "F.kl_div(a, b)", loss(nn.KLDivLoss{}), "tml"},
	{"layer_norm", "f:R,C f:C f:C", "abc", "F.layer_norm(a, a.shape[-1:], b, c)", rows(func(x []*T, d []int) *T { return x[0].LayerNorm(d, x[1], x[2], 1e-5) }), "tml"},
	{"layer_norm_plain", "f:R,C", "a", "F.layer_norm(a, a.shape[-1:])", rows(func(x []*T, d []int) *T { return x[0].LayerNorm(d, nil, nil, 1e-5) }), "tml"},
	{"rms_norm", "f:R,C f:C", "ab", "F.rms_norm(a, a.shape[-1:], b, 1e-5)", rows(func(x []*T, d []int) *T { return x[0].RMSNorm(d, x[1], 1e-5) }), "tml"},
	{"group_norm", "f:B,4,S,K f:4 f:4", "abc", "F.group_norm(a, 2, b, c)", func(x []*T) *T { return x[0].GroupNorm(2, x[1], x[2], 1e-5) }, "tml"},
	{"instance_norm", "f:B,4,S,K", "a", "F.instance_norm(a)", func(x []*T) *T { return x[0].InstanceNorm(nil, nil, nil, nil, true, 0.1, 1e-5) }, "tml"},
	{"local_response_norm", "f:B,8,S,K", "a", "F.local_response_norm(a, 5)", func(x []*T) *T { return x[0].LocalResponseNorm(5, 1e-4, 0.75, 1) }, "tmh"},
	{"glu", "f:R,C", "a", "F.glu(a)", func(x []*T) *T { return x[0].Glu(-1) }, "tml"},
	{"attention", "f:2,4,S,32 f:2,4,S,32 f:2,4,S,32", "abc", "F.scaled_dot_product_attention(a, b, c)", attention(tensor.AttentionOptions{}), "tml"},
	{"attention_causal", "f:8,4,64,32 f:8,4,64,32 f:8,4,64,32", "abc", "F.scaled_dot_product_attention(a, b, c, is_causal=True)", attention(tensor.AttentionOptions{Causal: true}), "f"},
	{"attention_long", "f:1,4,1024,64 f:1,4,1024,64 f:1,4,1024,64", "abc", "F.scaled_dot_product_attention(a, b, c, is_causal=True)", attention(tensor.AttentionOptions{Causal: true}), "f"},
	{"attention_one_query", "f:1,8,1,64 f:1,8,512,64 f:1,8,512,64", "", "F.scaled_dot_product_attention(a, b, c)", attention(tensor.AttentionOptions{}), "f"},
	{"bilinear", "f:64,32 f:64,32 f:16,32,32", "abc", "F.bilinear(a, b, c)", func(x []*T) *T { return x[0].Bilinear(x[1], x[2], nil) }, "f"},
}

func attention(o tensor.AttentionOptions) func([]*T) *T {
	return func(x []*T) *T { return tensor.ScaledDotProductAttention(x[0], x[1], x[2], o) }
}

// product returns a case for a matrix product of these shapes.
func product(name, in string) bench {
	return bench{name, in, "ab", "a @ b", pair((*T).MatMul), "f"}
}

func einsum(name, eq, in string) bench {
	n := strings.Count(eq, ",") + 1
	return bench{"einsum_" + name, in, "ab"[:n], "torch.einsum('" + eq + "', " + "a, b"[:3*n-2] + ")", func(x []*T) *T { return tensor.Einsum(eq, x...) }, "f"}
}

var products = []bench{
	product("matmul_4", "f:4,4 f:4,4"),
	product("matmul_16", "f:16,16 f:16,16"),
	product("matmul_64", "f:64,64 f:64,64"),
	product("matmul_128", "f:128,128 f:128,128"),
	product("matmul_256", "f:256,256 f:256,256"),
	product("matmul_1024", "f:1024,1024 f:1024,1024"),
	product("matmul_odd", "f:127,253 f:253,131"),
	product("matmul_7", "f:7,7 f:7,7"),
	product("matmul_tall", "f:8192,32 f:32,32"),
	product("matmul_thin", "f:1024,1024 f:1024,8"),
	product("matmul_deep", "f:16,32768 f:32768,16"),
	product("matmul_vector", "f:1024,1024 f:1024"),
	product("matmul_row", "f:1,1024 f:1024,1024"),
	product("matmul_turned", "f:256,256 f:256,256/t"),
	product("matmul_turned_first", "f:256,256/t f:256,256"),
	product("matmul_turned_row", "f:1,1024 f:1024,1024/t"),
	product("matmul_batch8", "f:8,128,128 f:128,128"),
	product("matmul_bf16", "h:256,256 h:256,256"),
	{"int_mm_256", "8:256,256 8:256,256", "", "torch._int_mm(a, b)", pair((*T).IntMM), "f"},
	{"int_mm_1024", "8:1024,1024 8:1024,1024", "", "torch._int_mm(a, b)", pair((*T).IntMM), "f"},
	{"int_mm_turned", "8:1024,1024 8:1024,1024/t", "", "torch._int_mm(a, b)", pair((*T).IntMM), "f"},
	product("bmm_small", "f:256,8,8 f:256,8,8"),
	product("bmm_32", "f:64,32,32 f:64,32,32"),
	product("bmm_heads", "f:16,64,32 f:16,32,64"),
	product("bmm_vectors", "f:512,1,64 f:512,64,16"),
	product("bmm_broadcast", "f:8,4,64,32 f:4,32,64"),
	{"linear", "f:128,784 f:256,784 f:256", "abc", "F.linear(a, b, c)", func(x []*T) *T { return x[0].MatMul(x[1].T()).Add(x[2]) }, "f"},
	{"addmm", "f:256 f:128,256 f:256,256", "abc", "torch.addmm(a, b, c)", func(x []*T) *T { return x[0].Addmm(x[1], x[2], 1, 1) }, "f"},
	{"baddbmm", "f:16,64,64 f:16,64,32 f:16,32,64", "abc", "torch.baddbmm(a, b, c)", func(x []*T) *T { return x[0].Baddbmm(x[1], x[2], 1, 1) }, "f"},
	{"outer", "f:R f:C", "ab", "torch.outer(a, b)", pair((*T).Outer), "tml"},
	{"inner", "f:R,C f:C", "ab", "torch.inner(a, b)", pair((*T).Inner), "tml"},
	{"cdist", "f:256,32 f:256,32", "ab", "torch.cdist(a, b)", pair(func(a, b *T) *T { return a.Cdist(b, 2) }), "f"},
	{"cdist_1", "f:256,32 f:256,32", "ab", "torch.cdist(a, b, p=1)", pair(func(a, b *T) *T { return a.Cdist(b, 1) }), "f"},
	{"kron", "f:32,32 f:32,32", "ab", "torch.kron(a, b)", pair((*T).Kron), "f"},
	{"tensordot", "f:32,16,24 f:16,24,64", "ab", "torch.tensordot(a, b, 2)", pair(func(a, b *T) *T { return a.TensorDot(b, []int{1, 2}, []int{0, 1}) }), "f"},
	einsum("product", "ij,jk->ik", "f:128,128 f:128,128"),
	einsum("batch", "bij,bjk->bik", "f:16,64,64 f:16,64,64"),
	einsum("heads", "bqhd,bkhd->bhqk", "f:4,64,8,32 f:4,64,8,32"),
	einsum("outer", "i,j->ij", "f:256 f:256"),
	einsum("trace", "bii->b", "f:64,32,32"),
	einsum("turn", "ij->ji", "f:256,256"),
	einsum("rows", "bi,bi->b", "f:1024,256 f:1024,256"),
	einsum("elementwise", "bi,bi->bi", "f:1024,256 f:1024,256"),
	einsum("tiny", "ij,jk->ik", "f:4,4 f:4,4"),
}

var decomposed = []bench{
	{"cholesky", "q:M,M", "a", "torch.linalg.cholesky(a)", one(func(a *T) *T { return a.Cholesky(false) }), "tm"},
	{"inverse", "q:M,M", "a", "torch.linalg.inv(a)", one((*T).Inverse), "tm"},
	{"solve", "q:M,M f:M,8", "ab", "torch.linalg.solve(a, b)", pair((*T).Solve), "tm"},
	{"solve_triangular", "q:M,M f:M,8", "ab", "torch.linalg.solve_triangular(a, b, upper=False)", pair(func(a, b *T) *T { return a.SolveTriangular(b, tensor.TriangularOptions{}) }), "tm"},
	{"det", "q:M,M", "a", "torch.linalg.det(a)", one((*T).Det), "tm"},
	{"qr", "q:M,M", "", "torch.linalg.qr(a)[0]", first(func(a *T) (*T, *T) { return a.QR(false) }), "tm"},
	{"svd", "f:M,M", "", "torch.linalg.svd(a)[1]", one(func(a *T) *T { _, s, _ := a.SVD(false); return s }), "tm"},
	{"eigh", "q:M,M", "", "torch.linalg.eigh(a)[0]", first((*T).Eigh), "tm"},
	{"matrix_exp", "u:16,16", "a", "torch.linalg.matrix_exp(a)", one((*T).MatrixExp), "f"},
	{"matrix_power", "u:M,M", "a", "torch.linalg.matrix_power(a, 3)", one(func(a *T) *T { return a.MatrixPower(3) }), "tm"},
}
