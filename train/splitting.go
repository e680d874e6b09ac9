package train

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// firstSplit is called when a batch of n samples is split for the first time. It determines how
// splitting changes the results, which tellSplit logs later. If the reduction of the loss is
// unknown, firstSplit determines it too.
func (a *Adapt) firstSplit(b *data.Batch, n int, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor, seed, offset uint64) {
	if a.splitLogged {
		return
	}
	a.splitLogged, a.changesPending = true, true
	var changes []string
	if names := layersOf(a.c.Model, overBatch); names != "" {
		changes = append(changes, names+" normalises over each part")
	}
	if names := layersOf(a.c.Model, keepsStatistics); names != "" {
		how := "once for each part"
		if a.team != nil {
			how = "by the parts of the first device"
		}
		changes = append(changes, names+" updates its running statistics "+how)
	}
	if a.c.Reduction == ReductionUnknown {
		a.c.Reduction = ReductionMean
		switch r, known := a.compare(b, n, f); {
		case !known:
			changes = append(changes, "the loss is taken for a mean over samples, which it is not sure to be")
		case r == ReductionUnknown:
			changes = append(changes, "the loss is neither the mean nor the sum of the losses of the samples, and is weighted by their number")
		default:
			a.c.Reduction = r
		}
		a.c.Generator.SetState(seed, offset)
	}
	a.changes = changes
}

// tellSplit logs how splitting changes the results, once the first split has succeeded. seed and
// offset are the generator's state before the split. If the state has changed, random numbers were
// drawn.
func (a *Adapt) tellSplit(seed, offset uint64) {
	if !a.changesPending {
		return
	}
	a.changesPending = false
	if s, o := a.c.Generator.State(); s != seed || o != offset {
		names := layersOf(a.c.Model, drops)
		if names == "" {
			names = "what is random"
		}
		a.changes = append(a.changes, names+" may draw other numbers")
	}
	if len(a.changes) > 0 {
		what := "the split"
		if a.team != nil {
			what = "dealing batches to several devices"
		}
		a.say(what + " changes what is computed: " + strings.Join(a.changes, "; "))
	}
}

// computePart does what compute does, for a part of a batch of n samples. The default loss is a
// mean over the targets that are not ignored. computePart scales it so that the losses of the
// parts, weighted by their numbers of samples, add up to the loss of the batch.
func (c *Config) computePart(s *tensor.Scope, part, whole *data.Batch, n int) (output, target, loss *tensor.Tensor) {
	if len(part.Index) == n || !c.plain || c.Compute != nil || part.X == nil || part.Y == nil || part.Y.Type().IsFloat() {
		return c.compute(s, part)
	}
	part.Into(s)
	output = c.Forward(part.X)
	loss = nn.CrossEntropy(output, part.Y, nn.Sum)
	counted := s.From(whole.Y.In(s)).NeScalar(nn.IgnoreIndex).Sum().Cast(loss.Type())
	loss = loss.Div(counted).MulScalar(float64(n) / float64(len(part.Index)))
	return output, part.Y, loss
}

