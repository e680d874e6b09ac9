package optest

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// lists names the ops that PyTorch users look for. Upper and lower case may differ from the Go
// names. Each op must be in Matrix, under this name or under its name in localNames. Otherwise it
// must be in awaited or in notAnOp.
var lists = map[string]string{
	"creation": "Zeros Ones Full Empty Arange Linspace Logspace Eye Rand Randn RandInt RandPerm Bernoulli Multinomial Normal Uniform TruncNormal " +
		"ZerosLike OnesLike FullLike EmptyLike RandLike RandnLike RandIntLike",
	"elementwise": "Abs Neg Sign Exp Exp2 Expm1 Log Log2 Log10 Log1p Sqrt Rsqrt Square Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh " +
		"Sigmoid LogSigmoid Logit Softplus Softsign ReLU ReLU6 LeakyReLU PReLU ELU SELU GELU SiLU Mish Hardswish Hardsigmoid Hardtanh Erf Erfc Erfinv " +
		"Floor Ceil Round Trunc Frac IsNaN IsInf IsFinite NanToNum Clamp Add Sub Mul Div FloorDiv Remainder Fmod Pow Atan2 Hypot Minimum Maximum " +
		"Eq Ne Lt Le Gt Ge LogicalAnd LogicalOr LogicalXor LogicalNot BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseLeftShift BitwiseRightShift " +
		"Lerp Addcmul Addcdiv Where MaskedFill CopySign",
	"with numbers": "AddScalar SubScalar MulScalar DivScalar RSubScalar RDivScalar FloorDivideScalar RFloorDivideScalar TruncDivideScalar RemainderScalar RRemainderScalar " +
		"FmodScalar PowScalar RPowScalar EqScalar NeScalar LtScalar LeScalar GtScalar GeScalar ClampMin ClampMax LerpScalar CopySignScalar XLogYScalar RXLogYScalar " +
		"BitwiseAndScalar BitwiseOrScalar BitwiseXorScalar BitwiseLeftShiftScalar BitwiseRightShiftScalar RBitwiseLeftShiftScalar RBitwiseRightShiftScalar " +
		"WhereScalar RWhereScalar WhereScalars",
	"in place": "AbsInPlace NegInPlace SquareInPlace SqrtInPlace RsqrtInPlace ReciprocalInPlace ExpInPlace Expm1InPlace LogInPlace Log1pInPlace SinInPlace CosInPlace " +
		"ErfinvInPlace TanhInPlace SigmoidInPlace ReluInPlace SiluInPlace GeluInPlace FloorInPlace CeilInPlace RoundInPlace TruncInPlace NanToNumInPlace ClampInPlace " +
		"AddInPlace SubInPlace MulInPlace DivInPlace AddScalarInPlace SubScalarInPlace MulScalarInPlace DivScalarInPlace PowInPlace PowScalarInPlace RemainderScalarInPlace " +
		"MaskedFillInPlace LerpInPlace AddcmulInPlace AddcdivInPlace BitwiseAndInPlace BitwiseOrInPlace BitwiseXorInPlace Fill Zero Copy " +
		"UniformInPlace NormalInPlace TruncNormalInPlace BernoulliInPlace",
	"reductions and scans": "Sum Mean Prod Max Min Amax Amin Argmax Argmin Any All CountNonzero Var Std Norm LogSumExp CumSum CumProd CumMax CumMin LogCumSumExp " +
		"NanSum NanMean Median Mode Quantile Sort ArgSort TopK Unique Bincount Histc SearchSorted Bucketize Diff Aminmax KthValue VarMean StdMean",
	"linear algebra": "MatMul Bmm Mm Mv Dot Outer Addmm Baddbmm Einsum Tensordot Kron Cross Trace Diag DiagEmbed Diagonal Tril Triu Inverse Det Slogdet Cholesky " +
		"Solve SolveTriangular QR SVD Eigh Lstsq Pinv MatrixPower MatrixExp MatrixNorm MatrixRank Cdist PairwiseDistance CosineSimilarity Normalize",
	"shape": "Reshape View Flatten Unflatten Transpose T Permute MoveAxis Expand BroadcastTo Repeat Tile RepeatInterleave Squeeze Unsqueeze Cat Stack HStack VStack DStack " +
		"Split Chunk Unbind Narrow Select Slice Flip Roll Rot90 Pad Unfold AsStrided Meshgrid Contiguous Clone Detach Cast",
	"indexing": "Gather Scatter ScatterAdd ScatterReduce IndexSelect IndexAdd IndexCopy IndexFill IndexPut Index MaskedSelect MaskedScatter Take TakeAlongDim Put Nonzero OneHot Embedding",
	"neural": "Softmax LogSoftmax CrossEntropy NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BinaryCrossEntropy BinaryCrossEntropyWithLogits KLDiv Dropout LayerNorm RMSNorm GroupNorm " +
		"BatchNorm InstanceNorm Conv1d Conv2d Conv3d ConvTranspose2d MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool2d AdaptiveMaxPool2d Interpolate GridSample PixelShuffle " +
		"PixelUnshuffle Fold ScaledDotProductAttention Glu",
}

// localNames maps PyTorch's names to Go names that differ by more than upper and lower case.
var localNames = map[string]string{"FloorDiv": "FloorDivide", "Mm": "MatMul", "Mv": "MatMul", "TakeAlongDim": "TakeAlong"}

// notAnOp lists names that are not ops of this library, each with its replacement.
var notAnOp = map[string]string{
	"NLLLoss": inNN, "MSELoss": inNN, "L1Loss": inNN, "SmoothL1Loss": inNN, "HuberLoss": inNN, "BinaryCrossEntropy": inNN, "BinaryCrossEntropyWithLogits": inNN,
	"KLDiv": inNN,
}

const inNN = "in package nn, whose tests walk it and compare it with PyTorch"

func TestNothingIsMissingInTheLists(t *testing.T) {
	have := map[string]bool{}
	for _, o := range Matrix() {
		have[strings.ToLower(o.Name)] = true
	}
	listed := map[string]bool{}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		for _, name := range strings.Fields(lists[list]) {
			listed[name] = true
			here := name
			if other, ok := localNames[name]; ok {
				here = other
			}
			switch there, waits := have[strings.ToLower(here)], slices.Contains(strings.Fields(awaited), name); {
			case there && (waits || notAnOp[name] != ""):
				t.Errorf("%s (%s) is in the matrix: it is listed as missing", name, list)
			case !there && !waits && notAnOp[name] == "":
				t.Errorf("%s (%s) is not in the matrix", name, list)
			}
		}
	}
	for _, name := range strings.Fields(awaited) {
		if !listed[name] {
			t.Errorf("%s is awaited, but is in no list", name)
		}
	}
}

// awaited lists ops that the library does not have yet. If one of them exists, the test fails until
// its name is removed here.
const awaited = `
Put NanSum NanMean Aminmax VarMean StdMean DStack Rot90
`
