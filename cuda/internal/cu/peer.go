package cu

// Peers is satisfied by implementations that can end what CtxEnablePeerAccess has begun: both of this build.
type Peers interface {
	// CtxDisablePeerAccess is cuCtxDisablePeerAccess: the current context may no longer address memory of peer's device.
	// ErrPeerAccessNotEnabled where it could not.
	CtxDisablePeerAccess(peer Context) error
}
