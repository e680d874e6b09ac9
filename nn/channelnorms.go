package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// CumulativeAverage is a value for the field Momentum. It makes the running statistics the plain
// average over all batches so far. In torch this is momentum=None.
const CumulativeAverage = -1

// ChannelNorm holds the parameters and running statistics of layers that normalise channels. A
// tensor that the layer does not have is nil.
type ChannelNorm struct {
	Base
	Weight      *tensor.Tensor `nn:"weight"`              // [channels]
	Bias        *tensor.Tensor `nn:"bias"`                // [channels]
	RunningMean *tensor.Tensor `nn:"running_mean,buffer"` // [channels]
	RunningVar  *tensor.Tensor `nn:"running_var,buffer"`  // [channels]
	// NumBatchesTracked counts the training batches of a batch normalisation. It is an int64
	// scalar.
	NumBatchesTracked *tensor.Tensor `nn:"num_batches_tracked,buffer,optional"`
	// Momentum is the weight of the newest batch in the running statistics. It is 0.1 by default
	// and may be [CumulativeAverage].
	Momentum float64
	Eps      float64 // 1e-5 by default

	lazy *lazy
	// ranks whose batches BatchNorm treats as one batch in training; nil for this rank only
	sync tensor.BatchRanks
}

func newChannelNorm(channels int, o layerOptions) ChannelNorm {
	n := ChannelNorm{Momentum: 0.1, Eps: 1e-5}
	n.fill(channels, &lazy{o: o})
	return n
}

func lazyChannelNorm(o layerOptions) ChannelNorm {
	n := ChannelNorm{Momentum: 0.1, Eps: 1e-5}
	if !o.noAffine || o.stats { // without these options no tensor depends on the number of channels
		n.lazy = &lazy{o: o}
	}
	return n
}

func (n *ChannelNorm) waiting() **lazy { return &n.lazy }

func (n *ChannelNorm) empty() {
	n.Weight, n.Bias, n.RunningMean, n.RunningVar, n.NumBatchesTracked = nil, nil, nil, nil, nil
}

func (n *ChannelNorm) inputsOf(*lazy) (names []string, dim, by int) {
	return []string{"weight", "running_mean", "bias", "running_var"}, 0, 1
}

func (n *ChannelNorm) fill(channels int, z *lazy) {
	o := z.o
	if !o.noAffine {
		m := o.parameters()
		n.Weight = m.Ones(channels).RequiresGrad()
		if !o.noBias {
			n.Bias = m.Zeros(channels).RequiresGrad()
		}
	}
	if o.stats {
		m := o.buffers()
		n.RunningMean, n.RunningVar = m.Zeros(channels), m.Ones(channels)
		n.NumBatchesTracked = m.Typed(dtype.I64).Zeros()
	}
}

type channelFunc func(x, mean, variance, weight, bias *tensor.Tensor, own bool, momentum, eps float64) *tensor.Tensor

// forward normalises x by f. In training it uses the statistics of x and updates the running
// statistics. In evaluation it uses the running statistics if there are any, else the statistics of
// x. If counts is true, it also counts the batch in training.
func (n *ChannelNorm) forward(x *tensor.Tensor, f channelFunc, counts bool) *tensor.Tensor {
	mean, variance := n.RunningMean, n.RunningVar
	if n.sync != nil && n.Training() {
		f = n.synced
	}
	if !n.Training() || mean == nil {
		return f(x, mean, variance, n.Weight, n.Bias, mean == nil, 0, n.Eps)
	}
	if counts && n.NumBatchesTracked != nil && !x.Scope().Recomputing() {
		// The addition runs in x's scope: if the step is captured, each replay counts its batch
		// too.
		n.NumBatchesTracked.In(x.Scope()).AddScalarInPlace(1)
	}
	if counts = counts && n.NumBatchesTracked != nil; n.Momentum != CumulativeAverage || !counts {
		momentum := n.Momentum
		if momentum == CumulativeAverage {
			momentum = 0 // without a count of batches, torch leaves the running statistics unchanged too
		}
		return f(x, mean, variance, n.Weight, n.Bias, true, momentum, n.Eps)
	}
	// The number of batches is on the device, so the running average is computed there. With a
	// momentum of 1, f returns the statistics of this batch alone.
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		m := c.On(mean.Device()).Typed(mean.Type())
		newMean, newVar := m.Empty(mean.Size()), m.Empty(mean.Size())
		newMean.Copy(mean)
		newVar.Copy(variance)
		y := f(x.In(c), newMean, newVar, n.Weight, n.Bias, true, 1, n.Eps)
		if c.Recomputing() {
			return y
		}
		count := n.NumBatchesTracked.In(c).Cast(mean.Type())
		mean.AddInPlace(newMean.Sub(mean).Div(count))
		variance.AddInPlace(newVar.Sub(variance).Div(count))
		return y
	}, x, mean)
}

