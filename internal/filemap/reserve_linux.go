package filemap

import "golang.org/x/sys/unix"

// noReserve is a flag for mmap. With it, writable pages count as used memory only after they are
// written.
const noReserve = unix.MAP_NORESERVE
