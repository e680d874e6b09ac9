package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// Kernel is a kernel that a program made with package ptx, together with the shape of its launches.
// It can be used for any number of devices and launches. Each device loads it once.
type Kernel struct {
	k      *kernels.Kernel
	params []ptx.Param
}

// KernelConfig is the shape in which a kernel is launched.
type KernelConfig struct {
	Block  [3]int // number of threads of a block along each axis; 0 means 1
	Shared int    // size of a block's dynamic shared memory in bytes
	// Overlap lets the kernel start before earlier work on its stream has ended. The kernel must
	// call [ptx.Builder.GridDependencyWait] before it reads or writes memory that the earlier work
	// writes. In a recording the kernel starts only after the earlier work. Drivers older than CUDA
	// 11.6 refuse the launch.
	Overlap bool
}

// KernelError says why a kernel cannot be launched with a [KernelConfig].
type KernelError struct {
	Kernel string
	Reason string
}

func (e *KernelError) Error() string { return "cuda: kernel " + e.Kernel + ": " + e.Reason }

// NewKernel gives a kernel its launch shape. A block has at most 1024 threads, at most 64 along the
// third axis, and no more than the kernel declares with MaxThreads. The error is a *[KernelError].
//
// The argument k may also be a literal that describes PTX text of another compiler: the entry's
// name, the text, its version and target, and its parameters with their offsets. NewKernel does not
// compare the description with the text. If the driver refuses the text, the first launch returns
// the error.
func NewKernel(k *ptx.Kernel, c KernelConfig) (*Kernel, error) {
	own := &kernels.Kernel{Name: k.Name, Entry: k.Name, PTX: k.Text, StaticShared: k.StaticShared, DynShared: c.Shared,
		ParamSize: k.ParamSize, Version: k.Version, Target: k.Target, Exact: k.Exact, Overlap: c.Overlap, Foreign: true}
	limits, threads := [3]int{1024, 1024, 64}, 1
	for i, n := range c.Block {
		if n == 0 {
			c.Block[i] = 1
		}
	}
	for i, n := range c.Block {
		if n < 0 || n > limits[i] || k.MaxThreads[i] > 0 && n > k.MaxThreads[i] {
			return nil, &KernelError{k.Name, fmt.Sprintf("a block of %v threads: at most %v are possible, and the kernel declares %v", c.Block, limits, k.MaxThreads)}
		}
		threads *= n
		own.Block[i] = uint32(n)
	}
	if threads > 1024 {
		return nil, &KernelError{k.Name, fmt.Sprintf("a block of %v is %d threads, at most 1024 are possible", c.Block, threads)}
	}
	if c.Shared < 0 {
		return nil, &KernelError{k.Name, fmt.Sprintf("%d bytes of shared memory", c.Shared)}
	}
	return &Kernel{own, k.Params}, nil
}

// Strided is a view that may have any strides. The program must pass the strides to the kernel in
// further arguments. As for every view, the kernel receives a pointer to the view's first element.
type Strided device.View

// Launch queues a launch of k with grid blocks along each axis (0 means 1) on s, a stream of d. If
// s is nil, it uses the default stream. The arguments args are the kernel's parameters in their
// order:
//
//   - for a pointer, a [device.View] of d's memory, contiguous and of elements of the pointer's
//     type, or a [Strided];
//   - for a scalar, a Go value of its type (uint32 for ptx.U32, float32 for ptx.F32), or an int
//     within the range of an integer parameter;
//   - for ParamBytes, a []byte of its size.
//
// If an argument does not fit, nothing is queued and the error is a *[device.OperandError].
// Hardware does not check the kernel's accesses to memory. An access out of bounds may destroy the
// process's context, or stay unnoticed. An emulated GPU checks every access. tensor.Raw gives
// access to the views of tensors.
func (d *Device) Launch(s device.Stream, k *Kernel, grid [3]int, args ...any) error {
	if k == nil {
		return d.refusal("launch", "kernel", "nil")
	}
	st, err := d.stream(k.k.Name, s)
	if err != nil {
		return err
	}
	l := kernels.Launch{Kernel: k.k}
	limits := [3]int{math.MaxInt32, math.MaxUint16, math.MaxUint16}
	for i, n := range grid {
		if n < 0 || n > limits[i] {
			return d.refusal(k.k.Name, "grid", fmt.Sprintf("%v blocks: at most %v are possible", grid, limits))
		}
		l.Grid[i] = uint32(max(n, 1))
	}
	if len(args) != len(k.params) {
		return d.refusal(k.k.Name, "arguments", fmt.Sprintf("%d are given, the kernel takes %d", len(args), len(k.params)))
	}
	l.Params = make([]byte, k.k.ParamSize)
	for i, p := range k.params {
		var b [8]byte
		raw, why := b[:], ""
		if p.Type == ptx.U8 {
			if raw, _ = args[i].([]byte); len(raw) != p.Size {
				why = fmt.Sprintf("%T of %d bytes, the kernel takes %d bytes", args[i], len(raw), p.Size)
			}
		} else {
			var bits uint64
			bits, why = d.argument(p, args[i])
			binary.LittleEndian.PutUint64(raw, bits)
		}
		if why != "" {
			return d.refusal(k.k.Name, fmt.Sprintf("argument %d (%s)", i, p.Name), why)
		}
		copy(l.Params[p.Offset:p.Offset+p.Size], raw)
	}
	t := device.Tracing()
	if t == nil {
		return d.queue(st, []kernels.Launch{l})
	}
	e := device.KernelEvent{Device: d, Stream: st, Primitive: k.k.Name, Start: device.Now()}
	if t.Wants().KernelShapes {
		e.Shapes = shapesOf(args)
	}
	if err := d.launch(st, []kernels.Launch{l}, &e); err != nil {
		return err
	}
	e.End = device.Now()
	t.Kernel(e)
	return nil
}

