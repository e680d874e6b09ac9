package device

// PinnedAllocator is satisfied by devices that copy from and to page-locked host memory without holding up the host. Such memory is
// scarce: it cannot be paged out, and taking it from the system is slow, so that a device keeps what is given back.
type PinnedAllocator interface {
	Device
	// AllocPinned returns page-locked host memory, contents undefined; its Host is never nil. Free and Queue give it back for the next
	// AllocPinned, which gets it only when the copies below that use it are done. Use has no effect. The error may wrap [ErrOutOfMemory].
	AllocPinned(bytes int, o Origin) (Buffer, error)
	// UploadPinned queues a copy of size bytes from src, memory of AllocPinned of this device or of another of its driver, to dst, a
	// buffer of this device, and returns. The host may not write those bytes before the copy is done.
	UploadPinned(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error
	// DownloadPinned queues the copy the other way and returns. The host may read the bytes after a wait for s.
	DownloadPinned(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error
	// PinnedStats tells the page-locked memory of the driver; EmptyPinned gives what is not in use back to the system and returns its bytes.
	PinnedStats() Stats
	EmptyPinned() int
}

// Importer is satisfied by devices whose work can use memory of other drivers: the CPU, for page-locked memory.
type Importer interface {
	// Import returns a buffer of this device on the memory of b, whose Host is not nil. Free, Queue and Use are passed on to b.
	Import(b Buffer) (Buffer, error)
}
