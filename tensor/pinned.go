package tensor

import (
	"fmt"
	"runtime"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// pinFunc copies its operand to page-locked memory.
type pinFunc struct{ p device.PinnedAllocator }

func (pinFunc) Name() string { return "pin_memory" }

func (f pinFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := allocPinned("pin_memory", c.Scope(), x.st.dev, f.p, x.dtype, x.layout.Shape)
	n := x.Size() * x.dtype.Size()
	switch {
	case n == 0:
	case x.layout.Contiguous():
		off := x.layout.Offset * x.dtype.Size()
		x.st.read("pin_memory", routeOn(y.st.home))
		check("pin_memory", y.st.dev.CopyFrom(y.st.home, y.st.buf, 0, x.st.buf, off, n), x)
	default:
		run("pin_memory", c.Scope(), castProgram(x.dtype, x.dtype), y, in, nil)
	}
	runtime.KeepAlive(x)
	return y
}

func (f pinFunc) VJP(_ *Context, g *Tensor) []*Tensor { return []*Tensor{g} }

// PinMemory returns a copy of x in memory that is page-locked for GPU d, as torch's pin_memory
// does. x must be on the CPU or on a rank of the CPU, and the copy is there too. If x is already
// page-locked, the result is x itself. All GPUs of d's driver can use the copy. By default d is a
// GPU that the program has opened, or else "cuda:0". [Tensor.To] with [NonBlocking] copies from
// such memory while the host and other streams continue. The memory comes from a cache, and returns
// to the cache when the copies that use it are done. If there is no GPU, PinMemory panics with an
// error that says what is missing.
func (x *Tensor) PinMemory(d ...device.Device) *Tensor {
	x.use("pin_memory")
	if x.IsPinned() {
		return x
	}
	if !isHost(x.st.dev) {
		fail("pin_memory", ErrDevice, []*Tensor{x}, "only memory of the CPU can be pinned")
	}
	return Apply(pinFunc{pinnedAllocator("pin_memory", x, d)}, x)
}

// pinnedAllocator returns the allocator of d[0]. Without d it returns the allocator of a GPU in
// use, or of the first GPU.
func pinnedAllocator(op string, x *Tensor, d []device.Device) device.PinnedAllocator {
	var dev device.Device
	if len(d) > 0 {
		dev = d[0]
	} else {
		var err error
		if dev, err = device.OpenAny("cuda"); err != nil {
			panic(newError(op, err, []*Tensor{x}, err.Error()))
		}
	}
	p, ok := dev.(device.PinnedAllocator)
	if !ok {
		name := "nil"
		if dev != nil {
			name = dev.Name()
		}
		fail(op, ErrDevice, []*Tensor{x}, "device %s has no page-locked memory: that is of GPUs", name)
	}
	return p
}

// IsPinned reports whether x is in page-locked memory, as results of PinMemory and their views are.
func (x *Tensor) IsPinned() bool {
	x.use("is_pinned")
	return x.st.pinned() != nil
}

// pinned returns the page-locked memory that st uses on the CPU. Another device's driver has
// allocated it. The result is nil if st uses ordinary memory.
func (st *storage) pinned() device.Buffer {
	if !st.isPinned {
		return nil
	}
	return st.more.pinned
}

// pinnedFor returns d as the allocator that can copy from the storage's page-locked memory. It is
// nil if the memory is not page-locked, or if it belongs to another kind of device.
func (st *storage) pinnedFor(d device.Device) device.PinnedAllocator {
	if b := st.pinned(); b == nil || b.Device().Info().Kind != d.Info().Kind {
		return nil
	}
	p, _ := d.(device.PinnedAllocator)
	return p
}

// pinner returns the allocator that can copy x from its GPU to page-locked memory of d. It returns
// nil if x is empty or not on a GPU, or if d is neither the CPU nor a rank of the CPU.
func (x *Tensor) pinner(d device.Device) device.PinnedAllocator {
	if !isHost(d) || x.Size() == 0 {
		return nil
	}
	p, _ := x.st.dev.(device.PinnedAllocator)
	return p
}

// copyPinned queues a copy of the dense x from a GPU to page-locked memory of host.
func (x *Tensor) copyPinned(op string, s *Scope, host device.Device, p device.PinnedAllocator) *Tensor {
	y := allocPinned(op, s, host, p, x.dtype, x.layout.Shape)
	from := x.scope.route(op, x.st.dev)
	x.st.read(op, from)
	size := x.dtype.Size()
	check(op, p.DownloadPinned(from.stream, y.st.pinned(), 0, x.st.buf, x.layout.Offset*size, x.Size()*size), x)
	y.st.write(op, from) // readers of y wait for that stream
	runtime.KeepAlive(x)
	return y
}

// allocPinned allocates a contiguous tensor in page-locked memory, with undefined contents, in
// scope s. host is a device of the kind that isHost accepts.
func allocPinned(op string, s *Scope, host device.Device, p device.PinnedAllocator, t dtype.Type, sh shape.Dims) *Tensor {
	o := device.Origin{Op: op, Shape: sh, Type: t, Collected: s == root}
	bytes, ok := denseBytes(t, sh)
	if !ok {
		fail(op, ErrShape, nil, "shape %v of %v has too many elements", sh, t)
	}
	pinned, err := p.AllocPinned(bytes, o)
	if err != nil {
		panic(newError(op, err, nil, fmt.Sprintf("result %v %v in page-locked memory: %v", sh, t, err)))
	}
	stream := s.streamOf(host)
	buf := host.(device.Borrower).Borrow(pinned.Host(), pinned.Free)
	st := &storage{dev: host, buf: buf, userOwned: true, home: stream, writer: stream}
	st.isPinned, st.more = true, &storageMore{pinned: pinned}
	x := &Tensor{st: st, layout: shape.Dense(sh), dtype: t, op: op, made: callSite()}
	x.self = x
	st.refs.Store(1)
	s.addOwned(x, true)
	return x
}
