package filemap

import "golang.org/x/sys/unix"

// noReserve is a flag for mmap: writable pages count as memory in use only after they are written.
const noReserve = unix.MAP_NORESERVE
