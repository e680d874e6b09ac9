//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package filemap

const noReserve = 0
