package cpu

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// What the processor is fast at, its meta form counts in the same way, so that a program takes the same paths.
var (
	_ device.ChannelNormer  = (*meta)(nil)
	_ device.Convolver      = (*meta)(nil)
	_ device.Device         = (*meta)(nil)
	_ device.MultiMapper    = (*meta)(nil)
	_ device.Normer         = (*meta)(nil)
	_ device.Scanner        = (*meta)(nil)
	_ device.Pooler         = (*meta)(nil)
	_ device.Softmaxer      = (*meta)(nil)
	_ device.CrossEntropyer = (*meta)(nil)
	_ device.Sorter         = (*meta)(nil)
	_ device.Searcher       = (*meta)(nil)
	_ device.Attender       = (*meta)(nil)
)

// told checks that views lie in memory of this device, and tells the tracer of a primitive. A View without a buffer is an operand that is not
// there. The first view is a result.
func (d *meta) told(s device.Stream, op string, work func() device.Work, views ...device.View) error {
	for i := range views {
		v := &views[i]
		if v.Buf == nil {
			continue
		}
		if lo, hi, some := v.Span(); some {
			if _, err := d.check(op, fmt.Sprintf("view %d", i), v.Buf, lo*v.Type.Size(), (hi+1-lo)*v.Type.Size()); err != nil {
				return err
			}
		}
	}
	if len(views) == 0 || views[0].Size() == 0 {
		return nil
	}
	if t := device.Tracing(); t != nil && s != nil {
		now := device.Now()
		t.Kernel(device.KernelEvent{Device: d, Stream: s, Primitive: op, Work: work(), Type: views[0].Type, Shapes: t.Wants().ShapesOf(views), Start: now, End: now})
	}
	return nil
}

// check finds the buffer that holds n bytes from off on.
func (d *meta) check(op, arg string, buf device.Buffer, off, n int) (*metaBuffer, error) {
	b, ok := buf.(*metaBuffer)
	switch {
	case !ok || b == nil:
		return nil, &ViewError{op, arg, "not a buffer of the CPU without memory"}
	case b.dev != d:
		return nil, &ViewError{op, arg, "the buffer belongs to another device"}
	case b.freed.Load():
		return nil, &ViewError{op, arg, "the buffer has been freed"}
	case off < 0 || n < 0 || off > b.size-n:
		return nil, &ViewError{op, arg, fmt.Sprintf("%d bytes at offset %d do not lie in a buffer of %d bytes", n, off, b.size)}
	}
	return b, nil
}

// Upload counts: src is not looked at.
func (d *meta) Upload(_ device.Stream, dst device.Buffer, off int, src []byte) error {
	_, err := d.check("upload", "dst", dst, off, len(src))
	return err
}

// Download fails: there are no values.
func (d *meta) Download(_ device.Stream, dst []byte, src device.Buffer, off int) error {
	if _, err := d.check("download", "src", src, off, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	return fmt.Errorf("cpu: %w", device.ErrNoValues)
}

// CopyFrom counts.
func (d *meta) CopyFrom(s device.Stream, dst device.Buffer, dstOff int, src device.Buffer, srcOff, size int) error {
	if _, err := d.check("copy", "dst", dst, dstOff, size); err != nil {
		return err
	}
	if b, ok := src.(*metaBuffer); ok && b != nil && b.dev != d {
		_, err := b.dev.check("copy", "src", src, srcOff, size)
		return err
	}
	if _, err := d.check("copy", "src", src, srcOff, size); err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		now := device.Now()
		t.Copy(device.CopyEvent{Device: d, Stream: s, Kind: device.HostToHost, Op: "copy", Bytes: size, Start: now, End: now})
	}
	return nil
}

