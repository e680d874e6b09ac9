package cpu

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// Supports reports whether the CPU has a kernel for op.
func (d *Device) Supports(op device.Op) bool { return supports(op) }

// supports reports whether the CPU has a kernel for op. The device without memory calls it too: a
// program then behaves in the same way on both devices.
func supports(op device.Op) bool {
	switch o := op.(type) {
	case *device.Map, *device.Reduce, *device.MatMul, *device.Gather, *device.Scatter,
		*device.Softmax, *device.SoftmaxGrad, *device.CrossEntropy, *device.CrossEntropyGrad,
		*device.Norm, *device.Scan, *device.Argsort, *device.Search:
		return true
	case *device.NormGrad:
		return !o.Sums() || o.Period == 1 && o.Inner == 1
	case *device.ChannelNorm, *device.ChannelNormGrad, *device.Convolution, *device.SumWindows:
		return single(op)
	case *device.Attention:
		return attentionTypes(&o.Q, &o.Mask)
	case *device.AttentionGrad:
		return attentionTypes(&o.Q, &o.Mask)
	case *device.MaxPoolGrad:
		return o.G.Type == dtype.F32
	case *device.Fold:
		t := o.Y.Type
		return o.W.Absent() && t == o.X.Type && t == t.Compute()
	case *device.MultiMap:
		return o.Found.Absent()
	case *device.GridSample, *device.GridSampleGrad:
		return true
	case *device.Blend:
		return o.X.Type == dtype.F32 || o.X.Type == dtype.F64
	}
	return false
}

// single reports whether all operands of op are float32.
func single(op device.Op) bool {
	for i := 0; ; i++ {
		v := op.Operand(i).View
		if v == nil {
			return true
		}
		if v.Type != dtype.F32 && !v.Absent() {
			return false
		}
	}
}

// Run runs op and returns when it is done. If s belongs to a recording, Run only records op. Only
// [device.Run] and replays call Run.
func (d *Device) Run(s device.Stream, op device.Op, told *device.KernelEvent) error {
	if recordOp(s, op, told) {
		return nil
	}
	switch o := op.(type) {
	case *device.Map:
		if !d.copied(o) {
			d.elementwise(o.Program, o.Outs, o.Ins, o.Params)
		}
	case *device.Reduce:
		return d.reduce(o)
	case *device.MatMul:
		return d.matMul(o)
	case *device.Gather:
		return d.gather(o)
	case *device.Scatter:
		return d.scatter(o)
	case *device.Softmax:
		d.softmax(o)
	case *device.SoftmaxGrad:
		d.softmaxGrad(o)
	case *device.CrossEntropy:
		return d.crossEntropy(o)
	case *device.CrossEntropyGrad:
		d.crossEntropyGrad(o)
	case *device.Norm:
		d.norm(o)
	case *device.NormGrad:
		d.normGrad(o)
	case *device.ChannelNorm:
		d.channelNorm(o)
	case *device.ChannelNormGrad:
		d.channelNormGrad(o)
	case *device.Convolution:
		d.convolution(o)
	case *device.SumWindows:
		d.sumWindows(o)
	case *device.Fold:
		if !supports(op) {
			return unsupported(op)
		}
		d.foldWindows(o)
	case *device.MaxPoolGrad:
		d.maxPoolGrad(o)
	case *device.Scan:
		d.scan(o)
	case *device.Argsort:
		d.argsort(o)
	case *device.Search:
		d.search(o)
	case *device.Attention:
		if !supports(op) {
			return unsupported(op)
		}
		d.attention(o)
	case *device.AttentionGrad:
		if !supports(op) {
			return unsupported(op)
		}
		return d.attentionGrad(o)
	case *device.GridSample:
		d.gridSample(o)
	case *device.GridSampleGrad:
		d.gridSampleGrad(o)
	case *device.Blend:
		return d.blend(o)
	case *device.MultiMap:
		if !supports(op) {
			return unsupported(op)
		}
		d.multiMap(o)
	default:
		return unsupported(op)
	}
	return nil
}

func unsupported(op device.Op) error {
	return fmt.Errorf("cpu: %s: %w", op.Name(), errors.ErrUnsupported)
}

// Owns returns "" if b is usable memory of the CPU. Otherwise it returns the reason.
func (d *Device) Owns(b device.Buffer) (reason string) {
	own, ok := b.(*buffer)
	if !ok || own == nil {
		return "not a buffer of the CPU"
	}
	return usable(own.dev == d, own.freed.Load())
}

func usable(own, freed bool) (reason string) {
	switch {
	case !own:
		return "the buffer belongs to another device"
	case freed:
		return "the buffer has been freed"
	}
	return ""
}

func operandError(dev, op, arg, reason string) error {
	return &device.OperandError{Device: dev, Op: op, Arg: arg, Reason: reason}
}
