package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Ops returns small valid ops, at least one of each type. They cover every kind of each op, with
// and without optional operands. The function view creates the operands. Each result has more than
// one element. The ops stay valid if all elements of integer operands are 1.
func Ops(view func(t dtype.Type, dims ...int) device.View) []device.Op {
	f := func(dims ...int) device.View { return view(dtype.F32, dims...) }
	i := func(dims ...int) device.View { return view(dtype.I64, dims...) }
	list := func(v ...device.View) []device.View { return v }
	scaled := lower(expr.X(0).Mul(expr.Param(0)).Add(expr.X(1)), dtype.F32, dtype.F32, dtype.F32)
	sum := lower(expr.X(0).Add(expr.X(1)), dtype.F32, dtype.F32, dtype.F32)
	root := lower(expr.X(0).Abs().Sqrt(), dtype.F32, dtype.F32)
	half := func() []uint64 { return []uint64{expr.Encode(dtype.F32, 0.5)} }
	rows := device.RowNorm{Eps: 1e-3, Period: 1, Inner: 1}
	rms := device.RowNorm{Eps: 1e-3, RMS: true, Period: 1, Inner: 1}
	two, one := [3]int{2, 2}, [3]int{1, 1}
	pool := device.Window{Rank: 2, Kernel: two, Stride: two, Dilation: one}
	weighing := func() device.Weighing {
		return device.Weighing{Scale: 0.5, Mask: f(2, 2, 3, 2), Lengths: i(2), Drop: 0.25, Numbers: i(2)}
	}
	groups := func(n int) (g [][]device.View) {
		for _, size := range []int{5, 3} {
			var v []device.View
			for range n {
				v = append(v, f(size))
			}
			g = append(g, v)
		}
		return g
	}
	ops := []device.Op{
		&device.Map{Program: scaled, Outs: list(f(3, 4)), Ins: list(f(3, 4), f(3, 4)), Params: half()},
		&device.Reduce{Reduction: &device.Reduction{Map: scaled, Finish: root}, Out: f(3, 1), Ins: list(f(3, 4), f(3, 4)), Params: half()},
		&device.Reduce{Reduction: &device.Reduction{Kind: device.ArgMax, Map: root}, Out: i(1, 4), Ins: list(f(3, 4))},
		&device.MatMul{Out: f(2, 3, 5), A: f(2, 3, 4), B: f(2, 4, 5)},
		&device.MatMul{Out: f(2, 3, 5), A: f(2, 3, 4), B: f(2, 4, 5), Bias: f(5)},
		&device.MatMul{Out: f(2, 3, 5), Pre: f(2, 3, 5), A: f(2, 3, 4), B: f(2, 4, 5), Act: root},
		&device.MatMul{Out: f(2, 3, 5), Pre: f(2, 3, 5), A: f(2, 3, 4), B: f(2, 4, 5), Act: sum, With: f(2, 3, 5)},
		&device.MatMul{Out: f(1, 3, 5), Sums: f(3), A: f(1, 3, 4), B: f(1, 4, 5), ColumnSums: f(5)},
		&device.MatMul{Out: f(2, 3, 5), A: f(2, 3, 4), B: f(2, 4, 5), TF32: true},
		&device.MatMul{Out: f(2, 3, 5), A: view(dtype.BF16, 2, 3, 4), B: f(2, 4, 5)},
		&device.Gather{Out: f(2, 4), Src: f(3, 4), Index: i(2, 4)},
		&device.Gather{Out: f(2, 4), Src: f(3, 4), Index: i(2, 4), Wrap: true},
		&device.Scatter{Dst: f(3, 4), Src: f(2, 4), Index: i(2, 4), Wrap: true},
		&device.Softmax{Out: f(3, 5), X: f(3, 5)},
		&device.SoftmaxGrad{DX: f(3, 5), Y: f(3, 5), G: f(3, 5), Log: true},
		&device.CrossEntropy{Loss: f(3), Top: f(3), Rest: f(3), X: f(3, 5), Target: i(3)},
		&device.CrossEntropy{Loss: f(3), Top: f(3), Rest: f(3), X: f(3, 5), Target: i(3), Mean: f(1), Count: i(1)},
		&device.CrossEntropyGrad{DX: f(3, 5), X: f(3, 5), Top: f(3), Rest: f(3), Target: i(3), G: f(3)},
		&device.CrossEntropyGrad{DX: f(3, 5), X: f(3, 5), Top: f(3), Rest: f(3), Target: i(3), Count: i(1)},
		&device.CrossEntropy{Loss: f(3), X: f(3, 5), Target: i(3), Mean: f(1), Count: i(1)},
		&device.CrossEntropyGrad{DX: f(3, 5), Target: i(3), G: f(3), Count: i(1)},
		&device.Norm{Out: f(4, 6), Mean: f(4), Rstd: f(4), X: f(4, 6), Weight: f(6), Bias: f(6), RowNorm: rows},
		&device.Norm{Out: f(4, 6), Rstd: f(4), X: f(4, 6), RowNorm: rms},
		&device.NormGrad{DX: f(4, 6), G: f(4, 6), X: f(4, 6), Mean: f(4), Rstd: f(4), Weight: f(6), RowNorm: rows},
		&device.NormGrad{DX: f(4, 6), G: f(4, 6), X: f(4, 6), Rstd: f(4), RowNorm: rms},
		&device.NormGrad{DX: f(4, 6), DWeight: f(6), DBias: f(6), G: f(4, 6), X: f(4, 6), Mean: f(4), Rstd: f(4), Weight: f(6), Add: f(4, 6), RowNorm: rows},
		&device.NormGrad{DBias: f(6), G: f(4, 6), X: f(4, 6), Mean: f(4), Rstd: f(4), RowNorm: rows},
		&device.ChannelNorm{Out: f(2, 3, 4), Mean: f(3), Variance: f(3), Rstd: f(3), X: f(2, 3, 4), Weight: f(3), Bias: f(3), Eps: 1e-3},
		&device.ChannelNorm{Out: f(2, 3, 4), Mean: f(3), Variance: f(3), Rstd: f(3), X: f(2, 3, 4), Eps: 1e-3},
		&device.ChannelNormGrad{Sum: f(3), Product: f(3), DX: f(2, 3, 4), G: f(2, 3, 4), X: f(2, 3, 4), Mean: f(3), Rstd: f(3), Weight: f(3)},
		&device.ChannelNormGrad{Sum: f(3), Product: f(3), G: f(2, 3, 4), X: f(2, 3, 4), Mean: f(3), Rstd: f(3)},
		&device.SumWindows{Y: f(2, 2, 2), X: f(2, 4, 4), Window: pool},
		&device.Fold{Y: f(2, 1, 4, 4), X: f(2, 1, 2, 2, 2, 2), Window: pool},
		&device.Fold{Y: f(2, 3, 4, 4), X: f(2, 3, 2, 2, 2, 2), W: f(3, 2, 2), Window: pool, Add: true},
		&device.Unfold{Y: f(2, 3, 2, 2, 2, 2), X: f(2, 3, 4, 4), Window: pool},
		&device.MaxPoolGrad{DX: f(2, 4, 4), G: f(2, 2, 2), Near: view(dtype.U8, 2, 2, 2), Window: pool},
		&device.Argsort{Out: i(2, 3), X: f(2, 5)},
		&device.Argsort{Out: i(2, 1), X: f(2, 5), Pick: device.PickRank, Rank: 4},
		&device.Argsort{Out: i(2, 1), X: f(2, 5), Pick: device.PickMode},
		&device.Search{Out: i(2, 4), Sorted: f(2, 5), Values: f(2, 4)},
		&device.Attention{Out: f(2, 2, 3, 5), Q: f(2, 2, 3, 4), K: f(2, 1, 2, 4), V: f(2, 1, 2, 5), Weighing: device.Weighing{Scale: 0.5}},
		&device.Attention{Out: f(2, 2, 3, 5), LSE: f(2, 2, 3), Q: f(2, 2, 3, 4), K: f(2, 1, 2, 4), V: f(2, 1, 2, 5), Weighing: weighing()},
		&device.AttentionGrad{DQ: f(2, 2, 3, 4), DK: f(2, 1, 2, 4), DV: f(2, 1, 2, 5), G: f(2, 2, 3, 5), Q: f(2, 2, 3, 4), K: f(2, 1, 2, 4), V: f(2, 1, 2, 5),
			Out: f(2, 2, 3, 5), LSE: f(2, 2, 3), Weighing: weighing()},
		&device.MultiMap{Program: scaled, Outs: groups(1), Ins: groups(2), Params: i(1)},
		&device.MultiMap{Program: scaled, Outs: groups(1), Ins: groups(2), Params: i(1), Found: f(1)},
	}
	for k := range device.GridBicubic + 1 {
		s := device.GridSampling{Mode: k, Padding: device.GridPadding(k), AlignCorners: k == 0}
		ops = append(ops, &device.GridSample{Out: f(2, 3, 2, 2), X: f(2, 3, 4, 5), Grid: f(2, 2, 2, 2), GridSampling: s},
			&device.GridSampleGrad{D: f(2, 2, 2, 2), G: f(2, 3, 2, 2), X: f(2, 3, 4, 5), Grid: f(2, 2, 2, 2), GridSampling: s},
			&device.GridSampleGrad{D: f(2, 3, 4, 5), G: f(2, 3, 2, 2), X: f(2, 3, 4, 5), Grid: f(2, 2, 2, 2), Input: true, GridSampling: s})
	}
	for _, back := range []bool{false, true} {
		ops = append(ops, &device.Blend{Out: f(2, 3, 4), X: f(2, 3, 4), Index: i(2, 3), Weight: f(2, 3), Back: back},
			&device.Blend{Out: f(2, 3, 4), X: f(2, 3, 4), Index: i(1, 3), Back: back})
	}
	for k := range device.ScatterMin + 1 {
		ops = append(ops, &device.Scatter{Kind: k, Dst: f(3, 4), Src: f(2, 4), Index: i(2, 4)})
	}
	for k := range device.ScanLinear + 1 {
		o := &device.Scan{Kind: k, Out: f(2, 5, 3), Ins: list(f(2, 5, 3))}
		switch k {
		case device.ScanMax, device.ScanMin:
			o.Out = i(2, 5, 3)
		case device.ScanLinear:
			o.Ins = append(o.Ins, f(2, 5, 3))
		}
		ops = append(ops, o)
	}
	for k := range device.ConvWeight + 1 {
		ops = append(ops, &device.Convolution{Kind: k, X: f(1, 2, 4, 4), W: f(3, 2, 3, 3), Y: f(1, 3, 2, 2), Rank: 2, Groups: 1, Stride: one, Dilation: one})
	}
	return ops
}