func (d *meta) Map(s device.Stream, p *expr.Program, outs, ins []device.View, params []uint64) error {
	if len(params) < len(p.Params) || len(outs) != len(p.Out) || len(ins) != len(p.In) {
		return &ViewError{"map", "params", fmt.Sprintf("%d results, %d operands and %d parameters do not fit the program", len(outs), len(ins), len(params))}
	}
	return d.told(s, "map", func() device.Work { return device.MapWork(p, outs, ins) }, append(outs[:len(outs):len(outs)], ins...)...)
}

func (d *meta) Reduce(s device.Stream, r *device.Reduction, out device.View, ins []device.View, _ []uint64) error {
	return d.told(s, "reduce", func() device.Work { return device.ReduceWork(r, out, ins) }, append([]device.View{out}, ins...)...)
}

// MatMul takes memory for the float32 copies that 16-bit floats are multiplied in.
func (d *meta) MatMul(s device.Stream, out, a, b device.View) error {
	if err := d.told(s, "matmul", func() device.Work { return device.MatMulWork(out, a, b) }, out, a, b); err != nil {
		return err
	}
	if !out.Type.IsHalf() || out.Size() == 0 || a.Shape.At(2) == 0 {
		return nil
	}
	once := func(v device.View) shape.Dims { // a batch that repeats one matrix
		if v.Strides.At(0) == 0 {
			return v.Shape.With(0, 1)
		}
		return v.Shape
	}
	return d.temporaries(out.Shape, once(a), once(b))
}

// temporaries takes memory for float32 copies of these shapes, and gives it back.
func (d *meta) temporaries(list ...shape.Dims) error {
	for _, s := range list {
		b, err := d.Alloc(s.Size()*dtype.F32.Size(), nil, device.Origin{Op: "cpu temporary", Shape: s, Type: dtype.F32})
		if err != nil {
			return err
		}
		defer b.Free()
	}
	return nil
}

func (d *meta) Gather(s device.Stream, out, src, index device.View, _ int, _ uint32) error {
	return d.told(s, "gather", func() device.Work { return device.GatherWork(out, index) }, out, src, index)
}

// Scatter takes memory for the float32 copies that 16-bit floats are combined in.
func (d *meta) Scatter(s device.Stream, kind device.ScatterKind, dst, src, index device.View, _ int, _ uint32) error {
	if index.Size() == 0 {
		return nil
	}
	err := d.told(s, "scatter-"+kind.String(), func() device.Work { return device.ScatterWork(kind, dst, src, index) }, dst, src, index)
	if err == nil && dst.Type.IsHalf() && kind != device.ScatterSet {
		err = d.temporaries(dst.Shape, src.Shape)
	}
	return err
}

func (d *meta) Softmax(s device.Stream, out, x device.View, _ bool) error {
	return d.told(s, "softmax", func() device.Work { return device.SoftmaxWork(out, x) }, out, x)
}

func (d *meta) SoftmaxGrad(s device.Stream, dx, y, g device.View, log bool) error {
	return d.told(s, "softmax gradient", func() device.Work { return device.SoftmaxGradWork(dx, y, g, log) }, dx, y, g)
}

func (d *meta) CrossEntropy(s device.Stream, loss, top, rest, x, target device.View, _ int64, _ uint32) error {
	return d.told(s, "cross-entropy", func() device.Work { return device.CrossEntropyWork(loss, top, rest, x, target) }, loss, top, rest, x, target)
}

func (d *meta) CrossEntropyGrad(s device.Stream, dx, x, top, rest, target, g device.View, _ int64) error {
	return d.told(s, "cross-entropy gradient", func() device.Work { return device.CrossEntropyGradWork(dx, x, top, rest, target, g) }, dx, x, top, rest, target, g)
}

func (d *meta) Norm(s device.Stream, out, mean, rstd, x, weight, bias device.View, n device.Norm) error {
	return d.told(s, "norm", func() device.Work { return device.NormWork(n, out, mean, rstd, x, weight, bias) }, out, mean, rstd, x, weight, bias)
}

