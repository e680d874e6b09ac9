package filemap

import "golang.org/x/sys/unix"

// noReserve keeps writable pages from counting as memory in use before they are written.
const noReserve = unix.MAP_NORESERVE
