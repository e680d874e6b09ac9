package filemap

import "golang.org/x/sys/unix"

// noReserve is a flag for mmap. With it, the system reserves no memory for writable pages until
// they are written.
const noReserve = unix.MAP_NORESERVE