func emptyView(t dtype.Type, dims ...int) device.View {
	return device.View{Type: t, Layout: shape.Dense(shape.Of(dims...))}
}

// supports reports whether, for each of the given names, the device supports at least one op with
// this name from [Ops].
func (r *rig) supports(names ...string) bool {
	for _, name := range names {
		known, supported := false, false
		for _, op := range Ops(emptyView) {
			if op.Name() == name {
				known, supported = true, supported || r.dev.Supports(op)
			}
		}
		if !known {
			r.Fatalf("there is no op %q", name)
		}
		if !supported {
			r.Logf("%s does not support %q: nothing to test", r.dev.Name(), name)
			return false
		}
	}
	return true
}

func (r *rig) run(what string, op device.Op) {
	r.Helper()
	r.must(device.Run(r.dev, r.s, op), what)
}

// ops returns the ops of [Ops], with operands in the device's memory.
func (r *rig) ops() []device.Op {
	return Ops(func(t dtype.Type, dims ...int) device.View {
		return r.array(t, shape.Of(dims...), contiguous, func(int) uint64 {
			if t.IsInteger() {
				return 1
			}
			return r.tame(t)
		}).v
	})
}

// supported returns the ops of [Ops] that the device supports.
func (r *rig) supported() []device.Op {
	return slices.DeleteFunc(r.ops(), func(op device.Op) bool { return !r.dev.Supports(op) })
}

