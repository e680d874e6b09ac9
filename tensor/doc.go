// Package tensor provides tensors with gradients: PyTorch's names and semantics in Go.
//
// A program makes tensors ([From], [Zeros], …), computes with them, and asks for gradients
// ([Tensor.Backward], [Gradients]).
//
// A [Tensor] is a view of a storage on a device. Ops are methods: x.MatMul(w).Add(b).Relu(). They
// run on the device of their operands. All operands of an op must be on one device, except for ops
// that move tensors between devices.
//
// A [Scope] owns tensors and frees them when it ends. It also carries the modes, such as [Autocast]
// and [NoGrad]. A program that never opens a scope is correct, but it frees memory later:
//
//	tensor.Do(func(s *tensor.Scope) {
//		loss := nn.CrossEntropy(model.Forward(s.From(x)), s.From(y))
//		loss.Backward()
//		opt.Step()
//		opt.ZeroGrad()
//	}, tensor.On(dev))
//
// s.From(x) gives a tensor to the scope s: the tensor ends with s, as a batch does with its step.
// x.In(s) lends it: x keeps its scope, and tensors that are computed from x.In(s) belong to s.
//
// Misuse, out of memory and device faults panic with an *[Error]. [Try] turns such a panic into an
// ordinary error. Functions that open, load or save return errors.
//
// If X is an op of two tensors, XScalar has a number as the second operand, and RXScalar has a
// number as the first. XInPlace is PyTorch's x_: it writes the result into its receiver and returns
// the receiver. It counts as a change of the receiver and has a gradient. It refuses a result that
// the receiver's shape or type cannot hold. It also refuses to change a leaf that requires a
// gradient.
//
// Several goroutines may read a Tensor at once. Writing it in place while others use it is a race.
//
// The sections below have every function of the package and every method of [Tensor]. They list X,
// but not its forms XScalar, RXScalar and XInPlace.
//
// # Making tensors
//
//   - From values and shapes: [Zeros], [Ones], [Full], [From], [Typed], [Arange], [Linspace],
//     [Eye]. A scope and a generator have these and more as methods: [Maker].
//   - Like another tensor: [Tensor.New], [Tensor.NewEmpty], [Tensor.NewZeros],
//     [Tensor.NewOnes], [Tensor.NewFull], [Tensor.NewTensor], [Tensor.EmptyLike],
//     [Tensor.ZerosLike], [Tensor.OnesLike], [Tensor.FullLike], [Tensor.RandLike],
//     [Tensor.RandnLike], [Tensor.RandIntLike].
//   - Random numbers: [Rand], [Randn], [RandInt], [RandPerm], [ManualSeed],
//     [Tensor.UniformInPlace], [Tensor.NormalInPlace], [NewGenerator], [Tensor.TruncNormalInPlace],
//     [Tensor.Bernoulli], [Tensor.Multinomial], [Tensor.Dropout], [Tensor.AlphaDropout],
//     [Tensor.Dropout1d], [Tensor.Dropout2d], [Tensor.Dropout3d], [Tensor.FeatureAlphaDropout],
//     [Tensor.DropoutAdd], [Tensor.ReluDropout].
//   - From the program's own memory: [FromMemory], [Tensor.Storage], [Tensor.StorageOffset],
//     [Tensor.WriteTo], [Tensor.DataPtr].
//
// # The tensor itself
//
//   - What it is: [Tensor.Free], [Tensor.Shape], [Tensor.Dim], [Tensor.Rank], [Tensor.Size],
//     [Tensor.Strides], [Tensor.Type], [Tensor.Device], [Tensor.Scope], [Tensor.IsContiguous],
//     [Tensor.Version], [Tensor.In].
//   - Its values: [Tensor.Item], [Data], [Tensor.Floats], [Tensor.Ints], [Tensor.ItemLater],
//     [Tensor.String], [Tensor.Format], [Tensor.Fill], [Tensor.Zero], [Tensor.Copy].
//   - Type and device: [Tensor.Cast], [Tensor.Float], [Tensor.Double], [Tensor.Half],
//     [Tensor.BFloat16], [Tensor.Long], [Tensor.Bool], [NonBlocking], [Tensor.To], [Tensor.CUDA],
//     [Tensor.CPU], [Tensor.Bytes], [FromBytes], [Tensor.BroadcastToDevices],
//     [Tensor.ScatterToDevices], [GatherToDevice], [ReduceAddToDevice], [Tensor.MoveTo],
//     [Tensor.SetData], [Tensor.PinMemory], [Tensor.IsPinned], [Offload].
//   - Streams and lifetime: [Tensor.Hold], [Tensor.RecordStream].
//
// # Arithmetic, element by element
//
//   - Basic: [Tensor.Add], [Tensor.Sub], [Tensor.Mul], [Tensor.Div], [Tensor.Neg],
//     [Tensor.Abs], [Tensor.Square], [Tensor.Sqrt], [Tensor.Rsqrt], [Tensor.Reciprocal],
//     [Tensor.FloorDivide], [Tensor.TruncDivide], [Tensor.Remainder], [Tensor.Fmod],
//     [Tensor.Pow], [Tensor.Lerp], [Tensor.Addcmul], [Tensor.Addcdiv].
//   - Exponentials and logarithms: [Tensor.Exp], [Tensor.Log], [Tensor.Exp2], [Tensor.Expm1],
//     [Tensor.Log2], [Tensor.Log10], [Tensor.Log1p], [Tensor.Erf], [Tensor.Erfc],
//     [Tensor.Erfinv], [Tensor.LogSigmoid], [Tensor.Logit], [Tensor.LogAddExp],
//     [Tensor.XLogY], [Tensor.Entr], [Tensor.Ndtr].
//   - Angles: [Tensor.Sin], [Tensor.Cos], [Tensor.Tan], [Tensor.Asin], [Tensor.Acos],
//     [Tensor.Atan], [Tensor.Atan2], [Tensor.Hypot], [Tensor.Sinh], [Tensor.Cosh],
//     [Tensor.Asinh], [Tensor.Acosh], [Tensor.Atanh].
//   - Rounding: [Tensor.Sign], [Tensor.CopySign], [Tensor.Floor], [Tensor.Ceil],
//     [Tensor.Round], [Tensor.RoundDecimals], [Tensor.Trunc], [Tensor.Frac], [Tensor.IsNaN],
//     [Tensor.IsInf], [Tensor.IsPosInf], [Tensor.IsNegInf], [Tensor.IsFinite],
//     [Tensor.NanToNum].
//   - Limits: [Tensor.Minimum], [Tensor.Maximum], [Tensor.Fmax], [Tensor.Fmin],
//     [Tensor.Clamp], [Tensor.ClampMin], [Tensor.ClampMax].
//   - Comparisons: [Tensor.Eq], [Tensor.Ne], [Tensor.Lt], [Tensor.Le], [Tensor.Gt],
//     [Tensor.Ge], [Tensor.IsClose], [Tensor.AllClose].
//   - Bits and truth: [Tensor.BitwiseAnd], [Tensor.BitwiseOr], [Tensor.BitwiseXor],
//     [Tensor.BitwiseNot], [Tensor.BitwiseLeftShift], [Tensor.BitwiseRightShift],
//     [Tensor.LogicalAnd], [Tensor.LogicalOr], [Tensor.LogicalXor], [Tensor.LogicalNot].
//   - Choice: [Where], [WhereScalars], [Tensor.MaskedFill], [Tensor.MaskedFillBy],
//     [Tensor.IndexFillBy].
//   - Activations: [Tensor.Tanh], [Tensor.Sigmoid], [Tensor.Relu], [Tensor.Silu],
//     [Tensor.Gelu], [Tensor.GeluTanh], [Tensor.Softplus], [Tensor.Softsign],
//     [Tensor.LeakyRelu], [Tensor.PRelu], [Tensor.Elu], [Tensor.Celu], [Tensor.Selu],
//     [Tensor.Mish], [Tensor.Relu6], [Tensor.Hardtanh], [Tensor.Hardsigmoid],
//     [Tensor.Hardswish], [Tensor.Hardshrink], [Tensor.Softshrink], [Tensor.Tanhshrink],
//     [Tensor.Threshold], [Tensor.Glu].
//   - Arithmetic written as text: [Expr]. Ops that a program defines: [Declare].
//
// # Reductions and scans
//
//   - Reductions: [Tensor.Sum], [Tensor.Mean], [Tensor.Argmax], [Tensor.Argmin],
//     [Tensor.Amax], [Tensor.Amin], [Tensor.Max], [Tensor.Min], [Tensor.Prod],
//     [Tensor.CountNonzero], [Tensor.Any], [Tensor.All], [Tensor.Var], [Tensor.Std],
//     [Tensor.Norm], [Tensor.LogSumExp].
//   - Scans: [Tensor.CumSum], [Tensor.CumProd], [Tensor.LogCumSumExp], [Tensor.CumMax],
//     [Tensor.CumMin].
//   - Softmax and its loss: [Tensor.Softmax], [Tensor.LogSoftmax], [Tensor.Softmin],
//     [Tensor.GumbelSoftmax], [Tensor.CrossEntropy].
//
// # Shapes
//
//   - Views: [Tensor.Reshape], [Tensor.View], [Tensor.Flatten], [Tensor.Transpose],
//     [Tensor.T], [Tensor.Permute], [Tensor.Expand], [Tensor.Unsqueeze], [Tensor.Squeeze],
//     [Tensor.Contiguous], [Tensor.Clone], [Tensor.AsStrided], [Tensor.Narrow],
//     [Tensor.Slice], [Tensor.Select], [Tensor.Diagonal].
//   - Parts and wholes: [Tensor.Unflatten], [Tensor.MoveAxis], [Tensor.MoveAxes],
//     [Tensor.BroadcastTo], [Tensor.Split], [Tensor.SplitSizes], [Tensor.Chunk],
//     [Tensor.Unbind], [HStack], [VStack], [Meshgrid], [MeshgridXY], [Cat], [Stack].
//   - Repeats and edges: [Tensor.Repeat], [Tensor.Tile], [Tensor.RepeatInterleave],
//     [Tensor.Flip], [Tensor.Roll], [Tensor.RepeatInterleaveBy], [Tensor.Pad],
//     [Tensor.PadReflect], [Tensor.PadReplicate], [Tensor.PadCircular], [Tensor.Tril],
//     [Tensor.Triu], [Tensor.DiagEmbed], [Tensor.Diag], [Tensor.PixelShuffle],
//     [Tensor.PixelUnshuffle], [Tensor.ChannelShuffle].
//
// # Indices and order
//
//   - Indices: [Range], [Tensor.Index], [Tensor.IndexPut], [Tensor.SetIndex],
//     [Tensor.Nonzero], [Tensor.NonzeroTuple], [Tensor.MaskedSelect], [Tensor.MaskedScatter].
//   - Gathers: [Tensor.Gather], [Tensor.TakeAlong], [Tensor.Take], [Tensor.IndexSelect],
//     [Tensor.Embedding], [Tensor.EmbeddingPadded], [Tensor.EmbeddingRenormInPlace],
//     [Tensor.OneHot].
//   - Scatters: [Tensor.Scatter], [Tensor.ScatterAdd], [Tensor.IndexAdd], [Tensor.IndexCopy],
//     [Tensor.IndexFill], [Tensor.ScatterReduce], [Tensor.IndexReduce].
//   - Order: [Tensor.Sort], [Tensor.Argsort], [Tensor.TopK], [Tensor.Kthvalue],
//     [Tensor.Median], [Tensor.NanMedian], [Tensor.Mode], [Tensor.Quantile],
//     [Tensor.Quantiles], [Tensor.NanQuantiles], [Tensor.NanQuantile], [Tensor.Unique],
//     [Tensor.UniqueConsecutive], [Tensor.Searchsorted], [Tensor.Bucketize], [Tensor.IsIn],
//     [Tensor.Diff], [Tensor.Histc], [Tensor.Bincount].
//
// # Products and linear algebra
//
//   - Products: [Tensor.MatMul], [Tensor.IntMM], [Tensor.Linear], [Tensor.LinearT],
//     [Tensor.LinearAct], [Tensor.LinearTAct], [Tensor.Outer], [Tensor.Dot], [Tensor.Bmm],
//     [Tensor.Addmm], [Tensor.Baddbmm], [Tensor.Kron], [Tensor.Trace], [Tensor.Cross],
//     [Tensor.TensorDot], [Tensor.Inner], [Tensor.VecDot], [MultiDot], [Einsum],
//     [Tensor.Bilinear].
//   - Quantisation: [Tensor.QuantizeRows], [Tensor.LinearInt8].
//   - Distances: [Tensor.Cdist], [Tensor.CosineSimilarity], [Tensor.PairwiseDistance].
//   - Linear algebra: [Tensor.Inverse], [Tensor.Det], [Tensor.SlogDet],
//     [Tensor.Cholesky], [Tensor.Eigh], [Tensor.QR], [Tensor.SVD], [Tensor.Solve],
//     [Tensor.SolveTriangular], [Tensor.Pinv], [Tensor.LstSq], [Tensor.MatrixRank],
//     [Tensor.CholeskySolve], [Tensor.MatrixExp], [Tensor.MatrixPower], [Tensor.SVDVals],
//     [Tensor.EigValsH], [Tensor.MatrixNorm].
//
// # Layers as functions
//
//   - Normalisations: [Tensor.LayerNorm], [Tensor.LayerNormAs], [Tensor.RMSNorm],
//     [Tensor.RMSNormAs], [Tensor.BatchNorm], [Tensor.InstanceNorm], [Tensor.GroupNorm],
//     [Tensor.Normalize], [Tensor.LocalResponseNorm], [Tensor.SyncBatchNorm].
//   - Convolutions: [Tensor.Conv1d], [Tensor.Conv2d], [Tensor.Conv3d],
//     [Tensor.ConvTranspose1d], [Tensor.ConvTranspose2d], [Tensor.ConvTranspose3d],
//     [Tensor.Unfold], [Tensor.Unfold2d], [Tensor.Fold].
//   - Pools: [Tensor.MaxPool1d], [Tensor.MaxPool2d], [Tensor.MaxPool3d],
//     [Tensor.MaxPool1dIndices], [Tensor.MaxPool2dIndices], [Tensor.MaxPool3dIndices],
//     [Tensor.AvgPool1d], [Tensor.AvgPool2d], [Tensor.AvgPool3d], [Tensor.LPPool1d],
//     [Tensor.LPPool2d], [Tensor.LPPool3d], [Tensor.AdaptiveAvgPool1d],
//     [Tensor.AdaptiveAvgPool2d], [Tensor.AdaptiveAvgPool3d], [Tensor.AdaptiveMaxPool1d],
//     [Tensor.AdaptiveMaxPool2d], [Tensor.AdaptiveMaxPool3d], [Tensor.FractionalMaxPool2d],
//     [Tensor.FractionalMaxPool3d], [Tensor.MaxUnpool1d], [Tensor.MaxUnpool2d],
//     [Tensor.MaxUnpool3d].
//   - Images: [Tensor.Interpolate], [Tensor.GridSample].
//   - Attention: [ScaledDotProductAttention], [Tensor.RoPE], [Tensor.RoPEAngles].
//
// # Gradients
//
//   - Of a tensor: [Apply], [Tensor.RequiresGrad], [Tensor.SetRequiresGrad],
//     [Tensor.IsFrozen], [Tensor.NeedsGrad], [Tensor.IsLeaf], [Tensor.Grad], [Tensor.SetGrad],
//     [Tensor.ZeroGrad], [Tensor.Detach], [Tensor.TakeGrad], [Tensor.RegisterHook],
//     [Tensor.RegisterPostAccumulateGradHook], [Tensor.RetainGrad], [Tensor.Backward],
//     [Gradients], [Gradient].
//   - Options of Backward and Gradients: [RetainGraph], [CreateGraph], [GradOutput],
//     [AllowUnused], [Also], [Into].
//   - Around the engine: [Leaves], [SavedTensorsHooks], [WatchBackward], [DetectAnomaly],
//     [Recompute], [ApplyAll].
//
// # Scopes, modes and captures
//
//   - Scopes: [NoGrad], [WithGrad], [On], [Stream], [Seed], [WithGenerator], [Named],
//     [RecordSites], [Nondeterministic], [Composed], [Root], [NewScope], [Do], [Youngest].
//   - Modes: [Autocast], [NoAutocast], [WithAutocast], [AllowTF32], [NoTF32].
//   - Whole steps as one launch: [Capture], [Capturing], [CapturingGrads], [Across], [Compile],
//     [Warm], [OrEager].
//   - Errors: [Try], [NewError].
//   - Launches for optimizers and other packages: [Raw], [Update], [UpdateFinite], [PrepareUpdate].
//   - Lists of ops: [Declared], [Reductions], [HostOps].
package tensor