// synced is the channelFunc for training on several ranks, whose batches it treats as one batch.
func (n *ChannelNorm) synced(x, mean, variance, weight, bias *tensor.Tensor, _ bool, momentum, eps float64) *tensor.Tensor {
	return x.SyncBatchNorm(n.sync, mean, variance, weight, bias, momentum, eps)
}

func checkRank(op string, x *tensor.Tensor, ranks ...int) {
	requireUsable(op, x)
	for _, r := range ranks {
		if x.Rank() == r {
			return
		}
	}
	misuse(op, tensor.ErrShape, fmt.Sprintf("the input has %v dimensions, not %d: its shape is %v", ranks, x.Rank(), x.Shape()), x)
}

func batchOptions(layer string, opts []Option) layerOptions {
	return options(layer, append([]Option{Stats()}, opts...), channelwise...)
}

// BatchNorm1d normalises the channels of [n, channels] or [n, channels, length] over the batch: see
// [tensor.Tensor.BatchNorm].
type BatchNorm1d struct{ ChannelNorm }

// NewBatchNorm1d returns a layer with weight 1, bias 0, and running statistics, which evaluation
// uses. The option [NoAffine] leaves out weight and bias.
func NewBatchNorm1d(channels int, opts ...Option) *BatchNorm1d {
	return &BatchNorm1d{newChannelNorm(channels, batchOptions("BatchNorm1d", opts))}
}

// SyncOver makes training normalise over the batches of all given ranks, as if they were one batch:
// see [tensor.Tensor.SyncBatchNorm]. SyncOver(nil) undoes this. Copies of the layer keep the
// setting.
func (l *BatchNorm1d) SyncOver(ranks tensor.BatchRanks) { l.sync = ranks }

// NewLazyBatchNorm1d returns a layer whose first input determines the number of channels: see
// [NewLazyLinear]. NewLazyBatchNorm1d accepts the options of [NewBatchNorm1d].
func NewLazyBatchNorm1d(opts ...Option) *BatchNorm1d {
	return &BatchNorm1d{lazyChannelNorm(batchOptions("LazyBatchNorm1d", opts))}
}

// Forward applies the layer.
func (l *BatchNorm1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	checkRank("batch_norm", x, 2, 3)
	ready(l, x, x.Dim(1))
	return l.forward(x, (*tensor.Tensor).BatchNorm, true)
}

// BatchNorm2d normalises the channels of [n, channels, height, width] over the batch: see
// [tensor.Tensor.BatchNorm].
type BatchNorm2d struct{ ChannelNorm }

// NewBatchNorm2d returns a layer with weight 1, bias 0, and running statistics, which evaluation
// uses.
func NewBatchNorm2d(channels int, opts ...Option) *BatchNorm2d {
	return &BatchNorm2d{newChannelNorm(channels, batchOptions("BatchNorm2d", opts))}
}

// SyncOver makes training normalise over the batches of all given ranks, as if they were one batch:
// see [tensor.Tensor.SyncBatchNorm]. SyncOver(nil) undoes this. Copies of the layer keep the
// setting.
func (l *BatchNorm2d) SyncOver(ranks tensor.BatchRanks) { l.sync = ranks }

