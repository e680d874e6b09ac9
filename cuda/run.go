package cuda

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

// Supports reports whether the device can run op.
func (d *Device) Supports(op device.Op) bool {
	switch o := op.(type) {
	case *device.Map, *device.Reduce, *device.MultiMap,
		*device.Softmax, *device.SoftmaxGrad, *device.CrossEntropy, *device.CrossEntropyGrad,
		*device.Norm, *device.Scan, *device.Search, *device.GridSample, *device.Fold,
		*device.Unfold, *device.MaxPoolGrad:
		return true
	case *device.Gather:
		return !o.Wrap
	case *device.Scatter:
		return !o.Wrap
	case *device.Argsort:
		return o.Pick == device.PickFirst
	case *device.MatMul:
		return d.products == nil || libraryDoes(o)
	case *device.NormGrad:
		return kernels.NormGradReason(normGradOperands(o, shapeOf), o.RowNorm) == ""
	case *device.Attention:
		return kernels.AttentionReason(attentionOperands(o, shapeOf)) == ""
	case *device.AttentionGrad:
		return kernels.AttentionGradReason(attentionGradOperands(o, shapeOf)) == ""
	// a kernel would add the gradient of the input in random order, so package tensor computes
	// this gradient with other ops
	case *device.GridSampleGrad:
		return !o.Input
	}
	return false
}

// Run queues op on s. It implements [device.Device].
func (d *Device) Run(s device.Stream, op device.Op, told *device.KernelEvent) error {
	st, err := d.stream(op.Name(), s)
	if err != nil {
		return err
	}
	t := &scratch{d: d, s: st, op: op.Name()}
	defer t.free()
	if o, ok := op.(*device.MatMul); ok {
		if done, err := t.product(o, told); done || err != nil {
			return err
		}
	}
	list, err := t.plan(op)
	if err != nil {
		return err
	}
	if l := st.rec.Load(); l != nil {
		l.launches(op, list, t.blocks)
		if told != nil {
			d.tellRecorded(list, told)
		}
		return nil
	}
	return d.launch(st, list, told)
}

// plan returns the launches of op. It allocates scratch memory from t.
func (t *scratch) plan(op device.Op) ([]kernels.Launch, error) {
	fault := t.d.index.record(t.s.slot)
	switch o := op.(type) {
	case *device.Map:
		return kernels.Map(o.Program, operands(o.Outs), operands(o.Ins), o.Params)
	case *device.Reduce:
		return kernels.Reduce(o.Reduction, operand(&o.Out), operands(o.Ins), o.Params, t.alloc)
	case *device.MatMul:
		return t.matMul(o)
	case *device.Gather:
		if o.Wrap {
			break
		}
		return kernels.Gather(operand(&o.Out), operand(&o.Src), operand(&o.Index), o.Axis, fault, o.Tag)
	case *device.Scatter:
		if o.Wrap {
			break
		}
		return t.scatter(o, fault)
	case *device.MultiMap:
		return t.multiMap(o)
	case *device.Softmax:
		return kernels.Softmax(operand(&o.Out), operand(&o.X), o.Log)
	case *device.SoftmaxGrad:
		return kernels.SoftmaxGrad(operand(&o.DX), operand(&o.Y), operand(&o.G), o.Log)
	case *device.CrossEntropy:
		list, err := kernels.CrossEntropy(operand(&o.Loss), operand(&o.Top), operand(&o.Rest), operand(&o.X),
			operand(&o.Target), o.Ignore, fault, o.Tag)
		if err != nil || o.Mean.Absent() {
			return list, err
		}
		mean, err := kernels.MeanOfTargets(operand(&o.Mean), operand(&o.Count), operand(&o.Loss), operand(&o.Target), o.Ignore, t.alloc)
		return append(list, mean...), err
	case *device.CrossEntropyGrad:
		return kernels.CrossEntropyGrad(operand(&o.DX), operand(&o.X), operand(&o.Top), operand(&o.Rest),
			operand(&o.Target), operand(&o.G), operand(&o.Count), o.Ignore)
	case *device.Norm:
		return kernels.Norm(kernels.NormOperands{Out: operand(&o.Out), Mean: operand(&o.Mean), Rstd: operand(&o.Rstd),
			X: operand(&o.X), Weight: operand(&o.Weight), Bias: operand(&o.Bias)}, o.RowNorm)
	case *device.NormGrad:
		return kernels.NormGrad(normGradOperands(o, operand), o.RowNorm, t.alloc)
	case *device.Attention:
		if t.d.Supports(op) {
			return kernels.Attention(t.d.gpu, attentionOperands(o, operand), t.alloc)
		}
	case *device.AttentionGrad:
		if t.d.Supports(op) {
			return kernels.AttentionGrad(attentionGradOperands(o, operand), t.alloc)
		}
	case *device.Scan:
		return kernels.Scan(o.Kind, operand(&o.Out), operands(o.Ins), o.Reverse, t.alloc)
	case *device.Argsort:
		if o.Pick != device.PickFirst {
			break
		}
		return kernels.Argsort(operand(&o.Out), operand(&o.X), o.Descending, t.alloc)
	case *device.Search:
		return kernels.Search(operand(&o.Out), operand(&o.Sorted), operand(&o.Values), o.Right)
	case *device.Fold:
		return kernels.Fold(operand(&o.Y), operand(&o.X), operand(&o.W), o.Window, o.Add)
	case *device.Unfold:
		return kernels.Unfold(operand(&o.Y), operand(&o.X), o.Window)
	case *device.MaxPoolGrad:
		return kernels.MaxPoolGrad(operand(&o.DX), operand(&o.G), operand(&o.Near), o.Window)
	case *device.GridSample:
		return kernels.GridSample(operand(&o.Out), operand(&o.X), operand(&o.Grid), o.GridSampling)
	case *device.GridSampleGrad:
		if !o.Input {
			return kernels.GridSampleGrad(operand(&o.D), operand(&o.G), operand(&o.X), operand(&o.Grid), o.GridSampling)
		}
	}
	return nil, fmt.Errorf("%s: %s: %w", t.d.name, t.op, errors.ErrUnsupported)
}

