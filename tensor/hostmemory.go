package tensor

import (
	"io"
	"runtime"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// FromMemory returns a tensor of type t in the root scope, on the CPU, that uses mem itself as its
// memory, in row-major order. It is torch.frombuffer, for example for memory that is mapped from a
// file. Writes to the tensor change mem.
//
// release, which may be nil, is called once when nothing uses the tensor and its views any more.
// Any goroutine may call it, and it must not block. As long as the tensor is reachable, release
// stays reachable too, even if the tensor was freed. So if release refers to a value that keeps mem
// mapped, mem is not unmapped too early.
//
// Memory that is not aligned to its elements is copied, and so is memory for bools with bytes other
// than 0 and 1. release is then called immediately. FromMemory panics if mem does not have the size
// that the shape needs.
func FromMemory(t dtype.Type, mem []byte, release func(), dims ...int) *Tensor {
	const op = "from_memory"
	if t.Size() == 0 || t == dtype.U32 || t == dtype.U64 {
		fail(op, ErrType, nil, "a tensor cannot be of type %v", t)
	}
	if len(dims) > shape.MaxRank {
		fail(op, ErrShape, nil, "%d dimensions, at most %d are supported", len(dims), shape.MaxRank)
	}
	sh := shape.Of(dims...)
	for _, d := range dims {
		if d < 0 {
			fail(op, ErrShape, nil, "size %d in shape %v is negative", d, sh)
		}
	}
	size, ok := denseBytes(t, sh)
	if !ok {
		fail(op, ErrShape, nil, "shape %v of %v has too many elements", sh, t)
	}
	if size != len(mem) {
		fail(op, ErrShape, nil, "%d bytes for shape %v of %v, which takes %d", len(mem), sh, t, size)
	}
	dev := hostDevice()
	lender, ok := dev.(device.Borrower)
	if !ok || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%uintptr(t.Size()) != 0 || t == dtype.Bool && !onlyBools(mem) {
		x := FromBytes(t, mem, dims...)
		if release != nil {
			release()
		}
		return x
	}
	stream := root.streamOf(dev)
	st := &storage{dev: dev, buf: lender.Borrow(mem, release), userOwned: true, home: stream, writer: stream}
	x := &Tensor{st: st, layout: shape.Dense(sh), dtype: t, op: op, made: callSite()}
	x.self = x
	st.refs.Store(1)
	root.addOwned(x, true)
	return x
}

func onlyBools(mem []byte) bool {
	for _, b := range mem {
		if b > 1 {
			return false
		}
	}
	return true
}

// A Storage is the memory that tensors share, torch's x.untyped_storage(). Storages of two tensors
// are equal if and only if the tensors are views of the same memory.
type Storage struct{ st *storage }

// Storage returns the memory that x is a view of.
func (x *Tensor) Storage() Storage {
	x.use("storage")
	return Storage{x.st}
}

// Bytes returns the size of the memory in bytes, torch's nbytes.
func (s Storage) Bytes() int { return s.st.buf.Size() }

// StorageOffset returns the position of x's first element in its storage, counted in elements, as
// torch's x.storage_offset() does.
func (x *Tensor) StorageOffset() int {
	x.use("storage_offset")
	return x.layout.Offset
}

// WriteTo writes x's elements in row-major order, in their format in memory, and returns the number
// of written bytes. Contiguous tensors on the CPU are written without a copy. Other tensors are
// copied through a buffer of 4 MiB. If they are not contiguous they are first copied on their
// device. WriteTo returns errors of w. Misuse panics, as elsewhere.
func (x *Tensor) WriteTo(w io.Writer) (written int64, err error) {
	const op, piece = "write_to", 4 << 20
	x.use(op)
	n := x.Size() * x.dtype.Size()
	if n == 0 {
		return 0, nil // the offset of an empty tensor may lie after the buffer's end
	}
	c := x
	if !x.layout.Contiguous() {
		c = alloc(op, x.scope, x.st.dev, x.dtype, x.layout.Shape)
		run(op, x.scope, castProgram(x.dtype, x.dtype), c, []*Tensor{x}, nil)
		defer c.Free()
	}
	from := c.scope.source(op, c.st.dev)
	c.st.read(op, from)
	at := c.layout.Offset * c.dtype.Size()
	host := c.st.buf.Host()
	var tmp []byte
	if host != nil {
		check(op, from.stream.Synchronize(), x)
		host = host[at : at+n]
	} else {
		tmp = make([]byte, min(n, piece))
	}
	for done := 0; done < n; {
		part := tmp
		if host != nil {
			part = host[done:min(done+piece, n)]
		} else {
			part = part[:min(len(part), n-done)]
			check(op, c.st.dev.Download(from.stream, part, c.st.buf, at+done), x)
		}
		k, err := w.Write(part)
		written += int64(k)
		if err != nil {
			return written, err
		}
		done += len(part)
	}
	runtime.KeepAlive(x)
	runtime.KeepAlive(c)
	return written, nil
}

// Addr returns the memory's address on its device, torch's x.untyped_storage().data_ptr(). Use it
// only to find the tensor's block among a device's blocks ([device.MemoryEvent]).
func (s Storage) Addr() uintptr { return s.st.buf.Addr() }

// DataPtr returns the address of x's first element on its device, torch's data_ptr. It is for
// reports such as [device.MemorySnapshot.Label], and to see whether two tensors share memory. Do
// not access the memory through it: the address keeps nothing alive. [Raw] gives access. On a GPU
// the address of a tensor without elements is 0.
func (x *Tensor) DataPtr() uintptr {
	x.use("data_ptr")
	p := x.st.buf.Addr()
	if p != 0 {
		p += uintptr(x.layout.Offset * x.dtype.Size())
	}
	return p
}