func present(op device.Op, f func(i int, o device.Operand)) {
	for i := 0; op.Operand(i).View != nil; i++ {
		if o := op.Operand(i); !o.View.Absent() {
			f(i, o)
		}
	}
}

// contents downloads the buffers of all operands of op.
func (r *rig) contents(op device.Op) (c [][]byte) {
	r.Helper()
	present(op, func(_ int, o device.Operand) {
		b := make([]byte, o.View.Buf.Size())
		r.must(r.dev.Download(r.s, b, o.View.Buf, 0), "Download")
		c = append(c, b)
	})
	return c
}

// needed reports whether every device must support op: a Map, Reduce or MatMul without options, for
// example.
func needed(op device.Op) bool {
	switch o := op.(type) {
	case *device.Map, *device.Reduce:
		return true
	case *device.MatMul:
		return o.Plain()
	case *device.Gather:
		return !o.Wrap
	case *device.Scatter:
		return !o.Wrap
	}
	return false
}

// testSupports checks that Supports gives the same answer for an op with and without buffers. It
// also checks that Run refuses the ops that the device does not support.
func testSupports(r *rig) {
	for _, op := range r.ops() {
		supported, bare := r.dev.Supports(op), op.Clone()
		if !supported && needed(op) {
			r.Errorf("%s is not supported", op.Name())
		}
		present(bare, func(_ int, o device.Operand) { o.View.Buf = nil })
		if r.dev.Supports(bare) != supported {
			r.Errorf("%s is supported with buffers: %v, without: %v", op.Name(), supported, !supported)
		}
		unknown := device.Op(struct{ device.Op }{op})
		if r.dev.Supports(unknown) {
			r.Errorf("an unknown op, named %s, is supported", op.Name())
		}
		for _, op := range []device.Op{op, unknown} {
			if r.dev.Supports(op) {
				continue
			}
			if err := device.Run(r.dev, r.s, op); !errors.Is(err, errors.ErrUnsupported) {
				r.Errorf("%T, named %s, which is not supported: error %v", op, op.Name(), err)
			}
		}
	}
}