// shapesOf returns the shapes of the views in a kernel's arguments.
func shapesOf(args []any) (list []shape.Dims) {
	for _, a := range args {
		switch v := a.(type) {
		case device.View:
			list = append(list, v.Shape)
		case Strided:
			list = append(list, v.Shape)
		}
	}
	return list
}

// argument returns the bits that are passed to the kernel for parameter p. If a does not fit, it
// returns the reason.
func (d *Device) argument(p ptx.Param, a any) (bits uint64, reason string) {
	if p.Elem != ptx.Invalid {
		v, ok := a.(device.View)
		dense := ok
		if s, is := a.(Strided); is {
			v, ok = device.View(s), true
		}
		if !ok {
			return 0, fmt.Sprintf("%T, want a device.View of %v", a, p.Elem)
		}
		if reason := device.Outside(d, &v); reason != "" {
			return 0, reason
		}
		if !holds(p.Elem, v.Type) {
			return 0, fmt.Sprintf("a view of %v, the kernel reads %v", v.Type, p.Elem)
		}
		if dense && !v.Contiguous() {
			return 0, fmt.Sprintf("shape %v with strides %v is not contiguous; a kernel that is told strides takes it as Strided", v.Shape, v.Strides)
		}
		return firstOf(&v), ""
	}
	if n, ok := a.(int); ok && p.Type.IsInt() {
		lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
		switch w := 8 * p.Size; {
		case w < 64 && p.Type.IsSigned():
			lo, hi = -1<<(w-1), 1<<(w-1)-1
		case w < 64:
			lo, hi = 0, 1<<w-1
		case !p.Type.IsSigned():
			lo = 0
		}
		if int64(n) < lo || int64(n) > hi {
			return 0, fmt.Sprintf("%d is not a value of %v", n, p.Type)
		}
		return uint64(n), ""
	}
	t := ptx.Invalid
	switch v := a.(type) {
	case uint32:
		t, bits = ptx.U32, uint64(v)
	case int32:
		t, bits = ptx.S32, uint64(v)
	case uint64:
		t, bits = ptx.U64, v
	case int64:
		t, bits = ptx.S64, uint64(v)
	case float32:
		t, bits = ptx.F32, uint64(math.Float32bits(v))
	case float64:
		t, bits = ptx.F64, math.Float64bits(v)
	}
	// parameters of type B32 and B64 accept unsigned integers
	if t == ptx.U32 && p.Type == ptx.B32 || t == ptx.U64 && p.Type == ptx.B64 {
		t = p.Type
	}
	if t == ptx.Invalid || t != p.Type {
		return 0, fmt.Sprintf("%T, the kernel takes %v", a, p.Type)
	}
	return bits, ""
}

// holds reports whether elements of type t can be passed to a pointer whose elements have the PTX
// type p. They can if p is the same type, or an untyped word of the same size. Bool is a byte of 0
// or 1.
func holds(p ptx.Type, t dtype.Type) bool {
	switch p {
	case ptx.B16, ptx.B32, ptx.B64:
		return p.Size() == t.Size()
	case ptx.U8:
		return t == dtype.U8 || t == dtype.Bool
	}
	of := map[ptx.Type]dtype.Type{ptx.S8: dtype.I8, ptx.S16: dtype.I16, ptx.S32: dtype.I32, ptx.S64: dtype.I64, ptx.U32: dtype.U32, ptx.U64: dtype.U64,
		ptx.F16: dtype.F16, ptx.BF16: dtype.BF16, ptx.F32: dtype.F32, ptx.F64: dtype.F64}
	return of[p] == t && t != dtype.Invalid
}