// NewLazyBatchNorm2d returns a layer whose first input determines the number of channels: see
// [NewLazyLinear]. NewLazyBatchNorm2d accepts the options of [NewBatchNorm2d].
func NewLazyBatchNorm2d(opts ...Option) *BatchNorm2d {
	return &BatchNorm2d{lazyChannelNorm(batchOptions("LazyBatchNorm2d", opts))}
}

// Forward applies the layer.
func (l *BatchNorm2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	checkRank("batch_norm", x, 4)
	ready(l, x, x.Dim(1))
	return l.forward(x, (*tensor.Tensor).BatchNorm, true)
}

// BatchNorm3d normalises the channels of [n, channels, depth, height, width] over the batch: see
// [tensor.Tensor.BatchNorm].
type BatchNorm3d struct{ ChannelNorm }

// NewBatchNorm3d returns a layer with weight 1, bias 0, and running statistics, which evaluation
// uses.
func NewBatchNorm3d(channels int, opts ...Option) *BatchNorm3d {
	return &BatchNorm3d{newChannelNorm(channels, batchOptions("BatchNorm3d", opts))}
}

// SyncOver makes training normalise over the batches of all given ranks, as if they were one batch:
// see [tensor.Tensor.SyncBatchNorm]. SyncOver(nil) undoes this. Copies of the layer keep the
// setting.
func (l *BatchNorm3d) SyncOver(ranks tensor.BatchRanks) { l.sync = ranks }

// NewLazyBatchNorm3d returns a layer whose first input determines the number of channels: see
// [NewLazyLinear]. NewLazyBatchNorm3d accepts the options of [NewBatchNorm3d].
func NewLazyBatchNorm3d(opts ...Option) *BatchNorm3d {
	return &BatchNorm3d{lazyChannelNorm(batchOptions("LazyBatchNorm3d", opts))}
}

// Forward applies the layer.
func (l *BatchNorm3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	checkRank("batch_norm", x, 5)
	ready(l, x, x.Dim(1))
	return l.forward(x, (*tensor.Tensor).BatchNorm, true)
}

func instanceOptions(layer string, opts []Option) layerOptions {
	return options(layer, append([]Option{NoAffine()}, opts...), channelwise...)
}

// instances applies an instance normalisation to x, a batch with the given number of dimensions. An
// input with one dimension less is a single instance. In training, instances updates the running
// statistics. As in torch it does not count batches, so with [CumulativeAverage] the running
// statistics do not change.
func (n *ChannelNorm) instances(x *tensor.Tensor, rank int) *tensor.Tensor {
	checkRank("instance_norm", x, rank-1, rank)
	ready(n, x, x.Dim(1-rank))
	if x.Rank() < rank {
		y := n.forward(x.Unsqueeze(0), (*tensor.Tensor).InstanceNorm, false)
		defer y.Free() // the result is a view, which keeps y's storage alive
		return y.Squeeze(0)
	}
	return n.forward(x, (*tensor.Tensor).InstanceNorm, false)
}

// InstanceNorm1d normalises each channel of each instance of [n, channels, length], or of a single
// instance [channels, length]: see [tensor.Tensor.InstanceNorm].
type InstanceNorm1d struct{ ChannelNorm }

// NewInstanceNorm1d returns a layer without weight, bias and running statistics, as torch does.
// [Affine] adds weight and bias, and [Stats] adds running statistics.
func NewInstanceNorm1d(channels int, opts ...Option) *InstanceNorm1d {
	return &InstanceNorm1d{newChannelNorm(channels, instanceOptions("InstanceNorm1d", opts))}
}

// NewLazyInstanceNorm1d returns a layer whose first input determines the number of channels: see
// [NewLazyLinear]. NewLazyInstanceNorm1d accepts the options of [NewInstanceNorm1d].
func NewLazyInstanceNorm1d(opts ...Option) *InstanceNorm1d {
	return &InstanceNorm1d{lazyChannelNorm(instanceOptions("LazyInstanceNorm1d", opts))}
}

// Forward applies the layer.
func (l *InstanceNorm1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return l.instances(x, 3)
}

