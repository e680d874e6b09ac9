//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

var _ Peers = (*driver)(nil)

// peerSymbols are the functions of [Peers]. All are in Minimum.
type peerSymbols struct{ ctxDisablePeerAccess uintptr }

func init() {
	symbolTable = append(symbolTable, symbol{"cuCtxDisablePeerAccess", "", func(s *symbols) *uintptr { return &s.ctxDisablePeerAccess }})
}

func (d *driver) CtxDisablePeerAccess(peer Context) error {
	return fail(call1(d.fn.ctxDisablePeerAccess, uintptr(peer)), "cuCtxDisablePeerAccess")
}