// compare determines the reduction of the loss, in evaluation mode and without gradients. It
// compares the loss of some samples with the losses of their halves. ok is false if the loss is
// neither a mean nor a sum.
func (a *Adapt) compare(b *data.Batch, n int, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (r Reduction, ok bool) {
	defer evaluating(a.c.Model)()
	opts := append([]tensor.Option{tensor.On(a.c.Device), tensor.WithGenerator(a.c.Generator)}, a.c.Options...)
	opts = append(opts, tensor.NoGrad())
	value := func(from, to int) (v float64) {
		scopeOf(b).Do(func(s *tensor.Scope) { v = f(s, part(s, b, from, to, n)).Item() }, opts...)
		return v
	}
	var whole, one, two float64
	m, h := min(n, 16), 0
	if most := a.plan.current(); most > 0 {
		m = min(m, most)
	}
	for ; ; m = h {
		if h = m / 2; h == 0 {
			return 0, false
		}
		if outOfMemory(func() { whole, one, two = value(0, m), value(0, h), value(h, m) }) == nil {
			break
		}
		a.c.Device.Empty()
	}
	near := func(v float64) bool { return math.Abs(whole-v) <= 1e-3*(math.Abs(one)+math.Abs(two)) }
	switch {
	case near((one*float64(h) + two*float64(m-h)) / float64(m)):
		return ReductionMean, true
	case near(one + two):
		return ReductionSum, true
	}
	return ReductionUnknown, true
}

// evaluating puts a model into evaluation mode. It returns a function that restores the layers'
// modes.
func evaluating(model any) (back func()) {
	type kept struct {
		l        any
		training bool
	}
	var modes []kept
	nn.Apply(model, func(l any) {
		if b, ok := l.(interface{ Training() bool }); ok {
			modes = append(modes, kept{l, b.Training()})
		}
	})
	nn.Eval(model)
	return func() {
		// In modes, inner layers come first. Outer layers must be restored first, because nn.Train
		// and nn.Eval also set the layers inside a layer.
		for _, m := range slices.Backward(modes) {
			if m.training {
				nn.Train(m.l)
			} else {
				nn.Eval(m.l)
			}
		}
	}
}

// layersOf returns the types of the layers for which pred returns true, as text, or "" if there are
// none. The argument training is true for a layer in training mode.
func layersOf(model any, pred func(l any, training bool) bool) string {
	kinds := map[string]bool{}
	nn.Apply(model, func(l any) {
		b, ok := l.(interface{ Training() bool })
		if pred(l, !ok || b.Training()) {
			kinds[reflect.Indirect(reflect.ValueOf(l)).Type().Name()] = true
		}
	})
	return strings.Join(slices.Sorted(maps.Keys(kinds)), " and ")
}

// overBatch reports whether a layer normalises over the samples of a batch.
func overBatch(l any, training bool) bool {
	n := batchNorm(l)
	return n != nil && (training || n.RunningMean == nil)
}

// keepsStatistics reports whether a layer updates running statistics.
func keepsStatistics(l any, training bool) bool {
	n := batchNorm(l)
	switch l := l.(type) {
	case *nn.InstanceNorm1d:
		n = &l.ChannelNorm
	case *nn.InstanceNorm2d:
		n = &l.ChannelNorm
	case *nn.InstanceNorm3d:
		n = &l.ChannelNorm
	}
	return n != nil && training && n.RunningMean != nil
}

// batchNorm returns the ChannelNorm of a batch normalisation, or nil for any other layer.
func batchNorm(l any) *nn.ChannelNorm {
	switch l := l.(type) {
	case *nn.BatchNorm1d:
		return &l.ChannelNorm
	case *nn.BatchNorm2d:
		return &l.ChannelNorm
	case *nn.BatchNorm3d:
		return &l.ChannelNorm
	}
	return nil
}

// drops reports whether a layer uses random numbers. Such layers are dropout layers, layers with
// dropout inside, and RReLU.
func drops(l any, training bool) bool {
	if !training {
		return false
	}
	switch l := l.(type) {
	case *nn.Dropout:
		return l.P > 0
	case *nn.Dropout1d:
		return l.P > 0
	case *nn.Dropout2d:
		return l.P > 0
	case *nn.Dropout3d:
		return l.P > 0
	case *nn.AlphaDropout:
		return l.P > 0
	case *nn.FeatureAlphaDropout:
		return l.P > 0
	case *nn.StochasticDepth:
		return l.P > 0
	case *nn.MultiheadAttention:
		return l.Options.Dropout > 0
	case *nn.RNN:
		return l.Options.Dropout > 0
	case *nn.LSTM:
		return l.Options.Dropout > 0
	case *nn.GRU:
		return l.Options.Dropout > 0
	case *nn.RReLU:
		return true
	}
	return false
}
