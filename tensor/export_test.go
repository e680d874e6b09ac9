package tensor

// Unordered runs f without what keeps streams apart: with waits, ops do not wait for other streams; with uses, memory is reused without
// regard to foreign streams.
func Unordered(waits, uses bool, f func()) {
	withoutWaits, withoutUses = waits, uses
	defer func() { withoutWaits, withoutUses = false, false }()
	f()
}
