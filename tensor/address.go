package tensor

// Addr returns where the memory lies on its device: torch's x.untyped_storage().data_ptr(). It says which of a device's blocks
// ([device.MemoryEvent]) is a tensor's, and no more.
func (s Storage) Addr() uintptr { return s.st.buf.Addr() }
