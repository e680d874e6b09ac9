package tensor

// DataPtr returns the address of x's first element on its device (torch's data_ptr): for reports such as [device.MemorySnapshot.Label],
// and to see whether two tensors share memory. It is no way to the memory, which [Raw] is: the address keeps nothing alive.
// A tensor without elements has the address 0 on a GPU.
func (x *Tensor) DataPtr() uintptr {
	x.use("data_ptr")
	p := x.st.buf.Addr()
	if p != 0 {
		p += uintptr(x.layout.Offset * x.dtype.Size())
	}
	return p
}