func (d *meta) NormGrad(s device.Stream, dx, g, x, mean, rstd, weight device.View, n device.Norm) error {
	return d.told(s, "norm gradient", func() device.Work { return device.NormGradWork(n, dx, g, x, mean, rstd, weight) }, dx, g, x, mean, rstd, weight)
}

func (d *meta) ChannelNorm(s device.Stream, out, mean, variance, rstd, x, weight, bias device.View, _ device.ChannelNorm) error {
	return d.told(s, "channel norm", func() device.Work { return device.ChannelNormWork(out, mean, variance, rstd, x, weight, bias) }, out, mean, variance, rstd, x, weight, bias)
}

func (d *meta) ChannelNormGrad(s device.Stream, dx, sum, product, g, x, mean, rstd, weight device.View) error {
	return d.told(s, "channel norm gradient", func() device.Work { return device.ChannelNormGradWork(dx, sum, product, g, x, mean, rstd, weight) }, sum, dx, product, g, x, mean, rstd, weight)
}

func (d *meta) Convolve(s device.Stream, y, x, w device.View, _ device.Convolution) error {
	return d.told(s, "convolution", func() device.Work { return device.ConvolutionWork(x, w, y) }, y, x, w)
}

func (d *meta) ConvolveData(s device.Stream, dx, g, w device.View, _ device.Convolution) error {
	return d.told(s, "convolution data gradient", func() device.Work { return device.ConvolutionWork(dx, w, g) }, dx, g, w)
}

func (d *meta) ConvolveWeight(s device.Stream, dw, x, g device.View, _ device.Convolution) error {
	return d.told(s, "convolution weight gradient", func() device.Work { return device.ConvolutionWork(x, dw, g) }, dw, x, g)
}

func (d *meta) MaxPoolGrad(s device.Stream, dx, g, near device.View, _ device.Window) error {
	return d.told(s, "max pool gradient", func() device.Work { return device.MaxPoolGradWork(dx, g, near) }, dx, g, near)
}

func (d *meta) SumWindows(s device.Stream, y, x device.View, w device.Window) error {
	return d.told(s, "window sums", func() device.Work { return w.WindowsWork(x, y) }, y, x)
}

func (d *meta) AddWindows(s device.Stream, dx, g device.View, w device.Window) error {
	return d.told(s, "window sums gradient", func() device.Work { return w.WindowsWork(dx, g) }, dx, g)
}

func (d *meta) Scan(s device.Stream, kind device.ScanKind, out device.View, ins []device.View, _ bool) error {
	return d.told(s, "scan-"+kind.String(), func() device.Work { return device.ScanWork(kind, out, ins) }, append([]device.View{out}, ins...)...)
}

func (d *meta) Argsort(s device.Stream, out, x device.View, _ bool) error {
	return d.told(s, "argsort", func() device.Work { return device.ArgsortWork(out, x) }, out, x)
}

func (d *meta) Search(s device.Stream, out, sorted, values device.View, _ bool) error {
	return d.told(s, "search", func() device.Work { return device.SearchWork(out, sorted, values) }, out, sorted, values)
}

func (d *meta) Attend(s device.Stream, out, q, k, v device.View, _ float64, causal bool) error {
	return d.told(s, "attention", func() device.Work { return device.AttentionWork(out, q, k, v, causal) }, out, q, k, v)
}

func (d *meta) MultiMap(s device.Stream, p *expr.Program, outs, ins [][]device.View, params device.View) error {
	if len(outs) != len(ins) {
		return &ViewError{"multi-map", "outs", fmt.Sprintf("%d groups, but %d groups of operands", len(outs), len(ins))}
	}
	var views []device.View
	for k := range outs {
		views = append(append(views, outs[k]...), ins[k]...)
	}
	return d.told(s, "multi-map", func() device.Work { return device.MultiMapWork(p, outs, ins, params) }, append(views, params)...)
}