// operand converts a view to the type of package kernels. An absent view has address 0.
func operand(v *device.View) kernels.Operand {
	if v.Absent() {
		return kernels.Operand{}
	}
	return kernels.Operand{Addr: uint64(v.Buf.Addr()), Type: v.Type, Layout: v.Layout}
}

// shapeOf converts a view to an operand without an address.
func shapeOf(v *device.View) kernels.Operand {
	return kernels.Operand{Type: v.Type, Layout: v.Layout}
}

// normGradOperands converts the views of o with the function operand.
func normGradOperands(o *device.NormGrad, operand func(*device.View) kernels.Operand) kernels.NormOperands {
	return kernels.NormOperands{Out: operand(&o.DX), DWeight: operand(&o.DWeight), DBias: operand(&o.DBias), Grad: operand(&o.G), X: operand(&o.X),
		Mean: operand(&o.Mean), Rstd: operand(&o.Rstd), Weight: operand(&o.Weight), Add: operand(&o.Add)}
}

// attentionOperands converts the views of o with the function operand.
func attentionOperands(o *device.Attention, operand func(*device.View) kernels.Operand) kernels.AttentionOperands {
	return kernels.AttentionOperands{Out: operand(&o.Out), LSE: operand(&o.LSE), Q: operand(&o.Q), K: operand(&o.K), V: operand(&o.V),
		AttentionWeighing: attentionWeighing(&o.Weighing, operand)}
}

// attentionGradOperands converts the views of o with the function operand.
func attentionGradOperands(o *device.AttentionGrad, operand func(*device.View) kernels.Operand) kernels.AttentionGradOperands {
	return kernels.AttentionGradOperands{DQ: operand(&o.DQ), DK: operand(&o.DK), DV: operand(&o.DV), G: operand(&o.G), Q: operand(&o.Q), K: operand(&o.K),
		V: operand(&o.V), Out: operand(&o.Out), LSE: operand(&o.LSE), AttentionWeighing: attentionWeighing(&o.Weighing, operand)}
}

// attentionWeighing converts each view of w with the given function.
func attentionWeighing(w *device.Weighing, of func(*device.View) kernels.Operand) kernels.AttentionWeighing {
	return kernels.AttentionWeighing{Scale: w.Scale, Causal: w.Causal, Lengths: of(&w.Lengths), Mask: of(&w.Mask),
		Numbers: of(&w.Numbers), Drop: w.Drop, Seed: w.Seed, Offset: w.Offset}
}

func operands(list []device.View) []kernels.Operand {
	o := make([]kernels.Operand, len(list))
	for i := range list {
		o[i] = operand(&list[i])
	}
	return o
}

// refusal returns the error for a bad argument of a call.
func (d *Device) refusal(op, arg, why string) error {
	return &device.OperandError{Device: d.name, Op: op, Arg: arg, Reason: why}
}

// buffer returns b as a buffer of this device. If b cannot be used, it returns the reason.
func (d *Device) buffer(b device.Buffer) (own *buffer, why string) {
	own, ok := b.(*buffer)
	switch {
	case !ok || own == nil:
		return nil, "not a buffer of a CUDA device"
	case own.dev != d:
		return nil, fmt.Sprintf("the buffer belongs to %s, not to %s", own.dev.name, d.name)
	case own.freed.Load():
		return nil, "the buffer has been freed"
	}
	return own, ""
}

// Owns returns "" if b is usable memory of this device, else the reason why it is not.
func (d *Device) Owns(b device.Buffer) (reason string) {
	_, why := d.buffer(b)
	return why
}

// bytes returns the device address of n bytes of buf, from byte offset off on. If they do not lie
// in buf, it returns an error.
func (d *Device) bytes(op, arg string, buf device.Buffer, off, n int) (uintptr, error) {
	if why := device.OutsideBytes(d, buf, off, n); why != "" {
		return 0, d.refusal(op, arg, why)
	}
	return buf.Addr() + uintptr(off), nil
}
