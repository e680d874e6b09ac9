package device

// Preparer is satisfied by devices that load code when it is first used, which takes memory.
type Preparer interface {
	// Prepare loads the code of an op whose kernels do not depend on its views, such as a
	// [MultiMap]; of others it loads nothing. Launches that belong together are prepared first, so
	// that out-of-memory comes before the first of them.
	Prepare(op Op) error
}
