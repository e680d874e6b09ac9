package device

import "context"

// A Rehearser is satisfied by devices that load code when it is first used, which takes its time
// where the driver compiles it. What a program needs can be found out without work being done, and
// loaded before: the program runs on a device without memory first.
type Rehearser interface {
	Device
	// Rehearsal returns a new device without memory (see [OpenMeta]) that takes the kernels which
	// this one would take, and remembers them.
	Rehearsal() (Device, error)
	// Load loads the kernels that a device of Rehearsal has taken and that are not loaded yet,
	// several at once, and returns when they are or ctx ends. It tells progress, which may be nil,
	// how many of all there are; progress is not called twice at once. The error is that of a
	// kernel that the driver refuses, after which the others are loaded all the same, or ctx's.
	Load(ctx context.Context, rehearsal Device, progress func(done, all int)) error
}
