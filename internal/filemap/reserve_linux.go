package filemap

import "golang.org/x/sys/unix"

// noReserve keeps pages that may be written, but are not, from counting as memory in use.
const noReserve = unix.MAP_NORESERVE