// InstanceNorm2d normalises each channel of each instance of [n, channels, height, width], or of a
// single instance [channels, height, width].
type InstanceNorm2d struct{ ChannelNorm }

// NewInstanceNorm2d returns a layer without weight, bias and running statistics, as torch does.
// [Affine] adds weight and bias, and [Stats] adds running statistics.
func NewInstanceNorm2d(channels int, opts ...Option) *InstanceNorm2d {
	return &InstanceNorm2d{newChannelNorm(channels, instanceOptions("InstanceNorm2d", opts))}
}

// NewLazyInstanceNorm2d returns a layer whose first input determines the number of channels: see
// [NewLazyLinear]. NewLazyInstanceNorm2d accepts the options of [NewInstanceNorm2d].
func NewLazyInstanceNorm2d(opts ...Option) *InstanceNorm2d {
	return &InstanceNorm2d{lazyChannelNorm(instanceOptions("LazyInstanceNorm2d", opts))}
}

// Forward applies the layer.
func (l *InstanceNorm2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return l.instances(x, 4)
}

// InstanceNorm3d normalises each channel of each instance of [n, channels, depth, height, width],
// or of a single instance [channels, depth, height, width].
type InstanceNorm3d struct{ ChannelNorm }

// NewInstanceNorm3d returns a layer without weight, bias and running statistics, as torch does.
// [Affine] adds weight and bias, and [Stats] adds running statistics.
func NewInstanceNorm3d(channels int, opts ...Option) *InstanceNorm3d {
	return &InstanceNorm3d{newChannelNorm(channels, instanceOptions("InstanceNorm3d", opts))}
}

// NewLazyInstanceNorm3d returns a layer whose first input determines the number of channels: see
// [NewLazyLinear]. NewLazyInstanceNorm3d accepts the options of [NewInstanceNorm3d].
func NewLazyInstanceNorm3d(opts ...Option) *InstanceNorm3d {
	return &InstanceNorm3d{lazyChannelNorm(instanceOptions("LazyInstanceNorm3d", opts))}
}

// Forward applies the layer.
func (l *InstanceNorm3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return l.instances(x, 5)
}

// GroupNorm normalises groups of channels of [n, channels, …]: see [tensor.Tensor.GroupNorm].
type GroupNorm struct {
	Base
	Weight *tensor.Tensor `nn:"weight"` // [channels], nil for none
	Bias   *tensor.Tensor `nn:"bias"`   // [channels], nil for none
	Groups int
	Eps    float64 // 1e-5 by default
}

// NewGroupNorm returns a layer with weight 1 and bias 0. NewGroupNorm panics with an *[Error] if
// groups does not divide channels.
func NewGroupNorm(groups, channels int, opts ...Option) *GroupNorm {
	if groups <= 0 || channels <= 0 || channels%groups != 0 {
		panic(wrong("GroupNorm", fmt.Sprintf("%d channels cannot be %d groups of one size", channels, groups)))
	}
	o := options("GroupNorm", opts, "NoAffine", "NoBias")
	n := newChannelNorm(channels, o)
	return &GroupNorm{Weight: n.Weight, Bias: n.Bias, Groups: groups, Eps: n.Eps}
}

// Forward applies the layer.
func (l *GroupNorm) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.GroupNorm(l.Groups, l.Weight, l.Bias, l.Eps)
}

// LocalResponseNorm divides by a power of the mean square of neighbouring channels: see
// [tensor.Tensor.LocalResponseNorm].
type LocalResponseNorm struct {
	Base
	Size           int
	Alpha, Beta, K float64 // 1e-4, 0.75 and 1 by default
}

// NewLocalResponseNorm returns a layer that averages over size neighbouring channels.
func NewLocalResponseNorm(size int) *LocalResponseNorm {
	return &LocalResponseNorm{Size: size, Alpha: 1e-4, Beta: 0.75, K: 1}
}

// Forward applies the layer.
func (l *LocalResponseNorm) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.LocalResponseNorm(l.Size, l.Alpha, l.Beta, l.K)
}
