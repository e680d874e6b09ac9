package tensor

import (
	"fmt"
	"runtime"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

type castFunc struct{ to dtype.Type }

func (castFunc) Name() string { return "cast" }

func (f castFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := alloc("cast", c.Scope(), x.st.dev, f.to, x.layout.Shape)
	run("cast", c.Scope(), castProgram(x.dtype, f.to), y, in, nil)
	return y
}

func (f castFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

// VJP converts and adds in one pass if the gradient becomes wider and the operand has a pending
// gradient. The result has the same bits as a cast followed by a sum.
func (f castFunc) VJP(c *Context, g *Tensor) []*Tensor {
	to := c.n.operands[0].dtype
	if sum := c.pending(0); sum != nil && to.Size() > g.dtype.Size() && exclusive(sum) {
		run("cast.grad", c.scope, addProgram(to, g.dtype), sum, []*Tensor{sum, g}, nil)
		c.took = 1
		return []*Tensor{sum.handle("cast.grad", c.scope, sum.layout)}
	}
	return []*Tensor{g.Cast(to)}
}

// Cast returns x with elements of type t, or x itself if it has that type. Floats that become
// integers are truncated towards zero. For int32 and int64 they are limited to the type's range,
// and NaN becomes 0. Narrower integers wrap.
func (x *Tensor) Cast(t dtype.Type) *Tensor {
	x.use("cast")
	if x.dtype == t {
		return x
	}
	if t.Size() == 0 || t == dtype.U32 || t == dtype.U64 {
		fail("cast", ErrType, []*Tensor{x}, "a tensor cannot be of type %v", t)
	}
	if !t.IsFloat() || !x.dtype.IsFloat() {
		y := alloc("cast", x.scope, x.st.dev, t, x.layout.Shape)
		run("cast", x.scope, castProgram(x.dtype, t), y, []*Tensor{x}, nil)
		return y
	}
	return Apply(castFunc{t}, x)
}

// Float is Cast(dtype.F32).
func (x *Tensor) Float() *Tensor { return x.Cast(dtype.F32) }

// Double is Cast(dtype.F64).
func (x *Tensor) Double() *Tensor { return x.Cast(dtype.F64) }

// Half is Cast(dtype.F16).
func (x *Tensor) Half() *Tensor { return x.Cast(dtype.F16) }

// BFloat16 is Cast(dtype.BF16).
func (x *Tensor) BFloat16() *Tensor { return x.Cast(dtype.BF16) }

// Long is Cast(dtype.I64).
func (x *Tensor) Long() *Tensor { return x.Cast(dtype.I64) }

// Bool is Cast(dtype.Bool): true where x is not 0.
func (x *Tensor) Bool() *Tensor { return x.Cast(dtype.Bool) }

type toFunc struct {
	dev   device.Device
	async bool
}

func (toFunc) Name() string { return "to" }

func (f toFunc) Forward(c *Context, in []*Tensor) *Tensor {
	return in[0].copyTo("to", c.Scope(), f.dev, f.async)
}

func (f toFunc) VJP(c *Context, g *Tensor) []*Tensor { return []*Tensor{g.To(c.n.operands[0].dev)} }

// A ToOption changes how [Tensor.To] copies.
type ToOption func(*toFunc)

// NonBlocking lets To return before the copy is done, if the copy is between a GPU and page-locked
// memory ([Tensor.PinMemory]). A GPU tensor that is copied to the CPU then arrives in page-locked
// memory. NonBlocking has no effect on other copies. Unlike in PyTorch you need not wait for an
// event. An op that reads the result, or overwrites x, waits for the copy, on any device and
// stream.
func NonBlocking() ToOption { return func(f *toFunc) { f.async = true } }

// To returns x on device d, or x itself if x is on d already. Gradients flow back to x's device.
func (x *Tensor) To(d device.Device, opts ...ToOption) *Tensor {
	x.use("to")
	if d == nil {
		fail("to", ErrDevice, []*Tensor{x}, "the device is nil")
	}
	if x.st.dev == d {
		return x
	}
	f := toFunc{dev: d}
	for _, o := range opts {
		o(&f)
	}
	y := Apply(f, x)
	y.made = callSite()
	return y
}

// CUDA returns x on GPU i (default 0), the device "cuda:i". If there is no such GPU, CUDA panics
// with an error that says what is missing.
func (x *Tensor) CUDA(i ...int) *Tensor {
	n := 0
	if len(i) > 0 {
		n = i[0]
	}
	d, err := device.Open(fmt.Sprintf("cuda:%d", n))
	if err != nil {
		panic(newError("cuda", err, []*Tensor{x}, err.Error()))
	}
	return x.To(d)
}

// CPU returns x on the device "cpu". A tensor on a rank of the CPU, such as "cpu:1", is copied too.
func (x *Tensor) CPU() *Tensor { return x.To(hostDevice()) }

// copyTo returns a dense copy of x on device d, in scope s. The copy is not part of the graph. If
// async is true, copyTo need not wait for it.
func (x *Tensor) copyTo(op string, s *Scope, d device.Device, async bool) *Tensor {
	if p := x.pinner(d); async && p != nil {
		c := x
		if !x.layout.Contiguous() {
			c = alloc(op, x.scope, x.st.dev, x.dtype, x.layout.Shape)
			defer c.Free() // c's memory is freed in stream order, after the copy
			run(op, x.scope, castProgram(x.dtype, x.dtype), c, []*Tensor{x}, nil)
		}
		return c.copyPinned(op, s, d, p)
	}
	y := alloc(op, s, d, x.dtype, x.layout.Shape)
	x.copyInto(op, y, async)
	return y
}

// copyInto copies x into y. y has x's size and type, is contiguous, and is new: only the stream on
// which its memory was allocated has used the memory. If async is true, copyInto need not wait for
// the copy.
func (x *Tensor) copyInto(op string, y *Tensor, async bool) {
	d, n := y.st.dev, x.Size()*x.dtype.Size()
	if n == 0 {
		return
	}
	c := x
	if !x.layout.Contiguous() {
		c = alloc(op, x.scope, x.st.dev, x.dtype, x.layout.Shape)
		run(op, x.scope, castProgram(x.dtype, x.dtype), c, []*Tensor{x}, nil)
		defer c.Free()
	}
	off, to := c.layout.Offset*c.dtype.Size(), y.layout.Offset*y.dtype.Size()
	src, dst := c.st.buf, y.st.buf
	from := c.scope.source(op, c.st.dev)
	// The GPU reads page-locked memory in stream order, so the host need not wait for it.
	if c.st.pinnedFor(d) == nil {
		c.st.read(op, from)
	}
	recorded := routeOn(y.st.home).graph != nil
	if recorded && isHost(d) && !isHost(c.st.dev) {
		y.scope.uncapturable(op, "the values come from "+c.st.dev.Name()+", which is not recorded")
	}
	switch {
	case src.Host() != nil && dst.Host() != nil && recorded:
		c.st.read(op, routeOn(y.st.home))
		check(op, d.CopyFrom(y.st.home, dst, to, src, off, n), x)
	case src.Host() != nil && dst.Host() != nil:
		copy(dst.Host()[to:], src.Host()[off:off+n])
	case src.Host() != nil && c.st.pinnedFor(d) != nil:
		c.st.read(op, routeOn(y.st.home)) // makes later writes to x wait for the copy
		check(op, c.st.pinnedFor(d).UploadPinned(y.st.home, dst, to, c.st.pinned(), off, n), x)
		if !async {
			check(op, y.st.home.Synchronize(), x)
		}
	case src.Host() != nil:
		check(op, d.Upload(y.st.home, dst, to, src.Host()[off:off+n]), x)
	case dst.Host() != nil:
		check(op, c.st.dev.Download(from.stream, dst.Host()[to:to+n], src, off), x)
	case src.Device().Info().Kind == d.Info().Kind:
		c.st.read(op, routeOn(y.st.home)) // makes later writes to x wait for the copy
		check(op, d.CopyFrom(y.st.home, dst, to, src, off, n), x)
	default:
		tmp := make([]byte, n)
		check(op, c.st.dev.Download(from.stream, tmp, src, off), x)
		check(op, d.Upload(y.st.home, dst, to, tmp), x)
	}
	runtime.KeepAlive(x)
}

// bytes returns a dense copy of x's elements in host memory.
func (x *Tensor) bytes(op string) []byte {
	x.use(op)
	x.readable(op, x.dtype.Size())
	out := make([]byte, x.Size()*x.dtype.Size())
	x.read(op, out)
	return out
}

// read copies x's elements to out, densely. out must have the length of x's elements in bytes.
func (x *Tensor) read(op string, out []byte) {
	x.use(op)
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, op, nil, []*Tensor{x}))
	}
	if len(out) == 0 {
		return // the offset of an empty tensor may lie after the buffer's end
	}
	c := x
	if !x.layout.Contiguous() {
		c = alloc(op, x.scope, x.st.dev, x.dtype, x.layout.Shape)
		run(op, x.scope, castProgram(x.dtype, x.dtype), c, []*Tensor{x}, nil)
		defer c.Free()
	}
	from := c.scope.source(op, c.st.dev)
	c.st.read(op, from)
	check(op, c.st.dev.Download(from.stream, out, c.st.buf, c.layout.Offset*c.dtype.Size()), x)
	runtime.KeepAlive(x)
}

// Bytes returns a copy of x's elements in row-major order, in their format in memory. A view may
// have more elements than fit into host memory. Then Bytes panics with an error that wraps
// [device.ErrOutOfMemory].
func (x *Tensor) Bytes() []byte { return x.bytes("bytes") }

// FromBytes returns a tensor of type t in the root scope, on the CPU, whose elements are a copy of
// data, in row-major order. For bool every byte except 0 is true.
func FromBytes(t dtype.Type, data []byte, dims ...int) *Tensor {
	x := root.Typed(t).make("from", t, dims)
	if len(data) != x.Size()*t.Size() {
		n := x.Size() * t.Size()
		x.Free()
		fail("from", ErrShape, nil, "%d bytes for shape %v of %v, which takes %d", len(data), shape.Of(dims...), t, n)
	}
	to := x.st.buf.Host()
	copy(to, data)
	if t == dtype.Bool {
		for i, v := range to {
			if v != 0 {
				to[i] = 1
			}
		}
	}
	return x
}