//go:generate go -C _gen run ./forms -root ../..

// This is the list of the package's files, with the exported names in them. The names of related
// files begin with the same word. forms.go has the forms in place, and the forms with numbers, of
// ops from all files. A file that has only the op that it is named after needs no row:
// gridsample.go has GridSample.
//
// The tensor, its memory and its scope:
//
//	tensor.go                the struct and its handles: Shape Dim Rank Size Strides Type Device
//	                         Scope In Free
//	storage.go               counted memory behind handles
//	hold.go                  Hold
//	foreign.go               uses by other streams
//	hostmemory.go            FromMemory Storage StorageOffset WriteTo DataPtr
//	raw.go                   Raw
//	access.go                Item Data Floats Ints
//	accesslater.go           ItemLater
//	print.go                 String
//	scope.go                 Scope Do NewScope Root, and the options of a scope
//	ledger.go                what a scope owns
//	streams.go               RecordStream
//	unasked.go               scopes whose modes had no effect
//	route.go                 the device, stream and graph that work goes to
//	goroutine.go             values bound to a goroutine
//	transfer.go              To CUDA CPU Cast Float Double Half BFloat16 Long Bytes FromBytes
//	crossdevice.go           BroadcastToDevices ScatterToDevices GatherToDevice ReduceAddToDevice
//	                         DeviceCrosser
//	move.go                  MoveTo SetData CastInPlace
//	pinned.go                PinMemory IsPinned
//	offload.go               Offload
//	error.go                 Error Try NewError
//	site.go                  call sites
//	trace.go                 spans of ops for a tracer
//
// Making tensors:
//
//	create.go                Maker Zeros Ones Full From Typed Arange Eye
//	createlike.go            New NewZeros ZerosLike OnesLike FullLike RandnLike …
//	createsequence.go        Linspace Logspace
//	random.go                ManualSeed Rand Randn RandInt RandPerm Uniform NormalInPlace
//	randomgenerator.go       Generator
//	randomsampling.go        Bernoulli Multinomial TruncNormal
//	randomdropout.go         Dropout AlphaDropout Dropout2d …
//	randomdropoutadd.go      DropoutAdd
//	randomdropoutrelu.go     ReluDropout
//
// Elementwise ops:
//
//	elementwise.go           Declare Elementwise: how an op is declared, run and differentiated
//	promotion.go             types of results
//	numbers.go               a number as an operand
//	launch.go                the one function that launches primitives
//	cache.go                 compiled programs
//	forms.go                 generated: ops in place and with numbers
//	inplace.go               changes in place: Fill Zero Copy
//	arithmetic.go            Add Sub Mul Div Neg Abs Square Sqrt Rsqrt Reciprocal
//	division.go              FloorDivide TruncDivide Remainder Fmod
//	pow.go                   Pow PowScalar
//	exponential.go           Exp Log Expm1 Log1p Erf Erfinv Logit LogAddExp XLogY …
//	trig.go                  Sin Cos Tan Asin Atan2 Hypot Sinh …
//	rounding.go              Sign CopySign Floor Ceil Round Trunc Frac IsNaN IsInf IsFinite
//	                         NanToNum
//	minmax.go                Minimum Maximum Fmax Fmin Clamp ClampMin ClampMax
//	compare.go               Eq Ne Lt Le Gt Ge
//	close.go                 IsClose AllClose
//	bitwise.go               BitwiseAnd … BitwiseRightShift LogicalAnd LogicalOr LogicalXor
//	                         LogicalNot
//	where.go                 Where WhereScalar RWhereScalar WhereScalars
//	fill.go                  MaskedFill MaskedFillBy IndexFillBy
//	lerp.go                  Lerp Addcmul Addcdiv
//	activation.go            Tanh Sigmoid Relu Silu Gelu GeluTanh
//	activationkinks.go       Softplus LeakyRelu PRelu Elu Selu Mish Hardtanh Threshold …
//	activationglu.go         Glu
//	expr.go                  Expr: text as an op
//	exprparse.go             the parser of expressions
//	exprfuncs.go             the functions of expressions
//	exprplan.go              types and program of an expression
//
// Reductions and scans:
//
//	reduce.go                Reductions Sum Mean Amax Amin Argmax Argmin
//	reduceextremes.go        Max Min
//	reduceprod.go            Prod
//	reducetruth.go           Any All CountNonzero
//	reducevariance.go        Var Std
//	reducenorm.go            Norm
//	reducelogsumexp.go       LogSumExp
//	scan.go                  CumSum CumProd LogCumSumExp CumMax CumMin
//	softmax.go               Softmax LogSoftmax Softmin GumbelSoftmax
//	crossentropy.go          CrossEntropy
//	nllloss.go               cross-entropy of logarithms of probabilities
//
// Shapes:
//
//	views.go                 Reshape View Flatten Transpose T Permute Expand Squeeze Unsqueeze
//	                         Contiguous Clone AsStrided
//	region.go                Narrow Slice Select Diagonal
//	rearrange.go             Unflatten MoveAxis Split Chunk Unbind HStack VStack Meshgrid …
//	repeat.go                Repeat Tile RepeatInterleave RepeatInterleaveBy Flip Roll
//	cat.go                   Cat Stack
//	pad.go                   Pad PadReflect PadReplicate PadCircular
//	triangle.go              Tril Triu Diag DiagEmbed
//	shuffle.go               PixelShuffle PixelUnshuffle ChannelShuffle
//
// Indices and order:
//
//	index.go                 Index Range
//	indexparts.go            indices by tensors
//	indexpositions.go        several index tensors in one launch
//	indexput.go              IndexPut SetIndex
//	masked.go                MaskedSelect MaskedScatter Nonzero NonzeroTuple
//	gather.go                Gather Take TakeAlong IndexSelect
//	scatter.go               Scatter ScatterAdd IndexAdd IndexCopy IndexFill
//	scatterreduce.go         ScatterReduce IndexReduce
//	embedding.go             Embedding EmbeddingPadded EmbeddingRenormInPlace OneHot
//	sort.go                  Sort Argsort
//	sorttopk.go              TopK Kthvalue Median NanMedian Mode
//	sortquantile.go          Quantile Quantiles NanQuantile NanQuantiles
//	sortunique.go            Unique UniqueConsecutive
//	sortsearch.go            Searchsorted Bucketize IsIn Diff Histc Bincount
//
// Products and linear algebra:
//
//	matmul.go                MatMul
//	intmm.go                 IntMM
//	linear.go                Linear LinearT
//	linearact.go             LinearAct LinearTAct
//	linearint8.go            QuantizeRows LinearInt8
//	products.go              Outer Dot Bmm Addmm Baddbmm Kron Trace Cross
//	productscontract.go      TensorDot Inner VecDot MultiDot
//	einsum.go                Einsum
//	bilinear.go              Bilinear
//	distance.go              Cdist CosineSimilarity PairwiseDistance
//	linalg.go                Inverse Det SlogDet
//	linalghost.go            HostOps: ops that go through the host
//	linalgdecompose.go       Cholesky Eigh QR SVD
//	linalgsolve.go           Solve SolveTriangular CholeskySolve Pinv LstSq MatrixRank
//	linalgexp.go             MatrixExp MatrixPower
//	linalgnorm.go            MatrixNorm SVDVals EigValsH
//
// Layers as functions:
//
//	normalize.go             the function of all normalisations
//	normalizeops.go          LayerNorm LayerNormAs RMSNorm RMSNormAs BatchNorm InstanceNorm
//	                         GroupNorm Normalize LocalResponseNorm
//	normalizerows.go         kernels for rows
//	normalizechannels.go     kernels for channels
//	normalizesync.go         SyncBatchNorm: a batch divided among ranks
//	conv.go                  Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
//	convproduct.go           convolutions as matrix products
//	convfast.go              convolutions by kernels
//	pool.go                  MaxPool2d AvgPool2d LPPool2d … of 1 to 3 dimensions
//	poolmax.go               maxima and their positions
//	poolfast.go              pools by kernels
//	pooladaptive.go          AdaptiveAvgPool2d AdaptiveMaxPool2d …
//	poolfractional.go        FractionalMaxPool2d FractionalMaxPool3d
//	poolunpool.go            MaxUnpool1d MaxUnpool2d MaxUnpool3d
//	windows.go               Unfold
//	windowsgrid.go           windows as a grid
//	windowstaps.go           sums over windows
//	windowsfold.go           Unfold2d Fold
//	interpolate.go           Interpolate
//	interpolateantialias.go  weights with antialiasing
//	interpolateblend.go      blends of two elements
//	attention.go             ScaledDotProductAttention ALiBi
//	attentionfast.go         attention by kernels
//	attentionparts.go        gradients of queries, keys and values in one memory
//	rope.go                  RoPE, RoPEAngles
//
// Gradients:
//
//	graph.go                 Function Context Apply Grad SetGrad TakeGrad ZeroGrad Detach
//	                         RequiresGrad IsLeaf …
//	graphbranch.go           SaveBranch Branch Gradients AtEnd
//	graphleaves.go           Leaves
//	graphhooks.go            RegisterHook RegisterPostAccumulateGradHook RetainGrad
//	graphsaved.go            SavedTensorsHooks
//	graphrebase.go           changes in place through views
//	graphlean.go             functions without intermediate tensors
//	backward.go              Backward Gradient Gradients: the engine
//	backwardone.go           the gradient 1 with which a run begins
//	backwardplan.go          the nodes and leaves that a run reaches
//	backwardparts.go         gradients that arrive in parts
//	backwardoptions.go       RetainGraph CreateGraph GradOutput AllowUnused Also Into
//	backwardact.go           gradients of activations, fused into products
//	backwardreuse.go         memory that gradients may overwrite
//	backwardwatch.go         WatchBackward BackwardWatcher BackwardRun
//	anomaly.go               DetectAnomaly
//	recompute.go             Recompute
//	tape.go                  random numbers of recomputed segments
//	applyall.go              ApplyAll
//	update.go                Update UpdateFinite PrepareUpdate
//
// Modes:
//
//	autocast.go              Autocast NoAutocast WithAutocast
//	tf32.go                  AllowTF32 NoTF32
//	autocastclass.go         classes of composed ops
//	autocastleaves.go        the cache of casts of parameters
//	capture.go               Capture Graph Capturing
//	compile.go               Compile: captures of a function of tensors
//	captureacross.go         Across: several devices in a graph
//	capturejoin.go           Join: several goroutines in a capture
//	capturehooks.go          functions called before and after a replay
//	capturerandom.go         generators in a graph
//	captureshared.go         tensors that several graphs use
//	capturestreams.go        streams in a graph