// testOperands checks that Run refuses wrong operands. Every operand must lie within a buffer that
// belongs to the device and has not been freed. The stream must belong to the device. A refused op
// must not write anything.
func testOperands(r *rig) {
	other, err := device.OpenMeta(r.dev.Info().Kind, device.MetaConfig{})
	r.must(err, "OpenMeta")
	for _, op := range r.supported() {
		before := r.contents(op)
		refused := func(i int, what string, change func(v *device.View)) {
			r.Helper()
			bad := op.Clone()
			o := bad.Operand(i)
			change(o.View)
			err := device.Run(r.dev, r.s, bad)
			var e *device.OperandError
			if !errors.As(err, &e) || e.Device != r.dev.Name() || e.Op != op.Name() || !strings.Contains(e.Arg, o.Name) {
				r.Errorf("%s with %s of operand %d, %s: error %v, want an OperandError", op.Name(), what, i, o.Name, err)
			}
		}
		present(op, func(i int, o device.Operand) {
			freed, err := r.dev.Alloc(o.View.Buf.Size(), r.s, device.Origin{Op: "devicetest"})
			r.must(err, "Alloc")
			freed.Free()
			foreign, err := other.Alloc(o.View.Buf.Size(), other.DefaultStream(), device.Origin{Op: "devicetest"})
			r.must(err, "Alloc of another device")
			for what, b := range map[string]device.Buffer{"a freed buffer": freed, "a buffer of another device": foreign, "an unknown kind of buffer": struct{ device.Buffer }{o.View.Buf}, "no buffer": nil} {
				refused(i, what, func(v *device.View) { v.Buf = b })
			}
			foreign.Free()
			for _, at := range []int{-1, 1, 1 << 20, math.MaxInt / o.View.Type.Size(), math.MaxInt/2 + 1, math.MaxInt, math.MinInt} {
				refused(i, fmt.Sprint("offset ", at), func(v *device.View) { v.Offset = at })
			}
			for _, by := range []int{-1, 1 << 20, math.MaxInt/8 + 1, math.MaxInt/4 + 1, math.MaxInt/2 + 1, math.MinInt} {
				if o.View.Shape.At(0) > 1 {
					refused(i, fmt.Sprint("stride ", by), func(v *device.View) { v.Strides = v.Strides.With(0, by) })
				}
			}
		})
		if err := device.Run(r.dev, other.DefaultStream(), op); err == nil {
			r.Errorf("%s on a stream of another device: no error", op.Name())
		}
		if !reflect.DeepEqual(r.contents(op), before) {
			r.Errorf("%s was refused and has written", op.Name())
		}
	}
}

// testOwnership checks that Run does not change an op. It also checks that changing the op after
// Run does not affect queued work.
func testOwnership(r *rig) {
	for _, op := range r.supported() {
		before, as := r.contents(op), op.Clone()
		r.run(op.Name(), op)
		if !reflect.DeepEqual(op, as) {
			r.Errorf("Run has made of %+v %+v", as, op)
		}
		want, k := r.contents(as), 0
		present(as, func(i int, o device.Operand) {
			if wrote := !bytes.Equal(want[k], before[k]); wrote && !o.Written {
				r.Errorf("%s has written to operand %d, %s", as.Name(), i, o.Name)
			}
			r.must(r.dev.Upload(r.s, o.View.Buf, 0, before[k]), "Upload")
			k++
		})
		r.run(op.Name(), op)
		wipe(reflect.ValueOf(op).Elem())
		if !reflect.DeepEqual(r.contents(as), want) {
			r.Errorf("%s gives something else if the op is changed after Run", as.Name())
		}
	}
}

// wipe sets all elements of all slices inside v to zero, and then v itself.
func wipe(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			wipe(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[device.View]() {
			for i := range v.NumField() {
				wipe(v.Field(i))
			}
		}
	}
	v.SetZero()
}
